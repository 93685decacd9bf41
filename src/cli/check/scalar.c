/* The arithmetic of one value; see scalar.h. All rounding goes through round_parts, which takes an exact integer
 * mantissa and an exponent and returns the nearest value of the format, ties to even. */
#include "cli/check/scalar.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct format {
    int mbits, bias; /* mantissa bits that are stored; exponent bias */
    int emax;        /* largest exponent of a finite value */
    uint64_t max;    /* codes: the largest finite value, infinity (0: there is none), a NaN */
    uint64_t inf, nan;
    bool sat; /* what is too large becomes the largest finite value */
};

static const struct format *format_of(int dtype)
{
    static const struct format f16 = {10, 15, 15, 0x7bff, 0x7c00, 0x7e00, false};
    static const struct format bf16 = {7, 127, 127, 0x7f7f, 0x7f80, 0x7fc0, false};
    static const struct format f32 = {23, 127, 127, 0x7f7fffff, 0x7f800000, 0x7fc00000, false};
    static const struct format f64 = {
        52,   1023, 1023, UINT64_C(0x7fefffffffffffff), UINT64_C(0x7ff0000000000000), UINT64_C(0x7ff8000000000000),
        false};
    static const struct format e4m3 = {3, 7, 8, 0x7e, 0, 0x7f, false}, e4m3sat = {3, 7, 8, 0x7e, 0, 0x7f, true};
    static const struct format e5m2 = {2, 15, 15, 0x7b, 0x7c, 0x7e, false};
    static const struct format e5m2sat = {2, 15, 15, 0x7b, 0x7c, 0x7e, true};
    static const struct format e8m0 = {0, 127, 127, 0xfe, 0, 0xff, false}; /* no sign, no mantissa: powers of two */
    switch (dtype) {
    case WEFT_F16: return &f16;
    case WEFT_BF16: return &bf16;
    case WEFT_F32: return &f32;
    case WEFT_F64: return &f64;
    case WEFT_F8E4M3: return &e4m3;
    case WEFT_F8E5M2: return &e5m2;
    case WEFT_F8E4M3SAT: return &e4m3sat;
    case WEFT_F8E5M2SAT: return &e5m2sat;
    case WEFT_F8E8M0: return &e8m0;
    default: return NULL;
    }
}

bool scalar_is_float(int dtype)
{
    return format_of(dtype) != NULL;
}

int scalar_part(int dtype)
{
    return dtype == WEFT_C64 ? WEFT_F32 : dtype == WEFT_C128 ? WEFT_F64 : dtype;
}

static bool is_complex(int dtype)
{
    return scalar_part(dtype) != dtype;
}

static bool is_signed(int dtype)
{
    return dtype == WEFT_I8 || dtype == WEFT_I16 || dtype == WEFT_I32 || dtype == WEFT_I64;
}

static int width_bits(int dtype)
{
    return dtype == WEFT_BOOL ? 1 : (int)weft_dtype_size(dtype) * 8;
}

static uint64_t sign_bit(int dtype)
{
    return dtype == WEFT_F8E8M0 ? 0 : UINT64_C(1) << (width_bits(dtype) - 1);
}

int scalar_acc(int dtype)
{
    return scalar_is_float(dtype) && dtype != WEFT_F64 ? WEFT_F32 : dtype;
}

int scalar_finished(int src, int dst)
{
    return weft_dtype_size(dst) < weft_dtype_size(src) ? dst : src;
}

/* The low bits of v as a value of an integer dtype. */
static uint64_t wrap(int dtype, uint64_t v)
{
    int bits = width_bits(dtype);
    if (bits == 64)
        return v;
    uint64_t low = v & ((UINT64_C(1) << bits) - 1);
    return is_signed(dtype) && low & sign_bit(dtype) ? low | ~UINT64_C(0) << bits : low;
}

static double decode(int dtype, const struct format *f, uint64_t code)
{
    uint64_t s = sign_bit(dtype), body = code & (s - 1);
    uint64_t m = body & ((UINT64_C(1) << f->mbits) - 1);
    int e = (int)(body >> f->mbits);
    double v;
    if (f->inf && body == f->inf)
        v = INFINITY;
    else if (body > f->max)
        v = NAN;
    else if (e == 0 && f->mbits)
        v = ldexp((double)m, 1 - f->bias - f->mbits);
    else
        v = ldexp((double)(m | UINT64_C(1) << f->mbits), e - f->bias - f->mbits);
    return code & s ? -v : v;
}

static uint64_t encode(int dtype, const struct format *f, double v)
{
    uint64_t s = signbit(v) ? sign_bit(dtype) : 0;
    if (isnan(v))
        return f->nan;
    if (isinf(v))
        return s | f->inf;
    if (v == 0)
        return s;
    int e = ilogb(v);
    if (e < 1 - f->bias)
        return s | (uint64_t)ldexp(fabs(v), f->bias - 1 + f->mbits);
    uint64_t m = (uint64_t)ldexp(fabs(v), f->mbits - e);
    return s | (uint64_t)(e + f->bias) << f->mbits | (m ^ UINT64_C(1) << f->mbits);
}

/* The power of two that stands for mant * 2^exp: one and a half of a power and more rounds up. Below 2^-126, everything
 * beyond 2^-127 rounds up. */
static double round_power(uint64_t mant, int exp)
{
    if (mant == 0)
        return ldexp(1, -127);
    int bits = 63 - __builtin_clzll(mant), top = bits + exp;
    bool power = (mant & (mant - 1)) == 0, up = bits > 0 && mant >> (bits - 1) & 1;
    if (top < -126)
        return ldexp(1, top == -127 && !power ? -126 : -127);
    return top + up > 127 ? (double)NAN : ldexp(1, top + up);
}

/* The value of format f nearest to (-1)^neg * mant * 2^exp. */
static double round_parts(const struct format *f, bool neg, uint64_t mant, int exp)
{
    if (!f->mbits)
        return round_power(mant, exp);
    if (mant == 0)
        return neg ? -0.0 : 0.0;
    int top = 63 - __builtin_clzll(mant) + exp; /* exponent of the leading bit */
    int low = (top > 1 - f->bias ? top : 1 - f->bias) - f->mbits;
    int drop = low - exp;
    double v;
    if (drop <= 0) {
        v = ldexp((double)mant, exp);
    } else {
        uint64_t keep = drop < 64 ? mant >> drop : 0;
        uint64_t rest = drop < 64 ? mant & ((UINT64_C(1) << drop) - 1) : mant;
        uint64_t half = drop <= 64 ? UINT64_C(1) << (drop - 1) : UINT64_MAX;
        if (rest > half || (rest == half && drop <= 64 && keep & 1))
            keep++;
        v = ldexp((double)keep, low);
    }
    double max = ldexp((double)(f->max & ((UINT64_C(1) << f->mbits) - 1)) + ldexp(1, f->mbits), f->emax - f->mbits);
    if (v > max)
        v = f->sat ? max : f->inf ? (double)INFINITY : (double)NAN;
    return neg ? -v : v;
}

static double round_double(const struct format *f, double v)
{
    if (isnan(v))
        return v;
    if (isinf(v) && !f->sat)
        return f->inf ? v : (double)NAN;
    int exp;
    double frac = frexp(isinf(v) ? DBL_MAX : fabs(v), &exp);
    return round_parts(f, signbit(v), (uint64_t)ldexp(frac, 53), exp - 53);
}

/* Rounds toward zero, and to the nearest end of the range if the value does not fit. NaN gives 0. */
static uint64_t truncate_to(int dtype, double v)
{
    if (isnan(v))
        return 0;
    v = trunc(v);
    int bits = width_bits(dtype);
    if (is_signed(dtype)) {
        if (v >= ldexp(1, bits - 1))
            return sign_bit(dtype) - 1;
        if (v < -ldexp(1, bits - 1))
            return wrap(dtype, sign_bit(dtype));
        return (uint64_t)(int64_t)v;
    }
    if (v >= ldexp(1, bits))
        return wrap(dtype, UINT64_MAX);
    return v <= 0 ? 0 : (uint64_t)v;
}

struct scalar scalar_load(int dtype, const void *p)
{
    struct scalar v = {.u = 0};
    int part = scalar_part(dtype);
    if (part != dtype) {
        v.f = scalar_load(part, p).f;
        v.im = scalar_load(part, (const char *)p + weft_dtype_size(part)).f;
    } else if (dtype == WEFT_F64) {
        memcpy(&v.f, p, sizeof v.f);
    } else if (dtype == WEFT_F32) {
        float x;
        memcpy(&x, p, sizeof x);
        v.f = (double)x;
    } else {
        uint64_t code = 0;
        memcpy(&code, p, weft_dtype_size(dtype));
        if (scalar_is_float(dtype))
            v.f = decode(dtype, format_of(dtype), code);
        else
            v.u = dtype == WEFT_BOOL ? code != 0 : wrap(dtype, code);
    }
    return v;
}

void scalar_store(int dtype, void *p, struct scalar v)
{
    int part = scalar_part(dtype);
    if (part != dtype) {
        scalar_store(part, p, v);
        scalar_store(part, (char *)p + weft_dtype_size(part), (struct scalar){.f = v.im});
        return;
    }
    if (dtype == WEFT_F32) {
        float x = (float)v.f;
        memcpy(p, &x, sizeof x);
        return;
    }
    uint64_t code = v.u;
    if (scalar_is_float(dtype) && dtype != WEFT_F64)
        code = encode(dtype, format_of(dtype), v.f);
    memcpy(p, &code, weft_dtype_size(dtype));
}

struct scalar scalar_cast(int from, int to, struct scalar v)
{
    struct scalar out = v;
    if (from == to)
        return out;
    if (is_complex(to)) {
        out = scalar_cast(scalar_part(from), scalar_part(to), v);
        out.im = is_complex(from) ? scalar_cast(scalar_part(from), scalar_part(to), (struct scalar){.f = v.im}).f : 0;
        return out;
    }
    if (scalar_is_float(from)) {
        if (scalar_is_float(to))
            out.f = to == WEFT_F64 ? v.f : round_double(format_of(to), v.f);
        else
            out.u = to == WEFT_BOOL ? v.f != 0 : truncate_to(to, v.f);
    } else if (scalar_is_float(to)) {
        bool neg = is_signed(from) && (int64_t)v.u < 0;
        out.f = round_parts(format_of(to), neg, neg ? 0 - v.u : v.u, 0);
    } else {
        out.u = to == WEFT_BOOL ? v.u != 0 : wrap(to, v.u);
    }
    return out;
}

static double fold_float(int op, bool single, double a, double b)
{
    switch (op) {
    case WEFT_PROD: return single ? (double)((float)a * (float)b) : a * b;
    case WEFT_MIN:
    case WEFT_MAX:
        if (isnan(a) || isnan(b))
            return (double)NAN;
        if (a == b) /* zeros may differ in sign */
            return (op == WEFT_MIN) == (signbit(a) != 0) ? a : b;
        return (op == WEFT_MIN) == (a < b) ? a : b;
    default: return single ? (double)((float)a + (float)b) : a + b;
    }
}

struct scalar scalar_fold(int op, int dtype, struct scalar a, struct scalar b)
{
    struct scalar out = {.u = 0};
    int part = scalar_part(dtype);
    if (part != dtype) {
        out.f = fold_float(op, part != WEFT_F64, a.f, b.f);
        out.im = fold_float(op, part != WEFT_F64, a.im, b.im);
        return out;
    }
    if (scalar_is_float(dtype)) {
        out.f = fold_float(op, dtype != WEFT_F64, a.f, b.f);
        return out;
    }
    bool less = is_signed(dtype) ? (int64_t)a.u < (int64_t)b.u : a.u < b.u;
    switch (op) {
    case WEFT_PROD: out.u = a.u * b.u; break;
    case WEFT_MIN: out.u = less ? a.u : b.u; break;
    case WEFT_MAX: out.u = less ? b.u : a.u; break;
    case WEFT_BAND: out.u = a.u & b.u; break;
    case WEFT_BOR: out.u = a.u | b.u; break;
    case WEFT_BXOR: out.u = a.u ^ b.u; break;
    default: out.u = a.u + b.u; break;
    }
    out.u = wrap(dtype, out.u);
    return out;
}

struct scalar scalar_divide(int dtype, struct scalar a, int64_t n)
{
    struct scalar out = {.u = 0};
    int part = scalar_part(dtype);
    if (part != dtype) {
        out.f = scalar_divide(part, a, n).f;
        out.im = scalar_divide(part, (struct scalar){.f = a.im}, n).f;
    } else if (scalar_is_float(dtype))
        out.f = dtype == WEFT_F64 ? a.f / (double)n : (double)((float)a.f / (float)n);
    else if (is_signed(dtype))
        out.u = (uint64_t)((int64_t)a.u / n);
    else
        out.u = a.u / (uint64_t)n;
    return out;
}

struct scalar scalar_identity(int op, int dtype)
{
    struct scalar out = {.u = 0};
    const struct format *f = format_of(dtype);
    if (f) {
        double end = decode(dtype, f, f->inf && !f->sat ? f->inf : f->max), low = f->mbits ? -end : ldexp(1, -127);
        out.f = op == WEFT_PROD ? 1 : op == WEFT_MIN ? end : op == WEFT_MAX ? low : 0;
        return out;
    }
    if (is_complex(dtype))
        return out;
    uint64_t ones = wrap(dtype, UINT64_MAX);
    switch (op) {
    case WEFT_PROD: out.u = 1; break;
    case WEFT_MIN: out.u = is_signed(dtype) ? sign_bit(dtype) - 1 : ones; break;
    case WEFT_MAX: out.u = is_signed(dtype) ? wrap(dtype, sign_bit(dtype)) : 0; break;
    case WEFT_BAND: out.u = ones; break;
    default: break;
    }
    return out;
}

bool scalar_special(int dtype, int i, uint64_t *code)
{
    const struct format *f = format_of(dtype);
    uint64_t s = sign_bit(dtype), tiny = UINT64_C(1) << f->mbits, inf = f->inf && !f->sat ? f->inf : f->max;
    const uint64_t list[] = {0,          s, f->nan, f->nan | s, inf,      inf | s,    f->max,
                             f->max | s, 1, 1 | s,  tiny,       tiny | s, (tiny - 1), (tiny - 1) | s};
    if (i < 0 || (size_t)i >= sizeof list / sizeof *list)
        return false;
    *code = list[i];
    return true;
}

uint64_t scalar_held(int dtype, uint64_t code)
{
    const struct format *f = format_of(dtype);
    uint64_t s = f ? sign_bit(dtype) : 0;
    return f && f->sat && f->inf && (code & (s - 1)) == f->inf ? f->max | (code & s) : code;
}

uint64_t scalar_code(int dtype, bool sign, int e, uint64_t m)
{
    const struct format *f = format_of(dtype);
    uint64_t low = m & ((UINT64_C(1) << f->mbits) - 1);
    return (sign ? sign_bit(dtype) : 0) | (uint64_t)(e + f->bias) << f->mbits | low;
}

bool scalar_same(int dtype, const void *a, const void *b)
{
    if (memcmp(a, b, weft_dtype_size(dtype)) == 0)
        return true;
    int part = scalar_part(dtype);
    size_t size = weft_dtype_size(part);
    if (part != dtype)
        return scalar_same(part, a, b) && scalar_same(part, (const char *)a + size, (const char *)b + size);
    return scalar_is_float(dtype) && isnan(scalar_load(dtype, a).f) && isnan(scalar_load(dtype, b).f);
}

void scalar_print(int dtype, const void *p, char *buf, size_t cap)
{
    struct scalar v = scalar_load(dtype, p);
    uint64_t code = 0;
    if (is_complex(dtype)) {
        snprintf(buf, cap, "%.17g%+.17gi", v.f, v.im);
        return;
    }
    memcpy(&code, p, weft_dtype_size(dtype));
    if (scalar_is_float(dtype))
        snprintf(buf, cap, "%.17g (0x%0*" PRIx64 ")", v.f, (int)weft_dtype_size(dtype) * 2, code);
    else if (is_signed(dtype))
        snprintf(buf, cap, "%" PRId64, (int64_t)v.u);
    else
        snprintf(buf, cap, "%" PRIu64, dtype == WEFT_BOOL ? code : v.u);
}
