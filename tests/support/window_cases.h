/* What a window must do on any transport whose ranks reach each other's memory. Each case is a function of a rank with
 * its comm; ranks share nothing else, so they may be threads or processes. */
#ifndef WEFT_TESTS_WINDOW_CASES_H
#define WEFT_TESTS_WINDOW_CASES_H
#include <stddef.h>
#include <stdint.h>

#include "clock.h"
#include "random.h"
#include "ranks.h"

#define WINDOW_LONG (60000 * MS) /* beyond it something is stuck */

/* The buffer's number; -1, which no call takes, if there is none. */
int window_number(const weft_window *w, const char *name);

/* Stores into the rank's memory through its pointer, or by put where it is on another host and has none. */
int window_store(weft_window *w, int buffer, int rank, int64_t offset, const void *src, int64_t count, size_t size);
void window_shape(struct ranks_rank *r);

/* A ring: each hands on what it got, changed, by put and signal; one message is under way at each rank. */
void window_ping_pong(struct ranks_rank *r);

/* All ranks add to all ranks at once, one and minus one in turn, so that every sum on the way is exact in every dtype.
 * An add that is lost shows in the end. */
void window_add(struct ranks_rank *r);

/* Integers wrap, infinities and NaN go as in any sum, and the NaN is one. */
void window_add_ends(struct ranks_rank *r);
void window_compare(struct ranks_rank *r);
void window_timeouts(struct ranks_rank *r);

/* Rank 1 asks for something else than the others, or for something that there is not: all get the same words. */
void window_mismatch(struct ranks_rank *r);
void window_arguments(struct ranks_rank *r);
void window_skew(struct random *rnd);

/* No rank is ahead of another by more than the barrier allows, in any of many generations. */
void window_generations(struct ranks_rank *r);

/* A ring of neighbours: a rank can be ahead of one that is k ranks away by k turns at most, and of those beside it only
 * as the barrier allows. */
void window_neighbours(struct ranks_rank *r);

/* {0,1}, {1,2} and {0,2} at the same time on one window, and now and then all three. */
void window_overlap(struct ranks_rank *r);
#endif
