/* How long one rank's plan takes to make in large worlds: tens of milliseconds here, so that a second of the
 * processor's time is far away. What looks at every pair of ranks, or at all of them for every piece, takes many. */
#define _POSIX_C_SOURCE 200809L
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "support/suite.h"
#include "weft.h"

#define ENOUGH 2.0 /* seconds: room for instrumented builds */

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static weft_layout *parse(const char *text)
{
    weft_layout *l = NULL;
    if (weft_layout_parse(text, &l))
        fail_msg("%s", weft_errmsg());
    return l;
}

static void plans_of_large_worlds_take_less_than_2_s(void **state)
{
    (void)state;
    static const struct {
        const char *src, *dst;
        int rank, per_host;
    } large[] = {
        /* every piece goes into every host once */
        {"f32[1048576/x] @x4096", "f32[1048576] @x4096", 5, 8},
        /* many replicas on many hosts, of which each feeds one piece */
        {"f32[1048576] @x1024", "f32[1048576/y] @y1024=1024..2047", 5, 8},
        {"f32[1048576] @x1024", "f32[1048576/y] @y1024=1024..2047", 1500, 8},
        {"f32[1048576] @x1024", "f32[1048576/y] @y64.z16=1024..2047", 1500, 8},
        /* meshes of the same ranks with other axes */
        {"f32[1048576/x] @x1024", "f32[1048576] @y32.z32", 5, 0},
        /* many terms to one rank, and to all of them */
        {"f32[1048576] @x65536 +sum(x)", "f32[1048576] @y1=0", 0, 0},
        {"f32[1048576] @x4095 +sum(x)", "f32[1048576] @x4095", 5, 0},
        {"f32[1048576] @x2000.y2 +sum(x)", "f32[1048576/y] @x2000.y2", 5, 0},
        {"f32[1048576] @x64.y64 +sum(x)+max(y)", "f32[1048576] @x64.y64", 5, 8},
    };
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        weft_layout *src = parse(large[i].src), *dst = parse(large[i].dst);
        weft_lower_opts o = {.size = sizeof o, .algorithm = "direct"};
        weft_plan *p = NULL;
        o.machine = &(weft_machine){.size = sizeof(weft_machine), .ranks_per_host = large[i].per_host};
        double from = seconds();
        if (weft_lower(&(weft_move){"w", src, dst}, 1, large[i].rank, &o, &p))
            fail_msg("%s -> %s: %s", large[i].src, large[i].dst, weft_errmsg());
        double took = seconds() - from;
        print_message("%-40s -> %-40s %7.1f ms\n", large[i].src, large[i].dst, 1e3 * took);
        assert_true(took < ENOUGH);
        weft_plan_free(p);
        weft_layout_free(src);
        weft_layout_free(dst);
    }
}

/* Ranks first and on have `parts` parts of a tensor, each of them as often as it goes into the ranks. */
static weft_layout *copies(int first, int ranks, int parts)
{
    enum { EXTENT = 1 << 20 };
    int *rank = malloc((size_t)ranks * sizeof *rank);
    int64_t *at = malloc((size_t)ranks * sizeof *at), *len = malloc((size_t)ranks * sizeof *len);
    assert_true(rank && at && len);
    for (int i = 0; i < ranks; i++) {
        rank[i] = first + i;
        at[i] = EXTENT / parts * (i % parts);
        len[i] = EXTENT / parts;
    }
    weft_layout_desc desc = WEFT_LAYOUT_DESC_INIT;
    desc.dtype = WEFT_F32;
    desc.ndim = 1;
    desc.dims = &(weft_dim){.extent = EXTENT};
    desc.boxes = &(weft_boxes){.n = (size_t)ranks, .rank = rank, .at = at, .len = len};
    desc.flags = WEFT_LAYOUT_OVERLAPS;
    weft_layout *l = NULL;
    if (weft_layout_create(&desc, &l))
        fail_msg("%s", weft_errmsg());
    free(rank);
    free(at);
    free(len);
    return l;
}

static double lower_seconds(const weft_layout *src, const weft_layout *dst, int rank, int per_host)
{
    weft_machine machine = {.size = sizeof machine, .ranks_per_host = per_host};
    weft_lower_opts o = {.size = sizeof o, .machine = &machine};
    weft_plan *p = NULL;
    double from = seconds();
    if (weft_lower(&(weft_move){"w", src, dst}, 1, rank, &o, &p))
        fail_msg("%s", weft_errmsg());
    double took = seconds() - from;
    weft_plan_free(p);
    return took;
}

/* What compares each copy with all others takes some 15 s for each of these. */
static void many_copies_of_boxes_take_less_than_2_s(void **state)
{
    enum { RANKS = 40000 };
    (void)state;
    char text[2][64];
    snprintf(text[0], sizeof text[0], "f32[1048576] @x%d", RANKS);
    snprintf(text[1], sizeof text[1], "f32[1048576] @x%d=%d..%d", RANKS, RANKS, 2 * RANKS - 1);
    weft_layout *src[] = {copies(0, RANKS, 1), copies(0, RANKS, 2), parse(text[0])};
    weft_layout *dst[] = {copies(RANKS, RANKS, 1), copies(RANKS, RANKS, 2), copies(0, RANKS, 2), parse(text[1])};
    double all = 0;
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < (i < 2 ? 4 : 3); k++)
            for (int hosts = 0; hosts < 2; hosts++) {
                double a = lower_seconds(src[i], dst[k], 5, hosts ? 8 : 0);
                double b = lower_seconds(src[i], dst[k], k == 2 ? 6 : RANKS + 5, hosts ? 8 : 0);
                print_message("source %d, destination %d, %s: %.1f and %.1f ms\n", i, k,
                              hosts ? "8 ranks a host" : "one host", 1e3 * a, 1e3 * b);
                all += a + b;
                assert_true(a < ENOUGH && b < ENOUGH);
            }
    print_message("all: %.1f ms\n", 1e3 * all);
    for (int i = 0; i < 3; i++)
        weft_layout_free(src[i]);
    for (int i = 0; i < 4; i++)
        weft_layout_free(dst[i]);
}

/* Experts of an engine: one layout of the source, whose ranks share blocks, and another place in each tensor's buffer.
 */
static void scales_of_many_places_take_less_than_2_s(void **state)
{
    enum { TENSORS = 1000 };
    (void)state;
    weft_layout *src = parse("f32[2048/x,256] @x128"), *dst[TENSORS];
    weft_move *moves = calloc(TENSORS, sizeof *moves);
    weft_plan *p = NULL;
    assert_non_null(moves);
    for (int i = 0; i < TENSORS; i++) {
        int rank = 128 + i % 8;
        int64_t at[2] = {0}, len[2] = {2048, 256}, stride[2] = {256, 1}, offset = i / 8 * 2048 * 256;
        weft_layout_desc desc = WEFT_LAYOUT_DESC_INIT;
        desc.dtype = WEFT_F8E4M3;
        desc.ndim = 2;
        desc.dims = (weft_dim[]){{.extent = 2048}, {.extent = 256}};
        desc.boxes = &(weft_boxes){.n = 1, .rank = &rank, .at = at, .len = len, .offset = &offset, .stride = stride};
        desc.scale = &(weft_scale){.dtype = WEFT_F32, .block = {128, 128}};
        if (weft_layout_create(&desc, &dst[i]))
            fail_msg("%s", weft_errmsg());
        moves[i] = (weft_move){"w", src, dst[i]};
    }
    double from = seconds();
    if (weft_lower(moves, TENSORS, 5, NULL, &p))
        fail_msg("%s", weft_errmsg());
    double took = seconds() - from;
    weft_stats st = WEFT_STATS_INIT;
    assert_int_equal(weft_plan_stats(p, &st), 0);
    print_message("%d tensors with scales: %.1f ms, %lld bytes a tensor\n", TENSORS, 1e3 * took,
                  (long long)st.memory / TENSORS);
    assert_true(took < ENOUGH);
    assert_true(st.memory / TENSORS < 2500); /* tensors share what follows from the source */
    weft_plan_free(p);
    for (int i = 0; i < TENSORS; i++)
        weft_layout_free(dst[i]);
    weft_layout_free(src);
    free(moves);
}

/* A model of many small tensors, all of which travel together. */
static void plan_of_many_tensors_takes_less_than_2_s(void **state)
{
    enum { TENSORS = 40000 };
    (void)state;
    weft_layout *src = parse("f32[16/x] @x2"), *dst = parse("f32[16] @x2");
    weft_move *moves = calloc(TENSORS, sizeof *moves);
    char(*names)[16] = calloc(TENSORS, sizeof *names);
    assert_true(moves && names);
    for (int i = 0; i < TENSORS; i++) {
        snprintf(names[i], sizeof names[i], "layer.%d", i);
        moves[i] = (weft_move){names[i], src, dst};
    }
    weft_plan *p = NULL;
    double from = seconds();
    assert_int_equal(weft_lower(moves, TENSORS, 1, NULL, &p), 0);
    double lowered = seconds();
    size_t n = 0;
    weft_arrival *all = calloc(2 * TENSORS, sizeof *all);
    assert_non_null(all);
    assert_int_equal(weft_plan_arrivals(p, all, 2 * TENSORS, &n), 0);
    double told = seconds();
    assert_int_equal(n, 2 * TENSORS);
    print_message("%d tensors: lowered in %.1f ms, their arrivals told in %.1f ms\n", TENSORS, 1e3 * (lowered - from),
                  1e3 * (told - lowered));
    assert_true(lowered - from < ENOUGH && told - lowered < ENOUGH);
    free(all);
    weft_plan_free(p);
    free(moves);
    free(names);
    weft_layout_free(src);
    weft_layout_free(dst);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(plans_of_large_worlds_take_less_than_2_s),
                                       cmocka_unit_test(many_copies_of_boxes_take_less_than_2_s),
                                       cmocka_unit_test(scales_of_many_places_take_less_than_2_s),
                                       cmocka_unit_test(plan_of_many_tensors_takes_less_than_2_s)};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
