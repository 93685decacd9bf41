/* Tests that fail on purpose, in every way that a test can fail, for suite_test.sh. */
#define _GNU_SOURCE
#include <signal.h>
#include <string.h>

#include "support/conformance.h"
#include "support/exec_job.h"
#include "support/ranks.h"
#include "support/suite.h"
#include "support/tensors.h"
#include "support/values.h"

static void holds(void **state)
{
    (void)state;
}

static void assertion_fails(void **state)
{
    (void)state;
    assert_int_equal(1 + 1, 3);
}

static void is_skipped(void **state)
{
    (void)state;
    print_message("skip: on purpose\n");
    skip();
}

static void crashes(void **state)
{
    (void)state;
    raise(SIGSEGV);
}

static void seed_seven_fails(void **state)
{
    (void)state;
    for (int64_t i = 1; suite_seed(&i, 1, 10); i++)
        assert_true(i != 7);
}

static int refuse(void **state)
{
    (void)state;
    return 1;
}

static void slots_differ(void **state)
{
    (void)state;
    static const int32_t found[6] = {10, 11, 12, -3, 14, 0};
    values_begin();
    for (int i = 0; i < 6; i++)
        VALUES_CHECK(i, found[i], 10 + i);
    assert_int_equal(values_wrong(), 0);
}

static void run_fails(struct ranks_rank *r)
{
    RANKS_CHECK(r, r->rank != 1);
}

static void rank_one_fails(void **state)
{
    (void)state;
    ranks_run(3, NULL, run_fails, NULL, NULL);
}

/* The destination is damaged on rank 1 after the move: rows 2 and 3 of four are its. */
static void run_damaged(struct ranks_rank *r)
{
    static const struct move rows = {.src = "i32[4,5/x] @x2", .dst = "i32[4/x,5] @x2"};
    struct job j;
    RANKS_OK(r, job_make(&j, &rows, r));
    job_seed(&j, r->rank, 0);
    RANKS_OK(r, weft_exec_run(j.exec));
    if (r->rank == 1)
        for (int i = 7; i < 10; i++)
            ((int32_t *)j.out)[i] = 1000 + i;
    RANKS_CHECK(r, job_wrong(&j, r->rank, 0) == 0);
    job_free(&j);
}

static void elements_are_wrong(void **state)
{
    (void)state;
    ranks_run(2, NULL, run_damaged, NULL, NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest once[] = {
        cmocka_unit_test(holds),
        cmocka_unit_test(assertion_fails),
        cmocka_unit_test(is_skipped),
        cmocka_unit_test(crashes),
        cmocka_unit_test(seed_seven_fails),
        cmocka_unit_test(slots_differ),
        {"setup_fails", holds, refuse, NULL, NULL},
        {"teardown_fails", holds, NULL, refuse, NULL},
        {"is it quoted?", assertion_fails, NULL, NULL, NULL},
    };
    const struct CMUnitTest on_ranks[] = {
        cmocka_unit_test(rank_one_fails),
        cmocka_unit_test(elements_are_wrong),
    };
    const struct CMUnitTest never[] = {{"never_begins", holds, NULL, NULL, NULL}};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(once), SUITE_AT(&conformance_everywhere, on_ranks),
                      SUITE_FIXTURE(never, refuse, NULL));
}
