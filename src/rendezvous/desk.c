#include "rendezvous/desk.h"

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

/* The opens of one name that belong together: the first of each rank that is not in an earlier one. */
struct desk_session {
    struct desk_session *next;
    char name[STORE_NAME_MAX + 1];
    int size, joined;
    bool *here;
    struct desk_guest *guests;
    struct entry **buckets; /* a power of two of them */
    size_t nbuckets, entries;
};

/* ---- replies ---- */

static void give(struct desk *d, struct desk_guest *g, int code, int64_t number, const void *value, size_t bytes)
{
    g->waits = false;
    g->prefix = 0;
    d->answer(g, &(struct frame_reply){.code = code, .number = number, .value = value, .bytes = bytes});
}

static void refuse(struct desk *d, struct desk_guest *g, int code, const char *text)
{
    give(d, g, code, 0, text, strlen(text));
}

/* ---- entries ---- */

static struct entry **find(const struct desk_session *s, const char *key, size_t len, uint64_t *hash)
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

static void drop(struct desk *d, struct desk_session *s, struct entry **at)
{
    struct entry *e = *at;
    *at = e->next;
    d->bytes -= weight(e);
    s->entries--;
    free(e->value);
    free(e);
}

/* Twice as many buckets; as it was if there is no memory for them. */
static void grow(struct desk_session *s)
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

/* The entry of a key, made if need be; NULL, with the text of the refusal: there is no room. */
static struct entry *enter(struct desk *d, struct desk_session *s, const struct frame_request *r, const char **why)
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

static struct desk_session *session_new(struct desk *d, const char *name, int size)
{
    struct desk_session *s = calloc(1, sizeof *s), **at = &d->sessions;
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

static void session_free(struct desk *d, struct desk_session *s)
{
    struct desk_session **at = &d->sessions;
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
    return ((struct desk_session *)arg)->here[rank];
}

/* The oldest session of the name that still lacks the rank. */
static struct desk_session *session_for(struct desk *d, const char *name, int rank)
{
    for (struct desk_session *s = d->sessions; s; s = s->next)
        if (!strcmp(s->name, name) && s->joined < s->size && (rank >= s->size || !s->here[rank]))
            return s;
    return NULL;
}

static void all_joined(struct desk *d, struct desk_session *s)
{
    for (struct desk_guest *g = s->guests; g; g = g->next)
        give(d, g, 0, d->served_by, NULL, 0);
}

static bool join(struct desk *d, struct desk_guest *g, const struct frame_request *r, int64_t until)
{
    uint64_t number = (uint64_t)r->number;
    uint32_t rank = (uint32_t)number, size = (uint32_t)(number >> 32);
    char name[STORE_NAME_MAX + 1] = "", text[160];
    if (size < 1 || size > STORE_RANKS_MAX || rank >= size)
        return false;
    memcpy(name, r->key, r->key_len);
    struct desk_session *s = session_for(d, name, (int)rank);
    if (s && s->size != (int)size) {
        snprintf(text, sizeof text, "rank %u says that there are %u ranks, others say %d", rank, size, s->size);
        refuse(d, g, WEFT_EMISMATCH, text);
        for (struct desk_guest *w = s->guests; w; w = w->next)
            if (w->waits)
                refuse(d, w, WEFT_EMISMATCH, text);
        return true;
    }
    if (!s)
        s = session_new(d, name, (int)size);
    if (!s) {
        refuse(d, g, WEFT_ENOMEM, "the store is out of memory");
        return true;
    }
    s->here[rank] = true;
    s->joined++;
    g->session = s;
    g->rank = (int)rank;
    g->next = s->guests;
    s->guests = g;
    g->waits = true;
    g->key[0] = 0;
    g->until = until;
    if (s->joined == s->size)
        all_joined(d, s);
    return true;
}

void desk_leave(struct desk *d, struct desk_guest *g)
{
    struct desk_session *s = g->session;
    if (!s)
        return;
    struct desk_guest **at = &s->guests;
    while (*at != g)
        at = &(*at)->next;
    *at = g->next;
    if (s->joined < s->size) {
        s->here[g->rank] = false;
        s->joined--;
    }
    *g = (struct desk_guest){.session = NULL};
    if (!s->guests)
        session_free(d, s);
}

bool desk_joining(const struct desk_guest *g)
{
    return g->session && g->waits && !g->key[0];
}

/* ---- requests ---- */

static void gather(struct desk *d, struct desk_guest *g);

static void set(struct desk *d, struct desk_guest *g, const struct frame_request *r)
{
    struct desk_session *s = g->session;
    unsigned char *value = malloc(r->bytes + 1);
    const char *why = "the store is out of memory";
    struct entry *e = value ? enter(d, s, r, &why) : NULL;
    if (!e) {
        free(value);
        refuse(d, g, WEFT_ENOMEM, why);
        return;
    }
    memcpy(value, r->value, r->bytes);
    free(e->value);
    d->bytes -= weight(e);
    e->value = value;
    e->bytes = r->bytes;
    d->bytes += weight(e);
    give(d, g, 0, 0, NULL, 0);
    for (struct desk_guest *w = s->guests; w; w = w->next)
        if (w->waits && strlen(w->key) == r->key_len && !memcmp(w->key, r->key, r->key_len))
            w->prefix ? gather(d, w) : give(d, w, 0, 0, e->value, e->bytes);
}

static void get(struct desk *d, struct desk_guest *g, const struct frame_request *r, int64_t now)
{
    uint64_t hash;
    struct entry *e = *find(g->session, r->key, r->key_len, &hash);
    if (e) {
        give(d, g, 0, 0, e->value, e->bytes);
    } else if (!r->wait_ms) {
        refuse(d, g, WEFT_ETIMEOUT, "");
    } else {
        memcpy(g->key, r->key, r->key_len);
        g->key[r->key_len] = 0;
        g->waits = true;
        g->until = now + (int64_t)r->wait_ms * 1000000;
    }
}

static struct entry *part(struct desk_guest *g, int rank)
{
    uint64_t hash;
    int n = snprintf(g->key + g->prefix, sizeof g->key - g->prefix, "/%d", rank);
    return *find(g->session, g->key, g->prefix + (size_t)n, &hash);
}

/* Waits for the first part that is missing; when none is, gives as many as fit. */
static void gather(struct desk *d, struct desk_guest *g)
{
    const struct entry *e;
    g->waits = true;
    while (g->seen < g->session->size) {
        if (!part(g, g->seen))
            return;
        g->seen++;
    }
    unsigned char *packed = malloc(FRAME_REPLY_MAX);
    size_t n = 0;
    int r = g->first;
    for (; packed && r < g->session->size && (e = part(g, r)) && n + 4 + e->bytes <= FRAME_REPLY_MAX; r++) {
        uint32_t length = (uint32_t)e->bytes;
        memcpy(packed + n, &length, 4);
        memcpy(packed + n + 4, e->value, e->bytes);
        n += 4 + e->bytes;
    }
    if (!packed)
        refuse(d, g, WEFT_ENOMEM, "the store is out of memory");
    else
        give(d, g, 0, r - g->first, packed, n);
    free(packed);
}

static bool gather_from(struct desk *d, struct desk_guest *g, const struct frame_request *r, int64_t now)
{
    if (r->number < 0 || r->number >= g->session->size || r->key_len + sizeof "/65535" > sizeof g->key)
        return false;
    memcpy(g->key, r->key, r->key_len);
    g->prefix = r->key_len;
    g->first = g->seen = (int)r->number;
    g->until = now + (int64_t)r->wait_ms * 1000000;
    gather(d, g);
    return true;
}

bool desk_ask(struct desk *d, struct desk_guest *g, const struct frame_request *r, int64_t now)
{
    if (g->waits || (r->op == FRAME_JOIN) != !g->session)
        return false;
    switch (r->op) {
    case FRAME_JOIN: return join(d, g, r, now + (int64_t)r->wait_ms * 1000000);
    case FRAME_SET: set(d, g, r); return true;
    case FRAME_GET: get(d, g, r, now); return true;
    case FRAME_GATHER: return gather_from(d, g, r, now);
    case FRAME_LEAVE: break;
    }
    desk_leave(d, g);
    return false;
}

/* ---- time ---- */

static void late(struct desk *d, struct desk_guest *g)
{
    char text[256], who[192];
    if (!desk_joining(g)) {
        refuse(d, g, WEFT_ETIMEOUT, "");
        return;
    }
    store_missing(who, sizeof who, g->session->size, is_here, g->session);
    snprintf(text, sizeof text, "%s did not come in time", who);
    refuse(d, g, WEFT_ETIMEOUT, text);
}

int64_t desk_expire(struct desk *d, int64_t now)
{
    int64_t next = INT64_MAX;
    for (struct desk_session *s = d->sessions; s; s = s->next) {
        for (struct desk_guest *g = s->guests; g; g = g->next) {
            if (g->waits && g->until <= now)
                late(d, g);
            if (g->waits)
                next = min64(next, g->until);
        }
    }
    return next;
}
