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

/* A part of a step of `most` bytes, which is less than it where a row is short: masks leave out the other bytes, in
 * memory too. */
#define WIDE_PARTS
RAW_INLINE __mmask64 wide_first(size_t bytes, size_t at)
{
    const size_t end = bytes < at ? at : bytes, k = end - at < 64 ? end - at : 64;
    return (UINT64_C(1) << k / 2 << (k - k / 2)) - 1; /* without a branch */
}

RAW_INLINE void wide_part(unsigned char *to, size_t write, const unsigned char *from, size_t read, const size_t most)
{
    for (size_t at = 0; at < most; at += 64) {
        const __mmask64 in = wide_first(read, at), out = wide_first(write, at);
        if (most >= 64)
            _mm512_mask_storeu_epi8(to + at, out, _mm512_maskz_loadu_epi8(in, from + at));
        else if (most == 32)
            _mm256_mask_storeu_epi8(to, (__mmask32)out, _mm256_maskz_loadu_epi8((__mmask32)in, from));
        else
            _mm_mask_storeu_epi8(to, (__mmask16)out, _mm_maskz_loadu_epi8((__mmask16)in, from));
    }
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

/* The lowest bytes of 32-bit values. */
RAW_INLINE wide_b wide_lowest(const wide_u *x)
{
    return (wide_b)_mm512_cvtepi32_epi8((__m512i)x[0]);
}

RAW_INLINE wide_u wide_min32(wide_u a, wide_u b)
{
    return (wide_u)_mm512_min_epu32((__m512i)a, (__m512i)b);
}

RAW_INLINE wide_u wide_max32(wide_u a, wide_u b)
{
    return (wide_u)_mm512_max_epu32((__m512i)a, (__m512i)b);
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

RAW_INLINE void wide_to_f16(wide_h *h, const wide_f *x)
{
    h[0] = (wide_h)_mm512_cvtps_ph((__m512)x[0], _MM_FROUND_TO_NEAREST_INT);
}

/* f64 and wide integers, rounded to odd: cut off, and the last bit is set if that lost anything. */
#define WIDE_ODD
#define WIDE_CUT _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC
#define WIDE_LOAD_64(S, V, narrow, widen, differs)                                             \
    RAW_INLINE void load_##S(wide_f *x, const unsigned char *p)                                \
    {                                                                                          \
        const V a = (V)_mm512_loadu_si512(p), b = (V)_mm512_loadu_si512(p + 64);               \
        const __m256 low = narrow(a, WIDE_CUT), high = narrow(b, WIDE_CUT);                    \
        const unsigned lost = (unsigned)differs(widen(high), b) << 8 | differs(widen(low), a); \
        const __m512i u = (__m512i)_mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);   \
        x[0] = (wide_f)_mm512_mask_or_epi32(u, (__mmask16)lost, u, _mm512_set1_epi32(1));      \
    }
#define WIDE_DIFFERS(a, b) _mm512_cmp_pd_mask(a, b, _CMP_NEQ_UQ)
WIDE_LOAD_64(f64, __m512d, _mm512_cvt_roundpd_ps, _mm512_cvtps_pd, WIDE_DIFFERS)
WIDE_LOAD_64(i64, __m512i, _mm512_cvt_roundepi64_ps, _mm512_cvttps_epi64, _mm512_cmpneq_epi64_mask)
WIDE_LOAD_64(u64, __m512i, _mm512_cvt_roundepu64_ps, _mm512_cvttps_epu64, _mm512_cmpneq_epi64_mask)

#define WIDE_LOAD_32(S, narrow, widen)                                             \
    RAW_INLINE void load_##S(wide_f *x, const unsigned char *p)                    \
    {                                                                              \
        const __m512i a = _mm512_loadu_si512(p), u = (__m512i)narrow(a, WIDE_CUT); \
        const __mmask16 lost = _mm512_cmpneq_epi32_mask(widen((__m512)u), a);      \
        x[0] = (wide_f)_mm512_mask_or_epi32(u, lost, u, _mm512_set1_epi32(1));     \
    }
WIDE_LOAD_32(i32, _mm512_cvt_roundepi32_ps, _mm512_cvttps_epi32)
WIDE_LOAD_32(u32, _mm512_cvt_roundepu32_ps, _mm512_cvttps_epu32)

RAW_INLINE void store_f64(unsigned char *p, const wide_f *x)
{
    _mm512_storeu_pd(p, _mm512_cvtps_pd(_mm512_castps512_ps256((__m512)x[0])));
    _mm512_storeu_pd(p + 64, _mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)x[0], 1)));
}
#endif
