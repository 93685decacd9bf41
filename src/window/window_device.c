#include "window/window_device.h"

#include <sched.h>
#include <string.h>

#include "base/dtype.h"
#include "base/error.h"
#include "comm/environment.h"
#include "device/device_table.h"

#define STAGED ((size_t)1 << 20) /* bytes that are added at once */
#define TABLE ((size_t)1 << 16)  /* and of the table that says so */

int window_device_check(const weft_window *w, const weft_buffer *buffers)
{
    int number = -1;
    for (int i = 0; i < w->n; i++) {
        const weft_buffer *b = &buffers[i];
        if (b->memory == WEFT_MEMORY_HOST)
            continue;
        if (w->remote)
            return error_set(WEFT_EUNSUPPORTED,
                             "weft_window_open: buffer '%.60s' is on a device, and the ranks are on several hosts: "
                             "only host memory is reached there",
                             b->name);
        if (number >= 0 && b->device != number)
            return error_set(WEFT_EUNSUPPORTED,
                             "weft_window_open: buffer '%.60s' is on device %d, others of this rank are on device %d: "
                             "give all of them the same",
                             b->name, b->device, number);
        number = b->device;
    }
    return 0;
}

static void *take(weft_window *w, size_t bytes)
{
    void *p = arena_alloc(&w->arena, bytes);
    if (p)
        memset(p, 0, bytes);
    return p;
}

int window_device_make(weft_window *w, int number, uint64_t bytes)
{
    const size_t size = (size_t)w->comm->size;
    struct window_head *h = w->heads[w->comm->rank];
    struct window_device *d = w->device = take(w, sizeof *d);
    if (!d || !(d->base = take(w, size * sizeof *d->base)) || !(d->data = take(w, size * sizeof *d->data)) ||
        !(d->head = take(w, size * sizeof *d->head)))
        return error_nomem();
    int err = device_open("weft_window_open", WEFT_MEMORY_CUDA, number, environment_modules(), &d->device);
    if (err)
        return err;
    const struct device_ops *ops = d->device->ops;
    err = ops->stream_open(d->device, &d->stream);
    if (err)
        return err;
    d->memory = ops->alloc(d->device, bytes ? bytes : 1);
    if (!d->memory)
        return error_set(WEFT_ENOMEM, "weft_window_open: no memory for %llu bytes on device %d",
                         (unsigned long long)bytes, number);
    err = ops->share(d->device, d->memory, &h->share);
    if (err)
        return err;
    h->begin = (uint64_t)(uintptr_t)d->memory - h->share.base;
    memcpy(h->device, d->device->id, sizeof h->device);
    return 0;
}

int window_device_connect(weft_window *w)
{
    struct window_device *d = w->device;
    const struct device_ops *ops = d->device->ops;
    for (int r = 0; r < w->comm->size; r++) {
        struct window_head *h = w->heads[r];
        if (memcmp(h->device, d->device->id, sizeof h->device) != 0)
            return error_set(WEFT_EUNSUPPORTED,
                             "weft_window_open: the buffers of rank %d are on another device than those of rank %d: "
                             "all ranks must use one device",
                             r, w->comm->rank);
        int err = ops->pin(d->device, h, (size_t)h->describe, &d->head[r]);
        if (err)
            return err;
        void *base = NULL;
        if (r != w->comm->rank && (err = ops->map(d->device, &h->share, &base)))
            return err;
        d->base[r] = base;
        d->data[r] = base ? d->base[r] + h->begin : d->memory;
    }
    return 0;
}

void window_device_close(weft_window *w)
{
    struct window_device *d = w->device;
    if (!d->device)
        return;
    const struct device_ops *ops = d->device->ops;
    for (int r = 0; r < w->comm->size; r++) {
        if (d->base[r])
            ops->unmap(d->device, d->base[r]);
        if (d->head[r])
            ops->unpin(d->device, w->heads[r]);
    }
    if (d->staging)
        ops->free(d->device, d->staging);
    if (d->stream)
        ops->stream_close(d->device, d->stream);
}

void window_device_free(struct device *device, void *memory)
{
    if (memory)
        device->ops->free(device, memory);
    device->ops->close(device);
}

/* ---- storing ---- */

static int copy(struct window_device *d, void *dst, const void *src, size_t bytes)
{
    const struct device_ops *ops = d->device->ops;
    int err = ops->copy(d->device, d->stream, dst, src, bytes);
    return err ? err : ops->sync(d->device, d->stream);
}

int window_device_put(weft_window *w, int rank, const struct window_buffer *b, int64_t offset, const void *src,
                      int64_t count)
{
    return copy(w->device, w->device->data[rank] + b->at + (size_t)offset * b->size, src, (size_t)count * b->size);
}

/* Waits until no other rank adds to the owner's buffers. A rank that died while it did has failed the comm. */
static int begin_add(weft_window *w, int rank)
{
    _Atomic uint32_t *adder = &w->heads[rank]->adder;
    for (unsigned turn = 1;; turn++) {
        uint32_t none = 0;
        if (atomic_compare_exchange_weak_explicit(adder, &none, (uint32_t)w->comm->rank + 1, memory_order_acquire,
                                                  memory_order_relaxed))
            return 0;
        if (turn % 64)
            continue;
        int holder = (int)none - 1, err = comm_failure(w->comm);
        if (err)
            return err;
        if (holder >= 0 && holder != w->comm->rank && transport_failed(w->comm->transport->gone(w->comm->link, holder)))
            return comm_fail(w->comm, WEFT_EPEER, "rank %d died while it added to a window, rank %d waits for it",
                             holder, w->comm->rank);
        sched_yield();
    }
}

static void end_add(weft_window *w, int rank)
{
    atomic_store_explicit(&w->heads[rank]->adder, 0, memory_order_release);
}

/* at[i] += staged[i] for n elements, by the kernels of execs. */
static int add_staged(struct window_device *d, char *at, int dtype, int64_t n)
{
    const struct device_ops *ops = d->device->ops;
    const int64_t stride = (int64_t)weft_dtype_size(dtype);
    const struct device_operand terms[2] = {{(uint64_t)(uintptr_t)at, &stride, dtype},
                                            {(uint64_t)(uintptr_t)(d->staging + TABLE), &stride, dtype}};
    const struct device_task task = {
        .loops = 1, .n = &n, .dst = terms[0], .terms = terms, .nterms = 2, .op = WEFT_SUM, .acc = dtype_acc(dtype)};
    struct device_table *t = device_table_new();
    size_t bytes, launches;
    int err = t ? device_table_add(t, &task) : error_nomem();
    err = err ? err : device_table_close(t);
    if (!err) {
        const void *image = device_table_image(t, &bytes);
        const struct device_launch *l = device_table_launches(t, &launches);
        err = bytes <= TABLE ? ops->copy(d->device, d->stream, d->staging, image, bytes)
                             : error_set(WEFT_EUNSUPPORTED, "weft_window_put_add: the table has %zu bytes", bytes);
        for (size_t k = 0; k < launches && !err; k++)
            err = ops->launch(d->device, d->stream, (uint64_t)(uintptr_t)d->staging, &l[k], NULL, 0);
        int synced = ops->sync(d->device, d->stream);
        err = err ? err : synced;
    }
    device_table_free(t);
    return err;
}

int window_device_add(weft_window *w, int rank, const struct window_buffer *b, int64_t offset, const void *src,
                      int64_t count)
{
    struct window_device *d = w->device;
    char *at = d->data[rank] + b->at + (size_t)offset * b->size;
    const int64_t most = (int64_t)(STAGED / b->size);
    int err = 0;
    if (!d->staging && !(d->staging = d->device->ops->alloc(d->device, TABLE + STAGED)))
        return error_set(WEFT_ENOMEM, "weft_window_put_add: no memory for %zu bytes on device %d", TABLE + STAGED,
                         d->device->number);
    for (int64_t i = 0; i < count && !err; i += most) {
        const int64_t n = count - i < most ? count - i : most;
        err = copy(d, d->staging + TABLE, (const char *)src + (size_t)i * b->size, (size_t)n * b->size);
        err = err ? err : begin_add(w, rank);
        if (err)
            return err;
        err = add_staged(d, at + (size_t)i * b->size, b->dtype, n);
        end_add(w, rank);
    }
    return err;
}
