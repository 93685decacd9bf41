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

/* NaNs as they are, quiet or not. */
static inline void load_any_bf16(wide_f *x, const unsigned char *p)
{
    wide_h h[WIDE_HALVES];
    wide_u u[WIDE];
    wide_load16(h, p);
    wide_raise(u, h);
    for (int i = 0; i < WIDE; i++)
        x[i] = (wide_f)u[i];
}

static inline void load_bf16(wide_f *x, const unsigned char *p)
{
    load_any_bf16(x, p);
    for (int i = 0; i < WIDE; i++)
        x[i] = (wide_f)((wide_u)x[i] | ((wide_u)(x[i] != x[i]) & 0x00400000));
}

#ifdef WIDE_TO_BF16
static inline void store_bf16(unsigned char *p, const wide_f *x)
{
    wide_h h[WIDE_HALVES];
    wide_to_bf16(h, x);
    wide_store16(p, h);
}
#else
static inline void store_bf16(unsigned char *p, const wide_f *x)
{
    wide_h h[WIDE_HALVES];
    wide_u r[WIDE];
    for (int i = 0; i < WIDE; i++) {
        wide_u u = (wide_u)x[i];
        r[i] = wide_pick((wide_u)(x[i] == x[i]), u + 0x7fff + (u << 15 >> 31), u | 0x00400000);
    }
    wide_upper(h, r);
    wide_store16(p, h);
}
#endif

/* f8e5m2 is the upper byte of f16. NaNs are made quiet here, since a compiler may remove the conversion to f32 and
 * back. */
static inline void load_f8e5m2(wide_f *x, const unsigned char *p)
{
    wide_h h[WIDE_HALVES];
    wide_load8(h, p);
    for (int i = 0; i < WIDE_HALVES; i++)
        h[i] = h[i] << 8 | ((wide_h)((h[i] & 0x7f) > 0x7c) & 0x200);
    wide_from_f16(x, h);
}

/* Exponent and mantissa of f8e4m3, read as those of f16, are those of a value that is 2^8 times smaller. */
static inline void load_f8e4m3(wide_f *x, const unsigned char *p)
{
    wide_h h[WIDE_HALVES];
    wide_load8(h, p);
    for (int i = 0; i < WIDE_HALVES; i++) {
        wide_h em = h[i] & 0x7f, nan = (wide_h)(em == 0x7f);
        h[i] = (h[i] & 0x80) << 8 | (em << 7 & ~nan) | (nan & 0x7e00);
    }
    wide_from_f16(x, h);
    for (int i = 0; i < WIDE; i++)
        x[i] *= 256.0f;
}

/* As in half_narrow. A value that is too large, or NaN, gets a code beyond the last one. `nan` has the bits that turn
 * infinity into a NaN. */
static inline void store_f8(unsigned char *p, const wide_f *x, struct half_format f, uint32_t nan)
{
    const int drop = 23 - f.mant;
    const uint32_t half = (1u << (drop - 1)) - 1 - ((uint32_t)(127 - f.bias) << 23);
    const uint32_t magic = (uint32_t)(127 + 23 + 1 - f.bias - f.mant) << 23;
    wide_u r[WIDE];
    for (int i = 0; i < WIDE; i++) {
        wide_u bits = (wide_u)x[i], u = bits & 0x7fffffff;
        wide_u normal = (u + (u << (31 - drop) >> 31) + half) >> drop;
        wide_u small = (wide_u)((wide_f)u + half_float(magic)) - magic;
        normal = wide_pick((wide_u)(normal < f.inf), normal, (wide_u){0} + f.inf);
        r[i] = wide_pick((wide_u)(u < (uint32_t)(128 - f.bias) << 23), small, normal);
        r[i] |= (wide_u)(u > 0x7f800000) & nan;
        r[i] |= bits >> 24 & 0x80;
    }
    wide_store8(p, r);
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

#define WIDE_CAST(S, D)                                          \
    static void S##_to_##D(void *dst, const void *src, size_t n) \
    {                                                            \
        unsigned char *d = dst, pad[STEP * 4] = {0};             \
        const unsigned char *s = src;                            \
        wide_f x[WIDE];                                          \
        for (; n >= STEP; n -= STEP) {                           \
            load_##S(x, s);                                      \
            store_##D(d, x);                                     \
            s += STEP * size_##S;                                \
            d += STEP * size_##D;                                \
        }                                                        \
        if (n) {                                                 \
            memcpy(pad, s, n *size_##S);                         \
            load_##S(x, pad);                                    \
            store_##D(pad, x);                                   \
            memcpy(d, pad, n *size_##D);                         \
        }                                                        \
    }
#define WIDE_CASTS(T, U, V, W) \
    WIDE_CAST(f32, T)          \
    WIDE_CAST(T, f32)          \
    WIDE_CAST(T, U)            \
    WIDE_CAST(T, V)            \
    WIDE_CAST(T, W)
WIDE_CASTS(f16, bf16, f8e4m3, f8e5m2)
WIDE_CASTS(bf16, f16, f8e4m3, f8e5m2)
WIDE_CASTS(f8e4m3, f16, bf16, f8e5m2)
WIDE_CASTS(f8e5m2, f16, bf16, f8e4m3)

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
