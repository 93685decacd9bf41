/* The property campaign with the check of messages on: random cases run right, and no case is refused or fails because
 * of the check. Then the same cases with a flipped bit in the destination of some message: each is found, and the text
 * names the sender, the tensor and the box. On threads, and on processes in window memory and private memory. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "property_processes.h"
#include "property_report.h"
#include "property_runs.h"
#include "support/flips.h"
#include "support/property_random.h"
#include "support/share.h"
#include "support/suite.h"

#define SEED (RUNS_SEED + 15)

static const char *program;
static struct trial_groups engine;
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
static struct process_groups groups;
#endif
static int64_t planted, struck;

static bool run_on_threads(struct trial_job *j, bool *refused, struct why *why)
{
    return trial_run(&engine, j, refused, why);
}

static bool law_threads(const struct property_case *c, struct why *why)
{
    struct trial_group *group = trial_group_for(&engine, case_world(c), why);
    return group && runs_law(c, group->size, group, run_on_threads, why);
}

/* The same law with a flipped bit: it must not hold if the bit was flipped, for the right reason. */
static bool flipped(const struct property_case *c, bool (*law)(const struct property_case *, struct why *),
                    struct why *why)
{
    struct why said = {.text = ""};
    flips_plant((int)(c->seed % (uint64_t)case_world(c)), (int64_t)(c->seed / 64 % 4), c->seed);
    bool held = law(c, &said);
    bool hit = flips_struck();
    planted++;
    struck += hit;
    if (!hit) {
        flips_clear();
        return held || lab_broken(why, "%s", said.text);
    }
    bool named = !held && flips_named(said.text);
    if (!named)
        lab_broken(why, "a flipped bit was not named: expected %s, %s", flips_expected(),
                   held ? "and everything was right" : said.text);
    flips_clear();
    return named;
}

static bool law_flipped_threads(const struct property_case *c, struct why *why)
{
    return flipped(c, law_threads, why);
}

static void one_case_on_threads(int64_t number)
{
    struct property_case c;
    random_case(SEED, number, &c);
    runs_pick_algorithm(&c);
    c.on = trial_size[trial_group_number(case_world(&c))];
    runs_seen.cases++;
    report_law(program, law_threads, c);
    if (number % 3 == 0 && !report.broken)
        report_law(program, law_flipped_threads, c);
}

static int enter(void **state)
{
    (void)state;
    flips_open();
    flips_clear();
    planted = struck = 0;
    runs_seen = (struct runs_seen){0};
    return setenv("WEFT_CHECK", "1", 1);
}

static void judge(int64_t n)
{
    print_message("%lld bits planted, %lld flipped and named\n", (long long)planted, (long long)struck);
    assert_true(struck > n / 20);
}

static void checked_cases_run_right_on_threads(void **state)
{
    (void)state;
    int64_t n = test_share(4000, 100000);
    report_install(); /* in place of cmocka's */
    for (int64_t i = 0; i < n && !report.broken; i++)
        one_case_on_threads(i);
    runs_judge("threads");
    trial_close(&engine);
    judge(n);
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
static bool run_on_processes(struct trial_job *j, bool *refused, struct why *why)
{
    return processes_run(&groups, j, refused, why);
}

static bool law_processes(const struct property_case *c, struct why *why)
{
    int size = c->on > case_world(c) ? c->on : case_world(c); /* shrinking may have left fewer */
    return processes_get(&groups, size, why) && runs_law(c, size, NULL, run_on_processes, why);
}

static bool law_flipped_processes(const struct property_case *c, struct why *why)
{
    return flipped(c, law_processes, why);
}

static void one_case_on_processes(int64_t number)
{
    struct property_case c;
    random_case(SEED, number, &c);
    if (case_world(&c) > PROCESSES_RANKS)
        return;
    runs_pick_algorithm(&c);
    c.processes = true;
    c.private = c.seed / 8 % 3 == 0;
    runs_seen.cases++;
    report_law(program, law_processes, c);
    if (runs_seen.cases % 6 == 0 && !report.broken)
        report_law(program, law_flipped_processes, c);
}

static void checked_cases_run_right_on_processes(void **state)
{
    (void)state;
    int64_t n = test_share(1500, 20000);
    report_install();
    for (int64_t i = 0; runs_seen.cases < n && !report.broken; i++)
        one_case_on_processes(i);
    runs_judge("processes");
    processes_close(&groups);
    judge(n / 2);
}
#endif

int main(int argc, char **argv)
{
    program = argv[0];
    if (argc == 3 && argv[1][0] >= '0' && argv[1][0] <= '9') {
        enter(NULL);
        int code = report_range(argv, one_case_on_threads);
        trial_close(&engine);
        return code;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(checked_cases_run_right_on_threads, enter),
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
        cmocka_unit_test_setup(checked_cases_run_right_on_processes, enter),
#endif
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
