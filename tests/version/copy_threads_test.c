/* Parts of a copy: each is done once, on any thread, and all are done when the call returns. */
#include "version/copy_threads.h"

#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "support/random.h"
#include "support/share.h"
#include "support/suite.h"

enum { MOST = 40 };

static void count(void *arg, int i)
{
    int *times = arg; /* not atomic: one thread at a time, and the caller after all of them */
    if (i % 8 == 3)
        sched_yield(); /* so that other threads claim some, too */
    times[i]++;
}

static void each_part_is_done_once(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 5; threads++) {
        struct copy_threads t;
        struct random r = random_of(0xc0b1, threads);
        copy_threads_begin(&t, threads, 1);
        for (int64_t round = 0; round < test_share(20000, 400000); round++) {
            int times[MOST] = {0}, parts = (int)random_in(&r, 0, MOST);
            copy_threads_run(&t, parts, count, times);
            for (int i = 0; i < MOST; i++)
                if (times[i] != (i < parts))
                    fail_msg("%d threads, round %lld: part %d of %d was done %d times", threads, (long long)round, i,
                             parts, times[i]);
        }
        assert_true(t.made < threads);
        copy_threads_end(&t);
    }
}

static void nothing_is_made_for_one_part(void **state)
{
    (void)state;
    struct copy_threads t;
    int times[1] = {0};
    copy_threads_begin(&t, 4, 1);
    copy_threads_run(&t, 1, count, times);
    assert_true(times[0] == 1 && t.made == 0);
    copy_threads_end(&t);
    assert_true(copy_threads_usual(1) >= 1 && copy_threads_usual(1) <= COPY_THREADS_USUAL);
    assert_int_equal(copy_threads_usual(1 << 20), 1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_part_is_done_once),
                                       cmocka_unit_test(nothing_is_made_for_one_part)};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
