/* Several elements at once: words of memory become floats and floats become words, where f32 has all values on the way.
 * GPUs have instructions for narrow floats, whose results are those of memory/half.h (a NaN may be another NaN).
 * dtype and lanes are constants wherever these functions are used, so that compilers keep one case of each. */
#ifndef WEFT_DEVICE_BODY_LANES_H
#define WEFT_DEVICE_BODY_LANES_H
#include "device/body_value.h"

#define BODY_WORDS 8 /* of a unit at most */

DEVICE_FN void body_words_load(uint64_t at, uint32_t bytes, uint32_t *w)
{
    body_v16 v;
    body_v8 thin;
    switch (bytes) {
    case 4: BODY_LOAD(uint32_t, w[0], at); return;
    case 8:
        BODY_LOAD(body_v8, thin, at);
        w[0] = thin.x;
        w[1] = thin.y;
        return;
    default:
        DEVICE_UNROLL for (uint32_t i = 0; i < bytes / 16; i++)
        {
            BODY_LOAD(body_v16, v, at + i * 16);
            w[4 * i] = v.x;
            w[4 * i + 1] = v.y;
            w[4 * i + 2] = v.z;
            w[4 * i + 3] = v.w;
        }
    }
}

DEVICE_FN void body_words_store(uint64_t at, uint32_t bytes, const uint32_t *w)
{
    body_v16 v;
    body_v8 thin;
    switch (bytes) {
    case 4: BODY_STORE(uint32_t, at, w[0]); return;
    case 8:
        thin.x = w[0];
        thin.y = w[1];
        BODY_STORE(body_v8, at, thin);
        return;
    default:
        DEVICE_UNROLL for (uint32_t i = 0; i < bytes / 16; i++)
        {
            v.x = w[4 * i];
            v.y = w[4 * i + 1];
            v.z = w[4 * i + 2];
            v.w = w[4 * i + 3];
            BODY_STORE(body_v16, at + i * 16, v);
        }
    }
}

/* ---- pairs of narrow floats; the first one is in the low bits ---- */

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#define BODY_HAS_F8 1
#else
#define BODY_HAS_F8 0
#endif

DEVICE_FN uint32_t body_pair_bf16(float a, float b)
{
#ifdef __CUDA_ARCH__
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a));
    return r;
#else
    return (uint32_t)half_to_bf16(a) | (uint32_t)half_to_bf16(b) << 16;
#endif
}

DEVICE_FN uint32_t body_pair_f16(float a, float b)
{
#ifdef __CUDA_ARCH__
    uint32_t r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a));
    return r;
#else
    return (uint32_t)half_to_f16(a) | (uint32_t)half_to_f16(b) << 16;
#endif
}

DEVICE_FN void body_split_f16(uint32_t pair, float *a, float *b)
{
#ifdef __CUDA_ARCH__
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}" : "=f"(*a), "=f"(*b) : "r"(pair));
#else
    *a = half_from_f16((uint16_t)pair);
    *b = half_from_f16((uint16_t)(pair >> 16));
#endif
}

/* The processor's instruction saturates, so what is too large is one code too small for dtypes that do not: f8e4m3's
 * NaN and f8e5m2's infinity come right after the largest value. A comparison with a NaN is false. */
DEVICE_FN uint32_t body_pair_f8(int dtype, float a, float b)
{
#if BODY_HAS_F8
    const int wide = dtype == WEFT_F8E5M2 || dtype == WEFT_F8E5M2SAT;
    const float over = wide ? half_float(HALF_F8E5M2.over) : half_float(HALF_F8E4M3.over);
    uint16_t pair;
    if (wide)
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(b), "f"(a));
    else
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(b), "f"(a));
    uint32_t r = pair;
    if (dtype == WEFT_F8E4M3 || dtype == WEFT_F8E5M2) {
        r += half_float(half_bits(a) & 0x7fffffff) >= over ? 1 : 0;
        r += half_float(half_bits(b) & 0x7fffffff) >= over ? 0x100 : 0;
    }
    return r;
#else
    switch (dtype) {
    case WEFT_F8E4M3: return (uint32_t)half_to_f8e4m3(a) | (uint32_t)half_to_f8e4m3(b) << 8;
    case WEFT_F8E5M2: return (uint32_t)half_to_f8e5m2(a) | (uint32_t)half_to_f8e5m2(b) << 8;
    case WEFT_F8E4M3SAT: return (uint32_t)half_to_f8e4m3sat(a) | (uint32_t)half_to_f8e4m3sat(b) << 8;
    default: return (uint32_t)half_to_f8e5m2sat(a) | (uint32_t)half_to_f8e5m2sat(b) << 8;
    }
#endif
}

DEVICE_FN void body_split_f8(int dtype, uint32_t pair, float *a, float *b)
{
#if BODY_HAS_F8
    uint32_t r;
    if (dtype == WEFT_F8E5M2 || dtype == WEFT_F8E5M2SAT)
        asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(r) : "h"((uint16_t)pair));
    else
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(r) : "h"((uint16_t)pair));
    body_split_f16(r, a, b);
#else
    const uint8_t x = (uint8_t)pair, y = (uint8_t)(pair >> 8);
    const int wide = dtype == WEFT_F8E5M2 || dtype == WEFT_F8E5M2SAT;
    *a = wide ? half_from_f8e5m2(x) : half_from_f8e4m3(x);
    *b = wide ? half_from_f8e5m2(y) : half_from_f8e4m3(y);
#endif
}

/* ---- lanes ---- */

/* Values that f32 does not have are rounded to it. */
DEVICE_FN void body_decode(int dtype, const uint32_t *w, float *f, int lanes)
{
    DEVICE_UNROLL for (int i = 0; i < lanes; i += 2)
    {
        const uint32_t shorts = w[i / 2], bytes = w[i / 4] >> i % 4 * 8;
        switch (dtype) {
        case WEFT_F32:
            f[i] = half_float(w[i]);
            f[i + 1] = half_float(w[i + 1]);
            break;
        case WEFT_BF16:
            f[i] = half_float(shorts << 16);
            f[i + 1] = half_float(shorts & 0xffff0000);
            break;
        case WEFT_F16: body_split_f16(shorts, &f[i], &f[i + 1]); break;
        case WEFT_F8E8M0:
            f[i] = half_from_f8e8m0((uint8_t)bytes);
            f[i + 1] = half_from_f8e8m0((uint8_t)(bytes >> 8));
            break;
        case WEFT_BOOL:
            f[i] = (bytes & 0xff) != 0 ? 1 : 0;
            f[i + 1] = (bytes & 0xff00) != 0 ? 1 : 0;
            break;
        case WEFT_U8:
            f[i] = (uint8_t)bytes;
            f[i + 1] = (uint8_t)(bytes >> 8);
            break;
        case WEFT_I8:
            f[i] = (int8_t)bytes;
            f[i + 1] = (int8_t)(bytes >> 8);
            break;
        case WEFT_U16:
            f[i] = (float)(shorts & 0xffff);
            f[i + 1] = (float)(shorts >> 16);
            break;
        case WEFT_I16:
            f[i] = (int16_t)shorts;
            f[i + 1] = (int16_t)(shorts >> 16);
            break;
        case WEFT_U32:
            f[i] = (float)w[i];
            f[i + 1] = (float)w[i + 1];
            break;
        case WEFT_I32:
            f[i] = (float)(int32_t)w[i];
            f[i + 1] = (float)(int32_t)w[i + 1];
            break;
        case WEFT_F64:
            f[i] = (float)body_f64((uint64_t)w[2 * i + 1] << 32 | w[2 * i]);
            f[i + 1] = (float)body_f64((uint64_t)w[2 * i + 3] << 32 | w[2 * i + 2]);
            break;
        default: body_split_f8(dtype, bytes, &f[i], &f[i + 1]); break;
        }
    }
}

/* The codes of two floats, side by side; dtypes of up to two bytes. */
DEVICE_FN uint32_t body_pair(int dtype, float a, float b)
{
    switch (dtype) {
    case WEFT_BF16: return body_pair_bf16(a, b);
    case WEFT_F16: return body_pair_f16(a, b);
    case WEFT_F8E8M0: return (uint32_t)half_to_f8e8m0(a) | (uint32_t)half_to_f8e8m0(b) << 8;
    case WEFT_BOOL: return (a != 0 ? 1u : 0) | (b != 0 ? 0x100u : 0);
    case WEFT_U8: return (uint32_t)half_f32_to_u8(a) | (uint32_t)half_f32_to_u8(b) << 8;
    case WEFT_I8: return (uint32_t)(uint8_t)half_f32_to_i8(a) | (uint32_t)(uint8_t)half_f32_to_i8(b) << 8;
    case WEFT_U16: return (uint32_t)half_f32_to_u16(a) | (uint32_t)half_f32_to_u16(b) << 16;
    case WEFT_I16: return (uint32_t)(uint16_t)half_f32_to_i16(a) | (uint32_t)(uint16_t)half_f32_to_i16(b) << 16;
    default: return body_pair_f8(dtype, a, b);
    }
}

DEVICE_FN void body_encode(int dtype, const float *f, uint32_t *w, int lanes)
{
    const uint32_t size = body_size(dtype);
    if (size == 1) {
        DEVICE_UNROLL for (int i = 0; i < lanes; i += 4) w[i / 4] =
            body_pair(dtype, f[i], f[i + 1]) | body_pair(dtype, f[i + 2], f[i + 3]) << 16;
        return;
    }
    if (size == 2) {
        DEVICE_UNROLL for (int i = 0; i < lanes; i += 2) w[i / 2] = body_pair(dtype, f[i], f[i + 1]);
        return;
    }
    DEVICE_UNROLL for (int i = 0; i < lanes; i++)
    {
        if (dtype == WEFT_F64) {
            const uint64_t x = half_bits64(f[i]);
            w[2 * i] = (uint32_t)x;
            w[2 * i + 1] = (uint32_t)(x >> 32);
        } else {
            w[i] = dtype == WEFT_F32   ? half_bits(f[i])
                   : dtype == WEFT_U32 ? half_f32_to_u32(f[i])
                                       : (uint32_t)half_f32_to_i32(f[i]);
        }
    }
}

/* A case for each dtype: CASE(dtype). */
#define BODY_FLOATS_THIN(CASE) \
    CASE(WEFT_BF16)            \
    CASE(WEFT_F16)             \
    CASE(WEFT_F8E4M3)          \
    CASE(WEFT_F8E5M2)          \
    CASE(WEFT_F8E4M3SAT)       \
    CASE(WEFT_F8E5M2SAT)
#define BODY_LANES_THIN(CASE) \
    BODY_FLOATS_THIN(CASE)    \
    CASE(WEFT_F8E8M0)         \
    CASE(WEFT_BOOL)           \
    CASE(WEFT_U8)             \
    CASE(WEFT_I8)             \
    CASE(WEFT_U16)            \
    CASE(WEFT_I16)
#define BODY_LANES_NARROW(CASE) \
    BODY_LANES_THIN(CASE)       \
    CASE(WEFT_F32)
#define BODY_LANES_ALL(CASE) \
    BODY_LANES_THIN(CASE)    \
    CASE(WEFT_F32)           \
    CASE(WEFT_U32)           \
    CASE(WEFT_I32)           \
    CASE(WEFT_F64)
#endif
