/* DEVICE_FOLD and DEVICE_FOLD_ANY. */
#ifndef WEFT_DEVICE_BODY_FOLD_H
#define WEFT_DEVICE_BODY_FOLD_H
#include "device/body_copy.h"
#include "device/body_lanes.h"

DEVICE_FN const struct device_term *body_term(const void *image, const struct device_item *it, uint32_t i)
{
    const uint32_t step = 1 + (it->loops + 1u) / 2, first = it->more + it->turned[0];
    return (const struct device_term *)((const unsigned char *)image + (first + (size_t)i * step) * 16);
}

/* The address of unit u in a term. */
DEVICE_CALL uint64_t body_term_at(const struct device_item *it, const struct device_term *t, uint32_t u)
{
    const struct device_loop *l = body_loops(it);
    const int64_t *stride = (const int64_t *)(t + 1);
    uint64_t at = t->at;
    DEVICE_ROLLED for (int i = it->loops - 1; i >= 0; i--)
    {
        uint32_t q = i ? body_divide_turn(&l[i], u) : 0;
        at += (uint64_t)(u - q * l[i].n) * (uint64_t)stride[i];
        u = q;
    }
    return at;
}

#define BODY_WAYS 4 /* terms that are loaded at once */

/* One element, `skip` elements after the beginning of unit u. */
DEVICE_CALL uint64_t body_fold_one(const void *image, const struct device_item *it, uint32_t u, uint32_t skip)
{
    const int acc = it->acc, any = it->any;
    const uint32_t last = it->terms - 1;
    uint64_t r = 0;
    DEVICE_ROLLED for (uint32_t t = 0; t < it->terms; t += BODY_WAYS)
    {
        uint64_t x[BODY_WAYS] BODY_ZERO;
        int dtype[BODY_WAYS] BODY_ZERO;
        DEVICE_UNROLL for (uint32_t k = 0; k < BODY_WAYS; k++)
        {
            const struct device_term *term = body_term(image, it, t + k < last ? t + k : last);
            dtype[k] = (int)term->dtype;
            const uint32_t size = body_size(dtype[k]);
            x[k] = body_load(body_term_at(it, term, u) + skip * size, size, any);
        }
        DEVICE_UNROLL for (uint32_t k = 0; k < BODY_WAYS; k++)
        {
            if (t + k < it->terms) {
                x[k] = body_cast(x[k], dtype[k], acc);
                r = t + k ? body_fold(r, x[k], acc, it->op) : x[k];
            }
        }
    }
    return body_finish(it, r);
}

/* ---- the result, to all its places: dst, and as far behind it as boxes say ---- */

DEVICE_FN const struct device_box *body_places(const void *image, const struct device_item *it)
{
    return (const struct device_box *)((const unsigned char *)image + (size_t)it->more * 16);
}

DEVICE_FN void body_fold_store_one(const void *image, const struct device_item *it, uint64_t d, int any, uint64_t x)
{
    body_store(d, it->size, any, x);
    DEVICE_ROLLED for (uint32_t i = 0; i < it->turned[0]; i++)
        body_store(d + body_places(image, it)[i].dst, it->size, any, x);
}

/* The first bytes of a unit of up to 32 bytes. */
DEVICE_CALL void body_fold_store_part(const void *image, const struct device_item *it, uint64_t d, uint32_t bytes,
                                      body_v16 low, body_v16 high)
{
    DEVICE_ROLLED for (uint32_t i = 0; i <= it->turned[0]; i++)
    {
        const uint64_t at = d + (i ? body_places(image, it)[i - 1].dst : 0);
        body_row_end(at, low, 0, bytes < 16 ? bytes : 16);
        if (bytes > 16)
            body_row_end(at + 16, high, 0, bytes - 16);
    }
}

/* A unit of `bytes` bytes, of which the first `used` ones are stored. */
DEVICE_FN void body_fold_store(const void *image, const struct device_item *it, uint64_t d, uint32_t bytes,
                               uint32_t used, const uint32_t *w)
{
    if (used < bytes) {
        body_v16 low, high;
        low.x = w[0], low.y = w[1], low.z = w[2], low.w = w[3];
        high.x = w[4], high.y = w[5], high.z = w[6], high.w = w[7];
        body_fold_store_part(image, it, d, used, low, high);
        return;
    }
    body_words_store(d, bytes, w);
    DEVICE_ROLLED for (uint32_t i = 0; i < it->turned[0]; i++)
        body_words_store(d + body_places(image, it)[i].dst, bytes, w);
}

/* A unit of which `used` bytes belong to the operand. The others are in its allocation: see body_row_word. On the host
 * they are not read. */
DEVICE_FN void body_fold_load(uint64_t at, uint32_t bytes, uint32_t used, uint32_t *w)
{
#ifdef __CUDACC__
    (void)used;
    body_words_load(at, bytes, w);
#else
    (void)bytes;
    memcpy(w, DEVICE_AT(at, used), used);
#endif
}

DEVICE_FN void body_fold_any(const void *image, const struct device_item *it, uint32_t block, uint32_t thread)
{
    const uint32_t u = body_unit(it, block, thread, 1);
    uint64_t d, s;
    if (u >= it->units)
        return;
    body_find(image, it, it->loops, u, &d, &s);
    body_fold_store_one(image, it, d, it->any, body_fold_one(image, it, u, 0));
}

/* ---- DEVICE_FOLD: terms of one dtype, several lanes a unit ---- */

/* The addresses of unit u in BODY_WAYS terms from term t on; behind the last term that of the last one. `offset`: of
 * the unit, if all terms have the same strides. */
DEVICE_FN void body_terms_at(const void *image, const struct device_item *it, uint32_t u, uint64_t offset, uint32_t t,
                             uint64_t *at)
{
    const uint32_t last = it->terms - 1;
    if (it->alike) {
        DEVICE_UNROLL for (uint32_t k = 0; k < BODY_WAYS; k++) at[k] =
            body_term(image, it, t + k < last ? t + k : last)->at + offset;
    } else {
        DEVICE_UNROLL for (uint32_t k = 0; k < BODY_WAYS; k++) at[k] =
            body_term_at(it, body_term(image, it, t + k < last ? t + k : last), u);
    }
}

DEVICE_FN float body_lane_fold(float a, float b, int op)
{
    const uint32_t x = half_bits(a), y = half_bits(b);
    switch (op) {
    case WEFT_MIN: return half_float(a != a || a < b ? x : a == b ? x | y : y);
    case WEFT_MAX: return half_float(a != a || a > b ? x : a == b ? x & y : y);
    default: return a + b;
    }
}

/* Into r, in f32, of which `used` lanes are. It starts with the value that leaves every other one as it is: -0,
 * infinity or -infinity. */
DEVICE_FN void body_fold_floats(const void *image, const struct device_item *it, uint32_t u, uint64_t offset,
                                uint32_t used, const int dtype, const int op, const int lanes, float *r)
{
    DEVICE_UNROLL for (int i = 0; i < lanes; i++) r[i] = half_float(op == WEFT_MIN   ? 0x7f800000
                                                                    : op == WEFT_MAX ? 0xff800000
                                                                                     : 0x80000000);
    DEVICE_ROLLED for (uint32_t t = 0; t < it->terms; t += BODY_WAYS)
    {
        uint64_t at[BODY_WAYS] BODY_ZERO;
        uint32_t w[BODY_WAYS][BODY_WORDS] BODY_ZERO;
        body_terms_at(image, it, u, offset, t, at);
        DEVICE_UNROLL for (uint32_t k = 0; k < BODY_WAYS; k++)
            body_fold_load(at[k], (uint32_t)lanes * body_size(dtype), used * body_size(dtype), w[k]);
        DEVICE_UNROLL for (uint32_t k = 0; k < BODY_WAYS; k++) if (t + k < it->terms)
        {
            float x[8] BODY_ZERO;
            body_decode(dtype, w[k], x, lanes);
            DEVICE_UNROLL for (int i = 0; i < lanes; i++) r[i] = body_lane_fold(r[i], x[i], op);
        }
    }
}

DEVICE_FN void body_fold_divide(const struct device_item *it, float *r, int lanes)
{
    if (it->u.div > 1)
        DEVICE_UNROLL for (int i = 0; i < lanes; i++) r[i] = body_divide_f32(r[i], it->u.div);
}

#define BODY_FOLD_DTYPE(dtype, lanes)                                                                  \
    case dtype:                                                                                        \
        switch (it->op) {                                                                              \
        case WEFT_MIN: body_fold_floats(image, it, u, offset, used, dtype, WEFT_MIN, lanes, r); break; \
        case WEFT_MAX: body_fold_floats(image, it, u, offset, used, dtype, WEFT_MAX, lanes, r); break; \
        default: body_fold_floats(image, it, u, offset, used, dtype, WEFT_SUM, lanes, r); break;       \
        }                                                                                              \
        break;
#define BODY_FOLD_STORE(dtype, lanes)                                                                 \
    case dtype:                                                                                       \
        body_encode(dtype, r, w, lanes);                                                              \
        body_fold_store(image, it, d, (uint32_t)(lanes)*body_size(dtype), used *body_size(dtype), w); \
        break;

DEVICE_FN void body_fold_f32s(const void *image, const struct device_item *it, uint32_t u, uint64_t d, uint64_t offset,
                              uint32_t used)
{
    float r[4] BODY_ZERO;
    uint32_t w[BODY_WORDS] BODY_ZERO;
    switch (it->from) {
        BODY_FOLD_DTYPE(WEFT_F32, 4)
    }
    body_fold_divide(it, r, 4);
    switch (it->to) {
        BODY_FOLD_STORE(WEFT_F32, 4)
        BODY_FOLD_STORE(WEFT_BF16, 4)
        BODY_FOLD_STORE(WEFT_F16, 4)
    }
}

DEVICE_FN void body_fold_thin(const void *image, const struct device_item *it, uint32_t u, uint64_t d, uint64_t offset,
                              uint32_t used)
{
    float r[8] BODY_ZERO;
    uint32_t w[BODY_WORDS] BODY_ZERO;
    switch (it->from) {
        BODY_FOLD_DTYPE(WEFT_BF16, 8)
        BODY_FOLD_DTYPE(WEFT_F16, 8)
        BODY_FOLD_DTYPE(WEFT_F8E4M3, 8)
        BODY_FOLD_DTYPE(WEFT_F8E5M2, 8)
    }
    body_fold_divide(it, r, 8);
    switch (it->to) {
        BODY_FOLD_STORE(WEFT_F32, 8)
        BODY_FOLD_STORE(WEFT_BF16, 8)
        BODY_FOLD_STORE(WEFT_F16, 8)
        BODY_FOLD_STORE(WEFT_F8E4M3, 8)
        BODY_FOLD_STORE(WEFT_F8E5M2, 8)
        BODY_FOLD_STORE(WEFT_F8E4M3SAT, 8)
        BODY_FOLD_STORE(WEFT_F8E5M2SAT, 8)
    }
}

/* ---- words: folds that need no cast, 16 bytes a unit ---- */

/* Sums of parts of a word without carries between them; `top` has the highest bit of each part. */
DEVICE_FN uint32_t body_add_parts(uint32_t a, uint32_t b, uint32_t top)
{
    return ((a & ~top) + (b & ~top)) ^ ((a ^ b) & top);
}

DEVICE_FN uint32_t body_word_fold(uint32_t a, uint32_t b, int fold)
{
    switch (fold) {
    case FOLD_ADD8: return body_add_parts(a, b, 0x80808080);
    case FOLD_ADD16: return body_add_parts(a, b, 0x80008000);
    case FOLD_ADD32: return a + b;
    case FOLD_AND: return a & b;
    case FOLD_OR: return a | b;
    case FOLD_XOR: return a ^ b;
    case FOLD_MIN_I32: return (int32_t)a < (int32_t)b ? a : b;
    case FOLD_MAX_I32: return (int32_t)a < (int32_t)b ? b : a;
    case FOLD_MIN_U32: return a < b ? a : b;
    default: return a < b ? b : a;
    }
}

DEVICE_FN uint64_t body_wide_fold(uint64_t a, uint64_t b, int fold)
{
    switch (fold) {
    case FOLD_ADD64: return a + b;
    case FOLD_MIN_I64: return (int64_t)a < (int64_t)b ? a : b;
    case FOLD_MAX_I64: return (int64_t)a < (int64_t)b ? b : a;
    case FOLD_MIN_U64: return a < b ? a : b;
    case FOLD_MAX_U64: return a < b ? b : a;
    case FOLD_ADD_F64: return body_fold_f64(a, b, WEFT_SUM);
    case FOLD_MIN_F64: return body_fold_f64(a, b, WEFT_MIN);
    default: return body_fold_f64(a, b, WEFT_MAX);
    }
}

/* r is the first term, then the fold. */
DEVICE_FN void body_fold_words(const void *image, const struct device_item *it, uint32_t u, uint64_t offset,
                               uint32_t used, const int fold, uint32_t *r)
{
    DEVICE_ROLLED for (uint32_t t = 0; t < it->terms; t += BODY_WAYS)
    {
        uint64_t at[BODY_WAYS] BODY_ZERO;
        uint32_t w[BODY_WAYS][4] BODY_ZERO;
        body_terms_at(image, it, u, offset, t, at);
        DEVICE_UNROLL for (uint32_t k = 0; k < BODY_WAYS; k++) body_fold_load(at[k], 16, used * it->size, w[k]);
        DEVICE_UNROLL for (uint32_t k = 0; k < BODY_WAYS; k++)
        {
            if (t + k == 0) {
                DEVICE_UNROLL for (int i = 0; i < 4; i++) r[i] = w[k][i];
            } else if (t + k < it->terms) {
                DEVICE_UNROLL for (int i = 0; i < 4; i++)
                {
                    if (fold < FOLD_ADD64) {
                        r[i] = body_word_fold(r[i], w[k][i], fold);
                    } else if (i % 2 == 0) {
                        const uint64_t x = body_wide_fold((uint64_t)r[i + 1] << 32 | r[i],
                                                          (uint64_t)w[k][i + 1] << 32 | w[k][i], fold);
                        r[i] = (uint32_t)x;
                        r[i + 1] = (uint32_t)(x >> 32);
                    }
                }
            }
        }
    }
}

DEVICE_FN void body_fold_bits(const void *image, const struct device_item *it, uint32_t u, uint64_t d, uint64_t offset,
                              uint32_t used)
{
    uint32_t r[BODY_WORDS] BODY_ZERO;
#define BODY_FOLD_WORDS(fold) \
    case fold: body_fold_words(image, it, u, offset, used, fold, r); break;
    switch (it->fold) {
        BODY_FOLD_WORDS(FOLD_ADD8)
        BODY_FOLD_WORDS(FOLD_ADD16)
        BODY_FOLD_WORDS(FOLD_ADD32)
        BODY_FOLD_WORDS(FOLD_AND)
        BODY_FOLD_WORDS(FOLD_OR)
        BODY_FOLD_WORDS(FOLD_XOR)
        BODY_FOLD_WORDS(FOLD_MIN_I32)
        BODY_FOLD_WORDS(FOLD_MAX_I32)
        BODY_FOLD_WORDS(FOLD_MIN_U32)
        BODY_FOLD_WORDS(FOLD_MAX_U32)
        BODY_FOLD_WORDS(FOLD_ADD64)
        BODY_FOLD_WORDS(FOLD_MIN_I64)
        BODY_FOLD_WORDS(FOLD_MAX_I64)
        BODY_FOLD_WORDS(FOLD_MIN_U64)
        BODY_FOLD_WORDS(FOLD_MAX_U64)
        BODY_FOLD_WORDS(FOLD_ADD_F64)
        BODY_FOLD_WORDS(FOLD_MIN_F64)
        BODY_FOLD_WORDS(FOLD_MAX_F64)
    }
    body_fold_store(image, it, d, 16, used * it->size, r);
}

DEVICE_FN void body_fold_lanes(const void *image, const struct device_item *it, uint32_t block, uint32_t thread)
{
    const uint32_t u = body_unit(it, block, thread, 1);
    uint64_t d, offset;
    if (u >= it->units)
        return;
    body_find(image, it, it->loops, u, &d, &offset);
    const uint32_t lanes = it->form == FORM_FOLD_F32    ? 4
                           : it->form == FORM_FOLD_THIN ? 8
                                                        : ITEM_BYTES / (uint32_t)it->size;
    const uint32_t used = it->rest && u == it->units - 1 ? it->rest : lanes; /* elements of the unit */
    switch (it->form) {
    case FORM_FOLD_F32: body_fold_f32s(image, it, u, d, offset, used); break;
    case FORM_FOLD_THIN: body_fold_thin(image, it, u, d, offset, used); break;
    default: body_fold_bits(image, it, u, d, offset, used); break;
    }
}
#endif
