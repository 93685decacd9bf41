/* The property campaign on the engine, with ranks that are threads. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "property_report.h"
#include "property_runs.h"
#include "support/property_random.h"
#include "support/share.h"
#include "support/suite.h"

static const char *program;
static struct trial_groups engine;

static bool run_on_threads(struct trial_job *j, bool *refused, struct why *why)
{
    return trial_run(&engine, j, refused, why);
}

static bool law_run(const struct property_case *c, struct why *why)
{
    struct trial_group *group = trial_group_for(&engine, case_world(c), why);
    return group && runs_law(c, group->size, group, run_on_threads, why);
}

static void one_case(int64_t number)
{
    struct property_case c;
    random_case(RUNS_SEED, number, &c);
    runs_pick_algorithm(&c);
    c.on = trial_size[trial_group_number(case_world(&c))];
    runs_seen.cases++;
    report_law(program, law_run, c);
}

static void random_cases_run_right_on_threads(void **state)
{
    (void)state;
    int64_t n = test_share(50000, 1000000);
    report_install(); /* in place of cmocka's */
    for (int64_t i = 0; i < n && !report.broken; i++)
        one_case(i);
    runs_judge("threads");
    trial_close(&engine);
}

int main(int argc, char **argv)
{
    program = argv[0];
    if (argc == 3 && argv[1][0] >= '0' && argv[1][0] <= '9') {
        int code = report_range(argv, one_case);
        trial_close(&engine);
        return code;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_cases_run_right_on_threads)};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
