/* How a part is cut into slabs: its pieces on both sides, and the rows of a slab; see slab.h. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/math.h"
#include "checkpoint/slab.h"
#include "layout/layout.h"

/* Where the part begins in a rank's array: behind the parts before it. */
static int64_t part_begin(const struct checkpoint_entry *e, int index, int rank, bool src)
{
    int64_t at = 0, inner;
    for (int k = 0; k < index; k++) {
        const weft_layout *l = src ? e->parts[k]->src.layout : e->parts[k]->dst.layout;
        at += layout_piece_extent(l, e->cat, layout_piece(l, mesh_index(l, rank), e->cat), &inner);
    }
    return at;
}

static int fill_piece(struct slab_cut *p, const weft_layout *l, int64_t index, struct slab_piece *piece)
{
    for (int d = 0; d < p->ndim; d++) {
        piece->runs[d] = (struct runs){.arena = &p->arena};
        int64_t inner, at = l->ndim ? layout_piece(l, index, d) : 0;
        piece->shape[d] = l->ndim ? layout_piece_extent(l, d, at, &inner) : 1;
        int rc = l->ndim ? layout_piece_interior(l, d, at, &piece->runs[d])
                         : runs_add(&piece->runs[d], (struct run){.len = 1, .n = 1});
        if (rc)
            return rc;
    }
    return 0;
}

static bool is_empty(const struct slab_cut *p, const struct slab_piece *piece)
{
    for (int d = 0; d < p->ndim; d++)
        if (!piece->shape[d])
            return true;
    return false;
}

/* Mesh positions that differ only along axes of copies have the same piece. Returns the number of the position where
 * these coordinates are 0. */
static int64_t original(const weft_layout *l, int64_t index)
{
    for (int a = 0; a < l->naxes; a++)
        if (l->axis[a].role == LAYOUT_FREE)
            index -= layout_coord(l, index, a) * l->axis[a].stride;
    return index;
}

static int64_t copies(const weft_layout *l)
{
    int64_t n = 1;
    for (int a = 0; a < l->naxes; a++)
        n *= l->axis[a].role == LAYOUT_FREE ? l->axis[a].size : 1;
    return n;
}

static int fill_side(struct slab_cut *p, const struct checkpoint_end *end, const struct checkpoint_side *side, bool src,
                     struct slab_side *out)
{
    const weft_layout *l = end->layout;
    int64_t ncopies = src ? 1 : copies(l);
    *out = (struct slab_side){.dtype = l->dtype, .cat = end->entry->cat, .fused = end->entry->nparts > 1};
    struct slab_piece **of = arena_alloc(&p->arena, (size_t)l->mesh * sizeof *of);
    out->pieces = arena_alloc(&p->arena, (size_t)(l->mesh / copies(l)) * sizeof *out->pieces);
    if (!of || !out->pieces)
        return error_nomem();
    for (int64_t i = 0; i < l->mesh; i++) {
        int64_t first = original(l, i);
        if (first == i) {
            struct slab_piece *piece = &out->pieces[out->npieces];
            int rc = fill_piece(p, l, i, piece);
            if (rc)
                return rc;
            of[i] = is_empty(p, piece) ? NULL : piece;
            out->npieces += of[i] != NULL;
            piece->nplaces = 0;
            piece->places = arena_alloc(&p->arena, (size_t)ncopies * sizeof *piece->places);
            if (!piece->places)
                return error_nomem();
        }
        struct slab_piece *piece = of[first];
        if (!piece || (src && first != i)) /* one of the source's equal copies is enough */
            continue;
        int rank = mesh_rank(l, i);
        const struct checkpoint_hold *h = checkpoint_entry_hold(end->entry, rank);
        piece->places[piece->nplaces++] =
            (struct slab_place){&side->files.v[h->file], h, part_begin(end->entry, end->index, rank, src)};
    }
    return 0;
}

/* The first dim whose rows fit into a slab, and how many of them do. */
static void cut(struct slab_cut *p, int64_t size, int64_t element)
{
    int64_t inner = element, outer = 1;
    for (p->dim = p->ndim - 1; p->dim > 0 && inner <= size / p->shape[p->dim]; p->dim--)
        inner *= p->shape[p->dim];
    for (int d = 0; d < p->dim; d++)
        outer *= p->shape[d];
    p->rows = min64(max64(size / inner, 1), p->shape[p->dim]);
    p->per = ceil_div(p->shape[p->dim], p->rows);
    p->slabs = outer * p->per;
}

int slab_cut_make(const struct checkpoint *c, const struct checkpoint_part *part, size_t size, struct slab_cut *p)
{
    *p = (struct slab_cut){.part = part, .ndim = part->ndim ? part->ndim : 1, .shape = {1}};
    for (int d = 0; d < part->ndim; d++) {
        p->shape[d] = part->shape[d];
        if (!p->shape[d])
            return 0;
    }
    int rc = fill_side(p, &part->src, &c->src, true, &p->src);
    if (!rc)
        rc = fill_side(p, &part->dst, &c->dst, false, &p->dst);
    if (!rc)
        cut(p, (int64_t)size, max64((int64_t)weft_dtype_size(p->src.dtype), (int64_t)weft_dtype_size(p->dst.dtype)));
    else
        slab_cut_free(p);
    return rc;
}

void slab_cut_free(struct slab_cut *p)
{
    arena_free(&p->arena);
}
