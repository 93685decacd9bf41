#include "device/device_queue.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* The last launch of a run does the second half of the gate if it has no more blocks than these: a launch less. With
 * more blocks a kernel behind it is faster, because each block would have to wait for its own stores. */
#define LAST_BLOCKS 1024

struct device_queue {
    struct device *device;
    struct device_table *table;
    void *memory; /* the table, on the device */
    size_t count; /* where the word for gates is behind the table; what is attached follows it */
    void *attached;
    size_t bytes; /* of it */
    const struct device_launch *launches;
    size_t n;
    void *recording; /* of a run; NULL: none was made */
};

int device_queue_new(struct device *d, struct device_queue **out)
{
    struct device_queue *q = *out = calloc(1, sizeof *q);
    if (!q)
        return error_nomem();
    q->device = d;
    q->table = device_table_new();
    return q->table ? 0 : error_nomem();
}

int device_queue_add(struct device_queue *q, const struct device_task *task)
{
    return device_table_add(q->table, task);
}

int device_queue_sum(struct device_queue *q, uint32_t level, uint64_t dst, uint64_t src, uint32_t bytes)
{
    return device_table_sum(q->table, level, dst, src, bytes);
}

void device_queue_apart(struct device_queue *q)
{
    device_table_apart(q->table);
}

int device_queue_attach(struct device_queue *q, const void *data, size_t bytes)
{
    q->attached = malloc(bytes);
    if (!q->attached)
        return error_nomem();
    memcpy(q->attached, data, bytes);
    q->bytes = bytes;
    return 0;
}

uint64_t device_queue_attached(const struct device_queue *q)
{
    return (uint64_t)(uintptr_t)q->memory + q->count + 16;
}

static int copy_in(struct device_queue *q, const void *image, size_t bytes)
{
    const struct device_ops *ops = q->device->ops;
    void *stream;
    int err = ops->stream_open(q->device, &stream);
    if (err)
        return err;
    err = ops->copy(q->device, stream, q->memory, image, bytes);
    if (!err && q->bytes)
        err = ops->copy(q->device, stream, (void *)(uintptr_t)device_queue_attached(q), q->attached, q->bytes);
    if (!err)
        err = ops->sync(q->device, stream);
    ops->stream_close(q->device, stream);
    return err;
}

int device_queue_close(struct device_queue *q)
{
    int err = device_table_close(q->table);
    if (err)
        return err;
    size_t bytes;
    const void *image = device_table_image(q->table, &bytes);
    q->launches = device_table_launches(q->table, &q->n);
    if (!q->n && !q->bytes)
        return 0;
    q->count = (bytes + 15) / 16 * 16;
    q->memory = q->device->ops->alloc(q->device, q->count + 16 + q->bytes);
    if (!q->memory) {
        err = q->device->ops->health(q->device); /* one that has failed has no memory, either */
        return err ? err
                   : error_set(WEFT_ENOMEM, "no memory on device %d for a table of %zu bytes", q->device->number,
                               bytes);
    }
    return copy_in(q, image, bytes);
}

/* g: as that of ops->launch. */
static int launch(const struct device_queue *q, void *stream, size_t i, const struct device_gate *g)
{
    uint64_t table = (uint64_t)(uintptr_t)q->memory;
    return q->device->ops->launch(q->device, stream, table, &q->launches[i], g, table + q->count);
}

/* The last launch also tells the other ranks, so that no kernel of its own does. */
static bool last_tells(const struct device_queue *q)
{
    return q->n && q->launches[q->n - 1].blocks <= LAST_BLOCKS;
}

int device_queue_run(struct device_queue *q, void *stream, const struct device_gate *g)
{
    struct device *d = q->device;
    if (g && device_table_small(q->launches, q->n)) {
        uint64_t table = (uint64_t)(uintptr_t)q->memory;
        struct device_work work = {table, table + q->count, q->launches, q->n};
        return d->ops->meet(d, stream, g, &work);
    }
    int err = 0;
    if (g && g->awaited.n) {
        struct device_gate before = {
            .counter = g->counter, .late = g->late, .come = g->come, .awaited = g->awaited, .shown = g->late};
        err = d->ops->meet(d, stream, &before, NULL);
    }
    const struct device_gate *last = g && last_tells(q) ? g : NULL;
    for (size_t i = 0; i < q->n && !err; i++)
        err = launch(q, stream, i, i + 1 == q->n ? last : NULL);
    if (err || !g || last)
        return err;
    struct device_gate after = {.counter = g->counter, .told = g->told, .counts = g->counts};
    return d->ops->meet(d, stream, &after, NULL);
}

size_t device_queue_calls(const struct device_queue *q)
{
    return device_table_small(q->launches, q->n) ? 1 : q->n + 1 + !last_tells(q);
}

int device_queue_record(struct device_queue *q, const struct device_gate *g)
{
    const struct device_ops *ops = q->device->ops;
    void *stream;
    int err = ops->stream_open(q->device, &stream);
    if (err)
        return err;
    err = ops->record(q->device, stream);
    err = err ? err : device_queue_run(q, stream, g);
    err = err ? err : ops->recorded(q->device, stream, &q->recording);
    ops->stream_close(q->device, stream); /* ends a recording, too */
    return err;
}

int device_queue_replay(struct device_queue *q, void *stream)
{
    return q->device->ops->replay(q->device, q->recording, stream);
}

int device_queue_run_level(struct device_queue *q, uint32_t level, void *stream)
{
    size_t low = 0, high = q->n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (q->launches[mid].level < level)
            low = mid + 1;
        else
            high = mid;
    }
    int err = 0;
    for (; low < q->n && q->launches[low].level == level && !err; low++)
        err = launch(q, stream, low, NULL);
    return err;
}

uint32_t device_queue_launches(const struct device_queue *q)
{
    return (uint32_t)q->n;
}

void device_queue_free(struct device_queue *q)
{
    if (!q)
        return;
    q->device->ops->forget(q->device, q->recording);
    if (q->memory)
        q->device->ops->free(q->device, q->memory);
    device_table_free(q->table);
    free(q->attached);
    free(q);
}
