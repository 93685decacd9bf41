/* One rank of weft that exchanges messages with its neighbours, which do not know the sizes before. */
#ifndef WEFT_BENCH_RANKS_RANK_EXCHANGE_H
#define WEFT_BENCH_RANKS_RANK_EXCHANGE_H
#include "bench/work/work.h"
#include "weft.h"

struct rank_exchange;

/* The buffers are as work_sizes() says: to the left, to the right; from the left, from the right. */
int rank_exchange_open(weft_comm *comm, const struct work_cell *cell, float *in, float *out,
                       struct rank_exchange **result);
int rank_exchange_run(struct rank_exchange *e); /* one round */
void rank_exchange_free(struct rank_exchange *e);
#endif
