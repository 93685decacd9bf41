/* Narrow floats sixteen at a time: casts among them and f32, and folds in f32 that read and write them as they are.
 * Every step works on whole vectors; the rest at the end goes through a padded one. The rules are those of half.h. */
#ifndef WEFT_MEMORY_WIDE_LOOPS_H
#define WEFT_MEMORY_WIDE_LOOPS_H
#include <string.h>

#include "memory/half.h"

enum { STEP = 16 };

/* Elements by their type's name, for the macros below. */
enum { size_f32 = 4, size_f16 = 2, size_bf16 = 2, size_f8e4m3 = 1, size_f8e5m2 = 1 };

static inline wide_u wide_pick(wide_u mask, wide_u a, wide_u b)
{
    return (a & mask) | (b & ~mask);
}

static inline void load_f32(wide_f *x, const unsigned char *p)
{
    for (int i = 0; i < WIDE; i++)
        x[i] = wide_load(p + i * (int)sizeof(wide_f));
}

static inline void store_f32(unsigned char *p, const wide_f *x)
{
    for (int i = 0; i < WIDE; i++)
        wide_store(p + i * (int)sizeof(wide_f), x[i]);
}

static inline void load_f16(wide_f *x, const unsigned char *p)
{
    wide_h h[WIDE_HALVES];
    wide_load16(h, p);
    wide_from_f16(x, h);
}

static inline void store_f16(unsigned char *p, const wide_f *x)
{
    wide_h h[WIDE_HALVES];
    wide_to_f16(h, x);
    wide_store16(p, h);
}

/* From bf16. */
RAW_INLINE void wide_from_codes(wide_f *x, const wide_h *h)
{
    wide_u u[WIDE];
    wide_raise(u, h);
    for (int i = 0; i < WIDE; i++)
        x[i] = (wide_f)u[i];
}

/* NaNs as they are, quiet or not. */
RAW_INLINE void load_any_bf16(wide_f *x, const unsigned char *p)
{
    wide_h h[WIDE_HALVES];
    wide_load16(h, p);
    wide_from_codes(x, h);
}

static inline void load_bf16(wide_f *x, const unsigned char *p)
{
    load_any_bf16(x, p);
    for (int i = 0; i < WIDE; i++)
        x[i] = (wide_f)((wide_u)x[i] | ((wide_u)(x[i] != x[i]) & 0x00400000));
}

#ifndef WIDE_TO_BF16
/* The upper half is rounded up if the lower half is more than 0x8000, or is 0x8000 and the upper half is odd. */
RAW_INLINE void wide_to_bf16(wide_h *h, const wide_f *x)
{
    wide_h lower[WIDE_HALVES], ordered[WIDE_HALVES];
    wide_u u[WIDE], same[WIDE];
    for (int i = 0; i < WIDE; i++) {
        u[i] = (wide_u)x[i];
        same[i] = (wide_u)(x[i] == x[i]);
    }
    wide_upper(h, u);
    wide_lower(lower, u);
    wide_lower(ordered, same);
    for (int i = 0; i < WIDE_HALVES; i++) {
        wide_h rounded = h[i] - (wide_h)(lower[i] > 0x8000 - (h[i] & 1));
        h[i] = (rounded & ordered[i]) | ((h[i] | 0x40) & ~ordered[i]);
    }
}
#endif

RAW_INLINE void store_bf16(unsigned char *p, const wide_f *x)
{
    wide_h h[WIDE_HALVES];
    wide_to_bf16(h, x);
    wide_store16(p, h);
}

/* ---- f8 ---- */

/* All values of f8 are values of bf16. Codes are widened in bytes: exponent and mantissa are shifted, and the exponent
 * gets the bias of bf16, by adding `bias` to the upper byte. The codes below 16, among which are the subnormals, are
 * looked up. */
struct wide_small {
    wide_b low, high; /* of the bf16 of codes 0 to 15 */
};

static inline wide_b wide_pick8(wide_b mask, wide_b a, wide_b b)
{
    return (a & mask) | (b & ~mask);
}

RAW_INLINE void wide_from_f8(wide_b *low, wide_b *high, wide_b em, int mant, int bias, const struct wide_small *t)
{
    wide_b small = (wide_b)(em < 16);
    *low = wide_pick8(small, wide_look_up(t->low, em), em << (7 - mant));
    *high = wide_pick8(small, wide_look_up(t->high, em), (em >> (mant + 1)) + (uint8_t)bias);
}

/* To bf16. */
RAW_INLINE void codes_f8e4m3(wide_h *h, const unsigned char *p)
{
    static const struct wide_small small = {
        {0, 0, 0x80, 0xc0, 0, 0x20, 0x40, 0x60, 0x80, 0x90, 0xa0, 0xb0, 0xc0, 0xd0, 0xe0, 0xf0},
        {0, 0x3b, 0x3b, 0x3b, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c},
    };
    wide_b c = wide_load8(p), em = c & 0x7f, nan = (wide_b)(em == 0x7f), low, high;
    wide_from_f8(&low, &high, em, 3, 0x3c, &small);
    wide_join(h, wide_pick8(nan, (wide_b){0} + 0xc0, low), high | (nan & 0x7f) | (c & 0x80));
}

RAW_INLINE void codes_f8e5m2(wide_h *h, const unsigned char *p)
{
    static const struct wide_small small = {
        {0, 0x80, 0, 0x40, 0x80, 0xa0, 0xc0, 0xe0, 0, 0x20, 0x40, 0x60, 0x80, 0xa0, 0xc0, 0xe0},
        {0, 0x37, 0x38, 0x38, 0x38, 0x38, 0x38, 0x38, 0x39, 0x39, 0x39, 0x39, 0x39, 0x39, 0x39, 0x39},
    };
    wide_b c = wide_load8(p), em = c & 0x7f, inf = (wide_b)(em >= 0x7c), nan = (wide_b)(em > 0x7c), low, high;
    wide_from_f8(&low, &high, em, 2, 0x38, &small);
    wide_join(h, low | (nan & 0x40), high | (inf & 0x7f) | (c & 0x80));
}

static inline void load_f8e4m3(wide_f *x, const unsigned char *p)
{
    wide_h h[WIDE_HALVES];
    codes_f8e4m3(h, p);
    wide_from_codes(x, h);
}

static inline void load_f8e5m2(wide_f *x, const unsigned char *p)
{
    wide_h h[WIDE_HALVES];
    codes_f8e5m2(h, p);
    wide_from_codes(x, h);
}

/* As in half_narrow, on the upper halves of f32, whose last bit says whether anything was cut off. A value that is too
 * large, or NaN, gets a code beyond the last one. `nan` has the bits that turn infinity into a NaN. */
RAW_INLINE void store_f8(unsigned char *p, const wide_f *x, struct half_format f, uint32_t nan)
{
    const int drop = 7 - f.mant;
    const uint16_t least = (uint16_t)((128 - f.bias) << 7); /* the smallest normal value */
    const uint16_t half = (uint16_t)((1 << (drop - 1)) - 1 - ((127 - f.bias) << 7));
    const uint32_t magic = (uint32_t)(127 + 23 + 1 - f.bias - f.mant) << 23;
    wide_h v[WIDE_HALVES], lower[WIDE_HALVES], small[WIDE_HALVES], sign[WIDE_HALVES];
    wide_u u[WIDE], sum[WIDE];
    for (int i = 0; i < WIDE; i++) {
        u[i] = (wide_u)x[i];
        sum[i] = (wide_u)((wide_f)(u[i] & 0x7fffffff) + half_float(magic)); /* whose lower half is the mantissa */
    }
    wide_upper(v, u);
    wide_lower(lower, u);
    wide_lower(small, sum);
    for (int i = 0; i < WIDE_HALVES; i++) {
        wide_h a = (v[i] | ((wide_h)(lower[i] != 0) & 1)) & 0x7fff, is_small = (wide_h)(a < least);
        wide_h normal = wide_min16((a + (a >> drop & 1) + half) >> drop, (wide_h){0} + (uint16_t)f.inf);
        sign[i] = v[i] >> 8;
        v[i] = (small[i] & is_small) | (normal & ~is_small);
        if (nan)
            v[i] |= (wide_h)(a > 0x7f80) & (uint16_t)nan;
    }
    wide_store8(p, wide_bytes(v) | (wide_bytes(sign) & 0x80));
}

static inline void store_f8e4m3(unsigned char *p, const wide_f *x)
{
    store_f8(p, x, HALF_F8E4M3, 0);
}

static inline void store_f8e5m2(unsigned char *p, const wide_f *x)
{
    store_f8(p, x, HALF_F8E5M2, 2);
}

/* ---- casts ---- */

/* A run of n elements, by S_as_D, which casts STEP of them. */
#define WIDE_RUN(S, D)                                           \
    static void S##_to_##D(void *dst, const void *src, size_t n) \
    {                                                            \
        unsigned char *d = dst;                                  \
        const unsigned char *s = src;                            \
        for (; n >= STEP; n -= STEP) {                           \
            S##_as_##D(d, s);                                    \
            s += STEP * size_##S;                                \
            d += STEP * size_##D;                                \
        }                                                        \
        if (n) {                                                 \
            unsigned char in[STEP * 4] = {0}, out[STEP * 4];     \
            memcpy(in, s, n *size_##S);                          \
            S##_as_##D(out, in);                                 \
            memcpy(d, out, n *size_##D);                         \
        }                                                        \
    }
#define WIDE_CAST(S, D)                                                     \
    static inline void S##_as_##D(unsigned char *d, const unsigned char *s) \
    {                                                                       \
        wide_f x[WIDE];                                                     \
        load_##S(x, s);                                                     \
        store_##D(d, x);                                                    \
    }                                                                       \
    WIDE_RUN(S, D)
#define WIDE_CASTS(T, U, V) \
    WIDE_CAST(f32, T)       \
    WIDE_CAST(T, f32)       \
    WIDE_CAST(T, U)         \
    WIDE_CAST(T, V)
WIDE_CASTS(f16, f8e4m3, f8e5m2)
WIDE_CASTS(bf16, f8e4m3, f8e5m2)
WIDE_CASTS(f8e4m3, f16, f8e5m2)
WIDE_CASTS(f8e5m2, f16, f8e4m3)
WIDE_CAST(f16, bf16)
WIDE_CAST(bf16, f16)

#define WIDE_CODES(S)                                                        \
    static inline void S##_as_bf16(unsigned char *d, const unsigned char *s) \
    {                                                                        \
        wide_h h[WIDE_HALVES];                                               \
        codes_##S(h, s);                                                     \
        wide_store16(d, h);                                                  \
    }                                                                        \
    WIDE_RUN(S, bf16)
WIDE_CODES(f8e4m3)
WIDE_CODES(f8e5m2)

/* ---- folds ---- */

static inline wide_f wide_one_nan(wide_f a)
{
    return (wide_f)wide_pick((wide_u)(a == a), (wide_u)a, (wide_u){0} + 0x7fc00000);
}

static inline wide_f wide_same(wide_f a)
{
    return a;
}

/* See FLOAT_OPS in ops_loops.h. */
static inline wide_f wide_min(wide_f a, wide_f b)
{
    wide_u x = (wide_u)a, y = (wide_u)b, r = y | (x & (wide_u)(a == b));
    r = wide_pick((wide_u)(a < b), x, r);
    return (wide_f)wide_pick((wide_u)(a != a), x, r);
}

static inline wide_f wide_max(wide_f a, wide_f b)
{
    wide_u x = (wide_u)a, y = (wide_u)b, r = y & (x | (wide_u)(a != b));
    r = wide_pick((wide_u)(a > b), x, r);
    return (wide_f)wide_pick((wide_u)(a != a), x, r);
}

#define WIDE_TAKE(op, T, load, expr)                                    \
    static inline void op##_take_##T(wide_f *r, const unsigned char *p) \
    {                                                                   \
        wide_f x[WIDE];                                                 \
        load(x, p);                                                     \
        for (int i = 0; i < WIDE; i++)                                  \
            r[i] = expr;                                                \
    }

/* One step of a fold: STEP elements at `at` of every run. */
#define WIDE_STEP(op, T, load, end)                                                                                \
    static inline void op##_##T##_step(unsigned char *d, bool wide_out, const unsigned char *const *in, size_t at, \
                                       bool wide_first, int ways)                                                  \
    {                                                                                                              \
        wide_f r[WIDE];                                                                                            \
        if (wide_first)                                                                                            \
            load_f32(r, in[0] + at * 4);                                                                           \
        else                                                                                                       \
            load(r, in[0] + at * size_##T);                                                                        \
        for (int k = 1; k < ways; k++)                                                                             \
            op##_take_##T(r, in[k] + at * size_##T);                                                               \
        for (int i = 0; i < WIDE; i++)                                                                             \
            r[i] = end(r[i]);                                                                                      \
        if (wide_out)                                                                                              \
            store_f32(d + at * 4, r);                                                                              \
        else                                                                                                       \
            store_##T(d + at * size_##T, r);                                                                       \
    }

/* The same with an instruction that is right unless there is a NaN, which it passes on. */
#define WIDE_QUICK_STEP(op, T, load)                                                                                \
    static inline void op##_##T##_quick(unsigned char *d, bool wide_out, const unsigned char *const *in, size_t at, \
                                        bool wide_first, int ways)                                                  \
    {                                                                                                               \
        wide_f r[WIDE], x[WIDE];                                                                                    \
        if (wide_first)                                                                                             \
            load_f32(r, in[0] + at * 4);                                                                            \
        else                                                                                                        \
            load(r, in[0] + at * size_##T);                                                                         \
        for (int k = 1; k < ways; k++) {                                                                            \
            load(x, in[k] + at * size_##T);                                                                         \
            for (int i = 0; i < WIDE; i++)                                                                          \
                r[i] = wide_quick_##op(r[i], x[i]);                                                                 \
        }                                                                                                           \
        if (wide_any_nan(r))                                                                                        \
            op##_##T##_step(d, wide_out, in, at, wide_first, ways);                                                 \
        else if (wide_out)                                                                                          \
            store_f32(d + at * 4, r);                                                                               \
        else                                                                                                        \
            store_##T(d + at * size_##T, r);                                                                        \
    }

#define WIDE_FOLD(op, T, step)                                                                                 \
    static void op##_##T(void *dst, bool wide_out, const void *const *in, bool wide_first, int ways, size_t n) \
    {                                                                                                          \
        const unsigned char *p[OPS_WAYS];                                                                      \
        unsigned char pad[OPS_WAYS][STEP * 4] = {{0}}, *d = dst;                                               \
        size_t at = 0, dsize = wide_out ? 4 : size_##T;                                                        \
        for (int k = 0; k < ways; k++)                                                                         \
            p[k] = in[k];                                                                                      \
        for (; at + STEP <= n; at += STEP)                                                                     \
            op##_##T##_##step(d, wide_out, p, at, wide_first, ways);                                           \
        if (at == n)                                                                                           \
            return;                                                                                            \
        for (int k = 0; k < ways; k++) {                                                                       \
            size_t size = k || !wide_first ? size_##T : 4;                                                     \
            memcpy(pad[k], p[k] + at * size, (n - at) * size);                                                 \
            p[k] = pad[k];                                                                                     \
        }                                                                                                      \
        op##_##T##_step(pad[0], wide_out, p, 0, wide_first, ways);                                             \
        memcpy(d + at * dsize, pad[0], (n - at) * dsize);                                                      \
    }

/* In a sum or product a NaN need not become quiet first: the NaN of the result is always the same. `any` loads NaNs as
 * they are, or quiet. */
#define WIDE_SUM(T, any)                 \
    WIDE_STEP(sum, T, any, wide_one_nan) \
    WIDE_FOLD(sum, T, step)
#define WIDE_PROD(T, any)                 \
    WIDE_TAKE(prod, T, any, r[i] * x[i])  \
    WIDE_STEP(prod, T, any, wide_one_nan) \
    WIDE_FOLD(prod, T, step)
#ifdef WIDE_QUICK
#define WIDE_END(op, T, any)                          \
    WIDE_TAKE(op, T, load_##T, wide_##op(r[i], x[i])) \
    WIDE_STEP(op, T, load_##T, wide_same)             \
    WIDE_QUICK_STEP(op, T, any)                       \
    WIDE_FOLD(op, T, quick)
#else
#define WIDE_END(op, T, any)                          \
    WIDE_TAKE(op, T, load_##T, wide_##op(r[i], x[i])) \
    WIDE_STEP(op, T, load_##T, wide_same)             \
    WIDE_FOLD(op, T, step)
#endif
#define WIDE_FOLDS(T, any) \
    WIDE_SUM(T, any)       \
    WIDE_PROD(T, any)      \
    WIDE_END(min, T, any)  \
    WIDE_END(max, T, any)

#ifdef WIDE_ADD_F16
static inline void sum_take_f16(wide_f *r, const unsigned char *p)
{
    wide_h h[WIDE_HALVES];
    wide_load16(h, p);
    wide_add_f16(r, h);
}
#else
WIDE_TAKE(sum, f16, load_f16, r[i] + x[i])
#endif
WIDE_TAKE(sum, bf16, load_any_bf16, r[i] + x[i])
WIDE_TAKE(sum, f8e4m3, load_f8e4m3, r[i] + x[i])
WIDE_TAKE(sum, f8e5m2, load_f8e5m2, r[i] + x[i])
WIDE_FOLDS(f16, load_f16)
WIDE_FOLDS(bf16, load_any_bf16)
WIDE_FOLDS(f8e4m3, load_f8e4m3)
WIDE_FOLDS(f8e5m2, load_f8e5m2)

/* The same for f32, if min and max have these instructions. */
#ifdef WIDE_QUICK
#define WIDE_F32_END(op)                                                        \
    WIDE_END(op, f32, load_f32)                                                 \
    static void op##_wide(void *dst, const void *const *in, int ways, size_t n) \
    {                                                                           \
        op##_f32(dst, true, in, true, ways, n);                                 \
    }
WIDE_F32_END(min)
WIDE_F32_END(max)
#endif
#endif
