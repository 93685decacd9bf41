/* Signals and barriers of all kinds in an order that chance chooses, with ranks that are early, late or asleep, and a
 * run of an exec in flight meanwhile, for as many seconds as rank 0 says. What was written before a signal is there
 * when the signal is. */
#ifndef WEFT_TESTS_WINDOW_STRESS_H
#define WEFT_TESTS_WINDOW_STRESS_H
#include <stdint.h>

#include "window_cases.h"

struct stress {
    struct ranks_rank *r;
    weft_window *w;
    struct random common, own; /* the same on all ranks; this rank's */
    int64_t round;
    const int64_t *stamps; /* of all ranks, as they store them here */
    uint64_t tokens, added, pings[RANKS_MAX];
};

/* *(int64_t *)arg nanoseconds. */
void stress_body(struct ranks_rank *r);
#endif
