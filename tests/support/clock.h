/* Time for tests. */
#ifndef WEFT_TESTS_CLOCK_H
#define WEFT_TESTS_CLOCK_H
#include <stdint.h>

#define MS INT64_C(1000000) /* in nanoseconds */
#define SECOND (1000 * MS)

/* Nanoseconds of a clock that only goes forward. */
int64_t clock_now(void);
void clock_pause(int64_t ns);
#endif
