/* One rank of weft that exchanges messages with its neighbours, who do not know their sizes. */
#ifndef WEFT_CLI_BENCH_EXCHANGE_H
#define WEFT_CLI_BENCH_EXCHANGE_H
#include "bench/work.h"
#include "weft.h"

struct bench_exchange;

/* The buffers are as work_sizes() says: to the left, to the right; from the left, from the right. */
int bench_exchange_open(weft_comm *comm, const struct work_cell *cell, float *in, float *out,
                        struct bench_exchange **result);
int bench_exchange_run(struct bench_exchange *e); /* one round */
void bench_exchange_free(struct bench_exchange *e);
#endif
