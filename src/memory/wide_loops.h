/* Narrow floats sixteen at a time: how they are loaded and stored, and casts among them and f32. Every step works on
 * whole vectors, the last one of a run too. The rules are those of half.h. */
#ifndef WEFT_MEMORY_WIDE_LOOPS_H
#define WEFT_MEMORY_WIDE_LOOPS_H
#include <string.h>

#include "memory/cast.h"
#include "memory/half.h"
#include "memory/line.h"

enum { STEP = 16, LINE = 64 /* bytes of a cache line */ };

/* Elements by their type's name, for the macros below. */
enum { size_i64 = 8, size_u64 = 8, size_f64 = 8, size_i32 = 4, size_u32 = 4, size_f32 = 4 };
enum { size_f16 = 2, size_bf16 = 2, size_f8e4m3 = 1, size_f8e5m2 = 1 };
enum { size_f8e4m3sat = 1, size_f8e5m2sat = 1, size_f8e8m0 = 1 };

/* Bits of a where the mask has ones, otherwise bits of b. */
RAW_INLINE wide_u wide_pick(wide_u mask, wide_u a, wide_u b)
{
    return b ^ ((a ^ b) & mask);
}

RAW_INLINE wide_b wide_pick8(wide_b mask, wide_b a, wide_b b)
{
    return b ^ ((a ^ b) & mask);
}

RAW_INLINE wide_h wide_pick16(wide_h mask, wide_h a, wide_h b)
{
    return b ^ ((a ^ b) & mask);
}

RAW_INLINE void load_f32(wide_f *x, const unsigned char *p)
{
    for (int i = 0; i < WIDE; i++)
        x[i] = wide_load(p + i * (int)sizeof(wide_f));
}

RAW_INLINE void store_f32(unsigned char *p, const wide_f *x)
{
    for (int i = 0; i < WIDE; i++)
        wide_store(p + i * (int)sizeof(wide_f), x[i]);
}

RAW_INLINE void load_f16(wide_f *x, const unsigned char *p)
{
    wide_h h[WIDE_HALVES];
    wide_load16(h, p);
    wide_from_f16(x, h);
}

RAW_INLINE void store_f16(unsigned char *p, const wide_f *x)
{
    wide_h h[WIDE_HALVES];
    wide_to_f16(h, x);
    wide_store16(p, h);
}

/* From bf16. */
RAW_INLINE void wide_from_codes(wide_f *x, const wide_h *h)
{
    wide_u u[WIDE];
    wide_raise(u, h);
    for (int i = 0; i < WIDE; i++)
        x[i] = (wide_f)u[i];
}

/* NaNs as they are, quiet or not. */
RAW_INLINE void load_any_bf16(wide_f *x, const unsigned char *p)
{
    wide_h h[WIDE_HALVES];
    wide_load16(h, p);
    wide_from_codes(x, h);
}

RAW_INLINE void load_bf16(wide_f *x, const unsigned char *p)
{
    wide_h h[WIDE_HALVES];
    wide_load16(h, p);
    for (int i = 0; i < WIDE_HALVES; i++)
        h[i] |= (wide_h)(h[i] + h[i] > 0xff00) & 0x40;
    wide_from_codes(x, h);
}

#if defined(__x86_64__)
/* The upper halves, rounded to nearest even. */
RAW_INLINE void wide_round(wide_h *h, const wide_u *x)
{
    wide_u r[WIDE];
    for (int i = 0; i < WIDE; i++)
        r[i] = x[i] + 0x7fff + (x[i] >> 16 & 1);
    wide_upper(h, r);
}

/* f32 that are the f8 times 2^(bias - 15). The code of an f8 is shifted up to where f16 has its mantissa. That way no
 * f32 is subnormal, since a program may have switched these off. */
RAW_INLINE void wide_scaled_f8(wide_f *x, wide_b c, int mant)
{
    const wide_h signs = (wide_h)_mm256_cvtepi8_epi16((__m128i)c), h = mant == 3 ? signs << 7 & 0xbfff : signs << 8;
    wide_from_f16(x, &h);
}
#endif

#ifndef WIDE_TO_BF16
RAW_INLINE void wide_to_bf16(wide_h *h, const wide_f *x)
{
    wide_u u[WIDE];
    for (int i = 0; i < WIDE; i++) /* rounding leaves a NaN as it is if its lower half is 0 */
        u[i] = wide_pick((wide_u)(x[i] == x[i]), (wide_u)x[i], ((wide_u)x[i] & 0xffff0000) | 0x00400000);
    wide_round(h, u);
}
#endif

RAW_INLINE void store_bf16(unsigned char *p, const wide_f *x)
{
    wide_h h[WIDE_HALVES];
    wide_to_bf16(h, x);
    wide_store16(p, h);
}

#ifndef WIDE_TO_BF16
/* The same if there is no NaN. */
RAW_INLINE void store_numbers_bf16(unsigned char *p, const wide_f *x)
{
    wide_h h[WIDE_HALVES];
    wide_u u[WIDE];
    for (int i = 0; i < WIDE; i++)
        u[i] = (wide_u)x[i];
    wide_round(h, u);
    wide_store16(p, h);
}
#endif

/* ---- f8 ---- */

/* All values of f8 are values of f16 and of bf16. Codes are widened in bytes: exponent and mantissa are shifted, by
 * `up` into the lower byte and by `down` into the upper one, where the exponent gets another bias. The codes from
 * -`first` to 15 - `first`, without their sign, are looked up instead: infinity and NaN, which are the last ones, and
 * the subnormals. */
struct wide_codes {
    int up, down, bias, first;
    wide_b low, high; /* of the codes that are looked up */
};

RAW_INLINE void wide_from_f8(wide_h *h, const unsigned char *p, const struct wide_codes *t)
{
    wide_b c = wide_load8(p), i = (c + (uint8_t)t->first) & 0x7f;
    wide_b low = t->up < 8 ? c << t->up : c ^ c, high = ((c + c) >> (t->down + 1)) + (uint8_t)t->bias;
    low = wide_look_up(low, t->low, i);
    high = wide_look_up(high, t->high, i);
    wide_join(h, low, wide_pick8((wide_b){0} + 0x80, c, high));
}

/* To bf16. */
RAW_INLINE void codes_f8e4m3(wide_h *h, const unsigned char *p)
{
    static const struct wide_codes to_bf16 = {
        4,
        4,
        0x3c,
        1,
        {0xc0, 0, 0, 0x80, 0xc0, 0, 0x20, 0x40, 0x60, 0x80, 0x90, 0xa0, 0xb0, 0xc0, 0xd0, 0xe0},
        {0x7f, 0, 0x3b, 0x3b, 0x3b, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c},
    };
    wide_from_f8(h, p, &to_bf16);
}

RAW_INLINE void codes_f8e5m2(wide_h *h, const unsigned char *p)
{
    static const struct wide_codes to_bf16 = {
        5,
        3,
        0x38,
        4,
        {0x80, 0xe0, 0xc0, 0xe0, 0, 0x80, 0, 0x40, 0x80, 0xa0, 0xc0, 0xe0, 0, 0x20, 0x40, 0x60},
        {0x7f, 0x7f, 0x7f, 0x7f, 0, 0x37, 0x38, 0x38, 0x38, 0x38, 0x38, 0x38, 0x39, 0x39, 0x39, 0x39},
    };
    wide_from_f8(h, p, &to_bf16);
}

/* To f16. */
RAW_INLINE void halves_f8e4m3(wide_h *h, const unsigned char *p)
{
    static const struct wide_codes to_f16 = {
        7,
        1,
        0x20,
        1,
        {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0x80, 0, 0x80, 0},
        {0x7e, 0, 0x18, 0x1c, 0x1e, 0x20, 0x21, 0x22, 0x23, 0x24, 0x24, 0x25, 0x25, 0x26, 0x26, 0x27},
    };
    wide_from_f8(h, p, &to_f16);
}

/* f8e5m2 is the upper byte of an f16. A NaN becomes quiet. */
RAW_INLINE void halves_f8e5m2(wide_h *h, const unsigned char *p)
{
    const wide_b c = wide_load8(p);
    wide_join(h, (wide_b){0}, c | ((wide_b)(c + c > 0xf8) & 2));
}

#if defined(__x86_64__)
RAW_INLINE void load_f8e4m3(wide_f *x, const unsigned char *p)
{
    wide_scaled_f8(x, wide_load8(p), 3);
    for (int i = 0; i < WIDE; i++) {
        const wide_u u = (wide_u)(x[i] * 256);
        x[i] = (wide_f)(u ^ ((wide_u)((u & 0x7fffffff) == 0x43f00000) & (0x43f00000 ^ 0x7fc00000))); /* 480 is NaN */
    }
}
#else
RAW_INLINE void load_f8e4m3(wide_f *x, const unsigned char *p)
{
    wide_h h[WIDE_HALVES];
    codes_f8e4m3(h, p);
    wide_from_codes(x, h);
}
#endif

RAW_INLINE void load_f8e5m2(wide_f *x, const unsigned char *p)
{
    wide_h h[WIDE_HALVES];
    wide_join(h, (wide_b){0}, wide_load8(p));
    wide_from_f16(x, h);
}

/* As in half_to_f8e8m0, on the upper halves of f32 without their sign. The bit that this leaves free says whether
 * anything was cut off. */
RAW_INLINE void wide_powers(unsigned char *p, const wide_h *x)
{
    wide_h v[WIDE_HALVES];
    for (int i = 0; i < WIDE_HALVES; i++) {
        wide_h a = x[i] - wide_minus(x[i], (wide_h){0} + 0xff00);
        v[i] = a + 0x7f - (wide_h)(a > 0xff);
    }
    wide_store8(p, wide_high_bytes(v));
}

#if defined(__x86_64__)
/* A sum with a power of two, whose last place is that of the result, rounds |x|. That power is 23 - mant above the one
 * of x or, if this is more, of the smallest normal value. The lower byte of the sum is then the mantissa with its first
 * bit, if it has one, plus what is left of `magic`. The exponent is added to that. */
RAW_INLINE void store_f8(unsigned char *p, const wide_f *x, struct half_format f)
{
    const int drop = 23 - f.mant;
    const uint32_t least = (uint32_t)(128 - f.bias) << 23;      /* smallest normal value, */
    const uint32_t most = (f.inf << drop) + least - (1u << 23); /* and what is too large, or a NaN, becomes this */
    const uint32_t magic = ((uint32_t)drop << 23) + (-(least >> drop) & 0xff);
    wide_u code[WIDE];
    for (int i = 0; i < WIDE; i++) {
        const wide_u u = (wide_u)x[i], a = wide_min32(u & 0x7fffffff, (wide_u){0} + most);
        const wide_u power = wide_max32(a & 0x7f800000, (wide_u){0} + least);
        code[i] = (wide_u)((wide_f)a + (wide_f)(power + magic)) + (power >> drop);
        if (f.inf != f.nan)
            code[i] ^= (wide_u)(x[i] != x[i]) & (f.inf ^ f.nan);
        code[i] = wide_pick((wide_u){0} + 0x80, u >> 24, code[i]);
    }
    wide_store8(p, wide_lowest(code));
}

/* Of values as wide_scaled_f8 makes them. What is too large gets the code `most`. */
#define WIDE_SCALES_F8(by) true
#define WIDE_SCALES_NAN(mant) ((mant) == 2)
RAW_INLINE void wide_store_scaled_f8(unsigned char *p, const wide_f *x, int mant, uint8_t most)
{
    store_f8(p, x, (struct half_format){.mant = mant, .bias = 15, .inf = most, .nan = most});
}

/* As in half_to_f8e8m0: half a step rounds up, except 2^-127. */
RAW_INLINE void store_f8e8m0(unsigned char *p, const wide_f *x)
{
    wide_u code[WIDE];
    for (int i = 0; i < WIDE; i++) {
        const wide_u a = wide_min32((wide_u)x[i] & 0x7fffffff, (wide_u){0} + 0x7f800000);
        code[i] = (a + 0x400000 + (wide_u)(a == 0x400000)) >> 23;
    }
    wide_store8(p, wide_lowest(code));
}
#else
/* As in half_narrow, on upper halves as in wide_powers. What is too small for a normal value comes out of the sum with
 * a number whose last place is the smallest step, which is in the middle between two powers of two, so that this holds
 * for differences too. Without `lower`, that is 0. */
RAW_INLINE void wide_to_f8(unsigned char *p, const wide_f *x, const wide_h *high, const wide_h *lower,
                           struct half_format f)
{
    const int drop = 8 - f.mant;
    const uint8_t nan = (uint8_t)(f.inf ^ f.nan); /* a NaN comes out as what is too large */
    const uint16_t bias = (uint16_t)(((127 - f.bias) << 8) - (1 << (drop - 1)) + 1);
    const uint32_t magic = ((uint32_t)(127 + 23 + 1 - f.bias - f.mant) << 23) + (1u << 22);
    wide_h v[WIDE_HALVES], less[WIDE_HALVES], is_nan[WIDE_HALVES];
    wide_u sum[WIDE];
    for (int i = 0; i < WIDE; i++)
        sum[i] = (wide_u)(x[i] + half_float(magic)); /* whose lower half is the mantissa, or minus that */
    wide_lower(less, sum);
    for (int i = 0; i < WIDE_HALVES; i++) {
        wide_h a = lower ? wide_sticky(high[i], lower[i]) : high[i] + high[i];
        v[i] = wide_minus(a, (wide_h){0} + bias) - (wide_h)((a & (uint16_t)(1 << drop)) != 0);
        is_nan[i] = (wide_h)(a > 0xff00);
    }
    wide_b normal = wide_min8(wide_drop(v, drop), (wide_b){0} + (uint8_t)f.inf);
    wide_b r = wide_pick8((wide_b)(normal < (uint8_t)(1 << f.mant)), wide_abs8(wide_bytes(less)), normal);
    if (nan)
        r ^= wide_bytes(is_nan) & nan;
    wide_store8(p, wide_pick8((wide_b){0} + 0x80, wide_high_bytes(high), r));
}

RAW_INLINE void wide_halves(wide_h *high, wide_h *lower, const wide_f *x)
{
    wide_u u[WIDE];
    for (int i = 0; i < WIDE; i++)
        u[i] = (wide_u)x[i];
    wide_upper(high, u);
    wide_lower(lower, u);
}

RAW_INLINE void store_f8(unsigned char *p, const wide_f *x, struct half_format f)
{
    wide_h high[WIDE_HALVES], lower[WIDE_HALVES];
    wide_halves(high, lower, x);
    wide_to_f8(p, x, high, lower, f);
}

#define WIDE_SCALES_NAN(mant) false
RAW_INLINE void wide_store_scaled_f8(unsigned char *p, const wide_f *x, int mant, uint8_t most)
{
    wide_h h[WIDE_HALVES];
    wide_round_f8(h, x, mant);
    const wide_b sign = wide_high_bytes(h);
    for (int i = 0; i < WIDE_HALVES; i++)
        h[i] += h[i];
    const wide_b code = wide_min8(wide_drop(h, WIDE_F8_AT(mant) + 1), (wide_b){0} + most);
    wide_store8(p, wide_pick8((wide_b){0} + 0x80, sign, code));
}

RAW_INLINE void store_f8e8m0(unsigned char *p, const wide_f *x)
{
    wide_h high[WIDE_HALVES], lower[WIDE_HALVES];
    wide_halves(high, lower, x);
    for (int i = 0; i < WIDE_HALVES; i++)
        high[i] = wide_sticky(high[i], lower[i]);
    wide_powers(p, high);
}
#endif

/* From codes of a 16-bit float with `mant` bits of mantissa, if all results are normal values or, where that
 * is the code of a NaN too, too large. Otherwise it returns false and writes nothing. */
RAW_INLINE bool wide_try_f8(unsigned char *p, const wide_h *h, int mant, struct half_format f)
{
    const int drop = mant + 1 - f.mant, gap = mant == 10 ? 15 - f.bias : 127 - f.bias;
    const uint16_t bias = (uint16_t)((gap << (mant + 1)) - (1 << (drop - 1)) + 1);
    const uint8_t least = (uint8_t)(1 << f.mant), most = (uint8_t)(f.inf == f.nan ? f.inf : f.inf - 1);
    wide_h v[WIDE_HALVES];
    for (int i = 0; i < WIDE_HALVES; i++) {
        wide_h a = h[i] + h[i];
        v[i] = wide_minus(a, (wide_h){0} + bias) - (wide_h)((a & (uint16_t)(1 << drop)) != 0);
    }
    wide_b r = wide_min8(wide_drop(v, drop), (wide_b){0} + (uint8_t)f.inf);
    if (wide_any_above8(r - least, (uint8_t)(most - least)))
        return false;
    wide_store8(p, wide_pick8((wide_b){0} + 0x80, wide_high_bytes(h), r));
    return true;
}

#define WIDE_STORE_F8(T, format)                                 \
    RAW_INLINE void store_##T(unsigned char *p, const wide_f *x) \
    {                                                            \
        store_f8(p, x, format);                                  \
    }
WIDE_STORE_F8(f8e4m3, HALF_F8E4M3)
WIDE_STORE_F8(f8e5m2, HALF_F8E5M2)
WIDE_STORE_F8(f8e4m3sat, HALF_F8E4M3SAT)
WIDE_STORE_F8(f8e5m2sat, HALF_F8E5M2SAT)

/* f8e8m0, to and from bf16: its code is the exponent. The first code and the last one have a mantissa. */
RAW_INLINE void codes_f8e8m0(wide_h *h, const unsigned char *p)
{
    wide_b c = wide_load8(p), ends = (wide_b)(c + 1 < 2) & 0x40;
    wide_join(h, c << 7 | ends, c >> 1);
}

RAW_INLINE void load_f8e8m0(wide_f *x, const unsigned char *p)
{
    wide_h h[WIDE_HALVES];
    codes_f8e8m0(h, p);
    wide_from_codes(x, h);
}

/* ---- casts ---- */

#ifdef WIDE_PARTS
/* A short row: the other elements of the step are zeros. */
#define WIDE_SHORT(S, D)                                         \
    do {                                                         \
        unsigned char in[STEP * size_##S], out[STEP * size_##D]; \
        wide_part(in, sizeof in, s, n *size_##S, sizeof in);     \
        if (!S##_try_##D(out, in))                               \
            S##_as_##D(out, in);                                 \
        wide_part(d, n *size_##D, out, sizeof out, sizeof out);  \
    } while (0)
#else
/* A short row: `k` elements from its begin and `k` from its end, which may overlap. */
#define WIDE_ENDS(S, D, k)                                                  \
    do {                                                                    \
        unsigned char in[STEP * size_##S] = {0}, out[STEP * size_##D];      \
        memcpy(in, s, (k)*size_##S);                                        \
        memcpy(in + (k)*size_##S, s + (n - (k)) * size_##S, (k)*size_##S);  \
        if (!S##_try_##D(out, in))                                          \
            S##_as_##D(out, in);                                            \
        memcpy(d, out, (k)*size_##D);                                       \
        memcpy(d + (n - (k)) * size_##D, out + (k)*size_##D, (k)*size_##D); \
    } while (0)
#define WIDE_SHORT(S, D)        \
    do {                        \
        if (n >= 8)             \
            WIDE_ENDS(S, D, 8); \
        else if (n >= 4)        \
            WIDE_ENDS(S, D, 4); \
        else if (n >= 2)        \
            WIDE_ENDS(S, D, 2); \
        else if (n)             \
            WIDE_ENDS(S, D, 1); \
    } while (0)
#endif

/* How many elements further on a long row is prefetched: the hardware of x86-64 stops at the end of each page. Rows of
 * bytes are not, since it keeps up with them. */
#if defined(__x86_64__)
#define WIDE_AHEAD(S) (size_##S > 1 ? STEP + (size_t)(MEMORY_AHEAD / size_##S) : SIZE_MAX / 2)
#else
#define WIDE_AHEAD(S) (SIZE_MAX / 2)
#endif

/* Rows of n elements. S_as_D casts STEP of them. S_try_D does it faster or, if there is a NaN or, to f8, a result that
 * is not normal, does nothing and returns false. These are rare, and to find out that there is none costs less than to
 * select by. The loop has nothing in it that they need. Where there is one, others are near: the next steps are cast
 * without a try. The end of a row is its last STEP elements. Some of these are written twice, unless both
 * sides have elements of one size: such rows may be cast in place, so only what is new is written, by way of the stack.
 * Rows that are shorter than a step have a function of their own, so
 * that the other one needs no register that it would have to save: a store elsewhere ends the write streaming of some
 * cores. */
#define WIDE_ROWS(S, D)                                                                                          \
    static __attribute__((noinline)) void S##_short_##D(unsigned char *d, int64_t dstep, const unsigned char *s, \
                                                        int64_t sstep, size_t n, size_t rows)                    \
    {                                                                                                            \
        for (; rows; rows--, d += dstep, s += sstep)                                                             \
            WIDE_SHORT(S, D);                                                                                    \
    }                                                                                                            \
    static void S##_to_##D(void *dst, int64_t dstep, const void *src, int64_t sstep, size_t n, size_t rows)      \
    {                                                                                                            \
        unsigned char *d = dst, last[STEP * size_##D];                                                           \
        const unsigned char *s = src;                                                                            \
        const size_t rest = n % STEP * size_##D;                                                                 \
        const bool same = (int)size_##S == (int)size_##D;                                                        \
        if (n < STEP) {                                                                                          \
            S##_short_##D(d, dstep, s, sstep, n, rows);                                                          \
            return;                                                                                              \
        }                                                                                                        \
        for (; rows; rows--, d += dstep, s += sstep) {                                                           \
            for (size_t i = 0; i + STEP <= n;) {                                                                 \
                for (; i + WIDE_AHEAD(S) <= n && S##_try_##D(d + i * size_##D, s + i * size_##S); i += STEP)     \
                    for (int b = 0; b < STEP * size_##S; b += LINE)                                              \
                        __builtin_prefetch(s + (i + WIDE_AHEAD(S)) * size_##S + b);                              \
                while (i + STEP <= n && S##_try_##D(d + i * size_##D, s + i * size_##S))                         \
                    i += STEP;                                                                                   \
                for (int k = 0; k < 8 && i + STEP <= n; k++, i += STEP)                                          \
                    S##_as_##D(d + i * size_##D, s + i * size_##S);                                              \
            }                                                                                                    \
            if (rest && !same)                                                                                   \
                S##_as_##D(d + (n - STEP) * size_##D, s + (n - STEP) * size_##S);                                \
            else if (rest) {                                                                                     \
                S##_as_##D(last, s + (n - STEP) * size_##S);                                                     \
                memory_copy_ascending(d + n * size_##D - rest, last + sizeof last - rest, rest);                 \
            }                                                                                                    \
        }                                                                                                        \
    }
#define WIDE_AS(S, D, load)                                              \
    RAW_INLINE void S##_as_##D(unsigned char *d, const unsigned char *s) \
    {                                                                    \
        wide_f x[WIDE];                                                  \
        load(x, s);                                                      \
        store_##D(d, x);                                                 \
    }
#define WIDE_SURE(S, D)                                                   \
    RAW_INLINE bool S##_try_##D(unsigned char *d, const unsigned char *s) \
    {                                                                     \
        S##_as_##D(d, s);                                                 \
        return true;                                                      \
    }                                                                     \
    WIDE_ROWS(S, D)
#define WIDE_CAST(S, D, load) WIDE_AS(S, D, load) WIDE_SURE(S, D)
#ifdef WIDE_TO_BF16
#define WIDE_BF16(S, load) WIDE_CAST(S, bf16, load)
#else
#define WIDE_BF16(S, load)                                                 \
    WIDE_AS(S, bf16, load)                                                 \
    RAW_INLINE bool S##_try_bf16(unsigned char *d, const unsigned char *s) \
    {                                                                      \
        wide_f x[WIDE];                                                    \
        load(x, s);                                                        \
        if (wide_any_nan(x))                                               \
            return false;                                                  \
        store_numbers_bf16(d, x);                                          \
        return true;                                                       \
    }                                                                      \
    WIDE_ROWS(S, bf16)
#endif
/* The load makes NaNs quiet, if there are any. */
#define WIDE_NUMBERS(S, D)                                                \
    WIDE_AS(S, D, load_##S)                                               \
    RAW_INLINE bool S##_try_##D(unsigned char *d, const unsigned char *s) \
    {                                                                     \
        wide_f x[WIDE];                                                   \
        load_any_##S(x, s);                                               \
        if (wide_any_nan(x))                                              \
            return false;                                                 \
        store_##D(d, x);                                                  \
        return true;                                                      \
    }                                                                     \
    WIDE_ROWS(S, D)
/* Stores of narrow floats make NaNs quiet, so that loads need not. */
#define WIDE_NARROW(S, load)      \
    WIDE_CAST(S, f8e4m3, load)    \
    WIDE_CAST(S, f8e5m2, load)    \
    WIDE_CAST(S, f8e4m3sat, load) \
    WIDE_CAST(S, f8e5m2sat, load) \
    WIDE_CAST(S, f8e8m0, load)
WIDE_CAST(f32, f16, load_f32)
WIDE_BF16(f32, load_f32)
#if defined(__aarch64__) && !defined(WIDE_TO_BF16)
/* Rows with gaps between them in src, of whole CAST_PIECEs: CAST_SIDE rows are cast side by side, a piece of each at a
 * time, and what comes next of all of them is prefetched. A Neoverse-N1 reads on behind the end of a row that is read
 * in one go. There may be no memory at the address that is prefetched. */
#define CAST_BESIDE_BF16 f32_beside_bf16
#define CAST_SIDE 4
static void f32_beside_bf16(void *dst, int64_t dstep, const void *src, int64_t sstep, size_t n, size_t rows)
{
    for (size_t r = 0; r < rows; r += CAST_SIDE) {
        const size_t end = rows - r < CAST_SIDE ? rows : r + CAST_SIDE;
        for (size_t at = 0; at < n; at += CAST_PIECE)
            for (size_t k = r; k < end; k++) {
                const unsigned char *s = (const unsigned char *)src + (int64_t)k * sstep + 4 * at;
                unsigned char *d = (unsigned char *)dst + (int64_t)k * dstep + 2 * at;
                const uintptr_t next =
                    (uintptr_t)s + (at + CAST_PIECE < n ? 4 * CAST_PIECE : (uintptr_t)(CAST_SIDE * sstep) - 4 * at);
                for (int line = 0; line < 4 * CAST_PIECE; line += 64)
                    __builtin_prefetch((const void *)(next + (uintptr_t)line), 0, 3);
                RAW_UNROLL
                for (int i = 0; i < CAST_PIECE; i += STEP)
                    if (!f32_try_bf16(d + 2 * i, s + 4 * i))
                        f32_as_bf16(d + 2 * i, s + 4 * i);
            }
    }
}
#undef CAST_SIDE
#endif
WIDE_NARROW(f32, load_f32)
WIDE_CAST(f16, f32, load_f16)
WIDE_BF16(f16, load_f16)
WIDE_CAST(f16, f8e8m0, load_f16)
WIDE_NUMBERS(bf16, f32)
WIDE_CAST(bf16, f16, load_any_bf16)
WIDE_CAST(f8e4m3, f32, load_f8e4m3)
WIDE_CAST(f8e5m2, f32, load_f8e5m2)
WIDE_CAST(f8e8m0, f32, load_f8e8m0)
WIDE_CAST(f8e8m0, f16, load_f8e8m0)
#ifdef WIDE_ODD
WIDE_CAST(f16, f64, load_f16)
WIDE_NUMBERS(bf16, f64)
WIDE_CAST(f8e4m3, f64, load_f8e4m3)
WIDE_CAST(f8e5m2, f64, load_f8e5m2)
WIDE_CAST(f8e8m0, f64, load_f8e8m0)
#define WIDE_ODD_CASTS(S)       \
    WIDE_CAST(S, f16, load_##S) \
    WIDE_BF16(S, load_##S)      \
    WIDE_NARROW(S, load_##S)
WIDE_ODD_CASTS(f64)
WIDE_ODD_CASTS(i64)
WIDE_ODD_CASTS(u64)
WIDE_ODD_CASTS(i32)
WIDE_ODD_CASTS(u32)
#endif

#define WIDE_CODES(S, D, codes)                                          \
    RAW_INLINE void S##_as_##D(unsigned char *d, const unsigned char *s) \
    {                                                                    \
        wide_h h[WIDE_HALVES];                                           \
        codes(h, s);                                                     \
        wide_store16(d, h);                                              \
    }                                                                    \
    WIDE_SURE(S, D)
WIDE_CODES(f8e4m3, bf16, codes_f8e4m3)
WIDE_CODES(f8e5m2, bf16, codes_f8e5m2)
WIDE_CODES(f8e8m0, bf16, codes_f8e8m0)
WIDE_CODES(f8e4m3, f16, halves_f8e4m3)
WIDE_CODES(f8e5m2, f16, halves_f8e5m2)

#if defined(__x86_64__)
#define WIDE_BF16_TO(D, format) WIDE_AS(bf16, D, load_any_bf16)
#else
#define WIDE_BF16_TO(D, format)                                           \
    RAW_INLINE void bf16_as_##D(unsigned char *d, const unsigned char *s) \
    {                                                                     \
        wide_f x[WIDE];                                                   \
        wide_h h[WIDE_HALVES];                                            \
        wide_load16(h, s);                                                \
        wide_from_codes(x, h);                                            \
        wide_to_f8(d, x, h, NULL, format);                                \
    }
#endif
WIDE_BF16_TO(f8e4m3, HALF_F8E4M3)
WIDE_BF16_TO(f8e5m2, HALF_F8E5M2)
WIDE_BF16_TO(f8e4m3sat, HALF_F8E4M3SAT)
WIDE_BF16_TO(f8e5m2sat, HALF_F8E5M2SAT)
WIDE_SURE(bf16, f8e4m3)
WIDE_SURE(bf16, f8e4m3sat)
#define WIDE_TRY_F8(S, D, mant, format)                                   \
    RAW_INLINE bool S##_try_##D(unsigned char *d, const unsigned char *s) \
    {                                                                     \
        wide_h h[WIDE_HALVES];                                            \
        wide_load16(h, s);                                                \
        return wide_try_f8(d, h, mant, format);                           \
    }                                                                     \
    WIDE_ROWS(S, D)
WIDE_TRY_F8(bf16, f8e5m2, 7, HALF_F8E5M2)
WIDE_TRY_F8(bf16, f8e5m2sat, 7, HALF_F8E5M2SAT)
WIDE_AS(f16, f8e4m3, load_f16)
WIDE_AS(f16, f8e4m3sat, load_f16)
WIDE_TRY_F8(f16, f8e4m3, 10, HALF_F8E4M3)
WIDE_TRY_F8(f16, f8e4m3sat, 10, HALF_F8E4M3SAT)

/* To f8e8m0. From f8 the exponent is rounded up by the mantissa; subnormals, infinity and NaN are looked up. `first` is
 * as in wide_codes. */
RAW_INLINE void bf16_as_f8e8m0(unsigned char *d, const unsigned char *s)
{
    wide_h h[WIDE_HALVES];
    wide_load16(h, s);
    for (int i = 0; i < WIDE_HALVES; i++)
        h[i] += h[i];
    wide_powers(d, h);
}
WIDE_SURE(bf16, f8e8m0)

#define WIDE_TO_POWERS(S, mant, bias, first, ...)                                          \
    RAW_INLINE void S##_as_f8e8m0(unsigned char *d, const unsigned char *s)                \
    {                                                                                      \
        static const wide_b looked_up = {__VA_ARGS__};                                     \
        const wide_b c = wide_load8(s), r = ((c & 0x7f) + (1 << ((mant)-1))) >> (mant);    \
        wide_store8(d, wide_look_up(r + (127 - (bias)), looked_up, (c + (first)) & 0x7f)); \
    }                                                                                      \
    WIDE_SURE(S, f8e8m0)
WIDE_TO_POWERS(f8e4m3, 3, 7, 1, 255, 0, 118, 119, 120, 120, 120, 121, 121, 121, 121, 121, 121, 122, 122, 122)
WIDE_TO_POWERS(f8e5m2, 2, 15, 4, 255, 255, 255, 255, 0, 111, 112, 113, 113, 113, 114, 114, 114, 114, 115, 115)

/* f8e5m2 has the exponents of f16: the lower byte is rounded off. `most` is the code of what is too large. */
RAW_INLINE void f16_to_upper(unsigned char *d, const unsigned char *s, uint8_t most)
{
    wide_h h[WIDE_HALVES], r[WIDE_HALVES], nan[WIDE_HALVES];
    wide_load16(h, s);
    for (int i = 0; i < WIDE_HALVES; i++) {
        wide_h a = h[i] & 0x7fff;
        r[i] = a + 0x7f + (a >> 8 & 1);
        nan[i] = (wide_h)(a > 0x7c00);
    }
    wide_b code = wide_min8(wide_high_bytes(r), (wide_b){0} + most);
    code = wide_pick8(wide_bytes(nan), (wide_b){0} + 0x7e, code);
    wide_store8(d, wide_pick8((wide_b){0} + 0x80, wide_high_bytes(h), code));
}

/* The same if no result can be too large. */
RAW_INLINE bool f16_try_upper(unsigned char *d, const unsigned char *s)
{
    wide_h h[WIDE_HALVES], r[WIDE_HALVES];
    wide_load16(h, s);
    for (int i = 0; i < WIDE_HALVES; i++)
        r[i] = h[i] + 0x7f - (wide_h)((h[i] & 0x100) != 0);
    const wide_b upper = wide_high_bytes(h);
    if (wide_any_above8(upper + upper, 2 * 0x7a))
        return false;
    wide_store8(d, wide_high_bytes(r));
    return true;
}

#define WIDE_UPPER(D, most)                                               \
    RAW_INLINE void f16_as_##D(unsigned char *d, const unsigned char *s)  \
    {                                                                     \
        f16_to_upper(d, s, most);                                         \
    }                                                                     \
    RAW_INLINE bool f16_try_##D(unsigned char *d, const unsigned char *s) \
    {                                                                     \
        return f16_try_upper(d, s);                                       \
    }                                                                     \
    WIDE_ROWS(f16, D)
WIDE_UPPER(f8e5m2, 0x7c)
WIDE_UPPER(f8e5m2sat, 0x7b)

/* Between the two f8 the exponent's bias differs by 8 and the mantissa by a bit. Codes that are subnormal in f8e4m3,
 * and others up to 16, are looked up. */
RAW_INLINE void f8e4m3_as_f8e5m2(unsigned char *d, const unsigned char *s)
{
    static const wide_b first = {0x7e, 0, 24, 28, 30, 32, 33, 34, 35, 36, 36, 37, 38, 38, 38, 39};
    wide_b c = wide_load8(s), r = wide_halve(c & 0x7f) + 32;
    wide_store8(d, wide_pick8((wide_b){0} + 0x80, c, wide_look_up(r, first, (c + 1) & 0x7f)));
}
WIDE_SURE(f8e4m3, f8e5m2)

RAW_INLINE void f8e5m2_to_other(unsigned char *d, const unsigned char *s, uint8_t most)
{
    static const wide_b first = {0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 4, 4, 5, 6, 7}; /* from code 20 on */
    wide_b c = wide_load8(s), a = c & 0x7f, r = wide_min8(c + c, (wide_b){0} + (uint8_t)(64 + most));
    r = wide_minus8(r, (wide_b){0} + 64);
    if (most != 0x7f)
        r |= (wide_b)(a > 0x7c) & 1; /* a NaN has all bits */
    wide_store8(d, wide_pick8((wide_b){0} + 0x80, c, wide_look_up(r, first, a - 20)));
}

RAW_INLINE void f8e5m2_as_f8e4m3(unsigned char *d, const unsigned char *s)
{
    f8e5m2_to_other(d, s, 0x7f);
}
WIDE_SURE(f8e5m2, f8e4m3)

RAW_INLINE void f8e5m2_as_f8e4m3sat(unsigned char *d, const unsigned char *s)
{
    f8e5m2_to_other(d, s, 0x7e);
}
WIDE_SURE(f8e5m2, f8e4m3sat)

#endif
