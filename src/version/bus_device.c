#include "version/bus_device.h"

#include "base/error.h"
#include "base/math.h"
#include "comm/environment.h"
#include "version/schema.h"

#define CHUNK (INT64_C(16) << 20) /* from 16 MiB on a copy has 97 % of the link's rate */

static int64_t chunk_bytes = CHUNK;

void bus_device_chunks(int64_t bytes)
{
    chunk_bytes = bytes ? bytes / SCHEMA_BLOCK * SCHEMA_BLOCK : CHUNK;
}

int bus_device_alloc(struct bus_device *d, size_t bytes, const char *what, void **out)
{
    int err = d->device->ops->health(d->device);
    if (err)
        return err;
    *out = d->device->ops->alloc(d->device, bytes);
    return *out ? 0 : error_set(WEFT_ENOMEM, "device %d has no %zu bytes of memory %s", d->device->number, bytes, what);
}

void bus_device_free(struct bus_device *d, void *memory)
{
    if (memory)
        d->device->ops->free(d->device, memory);
}

int bus_device_open(const char *call, int number, struct bus_device *out)
{
    struct bus_device d = {.chunk = chunk_bytes};
    int err = device_open(call, WEFT_MEMORY_CUDA, number, environment_modules(), &d.device);
    for (int i = 0; i < BUS_DEVICE_LANES && !err; i++) {
        err = d.device->ops->stream_open(d.device, &d.lane[i].stream);
        if (!err)
            err = bus_device_alloc(&d, (size_t)d.chunk, "to stage tensors", &d.lane[i].memory);
    }
    if (err)
        bus_device_close(&d);
    else
        *out = d;
    return err;
}

int bus_device_rest(struct bus_device *d)
{
    int err = 0;
    for (int i = 0; i < BUS_DEVICE_LANES && d->device; i++) {
        int one = d->lane[i].stream ? d->device->ops->sync(d->device, d->lane[i].stream) : 0;
        err = err ? err : one;
    }
    return err;
}

void bus_device_close(struct bus_device *d)
{
    struct error_text kept;
    error_keep(&kept);
    bus_device_rest(d);
    for (int i = 0; i < BUS_DEVICE_LANES && d->device; i++) {
        bus_device_free(d, d->lane[i].memory);
        if (d->lane[i].stream)
            d->device->ops->stream_close(d->device, d->lane[i].stream);
    }
    if (d->device)
        d->device->ops->close(d->device);
    *d = (struct bus_device){0};
    error_restore(&kept);
}

bool bus_device_pin(struct bus_device *d, const struct snapshot *s, bool read_only)
{
    const struct device_ops *ops = d->device->ops;
    struct error_text kept;
    uint64_t at;
    error_keep(&kept);
    int err = (read_only ? ops->pin_read : ops->pin)(d->device, s->head, s->size, &at);
    error_restore(&kept);
    return !err;
}

void bus_device_unpin(struct bus_device *d, const struct snapshot *s)
{
    d->device->ops->unpin(d->device, s->head);
}

static int add_task(struct device_queue *q, uint32_t level, const struct bus_device_move *m,
                    const struct memory_tile *t, const int64_t at[2])
{
    struct device_operand from = {m->base[1] + (uint64_t)at[1], t->stride[1], m->dtype[1]};
    struct device_task task = {.level = level,
                               .loops = t->loops,
                               .n = t->n,
                               .dst = {m->base[0] + (uint64_t)at[0], t->stride[0], m->dtype[0]},
                               .terms = &from,
                               .nterms = 1};
    return device_queue_add(q, &task);
}

static int add_part(struct device_queue *q, uint32_t level, const struct bus_device_move *m,
                    const struct memory_tile *t, const int64_t at[2]);

/* The turns [first, end) of one loop: as one tile if `whole`, otherwise one by one. */
static int add_turns(struct device_queue *q, uint32_t level, const struct bus_device_move *m,
                     const struct memory_tile *t, const int64_t at[2], int loop, int64_t first, int64_t end, bool whole)
{
    int err = 0;
    for (int64_t i = first; i < end && !err; i = whole ? end : i + 1) {
        struct memory_tile part = *t;
        int64_t from[2] = {at[0] + i * t->stride[0][loop], at[1] + i * t->stride[1][loop]};
        part.n[loop] = whole ? end - first : 1;
        err = (whole ? add_task : add_part)(q, level, m, &part, from);
    }
    return err;
}

/* A tile that reaches beyond one end of the range is taken apart, along the loop that reaches farthest. */
static int add_part(struct device_queue *q, uint32_t level, const struct bus_device_move *m,
                    const struct memory_tile *t, const int64_t at[2])
{
    int k = m->cut, loop = 0;
    int64_t inner = (int64_t)weft_dtype_size(m->dtype[k]), step = 0, n = 1;
    for (int i = 0; i < t->loops; i++) {
        inner += (t->n[i] - 1) * t->stride[k][i];
        if (t->n[i] > 1 && t->stride[k][i] > step) {
            step = t->stride[k][i];
            n = t->n[i];
            loop = i;
        }
    }
    int64_t before = m->lo - at[k], room = m->hi - at[k]; /* from the tile's beginning to the ends of the range */
    if (room <= 0 || inner <= before)
        return 0;
    if (before <= 0 && inner <= room)
        return add_task(q, level, m, t, at);
    if (!step)
        return error_set(WEFT_EINVAL, "a piece of a tensor cannot be cut into chunks");
    inner -= (n - 1) * step; /* of one turn */
    int64_t first = before < inner ? 0 : (before - inner) / step + 1, end = min64(n, ceil_div(room, step));
    int64_t in = before <= 0 ? 0 : min64(ceil_div(before, step), end),
            out = room < inner ? in : max64(in, min64(n, (room - inner) / step + 1));
    int err = add_turns(q, level, m, t, at, loop, first, in, false);
    if (!err)
        err = add_turns(q, level, m, t, at, loop, in, out, true);
    return err ? err : add_turns(q, level, m, t, at, loop, out, end, false);
}

int bus_device_add(struct device_queue *q, uint32_t level, const struct bus_device_move *m)
{
    return add_part(q, level, m, m->tile, m->at);
}
