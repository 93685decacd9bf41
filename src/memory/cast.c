/* The table of casts. Between the eleven types that machines compute with every pair has its own
 * loop. f16, bf16 and f8 have loops to and from f32 alone: any other cast that they take part in
 * goes through a block of f32 that stays in the first cache, rounded to odd where f32 cannot
 * hold the source (see half.h). */
#include "memory/cast.h"

#include <string.h>

#include "base/dtype.h"
#include "memory/half.h"
#include "memory/memory.h"
#include "memory/raw.h"

typedef void cast_loop(void *dst, const void *src, size_t n);

#define CAST(S, D, expr)                                         \
    static void S##_to_##D(void *dst, const void *src, size_t n) \
    {                                                            \
        raw_##D *d = dst;                                        \
        const raw_##S *s = src;                                  \
        RAW_LOOP for (size_t i = 0; i < n; i++)                  \
        {                                                        \
            const raw_##S x = s[i];                              \
            d[i] = expr;                                         \
        }                                                        \
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

#define NARROW(T)                \
    CAST(f32, T, half_to_##T(x)) \
    CAST(T, f32, half_from_##T(x))
NARROW(f16)
NARROW(bf16)
NARROW(f8e4m3)
NARROW(f8e5m2)

/* To f32, rounded to odd. */
#define ODD(S, expr)                                             \
    static void S##_to_odd(void *dst, const void *src, size_t n) \
    {                                                            \
        raw_f32 *d = dst;                                        \
        const raw_##S *s = src;                                  \
        RAW_LOOP for (size_t i = 0; i < n; i++)                  \
        {                                                        \
            d[i] = expr;                                         \
        }                                                        \
    }
ODD(u32, half_odd_f64(s[i]))
ODD(i32, half_odd_f64(s[i]))
ODD(u64, half_odd_u64(s[i]))
ODD(i64, half_odd_i64(s[i]))
ODD(f64, half_odd_f64(s[i]))

#define ROW(S)                                                                                              \
    {                                                                                                       \
        [WEFT_BOOL] = S##_to_b8, [WEFT_U8] = S##_to_u8, [WEFT_I8] = S##_to_i8, [WEFT_U16] = S##_to_u16,     \
        [WEFT_I16] = S##_to_i16, [WEFT_U32] = S##_to_u32, [WEFT_I32] = S##_to_i32, [WEFT_U64] = S##_to_u64, \
        [WEFT_I64] = S##_to_i64, [WEFT_F32] = S##_to_f32, [WEFT_F64] = S##_to_f64,                          \
    }
static cast_loop *const loops[DTYPE_COUNT + 1][DTYPE_COUNT + 1] = {
    [WEFT_BOOL] = ROW(b8), [WEFT_U8] = ROW(u8),   [WEFT_I8] = ROW(i8),   [WEFT_U16] = ROW(u16),
    [WEFT_I16] = ROW(i16), [WEFT_U32] = ROW(u32), [WEFT_I32] = ROW(i32), [WEFT_U64] = ROW(u64),
    [WEFT_I64] = ROW(i64), [WEFT_F32] = ROW(f32), [WEFT_F64] = ROW(f64),
};
static cast_loop *const to_f32[DTYPE_COUNT + 1] = {
    [WEFT_F16] = f16_to_f32,
    [WEFT_BF16] = bf16_to_f32,
    [WEFT_F8E4M3] = f8e4m3_to_f32,
    [WEFT_F8E5M2] = f8e5m2_to_f32,
};
static cast_loop *const from_f32[DTYPE_COUNT + 1] = {
    [WEFT_F16] = f32_to_f16,
    [WEFT_BF16] = f32_to_bf16,
    [WEFT_F8E4M3] = f32_to_f8e4m3,
    [WEFT_F8E5M2] = f32_to_f8e5m2,
};
/* The step before from_f32. */
static cast_loop *const to_odd[DTYPE_COUNT + 1] = {
    [WEFT_BOOL] = b8_to_f32,       [WEFT_U8] = u8_to_f32,         [WEFT_I8] = i8_to_f32,     [WEFT_U16] = u16_to_f32,
    [WEFT_I16] = i16_to_f32,       [WEFT_U32] = u32_to_odd,       [WEFT_I32] = i32_to_odd,   [WEFT_U64] = u64_to_odd,
    [WEFT_I64] = i64_to_odd,       [WEFT_F16] = f16_to_f32,       [WEFT_BF16] = bf16_to_f32, [WEFT_F64] = f64_to_odd,
    [WEFT_F8E4M3] = f8e4m3_to_f32, [WEFT_F8E5M2] = f8e5m2_to_f32,
};

static void cast_twice(unsigned char *dst, size_t dsize, cast_loop *second, const unsigned char *src, size_t ssize,
                       cast_loop *first, size_t n)
{
    float block[1024];
    const size_t most = sizeof block / sizeof *block;
    for (size_t i = 0; i < n; i += most) {
        size_t k = n - i < most ? n - i : most;
        first(block, src + i * ssize, k);
        second(dst + i * dsize, block, k);
    }
}

void cast_run(void *dst, int to, const void *src, int from, size_t n)
{
    if (loops[from][to]) {
        loops[from][to](dst, src, n);
    } else if (to == from) {
        memmove(dst, src, n * weft_dtype_size(to));
    } else if (from_f32[to]) {
        if (from == WEFT_F32)
            from_f32[to](dst, src, n);
        else
            cast_twice(dst, weft_dtype_size(to), from_f32[to], src, weft_dtype_size(from), to_odd[from], n);
    } else if (to == WEFT_F32) {
        to_f32[from](dst, src, n);
    } else {
        cast_twice(dst, weft_dtype_size(to), loops[WEFT_F32][to], src, weft_dtype_size(from), to_f32[from], n);
    }
}

bool cast_is_move(int to, int from)
{
    if (to == from)
        return to != WEFT_BOOL;
    return to != WEFT_BOOL && from != WEFT_BOOL && !dtype_is_float(to) && !dtype_is_float(from) &&
           weft_dtype_size(to) == weft_dtype_size(from);
}

void memory_cast1(void *dst, int to, const void *src, int from)
{
    if (to == from)
        memmove(dst, src, weft_dtype_size(to));
    else
        cast_run(dst, to, src, from, 1);
}
