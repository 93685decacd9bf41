/* The table of algorithms for pairs that are known collectives, and the chooser over it. The general lowering
 * ("direct") fits every pair. A row fits one kind, and it may move more bytes than the bound.
 *
 * A new algorithm is one file, its functions here, and one row for each kind in the table of rows.c. The names that
 * weft info, weft_lower_opts and the tests know come from the table. What remains is its line in docs/limits.md and in
 * the output of weft info in docs/cli.md. The campaigns of random cases take it by themselves; test `plan_lower` checks
 * that all ranks together send what `stated` says.
 *
 * The chooser takes the row with the lowest cost. Of equal costs "direct" is taken, then the row that stands first. */
#ifndef WEFT_LOWER_ROWS_ROWS_H
#define WEFT_LOWER_ROWS_ROWS_H
#include "lower/rows/play.h"
#include "lower/rows/slice.h"

/* What a row is. */
enum row_is {
    ROW_IN_PLACE = 1,     /* right also when source and destination share their memory */
    ROW_POWER_OF_TWO = 2, /* for groups of 2, 4, 8, ... members only */
    ROW_HOSTS = 4,        /* for ranks on several hosts only */
    ROW_PARTS = 8,        /* of a broadcast or a reduce: ranks hand on parts of the tensor */
    ROW_SLABS = 16 /* row_slabs.c says which pairs it fits and, of kinds that are not played, for which it is best */
};

struct row {
    const char *name;
    const char *kind; /* the kind of pair that it is for, as recognise.h names them */
    unsigned is;      /* of enum row_is */
    int (*lower)(const struct job *j, const struct recognised *r);
    /* This rank's share of the bytes that the algorithm moves; the sum over all ranks is what all of them send.
     * Negative: an error. */
    int64_t (*stated)(const struct job *j, const struct recognised *r);
    void (*play)(struct stages *s, const struct play *x); /* plays its stages, for the chooser; NULL: ROW_SLABS */
};

/* *row is NULL for the general lowering. Refuses a forced algorithm that does not fit. */
int rows_choose(const struct job *j, const struct recognised *r, const weft_lower_opts *o, const struct row **row);

/* Elements in the buffer of a mesh position; 0 for position -1. */
static inline int64_t rows_count(const weft_layout *l, int64_t index)
{
    int64_t n = index < 0 ? 0 : 1;
    for (int d = 0; d < l->ndim && n; d++)
        n *= layout_piece_extent(l, d, layout_piece(l, index, d), NULL);
    return n;
}

/* Divisor of the finished value for n terms. */
static inline int64_t row_div(const struct job *j, int64_t n)
{
    return job_fold_op(j) == WEFT_AVG ? n : 0;
}

/* This rank's share of the fewest bytes that a pair of one of the rows' kinds must move. Negative: an error. */
int64_t rows_bound(const struct job *j, const struct recognised *r);

int row_phases_one(const struct job *j, const struct recognised *r);
int row_phases_two(const struct job *j, const struct recognised *r);
int row_ring_allgather(const struct job *j, const struct recognised *r);
int row_ring_reduce_scatter(const struct job *j, const struct recognised *r);
int row_ring_allreduce(const struct job *j, const struct recognised *r);
/* "ring2": in both directions. */
int row_ring_both_allgather(const struct job *j, const struct recognised *r);
int row_ring_both_reduce_scatter(const struct job *j, const struct recognised *r);
int row_ring_both_allreduce(const struct job *j, const struct recognised *r);
int row_doubling_allgather(const struct job *j, const struct recognised *r);
int row_doubling_reduce_scatter(const struct job *j, const struct recognised *r);
int row_doubling_allreduce(const struct job *j, const struct recognised *r);
int row_tree_broadcast(const struct job *j, const struct recognised *r);
int row_tree_reduce(const struct job *j, const struct recognised *r);
int row_levels_allreduce(const struct job *j, const struct recognised *r);
int row_levels_reduce_scatter(const struct job *j, const struct recognised *r);
int row_levels_reduce(const struct job *j, const struct recognised *r);
int64_t row_levels_stated_allreduce(const struct job *j, const struct recognised *r);
int64_t row_levels_stated_reduce_scatter(const struct job *j, const struct recognised *r);
int64_t row_levels_stated_reduce(const struct job *j, const struct recognised *r);
/* Are all groups that fold the same elements placed on hosts in the same way? Otherwise they would fold them in
 * different orders. */
int row_levels_alike(const struct job *j, const struct recognised *r, bool *alike);
int row_slabs(const struct job *j, const struct recognised *r);
int64_t row_slabs_stated(const struct job *j, const struct recognised *r);
int64_t row_slabs_bound(const struct job *j);     /* what the general lowering receives. Negative: an error */
const char *row_slabs_unfit(const struct job *j); /* why it does not fit the pair, or NULL */
/* Is it better than the general lowering? Only where all ranks share the memory of a host. */
bool row_slabs_pays(const struct job *j);
/* The same for a source without a fold: its replicas give a slab each. run: bytes of a run in the source. */
const char *row_shares_unfit(const struct job *j);
bool row_shares_pays(const struct job *j, int64_t run);
int row_shares_make(const struct job *j, weft_layout **out); /* the layout of the slabs */
int row_shares(const struct job *j, const weft_layout *slabs);
int row_alltoall_pairwise(const struct job *j, const struct recognised *r);
int row_alltoall_bruck(const struct job *j, const struct recognised *r);
#endif
