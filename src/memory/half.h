/* Conversions of one value, written so that a loop over them vectorises: selects instead of branches, no tables, no
 * arithmetic on f32 subnormals where a narrow float has them.
 *
 * f16, bf16 and f8 meet every other type through f32, which holds all their values. A wider source is first rounded to
 * f32 *to odd*: an inexact result gets its last bit set, so that the second rounding, to at least two bits less, sees
 * on which side of a tie the value was. The two together then give the result of a single rounding. */
#ifndef WEFT_MEMORY_HALF_H
#define WEFT_MEMORY_HALF_H
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__ /* kernels of src/device use them too */
#define HALF_FN static __device__ __forceinline__
#else
#define HALF_FN static inline
#endif

HALF_FN uint32_t half_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

HALF_FN float half_float(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

HALF_FN uint64_t half_bits64(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

/* ok ? a : b in masks. Compilers turn a select whose arm computes with floats into a branch, as the
 * computation may set a flag, and then do not vectorise. */
HALF_FN uint32_t half_pick(int ok, uint32_t a, uint32_t b)
{
    return b ^ ((a ^ b) & -(uint32_t)ok);
}

/* A float format of one sign bit, an exponent with this bias and `mant` bits of mantissa. */
struct half_format {
    int mant, bias;
    int gap;       /* mantissa bits that f32 has more */
    uint32_t inf;  /* code of what is too large: infinity, or NaN if the format has no infinity */
    uint32_t nan;  /* code of the NaN that is written */
    uint32_t keep; /* bits of a NaN's payload that are kept, as processors do */
    uint32_t over; /* the least f32, as bits, that rounds beyond the largest value */
};

#define HALF_F16 ((struct half_format){10, 15, 16, 0x7c00, 0x7e00, 0x1ff, 0x477ff000})
#define HALF_F8E4M3 ((struct half_format){3, 7, 24, 0x7f, 0x7f, 0, 0x43e80001})
#define HALF_F8E5M2 ((struct half_format){2, 15, 24, 0x7c, 0x7e, 0, 0x47700000})
/* For half_narrow only: the largest value takes the place of infinity. */
#define HALF_F8E4M3SAT ((struct half_format){3, 7, 24, 0x7e, 0x7f, 0, 0x43e80001})
#define HALF_F8E5M2SAT ((struct half_format){2, 15, 24, 0x7b, 0x7e, 0, 0x47700000})

/* Rounds to nearest even. Subnormals: adding the power of two whose last place is the format's
 * smallest step lets the FPU round there; the low bits of the sum are the mantissa. */
HALF_FN uint32_t half_narrow(float x, struct half_format f)
{
    uint32_t bits = half_bits(x), u = bits & 0x7fffffff;
    int drop = 23 - f.mant;
    uint32_t normal = (u + ((1u << (drop - 1)) - 1) + ((u >> drop) & 1) - ((uint32_t)(127 - f.bias) << 23)) >> drop;
    uint32_t magic = (uint32_t)(127 + 23 + 1 - f.bias - f.mant) << 23;
    uint32_t small = half_bits(half_float(u) + half_float(magic)) - magic;
    uint32_t r = half_pick(u < (uint32_t)(128 - f.bias) << 23, small, normal);
    r = half_pick(u >= f.over, f.inf, r);
    r = half_pick(u > 0x7f800000, f.nan | (u >> drop & f.keep), r);
    return r | (bits >> f.gap & 0x80000000 >> f.gap);
}

/* Exact. NaNs become quiet and keep their sign. */
HALF_FN float half_widen(uint32_t code, struct half_format f)
{
    int up = 23 - f.mant;
    uint32_t sign = 0x80000000 >> f.gap, em = code & (sign - 1), u = em << up;
    uint32_t normal = u + ((uint32_t)(127 - f.bias) << 23);
    float edge = half_float((uint32_t)(128 - f.bias) << 23); /* the smallest normal value */
    uint32_t small = half_bits(half_float(u | (uint32_t)(128 - f.bias) << 23) - edge);
    uint32_t r = half_pick(em < 1u << f.mant, small, normal);
    if (f.inf == f.nan) {
        r = half_pick(em == f.nan, 0x7fc00000, r);
    } else {
        r = half_pick(em >= f.inf, u | 0x7f800000, r);
        r |= half_pick(em > f.inf, 0x00400000, 0);
    }
    return half_float(r | (code & sign) << f.gap);
}

#define HALF_PAIR(T, C, narrow, widen)           \
    HALF_FN C half_to_##T(float x)               \
    {                                            \
        return (C)half_narrow(x, HALF_##narrow); \
    }                                            \
    HALF_FN float half_from_##T(C c)             \
    {                                            \
        return half_widen(c, HALF_##widen);      \
    }
HALF_PAIR(f16, uint16_t, F16, F16)
HALF_PAIR(f8e4m3, uint8_t, F8E4M3, F8E4M3)
HALF_PAIR(f8e5m2, uint8_t, F8E5M2, F8E5M2)
HALF_PAIR(f8e4m3sat, uint8_t, F8E4M3SAT, F8E4M3)
HALF_PAIR(f8e5m2sat, uint8_t, F8E5M2SAT, F8E5M2)

/* Code c of f8e8m0 is 2^(c - 127), and 255 is NaN. The sign is dropped, and zero becomes the smallest code. A mantissa
 * of 1.5 or more rounds up. f32 subnormals follow PyTorch's rule: what exceeds 2^-127 rounds up. What rounds to 2^128,
 * and infinity, become NaN. */
HALF_FN uint8_t half_to_f8e8m0(float x)
{
    uint32_t u = half_bits(x) & 0x7fffffff;
    return (uint8_t)(half_pick(u > 0x7f800000, 0x7f800000, u + 0x3fffff + (u >= 0x800000)) >> 23);
}

HALF_FN float half_from_f8e8m0(uint8_t c)
{
    return half_float((uint32_t)c << 23 | ((uint8_t)(c + 1) < 2 ? 0x400000u : 0));
}

HALF_FN uint16_t half_to_bf16(float x)
{
    uint32_t u = half_bits(x), r = u + 0x7fff + (u << 15 >> 31);
    return (uint16_t)(half_pick(x == x, r, u | 0x00400000) >> 16);
}

HALF_FN float half_from_bf16(uint16_t c)
{
    float x = half_float((uint32_t)c << 16);
    return half_float(half_bits(x) | half_pick(x == x, 0, 0x00400000));
}

/* To f32, rounded to odd. A NaN stays one: its last bit may change, its first does not. */
HALF_FN float half_odd_f64(double x)
{
    float f = (float)x;
    uint32_t u = half_bits(f);
    uint64_t is = half_bits64((double)f) << 1, was = half_bits64(x) << 1;
    uint32_t other = is > was ? u - 1 : u + 1; /* the neighbour on the other side of x */
    return half_float(is != was && !(u & 1) ? other : u);
}

/* To f64, rounded to odd at 41 bits or more: beyond 2^53 the last 13 bits are gathered into the
 * first of them, and a double holds the rest. */
HALF_FN double half_gather(uint64_t x)
{
    uint64_t cut = (x & ~UINT64_C(0x1fff)) | ((x & 0x1fff) != 0 ? UINT64_C(0x1000) : 0);
    return (double)(x ^ ((x ^ cut) & -(uint64_t)(x >> 53 != 0)));
}

HALF_FN float half_odd_u64(uint64_t x)
{
    return half_odd_f64(half_gather(x));
}

HALF_FN float half_signed(float x, int negative)
{
    return half_float(half_bits(x) | (negative ? 0x80000000 : 0));
}

HALF_FN float half_odd_i64(int64_t x)
{
    return half_signed(half_odd_u64(x < 0 ? -(uint64_t)x : (uint64_t)x), x < 0);
}

/* 64-bit integers to f32, rounded to nearest even. A plain cast means the same, but a compiler
 * (clang 14 for AArch64) that vectorises it goes through f64 and rounds twice. */
HALF_FN float half_u64_to_f32(uint64_t x)
{
    return (float)half_gather(x);
}

HALF_FN float half_i64_to_f32(int64_t x)
{
    return half_signed(half_u64_to_f32(x < 0 ? -(uint64_t)x : (uint64_t)x), x < 0);
}

/* Float to integer: truncates, saturates, NaN gives 0. `hi` is the largest float that fits into the integer, `sat` the
 * integer's own largest value, which may be larger. Instructions of AArch64 convert to M by the same rules, which C
 * leaves open; vectors have them only for integers as wide as the float. gcc always takes them. clang need not, and its
 * sanitizer (float-cast-overflow, of "undefined") ends the process. */
#if defined(__aarch64__) && !defined(RAW_SCALAR) && !defined(__CUDACC__) && !defined(__clang__)
#define HALF_SATURATE(f, F, i, I, W, M, lo, hi, sat)         \
    HALF_FN I half_##f##_to_##i(F x)                         \
    {                                                        \
        const M y = (M)x, least = (M)(lo), most = (M)(sat);  \
        return (I)(y < least ? least : y > most ? most : y); \
    }
#else
#define HALF_SATURATE(f, F, i, I, W, M, lo, hi, sat) \
    HALF_FN I half_##f##_to_##i(F x)                 \
    {                                                \
        F y = x == x ? x : 0;                        \
        y = y > (lo) ? y : (lo);                     \
        y = y < (hi) ? y : (hi);                     \
        I r = (I)(W)y;                               \
        return x > (hi) ? (sat) : r;                 \
    }
#endif

HALF_SATURATE(f32, float, u8, uint8_t, int32_t, int32_t, 0.0f, 255.0f, UINT8_MAX)
HALF_SATURATE(f32, float, i8, int8_t, int32_t, int32_t, -128.0f, 127.0f, INT8_MAX)
HALF_SATURATE(f32, float, u16, uint16_t, int32_t, int32_t, 0.0f, 65535.0f, UINT16_MAX)
HALF_SATURATE(f32, float, i16, int16_t, int32_t, int32_t, -32768.0f, 32767.0f, INT16_MAX)
HALF_SATURATE(f32, float, u32, uint32_t, uint32_t, uint32_t, 0.0f, 0x1.fffffep31f, UINT32_MAX)
HALF_SATURATE(f32, float, i32, int32_t, int32_t, int32_t, -0x1p31f, 0x1.fffffep30f, INT32_MAX)
HALF_SATURATE(f64, double, u8, uint8_t, int32_t, int64_t, 0.0, 255.0, UINT8_MAX)
HALF_SATURATE(f64, double, i8, int8_t, int32_t, int64_t, -128.0, 127.0, INT8_MAX)
HALF_SATURATE(f64, double, u16, uint16_t, int32_t, int64_t, 0.0, 65535.0, UINT16_MAX)
HALF_SATURATE(f64, double, i16, int16_t, int32_t, int64_t, -32768.0, 32767.0, INT16_MAX)
HALF_SATURATE(f64, double, u32, uint32_t, uint32_t, int64_t, 0.0, 4294967295.0, UINT32_MAX)
HALF_SATURATE(f64, double, i32, int32_t, int32_t, int64_t, -2147483648.0, 2147483647.0, INT32_MAX)
HALF_SATURATE(f64, double, u64, uint64_t, uint64_t, uint64_t, 0.0, 0x1.fffffffffffffp63, UINT64_MAX)
HALF_SATURATE(f64, double, i64, int64_t, int64_t, int64_t, -0x1p63, 0x1.fffffffffffffp62, INT64_MAX)

HALF_FN uint64_t half_f32_to_u64(float x)
{
    return half_f64_to_u64(x);
}

HALF_FN int64_t half_f32_to_i64(float x)
{
    return half_f64_to_i64(x);
}
#endif
