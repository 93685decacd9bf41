/* The parts of a rank's buffer that a stencil handles separately: own elements that need no ghost, the rim, ghosts,
 * edges.
 *
 * Along each dim the slots of a piece are lists of runs. A part is a union of products of these lists, one product for
 * each dim d: it has list A in the dims before d, list B in d and list C in the dims behind d. So no slot is in two
 * products, and a dim in which B has no runs costs nothing. */
#include "base/error.h"
#include "base/math.h"
#include "layout/layout.h"

/* The slots of one piece: own ones first, then ghosts, then edges. Inner and rim are subsets of the own slots. */
struct line {
    struct runs slots, inner, rim;
    size_t own, ghosts;
};

enum set { INNER, RIM, OWN, GHOSTS, EDGES, FILLED, ALL };

/* Which lists make a part; see above. The inner part is only the product of A. */
static const struct scheme {
    enum set a, b, c;
} schemes[] = {[WEFT_HALO_INNER] = {INNER, INNER, INNER},
               [WEFT_HALO_RIM] = {INNER, RIM, OWN},
               [WEFT_HALO_GHOSTS] = {OWN, GHOSTS, FILLED},
               [WEFT_HALO_EDGES] = {FILLED, EDGES, ALL}};
/* The ghosts of a layout without corners. */
static const struct scheme faces = {OWN, GHOSTS, OWN};

struct list {
    const struct run *v;
    size_t n, boxes; /* runs; boxes: each repeat of a run counts */
};

static struct list list_of(const struct line *l, enum set set)
{
    size_t filled = l->own + l->ghosts;
    struct list r = {l->slots.v, 0, 0};
    if (!l->slots.n) /* the list may have no memory then */
        return r;
    switch (set) {
    case INNER: r = (struct list){l->inner.v, l->inner.n, 0}; break;
    case RIM: r = (struct list){l->rim.v, l->rim.n, 0}; break;
    case OWN: r.n = l->own; break;
    case GHOSTS: r = (struct list){l->slots.v + l->own, l->ghosts, 0}; break;
    case EDGES: r = (struct list){l->slots.v + filled, l->slots.n - filled, 0}; break;
    case FILLED: r.n = filled; break;
    case ALL: r.n = l->slots.n; break;
    }
    for (size_t i = 0; i < r.n; i++)
        r.boxes += (size_t)r.v[i].n;
    return r;
}

/* Splits the own elements of a piece with ghosts, which are one run: the rim, for which a stencil of these widths would
 * read filled ghosts, and the rest. There is no rim next to an edge. */
static int cut_rim(const struct layout_dim *d, const struct run *own, struct line *out)
{
    bool before = d->wrap || own->at > 0, behind = d->wrap || own->at + own->len < d->extent;
    int64_t lo = before ? min64(d->lo, own->len) : 0, hi = behind ? min64(d->hi, own->len - lo) : 0;
    int64_t cuts[] = {0, lo, own->len - hi, own->len};
    int rc = 0;
    for (int i = 0; i < 3 && !rc; i++)
        rc = runs_add(i == 1 ? &out->inner : &out->rim,
                      (struct run){own->at + cuts[i], cuts[i + 1] - cuts[i], 1, 0, own->to + cuts[i], 0});
    return rc;
}

/* Slots [from, to) of the buffer, beyond the ends of a dim. */
static int add_edge(const struct run *own, int64_t from, int64_t to, struct line *out)
{
    return runs_add(&out->slots, (struct run){own->at - own->to + from, to - from, 1, 0, from, 0});
}

static int make_line(const weft_layout *l, int dim, int64_t piece, struct arena *arena, struct line *out)
{
    const struct layout_dim *d = &l->dim[dim];
    struct runs r = {.arena = arena};
    size_t first, own;
    *out = (struct line){{.arena = arena}, {.arena = arena}, {.arena = arena}, 0, 0};
    int rc = layout_piece_slots(l, dim, piece, &r, &first, &own);
    if (rc || !r.n)
        return rc;
    out->own = own;
    out->ghosts = r.n - own;
    for (size_t i = 0; i < own && !rc; i++)
        rc = runs_add(&out->slots, r.v[first + i]);
    for (size_t i = 0; i < r.n && !rc; i++)
        if (i < first || i >= first + own)
            rc = runs_add(&out->slots, r.v[i]);
    if (!d->lo && !d->hi) {
        for (size_t i = 0; i < own && !rc; i++)
            rc = runs_add(&out->inner, r.v[first + i]);
        return rc;
    }
    const struct run *mine = &r.v[first], *last = &r.v[r.n - 1];
    if (!rc)
        rc = cut_rim(d, mine, out);
    if (!rc)
        rc = add_edge(mine, 0, r.v[0].to, out);
    return rc ? rc : add_edge(mine, last->to + last->len, d->lo + mine->len + d->hi, out);
}

/* Box k of a list, along its dim. */
static void place(const struct list *l, size_t k, int dim, weft_box *out)
{
    const struct run *r = l->v;
    for (; k >= (size_t)r->n; r++)
        k -= (size_t)r->n;
    out->at[dim] = r->at + (int64_t)k * r->step;
    out->len[dim] = r->len;
    out->local[dim] = r->to + (int64_t)k * r->tostep;
}

/* Appends the boxes of one product. *n counts all boxes; at most cap of them are stored. */
static void multiply(const struct list *lists, int ndim, weft_box *out, size_t cap, size_t *n)
{
    size_t total = 1;
    for (int d = 0; d < ndim; d++)
        total *= lists[d].boxes; /* at most as many as there are slots */
    for (size_t k = 0; k < total && *n + k < cap; k++) {
        size_t rest = k;
        weft_box b = {{0}, {0}, {0}};
        for (int d = ndim - 1; d >= 0; d--) {
            place(&lists[d], rest % lists[d].boxes, d, &b);
            rest /= lists[d].boxes;
        }
        out[*n + k] = b;
    }
    *n += total;
}

/* The corners of a layout that has none: for each two dims, one product in which these are the first two with a
 * ghost. */
static void put_corners(const struct line *lines, int ndim, weft_box *out, size_t cap, size_t *n)
{
    struct list lists[WEFT_MAX_DIMS];
    for (int first = 0; first < ndim; first++)
        for (int second = first + 1; second < ndim; second++) {
            for (int d = 0; d < ndim; d++)
                lists[d] = list_of(&lines[d], d == first || d == second ? GHOSTS : d < second ? OWN : FILLED);
            multiply(lists, ndim, out, cap, n);
        }
}

static void put_together(const weft_layout *l, const struct line *lines, enum weft_halo_part part, weft_box *out,
                         size_t cap, size_t *n)
{
    const struct scheme *s = part == WEFT_HALO_GHOSTS && l->faces ? &faces : &schemes[part];
    struct list lists[WEFT_MAX_DIMS];
    int ndim = l->ndim;
    for (int at = part == WEFT_HALO_INNER ? ndim : 0; at < ndim + (part == WEFT_HALO_INNER); at++) {
        for (int d = 0; d < ndim; d++)
            lists[d] = list_of(&lines[d], d < at ? s->a : d == at ? s->b : s->c);
        multiply(lists, ndim, out, cap, n);
    }
    if (part == WEFT_HALO_EDGES && l->faces)
        put_corners(lines, ndim, out, cap, n);
}

int weft_layout_halo(const weft_layout *l, int rank, enum weft_halo_part part, weft_box *out, size_t cap, size_t *n)
{
    if (!l || !n || (cap && !out))
        return error_set(WEFT_EINVAL, "layout: %s is NULL", !l ? "layout" : !n ? "n" : "out");
    if (rank < 0)
        return error_set(WEFT_EINVAL, "layout: rank %d is negative", rank);
    if (part < WEFT_HALO_INNER || part > WEFT_HALO_EDGES)
        return error_set(WEFT_EINVAL, "layout: there is no part %d of a halo: inner, rim, ghosts, edges are %d to %d",
                         (int)part, WEFT_HALO_INNER, WEFT_HALO_EDGES);
    if (l->boxes && part == WEFT_HALO_INNER)
        return weft_layout_boxes(l, rank, out, cap, n);
    int64_t index = l->boxes ? -1 : mesh_index(l, rank);
    struct arena arena = {0};
    struct line lines[WEFT_MAX_DIMS];
    size_t boxes = 0;
    int rc = 0;
    for (int d = 0; d < l->ndim && index >= 0 && !rc; d++)
        rc = make_line(l, d, layout_piece(l, index, d), &arena, &lines[d]);
    if (!rc && index >= 0)
        put_together(l, lines, part, out, cap, &boxes);
    arena_free(&arena);
    if (!rc)
        *n = boxes;
    return rc;
}
