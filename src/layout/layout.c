#include "layout/layout.h"

#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/sized.h"
#include "layout/build.h"

int weft_layout_create(const weft_layout_desc *desc, weft_layout **out)
{
    if (!desc || !out)
        return error_set(WEFT_EINVAL, "layout: %s is NULL", desc ? "out" : "desc");
    weft_layout_desc given, *d = &given;
    int rc = sized_read("weft_layout_create", "weft_layout_desc", d, sizeof given, desc);
    if (rc)
        return rc;
    if ((d->ndim > 0 && !d->dims) || (d->naxes > 0 && !d->axes) || (d->nfolds > 0 && !d->folds)) {
        const char *what = d->ndim > 0 && !d->dims ? "dims" : d->naxes > 0 && !d->axes ? "axes" : "folds";
        return error_set(WEFT_EINVAL, "layout: desc.%s is NULL, but its count is not 0", what);
    }
    if (d->boxes && d->ranks)
        return error_set(WEFT_EINVAL, "layout: desc.ranks must be NULL with boxes: each box has its rank");
    if (!d->ranks || d->naxes < 1 || d->naxes > WEFT_MAX_AXES)
        return layout_build(d, NULL, 0, NULL, out);
    int64_t mesh = 1;
    for (int a = 0; a < d->naxes; a++)
        if (d->axes[a].size < 1 || __builtin_mul_overflow(mesh, d->axes[a].size, &mesh) || mesh > INT32_MAX)
            return layout_build(d, NULL, 0, NULL, out); /* says what is wrong with the axes */
    struct layout_seg *segs = malloc((size_t)mesh * sizeof *segs);
    if (!segs)
        return error_nomem();
    for (int64_t i = 0; i < mesh && !rc; i++) {
        if (d->ranks[i] < 0 || d->ranks[i] == INT32_MAX)
            rc = error_set(WEFT_EINVAL, "layout: ranks[%lld] is %d: a rank is 0 to %d", (long long)i, d->ranks[i],
                           INT32_MAX - 1);
        segs[i] = (struct layout_seg){.index = i, .n = 1, .rank = d->ranks[i]};
    }
    if (!rc)
        rc = layout_build(d, segs, (size_t)mesh, NULL, out);
    free(segs);
    return rc;
}

int weft_layout_describe(const weft_layout *l, weft_layout_desc *out)
{
    if (!l || !out)
        return error_set(WEFT_EINVAL, "layout: %s is NULL", l ? "out" : "layout");
    int rc = sized_check("weft_layout_describe", "weft_layout_desc", out);
    if (rc)
        return rc;
    /* The list of ranks is made at the first call. Several threads may make it at once: one list is kept. */
    weft_layout *m = (weft_layout *)l;
    int *ranks = atomic_load_explicit(&m->desc_ranks, memory_order_acquire);
    if (!ranks && !l->boxes) {
        ranks = malloc((size_t)l->mesh * sizeof *ranks);
        if (!ranks)
            return error_nomem();
        for (size_t i = 0; i < l->nsegs; i++)
            for (int64_t k = 0; k < l->by_index[i].n; k++)
                ranks[l->by_index[i].index + k] = l->by_index[i].rank + (int)k;
        int *other = NULL;
        if (!atomic_compare_exchange_strong_explicit(&m->desc_ranks, &other, ranks, memory_order_acq_rel,
                                                     memory_order_acquire)) {
            free(ranks);
            ranks = other;
        }
    }
    weft_layout_desc desc = l->desc;
    desc.ranks = l->boxes ? NULL : ranks;
    sized_write(out, &desc, sizeof desc);
    return 0;
}

const weft_layout *layout_hold(const weft_layout *l)
{
    atomic_fetch_add_explicit(&((weft_layout *)l)->refs, 1, memory_order_relaxed);
    return l;
}

void weft_layout_free(weft_layout *l)
{
    /* acq_rel: the thread that frees sees all that other threads did before they dropped their references. */
    if (!l || atomic_fetch_sub_explicit(&l->refs, 1, memory_order_acq_rel) != 1)
        return;
    box_list_free(l->boxes);
    free(l->by_index);
    free(l->by_rank);
    free(atomic_load_explicit(&l->desc_ranks, memory_order_relaxed));
    free(l);
}

static bool same_dim(const struct layout_dim *a, const struct layout_dim *b)
{
    if (a->extent != b->extent || a->lo != b->lo || a->hi != b->hi || a->wrap != b->wrap || a->nsplits != b->nsplits)
        return false;
    for (int s = 0; s < a->nsplits; s++)
        if (a->split[s].axis != b->split[s].axis || a->split[s].block != b->split[s].block)
            return false;
    return true;
}

bool layout_same_mesh(const weft_layout *a, const weft_layout *b)
{
    if (a->mesh != b->mesh || a->nsegs != b->nsegs)
        return false;
    for (size_t i = 0; i < a->nsegs; i++)
        if (a->by_index[i].rank != b->by_index[i].rank || a->by_index[i].n != b->by_index[i].n)
            return false;
    return true;
}

bool layout_same_sizes(const weft_layout *a, const weft_layout *b)
{
    if (a->naxes != b->naxes)
        return false;
    for (int i = 0; i < a->naxes; i++)
        if (a->axis[i].size != b->axis[i].size)
            return false;
    return true;
}

bool layout_same_scale(const weft_layout *a, const weft_layout *b)
{
    bool same = a->scale.dtype == b->scale.dtype;
    for (int d = 0; d < a->ndim && same && a->scale.dtype; d++)
        same = a->scale.block[d] == b->scale.block[d];
    return same;
}

bool weft_layout_equal(const weft_layout *a, const weft_layout *b)
{
    if (a == b)
        return true;
    if (!a || !b || a->hash != b->hash || a->dtype != b->dtype || a->ndim != b->ndim || a->naxes != b->naxes ||
        a->nfolds != b->nfolds || a->faces != b->faces || !a->boxes != !b->boxes || a->allows != b->allows ||
        !layout_same_scale(a, b))
        return false;
    for (int i = 0; i < a->ndim; i++)
        if (!same_dim(&a->dim[i], &b->dim[i]))
            return false;
    for (int i = 0; i < a->naxes; i++)
        if (a->axis[i].size != b->axis[i].size || strcmp(a->axis[i].name, b->axis[i].name))
            return false;
    for (int f = 0; f < a->nfolds; f++)
        if (a->fold[f].op != b->fold[f].op || a->fold[f].axes != b->fold[f].axes ||
            a->fold[f].ghosts != b->fold[f].ghosts)
            return false;
    return a->boxes ? box_list_equal(a->boxes, b->boxes) : layout_same_mesh(a, b);
}

int weft_layout_dual(const weft_layout *l, weft_layout **out)
{
    if (!l || !out)
        return error_set(WEFT_EINVAL, "dual: %s is NULL", l ? "out" : "layout");
    if (l->scale.dtype)
        return error_set(WEFT_EUNSUPPORTED, "dual: values with scales have no adjoint");
    if (l->boxes && l->boxes->shared)
        return error_set(WEFT_EUNSUPPORTED, "dual: boxes that overlap have no adjoint, because boxes have no folds");
    if (l->boxes) {
        *out = (weft_layout *)layout_hold(l);
        return 0;
    }
    weft_layout_desc d = l->desc;
    weft_fold sum = {.op = WEFT_SUM};
    bool ghosts = false;
    for (int f = 0; f < l->nfolds; f++)
        if (l->fold[f].op != WEFT_SUM)
            return error_set(WEFT_EINVAL, "dual: only sum has an adjoint, but this layout folds by %s",
                             weft_op_name(l->fold[f].op));
    for (int i = 0; i < l->ndim; i++)
        ghosts = ghosts || l->dim[i].lo || l->dim[i].hi;
    for (int a = 0; a < l->naxes; a++)
        if (l->axis[a].role == LAYOUT_FREE)
            sum.over[sum.nover++] = l->axis[a].name;
    if (ghosts && !l->ghost_terms)
        sum.over[sum.nover++] = "~";
    if (sum.nover && !dtype_foldable(WEFT_SUM, l->dtype))
        return error_set(WEFT_EINVAL, "dual: equal copies become terms of a sum, but sum does not fold %s",
                         weft_dtype_name(l->dtype));
    d.folds = &sum;
    d.nfolds = sum.nover ? 1 : 0;
    return layout_build(&d, l->by_index, l->nsegs, NULL, out);
}

int weft_layout_local(const weft_layout *l, int rank, weft_local *out)
{
    if (!l || !out)
        return error_set(WEFT_EINVAL, "layout: %s is NULL", l ? "out" : "layout");
    if (rank < 0)
        return error_set(WEFT_EINVAL, "layout: rank %d is negative", rank);
    int64_t index = mesh_index(l, rank);
    weft_local r = {.holds = index >= 0, .ndim = l->boxes ? 1 : l->ndim};
    if (r.holds && l->boxes) {
        r.shape[0] = r.inner[0] = r.count = l->boxes->room[index];
        r.bytes = r.count * (int64_t)weft_dtype_size(l->dtype);
    } else if (r.holds) {
        r.count = 1;
        for (int d = 0; d < l->ndim; d++) {
            r.shape[d] = layout_piece_extent(l, d, layout_piece(l, index, d), &r.inner[d]);
            r.interior[d] = r.shape[d] ? l->dim[d].lo : 0;
            r.count *= r.shape[d];
        }
        r.bytes = r.count * (int64_t)weft_dtype_size(l->dtype);
    }
    *out = r;
    return 0;
}

/* The first intervals of one dim's interior in order of place, and how many there are in all. */
struct spans {
    struct run *v;
    size_t n;
};

static int order_by_place(const void *a, const void *b)
{
    const struct run *x = a, *y = b;
    return x->to < y->to ? -1 : x->to > y->to;
}

/* Makes at least the first `most` intervals. Not all, since they may not fit into memory. */
static int write_out(const weft_layout *l, int dim, int64_t piece, size_t most, struct arena *arena, struct spans *out)
{
    struct runs r = {.arena = arena};
    int rc = layout_piece_interior(l, dim, piece, &r);
    if (rc)
        return rc;
    size_t taken = 0, k = 0;
    out->n = 0;
    for (size_t i = 0; i < r.n; i++) {
        out->n += (size_t)r.v[i].n;
        taken += (size_t)r.v[i].n < most ? (size_t)r.v[i].n : most;
    }
    if (taken > SIZE_MAX / sizeof *out->v || !(out->v = arena_alloc(arena, taken * sizeof *out->v)))
        return error_nomem();
    for (size_t i = 0; i < r.n; i++)
        for (size_t j = 0; j < (size_t)r.v[i].n && j < most; j++) {
            const struct run *from = &r.v[i];
            out->v[k++] = (struct run){.at = from->at + (int64_t)j * from->step,
                                       .len = from->len,
                                       .n = 1,
                                       .to = from->to + (int64_t)j * from->tostep};
        }
    qsort(out->v, taken, sizeof *out->v, order_by_place);
    return 0;
}

static void list_out(const struct box_list *b, int64_t holder, weft_box *out, size_t cap, size_t *n)
{
    size_t first = holder < 0 ? 0 : b->first[holder], dims = (size_t)b->ndim;
    *n = holder < 0 ? 0 : b->first[holder + 1] - first;
    for (size_t i = 0; i < *n && i < cap; i++) {
        out[i] = (weft_box){0};
        for (size_t d = 0; d < dims; d++) {
            out[i].at[d] = b->at[(first + i) * dims + d];
            out[i].len[d] = b->len[(first + i) * dims + d];
        }
        out[i].local[0] = b->offset[first + i];
    }
}

int weft_layout_boxes(const weft_layout *l, int rank, weft_box *out, size_t cap, size_t *n)
{
    if (!l || !n || (cap && !out))
        return error_set(WEFT_EINVAL, "layout: %s is NULL", !l ? "layout" : !n ? "n" : "out");
    if (rank < 0)
        return error_set(WEFT_EINVAL, "layout: rank %d is negative", rank);
    int64_t index = mesh_index(l, rank);
    if (l->boxes) {
        list_out(l->boxes, index, out, cap, n);
        return 0;
    }
    struct arena arena = {0};
    struct spans s[WEFT_MAX_DIMS];
    size_t total = index < 0 ? 0 : 1, most = cap; /* the total is at most that of elements */
    for (int d = l->ndim - 1; d >= 0 && total; d--) {
        int rc = write_out(l, d, layout_piece(l, index, d), most, &arena, &s[d]);
        if (rc) {
            arena_free(&arena);
            return rc;
        }
        total *= s[d].n;
        /* In the next dim fewer are needed: each of its intervals is combined with all of these. */
        if (s[d].n)
            most = most / s[d].n + (most % s[d].n > 0);
    }
    for (size_t k = 0; k < total && k < cap; k++) {
        size_t rest = k;
        weft_box *b = &out[k];
        *b = (weft_box){0};
        for (int d = l->ndim - 1; d >= 0; d--) {
            const struct run *r = &s[d].v[rest % s[d].n];
            rest /= s[d].n;
            b->at[d] = r->at;
            b->len[d] = r->len;
            b->local[d] = r->to;
        }
    }
    arena_free(&arena);
    *n = total;
    return 0;
}
