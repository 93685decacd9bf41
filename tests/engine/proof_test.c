/* The check of messages: it proves what comes, says nothing about what is right, and names what is wrong, on every
 * transport; and ranks that do not agree on it are refused. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "engine/exec.h"
#include "engine_model.h"
#include "support/conformance.h"
#include "support/flips.h"
#include "support/ranks.h"
#include "support/share.h"

/* Copies, casts of all kinds, folds, columns, many parts; in private memory and, where bits say so, in the comm's. */
static const struct pair pairs[] = {
    {"f32[9000/x] @x3", "f32[9000] @x3", 0xffffffff},
    {"f32[60,50/x] @x3", "f32[60/x,50] @x3", 0},
    {"f32[60,50/x] @x3", "f32[60/x,50] @x3", 0xffffffff},
    {"u8[7] @x1=0", "u8[7] @x3", 0},
    {"f32[3000] @x3 +sum(x)", "bf16[3000/x] @x3", 0xffffffff},
    {"bf16[301] @x3 +sum(x)", "f32[301] @x3", 0},
    {"f32[500/x] @x3", "bf16[500] @x3", 0},
    {"bf16[500/x] @x3", "f32[500] @x3", 0xffff},
    {"i16[40,30/x,2] @x3", "f64[40/x,30,2] @x3", 0},
    {"i64[333/x] @x3", "i64[333] @x3", 0},
    {"f32[90000/x] @x3", "f32[90000] @x3", 0},
};
enum { PAIRS_N = sizeof pairs / sizeof *pairs };

static void use_check(void)
{
    if (setenv("WEFT_CHECK", "1", 1))
        abort();
}

static int enter(void **state)
{
    (void)state;
    flips_open();
    flips_clear();
    use_check();
    return 0;
}

static int leave(void **state)
{
    (void)state;
    return unsetenv("WEFT_CHECK");
}

/* ---- right messages ---- */

static void run_right(struct ranks_rank *r)
{
    const weft_lower_opts *opts = r->arg;
    struct model m;
    char text[16384];
    size_t len;
    weft_exec_info info = WEFT_EXEC_INFO_INIT;
    RANKS_OK(r, model_make(&m, r, pairs, PAIRS_N, opts));
    RANKS_OK(r, weft_exec_explain(m.exec, false, text, sizeof text, &len));
    RANKS_CHECK(r, strstr(text, "messages are checked"));
    RANKS_OK(r, weft_exec_explain(m.exec, true, text, sizeof text, &len));
    RANKS_CHECK(r, strstr(text, "\"checked\": true"));
    int rounds = test_rounds(8);
    for (int seed = 0; seed < rounds; seed++) {
        model_fill(&m, seed);
        RANKS_OK(r, weft_exec_run(m.exec));
        RANKS_CHECK(r, !model_wrong(&m, seed));
    }
    int64_t recvs = 0;
    for (size_t s = 0; s < m.plan->nsteps; s++)
        recvs += m.plan->steps[s].kind == PLAN_RECV;
    RANKS_OK(r, weft_exec_stats(m.exec, &info));
    RANKS_CHECK(r, recvs > 0 && info.checked == rounds * recvs);
    model_free(&m);
}

static void right_messages_pass(void **state)
{
    (void)state;
    for (int staged = 0; staged < 2; staged++)
        for (int64_t bucket = 0; bucket < 2000; bucket += 999)
            ranks_run(3, &(weft_comm_opts){.staged = staged}, run_right, &(weft_lower_opts){.bucket = bucket}, NULL);
}

/* Plans of several stages, whose ranks pass on what they got, or what they folded. */
static void run_stages(struct ranks_rank *r)
{
    static const struct pair stages[] = {{"f32[5000] @x4 +sum(x)", "f32[5000] @x4", 0xffff},
                                         {"f32[5000] @x1=0", "f32[5000] @x4", 0},
                                         {"bf16[801/x] @x4", "f32[801] @x4", 0xffffffff}};
    static const char *const algorithms[] = {"ring", "tree", "doubling"};
    int k = *(const int *)r->arg;
    struct model m;
    RANKS_OK(r,
             model_make(&m, r, stages + k % 3, 1, &(weft_lower_opts){.algorithm = k < 3 ? NULL : algorithms[k - 3]}));
    for (int seed = 0; seed < 5; seed++) {
        model_fill(&m, seed);
        RANKS_OK(r, weft_exec_start(m.exec));
        RANKS_OK(r, weft_exec_wait(m.exec, WEFT_FOREVER));
        RANKS_CHECK(r, !model_wrong(&m, seed));
    }
    model_free(&m);
}

static void messages_of_several_stages_pass(void **state)
{
    (void)state;
    static const int fits[] = {0, 1, 2, 3, 4};
    for (size_t i = 0; i < sizeof fits / sizeof *fits; i++)
        if (conformance_takes((int)i))
            ranks_run(4, NULL, run_stages, (void *)&fits[i], NULL);
}

/* Large messages that both ends copy, or that are copied together with others, where each rank has a core. */
static const struct pair large[] = {{"f32[300000] @x1=0", "f32[300000] @x2", 0xffffffff},
                                    {"f32[400,500/x] @x2", "f32[400/x,500] @x2", 0xffffffff},
                                    {"f32[300000] @x1=0", "bf16[300000] @x1=1", 0xffffffff},
                                    {"f32[300000] @x1=0", "f32[300000] @x2", 0}};

static void run_large(struct ranks_rank *r)
{
    const struct pair *pair = r->arg;
    struct model m;
    RANKS_OK(r, model_make(&m, r, pair, 1, &(weft_lower_opts){.bucket = 0}));
    for (int seed = 0; seed < test_rounds(20); seed++) {
        model_fill(&m, seed);
        RANKS_OK(r, weft_exec_run(m.exec));
        RANKS_CHECK(r, !model_wrong(&m, seed));
    }
    model_free(&m);
}

static void large_messages_pass(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof large / sizeof *large; i++)
        if (conformance_takes((int)i))
            ranks_run(2, NULL, run_large, (void *)&large[i], NULL);
}

/* ---- wrong messages ---- */

struct fault {
    const struct pair *pairs;
    int pair, rank, nth;
    bool staged;
};

static void run_fault(struct ranks_rank *r)
{
    const struct fault *f = r->arg;
    struct model m;
    RANKS_OK(r, model_make(&m, r, f->pairs + f->pair, 1, &(weft_lower_opts){.bucket = 0}));
    ranks_meet(r); /* otherwise a rank that is still in bind hears there of the failure */
    int err = 0;
    for (int seed = 0; seed < 3 && !err; seed++) {
        model_fill(&m, seed);
        err = weft_exec_run(m.exec);
        RANKS_CHECK(r, err || !model_wrong(&m, seed));
        if (!err)
            err = weft_comm_barrier(r->comm, WEFT_DEADLINE); /* a rank that only sends is told here */
    }
    RANKS_CHECK(r, err == WEFT_ETRANSPORT);
    RANKS_CHECK(r, flips_struck());
    RANKS_CHECK(r, flips_named(ranks_said()));
    RANKS_CHECK(r, weft_exec_run(m.exec) == WEFT_ETRANSPORT);
    ranks_meet(r); /* a rank that has not heard of the failure may still read from the others */
    model_free(&m);
}

/* In each kind of message, in the first run and in a later one. */
static void flipped_bits_are_named(void **state)
{
    (void)state;
    for (int pair = 0; pair < PAIRS_N; pair++)
        for (int k = 0; k < 2; k++) {
            struct fault f = {
                .pairs = pairs, .pair = pair, .rank = pair == 3 ? 1 : (pair + k) % 3, .nth = pair == 3 ? k : 3 * k};
            if (!conformance_takes(pair + k))
                continue;
            flips_plant(f.rank, f.nth, (uint64_t)(100 * pair + k));
            ranks_run(3, &(weft_comm_opts){.staged = (pair + k) % 4 == 3}, run_fault, &f, NULL);
            assert_true(flips_struck());
            flips_clear();
        }
}

static void flipped_bits_of_large_messages_are_named(void **state)
{
    (void)state;
    for (int pair = 0; pair < (int)(sizeof large / sizeof *large); pair++)
        for (int k = 0; k < 3; k++) {
            struct fault f = {.pairs = large, .pair = pair, .rank = 1, .nth = k};
            if (!conformance_takes(pair + k))
                continue;
            flips_plant(f.rank, f.nth, (uint64_t)(1000 + 10 * pair + k));
            ranks_run(2, NULL, run_fault, &f, NULL);
            assert_true(flips_struck());
            flips_clear();
        }
}

/* ---- ranks that do not agree ---- */

struct lowered {
    weft_layout *src, *dst;
    weft_plan *plan;
};

static int lowered_make(struct lowered *p, const char *src, const char *dst, int rank)
{
    *p = (struct lowered){0};
    int err = weft_layout_parse(src, &p->src);
    if (!err)
        err = weft_layout_parse(dst, &p->dst);
    return err ? err : weft_lower(&(weft_move){"w", p->src, p->dst}, 1, rank, NULL, &p->plan);
}

static void lowered_free(struct lowered *p)
{
    weft_plan_free(p->plan);
    weft_layout_free(p->src);
    weft_layout_free(p->dst);
}

static void run_disagree(struct ranks_rank *r)
{
    struct lowered p;
    weft_bind_opts opts = WEFT_BIND_OPTS_INIT;
    float in[16], out[64];
    weft_view from = WEFT_VIEW(in, sizeof in), to = WEFT_VIEW(out, sizeof out);
    weft_exec *x = NULL;
    RANKS_OK(r, lowered_make(&p, "f32[64/x] @x4", "f32[64] @x4", r->rank));
    for (int round = 0; round < 3; round++) {
        opts.check = r->rank == round ? -1 : 1;
        RANKS_CHECK(r, weft_bind(p.plan, r->comm, &from, &to, &opts, &x) == WEFT_EMISMATCH && !x);
        RANKS_CHECK(r, strstr(weft_errmsg(), "check messages (WEFT_CHECK or weft_bind_opts.check) and some do not"));
        opts.check = round - 1; /* -1: off; 0: on, by the variable; 1: on */
        RANKS_OK(r, weft_bind(p.plan, r->comm, &from, &to, &opts, &x));
        RANKS_CHECK(r, x->checks == (round > 0));
        tensors_fill(p.src, r->rank, in, round);
        RANKS_OK(r, weft_exec_run(x));
        RANKS_CHECK(r, !tensors_wrong(p.src, p.dst, r->rank, out, round));
        RANKS_OK(r, weft_exec_rebind(x, &from, &to));
        RANKS_OK(r, weft_exec_run(x));
        RANKS_CHECK(r, !tensors_wrong(p.src, p.dst, r->rank, out, round));
        weft_exec_close(x);
        x = NULL;
    }
    opts.check = r->rank == 2 ? 2 : 1;
    RANKS_CHECK(r, weft_bind(p.plan, r->comm, &from, &to, &opts, &x) == WEFT_EINVAL && !x);
    RANKS_CHECK(r, strstr(weft_errmsg(), "opts.check is 2: it must be -1, 0 or 1"));
    lowered_free(&p);
}

static void ranks_that_do_not_agree_are_refused(void **state)
{
    (void)state;
    ranks_run(4, NULL, run_disagree, NULL, NULL);
}

static void run_misspelt(struct ranks_rank *r)
{
    struct lowered p;
    float in[64], out[64];
    weft_view from = WEFT_VIEW(in, sizeof in), to = WEFT_VIEW(out, sizeof out);
    weft_exec *x = NULL;
    RANKS_OK(r, lowered_make(&p, "f32[64] @x1=0", "f32[64] @x2", r->rank));
    RANKS_CHECK(r, weft_bind(p.plan, r->comm, &from, &to, NULL, &x) == WEFT_EINVAL);
    RANKS_CHECK(r, strstr(weft_errmsg(), "WEFT_CHECK=yes: expected 0 or 1"));
    lowered_free(&p);
}

static void misspelt_variable_is_refused(void **state)
{
    (void)state;
    assert_int_equal(setenv("WEFT_CHECK", "yes", 1), 0);
    ranks_run(2, NULL, run_misspelt, NULL, NULL);
    use_check();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(right_messages_pass, enter, leave),
        cmocka_unit_test_setup_teardown(messages_of_several_stages_pass, enter, leave),
        cmocka_unit_test_setup_teardown(large_messages_pass, enter, leave),
        cmocka_unit_test_setup_teardown(flipped_bits_are_named, enter, leave),
        cmocka_unit_test_setup_teardown(flipped_bits_of_large_messages_are_named, enter, leave),
        cmocka_unit_test_setup_teardown(ranks_that_do_not_agree_are_refused, enter, leave),
        cmocka_unit_test_setup_teardown(misspelt_variable_is_refused, enter, leave),
    };
    return SUITE_MAIN(argc, argv, SUITE_AT(&conformance_everywhere, tests));
}
