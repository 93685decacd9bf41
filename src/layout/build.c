/* Checks a description and makes a layout of it. */
#include "layout/build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/hash.h"
#include "layout/mesh.h"

#define MAX_WRAPS 1024
#define MAX_BYTES ((int64_t)1 << 62)

static int find_axis(const weft_layout *l, const char *name)
{
    for (int a = 0; a < l->naxes; a++)
        if (!strcmp(l->axis[a].name, name))
            return a;
    return -1;
}

#define AT(field) (w ? w->field : -1)

static int take_axes(weft_layout *l, const weft_layout_desc *d, const struct caret *w)
{
    if (d->naxes < 1 || d->naxes > WEFT_MAX_AXES)
        return caret_fail(w, -1, "a mesh has 1 to %d axes, not %d", WEFT_MAX_AXES, d->naxes);
    l->mesh = 1;
    for (int a = 0; a < d->naxes; a++) {
        const char *name = d->axes[a].name;
        if (!name)
            return caret_fail(w, AT(axis[a]), "axes[%d].name is NULL", a);
        size_t n = mesh_axis_name_length(name);
        if (!n || name[n])
            return caret_fail(w, AT(axis[a]),
                              "'%.40s' is not an axis name: a letter, then letters, '_', and digits after a '_'", name);
        if (n > WEFT_MAX_NAME)
            return caret_fail(w, AT(axis[a]), "an axis name has at most %d characters", WEFT_MAX_NAME);
        if (find_axis(l, name) >= 0)
            return caret_fail(w, AT(axis[a]), "axis '%s' is twice in the mesh", name);
        if (d->axes[a].size < 1)
            return caret_fail(w, AT(axis[a]), "axis '%s' has size %lld: it must be at least 1", name,
                              (long long)d->axes[a].size);
        if (__builtin_mul_overflow(l->mesh, d->axes[a].size, &l->mesh) || l->mesh > INT32_MAX)
            return caret_fail(w, AT(axis[a]), "the mesh has more than %d ranks", INT32_MAX);
        memcpy(l->axis[a].name, name, n + 1);
        l->axis[a].size = d->axes[a].size;
        l->axis[a].role = LAYOUT_FREE;
        l->naxes = a + 1;
    }
    int64_t stride = 1;
    for (int a = l->naxes - 1; a >= 0; a--) {
        l->axis[a].stride = stride;
        stride *= l->axis[a].size;
    }
    return 0;
}

static int use_axis(weft_layout *l, const char *name, int role, const struct caret *w, int at, int *axis)
{
    int a = *axis = find_axis(l, name);
    if (a < 0)
        return caret_fail(w, at, "axis '%.40s' is not in the mesh", name);
    if (l->axis[a].role != LAYOUT_FREE)
        return caret_fail(w, at, "axis '%s' is used in two places", name);
    l->axis[a].role = role;
    return 0;
}

static int take_ghosts(struct layout_dim *o, const weft_dim *in, const struct caret *w, int d)
{
    if (in->lo < 0 || in->hi < 0)
        return caret_fail(w, AT(ghost[d]), "dim %d: ghosts are %lld and %lld wide: widths must be at least 0", d,
                          (long long)in->lo, (long long)in->hi);
    o->lo = in->lo;
    o->hi = in->hi;
    o->wrap = in->wrap && (in->lo || in->hi); /* without ghosts there is nothing to wrap */
    if (!in->lo && !in->hi)
        return 0;
    for (int s = 0; s < o->nsplits; s++)
        if (o->split[s].block)
            return caret_fail(w, AT(ghost[d]), "dim %d: ghosts need contiguous pieces, and ':%lld' deals blocks", d,
                              (long long)o->split[s].block);
    int64_t most = in->lo > in->hi ? in->lo : in->hi;
    if (o->wrap && o->extent && (most - 1) / o->extent >= MAX_WRAPS)
        return caret_fail(w, AT(ghost[d]), "dim %d: ghosts wrap round an extent of %lld more than %d times", d,
                          (long long)o->extent, MAX_WRAPS);
    return 0;
}

static int take_dims(weft_layout *l, const weft_layout_desc *d, const struct caret *w)
{
    if (d->ndim < 0 || d->ndim > WEFT_MAX_DIMS)
        return caret_fail(w, -1, "a tensor has 0 to %d dims, not %d", WEFT_MAX_DIMS, d->ndim);
    int64_t bytes = (int64_t)weft_dtype_size(l->dtype);
    for (int i = 0; i < d->ndim; i++) {
        const weft_dim *in = &d->dims[i];
        struct layout_dim *o = &l->dim[i];
        if (in->extent < 0)
            return caret_fail(w, AT(dim[i]), "dim %d has extent %lld: it must be at least 0", i, (long long)in->extent);
        if (in->nsplits < 0 || in->nsplits > WEFT_MAX_AXES)
            return caret_fail(w, AT(dim[i]), "dim %d has %d splits: 0 to %d are possible", i, in->nsplits,
                              WEFT_MAX_AXES);
        o->extent = in->extent;
        o->pieces = 1;
        for (int s = 0; s < in->nsplits; s++) {
            if (!in->splits[s].axis)
                return caret_fail(w, -1, "dims[%d].splits[%d].axis is NULL", i, s);
            int rc = use_axis(l, in->splits[s].axis, i, w, AT(split[i][s]), &o->split[s].axis);
            if (rc)
                return rc;
            if (in->splits[s].block < 0)
                return caret_fail(w, AT(split[i][s]), "dim %d: a block has size %lld: it must be at least 1", i,
                                  (long long)in->splits[s].block);
            o->split[s].block = in->splits[s].block;
            o->pieces *= l->axis[o->split[s].axis].size;
            o->nsplits = s + 1;
        }
        l->ndim = i + 1;
        int rc = take_ghosts(o, in, w, i);
        if (rc)
            return rc;
        int64_t room;
        if (__builtin_add_overflow(in->lo, in->hi, &room) || __builtin_add_overflow(room, in->extent, &room) ||
            __builtin_mul_overflow(bytes, room ? room : 1, &bytes) || bytes > MAX_BYTES)
            return caret_fail(w, AT(dim[i]), "the tensor with its ghosts has more than 2^62 bytes");
    }
    int ghosted = 0;
    for (int i = 0; i < l->ndim; i++)
        ghosted += l->dim[i].lo || l->dim[i].hi;
    l->faces = d->flags & WEFT_LAYOUT_FACES && ghosted > 1; /* otherwise there are no corners */
    return 0;
}

static int take_folds(weft_layout *l, const weft_layout_desc *d, const struct caret *w)
{
    bool any = false;
    for (int i = 0; i < l->ndim; i++)
        any = any || l->dim[i].lo || l->dim[i].hi;
    if (d->nfolds < 0 || d->nfolds > WEFT_MAX_AXES + 1)
        return caret_fail(w, -1, "a layout has 0 to %d folds, not %d", WEFT_MAX_AXES + 1, d->nfolds);
    for (int f = 0; f < d->nfolds; f++) {
        const weft_fold *in = &d->folds[f];
        const char *op = weft_op_name((int)in->op);
        if (!op)
            return caret_fail(w, AT(fold[f]), "folds[%d].op is %d, which is not an op", f, (int)in->op);
        if (!dtype_foldable((int)in->op, l->dtype))
            return caret_fail(w, AT(fold[f]), "%s does not fold %s: %s", op, weft_dtype_name(l->dtype),
                              dtype_folds(l->dtype));
        if (in->nover < 1 || in->nover > WEFT_MAX_AXES + 1)
            return caret_fail(w, AT(fold[f]), "%s folds over 1 to %d axes, not %d", op, WEFT_MAX_AXES + 1, in->nover);
        l->fold[f].op = (int)in->op;
        l->nfolds = f + 1;
        for (int k = 0; k < in->nover; k++) {
            if (!in->over[k])
                return caret_fail(w, -1, "folds[%d].over[%d] is NULL", f, k);
            if (!strcmp(in->over[k], "~")) {
                if (l->ghost_terms)
                    return caret_fail(w, AT(over[f][k]), "'~' is used in two places");
                if (!any)
                    return caret_fail(w, AT(over[f][k]), "'~' folds over ghosts, but no dim has ghosts");
                l->fold[f].ghosts = l->ghost_terms = true;
                continue;
            }
            int axis = -1, rc = use_axis(l, in->over[k], LAYOUT_FOLD - f, w, AT(over[f][k]), &axis);
            if (rc)
                return rc;
            l->fold[f].axes |= 1u << axis;
        }
    }
    return 0;
}

/* Blocks beyond the ends of a tensor are legal: they are cut short there. */
static int take_scale(weft_layout *l, const weft_scale *s, const struct caret *w)
{
    if (!dtype_scalable(l->dtype, (int)s->dtype))
        return caret_fail(
            w, AT(scale), "%s values cannot have scales of %s: f8e4m3 and f8e5m2 have scales, of f32 or f8e8m0",
            weft_dtype_name(l->dtype), weft_dtype_name((int)s->dtype) ? weft_dtype_name((int)s->dtype) : "no dtype");
    if (l->ndim < 1 || l->ndim >= WEFT_MAX_DIMS)
        return caret_fail(w, AT(scale), "a tensor with scales has 1 to %d dims, not %d", WEFT_MAX_DIMS - 1, l->ndim);
    if (l->nfolds)
        return caret_fail(w, AT(scale), "values with scales cannot be folded: fold them first");
    for (int d = 0; d < l->ndim; d++) {
        if (l->dim[d].lo || l->dim[d].hi)
            return caret_fail(w, AT(scale), "dim %d has ghosts: values with scales have none", d);
        if (s->block[d] < 1)
            return caret_fail(w, AT(scale), "the blocks of dim %d have extent %lld: at least 1", d,
                              (long long)s->block[d]);
        l->scale.block[d] = s->block[d];
    }
    l->scale.dtype = (int)s->dtype;
    return 0;
}

/* Makes the struct form that weft_layout_describe returns, in the order in which the text form is printed. */
static void describe(weft_layout *l)
{
    for (int i = 0; i < l->ndim; i++) {
        const struct layout_dim *d = &l->dim[i];
        weft_dim *o = &l->desc_dim[i];
        *o = (weft_dim){.extent = d->extent, .nsplits = d->nsplits, .lo = d->lo, .hi = d->hi, .wrap = d->wrap};
        for (int s = 0; s < d->nsplits; s++)
            o->splits[s] = (weft_split){l->axis[d->split[s].axis].name, d->split[s].block};
    }
    for (int a = 0; a < l->naxes; a++)
        l->desc_axis[a] = (weft_axis){l->axis[a].name, l->axis[a].size};
    for (int f = 0; f < l->nfolds; f++) {
        weft_fold *o = &l->desc_fold[f];
        o->op = (enum weft_op)l->fold[f].op;
        for (int a = 0; a < l->naxes; a++)
            if (l->fold[f].axes & 1u << a)
                o->over[o->nover++] = l->axis[a].name;
        if (l->fold[f].ghosts)
            o->over[o->nover++] = "~";
    }
    if (l->boxes)
        l->desc_boxes = (weft_boxes){.n = l->boxes->n,
                                     .rank = l->boxes->rank,
                                     .at = l->boxes->at,
                                     .len = l->boxes->len,
                                     .offset = l->boxes->offset,
                                     .stride = l->boxes->stride};
    l->desc = (weft_layout_desc){.size = sizeof l->desc,
                                 .dtype = (enum weft_dtype)l->dtype,
                                 .dims = l->desc_dim,
                                 .ndim = l->ndim,
                                 .axes = l->desc_axis,
                                 .naxes = l->naxes,
                                 .folds = l->desc_fold,
                                 .nfolds = l->nfolds,
                                 .flags = (l->faces ? WEFT_LAYOUT_FACES : 0) | l->allows,
                                 .boxes = l->boxes ? &l->desc_boxes : NULL,
                                 .scale = l->scale.dtype ? &l->desc_scale : NULL};
    l->desc_scale.dtype = (enum weft_dtype)l->scale.dtype;
    memcpy(l->desc_scale.block, l->scale.block, sizeof l->desc_scale.block);
}

static uint64_t hash_layout(const weft_layout *l)
{
    uint64_t h = hash_u64(1, (uint64_t)l->dtype);
    h = hash_u64(h,
                 (uint64_t)l->faces << 48 | (uint64_t)l->ndim << 32 | (uint64_t)l->naxes << 16 | (uint64_t)l->nfolds);
    for (int i = 0; i < l->ndim; i++) {
        const struct layout_dim *d = &l->dim[i];
        bool ghosts = d->lo || d->hi;
        /* First how many splits there are and whether there are ghosts, then these. */
        h = hash_u64(hash_u64(h, (uint64_t)d->extent), (uint64_t)d->nsplits * 2 + ghosts);
        if (ghosts)
            h = hash_u64(hash_u64(h, (uint64_t)d->lo), (uint64_t)d->hi * 2 + d->wrap);
        for (int s = 0; s < d->nsplits; s++)
            h = hash_u64(hash_u64(h, (uint64_t)d->split[s].axis), (uint64_t)d->split[s].block);
    }
    for (int a = 0; a < l->naxes; a++)
        h = hash_u64(hash_bytes(h, l->axis[a].name, strlen(l->axis[a].name)), (uint64_t)l->axis[a].size);
    for (int f = 0; f < l->nfolds; f++)
        h = hash_u64(h, (uint64_t)l->fold[f].op << 32 | (uint64_t)l->fold[f].axes << 1 | l->fold[f].ghosts);
    for (int i = 0; i < l->ndim && l->scale.dtype; i++)
        h = hash_u64(hash_u64(h, (uint64_t)l->scale.dtype), (uint64_t)l->scale.block[i]);
    if (l->boxes) /* the list has the ranks */
        return box_list_hash(hash_u64(h, l->allows), l->boxes);
    for (size_t i = 0; i < l->nsegs; i++)
        h = hash_u64(hash_u64(h, (uint64_t)l->by_index[i].rank), (uint64_t)l->by_index[i].n);
    return h;
}

/* A layout of boxes has extents, and nothing else of a mesh. */
static int check_plain(const weft_layout_desc *d, const struct caret *w)
{
    if (d->naxes || d->nfolds)
        return caret_fail(w, -1, "a layout of boxes has no axes and no folds");
    for (int i = 0; i < d->ndim && i < WEFT_MAX_DIMS; i++)
        if (d->dims[i].nsplits || d->dims[i].lo || d->dims[i].hi)
            return caret_fail(w, AT(dim[i]), "dim %d of a layout of boxes has splits or ghosts", i);
    return 0;
}

/* Takes the boxes, and the ranks that have some as a mesh without axes. */
static int take_boxes(weft_layout *l, const weft_layout_desc *d, const struct caret *w)
{
    int64_t extents[WEFT_MAX_DIMS];
    for (int i = 0; i < l->ndim; i++)
        extents[i] = l->dim[i].extent;
    l->allows = d->flags;
    int rc = box_list_new(d->boxes, l->ndim, extents, (int64_t)weft_dtype_size(l->dtype), d->flags, w, &l->boxes);
    if (rc)
        return rc;
    const struct box_list *b = l->boxes;
    struct layout_seg *segs = malloc(b->holders * sizeof *segs);
    if (!segs)
        return error_nomem();
    for (size_t i = 0; i < b->holders; i++)
        segs[i] = (struct layout_seg){.index = (int64_t)i, .n = 1, .rank = b->rank[b->first[i]]};
    l->mesh = (int64_t)b->holders;
    rc = mesh_set_ranks(l, segs, b->holders, NULL);
    free(segs);
    return rc;
}

int layout_build(const weft_layout_desc *d, const struct layout_seg *segs, size_t nsegs, const struct caret *w,
                 weft_layout **out)
{
    if (!weft_dtype_size((int)d->dtype))
        return caret_fail(w, AT(dtype), "dtype is %d, which is not a dtype", (int)d->dtype);
    if (d->flags & ~(uint64_t)(d->boxes ? WEFT_LAYOUT_OVERLAPS | WEFT_LAYOUT_GAPS : WEFT_LAYOUT_FACES))
        return caret_fail(w, -1, "flags has 0x%llx, which is not a flag", (unsigned long long)d->flags);
    weft_layout *l = calloc(1, sizeof *l);
    if (!l)
        return error_nomem();
    atomic_init(&l->refs, 1);
    l->dtype = (int)d->dtype;
    int rc = d->boxes ? check_plain(d, w) : take_axes(l, d, w);
    if (!rc)
        rc = take_dims(l, d, w);
    if (!rc)
        rc = d->boxes ? take_boxes(l, d, w) : take_folds(l, d, w);
    if (!rc && d->scale)
        rc = take_scale(l, d->scale, w);
    struct layout_seg all = {.index = 0, .n = l->mesh, .rank = 0};
    if (!rc && segs && !d->boxes) {
        const struct layout_seg *last = &segs[nsegs - 1];
        if (last->index + last->n != l->mesh)
            rc = caret_fail(w, AT(ranks), "the mesh has %lld ranks and the list has %lld", (long long)l->mesh,
                            (long long)last->index + last->n);
    }
    if (!rc && !d->boxes)
        rc = mesh_set_ranks(l, segs ? segs : &all, segs ? nsegs : 1, w);
    if (rc) {
        weft_layout_free(l);
        return rc;
    }
    describe(l);
    l->hash = hash_layout(l);
    *out = l;
    return 0;
}
