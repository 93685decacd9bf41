/* Which buffers of a rank may share memory. Sources may share memory with each other. A destination may share memory
 * with the source of its own tensor if each shared address is the same global element on both sides. It may not share
 * memory with any other buffer.
 *
 * Two strided boxes with the same strides can share addresses in few ways: from the outermost stride inwards, rows of
 * one can lie over rows of the other at one or two shifts only. The plan says which global position each slot of a
 * buffer holds along a dim. A slot at an edge that holds none may be shared. */
#include <stdlib.h>

#include "base/error.h"
#include "engine/exec.h"

#define MAX_SLOTS ((size_t)1 << 22) /* runs of slots along one dim, at most */

struct region {
    const struct exec_place *place;
    const int64_t *shape;
    char *base, *end;
    int64_t size;
    uint32_t tensor, buf;
    int ndim;
    bool written;
};

/* One stride of two boxes a and b, and how many steps each has of it. */
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
    int64_t shift[WEFT_MAX_DIMS]; /* the same for each dim, of the first overlap that was found */
};

/* ---- where two boxes meet ---- */

static void add_level(struct overlap *o, int64_t stride, int64_t na, int64_t nb, int dim)
{
    int i = o->n++;
    for (; i > 0 && o->levels[i - 1].stride < stride; i--)
        o->levels[i] = o->levels[i - 1];
    o->levels[i] = (struct level){stride, na, nb, dim};
}

/* The source and destination of one tensor, dim by dim. */
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

/* Any two boxes. A box without a stride of the other has one step of it. */
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

/* Bytes that the levels inside `level` span in box a or b. */
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

/* Finds the overlaps from `level` on, where b starts `off` bytes behind a. */
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

/* Finds where a and b overlap. False: this cannot be told, since their strides differ or do not nest. */
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

/* ---- what slots hold ---- */

enum sameness { SHARE_NOTHING, SHARE_THE_SAME, SHARE_OTHERS };

/* Source slot i lies on destination slot i - k. Do both hold the same position, for all i in [lo, hi)? */
static enum sameness compare(const struct plan_slots *src, size_t ns, const struct plan_slots *dst, size_t nd,
                             int64_t lo, int64_t hi, int64_t k)
{
    enum sameness found = SHARE_NOTHING;
    for (size_t i = 0, j = 0; i < ns && j < nd;) {
        int64_t s_end = src[i].to + src[i].len, d_end = dst[j].to + dst[j].len + k;
        int64_t from = src[i].to > dst[j].to + k ? src[i].to : dst[j].to + k, to = s_end < d_end ? s_end : d_end;
        if ((from > lo ? from : lo) < (to < hi ? to : hi)) {
            if (src[i].at - src[i].to != dst[j].at - dst[j].to - k)
                return SHARE_OTHERS;
            found = SHARE_THE_SAME;
        }
        if (s_end <= d_end)
            i++;
        else
            j++;
    }
    return found;
}

/* Compares the two buffers along one dim. Slot 0 of the destination lies on slot k of the source. */
static int compare_dim(const weft_plan *p, const struct region *src, const struct region *dst, int dim, int64_t k,
                       enum sameness *out)
{
    struct plan_slots *s = NULL, *t = NULL;
    size_t ns = 0, nt = 0;
    int err = plan_slots(p, src->buf, dim, MAX_SLOTS, &s, &ns);
    if (!err)
        err = plan_slots(p, dst->buf, dim, MAX_SLOTS, &t, &nt);
    int64_t lo = k > 0 ? k : 0, hi = dst->shape[dim] + k < src->shape[dim] ? dst->shape[dim] + k : src->shape[dim];
    if (!err)
        *out = compare(s, ns, t, nt, lo, hi, k);
    free(s);
    free(t);
    return err;
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
    bool nothing = false; /* the shared slots hold no position on one side: they are at an edge */
    for (int d = 0; d < src->ndim && o.found == 1 && !nothing; d++) {
        enum sameness shared;
        int err = compare_dim(p, src, dst, d, o.shift[d], &shared);
        if (err)
            return err;
        nothing = shared == SHARE_NOTHING;
        same = same && shared != SHARE_OTHERS;
    }
    if (!same && (!nothing || o.partial))
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
    if (!places[buf].base)
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
    struct region *r = calloc(p->nbufs + 1, sizeof *r);
    size_t n = 0;
    int err = 0;
    if (!r)
        return error_nomem();
    for (uint32_t i = 0; i < p->nbufs; i++)
        if (p->bufs[i].space != PLAN_TEMP)
            add_region(p, places, i, r, &n);
    qsort(r, n, sizeof *r, by_address);
    for (size_t i = 0; i < n && !err; i++) {
        for (size_t j = i + 1; j < n && !err && r[j].base < r[i].end; j++) {
            if (!r[i].written && !r[j].written)
                continue;
            if (r[i].tensor == r[j].tensor && r[i].written == r[j].written)
                continue; /* boxes of one layout: it has checked them */
            if (r[i].tensor == r[j].tensor)
                err = r[i].written ? in_place(p, &r[j], &r[i]) : in_place(p, &r[i], &r[j]);
            else
                err = apart(p, &r[i], &r[j]);
        }
    }
    free(r);
    return err;
}
