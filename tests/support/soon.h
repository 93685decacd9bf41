/* How soon survivors know of a death. Two seconds are promised where they have a core to run on; one that has to wait
 * for its core, on a machine that is busy with other things, hears later. So each must know within eight, which is
 * still before any deadline of these tests, and all within two but for one, and one more of each fifty. */
#ifndef WEFT_TESTS_SOON_H
#define WEFT_TESTS_SOON_H
#include <stdbool.h>
#include <stdint.h>

#define SOON_NS INT64_C(2000000000)
#define SOON_LATE_NS INT64_C(8000000000)

static struct {
    int all, late;
} soon;

/* Counts a survivor that knew after so long; false: that is too late anywhere. */
static inline bool soon_enough(int64_t ns)
{
    soon.all++;
    soon.late += ns > SOON_NS;
    return ns <= SOON_LATE_NS;
}

/* Of all since the last time. */
static inline void soon_judge(void)
{
    int all = soon.all, late = soon.late;
    soon.all = soon.late = 0;
    if (late > 0)
        print_message("%d of %d survivors knew after more than 2 s\n", late, all);
    if (late > 1 + all / 50)
        fail_msg("%d of %d survivors knew after more than 2 s", late, all);
}
#endif
