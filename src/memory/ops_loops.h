/* Loops of folds and divisions, compiled once for each level (see kernels.h), by op and dtype. Sum, prod and the bit
 * ops are the same for signed and unsigned integers of one size. They are computed unsigned, for which C defines
 * wrapping. No expression here has both a product and a sum, so the compiler cannot contract them to a fused
 * multiply-add: a vector lane, a loop's tail and memory_ops_fold_one give the same bits. */
#ifndef WEFT_MEMORY_OPS_LOOPS_H
#define WEFT_MEMORY_OPS_LOOPS_H
#include <math.h>
#include <string.h>

#include "memory/half.h"
#include "memory/raw.h"

#define SAME(x) (x)
#define ONE_NAN(x) ((x) == (x) ? (x) : NAN)

/* Term 0 is of type A and read by `first`, the others of type S and read by `each`; they are folded in type T. All
 * terms are read in one pass. */
#define OPS_TURNS(T, value, end)                \
    do {                                        \
        RAW_LOOP for (size_t i = 0; i < n; i++) \
        {                                       \
            raw_##T r = value;                  \
            o[i] = end(r);                      \
        }                                       \
    } while (0)
#define OPS_2(f, first, each) f(first(a[i]), each(b[i]))
#define OPS_3(f, first, each) f(OPS_2(f, first, each), each(in2[i]))
#define OPS_4(f, first, each) f(OPS_3(f, first, each), each(in3[i]))
#define OPS_5(f, first, each) f(OPS_4(f, first, each), each(in4[i]))
#define OPS_6(f, first, each) f(OPS_5(f, first, each), each(in5[i]))
#define OPS_7(f, first, each) f(OPS_6(f, first, each), each(in6[i]))
#define OPS_8(f, first, each) f(OPS_7(f, first, each), each(in7[i]))
#define OPS_LOOP(name, A, first, S, each, T, f, end)                                        \
    static void name(void *dst, const void *const *in, int ways, size_t n)                  \
    {                                                                                       \
        raw_##T *o = dst;                                                                   \
        const raw_##A *a = in[0];                                                           \
        const raw_##S *b = in[1], *in2 = ways > 2 ? in[2] : b, *in3 = ways > 3 ? in[3] : b; \
        const raw_##S *in4 = ways > 4 ? in[4] : b, *in5 = ways > 5 ? in[5] : b;             \
        const raw_##S *in6 = ways > 6 ? in[6] : b, *in7 = ways > 7 ? in[7] : b;             \
        switch (ways) {                                                                     \
        case 2: OPS_TURNS(T, OPS_2(f, first, each), end); break;                            \
        case 3: OPS_TURNS(T, OPS_3(f, first, each), end); break;                            \
        case 4: OPS_TURNS(T, OPS_4(f, first, each), end); break;                            \
        case 5: OPS_TURNS(T, OPS_5(f, first, each), end); break;                            \
        case 6: OPS_TURNS(T, OPS_6(f, first, each), end); break;                            \
        case 7: OPS_TURNS(T, OPS_7(f, first, each), end); break;                            \
        default: OPS_TURNS(T, OPS_8(f, first, each), end);                                  \
        }                                                                                   \
    }
#define OPS_SAME(name, T, f, end) OPS_LOOP(name, T, SAME, T, SAME, T, f, end)

/* W: unsigned, at least as wide as int, so that the promotion of small types cannot overflow. */
#define UNSIGNED_OPS(T, W)                              \
    static inline raw_##T T##_add(raw_##T a, raw_##T b) \
    {                                                   \
        return (raw_##T)((W)a + (W)b);                  \
    }                                                   \
    static inline raw_##T T##_mul(raw_##T a, raw_##T b) \
    {                                                   \
        return (raw_##T)((W)a * (W)b);                  \
    }                                                   \
    static inline raw_##T T##_and(raw_##T a, raw_##T b) \
    {                                                   \
        return (raw_##T)(a & b);                        \
    }                                                   \
    static inline raw_##T T##_or(raw_##T a, raw_##T b)  \
    {                                                   \
        return (raw_##T)(a | b);                        \
    }                                                   \
    static inline raw_##T T##_xor(raw_##T a, raw_##T b) \
    {                                                   \
        return (raw_##T)(a ^ b);                        \
    }                                                   \
    OPS_SAME(sum_##T, T, T##_add, SAME)                 \
    OPS_SAME(prod_##T, T, T##_mul, SAME)                \
    OPS_SAME(band_##T, T, T##_and, SAME)                \
    OPS_SAME(bor_##T, T, T##_or, SAME)                  \
    OPS_SAME(bxor_##T, T, T##_xor, SAME)
UNSIGNED_OPS(u8, uint32_t)
UNSIGNED_OPS(u16, uint32_t)
UNSIGNED_OPS(u32, uint32_t)
UNSIGNED_OPS(u64, uint64_t)

#define INTEGER_ENDS(T)                                 \
    static inline raw_##T T##_min(raw_##T a, raw_##T b) \
    {                                                   \
        return a < b ? a : b;                           \
    }                                                   \
    static inline raw_##T T##_max(raw_##T a, raw_##T b) \
    {                                                   \
        return a > b ? a : b;                           \
    }                                                   \
    OPS_SAME(min_##T, T, T##_min, SAME)                 \
    OPS_SAME(max_##T, T, T##_max, SAME)
INTEGER_ENDS(u8)
INTEGER_ENDS(i8)
INTEGER_ENDS(u16)
INTEGER_ENDS(i16)
INTEGER_ENDS(u32)
INTEGER_ENDS(i32)
INTEGER_ENDS(u64)
INTEGER_ENDS(i64)

/* Min and max of floats: the first NaN stays. Equal values differ in bits only if they are -0 and +0: min then gives
 * -0, and max gives +0. */
#define FLOAT_OPS(T, F, U)                                          \
    static inline U T##_bits(F x)                                   \
    {                                                               \
        U u;                                                        \
        memcpy(&u, &x, sizeof u);                                   \
        return u;                                                   \
    }                                                               \
    static inline F T##_of(U u)                                     \
    {                                                               \
        F x;                                                        \
        memcpy(&x, &u, sizeof x);                                   \
        return x;                                                   \
    }                                                               \
    static inline F T##_add(F a, F b)                               \
    {                                                               \
        return a + b;                                               \
    }                                                               \
    static inline F T##_mul(F a, F b)                               \
    {                                                               \
        return a * b;                                               \
    }                                                               \
    static inline F T##_min(F a, F b)                               \
    {                                                               \
        U x = T##_bits(a), y = T##_bits(b), r = a == b ? x | y : y; \
        r = a < b ? x : r;                                          \
        return T##_of(a != a ? x : r);                              \
    }                                                               \
    static inline F T##_max(F a, F b)                               \
    {                                                               \
        U x = T##_bits(a), y = T##_bits(b), r = a == b ? x & y : y; \
        r = a > b ? x : r;                                          \
        return T##_of(a != a ? x : r);                              \
    }                                                               \
    OPS_SAME(sum_##T, T, T##_add, ONE_NAN)                          \
    OPS_SAME(prod_##T, T, T##_mul, ONE_NAN)
FLOAT_OPS(f32, float, uint32_t)
FLOAT_OPS(f64, double, uint64_t)
#ifndef WIDE_QUICK
OPS_SAME(min_f32, f32, f32_min, SAME)
OPS_SAME(max_f32, f32, f32_max, SAME)
#endif
OPS_SAME(min_f64, f64, f64_min, SAME)
OPS_SAME(max_f64, f64, f64_max, SAME)

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
    NARROW_LOOP(prod, T, f32_mul, ONE_NAN) \
    NARROW_LOOP(min, T, f32_min, SAME)     \
    NARROW_LOOP(max, T, f32_max, SAME)
#define NARROW_OPS(T)                     \
    NARROW_LOOP(sum, T, f32_add, ONE_NAN) \
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
NARROW_LOOP(mean, f32, f32_add, ONE_NAN)
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
/* Integers up to 32 bits: a quotient that is not an integer is at least 1/div away from one, and the error of f64 is
 * less than that, so truncation gives the right integer. With div >= 2 it fits into an int32. */
#define DIVIDE_SMALL(T) DIVIDE(divide_##T, T, double, div, (raw_##T)(int32_t)(s[i] / by))
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
