/* From the caller's views to places in memory. Refuses views that could not be moved safely. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/strides.h"
#include "engine/exec.h"

const char *view_tensor(const weft_plan *p, uint32_t tensor, char *buf)
{
    const char *name = p->names + p->tensors[tensor].name;
    if (*name)
        snprintf(buf, VIEW_NAME, "tensor '%s'", name);
    else
        snprintf(buf, VIEW_NAME, "tensor %u", tensor);
    return buf;
}

int64_t view_extent(int ndim, const int64_t *shape, const int64_t *stride, int64_t size)
{
    int64_t last = 0, step;
    for (int d = 0; d < ndim; d++)
        if (__builtin_mul_overflow(shape[d] - 1, stride[d], &step) || __builtin_add_overflow(last, step, &last))
            return INT64_MAX;
    return last > INT64_MAX - size ? INT64_MAX : last + size;
}

static void dense_strides(int ndim, const int64_t *shape, int64_t size, int64_t *stride)
{
    for (int d = ndim - 1; d >= 0; d--) {
        stride[d] = size;
        size *= shape[d];
    }
}

static bool is_empty(int ndim, const int64_t *shape)
{
    for (int d = 0; d < ndim; d++)
        if (!shape[d])
            return true;
    return false;
}

static int check_strides(const char *who, const char *side, int ndim, const int64_t *shape, const int64_t *stride,
                         int64_t size, bool written)
{
    for (int d = 0; d < ndim; d++) {
        if (stride[d] < 0)
            return error_set(WEFT_EINVAL, "%s: %s stride of dim %d is %lld: it must not be negative", who, side, d,
                             (long long)stride[d]);
        if (shape[d] > 1 && stride[d] % size)
            return error_set(WEFT_EINVAL, "%s: %s stride of dim %d is %lld: not a multiple of the element's %lld bytes",
                             who, side, d, (long long)stride[d], (long long)size);
    }
    if (view_extent(ndim, shape, stride, size) == INT64_MAX)
        return error_set(WEFT_EINVAL, "%s: the %s strides reach beyond the end of memory", who, side);
    if (written && !strides_nest(ndim, shape, stride, size))
        return error_set(WEFT_EINVAL, "%s: the %s strides put several elements at one address", who, side);
    return 0;
}

static int place_view(const weft_plan *p, uint32_t tensor, uint32_t buf, const weft_view *views, struct exec_place *out)
{
    bool written = p->bufs[buf].space == PLAN_DST;
    const char *side = written ? "destination" : "source";
    const int64_t *shape = p->shapes + p->bufs[buf].shape;
    int ndim = p->tensors[tensor].ndim;
    int64_t size = (int64_t)weft_dtype_size(p->bufs[buf].dtype);
    char who[VIEW_NAME];
    view_tensor(p, tensor, who);
    if (is_empty(ndim, shape)) {
        dense_strides(ndim, shape, size, out->stride);
        return 0;
    }
    const weft_view *v = views ? &views[tensor] : NULL;
    if (!v || !v->data)
        return error_set(WEFT_EINVAL, "%s: there is no %s buffer", who, side);
    char what[VIEW_NAME + 16];
    snprintf(what, sizeof what, "%s: %s", who, side);
    if (v->reserved[0] || v->reserved[1])
        return error_set(WEFT_EINVAL,
                         "%s: the reserved words of the view are not zero: initialise it with WEFT_VIEW_INIT", what);
    if (v->strides)
        memcpy(out->stride, v->strides, (size_t)ndim * sizeof *out->stride);
    else
        dense_strides(ndim, shape, size, out->stride);
    int err = v->strides ? check_strides(who, side, ndim, shape, out->stride, size, written) : 0;
    if (err)
        return err;
    if ((uintptr_t)v->data % (uintptr_t)size)
        return error_set(WEFT_EINVAL, "%s: the %s buffer is not aligned to the element's %lld bytes", who, side,
                         (long long)size);
    int64_t need = view_extent(ndim, shape, out->stride, size);
    if (v->bytes < (uint64_t)need)
        return error_set(WEFT_EINVAL, "%s: %s buffer has %zu bytes, %lld are needed", who, side, v->bytes,
                         (long long)need);
    out->base = v->data;
    return 0;
}

/* A side that is boxes: the view is flat, and the layout says where each box is. */
static int place_boxes(const weft_plan *p, uint32_t tensor, bool src, const weft_view *views, struct exec_place *places)
{
    const struct plan_tensor *t = &p->tensors[tensor];
    uint32_t first = src ? t->src_buf : t->dst_buf;
    const char *side = src ? "source" : "destination";
    int64_t size = (int64_t)weft_dtype_size(p->bufs[first].dtype), room = 0;
    const weft_view *v = views ? &views[tensor] : NULL;
    char who[VIEW_NAME];
    view_tensor(p, tensor, who);
    if (!v || !v->data)
        return error_set(WEFT_EINVAL, "%s: there is no %s buffer", who, side);
    if (v->reserved[0] || v->reserved[1])
        return error_set(WEFT_EINVAL,
                         "%s: %s: the reserved words of the view are not zero: initialise it with WEFT_VIEW_INIT", who,
                         side);
    if (v->strides)
        return error_set(WEFT_EINVAL, "%s: the %s is boxes, whose places are slots of a flat buffer: no strides", who,
                         side);
    if ((uintptr_t)v->data % (uintptr_t)size)
        return error_set(WEFT_EINVAL, "%s: the %s buffer is not aligned to the element's %lld bytes", who, side,
                         (long long)size);
    for (uint32_t k = 0; k < plan_side_bufs(p, tensor, src); k++) {
        struct plan_side_place w = plan_side_place(p, first + k);
        struct exec_place *out = &places[first + k];
        for (int d = 0; d < t->ndim; d++)
            out->stride[d] = w.stride[d] * size;
        out->base = (char *)v->data + w.offset * size;
        int64_t end = w.offset * size + view_extent(t->ndim, p->shapes + p->bufs[first + k].shape, out->stride, size);
        room = end > room ? end : room;
    }
    if (v->bytes < (uint64_t)room)
        return error_set(WEFT_EINVAL, "%s: %s buffer has %zu bytes, %lld are needed", who, side, v->bytes,
                         (long long)room);
    return 0;
}

static int place_side(const weft_plan *p, uint32_t tensor, bool src, const weft_view *views, struct exec_place *places)
{
    uint32_t buf = src ? p->tensors[tensor].src_buf : p->tensors[tensor].dst_buf;
    if (buf == PLAN_NONE)
        return 0;
    return plan_side_is_boxes(p, tensor, src) ? place_boxes(p, tensor, src, views, places)
                                              : place_view(p, tensor, buf, views, &places[buf]);
}

int view_places(const weft_plan *p, char *scratch, const weft_view *src, const weft_view *dst,
                struct exec_place *places)
{
    for (size_t i = 0; i < p->nbufs; i++)
        places[i] = (struct exec_place){0};
    for (uint32_t t = 0; t < p->ntensors; t++) {
        int err = place_side(p, t, true, src, places);
        if (!err)
            err = place_side(p, t, false, dst, places);
        if (err)
            return err;
    }
    for (size_t i = 0; i < p->nbufs; i++) {
        const struct plan_buf *b = &p->bufs[i];
        struct exec_place *at = &places[i];
        int ndim = p->tensors[b->tensor].ndim;
        const int64_t *shape = p->shapes + b->shape;
        int64_t size = (int64_t)weft_dtype_size(b->dtype);
        if (b->space == PLAN_TEMP && scratch) {
            at->base = scratch + b->offset;
            dense_strides(ndim, shape, size, at->stride);
        }
        at->bytes = at->base ? view_extent(ndim, shape, at->stride, size) : 0;
    }
    return 0;
}

void view_offer(const weft_exec *x, struct exec_place *places)
{
    struct transport_link *l = x->comm->link;
    for (size_t i = 0; i < x->plan->nbufs; i++) {
        struct exec_place *at = &places[i];
        if (at->base)
            at->reached = l->transport->offer(l, at->base, (size_t)at->bytes, &at->at);
        if (!at->reached)
            at->at = (uintptr_t)at->base;
    }
}
