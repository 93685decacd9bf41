/* Two local shapes in one buffer; see inplace.h. */
#include "cli/check/inplace.h"

#include <stdlib.h>
#include <string.h>

struct held {
    weft_local local;
    weft_box *box;
    size_t n;
    int64_t width;
};

static int held_open(const weft_layout *l, int rank, struct held *h)
{
    weft_layout_desc desc = {.size = sizeof desc};
    *h = (struct held){.n = 0};
    int err = weft_layout_local(l, rank, &h->local);
    if (!err)
        err = weft_layout_describe(l, &desc);
    if (!err)
        err = weft_layout_boxes(l, rank, NULL, 0, &h->n);
    if (err)
        return err;
    h->width = (int64_t)weft_dtype_size((int)desc.dtype);
    h->box = malloc((h->n + 1) * sizeof *h->box);
    return h->box ? weft_layout_boxes(l, rank, h->box, h->n, &h->n) : WEFT_ENOMEM;
}

/* The position of the first element of a's interior in b, minus its position in a; false if b does not hold it. */
static bool shift_of(const struct held *a, const struct held *b, int64_t *shift)
{
    for (size_t i = 0; i < b->n; i++) {
        bool inside = true;
        for (int d = 0; d < a->local.ndim; d++) {
            int64_t off = a->box[0].at[d] - b->box[i].at[d];
            inside = inside && off >= 0 && off < b->box[i].len[d];
            shift[d] = b->box[i].local[d] + off - a->box[0].local[d];
        }
        if (inside)
            return true;
    }
    return false;
}

static struct inplace_view dense_view(const struct held *h)
{
    struct inplace_view v = {.ndim = h->local.ndim, .width = h->width};
    int64_t stride = h->width;
    for (int d = v.ndim - 1; d >= 0; d--) {
        v.shape[d] = h->local.shape[d];
        v.strides[d] = stride;
        stride *= v.shape[d];
    }
    return v;
}

/* Places a inside b, if it fits there. */
static bool place(const struct held *a, const struct held *b, const int64_t *shift, struct inplace_view *va,
                  struct inplace_view *vb)
{
    *va = dense_view(a);
    *vb = dense_view(b);
    for (int d = 0; d < va->ndim; d++) {
        if (shift[d] < 0 || shift[d] + va->shape[d] > vb->shape[d])
            return false;
        va->strides[d] = vb->strides[d];
        va->first += shift[d] * vb->strides[d];
    }
    return true;
}

int inplace_fit(const weft_layout *src, const weft_layout *dst, int rank, struct inplace *out)
{
    struct held a, b = {.n = 0};
    int64_t to[WEFT_MAX_DIMS], back[WEFT_MAX_DIMS];
    *out = (struct inplace){.shared = false};
    int err = held_open(src, rank, &a);
    if (!err)
        err = held_open(dst, rank, &b);
    if (err || !a.local.count || !b.local.count || a.width != b.width || a.local.ndim != b.local.ndim)
        goto out;
    if (shift_of(&a, &b, to)) {
        for (int d = 0; d < a.local.ndim; d++)
            back[d] = -to[d];
    } else if (shift_of(&b, &a, back)) {
        for (int d = 0; d < a.local.ndim; d++)
            to[d] = -back[d];
    } else {
        goto out;
    }
    if (place(&a, &b, to, &out->src, &out->dst))
        out->bytes = b.local.bytes;
    else if (place(&b, &a, back, &out->dst, &out->src))
        out->bytes = a.local.bytes;
    out->shared = out->bytes > 0;
out:
    free(a.box);
    free(b.box);
    return err;
}

/* Copies element by element; `in` is the buffer. Views are never empty. */
static void copy_view(const struct inplace_view *v, unsigned char *in, unsigned char *dense, bool gather)
{
    int64_t at[WEFT_MAX_DIMS] = {0};
    for (;;) {
        unsigned char *p = in + v->first;
        for (int d = 0; d < v->ndim; d++)
            p += at[d] * v->strides[d];
        memcpy(gather ? dense : p, gather ? p : dense, (size_t)v->width);
        dense += v->width;
        int d = v->ndim - 1;
        while (d >= 0 && ++at[d] == v->shape[d])
            at[d--] = 0;
        if (d < 0)
            return;
    }
}

void inplace_gather(const struct inplace_view *v, const void *buffer, void *dense)
{
    copy_view(v, (unsigned char *)(uintptr_t)buffer, dense, true);
}

void inplace_scatter(const struct inplace_view *v, void *buffer, const void *dense)
{
    copy_view(v, buffer, (unsigned char *)(uintptr_t)dense, false);
}
