#define _GNU_SOURCE
#include "memory_ref.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "support/unwatched.h"

UNWATCHED struct ref_format ref_format_of(int dtype)
{
    switch (dtype) {
    case WEFT_F16: return (struct ref_format){5, 10, false};
    case WEFT_BF16: return (struct ref_format){8, 7, false};
    case WEFT_F32: return (struct ref_format){8, 23, false};
    case WEFT_F64: return (struct ref_format){11, 52, false};
    case WEFT_F8E4M3:
    case WEFT_F8E4M3SAT: return (struct ref_format){4, 3, true};
    default: return (struct ref_format){5, 2, false};
    }
}

uint64_t ref_load(int dtype, const void *p)
{
    uint64_t u = 0;
    memcpy(&u, p, weft_dtype_size(dtype)); /* little-endian, as weft's targets are */
    return u;
}

/* The value of a code without its sign as if every exponent were an ordinary one. */
UNWATCHED static long double ref_compute(struct ref_format f, uint64_t code)
{
    int bias = (1 << (f.exp - 1)) - 1, e = (int)(code >> f.mant);
    uint64_t m = code & ((UINT64_C(1) << f.mant) - 1);
    if (e == 0)
        return ldexpl((long double)m, 1 - bias - f.mant);
    return ldexpl((long double)(m | UINT64_C(1) << f.mant), e - bias - f.mant);
}

UNWATCHED long double ref_magnitude(struct ref_format f, uint64_t code)
{
    static long double *known[16];
    if (f.exp + f.mant > 15)
        return ref_compute(f, code);
    if (!known[f.mant]) { /* no two formats have as many bits of mantissa */
        static long double room[4][32768 + 1];
        static int used;
        known[f.mant] = room[used++];
        for (uint64_t i = 0; i <= UINT64_C(1) << (f.exp + f.mant); i++)
            known[f.mant][i] = ref_compute(f, i);
    }
    return known[f.mant][code];
}

UNWATCHED uint64_t ref_end(struct ref_format f)
{
    uint64_t last = ((UINT64_C(1) << f.exp) - 1) << f.mant;
    return f.fn ? last | ((UINT64_C(1) << f.mant) - 1) : last;
}

UNWATCHED struct ref ref_decode(int dtype, const void *p)
{
    uint64_t u = ref_load(dtype, p);
    int bits = (int)(8 * weft_dtype_size(dtype));
    struct ref r = {0};
    if (!dtype_is_float(dtype)) {
        if (dtype == WEFT_BOOL)
            u = u != 0;
        r.integer = true;
        r.neg = dtype_is_signed(dtype) && u >> (bits - 1);
        r.word = r.neg && bits < 64 ? u | UINT64_MAX << bits : u;
        r.x = r.neg ? -(long double)(0 - r.word) : (long double)r.word;
        return r;
    }
    if (dtype == WEFT_F8E8M0) {
        r.nan = u == 255;
        r.x = r.nan ? 0 : ldexpl(1, (int)u - 127);
        return r;
    }
    struct ref_format f = ref_format_of(dtype);
    uint64_t code = u & ~(UINT64_C(1) << (bits - 1)), end = ref_end(f);
    r.neg = u >> (bits - 1);
    r.nan = f.fn ? code >= end : code > end;
    r.x = r.nan ? 0 : !f.fn && code == end ? HUGE_VALL : ref_magnitude(f, code);
    r.x = r.neg ? -r.x : r.x;
    return r;
}

/* The largest code whose value is not above x (x >= 0, finite or not). */
UNWATCHED static uint64_t ref_below(struct ref_format f, long double x)
{
    uint64_t lo = 0, hi = ref_end(f); /* value(lo) <= x, and x < value(hi) or hi is the end */
    while (hi - lo > 1) {
        uint64_t mid = lo + (hi - lo) / 2;
        if (ref_magnitude(f, mid) <= x)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

UNWATCHED static uint64_t ref_encode_float(int dtype, struct ref r)
{
    struct ref_format f = ref_format_of(dtype);
    uint64_t end = ref_end(f), sign = r.neg ? UINT64_C(1) << (f.exp + f.mant) : 0;
    if (r.nan)
        return sign | (f.fn ? end : end | UINT64_C(1) << (f.mant - 1));
    long double x = r.neg ? -r.x : r.x;
    uint64_t lo = ref_below(f, x);
    long double a = ref_magnitude(f, lo), middle = a + (ref_magnitude(f, lo + 1) - a) / 2;
    bool up = x > middle || (x == middle && (lo & 1));
    bool saturates = dtype == WEFT_F8E4M3SAT || dtype == WEFT_F8E5M2SAT;
    return sign | (saturates && lo + up == end ? lo : lo + up);
}

/* The power of two that PyTorch chooses: the sign is dropped, 1.5 times a power and more rounds up, and below 2^-126
 * everything beyond 2^-127 rounds up. */
UNWATCHED static uint64_t ref_encode_power(struct ref r)
{
    long double x = r.x < 0 ? -r.x : r.x;
    if (r.nan || x >= ldexpl(1, 128))
        return 255;
    if (x < ldexpl(1, -126))
        return x > ldexpl(1, -127);
    int e = ilogbl(x);
    return (uint64_t)(e + 127 + (x >= ldexpl(3, e - 1)));
}

UNWATCHED static uint64_t ref_encode_int(int dtype, struct ref r)
{
    int bits = (int)(8 * weft_dtype_size(dtype));
    uint64_t mask = UINT64_MAX >> (64 - bits);
    if (r.integer)
        return r.word & mask;
    if (r.nan)
        return 0;
    bool has_sign = dtype_is_signed(dtype);
    uint64_t most = has_sign ? mask >> 1 : mask;
    long double low = has_sign ? -ldexpl(1, bits - 1) : 0, x = truncl(r.x);
    if (x >= (long double)most)
        return most;
    if (x <= low)
        return has_sign ? most + 1 : 0;
    return (x < 0 ? 0 - (uint64_t)-x : (uint64_t)x) & mask;
}

UNWATCHED uint64_t ref_encode(int dtype, struct ref r)
{
    if (dtype == WEFT_BOOL)
        return r.nan || r.x != 0;
    if (dtype == WEFT_F8E8M0)
        return ref_encode_power(r);
    return dtype_is_float(dtype) ? ref_encode_float(dtype, r) : ref_encode_int(dtype, r);
}

UNWATCHED bool ref_same(int dtype, uint64_t a, uint64_t b)
{
    if (a == b)
        return true;
    struct ref x = ref_decode(dtype, &a), y = ref_decode(dtype, &b);
    return x.nan && y.nan && x.neg == y.neg;
}

UNWATCHED uint64_t ref_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}
