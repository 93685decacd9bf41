/* Loops of folds and divisions, compiled once for each level (see kernels.h), by op and dtype. Sum, prod and the bit
 * ops are the same for signed and unsigned integers of one size. They are computed unsigned, for which C defines
 * wrapping. No expression here has both a product and a sum, so the compiler cannot contract them to a fused
 * multiply-add: a vector lane, a loop's tail and memory_ops_fold_one give the same bits. */
#ifndef WEFT_MEMORY_OPS_LOOPS_H
#define WEFT_MEMORY_OPS_LOOPS_H
#include <string.h>

#include "memory/half.h"
#include "memory/line.h"
#include "memory/ops.h"
#include "memory/raw.h"

/* ops_T: elements of type T that are folded at a time, one or a vector of them. OPS_MASK has all bits where a
 * comparison holds. */
#if KERNELS_LEVEL == KERNELS_PLAIN
#define OPS_TYPE(T, C) typedef C ops_##T;
#define OPS_MASK(U, holds) (-(ops_##U)(holds))
#define OPS_CAST(A, B)                      \
    static inline ops_##A A##_of(ops_##B x) \
    {                                       \
        ops_##A y;                          \
        memcpy(&y, &x, sizeof y);           \
        return y;                           \
    }
#define OPS_LOOP(op, T, f, end)                                                \
    static void op##_##T(void *dst, const void *const *in, int ways, size_t n) \
    {                                                                          \
        for (size_t i = 0; i < n; i++) {                                       \
            raw_##T r = ((const raw_##T *)in[0])[i];                           \
            for (int k = 1; k < ways; k++)                                     \
                r = f(r, ((const raw_##T *)in[k])[i]);                         \
            ((raw_##T *)dst)[i] = end(r);                                      \
        }                                                                      \
    }
#else
/* A turn takes TURN bytes of one run after the other: cores read several runs faster in this way than a vector of each
 * in turn. The end of the runs is folded on the stack. */
#define TURN 128
#ifdef WIDE
#define OPS_VECTOR sizeof(wide_f)
#else
#define OPS_VECTOR 16
#endif
#define OPS_TYPE(T, C) typedef C ops_##T __attribute__((vector_size(OPS_VECTOR)));
#define OPS_MASK(U, holds) ((ops_##U)(holds))
#define OPS_CAST(A, B)                      \
    static inline ops_##A A##_of(ops_##B x) \
    {                                       \
        return (ops_##A)x;                  \
    }
#define OPS_VECTORS(T, f, end, count, to, from)                                              \
    do {                                                                                     \
        ops_##T r[count], x;                                                                 \
        RAW_UNROLL for (size_t c = 0; c < (count); c++) memcpy(&r[c], from(0, c), sizeof x); \
        for (int k = 1; k < ways; k++)                                                       \
            RAW_UNROLL for (size_t c = 0; c < (count); c++)                                  \
            {                                                                                \
                memcpy(&x, from(k, c), sizeof x);                                            \
                r[c] = f(r[c], x);                                                           \
            }                                                                                \
        RAW_UNROLL for (size_t c = 0; c < (count); c++)                                      \
        {                                                                                    \
            r[c] = end(r[c]);                                                                \
            memcpy((to) + c * OPS_VECTOR, &r[c], sizeof x);                                  \
        }                                                                                    \
    } while (0)
#define OPS_RUN(k, c) ((const unsigned char *)in[k] + at + (c)*OPS_VECTOR)
#define OPS_END(k, c) (end_of[k])
#define OPS_LOOP(op, T, f, end)                                                \
    static void op##_##T(void *dst, const void *const *in, int ways, size_t n) \
    {                                                                          \
        unsigned char *d = dst;                                                \
        const size_t bytes = n * sizeof(raw_##T), rest = bytes % OPS_VECTOR;   \
        size_t at = 0;                                                         \
        for (; at + TURN <= bytes; at += TURN)                                 \
            OPS_VECTORS(T, f, end, TURN / OPS_VECTOR, d + at, OPS_RUN);        \
        for (; at + OPS_VECTOR <= bytes; at += OPS_VECTOR)                     \
            OPS_VECTORS(T, f, end, 1, d + at, OPS_RUN);                        \
        if (rest) {                                                            \
            unsigned char end_of[OPS_WAYS][OPS_VECTOR] = {{0}};                \
            for (int k = 0; k < ways; k++)                                     \
                memory_copy_ascending(end_of[k], OPS_RUN(k, 0), rest);         \
            OPS_VECTORS(T, f, end, 1, end_of[0], OPS_END);                     \
            memory_copy_ascending(d + at, end_of[0], rest);                    \
        }                                                                      \
    }
#endif

OPS_TYPE(u8, uint8_t)
OPS_TYPE(i8, int8_t)
OPS_TYPE(u16, uint16_t)
OPS_TYPE(i16, int16_t)
OPS_TYPE(u32, uint32_t)
OPS_TYPE(i32, int32_t)
OPS_TYPE(u64, uint64_t)
OPS_TYPE(i64, int64_t)
OPS_TYPE(f32, float)
OPS_TYPE(f64, double)
#define SAME(x) (x)
#define OPS_PICK(mask, a, b) ((b) ^ (((a) ^ (b)) & (mask)))
#define OPS_FN(name, T, expr)                        \
    static inline ops_##T name(ops_##T a, ops_##T b) \
    {                                                \
        return (ops_##T)(expr);                      \
    }

/* The promotion of a small element to int cannot overflow: u16 is multiplied by 1u first. */
#define UNSIGNED_OPS(T)              \
    OPS_FN(T##_add, T, a + b)        \
    OPS_FN(T##_mul, T, 1u * a * b)   \
    OPS_FN(T##_and, T, a &b)         \
    OPS_FN(T##_or, T, a | b)         \
    OPS_FN(T##_xor, T, a ^ b)        \
    OPS_LOOP(sum, T, T##_add, SAME)  \
    OPS_LOOP(prod, T, T##_mul, SAME) \
    OPS_LOOP(band, T, T##_and, SAME) \
    OPS_LOOP(bor, T, T##_or, SAME)   \
    OPS_LOOP(bxor, T, T##_xor, SAME)
UNSIGNED_OPS(u8)
UNSIGNED_OPS(u16)
UNSIGNED_OPS(u32)
UNSIGNED_OPS(u64)

#define INTEGER_ENDS(T)                                    \
    OPS_FN(T##_min, T, OPS_PICK(OPS_MASK(T, a < b), a, b)) \
    OPS_FN(T##_max, T, OPS_PICK(OPS_MASK(T, a > b), a, b)) \
    OPS_LOOP(min, T, T##_min, SAME)                        \
    OPS_LOOP(max, T, T##_max, SAME)
INTEGER_ENDS(u8)
INTEGER_ENDS(i8)
INTEGER_ENDS(u16)
INTEGER_ENDS(i16)
INTEGER_ENDS(u32)
INTEGER_ENDS(i32)
INTEGER_ENDS(u64)
INTEGER_ENDS(i64)

/* Min and max of floats: the first NaN stays. Equal values differ in bits only if they are -0 and +0: min then gives
 * -0, and max gives +0. U is unsigned and as wide as T. */
#define FLOAT_OPS(T, U, nan)                                                           \
    OPS_CAST(U, T)                                                                     \
    OPS_CAST(T, U)                                                                     \
    OPS_FN(T##_add, T, a + b)                                                          \
    OPS_FN(T##_mul, T, a *b)                                                           \
    static inline ops_##T T##_end(ops_##T x)                                           \
    {                                                                                  \
        return T##_of(OPS_PICK(OPS_MASK(U, x == x), U##_of(x), (ops_##U){0} + (nan))); \
    }                                                                                  \
    static inline ops_##T T##_min(ops_##T a, ops_##T b)                                \
    {                                                                                  \
        ops_##U x = U##_of(a), y = U##_of(b), r = y | (x & OPS_MASK(U, a == b));       \
        r = OPS_PICK(OPS_MASK(U, a < b), x, r);                                        \
        return T##_of(OPS_PICK(OPS_MASK(U, a != a), x, r));                            \
    }                                                                                  \
    static inline ops_##T T##_max(ops_##T a, ops_##T b)                                \
    {                                                                                  \
        ops_##U x = U##_of(a), y = U##_of(b), r = y & (x | OPS_MASK(U, a != b));       \
        r = OPS_PICK(OPS_MASK(U, a > b), x, r);                                        \
        return T##_of(OPS_PICK(OPS_MASK(U, a != a), x, r));                            \
    }                                                                                  \
    OPS_LOOP(sum, T, T##_add, T##_end)                                                 \
    OPS_LOOP(prod, T, T##_mul, T##_end)
FLOAT_OPS(f32, u32, 0x7fc00000)
FLOAT_OPS(f64, u64, UINT64_C(0x7ff8) << 48)
#ifndef WIDE_QUICK
OPS_LOOP(min, f32, f32_min, SAME)
OPS_LOOP(max, f32, f32_max, SAME)
#endif
OPS_LOOP(min, f64, f64_min, SAME)
OPS_LOOP(max, f64, f64_max, SAME)

#if KERNELS_LEVEL == KERNELS_PLAIN
/* Narrow floats, folded in f32: see ops_narrow_loop. */
#define NARROW_LOOP(op, T, f, end)                                                                                \
    static void op##_##T(void *dst, bool wide_out, const void *const *in, int wide, int ways, float by, size_t n) \
    {                                                                                                             \
        for (size_t i = 0; i < n; i++) {                                                                          \
            raw_f32 r = 0;                                                                                        \
            for (int k = 0; k < ways; k++) {                                                                      \
                raw_f32 x = k < wide ? ((const raw_f32 *)in[k])[i] : half_from_##T(((const raw_##T *)in[k])[i]);  \
                r = k ? f(r, x) : x;                                                                              \
            }                                                                                                     \
            r = end(r);                                                                                           \
            if (by != 1)                                                                                          \
                r = by > 1 ? r / by : r * by;                                                                     \
            if (wide_out)                                                                                         \
                ((raw_f32 *)dst)[i] = r;                                                                          \
            else                                                                                                  \
                ((raw_##T *)dst)[i] = half_to_##T(r);                                                             \
        }                                                                                                         \
    }
#define NARROW_OTHERS(T)                   \
    NARROW_LOOP(prod, T, f32_mul, f32_end) \
    NARROW_LOOP(min, T, f32_min, SAME)     \
    NARROW_LOOP(max, T, f32_max, SAME)
#define NARROW_OPS(T)                     \
    NARROW_LOOP(sum, T, f32_add, f32_end) \
    NARROW_OTHERS(T)
NARROW_OPS(f16)
NARROW_OPS(bf16)
NARROW_OPS(f8e4m3)
NARROW_OPS(f8e5m2)
NARROW_OPS(f8e4m3sat)
NARROW_OPS(f8e5m2sat)
NARROW_OTHERS(f8e8m0)
#define half_from_f32(x) (x)
#define half_to_f32(x) (x)
NARROW_LOOP(mean, f32, f32_add, f32_end)
#define mean_wide mean_f32
#endif

#define DIVIDE(name, T, B, by_value, expr)                              \
    static void name(void *dst, const void *src, int64_t div, size_t n) \
    {                                                                   \
        raw_##T *d = dst;                                               \
        const raw_##T *s = src;                                         \
        const B by = (B)(by_value);                                     \
        RAW_LOOP for (size_t i = 0; i < n; i++)                         \
        {                                                               \
            d[i] = expr;                                                \
        }                                                               \
    }
/* Integers up to 32 bits: a quotient that is not an integer is at least 1/div away from one. A product with the inverse
 * of div, which is made too large by 2^-51 of it, is too large by less than that and never too small, so truncation
 * gives the right integer. With div >= 2 it fits into an int32. */
#define DIVIDE_SMALL(T) DIVIDE(divide_##T, T, double, (1 + 0x1p-51) / (double)div, (raw_##T)(int32_t)(s[i] * by))
DIVIDE_SMALL(u8)
DIVIDE_SMALL(i8)
DIVIDE_SMALL(u16)
DIVIDE_SMALL(i16)
DIVIDE_SMALL(u32)
DIVIDE_SMALL(i32)
DIVIDE(divide_u64, u64, uint64_t, div, s[i] / by)
DIVIDE(divide_i64, i64, int64_t, div, s[i] / by)
DIVIDE(divide_f32, f32, float, div, s[i] / by)
DIVIDE(divide_f64, f64, double, div, s[i] / by)
/* The inverse of a power of two is exact, and a product with it rounds as the quotient does. */
DIVIDE(scale_f32, f32, float, 1.0 / (double)div, s[i] * by)
DIVIDE(scale_f64, f64, double, 1.0 / (double)div, s[i] * by)

/* A sum of complex numbers is one of twice as many reals. */
#define COMPLEX_OPS(C, T)                                                     \
    static void sum_##C(void *dst, const void *const *in, int ways, size_t n) \
    {                                                                         \
        sum_##T(dst, in, ways, 2 * n);                                        \
    }                                                                         \
    static void divide_##C(void *dst, const void *src, int64_t div, size_t n) \
    {                                                                         \
        divide_##T(dst, src, div, 2 * n);                                     \
    }                                                                         \
    static void scale_##C(void *dst, const void *src, int64_t div, size_t n)  \
    {                                                                         \
        scale_##T(dst, src, div, 2 * n);                                      \
    }
COMPLEX_OPS(c64, f32)
COMPLEX_OPS(c128, f64)

#define COMPLEX(op) [WEFT_C64] = op##_c64, [WEFT_C128] = op##_c128
#define INTEGERS(op)                                                                                               \
    [WEFT_U8] = op##_u8, [WEFT_I8] = op##_u8, [WEFT_U16] = op##_u16, [WEFT_I16] = op##_u16, [WEFT_U32] = op##_u32, \
    [WEFT_I32] = op##_u32, [WEFT_U64] = op##_u64, [WEFT_I64] = op##_u64
#ifdef WIDE_QUICK
#define FLOAT_ENDS(op) [WEFT_F32] = op##_wide, [WEFT_F64] = op##_f64_wide
#else
#define FLOAT_ENDS(op) FLOATS(op)
#endif
#define FLOATS(op) [WEFT_F32] = op##_f32, [WEFT_F64] = op##_f64
#define SIGNED(op)                                                                                                 \
    [WEFT_U8] = op##_u8, [WEFT_I8] = op##_i8, [WEFT_U16] = op##_u16, [WEFT_I16] = op##_i16, [WEFT_U32] = op##_u32, \
    [WEFT_I32] = op##_i32, [WEFT_U64] = op##_u64, [WEFT_I64] = op##_i64
#define NARROW(op)                                                                                            \
    [WEFT_F16] = op##_f16, [WEFT_BF16] = op##_bf16, [WEFT_F8E4M3] = op##_f8e4m3, [WEFT_F8E5M2] = op##_f8e5m2, \
    [WEFT_F8E4M3SAT] = op##_f8e4m3sat, [WEFT_F8E5M2SAT] = op##_f8e5m2sat

#define OPS_TABLE                                                                                                  \
    {                                                                                                              \
        [WEFT_SUM] = {INTEGERS(sum), FLOATS(sum), COMPLEX(sum)},                                                   \
        [WEFT_AVG] = {INTEGERS(sum), FLOATS(sum), COMPLEX(sum)}, [WEFT_PROD] = {INTEGERS(prod), FLOATS(prod)},     \
        [WEFT_MIN] = {SIGNED(min), FLOAT_ENDS(min), [WEFT_BOOL] = min_u8},                                         \
        [WEFT_MAX] = {SIGNED(max), FLOAT_ENDS(max), [WEFT_BOOL] = max_u8},                                         \
        [WEFT_BAND] = {INTEGERS(band), [WEFT_BOOL] = band_u8}, [WEFT_BOR] = {INTEGERS(bor), [WEFT_BOOL] = bor_u8}, \
        [WEFT_BXOR] = {INTEGERS(bxor), [WEFT_BOOL] = bxor_u8},                                                     \
    }
#define POWERS(op) [WEFT_F8E8M0] = op##_f8e8m0
#define NARROW_TABLE                                                                                            \
    {                                                                                                           \
        [WEFT_SUM] = {NARROW(sum), [WEFT_F32] = mean_wide}, [WEFT_AVG] = {NARROW(sum), [WEFT_F32] = mean_wide}, \
        [WEFT_PROD] = {NARROW(prod), POWERS(prod)}, [WEFT_MIN] = {NARROW(min), POWERS(min)},                    \
        [WEFT_MAX] = {NARROW(max), POWERS(max)},                                                                \
    }
#define DIVIDE_TABLE                                    \
    {                                                   \
        SIGNED(divide), FLOATS(divide), COMPLEX(divide) \
    }
#define SCALE_TABLE                   \
    {                                 \
        FLOATS(scale), COMPLEX(scale) \
    }
#endif
