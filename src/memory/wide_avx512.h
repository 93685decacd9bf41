/* Sixteen elements in an AVX-512 register: what wide_loops.h is written with. */
#ifndef WEFT_MEMORY_WIDE_AVX512_H
#define WEFT_MEMORY_WIDE_AVX512_H
#include "memory/wide_x86.h"

#define WIDE 1 /* vectors of f32 */
typedef float wide_f __attribute__((vector_size(64)));
typedef uint32_t wide_u __attribute__((vector_size(64)));

RAW_INLINE wide_f wide_load(const unsigned char *p)
{
    return (wide_f)_mm512_loadu_si512(p);
}

RAW_INLINE void wide_store(unsigned char *p, wide_f x)
{
    _mm512_storeu_si512(p, (__m512i)x);
}

/* Lower bytes. */
RAW_INLINE wide_b wide_bytes(const wide_h *x)
{
    return (wide_b)_mm256_cvtepi16_epi8((__m256i)x[0]);
}

/* Upper bytes. */
RAW_INLINE wide_b wide_high_bytes(const wide_h *x)
{
    return (wide_b)_mm256_cvtepi16_epi8((__m256i)(x[0] >> 8));
}

/* 16-bit values as the upper halves of 32-bit ones, and back: the lower halves are lost. */
RAW_INLINE void wide_raise(wide_u *x, const wide_h *h)
{
    x[0] = (wide_u)_mm512_cvtepu16_epi32((__m256i)h[0]) << 16;
}

RAW_INLINE void wide_upper(wide_h *h, const wide_u *x)
{
    h[0] = (wide_h)_mm512_cvtepi32_epi16((__m512i)(x[0] >> 16));
}

RAW_INLINE void wide_lower(wide_h *h, const wide_u *x)
{
    h[0] = (wide_h)_mm512_cvtepi32_epi16((__m512i)x[0]);
}

RAW_INLINE bool wide_any_nan(const wide_f *x)
{
    return _mm512_cmp_ps_mask((__m512)x[0], (__m512)x[0], _CMP_UNORD_Q) != 0;
}

/* f16: exact; to nearest even. NaNs become quiet and keep as much of their payload as fits. */
RAW_INLINE void wide_from_f16(wide_f *x, const wide_h *h)
{
    x[0] = (wide_f)_mm512_cvtph_ps((__m256i)h[0]);
}

#define WIDE_NARROW_F16(name, how)                         \
    RAW_INLINE void name(wide_h *h, const wide_f *x)       \
    {                                                      \
        h[0] = (wide_h)_mm512_cvtps_ph((__m512)x[0], how); \
    }
WIDE_NARROW_F16(wide_to_f16, _MM_FROUND_TO_NEAREST_INT)
WIDE_NARROW_F16(wide_cut_f16, _MM_FROUND_TO_ZERO)
#endif
