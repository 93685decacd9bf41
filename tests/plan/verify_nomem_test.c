/* Every allocation that verify makes fails once: it says so, and leaks nothing (the sanitizer build
 * looks). The linker sends the library's allocations through here. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "support/nomem.h"
#include "support/suite.h"
#include "weft.h"

/* How many allocations there are; each has failed once. */
static long exhaust(const weft_plan *const *all, size_t n, int result)
{
    for (long k = 0;; k++) {
        nomem_until = k;
        int rc = weft_plan_verify(all, n);
        bool reached = nomem_until < 0;
        nomem_until = -1;
        if (!reached) {
            assert_int_equal(rc, result);
            return k;
        }
        assert_int_equal(rc, WEFT_ENOMEM);
        assert_string_equal(weft_errmsg(), "out of memory");
    }
}

static void every_failed_allocation_is_reported(void **state)
{
    (void)state;
    static const struct {
        const char *src, *dst, *algorithm;
        bool in_place;
    } cases[] = {
        {"f32[24] @x4 +sum(x)", "f32[24] @x4", "direct", true},
        {"bf16[25] @x4 +avg(x)", "f32[25] @x4", "ring", false},
        {"i32[12/x~2o,6/y~1] @x2.y2 +sum(~)", "i32[12/x,6] @x4", "direct", false},
        {"i16[40/x:3,4] @x3", "i16[40/x:2,4~1o] @x4", "direct", false},
    };
    long most = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_layout *a, *b;
        assert_int_equal(weft_layout_parse(cases[i].src, &a), 0);
        assert_int_equal(weft_layout_parse(cases[i].dst, &b), 0);
        weft_plan *p[4];
        weft_lower_opts o = {
            .size = sizeof o, .world = 4, .algorithm = cases[i].algorithm, .in_place = cases[i].in_place};
        for (int r = 0; r < 4; r++)
            assert_int_equal(weft_lower(&(weft_move){"w", a, b}, 1, r, &o, &p[r]), 0);
        long n = exhaust((const weft_plan *const *)p, 4, 0);
        most = n > most ? n : most;
        weft_plan *last = p[3]; /* and on the way to an error */
        p[3] = p[2];
        exhaust((const weft_plan *const *)p, 4, WEFT_EMISMATCH);
        p[3] = last;
        for (int r = 0; r < 4; r++)
            weft_plan_free(p[r]);
        weft_layout_free(a);
        weft_layout_free(b);
    }
    assert_true(most > 20);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_failed_allocation_is_reported)};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
