/* Single values: their bits, with zeros above their size; casts and folds of all dtypes. */
#ifndef WEFT_DEVICE_BODY_VALUE_H
#define WEFT_DEVICE_BODY_VALUE_H
#include "device/body_walk.h"

DEVICE_FN uint32_t body_size(int dtype)
{
    switch (dtype) {
    case WEFT_U64:
    case WEFT_I64:
    case WEFT_F64: return 8;
    case WEFT_U32:
    case WEFT_I32:
    case WEFT_F32: return 4;
    case WEFT_U16:
    case WEFT_I16:
    case WEFT_F16:
    case WEFT_BF16: return 2;
    default: return 1;
    }
}

DEVICE_FN double body_f64(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

DEVICE_FN uint64_t body_load(uint64_t address, uint32_t size, int any)
{
    uint64_t x8 = 0;
    uint32_t x4;
    uint16_t x2;
    uint8_t x1;
    if (any) {
        DEVICE_ROLLED for (uint32_t i = 0; i < size; i++)
        {
            BODY_LOAD(uint8_t, x1, address + i);
            x8 |= (uint64_t)x1 << 8 * i;
        }
        return x8;
    }
    switch (size) {
    case 8: BODY_LOAD(uint64_t, x8, address); return x8;
    case 4: BODY_LOAD(uint32_t, x4, address); return x4;
    case 2: BODY_LOAD(uint16_t, x2, address); return x2;
    default: BODY_LOAD(uint8_t, x1, address); return x1;
    }
}

DEVICE_FN void body_store(uint64_t address, uint32_t size, int any, uint64_t x)
{
    uint32_t x4 = (uint32_t)x;
    uint16_t x2 = (uint16_t)x;
    uint8_t x1 = (uint8_t)x;
    if (any) {
        DEVICE_ROLLED for (uint32_t i = 0; i < size; i++)
        {
            x1 = (uint8_t)(x >> 8 * i);
            BODY_STORE(uint8_t, address + i, x1);
        }
        return;
    }
    switch (size) {
    case 8: BODY_STORE(uint64_t, address, x); break;
    case 4: BODY_STORE(uint32_t, address, x4); break;
    case 2: BODY_STORE(uint16_t, address, x2); break;
    default: BODY_STORE(uint8_t, address, x1); break;
    }
}

DEVICE_FN uint64_t body_mask(uint64_t x, int dtype)
{
    const uint32_t size = body_size(dtype);
    return size == 8 ? x : x & ((UINT64_C(1) << 8 * size) - 1);
}

/* The value of an integer, with its sign above its size. */
DEVICE_FN int64_t body_signed(uint64_t x, int dtype)
{
    switch (dtype) {
    case WEFT_I8: return (int8_t)x;
    case WEFT_I16: return (int16_t)x;
    case WEFT_I32: return (int32_t)x;
    default: return (int64_t)x;
    }
}

DEVICE_FN uint64_t body_f32_to(float x, int to)
{
    switch (to) {
    case WEFT_BOOL: return x != 0;
    case WEFT_U8: return half_f32_to_u8(x);
    case WEFT_I8: return (uint8_t)half_f32_to_i8(x);
    case WEFT_U16: return half_f32_to_u16(x);
    case WEFT_I16: return (uint16_t)half_f32_to_i16(x);
    case WEFT_U32: return half_f32_to_u32(x);
    case WEFT_I32: return (uint32_t)half_f32_to_i32(x);
    case WEFT_U64: return half_f32_to_u64(x);
    case WEFT_I64: return (uint64_t)half_f32_to_i64(x);
    case WEFT_F16: return half_to_f16(x);
    case WEFT_BF16: return half_to_bf16(x);
    case WEFT_F64: return half_bits64(x);
    case WEFT_F8E4M3: return half_to_f8e4m3(x);
    case WEFT_F8E5M2: return half_to_f8e5m2(x);
    case WEFT_F8E4M3SAT: return half_to_f8e4m3sat(x);
    case WEFT_F8E5M2SAT: return half_to_f8e5m2sat(x);
    case WEFT_F8E8M0: return half_to_f8e8m0(x);
    default: return half_bits(x);
    }
}

/* Narrow floats are reached through f32, rounded to odd (half.h). */
DEVICE_FN uint64_t body_f64_to(double x, int to)
{
    switch (to) {
    case WEFT_BOOL: return x != 0;
    case WEFT_U8: return half_f64_to_u8(x);
    case WEFT_I8: return (uint8_t)half_f64_to_i8(x);
    case WEFT_U16: return half_f64_to_u16(x);
    case WEFT_I16: return (uint16_t)half_f64_to_i16(x);
    case WEFT_U32: return half_f64_to_u32(x);
    case WEFT_I32: return (uint32_t)half_f64_to_i32(x);
    case WEFT_U64: return half_f64_to_u64(x);
    case WEFT_I64: return (uint64_t)half_f64_to_i64(x);
    case WEFT_F32: return half_bits((float)x);
    case WEFT_F64: return half_bits64(x);
    default: return body_f32_to(half_odd_f64(x), to);
    }
}

DEVICE_FN uint64_t body_integer_to(uint64_t x, int from, int to)
{
    const int negative = from == WEFT_I8 || from == WEFT_I16 || from == WEFT_I32 || from == WEFT_I64;
    const int64_t s = body_signed(x, from);
    switch (to) {
    case WEFT_BOOL: return x != 0;
    case WEFT_F64: return half_bits64(negative ? (double)s : (double)x);
    case WEFT_F32: return half_bits(negative ? half_i64_to_f32(s) : half_u64_to_f32(x));
    case WEFT_F16:
    case WEFT_BF16:
    case WEFT_F8E4M3:
    case WEFT_F8E5M2:
    case WEFT_F8E4M3SAT:
    case WEFT_F8E5M2SAT:
    case WEFT_F8E8M0: return body_f32_to(negative ? half_odd_i64(s) : half_odd_u64(x), to);
    default: return body_mask(negative ? (uint64_t)s : x, to);
    }
}

/* As cast_run of memory/cast.h: a bool becomes 0 or 1, also if it stays one. */
DEVICE_CALL uint64_t body_cast(uint64_t x, int from, int to)
{
    if (from == WEFT_BOOL)
        x = x != 0;
    if (from == to)
        return x;
    switch (from) {
    case WEFT_F64: return body_f64_to(body_f64(x), to);
    case WEFT_F32: return body_f32_to(half_float((uint32_t)x), to);
    case WEFT_F16: return body_f32_to(half_from_f16((uint16_t)x), to);
    case WEFT_BF16: return body_f32_to(half_from_bf16((uint16_t)x), to);
    case WEFT_F8E4M3: return body_f32_to(half_from_f8e4m3((uint8_t)x), to);
    case WEFT_F8E5M2: return body_f32_to(half_from_f8e5m2((uint8_t)x), to);
    case WEFT_F8E4M3SAT: return body_f32_to(half_from_f8e4m3sat((uint8_t)x), to);
    case WEFT_F8E5M2SAT: return body_f32_to(half_from_f8e5m2sat((uint8_t)x), to);
    case WEFT_F8E8M0: return body_f32_to(half_from_f8e8m0((uint8_t)x), to);
    default: return body_integer_to(x, from, to);
    }
}

/* ---- folds, by the rules of memory/ops_loops.h ---- */

DEVICE_FN uint64_t body_fold_f32(uint64_t x, uint64_t y, int op)
{
    const float a = half_float((uint32_t)x), b = half_float((uint32_t)y);
    const float r = op == WEFT_SUM ? a + b : a * b;
    switch (op) {
    case WEFT_MIN: return a != a || a < b ? x : a == b ? x | y : y;
    case WEFT_MAX: return a != a || a > b ? x : a == b ? x & y : y;
    default: return r == r ? half_bits(r) : 0x7fc00000;
    }
}

DEVICE_FN uint64_t body_fold_f64(uint64_t x, uint64_t y, int op)
{
    const double a = body_f64(x), b = body_f64(y);
    const double r = op == WEFT_SUM ? a + b : a * b;
    switch (op) {
    case WEFT_MIN: return a != a || a < b ? x : a == b ? x | y : y;
    case WEFT_MAX: return a != a || a > b ? x : a == b ? x & y : y;
    default: return r == r ? half_bits64(r) : UINT64_C(0x7ff8000000000000);
    }
}

DEVICE_CALL uint64_t body_fold(uint64_t x, uint64_t y, int acc, int op)
{
    if (acc == WEFT_F32)
        return body_fold_f32(x, y, op);
    if (acc == WEFT_F64)
        return body_fold_f64(x, y, op);
    const int negative = acc == WEFT_I8 || acc == WEFT_I16 || acc == WEFT_I32 || acc == WEFT_I64;
    const int less = negative ? body_signed(x, acc) < body_signed(y, acc) : x < y;
    switch (op) {
    case WEFT_PROD: return body_mask(x * y, acc);
    case WEFT_MIN: return less ? x : y;
    case WEFT_MAX: return less ? y : x;
    case WEFT_BAND: return x & y;
    case WEFT_BOR: return x | y;
    case WEFT_BXOR: return x ^ y;
    default: return body_mask(x + y, acc);
    }
}

/* The inverse of a power of two is exact, and a product with it rounds as the quotient does. */
DEVICE_FN float body_divide_f32(float x, int64_t div)
{
    return (div & (div - 1)) == 0 ? x * (float)(1.0 / (double)div) : x / (float)div;
}

DEVICE_FN uint64_t body_divide(uint64_t x, int acc, int64_t div)
{
    switch (acc) {
    case WEFT_F32: return half_bits(body_divide_f32(half_float((uint32_t)x), div));
    case WEFT_F64:
        return half_bits64((div & (div - 1)) == 0 ? body_f64(x) * (1.0 / (double)div) : body_f64(x) / (double)div);
    case WEFT_I8:
    case WEFT_I16:
    case WEFT_I32:
    case WEFT_I64: return body_mask((uint64_t)(body_signed(x, acc) / div), acc);
    default: return x / (uint64_t)div;
    }
}

/* What comes after the fold: x is of dtype acc. */
DEVICE_CALL uint64_t body_finish(const struct device_item *it, uint64_t x)
{
    int is = it->acc;
    if (it->u.div > 1)
        x = body_divide(x, is, it->u.div);
    if (it->via && it->via != is) {
        x = body_cast(x, is, it->via);
        is = it->via;
    }
    return is == it->to ? x : body_cast(x, is, it->to);
}
#endif
