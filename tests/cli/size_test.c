/* Sizes beyond 2^31 elements and 2^32 bytes: pairs of many shapes lower and verify, each in far less than a second, and
 * move what they must; and real moves of more than 4 GiB, one of them in one message, are right to the last byte. */
#define _POSIX_C_SOURCE 200809L
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "cli/move/layout_pair.h"
#include "cli/move/runner.h"
#include "support/share.h"
#include "support/suite.h"

#define G INT64_C(1000000000)

/* What crosses, in bytes, worked out by hand. */
static const struct {
    const char *src, *dst;
    int64_t bytes;
} pairs[] = {
    {"u8[4300000000/x] @x2", "u8[4300000000/x] @x2=1,0", 4300000000},
    {"u8[4300000000] @x1=0", "u8[4300000000] @x1=1", 4300000000},
    {"f32[3000000000/x] @x8", "f32[3000000000] @x8", 7 * 12 * G},
    {"f32[3000000001/x] @x8", "bf16[3000000001] @x8", 7 * (6 * G + 2)},
    {"f64[100000/x,60000] @x16", "f64[100000,60000/x] @x16", 48 * G / 16 * 15},
    {"f32[5000000000] @x8 +sum(x)", "f32[5000000000/x] @x8", 7 * 20 * G},
    {"f32[5000000000] @x8 +sum(x)", "f32[5000000000] @x8", 14 * 20 * G},
    {"bf16[5000000000] @x4 +avg(x)", "f32[5000000000] @x4=4..7", 4 * 10 * G + 3 * 10 * G},
    {"f32[10000000000/x] @x8", "f32[10000000000/x~1o] @x8", 8 * 2 * 4},
    {"f32[10000000000/x] @x8", "f32[10000000000/x~2000000000:0] @x8", 4 * (125 * G / 100 + 6 * 2 * G)},
    {"f32[10000000000/x~1o] @x8 +sum(~)", "f32[10000000000/x] @x8", 8 * 2 * 4},
    {"u8[4000000000000000000/x] @x24", "u8[4000000000000000000/x] @x24=23,0..22", INT64_C(4000000000000000000)},
    {"u8[4611686018427387903] @x1", "u8[4611686018427387903/x] @x1", 0},
    {"f32[70000/p:64,70000/q:64] @p2.q2", "f32[70000/p:64,70000/q:64] @p2.q2=4..7", 4 * 49 * G / 10},
    {"f64[70016/p:64,70016] @p2", "f64[70016/p:32,70016] @p2", 8 * INT64_C(70016) * 70016 / 2},
    {"f64[6000000000/x:1000] @x2", "f64[6000000000/x:1000] @x2=1,0", 48 * G},
    {"i16[6000000000/x:1024] @x4", "i16[6000000000/x:256] @x4=4..7", 12 * G},
    {"f32[2,3000000000/a/b:7] @a3.b2", "f32[2,3000000000] @a3.b2", 4 * 2 * 3 * G * 5},
    {"i8[65536/a,65536/b,65536] @a4.b4", "i8[65536,65536/a,65536/b] @a4.b4", (INT64_C(1) << 48) / 16 * 15},
};
enum { PAIRS = sizeof pairs / sizeof *pairs };

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void huge_pairs_lower_and_verify_quickly(void **state)
{
    (void)state;
    for (int i = 0; i < PAIRS; i++) {
        struct layout_pair p;
        struct failure why;
        struct layout_pair_totals t;
        double from = seconds();
        weft_lower_opts opts = {.size = sizeof opts, .algorithm = "direct"};
        if (layout_pair_parse(&p, pairs[i].src, pairs[i].dst, &why) || layout_pair_lower(&p, &opts, &why))
            fail_msg("%s", why.text);
        if (weft_plan_verify((const weft_plan *const *)p.plans, (size_t)p.world))
            fail_msg("%s -> %s: %s", pairs[i].src, pairs[i].dst, weft_errmsg());
        layout_pair_totals_start(&t);
        for (int r = 0; r < p.world; r++)
            assert_int_equal(layout_pair_totals_add(&t, &p, p.plans[r], &why), CLI_OK);
        double took = seconds() - from;
        print_message("%-36s -> %-40s %20lld B %6.1f ms\n", pairs[i].src, pairs[i].dst, (long long)t.sent, 1e3 * took);
        if (t.sent != pairs[i].bytes || t.received != t.sent || t.bound != t.sent)
            fail_msg("%lld B sent, %lld B received, %lld B the bound, %lld B by hand", (long long)t.sent,
                     (long long)t.received, (long long)t.bound, (long long)pairs[i].bytes);
        assert_true(took < 0.5);
        layout_pair_free(&p);
    }
}

/* Lines of replicas, periods of blocks, costs and bounds that do not fit into 64 bits, though what each rank moves
 * does: plans are made as ever, and are right. The sanitizer build sees numbers that wrap. */
static void numbers_beyond_64_bits_do_not_wrap(void **state)
{
    (void)state;
    static const struct {
        const char *src, *dst, *algorithm;
        int per_host;
        int64_t latency_ns, bytes_per_us, bucket;
    } odd[] = {
        {"u8[2305843009213693952] @x4", "u8[2305843009213693952] @x4=4..7", "direct", 0, 0, 0, 0},
        {"u8[2305843009213693952/y] @x4.y2", "u8[2305843009213693952] @x16=8..23", "direct", 0, 0, 0, 0},
        {"u8[2305843009213693952/x] @x2", "u8[2305843009213693952] @x8", NULL, 2, 0, 1, 0},
        {"u8[1125899906842624/x:17592186044416] @x2", "u8[1125899906842624/x:17592186044415] @x2", NULL, 0, 0, 0, 0},
        {"u8[36028797018963968] @x2.y16 +sum(x)", "u8[36028797018963968] @x2.y16", NULL, 0, 0, 0, 0},
        {"f32[8] @x4 +sum(x)", "f32[8] @x4", NULL, 2, INT64_MAX, 1, 0},
        {"f32[4/x,72057594037927936] @x4", "f32[4,72057594037927936/x] @x4", NULL, 2, INT64_MAX, 1, INT64_MAX},
    };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        struct layout_pair p;
        struct failure why;
        weft_lower_opts opts = {.size = sizeof opts, .algorithm = odd[i].algorithm, .bucket = odd[i].bucket};
        opts.machine = &(weft_machine){.size = sizeof(weft_machine),
                                       .ranks_per_host = odd[i].per_host,
                                       .latency_ns = odd[i].latency_ns,
                                       .bytes_per_us = odd[i].bytes_per_us};
        if (layout_pair_parse(&p, odd[i].src, odd[i].dst, &why) || layout_pair_lower(&p, &opts, &why))
            fail_msg("%s -> %s: %s", odd[i].src, odd[i].dst, why.text);
        if (weft_plan_verify((const weft_plan *const *)p.plans, (size_t)p.world))
            fail_msg("%s -> %s: %s", odd[i].src, odd[i].dst, weft_errmsg());
        layout_pair_free(&p);
    }
}

/* What cannot be counted is refused. */
static void sizes_that_cannot_be_counted_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *src, *dst, *algorithm, *says;
    } bad[] = {
        {"u8[4611686018427387904] @x1", "u8[4611686018427387904/x] @x1", NULL, "2^63 bytes"},
        {"f32[1000000000000000000] @x8 +sum(x)", "f32[1000000000000000000] @x1", NULL, "2^63 bytes"},
        {"f32[1000000000000000000] @x8 +sum(x)", "f32[1000000000000000000] @x8", "ring", "can be counted"},
        {"f32[1000000000000000000] @x8 +sum(x)", "f32[1000000000000000000] @x8", "one_phase", "can be counted"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct layout_pair p;
        struct failure why;
        weft_lower_opts opts = {.size = sizeof opts, .algorithm = bad[i].algorithm};
        assert_int_equal(layout_pair_parse(&p, bad[i].src, bad[i].dst, &why), CLI_OK);
        weft_plan *plan = NULL;
        assert_int_equal(layout_pair_lower_one(&p, 0, &opts, &plan, &why), CLI_BAD);
        if (!strstr(why.text, bad[i].says))
            fail_msg("%s -> %s: %s", bad[i].src, bad[i].dst, why.text);
        layout_pair_free(&p);
    }
}

/* ---- real moves ---- */

/* Element i of the tensor, in units of 8 bytes. */
static uint64_t unit_of(int64_t i)
{
    return hash_u64(7, (uint64_t)i);
}

/* A tensor of rows of `width` units, f64 for the library, all of whose boxes are units. */
struct big {
    struct layout_pair pair;
    weft_local local[2][2]; /* side, rank */
    weft_view view[2][2];
    weft_box box[2][2];
    int64_t width;
    int64_t wrong[2];
};

static int each_unit(struct big *b, int side, int rank, bool fill)
{
    if (!b->local[side][rank].count)
        return 0;
    uint64_t *data = b->view[side][rank].data;
    const weft_box *x = &b->box[side][rank];
    int ndim = b->local[side][rank].ndim;
    int64_t rows = ndim > 1 ? x->len[0] : 1, columns = x->len[ndim - 1], wrong = 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < columns; k++) {
            uint64_t want = unit_of(ndim > 1 ? (x->at[0] + i) * b->width + x->at[1] + k : x->at[0] + k);
            if (fill)
                *data++ = want;
            else
                wrong += *data++ != want;
        }
    b->wrong[rank] = wrong;
    return 0;
}

static int fill_rank(void *arg, int rank)
{
    return each_unit(arg, 0, rank, true);
}

static int compare_rank(void *arg, int rank)
{
    return each_unit(arg, 1, rank, false);
}

static void big_open(struct big *b, const char *src, const char *dst, int64_t width)
{
    struct failure why;
    *b = (struct big){.width = width};
    if (layout_pair_parse(&b->pair, src, dst, &why))
        fail_msg("%s", why.text);
    assert_int_equal(b->pair.world, 2);
    weft_lower_opts opts = {.size = sizeof opts, .world = 2};
    if (layout_pair_lower(&b->pair, &opts, &why))
        fail_msg("%s", why.text);
    for (int side = 0; side < 2; side++)
        for (int r = 0; r < 2; r++) {
            const weft_layout *l = side ? b->pair.dst : b->pair.src;
            weft_local *local = &b->local[side][r];
            size_t n;
            assert_int_equal(weft_layout_local(l, r, local), 0);
            assert_int_equal(weft_layout_boxes(l, r, &b->box[side][r], 1, &n), 0);
            assert_true(n <= 1);
            void *data = local->bytes ? malloc((size_t)local->bytes) : NULL;
            assert_true(data || !local->bytes);
            b->view[side][r] = (weft_view){.data = data, .bytes = (size_t)local->bytes};
        }
}

static void move_big(const char *src, const char *dst, int64_t width)
{
    struct big b;
    struct failure why = {.text = ""};
    struct runner_place place;
    big_open(&b, src, dst, width);
    assert_int_equal(runner_place("threads:2", 2, &place, &why), CLI_OK);
    struct runner runner = {.place = &place, .plans = b.pair.plans, .src = b.view[0], .dst = b.view[1]};
    assert_int_equal(worker_threads_open(2, &runner.threads, &why), CLI_OK);
    worker_threads_do(runner.threads, fill_rank, &b, &why);
    if (runner_begin(&runner, &why) || runner_open(&runner, &why) || runner_run(&runner, &why))
        fail_msg("%s", why.text);
    worker_threads_do(runner.threads, compare_rank, &b, &why);
    runner_close(&runner);
    worker_threads_close(runner.threads);
    for (int r = 0; r < 2; r++)
        if (b.wrong[r])
            fail_msg("%s -> %s: rank %d has %lld wrong units", src, dst, r, (long long)b.wrong[r]);
    for (int i = 0; i < 4; i++)
        free(b.view[i / 2][i % 2].data);
    layout_pair_free(&b.pair);
}

static int64_t available(void)
{
    char line[200];
    long long kib = 0;
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %lld", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib * 1024;
}

/* 550,000,000 units are 4.4e9 bytes, more than 2^32; a share below 100 makes it less. */
static void moves_beyond_4_gib_are_right(void **state)
{
    (void)state;
    int64_t n = test_share(550000000, 550000000), side = test_share(23500, 23500);
    if (available() < 2 * 8 * n + (INT64_C(2) << 30)) {
        print_message("skip: a move of %lld B needs %lld B of memory\n", 8LL * n, 16LL * n + (2LL << 30));
        skip();
    }
    char src[100], dst[100];
    snprintf(src, sizeof src, "f64[%lld] @x1=0", (long long)n);
    snprintf(dst, sizeof dst, "f64[%lld] @x1=1", (long long)n);
    move_big(src, dst, n);
    snprintf(src, sizeof src, "f64[%lld/x,%lld] @x2", (long long)side, (long long)side);
    snprintf(dst, sizeof dst, "f64[%lld,%lld/x] @x2=1,0", (long long)side, (long long)side);
    move_big(src, dst, side);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(huge_pairs_lower_and_verify_quickly), cmocka_unit_test(numbers_beyond_64_bits_do_not_wrap),
        cmocka_unit_test(sizes_that_cannot_be_counted_are_refused), cmocka_unit_test(moves_beyond_4_gib_are_right)};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
