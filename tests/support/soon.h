/* How soon survivors know of a death. Two seconds are promised where they have a core to run on; one that has to wait
 * for its core, on a machine that is busy with other things, hears later. So each must know within eight, which is
 * still before any deadline of these tests, and all within two but for one, and one more of each fifty. */
#ifndef WEFT_TESTS_SOON_H
#define WEFT_TESTS_SOON_H
#include <stdbool.h>
#include <stdint.h>

#define SOON_LATE_NS INT64_C(8000000000)

/* Counts a survivor that knew after so long; false: that is too late anywhere. */
bool soon_enough(int64_t ns);

/* Of all since the last time. */
void soon_judge(void);

/* For a test of few deaths: survivors of one are late together if the machine is busy at that moment. `die` returns how
 * long the slowest one took. If that is more than two seconds it is done again, a few times, and once all must know in
 * time. `die` itself bounds how late they may be. */
void soon_at_last(int64_t (*die)(void *arg), void *arg);
#endif
