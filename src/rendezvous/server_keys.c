#define _POSIX_C_SOURCE 200809L
#include "rendezvous/server_keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LATE_NS INT64_C(1000000000)

/* ---- entries ---- */

static size_t entry_weight(const struct server_entry *e)
{
    return sizeof *e + e->node.len + e->bytes;
}

static struct server_entry *entry_new(struct server_keys *k, const char *key, size_t len)
{
    struct server_entry *e = calloc(1, sizeof *e + len);
    if (!e)
        return NULL;
    memcpy(e->key, key, len);
    if (!table_put(&k->entries, &e->node, e->key, len)) {
        free(e);
        return NULL;
    }
    list_begin(&e->waiting);
    *k->bytes += entry_weight(e);
    return e;
}

static void entry_free(struct table_node *n, void *arg)
{
    struct server_entry *e = LIST_OF(n, struct server_entry, node);
    struct server_keys *k = arg;
    *k->bytes -= entry_weight(e);
    free(e->value);
    free(e);
}

struct server_entry *server_keys_entry(struct server_keys *k, const char *key, size_t len, bool make)
{
    struct table_node *n = table_find(&k->entries, key, len);
    return n ? LIST_OF(n, struct server_entry, node) : make ? entry_new(k, key, len) : NULL;
}

void server_keys_spare_entry(struct server_keys *k, struct server_entry *e)
{
    if (e->value || !list_empty(&e->waiting))
        return;
    table_remove(&k->entries, &e->node);
    entry_free(&e->node, k);
}

/* ---- prefixes ---- */

static void chunks_drop(struct server_keys *k, struct server_prefix *p)
{
    for (size_t i = 0; i < p->nchunks; i++) {
        *k->bytes -= p->chunks[i]->bytes;
        free(p->chunks[i]);
    }
    free(p->chunks);
    p->chunks = NULL;
    p->nchunks = 0;
    p->given = 0;
}

static struct server_prefix *prefix_new(struct server_keys *k, const char *key, size_t len)
{
    struct server_prefix *p = calloc(1, sizeof *p + len);
    if (!p)
        return NULL;
    memcpy(p->key, key, len);
    if (!table_put(&k->prefixes, &p->node, p->key, len)) {
        free(p);
        return NULL;
    }
    list_begin(&p->waiting);
    *k->bytes += sizeof *p + len;
    return p;
}

static void prefix_free(struct table_node *n, void *arg)
{
    struct server_prefix *p = LIST_OF(n, struct server_prefix, node);
    struct server_keys *k = arg;
    *k->bytes -= sizeof *p + p->node.len;
    chunks_drop(k, p);
    free(p->late);
    free(p);
}

struct server_prefix *server_keys_prefix(struct server_keys *k, const char *key, size_t len, bool make)
{
    struct table_node *n = table_find(&k->prefixes, key, len);
    return n ? LIST_OF(n, struct server_prefix, node) : make ? prefix_new(k, key, len) : NULL;
}

void server_keys_spare_prefix(struct server_keys *k, struct server_prefix *p)
{
    if (p->here || !list_empty(&p->waiting))
        return;
    table_remove(&k->prefixes, &p->node);
    prefix_free(&p->node, k);
}

/* Bytes of the prefix of a key PREFIX/r, with r a rank of the session in its shortest form; 0: it is no such key. */
static size_t numbered(const struct server_keys *k, const char *key, size_t len)
{
    size_t digits = 0;
    int rank = 0;
    for (int tens = 1; digits < len && digits < 5 && key[len - 1 - digits] >= '0' && key[len - 1 - digits] <= '9';
         digits++, tens *= 10)
        rank += (key[len - 1 - digits] - '0') * tens;
    if (!digits || digits + 2 > len || key[len - 1 - digits] != '/' || (digits > 1 && key[len - digits] == '0'))
        return 0;
    return rank < k->size ? len - 1 - digits : 0;
}

/* The entry of one part. */
static struct server_entry *part(struct server_keys *k, const struct server_prefix *p, int rank)
{
    char key[STORE_KEY_MAX + 8];
    memcpy(key, p->key, p->node.len);
    int n = snprintf(key + p->node.len, sizeof key - p->node.len, "/%d", rank);
    ++*k->steps;
    return server_keys_entry(k, key, p->node.len + (size_t)n, false);
}

/* ---- setting ---- */

/* Finds or makes the entry of a key that will be set, and the prefix that it is a part of. */
static struct server_entry *enter(struct server_keys *k, const struct frame_request *r, struct server_prefix **prefix,
                                  const char **why)
{
    struct server_entry *e = server_keys_entry(k, r->key, r->key_len, false);
    size_t more = (e ? 0 : sizeof *e + r->key_len) + r->bytes, before = numbered(k, r->key, r->key_len);
    *prefix = NULL;
    *why = "the store is full: it holds 256 MiB";
    if (*k->bytes - (e ? e->bytes : 0) + more > STORE_BYTES_MAX)
        return NULL;
    *why = "the store is full: it has 262144 keys";
    if (!e && k->entries.used >= STORE_ENTRIES_MAX)
        return NULL;
    *why = "the store is out of memory";
    if (before && !(*prefix = server_keys_prefix(k, r->key, before, true)))
        return NULL;
    return e ? e : entry_new(k, r->key, r->key_len);
}

struct server_entry *server_keys_set(struct server_keys *k, const struct frame_request *r, struct server_prefix **whole,
                                     const char **why)
{
    struct server_prefix *p;
    unsigned char *value = malloc(r->bytes + 1);
    *why = "the store is out of memory";
    struct server_entry *e = value ? enter(k, r, &p, why) : NULL;
    *whole = NULL;
    if (!e) {
        free(value);
        return NULL;
    }
    bool fresh = !e->value;
    memcpy(value, r->value, r->bytes);
    free(e->value);
    *k->bytes -= entry_weight(e);
    e->value = value;
    e->bytes = r->bytes;
    *k->bytes += entry_weight(e);
    if (p && !fresh)
        chunks_drop(k, p);
    else if (p && ++p->here == k->size)
        *whole = p;
    return e;
}

/* ---- gathering ---- */

static struct server_chunk *pack(struct server_keys *k, const struct server_prefix *p, int first)
{
    struct server_chunk *c = malloc(sizeof *c + STORE_PARTS);
    if (!c)
        return NULL;
    *c = (struct server_chunk){.first = first};
    for (; first + c->count < k->size; c->count++) {
        const struct server_entry *e = part(k, p, first + c->count);
        if (!e || !e->value || c->bytes + 4 + e->bytes > STORE_PARTS)
            break;
        uint32_t length = (uint32_t)e->bytes;
        memcpy(c->packed + c->bytes, &length, 4);
        memcpy(c->packed + c->bytes + 4, e->value, e->bytes);
        c->bytes += 4 + e->bytes;
    }
    struct server_chunk *less = realloc(c, sizeof *c + c->bytes);
    return less ? less : c;
}

/* The chunk that begins with rank `first`; NULL: there is none yet. */
static const struct server_chunk *chunk_at(struct server_keys *k, const struct server_prefix *p, int first)
{
    size_t low = 0, high = p->nchunks;
    for (; low < high; ++*k->steps) {
        size_t middle = (low + high) / 2;
        if (p->chunks[middle]->first < first)
            low = middle + 1;
        else
            high = middle;
    }
    return low < p->nchunks && p->chunks[low]->first == first ? p->chunks[low] : NULL;
}

/* Chunks are kept if they begin where the last one ends, and if there is room. */
static bool keep_chunk(struct server_keys *k, struct server_prefix *p, struct server_chunk *c)
{
    const struct server_chunk *last = p->nchunks ? p->chunks[p->nchunks - 1] : NULL;
    if (c->first != (last ? last->first + last->count : 0) || *k->bytes + c->bytes > STORE_BYTES_MAX)
        return false;
    struct server_chunk **more = realloc(p->chunks, (p->nchunks + 1) * sizeof *more);
    if (!more)
        return false;
    p->chunks = more;
    p->chunks[p->nchunks++] = c;
    *k->bytes += c->bytes;
    return true;
}

const struct server_chunk *server_keys_chunk(struct server_keys *k, struct server_prefix *p, int first)
{
    const struct server_chunk *found = chunk_at(k, p, first);
    if (found)
        return found;
    struct server_chunk *c = pack(k, p, first);
    if (c && !keep_chunk(k, p, c))
        k->loose = c;
    return c;
}

void server_keys_given(struct server_keys *k, struct server_prefix *p, const struct server_chunk *chunk)
{
    bool last = chunk->first + chunk->count == k->size;
    free(k->loose);
    k->loose = NULL;
    if (last && ++p->given >= k->size)
        chunks_drop(k, p);
}

struct missing {
    struct server_keys *k;
    const struct server_prefix *p;
};

static bool is_set(void *arg, int rank)
{
    const struct missing *m = arg;
    const struct server_entry *e = part(m->k, m->p, rank);
    return e && e->value;
}

const char *server_keys_missing(struct server_keys *k, struct server_prefix *p, int64_t now)
{
    char ranks[192], text[STORE_KEY_MAX + 256];
    if (p->late && now < p->late_until)
        return p->late;
    store_missing(ranks, sizeof ranks, k->size, is_set, &(struct missing){k, p});
    snprintf(text, sizeof text, "'%.*s' of %s did not come in time", (int)p->node.len, p->key, ranks);
    free(p->late);
    p->late = strdup(text);
    p->late_until = now + LATE_NS;
    return p->late ? p->late : "";
}

/* ---- */

void server_keys_begin(struct server_keys *k, int size, uint64_t seed, size_t *bytes, uint64_t *steps)
{
    *k = (struct server_keys){.size = size, .bytes = bytes, .steps = steps};
    k->entries.seed = k->prefixes.seed = seed;
}

void server_keys_end(struct server_keys *k)
{
    table_clear(&k->entries, entry_free, k);
    table_clear(&k->prefixes, prefix_free, k);
}
