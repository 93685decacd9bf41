/* Putting: which snapshot is reused, and copying into it.
 *
 * A version whose snapshot is to be reused is first deleted from the directory, and only then are the readers' leases
 * looked at: a reader takes its lease by a transaction that compares the version's record, so it has it before the
 * deletion, and is seen, or does not get it. A reader whose lease has ended without its knowing is caught by the
 * generation (snapshot.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/math.h"
#include "comm/environment.h"
#include "device/device.h"
#include "layout/layout.h"
#include "rendezvous/deadline.h"
#include "version/put_device.h"

#define POLL_NS INT64_C(50000000)

/* The array as loops: operand 0 is a dense array of elements of `to` bytes, operand 1 the caller's. */
static int view_tile(const struct schema_tensor *t, const weft_view *v, const weft_local *local, int64_t to,
                     struct memory_tile *tile)
{
    int64_t in = (int64_t)weft_dtype_size(t->from_dtype), last = 0, step;
    int64_t from = in;
    *tile = (struct memory_tile){.loops = local->ndim};
    for (int d = local->ndim - 1; d >= 0; d--) {
        int64_t stride = v->strides ? v->strides[d] : from;
        if (stride < 0 || (local->shape[d] > 1 && stride % in))
            return error_set(WEFT_EINVAL,
                             "weft_put: tensor '%s': the stride of dim %d is %lld: it must be a multiple of "
                             "the element's %lld bytes and not negative",
                             t->name, d, (long long)stride, (long long)in);
        if (__builtin_mul_overflow(local->shape[d] - 1, stride, &step) || __builtin_add_overflow(last, step, &last))
            return error_set(WEFT_EINVAL, "weft_put: tensor '%s': the strides reach beyond the end of memory", t->name);
        tile->n[d] = local->shape[d];
        tile->stride[0][d] = to;
        tile->stride[1][d] = stride;
        to *= local->shape[d];
        from *= local->shape[d];
    }
    if (__builtin_add_overflow(last, in, &last) || v->bytes < (uint64_t)last)
        return error_set(WEFT_EINVAL, "weft_put: tensor '%s': the buffer has %zu bytes, %lld are needed", t->name,
                         v->bytes, (long long)last);
    if ((uintptr_t)v->data % (uintptr_t)in)
        return error_set(WEFT_EINVAL, "weft_put: tensor '%s': the buffer is not aligned to the element's %lld bytes",
                         t->name, (long long)in);
    memory_tile_merge(tile);
    return 0;
}

static int check_view(const weft_publisher *p, size_t i, const weft_view *v, struct put_tensor *out)
{
    const struct schema_tensor *t = &p->schema->v[i];
    char what[SCHEMA_NAME + 64];
    weft_local local;
    out->device = -1;
    int err = weft_layout_local(t->layout, p->rank, &local);
    if (err || !local.bytes)
        return err;
    if (v->reserved[0] || v->reserved[1])
        return error_set(WEFT_EINVAL, "weft_put: tensor '%s': the reserved words of the view are not zero", t->name);
    if (!v->data)
        return error_set(WEFT_EINVAL, "weft_put: tensor '%s': there is no buffer, and rank %d holds a part of it",
                         t->name, p->rank);
    if (t->layout->boxes && v->strides)
        return error_set(WEFT_EINVAL,
                         "weft_put: tensor '%s': its layout is boxes, whose places are slots of a flat buffer: no "
                         "strides",
                         t->name);
    snprintf(what, sizeof what, "weft_put: tensor '%s'", t->name);
    err = device_of_view(what, v, environment_modules(), &out->device);
    if (err)
        return err;
    bool folded = partial_view(p->fold, i).data; /* it is copied as it is first */
    if (folded && out->device >= 0)
        return error_set(WEFT_EUNSUPPORTED,
                         "%s: it has partial sums, which are folded in host memory, and it is on device %d: copy it to "
                         "the host first",
                         what, out->device);
    return view_tile(t, v, &local, (int64_t)weft_dtype_size(folded ? t->from_dtype : (int)t->layout->dtype),
                     &out->tile);
}

/* Folds partial sums. The views of these tensors become the sums, dense. */
static int fold(weft_publisher *p, weft_view *views, struct put_tensor *tensors)
{
    for (size_t i = 0; i < p->schema->n; i++) {
        weft_view to = partial_view(p->fold, i);
        if (to.data)
            memory_copy(&tensors[i].tile, to.data, p->schema->v[i].from_dtype, views[i].data,
                        p->schema->v[i].from_dtype);
    }
    int err = partial_run(p->fold);
    for (size_t i = 0; i < p->schema->n && !err; i++) {
        const struct schema_tensor *t = &p->schema->v[i];
        weft_local local;
        if (!partial_view(p->fold, i).data)
            continue;
        views[i] = partial_view(p->fold, i);
        err = weft_layout_local(t->layout, p->rank, &local);
        if (!err)
            err = view_tile(t, &views[i], &local, (int64_t)weft_dtype_size(t->layout->dtype), &tensors[i].tile);
    }
    return err;
}

/* The snapshot to reuse: of a version that is gone already, or the oldest one, that nobody reads. */
static struct publish_ring *choose(weft_publisher *p, const struct catalog *c)
{
    struct publish_ring *best = NULL;
    bool best_gone = false;
    for (int i = 0; i < p->keep; i++) {
        struct publish_ring *r = &p->ring[i];
        weft_epoch_step v = {p->epoch, r->step};
        bool gone = r->state == PUBLISH_RETIRED || !catalog_find(c, &v);
        if (catalog_is_read(c, &v))
            continue;
        if (!best || gone > best_gone || (gone == best_gone && r->step < best->step)) {
            best = r;
            best_gone = gone;
        }
    }
    return best;
}

static int find_room(weft_publisher *p, int64_t until, struct publish_ring **out)
{
    for (int i = 0; i < p->keep; i++)
        if (p->ring[i].state == PUBLISH_FILLED || p->ring[i].state == PUBLISH_FREE) {
            *out = &p->ring[i];
            return 0;
        }
    for (int64_t pause = POLL_NS / 50;; deadline_pause(&pause, POLL_NS, until)) {
        struct catalog c;
        int err = catalog_get(&p->bus->keeper, p->source.set, until, &c);
        if (err)
            return err;
        struct publish_ring *r = choose(p, &c);
        catalog_free(&c);
        if (r && r->state != PUBLISH_RETIRED) {
            /* After the deletion no reader can begin. One that began before it has its lease: look again. */
            err = publish_retire(p, r, until);
            if (!err)
                err = catalog_get(&p->bus->keeper, p->source.set, until, &c);
            if (err)
                return err;
            if (catalog_is_read(&c, &(weft_epoch_step){p->epoch, r->step}))
                r = NULL;
            catalog_free(&c);
        }
        *out = r;
        if (r)
            return 0;
        if (!p->wait)
            return error_set(WEFT_EBUSY,
                             "set '%s': all %d versions that rank %d keeps are being read: keep more, or let put "
                             "wait",
                             p->source.set, p->keep, p->rank);
        if (deadline_now() >= until)
            return error_set(WEFT_ETIMEOUT, "set '%s': all %d versions that rank %d keeps are being read still",
                             p->source.set, p->keep, p->rank);
    }
}

/* Into the snapshot. On an error it is torn, and is as good as a free one. */
static int fill(weft_publisher *p, int64_t step, const weft_view *views, const struct put_tensor *tensors,
                struct publish_ring *r)
{
    struct copy_threads threads;
    pthread_mutex_lock(&p->lock);
    r->state = PUBLISH_FREE;
    pthread_mutex_unlock(&p->lock);
    put_delta_begin(p, r);
    snapshot_begin(&r->snapshot);
    memset(r->sums, 0, p->part.blocks * sizeof *r->sums);
    copy_threads_begin(&threads, p->threads, p->least);
    for (size_t i = 0; i < p->schema->n; i++)
        if (p->part.v[i].bytes && tensors[i].device < 0)
            put_copy(p, &threads, i, &views[i], &tensors[i].tile, r);
    copy_threads_end(&threads);
    int err = put_device_run(p, r);
    if (err)
        return err;
    uint64_t generation = snapshot_end(&r->snapshot);
    pthread_mutex_lock(&p->lock);
    r->generation = generation;
    r->held = 0;
    part_blocks_forget(&r->given, p->part.blocks);
    r->step = step;
    r->state = PUBLISH_FILLED;
    put_delta_end(p, r);
    pthread_mutex_unlock(&p->lock);
    p->last = step;
    return 0;
}

/* stream: NULL if the arrays are ready. */
static int put(weft_publisher *p, int64_t step, const weft_view *views, void *const *stream)
{
    if (!p)
        return error_set(WEFT_EINVAL, "weft_put: the publisher is NULL");
    int refused = views ? publish_check_step(p, "weft_put", step) : error_set(WEFT_EINVAL, "weft_put: views is NULL");
    if (!refused && !p->keep)
        refused = error_set(WEFT_EINVAL, "weft_put: set '%s' is published with lend: there is no memory to copy into",
                            p->source.set);
    if (refused && !p->fold) /* otherwise the other ranks wait to be told */
        return refused;
    int64_t begun = deadline_now();
    struct put_tensor *tensors = calloc(p->schema->n, sizeof *tensors);
    weft_view *sums = p->fold ? malloc(p->schema->n * sizeof *sums) : NULL;
    struct publish_ring *r = NULL;
    int err = refused ? refused : tensors && (sums || !p->fold) ? 0 : error_nomem();
    for (size_t i = 0; i < p->schema->n && !err; i++)
        err = check_view(p, i, &views[i], &tensors[i]);
    if (!err)
        err = put_device_prepare(p, views, tensors);
    if (!err && stream)
        err = put_device_await(p, *stream);
    if (!err)
        err = find_room(p, deadline_in(p->bus->deadline_ns), &r);
    if (p->fold)
        err = partial_agree(p->fold, step, err);
    if (!err && p->fold) {
        memcpy(sums, views, p->schema->n * sizeof *sums);
        views = sums;
        err = fold(p, sums, tensors);
    }
    if (!err)
        err = fill(p, step, views, tensors, r);
    free(sums);
    free(tensors);
    job_metrics_call(&p->bus->metrics, JOB_METRICS_PUT, err, deadline_now() - begun);
    if (!err)
        job_metrics_bytes(&p->bus->metrics, JOB_METRICS_SNAPSHOT, p->part.bytes);
    return err;
}

int weft_put(weft_publisher *p, int64_t step, const weft_view *views)
{
    return put(p, step, views, NULL);
}

int weft_put_on(weft_publisher *p, int64_t step, const weft_view *views, void *stream)
{
    return put(p, step, views, &stream);
}
