/* Every member sends to every member. Pairwise: one partner in each stage, so that not all ranks send to one at once.
 * Bruck: log2 stages for small slices. A slice for the member d further on moves once for each bit of d, through
 * scratch of other members: more bytes in fewer messages. */
#include "base/error.h"
#include "lower/rows/rows.h"

int row_alltoall_pairwise(const struct job *j, const struct recognised *r)
{
    if (j->si < 0)
        return 0;
    struct group g;
    struct slice b;
    slice_group_open(j, r, &g);
    int rc = slice_open(&g, g.me, g.me, 0, 1, &b);
    if (!rc)
        rc = slice_copy_dst(&b, 0);
    for (int64_t s = 1; s < g.size && !rc; s++) {
        int64_t to = (g.me + s) % g.size, from = (g.me - s + g.size) % g.size;
        rc = slice_open(&g, g.me, to, 0, 1, &b);
        if (!rc)
            rc = slice_send(&b, (int32_t)s - 1, slice_group_rank(&g, to), j->wire);
        if (!rc)
            rc = slice_open(&g, from, g.me, 0, 1, &b);
        if (!rc)
            rc = slice_recv_dst(&b, (int32_t)s - 1, slice_group_rank(&g, from), j->wire);
    }
    return rc;
}

int row_alltoall_bruck(const struct job *j, const struct recognised *r)
{
    if (j->si < 0)
        return 0;
    struct group g;
    slice_group_open(j, r, &g);
    int64_t n = g.size;
    struct slice *at = arena_alloc(j->arena, (size_t)n * sizeof *at); /* the slice that still has to move by d */
    if (!at)
        return error_nomem();
    int rc = 0;
    for (int64_t d = 0; d < n && !rc; d++)
        rc = slice_open(&g, g.me, (g.me + d) % n, 0, 1, &at[d]);
    if (!rc)
        rc = slice_copy_dst(&at[0], 0);
    int32_t stage = 0;
    for (int64_t bit = 1; bit < n && !rc; bit *= 2, stage++) {
        int next = slice_group_rank(&g, (g.me + bit) % n), prev = slice_group_rank(&g, (g.me - bit + n) % n);
        for (int64_t d = 0; d < n && !rc; d++)
            if (d & bit)
                rc = slice_send(&at[d], stage, next, j->wire);
        for (int64_t d = 0; d < n && !rc; d++) {
            if (!(d & bit))
                continue;
            /* It comes from the member that is behind by d's lower bits, with this bit. The higher bits are still to
             * come. */
            int64_t low = d & (2 * bit - 1), origin = (g.me - low + n) % n, to = (origin + d) % n;
            rc = slice_open(&g, origin, to, 0, 1, &at[d]);
            if (!rc)
                rc = to == g.me ? slice_recv_dst(&at[d], stage, prev, j->wire)
                                : slice_recv_temp(&at[d], stage, prev, j->wire);
        }
    }
    return rc;
}
