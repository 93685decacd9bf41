#define _GNU_SOURCE
#include "version/keeper.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/math.h"
#include "base/thread.h"
#include "rendezvous/deadline.h"

#define ASK_NS \
    INT64_C(1000000000) /* within which the keeper's thread wants an answer, so that it does not hold up others */

struct kept {
    struct list node;
    char *key;
    void *value; /* NULL: it is to be erased */
    size_t bytes;
    bool leased;
    struct keeper_fence *fence;
};

static void free_kept(struct kept *e)
{
    list_remove(&e->node);
    free(e->key);
    free(e->value);
    free(e);
}

/* ---- with the lock ---- */

static int need_lease(struct keeper *k, int64_t until)
{
    if (k->lease)
        return 0;
    return directory_grant(k->directory, k->lease_ns, max64(until - deadline_now(), 0), &k->lease);
}

/* Looks whether the fence still stands, and puts it up again if the directory has forgotten it. */
static int check_fence(struct keeper *k, struct keeper_fence *f, int64_t until)
{
    struct directory_items items;
    struct directory_outcome o = {0};
    int err = directory_get(k->directory, f->key, max64(until - deadline_now(), 0), &items);
    if (err)
        return err;
    const struct directory_item *found = NULL;
    for (size_t i = 0; i < items.n; i++)
        if (!strcmp(items.items[i].key, f->key))
            found = &items.items[i];
    if (found && !strcmp((const char *)found->value, f->value))
        f->revision = found->revision;
    else if (found)
        f->over = true;
    bool gone = !found;
    directory_items_free(&items);
    if (gone) {
        err = directory_put_if(k->directory, f->key, 0, f->value, strlen(f->value), 0, max64(until - deadline_now(), 0),
                               &o);
        if (!err && !o.done)
            return check_fence(k, f, until);
        f->revision = o.revision;
    }
    return err;
}

static int put_again(struct keeper *k, struct kept *e, int64_t until)
{
    struct directory_outcome o;
    struct directory_compare c = {e->fence ? e->fence->key : "", e->fence ? e->fence->revision : 0};
    struct directory_change x = {e->key, e->value, e->bytes, e->leased ? k->lease : 0, false};
    struct directory_transaction t = {&c, e->fence != NULL, &x, 1};
    int err = directory_transact(k->directory, &t, max64(until - deadline_now(), 0), &o);
    if (!err && !o.done && e->fence) {
        err = check_fence(k, e->fence, until);
        return err ? err : e->fence->over ? 0 : put_again(k, e, until);
    }
    return err;
}

/* Puts all keys again, with the lease, or with a new one if it has ended. Keys that only transactions have put, as
 * those of readers are, have the old one: it is not given up as long as it lives. */
static int put_all(struct keeper *k, int64_t until)
{
    k->stale = true;
    int err = need_lease(k, until);
    struct keeper_fence *seen = NULL;
    for (struct list *n = list_first(&k->keys); n && !err; n = list_after(&k->keys, n)) {
        struct kept *e = LIST_OF(n, struct kept, node);
        if (!e->value)
            continue;
        if (e->fence && e->fence != seen) {
            err = check_fence(k, e->fence, until);
            seen = e->fence;
        }
        if (!err && !(e->fence && e->fence->over))
            err = put_again(k, e, until);
    }
    if (err == WEFT_EPEER) /* it has ended again: at the next turn */
        k->lease = 0;
    k->stale = err != 0;
    return err;
}

/* Erases what could not be erased before. */
static int erase_late(struct keeper *k, int64_t until)
{
    int err = 0;
    for (struct list *n = list_first(&k->keys), *next; n && !err; n = next) {
        struct kept *e = LIST_OF(n, struct kept, node);
        struct directory_outcome o = {0};
        next = list_after(&k->keys, n);
        if (e->value)
            continue;
        if (!e->fence->over) {
            struct directory_compare c = {e->fence->key, e->fence->revision};
            struct directory_change x = {.key = e->key, .erase = true};
            struct directory_transaction t = {&c, 1, &x, 1};
            err = directory_transact(k->directory, &t, max64(until - deadline_now(), 0), &o);
            if (!err && !o.done)
                err = check_fence(k, e->fence, until);
        }
        if (!err && (o.done || e->fence->over))
            free_kept(e);
    }
    return err;
}

static bool has_late(const struct keeper *k)
{
    for (struct list *n = list_first(&k->keys); n; n = list_after(&k->keys, n))
        if (!LIST_OF(n, struct kept, node)->value)
            return true;
    return false;
}

/* Has the directory lost keys, though the lease is alive? Somebody may have wiped it. One key of this process alone, as
 * its slot is, stands for all. */
static bool lost_keys(struct keeper *k, int64_t until)
{
    struct kept *e = NULL;
    struct directory_items items;
    bool there = false;
    for (struct list *n = list_first(&k->keys); n && !e; n = list_after(&k->keys, n)) {
        struct kept *x = LIST_OF(n, struct kept, node);
        if (x->value && x->leased && !(x->fence && x->fence->over))
            e = x;
    }
    if (!e || directory_get(k->directory, e->key, max64(until - deadline_now(), 0), &items))
        return false;
    for (size_t i = 0; i < items.n; i++)
        there = there || (!strcmp(items.items[i].key, e->key) && items.items[i].bytes == e->bytes &&
                          !memcmp(items.items[i].value, e->value, e->bytes));
    directory_items_free(&items);
    return !there;
}

/* ---- the thread ---- */

static void turn(struct keeper *k)
{
    int64_t until = deadline_in(min64(ASK_NS, k->lease_ns / 3));
    int err = k->lease ? directory_renew(k->directory, k->lease, max64(until - deadline_now(), 0)) : 0;
    if (err == WEFT_EPEER) {
        k->stale = true;
        k->lease = 0;
        err = 0;
    }
    if (!err && (k->stale || (k->lease && lost_keys(k, until))))
        err = put_all(k, deadline_in(ASK_NS));
    if (!err)
        erase_late(k, until);
}

static void *run(void *arg)
{
    struct keeper *k = arg;
    pthread_mutex_lock(&k->lock);
    while (!k->stops) {
        struct timespec at;
        int64_t pause = k->stale || has_late(k) ? min64(k->lease_ns / 10, ASK_NS / 5) : k->lease_ns / 3;
        clock_gettime(CLOCK_MONOTONIC, &at);
        at.tv_sec += pause / 1000000000;
        at.tv_nsec += pause % 1000000000;
        at.tv_sec += at.tv_nsec / 1000000000;
        at.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&k->wake, &k->lock, &at);
        if (!k->stops)
            turn(k);
    }
    pthread_mutex_unlock(&k->lock);
    return NULL;
}

int keeper_start(struct keeper *k, const char *url, const struct directory_opts *opts, int64_t lease_ns)
{
    *k = (struct keeper){.lease_ns = lease_ns};
    list_begin(&k->keys);
    int err = directory_open(url, opts, &k->directory);
    if (err)
        return err;
    pthread_condattr_t attr;
    pthread_mutex_init(&k->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&k->wake, &attr);
    pthread_condattr_destroy(&attr);
    err = thread_start(&k->thread, run, k);
    k->runs = !err;
    if (!err)
        return 0;
    keeper_stop(k);
    return error_set(WEFT_EIO, "no thread can be started: %s", strerror(err));
}

void keeper_stop(struct keeper *k)
{
    if (!k->directory)
        return;
    if (k->runs) {
        pthread_mutex_lock(&k->lock);
        k->stops = true;
        pthread_cond_signal(&k->wake);
        pthread_mutex_unlock(&k->lock);
        pthread_join(k->thread, NULL);
    }
    for (struct list *n; (n = list_first(&k->keys));)
        free_kept(LIST_OF(n, struct kept, node));
    directory_close(k->directory);
    pthread_cond_destroy(&k->wake);
    pthread_mutex_destroy(&k->lock);
    k->directory = NULL;
}

/* ---- calls ---- */

int keeper_get(struct keeper *k, const char *prefix, int64_t until, struct directory_items *out)
{
    pthread_mutex_lock(&k->lock);
    int err = directory_get(k->directory, prefix, max64(until - deadline_now(), 0), out);
    pthread_mutex_unlock(&k->lock);
    return err;
}

static int transact(struct keeper *k, const struct directory_transaction *t, const bool *leased,
                    struct directory_change *changes, int64_t until, struct directory_outcome *out)
{
    bool any = false;
    for (size_t i = 0; i < t->nchanges; i++)
        any = any || leased[i];
    int err = any ? need_lease(k, until) : 0;
    for (int tries = 0; !err; tries++) {
        for (size_t i = 0; i < t->nchanges; i++)
            if (leased[i])
                changes[i].lease = k->lease;
        err = directory_transact(k->directory, t, max64(until - deadline_now(), 0), out);
        if (err != WEFT_EPEER || !any || tries == 2)
            break;
        k->lease = 0;
        err = put_all(k, until);
    }
    return err;
}

int keeper_transact(struct keeper *k, const struct directory_compare *compares, size_t ncompares,
                    struct directory_change *changes, size_t nchanges, int64_t until, struct directory_outcome *out)
{
    bool leased[DIRECTORY_CHANGES_MAX];
    struct directory_transaction t = {compares, ncompares, changes, nchanges};
    for (size_t i = 0; i < nchanges; i++)
        leased[i] = changes[i].lease == KEEPER_LEASE;
    pthread_mutex_lock(&k->lock);
    int err = transact(k, &t, leased, changes, until, out);
    pthread_mutex_unlock(&k->lock);
    for (size_t i = 0; i < nchanges; i++) /* the caller may try again, when the keeper has another lease */
        changes[i].lease = leased[i] ? KEEPER_LEASE : changes[i].lease;
    return err;
}

/* With the lock. */
static struct kept *find(struct keeper *k, const char *key)
{
    for (struct list *n = list_first(&k->keys); n; n = list_after(&k->keys, n))
        if (!strcmp(LIST_OF(n, struct kept, node)->key, key))
            return LIST_OF(n, struct kept, node);
    return NULL;
}

/* value NULL: the key is to be erased. */
static int keep(struct keeper *k, const char *key, const void *value, size_t bytes, bool leased,
                struct keeper_fence *fence)
{
    struct kept *e = calloc(1, sizeof *e);
    if (e) {
        e->key = strdup(key);
        e->value = value ? malloc(bytes + 1) : NULL;
    }
    if (!e || !e->key || (value && !e->value)) {
        if (e) {
            free(e->key);
            free(e->value);
        }
        free(e);
        return error_nomem();
    }
    if (value)
        memcpy(e->value, value, bytes);
    e->bytes = bytes;
    e->leased = leased;
    e->fence = fence;
    pthread_mutex_lock(&k->lock);
    struct kept *old = find(k, key);
    if (old)
        free_kept(old);
    list_append(&k->keys, &e->node);
    if (!value)
        pthread_cond_signal(&k->wake); /* it has a shorter pause now */
    pthread_mutex_unlock(&k->lock);
    return 0;
}

int keeper_keep(struct keeper *k, const char *key, const void *value, size_t bytes, bool leased,
                struct keeper_fence *fence)
{
    return keep(k, key, value, bytes, leased, fence);
}

int keeper_erase(struct keeper *k, const char *key, struct keeper_fence *fence)
{
    return keep(k, key, NULL, 0, false, fence);
}

void keeper_forget(struct keeper *k, const char *key)
{
    pthread_mutex_lock(&k->lock);
    struct kept *e = find(k, key);
    if (e)
        free_kept(e);
    pthread_mutex_unlock(&k->lock);
}

void keeper_forget_all(struct keeper *k, const struct keeper_fence *fence)
{
    pthread_mutex_lock(&k->lock);
    for (struct list *n = list_first(&k->keys), *next; n; n = next) {
        next = list_after(&k->keys, n);
        if (LIST_OF(n, struct kept, node)->fence == fence)
            free_kept(LIST_OF(n, struct kept, node));
    }
    pthread_mutex_unlock(&k->lock);
}
