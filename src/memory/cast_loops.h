/* Loops of casts, compiled once for each level (see kernels.h). Each pair of the eleven types that machines compute
 * with has its own loop. f16, bf16 and f8 have loops to and from f32, and most of them among each other if vectors can
 * hold them (wide_loops.h). Complex dtypes have loops from f32 and f64, and between each other. */
#ifndef WEFT_MEMORY_CAST_LOOPS_H
#define WEFT_MEMORY_CAST_LOOPS_H
#include "memory/half.h"
#include "memory/raw.h"

#define CAST(S, D, expr) CAST_ROWS(S##_to_##D, S, D, expr)
#ifdef WIDE_PARTS
/* Rows that are shorter than a step: the other elements of the step are zeros. */
#define CAST_SHORT(name, S, D, expr)                                                                            \
    static __attribute__((noinline)) void name##_short(unsigned char *d, int64_t dstep, const unsigned char *s, \
                                                       int64_t sstep, size_t n, size_t rows)                    \
    {                                                                                                           \
        for (; rows; rows--, d += dstep, s += sstep) {                                                          \
            raw_##S in[16];                                                                                     \
            raw_##D out[16];                                                                                    \
            wide_part((unsigned char *)in, sizeof in, s, n * sizeof *in, sizeof in);                            \
            RAW_LOOP for (int i = 0; i < 16; i++)                                                               \
            {                                                                                                   \
                const raw_##S x = in[i];                                                                        \
                out[i] = expr;                                                                                  \
            }                                                                                                   \
            wide_part(d, n * sizeof *out, (const unsigned char *)out, sizeof out, sizeof out);                  \
        }                                                                                                       \
    }
#define CAST_IF_SHORT(name)                            \
    if (n < 16) {                                      \
        name##_short(dst, dstep, src, sstep, n, rows); \
        return;                                        \
    }
#else
#define CAST_SHORT(name, S, D, expr)
#define CAST_IF_SHORT(name)
#endif
#define CAST_ROWS(name, S, D, expr)                                                                   \
    CAST_SHORT(name, S, D, expr)                                                                      \
    static void name(void *dst, int64_t dstep, const void *src, int64_t sstep, size_t n, size_t rows) \
    {                                                                                                 \
        CAST_IF_SHORT(name)                                                                           \
        for (size_t row = 0; row < rows; row++) {                                                     \
            raw_##D *d = (raw_##D *)((unsigned char *)dst + (int64_t)row * dstep);                    \
            const raw_##S *s = (const raw_##S *)((const unsigned char *)src + (int64_t)row * sstep);  \
            RAW_LOOP for (size_t i = 0; i < n; i++)                                                   \
            {                                                                                         \
                const raw_##S x = s[i];                                                               \
                d[i] = expr;                                                                          \
            }                                                                                         \
        }                                                                                             \
    }

#define EACH_SMALL_INT(X) X(u8) X(i8) X(u16) X(i16) X(u32) X(i32)
#define EACH_INT(X) EACH_SMALL_INT(X) X(u64) X(i64)

#define FROM_BOOL(D) CAST(b8, D, x != 0)
/* clang-format off */
#define FROM_INT(S)          \
    CAST(S, b8, x != 0)      \
    CAST(S, u8, (raw_u8)x)   \
    CAST(S, i8, (raw_i8)x)   \
    CAST(S, u16, (raw_u16)x) \
    CAST(S, i16, (raw_i16)x) \
    CAST(S, u32, (raw_u32)x) \
    CAST(S, i32, (raw_i32)x) \
    CAST(S, u64, (raw_u64)x) \
    CAST(S, i64, (raw_i64)x) \
    CAST(S, f64, (raw_f64)x)
/* clang-format on */
#define TO_F32(S) CAST(S, f32, (raw_f32)x)
#define FROM_F32(D) CAST(f32, D, half_f32_to_##D(x))
#define FROM_F64(D) CAST(f64, D, half_f64_to_##D(x))

FROM_BOOL(b8)
FROM_BOOL(f32)
FROM_BOOL(f64)
EACH_INT(FROM_BOOL)
EACH_INT(FROM_INT)
EACH_SMALL_INT(TO_F32)
CAST(u64, f32, half_u64_to_f32(x))
CAST(i64, f32, half_i64_to_f32(x))
CAST(f32, b8, x != 0)
EACH_INT(FROM_F32)
CAST(f32, f32, x)
CAST(f32, f64, (double)x)
CAST(f64, b8, x != 0)
EACH_INT(FROM_F64)
CAST(f64, f32, (float)x)
CAST(f64, f64, x)

#ifndef WIDE
#define NARROW_CASTS(T)          \
    CAST(f32, T, half_to_##T(x)) \
    CAST(T, f32, half_from_##T(x))
NARROW_CASTS(f16)
NARROW_CASTS(bf16)
NARROW_CASTS(f8e4m3)
NARROW_CASTS(f8e5m2)
CAST(f32, f8e4m3sat, half_to_f8e4m3sat(x))
CAST(f32, f8e5m2sat, half_to_f8e5m2sat(x))
NARROW_CASTS(f8e8m0)
#endif

CAST(f32, c64, ((raw_c64){x, 0}))
CAST(f64, c64, ((raw_c64){(float)x, 0}))
CAST(f32, c128, ((raw_c128){x, 0}))
CAST(f64, c128, ((raw_c128){x, 0}))
/* Complex to complex: twice as many reals. */
#define CAST_REALS(S, D, s, d)                                                                              \
    static void S##_to_##D(void *dst, int64_t dstep, const void *src, int64_t sstep, size_t n, size_t rows) \
    {                                                                                                       \
        s##_to_##d(dst, dstep, src, sstep, 2 * n, rows);                                                    \
    }
CAST_REALS(c64, c128, f32, f64)
CAST_REALS(c128, c64, f64, f32)

/* To f32, rounded to odd. */
#define ODD(S, how) CAST_ROWS(S##_to_odd, S, f32, half_odd_##how(x))
ODD(u32, f64)
ODD(i32, f64)
ODD(u64, u64)
ODD(i64, i64)
ODD(f64, f64)

#define CAST_ROW(S)                                                                                     \
    [WEFT_BOOL] = S##_to_b8, [WEFT_U8] = S##_to_u8, [WEFT_I8] = S##_to_i8, [WEFT_U16] = S##_to_u16,     \
    [WEFT_I16] = S##_to_i16, [WEFT_U32] = S##_to_u32, [WEFT_I32] = S##_to_i32, [WEFT_U64] = S##_to_u64, \
    [WEFT_I64] = S##_to_i64, [WEFT_F32] = S##_to_f32, [WEFT_F64] = S##_to_f64
#define CAST_HALVES(S) [WEFT_F16] = S##_to_f16, [WEFT_BF16] = S##_to_bf16
#define CAST_BYTES(S)                                                                                  \
    [WEFT_F8E4M3] = S##_to_f8e4m3, [WEFT_F8E5M2] = S##_to_f8e5m2, [WEFT_F8E4M3SAT] = S##_to_f8e4m3sat, \
    [WEFT_F8E5M2SAT] = S##_to_f8e5m2sat, [WEFT_F8E8M0] = S##_to_f8e8m0
#define CAST_COMPLEX(S) [WEFT_C64] = S##_to_c64, [WEFT_C128] = S##_to_c128
#ifdef WIDE_ODD
#define CAST_ODD(S) , CAST_HALVES(S), CAST_BYTES(S)
#define CAST_TO_F64(S) , [WEFT_F64] = S##_to_f64
#else
#define CAST_ODD(S)
#define CAST_TO_F64(S)
#endif
#ifdef WIDE
#define CAST_F16 , [WEFT_BF16] = f16_to_bf16, CAST_BYTES(f16) CAST_TO_F64(f16)
#define CAST_BF16 , [WEFT_F16] = bf16_to_f16, CAST_BYTES(bf16) CAST_TO_F64(bf16)
#define CAST_F8E4M3                                                                               \
    , CAST_HALVES(f8e4m3), [WEFT_F8E5M2] = f8e4m3_to_f8e5m2, [WEFT_F8E5M2SAT] = f8e4m3_to_f8e5m2, \
                           [WEFT_F8E8M0] = f8e4m3_to_f8e8m0 CAST_TO_F64(f8e4m3)
#define CAST_F8E5M2                                                                                  \
    , CAST_HALVES(f8e5m2), [WEFT_F8E4M3] = f8e5m2_to_f8e4m3, [WEFT_F8E4M3SAT] = f8e5m2_to_f8e4m3sat, \
                           [WEFT_F8E8M0] = f8e5m2_to_f8e8m0 CAST_TO_F64(f8e5m2)
#define CAST_F8E8M0 , CAST_HALVES(f8e8m0) CAST_TO_F64(f8e8m0)
#else
#define CAST_F16
#define CAST_BF16
#define CAST_F8E4M3
#define CAST_F8E5M2
#define CAST_F8E8M0
#endif

#define CAST_TABLE                                                                                              \
    {                                                                                                           \
        [WEFT_BOOL] = {CAST_ROW(b8)}, [WEFT_U8] = {CAST_ROW(u8)}, [WEFT_I8] = {CAST_ROW(i8)},                   \
        [WEFT_U16] = {CAST_ROW(u16)}, [WEFT_I16] = {CAST_ROW(i16)}, [WEFT_U32] = {CAST_ROW(u32) CAST_ODD(u32)}, \
        [WEFT_I32] = {CAST_ROW(i32) CAST_ODD(i32)}, [WEFT_U64] = {CAST_ROW(u64) CAST_ODD(u64)},                 \
        [WEFT_I64] = {CAST_ROW(i64) CAST_ODD(i64)},                                                             \
        [WEFT_F32] = {CAST_ROW(f32), CAST_HALVES(f32), CAST_BYTES(f32), CAST_COMPLEX(f32)},                     \
        [WEFT_F64] = {CAST_ROW(f64), CAST_COMPLEX(f64) CAST_ODD(f64)},                                          \
        [WEFT_F16] = {[WEFT_F32] = f16_to_f32 CAST_F16}, [WEFT_BF16] = {[WEFT_F32] = bf16_to_f32 CAST_BF16},    \
        [WEFT_F8E4M3] = {[WEFT_F32] = f8e4m3_to_f32 CAST_F8E4M3},                                               \
        [WEFT_F8E5M2] = {[WEFT_F32] = f8e5m2_to_f32 CAST_F8E5M2},                                               \
        [WEFT_F8E4M3SAT] = {[WEFT_F32] = f8e4m3_to_f32 CAST_F8E4M3},                                            \
        [WEFT_F8E5M2SAT] = {[WEFT_F32] = f8e5m2_to_f32 CAST_F8E5M2},                                            \
        [WEFT_F8E8M0] = {[WEFT_F32] = f8e8m0_to_f32 CAST_F8E8M0}, [WEFT_C64] = {[WEFT_C128] = c64_to_c128},     \
        [WEFT_C128] = {[WEFT_C64] = c128_to_c64},                                                               \
    }
#define ODD_TABLE                                                                                           \
    {                                                                                                       \
        [WEFT_U32] = u32_to_odd, [WEFT_I32] = i32_to_odd, [WEFT_U64] = u64_to_odd, [WEFT_I64] = i64_to_odd, \
        [WEFT_F64] = f64_to_odd,                                                                            \
    }
#endif
