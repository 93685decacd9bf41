/* Tiles against a naive walk: merging, copies, casts, folds and fills over random nests of loops.
 * The casts themselves are memory_cast_test's matter; ops are computed here a second time. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "memory_levels.h"
#include "memory_nests.h"
#include "memory_ref.h"
#include "support/share.h"
#include "support/suite.h"

/* ---- tiles ---- */

static void merged_tiles_visit_the_same_elements(void **state)
{
    (void)state;
    nests_seed = 11;
    for (int round = 0; round < test_rounds(1000); round++) {
        struct memory_tile t = {0}, m;
        struct operand a, b;
        nests_loops(&t);
        nests_operand(&t, &a, 4, false);
        nests_operand(&t, &b, 2, true);
        memcpy(t.stride[0], a.stride, sizeof a.stride);
        memcpy(t.stride[1], b.stride, sizeof b.stride);
        m = t;
        memory_tile_merge(&m);
        int64_t count = memory_tile_count(&t);
        assert_int_equal(memory_tile_count(&m), count);
        for (int64_t i = 0; i < count; i++)
            for (int k = 0; k < 2; k++)
                assert_int_equal(nests_offset(&t, t.stride[k], i), nests_offset(&m, m.stride[k], i));
        for (int i = 0; i < m.loops; i++) { /* nothing is left to merge */
            assert_true(m.n[i] > 1);
            assert_false(i && m.stride[0][i - 1] == m.stride[0][i] * m.n[i] &&
                         m.stride[1][i - 1] == m.stride[1][i] * m.n[i]);
        }
        free(a.data);
        free(b.data);
    }
    struct memory_tile none = {3, {4, 0, 5}, {{20, 5, 1}, {20, 5, 1}}};
    memory_tile_merge(&none);
    assert_int_equal(memory_tile_count(&none), 0);
    memory_copy(&none, NULL, WEFT_F32, NULL, WEFT_F32);
    memory_copy(&none, NULL, WEFT_F32, NULL, WEFT_F16);
    memory_fill_identity(&none, NULL, WEFT_F32, WEFT_SUM);
}

/* ---- copies and casts ---- */

static void check_copy(struct memory_tile *t, int to, int from)
{
    struct operand d, s;
    size_t dsize = weft_dtype_size(to), ssize = weft_dtype_size(from);
    nests_operand(t, &d, (int64_t)dsize, false);
    nests_operand(t, &s, (int64_t)ssize, true);
    nests_values(t, &s, from);
    memcpy(t->stride[0], d.stride, sizeof d.stride);
    memcpy(t->stride[1], s.stride, sizeof s.stride);
    unsigned char *want = nests_twin(&d);
    for (int64_t i = 0; i < memory_tile_count(t); i++)
        memory_cast_one(want + d.first + nests_offset(t, d.stride, i), to,
                        s.data + s.first + nests_offset(t, s.stride, i), from);
    if (nests_below(2))
        memory_tile_merge(t);
    memory_copy(t, d.data + d.first, to, s.data + s.first, from);
    assert_memory_equal(d.data, want, (size_t)d.bytes);
    free(want);
    free(d.data);
    free(s.data);
}

static void copies_match_a_naive_walk(void **state)
{
    (void)state;
    nests_seed = 22;
    for (int round = 0; round < test_rounds(2500); round++) {
        struct memory_tile t = {0};
        nests_loops(&t);
        int to = (int)(1 + nests_below(DTYPE_COUNT)), from = nests_below(2) ? to : (int)(1 + nests_below(DTYPE_COUNT));
        if (dtype_castable(from, to))
            check_copy(&t, to, from);
    }
}

/* dst[b][a][unit] = src[a][.][b][unit], whole and broken blocks, loops in any order. */
static void transposes_match_a_naive_walk(void **state)
{
    (void)state;
    nests_seed = 33;
    static const int dtypes[] = {WEFT_U8, WEFT_U16, WEFT_U32, WEFT_U64, WEFT_F16};
    for (int round = 0; round < test_rounds(300); round++) {
        int dtype = dtypes[nests_below(5)];
        int64_t size = (int64_t)weft_dtype_size(dtype), unit = INT64_C(1) << nests_below(4);
        int64_t a = 1 + nests_below(150), b = 1 + nests_below(150), c = 1 + nests_below(3), pad = nests_below(2) * size;
        if (nests_below(3) == 0) { /* rows that meet in the same sets of a cache */
            a = 1 + nests_below(70);
            pad = 4096 - c * b * unit * size % 4096;
        }
        struct memory_tile t = {4, {a, c, b, unit}, {{0}, {0}}};
        const int64_t ds[] = {unit * size, a * b * unit * size, a * unit * size, size};
        const int64_t ss[] = {c * b * unit * size + pad, b * unit * size, unit * size, size};
        int p[3] = {0, 1, 2};
        for (int i = 2; i > 0; i--) {
            int j = (int)nests_below(i + 1), k = p[i];
            p[i] = p[j];
            p[j] = k;
        }
        const int64_t n[] = {a, c, b};
        for (int i = 0; i < 3; i++) {
            t.n[i] = n[p[i]];
            t.stride[0][i] = ds[p[i]];
            t.stride[1][i] = ss[p[i]];
        }
        t.stride[0][3] = t.stride[1][3] = size;
        size_t bytes = (size_t)(a * (c * b * unit * size + pad));
        unsigned char *src = malloc(bytes), *dst = calloc(1, bytes), *want = calloc(1, bytes);
        assert_true(src && dst && want);
        for (size_t i = 0; i < bytes; i++)
            src[i] = (unsigned char)ref_random(&nests_seed);
        for (int64_t i = 0; i < memory_tile_count(&t); i++)
            memcpy(want + nests_offset(&t, t.stride[0], i), src + nests_offset(&t, t.stride[1], i), (size_t)size);
        memory_tile_merge(&t);
        memory_copy(&t, dst, dtype, src, dtype);
        assert_memory_equal(dst, want, bytes);
        free(src);
        free(dst);
        free(want);
    }
}

/* dst[b][a] = cast(src[a][b]), beyond the caches: lines of dst that begin where lines of memory do, and others; blocks
 * that are whole and broken; nothing between the columns is touched. */
static void large_transposes_match_and_touch_nothing_else(void **state)
{
    (void)state;
    nests_seed = 36;
    static const int pairs[][2] = {{WEFT_U8, WEFT_U8},   {WEFT_BF16, WEFT_BF16}, {WEFT_U32, WEFT_U32},
                                   {WEFT_F64, WEFT_F64}, {WEFT_F32, WEFT_BF16},  {WEFT_F64, WEFT_F32},
                                   {WEFT_C64, WEFT_C64}, {WEFT_C128, WEFT_C128}, {WEFT_C128, WEFT_F32}};
    enum { PAIRS = sizeof pairs / sizeof *pairs };
    for (int round = 0; round < 2 * PAIRS; round++) {
        int to = pairs[round % PAIRS][0], from = pairs[round % PAIRS][1];
        int64_t d = (int64_t)weft_dtype_size(to), s = (int64_t)weft_dtype_size(from), high = 300 + nests_below(300);
        int64_t wide = (3 << 19) / high / d + nests_below(70),
                off = round < PAIRS ? 0 : d * (1 + nests_below(64 / d - 1));
        int64_t drow = (high * d + 63) / 64 * 64, srow = nests_below(2) ? wide * s : (wide * s + 4095) / 4096 * 4096;
        struct memory_tile t = {2, {high, wide}, {{d, drow}, {srow, s}}};
        size_t bytes = (size_t)(wide * drow + 64);
        unsigned char *src = malloc((size_t)(high * srow)), *dst = aligned_alloc(64, bytes), *want = malloc(bytes);
        assert_true(src && dst && want);
        for (int64_t i = 0; i < high * wide; i++)
            nests_put(src + i / wide * srow + i % wide * s, from);
        memset(dst, 0x5a, bytes);
        memset(want, 0x5a, bytes);
        for (int64_t i = 0; i < high * wide; i++)
            memory_cast_one(want + off + i % wide * drow + i / wide * d, to, src + i / wide * srow + i % wide * s,
                            from);
        memory_copy(&t, dst + off, to, src, from);
        assert_memory_equal(dst, want, bytes);
        free(src);
        free(dst);
        free(want);
    }
}

/* The same with a cast: dst[c][b][a] = cast(src[a][b][c]). */
static void transposes_with_casts_match_a_naive_walk(void **state)
{
    (void)state;
    nests_seed = 34;
    for (int round = 0; round < test_rounds(200); round++) {
        int to = (int)(1 + nests_below(DTYPE_COUNT)), from = (int)(1 + nests_below(DTYPE_COUNT));
        if (!dtype_castable(from, to))
            continue;
        int64_t d = (int64_t)weft_dtype_size(to), s = (int64_t)weft_dtype_size(from);
        int64_t a = 1 + nests_below(150), b = 1 + nests_below(4), c = 1 + nests_below(round % 8 ? 150 : 600);
        struct memory_tile t = {3, {a, b, c}, {{d, a * d, a * b * d}, {b * c * s, c * s, s}}};
        size_t n = (size_t)(a * b * c);
        unsigned char *src = malloc(n * (size_t)s), *dst = calloc(n, (size_t)d), *want = calloc(n, (size_t)d);
        assert_true(src && dst && want);
        for (size_t i = 0; i < n; i++)
            nests_put(src + i * (size_t)s, from);
        for (int64_t i = 0; i < memory_tile_count(&t); i++)
            memory_cast_one(want + nests_offset(&t, t.stride[0], i), to, src + nests_offset(&t, t.stride[1], i), from);
        memory_tile_merge(&t);
        memory_copy(&t, dst, to, src, from);
        assert_memory_equal(dst, want, n * (size_t)d);
        free(src);
        free(dst);
        free(want);
    }
}

/* Runs of bytes, rows and turns of them, walked in the same order on both sides or across, with gaps or without: every
 * length that has its own loop, and others. Tiles of long runs are larger than the caches. */
static void runs_of_bytes_match_a_naive_walk(void **state)
{
    (void)state;
    nests_seed = 35;
    static const int64_t runs[] = {17,  24,  31,  32,   33,   48,   64,   100,  128,  200,   255,  256,
                                   257, 512, 700, 1024, 2048, 2100, 4096, 8191, 8192, 10000, 70000};
    for (int round = 0; round < test_rounds(400); round++) {
        int64_t run = runs[nests_below(sizeof runs / sizeof *runs)];
        bool many = run >= 2048 && nests_below(4) == 0; /* beyond the caches */
        int64_t rows = 1 + nests_below(run < 512 ? 20 : 5),
                turns = many ? 1 + (3 << 19) / run / rows + nests_below(5) : 1 + nests_below(37);
        if (run >= 8191 && !many)
            turns = 1 + turns % 6;
        bool across[2] = {nests_below(2), nests_below(2)};
        struct memory_tile t = {3, {rows, turns, run}, {{0}, {0}}};
        unsigned char *data[2], *want;
        int64_t bytes[2];
        for (int k = 0; k < 2; k++) {
            int64_t gap = run + nests_below(2) * nests_below(3) * (nests_below(2) ? run : 7);
            t.stride[k][0] = across[k] ? gap : turns * gap + nests_below(2) * 64;
            t.stride[k][1] = across[k] ? rows * gap + nests_below(2) * 64 : gap;
            t.stride[k][2] = 1;
            bytes[k] = (rows - 1) * t.stride[k][0] + (turns - 1) * t.stride[k][1] + run;
            data[k] = malloc((size_t)bytes[k]);
            assert_non_null(data[k]);
            uint64_t word = 0;
            for (int64_t i = 0; i < bytes[k]; i++)
                data[k][i] = (unsigned char)(word = i % 8 ? word >> 8 : ref_random(&nests_seed));
        }
        want = malloc((size_t)bytes[0]);
        assert_non_null(want);
        memcpy(want, data[0], (size_t)bytes[0]);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t i = 0; i < turns; i++)
                memcpy(want + r * t.stride[0][0] + i * t.stride[0][1],
                       data[1] + r * t.stride[1][0] + i * t.stride[1][1], (size_t)run);
        if (nests_below(2))
            memory_tile_merge(&t);
        memory_copy(&t, data[0], WEFT_U8, data[1], WEFT_U8);
        if (memcmp(data[0], want, (size_t)bytes[0]) != 0)
            fail_msg("round %d: %d by %d runs of %d", round, (int)rows, (int)turns, (int)run);
        free(data[0]);
        free(data[1]);
        free(want);
    }
}

/* Every cast between dtypes of one size may happen where the values lie. */
static void casts_in_place_match_a_naive_walk(void **state)
{
    (void)state;
    nests_seed = 44;
    for (int to = 1; to <= DTYPE_COUNT; to++)
        for (int from = 1; from <= DTYPE_COUNT; from++) {
            if (weft_dtype_size(to) != weft_dtype_size(from) || !dtype_castable(from, to))
                continue;
            for (int round = 0; round < 5; round++) {
                struct memory_tile t = {0};
                struct operand o;
                nests_loops(&t);
                nests_operand(&t, &o, (int64_t)weft_dtype_size(to), false);
                nests_values(&t, &o, from);
                memcpy(t.stride[0], o.stride, sizeof o.stride);
                memcpy(t.stride[1], o.stride, sizeof o.stride);
                unsigned char *want = nests_twin(&o);
                for (int64_t i = 0; i < memory_tile_count(&t); i++) {
                    int64_t off = o.first + nests_offset(&t, o.stride, i);
                    memory_cast_one(want + off, to, o.data + off, from);
                }
                memory_copy(&t, o.data + o.first, to, o.data + o.first, from);
                assert_memory_equal(o.data, want, (size_t)o.bytes);
                free(want);
                free(o.data);
            }
        }
}

/* ---- ops ---- */

static uint64_t float_op(int dtype, uint64_t a, uint64_t b, int op)
{
    struct ref x = ref_decode(dtype, &a), y = ref_decode(dtype, &b);
    if (op == WEFT_MIN || op == WEFT_MAX) {
        if (x.nan || y.nan)
            return x.nan ? a : b;
        if (x.x == y.x)
            return x.neg == (op == WEFT_MIN) ? a : b;
        return (x.x < y.x) == (op == WEFT_MIN) ? a : b;
    }
    uint64_t r = 0;
    if (dtype == WEFT_F32) {
        float p, q;
        memcpy(&p, &a, 4);
        memcpy(&q, &b, 4);
        p = op == WEFT_PROD ? p * q : p + q;
        memcpy(&r, &p, 4);
    } else {
        double p, q;
        memcpy(&p, &a, 8);
        memcpy(&q, &b, 8);
        p = op == WEFT_PROD ? p * q : p + q;
        memcpy(&r, &p, 8);
    }
    /* whichever NaN the machine gives, weft gives the positive quiet one */
    return ref_decode(dtype, &r).nan ? (dtype == WEFT_F32 ? UINT64_C(0x7fc00000) : UINT64_C(0x7ff8) << 48) : r;
}

static uint64_t one_op(int dtype, uint64_t a, uint64_t b, int op)
{
    if (dtype_is_float(dtype))
        return float_op(dtype, a, b, op);
    struct ref x = ref_decode(dtype, &a), y = ref_decode(dtype, &b), r = {.integer = true};
    switch (op) {
    case WEFT_SUM:
    case WEFT_AVG: r.word = x.word + y.word; break;
    case WEFT_PROD: r.word = x.word * y.word; break;
    case WEFT_MIN: r.word = x.x < y.x ? x.word : y.word; break;
    case WEFT_MAX: r.word = x.x > y.x ? x.word : y.word; break;
    case WEFT_BAND: r.word = x.word & y.word; break;
    case WEFT_BOR: r.word = x.word | y.word; break;
    default: r.word = x.word ^ y.word; break;
    }
    r.x = r.word != 0; /* for bool */
    return ref_encode(dtype, r);
}

/* The same where they lie; complex numbers part by part. */
static void one_op_at(int dtype, void *value, const void *term, int op)
{
    int part = dtype == WEFT_C64 ? WEFT_F32 : dtype == WEFT_C128 ? WEFT_F64 : dtype;
    size_t size = weft_dtype_size(part);
    for (size_t i = 0; i < weft_dtype_size(dtype); i += size) {
        uint64_t r = one_op(part, ref_load(part, (char *)value + i), ref_load(part, (const char *)term + i), op);
        memcpy((char *)value + i, &r, size);
    }
}

static uint64_t one_division(int dtype, uint64_t a, int64_t div)
{
    struct ref x = ref_decode(dtype, &a), r = {.integer = true};
    if (dtype == WEFT_F32) {
        float f;
        memcpy(&f, &a, 4);
        f /= (float)div;
        memcpy(&a, &f, 4);
        return a;
    }
    if (dtype == WEFT_F64) {
        double f;
        memcpy(&f, &a, 8);
        f /= (double)div;
        memcpy(&a, &f, 8);
        return a;
    }
    if (dtype_is_signed(dtype)) {
        int64_t q;
        memcpy(&q, &x.word, 8);
        q /= div;
        memcpy(&r.word, &q, 8);
    } else {
        r.word = x.word / (uint64_t)div;
    }
    return ref_encode(dtype, r);
}

static void one_division_at(int dtype, void *value, int64_t div)
{
    int part = dtype == WEFT_C64 ? WEFT_F32 : dtype == WEFT_C128 ? WEFT_F64 : dtype;
    size_t size = weft_dtype_size(part);
    for (size_t i = 0; i < weft_dtype_size(dtype); i += size) {
        uint64_t r = one_division(part, ref_load(part, (char *)value + i), div);
        memcpy((char *)value + i, &r, size);
    }
}

static void foldable_pairs_are_those_of_the_table(void **state)
{
    (void)state;
    for (int d = 0; d <= DTYPE_COUNT + 1; d++)
        for (int op = 0; op <= OP_COUNT + 1; op++) {
            bool real = d >= 1 && d <= DTYPE_COUNT && op >= 1 && op <= OP_COUNT;
            bool bits = op == WEFT_BAND || op == WEFT_BOR || op == WEFT_BXOR, ends = op == WEFT_MIN || op == WEFT_MAX;
            bool want = real && (d == WEFT_BOOL                    ? bits || ends
                                 : d == WEFT_C64 || d == WEFT_C128 ? op == WEFT_SUM || op == WEFT_AVG
                                 : d == WEFT_F8E8M0                ? ends || op == WEFT_PROD
                                 : dtype_is_float(d)               ? !bits
                                                                   : true);
            assert_int_equal(dtype_foldable(op, d) != 0, want);
        }
    assert_int_equal(dtype_acc(WEFT_F8E4M3), WEFT_F32);
    assert_int_equal(dtype_acc(WEFT_F8E5M2), WEFT_F32);
    assert_int_equal(dtype_acc(WEFT_F8E4M3SAT), WEFT_F32);
    assert_int_equal(dtype_acc(WEFT_F8E8M0), WEFT_F32);
    assert_int_equal(dtype_acc(WEFT_C64), WEFT_C64);
    assert_int_equal(dtype_acc(WEFT_C128), WEFT_C128);
    assert_int_equal(dtype_acc(WEFT_F16), WEFT_F32);
    assert_int_equal(dtype_acc(WEFT_BF16), WEFT_F32);
    assert_int_equal(dtype_acc(WEFT_F64), WEFT_F64);
    assert_int_equal(dtype_acc(WEFT_I8), WEFT_I8);
    assert_int_equal(dtype_acc(WEFT_BOOL), WEFT_BOOL);
}

static void fold_of_two_values_matches_the_definition(void **state)
{
    (void)state;
    nests_seed = 55;
    for (int acc = 1; acc <= DTYPE_COUNT; acc++)
        for (int op = 1; op <= OP_COUNT; op++) {
            if (dtype_acc(acc) != acc || !dtype_foldable(op, acc))
                continue;
            for (int i = 0; i < 3000; i++) {
                uint64_t a[2] = {0}, b[2] = {0}, want[2];
                nests_put(a, acc);
                nests_put(b, acc);
                memcpy(want, a, sizeof want);
                one_op_at(acc, want, b, op);
                memory_ops_fold_one(a, b, acc, op);
                if (memcmp(a, want, sizeof a) != 0)
                    fail_msg("%s of %s: %#llx, should be %#llx", weft_op_name(op), weft_dtype_name(acc),
                             (unsigned long long)a[0], (unsigned long long)want[0]);
            }
        }
    float zero = 0, minus = -0.0f; /* -0 stands below +0 whichever comes first */
    memory_ops_fold_one(&zero, &minus, WEFT_F32, WEFT_MIN);
    assert_true(signbit(zero));
    zero = 0;
    memory_ops_fold_one(&minus, &zero, WEFT_F32, WEFT_MAX);
    assert_false(signbit(minus));
}

static void identity_leaves_values_unchanged(void **state)
{
    (void)state;
    nests_seed = 66;
    for (int dtype = 1; dtype <= DTYPE_COUNT; dtype++)
        for (int op = 1; op <= OP_COUNT; op++) {
            if (!dtype_foldable(op, dtype) || op == WEFT_AVG)
                continue;
            struct memory_tile t = {0};
            struct operand o;
            size_t size = weft_dtype_size(dtype);
            nests_loops(&t);
            nests_operand(&t, &o, (int64_t)size, false);
            memcpy(t.stride[0], o.stride, sizeof o.stride);
            unsigned char *want = nests_twin(&o);
            uint64_t e[2] = {0};
            struct memory_tile one = {0};
            memory_fill_identity(&one, e, dtype, op);
            for (int64_t i = 0; i < memory_tile_count(&t); i++)
                memcpy(want + o.first + nests_offset(&t, o.stride, i), e, size);
            memory_fill_identity(&t, o.data + o.first, dtype, op);
            assert_memory_equal(o.data, want, (size_t)o.bytes);
            for (int i = 0; i < 500; i++) { /* it changes nothing: e op x is x */
                int acc = dtype_acc(dtype);
                if (dtype_is_complex(dtype)) { /* a sum, of floats as they are tested above */
                    assert_true(e[0] == 0 && e[1] == 0);
                    break;
                }
                uint64_t x = nests_value(dtype), a = 0, b = 0;
                memory_cast_one(&a, acc, e, dtype);
                memory_cast_one(&b, acc, &x, dtype);
                struct ref v = ref_decode(acc, &b);
                if (v.nan || (op == WEFT_SUM && v.x == 0) || (dtype == WEFT_BOOL && x > 1))
                    continue;
                memory_ops_fold_one(&a, &b, acc, op);
                assert_int_equal(a, b);
            }
            free(want);
            free(o.data);
        }
}

/* ---- folds ---- */

enum { TERMS = 18 };

/* The fold of element i of all terms, one step after the other. */
static void naive_fold(const struct memory_tile *t, int64_t i, void *out, int to, int via, int acc, int op, int64_t div,
                       const struct memory_term *terms, size_t n)
{
    uint64_t value[2] = {0}, term[2] = {0};
    for (size_t k = 0; k < n; k++) {
        const unsigned char *p = (const unsigned char *)terms[k].data + nests_offset(t, terms[k].stride, i);
        memory_cast_one(k ? term : value, acc, p, terms[k].dtype);
        if (k)
            one_op_at(acc, value, term, op);
    }
    if (acc == WEFT_BOOL)
        value[0] = value[0] != 0;
    if (div > 1)
        one_division_at(acc, value, div);
    if (via)
        memory_cast_one(term, via, value, acc);
    memory_cast_one(out, to, via ? term : value, via ? via : acc);
}

static void check_fold(int dtype, int op)
{
    static const int64_t divs[] = {0, 1, 2, 3, 4, 7, 8, 64, 300, 100000, INT64_C(1) << 33, INT64_MAX};
    struct memory_tile t = {0};
    struct operand d, s[TERMS];
    struct memory_term terms[TERMS];
    size_t n = (size_t)(1 + nests_below(TERMS));
    int acc = dtype_acc(dtype), via = nests_below(3) ? 0 : nests_below(2) ? dtype : (int)(1 + nests_below(DTYPE_COUNT));
    int to = nests_below(2) ? dtype : nests_below(2) ? acc : (int)(1 + nests_below(DTYPE_COUNT));
    int64_t div = (op == WEFT_SUM || op == WEFT_AVG) && nests_below(2) ? divs[nests_below(12)] : 0;
    if (via && !dtype_castable(acc, via))
        via = dtype;
    if (!dtype_castable(via ? via : acc, to))
        to = via ? via : acc;
    nests_loops(&t);
    nests_operand(&t, &d, (int64_t)weft_dtype_size(to), false);
    memcpy(t.stride[0], d.stride, sizeof d.stride);
    bool alike = nests_below(3) == 0; /* the terms are all of one dtype and stride */
    for (size_t k = 0; k < n; k++) {
        terms[k].dtype = nests_dense || alike ? (k                ? terms[0].dtype
                                                 : nests_below(4) ? dtype
                                                                  : acc)
                         : nests_below(2)     ? dtype
                                              : acc;
        if (alike && k) {
            s[k] = s[0];
            s[k].data = nests_twin(&s[0]);
        } else {
            nests_operand(&t, &s[k], (int64_t)weft_dtype_size(terms[k].dtype), true);
        }
        nests_values(&t, &s[k], terms[k].dtype);
        terms[k].data = s[k].data + s[k].first;
        terms[k].stride = s[k].stride;
    }
    size_t same = (size_t)nests_below((int64_t)n); /* now and then this term is the destination */
    if (weft_dtype_size(terms[same].dtype) == weft_dtype_size(to) && nests_below(2)) {
        terms[same].data = d.data + d.first;
        terms[same].stride = d.stride;
        nests_values(&t, &d, terms[same].dtype);
    }
    unsigned char *want = nests_twin(&d);
    for (int64_t i = 0; i < memory_tile_count(&t); i++)
        naive_fold(&t, i, want + d.first + nests_offset(&t, d.stride, i), to, via, acc, op, div, terms, n);
    memory_fold(&t, d.data + d.first, to, via, acc, op, div, terms, n);
    if (memcmp(d.data, want, (size_t)d.bytes) != 0)
        fail_msg("%s of %d terms of %s to %s via %d div %lld", weft_op_name(op), (int)n, weft_dtype_name(dtype),
                 weft_dtype_name(to), via, (long long)div);
    free(want);
    free(d.data);
    for (size_t k = 0; k < n; k++)
        free(s[k].data);
}

static void folds_match_a_naive_walk(void **state)
{
    (void)state;
    nests_seed = 77;
    for (int dtype = 1; dtype <= DTYPE_COUNT; dtype++)
        for (int op = 1; op <= OP_COUNT; op++)
            for (int round = 0; dtype_foldable(op, dtype) && round < test_rounds(16); round++) {
                nests_dense = round % 2;
                check_fold(dtype, op);
            }
    nests_dense = false;
}

/* Sums of f16, bf16 and f8 are rounded once, after the last term. */
static void narrow_sums_are_rounded_once(void **state)
{
    (void)state;
    struct memory_tile one = {0};
    float big = 256, small = 1;
    uint16_t t[5], sum;
    memory_cast_one(&t[0], WEFT_BF16, &big, WEFT_F32); /* 256 + 1 is 256 in bf16 */
    for (int i = 1; i < 5; i++)
        memory_cast_one(&t[i], WEFT_BF16, &small, WEFT_F32);
    struct memory_term terms[5];
    for (int i = 0; i < 5; i++)
        terms[i] = (struct memory_term){&t[i], WEFT_BF16, NULL};
    memory_fold(&one, &sum, WEFT_BF16, 0, WEFT_F32, WEFT_SUM, 0, terms, 5);
    float got;
    memory_cast_one(&got, WEFT_F32, &sum, WEFT_BF16);
    assert_true(got == 260);
}

/* Terms whose rows have gaps: narrow ones are gathered, four at a time, for a destination that is not a run; otherwise
 * they are folded row by row. Rows of lengths around what a span or a piece takes, beside the same fold of one element
 * after the other. */
static void rows_with_gaps_match_single_elements(void **state)
{
    (void)state;
    enum { ROWS = 3, GAP = 40, LONGEST = 4200, MOST = 8 };
    static unsigned char from[MOST][ROWS * (LONGEST + GAP) * 8], got[ROWS * LONGEST * 16], want[sizeof got];
    static const int dtypes[] = {WEFT_F8E4M3, WEFT_F16, WEFT_BF16, WEFT_F8E5M2, WEFT_F32, WEFT_I64};
    static const int ops[] = {WEFT_MAX, WEFT_SUM, WEFT_AVG};
    static const int64_t lengths[] = {17, 33, 300, 1025, 2047, LONGEST};
    for (int k = 0; k < MOST; k++)
        for (size_t i = 0; i < sizeof from[k]; i++)
            from[k][i] = (unsigned char)((i * 37 + (size_t)k * 91 + i / 251) % 0x3b); /* finite in all of them */
    for (size_t c = 0; c < 2 * 756; c++) { /* 6 * 3 * 6 * 7 folds to the terms' dtype, and to the one that sums have */
        const int dtype = dtypes[c % 6], op = ops[c / 6 % 3], acc = dtype_acc(dtype), to = c < 756 ? dtype : acc;
        const int64_t n = lengths[c / 18 % 6], size = (int64_t)weft_dtype_size(dtype);
        const int64_t width = (int64_t)weft_dtype_size(to);
        const int64_t out = dtype == WEFT_I64 ? width : (int64_t)(1 + (c / 6 + c / 108) % 2) * width;
        const size_t terms_n = 2 + c % 756 / 108;
        int64_t stride[3] = {(n + GAP) * size * 2, (n + GAP) * size, size};
        struct memory_tile t = {.loops = 3, .n = {1, ROWS, n}, .stride = {{0, n * out, out}}}, one = {.loops = 0};
        struct memory_term terms[MOST];
        for (size_t k = 0; k < terms_n; k++)
            terms[k] = (struct memory_term){from[k], dtype, stride};
        memset(got, 0, sizeof got);
        memset(want, 0, sizeof want);
        memory_fold(&t, got, to, 0, acc, op, 3, terms, terms_n);
        for (int64_t e = 0; e < ROWS * n; e++) {
            struct memory_term single[MOST];
            for (size_t k = 0; k < terms_n; k++)
                single[k] = (struct memory_term){from[k] + e / n * stride[1] + e % n * size, dtype, stride};
            memory_fold(&one, want + e * out, to, 0, acc, op, 3, single, terms_n);
        }
        assert_memory_equal(got, want, sizeof got);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merged_tiles_visit_the_same_elements),
        cmocka_unit_test(copies_match_a_naive_walk),
        cmocka_unit_test(transposes_match_a_naive_walk),
        cmocka_unit_test(transposes_with_casts_match_a_naive_walk),
        cmocka_unit_test(large_transposes_match_and_touch_nothing_else),
        cmocka_unit_test(casts_in_place_match_a_naive_walk),
        cmocka_unit_test(runs_of_bytes_match_a_naive_walk),
        cmocka_unit_test(foldable_pairs_are_those_of_the_table),
        cmocka_unit_test(fold_of_two_values_matches_the_definition),
        cmocka_unit_test(identity_leaves_values_unchanged),
        cmocka_unit_test(folds_match_a_naive_walk),
        cmocka_unit_test(narrow_sums_are_rounded_once),
        cmocka_unit_test(rows_with_gaps_match_single_elements),
    };
    return SUITE_MAIN(argc, argv, SUITE_AT(&memory_levels, tests));
}
