/* Other layouts as boxes, and boxes of a tensor whose dims are permuted, split or joined. Elements stay at their places
 * in the buffers: only the way in which they are named changes. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/vec.h"
#include "layout/build.h"
#include "layout/layout.h"

/* Boxes that are being made. */
struct making {
    int ndim;
    VEC(int) rank;
    VEC(int64_t) at;
    VEC(int64_t) len;
    VEC(int64_t) stride;
    VEC(int64_t) offset;
};

static int add_box(struct making *m, int rank, const int64_t *at, const int64_t *len, int64_t offset,
                   const int64_t *stride)
{
    size_t n = (size_t)m->ndim;
    if (m->rank.n + 1 >= BOX_MOST)
        return error_set(WEFT_EUNSUPPORTED, "layout: more than 2^31 boxes");
    if (!vec_room(&m->rank, 1) || !vec_room(&m->offset, 1) || !vec_room(&m->at, n + 1) || !vec_room(&m->len, n + 1) ||
        !vec_room(&m->stride, n + 1))
        return error_nomem();
    m->rank.v[m->rank.n++] = rank;
    m->offset.v[m->offset.n++] = offset;
    for (size_t d = 0; d < n; d++) {
        m->at.v[m->at.n++] = at[d];
        m->len.v[m->len.n++] = len[d];
        m->stride.v[m->stride.n++] = stride[d];
    }
    return 0;
}

static int finish(struct making *m, int rc, int dtype, const int64_t *extents, uint64_t flags, weft_layout **out)
{
    weft_dim dims[WEFT_MAX_DIMS];
    weft_boxes boxes = {.n = m->rank.n,
                        .rank = m->rank.v,
                        .at = m->at.v,
                        .len = m->len.v,
                        .offset = m->offset.v,
                        .stride = m->stride.v};
    weft_layout_desc desc = {.size = sizeof desc,
                             .dtype = (enum weft_dtype)dtype,
                             .ndim = m->ndim,
                             .dims = dims,
                             .flags = flags,
                             .boxes = &boxes};
    for (int d = 0; d < m->ndim; d++)
        dims[d] = (weft_dim){.extent = extents[d]};
    if (!rc)
        rc = layout_build(&desc, NULL, 0, NULL, out);
    free(m->rank.v);
    free(m->at.v);
    free(m->len.v);
    free(m->stride.v);
    free(m->offset.v);
    return rc;
}

/* ---- a mesh as boxes ---- */

static int box_rank(const weft_layout *l, int rank, struct making *m)
{
    weft_local local;
    size_t n = 0;
    int64_t stride[WEFT_MAX_DIMS];
    int rc = weft_layout_local(l, rank, &local);
    if (!rc)
        rc = weft_layout_boxes(l, rank, NULL, 0, &n);
    if (rc || !n)
        return rc;
    if (n >= BOX_MOST)
        return error_set(WEFT_EUNSUPPORTED, "layout: rank %d holds more than 2^31 boxes", rank);
    weft_box *v = malloc(n * sizeof *v);
    if (!v)
        return error_nomem();
    rc = weft_layout_boxes(l, rank, v, n, &n);
    box_list_dense(l->ndim, local.shape, stride);
    for (size_t i = 0; i < n && !rc; i++) {
        int64_t offset = 0;
        for (int d = 0; d < l->ndim; d++)
            offset += v[i].local[d] * stride[d];
        rc = add_box(m, rank, v[i].at, v[i].len, offset, stride);
    }
    free(v);
    return rc;
}

int weft_layout_boxed(const weft_layout *l, weft_layout **out)
{
    if (!l || !out)
        return error_set(WEFT_EINVAL, "layout: %s is NULL", l ? "out" : "layout");
    if (l->scale.dtype)
        return error_set(WEFT_EUNSUPPORTED,
                         "layout: values with scales are not made boxes, because their scales would change places");
    if (l->boxes) {
        *out = (weft_layout *)layout_hold(l);
        return 0;
    }
    struct making m = {.ndim = l->ndim};
    int64_t extents[WEFT_MAX_DIMS];
    bool ghosts = false, copies = false;
    for (int d = 0; d < l->ndim; d++) {
        extents[d] = l->dim[d].extent;
        ghosts = ghosts || l->dim[d].lo || l->dim[d].hi;
    }
    for (int a = 0; a < l->naxes; a++)
        copies = copies || (l->axis[a].role == LAYOUT_FREE && l->axis[a].size > 1);
    if (l->nfolds || ghosts)
        return error_set(WEFT_EUNSUPPORTED, "layout: a layout with %s is not the same as boxes",
                         l->nfolds ? "folds" : "ghosts");
    int rc = 0;
    for (size_t i = 0; i < l->nsegs && !rc; i++)
        for (int64_t k = 0; k < l->by_rank[i].n && !rc; k++)
            rc = box_rank(l, l->by_rank[i].rank + (int)k, &m);
    return finish(&m, rc, l->dtype, extents, copies ? WEFT_LAYOUT_OVERLAPS : 0, out);
}

/* ---- other dims ---- */

int weft_layout_permute(const weft_layout *l, const int *order, weft_layout **out)
{
    if (!l || !out || (!order && l->ndim))
        return error_set(WEFT_EINVAL, "layout: %s is NULL", !l ? "layout" : !out ? "out" : "order");
    unsigned seen = 0;
    for (int d = 0; d < l->ndim; d++) {
        if (order[d] < 0 || order[d] >= l->ndim || seen >> order[d] & 1)
            return error_set(WEFT_EINVAL, "layout: order[%d] is %d: each of the %d dims must be listed once", d,
                             order[d], l->ndim);
        seen |= 1u << order[d];
    }
    weft_layout *boxed;
    int rc = weft_layout_boxed(l, &boxed);
    if (rc)
        return rc;
    const struct box_list *b = boxed->boxes;
    struct making m = {.ndim = l->ndim};
    int64_t extents[WEFT_MAX_DIMS];
    for (int d = 0; d < l->ndim; d++)
        extents[d] = l->dim[order[d]].extent;
    for (size_t i = 0; i < b->n && !rc; i++) {
        int64_t at[WEFT_MAX_DIMS], len[WEFT_MAX_DIMS], stride[WEFT_MAX_DIMS];
        for (int d = 0; d < l->ndim; d++) {
            size_t from = i * (size_t)l->ndim + (size_t)order[d];
            at[d] = b->at[from];
            len[d] = b->len[from];
            stride[d] = b->stride[from];
        }
        rc = add_box(&m, b->rank[i], at, len, b->offset[i], stride);
    }
    rc = finish(&m, rc, l->dtype, extents, boxed->allows, out);
    weft_layout_free(boxed);
    return rc;
}

/* Dims from..from+n-1 of the old shape have the same elements as dims to..to+k-1 of the new one: n or k is 1. */
struct group {
    int from, n, to, k;
};

/* Divides the two shapes into groups. False: a dim would be cut in a way that is no product. */
static bool match_dims(const weft_layout *l, int ndim, const int64_t *extents, struct group *g, int *n)
{
    int i = 0, k = 0;
    *n = 0;
    while (i < l->ndim || k < ndim) {
        struct group x = {.from = i, .to = k};
        if (i == l->ndim || (k < ndim && extents[k] == 1 && l->dim[i].extent != 1)) {
            if (extents[k++] != 1) /* a new dim of 1: it has nothing of the old shape */
                return false;
            x.k = 1;
        } else if (k == ndim || (l->dim[i].extent == 1 && extents[k] != 1)) {
            if (l->dim[i++].extent != 1)
                return false;
            x.n = 1;
        } else {
            int64_t a = l->dim[i++].extent, b = extents[k++];
            while (a != b)
                if (a < b ? i == l->ndim || __builtin_mul_overflow(a, l->dim[i++].extent, &a)
                          : k == ndim || __builtin_mul_overflow(b, extents[k++], &b))
                    return false;
            x.n = i - x.from;
            x.k = k - x.to;
            if (x.n > 1 && x.k > 1)
                return false;
        }
        g[(*n)++] = x;
    }
    return true;
}

/* A box that is being cut into boxes of the new shape, group by group. */
struct cutting {
    struct making *m;
    const struct box_list *b;
    size_t box;
    const int64_t *old, *extents; /* of the two shapes */
    const struct group *g;
    int groups;
    int64_t at[WEFT_MAX_DIMS], len[WEFT_MAX_DIMS], stride[WEFT_MAX_DIMS]; /* in the new shape */
};

static int cut_group(struct cutting *c, int g, int64_t offset);

static int64_t of_box(const struct cutting *c, const int64_t *v, int dim)
{
    return v[c->box * (size_t)c->b->ndim + (size_t)dim];
}

/* Splits positions lo .. lo+len-1, `step` slots apart, over the new dims from `dim` to the last of the group. */
static int split_range(struct cutting *c, int g, int dim, int64_t lo, int64_t len, int64_t step, int64_t offset)
{
    int last = c->g[g].to + c->g[g].k - 1;
    int64_t inner = 1;
    for (int d = dim + 1; d <= last; d++)
        inner *= c->extents[d];
    if (dim == last) {
        c->stride[dim] = step;
        c->at[dim] = lo;
        c->len[dim] = len;
        return cut_group(c, g + 1, offset);
    }
    for (int64_t p = lo, end = lo + len; p < end;) {
        int64_t rows = p % inner ? 0 : (end - p) / inner; /* whole rows of the inner dims, if some begin here */
        int64_t part = rows ? inner : inner - p % inner < end - p ? inner - p % inner : end - p;
        c->at[dim] = p / inner;
        c->len[dim] = rows ? rows : 1;
        c->stride[dim] = rows > 1 ? inner * step : 1; /* of one row the stride has no meaning, and might not fit */
        int rc = split_range(c, g, dim + 1, p % inner, part, step, offset + (p - lo) * step);
        if (rc)
            return rc;
        p += rows ? rows * inner : part;
    }
    return 0;
}

/* Joins the old dims of a group, from the innermost outwards. The dims behind `dim` have `inner` elements, of which
 * len from lo on, `step` slots apart, are in the box. */
static int join_dims(struct cutting *c, int g, int dim, int64_t inner, int64_t lo, int64_t len, int64_t step,
                     int64_t offset)
{
    int to = c->g[g].to;
    if (dim < c->g[g].from) {
        c->at[to] = lo;
        c->len[to] = len;
        c->stride[to] = step;
        return cut_group(c, g + 1, offset);
    }
    int64_t at = of_box(c, c->b->at, dim), n = of_box(c, c->b->len, dim), stride = of_box(c, c->b->stride, dim);
    int64_t all = inner * c->old[dim];
    if (inner == 1 || n == 1 || (len == inner && stride == step * inner))
        return join_dims(c, g, dim - 1, all, at * inner + lo, n == 1 ? len : n * inner,
                         inner == 1 && n > 1 ? stride : step, offset);
    int rc = 0;
    for (int64_t i = 0; i < n && !rc; i++)
        rc = join_dims(c, g, dim - 1, all, (at + i) * inner + lo, len, step, offset + i * stride);
    return rc;
}

static int cut_group(struct cutting *c, int g, int64_t offset)
{
    if (g == c->groups)
        return add_box(c->m, c->b->rank[c->box], c->at, c->len, offset, c->stride);
    const struct group *x = &c->g[g];
    if (!x->k)
        return cut_group(c, g + 1, offset);
    if (!x->n) {
        c->at[x->to] = 0;
        c->len[x->to] = c->stride[x->to] = 1;
        return cut_group(c, g + 1, offset);
    }
    if (x->n == 1)
        return split_range(c, g, x->to, of_box(c, c->b->at, x->from), of_box(c, c->b->len, x->from),
                           of_box(c, c->b->stride, x->from), offset);
    return join_dims(c, g, x->from + x->n - 1, 1, 0, 1, 1, offset);
}

int weft_layout_reshape(const weft_layout *l, int ndim, const int64_t *extents, weft_layout **out)
{
    if (!l || !out || (ndim > 0 && !extents))
        return error_set(WEFT_EINVAL, "layout: %s is NULL", !l ? "layout" : !out ? "out" : "extents");
    if (ndim < 0 || ndim > WEFT_MAX_DIMS)
        return error_set(WEFT_EINVAL, "layout: a tensor has 0 to %d dims, not %d", WEFT_MAX_DIMS, ndim);
    struct group g[2 * WEFT_MAX_DIMS];
    int64_t old[WEFT_MAX_DIMS];
    int groups;
    for (int d = 0; d < ndim; d++)
        if (extents[d] < 1)
            return error_set(WEFT_EINVAL, "layout: extents[%d] is %lld", d, (long long)extents[d]);
    for (int d = 0; d < l->ndim; d++)
        old[d] = l->dim[d].extent;
    if (!match_dims(l, ndim, extents, g, &groups))
        return error_set(
            WEFT_EINVAL,
            "layout: boxes stay boxes only if each dim is split into dims of the new shape, or joined with "
            "its neighbours into one, and the shapes have equally many elements");
    weft_layout *boxed;
    int rc = weft_layout_boxed(l, &boxed);
    if (rc)
        return rc;
    struct making m = {.ndim = ndim};
    struct cutting c = {.m = &m, .b = boxed->boxes, .old = old, .extents = extents, .g = g, .groups = groups};
    for (c.box = 0; c.box < c.b->n && !rc; c.box++)
        rc = cut_group(&c, 0, c.b->offset[c.box]);
    rc = finish(&m, rc, l->dtype, extents, boxed->allows, out);
    weft_layout_free(boxed);
    return rc;
}
