/* The property campaign on shm: with 1 to 8 processes, which stay from case to case; data in window memory and in
 * private memory, which is staged or read by the system. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "property_processes.h"
#include "property_report.h"
#include "property_runs.h"
#include "support/property_random.h"
#include "support/share.h"
#include "support/suite.h"

static const char *program;
static struct process_groups groups;
static int64_t of_size[PROCESSES_RANKS + 1], in_windows, reading;

static bool run_on_processes(struct trial_job *j, bool *refused, struct why *why)
{
    return processes_run(&groups, j, refused, why);
}

static bool law_run(const struct property_case *c, struct why *why)
{
    int size = c->on > case_world(c) ? c->on : case_world(c); /* shrinking may have left fewer */
    return processes_get(&groups, size, why) && runs_law(c, size, NULL, run_on_processes, why);
}

/* Cases of more ranks are left out. Where there is room, a case gets idle ranks, so that there are groups of all sizes.
 */
static void one_case(int64_t number)
{
    struct property_case c;
    random_case(RUNS_SEED, number, &c);
    int world = case_world(&c), size = 1 + (int)(c.seed % PROCESSES_RANKS);
    if (world > PROCESSES_RANKS)
        return;
    runs_pick_algorithm(&c);
    c.processes = true;
    c.private = c.seed / 8 % 3 == 0;
    c.on = size > world ? size : 0;
    runs_seen.cases++;
    in_windows += !c.private;
    reading += processes_way(&c) == 2;
    of_size[size > world ? size : world]++;
    report_law(program, law_run, c);
}

static void random_cases_run_right_on_processes(void **state)
{
    (void)state;
    int64_t n = test_share(5000, 50000);
    report_install(); /* in place of cmocka's */
    for (int64_t i = 0; runs_seen.cases < n && !report.broken; i++)
        one_case(i);
    runs_judge("processes");
    print_message("%lld in window memory, %lld read out of private memory; groups of", (long long)in_windows,
                  (long long)reading);
    assert_true(reading > n / 50);
    for (int size = 1; size <= PROCESSES_RANKS; size++)
        print_message(" %d: %lld", size, (long long)of_size[size]);
    print_message("\n");
    for (int size = 1; size <= PROCESSES_RANKS && n >= 1000; size++)
        assert_true(of_size[size] > 0);
    processes_close(&groups);
}

int main(int argc, char **argv)
{
    program = argv[0];
    if (argc == 3 && argv[1][0] >= '0' && argv[1][0] <= '9') {
        int code = report_range(argv, one_case);
        processes_close(&groups);
        return code;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_cases_run_right_on_processes)};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
