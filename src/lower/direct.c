/* Lowering without folds: every element goes from one holder to all ranks that need it and lack it. A rank that has it
 * already copies it. */
#include "base/error.h"
#include "lower/feed.h"

/* One pair of pieces that is being lowered: the joined runs of each dim. */
struct pair {
    const struct job *j;
    const struct slots *slots; /* if this rank is the destination */
    const struct pair_runs *runs[WEFT_MAX_DIMS];
    int64_t inner[WEFT_MAX_DIMS]; /* without corners: extents of the interior of the destination's piece */
    int64_t length;               /* positions along the cut dim */
    struct feed_cut stretch;      /* the current stretch, with the rank at the other end */
    bool local;
};

/* Receives a box and passes it on. If it is sent on in another dtype than the destination's, it is also kept as it
 * came. */
static int put_relay(const struct pair *p, const struct span *box)
{
    const struct job *j = p->j;
    const struct feed_cut *c = &p->stretch;
    bool keep = j->wire != j->dst->dtype;
    uint32_t buf = PLAN_NONE, got = DRAFT_NONE, filled;
    int rc = keep ? emit_temp(j, j->wire, box, &buf) : 0;
    if (!rc)
        rc = keep ? emit_part_temp(j, buf, box) : emit_part_dst(j, box);
    if (!rc)
        rc = draft_recv(j->d, c->stage, c->rank, j->wire, 0, &got);
    if (!rc && c->stage)
        draft_passed_on(j->d, c->origin);
    filled = got;
    if (!rc && keep && !(rc = emit_part_temp(j, buf, box)) && !(rc = emit_part_dst(j, box)))
        rc = draft_copy(j->d, c->stage, &got, 1, &filled);
    for (size_t i = 0; i < c->nmates && !rc; i++) {
        rc = keep ? emit_part_temp(j, buf, box) : emit_part_dst(j, box);
        if (!rc)
            rc = draft_send(j->d, c->stage + 1, c->mates[i], j->wire, 0, got, NULL);
        if (!rc)
            draft_passed_on(j->d, c->origin);
    }
    return rc ? rc : emit_dups(j, p->slots, box, false, filled, c->stage);
}

static int put_box(void *arg, const struct span *box)
{
    const struct pair *p = arg;
    const struct job *j = p->j;
    const struct feed_cut *c = &p->stretch;
    if (p->slots && c->nmates)
        return put_relay(p, box);
    uint32_t node;
    int rc = p->slots ? emit_part_dst(j, box) : emit_part_src(j, box);
    if (rc)
        return rc;
    if (!p->slots)
        return draft_send(j->d, c->stage, c->rank, j->wire, 0, DRAFT_NONE, NULL);
    rc = draft_recv(j->d, c->stage, c->rank, j->wire, 0, &node);
    if (!rc && c->stage)
        draft_passed_on(j->d, c->origin);
    return rc ? rc : emit_dups(j, p->slots, box, false, node, c->stage);
}

/* `ghosts`, without corners: in how many of the dims so far the box is of ghosts. */
static int walk_runs(struct pair *p, int dim, int ghosts, struct span *box)
{
    const weft_layout *dst = p->j->dst;
    if (ghosts > 1)
        return 0; /* a corner */
    if (dim == p->j->ndim)
        return p->local ? emit_local(p->j, p->slots, box) : emit_cut(p->j, box, put_box, p);
    const struct pair_runs *r = p->runs[dim];
    for (size_t i = 0; i < r->n; i++) {
        emit_span_of(&r->v[i], &box[dim]);
        bool ghost = dst->faces && layout_piece_ghost(dst, dim, p->inner[dim], box[dim].b);
        int rc = walk_runs(p, dim + 1, ghosts + ghost, box);
        if (rc)
            return rc;
    }
    return 0;
}

static int take_cut(void *arg, const struct feed_cut *c)
{
    struct pair *p = arg;
    struct span box[WEFT_MAX_DIMS];
    p->stretch = *c;
    if (!c->from && c->to == p->length)
        return walk_runs(p, 0, 0, box);
    const struct pair_runs *whole = p->runs[p->j->cut];
    struct pair_runs cut = {.arena = p->j->arena};
    int rc = runs_pair_cut(whole, c->from, c->to, &cut);
    p->runs[p->j->cut] = &cut;
    if (!rc)
        rc = walk_runs(p, 0, 0, box);
    p->runs[p->j->cut] = whole;
    return rc;
}

int lower_direct_pair(const struct job *j, const struct slots *slots, const struct pair_runs *const *runs, int64_t s,
                      int64_t t, int64_t s_piece)
{
    struct pair p = {.j = j, .slots = slots};
    int64_t other = 1;
    for (int d = 0; d < j->ndim; d++) {
        p.runs[d] = runs[d];
        if (j->dst->faces)
            layout_piece_extent(j->dst, d, layout_piece(j->dst, t, d), &p.inner[d]);
        if (d != j->cut)
            other *= runs_pair_count(runs[d]);
    }
    if (slots && j->s_mine == s) {
        struct span box[WEFT_MAX_DIMS];
        p.local = true;
        return walk_runs(&p, 0, 0, box);
    }
    int64_t first = 0;
    p.length = 1;
    if (j->cut >= 0) {
        p.length = runs_pair_count(runs[j->cut]);
        first = runs[j->cut]->v[0].a - j->src->dim[j->cut].lo;
    }
    struct feed f;
    int rc = feed_open(j, s, t, p.length, first, other, s_piece, &f);
    if (rc)
        return rc;
    return slots ? feed_receive(&f, take_cut, &p) : feed_send(&f, take_cut, &p);
}

/* Goes through the products of the hits of all dims. `at`: the mesh position of the other side's piece by the dims so
 * far; s_piece: see lower_direct_pair. */
static int walk_hits(const struct job *j, const struct slots *slots, const struct hits *hits, int dim, int64_t at,
                     const struct pair_runs **runs, int64_t s_piece)
{
    if (dim == j->ndim)
        return lower_direct_pair(j, slots, runs, slots ? at : j->s_mine, slots ? j->d_mine : at, s_piece);
    const weft_layout *other = slots ? j->src : j->dst;
    for (size_t i = 0; i < hits[dim].n; i++) {
        const struct hit *h = &hits[dim].v[i];
        runs[dim] = &h->j;
        int rc = walk_hits(j, slots, hits, dim + 1, at + layout_piece_offset(other, dim, h->piece), runs,
                           slots && dim == j->cut ? h->piece : s_piece);
        if (rc)
            return rc;
    }
    return 0;
}

static int as_destination(const struct job *j)
{
    struct slots slots[WEFT_MAX_DIMS];
    struct hits hits[WEFT_MAX_DIMS] = {0};
    const struct pair_runs *runs[WEFT_MAX_DIMS];
    for (int d = 0; d < j->ndim; d++) {
        int rc = intersect_slots(j, d, layout_piece(j->dst, j->di, d), &slots[d]);
        if (!rc)
            rc = intersect_dst(j, d, &slots[d], &hits[d]);
        if (rc)
            return rc;
    }
    return walk_hits(j, slots, hits, 0, 0, runs, 0);
}

static int as_source(const struct job *j)
{
    struct hits hits[WEFT_MAX_DIMS] = {0};
    const struct pair_runs *runs[WEFT_MAX_DIMS];
    for (int d = 0; d < j->ndim; d++) {
        struct runs mine = {.arena = j->arena};
        int rc = layout_piece_interior(j->src, d, layout_piece(j->src, j->si, d), &mine);
        if (!rc)
            rc = intersect_src(j, d, &mine, &hits[d]);
        if (rc)
            return rc;
    }
    return walk_hits(j, NULL, hits, 0, 0, runs, j->cut < 0 ? 0 : layout_piece(j->src, j->si, j->cut));
}

int lower_direct(const struct job *j)
{
    int rc = 0;
    if (j->si >= 0)
        rc = as_source(j);
    if (!rc && j->di >= 0 && !axes_part(j->dst, j->d_fold, j->di))
        rc = as_destination(j);
    return rc;
}
