#include "rendezvous/server_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/math.h"

struct entry {
    struct entry *next;
    uint64_t hash;
    unsigned char *value;
    size_t bytes;
    size_t key_len;
    char key[];
};

/* One store: the clients that opened the same name, one for each rank. A second open of a rank belongs to the next
 * session of that name. */
struct server_session {
    struct server_session *next;
    char name[STORE_NAME_MAX + 1];
    int size, joined;
    bool *here;
    struct server_client *clients;
    struct entry **buckets; /* a power of two of them */
    size_t nbuckets, entries;
};

/* ---- replies ---- */

static void give(struct server_state *d, struct server_client *c, int code, int64_t number, const void *value,
                 size_t bytes)
{
    c->waits = false;
    c->prefix = 0;
    d->answer(c, &(struct frame_reply){.code = code, .number = number, .value = value, .bytes = bytes});
}

static void refuse(struct server_state *d, struct server_client *c, int code, const char *text)
{
    give(d, c, code, 0, text, strlen(text));
}

/* ---- entries ---- */

static struct entry **find(const struct server_session *s, const char *key, size_t len, uint64_t *hash)
{
    *hash = hash_bytes(0, key, len);
    struct entry **at = &s->buckets[*hash & (s->nbuckets - 1)];
    while (*at && ((*at)->hash != *hash || (*at)->key_len != len || memcmp((*at)->key, key, len)))
        at = &(*at)->next;
    return at;
}

static size_t weight(const struct entry *e)
{
    return sizeof *e + e->key_len + e->bytes;
}

static void drop(struct server_state *d, struct server_session *s, struct entry **at)
{
    struct entry *e = *at;
    *at = e->next;
    d->bytes -= weight(e);
    s->entries--;
    free(e->value);
    free(e);
}

/* Doubles the number of buckets. Without memory for them nothing changes. */
static void grow(struct server_session *s)
{
    size_t n = s->nbuckets * 2;
    struct entry **buckets = calloc(n, sizeof *buckets);
    if (!buckets)
        return;
    for (size_t i = 0; i < s->nbuckets; i++) {
        for (struct entry *e = s->buckets[i], *next; e; e = next) {
            next = e->next;
            e->next = buckets[e->hash & (n - 1)];
            buckets[e->hash & (n - 1)] = e;
        }
    }
    free(s->buckets);
    s->buckets = buckets;
    s->nbuckets = n;
}

/* Finds or makes the entry of a key. NULL: there is no room, and *why has the text of the refusal. */
static struct entry *enter(struct server_state *d, struct server_session *s, const struct frame_request *r,
                           const char **why)
{
    uint64_t hash;
    struct entry *e = *find(s, r->key, r->key_len, &hash);
    size_t more = (e ? 0 : sizeof *e + r->key_len) + r->bytes;
    *why = "the store is full: it holds 256 MiB";
    if (d->bytes - (e ? e->bytes : 0) + more > STORE_BYTES_MAX)
        return NULL;
    if (e)
        return e;
    *why = "the store is full: it has 262144 keys";
    if (s->entries == STORE_ENTRIES_MAX)
        return NULL;
    *why = "the store is out of memory";
    e = calloc(1, sizeof *e + r->key_len);
    if (!e)
        return NULL;
    if (s->entries >= s->nbuckets)
        grow(s);
    struct entry **at = &s->buckets[hash & (s->nbuckets - 1)];
    *e = (struct entry){.next = *at, .hash = hash, .key_len = r->key_len};
    memcpy(e->key, r->key, r->key_len);
    *at = e;
    s->entries++;
    d->bytes += weight(e);
    return e;
}

/* ---- sessions ---- */

static struct server_session *session_new(struct server_state *d, const char *name, int size)
{
    struct server_session *s = calloc(1, sizeof *s), **at = &d->sessions;
    if (!s)
        return NULL;
    snprintf(s->name, sizeof s->name, "%s", name);
    s->size = size;
    s->nbuckets = 64;
    s->here = calloc((size_t)size, sizeof *s->here);
    s->buckets = calloc(s->nbuckets, sizeof *s->buckets);
    if (!s->here || !s->buckets) {
        free(s->here);
        free(s->buckets);
        free(s);
        return NULL;
    }
    while (*at)
        at = &(*at)->next;
    *at = s;
    return s;
}

static void session_free(struct server_state *d, struct server_session *s)
{
    struct server_session **at = &d->sessions;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    for (size_t i = 0; i < s->nbuckets; i++)
        while (s->buckets[i])
            drop(d, s, &s->buckets[i]);
    free(s->buckets);
    free(s->here);
    free(s);
}

static bool is_here(void *arg, int rank)
{
    return ((struct server_session *)arg)->here[rank];
}

/* The oldest session of the name that the rank has not joined yet. */
static struct server_session *session_for(struct server_state *d, const char *name, int rank)
{
    for (struct server_session *s = d->sessions; s; s = s->next)
        if (!strcmp(s->name, name) && s->joined < s->size && (rank >= s->size || !s->here[rank]))
            return s;
    return NULL;
}

static void all_joined(struct server_state *d, struct server_session *s)
{
    for (struct server_client *c = s->clients; c; c = c->next)
        give(d, c, 0, d->served_by, NULL, 0);
}

static bool join(struct server_state *d, struct server_client *c, const struct frame_request *r, int64_t until)
{
    uint64_t number = (uint64_t)r->number;
    uint32_t rank = (uint32_t)number, size = (uint32_t)(number >> 32);
    char name[STORE_NAME_MAX + 1] = "", text[160];
    if (size < 1 || size > STORE_RANKS_MAX || rank >= size)
        return false;
    memcpy(name, r->key, r->key_len);
    struct server_session *s = session_for(d, name, (int)rank);
    if (s && s->size != (int)size) {
        snprintf(text, sizeof text, "rank %u says that there are %u ranks, others say %d", rank, size, s->size);
        refuse(d, c, WEFT_EMISMATCH, text);
        for (struct server_client *w = s->clients; w; w = w->next)
            if (w->waits)
                refuse(d, w, WEFT_EMISMATCH, text);
        return true;
    }
    if (!s)
        s = session_new(d, name, (int)size);
    if (!s) {
        refuse(d, c, WEFT_ENOMEM, "the store is out of memory");
        return true;
    }
    s->here[rank] = true;
    s->joined++;
    c->session = s;
    c->rank = (int)rank;
    c->next = s->clients;
    s->clients = c;
    c->waits = true;
    c->key[0] = 0;
    c->until = until;
    if (s->joined == s->size)
        all_joined(d, s);
    return true;
}

void server_state_leave(struct server_state *d, struct server_client *c)
{
    struct server_session *s = c->session;
    if (!s)
        return;
    struct server_client **at = &s->clients;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    if (s->joined < s->size) {
        s->here[c->rank] = false;
        s->joined--;
    }
    *c = (struct server_client){.session = NULL};
    if (!s->clients)
        session_free(d, s);
}

bool server_state_joining(const struct server_client *c)
{
    return c->session && c->waits && !c->key[0];
}

/* ---- requests ---- */

static void gather(struct server_state *d, struct server_client *c);

static void set(struct server_state *d, struct server_client *c, const struct frame_request *r)
{
    struct server_session *s = c->session;
    unsigned char *value = malloc(r->bytes + 1);
    const char *why = "the store is out of memory";
    struct entry *e = value ? enter(d, s, r, &why) : NULL;
    if (!e) {
        free(value);
        refuse(d, c, WEFT_ENOMEM, why);
        return;
    }
    memcpy(value, r->value, r->bytes);
    free(e->value);
    d->bytes -= weight(e);
    e->value = value;
    e->bytes = r->bytes;
    d->bytes += weight(e);
    give(d, c, 0, 0, NULL, 0);
    for (struct server_client *w = s->clients; w; w = w->next)
        if (w->waits && strlen(w->key) == r->key_len && !memcmp(w->key, r->key, r->key_len))
            w->prefix ? gather(d, w) : give(d, w, 0, 0, e->value, e->bytes);
}

static void get(struct server_state *d, struct server_client *c, const struct frame_request *r, int64_t now)
{
    uint64_t hash;
    struct entry *e = *find(c->session, r->key, r->key_len, &hash);
    if (e) {
        give(d, c, 0, 0, e->value, e->bytes);
    } else if (!r->wait_ms) {
        refuse(d, c, WEFT_ETIMEOUT, "");
    } else {
        memcpy(c->key, r->key, r->key_len);
        c->key[r->key_len] = 0;
        c->waits = true;
        c->until = now + (int64_t)r->wait_ms * 1000000;
    }
}

static struct entry *part(struct server_client *c, int rank)
{
    uint64_t hash;
    int n = snprintf(c->key + c->prefix, sizeof c->key - c->prefix, "/%d", rank);
    return *find(c->session, c->key, c->prefix + (size_t)n, &hash);
}

/* Waits for the first value that is missing. When none is missing, sends as many as fit. */
static void gather(struct server_state *d, struct server_client *c)
{
    const struct entry *e;
    c->waits = true;
    while (c->seen < c->session->size) {
        if (!part(c, c->seen))
            return;
        c->seen++;
    }
    unsigned char *packed = malloc(FRAME_REPLY_MAX);
    size_t n = 0;
    int r = c->first;
    for (; packed && r < c->session->size && (e = part(c, r)) && n + 4 + e->bytes <= FRAME_REPLY_MAX; r++) {
        uint32_t length = (uint32_t)e->bytes;
        memcpy(packed + n, &length, 4);
        memcpy(packed + n + 4, e->value, e->bytes);
        n += 4 + e->bytes;
    }
    if (!packed)
        refuse(d, c, WEFT_ENOMEM, "the store is out of memory");
    else
        give(d, c, 0, r - c->first, packed, n);
    free(packed);
}

static bool gather_from(struct server_state *d, struct server_client *c, const struct frame_request *r, int64_t now)
{
    if (r->number < 0 || r->number >= c->session->size || r->key_len + sizeof "/65535" > sizeof c->key)
        return false;
    memcpy(c->key, r->key, r->key_len);
    c->prefix = r->key_len;
    c->first = c->seen = (int)r->number;
    c->until = now + (int64_t)r->wait_ms * 1000000;
    gather(d, c);
    return true;
}

bool server_state_ask(struct server_state *d, struct server_client *c, const struct frame_request *r, int64_t now)
{
    if (c->waits || (r->op == FRAME_JOIN) != !c->session)
        return false;
    switch (r->op) {
    case FRAME_JOIN: return join(d, c, r, now + (int64_t)r->wait_ms * 1000000);
    case FRAME_SET: set(d, c, r); return true;
    case FRAME_GET: get(d, c, r, now); return true;
    case FRAME_GATHER: return gather_from(d, c, r, now);
    case FRAME_LEAVE: break;
    }
    server_state_leave(d, c);
    return false;
}

/* ---- time ---- */

static void late(struct server_state *d, struct server_client *c)
{
    char text[256], missing[192];
    if (!server_state_joining(c)) {
        refuse(d, c, WEFT_ETIMEOUT, "");
        return;
    }
    store_missing(missing, sizeof missing, c->session->size, is_here, c->session);
    snprintf(text, sizeof text, "%s did not come in time", missing);
    refuse(d, c, WEFT_ETIMEOUT, text);
}

int64_t server_state_expire(struct server_state *d, int64_t now)
{
    int64_t next = INT64_MAX;
    for (struct server_session *s = d->sessions; s; s = s->next) {
        for (struct server_client *c = s->clients; c; c = c->next) {
            if (c->waits && c->until <= now)
                late(d, c);
            if (c->waits)
                next = min64(next, c->until);
        }
    }
    return next;
}
