#define _GNU_SOURCE
#include "bus/book.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define LOG_ROOM (DIRECTORY_LEASE_KEYS + DIRECTORY_CHANGES_MAX) /* more than one revision can have */

/* ---- records ---- */

void book_drop(struct book_record *r)
{
    if (--r->refs == 0)
        free(r);
}

static size_t size_of(const struct book_record *r)
{
    return sizeof *r + r->key_len + 1 + r->bytes;
}

static struct book_record *record_new(const char *key, const void *value, size_t bytes)
{
    size_t len = strlen(key);
    struct book_record *r = malloc(sizeof *r + len + 1 + bytes);
    if (!r)
        return NULL;
    *r = (struct book_record){.refs = 1, .key_len = (uint32_t)len, .bytes = (uint32_t)bytes};
    memcpy(r->data, key, len + 1);
    if (bytes)
        memcpy(r->data + len + 1, value, bytes);
    return r;
}

/* ---- keys ---- */

/* The first key that is not before `key`; with after_prefix the first one behind those that begin with `key`. */
static size_t search(const struct book *b, const char *key, bool after_prefix)
{
    size_t lo = 0, hi = b->nkeys, len = strlen(key);
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int order = after_prefix ? strncmp(book_key(b->keys[mid]), key, len) : strcmp(book_key(b->keys[mid]), key);
        if (order < 0 || (after_prefix && order == 0))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

void book_range(const struct book *b, const char *prefix, size_t *first, size_t *end)
{
    *first = search(b, prefix, false);
    *end = search(b, prefix, true);
}

struct book_record *book_find(const struct book *b, const char *key)
{
    size_t at = search(b, key, false);
    return at < b->nkeys && !strcmp(book_key(b->keys[at]), key) ? b->keys[at] : NULL;
}

static bool keys_room(struct book *b, size_t more)
{
    if (b->nkeys + more <= b->cap)
        return true;
    size_t cap = b->cap ? b->cap * 2 : 64;
    while (cap < b->nkeys + more)
        cap *= 2;
    struct book_record **keys = realloc(b->keys, cap * sizeof *keys);
    if (!keys)
        return false;
    b->keys = keys;
    b->cap = cap;
    return true;
}

/* ---- the log ---- */

static bool log_room(struct book *b)
{
    if (b->log)
        return true;
    b->log_cap = b->log_most + LOG_ROOM;
    b->log = malloc(b->log_cap * sizeof *b->log);
    return b->log != NULL;
}

static void forget_first(struct book *b)
{
    struct book_record *r = book_logged(b, 0);
    b->forgotten = r->revision;
    b->log_bytes -= size_of(r);
    b->log_at = (b->log_at + 1) % b->log_cap;
    b->log_n--;
    book_drop(r);
}

/* There is room for all changes of a revision behind log_most. */
static void log_add(struct book *b, struct book_record *r)
{
    b->log[(b->log_at + b->log_n++) % b->log_cap] = book_hold(r);
    b->log_bytes += size_of(r);
}

/* After the changes of a revision: forgets whole revisions, and never the last one. */
static void log_trim(struct book *b)
{
    while (b->log_n && book_logged(b, 0)->revision < b->revision &&
           (b->log_n > b->log_most || b->log_bytes > BOOK_LOG_BYTES_MAX || book_logged(b, 0)->revision == b->forgotten))
        forget_first(b);
}

size_t book_log_after(const struct book *b, int64_t revision)
{
    size_t lo = 0, hi = b->log_n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (book_logged(b, mid)->revision <= revision)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

bool book_remembers(const struct book *b, int64_t after)
{
    return after >= b->forgotten && after <= b->revision;
}

/* ---- changes ---- */

static void leave_lease(struct book *b, struct book_record *r)
{
    struct book_lease *l = r->lease ? book_lease(b, r->lease) : NULL;
    if (!l || !list_has(&r->node))
        return;
    list_remove(&r->node);
    l->nkeys--;
}

/* Puts a record of a key that is not there to its place. Memory is there. */
static void place(struct book *b, size_t at, struct book_record *r, struct book_lease *l)
{
    memmove(b->keys + at + 1, b->keys + at, (b->nkeys++ - at) * sizeof *b->keys);
    b->keys[at] = book_hold(r);
    b->bytes += size_of(r);
    if (l) {
        list_append(&l->keys, &r->node);
        l->nkeys++;
    }
}

/* The record, which the caller has made, becomes the key's. Memory is there. */
static void put(struct book *b, struct book_record *r)
{
    size_t at = search(b, book_key(r), false);
    struct book_record *old = at < b->nkeys && !strcmp(book_key(b->keys[at]), book_key(r)) ? b->keys[at] : NULL;
    r->revision = b->revision;
    r->made = old ? old->made : b->revision;
    if (old) {
        leave_lease(b, old);
        b->bytes -= size_of(old);
        book_drop(old);
        memmove(b->keys + at, b->keys + at + 1, (--b->nkeys - at) * sizeof *b->keys);
    }
    place(b, at, r, r->lease ? book_lease(b, r->lease) : NULL);
    log_add(b, r);
}

/* r says that the key is deleted. */
static void erase(struct book *b, struct book_record *r)
{
    size_t at = search(b, book_key(r), false);
    struct book_record *old = b->keys[at];
    r->deleted = true;
    r->revision = b->revision;
    leave_lease(b, old);
    b->bytes -= size_of(old);
    book_drop(old);
    memmove(b->keys + at, b->keys + at + 1, (--b->nkeys - at) * sizeof *b->keys);
    log_add(b, r);
}

static bool compares_hold(const struct book *b, const struct directory_transaction *t)
{
    for (size_t i = 0; i < t->ncompares; i++) {
        const struct book_record *r = book_find(b, t->compares[i].key);
        if ((r ? r->revision : 0) != t->compares[i].revision)
            return false;
    }
    return true;
}

/* How many keys of the transaction come to the lease? */
static size_t joining(const struct book *b, const struct directory_transaction *t, int64_t lease)
{
    size_t n = 0;
    for (size_t i = 0; i < t->nchanges; i++) {
        const struct directory_change *c = &t->changes[i];
        const struct book_record *old = c->erase || c->lease != lease ? NULL : book_find(b, c->key);
        n += !c->erase && c->lease == lease && (!old || old->lease != lease);
    }
    return n;
}

static enum book_result check_room(struct book *b, const struct directory_transaction *t, const char **why)
{
    size_t bytes = b->bytes, keys = b->nkeys;
    for (size_t i = 0; i < t->nchanges; i++) {
        const struct directory_change *c = &t->changes[i];
        if (c->erase)
            continue;
        const struct book_lease *l = c->lease ? book_lease(b, c->lease) : NULL;
        if (c->lease && !l)
            return BOOK_NO_LEASE;
        if (l && l->nkeys + joining(b, t, c->lease) > DIRECTORY_LEASE_KEYS) {
            *why = "a lease has 256 keys at most";
            return BOOK_FULL;
        }
        const struct book_record *old = book_find(b, c->key);
        bytes += sizeof *old + strlen(c->key) + 1 + c->bytes - (old ? size_of(old) : 0);
        keys += !old;
    }
    if (keys <= BOOK_KEYS_MAX && bytes <= BOOK_BYTES_MAX)
        return BOOK_DONE;
    *why = keys > BOOK_KEYS_MAX ? "the directory has 65536 keys, as many as it may have"
                                : "the directory's keys and values have 64 MiB, as many as they may have";
    return BOOK_FULL;
}

enum book_result book_transact(struct book *b, const struct directory_transaction *t, const char **why)
{
    struct book_record *records[DIRECTORY_CHANGES_MAX] = {NULL};
    size_t changes = 0;
    if (!compares_hold(b, t))
        return BOOK_DIFFERS;
    enum book_result result = check_room(b, t, why);
    if (result == BOOK_DONE && (!log_room(b) || !keys_room(b, t->nchanges)))
        result = BOOK_NOMEM;
    for (size_t i = 0; i < t->nchanges && result == BOOK_DONE; i++) {
        const struct directory_change *c = &t->changes[i];
        if (c->erase && !book_find(b, c->key))
            continue;
        records[i] = record_new(c->key, c->value, c->erase ? 0 : c->bytes);
        if (!records[i])
            result = BOOK_NOMEM;
        else if (!c->erase)
            records[i]->lease = c->lease;
        changes++;
    }
    b->revision += result == BOOK_DONE && changes;
    for (size_t i = 0; i < t->nchanges; i++) {
        if (records[i] && result == BOOK_DONE)
            (t->changes[i].erase ? erase : put)(b, records[i]);
        if (records[i])
            book_drop(records[i]);
    }
    if (result == BOOK_DONE)
        log_trim(b);
    return result;
}

/* ---- from a file ---- */

static bool restore_logged(struct book *b, struct book_record *r)
{
    int64_t last = b->log_n ? book_logged(b, b->log_n - 1)->revision : b->forgotten;
    if (!log_room(b) || b->log_n == b->log_cap || r->revision < last || r->revision > b->revision)
        return false;
    log_add(b, r);
    return true;
}

bool book_restore_log(struct book *b, const char *key)
{
    struct book_record *r = book_find(b, key);
    return r && restore_logged(b, r);
}

bool book_restore(struct book *b, const struct directory_item *item, bool logged)
{
    struct book_record *r = record_new(item->key, item->value, item->bytes);
    struct book_lease *l = item->lease ? book_lease(b, item->lease) : NULL;
    if (!r)
        return false;
    r->made = item->made;
    r->revision = item->revision;
    r->lease = item->lease;
    r->deleted = item->deleted;
    bool fine;
    if (logged) {
        fine = restore_logged(b, r);
    } else {
        fine = !item->deleted && item->revision <= b->revision && (!item->lease || l) && b->nkeys < BOOK_KEYS_MAX &&
               keys_room(b, 1) && !book_find(b, item->key);
        if (fine)
            place(b, search(b, item->key, false), r, l);
    }
    book_drop(r);
    return fine;
}

/* ---- leases ---- */

struct book_lease *book_lease(struct book *b, int64_t id)
{
    struct table_node *n = table_find(&b->leases, (const char *)&id, sizeof id);
    return n ? LIST_OF(n, struct book_lease, node) : NULL;
}

static bool fresh_id(struct book *b, int64_t *id)
{
    do {
        if (getrandom(id, sizeof *id, 0) != (ssize_t)sizeof *id)
            return false;
        *id &= INT64_MAX;
    } while (!*id || book_lease(b, *id));
    return true;
}

struct book_lease *book_grant(struct book *b, int64_t id, int64_t ttl_ns)
{
    if (b->leases.used >= BOOK_LEASES_MAX || (!id && !fresh_id(b, &id)) || book_lease(b, id))
        return NULL;
    struct book_lease *l = calloc(1, b->lease_size);
    if (!l)
        return NULL;
    l->id = id;
    l->ttl_ns = ttl_ns;
    list_begin(&l->keys);
    if (!table_put(&b->leases, &l->node, (const char *)&l->id, sizeof l->id)) {
        free(l);
        return NULL;
    }
    return l;
}

bool book_revoke(struct book *b, struct book_lease *l)
{
    struct book_record *records[DIRECTORY_LEASE_KEYS] = {NULL};
    size_t n = 0;
    bool fine = !l->nkeys || log_room(b);
    for (struct list *k = list_first(&l->keys); k && fine; k = list_after(&l->keys, k)) {
        records[n] = record_new(book_key(LIST_OF(k, struct book_record, node)), NULL, 0);
        fine = records[n] != NULL;
        n += fine;
    }
    b->revision += fine && n;
    for (size_t i = 0; i < n; i++) {
        if (fine)
            erase(b, records[i]);
        book_drop(records[i]);
    }
    if (!fine)
        return false;
    log_trim(b);
    table_remove(&b->leases, &l->node);
    free(l);
    return true;
}

/* ---- */

void book_begin(struct book *b, int64_t revision, size_t lease_size)
{
    *b = (struct book){.revision = revision, .forgotten = revision, .log_most = BOOK_LOG_MAX, .lease_size = lease_size};
    if (getrandom(&b->leases.seed, sizeof b->leases.seed, 0) < 0)
        b->leases.seed = 0;
}

struct ending {
    void (*end)(struct book_lease *l, void *arg);
    void *arg;
};

static void lease_free(struct table_node *n, void *arg)
{
    const struct ending *e = arg;
    struct book_lease *l = LIST_OF(n, struct book_lease, node);
    if (e->end)
        e->end(l, e->arg);
    free(l);
}

void book_end(struct book *b, void (*lease_end)(struct book_lease *l, void *arg), void *arg)
{
    for (size_t i = 0; i < b->log_n; i++)
        book_drop(book_logged(b, i));
    for (size_t i = 0; i < b->nkeys; i++)
        book_drop(b->keys[i]);
    table_clear(&b->leases, lease_free, &(struct ending){lease_end, arg});
    free(b->log);
    free(b->keys);
    *b = (struct book){0};
}
