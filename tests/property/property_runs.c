#define _GNU_SOURCE
#include "property_runs.h"

#include <stdlib.h>
#include <string.h>

#include "property_laws.h"
#include "property_report.h"
#include "support/property_random.h"
#include "support/suite.h"

struct runs_seen runs_seen;

static bool runs_job(struct trial_job *j, runs_run *run, struct why *why)
{
    struct lab *l = j->lab;
    enum trial_legal worst = TRIAL_LEGAL;
    bool bold = l->c->seed % 2 == 0, shared = false, refused = false, ok = true;
    for (int m = 0; m < l->c->moves && ok; m++)
        for (int r = 0; r < l->world && ok; r++) {
            ok = trial_place(j, m, r, bold, &worst, why);
            shared = shared || j->tensor[m][r].shared;
        }
    ok = ok && run(j, &refused, why);
    if (ok && refused && worst == TRIAL_LEGAL)
        ok = lab_broken(why, "in place is refused where it is legal: rank 0 says %s", weft_errmsg());
    if (ok && !refused && worst == TRIAL_ILLEGAL)
        ok = lab_broken(why, "in place is not refused where an address stands for two elements");
    runs_seen.staged += j->way;
    runs_seen.shared += shared && !refused;
    runs_seen.refused += refused;
    return ok;
}

bool runs_law(const struct property_case *c, int size, struct trial_group *group, runs_run *run, struct why *why)
{
    struct trial_job *j = calloc(1, sizeof *j);
    struct lab l;
    bool ok = j && lab_layouts(&l, c, size, why);
    if (!ok) {
        free(j);
        return false;
    }
    *j = (struct trial_job){.group = group, .lab = &l, .way = c->staged};
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
        trial_release(j);
    }
    lab_close(&l);
    free(j);
    return ok;
}

void runs_pick_algorithm(struct property_case *c)
{
    int way = (int)(c->number % 4), algorithms = 0;
    while (weft_algorithm_name((size_t)algorithms))
        algorithms++;
    c->algorithm = way == 0   ? NULL
                   : way == 1 ? "direct"
                              : weft_algorithm_name((size_t)(c->seed % (uint64_t)algorithms));
    if (way > 1) {
        struct lab l;
        struct why why = {"", ""};
        if (!lab_layouts(&l, c, case_world(c), &why) || !lab_fits(&l, &why))
            c->algorithm = NULL;
        lab_close(&l);
    }
}

void runs_judge(const char *where)
{
    assert_int_equal(report.broken, 0);
    print_message("%lld cases on %s, %lld staged, %lld in place, %lld refused in place, %lld by other algorithms\n",
                  (long long)runs_seen.cases, where, (long long)runs_seen.staged, (long long)runs_seen.shared,
                  (long long)runs_seen.refused, (long long)runs_seen.chosen);
    assert_true(runs_seen.staged > runs_seen.cases / 4 && runs_seen.shared > runs_seen.cases / 50);
    assert_true(runs_seen.refused > runs_seen.cases / 400 && runs_seen.chosen > runs_seen.cases / 50);
}
