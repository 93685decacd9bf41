/* The property campaign with memory on a device: ranks that are processes, and then threads, since a process that has
 * used a GPU cannot be forked; all sides on the device, or some of them; done by the launcher, through pinned slots, or
 * mirrored on the host; and by NCCL, which the simulated device has, and a GPU with NCCL_MULTI_RANK_GPU_ENABLE=1.
 * The device is the simulated one, unless WEFT_DEVICE says otherwise. WEFT_TEST_RANKS=N runs the cases with N ranks
 * alone. */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "property_device.h"
#include "property_processes.h"
#include "property_report.h"
#include "property_runs.h"
#include "support/property_random.h"
#include "support/share.h"
#include "support/suite.h"

#define DEVICE_RANKS 8

static const char *program;
static struct trial_groups engine;
static struct process_groups groups;
static int64_t launched, carried, mirrored;

static bool run_on_threads(struct trial_job *j, bool *refused, struct why *why)
{
    return trial_run(&engine, j, refused, why);
}

static bool run_on_processes(struct trial_job *j, bool *refused, struct why *why)
{
    return processes_run(&groups, j, refused, why);
}

static bool law_run(const struct property_case *c, struct why *why)
{
    int size = c->on > case_world(c) ? c->on : case_world(c);
    if (c->processes)
        return processes_get(&groups, size, why) && runs_law(c, size, NULL, run_on_processes, why);
    struct trial_group *group = trial_group_for(&engine, case_world(c), why);
    return group && runs_law(c, group->size, group, run_on_threads, why);
}

static bool processes;
static int only; /* cases with this number of ranks alone; 0: with up to DEVICE_RANKS */

static void one_case(int64_t number)
{
    struct property_case c;
    random_case(RUNS_SEED, number, &c);
    if (only ? case_world(&c) != only : case_world(&c) > DEVICE_RANKS)
        return;
    runs_pick_algorithm(&c);
    c.device = true;
    c.processes = processes;
    c.private = c.seed / 8 % 3 == 0;
    c.on = c.processes ? 0 : trial_size[trial_group_number(case_world(&c))];
    runs_seen.cases++;
    const char *ways = device_sides_ways(&c);
    *(!*ways ? &launched : strstr(ways, "pinned") ? &mirrored : &carried) += 1;
    report_law(program, law_run, c);
}

static void campaign(const char *where)
{
    int64_t n = runs_seen.cases + test_share(1000, 25000);
    report_install(); /* in place of cmocka's */
    for (int64_t i = 0; runs_seen.cases < n && !report.broken; i++)
        one_case(i);
    assert_int_equal(report.broken, 0);
    if (n >= 500 && !only) /* a smaller share, or one number of ranks, need not have all kinds of cases */
        runs_judge(where);
    print_message("%lld by the launcher, %lld through pinned slots, %lld mirrored on the host\n", (long long)launched,
                  (long long)carried, (long long)mirrored);
    if (!only || n >= 100)
        assert_true(launched > n / 3 && carried > n / 40 && mirrored > n / 40);
}

static void random_cases_run_right_on_processes(void **state)
{
    (void)state;
    processes = true;
    campaign("processes with memory on a device");
    processes_close(&groups);
}

static void random_cases_run_right_on_threads(void **state)
{
    (void)state;
    processes = false;
    campaign("threads with memory on a device");
    trial_close(&engine);
}

/* Processes: threads would share a device, and a call that gives memory back waits for all streams of a device, on
 * which NCCL's messages wait for other ranks. */
static void random_cases_run_right_by_nccl(void **state)
{
    (void)state;
    const char *together = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    char *queues = strdup(getenv("WEFT_SIM_QUEUES"));
    if (strcmp(getenv("WEFT_DEVICE"), "sim") && (!together || strcmp(together, "1"))) {
        print_message("skip: NCCL_MULTI_RANK_GPU_ENABLE is not 1\n");
        free(queues);
        skip();
    }
    setenv("WEFT_SIM_NCCL", "1", 1);
    setenv("WEFT_SIM_QUEUES", "0", 1);
    processes = device_sides_by_nccl = true;
    int64_t n = runs_seen.cases + test_share(200, 2500), before = runs_seen.cases, driven = 0;
    report_install();
    for (int64_t i = 0; runs_seen.cases < n && !report.broken; i++) {
        if (groups.errand)
            groups.errand->by_nccl = false;
        one_case(i);
        driven += groups.errand && groups.errand->by_nccl;
    }
    processes_close(&groups);
    device_sides_by_nccl = false;
    setenv("WEFT_SIM_QUEUES", queues, 1);
    free(queues);
    unsetenv("WEFT_SIM_NCCL");
    assert_int_equal(report.broken, 0);
    print_message("%lld cases by nccl of %lld\n", (long long)driven, (long long)(n - before));
    assert_true(driven > (n - before) / 4); /* the others have one rank, or a rank without elements */
}

int main(int argc, char **argv)
{
    program = argv[0];
    setenv("WEFT_DEVICE", "sim", 0);
    setenv("WEFT_SIM_QUEUES", "1", 0); /* no run that the host orders waits in a stream: one queue does for all */
    const char *ranks = getenv("WEFT_TEST_RANKS");
    only = ranks ? atoi(ranks) : 0;
    if (ranks && (only < 1 || only > DEVICE_RANKS)) {
        fprintf(stderr, "%s: WEFT_TEST_RANKS=%s: expected a number from 1 to %d\n", program, ranks, DEVICE_RANKS);
        return 2;
    }
    if (argc == 3 && argv[1][0] >= '0' && argv[1][0] <= '9') {
        processes = device_sides_by_nccl = getenv("WEFT_SIM_NCCL"); /* the cases of that campaign */
        int code = report_range(argv, one_case);
        trial_close(&engine);
        processes_close(&groups);
        return code;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_cases_run_right_on_processes),
                                       cmocka_unit_test(random_cases_run_right_by_nccl),
                                       cmocka_unit_test(random_cases_run_right_on_threads)};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
