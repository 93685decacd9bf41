/* The law of a campaign that runs its cases: through each other's memory and through staging, in place where that is
 * legal (and refused where it is not), with strided views, several tensors in one plan, and by any algorithm. Each runs
 * twice and must give the oracle's bits, twice the same. Where it runs is for the program to say. */
#ifndef WEFT_TESTS_PROPERTY_RUNS_H
#define WEFT_TESTS_PROPERTY_RUNS_H
#include "property_engine.h"
#include "property_laws.h"
#include "property_report.h"
#include "support/property_random.h"

#define RUNS_SEED 20240611

/* What the campaign has seen, so that a law is not kept by having nothing to judge. */
static struct {
    int64_t cases, staged, shared, refused, chosen;
} runs_seen;

/* Binds the job and runs it twice; *refused: bind said that the memory overlaps in a way that is not legal. */
typedef bool runs_run(struct engine_job *j, bool *refused, struct why *why);

static inline bool runs_job(struct engine_job *j, runs_run *run, struct why *why)
{
    struct lab *l = j->lab;
    enum engine_legal worst = ENGINE_LEGAL;
    bool bold = l->c->seed % 2 == 0, shared = false, refused = false, ok = true;
    for (int m = 0; m < l->c->moves && ok; m++)
        for (int r = 0; r < l->world && ok; r++) {
            ok = engine_place(j, m, r, bold, &worst, why);
            shared = shared || j->tensor[m][r].shared;
        }
    ok = ok && run(j, &refused, why);
    if (ok && refused && worst == ENGINE_LEGAL)
        ok = broken(why, "in place is refused where it is legal: rank 0 says %s", weft_errmsg());
    if (ok && !refused && worst == ENGINE_ILLEGAL)
        ok = broken(why, "in place is not refused where an address stands for two elements");
    runs_seen.staged += j->way;
    runs_seen.shared += shared && !refused;
    runs_seen.refused += refused;
    return ok;
}

/* On a comm of `size` ranks. */
static inline bool runs_law(const struct property_case *c, int size, struct engine_team *team, runs_run *run,
                            struct why *why)
{
    struct engine_job *j = calloc(1, sizeof *j);
    struct lab l;
    bool ok = j && lab_layouts(&l, c, size, why);
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
        runs_seen.chosen += !direct;
        ok = lab_data(&l, c->wild && direct, why) && runs_job(j, run, why);
        for (int m = 0; m < c->moves && ok; m++)
            ok = law_same_bits(&l, m, why);
        engine_release(j);
    }
    lab_close(&l);
    free(j);
    return ok;
}

/* The chooser's, the general one, or any by name; where that does not do the case, the chooser's again. */
static inline void runs_pick_algorithm(struct property_case *c)
{
    int way = (int)(c->number % 4), algorithms = 0;
    while (weft_algorithm_name(algorithms))
        algorithms++;
    c->algorithm = way == 0 ? NULL : way == 1 ? "direct" : weft_algorithm_name((int)(c->seed % (uint64_t)algorithms));
    if (way > 1) {
        struct lab l;
        struct why why = {"", ""};
        if (!lab_layouts(&l, c, case_world(c), &why) || !lab_fits(&l, &why))
            c->algorithm = NULL;
        lab_close(&l);
    }
}

/* After a campaign: everything broke no law, and everything was there. */
static inline void runs_judge(const char *where)
{
    assert_int_equal(report.broken, 0);
    print_message("%lld cases on %s, %lld staged, %lld in place, %lld refused in place, %lld by other algorithms\n",
                  (long long)runs_seen.cases, where, (long long)runs_seen.staged, (long long)runs_seen.shared,
                  (long long)runs_seen.refused, (long long)runs_seen.chosen);
    assert_true(runs_seen.staged > runs_seen.cases / 4 && runs_seen.shared > runs_seen.cases / 50);
    assert_true(runs_seen.refused > runs_seen.cases / 400 && runs_seen.chosen > runs_seen.cases / 50);
}
#endif
