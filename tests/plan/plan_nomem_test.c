/* Every allocation of every plan function fails once: the function says so, leaves its outputs alone and leaks
 * nothing (the sanitizer build looks). The linker sends the library's allocations through here. */
#include <stddef.h>
#include <stdlib.h>

#include "support/nomem.h"
#include "support/plan_samples.h"
#include "support/suite.h"

struct input {
    const weft_plan *p;
    unsigned char *bytes;
    size_t len;
};

static int do_load(const struct input *in)
{
    weft_plan *q = NULL;
    int err = weft_plan_load(in->bytes, in->len, &q);
    assert_int_equal(err != 0, q == NULL);
    weft_plan_free(q);
    return err;
}

static int do_save(const struct input *in)
{
    size_t len = 0;
    int err = weft_plan_save(in->p, in->bytes, in->len, &len);
    assert_int_equal(len, err ? 0 : in->len);
    return err;
}

static int do_check(const struct input *in)
{
    return plan_check(in->p);
}

static int do_stats(const struct input *in)
{
    weft_stats st = {.size = sizeof st, .world = -5};
    int err = weft_plan_stats(in->p, &st);
    assert_int_equal(st.world == -5, err != 0);
    return err;
}

static int do_explain(const struct input *in)
{
    size_t len = 0;
    int err = weft_plan_explain(in->p, false, NULL, 0, &len);
    assert_int_equal(len == 0, err != 0);
    return err;
}

/* How many allocations f makes; each of them has failed once. */
static long exhaust(int (*f)(const struct input *), const struct input *in)
{
    for (long n = 0;; n++) {
        nomem_until = n;
        int err = f(in);
        bool reached = nomem_until < 0;
        nomem_until = -1;
        if (!reached) {
            assert_int_equal(err, 0);
            return n;
        }
        assert_int_equal(err, WEFT_ENOMEM);
        assert_string_equal(weft_errmsg(), "out of memory");
    }
}

static void every_failed_allocation_is_reported(void **state)
{
    (void)state;
    for (int i = 0; i < SAMPLES; i++) {
        weft_plan *p = samples[i].make(samples[i].rank);
        struct input in = {.p = p};
        assert_int_equal(weft_plan_save(p, NULL, 0, &in.len), 0);
        in.bytes = malloc(in.len);
        assert_true(exhaust(do_save, &in) >= 3);
        assert_true(exhaust(do_load, &in) >= 2);
        assert_true(exhaust(do_check, &in) >= 1);
        assert_true(exhaust(do_stats, &in) >= 1);
        assert_true(exhaust(do_explain, &in) >= 2);
        free(in.bytes);
        weft_plan_free(p);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_failed_allocation_is_reported)};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
