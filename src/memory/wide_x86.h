/* What AVX2 and AVX-512 have in common: sixteen 16-bit codes in one register, sixteen bytes in another. */
#ifndef WEFT_MEMORY_WIDE_X86_H
#define WEFT_MEMORY_WIDE_X86_H
#include <immintrin.h>

typedef uint16_t wide_h __attribute__((vector_size(32)));
typedef uint8_t wide_b __attribute__((vector_size(16)));
#define WIDE_HALVES 1 /* vectors of 16-bit codes */

RAW_INLINE void wide_load16(wide_h *x, const unsigned char *p)
{
    x[0] = (wide_h)_mm256_loadu_si256((const __m256i *)(const void *)p);
}

RAW_INLINE void wide_store16(unsigned char *p, const wide_h *x)
{
    _mm256_storeu_si256((__m256i *)(void *)p, (__m256i)x[0]);
}

RAW_INLINE wide_b wide_load8(const unsigned char *p)
{
    return (wide_b)_mm_loadu_si128((const __m128i *)(const void *)p);
}

RAW_INLINE void wide_store8(unsigned char *p, wide_b x)
{
    _mm_storeu_si128((__m128i *)(void *)p, (__m128i)x);
}

/* a - b, or 0 if that is less. */
RAW_INLINE wide_h wide_minus(wide_h a, wide_h b)
{
    return (wide_h)_mm256_subs_epu16((__m256i)a, (__m256i)b);
}

RAW_INLINE wide_b wide_max8(wide_b a, wide_b b)
{
    return (wide_b)_mm_max_epu8((__m128i)a, (__m128i)b);
}

RAW_INLINE wide_b wide_max8s(wide_b a, wide_b b) /* signed */
{
    return (wide_b)_mm_max_epi8((__m128i)a, (__m128i)b);
}

RAW_INLINE wide_b wide_min8(wide_b a, wide_b b)
{
    return (wide_b)_mm_min_epu8((__m128i)a, (__m128i)b);
}

RAW_INLINE wide_b wide_minus8(wide_b a, wide_b b) /* or 0 if that is less */
{
    return (wide_b)_mm_subs_epu8((__m128i)a, (__m128i)b);
}

/* a / 2, rounded to nearest even. The first bit of the result may be anything. */
RAW_INLINE wide_b wide_halve(wide_b a)
{
    return (a + (a >> 1 & 1)) >> 1;
}

RAW_INLINE wide_h wide_min16(wide_h a, wide_h b)
{
    return (wide_h)_mm256_min_epu16((__m256i)a, (__m256i)b);
}

RAW_INLINE wide_h wide_max16(wide_h a, wide_h b)
{
    return (wide_h)_mm256_max_epu16((__m256i)a, (__m256i)b);
}

RAW_INLINE wide_h wide_max16s(wide_h a, wide_h b) /* signed */
{
    return (wide_h)_mm256_max_epi16((__m256i)a, (__m256i)b);
}

RAW_INLINE bool wide_any_above16(wide_h a, uint16_t limit)
{
    const __m256i beyond = _mm256_subs_epu16((__m256i)a, _mm256_set1_epi16((short)limit));
    return !_mm256_testz_si256(beyond, beyond);
}

RAW_INLINE bool wide_any_above8(wide_b a, uint8_t limit)
{
    const __m128i most = _mm_set1_epi8((char)limit);
    return _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_max_epu8((__m128i)a, most), most)) != 0xffff;
}

/* x >> bits as bytes, at most 255. */
RAW_INLINE wide_b wide_drop(const wide_h *x, int bits)
{
    __m256i y = (__m256i)(x[0] >> bits);
    return (wide_b)_mm_packus_epi16(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1));
}

/* table[i] for each byte i below 16, x for the others, which are below 128. */
RAW_INLINE wide_b wide_look_up(wide_b x, wide_b table, wide_b i)
{
    __m128i found = _mm_shuffle_epi8((__m128i)table, (__m128i)i);
    return (wide_b)_mm_blendv_epi8(found, (__m128i)x, _mm_cmpgt_epi8((__m128i)i, _mm_set1_epi8(15)));
}

/* 16-bit values of a lower and an upper byte each. */
RAW_INLINE void wide_join(wide_h *x, wide_b low, wide_b high)
{
    __m128i a = _mm_unpacklo_epi8((__m128i)low, (__m128i)high), b = _mm_unpackhi_epi8((__m128i)low, (__m128i)high);
    x[0] = (wide_h)_mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
}
#endif
