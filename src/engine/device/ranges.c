#include "engine/device/ranges.h"

#include <stdlib.h>

bool ranges_extent(const weft_plan *p, uint32_t tensor, const weft_view *v, bool written, struct range *out)
{
    const struct plan_buf *b = &p->bufs[written ? p->tensors[tensor].dst_buf : p->tensors[tensor].src_buf];
    const int64_t *shape = p->shapes + b->shape;
    int ndim = p->tensors[tensor].ndim;
    int64_t size = (int64_t)weft_dtype_size(b->dtype), bytes = size;
    for (int d = 0; d < ndim; d++)
        bytes *= shape[d];
    if (plan_side_is_boxes(p, tensor, !written))
        bytes = size * plan_side_room(p, tensor, !written);
    else if (bytes && v->strides)
        bytes = view_extent(ndim, shape, v->strides, size);
    *out = (struct range){v->data, (char *)v->data + bytes, 0};
    return bytes > 0;
}

static int by_address(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    return x->from < y->from ? -1 : x->from > y->from;
}

size_t ranges_join(struct range *v, size_t n)
{
    size_t left = 0;
    if (n)
        qsort(v, n, sizeof *v, by_address);
    for (size_t i = 0; i < n; i++) {
        if (left && v[i].from <= v[left - 1].end) {
            if (v[i].end > v[left - 1].end)
                v[left - 1].end = v[i].end;
        } else {
            v[left++] = v[i];
        }
    }
    return left;
}

size_t ranges_find(const struct range *v, size_t n, const char *address)
{
    size_t low = 0, high = n;
    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;
        if (v[mid].from <= address)
            low = mid;
        else
            high = mid;
    }
    return low;
}
