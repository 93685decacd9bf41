#include "layout/blocks.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/math.h"
#include "base/vec.h"
#include "layout/build.h"

#define MOST ((size_t)1 << 22) /* boxes of a layout that is made here */

int blocks_like(const weft_layout *l, const weft_layout *as, weft_layout **out)
{
    weft_layout_desc d = l->desc;
    d.scale = as ? as->desc.scale : NULL;
    d.dtype = as ? as->desc.dtype : d.dtype;
    return layout_build(&d, l->boxes ? NULL : l->by_index, l->boxes ? 0 : l->nsegs, NULL, out);
}

/* ---- a mesh whose splits cut no block ---- */

/* Do the splits of a dim, from the s-th on, cut a piece of len positions between blocks of b only? The piece begins
 * with a block. */
static bool is_aligned(const weft_layout *l, const struct layout_dim *d, int64_t b, int s, int64_t len)
{
    if (s == d->nsplits || len == 0)
        return true;
    int64_t p = l->axis[d->split[s].axis].size, unit = d->split[s].block ? d->split[s].block : ceil_div(len, p);
    if (p > 1 && unit < len && unit % b)
        return false;
    /* Coordinates have at most three different lengths: before the one with the last unit, that one, and behind it. */
    int64_t last = (len - 1) / unit % p, some[] = {0, last, last + 1 < p ? last + 1 : last};
    for (int i = 0; i < 3; i++)
        if (!is_aligned(l, d, b, s + 1, layout_piece_share(len, p, d->split[s].block, some[i])))
            return false;
    return true;
}

/* Pieces of chunks whose cuts are between blocks: the rule of chunks gives the same cuts in units of blocks. */
static int scales_of_mesh(const weft_layout *l, weft_layout **out)
{
    weft_dim dims[WEFT_MAX_DIMS];
    for (int d = 0; d < l->ndim; d++) {
        int64_t b = l->scale.block[d];
        dims[d] = l->desc_dim[d];
        dims[d].extent = ceil_div(l->dim[d].extent, b);
        for (int s = 0; s < dims[d].nsplits; s++)
            if (dims[d].splits[s].block)
                dims[d].splits[s].block = ceil_div(dims[d].splits[s].block, b);
    }
    weft_layout_desc desc = l->desc;
    desc.dims = dims;
    desc.dtype = (enum weft_dtype)l->scale.dtype;
    desc.scale = NULL;
    return layout_build(&desc, l->by_index, l->nsegs, NULL, out);
}

/* ---- boxes ---- */

/* Boxes that are being made; each is dense, behind those before it. */
struct making {
    int ndim;
    VEC(int) rank;
    VEC(int64_t) at;
    VEC(int64_t) len;
};

static int add_box(struct making *m, int rank, const int64_t *at, const int64_t *len)
{
    size_t n = (size_t)m->ndim;
    if (m->rank.n == MOST)
        return error_set(WEFT_EUNSUPPORTED, "layout: the scales need more than 2^22 boxes");
    if (!vec_room(&m->rank, 1) || !vec_room(&m->at, n) || !vec_room(&m->len, n))
        return error_nomem();
    m->rank.v[m->rank.n++] = rank;
    for (size_t d = 0; d < n; d++) {
        m->at.v[m->at.n++] = at[d];
        m->len.v[m->len.n++] = len[d];
    }
    return 0;
}

static int finish(struct making *m, int rc, int dtype, const int64_t *extents, uint64_t flags, weft_layout **out)
{
    weft_dim dims[WEFT_MAX_DIMS];
    weft_boxes boxes = {.n = m->rank.n, .rank = m->rank.v, .at = m->at.v, .len = m->len.v};
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
    return rc;
}

/* How many boxes the ranks of a mesh hold in all; more than MOST: any number above it. */
static int count_boxes(const weft_layout *l, size_t *count)
{
    *count = 0;
    for (size_t i = 0; i < l->nsegs; i++)
        for (int64_t k = 0; k < l->by_rank[i].n && *count <= MOST; k++) {
            size_t n;
            int rc = weft_layout_boxes(l, l->by_rank[i].rank + (int)k, NULL, 0, &n);
            if (rc)
                return rc;
            *count += n > MOST ? MOST + 1 : n;
        }
    return 0;
}

/* The values as boxes. */
static int boxed(const weft_layout *l, weft_layout **out)
{
    size_t n = (size_t)l->mesh;
    int rc = l->boxes || n > MOST ? 0 : count_boxes(l, &n);
    if (!rc && !l->boxes && n > MOST)
        rc = error_set(WEFT_EUNSUPPORTED, "layout: blocks are cut, and the ranks hold more than 2^22 boxes of values");
    weft_layout *plain = NULL;
    if (!rc)
        rc = blocks_like(l, NULL, &plain);
    if (!rc)
        rc = weft_layout_boxed(plain, out);
    weft_layout_free(plain);
    return rc;
}

static int scales_of_boxes(const weft_layout *l, weft_layout **out)
{
    weft_layout *values;
    int rc = boxed(l, &values);
    if (rc)
        return rc;
    const struct box_list *b = values->boxes;
    struct making m = {.ndim = l->ndim};
    int64_t extents[WEFT_MAX_DIMS];
    for (int d = 0; d < l->ndim; d++)
        extents[d] = ceil_div(l->dim[d].extent, l->scale.block[d]);
    for (size_t i = 0; i < b->n && !rc; i++) {
        struct box_region r = box_region_of(b, i);
        for (int d = 0; d < l->ndim; d++) {
            int64_t end = ceil_div(r.at[d] + r.len[d], l->scale.block[d]);
            r.at[d] /= l->scale.block[d];
            r.len[d] = end - r.at[d];
        }
        rc = add_box(&m, b->rank[i], r.at, r.len);
    }
    rc = finish(&m, rc, l->scale.dtype, extents, WEFT_LAYOUT_OVERLAPS | (l->allows & WEFT_LAYOUT_GAPS), out);
    weft_layout_free(values);
    return rc;
}

int weft_layout_scales(const weft_layout *l, weft_layout **out)
{
    if (!l || !out)
        return error_set(WEFT_EINVAL, "weft_layout_scales: %s is NULL", l ? "out" : "layout");
    if (!l->scale.dtype)
        return error_set(WEFT_EINVAL, "weft_layout_scales: the layout has no scales: \"*f32(128,128)\" behind it");
    bool aligned = !l->boxes, empty = false;
    for (int d = 0; d < l->ndim && !l->boxes; d++) {
        aligned = aligned && is_aligned(l, &l->dim[d], l->scale.block[d], 0, l->dim[d].extent);
        empty = empty || !l->dim[d].extent; /* there are no blocks, and no boxes without elements */
    }
    return aligned || empty ? scales_of_mesh(l, out) : scales_of_boxes(l, out);
}

/* ---- blocks that several ranks share ---- */

/* Box `box` of the values is part `part`. */
struct part {
    uint32_t box, part;
};

/* The boxes that share a block with box `me` and are other parts. */
struct sharing {
    const uint32_t *part;
    uint32_t me;
    VEC(struct part) found;
};

static int note_box(void *arg, uint32_t box)
{
    struct sharing *s = arg;
    if (s->part[box] == s->part[s->me])
        return 0;
    struct part *p = vec_push(&s->found);
    if (!p)
        return error_nomem();
    *p = (struct part){box, s->part[box]};
    return 0;
}

static int by_part(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    return x->part < y->part ? -1 : x->part > y->part;
}

/* Box r of blocks of a part, in the tensor of parts. */
static int add_part(struct making *m, int rank, uint32_t part, const struct box_region *r)
{
    int64_t at[WEFT_MAX_DIMS] = {part}, len[WEFT_MAX_DIMS] = {1};
    memcpy(at + 1, r->at, (size_t)(m->ndim - 1) * sizeof *at);
    memcpy(len + 1, r->len, (size_t)(m->ndim - 1) * sizeof *len);
    return add_box(m, rank, at, len);
}

typedef VEC(uint32_t) numbers;

static int add_owner(numbers *owner, uint32_t box)
{
    uint32_t *o = vec_push(owner);
    if (!o)
        return error_nomem();
    *o = box;
    return 0;
}

/* The boxes of `want` that were added for the first box of a part; `known`: they have been. */
struct wanted {
    size_t first, n;
    bool known;
};

/* Adds the same for box `me`, which is another copy of the part. */
static int want_again(const struct box_list *b, uint32_t me, const struct wanted *w, struct making *want,
                      numbers *owner)
{
    const size_t dims = (size_t)want->ndim, bytes = dims * sizeof(int64_t);
    int rc = 0;
    for (size_t i = w->first; i < w->first + w->n && !rc; i++) {
        int64_t at[WEFT_MAX_DIMS], len[WEFT_MAX_DIMS]; /* add_box may move the lists */
        memcpy(at, want->at.v + i * dims, bytes);
        memcpy(len, want->len.v + i * dims, bytes);
        rc = add_box(want, b->rank[me], at, len);
        if (!rc)
            rc = add_owner(owner, me);
    }
    return rc;
}

/* Adds what box `me` wants of others, each part once. */
static int want_parts(const struct box_list *b, struct sharing *s, struct making *want, numbers *owner)
{
    struct box_region mine = box_region_of(b, s->me);
    s->found.n = 0;
    int rc = box_index_at(b, &b->index, &mine, note_box, s);
    if (!rc && s->found.n > 1)
        qsort(s->found.v, s->found.n, sizeof *s->found.v, by_part);
    for (size_t i = 0; i < s->found.n && !rc; i++) {
        if (i && s->found.v[i].part == s->found.v[i - 1].part)
            continue;
        struct box_region r = box_region_of(b, s->found.v[i].box);
        box_region_meet(b->ndim, &mine, &r, &r);
        rc = add_part(want, b->rank[s->me], s->found.v[i].part, &r);
        if (!rc)
            rc = add_owner(owner, s->me);
    }
    return rc;
}

int blocks_fold(const weft_layout *l, const weft_layout *scales, weft_layout **have, weft_layout **want,
                uint32_t **owner)
{
    *have = *want = NULL;
    *owner = NULL;
    if (!scales->boxes)
        return 0;
    const struct box_list *b = scales->boxes;
    weft_layout *values = NULL;
    int rc = boxed(l, &values);
    uint32_t *part = rc ? NULL : malloc(b->n * sizeof *part);
    struct wanted *wanted = NULL; /* of each part: searching for each of its copies would take their square */
    struct making all = {.ndim = l->ndim + 1}, some = {.ndim = l->ndim + 1};
    struct sharing s = {.part = part};
    numbers owners = {0};
    size_t parts = 0;
    uint32_t *first = part ? malloc(b->n * sizeof *first) : NULL;
    if (!rc)
        rc = first ? box_copies_number(values->boxes, part, first, &parts) : error_nomem();
    free(first);
    if (!rc && !(wanted = calloc(parts, sizeof *wanted)))
        rc = error_nomem();
    int64_t extents[WEFT_MAX_DIMS] = {(int64_t)parts};
    for (int d = 0; d < l->ndim; d++)
        extents[d + 1] = scales->dim[d].extent;
    for (size_t i = 0; i < b->n && !rc; i++) {
        struct box_region r = box_region_of(b, i);
        s.me = (uint32_t)i;
        rc = add_part(&all, b->rank[i], part[i], &r);
        struct wanted *w = rc ? NULL : &wanted[part[i]];
        if (w && w->known) {
            rc = want_again(b, s.me, w, &some, &owners);
        } else if (w) {
            w->first = some.rank.n;
            rc = want_parts(b, &s, &some, &owners);
            w->n = some.rank.n - w->first;
            w->known = true;
        }
    }
    bool shared = some.rank.n > 0;
    const uint64_t flags = WEFT_LAYOUT_OVERLAPS | WEFT_LAYOUT_GAPS;
    weft_layout *h = NULL, *w = NULL;
    int quiet = !rc && !shared ? WEFT_EINVAL : rc; /* nothing to make, which is no error */
    int made = finish(&all, quiet, WEFT_U32, extents, flags, &h);
    int other = finish(&some, quiet ? quiet : made, WEFT_U32, extents, flags, &w);
    if (!rc && shared)
        rc = made ? made : other;
    if (rc) {
        weft_layout_free(h);
        free(owners.v);
    } else {
        *have = h;
        *want = w;
        *owner = owners.v;
    }
    weft_layout_free(values);
    free(part);
    free(wanted);
    free(s.found.v);
    return rc;
}
