/* One rank of weft with many small tensors: all in one plan, and each in a plan of its own, bound to the same buffers.
 */
#ifndef WEFT_BENCH_RANKS_RANK_MANY_H
#define WEFT_BENCH_RANKS_RANK_MANY_H
#include "bench/ranks/orders.h"
#include "weft.h"

struct rank_many;

/* Lowers and binds both; the buffers are as work_sizes() says. made[] has the seconds it took, for each of the ways to
 * run. */
int rank_many_open(weft_comm *comm, const char *algorithm, const struct work_cell *cell, void *in, void *out,
                   double made[ORDERS_WAYS], struct rank_many **result);
/* way 0: the one plan; 1: one each, all started, then all waited for; 2: one each, one after another. */
int rank_many_run(struct rank_many *m, int way);
void rank_many_free(struct rank_many *m);
const weft_exec *rank_many_exec(const struct rank_many *m); /* of the one plan */
#endif
