/* Tables of device work, run by the kernels' bodies on the host, against memory_fold and memory_copy: bit by bit,
 * except that all NaNs are equal. */
#include <stdlib.h>
#include <string.h>

#include "device/body.h"
#include "device/device_table.h"
#include "device_jobs.h"
#include "memory/memory.h"
#include "memory/sum.h"
#include "support/share.h"
#include "support/suite.h"

static uint64_t launched[DEVICE_KERNELS];

static void table_run(struct device_table *t)
{
    size_t bytes, n;
    assert_int_equal(device_table_close(t), 0);
    const void *image = device_table_image(t, &bytes);
    const struct device_launch *l = device_table_launches(t, &n);
    for (size_t i = 0; i < n; i++) {
        launched[l[i].kernel]++;
        for (uint32_t block = 0; block < l[i].blocks; block++)
            device_body_block(image, &l[i], block);
    }
}

/* Tables of one task and of several, with levels, of all that tasks can say. */
static void random_tasks_match_memory(void **state)
{
    (void)state;
    enum { MOST = 12 };
    static struct job jobs[MOST];
    int64_t tables = 0;
    for (int64_t i = 0; suite_seed(&i, 0, test_share(3000, 30000)); i++, tables++) {
        nests_seed = (uint64_t)i * 7919 + 3;
        struct device_table *t = device_table_new();
        assert_non_null(t);
        int n = nests_below(4) ? 1 : 1 + (int)nests_below(MOST);
        for (int k = 0; k < n; k++) {
            jobs_make(&jobs[k]);
            jobs[k].level = (uint32_t)nests_below(3);
            assert_int_equal(jobs_add(&jobs[k], t, NULL), 0);
        }
        table_run(t);
        device_table_free(t);
        for (int k = 0; k < n; k++) {
            jobs_host(&jobs[k]);
            assert_int_equal(jobs_check(&jobs[k]), 0);
            jobs_free(&jobs[k]);
        }
    }
    for (int k = 0; k < DEVICE_SUM && tables > 1; k++)
        if (launched[k] < (uint64_t)tables / 100)
            fail_msg("kernel %d was launched %llu times only", k, (unsigned long long)launched[k]);
}

/* The forms that the kernels have for what is frequent: every cast, contiguous and turned, and every fold. */
static void dense_tasks_match_memory(void **state)
{
    (void)state;
    struct job job;
    uint64_t before[DEVICE_KERNELS];
    memcpy(before, launched, sizeof before);
    for (int64_t i = 0; jobs_make_dense(&job, &i); i++) {
        struct device_table *t = device_table_new();
        assert_non_null(t);
        assert_int_equal(jobs_add(&job, t, NULL), 0);
        table_run(t);
        device_table_free(t);
        jobs_host(&job);
        assert_int_equal(jobs_check(&job), 0);
        jobs_free(&job);
    }
    for (int k = 0; k < DEVICE_SUM; k++)
        if (launched[k] - before[k] < 10)
            fail_msg("kernel %d was launched %llu times only", k, (unsigned long long)(launched[k] - before[k]));
}

/* Do all blocks of the only launch find the same item? */
static bool one_item(const struct device_table *t)
{
    size_t bytes, n;
    const void *image = device_table_image(t, &bytes);
    const struct device_launch *l = device_table_launches(t, &n);
    return n == 1 &&
           body_item(image, l->first, l->n, l->blocks, 0) == body_item(image, l->first, l->n, l->blocks, l->blocks - 1);
}

/* A matrix of rows x columns, cut by rows on one side and by columns on the other, as when a sharding changes: the
 * pieces of thin columns are joined. Those of every other rank come as several messages. */
static void columns(int64_t rows, int64_t columns, int ranks, int from, int to, bool back)
{
    const int64_t dsize = (int64_t)weft_dtype_size(to), ssize = (int64_t)weft_dtype_size(from), part = columns / ranks;
    unsigned char *whole = malloc((size_t)(rows * columns * 8)), *cut = malloc((size_t)(rows * columns * 8));
    struct device_table *t = device_table_new();
    assert_true(whole && cut && t);
    for (int64_t i = 0; i < rows * columns * ssize; i++)
        (back ? cut : whole)[i] = (unsigned char)nests_below(256);
    for (int r = 0; r < ranks; r++) {
        const int64_t wide = back ? dsize : ssize, thin = back ? ssize : dsize;
        const int64_t in_whole[2] = {columns * wide, wide}, in_cut[2] = {part * thin, thin};
        for (int64_t first = 0, some; first < rows; first += some) {
            some = r % 2 && rows - first > rows / 3 + 1 ? rows / 3 + 1 : rows - first;
            const int64_t n[2] = {some, part};
            const uint64_t a = (uintptr_t)whole + (uint64_t)(r * part * wide + first * columns * wide),
                           b = (uintptr_t)cut + (uint64_t)((r * rows + first) * part * thin);
            const struct device_operand src = {back ? b : a, back ? in_cut : in_whole, from};
            const struct device_task task = {
                .loops = 2, .n = n, .dst = {back ? a : b, back ? in_whole : in_cut, to}, .terms = &src, .nterms = 1};
            assert_int_equal(device_table_add(t, &task), 0);
        }
    }
    table_run(t);
    assert_true(one_item(t));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < columns; c++) {
            uint64_t x = 0, found = 0, want = 0;
            const int64_t w = i * columns + c, k = (c / part * rows + i) * part + c % part;
            memcpy(&x, back ? cut + k * ssize : whole + w * ssize, (size_t)ssize);
            memory_cast_one(&want, to, &x, from);
            memcpy(&found, back ? whole + w * dsize : cut + k * dsize, (size_t)dsize);
            assert_true(found == want || (jobs_nan(found, to) && jobs_nan(want, to)));
        }
    device_table_free(t);
    free(whole);
    free(cut);
}

static void thin_columns_are_joined(void **state)
{
    (void)state;
    nests_seed = 11;
    for (int back = 0; back < 2; back++) {
        columns(1000, 64, 8, WEFT_F32, WEFT_F32, back);
        columns(333, 64, 4, WEFT_F32, WEFT_F32, back);
        columns(77, 8, 8, WEFT_F32, WEFT_F32, back);
        columns(77, 24, 8, WEFT_U8, WEFT_U8, back);
        columns(500, 64, 8, WEFT_F32, WEFT_BF16, back);
        columns(500, 64, 8, WEFT_F16, WEFT_F32, back);
        columns(500, 24, 8, WEFT_F32, WEFT_F16, back);
        columns(500, 24, 8, WEFT_F64, WEFT_I16, back);
    }
}

/* The same source for several destinations is one item, whole and in rows with gaps. */
static void replicas_are_read_once(void **state)
{
    (void)state;
    enum { REPLICAS = 5, ROWS = 37, APART = 4096 };
    static _Alignas(16) unsigned char in[ROWS * APART], out[REPLICAS][ROWS * APART + 16];
    nests_seed = 17;
    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (unsigned char)nests_below(256);
    for (int rows = 1; rows <= ROWS; rows += ROWS - 1) {
        const int64_t bytes = rows == 1 ? 5003 : 1024, n[2] = {rows, bytes}, step[2] = {APART, 1};
        const struct device_operand term = {(uintptr_t)in, step, WEFT_U8};
        struct device_table *t = device_table_new();
        assert_non_null(t);
        for (int k = 0; k < REPLICAS; k++) {
            const struct device_task task = {
                .loops = 2, .n = n, .dst = {(uintptr_t)out[k], step, WEFT_U8}, .terms = &term, .nterms = 1};
            assert_int_equal(device_table_add(t, &task), 0);
        }
        memset(out, 0x55, sizeof out);
        table_run(t);
        assert_true(one_item(t));
        device_table_free(t);
        for (int k = 0; k < REPLICAS; k++)
            for (int64_t i = 0; i < (int64_t)sizeof out[k]; i++)
                assert_int_equal(out[k][i],
                                 (rows == 1 ? i < bytes : i / APART < rows && i % APART < bytes) ? in[i] : 0x55);
    }
}

/* ---- folds to several places ---- */

enum { SLOTS = 12, SLOT = 96 }; /* memory of the tests below: slots of floats */

struct slots {
    _Alignas(16) float v[SLOTS * SLOT];
};

/* Adds a sum of slots, or a copy of one, to the table, and does it in `want`. */
static void slots_task(struct device_table *t, struct slots *real, struct slots *want, uint32_t level, int64_t n,
                       int to, const int *from, uint32_t terms)
{
    static const int64_t step[1] = {sizeof(float)};
    struct device_operand term[SLOTS];
    for (uint32_t k = 0; k < terms; k++)
        term[k] = (struct device_operand){(uintptr_t)&real->v[from[k]], step, WEFT_F32};
    const struct device_task task = {.level = level,
                                     .loops = 1,
                                     .n = &n,
                                     .dst = {(uintptr_t)&real->v[to], step, WEFT_F32},
                                     .terms = term,
                                     .nterms = terms,
                                     .op = WEFT_SUM,
                                     .acc = terms > 1 ? WEFT_F32 : 0};
    assert_int_equal(device_table_add(t, &task), 0);
    for (int64_t i = 0; i < n; i++) {
        float sum = want->v[from[0] + i];
        for (uint32_t k = 1; k < terms; k++)
            sum += want->v[from[k] + i];
        want->v[to + i] = sum;
    }
}

static void slots_fill(struct slots *real, struct slots *want)
{
    for (int i = 0; i < SLOTS * SLOT; i++)
        real->v[i] = want->v[i] = (float)nests_below(1000);
}

/* An allreduce of four ranks, in place or not: each sums a part, and the others copy it. It is one launch. */
static void copies_of_folds_need_no_level(void **state)
{
    (void)state;
    enum { RANKS = 4, PART = 24 };
    static struct slots real, want;
    nests_seed = 3;
    for (int64_t n = PART - 3; n <= PART; n++)
        for (int first = 0; first <= RANKS; first += RANKS) { /* the slot of the first result */
            struct device_table *t = device_table_new();
            assert_non_null(t);
            slots_fill(&real, &want);
            for (uint32_t level = 0; level < 2; level++)
                for (int part = 0; part < RANKS; part++)
                    for (int rank = 0; rank < RANKS; rank++) {
                        const int at = part * PART, dst = (first + rank) * SLOT + at;
                        if (level == 0 && rank == part)
                            slots_task(t, &real, &want, 0, n, dst, (int[]){at, SLOT + at, 2 * SLOT + at, 3 * SLOT + at},
                                       RANKS);
                        else if (level == 1 && rank != part)
                            slots_task(t, &real, &want, 1, n, dst, (int[]){(first + part) * SLOT + at}, 1);
                    }
            table_run(t);
            size_t launches;
            device_table_launches(t, &launches);
            assert_int_equal(launches, 1);
            device_table_free(t);
            assert_memory_equal(&real, &want, sizeof real);
        }
}

/* Where other work comes between levels, a copy of a sum stays at its level. */
static void apart_each_task_has_its_level(void **state)
{
    (void)state;
    static struct slots real, want;
    struct device_table *t = device_table_new();
    assert_non_null(t);
    device_table_apart(t);
    slots_fill(&real, &want);
    slots_task(t, &real, &want, 0, SLOT, 2 * SLOT, (int[]){0, SLOT}, 2);
    slots_task(t, &real, &want, 1, SLOT, 3 * SLOT, (int[]){2 * SLOT}, 1);
    table_run(t);
    size_t launches;
    const struct device_launch *l = device_table_launches(t, &launches);
    assert_int_equal(launches, 2);
    assert_int_equal(l[0].level, 0);
    assert_int_equal(l[1].level, 1);
    device_table_free(t);
    assert_memory_equal(&real, &want, sizeof real);
}

/* Copies and sums of random slots at random levels, of which copies of sums may move only where nobody sees it. */
static void moved_copies_are_not_seen(void **state)
{
    (void)state;
    static struct slots real, want;
    int64_t fewer = 0;
    for (int64_t round = 0; round < test_share(4000, 200000); round++) {
        struct device_table *t = device_table_new();
        const uint32_t levels = 2 + (uint32_t)round % 3;
        nests_seed = (uint64_t)round + 1;
        const int64_t n = 1 + nests_below(SLOT);
        int64_t summed = 0;         /* the last slot with a sum */
        size_t kinds = 0, launches; /* levels with copies, and those with sums */
        assert_non_null(t);
        slots_fill(&real, &want);
        for (uint32_t level = 0; level < levels; level++) {
            uint32_t written = 0, read = 0; /* slots, in this level */
            bool seen[2] = {false};
            for (int k = 0; k < 6; k++) {
                const int to = (int)nests_below(SLOTS);
                int from[3] = {0};
                const uint32_t terms = 1 + 2 * (uint32_t)(nests_below(2) && level < 2);
                uint32_t reads = 0;
                for (uint32_t i = 0; i < terms; i++) {
                    from[i] = (int)(terms == 1 && nests_below(2) ? summed : nests_below(SLOTS));
                    reads |= 1u << from[i];
                }
                if ((written | read | reads) >> to & 1 || written & reads)
                    continue;
                written |= 1u << to;
                read |= reads;
                for (uint32_t i = 0; i < terms; i++)
                    from[i] *= SLOT;
                slots_task(t, &real, &want, level, n, to * SLOT, from, terms);
                summed = terms > 1 ? to : summed;
                kinds += !seen[terms > 1];
                seen[terms > 1] = true;
            }
        }
        table_run(t);
        device_table_launches(t, &launches);
        fewer += launches < kinds;
        device_table_free(t);
        assert_memory_equal(&real, &want, sizeof real);
    }
    assert_true(fewer > 0);
}

/* Rows at any address that several destinations get from the same source or from neighbours, whole or in pieces:
 * however works are joined, each destination has its rows and nothing else. */
static void joined_copies_match_memcpy(void **state)
{
    (void)state;
    enum { ROOM = 4000, PLACES = 12 };
    static _Alignas(64) unsigned char in[2 * ROOM], out[PLACES][ROOM], want[PLACES][ROOM];
    for (int round = 0; round < 600; round++) {
        nests_seed = (uint64_t)round * 77 + 5;
        const int64_t of = nests_below(2) ? 16 : nests_below(2) ? 4 : 1; /* all addresses are multiples of this */
        const int64_t rows = 1 + nests_below(8), run = of * (1 + nests_below(ROOM / 2 / rows / of));
        const int64_t step[2] = {run + of * nests_below(2) * nests_below(4),
                                 run + of * nests_below(2) * nests_below(4)};
        const int64_t ds[2] = {step[0], 1}, ss[2] = {step[1], 1}, begin = of * nests_below(20);
        const bool neighbours = nests_below(2), aligned = nests_below(2);
        struct device_table *t = device_table_new();
        assert_non_null(t);
        for (size_t i = 0; i < sizeof in; i++)
            in[i] = (unsigned char)(i ^ i >> 8 ^ (size_t)round);
        memset(out, 0x55, sizeof out);
        memset(want, 0x55, sizeof want);
        for (int k = 0; k < PLACES; k++) {
            unsigned char *from = in + begin + (neighbours ? nests_below(ROOM / run / 2) * run : 0);
            const int64_t to = aligned ? 0 : of * nests_below(20);
            for (int64_t r = 0, some; r < rows; r += some) {
                some = nests_below(3) ? rows - r : 1 + nests_below(rows - r);
                for (int64_t c = 0, wide; c < run; c += wide) {
                    wide = nests_below(3) ? run - c : of * (1 + nests_below((run - c) / of));
                    const int64_t n[2] = {some, wide};
                    const struct device_operand term = {(uintptr_t)(from + r * step[1] + c), ss, WEFT_U8};
                    const struct device_task task = {.loops = 2,
                                                     .n = n,
                                                     .dst = {(uintptr_t)(out[k] + to + r * step[0] + c), ds, WEFT_U8},
                                                     .terms = &term,
                                                     .nterms = 1};
                    assert_int_equal(device_table_add(t, &task), 0);
                }
            }
            for (int64_t r = 0; r < rows; r++)
                memcpy(want[k] + to + r * step[0], from + r * step[1], (size_t)run);
        }
        table_run(t);
        device_table_free(t);
        if (memcmp(out, want, sizeof out) != 0)
            fail_msg("round %d: %d rows of %d bytes", round, (int)rows, (int)run);
    }
}

/* Pieces of one copy, cast or fold, in any order: they become one item, and the work is that of the whole. */
static void pieces_that_go_on_are_joined(void **state)
{
    (void)state;
    enum { N = 5003, TERMS = 3 };
    static const int64_t cuts[] = {0, 512, 1024, 4032, N};
    static const int order[] = {2, 0, 3, 1};
    static _Alignas(16) float in[TERMS][N];
    static _Alignas(16) float out[N];
    nests_seed = 5;
    for (int k = 0; k < TERMS; k++)
        for (int i = 0; i < N; i++)
            in[k][i] = (float)nests_below(1000) / 8;
    for (uint32_t terms = 1; terms <= TERMS; terms++)
        for (int narrow = 0; narrow < 2; narrow++) {
            const int to = narrow ? WEFT_BF16 : WEFT_F32;
            const int64_t from[1] = {4}, step[1] = {narrow ? 2 : 4};
            struct device_table *t = device_table_new();
            assert_non_null(t);
            for (size_t p = 0; p < sizeof order / sizeof *order; p++) {
                const int64_t first = cuts[order[p]], n[1] = {cuts[order[p] + 1] - first};
                struct device_operand term[TERMS];
                for (uint32_t k = 0; k < terms; k++)
                    term[k] = (struct device_operand){(uintptr_t)(in[k] + first), from, WEFT_F32};
                const struct device_task task = {.loops = 1,
                                                 .n = n,
                                                 .dst = {(uintptr_t)out + (uint64_t)(first * *step), step, to},
                                                 .terms = term,
                                                 .nterms = terms,
                                                 .op = WEFT_SUM,
                                                 .acc = WEFT_F32};
                assert_int_equal(device_table_add(t, &task), 0);
            }
            memset(out, 0x55, sizeof out);
            table_run(t);
            assert_true(one_item(t));
            device_table_free(t);
            for (int i = 0; i < N; i++) {
                float sum = 0;
                uint32_t want = 0, found = 0;
                for (uint32_t k = 0; k < terms; k++)
                    sum += in[k][i];
                memory_cast_one(&want, to, &sum, WEFT_F32);
                memcpy(&found, (unsigned char *)out + i * *step, (size_t)*step);
                assert_int_equal(found, want);
            }
        }
}

/* Work that is too large for one item, whose memory is not there: what the units address is checked. */
static void large_tasks_are_cut(void **state)
{
    (void)state;
    const uint64_t dst = UINT64_C(1) << 44, src = (UINT64_C(1) << 45) + 4096;
    const int64_t n[2] = {5, (INT64_C(3) << 30) + 17}, dstride[2] = {n[1] + 31, 1}, sstride[2] = {n[1] + 31, 1};
    const struct device_operand term = {src, sstride, WEFT_U8};
    const struct device_task task = {.loops = 2, .n = n, .dst = {dst, dstride, WEFT_U8}, .terms = &term, .nterms = 1};
    struct device_table *t = device_table_new();
    assert_non_null(t);
    assert_int_equal(device_table_add(t, &task), 0);
    assert_int_equal(device_table_close(t), 0);
    size_t bytes, launches;
    const void *image = device_table_image(t, &bytes);
    const struct device_launch *l = device_table_launches(t, &launches);
    uint64_t moved = 0;
    for (size_t i = 0; i < launches; i++) {
        const struct device_item *before = NULL;
        for (uint32_t block = 0; block < l[i].blocks; block += 1 + (uint32_t)nests_below(50)) {
            const struct device_item *it = body_item(image, l[i].first, l[i].n, l[i].blocks, block);
            const uint32_t each = it->size == 16 ? 1 : 16u / it->size, u = body_unit(it, block, 0, each);
            const uint32_t row = it->form == FORM_ROWS ? it->turned[0] : 0, more = row ? 15 : 0;
            uint64_t d, s;
            assert_true(u < it->units && it->units < UINT32_C(1) << 31);
            body_find(image, it, it->loops, u, &d, &s);
            assert_true(d - dst == s - src);
            assert_true((int64_t)(d - dst) < 5 * dstride[0]);
            assert_true((int64_t)((d - dst) % (uint64_t)dstride[0]) < n[1] + more);
            if (it != before)
                moved += row ? it->units / body_loops(it)[it->loops - 1].n * (uint64_t)row
                             : (uint64_t)it->units * it->size - (it->rest ? (uint64_t)(it->size - it->rest) : 0);
            before = it;
        }
    }
    assert_int_equal(moved, 5 * n[1]);
    device_table_free(t);
}

/* Nothing to do is no launch. */
static void empty_tasks_make_no_launch(void **state)
{
    (void)state;
    int32_t x = 7;
    const int64_t none[1] = {0}, stride[1] = {4};
    const struct device_operand self = {(uintptr_t)&x, stride, WEFT_I32};
    const struct device_task empty = {.loops = 1, .n = none, .dst = self, .terms = &self, .nterms = 1};
    const struct device_task same = {.dst = self, .terms = &self, .nterms = 1};
    struct device_table *t = device_table_new();
    size_t n;
    assert_non_null(t);
    assert_int_equal(device_table_add(t, &empty), 0);
    assert_int_equal(device_table_add(t, &same), 0);
    assert_int_equal(device_table_close(t), 0);
    device_table_launches(t, &n);
    assert_int_equal(n, 0);
    device_table_free(t);
}

/* All short lengths, and some long ones, in one table. Bytes behind the end do not count. */
static void sums_match_memory(void **state)
{
    (void)state;
    enum { SHORT = 600, LONG = 40, MOST = 70000, STEP = MOST / 16 * 16 + 16 };
    unsigned char *bytes = aligned_alloc(16, (size_t)LONG * STEP);
    uint64_t sums[SHORT + LONG] = {0};
    struct device_table *t = device_table_new();
    assert_true(bytes && t);
    nests_seed = 5;
    for (int64_t i = 0; i < (int64_t)LONG * STEP; i++)
        bytes[i] = (unsigned char)nests_below(256);
    uint32_t n[SHORT + LONG];
    for (int i = 0; i < SHORT + LONG; i++) {
        n[i] = i < SHORT ? (uint32_t)i + 1 : 1 + (uint32_t)nests_below(MOST);
        const uint64_t src = (uintptr_t)bytes + (uint64_t)(i % LONG) * STEP;
        assert_int_equal(device_table_sum(t, (uint32_t)(i % 3), (uintptr_t)&sums[i], src, n[i]), 0);
    }
    assert_int_equal(device_table_sum(t, 0, (uintptr_t)sums, (uintptr_t)bytes + 8, 16), WEFT_EINVAL);
    assert_int_equal(device_table_sum(t, 0, (uintptr_t)sums + 4, (uintptr_t)bytes, 16), WEFT_EINVAL);
    table_run(t);
    for (int i = 0; i < SHORT + LONG; i++)
        assert_true(sums[i] == sum_bytes(0, bytes + (i % LONG) * STEP, n[i]));
    device_table_free(t);
    free(bytes);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_tasks_match_memory),
        cmocka_unit_test(dense_tasks_match_memory),
        cmocka_unit_test(thin_columns_are_joined),
        cmocka_unit_test(large_tasks_are_cut),
        cmocka_unit_test(empty_tasks_make_no_launch),
        cmocka_unit_test(pieces_that_go_on_are_joined),
        cmocka_unit_test(sums_match_memory),
        cmocka_unit_test(replicas_are_read_once),
        cmocka_unit_test(copies_of_folds_need_no_level),
        cmocka_unit_test(apart_each_task_has_its_level),
        cmocka_unit_test(moved_copies_are_not_seen),
        cmocka_unit_test(joined_copies_match_memcpy),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
