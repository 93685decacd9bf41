/* The property campaign on the engine, with ranks that are threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "property_runs.h"
#include "support/share.h"

static const char *program;
static struct engine engine;

static bool run_on_threads(struct engine_job *j, bool *refused, struct why *why)
{
    return engine_run(&engine, j, refused, why);
}

static bool law_run(const struct property_case *c, struct why *why)
{
    struct engine_team *team = engine_team_for(&engine, case_world(c), why);
    return team && runs_law(c, team->size, team, run_on_threads, why);
}

static void one_case(int64_t number)
{
    struct property_case c;
    random_case(RUNS_SEED, number, &c);
    runs_pick_algorithm(&c);
    c.on = engine_size[engine_team_number(case_world(&c))];
    runs_seen.cases++;
    report_law(program, law_run, c);
}

static void campaign(void **state)
{
    (void)state;
    int64_t n = test_share(50000, 1000000);
    report_install(); /* in place of cmocka's */
    for (int64_t i = 0; i < n && !report.broken; i++)
        one_case(i);
    runs_judge("threads");
    engine_close(&engine);
}

int main(int argc, char **argv)
{
    program = argv[0];
    if (argc > 2) {
        int code = report_range(argv, one_case);
        engine_close(&engine);
        return code;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(campaign)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
