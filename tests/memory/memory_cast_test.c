/* Every cast against the definition: all values of the small types, and of the large ones those
 * where rounding is decided. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory/memory.h"
#include "memory_levels.h"
#include "memory_ref.h"
#include "support/suite.h"

/* n values of `from` to `to`, as one run and one by one. */
static void check(int to, int from, const void *src, size_t n)
{
    size_t dsize = weft_dtype_size(to), ssize = weft_dtype_size(from);
    unsigned char *dst = malloc(n * dsize);
    assert_non_null(dst);
    struct memory_tile t = {1, {(int64_t)n}, {{(int64_t)dsize}, {(int64_t)ssize}}};
    memory_copy(&t, dst, to, src, from);
    for (size_t i = 0; i < n; i++) {
        const unsigned char *s = (const unsigned char *)src + i * ssize;
        uint64_t one = 0, got = ref_load(to, dst + i * dsize);
        uint64_t want = to == from ? ref_load(from, s) : ref_encode(to, ref_decode(from, s));
        memory_cast_one(&one, to, s, from);
        if (!ref_same(to, got, want) || one != got)
            fail_msg("%s to %s: %#llx gives %#llx, alone %#llx, and should give %#llx", weft_dtype_name(from),
                     weft_dtype_name(to), (unsigned long long)ref_load(from, s), (unsigned long long)got,
                     (unsigned long long)one, (unsigned long long)want);
    }
    free(dst);
}

static void check_all(int from, const void *src, size_t n)
{
    for (int to = 1; to <= DTYPE_COUNT; to++)
        if (!dtype_is_complex(to))
            check(to, from, src, n);
}

static void all_values_of_small_dtypes_are_cast_by_the_definition(void **state)
{
    (void)state;
    static uint16_t wide[65536];
    static uint8_t slim[256];
    for (int i = 0; i < 65536; i++)
        wide[i] = (uint16_t)i;
    for (int i = 0; i < 256; i++)
        slim[i] = (uint8_t)i;
    for (int from = 1; from <= DTYPE_COUNT; from++) {
        if (weft_dtype_size(from) == 1)
            check_all(from, slim, 256);
        if (weft_dtype_size(from) == 2)
            check_all(from, wide, 65536);
    }
}

static void f32_of_all_upper_halves_is_cast_by_the_definition(void **state)
{
    (void)state;
    static const uint32_t low[] = {0, 1, 0x0fff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001, 0xf000, 0xffff};
    static uint32_t v[65536];
    for (size_t k = 0; k < sizeof low / sizeof *low; k++) {
        for (uint32_t i = 0; i < 65536; i++)
            v[i] = i << 16 | low[k];
        for (int to = 1; to <= DTYPE_COUNT; to++)
            if (!dtype_is_complex(to) && ((dtype_is_float(to) && weft_dtype_size(to) < 4) || k == 1))
                check(to, WEFT_F32, v, 65536);
    }
}

/* Halfway between neighbours of a narrow float, and a last place of f32 and of f64 to either side. */
static void ties_of_narrow_floats_are_cast_by_the_definition(void **state)
{
    (void)state;
    static const int narrow[] = {WEFT_F16, WEFT_BF16, WEFT_F8E4M3, WEFT_F8E5M2, WEFT_F8E4M3SAT, WEFT_F8E5M2SAT};
    static float f[6 * 32768];
    static double d[6 * 32768];
    for (size_t k = 0; k < sizeof narrow / sizeof *narrow; k++) {
        struct ref_format format = ref_format_of(narrow[k]);
        size_t n = 0;
        for (uint64_t code = 0; code < ref_end(format); code++) {
            long double a = ref_magnitude(format, code), b = ref_magnitude(format, code + 1);
            long double middle = a + (b - a) / 2;
            float x = (float)middle;
            double y = (double)middle;
            assert_true((long double)x == middle && (long double)y == middle);
            for (int sign = 0; sign < 2; sign++, x = -x, y = -y) {
                f[n] = x;
                d[n++] = y;
                f[n] = nextafterf(x, 0);
                d[n++] = nextafter(y, 0);
                f[n] = nextafterf(x, 2 * x);
                d[n++] = nextafter(y, 2 * y);
            }
        }
        check(narrow[k], WEFT_F32, f, n);
        check(narrow[k], WEFT_F64, d, n);
    }
}

/* Around every power of two and around half of a last place above it, for each precision there is. */
static void wide_integers_are_cast_by_the_definition(void **state)
{
    (void)state;
    static const int precision[] = {3, 4, 8, 11, 24, 53};
    static uint64_t v[64 * 6 * 4 * 5 * 2];
    static uint32_t w[sizeof v / sizeof *v];
    size_t n = 0;
    for (int k = 0; k < 64; k++)
        for (size_t p = 0; p < 6; p++)
            for (uint64_t odd = 0; odd < 4; odd++)
                for (uint64_t d = 0; d < 5; d++) {
                    uint64_t x = UINT64_C(1) << k;
                    x += k >= precision[p] ? odd << (k - precision[p]) : odd;
                    x += d - 2;
                    v[n] = x;
                    w[n++] = (uint32_t)x;
                    v[n] = 0 - x;
                    w[n++] = (uint32_t)(0 - x);
                }
    check_all(WEFT_U64, v, n);
    check_all(WEFT_I64, v, n);
    check_all(WEFT_U32, w, n);
    check_all(WEFT_I32, w, n);
    check_all(WEFT_F64, v, n); /* as patterns */
    check_all(WEFT_F32, w, n);
}

static void wide_floats_are_cast_by_the_definition(void **state)
{
    (void)state;
    enum { N = 20000 };
    static uint64_t v[N];
    static double d[N];
    static float f[N];
    uint64_t seed = 1;
    for (int i = 0; i < N; i++) {
        v[i] = ref_random(&seed);
        int e = (int)(ref_random(&seed) % 140) - 70; /* about the ends of the integers and of f16 */
        d[i] = ldexp((double)(int64_t)v[i], e - 63);
        f[i] = ldexpf((float)(int64_t)v[i], e - 63);
    }
    size_t n = 0;
    for (int k = 0; k < 65; k++) { /* and at these ends */
        double x = ldexp(1, k);
        for (int sign = 0; sign < 2; sign++, x = -x) {
            const double near[] = {x, nextafter(x, 0), nextafter(x, 2 * x), x - 0.5, x - 1, x - 1.5};
            for (int i = 0; i < 6; i++, n++) {
                d[n] = near[i];
                f[n] = i == 1 ? nextafterf((float)x, 0) : (float)near[i];
            }
        }
    }
    check_all(WEFT_F64, v, N);
    check_all(WEFT_F64, d, N);
    check_all(WEFT_F32, f, N);
    for (int i = 0; i < N; i++) { /* f64 just off the middle of two f32: rounds once */
        float a = f[i];
        d[i] = ((double)a + (double)nextafterf(a, HUGE_VALF)) / 2;
        d[i] = i % 3 == 0 ? d[i] : nextafter(d[i], i % 3 == 1 ? HUGE_VAL : -HUGE_VAL);
    }
    check_all(WEFT_F64, d, N);
}

/* Values known from the formats' descriptions, so that the reference itself is held to something. */
static void known_values_have_their_codes(void **state)
{
    (void)state;
    static const struct {
        int to;
        float x;
        uint16_t code;
    } known[] = {
        {WEFT_F8E4M3, 448, 0x7e},
        {WEFT_F8E4M3, 464, 0x7e},
        {WEFT_F8E4M3, 465, 0x7f},
        {WEFT_F8E4M3, -HUGE_VALF, 0xff},
        {WEFT_F8E4M3, 0x1p-9f, 0x01},
        {WEFT_F8E4M3, 0x1p-10f, 0x00},
        {WEFT_F8E4M3, 0x1p-6f, 0x08},
        {WEFT_F8E4M3, 1, 0x38},
        {WEFT_F8E5M2, 57344, 0x7b},
        {WEFT_F8E5M2, 61439, 0x7b},
        {WEFT_F8E5M2, 61440, 0x7c},
        {WEFT_F8E5M2, 0x1p-16f, 0x01},
        {WEFT_F8E5M2, -0x1p-17f, 0x80},
        {WEFT_F8E5M2, 1, 0x3c},
        {WEFT_F8E4M3SAT, 448, 0x7e},
        {WEFT_F8E4M3SAT, 465, 0x7e},
        {WEFT_F8E4M3SAT, -1e30f, 0xfe},
        {WEFT_F8E4M3SAT, HUGE_VALF, 0x7e},
        {WEFT_F8E4M3SAT, NAN, 0x7f},
        {WEFT_F8E5M2SAT, 61440, 0x7b},
        {WEFT_F8E5M2SAT, -HUGE_VALF, 0xfb},
        {WEFT_F8E5M2SAT, NAN, 0x7e},
        {WEFT_F8E8M0, 1, 127},
        {WEFT_F8E8M0, -1, 127},
        {WEFT_F8E8M0, 0, 0},
        {WEFT_F8E8M0, 1.4999999f, 127},
        {WEFT_F8E8M0, 1.5f, 128},
        {WEFT_F8E8M0, 3, 129},
        {WEFT_F8E8M0, 0x1p-149f, 0},
        {WEFT_F8E8M0, 0x1p-127f, 0},
        {WEFT_F8E8M0, 0x1.0004p-127f, 1},
        {WEFT_F8E8M0, 0x1p127f, 254},
        {WEFT_F8E8M0, 0x1.8p127f, 255},
        {WEFT_F8E8M0, -HUGE_VALF, 255},
        {WEFT_F8E8M0, NAN, 255},
        {WEFT_F16, 65504, 0x7bff},
        {WEFT_F16, 65519, 0x7bff},
        {WEFT_F16, 65520, 0x7c00},
        {WEFT_F16, 0x1p-24f, 0x0001},
        {WEFT_F16, 0x1p-25f, 0x0000},
        {WEFT_F16, 0x1.8p-25f, 0x0001},
        {WEFT_F16, 0x1p-14f, 0x0400},
        {WEFT_BF16, 1.00390625f, 0x3f80},
        {WEFT_BF16, 1.01171875f, 0x3f82},
        {WEFT_BF16, 0x1.fffffep127f, 0x7f80},
        {WEFT_BF16, 0x1p-133f, 0x0001},
        {WEFT_BF16, -0.0f, 0x8000},
        {WEFT_I8, -128.9f, 0x80},
        {WEFT_I8, 1e30f, 0x7f},
        {WEFT_U8, -3, 0x00},
        {WEFT_U16, 65535.5f, 0xffff},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint16_t code = 0;
        memory_cast_one(&code, known[i].to, &known[i].x, WEFT_F32);
        assert_int_equal(code, known[i].code);
    }
    int64_t big = (INT64_C(1) << 40) + (INT64_C(1) << 32) + 1; /* bf16: a tie in f32, above it in truth */
    uint16_t code;
    memory_cast_one(&code, WEFT_BF16, &big, WEFT_I64);
    assert_int_equal(code, 0x5381);
    double d = 1 + 0x1p-11 + 0x1p-40; /* f16: the same */
    memory_cast_one(&code, WEFT_F16, &d, WEFT_F64);
    assert_int_equal(code, 0x3c01);
}

/* Around every power of two and every one and a half of it, in f32 and f64. */
static void powers_of_two_are_cast_by_the_definition(void **state)
{
    (void)state;
    static float f[2 * 6 * 280];
    static double d[2 * 6 * 280];
    size_t n = 0;
    for (int e = -150; e < 130; e++)
        for (int half = 0; half < 2; half++) {
            double x = ldexp(half ? 1.5 : 1, e);
            for (int sign = 0; sign < 2; sign++, x = -x)
                for (int side = 0; side < 3; side++, n++) {
                    double to = side == 1 ? 0 : 2 * x;
                    d[n] = side ? nextafter(x, to) : x;
                    f[n] = side ? nextafterf((float)x, (float)to) : (float)x;
                }
        }
    assert_true(n <= sizeof f / sizeof *f);
    check(WEFT_F8E8M0, WEFT_F32, f, n);
    check(WEFT_F8E8M0, WEFT_F64, d, n);
}

/* The parts of complex numbers are cast as reals are; a real has the imaginary part +0. */
static void complex_casts_are_casts_of_the_parts(void **state)
{
    (void)state;
    enum { N = 1000 };
    static const int parts[] = {WEFT_F32, WEFT_F64}, complexes[] = {WEFT_C64, WEFT_C128};
    static uint64_t src[2 * N], dst[2 * N], want[2 * N];
    uint64_t seed = 5;
    for (int k = 0; k < 2; k++) {
        size_t size = weft_dtype_size(parts[k]);
        for (int from = 1; from <= DTYPE_COUNT; from++) {
            for (int i = 0; i < 2 * N; i++)
                src[i] = ref_random(&seed);
            memset(dst, 0x5a, sizeof dst);
            struct memory_tile t = {1, {N}, {{(int64_t)(2 * size)}, {(int64_t)weft_dtype_size(from)}}};
            memory_copy(&t, dst, complexes[k], src, from);
            memset(want, 0, sizeof want);
            for (size_t i = 0; i < N; i++)
                if (!dtype_is_complex(from))
                    memory_cast_one((char *)want + 2 * i * size, parts[k], (char *)src + i * weft_dtype_size(from),
                                    from);
            for (size_t i = 0; i < 2 * (size_t)N && dtype_is_complex(from); i++)
                memory_cast_one((char *)want + i * size, parts[k], (char *)src + i * weft_dtype_size(from) / 2,
                                parts[from == WEFT_C128]);
            assert_memory_equal(dst, want, 2 * N * size);
            for (size_t i = 0; i < N; i++) {
                uint64_t one[2];
                memory_cast_one(one, complexes[k], (char *)src + i * weft_dtype_size(from), from);
                assert_memory_equal(one, (char *)want + 2 * i * size, 2 * size);
            }
        }
    }
}

/* Rows with gaps on either side are cast side by side or one by one, in pieces: each row is cast as it is alone, and
 * gaps stay. */
static void rows_with_gaps_are_cast_like_each_row_alone(void **state)
{
    (void)state;
    enum { MOST = 40, LONGEST = 700, GAP = 3 };
    static const int lengths[] = {16, 31, 63, 64, 65, 127, 128, 129, 192, 260, 512, LONGEST},
                     counts[] = {1, 15, 16, 17, MOST};
    static const int pairs[][2] = {{WEFT_F32, WEFT_BF16}, {WEFT_BF16, WEFT_F32}, {WEFT_F32, WEFT_F8E4M3},
                                   {WEFT_F64, WEFT_F16},  {WEFT_I64, WEFT_BF16}, {WEFT_U8, WEFT_F64}};
    static uint64_t src[MOST * (LONGEST + GAP)], dst[MOST * (LONGEST + GAP)], want[MOST * (LONGEST + GAP)];
    uint64_t seed = 8;
    for (size_t i = 0; i < sizeof src / sizeof *src; i++)
        src[i] = ref_random(&seed);
    for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++)
        for (size_t k = 0; k < sizeof lengths / sizeof *lengths * 5 * 4; k++) {
            int from = pairs[p][0], to = pairs[p][1], n = lengths[k / 20], rows = counts[k / 4 % 5];
            int64_t ssize = (int64_t)weft_dtype_size(from), dsize = (int64_t)weft_dtype_size(to);
            int64_t sstep = (n + (k & 1 ? GAP : 0)) * ssize, dstep = (n + (k & 2 ? GAP : 0)) * dsize;
            struct memory_tile t = {2, {rows, n}, {{dstep, dsize}, {sstep, ssize}}};
            memset(dst, 0x5a, sizeof dst);
            memset(want, 0x5a, sizeof want);
            memory_copy(&t, dst, to, src, from);
            for (int r = 0; r < rows; r++)
                memory_cast((char *)want + r * dstep, to, (const char *)src + r * sstep, from, (size_t)n);
            assert_memory_equal(dst, want, sizeof dst);
        }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_values_have_their_codes),
        cmocka_unit_test(all_values_of_small_dtypes_are_cast_by_the_definition),
        cmocka_unit_test(f32_of_all_upper_halves_is_cast_by_the_definition),
        cmocka_unit_test(ties_of_narrow_floats_are_cast_by_the_definition),
        cmocka_unit_test(powers_of_two_are_cast_by_the_definition),
        cmocka_unit_test(complex_casts_are_casts_of_the_parts),
        cmocka_unit_test(rows_with_gaps_are_cast_like_each_row_alone),
        cmocka_unit_test(wide_integers_are_cast_by_the_definition),
        cmocka_unit_test(wide_floats_are_cast_by_the_definition),
    };
    return SUITE_MAIN(argc, argv, SUITE_AT(&memory_levels, tests));
}
