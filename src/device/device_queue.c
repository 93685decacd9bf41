#include "device/device_queue.h"

#include <stdlib.h>

#include "base/error.h"

struct device_queue {
    struct device *device;
    struct device_table *table;
    void *memory; /* the table, on the device */
    const struct device_launch *launches;
    size_t n;
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

int device_queue_close(struct device_queue *q)
{
    const struct device_ops *ops = q->device->ops;
    int err = device_table_close(q->table);
    if (err)
        return err;
    size_t bytes;
    const void *image = device_table_image(q->table, &bytes);
    q->launches = device_table_launches(q->table, &q->n);
    if (!q->n)
        return 0;
    q->memory = ops->alloc(q->device, bytes);
    if (!q->memory)
        return error_set(WEFT_ENOMEM, "no memory on device %d for a table of %zu bytes", q->device->number, bytes);
    void *stream;
    err = ops->stream_open(q->device, &stream);
    if (err)
        return err;
    err = ops->copy(q->device, stream, q->memory, image, bytes);
    if (!err)
        err = ops->sync(q->device, stream);
    ops->stream_close(q->device, stream);
    return err;
}

int device_queue_run(struct device_queue *q, void *stream)
{
    int err = 0;
    for (size_t i = 0; i < q->n && !err; i++)
        err = q->device->ops->launch(q->device, stream, (uint64_t)(uintptr_t)q->memory, &q->launches[i]);
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
    if (q->memory)
        q->device->ops->free(q->device, q->memory);
    device_table_free(q->table);
    free(q);
}
