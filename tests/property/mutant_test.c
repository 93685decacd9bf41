/* Verify has teeth. Right plans are broken in one place each; what a mutant does is decided by
 * running it, in several orders and with no trust in it. Every mutant that gives another result,
 * hangs or leaves its memory must be refused. (Of those that happen to be right, verify may refuse
 * some: it asks for more than results, such as direct deps.)
 *
 * A survivor is printed as: mutant CASE ALGORITHM BUCKET IN_PLACE HOSTS KIND SEED. Setting WEFT_MUTANT to
 * these words runs that one alone and tells all about it. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interp.h"
#include "mutate.h"
#include "support/share.h"
#include "support/suite.h"
#include "weft.h"

/* Up to three tensors: source and destination each. */
static const char *const cases[][6] = {
    {"i32[24] @x4 +sum(x)", "i32[24] @x4"},
    {"f64[8,6] @x3 +sum(x)", "f64[8/x,6] @x3"},
    {"i64[10/x,3] @x4", "i64[10,3] @x4"},
    {"i32[8/x,6] @x4", "i32[8,6/x] @x4"},
    {"f32[7,3] @x1=2", "bf16[7,3] @x4"},
    {"f32[12] @x3 +avg(x)", "f32[12] @x3=3..5"},
    {"bf16[9] @x3 +sum(x)", "f32[9] @x3"},
    {"bf16[8] @x3 +avg(x)", "f8e4m3[8] @x2"},
    {"f16[6,4] @x2.y2 +max(x) +sum(y)", "f16[6/x,4] @x2.y2"},
    {"f32[12] @x2.y3 +avg(x) +sum(y)", "f32[12/y] @y3"},
    {"i32[12] @x2.y2 +sum(x) +avg(y)", "i16[12] @x2.y2"},
    {"i16[20/x:3] @x3", "i16[20/x:2] @x4"},
    {"i32[13/x:2,4] @x2.y2 +bxor(y)", "i32[13,4/x:1] @x3"},
    {"f64[12/x] @x4", "f64[12/x~1] @x4"},
    {"i32[9/x,4] @x3", "i32[9/x~2o,4~1] @x3"},
    {"i32[5] @x1", "i32[5~7:3o] @x2"},
    {"f64[12/x~1] @x4 +sum(~)", "f64[12/x] @x4"},
    {"i64[8/x~1o,6/y~1:0] @x2.y2 +sum(~)", "i64[8/x,6/y] @x2.y2"},
    {"i32[6/x~2o] @x3.y2 +max(y) +sum(~)", "i32[6] @x2"},
    {"f64[8] @x4", "f64[8/y] @x2.y2 +sum(x)"},
    {"i32[8/x] @x4", "i32[8/x~1] @x4 +sum(~)"},
    {"i32[6] @x3 +sum(x)", "i32[6] @x2.y2 +max(x) +min(y)"},
    {"f32[6,5/x] @x2", "f32[6/y,5/x] @x2.y2=3,1,0,2"},
    {"i32[] @x3 +sum(x)", "i64[] @x2"},
    {"bool[11] @x4 +max(x)", "bool[11/x] @x2"},
    {"u8[7] @x2", "u8[7/x] @x5"},
    {"f32[6/x,4] @x3", "f32[6,4/x] @x3", "i32[9] @x3 +sum(x)", "i32[9] @x3", "u8[5/x] @x2", "u8[5] @x3"},
    {"f16[12] @x3 +sum(x)", "f16[12] @x3", "f16[12] @x3 +avg(x)", "f32[12/x] @x3", "i64[] @x1=1", "i64[] @x3"},
    {"i32[4/x,4] @x2=1,0", "i32[4,4/x] @x2", "i32[4/x,4] @x2", "i32[4,4/x] @x2"},
};
enum { CASES = sizeof cases / sizeof *cases, MAX_RANKS = 32, SCHEDULES = 8 };

struct setting {
    int at;
    const char *algorithm;
    int64_t bucket;
    bool in_place;
    int hosts; /* ranks on one; 0: all */
};

struct plans {
    weft_plan *p[MAX_RANKS];
    size_t ranks;
};

static void free_plans(struct plans *x)
{
    for (size_t r = 0; r < x->ranks; r++)
        weft_plan_free(x->p[r]);
}

/* False where the algorithm does not fit. */
static bool make_plans(const struct setting *s, struct plans *x)
{
    weft_move moves[3];
    weft_layout *l[6] = {0};
    static const char *const names[] = {"w", "b", "c"};
    size_t n = 0;
    int world = 0;
    for (; n < 3 && cases[s->at][2 * n]; n++) {
        for (size_t k = 2 * n; k < 2 * n + 2; k++)
            if (weft_layout_parse(cases[s->at][k], &l[k]))
                fail_msg("%s", weft_errmsg());
        moves[n] = (weft_move){names[n], l[2 * n], l[2 * n + 1]};
        for (size_t k = 2 * n; k < 2 * n + 2; k++)
            world = weft_layout_ranks(l[k]) > world ? weft_layout_ranks(l[k]) : world;
    }
    weft_lower_opts o = {
        .size = sizeof o, .bucket = s->bucket, .in_place = s->in_place, .algorithm = s->algorithm, .world = world};
    bool fits = true;
    *x = (struct plans){0};
    for (int r = 0; r < world && fits; r++) {
        int rc = weft_lower(moves, n, r, &o, &x->p[r]);
        fits = rc == 0;
        if (rc && (rc != WEFT_EINVAL || !strcmp(s->algorithm, "direct")))
            fail_msg("%s -> %s by %s: %s", cases[s->at][0], cases[s->at][1], s->algorithm, weft_errmsg());
        x->ranks += fits;
    }
    if (!fits)
        free_plans(x);
    for (size_t k = 0; k < 6; k++)
        weft_layout_free(l[k]);
    return fits;
}

static struct interp_schedule schedule(const weft_plan *p, int i)
{
    return (struct interp_schedule){.order = i < 4 ? i % 2 ? INTERP_BACKWARD : INTERP_FORWARD : INTERP_RANDOM,
                                    .late = i / 2 % 2,
                                    .in_place = p->in_place && i % 3 != 0,
                                    .seed = (uint64_t)i + 1};
}

struct result {
    unsigned char *bytes;
    size_t n;
};

/* Runs in all schedules; the first that does not give the known result ends it. */
static enum interp_result differs(const weft_plan *const *all, size_t ranks, const struct result *known, uint64_t data,
                                  int *which, bool *same)
{
    *same = true;
    for (int i = 0; i < SCHEDULES; i++) {
        struct result r = {0};
        enum interp_result rc = interp_run(all, ranks, schedule(all[0], i), data, &r.bytes, &r.n);
        *which = i;
        *same = rc == INTERP_DONE && r.n == known->n && memcmp(r.bytes, known->bytes, r.n) == 0;
        free(r.bytes);
        if (!*same)
            return rc;
    }
    return INTERP_DONE;
}

static void learn(const struct setting *s, const struct plans *x, uint64_t data, struct result *known)
{
    const weft_plan *const *all = (const weft_plan *const *)x->p;
    if (interp_run(all, x->ranks, (struct interp_schedule){0}, data, &known->bytes, &known->n) != INTERP_DONE)
        fail_msg("%s -> %s: the plans do not run", cases[s->at][0], cases[s->at][1]);
    int which;
    bool same;
    differs(all, x->ranks, known, data, &which, &same);
    if (!same)
        fail_msg("%s -> %s by %s, bucket %lld%s: the result depends on the schedule (%d)", cases[s->at][0],
                 cases[s->at][1], s->algorithm, (long long)s->bucket, s->in_place ? ", in place" : "", which);
}

struct count {
    long made, wrong, hang, broken, refused, alone, harmless, harmless_refused, survived; /* alone: by plan_check */
};

static void mutant(const struct setting *s, const struct plans *x, const struct result *known, int kind, uint64_t seed,
                   bool tell, struct count *n)
{
    weft_plan *changed[MAX_RANKS] = {0};
    const weft_plan *all[MAX_RANKS];
    char text[256] = "";
    if (!mutate_plans((const weft_plan *const *)x->p, x->ranks, kind, seed, changed, text))
        return;
    for (size_t r = 0; r < x->ranks; r++)
        all[r] = changed[r] ? changed[r] : x->p[r];
    int which;
    bool same, refused = weft_plan_verify(all, x->ranks) != 0;
    char why[1024];
    snprintf(why, sizeof why, "%s", refused ? weft_errmsg() : "");
    enum interp_result rc = differs(all, x->ranks, known, seed % 4, &which, &same);
    n->made++;
    n->harmless += same;
    n->harmless_refused += same && refused;
    n->wrong += !same && rc == INTERP_DONE;
    n->hang += !same && rc == INTERP_HANGS;
    n->broken += !same && rc == INTERP_BROKEN;
    n->refused += !same && refused;
    n->alone += !same && !strncmp(why, "plan:", 5);
    if (tell || (!same && !refused)) {
        print_message("mutant %d %s %lld %d %d %d %llu\n", s->at, s->algorithm, (long long)s->bucket, s->in_place,
                      s->hosts, kind, (unsigned long long)seed);
        print_message("  %s -> %s: %s (%s)\n  schedule %d: %s; verify: %s\n", cases[s->at][0], cases[s->at][1], text,
                      mutations[kind].name, which,
                      same                 ? "the same result"
                      : rc == INTERP_DONE  ? "another result"
                      : rc == INTERP_HANGS ? "hangs"
                                           : "out of bounds",
                      refused ? why : "passes");
        n->survived += !same && !refused;
    }
    for (size_t r = 0; r < x->ranks; r++)
        weft_plan_free(changed[r]);
}

static void check_right(const struct setting *s, const struct plans *x)
{
    if (weft_plan_verify((const weft_plan *const *)x->p, x->ranks))
        fail_msg("%s -> %s by %s, bucket %lld%s: right plans are refused: %s", cases[s->at][0], cases[s->at][1],
                 s->algorithm, (long long)s->bucket, s->in_place ? ", in place" : "", weft_errmsg());
}

/* One mutant, from the words that were printed. */
static void run_one(const char *words)
{
    struct setting s = {0};
    char algorithm[32];
    int in_place, kind;
    long long bucket;
    unsigned long long seed;
    if (sscanf(words, "%d %31s %lld %d %d %d %llu", &s.at, algorithm, &bucket, &in_place, &s.hosts, &kind, &seed) !=
            7 ||
        s.at < 0 || s.at >= CASES || kind < 0 || kind >= MUTATIONS)
        fail_msg("WEFT_MUTANT is '%s': give CASE ALGORITHM BUCKET IN_PLACE HOSTS KIND SEED", words);
    s.algorithm = algorithm;
    s.bucket = bucket;
    s.in_place = in_place;
    struct plans x;
    struct result known;
    struct count n = {0};
    assert_true(make_plans(&s, &x));
    check_right(&s, &x);
    learn(&s, &x, seed % 4, &known);
    mutant(&s, &x, &known, kind, seed, true, &n);
    free(known.bytes);
    free_plans(&x);
    assert_int_equal(n.survived, 0);
}

static void campaign(const struct setting *s, int64_t seeds, struct count *n, struct count *by_kind, long *settings)
{
    struct plans x;
    if (!make_plans(s, &x))
        return;
    ++*settings;
    check_right(s, &x);
    for (uint64_t data = 0; data < 4; data++) {
        struct result known;
        learn(s, &x, data, &known);
        for (int kind = 0; kind < MUTATIONS; kind++)
            for (uint64_t seed = data; seed < (uint64_t)seeds; seed += 4) {
                struct count one = {0};
                mutant(s, &x, &known, kind, seed, false, &one);
                for (int i = 0; i < 2; i++) {
                    struct count *c = i ? n : &by_kind[kind];
                    c->made += one.made;
                    c->wrong += one.wrong;
                    c->hang += one.hang;
                    c->broken += one.broken;
                    c->refused += one.refused;
                    c->alone += one.alone;
                    c->harmless += one.harmless;
                    c->harmless_refused += one.harmless_refused;
                    c->survived += one.survived;
                }
            }
        free(known.bytes);
    }
    free_plans(&x);
}

static void mutants_are_refused(void **state)
{
    (void)state;
    if (getenv("WEFT_MUTANT")) {
        run_one(getenv("WEFT_MUTANT"));
        return;
    }
    struct count n = {0}, by_kind[MUTATIONS] = {{0}};
    int64_t seeds = test_share(8, 80);
    long settings = 0;
    static const struct {
        int64_t bucket;
        int hosts;
    } ways[] = {{1, 0}, {40, 0}, {1 << 20, 0}, {1 << 20, 2}};
    for (int at = 0; at < CASES; at++)
        for (size_t a = 0; weft_algorithm_name(a); a++)
            for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
                for (int in_place = 0; in_place < 2; in_place++) {
                    struct setting one = {at, weft_algorithm_name(a), ways[w].bucket, in_place, ways[w].hosts};
                    campaign(&one, seeds, &n, by_kind, &settings);
                }
    for (int k = 0; k < MUTATIONS; k++)
        print_message("%-14s %6ld mutants, %6ld wrong, %6ld refused; %6ld harmless, %6ld of them refused\n",
                      mutations[k].name, by_kind[k].made, by_kind[k].wrong + by_kind[k].hang + by_kind[k].broken,
                      by_kind[k].refused, by_kind[k].harmless, by_kind[k].harmless_refused);
    print_message(
        "%ld settings, %ld mutants: %ld give another result, %ld hang, %ld leave their memory; of these %ld are "
        "refused (%ld by the check of one plan alone), %ld survive\n",
        settings, n.made, n.wrong, n.hang, n.broken, n.refused, n.alone, n.survived);
    assert_int_equal(n.survived, 0);
    assert_true(n.wrong + n.hang + n.broken == n.refused);
    if (seeds >= 8)
        assert_true(n.wrong + n.hang + n.broken - n.alone >= 2000);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(mutants_are_refused)};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
