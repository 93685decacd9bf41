/* Narrow floats sixteen at a time: folds in f32 that read and write them as they are. Every step works on whole
 * vectors, the last one of a run too. */
#ifndef WEFT_MEMORY_WIDE_FOLDS_H
#define WEFT_MEMORY_WIDE_FOLDS_H
#include "memory/wide_loops.h"

RAW_INLINE wide_f wide_one_nan(wide_f a)
{
    return (wide_f)wide_pick((wide_u)(a == a), (wide_u)a, (wide_u){0} + 0x7fc00000);
}

RAW_INLINE wide_f wide_same(wide_f a)
{
    return a;
}

/* See FLOAT_OPS in ops_loops.h. */
RAW_INLINE wide_f wide_min(wide_f a, wide_f b)
{
    wide_u x = (wide_u)a, y = (wide_u)b, r = y | (x & (wide_u)(a == b));
    r = wide_pick((wide_u)(a < b), x, r);
    return (wide_f)wide_pick((wide_u)(a != a), x, r);
}

RAW_INLINE wide_f wide_max(wide_f a, wide_f b)
{
    wide_u x = (wide_u)a, y = (wide_u)b, r = y & (x | (wide_u)(a != b));
    r = wide_pick((wide_u)(a > b), x, r);
    return (wide_f)wide_pick((wide_u)(a != a), x, r);
}

/* Folds one more run into r. */
#define WIDE_TAKE(name, T, load, expr)                            \
    RAW_INLINE void name##_##T(wide_f *r, const unsigned char *p) \
    {                                                             \
        wide_f x[WIDE];                                           \
        load(x, p);                                               \
        for (int i = 0; i < WIDE; i++)                            \
            r[i] = expr;                                          \
    }

/* What folds some STEPs of elements by their codes returns 1 if it is done, and 0 if it has written nothing since a
 * code is no number. There is none: -1. */
RAW_INLINE int wide_none(unsigned char *d, const unsigned char *const *in, size_t at, int ways, float by, int steps)
{
    (void)d, (void)in, (void)at, (void)ways, (void)by, (void)steps;
    return -1;
}

/* Min or max of f8, f16 or bf16 by their codes. Among codes with the same sign, a larger code has a larger magnitude:
 * max is the largest code without a sign or, if all have one, the smallest code. `last` is the largest code that stays
 * as it is. False: there is a larger one, as NaNs are, and nothing is written. Codes of f8e8m0 have no sign. */
#define wide_codes8(c, p) (*(c) = wide_load8(p))
#define wide_codes16 wide_load16
#define wide_put8(p, c) wide_store8(p, *(c))
#define wide_put16 wide_store16
#define WIDE_END_LANES(bits, V, vectors)                                                                        \
    RAW_INLINE bool wide_end_codes##bits(unsigned char *d, const unsigned char *const *in, size_t at, int ways, \
                                         int steps, bool max, uint##bits##_t last, bool sign)                   \
    {                                                                                                           \
        enum { step = STEP * bits / 8, most_steps = LINE / step };                                              \
        const V top = (V){0} + (uint##bits##_t)(1u << (bits - 1));                                              \
        V low[most_steps * vectors], high[most_steps * vectors], positive[most_steps * vectors];                \
        V c[most_steps * vectors], most = {0};                                                                  \
        const int n = steps * vectors;                                                                          \
        for (int j = 0; j < steps; j++)                                                                         \
            wide_codes##bits(low + j * vectors, in[0] + at * (bits / 8) + j * step);                            \
        for (int i = 0; i < n; i++)                                                                             \
            high[i] = positive[i] = low[i];                                                                     \
        for (int k = 1; k < ways; k++) {                                                                        \
            for (int j = 0; j < steps; j++)                                                                     \
                wide_codes##bits(c + j * vectors, in[k] + at * (bits / 8) + j * step);                          \
            for (int i = 0; i < n; i++) {                                                                       \
                low[i] = wide_min##bits(low[i], c[i]);                                                          \
                high[i] = wide_max##bits(high[i], c[i]);                                                        \
                positive[i] = wide_max##bits##s(positive[i], c[i]);                                             \
            }                                                                                                   \
        }                                                                                                       \
        for (int i = 0; i < n; i++) { /* the largest magnitude: one of the two has no sign */                   \
            V magnitude = sign ? wide_max##bits##s(positive[i], high[i] ^ top) : high[i];                       \
            most = wide_max##bits(most, magnitude);                                                             \
        }                                                                                                       \
        if (wide_any_above##bits(most, last))                                                                   \
            return false;                                                                                       \
        for (int i = 0; i < n; i++)                                                                             \
            if (!sign)                                                                                          \
                c[i] = max ? high[i] : low[i];                                                                  \
            else if (max)                                                                                       \
                c[i] = wide_pick##bits((V)(positive[i] >= top), low[i], positive[i]);                           \
            else                                                                                                \
                c[i] = wide_pick##bits((V)(high[i] >= top), high[i], low[i]);                                   \
        for (int j = 0; j < steps; j++)                                                                         \
            wide_put##bits(d + at * (bits / 8) + j * step, c + j * vectors);                                    \
        return true;                                                                                            \
    }
WIDE_END_LANES(8, wide_b, 1)
WIDE_END_LANES(16, wide_h, WIDE_HALVES)

#define WIDE_END_CODES(T, bits, last, sign)                                                                   \
    RAW_INLINE int least_##T(unsigned char *d, const unsigned char *const *in, size_t at, int ways, float by, \
                             int steps)                                                                       \
    {                                                                                                         \
        (void)by;                                                                                             \
        return wide_end_codes##bits(d, in, at, ways, steps, false, last, sign);                               \
    }                                                                                                         \
    RAW_INLINE int most_##T(unsigned char *d, const unsigned char *const *in, size_t at, int ways, float by,  \
                            int steps)                                                                        \
    {                                                                                                         \
        (void)by;                                                                                             \
        return wide_end_codes##bits(d, in, at, ways, steps, true, last, sign);                                \
    }
WIDE_END_CODES(f16, 16, 0x7c00, true)
WIDE_END_CODES(bf16, 16, 0x7f80, true)
WIDE_END_CODES(f8e4m3, 8, 0x7e, true)
WIDE_END_CODES(f8e5m2, 8, 0x7c, true)
WIDE_END_CODES(f8e5m2sat, 8, 0x7b, true) /* which makes an infinity the largest number */
WIDE_END_CODES(f8e8m0, 8, 0xfe, false)

/* See ops_narrow_loop. */
RAW_INLINE void wide_scale(wide_f *r, float by)
{
    for (int i = 0; i < WIDE && by != 1; i++)
        r[i] = by > 1 ? r[i] / by : r[i] * by;
}

/* Sums of f8. f32 adds the terms times a power of two, and one rounding of the bits of the sum gives its code. Returns
 * 0, and writes nothing, if the sum is NaN, or if a term has a code above `last`: such a code is no number. If infinity
 * and NaN are so in f32, too, no code is looked at. `most` is the code of sums that are too large. */
RAW_INLINE int wide_sum_codes(unsigned char *d, const unsigned char *const *in, size_t at, int ways, float by, int mant,
                              uint8_t last, uint8_t most)
{
    wide_f r[WIDE], x[WIDE];
    wide_b c = wide_load8(in[0] + at), high = c + c;
    if (!WIDE_SCALES_F8(by))
        return -1;
    wide_scaled_f8(r, c, mant);
    for (int k = 1; k < ways; k++) {
        c = wide_load8(in[k] + at);
        high = wide_max8(high, c + c);
        wide_scaled_f8(x, c, mant);
        for (int i = 0; i < WIDE; i++)
            r[i] += x[i];
    }
    if (WIDE_SCALES_NAN(mant) ? wide_any_nan(r) : wide_any_above8(high, (uint8_t)(2 * last)))
        return 0;
    wide_scale(r, by);
    wide_store_scaled_f8(d + at, r, mant, most);
    return 1;
}

#define WIDE_SUM_CODES(T, mant, last, most)                                                                   \
    RAW_INLINE int total_##T(unsigned char *d, const unsigned char *const *in, size_t at, int ways, float by, \
                             int steps)                                                                       \
    {                                                                                                         \
        return steps == 1 ? wide_sum_codes(d, in, at, ways, by, mant, last, most) : -1;                       \
    }
WIDE_SUM_CODES(f8e4m3, 3, 0x7e, 0x7f)
WIDE_SUM_CODES(f8e5m2, 2, 0x7b, 0x7c)
WIDE_SUM_CODES(f8e4m3sat, 3, 0x7e, 0x7e)
WIDE_SUM_CODES(f8e5m2sat, 2, 0x7b, 0x7b)
#define total_f16 wide_none
#define total_bf16 wide_none

/* STEP elements at `at` of every run, or in op_T_line those of a cache line. op_T_try does it faster or, if there is a
 * NaN, does nothing and returns false. `quick` (see wide_none) is for runs that are all of type T. The first `wide`
 * runs are f32. `sure`: the processor makes the right NaN by itself (ops_nan_begin). */
#define WIDE_STEPS(op, T, any, take, load, exact, end, quick, sure)                                                  \
    RAW_INLINE bool op##_##T##_line(unsigned char *d, const unsigned char *const *in, size_t at, int ways, float by) \
    {                                                                                                                \
        return quick(d, in, at, ways, by, LINE / STEP / size_##T) > 0;                                               \
    }                                                                                                                \
    RAW_INLINE bool op##_##T##_try(unsigned char *d, bool wide_out, const unsigned char *const *in, size_t at,       \
                                   int wide, int ways, float by)                                                     \
    {                                                                                                                \
        wide_f r[WIDE];                                                                                              \
        const int done = !wide && !wide_out ? quick(d, in, at, ways, by, 1) : -1;                                    \
        if (done >= 0)                                                                                               \
            return done;                                                                                             \
        if (wide)                                                                                                    \
            load_f32(r, in[0] + at * 4);                                                                             \
        else                                                                                                         \
            any(r, in[0] + at * size_##T);                                                                           \
        for (int k = 1; k < ways; k++)                                                                               \
            if (k < wide)                                                                                            \
                take##_f32(r, in[k] + at * 4);                                                                       \
            else                                                                                                     \
                take##_##T(r, in[k] + at * size_##T);                                                                \
        wide_scale(r, by);                                                                                           \
        if (!(sure) && wide_any_nan(r))                                                                              \
            return false;                                                                                            \
        if (wide_out)                                                                                                \
            store_f32(d + at * 4, r);                                                                                \
        else                                                                                                         \
            store_numbers_##T(d + at * size_##T, r);                                                                 \
        return true;                                                                                                 \
    }                                                                                                                \
    static __attribute__((noinline)) void op##_##T##_step(                                                           \
        unsigned char *d, bool wide_out, const unsigned char *const *in, size_t at, int wide, int ways, float by)    \
    {                                                                                                                \
        wide_f r[WIDE];                                                                                              \
        if (wide)                                                                                                    \
            load_f32(r, in[0] + at * 4);                                                                             \
        else                                                                                                         \
            load(r, in[0] + at * size_##T);                                                                          \
        for (int k = 1; k < ways; k++)                                                                               \
            if (k < wide)                                                                                            \
                exact##_f32(r, in[k] + at * 4);                                                                      \
            else                                                                                                     \
                exact##_##T(r, in[k] + at * size_##T);                                                               \
        for (int i = 0; i < WIDE; i++)                                                                               \
            r[i] = end(r[i]);                                                                                        \
        wide_scale(r, by);                                                                                           \
        if (wide_out)                                                                                                \
            store_f32(d, r);                                                                                         \
        else                                                                                                         \
            store_##T(d, r);                                                                                         \
    }

/* What op_T_try folds from `at` on. Returns where it has ended. Each of these loops is a function of its own: in one
 * function the compiler found no registers for the pointers and constants of all of them. */
#define WIDE_TRIES(op, T, name, wide_out, wide, ways)                                                           \
    static __attribute__((noinline)) size_t op##_##T##_##name(unsigned char *d, const unsigned char *const *in, \
                                                              size_t at, size_t n, int some, int all, float by) \
    {                                                                                                           \
        const unsigned char *p[OPS_WAYS];                                                                       \
        (void)some, (void)all;                                                                                  \
        for (int k = 0; k < (ways); k++)                                                                        \
            p[k] = in[k];                                                                                       \
        while (!(wide) && !(wide_out) && at + LINE / size_##T <= n && op##_##T##_line(d, p, at, ways, by))      \
            at += LINE / size_##T;                                                                              \
        while (at + STEP <= n && op##_##T##_try(d, wide_out, p, at, wide, ways, by))                            \
            at += STEP;                                                                                         \
        return at;                                                                                              \
    }
#define WIDE_TRY_CASE(op, T, ways) \
    case ways: at = op##_##T##_##ways(d, p, at, n, wide, ways, by); break;

/* The end as in WIDE_ROWS: dst may be one of the runs. */
#define WIDE_FOLD(op, T, sure)                                                                                    \
    WIDE_TRIES(op, T, 2, false, 0, 2)                                                                             \
    WIDE_TRIES(op, T, 3, false, 0, 3)                                                                             \
    WIDE_TRIES(op, T, 4, false, 0, 4)                                                                             \
    WIDE_TRIES(op, T, 5, false, 0, 5)                                                                             \
    WIDE_TRIES(op, T, 6, false, 0, 6)                                                                             \
    WIDE_TRIES(op, T, 7, false, 0, 7)                                                                             \
    WIDE_TRIES(op, T, 8, false, 0, 8)                                                                             \
    WIDE_TRIES(op, T, widens, true, 0, all)                                                                       \
    WIDE_TRIES(op, T, narrows, false, OPS_WAYS, all)                                                              \
    WIDE_TRIES(op, T, first, false, some, all)                                                                    \
    WIDE_TRIES(op, T, stays, true, some, all)                                                                     \
    static void op##_##T(void *dst, bool wide_out, const void *const *in, int wide, int ways, float by, size_t n) \
    {                                                                                                             \
        const unsigned char *p[OPS_WAYS] = {in[0]};                                                               \
        unsigned char pad[OPS_WAYS][STEP * 4], last[STEP * 4], *d = dst;                                          \
        const size_t dsize = wide_out ? 4 : size_##T, rest = n % STEP * dsize;                                    \
        if (ways > OPS_WAYS)                                                                                      \
            __builtin_unreachable(); /* or gcc warns that p[OPS_WAYS] is read */                                  \
        for (int k = 0; k < ways; k++)                                                                            \
            p[k] = in[k];                                                                                         \
        if (n < STEP) {                                                                                           \
            memset(pad, 0, sizeof pad);                                                                           \
            for (int k = 0; k < ways; k++) {                                                                      \
                memory_copy_ascending(pad[k], p[k], n *(k < wide ? 4 : size_##T));                                \
                p[k] = pad[k];                                                                                    \
            }                                                                                                     \
            op##_##T##_step(last, wide_out, p, 0, wide, ways, by);                                                \
            memory_copy_ascending(d, last, n *dsize);                                                             \
            return;                                                                                               \
        }                                                                                                         \
        const uint64_t mode = (sure) ? ops_nan_begin() : 0;                                                       \
        for (size_t at = 0; at + STEP <= n;) {                                                                    \
            if (wide)                                                                                             \
                at = (wide_out       ? op##_##T##_stays                                                           \
                      : wide == ways ? op##_##T##_narrows                                                         \
                                     : op##_##T##_first)(d, p, at, n, wide, ways, by);                            \
            else if (wide_out)                                                                                    \
                at = op##_##T##_widens(d, p, at, n, wide, ways, by);                                              \
            else                                                                                                  \
                switch (ways) {                                                                                   \
                    WIDE_TRY_CASE(op, T, 2)                                                                       \
                    WIDE_TRY_CASE(op, T, 3)                                                                       \
                    WIDE_TRY_CASE(op, T, 4)                                                                       \
                    WIDE_TRY_CASE(op, T, 5)                                                                       \
                    WIDE_TRY_CASE(op, T, 6)                                                                       \
                    WIDE_TRY_CASE(op, T, 7)                                                                       \
                    WIDE_TRY_CASE(op, T, 8)                                                                       \
                default: break;                                                                                   \
                }                                                                                                 \
            if (at + STEP <= n) {                                                                                 \
                op##_##T##_step(d + at * dsize, wide_out, p, at, wide, ways, by);                                 \
                at += STEP;                                                                                       \
            }                                                                                                     \
        }                                                                                                         \
        if (rest) {                                                                                               \
            op##_##T##_step(last, wide_out, p, n - STEP, wide, ways, by);                                         \
            memory_copy_ascending(d + n * dsize - rest, last + STEP * dsize - rest, rest);                        \
        }                                                                                                         \
        if (sure)                                                                                                 \
            ops_nan_end(mode);                                                                                    \
    }

#ifndef WIDE_ONE_NAN
#define WIDE_ONE_NAN false
#endif
#ifndef WIDE_QUICK
#define wide_quick_min wide_min
#define wide_quick_max wide_max
#endif

WIDE_TAKE(take_sum, f32, load_f32, r[i] + x[i])
WIDE_TAKE(take_prod, f32, load_f32, r[i] * x[i])
#ifndef WIDE_QUICK
WIDE_TAKE(take_min, f32, load_f32, wide_min(r[i], x[i]))
WIDE_TAKE(take_max, f32, load_f32, wide_max(r[i], x[i]))
#define quick_min_f32 take_min_f32
#define quick_max_f32 take_max_f32
#endif

/* In a sum or product a NaN need not become quiet first: the NaN of the result is always the same. `any` loads NaNs as
 * they are, or quiet. */
#define WIDE_END(op, T, any, quick)                                                  \
    WIDE_TAKE(quick_##op, T, any, wide_quick_##op(r[i], x[i]))                       \
    WIDE_TAKE(take_##op, T, load_##T, wide_##op(r[i], x[i]))                         \
    WIDE_STEPS(op, T, any, quick_##op, load_##T, take_##op, wide_same, quick, false) \
    WIDE_FOLD(op, T, false)
#define WIDE_OTHERS(T, any, least, most)                                                       \
    WIDE_TAKE(take_prod, T, any, r[i] * x[i])                                                  \
    WIDE_STEPS(prod, T, any, take_prod, any, take_prod, wide_one_nan, wide_none, WIDE_ONE_NAN) \
    WIDE_FOLD(prod, T, WIDE_ONE_NAN)                                                           \
    WIDE_END(min, T, any, least)                                                               \
    WIDE_END(max, T, any, most)
#define WIDE_FOLDS(T, any, least, most)                                                     \
    WIDE_STEPS(sum, T, any, take_sum, any, take_sum, wide_one_nan, total_##T, WIDE_ONE_NAN) \
    WIDE_FOLD(sum, T, WIDE_ONE_NAN)                                                         \
    WIDE_OTHERS(T, any, least, most)

#ifdef WIDE_TO_BF16
#define store_numbers_bf16 store_bf16
#endif
#define store_numbers_f32 store_f32
#define store_numbers_f16 store_f16
#define store_numbers_f8e4m3 store_f8e4m3
#define store_numbers_f8e5m2 store_f8e5m2
#define store_numbers_f8e4m3sat store_f8e4m3sat
#define store_numbers_f8e5m2sat store_f8e5m2sat
#define store_numbers_f8e8m0 store_f8e8m0
#define load_f8e4m3sat load_f8e4m3
#define load_f8e5m2sat load_f8e5m2

/* Min and max of f32 and f64, if there are instructions for them. */
#ifdef WIDE_QUICK
#define WIDE_F32_END(op)                                                        \
    WIDE_END(op, f32, load_f32, wide_none)                                      \
    static void op##_wide(void *dst, const void *const *in, int ways, size_t n) \
    {                                                                           \
        op##_f32(dst, true, in, 1, ways, 1, n);                                 \
    }
WIDE_F32_END(min) /* NOLINT(bugprone-branch-clone): f32 is its own wide dtype */
WIDE_F32_END(max) /* NOLINT(bugprone-branch-clone): as above */

#define WIDE_F64_END(op)                                                            \
    static void op##_f64_wide(void *dst, const void *const *in, int ways, size_t n) \
    {                                                                               \
        enum { PART = 64 };                                                         \
        unsigned char *d = dst;                                                     \
        for (size_t at = 0, bytes = n * 8; at < bytes;) {                           \
            const void *rest[OPS_WAYS] = {NULL};                                    \
            while (at + PART <= bytes && quick_##op##_f64(d, in, ways, at))         \
                at += PART;                                                         \
            size_t part = bytes - at < PART ? bytes - at : PART;                    \
            for (int k = 0; k < ways; k++)                                          \
                rest[k] = (const unsigned char *)in[k] + at;                        \
            op##_f64(d + at, rest, ways, part / 8);                                 \
            at += part;                                                             \
        }                                                                           \
    }
WIDE_F64_END(min)
WIDE_F64_END(max)
#endif

/* Sums of f32 that are divided on the way. NOLINTNEXTLINE(bugprone-branch-clone): f32 is its own wide dtype */
WIDE_STEPS(mean, f32, load_f32, take_sum, load_f32, take_sum, wide_one_nan, wide_none, WIDE_ONE_NAN)
WIDE_FOLD(mean, f32, WIDE_ONE_NAN)
static void mean_wide(void *dst, bool wide_out, const void *const *in, int wide, int ways, float by, size_t n)
{
    (void)wide_out, (void)wide; /* f32 is its own wide dtype */
    mean_f32(dst, false, in, 0, ways, by, n);
}

WIDE_TAKE(take_sum, f16, load_f16, r[i] + x[i])
WIDE_TAKE(take_sum, bf16, load_any_bf16, r[i] + x[i])
WIDE_TAKE(take_sum, f8e4m3, load_f8e4m3, r[i] + x[i])
WIDE_TAKE(take_sum, f8e5m2, load_f8e5m2, r[i] + x[i])
WIDE_TAKE(take_sum, f8e4m3sat, load_f8e4m3, r[i] + x[i])
WIDE_TAKE(take_sum, f8e5m2sat, load_f8e5m2, r[i] + x[i])
WIDE_FOLDS(f16, load_f16, least_f16, most_f16)
WIDE_FOLDS(bf16, load_any_bf16, least_bf16, most_bf16)
WIDE_FOLDS(f8e4m3, load_f8e4m3, least_f8e4m3, most_f8e4m3)
WIDE_FOLDS(f8e5m2, load_f8e5m2, least_f8e5m2, most_f8e5m2)
WIDE_FOLDS(f8e4m3sat, load_f8e4m3, least_f8e4m3, most_f8e4m3)
WIDE_FOLDS(f8e5m2sat, load_f8e5m2, least_f8e5m2sat, most_f8e5m2sat)
WIDE_OTHERS(f8e8m0, load_f8e8m0, least_f8e8m0, most_f8e8m0)

#endif
