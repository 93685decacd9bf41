/* Pieces of one dim: which positions a coordinate holds, and which coordinates hold a position. Splits nest: each one
 * deals out the positions of the piece that the splits before it have made, numbered from 0. */
#include <stdlib.h>

#include "base/error.h"
#include "base/math.h"
#include "base/vec.h"
#include "layout/layout.h"

int64_t layout_piece(const weft_layout *l, int64_t index, int dim)
{
    const struct layout_dim *d = &l->dim[dim];
    int64_t piece = 0;
    for (int s = 0; s < d->nsplits; s++)
        piece = piece * l->axis[d->split[s].axis].size + layout_coord(l, index, d->split[s].axis);
    return piece;
}

int64_t layout_piece_offset(const weft_layout *l, int dim, int64_t piece)
{
    const struct layout_dim *d = &l->dim[dim];
    int64_t offset = 0;
    for (int s = d->nsplits - 1; s >= 0; s--) {
        const struct layout_axis *a = &l->axis[d->split[s].axis];
        offset += piece % a->size * a->stride;
        piece /= a->size;
    }
    return offset;
}

int64_t layout_piece_share(int64_t n, int64_t p, int64_t block, int64_t c)
{
    if (!block) {
        int64_t size = ceil_div(n, p), from = c * size; /* c * size <= n + p: no overflow */
        return from >= n ? 0 : min64(size, n - from);
    }
    int64_t blocks = ceil_div(n, block);
    if (c >= blocks)
        return 0;
    int64_t mine = (blocks - 1 - c) / p + 1, tail = blocks * block - n;
    return mine * block - ((blocks - 1) % p == c ? tail : 0);
}

/* The positions, of n, that coordinate c gets, numbered anew. */
static int select_share(int64_t n, int64_t p, int64_t block, int64_t c, struct runs *out)
{
    int64_t mine = layout_piece_share(n, p, block, c);
    if (!mine)
        return 0;
    if (!block || p == 1)
        return runs_add(out, (struct run){.at = block ? 0 : c * ceil_div(n, p), .len = mine, .n = 1});
    /* Multiplies only if the product stays below n: a block may be far larger than n. */
    int64_t whole = mine / block, rest = mine % block, turn = whole > 1 ? p * block : 0;
    int rc = runs_add(out, (struct run){.at = c * block, .len = block, .n = whole, .step = turn, .tostep = block});
    if (!rc && rest)
        rc = runs_add(out, (struct run){.at = (c + whole * p) * block, .len = rest, .n = 1, .to = whole * block});
    return rc;
}

/* The coordinates of a piece number on each split of a dim. */
static void piece_coords(const weft_layout *l, const struct layout_dim *d, int64_t piece, int64_t *c)
{
    for (int s = d->nsplits - 1; s >= 0; s--) {
        int64_t size = l->axis[d->split[s].axis].size;
        c[s] = piece % size;
        piece /= size;
    }
}

/* How many leading splits are by chunk; the piece after them is [*at, *at + *len). */
static int chunk_prefix(const weft_layout *l, const struct layout_dim *d, const int64_t *c, int64_t *at, int64_t *len)
{
    *at = 0;
    *len = d->extent;
    int s = 0;
    for (; s < d->nsplits && !d->split[s].block; s++) {
        int64_t p = l->axis[d->split[s].axis].size, mine = layout_piece_share(*len, p, 0, c[s]);
        *at += mine ? c[s] * ceil_div(*len, p) : 0;
        *len = mine;
    }
    return s;
}

int layout_piece_interior(const weft_layout *l, int dim, int64_t piece, struct runs *out)
{
    const struct layout_dim *d = &l->dim[dim];
    int64_t c[WEFT_MAX_AXES], at, len;
    piece_coords(l, d, piece, c);
    int s = chunk_prefix(l, d, c, &at, &len);
    if (s == d->nsplits)
        return runs_add(out, (struct run){.at = at, .len = len, .n = 1, .to = d->lo});
    /* From here on the current piece is a list of runs, places to positions, which is joined with the next split's
     * share. */
    struct runs hand = {.arena = out->arena};
    int rc = runs_add(&hand, (struct run){.at = 0, .len = len, .n = 1, .to = at});
    for (; s < d->nsplits && !rc; s++) {
        struct runs sel = {.arena = out->arena}, next = {.arena = out->arena};
        struct pair_runs both = {.arena = out->arena};
        int64_t p = l->axis[d->split[s].axis].size;
        rc = select_share(len, p, d->split[s].block, c[s], &sel);
        if (!rc)
            rc = runs_join(&hand, &sel, &both);
        for (size_t i = 0; i < both.n && !rc; i++) {
            const struct pair_run *r = &both.v[i];
            rc = runs_add(&next, (struct run){r->b, r->len, r->n, r->bstep, r->a, r->astep});
        }
        hand = next;
        len = layout_piece_share(len, p, d->split[s].block, c[s]);
    }
    for (size_t i = 0; i < hand.n && !rc; i++) {
        const struct run *r = &hand.v[i];
        rc = runs_add(out, (struct run){r->to, r->len, r->n, r->tostep, r->at, r->step});
    }
    return rc;
}

/* Adds ghost slots [from, to) before or behind a piece, whose slot 0 has position `zero`. */
static int add_ghosts(const struct layout_dim *d, int64_t zero, int64_t from, int64_t to, struct runs *out)
{
    int64_t n = d->extent;
    if (!d->wrap) {
        int64_t lo = zero + from < 0 ? -zero : from, hi = min64(to, n - zero);
        return runs_add(out, (struct run){.at = zero + lo, .len = hi - lo, .n = 1, .to = lo});
    }
    while (from < to) {
        int64_t at = (zero + from) % n;
        if (at < 0)
            at += n;
        int64_t len = min64(to - from, n - at);
        int rc = runs_add(out, (struct run){.at = at, .len = len, .n = 1, .to = from});
        if (rc)
            return rc;
        from += len;
    }
    return 0;
}

int layout_piece_slots(const weft_layout *l, int dim, int64_t piece, struct runs *out, size_t *first, size_t *ninner)
{
    const struct layout_dim *d = &l->dim[dim];
    if (!d->lo && !d->hi) {
        *first = out->n;
        int rc = layout_piece_interior(l, dim, piece, out);
        *ninner = out->n - *first;
        return rc;
    }
    int64_t c[WEFT_MAX_AXES], at, len;
    piece_coords(l, d, piece, c);
    chunk_prefix(l, d, c, &at, &len);
    *first = out->n;
    *ninner = 0;
    if (!len)
        return 0;
    int rc = add_ghosts(d, at - d->lo, 0, d->lo, out);
    *first = out->n;
    *ninner = 1;
    if (!rc)
        rc = runs_add(out, (struct run){.at = at, .len = len, .n = 1, .to = d->lo});
    if (!rc)
        rc = add_ghosts(d, at - d->lo, d->lo + len, d->lo + len + d->hi, out);
    return rc;
}

int64_t layout_piece_extent(const weft_layout *l, int dim, int64_t piece, int64_t *inner)
{
    const struct layout_dim *d = &l->dim[dim];
    int64_t c[WEFT_MAX_AXES], len = d->extent;
    piece_coords(l, d, piece, c);
    for (int s = 0; s < d->nsplits; s++)
        len = layout_piece_share(len, l->axis[d->split[s].axis].size, d->split[s].block, c[s]);
    if (inner)
        *inner = len;
    return len ? d->lo + len + d->hi : 0;
}

/* ---- which pieces hold a position ---- */

struct span {
    int64_t lo, hi;
};
typedef VEC(struct span) span_list;

static int add_span(span_list *v, int64_t lo, int64_t hi)
{
    if (lo >= hi)
        return 0;
    struct span *s = vec_push(v);
    if (!s)
        return error_nomem();
    *s = (struct span){lo, hi};
    return 0;
}

static int order_spans(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

/* Sorts spans and joins those that touch. */
static void tidy_spans(span_list *v)
{
    if (v->n > 1)
        qsort(v->v, v->n, sizeof *v->v, order_spans);
    size_t k = 0;
    for (size_t i = 0; i < v->n; i++) {
        if (k && v->v[i].lo <= v->v[k - 1].hi)
            v->v[k - 1].hi = v->v[i].hi > v->v[k - 1].hi ? v->v[i].hi : v->v[k - 1].hi;
        else
            v->v[k++] = v->v[i];
    }
    v->n = k;
}

/* The piece that holds position x of a dim with chunk splits only, and where it ends. */
static int64_t locate(const weft_layout *l, const struct layout_dim *d, int64_t x, int64_t *end)
{
    int64_t piece = 0, len = d->extent, at = 0;
    for (int s = 0; s < d->nsplits; s++) {
        int64_t p = l->axis[d->split[s].axis].size, size = ceil_div(len, p), c = (x - at) / size;
        piece = piece * p + c;
        at += c * size;
        len = min64(size, len - c * size);
    }
    *end = at + len;
    return piece;
}

/* Positions [lo, hi) as spans of positions whose pieces reach them with their ghosts. */
static int reach(const struct layout_dim *d, bool ghosts, int64_t lo, int64_t hi, span_list *out)
{
    if (!ghosts || (!d->lo && !d->hi))
        return add_span(out, lo, hi);
    int64_t n = d->extent;
    lo -= d->hi;
    hi += d->lo;
    if (!d->wrap)
        return add_span(out, lo < 0 ? 0 : lo, min64(hi, n));
    if (hi - lo >= n)
        return add_span(out, 0, n);
    int64_t from = (lo % n + n) % n, to = from + (hi - lo);
    int rc = add_span(out, from, min64(to, n));
    return rc ? rc : add_span(out, 0, to - n);
}

static int pieces_of_chunks(const weft_layout *l, int dim, const struct runs *q, bool ghosts,
                            int (*visit)(void *, int64_t), void *arg)
{
    const struct layout_dim *d = &l->dim[dim];
    int64_t size = d->extent;
    for (int s = 0; s < d->nsplits; s++)
        size = ceil_div(size, l->axis[d->split[s].axis].size);
    span_list spans = {0};
    int rc = 0;
    for (size_t i = 0; i < q->n && !rc; i++) {
        const struct run *r = &q->v[i];
        if (r->step - size <= size) /* few pieces lie in the gaps: take the whole range */
            rc = reach(d, ghosts, r->at, r->at + (r->n - 1) * r->step + r->len, &spans);
        else
            for (int64_t k = 0; k < r->n && !rc; k++)
                rc = reach(d, ghosts, r->at + k * r->step, r->at + k * r->step + r->len, &spans);
    }
    tidy_spans(&spans);
    int64_t next = 0;
    for (size_t i = 0; i < spans.n && !rc; i++)
        for (int64_t x = spans.v[i].lo > next ? spans.v[i].lo : next; x < spans.v[i].hi && !rc; x = next)
            rc = visit(arg, locate(l, d, x, &next));
    free(spans.v);
    return rc;
}

/* Coordinates of one split that hold a position of q; positions are those of the current piece, which has n > 0. */
static int candidates(const struct runs *q, int64_t n, int64_t p, int64_t block, span_list *out)
{
    int64_t unit = block ? min64(block, n) : ceil_div(n, p);
    int64_t turn = ceil_div(n, unit) > p ? unit * p : 0; /* 0: no coordinate comes twice */
    for (size_t i = 0; i < q->n; i++) {
        const struct run *r = &q->v[i];
        int64_t last = r->n, len = r->len;
        if (r->step - r->len < unit) { /* no unit fits into a gap: take the whole range */
            len += (r->n - 1) * r->step;
            last = 1;
        } else if (turn) { /* after a common period the same coordinates come again */
            last = min64(last, turn / gcd64(r->step, turn));
        }
        for (int64_t k = 0; k < last; k++) {
            int64_t lo = r->at + k * r->step, first = lo / unit, end = ceil_div(lo + len, unit);
            if (end - first >= p) {
                out->n = 0;
                return add_span(out, 0, p);
            }
            int64_t c = first % p, to = c + (end - first);
            int rc = add_span(out, c, min64(to, p));
            if (!rc && to > p)
                rc = add_span(out, 0, to - p);
            if (rc)
                return rc;
            if (out->n > 4096) /* many repetitions name the same few coordinates */
                tidy_spans(out);
        }
    }
    tidy_spans(out);
    return 0;
}

struct descent {
    const weft_layout *l;
    const struct layout_dim *d;
    struct arena *arena;
    int (*visit)(void *, int64_t);
    void *arg;
};

static int descend(const struct descent *t, int s, int64_t n, const struct runs *q, int64_t piece)
{
    if (s == t->d->nsplits)
        return t->visit(t->arg, piece);
    int64_t p = t->l->axis[t->d->split[s].axis].size, block = t->d->split[s].block;
    span_list cs = {0};
    int rc = candidates(q, n, p, block, &cs);
    for (size_t i = 0; i < cs.n && !rc; i++)
        for (int64_t c = cs.v[i].lo; c < cs.v[i].hi && !rc; c++) {
            struct runs sel = {.arena = t->arena}, next = {.arena = t->arena};
            struct pair_runs both = {.arena = t->arena};
            rc = select_share(n, p, block, c, &sel);
            if (!rc)
                rc = runs_join(q, &sel, &both);
            for (size_t k = 0; k < both.n && !rc; k++) {
                const struct pair_run *r = &both.v[k];
                rc = runs_add(&next, (struct run){r->b, r->len, r->n, r->bstep, 0, 0});
            }
            if (!rc && next.n)
                rc = descend(t, s + 1, layout_piece_share(n, p, block, c), &next, piece * p + c);
        }
    free(cs.v);
    return rc;
}

int layout_pieces_at(const weft_layout *l, int dim, const struct runs *q, bool ghosts, struct arena *arena,
                     int (*visit)(void *arg, int64_t piece), void *arg)
{
    const struct layout_dim *d = &l->dim[dim];
    if (!q->n || !d->extent)
        return 0;
    if (!d->nsplits)
        return visit(arg, 0);
    bool blocks = false;
    for (int s = 0; s < d->nsplits; s++)
        blocks = blocks || d->split[s].block;
    if (!blocks)
        return pieces_of_chunks(l, dim, q, ghosts, visit, arg);
    struct descent t = {l, d, arena, visit, arg};
    struct runs at = {.arena = arena};
    for (size_t i = 0; i < q->n; i++) { /* places do not matter here, but must not join runs that repeat */
        struct run r = q->v[i];
        r.to = r.tostep = 0;
        int rc = runs_add(&at, r);
        if (rc)
            return rc;
    }
    return descend(&t, 0, d->extent, &at, 0);
}
