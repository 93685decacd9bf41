/* What a reader copies if one side, or both, are boxes. The other side is taken as boxes, too.
 *
 * Each box of the reader is cut into cells, each of which lies in the same boxes of the publisher from end to end.
 * Cells that the same ranks hold are one piece, so that a block is pulled and summed once however many boxes the reader
 * has. Each of these ranks may have the cells at other places: the piece is there once for each of them. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "version/packed.h"
#include "version/reader_piece.h"

#define CELLS ((size_t)1 << 22) /* of a tensor and a rank, at most; also boxes of a mesh that is taken as boxes */

/* The boxes of a side, and where they are in the arrays that the bus has of it. */
struct side {
    weft_layout *layout;
    const struct box_list *b;
    int64_t *packed; /* where each box begins; NULL: each is as its list says */
    int64_t size;
};

/* The boxes of the publisher that have a cell, the last one first. */
struct link {
    const struct link *before;
    uint32_t box;
};
struct cell {
    struct box_region at;
    const struct link *links;
    uint32_t mine;
    uint32_t n; /* boxes of the publisher, of as many ranks, in ascending order */
    const uint32_t *boxes;
    const int *ranks;
};
struct cells {
    struct cell *v;
    size_t n, cap;
};

struct boxes {
    struct side src, dst;
    struct cells cells;
    uint32_t *met; /* boxes of the publisher that meet the reader's box */
    size_t nmet, room;
    struct arena *arena;
};

/* A short text of a peer can be a mesh of very many boxes: they are counted before memory is taken for them. */
static int check_mesh(const weft_layout *l)
{
    size_t left = CELLS, n = 0;
    for (size_t i = 0; i < l->nsegs && !l->boxes; i++)
        for (int64_t k = 0; k < l->by_rank[i].n; k++) {
            int err = weft_layout_boxes(l, l->by_rank[i].rank + (int)k, NULL, 0, &n);
            if (err)
                return err;
            if (n > left)
                return error_set(WEFT_EUNSUPPORTED,
                                 "one side is boxes, and the mesh of the other one has more than %zu boxes: split it "
                                 "into longer pieces",
                                 CELLS);
            left -= n;
        }
    return 0;
}

static int open_side(const weft_layout *l, bool packed, struct arena *arena, struct side *out)
{
    int err = check_mesh(l);
    if (!err)
        err = weft_layout_boxed(l, &out->layout);
    if (err)
        return err;
    out->b = out->layout->boxes;
    out->size = (int64_t)weft_dtype_size(l->dtype);
    if (!l->boxes || !packed)
        return 0;
    out->packed = arena_alloc(arena, (out->b->n + 1) * sizeof *out->packed);
    if (!out->packed)
        return error_nomem();
    for (size_t h = 0; h < out->b->holders; h++) {
        int64_t at = 0;
        for (size_t i = out->b->first[h]; i < out->b->first[h + 1]; i++) {
            out->packed[i] = at;
            at += packed_box(out->b, i);
        }
    }
    return 0;
}

/* Where a cell is in the array of a box's rank, and how far apart its elements are, in bytes. */
static int64_t place(const struct side *s, size_t box, const struct box_region *at, int64_t *stride)
{
    size_t n = (size_t)s->b->ndim;
    int64_t dense[WEFT_MAX_DIMS], from = s->packed ? s->packed[box] : s->b->offset[box];
    box_list_dense(s->b->ndim, s->b->len + box * n, dense);
    for (size_t d = 0; d < n; d++) {
        int64_t step = s->packed ? dense[d] : s->b->stride[box * n + d];
        from += (at->at[d] - s->b->at[box * n + d]) * step;
        stride[d] = step * s->size;
    }
    return from * s->size;
}

/* ---- cells ---- */

static int meets(void *arg, uint32_t box)
{
    struct boxes *x = arg;
    if (x->nmet == x->room) {
        size_t room = x->room ? 2 * x->room : 64;
        uint32_t *met = realloc(x->met, room * sizeof *met);
        if (!met)
            return error_nomem();
        x->met = met;
        x->room = room;
    }
    x->met[x->nmet++] = box;
    return 0;
}

static int add_cell(struct boxes *x, const struct cell *c)
{
    struct cells *to = &x->cells;
    if (to->n == CELLS)
        return error_set(WEFT_EUNSUPPORTED, "the boxes of the two sides meet in more than %zu places", CELLS);
    if (to->n == to->cap) {
        size_t cap = to->cap ? 2 * to->cap : 64;
        struct cell *v = realloc(to->v, cap * sizeof *v);
        if (!v)
            return error_nomem();
        to->v = v;
        to->cap = cap;
    }
    to->v[to->n++] = *c;
    return 0;
}

/* Cuts the cells from `first` on at a box of the publisher. Those inside have it, too, unless its rank has them
 * already.
 */
static int cut(struct boxes *x, size_t first, uint32_t box)
{
    const struct box_list *b = x->src.b;
    struct box_region r = box_region_of(b, box), hit;
    for (size_t i = first, n = x->cells.n; i < n; i++) {
        struct cell c = x->cells.v[i];
        struct box_regions rest = {.arena = x->arena};
        if (!box_region_meet(b->ndim, &c.at, &r, &hit))
            continue;
        int err = box_region_add(&rest, &c.at);
        if (!err)
            err = box_region_without(b->ndim, &rest, &r);
        for (size_t k = 0; k < rest.n && !err; k++) {
            struct cell out = c;
            out.at = rest.v[k];
            err = add_cell(x, &out);
        }
        struct link *l = err ? NULL : arena_alloc(x->arena, sizeof *l);
        if (!l)
            return err ? err : error_nomem();
        struct cell *in = &x->cells.v[i];
        in->at = hit;
        if (c.links && b->rank[c.links->box] == b->rank[box])
            continue;
        *l = (struct link){c.links, box};
        in->links = l;
        in->n = c.n + 1;
    }
    return 0;
}

/* Without overlaps: what the box has of the region is a cell. */
static int take(struct boxes *x, const struct cell *whole, uint32_t box, int64_t *left)
{
    struct box_region r = box_region_of(x->src.b, box);
    struct cell c = *whole;
    struct link *l = arena_alloc(x->arena, sizeof *l);
    if (!l)
        return error_nomem();
    *l = (struct link){NULL, box};
    c.links = l;
    c.n = 1;
    if (box_region_meet(x->src.b->ndim, &whole->at, &r, &c.at))
        *left -= box_region_count(x->src.b->ndim, &c.at);
    return add_cell(x, &c);
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static int add_box(struct boxes *x, uint32_t mine, int64_t *missing)
{
    size_t first = x->cells.n, kept = first;
    struct cell whole = {.at = box_region_of(x->dst.b, mine), .mine = mine};
    int64_t left = box_region_count(x->dst.b->ndim, &whole.at);
    x->nmet = 0;
    int err = box_index_at(x->src.b, &x->src.b->index, &whole.at, meets, x);
    if (!err && x->src.b->shared && x->nmet) {
        qsort(x->met, x->nmet, sizeof *x->met, by_number); /* ranks in ascending order */
        err = add_cell(x, &whole);
    }
    for (size_t i = 0; i < x->nmet && !err; i++)
        err = x->src.b->shared ? cut(x, first, x->met[i]) : take(x, &whole, x->met[i], &left);
    for (size_t i = first; i < x->cells.n && !err && x->src.b->shared; i++) {
        struct cell *c = &x->cells.v[i];
        left -= c->n ? box_region_count(x->dst.b->ndim, &c->at) : 0;
        if (c->n)
            x->cells.v[kept++] = *c;
    }
    if (!err && x->src.b->shared)
        x->cells.n = kept;
    *missing += left;
    return err;
}

/* ---- pieces ---- */

static int list_holders(struct boxes *x)
{
    for (size_t i = 0; i < x->cells.n; i++) {
        struct cell *c = &x->cells.v[i];
        uint32_t *boxes = arena_alloc(x->arena, c->n * sizeof *boxes), k = c->n;
        int *ranks = arena_alloc(x->arena, c->n * sizeof *ranks);
        if (!boxes || !ranks)
            return error_nomem();
        for (const struct link *l = c->links; l; l = l->before) {
            boxes[--k] = l->box;
            ranks[k] = x->src.b->rank[l->box];
        }
        c->boxes = boxes;
        c->ranks = ranks;
    }
    return 0;
}

static int by_holders(const void *a, const void *b)
{
    const struct cell *x = a, *y = b;
    for (uint32_t i = 0; i < x->n && i < y->n; i++)
        if (x->ranks[i] != y->ranks[i])
            return x->ranks[i] < y->ranks[i] ? -1 : 1;
    if (x->n != y->n)
        return x->n < y->n ? -1 : 1;
    return x->boxes[0] != y->boxes[0] ? (x->boxes[0] < y->boxes[0] ? -1 : 1)
                                      : (x->mine < y->mine ? -1 : x->mine > y->mine);
}

/* Do two holders have all these cells at the same places? */
static bool same_places(const struct boxes *x, const struct cell *c, size_t n, uint32_t one, uint32_t other)
{
    int64_t a[WEFT_MAX_DIMS], b[WEFT_MAX_DIMS];
    size_t dims = (size_t)x->src.b->ndim * sizeof *a;
    for (size_t i = 0; i < n; i++)
        if (place(&x->src, c[i].boxes[one], &c[i].at, a) != place(&x->src, c[i].boxes[other], &c[i].at, b) ||
            memcmp(a, b, dims))
            return false;
    return true;
}

/* The cells as holder k of them has them. */
static int add_way(struct reader_plan *p, const struct boxes *x, const struct cell *c, size_t n, uint32_t k,
                   struct reader_piece piece)
{
    if (k && same_places(x, c, n, 0, k)) {
        struct reader_piece same = p->pieces[p->n - k];
        same.rank = piece.rank;
        same.ways = 0;
        return reader_piece_push(p, &same);
    }
    struct reader_step *steps = arena_alloc(&p->arena, n * sizeof *steps);
    if (!steps)
        return error_nomem();
    for (size_t i = 0; i < n; i++) {
        struct memory_tile t = {.loops = x->src.b->ndim};
        memcpy(t.n, c[i].at.len, (size_t)t.loops * sizeof *t.n);
        steps[i] = (struct reader_step){.from = place(&x->src, c[i].boxes[k], &c[i].at, t.stride[1]),
                                        .to = place(&x->dst, c[i].mine, &c[i].at, t.stride[0])};
        int err = reader_piece_step(p, &piece, &t, x->src.size, &steps[i]);
        if (err)
            return err;
    }
    piece.steps = steps;
    piece.nsteps = n;
    return reader_piece_add(p, &piece, x->src.size);
}

static int add_pieces(struct reader_plan *p, size_t tensor, size_t other, const struct boxes *x)
{
    const struct cell *c = x->cells.v;
    for (size_t i = 0, n; i < x->cells.n; i += n) {
        for (n = 1; i + n < x->cells.n && c[i + n].n == c[i].n &&
                    !memcmp(c[i + n].ranks, c[i].ranks, c[i].n * sizeof *c[i].ranks);
             n++)
            ;
        for (uint32_t k = 0; k < c[i].n; k++) {
            struct reader_piece piece = {.mine = tensor,
                                         .theirs = other,
                                         .rank = c[i].ranks[k],
                                         .ways = k ? 0 : c[i].n,
                                         .together = -1,
                                         .lo = INT64_MAX};
            int err = add_way(p, x, c + i, n, k, piece);
            if (err)
                return err;
        }
    }
    return 0;
}

int reader_boxes(struct reader_plan *p, size_t tensor, size_t other, const weft_layout *src, const weft_layout *dst,
                 int rank, bool packed, struct arena *arena, int64_t *missing)
{
    struct boxes x = {.arena = arena};
    size_t first, end;
    int err = open_side(src, true, arena, &x.src);
    if (!err)
        err = open_side(dst, packed, arena, &x.dst);
    if (!err) {
        packed_boxes(x.dst.layout, rank, &first, &end);
        for (; first < end && !err; first++)
            err = add_box(&x, (uint32_t)first, missing);
    }
    if (!err)
        err = list_holders(&x);
    if (!err && x.cells.n)
        qsort(x.cells.v, x.cells.n, sizeof *x.cells.v, by_holders);
    if (!err)
        err = add_pieces(p, tensor, other, &x);
    weft_layout_free(x.src.layout);
    weft_layout_free(x.dst.layout);
    free(x.cells.v);
    free(x.met);
    return err;
}

/* ---- live holders ---- */

struct live {
    const struct box_list *b;
    const bool *ranks;
    struct box_regions left;
};

static int without_live(void *arg, uint32_t box)
{
    struct live *x = arg;
    struct box_region r = box_region_of(x->b, box);
    return x->ranks[x->b->rank[box]] ? box_region_without(x->b->ndim, &x->left, &r) : 0;
}

bool reader_boxes_covered(const weft_layout *l, const bool *live, int *missing)
{
    struct arena arena = {0};
    bool all = true;
    for (size_t i = 0; i < l->boxes->n && all; i++) {
        struct live x = {.b = l->boxes, .ranks = live, .left = {.arena = &arena}};
        struct box_region r = box_region_of(l->boxes, i);
        *missing = l->boxes->rank[i];
        if (live[*missing])
            continue;
        all = l->boxes->shared && !box_region_add(&x.left, &r) &&
              !box_index_at(l->boxes, &l->boxes->index, &r, without_live, &x) && !x.left.n;
        arena_reset(&arena);
    }
    arena_free(&arena);
    return all;
}
