/* Prints a layout in its text form; parsing that gives an equal layout. */
#include "base/error.h"
#include "base/text.h"
#include "layout/layout.h"

static void put_dim(struct text *t, const weft_layout *l, const struct layout_dim *d)
{
    text_int(t, d->extent);
    for (int s = 0; s < d->nsplits; s++) {
        text_put(t, "/");
        text_put(t, l->axis[d->split[s].axis].name);
        if (d->split[s].block)
            text_printf(t, ":%lld", (long long)d->split[s].block);
    }
    if (!d->lo && !d->hi)
        return;
    text_printf(t, "~%lld", (long long)d->lo);
    if (d->hi != d->lo)
        text_printf(t, ":%lld", (long long)d->hi);
    if (d->wrap)
        text_put(t, "o");
}

static void put_mesh(struct text *t, const weft_layout *l)
{
    for (int a = 0; a < l->naxes; a++) {
        const char *name = l->axis[a].name, *last = name;
        for (const char *p = name; *p; p++)
            last = p;
        /* A size right behind "_" or a digit would read as part of the name. */
        const char *gap = *last == '_' || (*last >= '0' && *last <= '9') ? " " : "";
        text_printf(t, "%s%s%s%lld", a ? "." : "", name, gap, (long long)l->axis[a].size);
    }
    if (l->nsegs == 1 && l->by_index[0].rank == 0)
        return;
    for (size_t i = 0; i < l->nsegs; i++) {
        const struct layout_seg *s = &l->by_index[i];
        text_printf(t, "%s%d", i ? "," : "=", s->rank);
        if (s->n > 1)
            text_printf(t, "%s%d", s->n > 2 ? ".." : ",", s->rank + (int)s->n - 1);
    }
}

/* "[0:4,:]", and "=16(1,8)" if the box is not dense or not right behind those before, which reach to *room. */
static void put_box(struct text *t, const weft_layout *l, size_t box, int64_t *room)
{
    const struct box_list *b = l->boxes;
    size_t n = (size_t)b->ndim;
    const int64_t *at = b->at + box * n, *len = b->len + box * n, *stride = b->stride + box * n;
    int64_t dense[WEFT_MAX_DIMS], end = b->offset[box] + box_list_span(b->ndim, len, stride);
    bool plain = true;
    text_put(t, "[");
    for (int d = 0; d < b->ndim; d++) {
        text_put(t, d ? "," : "");
        if (len[d] < l->dim[d].extent) {
            text_int(t, at[d]);
            text_put(t, ":");
            text_int(t, at[d] + len[d]);
        } else {
            text_put(t, ":");
        }
    }
    text_put(t, "]");
    box_list_dense(b->ndim, len, dense);
    for (int d = 0; d < b->ndim; d++)
        plain = plain && stride[d] == dense[d];
    if (!plain || b->offset[box] != *room) {
        text_put(t, "=");
        text_int(t, b->offset[box]);
    }
    for (int d = 0; d < b->ndim && !plain; d++) {
        text_put(t, d ? "," : "(");
        text_int(t, stride[d]);
    }
    text_put(t, plain ? "" : ")");
    *room = end > *room ? end : *room;
}

static void put_boxes(struct text *t, const weft_layout *l)
{
    const struct box_list *b = l->boxes;
    for (size_t i = 0; i < b->holders; i++) {
        int64_t room = 0;
        text_put(t, i ? "; " : "{");
        text_int(t, b->rank[b->first[i]]);
        text_put(t, ":");
        for (size_t k = b->first[i]; k < b->first[i + 1]; k++) {
            text_put(t, " ");
            put_box(t, l, k, &room);
        }
    }
    text_put(t, "}");
    text_put(t, l->allows & WEFT_LAYOUT_OVERLAPS ? " +overlaps" : "");
    text_put(t, l->allows & WEFT_LAYOUT_GAPS ? " +gaps" : "");
}

/* The blocks of the last dims: those of the dims before have extent 1. */
static void put_scale(struct text *t, const weft_layout *l)
{
    int first = 0;
    while (first < l->ndim - 1 && l->scale.block[first] == 1)
        first++;
    text_printf(t, " *%s", weft_dtype_name(l->scale.dtype));
    for (int d = first; d < l->ndim; d++)
        text_printf(t, "%s%lld", d > first ? "," : "(", (long long)l->scale.block[d]);
    text_put(t, ")");
}

int weft_layout_format(const weft_layout *l, char *buf, size_t cap, size_t *len)
{
    if (!l || (cap && !buf))
        return error_set(WEFT_EINVAL, "layout: %s is NULL", l ? "buf" : "layout");
    struct text t = text_start(buf, cap);
    text_put(&t, weft_dtype_name(l->dtype));
    text_put(&t, "[");
    for (int d = 0; d < l->ndim; d++) {
        if (d)
            text_put(&t, ",");
        put_dim(&t, l, &l->dim[d]);
    }
    text_put(&t, l->faces ? "]+ @" : "] @");
    if (l->boxes)
        put_boxes(&t, l);
    else
        put_mesh(&t, l);
    for (int f = 0; f < l->nfolds; f++) {
        text_printf(&t, " +%s", weft_op_name(l->fold[f].op));
        for (int k = 0; k < l->desc_fold[f].nover; k++)
            text_printf(&t, "%s%s", k ? "," : "(", l->desc_fold[f].over[k]);
        text_put(&t, ")");
    }
    if (l->scale.dtype)
        put_scale(&t, l);
    if (len)
        *len = t.len;
    return 0;
}
