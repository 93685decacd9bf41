/* The property campaign on the engine: its cases bound and run on threads, through each other's memory and
 * through staging, in place where that is legal (and refused where it is not), with strided views, several tensors in
 * one plan, and by any algorithm. Each runs twice and must give the oracle's bits, twice the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "property_engine.h"
#include "property_laws.h"
#include "property_random.h"
#include "property_report.h"
#include "share.h"

#define SEED 20240611

static const char *program;

static struct engine engine;
static struct {
    int64_t cases, staged, shared, refused, chosen;
} seen;

static bool run_job(struct engine_job *j, struct why *why)
{
    struct lab *l = j->lab;
    enum engine_legal worst = ENGINE_LEGAL;
    bool bold = l->c->seed % 2 == 0, shared = false, refused = false, ok = true;
    for (int m = 0; m < l->c->moves && ok; m++)
        for (int r = 0; r < l->world && ok; r++) {
            ok = engine_place(j, m, r, bold, &worst, why);
            shared = shared || j->tensor[m][r].shared;
        }
    ok = ok && engine_run(&engine, j, &refused, why);
    if (ok && refused && worst == ENGINE_LEGAL)
        ok = broken(why, "in place is refused where it is legal: rank 0 says %s", weft_errmsg());
    if (ok && !refused && worst == ENGINE_ILLEGAL)
        ok = broken(why, "in place is not refused where an address stands for two elements");
    seen.staged += j->way;
    seen.shared += shared && !refused;
    seen.refused += refused;
    return ok;
}

static bool law_run(const struct property_case *c, struct why *why)
{
    struct engine_team *team = engine_team_for(&engine, case_world(c), why);
    struct engine_job *j = calloc(1, sizeof *j);
    struct lab l;
    bool ok = j && team && lab_layouts(&l, c, team->size, why);
    if (!ok) {
        free(j);
        return false;
    }
    *j = (struct engine_job){.team = team, .lab = &l, .way = c->staged};
    bool fits = lab_fits(&l, why);
    ok = !why->text[0];
    if (fits && ok && (ok = lab_lower(&l, why))) {
        weft_stats st = {.size = sizeof st};
        weft_plan_stats(l.plans[0], &st);
        bool direct = !strcmp(st.algorithm, "direct");
        seen.chosen += !direct;
        ok = lab_data(&l, c->wild && direct, why) && run_job(j, why);
        for (int m = 0; m < c->moves && ok; m++)
            ok = law_same_bits(&l, m, why);
        engine_release(j);
    }
    lab_close(&l);
    free(j);
    return ok;
}

static void one_case(int64_t number)
{
    struct property_case c;
    struct why why = {"", ""};
    random_case(SEED, number, &c);
    int way = (int)(number % 4), algorithms = 0;
    while (weft_algorithm_name(algorithms))
        algorithms++;
    c.algorithm = way == 0 ? NULL : way == 1 ? "direct" : weft_algorithm_name((int)(c.seed % (uint64_t)algorithms));
    c.on = engine_size[engine_team_number(case_world(&c))];
    seen.cases++;
    if (way > 1) { /* where it does not fit, whatever is chosen */
        struct lab l;
        struct property_case forced = c;
        if (!lab_layouts(&l, &forced, case_world(&c), &why) || !lab_fits(&l, &why))
            c.algorithm = NULL;
        lab_close(&l);
    }
    report_law(program, law_run, c);
}

static void campaign(void **state)
{
    (void)state;
    int64_t n = test_share(50000, 1000000);
    report_install(); /* in place of cmocka's */
    for (int64_t i = 0; i < n && !report.broken; i++)
        one_case(i);
    assert_int_equal(report.broken, 0);
    print_message("%lld cases on threads, %lld staged, %lld in place, %lld refused in place, %lld by other algorithms\n",
                  (long long)seen.cases, (long long)seen.staged, (long long)seen.shared, (long long)seen.refused,
                  (long long)seen.chosen);
    assert_true(seen.staged > seen.cases / 4 && seen.shared > seen.cases / 50 && seen.refused > seen.cases / 400);
    assert_true(seen.chosen > seen.cases / 50);
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
