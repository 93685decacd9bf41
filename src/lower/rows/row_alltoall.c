/* Everyone to everyone. Pairwise: one partner a stage, so that no rank is sent to by all at once.
 * Bruck: log2 stages for small blocks; a block for the member d further on travels by the bits of
 * d, so it passes through others' scratch and moves more bytes in fewer messages. */
#include "base/error.h"
#include "lower/rows/rows.h"

int row_pairwise(const struct job *j, const struct recognised *r)
{
    if (j->si < 0)
        return 0;
    struct group g;
    struct block b;
    group_open(j, r, &g);
    int rc = block_open(&g, g.me, g.me, 0, 1, &b);
    if (!rc)
        rc = block_copy_dst(&b, 0);
    for (int64_t s = 1; s < g.size && !rc; s++) {
        int64_t to = (g.me + s) % g.size, from = (g.me - s + g.size) % g.size;
        rc = block_open(&g, g.me, to, 0, 1, &b);
        if (!rc)
            rc = block_send(&b, (int32_t)s - 1, group_rank(&g, to), j->wire);
        if (!rc)
            rc = block_open(&g, from, g.me, 0, 1, &b);
        if (!rc)
            rc = block_recv_dst(&b, (int32_t)s - 1, group_rank(&g, from), j->wire);
    }
    return rc;
}

int row_bruck(const struct job *j, const struct recognised *r)
{
    if (j->si < 0)
        return 0;
    struct group g;
    group_open(j, r, &g);
    int64_t n = g.size;
    struct block *at =
        arena_alloc(j->arena, (size_t)n * sizeof *at); /* the block with d still to travel from here on */
    if (!at)
        return error_nomem();
    int rc = 0;
    for (int64_t d = 0; d < n && !rc; d++)
        rc = block_open(&g, g.me, (g.me + d) % n, 0, 1, &at[d]);
    if (!rc)
        rc = block_copy_dst(&at[0], 0);
    int32_t stage = 0;
    for (int64_t bit = 1; bit < n && !rc; bit *= 2, stage++) {
        int next = group_rank(&g, (g.me + bit) % n), prev = group_rank(&g, (g.me - bit + n) % n);
        for (int64_t d = 0; d < n && !rc; d++)
            if (d & bit)
                rc = block_send(&at[d], stage, next, j->wire);
        for (int64_t d = 0; d < n && !rc; d++) {
            if (!(d & bit))
                continue;
            /* It comes of the member that is d's lower bits, this one included, behind; it goes on by the others. */
            int64_t low = d & (2 * bit - 1), origin = (g.me - low + n) % n, to = (origin + d) % n;
            rc = block_open(&g, origin, to, 0, 1, &at[d]);
            if (!rc)
                rc = to == g.me ? block_recv_dst(&at[d], stage, prev, j->wire)
                                : block_recv_temp(&at[d], stage, prev, j->wire);
        }
    }
    return rc;
}
