/* The table of algorithms for pairs that are known collectives, and the chooser over it. The general lowering
 * ("direct") fits everything. A row fits some kinds; it may move more bytes than the bound, and states how many. */
#ifndef WEFT_LOWER_ROWS_ROWS_H
#define WEFT_LOWER_ROWS_ROWS_H
#include "lower/rows/slice.h"

/* The cost of an algorithm: how many messages must follow each other, how many pass through the busiest rank, and how
 * many bytes. */
struct row_cost {
    int64_t depth, messages, bytes;
};

struct row {
    const char *name;
    const char *kind; /* of recognise */
    bool in_place;    /* it is also right if source and destination share their memory */
    bool power_of_two;
    bool hosts;  /* for ranks on several hosts */
    bool shares; /* all ranks of a host use its link at once */
    int (*lower)(const struct job *j, const struct recognised *r);
    /* This rank's share of the bytes that the algorithm moves; the sum over all ranks is what all of them send.
     * Negative: an error. */
    int64_t (*stated)(const struct job *j, const struct recognised *r);
    /* bytes: of one rank's larger side. cost may be NULL: see row_levels_cost. */
    void (*cost)(int64_t members, int64_t bytes, struct row_cost *out);
};

/* *row is NULL for the general lowering. Refuses a forced algorithm that does not fit. */
int rows_choose(const struct job *j, const struct recognised *r, const weft_lower_opts *o, const struct row **row);

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
/* The costs of the levels' algorithms between hosts, and inside one. */
void row_levels_cost(const char *kind, int64_t hosts, int64_t members, int64_t bytes, struct row_cost *between,
                     struct row_cost *inside);
int row_alltoall_pairwise(const struct job *j, const struct recognised *r);
int row_alltoall_bruck(const struct job *j, const struct recognised *r);
#endif
