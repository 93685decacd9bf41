/* weft bench bus --trainer: rank 0 is a trainer whose thread computes and makes no call of weft, and rank 1 reads its
 * version again and again. Each function is a worker_work whose argument is the job. */
#ifndef WEFT_BENCH_RANKS_RANK_BUS_TRAIN_H
#define WEFT_BENCH_RANKS_RANK_BUS_TRAIN_H
#include <stdbool.h>
#include <stdint.h>

enum { RANK_BUS_TRAIN_RANKS = 2 };

struct rank_bus_train_job {
    char url[300];
    int64_t bytes, tensors;
    bool lent;          /* threads of the trainer copy for the reader; otherwise the reader maps the snapshot */
    bool trains, reads; /* in this turn */
    double seconds;     /* of a turn */
    _Atomic int over;
    /* what a turn has found: */
    double step; /* seconds of a step */
    double rate; /* bytes a second that the reader has staged and checked */
};

int rank_bus_train_begin(void *job, int rank); /* publishes a version, and subscribes */
int rank_bus_train_turn(void *job, int rank);
int rank_bus_train_end(void *job, int rank);
#endif
