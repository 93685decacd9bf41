/* Along one dim: what this rank holds, and which pieces of the other side overlap it. */
#include <string.h>

#include "base/error.h"
#include "lower/job.h"

static int add_dup(const struct job *j, struct slots *s, struct dup u)
{
    if (s->ndup == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 4;
        struct dup *v = arena_alloc(j->arena, cap * sizeof *v);
        if (!v)
            return error_nomem();
        if (s->ndup)
            memcpy(v, s->dup, s->ndup * sizeof *v);
        s->dup = v;
        s->cap = cap;
    }
    s->dup[s->ndup++] = u;
    return 0;
}

/* Adds ghosts to `first`. They prolong the run that they continue on either side, both in positions and in places.
 * Where ghosts in two dims are no slots, runs have to be of ghosts or of the interior. */
static int add_first(const struct job *j, struct slots *s, struct run g)
{
    for (size_t i = 0; i < s->first.n && !j->dst->faces; i++) {
        struct run *r = &s->first.v[i];
        if (r->at + r->len == g.at && r->to + r->len == g.to) {
            r->len += g.len;
            return 0;
        }
        if (g.at + g.len == r->at && g.to + g.len == r->to) {
            r->at = g.at;
            r->to = g.to;
            r->len += g.len;
            return 0;
        }
    }
    return runs_add(&s->first, g);
}

/* Adds a ghost run. Positions that no earlier run covers go to `first`, the others to `dup`. All runs are intervals. */
static int add_ghost(const struct job *j, struct slots *s, const struct run *g)
{
    int64_t end = g->at + g->len;
    for (int64_t x = g->at; x < end;) {
        const struct run *in = NULL;
        int64_t next = end;
        for (size_t i = 0; i < s->first.n && !in; i++) {
            const struct run *r = &s->first.v[i];
            if (r->at <= x && x < r->at + r->len)
                in = r;
            else if (r->at > x && r->at < next)
                next = r->at;
        }
        int64_t to = g->to + (x - g->at);
        int rc;
        if (in) {
            next = in->at + in->len < end ? in->at + in->len : end;
            rc = add_dup(j, s, (struct dup){x, next - x, to, in->to + (x - in->at)});
        } else {
            rc = add_first(j, s, (struct run){.at = x, .len = next - x, .n = 1, .to = to});
        }
        if (rc)
            return rc;
        x = next;
    }
    return 0;
}

int intersect_slots(const struct job *j, int dim, int64_t piece, struct slots *out)
{
    const struct layout_dim *d = &j->dst->dim[dim];
    bool ghosts = d->lo || d->hi;
    *out = (struct slots){.first = {.arena = j->arena}, .inner = INT64_MAX};
    if (!ghosts || j->dst->ghost_terms) {
        int rc = layout_piece_interior(j->dst, dim, piece, &out->first);
        out->inner = ghosts ? runs_count(&out->first) : INT64_MAX;
        return rc;
    }
    struct runs all = {.arena = j->arena};
    size_t first, n;
    int rc = layout_piece_slots(j->dst, dim, piece, &all, &first, &n);
    if (!rc)
        out->inner = n ? all.v[first].len : 0;
    if (!rc && n)
        rc = runs_add(&out->first, all.v[first]);
    for (size_t i = 0; i < all.n && !rc; i++)
        if (i != first)
            rc = add_ghost(j, out, &all.v[i]);
    return rc;
}

int intersect_terms(const struct job *j, int dim, int64_t piece, struct runs *out, bool **ghost)
{
    const struct layout_dim *d = &j->src->dim[dim];
    if (ghost)
        *ghost = NULL;
    if (!j->src->ghost_terms || (!d->lo && !d->hi))
        return layout_piece_interior(j->src, dim, piece, out);
    size_t first, n;
    int rc = layout_piece_slots(j->src, dim, piece, out, &first, &n);
    if (rc || !ghost)
        return rc;
    bool *g = *ghost = arena_alloc(j->arena, out->n * sizeof *g + 1);
    if (!g)
        return error_nomem();
    for (size_t i = 0; i < out->n; i++)
        g[i] = i < first || i >= first + n;
    return 0;
}

static struct hit *add_hit(const struct job *j, struct hits *h)
{
    if (h->n == h->cap) {
        size_t cap = h->cap ? 2 * h->cap : 4;
        struct hit *v = arena_alloc(j->arena, cap * sizeof *v);
        if (!v)
            return error_nomem(), NULL;
        if (h->n)
            memcpy(v, h->v, h->n * sizeof *v);
        h->v = v;
        h->cap = cap;
    }
    return &h->v[h->n];
}

struct search {
    const struct job *j;
    int dim;
    const struct slots *slots; /* this rank's as a destination, or NULL */
    const struct runs *terms;  /* this rank's as a source, or NULL */
    struct hits *out;
};

static int take_hit(void *arg, int64_t piece)
{
    struct search *s = arg;
    struct hit *h = add_hit(s->j, s->out);
    if (!h)
        return WEFT_ENOMEM;
    *h = (struct hit){.piece = piece, .j = {.arena = s->j->arena}};
    struct slots slots;
    struct run few[4];
    struct runs terms = {.v = few, .cap = sizeof few / sizeof *few, .arena = s->j->arena};
    int rc = s->slots ? layout_piece_interior(s->j->src, s->dim, piece, &terms)
                      : intersect_slots(s->j, s->dim, piece, &slots);
    if (!rc)
        rc = runs_join(s->terms ? s->terms : &terms, s->slots ? &s->slots->first : &slots.first, &h->j);
    h->count = runs_pair_count(&h->j);
    if (!rc && h->count)
        s->out->n++;
    return rc;
}

int intersect_dst(const struct job *j, int dim, const struct slots *mine, struct hits *out)
{
    struct search s = {.j = j, .dim = dim, .slots = mine, .out = out};
    return layout_pieces_at(j->src, dim, &mine->first, false, j->arena, take_hit, &s);
}

int intersect_src(const struct job *j, int dim, const struct runs *mine, struct hits *out)
{
    struct search s = {.j = j, .dim = dim, .terms = mine, .out = out};
    return layout_pieces_at(j->dst, dim, mine, !j->dst->ghost_terms, j->arena, take_hit, &s);
}
