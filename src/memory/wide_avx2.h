/* Sixteen elements in AVX2 registers: what wide_loops.h is written with. */
#ifndef WEFT_MEMORY_WIDE_AVX2_H
#define WEFT_MEMORY_WIDE_AVX2_H
#include <immintrin.h>

#define WIDE 2 /* vectors of f32 */
typedef float wide_f __attribute__((vector_size(32)));
typedef uint32_t wide_u __attribute__((vector_size(32)));
typedef uint16_t wide_h __attribute__((vector_size(32)));
#define WIDE_HALVES 1 /* vectors of 16-bit codes */

static inline wide_f wide_load(const unsigned char *p)
{
    return (wide_f)_mm256_loadu_si256((const __m256i *)(const void *)p);
}

static inline void wide_store(unsigned char *p, wide_f x)
{
    _mm256_storeu_si256((__m256i *)(void *)p, (__m256i)x);
}

static inline void wide_load16(wide_h *x, const unsigned char *p)
{
    x[0] = (wide_h)_mm256_loadu_si256((const __m256i *)(const void *)p);
}

static inline void wide_store16(unsigned char *p, const wide_h *x)
{
    _mm256_storeu_si256((__m256i *)(void *)p, (__m256i)x[0]);
}

/* Bytes as 16-bit values. */
static inline void wide_load8(wide_h *x, const unsigned char *p)
{
    x[0] = (wide_h)_mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
}

/* Values below 256 as bytes. Packing works in halves of a register, so that quarters come out of order. */
static inline void wide_store8(unsigned char *p, const wide_u *x)
{
    __m256i w = _mm256_permute4x64_epi64(_mm256_packus_epi32((__m256i)x[0], (__m256i)x[1]), 0xd8);
    __m128i b = _mm_packus_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1));
    _mm_storeu_si128((__m128i *)(void *)p, b);
}

/* 16-bit values as the upper halves of 32-bit ones, and back: the lower halves are lost. */
static inline void wide_raise(wide_u *x, const wide_h *h)
{
    x[0] = (wide_u)_mm256_cvtepu16_epi32(_mm256_castsi256_si128((__m256i)h[0])) << 16;
    x[1] = (wide_u)_mm256_cvtepu16_epi32(_mm256_extracti128_si256((__m256i)h[0], 1)) << 16;
}

static inline void wide_upper(wide_h *h, const wide_u *x)
{
    h[0] = (wide_h)_mm256_permute4x64_epi64(_mm256_packus_epi32((__m256i)(x[0] >> 16), (__m256i)(x[1] >> 16)), 0xd8);
}

/* f16: exact; to nearest even. NaNs become quiet and keep as much of their payload as fits. */
static inline void wide_from_f16(wide_f *x, const wide_h *h)
{
    x[0] = (wide_f)_mm256_cvtph_ps(_mm256_castsi256_si128((__m256i)h[0]));
    x[1] = (wide_f)_mm256_cvtph_ps(_mm256_extracti128_si256((__m256i)h[0], 1));
}

static inline void wide_to_f16(wide_h *h, const wide_f *x)
{
    __m128i a = _mm256_cvtps_ph((__m256)x[0], _MM_FROUND_TO_NEAREST_INT);
    __m128i b = _mm256_cvtps_ph((__m256)x[1], _MM_FROUND_TO_NEAREST_INT);
    h[0] = (wide_h)_mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
}
#endif
