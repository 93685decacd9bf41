/* Lending: a version whose arrays stay where they are, in the caller's memory, until the loan ends.
 *
 * There is no memory file to map, so the threads that serve readers copy from the arrays, for readers of this host,
 * too. They do so with the publisher's lock held, and only while the version is lent: the end of a loan takes the lock
 * once, and after that nobody reads the arrays. A reader that was not done is told that its data was torn, and looks
 * for another version. If the caller writes into the arrays during a loan, the digests, which are computed when it
 * begins, do not fit what a reader gets. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/math.h"
#include "layout/layout.h"
#include "rendezvous/deadline.h"
#include "version/block_sums.h"
#include "version/publish.h"

#define POLL_NS INT64_C(20000000)

bool lend_is(const weft_publisher *p, int64_t step, uint64_t generation)
{
    return p->lent.state == PUBLISH_SHOWN && p->lent.step == step && p->lent.generation == generation;
}

int lend_copy(void *owner, const struct part_link_message *m, int64_t at, int64_t n, unsigned char *to)
{
    weft_publisher *p = owner;
    pthread_mutex_lock(&p->lock);
    bool lent = lend_is(p, m->step, m->generation);
    size_t lo = 0, hi = p->part.n;
    while (lent && hi - lo > 1) { /* the last tensor that begins at `at` or before it */
        size_t mid = lo + (hi - lo) / 2;
        if (p->part.v[mid].at <= at)
            lo = mid;
        else
            hi = mid;
    }
    if (lent)
        memset(to, 0, (size_t)n); /* what is between two arrays */
    for (; lent && lo < p->part.n && p->part.v[lo].at < at + n; lo++) {
        const struct schema_place *x = &p->part.v[lo];
        int64_t from = x->at > at ? x->at : at, end = x->at + x->bytes < at + n ? x->at + x->bytes : at + n;
        if (from < end)
            memcpy(to + (from - at), p->arrays[lo] + (from - x->at), (size_t)(end - from));
    }
    pthread_mutex_unlock(&p->lock);
    return lent ? 0 : WEFT_EPEER;
}

/* Can the array be read as it is? */
static int check_view(const weft_publisher *p, size_t i, const weft_view *v)
{
    const struct schema_tensor *t = &p->schema->v[i];
    weft_local local;
    int err = weft_layout_local(t->layout, p->rank, &local);
    if (err || !local.bytes)
        return err;
    int64_t step = (int64_t)weft_dtype_size(t->layout->dtype);
    bool dense = true;
    for (int d = local.ndim - 1; d >= 0 && v->strides; d--) {
        dense = dense && (local.shape[d] == 1 || v->strides[d] == step);
        step *= local.shape[d];
    }
    const char *why = v->memory != WEFT_MEMORY_HOST            ? "is not in host memory"
                      : partial_view(p->fold, i).data          ? "has partial sums"
                      : t->layout->boxes                       ? "has a layout of boxes"
                      : t->from_dtype != (int)t->layout->dtype ? "has another dtype than the one that is published"
                      : !dense                                 ? "is not dense"
                                                               : NULL;
    if (why)
        return error_set(WEFT_EUNSUPPORTED, "weft_lend: tensor '%s': its array %s: lend reads it as it is, put copies",
                         t->name, why);
    if (v->reserved[0] || v->reserved[1] || !v->data || v->bytes < (size_t)local.bytes)
        return error_set(WEFT_EINVAL, "weft_lend: tensor '%s': its array %s", t->name,
                         !v->data                         ? "is NULL, and this rank holds a part of it"
                         : v->bytes < (size_t)local.bytes ? "is too small"
                                                          : "has reserved words that are not zero");
    return 0;
}

static int take_memory(weft_publisher *p)
{
    p->lent.sums = p->lent.sums ? p->lent.sums : calloc(p->part.blocks + 1, sizeof *p->lent.sums);
    p->lent.given.who = p->lent.given.who ? p->lent.given.who : calloc(p->part.blocks + 1, sizeof *p->lent.given.who);
    p->arrays = p->arrays ? p->arrays : calloc(p->schema->n, sizeof *p->arrays);
    return p->lent.sums && p->lent.given.who && p->arrays ? 0 : error_nomem();
}

int weft_lend(weft_publisher *p, int64_t step, const weft_view *views)
{
    if (!p || !views)
        return error_set(WEFT_EINVAL, "weft_lend: %s is NULL", p ? "views" : "the publisher");
    int err = publish_check_step(p, "weft_lend", step);
    if (!err && p->lent.state != PUBLISH_FREE)
        err = error_set(WEFT_EBUSY, "weft_lend: step %lld is lent: end that first", (long long)p->lent.step);
    int64_t begun = deadline_now();
    for (size_t i = 0; i < p->schema->n && !err; i++)
        err = check_view(p, i, &views[i]);
    if (!err)
        err = take_memory(p);
    if (!err) {
        struct publish_ring *r = &p->lent; /* free: no other thread looks at what is in it */
        memset(r->sums, 0, p->part.blocks * sizeof *r->sums);
        part_blocks_forget(&r->given, p->part.blocks);
        for (size_t i = 0; i < p->schema->n; i++) {
            p->arrays[i] = views[i].data;
            if (p->digests && p->part.v[i].bytes)
                block_sums_add(p->arrays[i], 0, p->part.v[i].bytes, r->sums + p->part.v[i].block);
        }
        pthread_mutex_lock(&p->lock);
        r->generation += 2;
        r->step = step;
        r->state = PUBLISH_FILLED;
        pthread_mutex_unlock(&p->lock);
        p->last = step;
    }
    job_metrics_call(&p->bus->metrics, JOB_METRICS_PUT, err, deadline_now() - begun);
    return err;
}

/* Deletes the version, which would keep readers busy; later, if the directory cannot be reached. */
static int delete_lent(weft_publisher *p, int64_t until)
{
    char key[RECORD_KEY];
    struct error_text kept;
    int err = publish_delete(p, p->lent.step, until);
    if (err != WEFT_ETRANSPORT && err != WEFT_ETIMEOUT)
        return err;
    error_keep(&kept);
    publish_version_key(p, p->lent.step, key);
    keeper_erase(&p->bus->keeper, key, &p->fence);
    publish_part_key(p, p->lent.step, key);
    keeper_erase(&p->bus->keeper, key, &p->fence);
    error_restore(&kept);
    return err;
}

/* Waits until no reader has a lease on the lent version, which no new reader can find. */
static int wait_readers(weft_publisher *p, int64_t until)
{
    for (int64_t pause = POLL_NS / 10;; deadline_pause(&pause, POLL_NS, until)) {
        struct catalog c;
        int err = catalog_get(&p->bus->keeper, p->source.set, until, &c);
        if (err)
            return err;
        bool read = catalog_is_read(&c, &(weft_epoch_step){p->epoch, p->lent.step});
        catalog_free(&c);
        if (!read)
            return 0;
        if (deadline_now() >= until)
            return error_set(WEFT_ETIMEOUT, "set '%s': step %lld was lent, and readers were not done with it in time",
                             p->source.set, (long long)p->lent.step);
    }
}

int weft_lend_end(weft_publisher *p, int64_t timeout_ns)
{
    int64_t until = 0;
    if (!p)
        return error_set(WEFT_EINVAL, "weft_lend_end: the publisher is NULL");
    int err = bus_until(p->bus, "weft_lend_end", timeout_ns, &until);
    if (p->lent.state == PUBLISH_FREE)
        return err;
    bool shown = p->lent.state == PUBLISH_SHOWN, waits = shown && timeout_ns && !err;
    int64_t told = deadline_in(p->bus->deadline_ns); /* a version that stayed there would keep readers busy */
    if (waits) {
        err = delete_lent(p, max64(until, told));
        if (!err)
            err = wait_readers(p, until);
    }
    pthread_mutex_lock(&p->lock);
    p->lent.state = PUBLISH_FREE;
    pthread_mutex_unlock(&p->lock);
    if (!shown)
        return err;
    p->gone = p->lent.step;
    if (!waits) {
        struct error_text kept;
        error_keep(&kept);
        int failed = delete_lent(p, told);
        if (err)
            error_restore(&kept);
        else
            err = failed;
    }
    return err;
}
