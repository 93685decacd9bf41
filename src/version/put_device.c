/* The tensors on the device are cut into chunks, each a range of the part. The work of chunk c is at two levels of one
 * table: kernels gather and cast its elements into the staging memory at level 2c, and sum its blocks at level 2c + 1.
 * The table does not depend on the snapshot, so it serves all puts of the same arrays. */
#include "version/put_device.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/math.h"
#include "base/vec.h"
#include "version/bus_device.h"
#include "version/packed.h"

struct chunk {
    int64_t lo, hi; /* of the part */
};

struct put_device {
    struct bus_device device;
    struct device_queue *queue; /* of `known`; NULL: none */
    weft_view *known;           /* the views of the last put; those of host memory, or none, have no data */
    int64_t (*strides)[WEFT_MAX_DIMS];
    VEC(struct chunk) chunks;
    void *sums;     /* of the blocks of the part, on the device */
    uint64_t *told; /* the same on the host */
    bool *pinned;   /* snapshots of the ring */
};

/* ---- which views ---- */

/* Is it the view of the last put, as far as the device is concerned? The tile says what strides are worth. */
static bool is_known(const struct put_device *d, const weft_publisher *p, size_t i, const weft_view *v, bool there)
{
    const weft_view *k = &d->known[i];
    size_t dims = (size_t)p->schema->v[i].layout->ndim * sizeof(int64_t);
    if (!there || !k->data)
        return !there && !k->data;
    return k->data == v->data && !k->strides == !v->strides && (!v->strides || !memcmp(k->strides, v->strides, dims));
}

static void remember(struct put_device *d, const weft_publisher *p, size_t i, const weft_view *v, bool there)
{
    size_t dims = (size_t)p->schema->v[i].layout->ndim * sizeof(int64_t);
    d->known[i] = (weft_view){.data = there ? v->data : NULL};
    if (there && v->strides) {
        memcpy(d->strides[i], v->strides, dims);
        d->known[i].strides = d->strides[i];
    }
}

/* ---- the table ---- */

static int add_tensor(weft_publisher *p, size_t i, const weft_view *v, const struct put_tensor *t, int64_t lo,
                      int64_t hi, uint64_t to, uint32_t level)
{
    const struct schema_tensor *x = &p->schema->v[i];
    struct put_device *d = p->device;
    struct bus_device_move m = {.tile = &t->tile,
                                .base = {to, (uint64_t)(uintptr_t)v->data},
                                .dtype = {(int)x->layout->dtype, x->from_dtype},
                                .lo = lo,
                                .hi = hi};
    if (!x->layout->boxes)
        return bus_device_add(d->queue, level, &m);
    int64_t in = (int64_t)weft_dtype_size(x->from_dtype), size = (int64_t)weft_dtype_size(x->layout->dtype);
    int err = 0;
    for (struct packed_walk w = packed_begin(x->layout, p->rank); !err && packed_next(&w);) {
        struct memory_tile tile = packed_tile(&w, 0, size, in);
        m.tile = &tile;
        m.at[0] = w.packed * size;
        m.at[1] = w.loose * in;
        err = bus_device_add(d->queue, level, &m);
    }
    return err;
}

/* The bytes [lo, hi) of tensor i, in the last chunk. */
static int add_range(weft_publisher *p, size_t i, const weft_view *v, const struct put_tensor *t, int64_t lo,
                     int64_t hi)
{
    struct put_device *d = p->device;
    const struct schema_place *place = &p->part.v[i];
    size_t c = d->chunks.n - 1;
    uint64_t array =
        (uint64_t)(uintptr_t)d->device.lane[c % BUS_DEVICE_LANES].memory + (uint64_t)(place->at - d->chunks.v[c].lo);
    d->chunks.v[c].hi = place->at + hi;
    int err = add_tensor(p, i, v, t, lo, hi, array, (uint32_t)(2 * c));
    for (int64_t at = lo; at < hi && p->digests && !err; at += SCHEMA_BLOCK)
        err = device_queue_sum(d->queue, (uint32_t)(2 * c + 1),
                               (uint64_t)(uintptr_t)((uint64_t *)d->sums + place->block + at / SCHEMA_BLOCK),
                               array + (uint64_t)at, (uint32_t)min64(SCHEMA_BLOCK, hi - at));
    return err;
}

static int make_table(weft_publisher *p, const weft_view *views, const struct put_tensor *t)
{
    struct put_device *d = p->device;
    bool goes_on = false; /* the tensor before is on the device */
    int err = device_queue_new(d->device.device, &d->queue);
    d->chunks.n = 0;
    for (size_t i = 0; i < p->schema->n && !err; i++) {
        const struct schema_place *place = &p->part.v[i];
        bool there = t[i].device >= 0;
        for (int64_t lo = 0, hi; there && lo < place->bytes && !err; lo = hi) {
            const struct chunk *last = goes_on ? &d->chunks.v[d->chunks.n - 1] : NULL;
            int64_t room = last ? d->device.chunk - (place->at + lo - last->lo) : 0, left = place->bytes - lo;
            if (room < min64(left, SCHEMA_BLOCK)) {
                struct chunk *c = vec_push(&d->chunks);
                if (!c)
                    return error_nomem();
                *c = (struct chunk){place->at + lo, place->at + lo};
                room = d->device.chunk;
            }
            hi = lo + (left <= room ? left : room / SCHEMA_BLOCK * SCHEMA_BLOCK);
            err = add_range(p, i, &views[i], &t[i], lo, hi);
            goes_on = true;
        }
        goes_on = goes_on && (there || !place->bytes);
    }
    return err ? err : device_queue_close(d->queue);
}

static void drop_table(struct put_device *d)
{
    device_queue_free(d->queue);
    d->queue = NULL;
}

/* ---- the calls ---- */

static int open_device(weft_publisher *p, int number)
{
    size_t n = p->schema->n;
    struct put_device *d = p->device = calloc(1, sizeof *d);
    if (!d)
        return error_nomem();
    int err = bus_device_open("weft_put", number, &d->device);
    if (!err) {
        d->known = calloc(n, sizeof *d->known);
        d->strides = calloc(n, sizeof *d->strides);
        d->told = calloc(p->part.blocks + 1, sizeof *d->told);
        d->pinned = calloc((size_t)p->keep, sizeof *d->pinned);
        err = d->known && d->strides && d->told && d->pinned ? 0 : error_nomem();
    }
    if (!err)
        err = bus_device_alloc(&d->device, (p->part.blocks + 1) * sizeof *d->told, "for digests", &d->sums);
    if (err)
        put_device_close(p);
    return err;
}

int put_device_prepare(weft_publisher *p, const weft_view *views, const struct put_tensor *t)
{
    int number = -1, err = 0;
    bool same = p->device && p->device->queue;
    for (size_t i = 0; i < p->schema->n; i++) {
        if (t[i].device < 0)
            continue;
        if (number >= 0 && t[i].device != number)
            return error_set(WEFT_EUNSUPPORTED,
                             "weft_put: tensor '%s' is on device %d, and another one on device %d: a rank puts from "
                             "one device",
                             p->schema->v[i].name, t[i].device, number);
        number = t[i].device;
    }
    if (number >= 0 && p->device && p->device->device.device->number != number) {
        put_device_close(p);
        same = false;
    }
    if (number >= 0 && !p->device)
        err = open_device(p, number);
    if (err || !p->device)
        return err;
    struct put_device *d = p->device;
    for (size_t i = 0; i < p->schema->n && same; i++)
        same = is_known(d, p, i, &views[i], t[i].device >= 0);
    if (same)
        return 0;
    drop_table(d);
    for (size_t i = 0; i < p->schema->n; i++)
        remember(d, p, i, &views[i], t[i].device >= 0);
    err = make_table(p, views, t);
    if (err)
        drop_table(d);
    return err;
}

int put_device_await(const weft_publisher *p, void *stream)
{
    struct device *d = p->device && p->device->chunks.n ? p->device->device.device : NULL;
    return d ? d->ops->sync(d, stream) : 0;
}

/* The lanes keep the order of the chunks that share a staging memory, so the host waits at the end alone. */
static int run_chunks(struct put_device *d, struct publish_ring *r)
{
    const struct device_ops *ops = d->device.device->ops;
    int err = 0;
    for (size_t c = 0; c < d->chunks.n && !err; c++) {
        const struct chunk *x = &d->chunks.v[c];
        void *stream = d->device.lane[c % BUS_DEVICE_LANES].stream;
        err = device_queue_run_level(d->queue, (uint32_t)(2 * c), stream);
        if (!err)
            err = device_queue_run_level(d->queue, (uint32_t)(2 * c + 1), stream);
        if (!err)
            err = ops->copy(d->device.device, stream, r->snapshot.data + x->lo,
                            d->device.lane[c % BUS_DEVICE_LANES].memory, (size_t)(x->hi - x->lo));
    }
    int failed = bus_device_rest(&d->device);
    return err ? err : failed;
}

int put_device_run(weft_publisher *p, struct publish_ring *r)
{
    struct put_device *d = p->device;
    size_t ring = (size_t)(r - p->ring);
    if (!d || !d->chunks.n)
        return 0;
    if (!d->pinned[ring])
        d->pinned[ring] = bus_device_pin(&d->device, &r->snapshot, false);
    int err = run_chunks(d, r);
    if (err || !p->digests)
        return err;
    void *stream = d->device.lane[0].stream;
    err = d->device.device->ops->copy(d->device.device, stream, d->told, d->sums, p->part.blocks * sizeof *d->told);
    if (!err)
        err = d->device.device->ops->sync(d->device.device, stream);
    for (size_t i = 0; i < p->schema->n && !err; i++) {
        const struct schema_place *place = &p->part.v[i];
        size_t blocks = (size_t)ceil_div(place->bytes, SCHEMA_BLOCK);
        if (d->known[i].data && blocks)
            memcpy(r->sums + place->block, d->told + place->block, blocks * sizeof *r->sums);
    }
    return err;
}

void put_device_close(weft_publisher *p)
{
    struct put_device *d = p->device;
    struct error_text kept;
    if (!d)
        return;
    error_keep(&kept);
    if (d->device.device)
        bus_device_rest(&d->device);
    drop_table(d);
    for (int i = 0; i < p->keep && d->pinned; i++)
        if (d->pinned[i])
            bus_device_unpin(&d->device, &p->ring[i].snapshot);
    if (d->device.device)
        bus_device_free(&d->device, d->sums);
    bus_device_close(&d->device);
    free(d->known);
    free(d->strides);
    free(d->chunks.v);
    free(d->told);
    free(d->pinned);
    free(d);
    p->device = NULL;
    error_restore(&kept);
}
