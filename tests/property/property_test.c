/* The property campaign, on plans that run in one thread: random pairs of layouts, and the laws of property_laws.h for
 * each. A case that breaks one is made small and shown as the command that runs it again. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "property_laws.h"
#include "property_report.h"
#include "support/property_random.h"
#include "support/share.h"
#include "support/suite.h"

#define SEED 20240611

static const char *program;

/* What the campaign has seen, so that a law is not kept by having nothing to judge. */
static struct {
    int64_t cases, algorithm[16];
} seen;

static bool takes(const struct property_case *c)
{
    struct lab l;
    struct why why = {"", ""};
    bool ok = lab_layouts(&l, c, case_world(c), &why) && lab_fits(&l, &why);
    lab_close(&l);
    return ok || why.text[0];
}

static void one_case(int64_t number)
{
    struct property_case c;
    random_case(SEED, number, &c);
    random_hosts(SEED, &c);
    c.staged = false;
    seen.cases++;
    c.algorithm = "direct";
    report_law(program, laws_of_lowering, c);
    seen.algorithm[0]++;
    c.algorithm = number % 2 ? c.algorithm : NULL;
    report_law(program, law_return, c);
    report_law(program, law_adjoint, c);
    c.wild = false;
    for (size_t i = 1; (c.algorithm = weft_algorithm_name(i)); i++)
        if (takes(&c)) {
            report_law(program, laws_of_lowering, c);
            seen.algorithm[i]++;
        }
}

static void random_cases_keep_the_laws(void **state)
{
    (void)state;
    int64_t n = test_share(50000, 1000000);
    report_install(); /* in place of cmocka's */
    for (int64_t i = 0; i < n && !report.broken; i++)
        one_case(i);
    assert_int_equal(report.broken, 0);
    print_message("%lld cases;", (long long)seen.cases);
    for (size_t i = 0; weft_algorithm_name(i); i++) {
        print_message(" %s %lld", weft_algorithm_name(i), (long long)seen.algorithm[i]);
        assert_true(seen.algorithm[i] > n / 500);
    }
    print_message("\n");
}

/* Sizes up to the limits: no data, only plans. */
static void giant_cases_keep_the_laws_of_size(void **state)
{
    (void)state;
    int64_t n = test_share(1000, 20000);
    report_install();
    for (int64_t i = 0; i < n && !report.broken; i++) {
        struct property_case c;
        random_giant(SEED, i, &c);
        c.algorithm = "direct";
        report_law(program, laws_of_size, c);
    }
    assert_int_equal(report.broken, 0);
}

int main(int argc, char **argv)
{
    program = argv[0];
    if (argc == 3 && argv[1][0] >= '0' && argv[1][0] <= '9')
        return report_range(argv, one_case);
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_cases_keep_the_laws),
                                       cmocka_unit_test(giant_cases_keep_the_laws_of_size)};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
