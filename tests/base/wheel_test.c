/* Timers of a wheel against a list that is searched: at random times, over all levels, taken back and moved, each timer
 * comes once, not before its time and not more than a millisecond after it. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/wheel.h"
#include "support/random.h"
#include "support/share.h"
#include "support/suite.h"

#define MS INT64_C(1000000)
enum { TIMERS = 200 };

struct timers {
    struct wheel wheel;
    struct wheel_timer timer[TIMERS];
    int64_t at[TIMERS]; /* in ns; -1: not set */
    int64_t now;
};

/* Pops all that is due, and looks whether these are the right ones. */
static void pop(struct timers *t)
{
    for (struct wheel_timer *p; (p = wheel_pop(&t->wheel, t->now));) {
        ptrdiff_t i = p - t->timer;
        assert_true(i >= 0 && i < TIMERS && t->at[i] >= 0);
        assert_true(t->at[i] <= t->now);
        t->at[i] = -1;
    }
    int64_t next = wheel_next(&t->wheel), first = INT64_MAX;
    for (int i = 0; i < TIMERS; i++) {
        if (t->at[i] < 0)
            continue;
        assert_true(t->at[i] > t->now - MS); /* none is left that is due */
        first = t->at[i] < first ? t->at[i] : first;
    }
    assert_true(next > t->now);
    assert_true(first == INT64_MAX ? next == INT64_MAX : next < first + MS);
}

/* A time to wait: of any level, more often short. */
static int64_t wait_ns(struct random *r)
{
    int64_t ns = INT64_C(1) << random_in(r, 0, 52);
    return random_in(r, 0, 1) ? ns : random_in(r, 0, ns);
}

static void timers_come_in_time(void **state)
{
    (void)state;
    for (int64_t seed = 0; suite_seed(&seed, 0, test_share(200, 20000)); seed++) {
        struct random r = {(uint64_t)seed};
        struct timers *t = calloc(1, sizeof *t);
        assert_non_null(t);
        t->now = random_in(&r, 0, INT64_C(1) << 50);
        for (int i = 0; i < TIMERS; i++)
            t->at[i] = -1;
        for (int step = 0; step < 1000; step++) {
            int i = (int)random_in(&r, 0, TIMERS - 1);
            if (t->at[i] >= 0) {
                wheel_remove(&t->wheel, &t->timer[i]);
                t->at[i] = -1;
            } else {
                t->at[i] = t->now + wait_ns(&r);
                wheel_add(&t->wheel, &t->timer[i], t->at[i]);
            }
            if (random_in(&r, 0, 2) == 0) {
                int64_t next = wheel_next(&t->wheel);
                t->now = random_in(&r, 0, 1) && next < INT64_MAX && next > t->now ? next : t->now + wait_ns(&r) / 4;
                pop(t);
            }
        }
        while (wheel_next(&t->wheel) < INT64_MAX) {
            t->now = wheel_next(&t->wheel) > t->now ? wheel_next(&t->wheel) : t->now;
            pop(t);
        }
        for (int i = 0; i < TIMERS; i++)
            assert_int_equal(t->at[i], -1);
        wheel_remove(&t->wheel, &t->timer[0]); /* one that is not set */
        free(t);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(timers_come_in_time)};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
