/* Sixteen elements in AVX2 registers: what wide_loops.h is written with. */
#ifndef WEFT_MEMORY_WIDE_AVX2_H
#define WEFT_MEMORY_WIDE_AVX2_H
#include "memory/wide_x86.h"

#define WIDE 2 /* vectors of f32 */
typedef float wide_f __attribute__((vector_size(32)));
typedef uint32_t wide_u __attribute__((vector_size(32)));

RAW_INLINE wide_f wide_load(const unsigned char *p)
{
    return (wide_f)_mm256_loadu_si256((const __m256i *)(const void *)p);
}

RAW_INLINE void wide_store(unsigned char *p, wide_f x)
{
    _mm256_storeu_si256((__m256i *)(void *)p, (__m256i)x);
}

/* Lower bytes. */
RAW_INLINE wide_b wide_bytes(const wide_h *x)
{
    __m256i y = (__m256i)(x[0] & 0xff);
    return (wide_b)_mm_packus_epi16(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1));
}

/* Upper bytes. */
RAW_INLINE wide_b wide_high_bytes(const wide_h *x)
{
    const wide_h y = x[0] >> 8;
    return wide_bytes(&y);
}

/* 16-bit values as the upper halves of 32-bit ones, and back: the lower halves are lost. Packing works in halves of a
 * register, so that quarters come out of order. */
RAW_INLINE void wide_raise(wide_u *x, const wide_h *h)
{
    x[0] = (wide_u)_mm256_cvtepu16_epi32(_mm256_castsi256_si128((__m256i)h[0])) << 16;
    x[1] = (wide_u)_mm256_cvtepu16_epi32(_mm256_extracti128_si256((__m256i)h[0], 1)) << 16;
}

RAW_INLINE void wide_upper(wide_h *h, const wide_u *x)
{
    h[0] = (wide_h)_mm256_permute4x64_epi64(_mm256_packus_epi32((__m256i)(x[0] >> 16), (__m256i)(x[1] >> 16)), 0xd8);
}

/* The lowest bytes of 32-bit values. */
RAW_INLINE wide_b wide_lowest(const wide_u *x)
{
    const __m256i h = _mm256_packus_epi32((__m256i)(x[0] & 0xff), (__m256i)(x[1] & 0xff));
    const __m128i b = _mm_packus_epi16(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
    return (wide_b)_mm_shuffle_epi32(b, 0xd8);
}

RAW_INLINE wide_u wide_min32(wide_u a, wide_u b)
{
    return (wide_u)_mm256_min_epu32((__m256i)a, (__m256i)b);
}

RAW_INLINE wide_u wide_max32(wide_u a, wide_u b)
{
    return (wide_u)_mm256_max_epu32((__m256i)a, (__m256i)b);
}

RAW_INLINE bool wide_any_nan(const wide_f *x)
{
    return _mm256_movemask_ps(_mm256_cmp_ps((__m256)x[0], (__m256)x[1], _CMP_UNORD_Q)) != 0;
}

/* f16: exact; to nearest even. NaNs become quiet and keep as much of their payload as fits. */
RAW_INLINE void wide_from_f16(wide_f *x, const wide_h *h)
{
    x[0] = (wide_f)_mm256_cvtph_ps(_mm256_castsi256_si128((__m256i)h[0]));
    x[1] = (wide_f)_mm256_cvtph_ps(_mm256_extracti128_si256((__m256i)h[0], 1));
}

RAW_INLINE void wide_to_f16(wide_h *h, const wide_f *x)
{
    __m128i a = _mm256_cvtps_ph((__m256)x[0], _MM_FROUND_TO_NEAREST_INT),
            b = _mm256_cvtps_ph((__m256)x[1], _MM_FROUND_TO_NEAREST_INT);
    h[0] = (wide_h)_mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
}
#endif
