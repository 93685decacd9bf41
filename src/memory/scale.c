#include "memory/scale.h"

#include <stdbool.h>
#include <string.h>

#include "memory/cast.h"
#include "memory/half.h"
#include "weft.h"

#define PIECE 256 /* elements that are in f32 at a time */
#define QUIET_NAN UINT32_C(0x7fc00000)
#define INFINITE UINT32_C(0x7f800000)

static bool is_e4m3(int value)
{
    return value == WEFT_F8E4M3 || value == WEFT_F8E4M3SAT;
}

/* Signed integers: all architectures have a vector maximum of them. The sign bit is off. */
static int32_t most_f32(int32_t most, const float *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int32_t u = (int32_t)(half_bits(from[i]) & 0x7fffffff);
        most = u > most ? u : most;
    }
    return most;
}

static int32_t most_bf16(const uint16_t *from, size_t n)
{
    uint16_t most = 0;
    for (size_t i = 0; i < n; i++) {
        const uint16_t u = from[i] & 0x7fff;
        most = u > most ? u : most;
    }
    return (int32_t)((uint32_t)most << 16);
}

uint32_t scale_most(uint32_t most, const void *from, int dtype, size_t n)
{
    float wide[PIECE];
    if (dtype == WEFT_F32)
        return (uint32_t)most_f32((int32_t)most, from, n);
    if (dtype == WEFT_BF16) {
        uint32_t u = (uint32_t)most_bf16(from, n);
        return u > most ? u : most;
    }
    for (size_t i = 0; i < n; i += PIECE) {
        size_t k = n - i < PIECE ? n - i : PIECE;
        cast_run(wide, WEFT_F32, (const char *)from + i * weft_dtype_size(dtype), dtype, k);
        most = (uint32_t)most_f32((int32_t)most, wide, k);
    }
    return most;
}

void scale_of(uint32_t most, int value, int scale, void *out)
{
    if (scale == WEFT_F8E8M0) {
        uint32_t e = is_e4m3(value) ? 8 : 15, exponent = most >> 23;
        uint8_t code = (uint8_t)(exponent > e ? exponent - e : 0);
        code = most >= INFINITE ? 255 : most == 0 ? 127 : code;
        memcpy(out, &code, sizeof code);
        return;
    }
    float s = half_float(most) / (is_e4m3(value) ? 448.0F : 57344.0F);
    uint32_t bits = most > INFINITE ? QUIET_NAN : half_bits(s == 0 ? 1.0F : s);
    memcpy(out, &bits, sizeof bits);
}

static float read_scale(const void *by, int scale)
{
    float s;
    cast_run(&s, WEFT_F32, by, scale, 1);
    return s;
}

static float tame(float x)
{
    return half_float(half_pick(x == x, half_bits(x), QUIET_NAN));
}

void scale_down(void *to, int value, const void *from, int dtype, const void *by, int scale, size_t n)
{
    float wide[PIECE], s = read_scale(by, scale);
    int saturated = is_e4m3(value) ? WEFT_F8E4M3SAT : WEFT_F8E5M2SAT;
    for (size_t i = 0; i < n; i += PIECE) {
        size_t k = n - i < PIECE ? n - i : PIECE;
        cast_run(wide, WEFT_F32, (const char *)from + i * weft_dtype_size(dtype), dtype, k);
        for (size_t j = 0; j < k; j++)
            wide[j] = tame(wide[j] / s);
        cast_run((char *)to + i, saturated, wide, WEFT_F32, k);
    }
}

void scale_up(void *to, int dtype, const void *from, int value, const void *by, int scale, size_t n)
{
    float wide[PIECE], s = read_scale(by, scale);
    for (size_t i = 0; i < n; i += PIECE) {
        size_t k = n - i < PIECE ? n - i : PIECE;
        cast_run(wide, WEFT_F32, (const char *)from + i, value, k);
        for (size_t j = 0; j < k; j++)
            wide[j] = tame(wide[j] * s);
        cast_run((char *)to + i * weft_dtype_size(dtype), dtype, wide, WEFT_F32, k);
    }
}
