/* Slabs: for which pairs the lowering takes them by itself, which ones they do not fit, and what the plans do: sources
 * are read in long runs, each term once. What they compute is compared with the general lowering and with an oracle by
 * the random cases of tests/property. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "plan/plan.h"
#include "support/suite.h"

static int lower_one(const char *src, const char *dst, int rank, const weft_lower_opts *o, weft_plan **p)
{
    weft_layout *a = NULL, *b = NULL;
    assert_int_equal(weft_layout_parse(src, &a), 0);
    assert_int_equal(weft_layout_parse(dst, &b), 0);
    int rc = weft_lower(&(weft_move){"t", a, b}, 1, rank, o, p);
    weft_layout_free(a);
    weft_layout_free(b);
    return rc;
}

static void assert_algorithm(const char *src, const char *dst, const weft_machine *m, int in_place, bool slabs)
{
    weft_plan *p = NULL;
    weft_lower_opts o = {.size = sizeof o, .machine = m, .in_place = in_place};
    if (lower_one(src, dst, 0, &o, &p))
        fail_msg("%s -> %s: %s", src, dst, weft_errmsg());
    if (!strcmp(p->algorithm, "slabs") != slabs)
        fail_msg("%s -> %s: algorithm %s", src, dst, p->algorithm);
    weft_plan_free(p);
}

#define TERMS "f32[65536,256] @x8 +sum(x)"
#define THIN "f32[65536,256/x] @x8"

static void chosen_for_short_runs(void **state)
{
    (void)state;
    assert_algorithm(TERMS, THIN, NULL, 0, true);
    assert_algorithm(TERMS, "bf16[65536,256/x] @x8=8..15", NULL, 0, true);
    assert_algorithm("bf16[4096,64,64] @a4.b2 +avg(a,b)", "bf16[4096,64,64/x] @x8", NULL, 0, true);
    assert_algorithm("f32[16,1,33856,31] @a13 +sum(a)", "f32[16,1,33856,31/x] @x13", NULL, 0, true);
    assert_algorithm("i32[65536,256] @x4 +max(x)", "i32[65536,256/y:1] @y4=4..7", NULL, 0, true);
}

#define SUM "f32[4194304] @x8 +sum(x)"

static void chosen_where_few_ranks_hold_the_destination(void **state)
{
    weft_machine m = WEFT_MACHINE_INIT;
    (void)state;
    assert_algorithm(SUM, "f32[4194304] @x1", NULL, 0, true);
    assert_algorithm(SUM, "f32[4194304] @x1=9", NULL, 0, true);
    assert_algorithm(SUM, "f32[4194304/x] @x2", NULL, 0, true);
    assert_algorithm(SUM, "f32[4194304] @x2=8,9", NULL, 0, true);
    assert_algorithm("u8[256,4096,53] @a7 +sum(a)", "u8[256,4096,53/x:64] @x7=0,3,1,5,2,4,6", NULL, 0, true);
    assert_algorithm("f32[4194304] @x3 +sum(x)", "f32[4194304/x] @x2", NULL, 0, false); /* half would be idle */
    assert_algorithm(SUM, "bf16[4194304/x] @x2", NULL, 0, false);                       /* narrower values */
    assert_algorithm(SUM, "f32[4194304] @x1", NULL, 1, false);                          /* in place */
    assert_algorithm("f32[16] @x8 +sum(x)", "f32[16] @x1", NULL, 0, false);
    /* Two cores are busy with two ranks, and idle for half of the time with one. */
    m.cores = 2;
    assert_algorithm(SUM, "f32[4194304/x] @x2", &m, 0, false);
    assert_algorithm(SUM, "f32[4194304] @x1", &m, 0, true);
}

static void not_chosen_where_it_gains_nothing(void **state)
{
    (void)state;
    assert_algorithm(TERMS, "f32[65536/x,256] @x8", NULL, 0, false);                          /* long runs */
    assert_algorithm("f32[2048,65536] @x8 +sum(x)", "f32[2048,65536/x] @x8", NULL, 0, false); /* long enough */
    assert_algorithm("f32[512,256] @x8 +sum(x)", "f32[512,256/x] @x8", NULL, 0, false);       /* small */
    assert_algorithm("f32[65536,256] @x2 +sum(x)", "f32[65536,256/x] @x2", NULL, 0, false);   /* few terms */
    assert_algorithm("f32[65536,256] @x8 +sum(x)", "f32[65536,256] @x8", NULL, 0, false);     /* an allreduce */
    assert_algorithm("f32[1048576,4] @x8 +sum(x)", "f32[1048576,4/x:1] @x8", NULL, 0, true);  /* rows side by side */
    assert_algorithm("f32[1048576/y,4] @x8.y2 +sum(x)", "f32[1048576,4/z:1] @z16", NULL, 0, true);
    assert_algorithm(TERMS, THIN, NULL, 1, false); /* in place: the sources would be overwritten */
}

/* Slabs send more bytes, for a host whose ranks read each other's memory. */
static void not_chosen_between_hosts_and_on_devices(void **state)
{
    int host[8] = {0, 0, 0, 0, 1, 1, 1, 1};
    weft_machine m = WEFT_MACHINE_INIT;
    (void)state;
    assert_algorithm(TERMS, THIN, &m, 0, true);
    m.launch_ns = 4000;
    assert_algorithm(TERMS, THIN, &m, 0, false);
    m = (weft_machine)WEFT_MACHINE_INIT;
    m.inside_bytes_per_us = 400000;
    assert_algorithm(TERMS, THIN, &m, 0, false);
    m = (weft_machine)WEFT_MACHINE_INIT;
    m.ranks = 8;
    m.host = host;
    assert_algorithm(TERMS, THIN, &m, 0, false);
    memset(host, 0, sizeof host);
    assert_algorithm(TERMS, THIN, &m, 0, true);
}

static void chosen_for_short_runs_of_replicas(void **state)
{
    weft_machine m = WEFT_MACHINE_INIT;
    (void)state;
    assert_algorithm("f32[524288,32] @x8", "f32[524288,32/x] @x8", NULL, 0, true);
    assert_algorithm("f32[524288/x,32] @x2.y4", "bf16[524288,32/z] @z8=7,6,5,4,3,2,1,0", NULL, 0, true);
    assert_algorithm("f32[1048576] @x4", "f32[1048576/x:2] @x4=4..7", NULL, 0, true);
    assert_algorithm("f32[524288,32] @x8", "f32[524288,32/y] @x4.y2", NULL, 0, true);
    assert_algorithm("f32[65536,256] @x8", "f32[65536,256/x] @x8", NULL, 0, false);   /* two cache lines */
    assert_algorithm("f32[524288,32] @x8", "f32[524288/x,32] @x8", NULL, 0, false);   /* long runs */
    assert_algorithm("f32[524288,32/x] @x8", "f32[524288/x,32] @x8", NULL, 0, false); /* no replicas */
    assert_algorithm("f32[2048,32] @x8", "f32[2048,32/x] @x8", NULL, 0, false);       /* small */
    assert_algorithm("f32[524288,32] @x2", "f32[524288,32/x] @x8", NULL, 0, false);   /* six ranks would be idle */
    assert_algorithm("f32[524288,32] @x8", "f32[524288,32/x] @x8", NULL, 1, false);   /* in place */
    m.inside_bytes_per_us = 400000;
    assert_algorithm("f32[524288,32] @x8", "f32[524288,32/x] @x8", &m, 0, false);
}

static void what_does_not_fit_is_refused(void **state)
{
    static const char *const cases[][3] = {
        {"f32[4096,64/y] @x4.y2", "f32[4096,64/x~1] @x4", "ghosts"},
        {"f32[4096/y:7,64] @x4.y3", "f32[4096,64/z] @z4", "deals blocks"},
        {"f32[8,4] @x2",
         "{\"dtype\":\"f32\",\"shape\":[8,4],\"boxes\":[{\"rank\":0,\"at\":[0,0],\"len\":[8,2]},"
         "{\"rank\":1,\"at\":[0,2],\"len\":[8,2]}]}",
         "boxes"},
        {"f32[31,7] @x4", "f32[31,7/x:1] @x4", "no dim"},
        {"f32[4096/y,64] @y4", "f32[4096,64/z] @z4", "slabs"}, /* neither a fold nor replicas */
        {"f32[4096,64/x] @x4", "f32[4096/x,64] @x4", "slabs"},
        {"f32[4096,64] @x4 +sum(x)", "f32[4096,64/x~1] @x4", "ghosts"},
        {"f32[4096/y:7,64] @x4.y3 +sum(x)", "f32[4096,64/z] @z4", "deals blocks"},
        {"f32[4096,64] @x4 +sum(x)", "bf16[4096,64] @z1=4", "one rank would fold"},
        {"f32[3,5] @x8 +sum(x)", "f32[3,5/y] @y8=8..15", "no dim"},
        {"f64[4] @a2=2,3 +sum(a)", "f32[4] @a4 +sum(a)", "narrower"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_plan *p = NULL;
        weft_lower_opts o = {.size = sizeof o, .algorithm = "slabs"};
        if (lower_one(cases[i][0], cases[i][1], 0, &o, &p) != WEFT_EINVAL || !strstr(weft_errmsg(), cases[i][2]))
            fail_msg("%s -> %s: %s", cases[i][0], cases[i][1], p ? "it fits" : weft_errmsg());
    }
}

/* Each rank folds one slab of whole rows, from one term of each rank, and sends the others their columns of it. */
static void each_rank_folds_whole_rows(void **state)
{
    weft_plan *plan[8];
    weft_lower_opts o = {.size = sizeof o};
    (void)state;
    for (int r = 0; r < 8; r++)
        assert_int_equal(lower_one(TERMS, THIN, r, &o, &plan[r]), 0);
    if (weft_plan_verify((const weft_plan *const *)(uintptr_t)plan, 8))
        fail_msg("%s", weft_errmsg());
    for (int r = 0; r < 8; r++) {
        int64_t folded = 0, bytes[8] = {0};
        for (size_t s = 0; s < plan[r]->nsteps; s++) {
            const struct plan_step *st = &plan[r]->steps[s];
            folded += st->kind == PLAN_REDUCE;
            if (st->kind == PLAN_RECV)
                bytes[st->peer] += st->bytes;
        }
        assert_true(folded > 0);
        for (int from = 0; from < 8; from++)
            assert_int_equal(bytes[from], from == r ? 0 : (8192 * 256 + 8192 * 32) * 4);
        weft_plan_free(plan[r]);
    }
}

/* Each rank of the source folds one slab, and sends it to the only rank of the destination. */
static void all_sources_fold_for_one_rank(void **state)
{
    enum { RANKS = 8, ROOT = 2, COUNT = 4194304 };
    weft_plan *plan[RANKS];
    weft_lower_opts o = {.size = sizeof o};
    (void)state;
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(lower_one(SUM, "f32[4194304] @x1=2", r, &o, &plan[r]), 0);
    if (weft_plan_verify((const weft_plan *const *)(uintptr_t)plan, RANKS))
        fail_msg("%s", weft_errmsg());
    for (int r = 0; r < RANKS; r++) {
        weft_stats stats = WEFT_STATS_INIT;
        assert_int_equal(weft_plan_stats(plan[r], &stats), 0);
        const int64_t slab = COUNT / RANKS * 4, terms = (RANKS - 1) * slab;
        assert_int_equal(stats.folded, RANKS * slab);
        assert_int_equal(stats.received, terms + (r == ROOT ? (RANKS - 1) * slab : 0));
        assert_int_equal(stats.sent, terms + (r == ROOT ? 0 : slab));
        assert_int_equal(stats.stated, stats.received);
    }
    for (int r = 0; r < RANKS; r++)
        weft_plan_free(plan[r]);
}

/* Each replica gives every other rank its columns of a slab, and nothing else is read. Two pieces have four replicas
 * each, and the rows do not go up in their slabs. */
static void each_replica_gives_a_slab(void **state)
{
    enum { RANKS = 8, ROWS = 131074, HALF = ROWS / 2, SLAB = HALF / 4 + 1 };
    weft_plan *plan[RANKS];
    weft_lower_opts o = {.size = sizeof o};
    (void)state;
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(lower_one("f32[131074/x,32] @x2.y4", "bf16[131074,32/z] @z8", r, &o, &plan[r]), 0);
    if (weft_plan_verify((const weft_plan *const *)(uintptr_t)plan, RANKS))
        fail_msg("%s", weft_errmsg());
    for (int r = 0; r < RANKS; r++) {
        int64_t bytes[RANKS] = {0};
        weft_stats stats = WEFT_STATS_INIT;
        assert_int_equal(weft_plan_stats(plan[r], &stats), 0);
        assert_string_equal(plan[r]->algorithm, "slabs");
        assert_int_equal(stats.stated, stats.received);
        assert_int_equal(plan[r]->bound, HALF * 4 * 2);
        for (size_t s = 0; s < plan[r]->nsteps; s++)
            if (plan[r]->steps[s].kind == PLAN_RECV)
                bytes[plan[r]->steps[s].peer] += plan[r]->steps[s].bytes;
        for (int from = 0; from < RANKS; from++) {
            int64_t rows = from % 4 < 3 ? SLAB : HALF - 3 * SLAB;
            assert_int_equal(bytes[from], from == r ? 0 : rows * 4 * 2);
        }
    }
    for (int r = 0; r < RANKS; r++)
        weft_plan_free(plan[r]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chosen_for_short_runs),
        cmocka_unit_test(chosen_where_few_ranks_hold_the_destination),
        cmocka_unit_test(not_chosen_where_it_gains_nothing),
        cmocka_unit_test(not_chosen_between_hosts_and_on_devices),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(each_rank_folds_whole_rows),
        cmocka_unit_test(all_sources_fold_for_one_rank),
        cmocka_unit_test(chosen_for_short_runs_of_replicas),
        cmocka_unit_test(each_replica_gives_a_slab),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
