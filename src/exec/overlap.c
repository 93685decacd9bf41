/* Which of a rank's buffers may share memory. Sources may share as they like. A destination may share
 * with the source of its own tensor where a shared address stands for the same global element on both
 * sides, and with nothing else.
 *
 * Two strided boxes with the same strides share addresses in few ways: going from the outermost stride
 * inwards, rows of one can lie over rows of the other at one or two shifts only. What a slot of a
 * buffer stands for along a dim is read off the plan's parts: run and spot relate the two. Slots that no
 * step reads or writes can do no harm; where the others all stand at one distance from their global
 * positions, so do these, and they are held to it. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/vec.h"
#include "exec/exec.h"

#define MAX_SLOTS ((size_t)1 << 22) /* runs of slots along one dim that are looked at */

struct region {
    const struct exec_place *place;
    const int64_t *shape;
    char *base, *end;
    int64_t size;
    uint32_t tensor, buf;
    int ndim;
    bool written;
};

/* One stride of two boxes, with how often each steps. */
struct level {
    int64_t stride, na, nb;
    int dim;
};

struct overlap {
    struct level levels[2 * WEFT_MAX_DIMS];
    int n;
    int64_t size_a, size_b;
    bool same_strides;
    int found;                    /* shifts at which elements lie exactly on each other */
    bool partial;                 /* elements share some of their bytes only */
    int64_t k[2 * WEFT_MAX_DIMS]; /* while walking: a's index minus b's at each level */
    int64_t shift[WEFT_MAX_DIMS]; /* the same for each dim of the first overlap that was found */
};

/* ---- where two boxes meet ---- */

static void add_level(struct overlap *o, int64_t stride, int64_t na, int64_t nb, int dim)
{
    int i = o->n++;
    for (; i > 0 && o->levels[i - 1].stride < stride; i--)
        o->levels[i] = o->levels[i - 1];
    o->levels[i] = (struct level){stride, na, nb, dim};
}

/* The boxes of one tensor's two sides, dim by dim. */
static void levels_by_dim(struct overlap *o, const struct region *a, const struct region *b)
{
    o->same_strides = true;
    for (int d = 0; d < a->ndim; d++) {
        int64_t na = a->shape[d], nb = b->shape[d], sa = a->place->stride[d], sb = b->place->stride[d];
        if (na > 1 && nb > 1 && sa != sb)
            o->same_strides = false;
        if (na > 1 || nb > 1)
            add_level(o, na > 1 ? sa : sb, na, nb, d);
    }
}

/* Any two boxes: a stride that one of them has not is one that it steps once. */
static void levels_by_stride(struct overlap *o, const struct region *a, const struct region *b)
{
    o->same_strides = true;
    for (int d = 0; d < a->ndim; d++)
        if (a->shape[d] > 1 && a->place->stride[d])
            add_level(o, a->place->stride[d], a->shape[d], 1, d);
    for (int d = 0; d < b->ndim; d++) {
        if (b->shape[d] == 1 || !b->place->stride[d])
            continue;
        int i = 0;
        while (i < o->n && (o->levels[i].stride != b->place->stride[d] || o->levels[i].nb != 1))
            i++;
        if (i < o->n)
            o->levels[i].nb = b->shape[d];
        else
            add_level(o, b->place->stride[d], 1, b->shape[d], d);
    }
}

/* Bytes that the levels inside `level` take of each box. */
static int64_t inside(const struct overlap *o, int level, bool of_a)
{
    int64_t w = of_a ? o->size_a : o->size_b;
    for (int i = level + 1; i < o->n; i++)
        w += ((of_a ? o->levels[i].na : o->levels[i].nb) - 1) * o->levels[i].stride;
    return w;
}

static bool nested(const struct overlap *o)
{
    for (int i = 0; i < o->n; i++)
        if (inside(o, i, true) > o->levels[i].stride || inside(o, i, false) > o->levels[i].stride)
            return false;
    return true;
}

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

/* b starts `off` bytes after a. */
static void walk(struct overlap *o, int level, int64_t off)
{
    if (level == o->n) {
        if (off >= o->size_a || off + o->size_b <= 0)
            return;
        if (off || o->size_a != o->size_b)
            o->partial = true;
        for (int i = 0; i < o->n && !o->found; i++)
            o->shift[o->levels[i].dim] = o->k[i];
        o->found++;
        return;
    }
    const struct level *l = &o->levels[level];
    int64_t wa = inside(o, level, true), wb = inside(o, level, false);
    int64_t k = floor_div(off - wa, l->stride) + 1, last = -floor_div(-(off + wb), l->stride) - 1;
    k = k < 1 - l->nb ? 1 - l->nb : k;
    last = last > l->na - 1 ? l->na - 1 : last;
    for (; k <= last; k++) {
        o->k[level] = k;
        walk(o, level + 1, off - k * l->stride);
    }
}

/* False when it cannot be told: strides that differ or do not nest. */
static bool meet(struct overlap *o, const struct region *a, const struct region *b, bool by_dim)
{
    *o = (struct overlap){.size_a = a->size, .size_b = b->size};
    if (by_dim)
        levels_by_dim(o, a, b);
    else
        levels_by_stride(o, a, b);
    if (!o->same_strides || !nested(o))
        return false;
    walk(o, 0, b->base - a->base);
    return true;
}

/* ---- what slots stand for ---- */

/* Slots to .. to+len-1 of a buffer along one dim stand for global positions to+delta and so on. */
struct slots {
    int64_t to, len, delta;
};
typedef VEC(struct slots) slots_vec;

static int by_slot(const void *a, const void *b)
{
    const struct slots *x = a, *y = b;
    return x->to < y->to ? -1 : x->to > y->to;
}

static int collect(const weft_plan *p, uint32_t buf, int dim, slots_vec *out)
{
    for (size_t i = 0; i < p->nparts; i++) {
        const struct plan_part *part = &p->parts[i];
        if (part->buf != buf)
            continue;
        const struct plan_run *r = &p->runs[part->runs + (uint32_t)dim];
        const struct plan_spot *s = &p->spots[part->spots + (uint32_t)dim];
        if (out->n + (size_t)r->n > MAX_SLOTS)
            return error_set(WEFT_EUNSUPPORTED, "in place with more than %zu blocks along a dim", MAX_SLOTS);
        if (!vec_room(out, (size_t)r->n))
            return error_nomem();
        for (int64_t k = 0; k < r->n; k++) {
            int64_t to = s->to + k * s->tostep;
            out->v[out->n++] = (struct slots){to, r->len, r->at + k * r->step - to};
        }
    }
    if (!out->n)
        return 0;
    qsort(out->v, out->n, sizeof *out->v, by_slot);
    size_t n = 0;
    for (size_t i = 1; i < out->n; i++) {
        struct slots *last = &out->v[n], *s = &out->v[i];
        if (s->delta == last->delta && s->to <= last->to + last->len) {
            if (s->to + s->len > last->to + last->len)
                last->len = s->to + s->len - last->to;
        } else {
            out->v[++n] = *s;
        }
    }
    out->n = n + 1;
    return 0;
}

/* In the range of source slots [lo, hi), source slot i lies on destination slot i - k: are they the same position? */
static bool agree(const slots_vec *src, const slots_vec *dst, int64_t lo, int64_t hi, int64_t k)
{
    int64_t most = 0; /* positions below it surely exist */
    for (size_t j = 0; j < dst->n; j++) {
        int64_t end = dst->v[j].to + dst->v[j].len + dst->v[j].delta;
        most = end > most ? end : most;
    }
    bool one = src->n > 0; /* one distance for all: it holds for the slots that are not read, too */
    for (size_t m = 1; m < src->n; m++)
        one = one && src->v[m].delta == src->v[0].delta;
    size_t i = 0;
    for (size_t j = 0; j < dst->n; j++) {
        const struct slots *d = &dst->v[j];
        int64_t from = d->to + k > lo ? d->to + k : lo, to = d->to + d->len + k < hi ? d->to + d->len + k : hi;
        if (from >= to)
            continue;
        if (one && src->v[0].delta + k != d->delta && from + src->v[0].delta < most && to + src->v[0].delta > 0)
            return false;
        while (i < src->n && src->v[i].to + src->v[i].len <= from)
            i++;
        for (size_t m = i; m < src->n && src->v[m].to < to; m++)
            if (src->v[m].delta + k != d->delta)
                return false;
    }
    return true;
}

static bool has_fold(const weft_plan *p, uint32_t tensor)
{
    for (size_t i = 0; i < p->nsteps; i++)
        if (p->steps[i].kind == PLAN_REDUCE && p->bufs[p->parts[p->steps[i].part].buf].tensor == tensor)
            return true;
    return false;
}

/* ---- the rules ---- */

static int in_place(const weft_plan *p, const struct region *src, const struct region *dst)
{
    char who[VIEW_NAME];
    struct overlap o;
    view_tensor(p, src->tensor, who);
    if (!meet(&o, src, dst, true))
        return error_set(WEFT_EINVAL, "%s: source and destination overlap and have different strides", who);
    if (!o.found && !o.partial)
        return 0;
    if (p->bufs[src->buf].dtype != p->bufs[dst->buf].dtype)
        return error_set(WEFT_EINVAL, "%s: source and destination overlap and have different dtypes", who);
    if (!p->in_place && has_fold(p, src->tensor))
        return error_set(WEFT_EINVAL,
                         "%s: source and destination overlap: a fold in place needs weft_lower's in_place option", who);
    bool same = o.found == 1 && !o.partial;
    for (int d = 0; same && d < src->ndim; d++) {
        int64_t k = o.shift[d], lo = k > 0 ? k : 0,
                hi = dst->shape[d] + k < src->shape[d] ? dst->shape[d] + k : src->shape[d];
        slots_vec s = {0}, t = {0};
        int err = collect(p, src->buf, d, &s);
        if (!err)
            err = collect(p, dst->buf, d, &t);
        same = err || agree(&s, &t, lo, hi, k);
        free(s.v);
        free(t.v);
        if (err)
            return err;
    }
    if (!same)
        return error_set(WEFT_EINVAL,
                         "%s: source and destination overlap where an address stands for different elements", who);
    return 0;
}

static int apart(const weft_plan *p, const struct region *a, const struct region *b)
{
    char one[VIEW_NAME], two[VIEW_NAME];
    struct overlap o;
    if (meet(&o, a, b, false) && !o.found)
        return 0;
    return error_set(WEFT_EINVAL, "the %s of %s and the %s of %s overlap", a->written ? "destination" : "source",
                     view_tensor(p, a->tensor, one), b->written ? "destination" : "source",
                     view_tensor(p, b->tensor, two));
}

static int by_address(const void *a, const void *b)
{
    const struct region *x = a, *y = b;
    return x->base < y->base ? -1 : x->base > y->base ? 1 : x->buf < y->buf ? -1 : x->buf > y->buf;
}

static void add_region(const weft_plan *p, const struct exec_place *places, uint32_t buf, struct region *r, size_t *n)
{
    if (buf == PLAN_NONE || !places[buf].base)
        return;
    const struct plan_buf *b = &p->bufs[buf];
    struct region *out = &r[(*n)++];
    *out = (struct region){.place = &places[buf],
                           .shape = p->shapes + b->shape,
                           .base = places[buf].base,
                           .size = (int64_t)weft_dtype_size(b->dtype),
                           .tensor = b->tensor,
                           .buf = buf,
                           .ndim = p->tensors[b->tensor].ndim,
                           .written = b->space == PLAN_DST};
    out->end = out->base + view_extent(out->ndim, out->shape, out->place->stride, out->size);
}

int overlap_check(const weft_plan *p, const struct exec_place *places)
{
    struct region *r = calloc(2 * p->ntensors + 1, sizeof *r);
    size_t n = 0;
    int err = 0;
    if (!r)
        return error_nomem();
    for (size_t t = 0; t < p->ntensors; t++) {
        add_region(p, places, p->tensors[t].src_buf, r, &n);
        add_region(p, places, p->tensors[t].dst_buf, r, &n);
    }
    qsort(r, n, sizeof *r, by_address);
    for (size_t i = 0; i < n && !err; i++) {
        for (size_t j = i + 1; j < n && !err && r[j].base < r[i].end; j++) {
            if (!r[i].written && !r[j].written)
                continue;
            if (r[i].tensor == r[j].tensor)
                err = r[i].written ? in_place(p, &r[j], &r[i]) : in_place(p, &r[i], &r[j]);
            else
                err = apart(p, &r[i], &r[j]);
        }
    }
    free(r);
    return err;
}
