/* Casts and folds of every level against plain C, bit by bit. It needs no test library, so that it can be built for
 * another processor by one call of a cross compiler, with -O3 -Iinclude -Isrc -Itests: this file, support/share.c,
 * base/dtype.c and the sources of memory. An emulator runs it then (qemu-x86_64 -cpu max).
 * Sources of 8 and 16 bits: all their codes. Sources of 32 bits and more: random bits, 10^8 f32 for each narrow float
 * if WEFT_TEST_SHARE is full, otherwise a share of them. Then all lengths up to 70 at every alignment, rows, and folds,
 * those of 8-bit elements with all pairs of codes. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "memory/kernels.h"
#include "memory/memory.h"
#include "support/share.h"

enum { N = 65536, LONGEST = 70, EDGE = 64, ROWS = 5 };

static uint64_t state = 88172645463325252u;
static unsigned char src[N * 16 + EDGE], want[N * 16 + EDGE], got[N * 16 + EDGE];
static int faults;

static uint64_t next_bits(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static void fill_random(size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = next_bits();
        memcpy(src + i, &word, 8);
    }
}

/* What memory_cast does at this level. */
static void cast_at(int level, void *dst, int to, const void *from_data, int from, size_t n)
{
    memory_level(level);
    memory_cast(dst, to, from_data, from, n);
}

static void compare(int level, int to, int from, size_t n, size_t bytes)
{
    if (memcmp(want, got, bytes) == 0)
        return;
    size_t size = weft_dtype_size(to), i = 0;
    while (want[i] == got[i])
        i++;
    printf("%s: element %zu of %zu from %s to %s differs from plain C\n", memory_level_name(level), i / size, n,
           weft_dtype_name(from), weft_dtype_name(to));
    faults++;
}

static void check_block(int level, int to, int from)
{
    cast_at(0, want, to, src, from, N);
    cast_at(level, got, to, src, from, N);
    compare(level, to, from, N, N * weft_dtype_size(to));
}

static void check_codes(int level, int to, int from)
{
    size_t size = weft_dtype_size(from);
    for (size_t i = 0; i < N; i++) {
        uint16_t code = (uint16_t)i;
        memcpy(src + i * size, &code, size);
    }
    check_block(level, to, from);
}

static void check_random(int level, int to, int from)
{
    bool main_pair = from == WEFT_F32 && dtype_is_float(to) && weft_dtype_size(to) < 4;
    int64_t blocks = main_pair ? test_share(15, 100000000 / N + 1) : 2;
    for (int64_t b = 0; b < blocks && !faults; b++) {
        fill_random(N * weft_dtype_size(from));
        check_block(level, to, from);
    }
}

/* Every length, both sides at every alignment within a vector, nothing written beyond the end; rows with gaps. In fewer
 * rounds each length has other alignments than the one before. */
static void check_lengths(int level, int to, int from)
{
    size_t d = weft_dtype_size(to), s = weft_dtype_size(from);
    fill_random(ROWS * (LONGEST + 1) * 16 + EDGE);
    for (size_t n = 0; n <= LONGEST; n++)
        for (size_t k = 0, rounds = (size_t)test_rounds(16); k < rounds; k++) {
            const size_t at = (5 * n + k * 16 / rounds) % 16;
            struct memory_tile rows = {2, {ROWS, (int64_t)n}, {{0}, {0}}};
            size_t span = ROWS * (LONGEST + 1) * d + EDGE;
            rows.stride[0][0] = (int64_t)((LONGEST + 1) * d);
            rows.stride[1][0] = (int64_t)((LONGEST + 1) * s);
            rows.stride[0][1] = (int64_t)d;
            rows.stride[1][1] = (int64_t)s;
            for (int tiled = 0; tiled < 2; tiled++) {
                memset(want, 0xa5, span);
                memset(got, 0xa5, span);
                if (tiled) {
                    memory_level(0);
                    memory_copy(&rows, want + at, to, src + 15 - at, from);
                    memory_level(level);
                    memory_copy(&rows, got + at, to, src + 15 - at, from);
                } else {
                    cast_at(0, want + at, to, src + 15 - at, from, n);
                    cast_at(level, got + at, to, src + 15 - at, from, n);
                }
                compare(level, to, from, n, span);
            }
        }
}

/* Folds of every length and several numbers of terms, to the terms' dtype and to that of the fold, also in place. */
static void check_folds(int level, int op, int dtype)
{
    static const size_t ways[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    size_t size = weft_dtype_size(dtype), apart = LONGEST * 16 + 24;
    int acc = dtype_acc(dtype);
    for (size_t n = 0; n <= LONGEST; n++)
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
            for (int wide = 0; wide < 3; wide++) {
                int to = wide == 1 ? acc : dtype;
                struct memory_tile run = {1, {(int64_t)n}, {{(int64_t)weft_dtype_size(to)}, {(int64_t)size}}};
                struct memory_term terms[9];
                int64_t div = op == WEFT_AVG ? 1 + (int64_t)(n % 9) : 0;
                fill_random(9 * apart);
                for (size_t i = 0; i < 9 * apart && n % 2; i++)
                    src[i] &= 0xbf; /* no float is a NaN: the fast steps fold it */
                for (size_t k = 0; k < ways[w]; k++)
                    terms[k] = (struct memory_term){src + k * apart + k, dtype, run.stride[1]};
                memset(want, 0xa5, apart);
                memory_level(0);
                memory_fold(&run, want, to, 0, acc, op, div, terms, ways[w]);
                memory_level(level);
                memset(got, 0xa5, apart);
                if (wide == 2) {
                    unsigned char *place = src + (ways[w] - 1) * (apart + 1);
                    memory_fold(&run, place, to, 0, acc, op, div, terms, ways[w]);
                    memcpy(got, place, n * size);
                } else {
                    memory_fold(&run, got, to, 0, acc, op, div, terms, ways[w]);
                }
                if (memcmp(want, got, apart) != 0) {
                    printf("%s of %zu runs of %zu %s: ", weft_op_name(op), ways[w], n, weft_dtype_name(dtype));
                    compare(level, to, dtype, n, apart);
                    return;
                }
            }
}

/* Folds of two runs of 8-bit elements that have all pairs of codes, of a third run that is random, and of four. */
static void check_pairs(int level, int op, int dtype)
{
    const struct memory_tile run = {1, {N}, {{1}, {1}}};
    for (int64_t turn = 0; turn < (op == WEFT_AVG ? 40 : 3); turn++) {
        static const int64_t divs[] = {2, 3, 5, 6, 7, 10, 12, 14, 32, 48, 63, 64, 65, 300};
        const int64_t div = op == WEFT_AVG ? divs[turn % 14] : 0;
        const size_t ways = (size_t)(2 + turn % 3);
        struct memory_term terms[4];
        fill_random(4 * N);
        for (size_t i = 0; i < N; i++) {
            src[i] = (unsigned char)i;
            src[N + i] = (unsigned char)(i >> 8);
        }
        for (size_t k = 0; k < ways; k++)
            terms[k] = (struct memory_term){src + k * N, dtype, run.stride[1]};
        memory_level(0);
        memory_fold(&run, want, dtype, 0, dtype_acc(dtype), op, div, terms, ways);
        memory_level(level);
        memory_fold(&run, got, dtype, 0, dtype_acc(dtype), op, div, terms, ways);
        compare(level, dtype, dtype, N, N);
    }
}

/* Averages of two runs of wider floats, random bits and those around the smallest numbers, by any number. Half of the
 * sums are those of a single run, so that they have all bits. */
static void check_means(int level, int dtype, int to)
{
    const int64_t size = (int64_t)weft_dtype_size(dtype), out = (int64_t)weft_dtype_size(to);
    const struct memory_tile run = {1, {N}, {{out}, {size}}};
    const struct memory_term terms[] = {{src, dtype, run.stride[1]}, {src + N * 8, dtype, run.stride[1]}};
    for (int64_t turn = 0, turns = test_share(60, 2000); turn < turns && !faults; turn++) {
        const int64_t div = turn < 64 ? turn + 2 : (int64_t)(next_bits() % 70000) + 2;
        fill_random(N * 16);
        for (size_t i = 0; i < N * 16 && turn % 4; i += (size_t)size) {
            if (turn % 4 == 1) /* small numbers of all exponents up to a quarter, and 0 */
                src[i + (size_t)size - 1] &= 0x8f;
            else if (turn % 4 == 2) /* the smallest ones */
                src[i + (size_t)size - 1] &= 0x80, src[i + (size_t)size - 2] &= 0x83;
        }
        if (turn % 2)
            memset(src + N * 8, 0, N * 8);
        memory_level(0);
        memory_fold(&run, want, to, 0, dtype_acc(dtype), WEFT_AVG, div, terms, 2);
        memory_level(level);
        memory_fold(&run, got, to, 0, dtype_acc(dtype), WEFT_AVG, div, terms, 2);
        compare(level, to, dtype, N, (size_t)(N * out));
    }
}

int main(void)
{
    int most = memory_level(-1);
    for (int level = 1; level <= most; level++) {
        printf("level %d: %s\n", level, memory_level_name(level));
        for (int from = 1; from <= DTYPE_COUNT; from++)
            for (int to = 1; to <= DTYPE_COUNT; to++) {
                if (!dtype_castable(from, to))
                    continue;
                if (weft_dtype_size(from) <= 2)
                    check_codes(level, to, from);
                else
                    check_random(level, to, from);
                check_lengths(level, to, from);
                if (faults)
                    return 1;
            }
        for (int op = 1; op <= OP_COUNT; op++)
            for (int dtype = 1; dtype <= DTYPE_COUNT; dtype++)
                if (dtype_foldable(op, dtype)) {
                    check_folds(level, op, dtype);
                    if (weft_dtype_size(dtype) == 1)
                        check_pairs(level, op, dtype);
                }
        static const int means[][2] = {{WEFT_F32, WEFT_F32}, {WEFT_F32, WEFT_BF16},  {WEFT_F32, WEFT_F16},
                                       {WEFT_F64, WEFT_F64}, {WEFT_BF16, WEFT_BF16}, {WEFT_F16, WEFT_F16},
                                       {WEFT_BF16, WEFT_F32}};
        for (size_t k = 0; k < sizeof means / sizeof *means; k++)
            check_means(level, means[k][0], means[k][1]);
        if (faults)
            return 1;
    }
    return 0;
}
