/* The floor: the same work written directly on shared mappings, without a library, matching or staging. It is a
 * yardstick for weft and its peers, not a design. */
#ifndef WEFT_BENCH_RANKS_FLOOR_H
#define WEFT_BENCH_RANKS_FLOOR_H
#include "bench/ranks/orders.h"

enum floor_wait { FLOOR_SPIN, FLOOR_YIELD, FLOOR_HYBRID }; /* hybrid: some yields, then a futex */

struct floor;

/* Makes windows of `in` and `out` bytes for each rank. Called before the ranks are forked. Staged: the user's tensors
 * are in private memory; inputs are copied into the windows first, and results go straight to private memory. NULL if
 * there is no memory. */
struct floor *floor_create(int ranks, enum floor_wait wait, bool staged, size_t in, size_t out);
/* Runs one rank, in its process, until an order says to quit. */
void floor_serve(struct floor *f, int rank, struct orders *b);
void floor_free(struct floor *f);
#endif
