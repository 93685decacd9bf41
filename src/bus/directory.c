/* What all kinds of directory have in common: URLs, spaces, and what callers may ask for. */
#define _GNU_SOURCE
#include "bus/directory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/math.h"
#include "rendezvous/deadline.h"
#include "rendezvous/store.h"

static const struct directory_kind *const kinds[] = {&directory_tcp, &directory_file};
#define KINDS (sizeof kinds / sizeof *kinds)

const char *directory_url(const struct directory *d)
{
    return d->url;
}

int directory_gone(const struct directory *d, int64_t lease)
{
    return error_set(WEFT_EPEER, "%s: the lease %lld has ended, and its keys are gone", d->url, (long long)lease);
}

int directory_late(const struct directory *d, const char *what)
{
    return error_set(WEFT_ETIMEOUT, "%s: %s", d->url, what);
}

/* ---- opening ---- */

static const struct directory_kind *kind_of(const char *url)
{
    for (size_t i = 0; i < KINDS; i++) {
        size_t n = strlen(kinds[i]->scheme);
        if (!strncmp(url, kinds[i]->scheme, n) && url[n] == ':')
            return kinds[i];
    }
    return NULL;
}

/* "HOST:PORT/run42" is the place "HOST:PORT" and the space "run42/". */
static int cut_space(const char *url, char *place, char **space)
{
    char *slash = strchr(place, '/');
    *space = slash ? slash + 1 : place + strlen(place);
    size_t n = strlen(*space);
    if (!slash)
        return 0;
    *slash = 0;
    if (!n || !store_word(*space, n, STORE_NAME_MAX) || (*space)[n - 1] == '/')
        return error_set(WEFT_EINVAL,
                         "%s: what stands behind the slash is not 1 to %d letters, digits and . _ - : / @ +", url,
                         STORE_NAME_MAX);
    return 0;
}

int directory_open(const char *url, const struct directory_opts *opts, struct directory **out)
{
    const struct directory_kind *kind = url ? kind_of(url) : NULL;
    if (!kind)
        return error_set(WEFT_EINVAL, "%s: a directory is %s or %s", url ? url : "NULL", directory_tcp.form,
                         directory_file.form);
    if (opts->timeout_ns < 0)
        return error_set(WEFT_EINVAL, "%s: the timeout must not be negative", url);
    char *place = strdup(strchr(url, ':') + 1), *space = "";
    struct directory *d = calloc(1, kind->size);
    int err = place && d ? 0 : error_nomem();
    if (!err && kind->spaces)
        err = cut_space(url, place, &space);
    if (!err) {
        size_t n = strlen(space) + 2;
        d->kind = kind;
        d->url = strdup(url);
        d->space = malloc(n);
        err = d->url && d->space ? 0 : error_nomem();
        if (d->space)
            snprintf(d->space, n, "%s%s", space, *space ? "/" : "");
        if (!err)
            err = kind->open(d, place, opts, deadline_in(opts->timeout_ns));
    }
    free(place);
    if (err && d && d->kind)
        directory_close(d);
    else if (err)
        free(d);
    else
        *out = d;
    return err;
}

void directory_close(struct directory *d)
{
    struct error_text kept;
    if (!d)
        return;
    error_keep(&kept);
    d->kind->close(d);
    error_restore(&kept);
    free(d->url);
    free(d->space);
    free(d);
}

/* ---- keys ---- */

/* The key with its space, which may be a prefix. */
static int whole_key(const struct directory *d, const char *key, bool prefix, char out[DIRECTORY_KEY_MAX + 1])
{
    size_t n = strlen(key);
    int len = snprintf(out, DIRECTORY_KEY_MAX + 1, "%s%s", d->space, key);
    if ((!n && prefix) || (len <= DIRECTORY_KEY_MAX && store_word(key, n, DIRECTORY_KEY_MAX)))
        return 0;
    return error_set(WEFT_EINVAL, "%s: '%.40s' is not 1 to %zu letters, digits and . _ - : / @ +", d->url, key,
                     DIRECTORY_KEY_MAX - strlen(d->space));
}

static void without_space(const struct directory *d, struct directory_items *items)
{
    for (size_t i = 0; i < items->n; i++)
        items->items[i].key += strlen(d->space);
}

static int check_timeout(const struct directory *d, int64_t timeout_ns)
{
    return timeout_ns < 0 ? error_set(WEFT_EINVAL, "%s: the timeout must not be negative", d->url) : 0;
}

int directory_get(struct directory *d, const char *prefix, int64_t timeout_ns, struct directory_items *out)
{
    char whole[DIRECTORY_KEY_MAX + 1];
    int err = check_timeout(d, timeout_ns);
    if (!err)
        err = whole_key(d, prefix, true, whole);
    if (!err)
        err = d->kind->get(d, whole, deadline_in(timeout_ns), out);
    if (!err)
        without_space(d, out);
    return err;
}

/* ---- transactions ---- */

struct whole {
    char keys[2 * DIRECTORY_CHANGES_MAX][DIRECTORY_KEY_MAX + 1];
    struct directory_compare compares[DIRECTORY_CHANGES_MAX];
    struct directory_change changes[DIRECTORY_CHANGES_MAX];
};

static int check_change(const struct directory *d, const struct directory_change *c)
{
    if (c->lease < 0 || (c->erase && (c->lease || c->bytes)))
        return error_set(WEFT_EINVAL,
                         "%s: the change of '%s' is wrong: a key that is deleted has no value and no lease", d->url,
                         c->key);
    if (c->bytes > DIRECTORY_VALUE_MAX)
        return error_set(WEFT_EINVAL, "%s: the value of '%s' has %zu bytes; %d are allowed", d->url, c->key, c->bytes,
                         DIRECTORY_VALUE_MAX);
    return 0;
}

/* Checks the transaction, and puts the space before its keys. */
static int make_whole(const struct directory *d, const struct directory_transaction *t, struct whole *w)
{
    size_t bytes = 4, n = 0;
    int err = 0;
    if (t->ncompares > DIRECTORY_CHANGES_MAX || t->nchanges > DIRECTORY_CHANGES_MAX)
        return error_set(WEFT_EINVAL, "%s: a transaction has %d compares and %d changes at most", d->url,
                         DIRECTORY_CHANGES_MAX, DIRECTORY_CHANGES_MAX);
    for (size_t i = 0; i < t->ncompares && !err; i++) {
        err = whole_key(d, t->compares[i].key, false, w->keys[n]);
        if (!err && t->compares[i].revision < 0)
            err = error_set(WEFT_EINVAL, "%s: the revision of '%s' must not be negative", d->url, t->compares[i].key);
        w->compares[i] = (struct directory_compare){w->keys[n], t->compares[i].revision};
        bytes += strlen(w->keys[n++]) + 32;
    }
    for (size_t i = 0; i < t->nchanges && !err; i++) {
        err = check_change(d, &t->changes[i]);
        if (!err)
            err = whole_key(d, t->changes[i].key, false, w->keys[n]);
        w->changes[i] = t->changes[i];
        w->changes[i].key = w->keys[n];
        for (size_t k = 0; k < i && !err; k++)
            if (!strcmp(w->changes[k].key, w->keys[n]))
                err = error_set(WEFT_EINVAL, "%s: a transaction changes '%s' twice", d->url, t->changes[i].key);
        bytes += strlen(w->keys[n++]) + 32 + t->changes[i].bytes;
    }
    if (!err && bytes > DIRECTORY_BYTES_MAX)
        err = error_set(WEFT_EINVAL, "%s: the transaction has %zu bytes; %d are allowed", d->url, bytes,
                        DIRECTORY_BYTES_MAX);
    return err;
}

int directory_transact(struct directory *d, const struct directory_transaction *t, int64_t timeout_ns,
                       struct directory_outcome *out)
{
    int err = check_timeout(d, timeout_ns);
    if (err)
        return err;
    struct whole *w = malloc(sizeof *w);
    if (!w)
        return error_nomem();
    err = make_whole(d, t, w);
    struct directory_transaction whole = {w->compares, t->ncompares, w->changes, t->nchanges};
    if (!err)
        err = d->kind->transact(d, &whole, deadline_in(timeout_ns), out);
    free(w);
    return err;
}

static int change_one(struct directory *d, const struct directory_change *c, int64_t revision, int64_t timeout_ns,
                      struct directory_outcome *out)
{
    struct directory_compare compare = {c->key, revision};
    struct directory_outcome unasked;
    struct directory_transaction t = {&compare, revision >= 0, c, 1};
    return directory_transact(d, &t, timeout_ns, out ? out : &unasked);
}

int directory_put_if(struct directory *d, const char *key, int64_t revision, const void *value, size_t bytes,
                     int64_t lease, int64_t timeout_ns, struct directory_outcome *out)
{
    struct directory_change c = {.key = key, .value = value, .bytes = bytes, .lease = lease};
    return change_one(d, &c, revision, timeout_ns, out);
}

int directory_delete(struct directory *d, const char *key, int64_t revision, int64_t timeout_ns,
                     struct directory_outcome *out)
{
    return change_one(d, &(struct directory_change){.key = key, .erase = true}, revision, timeout_ns, out);
}

/* ---- leases ---- */

int directory_grant(struct directory *d, int64_t ttl_ns, int64_t timeout_ns, int64_t *lease)
{
    int err = check_timeout(d, timeout_ns);
    if (!err && (ttl_ns < DIRECTORY_TTL_MIN_NS || ttl_ns > DIRECTORY_TTL_MAX_NS))
        err = error_set(WEFT_EINVAL, "%s: a lease lasts from 100 ms to a day, not %lld ns", d->url, (long long)ttl_ns);
    return err ? err : d->kind->grant(d, ttl_ns, deadline_in(timeout_ns), lease);
}

static int check_lease(const struct directory *d, int64_t lease, int64_t timeout_ns)
{
    int err = check_timeout(d, timeout_ns);
    return err ? err : lease > 0 ? 0 : error_set(WEFT_EINVAL, "%s: %lld is not a lease", d->url, (long long)lease);
}

int directory_renew(struct directory *d, int64_t lease, int64_t timeout_ns)
{
    int err = check_lease(d, lease, timeout_ns);
    return err ? err : d->kind->renew(d, lease, deadline_in(timeout_ns));
}

int directory_revoke(struct directory *d, int64_t lease, int64_t timeout_ns)
{
    int err = check_lease(d, lease, timeout_ns);
    return err ? err : d->kind->revoke(d, lease, deadline_in(timeout_ns));
}

/* ---- watches ---- */

int directory_watch(struct directory *d, const char *prefix, int64_t after, struct directory_watch **out)
{
    char whole[DIRECTORY_KEY_MAX + 1];
    int err = whole_key(d, prefix, true, whole);
    if (!err && after < 0)
        err = error_set(WEFT_EINVAL, "%s: the revision to watch from must not be negative", d->url);
    if (err)
        return err;
    struct directory_watch *w = calloc(1, d->kind->watch_size);
    if (!w)
        return error_nomem();
    w->directory = d;
    w->after = after;
    memcpy(w->prefix, whole, strlen(whole) + 1);
    err = d->kind->watch(w);
    if (err)
        directory_unwatch(w);
    else
        *out = w;
    return err;
}

int directory_next(struct directory_watch *w, int64_t timeout_ns, struct directory_items *out)
{
    struct directory *d = w->directory;
    int64_t until = deadline_in(timeout_ns);
    int err = check_timeout(d, timeout_ns);
    if (!err)
        err = d->kind->next(w, until, out);
    if (!err && out->lost) {
        err = d->kind->get(d, w->prefix, max64(until, deadline_in(DIRECTORY_TTL_MIN_NS)), out);
        out->lost = true;
    }
    if (err)
        return err;
    w->after = out->revision;
    without_space(d, out);
    return 0;
}

void directory_unwatch(struct directory_watch *w)
{
    if (w)
        w->directory->kind->unwatch(w);
    free(w);
}
