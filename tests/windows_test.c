/* The window collectives through the library, by every algorithm that does them, on 2, 3, 4, 5 and 8 ranks: the results
 * are the closed forms of tests/cases/windows.txt, in every run on the same buffers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cli/pair.h"
#include "cli/runner.h"

#define C 64
#define RUNS 5
#define MOST 8

typedef float form(int p, int r, int i);

/* Runs the pair on threads; rank r gives in(p, r, i) + run and must end with out(p, r, i) + run * per_run. */
struct window {
    int p, run, per_run;
    form *in, *out;
    weft_local src[MOST], dst[MOST];
    weft_view src_view[MOST], dst_view[MOST];
};

static int fill(void *arg, int rank)
{
    struct window *w = arg;
    float *data = w->src_view[rank].data;
    for (int i = 0; i < w->src[rank].count; i++)
        data[i] = w->in(w->p, rank, i) + (float)w->run;
    return 0;
}

static int compare(void *arg, int rank)
{
    struct window *w = arg;
    const float *data = w->dst_view[rank].data;
    for (int i = 0; i < w->dst[rank].count; i++)
        if (data[i] != w->out(w->p, rank, i) + (float)(w->run * w->per_run))
            return WEFT_EINVAL;
    return 0;
}

static void run_plans(struct window *w, struct pair *pair)
{
    struct failure why = {.text = ""};
    struct runner_place place;
    assert_int_equal(runner_place("threads:", pair->world, &place, &why), CLI_OK);
    struct runner runner = {.place = &place, .plans = pair->plans, .src = w->src_view, .dst = w->dst_view};
    assert_int_equal(team_open(place.ranks, &runner.team, &why), CLI_OK);
    if (runner_open(&runner, &why))
        fail_msg("%s", why.text);
    for (w->run = 0; w->run < RUNS; w->run++) {
        team_do(runner.team, fill, w, &why);
        if (runner_run(&runner, &why))
            fail_msg("%s", why.text);
        if (team_do(runner.team, compare, w, &why))
            fail_msg("run %d: %s", w->run, why.text);
    }
    runner_close(&runner);
    team_close(runner.team);
}

/* By the algorithm, or by the library's choice if that is NULL. false if it does not do this pair. */
static bool run_window(struct window *w, const char *src, const char *dst, const char *algorithm)
{
    struct failure why;
    struct pair pair;
    weft_lower_opts opts = {.size = sizeof opts, .algorithm = algorithm};
    assert_int_equal(pair_parse(&pair, src, dst, &why), CLI_OK);
    assert_int_equal(pair.world, w->p);
    int code = pair_lower(&pair, &opts, &why);
    if (!code && weft_plan_verify((const weft_plan *const *)pair.plans, (size_t)pair.world))
        fail_msg("%s -> %s by %s: %s", src, dst, algorithm, weft_errmsg());
    for (int r = 0; r < w->p && !code; r++) {
        assert_int_equal(weft_layout_local(pair.src, r, &w->src[r]), 0);
        assert_int_equal(weft_layout_local(pair.dst, r, &w->dst[r]), 0);
        w->src_view[r] = (weft_view){.data = malloc((size_t)w->src[r].bytes + 1), .bytes = (size_t)w->src[r].bytes};
        w->dst_view[r] = (weft_view){.data = malloc((size_t)w->dst[r].bytes + 1), .bytes = (size_t)w->dst[r].bytes};
    }
    if (!code)
        run_plans(w, &pair);
    for (int r = 0; r < w->p && !code; r++) {
        free(w->src_view[r].data);
        free(w->dst_view[r].data);
    }
    pair_free(&pair);
    return !code;
}

static void all_sizes(const char *src, const char *dst, form *in, form *out, bool sums, int least)
{
    static const int sizes[] = {2, 3, 4, 5, 8};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        struct window w = {.p = sizes[k], .in = in, .out = out, .per_run = sums ? sizes[k] : 1};
        char a[80], b[80];
        snprintf(a, sizeof a, src, w.p, w.p * C);
        snprintf(b, sizeof b, dst, w.p, w.p * C);
        int did = 0;
        assert_true(run_window(&w, a, b, NULL));
        for (int i = 0; weft_algorithm_name(i); i++)
            did += run_window(&w, a, b, weft_algorithm_name(i));
        if (did < least)
            fail_msg("%s -> %s: %d algorithms do it, at least %d should", a, b, did, least);
    }
}

static float in_gather(int p, int r, int i)
{
    (void)p;
    return (float)(100 * r + i);
}
static float out_gather(int p, int r, int i)
{
    (void)p;
    (void)r;
    return (float)(100 * (i / C) + i % C);
}
static float in_reduce(int p, int r, int i)
{
    (void)p;
    return (float)(i + 100 * r);
}
static float out_reduce(int p, int r, int i)
{
    (void)r;
    return (float)(p * i + 100 * p * (p - 1) / 2);
}
static float out_scatter(int p, int r, int i)
{
    return (float)(p * (r * C + i) + 100 * p * (p - 1) / 2);
}
static float in_broadcast(int p, int r, int i)
{
    (void)p;
    (void)r;
    return (float)i;
}
static float in_alltoall(int p, int r, int i)
{
    (void)p;
    return (float)(1000 * r + 100 * (i / C) + i % C);
}
static float out_alltoall(int p, int r, int i)
{
    (void)p;
    return (float)(1000 * (i / C) + 100 * r + i % C);
}

static void test_allgather(void **state)
{
    (void)state;
    all_sizes("f32[%2$d/x] @x%1$d", "f32[%2$d] @x%1$d", in_gather, out_gather, false, 2);
}

static void test_reduce_scatter(void **state)
{
    (void)state;
    all_sizes("f32[%2$d] @x%1$d +sum(x)", "f32[%2$d/x] @x%1$d", in_reduce, out_scatter, true, 2);
}

static void test_broadcast(void **state)
{
    (void)state;
    all_sizes("f32[256] @x1=0", "f32[256] @x%1$d", in_broadcast, in_broadcast, false, 2);
}

static void test_alltoall(void **state)
{
    (void)state;
    all_sizes("f32[%1$d/x,%1$d,64] @x%1$d", "f32[%1$d,%1$d/x,64] @x%1$d", in_alltoall, out_alltoall, false, 2);
}

static void test_allreduce(void **state)
{
    (void)state;
    all_sizes("f32[%2$d] @x%1$d +sum(x)", "f32[%2$d] @x%1$d", in_reduce, out_reduce, true, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allgather), cmocka_unit_test(test_reduce_scatter), cmocka_unit_test(test_broadcast),
        cmocka_unit_test(test_alltoall),  cmocka_unit_test(test_allreduce),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
