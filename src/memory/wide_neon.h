/* Sixteen elements in NEON registers: what wide_loops.h is written with. */
#ifndef WEFT_MEMORY_WIDE_NEON_H
#define WEFT_MEMORY_WIDE_NEON_H
#include <arm_neon.h>

#define WIDE 4 /* vectors of f32 */
typedef float wide_f __attribute__((vector_size(16)));
typedef uint32_t wide_u __attribute__((vector_size(16)));
typedef uint16_t wide_h __attribute__((vector_size(16)));
typedef uint8_t wide_b __attribute__((vector_size(16)));
#define WIDE_HALVES 2 /* vectors of 16-bit codes */

RAW_INLINE wide_f wide_load(const unsigned char *p)
{
    return (wide_f)vld1q_u8(p);
}

RAW_INLINE void wide_store(unsigned char *p, wide_f x)
{
    vst1q_u8(p, (uint8x16_t)x);
}

RAW_INLINE void wide_load16(wide_h *x, const unsigned char *p)
{
    x[0] = (wide_h)vld1q_u8(p);
    x[1] = (wide_h)vld1q_u8(p + 16);
}

RAW_INLINE void wide_store16(unsigned char *p, const wide_h *x)
{
    vst1q_u8(p, (uint8x16_t)x[0]);
    vst1q_u8(p + 16, (uint8x16_t)x[1]);
}

RAW_INLINE wide_b wide_load8(const unsigned char *p)
{
    return (wide_b)vld1q_u8(p);
}

RAW_INLINE void wide_store8(unsigned char *p, wide_b x)
{
    vst1q_u8(p, (uint8x16_t)x);
}

/* Lower bytes. */
RAW_INLINE wide_b wide_bytes(const wide_h *x)
{
    return (wide_b)vuzp1q_u8((uint8x16_t)x[0], (uint8x16_t)x[1]);
}

/* Upper bytes. */
RAW_INLINE wide_b wide_high_bytes(const wide_h *x)
{
    return (wide_b)vuzp2q_u8((uint8x16_t)x[0], (uint8x16_t)x[1]);
}

/* x >> bits as bytes, at most 255. `bits` is 5, 6 or 8. */
RAW_INLINE wide_b wide_drop(const wide_h *x, int bits)
{
    uint16x8_t a = (uint16x8_t)x[0], b = (uint16x8_t)x[1];
    return (wide_b)(bits == 5   ? vqshrn_high_n_u16(vqshrn_n_u16(a, 5), b, 5)
                    : bits == 6 ? vqshrn_high_n_u16(vqshrn_n_u16(a, 6), b, 6)
                                : vqshrn_high_n_u16(vqshrn_n_u16(a, 8), b, 8));
}

/* Twice the value, with its last bit set if `rest` is not 0. */
RAW_INLINE wide_h wide_sticky(wide_h x, wide_h rest)
{
    return (wide_h)vsliq_n_u16(vtstq_u16((uint16x8_t)rest, (uint16x8_t)rest), (uint16x8_t)x, 1);
}

/* a - b, or 0 if that is less. */
RAW_INLINE wide_h wide_minus(wide_h a, wide_h b)
{
    return (wide_h)vqsubq_u16((uint16x8_t)a, (uint16x8_t)b);
}

RAW_INLINE wide_b wide_min8(wide_b a, wide_b b)
{
    return (wide_b)vminq_u8((uint8x16_t)a, (uint8x16_t)b);
}

RAW_INLINE wide_b wide_max8(wide_b a, wide_b b)
{
    return (wide_b)vmaxq_u8((uint8x16_t)a, (uint8x16_t)b);
}

RAW_INLINE wide_b wide_max8s(wide_b a, wide_b b) /* signed */
{
    return (wide_b)vmaxq_s8((int8x16_t)a, (int8x16_t)b);
}

RAW_INLINE wide_b wide_minus8(wide_b a, wide_b b) /* or 0 if that is less */
{
    return (wide_b)vqsubq_u8((uint8x16_t)a, (uint8x16_t)b);
}

/* a / 2, rounded to nearest even. The first bit of the result may be anything. */
RAW_INLINE wide_b wide_halve(wide_b a)
{
    return (wide_b)vhsubq_u8((uint8x16_t)a, vtstq_u8((uint8x16_t)a, vdupq_n_u8(2)));
}

RAW_INLINE wide_h wide_min16(wide_h a, wide_h b)
{
    return (wide_h)vminq_u16((uint16x8_t)a, (uint16x8_t)b);
}

RAW_INLINE wide_h wide_max16(wide_h a, wide_h b)
{
    return (wide_h)vmaxq_u16((uint16x8_t)a, (uint16x8_t)b);
}

RAW_INLINE wide_h wide_max16s(wide_h a, wide_h b) /* signed */
{
    return (wide_h)vmaxq_s16((int16x8_t)a, (int16x8_t)b);
}

RAW_INLINE wide_b wide_abs8(wide_b a)
{
    return (wide_b)vabsq_s8((int8x16_t)a);
}

/* table[i] for each byte i below 16, x for the others. */
RAW_INLINE wide_b wide_look_up(wide_b x, wide_b table, wide_b i)
{
    return (wide_b)vqtbx1q_u8((uint8x16_t)x, (uint8x16_t)table, (uint8x16_t)i);
}

/* What is left beyond the limit: the largest of four lanes takes a fraction of the time that one of sixteen takes. */
RAW_INLINE bool wide_any_above8(wide_b a, uint8_t limit)
{
    return vmaxvq_u32((uint32x4_t)vqsubq_u8((uint8x16_t)a, vdupq_n_u8(limit))) != 0;
}

RAW_INLINE bool wide_any_above16(wide_h a, uint16_t limit)
{
    return vmaxvq_u32((uint32x4_t)vqsubq_u16((uint16x8_t)a, vdupq_n_u16(limit))) != 0;
}

/* 16-bit values of a lower and an upper byte each. */
RAW_INLINE void wide_join(wide_h *x, wide_b low, wide_b high)
{
    x[0] = (wide_h)vzip1q_u8((uint8x16_t)low, (uint8x16_t)high);
    x[1] = (wide_h)vzip2q_u8((uint8x16_t)low, (uint8x16_t)high);
}

/* 16-bit values as the upper halves of 32-bit ones, and back: the lower halves are lost. */
RAW_INLINE void wide_raise(wide_u *x, const wide_h *h)
{
    for (int i = 0; i < 2; i++) {
        x[2 * i] = (wide_u)vzip1q_u16(vdupq_n_u16(0), (uint16x8_t)h[i]);
        x[2 * i + 1] = (wide_u)vzip2q_u16(vdupq_n_u16(0), (uint16x8_t)h[i]);
    }
}

RAW_INLINE void wide_upper(wide_h *h, const wide_u *x)
{
    for (int i = 0; i < 2; i++)
        h[i] = (wide_h)vuzp2q_u16((uint16x8_t)x[2 * i], (uint16x8_t)x[2 * i + 1]);
}

RAW_INLINE void wide_lower(wide_h *h, const wide_u *x)
{
    for (int i = 0; i < 2; i++)
        h[i] = (wide_h)vuzp1q_u16((uint16x8_t)x[2 * i], (uint16x8_t)x[2 * i + 1]);
}

/* f64 and wide integers, rounded to odd. Of an integer beyond 2^53 the last 12 bits are gathered into the first of
 * them, and a double holds the rest. */
#define WIDE_ODD
RAW_INLINE float64x2_t wide_double_s64(int64x2_t x)
{
    const int64x2_t low = vdupq_n_s64(0xfff), some = (int64x2_t)vtstq_s64(x, low) & 0x800;
    const int64x2_t beyond = (int64x2_t)((uint64x2_t)(x ^ (x >> 63)) >> 53);
    return vcvtq_f64_s64(vbslq_s64(vtstq_s64(beyond, beyond), (x & ~low) | some, x));
}

RAW_INLINE float64x2_t wide_double_u64(uint64x2_t x)
{
    const uint64x2_t low = vdupq_n_u64(0xfff), beyond = x >> 53;
    return vcvtq_f64_u64(vbslq_u64(vtstq_u64(beyond, beyond), (x & ~low) | (vtstq_u64(x, low) & 0x800), x));
}

#define wide_double_f64(x) (x)
#define WIDE_LOAD(S, V, T)                                                   \
    RAW_INLINE void load_##S(wide_f *x, const unsigned char *p)              \
    {                                                                        \
        for (int i = 0; i < WIDE; i++) {                                     \
            V a = (V)vld1q_u8(p + 32 * i), b = (V)vld1q_u8(p + 32 * i + 16); \
            float32x2_t low = vcvtx_f32_f64(wide_double_##T(a));             \
            x[i] = (wide_f)vcvtx_high_f32_f64(low, wide_double_##T(b));      \
        }                                                                    \
    }
WIDE_LOAD(f64, float64x2_t, f64)
WIDE_LOAD(i64, int64x2_t, s64)
WIDE_LOAD(u64, uint64x2_t, u64)

#define WIDE_LOAD_32(S, V, T, W)                                                        \
    RAW_INLINE void load_##S(wide_f *x, const unsigned char *p)                         \
    {                                                                                   \
        for (int i = 0; i < WIDE; i++) {                                                \
            V a = (V)vld1q_u8(p + 16 * i);                                              \
            float32x2_t low = vcvtx_f32_f64(vcvtq_f64_##W(vmovl_##T(vget_low_##T(a)))); \
            x[i] = (wide_f)vcvtx_high_f32_f64(low, vcvtq_f64_##W(vmovl_high_##T(a)));   \
        }                                                                               \
    }
WIDE_LOAD_32(i32, int32x4_t, s32, s64)
WIDE_LOAD_32(u32, uint32x4_t, u32, u64)

RAW_INLINE void store_f64(unsigned char *p, const wide_f *x)
{
    for (int i = 0; i < WIDE; i++) {
        vst1q_u8(p + 32 * i, (uint8x16_t)vcvt_f64_f32(vget_low_f32((float32x4_t)x[i])));
        vst1q_u8(p + 32 * i + 16, (uint8x16_t)vcvt_high_f64_f32((float32x4_t)x[i]));
    }
}

/* The upper halves, rounded to nearest even at the bit `odd` of the whole. */
RAW_INLINE void wide_round_at(wide_h *h, const wide_u *x, uint32_t odd)
{
    const uint32x4_t last = vdupq_n_u32(odd), most = vdupq_n_u32(odd / 2 - 1);
    for (int i = 0; i < 2; i++) {
        uint32x4_t a = (uint32x4_t)x[2 * i], b = (uint32x4_t)x[2 * i + 1];
        h[i] = (wide_h)vaddhn_high_u32(vaddhn_u32(a, vsubq_u32(most, vtstq_u32(a, last))), b,
                                       vsubq_u32(most, vtstq_u32(b, last)));
    }
}

RAW_INLINE void wide_round(wide_h *h, const wide_u *x)
{
    wide_round_at(h, x, 0x10000);
}

/* For sums of f8 (wide_folds.h): f32 that are the f8 times a power of two. The code of an f8 is shifted up to where f32
 * has its mantissa, and a subnormal f8 is a subnormal f32. Where the f32 is subnormal, a sum is exact: all terms are
 * multiples of the smallest f8. A quotient there is rounded at 20 bits or more behind the last bit of the code. That
 * does not move it over a tie: a quotient by less than 2^16 that is no tie is farther away from one. */
#define WIDE_SCALES_F8(by) ((by) <= 0x1p16f && (by) >= 0x1p-16f)
RAW_INLINE void wide_scaled_f8(wide_f *x, wide_b c, int mant)
{
    wide_h h[2];
    wide_u u[WIDE];
    const int8x16_t s = (int8x16_t)c;
    for (int i = 0; i < 2; i++) {
        int8x8_t half = i ? vget_high_s8(s) : vget_low_s8(s);
        h[i] = mant == 3 ? (wide_h)vshll_n_s8(half, 4) & 0x87ff : (wide_h)vshll_n_s8(half, 5) & 0x8fff;
    }
    wide_raise(u, h);
    for (int i = 0; i < WIDE; i++)
        x[i] = (wide_f)u[i];
}

/* Back: the code is in the bits from WIDE_F8_AT on, rounded to nearest even. */
#define WIDE_F8_AT(mant) (7 - (mant))
RAW_INLINE void wide_round_f8(wide_h *h, const wide_f *x, int mant)
{
    wide_u u[WIDE];
    for (int i = 0; i < WIDE; i++)
        u[i] = (wide_u)x[i];
    wide_round_at(h, u, 1u << (23 - mant));
}

/* f16: exact; to nearest even. NaNs become quiet and keep as much of their payload as fits. */
RAW_INLINE void wide_from_f16(wide_f *x, const wide_h *h)
{
    for (int i = 0; i < 2; i++) {
        x[2 * i] = (wide_f)vcvt_f32_f16(vget_low_f16((float16x8_t)h[i]));
        x[2 * i + 1] = (wide_f)vcvt_high_f32_f16((float16x8_t)h[i]);
    }
}

RAW_INLINE void wide_to_f16(wide_h *h, const wide_f *x)
{
    for (int i = 0; i < 2; i++)
        h[i] = (wide_h)vcvt_high_f16_f32(vcvt_f16_f32((float32x4_t)x[2 * i]), (float32x4_t)x[2 * i + 1]);
}

#define WIDE_ONE_NAN true /* see ops_nan_begin */

/* These order -0 below +0 and give a NaN if there is one, but not the NaN that weft defines. */
#define WIDE_QUICK
RAW_INLINE wide_f wide_quick_min(wide_f a, wide_f b)
{
    return (wide_f)vminq_f32((float32x4_t)a, (float32x4_t)b);
}

RAW_INLINE wide_f wide_quick_max(wide_f a, wide_f b)
{
    return (wide_f)vmaxq_f32((float32x4_t)a, (float32x4_t)b);
}

/* The same for f64. False: there is a NaN, and nothing is written. */
#define WIDE_QUICK_F64(op, instruction)                                                                \
    RAW_INLINE bool quick_##op##_f64(unsigned char *d, const void *const *in, int ways, size_t at)     \
    {                                                                                                  \
        float64x2_t r[4], nan;                                                                         \
        for (int i = 0; i < 4; i++)                                                                    \
            r[i] = (float64x2_t)vld1q_u8((const uint8_t *)in[0] + at + 16 * i);                        \
        for (int k = 1; k < ways; k++)                                                                 \
            for (int i = 0; i < 4; i++)                                                                \
                r[i] = instruction(r[i], (float64x2_t)vld1q_u8((const uint8_t *)in[k] + at + 16 * i)); \
        nan = vmaxq_f64(vmaxq_f64(r[0], r[1]), vmaxq_f64(r[2], r[3]));                                 \
        double most = vmaxvq_f64(nan);                                                                 \
        for (int i = 0; i < 4 && most == most; i++)                                                    \
            vst1q_u8(d + at + 16 * i, (uint8x16_t)r[i]);                                               \
        return most == most;                                                                           \
    }
WIDE_QUICK_F64(min, vminq_f64)
WIDE_QUICK_F64(max, vmaxq_f64)

RAW_INLINE bool wide_any_nan(const wide_f *x)
{
    wide_f m = wide_quick_max(wide_quick_max(x[0], x[1]), wide_quick_max(x[2], x[3]));
    float most = vmaxvq_f32((float32x4_t)m);
    return most != most;
}

/* Not by intrinsics: compilers offer these only if the whole file is compiled for these processors. */
#if KERNELS_LEVEL == KERNELS_BF16
#define WIDE_TO_BF16
RAW_INLINE void wide_to_bf16(wide_h *h, const wide_f *x)
{
    for (int i = 0; i < 2; i++) {
        __asm__("bfcvtn %0.4h, %1.4s" : "=w"(h[i]) : "w"(x[2 * i]));
        __asm__("bfcvtn2 %0.8h, %1.4s" : "+w"(h[i]) : "w"(x[2 * i + 1]));
    }
}
#endif
#endif
