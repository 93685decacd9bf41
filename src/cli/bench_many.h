/* One rank of weft with many small tensors: all in one plan, and each in a plan of its own, bound to the same buffers.
 */
#ifndef WEFT_CLI_BENCH_MANY_H
#define WEFT_CLI_BENCH_MANY_H
#include "bench/board.h"
#include "weft.h"

struct many;

/* Lowers and binds both; the buffers are as work_sizes() says. made[] is what it took, for each of the ways to run. */
int many_open(weft_comm *comm, const char *algorithm, const struct work_cell *cell, void *in, void *out,
              double made[BOARD_WAYS], struct many **result);
/* way 0: the one plan; 1: one each, all started, then all waited for; 2: one each, one after another. */
int many_run(struct many *m, int way);
void many_free(struct many *m);
#endif
