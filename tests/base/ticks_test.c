/* The clock by the counter: it tells the time of CLOCK_MONOTONIC, and never goes back. */
#define _GNU_SOURCE
#include <stdio.h>
#include <time.h>

#include "base/ticks.h"
#include "support/suite.h"

#define ERROR_NS 10000 /* far more than it can be, but looks of this test may lie apart, too */

int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);

static int64_t clock_now(void)
{
    struct timespec t;
    __real_clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t held_ns; /* for so long each look at the clock holds up who looks, as if others had the core */

int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
    int err = __real_clock_gettime(clock, t);
    for (int64_t began = held_ns ? clock_now() : 0; held_ns && clock_now() < began + held_ns;)
        ;
    return err;
}

/* Looks for 20 ms: at first each look asks the system, then the counter is trusted. */
static void it_tells_the_time_of_the_clock(void **state)
{
    (void)state;
    struct ticks t = {0};
    int64_t began = clock_now(), before = began, after, last = 0;
    for (uint32_t i = 0; before < began + 20000000; i++) {
        before = clock_now();
        int64_t now = i % 2 ? ticks_now(&t) : ticks_after(&t);
        after = clock_now();
        if (now < last)
            fail_msg("look %u goes back from %lld to %lld", i, (long long)last, (long long)now);
        if (now < before - ERROR_NS || now > after + ERROR_NS)
            fail_msg("look %u says %lld between %lld and %lld", i, (long long)now, (long long)before, (long long)after);
        last = now;
    }
}

static void look_for(struct ticks *t, int64_t ns)
{
    for (int64_t began = clock_now(); clock_now() < began + ns;)
        (void)ticks_now(t);
}

/* Otherwise the other tests would see nothing but the clock. On a busy machine three pairs in a row may need some time.
 */
static void a_counter_that_is_even_is_trusted(void **state)
{
    (void)state;
#if defined(__aarch64__)
    struct ticks t = {0};
    for (int i = 0; i < 2000 && !t.span; i++)
        look_for(&t, 5 * TICKS_SPAN);
    assert_true(t.span > 0 && t.each > 0);
#else
    puts("skip: the counter may be uneven here");
    skip();
#endif
}

/* A machine that was stopped, or moved to another one: the counter goes on elsewhere, or at another speed. */
static void a_counter_that_jumps_is_found_out(void **state)
{
    (void)state;
    static const int64_t jumps[] = {1, -1, 1000, -1000, INT64_C(1) << 40, -(INT64_C(1) << 40), 0};
    for (size_t i = 0; i < sizeof jumps / sizeof *jumps; i++) {
        struct ticks t = {0};
        look_for(&t, 5 * TICKS_SPAN);
        t.at += (uint64_t)jumps[i];
        t.each *= jumps[i] ? 1 : 2;
        look_for(&t, 5 * TICKS_SPAN); /* the next pairs are read, and the clock passes what was too far ahead */
        int64_t before = clock_now(), now = ticks_now(&t), after = clock_now();
        if (now < before - ERROR_NS || now > after + ERROR_NS)
            fail_msg("jump %d: it says %lld between %lld and %lld", (int)i, (long long)now, (long long)before,
                     (long long)after);
    }
}

/* What was trusted is trusted again only if a tick takes as long as before. */
static void a_tick_of_another_length_is_not_trusted(void **state)
{
    (void)state;
    struct ticks t = {0};
    look_for(&t, 5 * TICKS_SPAN);
    if (!t.span) {
        puts("skip: this machine has no counter that can be trusted");
        skip();
    }
    t.each += t.each / 100;
    for (int64_t began = clock_now(); clock_now() < began + 2 * TICKS_SPAN;)
        ;
    int64_t before = clock_now(), now = ticks_now(&t), after = clock_now();
    assert_true(now >= before && now <= after);
    assert_int_equal(t.span, 0);
}

/* A pair that took long may lie far apart, even if all of them do alike. */
static void a_pair_that_took_long_is_not_trusted(void **state)
{
    (void)state;
    struct ticks t = {0};
    look_for(&t, 5 * TICKS_SPAN);
    held_ns = 20000;
    look_for(&t, 2 * TICKS_SPAN);
    for (int i = 0; i < 1000; i++) {
        (void)ticks_now(&t);
        if (t.span)
            fail_msg("look %d trusts a counter that was read 20 us beside the clock", i);
    }
    held_ns = 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_tells_the_time_of_the_clock),
        cmocka_unit_test(a_counter_that_is_even_is_trusted),
        cmocka_unit_test(a_counter_that_jumps_is_found_out),
        cmocka_unit_test(a_tick_of_another_length_is_not_trusted),
        cmocka_unit_test(a_pair_that_took_long_is_not_trusted),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
