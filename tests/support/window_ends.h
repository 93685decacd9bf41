/* How windows end: freed in any order, left behind, and missed by those who wait. */
#ifndef WEFT_TESTS_WINDOW_ENDS_H
#define WEFT_TESTS_WINDOW_ENDS_H

#include "window_cases.h"

/* A rank that has freed its window can still be put to, and windows come and go in any order. */
void window_lives(struct ranks_rank *r);

/* The last rank frees its window while the others are in a barrier with it. */
void window_gone(struct ranks_rank *r);

/* Nobody is left who could notify: the call ends, the comm goes on. */
void window_alone(struct ranks_rank *r);

/* A wait in a window makes progress with what is in flight: here rank 1 must pack message after message, since few are
 * allowed in flight, while it waits for a signal that rank 0 sends when it has them all. */
void window_progress(struct ranks_rank *r);
#endif
