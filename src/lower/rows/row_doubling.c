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

static int stages(int64_t size)
{
    int s = 0;
    while ((int64_t)1 << s < size)
        s++;
    return s;
}

enum what { GATHER, SCATTER, REDUCE };

static int run(const struct job *j, const struct recognised *r, enum what what)
{
    if (j->si < 0)
        return 0;
    struct group g;
    slice_group_open(j, r, &g);
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
