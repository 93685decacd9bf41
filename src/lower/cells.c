#include "lower/cells.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* A run of some piece of one side. */
struct owned {
    int64_t piece;
    struct run r;
    bool ghost;
};
struct owned_list {
    struct owned *v;
    size_t n, cap;
};

static void *grow(struct arena *a, void *v, size_t n, size_t *cap, size_t size)
{
    if (n < *cap)
        return v;
    size_t c = *cap ? 2 * *cap : 4;
    void *p = arena_alloc(a, c * size);
    if (!p)
        return error_nomem(), NULL;
    if (n)
        memcpy(p, v, n * size);
    *cap = c;
    return p;
}

static int add_owned(const struct job *j, struct owned_list *l, struct owned o)
{
    struct owned *v = grow(j->arena, l->v, l->n, &l->cap, sizeof *v);
    if (!v)
        return WEFT_ENOMEM;
    l->v = v;
    l->v[l->n++] = o;
    return 0;
}

static int add_cell(const struct job *j, struct cells *l, struct cell c)
{
    struct cell *v = grow(j->arena, l->v, l->n, &l->cap, sizeof *v);
    if (!v)
        return WEFT_ENOMEM;
    l->v = v;
    l->v[l->n++] = c;
    return 0;
}

struct gather {
    const struct job *j;
    int dim;
    bool source;
    struct owned_list *out;
};

static int take_piece(void *arg, int64_t piece)
{
    struct gather *g = arg;
    struct runs terms = {.arena = g->j->arena}, *runs = &terms;
    struct slots slots;
    bool *ghost = NULL;
    int rc;
    if (g->source) {
        rc = intersect_terms(g->j, g->dim, piece, &terms, &ghost);
    } else {
        rc = intersect_slots(g->j, g->dim, piece, &slots);
        runs = &slots.first;
    }
    for (size_t i = 0; i < runs->n && !rc; i++) {
        bool is = g->source ? ghost && ghost[i] : layout_piece_ghost(g->j->dst, g->dim, slots.inner, runs->v[i].to);
        rc = add_owned(g->j, g->out, (struct owned){piece, runs->v[i], is});
    }
    return rc;
}

static bool has_ghosts(const weft_layout *l, int dim)
{
    return l->dim[dim].lo || l->dim[dim].hi;
}

/* All runs of one side whose pieces reach into [lo, hi). */
static int gather_side(const struct job *j, int dim, bool source, int64_t lo, int64_t hi, struct owned_list *out)
{
    struct run q = {.at = lo, .len = hi - lo, .n = 1};
    struct runs query = {.v = &q, .n = 1, .cap = 1, .arena = j->arena};
    struct gather g = {j, dim, source, out};
    bool ghosts = source ? j->src->ghost_terms : !j->dst->ghost_terms;
    return layout_pieces_at(source ? j->src : j->dst, dim, &query, ghosts, j->arena, take_piece, &g);
}

static int order_points(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static bool covers(const struct owned *o, int64_t lo, int64_t hi)
{
    return o->r.at <= lo && hi <= o->r.at + o->r.len;
}

/* Adds the terms and destinations of one run of positions inside the elementary interval [lo, hi). A side without
 * ghosts has one run, `own`, with its place. The other side has all its runs that cover the interval. */
static int put_cell(const struct job *j, struct cells *out, const struct pair_run *r, const struct owned *term,
                    const struct owned *dest, const struct owned_list *src, const struct owned_list *dst, int64_t lo,
                    int64_t hi)
{
    struct cell c = {.at = r->at, .len = r->len, .n = r->n, .step = r->step};
    c.term = arena_alloc(j->arena, (src ? src->n : 1) * sizeof *c.term);
    c.dest = arena_alloc(j->arena, (dst ? dst->n : 1) * sizeof *c.dest);
    if (!c.term || !c.dest)
        return error_nomem();
    if (!src)
        c.term[c.nterms++] = (struct cell_term){term->piece, r->a, r->astep, false};
    for (size_t i = 0; src && i < src->n; i++)
        if (covers(&src->v[i], lo, hi)) {
            const struct owned *o = &src->v[i];
            c.term[c.nterms++] = (struct cell_term){o->piece, o->r.to + (r->at - o->r.at), r->step, o->ghost};
        }
    if (!dst)
        c.dest[c.ndests++] = (struct cell_dest){dest->piece, r->b, r->bstep, false};
    for (size_t i = 0; dst && i < dst->n; i++)
        if (covers(&dst->v[i], lo, hi)) {
            const struct owned *o = &dst->v[i];
            c.dest[c.ndests++] = (struct cell_dest){o->piece, o->r.to + (r->at - o->r.at), r->step, o->ghost};
        }
    return c.nterms && c.ndests ? add_cell(j, out, c) : 0;
}

static int join_two(const struct job *j, const struct run *a, const struct run *b, struct pair_runs *out)
{
    struct runs x = {.v = (struct run *)a, .n = 1, .cap = 1}, y = {.v = (struct run *)b, .n = 1, .cap = 1};
    *out = (struct pair_runs){.arena = j->arena};
    return runs_join(&x, &y, out);
}

/* Handles one elementary interval of a dim in which a side has ghosts. sg, dg: which sides have ghosts; mine: this
 * rank's run. */
static int put_interval(const struct job *j, struct cells *out, int64_t lo, int64_t hi, const struct owned *mine,
                        bool source, const struct owned_list *src, const struct owned_list *dst, bool sg, bool dg)
{
    struct run e = {.at = lo, .len = hi - lo, .n = 1};
    struct pair_runs runs;
    if (sg && dg) {
        struct pair_run r = {.at = lo, .len = hi - lo, .n = 1};
        return put_cell(j, out, &r, NULL, NULL, src, dst, lo, hi);
    }
    /* The side without ghosts: this rank's own run if it is this rank's side, otherwise every run that overlaps e. */
    const struct owned_list *side = sg ? dst : src;
    bool own = source ? !sg : !dg;
    for (size_t i = 0; i < (own ? 1 : side->n); i++) {
        const struct owned *o = own ? mine : &side->v[i];
        int rc = sg ? join_two(j, &e, &o->r, &runs) : join_two(j, &o->r, &e, &runs);
        for (size_t k = 0; k < runs.n && !rc; k++)
            rc = put_cell(j, out, &runs.v[k], o, o, sg ? src : NULL, dg ? dst : NULL, lo, hi);
        if (rc)
            return rc;
    }
    return 0;
}

/* Handles this rank's i-th run. If positions are also in an earlier run, that run has made their cell. */
static int with_ghosts(const struct job *j, int dim, bool source, const struct owned_list *own, size_t which, bool sg,
                       bool dg, struct cells *out)
{
    struct owned_list src = {0}, dst = {0};
    const struct owned *mine = &own->v[which];
    const struct run *r = &mine->r;
    int64_t lo = r->at, hi = r->at + (r->n - 1) * r->step + r->len;
    int rc = gather_side(j, dim, true, lo, hi, &src);
    if (!rc)
        rc = gather_side(j, dim, false, lo, hi, &dst);
    if (rc)
        return rc;
    int64_t *point = arena_alloc(j->arena, (2 * (src.n + dst.n) + 2) * sizeof *point);
    if (!point)
        return error_nomem();
    size_t n = 0;
    point[n++] = lo;
    point[n++] = hi;
    for (size_t i = 0; i < src.n && sg; i++) {
        point[n++] = src.v[i].r.at;
        point[n++] = src.v[i].r.at + src.v[i].r.len;
    }
    for (size_t i = 0; i < dst.n && dg; i++) {
        point[n++] = dst.v[i].r.at;
        point[n++] = dst.v[i].r.at + dst.v[i].r.len;
    }
    qsort(point, n, sizeof *point, order_points);
    for (size_t i = 0; i + 1 < n && !rc; i++) {
        bool seen = point[i] < lo || point[i + 1] > hi || point[i] == point[i + 1];
        for (size_t k = 0; k < which && source && sg && !seen; k++)
            seen = covers(&own->v[k], point[i], point[i + 1]);
        if (!seen)
            rc = put_interval(j, out, point[i], point[i + 1], mine, source, &src, &dst, sg, dg);
    }
    return rc;
}

static int plain(const struct job *j, int dim, bool source, int64_t piece, struct cells *out)
{
    struct hits hits = {0};
    struct slots slots;
    struct runs mine = {.arena = j->arena};
    int rc;
    if (source) {
        rc = layout_piece_interior(j->src, dim, piece, &mine);
        if (!rc)
            rc = intersect_src(j, dim, &mine, &hits);
    } else {
        rc = intersect_slots(j, dim, piece, &slots);
        if (!rc)
            rc = intersect_dst(j, dim, &slots, &hits);
    }
    for (size_t i = 0; i < hits.n && !rc; i++)
        for (size_t k = 0; k < hits.v[i].j.n && !rc; k++) {
            struct owned o = {.piece = source ? piece : hits.v[i].piece},
                         p = {.piece = source ? hits.v[i].piece : piece};
            rc = put_cell(j, out, &hits.v[i].j.v[k], &o, &p, NULL, NULL, 0, 0);
        }
    return rc;
}

static int cells_of(const struct job *j, int dim, bool source, int64_t piece, struct cells *out)
{
    bool sg = j->src->ghost_terms && has_ghosts(j->src, dim), dg = !j->dst->ghost_terms && has_ghosts(j->dst, dim);
    *out = (struct cells){0};
    if (!sg && !dg)
        return plain(j, dim, source, piece, out);
    struct owned_list mine = {0};
    struct gather g = {j, dim, source, &mine};
    int rc = take_piece(&g, piece);
    for (size_t i = 0; i < mine.n && !rc; i++)
        rc = with_ghosts(j, dim, source, &mine, i, sg, dg, out);
    return rc;
}

int cells_dst(const struct job *j, int dim, struct cells *out)
{
    return cells_of(j, dim, false, layout_piece(j->dst, j->di, dim), out);
}

int cells_src(const struct job *j, int dim, struct cells *out)
{
    return cells_of(j, dim, true, layout_piece(j->src, j->si, dim), out);
}
