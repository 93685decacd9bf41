/* Folds among the members of a group, each with all others at once. One phase: each member that needs a value gets all
 * its terms and folds them itself. Two phases, for an allreduce: each member folds one slice and sends it to all.
 * Replicas outside the group do the same among themselves; the general lowering would fold once for all of them and
 * spread the result. */
#include "base/error.h"
#include "lower/rows/rows.h"

/* Member `to` gets slice `part` of `pieces` of what it needs from all members and folds them. The others send
 * theirs. */
static int collect(const struct group *g, int64_t to, int64_t part, int64_t pieces, bool keep, struct slice *out)
{
    const struct job *j = g->j;
    int raw = j->src->dtype, rc = 0;
    if (to != g->me) {
        struct slice own;
        rc = slice_open(g, g->me, to, part, pieces, &own);
        return rc ? rc : slice_send(&own, 0, slice_group_rank(g, to), raw);
    }
    struct slice *term = arena_alloc(j->arena, (size_t)g->size * sizeof *term);
    if (!term)
        return error_nomem();
    for (int64_t k = 0; k < g->size && !rc; k++) {
        rc = slice_open(g, k, to, part, pieces, &term[k]);
        if (!rc && k != g->me)
            rc = slice_recv_temp(&term[k], 0, slice_group_rank(g, k), raw);
    }
    return rc ? rc : slice_fold(term, (size_t)g->size, 0, true, keep, row_div(j, g->size), out);
}

int row_phases_one(const struct job *j, const struct recognised *r)
{
    if (j->si < 0)
        return 0;
    struct group g;
    struct slice done;
    slice_group_open(j, r, &g);
    int rc = 0;
    for (int64_t k = 0; k < g.size && !rc; k++)
        rc = collect(&g, k, 0, 1, false, &done);
    return rc;
}

int row_phases_two(const struct job *j, const struct recognised *r)
{
    if (j->si < 0)
        return 0;
    struct group g;
    struct slice mine = {0}, b;
    slice_group_open(j, r, &g);
    int rc = 0;
    for (int64_t k = 0; k < g.size && !rc; k++) {
        rc = collect(&g, k, k, g.size, true, &b);
        if (k == g.me)
            mine = b;
    }
    for (int64_t k = 0; k < g.size && !rc; k++) {
        if (k == g.me)
            continue;
        rc = slice_send(&mine, 1, slice_group_rank(&g, k), j->wire);
        if (!rc)
            rc = slice_open(&g, k, g.me, k, g.size, &b);
        if (!rc)
            rc = slice_recv_dst(&b, 1, slice_group_rank(&g, k), j->wire);
    }
    return rc;
}
