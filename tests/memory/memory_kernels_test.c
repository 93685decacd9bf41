/* Every kernel of every level that this processor has against the plain C one, bit by bit: all dtypes and ops, lengths
 * around the widths of vectors, any alignment, in place, and not a byte beyond the end. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "memory/kernels.h"
#include "memory/memory.h"
#include "memory_ref.h"
#include "support/suite.h"

enum { MOST = 300, ROOM = MOST * 16 + 64 };

static uint64_t seed;
static const struct kernels *levels[8];
static int nlevels;

static size_t upto(size_t n) /* 0 .. n - 1 */
{
    return (size_t)(ref_random(&seed) % n);
}

static int find_levels(void **state)
{
    (void)state;
    int most = memory_level(-1);
    for (int level = 1; level <= most; level++) {
        assert_int_equal(memory_level(level), level);
        levels[nlevels++] = memory_level_kernels();
        assert_string_equal(memory_level_name(level), memory_level_kernels()->name);
        print_message("level %d: %s\n", level, memory_level_kernels()->name);
    }
    assert_int_equal(memory_level(most + 1), most);
    assert_int_equal(memory_level(0), 0);
    assert_ptr_equal(memory_level_kernels(), &kernels_plain);
    memory_level(-1);
    return 0;
}

static size_t random_length(void)
{
    static const size_t lengths[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 127, 128, 129};
    return upto(4) ? lengths[upto(sizeof lengths / sizeof *lengths)] : 1 + upto(MOST);
}

/* Any bits, ordinary values, and the ends and specials of the dtype. */
static void random_values(void *data, int dtype, size_t n)
{
    static const double special[] = {0,   -0.0, 1,    -1,     0.5,      1e-7,      -1e-7,   65519, 65520,
                                     464, 465,  1e30, -1e30,  HUGE_VAL, -HUGE_VAL, NAN,     -NAN,  255,
                                     256, -128, -129, 0x1p31, -0x1p31,  0x1p63,    -0x1p63, 0x1p64};
    if (dtype_is_complex(dtype)) {
        random_values(data, dtype == WEFT_C64 ? WEFT_F32 : WEFT_F64, 2 * n);
        return;
    }
    size_t size = weft_dtype_size(dtype), plain = upto(3);
    for (size_t i = 0; i < n; i++) {
        uint64_t word = ref_random(&seed), value = word;
        double x = ldexp((double)(int64_t)word, (int)upto(40) - 83);
        switch (plain == 0 ? 0 : upto(4)) {
        case 0: memory_cast_one(&value, dtype, &x, WEFT_F64); break;
        case 1: memory_cast_one(&value, dtype, &special[upto(sizeof special / sizeof *special)], WEFT_F64); break;
        case 2: value = UINT64_C(0x7f7f7f7f7f7f7f7f) & word; /* fall through: often NaN */
        default: break;
        }
        memcpy((unsigned char *)data + i * size, &value, size);
    }
}

static void bools(void *data, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((unsigned char *)data)[i] &= 1;
}

/* ---- casts ---- */

static void check_casts(cast_loop *plain, cast_loop *loop, const char *level, int to, int from)
{
    static unsigned char src[ROOM], want[ROOM], got[ROOM];
    size_t dsize = weft_dtype_size(to), n = random_length(), s = upto(17), d = upto(17);
    random_values(src + s, from, n);
    for (size_t i = 0; i < ROOM; i++)
        want[i] = got[i] = (unsigned char)i;
    plain(want + d, 0, src + s, 0, n, 1);
    loop(got + d, 0, src + s, 0, n, 1);
    if (memcmp(want, got, ROOM) != 0)
        fail_msg("%s: %zu of %s to %s", level, n, weft_dtype_name(from), weft_dtype_name(to));
    if (dsize == weft_dtype_size(from)) {
        loop(src + s, 0, src + s, 0, n, 1);
        assert_memory_equal(src + s, want + d, n * dsize);
    }
}

/* What is one step at a level may be two in plain C. */
static int twice_to, twice_from;
static void plain_twice(void *dst, int64_t dstep, const void *src, int64_t sstep, size_t n, size_t rows)
{
    (void)rows; /* one */
    float block[MOST];
    cast_loop *odd = kernels_plain.odd[twice_from];
    (odd ? odd : kernels_plain.cast[twice_from][WEFT_F32])(block, 0, src, sstep, n, 1);
    kernels_plain.cast[WEFT_F32][twice_to](dst, dstep, block, 0, n, 1);
}

static void casts_match_the_plain_kernels(void **state)
{
    (void)state;
    seed = 101;
    for (int k = 0; k < nlevels; k++)
        for (int from = 1; from <= DTYPE_COUNT; from++)
            for (int to = 1; to <= DTYPE_COUNT; to++) {
                cast_loop *plain = kernels_plain.cast[from][to], *loop = levels[k]->cast[from][to];
                if (!plain && loop) {
                    twice_from = from;
                    twice_to = to;
                    plain = plain_twice;
                }
                assert_true(!plain || loop);
                for (int round = 0; loop && round < 200; round++)
                    check_casts(plain, loop, levels[k]->name, to, from);
            }
}

static void odd_casts_match_the_plain_kernels(void **state)
{
    (void)state;
    seed = 102;
    for (int k = 0; k < nlevels; k++)
        for (int from = 1; from <= DTYPE_COUNT; from++) {
            assert_int_equal(!levels[k]->odd[from], !kernels_plain.odd[from]);
            for (int round = 0; levels[k]->odd[from] && round < 500; round++)
                check_casts(kernels_plain.odd[from], levels[k]->odd[from], levels[k]->name, WEFT_F32, from);
        }
}

/* Every f16, bf16 and f8, and f32 around every one of them, in vectors and in tails. */
static void all_narrow_floats_match_the_plain_kernels(void **state)
{
    (void)state;
    static const int narrow[] = {WEFT_F16,       WEFT_BF16,      WEFT_F8E4M3, WEFT_F8E5M2,
                                 WEFT_F8E4M3SAT, WEFT_F8E5M2SAT, WEFT_F8E8M0};
    enum { N = 65536 };
    static uint16_t codes[N];
    static float wide[N], near[N], want32[N], got32[N];
    static uint16_t want[N], got[N];
    for (size_t j = 0; j < sizeof narrow / sizeof *narrow; j++) {
        int t = narrow[j];
        size_t size = weft_dtype_size(t);
        for (uint32_t i = 0; i < N; i++) {
            if (size == 2)
                codes[i] = (uint16_t)i;
            else
                ((unsigned char *)codes)[i] = (unsigned char)(i ^ i >> 8);
        }
        kernels_plain.cast[t][WEFT_F32](wide, 0, codes, 0, N, 1);
        for (int k = 0; k < nlevels; k++) {
            levels[k]->cast[t][WEFT_F32](got32, 0, codes, 0, N, 1);
            assert_memory_equal(got32, wide, sizeof wide);
            for (uint32_t off = 0; off < 64;
                 off++) { /* every place of the bits that are dropped, and about the middle */
                static const uint32_t offs[] = {0,       1,       0xfff,   0x1000,  0x1001,   0x1fff,
                                                0x7fff,  0x8000,  0x8001,  0xfffff, 0x100000, 0x100001,
                                                0x7ffff, 0x80000, 0x80001, 0x1fffff};
                for (size_t i = 0; i < N; i++) {
                    uint32_t u;
                    memcpy(&u, &wide[i], 4);
                    u += off < 16 ? offs[off] : off < 32 ? 0 - offs[off - 16] : UINT32_C(1) << (off % 32);
                    memcpy(&near[i], &u, 4);
                }
                kernels_plain.cast[WEFT_F32][t](want, 0, near, 0, N, 1);
                levels[k]->cast[WEFT_F32][t](got, 0, near, 0, N, 1);
                assert_memory_equal(got, want, N * size);
            }
        }
    }
    (void)want32;
}

/* ---- folds ---- */

static void folds_match_the_plain_kernels(void **state)
{
    (void)state;
    seed = 103;
    static unsigned char src[OPS_WAYS][ROOM], want[ROOM], got[ROOM];
    static const int ways[] = {2, 3, 4, 5, 6, 7, 8};
    for (int k = 0; k < nlevels; k++)
        for (int op = 1; op <= OP_COUNT; op++)
            for (int dtype = 1; dtype <= DTYPE_COUNT; dtype++) {
                ops_loop *plain = kernels_plain.ops[op][dtype], *loop = levels[k]->ops[op][dtype];
                assert_int_equal(!plain, !loop);
                for (int round = 0; loop && round < 200; round++) {
                    size_t n = random_length(), d = upto(17), s[OPS_WAYS], bytes = n * weft_dtype_size(dtype);
                    int w = ways[upto(4)];
                    const void *in[OPS_WAYS];
                    for (int i = 0; i < w; i++) {
                        s[i] = upto(17);
                        in[i] = src[i] + s[i];
                        random_values(src[i] + s[i], dtype, n);
                        if (dtype == WEFT_BOOL)
                            bools(src[i] + s[i], n);
                    }
                    for (size_t i = 0; i < ROOM; i++)
                        want[i] = got[i] = (unsigned char)i;
                    plain(want + d, in, w, n);
                    loop(got + d, in, w, n);
                    if (memcmp(want, got, ROOM) != 0)
                        fail_msg("%s: %s of %d runs of %zu %s", levels[k]->name, weft_op_name(op), w, n,
                                 weft_dtype_name(dtype));
                    size_t at = upto((size_t)w);
                    loop(src[at] + s[at], in, w, n);
                    assert_memory_equal(src[at] + s[at], want + d, bytes);
                }
            }
}

static void narrow_folds_match_the_plain_kernels(void **state)
{
    (void)state;
    seed = 104;
    static unsigned char src[OPS_WAYS][ROOM], want[ROOM], got[ROOM];
    for (int k = 0; k < nlevels; k++)
        for (int op = 1; op <= OP_COUNT; op++)
            for (int dtype = 1; dtype <= DTYPE_COUNT; dtype++) {
                ops_narrow_loop *plain = kernels_plain.narrow[op][dtype], *loop = levels[k]->narrow[op][dtype];
                assert_true(plain || !loop);
                for (int round = 0; loop && round < 400; round++) {
                    size_t n = random_length(), d = upto(17), s[OPS_WAYS];
                    int w = 2 + (int)upto(OPS_WAYS - 1);
                    int wide = (int[]){0, 1, w}[upto(3)];
                    bool wide_first = wide, wide_out = upto(2);
                    float by = (float[]){1, 0.125f, 3, 7, 1000003}[op == WEFT_MIN || op == WEFT_MAX ? 0 : upto(5)];
                    const void *in[OPS_WAYS];
                    for (int i = 0; i < w; i++) {
                        s[i] = upto(17);
                        in[i] = src[i] + s[i];
                        random_values(src[i] + s[i], i < wide ? WEFT_F32 : dtype, n);
                    }
                    for (size_t i = 0; i < ROOM; i++)
                        want[i] = got[i] = (unsigned char)i;
                    plain(want + d, wide_out, in, wide, w, by, n);
                    loop(got + d, wide_out, in, wide, w, by, n);
                    if (memcmp(want, got, ROOM) != 0)
                        fail_msg("%s: %s of %d runs of %zu %s", levels[k]->name, weft_op_name(op), w, n,
                                 weft_dtype_name(dtype));
                    size_t at = wide_out && wide_first ? 0
                                : wide_out             ? (size_t)w
                                : wide_first           ? upto(wide == 1 ? 2 : 1)
                                                       : upto((size_t)w);
                    if (at == (size_t)w)
                        continue;
                    loop(src[at] + s[at], wide_out, in, wide, w, by, n);
                    assert_memory_equal(src[at] + s[at], want + d, n * (wide_out ? 4 : weft_dtype_size(dtype)));
                }
            }
}

static void divisions_match_the_plain_kernels(void **state)
{
    (void)state;
    seed = 105;
    static unsigned char src[ROOM], want[ROOM], got[ROOM];
    static const int64_t divs[] = {2, 3, 4, 7, 8, 64, 300, 65536, 100000, INT64_C(1) << 33, INT64_MAX};
    for (int k = 0; k < nlevels; k++)
        for (int dtype = 1; dtype <= DTYPE_COUNT; dtype++)
            for (int round = 0; round < 300; round++) {
                bool scale = upto(2);
                int64_t div = scale ? INT64_C(1) << (1 + upto(62)) : divs[upto(11)];
                ops_divide_loop *plain = scale ? kernels_plain.scale[dtype] : kernels_plain.divide[dtype];
                ops_divide_loop *loop = scale ? levels[k]->scale[dtype] : levels[k]->divide[dtype];
                assert_int_equal(!plain, !loop);
                if (!loop)
                    continue;
                size_t n = random_length(), d = upto(17), s = upto(17);
                random_values(src + s, dtype, n);
                for (size_t i = 0; i < ROOM; i++)
                    want[i] = got[i] = (unsigned char)i;
                plain(want + d, src + s, div, n);
                loop(got + d, src + s, div, n);
                if (memcmp(want, got, ROOM) != 0)
                    fail_msg("%s: %zu of %s / %lld", levels[k]->name, n, weft_dtype_name(dtype), (long long)div);
            }
}

/* A NaN of the caller plus 1. */
static uint32_t callers_nan(void)
{
    const uint32_t bits = 0xffc01234;
    volatile float x;
    float y;
    uint32_t after;
    memcpy(&y, &bits, sizeof y);
    x = y;
    y = x + 1;
    memcpy(&after, &y, sizeof after);
    return after;
}

/* Sums may change how the processor makes NaNs only for themselves. */
static void sums_leave_the_callers_nans_alone(void **state)
{
    (void)state;
    static uint16_t a[MOST], b[MOST], sum[MOST];
    const int64_t stride[] = {2};
    const uint32_t before = callers_nan();
    for (int64_t n = 1; n <= MOST; n++) {
        const struct memory_tile t = {.loops = 1, .n = {n}, .stride = {{2}, {2}}};
        const struct memory_term terms[] = {{a, WEFT_BF16, stride}, {b, WEFT_BF16, stride}};
        const void *runs[] = {a, b};
        memory_fold(&t, sum, WEFT_BF16, 0, WEFT_F32, WEFT_SUM, 0, terms, 2);
        assert_int_equal(callers_nan(), before);
        for (int k = 0; k < nlevels; k++)
            if (levels[k]->narrow[WEFT_SUM][WEFT_BF16])
                levels[k]->narrow[WEFT_SUM][WEFT_BF16](sum, false, runs, 0, 2, 1, (size_t)n);
        assert_int_equal(callers_nan(), before);
    }
}

/* Sums of f8 are computed with subnormals of f32: all sums of two codes, for a caller that flushes those to 0. */
static void sums_of_f8_do_not_depend_on_the_callers_flushing(void **state)
{
    (void)state;
    static const int dtypes[] = {WEFT_F8E4M3, WEFT_F8E5M2, WEFT_F8E4M3SAT, WEFT_F8E5M2SAT};
    static unsigned char a[65536], b[65536], want[65536], got[65536];
    const void *in[2] = {a, b};
    for (int i = 0; i < 65536; i++) {
        a[i] = (unsigned char)(i >> 8);
        b[i] = (unsigned char)i;
    }
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        kernels_plain.narrow[WEFT_SUM][dtypes[d]](want, false, in, 0, 2, 3, sizeof want);
        for (int l = 0; l < nlevels; l++) {
            ops_narrow_loop *loop = levels[l]->narrow[WEFT_SUM][dtypes[d]];
            if (!loop)
                continue;
#if defined(__aarch64__)
            uint64_t was;
            __asm__ volatile("mrs %0, fpcr" : "=r"(was));
            __asm__ volatile("msr fpcr, %0" : : "r"(was | OPS_FLUSH) : "memory");
#endif
            loop(got, false, in, 0, 2, 3, sizeof got);
#if defined(__aarch64__)
            uint64_t is;
            __asm__ volatile("mrs %0, fpcr" : "=r"(is));
            __asm__ volatile("msr fpcr, %0" : : "r"(was) : "memory");
            assert_true(is == (was | OPS_FLUSH));
#endif
            assert_memory_equal(got, want, sizeof got);
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(casts_match_the_plain_kernels),
        cmocka_unit_test(odd_casts_match_the_plain_kernels),
        cmocka_unit_test(all_narrow_floats_match_the_plain_kernels),
        cmocka_unit_test(folds_match_the_plain_kernels),
        cmocka_unit_test(narrow_folds_match_the_plain_kernels),
        cmocka_unit_test(divisions_match_the_plain_kernels),
        cmocka_unit_test(sums_leave_the_callers_nans_alone),
        cmocka_unit_test(sums_of_f8_do_not_depend_on_the_callers_flushing),
    };
    return SUITE_MAIN(argc, argv, SUITE_FIXTURE(tests, find_levels, NULL));
}
