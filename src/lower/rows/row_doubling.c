/* Recursive halving and doubling, for groups of 2^k: log2 stages, each with one partner. Halving folds: of the slices
 * that a pair still shares, each member keeps one half and gets the other's partial sums for it. Doubling gathers: each
 * stage doubles what a member has. */
#include "base/dtype.h"
#include "base/error.h"
#include "lower/rows/rows.h"

/* Members of me's aligned run of `width`. */
static int64_t run_start(int64_t me, int64_t width)
{
    return me / width * width;
}

static int halve(const struct group *g, struct slice *b, bool keep)
{
    const struct job *j = g->j;
    int raw = j->src->dtype, acc = raw, rc = 0;
    int32_t stage = 0;
    for (int64_t width = g->size / 2; width >= 1 && !rc; width /= 2, stage++) {
        int64_t mine = run_start(g->me, width), partner = g->me ^ width, theirs = run_start(partner, width);
        int peer = slice_group_rank(g, partner);
        bool last = width == 1;
        for (int64_t k = theirs; k < theirs + width && !rc; k++)
            rc = slice_send(&b[k], stage, peer, acc);
        for (int64_t k = mine; k < mine + width && !rc; k++) {
            struct slice in[2] = {b[k], b[k]}; /* the lower member's term first, so that both fold in the same order */
            struct slice *got = &in[g->me > partner ? 0 : 1];
            rc = slice_places(got);
            if (!rc)
                rc = slice_recv_temp(got, stage, peer, acc);
            int64_t div = last ? row_div(j, g->size) : 0;
            if (!rc)
                rc = slice_fold(in, 2, stage, last, keep, div, &b[k]);
        }
        acc = dtype_acc(j->src->dtype);
    }
    return rc;
}

static int doubling(const struct group *g, struct slice *b, int32_t stage)
{
    int rc = 0, wire = g->j->wire;
    for (int64_t width = 1; width < g->size && !rc; width *= 2, stage++) {
        int64_t mine = run_start(g->me, width), partner = g->me ^ width, theirs = run_start(partner, width);
        int peer = slice_group_rank(g, partner);
        for (int64_t k = mine; k < mine + width && !rc; k++)
            rc = slice_send(&b[k], stage, peer, wire);
        for (int64_t k = theirs; k < theirs + width && !rc; k++)
            rc = slice_recv_on(&b[k], stage, peer, wire);
    }
    return rc;
}

/* ---- slices that are joined ---- */

/* The slices of an allreduce are cuts of one piece, and a run of members has cuts that lie side by side. If the piece
 * is one box that fits into a message, and values are sent in the destination's dtype, the slices of a run go as one:
 * a stage then has one part and one fold, and a plan grows with the logarithm of the group's size, not with the size.
 */
static int joins(const struct group *g, struct slice *whole, bool *out)
{
    int rc = slice_open_cuts(g, 0, g->size, g->size, whole);
    *out = !rc && slice_is_plain(whole) && g->j->wire == g->j->dst->dtype;
    return rc;
}

/* The run of `width` members from `from` on, where it is in `of`. */
static int run_within(const struct group *g, int64_t from, int64_t width, const struct slice *of, struct slice *out)
{
    int rc = slice_open_cuts(g, from, width, g->size, out);
    if (!rc)
        slice_within(out, of);
    return rc;
}

static int halve_joined(const struct group *g, struct slice *have)
{
    const struct job *j = g->j;
    int acc = j->src->dtype, rc = 0;
    int32_t stage = 0;
    for (int64_t width = g->size / 2; width >= 1 && !rc; width /= 2, stage++) {
        int64_t partner = g->me ^ width;
        int peer = slice_group_rank(g, partner);
        bool last = width == 1;
        struct slice theirs, in[2];
        rc = run_within(g, run_start(partner, width), width, have, &theirs);
        if (!rc)
            rc = slice_send(&theirs, stage, peer, acc);
        if (!rc)
            rc = run_within(g, run_start(g->me, width), width, have, &in[0]);
        if (rc)
            return rc;
        in[1] = in[0]; /* the lower member's term first */
        struct slice *got = &in[g->me > partner ? 0 : 1];
        rc = slice_places(got);
        if (!rc)
            rc = slice_recv_temp(got, stage, peer, acc);
        if (!rc)
            rc = slice_fold(in, 2, stage, last, false, last ? row_div(j, g->size) : 0, have);
        acc = dtype_acc(j->src->dtype);
    }
    return rc;
}

/* mine: this member's finished slice, in the destination. Whatever is sent lies there, and is complete when the slices
 * of all stages before have come. */
static int doubling_joined(const struct group *g, const struct slice *mine, int32_t stage)
{
    uint32_t nodes[64];
    size_t n = 0;
    int rc = 0;
    if (mine->n)
        nodes[n++] = mine->node[0];
    for (int64_t width = 1; width < g->size && !rc; width *= 2, stage++) {
        int64_t partner = g->me ^ width;
        int peer = slice_group_rank(g, partner);
        struct slice out, in;
        rc = slice_open_cuts(g, run_start(g->me, width), width, g->size, &out);
        out.space = PLAN_DST;
        if (!rc)
            rc = slice_send_after(&out, stage, peer, g->j->wire, nodes, n);
        if (!rc)
            rc = slice_open_cuts(g, run_start(partner, width), width, g->size, &in);
        if (!rc)
            rc = slice_recv_dst(&in, stage, peer, g->j->wire);
        if (!rc && in.n)
            nodes[n++] = in.node[0];
    }
    return rc;
}

static int stages(int64_t size)
{
    int s = 0;
    while ((int64_t)1 << s < size)
        s++;
    return s;
}

static int allreduce_joined(const struct group *g, struct slice *whole)
{
    int rc = halve_joined(g, whole);
    return rc ? rc : doubling_joined(g, whole, stages(g->size));
}

/* ---- the rows ---- */

enum what { GATHER, SCATTER, REDUCE };

static int run(const struct job *j, const struct recognised *r, enum what what)
{
    if (j->si < 0)
        return 0;
    struct group g;
    slice_group_open(j, r, &g);
    if (what == REDUCE) {
        struct slice whole;
        bool joined;
        int err = joins(&g, &whole, &joined);
        if (err || joined)
            return err ? err : allreduce_joined(&g, &whole);
    }
    struct slice *b = arena_alloc(j->arena, (size_t)g.size * sizeof *b);
    if (!b)
        return error_nomem();
    int rc = 0;
    for (int64_t k = 0; k < g.size && !rc; k++)
        rc = what == GATHER    ? slice_open(&g, k, g.me, 0, 1, &b[k])
             : what == SCATTER ? slice_open(&g, g.me, k, 0, 1, &b[k])
                               : slice_open(&g, g.me, g.me, k, g.size, &b[k]);
    if (rc)
        return rc;
    if (what == GATHER) {
        rc = slice_copy_dst(&b[g.me], 0);
        return rc ? rc : doubling(&g, b, 0);
    }
    rc = halve(&g, b, what == REDUCE);
    return rc || what == SCATTER ? rc : doubling(&g, b, stages(g.size));
}

int row_doubling_allgather(const struct job *j, const struct recognised *r)
{
    return run(j, r, GATHER);
}
int row_doubling_reduce_scatter(const struct job *j, const struct recognised *r)
{
    return run(j, r, SCATTER);
}
int row_doubling_allreduce(const struct job *j, const struct recognised *r)
{
    return run(j, r, REDUCE);
}
