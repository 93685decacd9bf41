#include "engine/device/mirror.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "device/device_queue.h"
#include "engine/device/ranges.h"
#include "engine/device/sites.h"
#include "engine/shape.h"

#define ALIGN 256 /* of each range in the mirror, in bytes */

struct mirror {
    const weft_plan *plan;
    struct device *device;
    bool hosted; /* the caller's memory is the host's */
    struct mirror_memory memory;
    char *base;
    size_t bytes;
    struct range *ranges;
    size_t n, pinned; /* pinned: how many of the ranges, or of the one mirror, are pinned */
    uint64_t *pins;   /* their addresses for the device */
    weft_view *src, *dst;
    const weft_view *src_from, *dst_from; /* copies of the caller's views */
    int64_t *strides;
    struct device_queue *in, *out;
};

/* ---- ranges ---- */

static bool is_mirrored(const struct mirror *m, const weft_view *v)
{
    return v && sites_on_device(v) != m->hosted;
}

/* Gives each range its place in the mirror. */
static void place(struct mirror *m)
{
    m->n = ranges_join(m->ranges, m->n);
    for (size_t i = 0; i < m->n; i++) {
        /* elements keep their alignment */
        m->ranges[i].at = (m->bytes + ALIGN - 1) / ALIGN * ALIGN + (uintptr_t)m->ranges[i].from % ALIGN;
        m->bytes = m->ranges[i].at + (size_t)(m->ranges[i].end - m->ranges[i].from);
    }
}

static size_t range_of(const struct mirror *m, const char *address)
{
    return ranges_find(m->ranges, m->n, address);
}

/* The address in the mirror that stands for one of the caller's. */
static char *reflected(const struct mirror *m, const void *address)
{
    const struct range *r = &m->ranges[range_of(m, address)];
    return m->base + r->at + ((const char *)address - r->from);
}

/* The addresses of both, for kernels: one of them is pinned memory of the host. */
static uint64_t for_caller(const struct mirror *m, const char *address)
{
    size_t i = range_of(m, address);
    return m->hosted ? m->pins[i] + (uint64_t)(address - m->ranges[i].from) : (uint64_t)(uintptr_t)address;
}

static uint64_t for_mirror(const struct mirror *m, const char *address)
{
    const char *at = reflected(m, address);
    return m->hosted ? (uint64_t)(uintptr_t)at : m->pins[0] + (uint64_t)(at - m->base);
}

/* ---- making ---- */

static int pin_all(struct mirror *m)
{
    size_t n = m->hosted ? m->n : 1;
    int err = 0;
    m->pins = calloc(n, sizeof *m->pins);
    if (!m->pins)
        return error_nomem();
    for (; m->pinned < n && !err; m->pinned += !err) {
        struct range *r = &m->ranges[m->pinned];
        err = m->hosted ? m->device->ops->pin(m->device, r->from, (size_t)(r->end - r->from), &m->pins[m->pinned])
                        : m->device->ops->pin(m->device, m->base, m->bytes, &m->pins[0]);
    }
    return err;
}

static int views_of(struct mirror *m, const weft_view *src, const weft_view *dst)
{
    const weft_plan *p = m->plan;
    m->src = calloc(p->ntensors, sizeof *m->src);
    m->dst = calloc(p->ntensors, sizeof *m->dst);
    m->strides = malloc(2 * p->ntensors * WEFT_MAX_DIMS * sizeof *m->strides);
    weft_view *src_from = calloc(p->ntensors, sizeof *src_from), *dst_from = calloc(p->ntensors, sizeof *dst_from);
    m->src_from = src_from;
    m->dst_from = dst_from;
    if (!m->src || !m->dst || !src_from || !dst_from || !m->strides)
        return error_nomem();
    for (uint32_t t = 0; t < p->ntensors; t++)
        for (int side = 0; side < 2; side++) {
            const weft_view *v = sites_view(p, t, side ? dst : src, side);
            weft_view *to = side ? &m->dst[t] : &m->src[t], *from = side ? &dst_from[t] : &src_from[t];
            if (!v)
                continue;
            *to = *from = *v;
            if (v->strides && !plan_side_is_boxes(p, t, !side)) {
                int64_t *strides = m->strides + (2 * t + (uint32_t)side) * WEFT_MAX_DIMS;
                memcpy(strides, v->strides, p->tensors[t].ndim * sizeof *strides);
                to->strides = from->strides = strides;
            }
            struct range r;
            if (is_mirrored(m, v) && ranges_extent(p, t, v, side, &r))
                to->data = reflected(m, v->data);
            if (is_mirrored(m, v)) { /* the other side */
                to->memory = m->hosted ? WEFT_MEMORY_CUDA : WEFT_MEMORY_HOST;
                to->device = m->hosted ? m->device->number : 0;
            }
        }
    return 0;
}

static int make(struct mirror *m, const weft_view *src, const weft_view *dst)
{
    const weft_plan *p = m->plan;
    m->ranges = calloc(2 * p->ntensors + 1, sizeof *m->ranges);
    if (!m->ranges)
        return error_nomem();
    for (uint32_t t = 0; t < p->ntensors; t++)
        for (int side = 0; side < 2; side++) {
            const weft_view *v = sites_view(p, t, side ? dst : src, side);
            if (is_mirrored(m, v) && ranges_extent(p, t, v, side, &m->ranges[m->n]))
                m->n++;
        }
    if (!m->n)
        return 0;
    place(m);
    m->base = m->memory.alloc(m->memory.arg, m->bytes);
    if (!m->base)
        return error_set(WEFT_ENOMEM, "no memory for %zu bytes that mirror %s memory", m->bytes,
                         m->hosted ? "host" : "device");
    int err = pin_all(m);
    return err ? err : views_of(m, src, dst);
}

int mirror_make(const weft_plan *p, struct device *d, bool hosted, const weft_view *src, const weft_view *dst,
                const struct mirror_memory *memory, struct mirror **out)
{
    struct mirror *m = *out = calloc(1, sizeof *m);
    if (!m)
        return error_nomem();
    m->plan = p;
    m->device = d;
    m->hosted = hosted;
    m->memory = *memory;
    int err = make(m, src, dst);
    if (err || !m->n) {
        mirror_free(m);
        *out = NULL;
    }
    return err;
}

void mirror_views(const struct mirror *m, const weft_view **src, const weft_view **dst)
{
    *src = m->src;
    *dst = m->dst;
}

int64_t mirror_bytes(const struct mirror *m, uint32_t tensor, bool written)
{
    const weft_view *v = written ? &m->dst_from[tensor] : &m->src_from[tensor];
    struct range r;
    return is_mirrored(m, v->data ? v : NULL) && ranges_extent(m->plan, tensor, v, written, &r) ? r.end - r.from : 0;
}

void *mirror_base(const struct mirror *m, size_t *bytes)
{
    *bytes = m->bytes;
    return m->base;
}

/* ---- copies ---- */

static int add_task(struct device_queue *q, int loops, const int64_t *n, const int64_t *stride, int dtype, uint64_t dst,
                    uint64_t src)
{
    struct device_operand from = {src, stride, dtype};
    struct device_task task = {
        .loops = loops, .n = n, .dst = {dst, stride, dtype}, .terms = &from, .nterms = 1, .acc = 0};
    return device_queue_add(q, &task);
}

/* Where a buffer begins in the caller's view, in bytes. */
static uint64_t box_at(const weft_plan *p, uint32_t buf)
{
    const struct plan_buf *b = &p->bufs[buf];
    if (!plan_side_is_boxes(p, b->tensor, b->space == PLAN_SRC))
        return 0;
    return (uint64_t)plan_side_place(p, buf).offset * weft_dtype_size(b->dtype);
}

/* The whole source. */
static int add_source(struct mirror *m, uint32_t tensor, const struct program *p)
{
    const weft_plan *plan = m->plan;
    const struct plan_tensor *pt = &plan->tensors[tensor];
    const char *from = m->src_from[tensor].data;
    int err = 0;
    for (uint32_t i = pt->src_buf, n = (uint32_t)plan_side_bufs(plan, tensor, true); n && !err; i++, n--) {
        const struct plan_buf *b = &plan->bufs[i];
        uint64_t first = box_at(plan, i);
        err = add_task(m->in, pt->ndim, plan->shapes + b->shape, p->places[i].stride, b->dtype,
                       for_mirror(m, from) + first, for_caller(m, from) + first);
    }
    return err;
}

/* A part that a step writes. */
static int add_part(struct mirror *m, const struct program *p, const struct plan_part *part)
{
    const weft_plan *plan = m->plan;
    const struct plan_buf *b = &plan->bufs[part->buf];
    const weft_view *v = &m->dst_from[b->tensor];
    if (b->space != PLAN_DST || !is_mirrored(m, v->data ? v : NULL) || !part->count)
        return 0;
    int64_t n[MEMORY_LOOPS], stride[MEMORY_LOOPS], first;
    int loops = shape_loops(plan, part, p->places[part->buf].stride, n, stride, &first);
    first += (int64_t)box_at(plan, part->buf);
    const char *to = (const char *)v->data;
    return add_task(m->out, loops, n, stride, b->dtype, for_caller(m, to) + (uint64_t)first,
                    for_mirror(m, to) + (uint64_t)first);
}

int mirror_fill(struct mirror *m, const weft_exec *x, const struct program *p)
{
    const weft_plan *plan = m->plan;
    int err = device_queue_new(m->device, &m->in);
    err = err ? err : device_queue_new(m->device, &m->out);
    for (uint32_t t = 0; t < plan->ntensors && !err; t++) {
        const weft_view *v = m->src_from[t].data ? &m->src_from[t] : NULL;
        struct range r;
        if (is_mirrored(m, v) && ranges_extent(plan, t, v, false, &r))
            err = add_source(m, t, p);
    }
    for (uint32_t s = 0; s < p->nsteps && !err; s++) {
        const struct plan_step *st = &plan->steps[s];
        if (st->kind == PLAN_COPY && p->steps[s].nwork) /* otherwise it copies elements onto themselves */
            err = add_part(m, p, &plan->parts[st->part + 1]);
        else if (st->kind == PLAN_REDUCE)
            err = add_part(m, p, &plan->parts[st->part]);
        for (uint32_t k = 0; k < st->nparts && st->kind == PLAN_RECV && !err; k++)
            err = add_part(m, p, &plan->parts[st->part + k]);
    }
    (void)x;
    err = err ? err : device_queue_close(m->in);
    return err ? err : device_queue_close(m->out);
}

int mirror_in(struct mirror *m, void *stream)
{
    return device_queue_run(m->in, stream, NULL);
}

int mirror_out(struct mirror *m, void *stream)
{
    return device_queue_run(m->out, stream, NULL);
}

void mirror_free(struct mirror *m)
{
    if (!m)
        return;
    device_queue_free(m->in);
    device_queue_free(m->out);
    for (size_t i = 0; i < m->pinned; i++)
        m->device->ops->unpin(m->device, m->hosted ? m->ranges[i].from : m->base);
    if (m->base)
        m->memory.free(m->memory.arg, m->base);
    free(m->pins);
    free(m->ranges);
    free(m->src);
    free(m->dst);
    free((void *)(uintptr_t)m->src_from);
    free((void *)(uintptr_t)m->dst_from);
    free(m->strides);
    free(m);
}
