/* What is put into windows, on any comm: random operations against an oracle, the order of puts and signals, also
 * through third ranks and barriers of the comm, large puts against each other, puts from callbacks. */
#ifndef WEFT_TESTS_WINDOW_PUTS_H
#define WEFT_TESTS_WINDOW_PUTS_H

#include "clock.h"
#include "ranks.h"

#define PUTS_LONG_NS (60 * SECOND)
void puts_random_body(struct ranks_rank *r);

/* Rank a puts to rank b and notifies rank c; c notifies b, which must have what a has put; for all a, b and c. */
void puts_third_body(struct ranks_rank *r);

/* A barrier of the comm and not of the window: what was put before it is there behind it. */
void puts_barrier_body(struct ranks_rank *r);

/* All put *(int64_t *)arg bytes to all others at the same time, and then add as much. */
void puts_large_body(struct ranks_rank *r);

/* Each puts to the next from a callback of an exec that ends, all at the same time. */
void puts_callback_body(struct ranks_rank *r);
#endif
