/* What is the same for all kinds of store: the limits, and what is built on top of a kind. */
#define _GNU_SOURCE
#include "rendezvous/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ended.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/math.h"
#include "base/text.h"
#include "rendezvous/deadline.h"

#define SLICE_NS INT64_C(50000000)

/* ---- texts ---- */

int store_late(const struct store *s, const char *key)
{
    return error_set(WEFT_ETIMEOUT, "%s: no rank has set '%s' in time", s->url, key);
}

int store_look(const struct store *s, int ended)
{
    char how[80];
    return ended > 0 && ended_look(ended, how, sizeof how) >= 0
               ? error_set(WEFT_EPEER, "%s: %s before all ranks had opened the store", s->url, how)
               : store_in_vain(s);
}

bool store_word(const char *text, size_t len, size_t most)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:/@+";
    for (size_t i = 0; i < len; i++)
        if (!text[i] || !strchr(letters, text[i]))
            return false;
    return len >= 1 && len <= most;
}

void store_missing(char *text, size_t cap, int size, bool (*here)(void *arg, int rank), void *arg)
{
    char list[128];
    struct text t = text_start(list, sizeof list);
    int n = 0, more = 0;
    for (int r = 0; r < size; r++) {
        if (here(arg, r))
            continue;
        if (t.len + 16 > sizeof list)
            more++;
        else
            text_printf(&t, "%s%d", n++ ? ", " : "", r);
    }
    if (more)
        snprintf(text, cap, "ranks %s and %d more", list, more);
    else
        snprintf(text, cap, "%s %s", n == 1 ? "rank" : "ranks", list);
}

/* ---- opening and closing ---- */

int store_check_opts(const char *url, const struct store_opts *o)
{
    size_t n = o->name ? strlen(o->name) : 0;
    if (o->size < 1 || o->size > STORE_RANKS_MAX)
        return error_set(WEFT_EINVAL, "%s: %d ranks; a store takes 1 to %d", url, o->size, STORE_RANKS_MAX);
    if (o->rank < 0 || o->rank >= o->size)
        return error_set(WEFT_EINVAL, "%s: there is no rank %d of %d", url, o->rank, o->size);
    if (n && !store_word(o->name, n, STORE_NAME_MAX))
        return error_set(WEFT_EINVAL, "%s: the name of a store has at most %d letters, digits and . _ - : / @ +", url,
                         STORE_NAME_MAX);
    if (o->timeout_ns < 0)
        return error_set(WEFT_EINVAL, "%s: the timeout must not be negative", url);
    return 0;
}

int store_init(struct store *s, const struct store_kind *kind, const char *place, const struct store_opts *o)
{
    s->kind = kind;
    s->rank = o->rank;
    s->size = o->size;
    s->watch = o->watch;
    snprintf(s->name, sizeof s->name, "%s", o->name ? o->name : "");
    size_t cap = strlen(kind->scheme) + strlen(place) + 2;
    s->url = malloc(cap);
    if (!s->url)
        return error_nomem();
    snprintf(s->url, cap, "%s:%s", kind->scheme, place);
    return 0;
}

void store_set_watch(struct store *s, const struct store_watch *watch)
{
    s->watch = watch ? *watch : (struct store_watch){0};
}

int store_in_vain(const struct store *s)
{
    return s->watch.vain ? s->watch.vain(s->watch.arg, -1) : 0;
}

void store_free(struct store *s)
{
    if (!s)
        return;
    free(s->url);
    free(s);
}

int store_again(struct store *s, const int *survivors, int n, int64_t timeout_ns, struct store **out)
{
    int me = -1;
    for (int i = 0; i < n; i++) {
        if (survivors[i] < 0 || survivors[i] >= s->size || (i && survivors[i] <= survivors[i - 1]))
            return error_set(WEFT_EINVAL, "%s: survivors are ranks of the store in ascending order", s->url);
        if (survivors[i] == s->rank)
            me = i;
    }
    if (me < 0)
        return error_set(WEFT_EINVAL, "%s: rank %d is not among the survivors", s->url, s->rank);
    char name[STORE_NAME_MAX + 1];
    uint64_t hash = hash_bytes(hash_bytes(0, s->name, strlen(s->name)), survivors, (size_t)n * sizeof *survivors);
    snprintf(name, sizeof name, "%.40s:%016llx", s->name, (unsigned long long)hash);
    struct store_opts o = {.name = name, .rank = me, .size = n, .timeout_ns = timeout_ns, .watch = s->watch};
    int err = store_check_opts(s->url, &o);
    return err ? err : s->kind->again(s, survivors, &o, deadline_in(timeout_ns), out);
}

void store_close(struct store *s, int64_t linger_ns)
{
    if (s)
        s->kind->close(s, deadline_in(max64(linger_ns, 0)));
}

/* ---- keys and values ---- */

static int check_key(const struct store *s, const char *key, int64_t timeout_ns)
{
    if (!store_word(key, strlen(key), STORE_KEY_MAX))
        return error_set(WEFT_EINVAL, "%s: the key '%.40s' is not 1 to %d letters, digits and . _ - : / @ +", s->url,
                         key, STORE_KEY_MAX);
    if (timeout_ns < 0)
        return error_set(WEFT_EINVAL, "%s: the timeout for '%s' must not be negative", s->url, key);
    return 0;
}

int store_set(struct store *s, const char *key, const void *value, size_t bytes, int64_t timeout_ns)
{
    int err = check_key(s, key, timeout_ns);
    if (!err && bytes > STORE_VALUE_MAX)
        err = error_set(WEFT_EINVAL, "%s: the value of '%s' has %zu bytes; %d are allowed", s->url, key, bytes,
                        STORE_VALUE_MAX);
    return err ? err : s->kind->set(s, key, value, bytes, deadline_in(timeout_ns));
}

/* Gets a value. A rank that may wait in vain waits for a while, asks, and waits on. */
static int get_some(struct store *s, const char *key, void *value, size_t cap, size_t *bytes, int64_t until)
{
    for (;;) {
        int64_t slice = s->watch.vain ? min64(until, deadline_in(SLICE_NS)) : until;
        int err = s->kind->get(s, key, value, cap, bytes, slice);
        int vain = err == WEFT_ETIMEOUT && slice < until ? store_in_vain(s) : 0;
        if (vain || err != WEFT_ETIMEOUT || slice == until)
            return vain ? vain : err;
    }
}

int store_get(struct store *s, const char *key, void *value, size_t cap, size_t *bytes, int64_t timeout_ns)
{
    size_t n = 0;
    int err = check_key(s, key, timeout_ns);
    if (!err)
        err = get_some(s, key, value, cap, &n, deadline_in(timeout_ns));
    if (err)
        return err;
    *bytes = n;
    return n <= cap ? 0
                    : error_set(WEFT_EINVAL, "%s: the value of '%s' has %zu bytes, but the buffer has %zu", s->url, key,
                                n, cap);
}

int store_wait(struct store *s, const char *key, int64_t timeout_ns)
{
    size_t n;
    int err = check_key(s, key, timeout_ns);
    return err ? err : s->kind->get(s, key, NULL, 0, &n, deadline_in(timeout_ns));
}

/* ---- a value of each rank ---- */

int store_offer(struct store *s, const char *prefix, const void *mine, size_t bytes, int64_t timeout_ns)
{
    char key[STORE_KEY_MAX + 1];
    int err = store_part_key(s, prefix, STORE_RANKS_MAX, key); /* the longest one */
    if (!err)
        err = store_part_key(s, prefix, s->rank, key);
    return err ? err : store_set(s, key, mine, bytes, timeout_ns);
}

int store_part(struct store *s, const char *prefix, int rank, void *value, size_t cap, size_t *bytes,
               int64_t timeout_ns)
{
    char key[STORE_KEY_MAX + 1];
    if (rank < 0 || rank >= s->size)
        return error_set(WEFT_EINVAL, "%s: there is no rank %d among %d", s->url, rank, s->size);
    int err = store_part_key(s, prefix, rank, key);
    if (!err)
        err = store_get(s, key, value, cap, bytes, timeout_ns);
    return err == WEFT_ETIMEOUT
               ? error_set(WEFT_ETIMEOUT, "%s: '%s' of rank %d did not come in time", s->url, prefix, rank)
               : err;
}

struct gathering {
    struct store *s;
    const char *prefix;
};

int store_part_key(const struct store *s, const char *prefix, int rank, char key[STORE_KEY_MAX + 1])
{
    int n = snprintf(key, STORE_KEY_MAX + 1, "%s/%d", prefix, rank);
    return n > STORE_KEY_MAX ? error_set(WEFT_EINVAL, "%s: the prefix '%.40s' is too long", s->url, prefix) : 0;
}

static bool part_here(void *arg, int rank)
{
    struct gathering *g = arg;
    char key[STORE_KEY_MAX + 1];
    return !store_part_key(g->s, g->prefix, rank, key) && !store_wait(g->s, key, 0);
}

int store_parts_late(struct store *s, const char *prefix)
{
    char missing[192];
    store_missing(missing, sizeof missing, s->size, part_here, &(struct gathering){s, prefix});
    return error_set(WEFT_ETIMEOUT, "%s: '%s' of %s did not come in time", s->url, prefix, missing);
}

int store_parts_vain(struct store *s, const char *prefix)
{
    struct gathering g = {s, prefix};
    int err = store_in_vain(s);
    for (int r = 0; r < s->size && err; r++)
        if (s->watch.vain(s->watch.arg, r) && !part_here(&g, r))
            return s->watch.vain(s->watch.arg, r); /* once more, for its text */
    return 0;
}

int store_parts_some(struct store *s, const char *prefix, int first, unsigned char *packed, int *count, int64_t until)
{
    for (;;) {
        int64_t slice = s->watch.vain ? min64(until, deadline_in(SLICE_NS)) : until;
        int err = s->kind->parts(s, prefix, first, packed, count, slice);
        int vain = err == WEFT_ETIMEOUT && s->watch.vain ? store_parts_vain(s, prefix) : 0;
        if (!vain && err == WEFT_ETIMEOUT && slice == until && s->kind->first_collects)
            err = store_parts_late(s, prefix);
        if (vain || err != WEFT_ETIMEOUT || slice == until)
            return vain ? vain : err;
    }
}

/* Appends what a store has packed. */
static int parts_append(struct store_parts *p, size_t *cap, int *rank, const unsigned char *packed, int count)
{
    for (; count; count--, ++*rank) {
        uint32_t n;
        size_t at = p->at[*rank];
        memcpy(&n, packed, 4);
        if (at + n > *cap) {
            *cap = (at + n) * 2;
            unsigned char *more = realloc(p->bytes, *cap);
            if (!more)
                return error_nomem();
            p->bytes = more;
        }
        memcpy(p->bytes + at, packed + 4, n);
        p->at[*rank + 1] = at + n;
        packed += 4 + n;
    }
    return 0;
}

int store_gather(struct store *s, const char *prefix, const void *mine, size_t bytes, int64_t timeout_ns,
                 struct store_parts *out)
{
    int64_t until = deadline_in(timeout_ns);
    size_t cap = (bytes + 16) * (size_t)s->size;
    int err = store_offer(s, prefix, mine, bytes, timeout_ns);
    if (err)
        return err;
    struct store_parts p = {.bytes = malloc(cap), .at = calloc((size_t)s->size + 1, sizeof *p.at)};
    unsigned char *packed = malloc(STORE_PARTS);
    err = p.bytes && p.at && packed ? 0 : error_nomem();
    for (int r = 0, count; r < s->size && !err;) {
        err = store_parts_some(s, prefix, r, packed, &count, until);
        if (!err)
            err = parts_append(&p, &cap, &r, packed, count);
    }
    free(packed);
    if (err) {
        store_parts_free(&p);
        return err;
    }
    *out = p;
    return 0;
}

void store_parts_free(struct store_parts *p)
{
    free(p->bytes);
    free(p->at);
    *p = (struct store_parts){.bytes = NULL};
}
