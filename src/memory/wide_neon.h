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

static inline wide_f wide_load(const unsigned char *p)
{
    return (wide_f)vld1q_u8(p);
}

static inline void wide_store(unsigned char *p, wide_f x)
{
    vst1q_u8(p, (uint8x16_t)x);
}

static inline void wide_load16(wide_h *x, const unsigned char *p)
{
    x[0] = (wide_h)vld1q_u8(p);
    x[1] = (wide_h)vld1q_u8(p + 16);
}

static inline void wide_store16(unsigned char *p, const wide_h *x)
{
    vst1q_u8(p, (uint8x16_t)x[0]);
    vst1q_u8(p + 16, (uint8x16_t)x[1]);
}

static inline wide_b wide_load8(const unsigned char *p)
{
    return (wide_b)vld1q_u8(p);
}

static inline void wide_store8(unsigned char *p, wide_b x)
{
    vst1q_u8(p, (uint8x16_t)x);
}

/* Values below 256 as bytes. */
static inline wide_b wide_bytes(const wide_h *x)
{
    return (wide_b)vuzp1q_u8((uint8x16_t)x[0], (uint8x16_t)x[1]);
}

static inline wide_h wide_min16(wide_h a, wide_h b)
{
    return (wide_h)vminq_u16((uint16x8_t)a, (uint16x8_t)b);
}

/* table[i] for each byte i below 16, anything for the others. */
static inline wide_b wide_look_up(wide_b table, wide_b i)
{
    return (wide_b)vqtbl1q_u8((uint8x16_t)table, (uint8x16_t)i);
}

/* 16-bit values of a lower and an upper byte each. */
static inline void wide_join(wide_h *x, wide_b low, wide_b high)
{
    x[0] = (wide_h)vzip1q_u8((uint8x16_t)low, (uint8x16_t)high);
    x[1] = (wide_h)vzip2q_u8((uint8x16_t)low, (uint8x16_t)high);
}

/* 16-bit values as the upper halves of 32-bit ones, and back: the lower halves are lost. */
static inline void wide_raise(wide_u *x, const wide_h *h)
{
    for (int i = 0; i < 2; i++) {
        x[2 * i] = (wide_u)vshll_n_u16(vget_low_u16((uint16x8_t)h[i]), 16);
        x[2 * i + 1] = (wide_u)vzip2q_u16(vdupq_n_u16(0), (uint16x8_t)h[i]);
    }
}

static inline void wide_upper(wide_h *h, const wide_u *x)
{
    for (int i = 0; i < 2; i++)
        h[i] = (wide_h)vuzp2q_u16((uint16x8_t)x[2 * i], (uint16x8_t)x[2 * i + 1]);
}

static inline void wide_lower(wide_h *h, const wide_u *x)
{
    for (int i = 0; i < 2; i++)
        h[i] = (wide_h)vuzp1q_u16((uint16x8_t)x[2 * i], (uint16x8_t)x[2 * i + 1]);
}

/* f16: exact; to nearest even. NaNs become quiet and keep as much of their payload as fits. */
static inline void wide_from_f16(wide_f *x, const wide_h *h)
{
    for (int i = 0; i < 2; i++) {
        x[2 * i] = (wide_f)vcvt_f32_f16(vget_low_f16((float16x8_t)h[i]));
        x[2 * i + 1] = (wide_f)vcvt_high_f32_f16((float16x8_t)h[i]);
    }
}

static inline void wide_to_f16(wide_h *h, const wide_f *x)
{
    for (int i = 0; i < 2; i++)
        h[i] = (wide_h)vcvt_high_f16_f32(vcvt_f16_f32((float32x4_t)x[2 * i]), (float32x4_t)x[2 * i + 1]);
}

/* These order -0 below +0 and give a NaN if there is one, but not the NaN that weft defines. */
#define WIDE_QUICK
static inline wide_f wide_quick_min(wide_f a, wide_f b)
{
    return (wide_f)vminq_f32((float32x4_t)a, (float32x4_t)b);
}

static inline wide_f wide_quick_max(wide_f a, wide_f b)
{
    return (wide_f)vmaxq_f32((float32x4_t)a, (float32x4_t)b);
}

static inline bool wide_any_nan(const wide_f *x)
{
    wide_f m = wide_quick_max(wide_quick_max(x[0], x[1]), wide_quick_max(x[2], x[3]));
    return vminvq_u32(vceqq_f32((float32x4_t)m, (float32x4_t)m)) == 0;
}

/* Not by intrinsics: compilers offer these only if the whole file is compiled for these processors. */
#if KERNELS_LEVEL == KERNELS_BF16
#define WIDE_TO_BF16
static inline void wide_to_bf16(wide_h *h, const wide_f *x)
{
    for (int i = 0; i < 2; i++) {
        __asm__("bfcvtn %0.4h, %1.4s" : "=w"(h[i]) : "w"(x[2 * i]));
        __asm__("bfcvtn2 %0.8h, %1.4s" : "+w"(h[i]) : "w"(x[2 * i + 1]));
    }
}

/* x + 1 * h, exact before its one rounding. */
#define WIDE_ADD_F16
static inline void wide_add_f16(wide_f *x, const wide_h *h)
{
    const wide_h one = (wide_h)vdupq_n_u16(0x3c00);
    for (int i = 0; i < 2; i++) {
        __asm__("fmlal %0.4s, %1.4h, %2.4h" : "+w"(x[2 * i]) : "w"(h[i]), "w"(one));
        __asm__("fmlal2 %0.4s, %1.4h, %2.4h" : "+w"(x[2 * i + 1]) : "w"(h[i]), "w"(one));
    }
}
#endif
#endif
