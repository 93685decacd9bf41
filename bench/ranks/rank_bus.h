/* A rank of weft bench bus, in a process of its own: rank r of the publisher and of the reader, and of a comm for the
 * way over a gather. Each function is a worker_work whose argument is the job; those that are timed leave their times
 * there. */
#ifndef WEFT_BENCH_RANKS_RANK_BUS_H
#define WEFT_BENCH_RANKS_RANK_BUS_H
#include <stdbool.h>
#include <stdint.h>

enum { RANK_BUS_RANKS = 2, RANK_BUS_TENSORS = 5000 };

/* Where f32 becomes bf16, and whether digests are made and checked. */
struct rank_bus_way {
    bool cast_at_fetch, digest;
};
/* What parent and ranks share. */
struct rank_bus_job {
    char url[300], comm[64];
    int tensors, rounds;
    int64_t rows, columns, step, wrong;
    bool cpu;
    struct rank_bus_way way;
    bool fused; /* gathers and casts at once */
    double begin[RANK_BUS_RANKS], end[RANK_BUS_RANKS], used[RANK_BUS_RANKS];
};

int64_t rank_bus_elements(const struct rank_bus_job *j); /* of one rank, of all tensors */

int rank_bus_input(void *job, int rank); /* once */
int rank_bus_begin(void *job, int rank); /* publishes and subscribes in the job's way */
int rank_bus_end(void *job, int rank);
int rank_bus_check(void *job, int rank); /* the live version, element by element */
int rank_bus_gather_open(void *job, int rank);
int rank_bus_gather_close(void *job, int rank);

/* Timed: */
int rank_bus_memcpy(void *job, int rank); /* as many bytes as the rank's tensors have in f32 */
int rank_bus_put(void *job, int rank);
int rank_bus_fetch(void *job, int rank);
int rank_bus_both(void *job, int rank); /* from the beginning of put to the end of fetch */
int rank_bus_gather(void *job, int rank);
#endif
