/* What the kernels do, in the part of C that is C++ too: kernels.cu compiles it for CUDA, and the simulation and the
 * tests compile it for the host.
 *
 * An includer may define DEVICE_AT(address, bytes), which turns an address of the table into a pointer to these bytes;
 * without it the address is the pointer. The pointer must have the alignment of the address up to 16 bytes. On the
 * host, device_body_block does the work of one block of a launch. */
#ifndef WEFT_DEVICE_BODY_H
#define WEFT_DEVICE_BODY_H
#include <stdint.h>
#include <string.h>

#include "device/device_table.h"
#include "device/item.h"
#include "memory/half.h"
#include "weft.h"

#ifndef DEVICE_AT
#define DEVICE_AT(address, bytes) ((void *)(uintptr_t)(address))
#endif

#ifdef __CUDACC__
#define DEVICE_FN static __device__ __forceinline__
#define DEVICE_CALL static __device__ __noinline__ /* large, and not worth a copy for each use */
#define DEVICE_UNROLL _Pragma("unroll")
#define BODY_ZERO                         /* host compilers do not see that nothing is used before it is loaded */
#define DEVICE_ROLLED _Pragma("unroll 1") /* copies of the loop's body would take registers */
typedef uint4 body_v16;
typedef uint2 body_v8;
#define BODY_LOAD(T, v, address) ((v) = *(const T *)DEVICE_AT(address, sizeof(T)))
#define BODY_STORE(T, address, v) (*(T *)DEVICE_AT(address, sizeof(T)) = (v))
#else
#define DEVICE_FN static inline
#define DEVICE_CALL static inline
#define DEVICE_UNROLL
#define DEVICE_ROLLED
#define BODY_ZERO = {0}
typedef struct {
    uint32_t x, y, z, w;
} body_v16;
typedef struct {
    uint32_t x, y;
} body_v8;
#define BODY_LOAD(T, v, address) memcpy(&(v), DEVICE_AT(address, sizeof(T)), sizeof(T))
#define BODY_STORE(T, address, v) memcpy(DEVICE_AT(address, sizeof(T)), &(v), sizeof(T))
#endif

/* ---- where the work is ---- */

DEVICE_FN const struct device_item *body_item(const void *image, uint32_t first, uint32_t n, uint32_t blocks,
                                              uint32_t block)
{
    const uint32_t *map = (const uint32_t *)image + (size_t)first * 4;
    const uint32_t shift = ITEM_SHIFT(n), words = ((blocks - 1) >> shift) + 2;
    const unsigned char *items = (const unsigned char *)(map + ((words + 3) & ~3u));
    const size_t step = (size_t)ITEM_STEP(n) * 16;
    uint32_t lo = map[block >> shift], hi = map[(block >> shift) + 1];
    DEVICE_ROLLED while (lo < hi)
    {
        uint32_t mid = (lo + hi + 1) / 2;
        if (block >= ((const struct device_item *)(items + mid * step))->block)
            lo = mid;
        else
            hi = mid - 1;
    }
    return (const struct device_item *)(items + lo * step);
}

DEVICE_FN const struct device_loop *body_loops(const struct device_item *it)
{
    return (const struct device_loop *)(it + 1);
}

DEVICE_FN uint32_t body_divide_turn(const struct device_loop *l, uint32_t u)
{
    return (uint32_t)((uint64_t)u * l->mul >> l->shift);
}

/* The addresses of turn u of the first `loops` loops. */
DEVICE_FN void body_find(const void *image, const struct device_item *it, int loops, uint32_t u, uint64_t *dst,
                         uint64_t *src)
{
    const struct device_loop *l = body_loops(it);
    uint64_t d = it->dst, s = it->src;
    const int member = it->member;
    DEVICE_ROLLED for (int i = loops - 1; i >= 0; i--)
    {
        uint32_t q = i ? body_divide_turn(&l[i], u) : 0, turn = u - q * l[i].n;
        if (i == member) {
            const struct device_box *box =
                (const struct device_box *)((const unsigned char *)image + (size_t)it->more * 16) + turn;
            d += box->dst;
            s += box->src;
        } else {
            d += (uint64_t)turn * (uint64_t)l[i].stride[0];
            s += (uint64_t)turn * (uint64_t)l[i].stride[1];
        }
        u = q;
    }
    *dst = d;
    *src = s;
}

/* The first unit of this thread. Its others follow at distances of DEVICE_THREADS; it has `each` of them. */
DEVICE_FN uint32_t body_unit(const struct device_item *it, uint32_t block, uint32_t thread, uint32_t each)
{
    return (block - it->block) * (DEVICE_THREADS * each) + thread;
}

/* ---- values: their bits, with zeros above their size ---- */

DEVICE_FN uint32_t body_size(int dtype)
{
    switch (dtype) {
    case WEFT_U64:
    case WEFT_I64:
    case WEFT_F64: return 8;
    case WEFT_U32:
    case WEFT_I32:
    case WEFT_F32: return 4;
    case WEFT_U16:
    case WEFT_I16:
    case WEFT_F16:
    case WEFT_BF16: return 2;
    default: return 1;
    }
}

DEVICE_FN double body_f64(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

DEVICE_FN uint64_t body_load(uint64_t address, uint32_t size, int any)
{
    uint64_t x8 = 0;
    uint32_t x4;
    uint16_t x2;
    uint8_t x1;
    if (any) {
        DEVICE_ROLLED for (uint32_t i = 0; i < size; i++)
        {
            BODY_LOAD(uint8_t, x1, address + i);
            x8 |= (uint64_t)x1 << 8 * i;
        }
        return x8;
    }
    switch (size) {
    case 8: BODY_LOAD(uint64_t, x8, address); return x8;
    case 4: BODY_LOAD(uint32_t, x4, address); return x4;
    case 2: BODY_LOAD(uint16_t, x2, address); return x2;
    default: BODY_LOAD(uint8_t, x1, address); return x1;
    }
}

DEVICE_FN void body_store(uint64_t address, uint32_t size, int any, uint64_t x)
{
    uint32_t x4 = (uint32_t)x;
    uint16_t x2 = (uint16_t)x;
    uint8_t x1 = (uint8_t)x;
    if (any) {
        DEVICE_ROLLED for (uint32_t i = 0; i < size; i++)
        {
            x1 = (uint8_t)(x >> 8 * i);
            BODY_STORE(uint8_t, address + i, x1);
        }
        return;
    }
    switch (size) {
    case 8: BODY_STORE(uint64_t, address, x); break;
    case 4: BODY_STORE(uint32_t, address, x4); break;
    case 2: BODY_STORE(uint16_t, address, x2); break;
    default: BODY_STORE(uint8_t, address, x1); break;
    }
}

DEVICE_FN uint64_t body_mask(uint64_t x, int dtype)
{
    const uint32_t size = body_size(dtype);
    return size == 8 ? x : x & ((UINT64_C(1) << 8 * size) - 1);
}

/* The value of an integer, with its sign above its size. */
DEVICE_FN int64_t body_signed(uint64_t x, int dtype)
{
    switch (dtype) {
    case WEFT_I8: return (int8_t)x;
    case WEFT_I16: return (int16_t)x;
    case WEFT_I32: return (int32_t)x;
    default: return (int64_t)x;
    }
}

DEVICE_FN uint64_t body_f32_to(float x, int to)
{
    switch (to) {
    case WEFT_BOOL: return x != 0;
    case WEFT_U8: return half_f32_to_u8(x);
    case WEFT_I8: return (uint8_t)half_f32_to_i8(x);
    case WEFT_U16: return half_f32_to_u16(x);
    case WEFT_I16: return (uint16_t)half_f32_to_i16(x);
    case WEFT_U32: return half_f32_to_u32(x);
    case WEFT_I32: return (uint32_t)half_f32_to_i32(x);
    case WEFT_U64: return half_f32_to_u64(x);
    case WEFT_I64: return (uint64_t)half_f32_to_i64(x);
    case WEFT_F16: return half_to_f16(x);
    case WEFT_BF16: return half_to_bf16(x);
    case WEFT_F64: return half_bits64(x);
    case WEFT_F8E4M3: return half_to_f8e4m3(x);
    case WEFT_F8E5M2: return half_to_f8e5m2(x);
    case WEFT_F8E4M3SAT: return half_to_f8e4m3sat(x);
    case WEFT_F8E5M2SAT: return half_to_f8e5m2sat(x);
    case WEFT_F8E8M0: return half_to_f8e8m0(x);
    default: return half_bits(x);
    }
}

/* Narrow floats are reached through f32, rounded to odd (half.h). */
DEVICE_FN uint64_t body_f64_to(double x, int to)
{
    switch (to) {
    case WEFT_BOOL: return x != 0;
    case WEFT_U8: return half_f64_to_u8(x);
    case WEFT_I8: return (uint8_t)half_f64_to_i8(x);
    case WEFT_U16: return half_f64_to_u16(x);
    case WEFT_I16: return (uint16_t)half_f64_to_i16(x);
    case WEFT_U32: return half_f64_to_u32(x);
    case WEFT_I32: return (uint32_t)half_f64_to_i32(x);
    case WEFT_U64: return half_f64_to_u64(x);
    case WEFT_I64: return (uint64_t)half_f64_to_i64(x);
    case WEFT_F32: return half_bits((float)x);
    case WEFT_F64: return half_bits64(x);
    default: return body_f32_to(half_odd_f64(x), to);
    }
}

DEVICE_FN uint64_t body_integer_to(uint64_t x, int from, int to)
{
    const int negative = from == WEFT_I8 || from == WEFT_I16 || from == WEFT_I32 || from == WEFT_I64;
    const int64_t s = body_signed(x, from);
    switch (to) {
    case WEFT_BOOL: return x != 0;
    case WEFT_F64: return half_bits64(negative ? (double)s : (double)x);
    case WEFT_F32: return half_bits(negative ? half_i64_to_f32(s) : half_u64_to_f32(x));
    case WEFT_F16:
    case WEFT_BF16:
    case WEFT_F8E4M3:
    case WEFT_F8E5M2:
    case WEFT_F8E4M3SAT:
    case WEFT_F8E5M2SAT:
    case WEFT_F8E8M0: return body_f32_to(negative ? half_odd_i64(s) : half_odd_u64(x), to);
    default: return body_mask(negative ? (uint64_t)s : x, to);
    }
}

/* As cast_run of memory/cast.h: a bool becomes 0 or 1, also if it stays one. */
DEVICE_CALL uint64_t body_cast(uint64_t x, int from, int to)
{
    if (from == WEFT_BOOL)
        x = x != 0;
    if (from == to)
        return x;
    switch (from) {
    case WEFT_F64: return body_f64_to(body_f64(x), to);
    case WEFT_F32: return body_f32_to(half_float((uint32_t)x), to);
    case WEFT_F16: return body_f32_to(half_from_f16((uint16_t)x), to);
    case WEFT_BF16: return body_f32_to(half_from_bf16((uint16_t)x), to);
    case WEFT_F8E4M3: return body_f32_to(half_from_f8e4m3((uint8_t)x), to);
    case WEFT_F8E5M2: return body_f32_to(half_from_f8e5m2((uint8_t)x), to);
    case WEFT_F8E4M3SAT: return body_f32_to(half_from_f8e4m3sat((uint8_t)x), to);
    case WEFT_F8E5M2SAT: return body_f32_to(half_from_f8e5m2sat((uint8_t)x), to);
    case WEFT_F8E8M0: return body_f32_to(half_from_f8e8m0((uint8_t)x), to);
    default: return body_integer_to(x, from, to);
    }
}

/* ---- folds, by the rules of memory/ops_loops.h ---- */

DEVICE_FN uint64_t body_fold_f32(uint64_t x, uint64_t y, int op)
{
    const float a = half_float((uint32_t)x), b = half_float((uint32_t)y);
    const float r = op == WEFT_SUM ? a + b : a * b;
    switch (op) {
    case WEFT_MIN: return a != a || a < b ? x : a == b ? x | y : y;
    case WEFT_MAX: return a != a || a > b ? x : a == b ? x & y : y;
    default: return r == r ? half_bits(r) : 0x7fc00000;
    }
}

DEVICE_FN uint64_t body_fold_f64(uint64_t x, uint64_t y, int op)
{
    const double a = body_f64(x), b = body_f64(y);
    const double r = op == WEFT_SUM ? a + b : a * b;
    switch (op) {
    case WEFT_MIN: return a != a || a < b ? x : a == b ? x | y : y;
    case WEFT_MAX: return a != a || a > b ? x : a == b ? x & y : y;
    default: return r == r ? half_bits64(r) : UINT64_C(0x7ff8000000000000);
    }
}

DEVICE_FN uint64_t body_fold(uint64_t x, uint64_t y, int acc, int op)
{
    if (acc == WEFT_F32)
        return body_fold_f32(x, y, op);
    if (acc == WEFT_F64)
        return body_fold_f64(x, y, op);
    const int negative = acc == WEFT_I8 || acc == WEFT_I16 || acc == WEFT_I32 || acc == WEFT_I64;
    const int less = negative ? body_signed(x, acc) < body_signed(y, acc) : x < y;
    switch (op) {
    case WEFT_PROD: return body_mask(x * y, acc);
    case WEFT_MIN: return less ? x : y;
    case WEFT_MAX: return less ? y : x;
    case WEFT_BAND: return x & y;
    case WEFT_BOR: return x | y;
    case WEFT_BXOR: return x ^ y;
    default: return body_mask(x + y, acc);
    }
}

/* The inverse of a power of two is exact, and a product with it rounds as the quotient does. */
DEVICE_FN float body_divide_f32(float x, int64_t div)
{
    return (div & (div - 1)) == 0 ? x * (float)(1.0 / (double)div) : x / (float)div;
}

DEVICE_FN uint64_t body_divide(uint64_t x, int acc, int64_t div)
{
    switch (acc) {
    case WEFT_F32: return half_bits(body_divide_f32(half_float((uint32_t)x), div));
    case WEFT_F64:
        return half_bits64((div & (div - 1)) == 0 ? body_f64(x) * (1.0 / (double)div) : body_f64(x) / (double)div);
    case WEFT_I8:
    case WEFT_I16:
    case WEFT_I32:
    case WEFT_I64: return body_mask((uint64_t)(body_signed(x, acc) / div), acc);
    default: return x / (uint64_t)div;
    }
}

/* What comes after the fold: x is of dtype acc. */
DEVICE_CALL uint64_t body_finish(const struct device_item *it, uint64_t x)
{
    int is = it->acc;
    if (it->u.div > 1)
        x = body_divide(x, is, it->u.div);
    if (it->via && it->via != is) {
        x = body_cast(x, is, it->via);
        is = it->via;
    }
    return is == it->to ? x : body_cast(x, is, it->to);
}

/* ---- DEVICE_COPY ---- */

/* Addresses are found twice: that takes less time than the registers that would keep them. */
#define BODY_COPY(name, T, each)                                                                          \
    DEVICE_FN void name(const void *image, const struct device_item *it, uint32_t block, uint32_t thread) \
    {                                                                                                     \
        const uint32_t units = it->units, u = body_unit(it, block, thread, each);                         \
        const int loops = it->loops;                                                                      \
        uint64_t d, s;                                                                                    \
        T v[each] BODY_ZERO;                                                                              \
        DEVICE_UNROLL for (uint32_t k = 0; k < (each); k++) if (u + k * DEVICE_THREADS < units)           \
        {                                                                                                 \
            body_find(image, it, loops, u + k * DEVICE_THREADS, &d, &s);                                  \
            BODY_LOAD(T, v[k], s);                                                                        \
        }                                                                                                 \
        DEVICE_UNROLL for (uint32_t k = 0; k < (each); k++) if (u + k * DEVICE_THREADS < units)           \
        {                                                                                                 \
            body_find(image, it, loops, u + k * DEVICE_THREADS, &d, &s);                                  \
            BODY_STORE(T, d, v[k]);                                                                       \
        }                                                                                                 \
    }
BODY_COPY(body_copy8, uint64_t, 2)
BODY_COPY(body_copy4, uint32_t, 4)
BODY_COPY(body_copy2, uint16_t, 8)
BODY_COPY(body_copy1, uint8_t, 16)

DEVICE_FN void body_copy16(const void *image, const struct device_item *it, uint32_t block, uint32_t thread)
{
    const uint32_t u = body_unit(it, block, thread, 1), rest = it->rest;
    uint64_t d, s;
    body_v16 v;
    uint8_t byte;
    if (u >= it->units)
        return;
    body_find(image, it, it->loops, u, &d, &s);
    if (rest && u == it->units - 1) {
        DEVICE_ROLLED for (uint32_t i = 0; i < rest; i++)
        {
            BODY_LOAD(uint8_t, byte, s + i);
            BODY_STORE(uint8_t, d + i, byte);
        }
    } else {
        BODY_LOAD(body_v16, v, s);
        BODY_STORE(body_v16, d, v);
    }
}

DEVICE_FN void body_fill(const void *image, const struct device_item *it, uint32_t block, uint32_t thread)
{
    const uint32_t u = body_unit(it, block, thread, 1);
    uint64_t d, s;
    body_v16 v;
    if (u >= it->units)
        return;
    body_find(image, it, it->loops, u, &d, &s);
    v.x = v.z = (uint32_t)it->u.fill;
    v.y = v.w = (uint32_t)(it->u.fill >> 32);
    if (it->size == ITEM_BYTES)
        BODY_STORE(body_v16, d, v);
    else
        body_store(d, it->size, it->any, it->u.fill);
}

DEVICE_FN void body_copy(const void *image, const struct device_item *it, uint32_t block, uint32_t thread)
{
    if (it->form == FORM_FILL) {
        body_fill(image, it, block, thread);
        return;
    }
    switch (it->size) {
    case 16: body_copy16(image, it, block, thread); break;
    case 8: body_copy8(image, it, block, thread); break;
    case 4: body_copy4(image, it, block, thread); break;
    case 2: body_copy2(image, it, block, thread); break;
    default: body_copy1(image, it, block, thread); break;
    }
}

/* ---- DEVICE_CAST ---- */

/* A unit is 4 elements. The last unit of a run may have fewer. */
DEVICE_FN void body_cast4(const void *image, const struct device_item *it, uint32_t block, uint32_t thread)
{
    const uint32_t u = body_unit(it, block, thread, 1);
    uint64_t d, s;
    body_v16 wide;
    body_v8 thin;
    if (u >= it->units)
        return;
    body_find(image, it, it->loops, u, &d, &s);
    if (it->rest && u == it->units - 1) {
        const uint32_t n = it->rest;
        DEVICE_ROLLED for (uint32_t i = 0; i < n; i++)
        {
            uint32_t x4;
            uint16_t x2;
            if (it->form == FORM_F32_BF16 || it->form == FORM_F32_F16) {
                BODY_LOAD(uint32_t, x4, s + i * 4);
                x2 = it->form == FORM_F32_BF16 ? half_to_bf16(half_float(x4)) : half_to_f16(half_float(x4));
                BODY_STORE(uint16_t, d + i * 2, x2);
            } else {
                BODY_LOAD(uint16_t, x2, s + i * 2);
                x4 = half_bits(it->form == FORM_BF16_F32 ? half_from_bf16(x2) : half_from_f16(x2));
                BODY_STORE(uint32_t, d + i * 4, x4);
            }
        }
        return;
    }
#define BODY_NARROW(f)                                                                    \
    {                                                                                     \
        BODY_LOAD(body_v16, wide, s);                                                     \
        thin.x = (uint32_t)f(half_float(wide.x)) | (uint32_t)f(half_float(wide.y)) << 16; \
        thin.y = (uint32_t)f(half_float(wide.z)) | (uint32_t)f(half_float(wide.w)) << 16; \
        BODY_STORE(body_v8, d, thin);                                                     \
    }
#define BODY_WIDEN(f)                                    \
    {                                                    \
        BODY_LOAD(body_v8, thin, s);                     \
        wide.x = half_bits(f((uint16_t)thin.x));         \
        wide.y = half_bits(f((uint16_t)(thin.x >> 16))); \
        wide.z = half_bits(f((uint16_t)thin.y));         \
        wide.w = half_bits(f((uint16_t)(thin.y >> 16))); \
        BODY_STORE(body_v16, d, wide);                   \
    }
    switch (it->form) {
    case FORM_F32_BF16: BODY_NARROW(half_to_bf16) break;
    case FORM_F32_F16: BODY_NARROW(half_to_f16) break;
    case FORM_BF16_F32: BODY_WIDEN(half_from_bf16) break;
    default: BODY_WIDEN(half_from_f16) break;
    }
}

#define BODY_EACH 4 /* units of a thread, one element each */

DEVICE_FN void body_cast_any(const void *image, const struct device_item *it, uint32_t block, uint32_t thread)
{
    const uint32_t units = it->units, ssize = body_size(it->from), dsize = it->size;
    const uint32_t u = body_unit(it, block, thread, BODY_EACH);
    const int any = it->any;
    uint64_t d[BODY_EACH] BODY_ZERO, x[BODY_EACH] BODY_ZERO, s;
    DEVICE_UNROLL for (uint32_t k = 0; k < BODY_EACH; k++) if (u + k * DEVICE_THREADS < units)
    {
        body_find(image, it, it->loops, u + k * DEVICE_THREADS, &d[k], &s);
        x[k] = body_load(s, ssize, any);
    }
    DEVICE_UNROLL for (uint32_t k = 0; k < BODY_EACH; k++) if (u + k * DEVICE_THREADS < units)
        body_store(d[k], dsize, any, body_finish(it, body_cast(x[k], it->from, it->acc)));
}

/* ---- DEVICE_FOLD ---- */

DEVICE_FN const struct device_term *body_term(const void *image, const struct device_item *it, uint32_t i)
{
    const uint32_t step = 1 + (it->loops + 1u) / 2;
    return (const struct device_term *)((const unsigned char *)image + ((size_t)it->more + (size_t)i * step) * 16);
}

/* The address of unit u in a term. */
DEVICE_FN uint64_t body_term_at(const struct device_item *it, const struct device_term *t, uint32_t u)
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

/* One element, `skip` elements after the beginning of unit u. */
DEVICE_CALL uint64_t body_fold_one(const void *image, const struct device_item *it, uint32_t u, uint32_t skip)
{
    const int acc = it->acc, any = it->any;
    uint64_t r = 0;
    DEVICE_ROLLED for (uint32_t i = 0; i < it->terms; i++)
    {
        const struct device_term *t = body_term(image, it, i);
        const uint32_t size = body_size((int)t->dtype);
        uint64_t x = body_load(body_term_at(it, t, u) + skip * size, size, any);
        x = body_cast(x, (int)t->dtype, acc);
        r = i ? body_fold(r, x, acc, it->op) : x;
    }
    return body_finish(it, r);
}

DEVICE_FN void body_fold_any(const void *image, const struct device_item *it, uint32_t block, uint32_t thread)
{
    const uint32_t u = body_unit(it, block, thread, 1);
    uint64_t d, s;
    if (u >= it->units)
        return;
    body_find(image, it, it->loops, u, &d, &s);
    body_store(d, it->size, it->any, body_fold_one(image, it, u, 0));
}

/* Stores n values (4 or 8) as f32, bf16 or f16. */
DEVICE_FN void body_store_lanes(uint64_t d, int to, const float *r, int n)
{
    DEVICE_UNROLL for (int i = 0; i < n; i += 4)
    {
        body_v16 wide;
        body_v8 thin;
        if (to == WEFT_F32) {
            wide.x = half_bits(r[i]);
            wide.y = half_bits(r[i + 1]);
            wide.z = half_bits(r[i + 2]);
            wide.w = half_bits(r[i + 3]);
            BODY_STORE(body_v16, d + (uint64_t)i * 4, wide);
        } else if (to == WEFT_BF16) {
            thin.x = (uint32_t)half_to_bf16(r[i]) | (uint32_t)half_to_bf16(r[i + 1]) << 16;
            thin.y = (uint32_t)half_to_bf16(r[i + 2]) | (uint32_t)half_to_bf16(r[i + 3]) << 16;
            BODY_STORE(body_v8, d + (uint64_t)i * 2, thin);
        } else {
            thin.x = (uint32_t)half_to_f16(r[i]) | (uint32_t)half_to_f16(r[i + 1]) << 16;
            thin.y = (uint32_t)half_to_f16(r[i + 2]) | (uint32_t)half_to_f16(r[i + 3]) << 16;
            BODY_STORE(body_v8, d + (uint64_t)i * 2, thin);
        }
    }
}

#define BODY_WAYS 8 /* terms that are loaded at once */

/* Sums in f32 of terms of one dtype, a unit of 16 bytes each: `lanes` elements. LANE(v, i): element i of the unit. */
#define BODY_SUM(name, lanes, LANE)                                                                                   \
    DEVICE_FN void name(const void *image, const struct device_item *it, uint32_t u, uint64_t d)                      \
    {                                                                                                                 \
        float r[lanes] = {0};                                                                                         \
        DEVICE_ROLLED for (uint32_t t = 0; t < it->terms; t += BODY_WAYS)                                             \
        {                                                                                                             \
            const uint32_t left = it->terms - t;                                                                      \
            body_v16 v[BODY_WAYS] BODY_ZERO;                                                                          \
            DEVICE_UNROLL for (uint32_t k = 0; k < BODY_WAYS; k++) if (k < left)                                      \
                BODY_LOAD(body_v16, v[k], body_term_at(it, body_term(image, it, t + k), u));                          \
            DEVICE_UNROLL for (uint32_t k = 0; k < BODY_WAYS; k++) if (k < left)                                      \
            {                                                                                                         \
                const uint32_t word[4] = {v[k].x, v[k].y, v[k].z, v[k].w};                                            \
                DEVICE_UNROLL for (int i = 0; i < (lanes); i++) r[i] = t || k ? r[i] + LANE(word, i) : LANE(word, i); \
            }                                                                                                         \
        }                                                                                                             \
        DEVICE_UNROLL for (int i = 0; i < (lanes); i++)                                                               \
        {                                                                                                             \
            r[i] = r[i] == r[i] ? r[i] : half_float(0x7fc00000);                                                      \
            if (it->u.div > 1)                                                                                        \
                r[i] = body_divide_f32(r[i], it->u.div);                                                              \
        }                                                                                                             \
        body_store_lanes(d, it->to, r, lanes);                                                                        \
    }
#define BODY_LANE_F32(word, i) half_float(word[i])
#define BODY_LANE_BF16(word, i) half_from_bf16((uint16_t)(word[(i) / 2] >> (i) % 2 * 16))
#define BODY_LANE_F16(word, i) half_from_f16((uint16_t)(word[(i) / 2] >> (i) % 2 * 16))
BODY_SUM(body_sum_f32, 4, BODY_LANE_F32)
BODY_SUM(body_sum_bf16, 8, BODY_LANE_BF16)
BODY_SUM(body_sum_f16, 8, BODY_LANE_F16)

DEVICE_FN void body_fold_sum(const void *image, const struct device_item *it, uint32_t block, uint32_t thread)
{
    const uint32_t u = body_unit(it, block, thread, 1);
    uint64_t d, s;
    if (u >= it->units)
        return;
    body_find(image, it, it->loops, u, &d, &s);
    if (it->rest && u == it->units - 1) {
        for (uint32_t i = 0; i < it->rest; i++)
            body_store(d + i * it->size, it->size, 0, body_fold_one(image, it, u, i));
        return;
    }
    switch (it->form) {
    case FORM_SUM_F32: body_sum_f32(image, it, u, d); break;
    case FORM_SUM_BF16: body_sum_bf16(image, it, u, d); break;
    default: body_sum_f16(image, it, u, d); break;
    }
}

/* ---- DEVICE_TRANSPOSE: one tile, in two steps with a barrier between them ----
 * The tile's rows are along the loop in which dst is contiguous, its columns along that of src. These loops are the
 * last two of the item: first that of src, then that of dst; a turn is a tile's side. */

struct body_tile {
    uint64_t dst, src;
    int64_t dstep, sstep; /* from one column of dst, and one row of src, to the next */
    uint32_t rows, columns;
};

DEVICE_FN struct body_tile body_tile_find(const void *image, const struct device_item *it, uint32_t block,
                                          uint32_t side)
{
    const struct device_loop *l = body_loops(it) + it->loops - 2;
    const uint32_t u = block - it->block, q = body_divide_turn(&l[1], u), row = (u - q * l[1].n) * side;
    const uint32_t p = body_divide_turn(&l[0], q), column = (q - p * l[0].n) * side;
    struct body_tile t;
    body_find(image, it, it->loops, u, &t.dst, &t.src);
    t.dstep = l[0].stride[0] / (int64_t)side;
    t.sstep = l[1].stride[1] / (int64_t)side;
    t.rows = it->turned[0] - row < side ? it->turned[0] - row : side;
    t.columns = it->turned[1] - column < side ? it->turned[1] - column : side;
    return t;
}

#define BODY_AT_ONCE 8 /* loads of a thread before it stores them */

#define BODY_TILE(suffix, T)                                                                                          \
    DEVICE_FN void body_tile_load_##suffix(const void *image, const struct device_item *it, uint32_t block,           \
                                           uint32_t thread, void *tile)                                               \
    {                                                                                                                 \
        const uint32_t side = TILE_SIDE(sizeof(T)), at_once = side * side / DEVICE_THREADS < BODY_AT_ONCE             \
                                                                  ? side * side / DEVICE_THREADS                      \
                                                                  : BODY_AT_ONCE;                                     \
        const struct body_tile t = body_tile_find(image, it, block, side);                                            \
        const uint32_t column = thread % side, row = thread / side, down = DEVICE_THREADS / side;                     \
        T *to = (T *)tile;                                                                                            \
        T v[BODY_AT_ONCE] BODY_ZERO;                                                                                  \
        DEVICE_ROLLED for (uint32_t first = row; first < t.rows; first += at_once * down)                             \
        {                                                                                                             \
            DEVICE_UNROLL for (uint32_t k = 0; k < at_once; k++) if (column < t.columns && first + k * down < t.rows) \
                BODY_LOAD(T, v[k], t.src + column * sizeof(T) + (uint64_t)(first + k * down) * (uint64_t)t.sstep);    \
            DEVICE_UNROLL for (uint32_t k = 0; k < at_once; k++) if (column < t.columns && first + k * down < t.rows) \
                to[(first + k * down) * (side + 1) + column] = v[k];                                                  \
        }                                                                                                             \
    }                                                                                                                 \
    DEVICE_FN void body_tile_store_##suffix(const void *image, const struct device_item *it, uint32_t block,          \
                                            uint32_t thread, const void *tile)                                        \
    {                                                                                                                 \
        const uint32_t side = TILE_SIDE(sizeof(T));                                                                   \
        const struct body_tile t = body_tile_find(image, it, block, side);                                            \
        const uint32_t row = thread % side, down = DEVICE_THREADS / side;                                             \
        const T *from = (const T *)tile;                                                                              \
        DEVICE_UNROLL for (uint32_t k = 0; k < side / down; k++)                                                      \
        {                                                                                                             \
            const uint32_t column = thread / side + k * down;                                                         \
            if (row < t.rows && column < t.columns)                                                                   \
                BODY_STORE(T, t.dst + row * sizeof(T) + (uint64_t)column * (uint64_t)t.dstep,                         \
                           from[row * (side + 1) + column]);                                                          \
        }                                                                                                             \
    }
BODY_TILE(16, body_v16)
BODY_TILE(8, uint64_t)
BODY_TILE(4, uint32_t)
BODY_TILE(2, uint16_t)
BODY_TILE(1, uint8_t)

/* Both steps; step 0 loads and step 1 stores. */
DEVICE_FN void body_transpose(const void *image, const struct device_item *it, uint32_t block, uint32_t thread,
                              void *tile, int step)
{
#define BODY_STEP(suffix)                                         \
    if (step)                                                     \
        body_tile_store_##suffix(image, it, block, thread, tile); \
    else                                                          \
        body_tile_load_##suffix(image, it, block, thread, tile);  \
    break
    switch (it->size) {
    case 16: BODY_STEP(16);
    case 8: BODY_STEP(8);
    case 4: BODY_STEP(4);
    case 2: BODY_STEP(2);
    default: BODY_STEP(1);
    }
}

/* With a cast: values wait in the tile as they are in src, in 8 bytes each. */
DEVICE_FN void body_transpose_any(const void *image, const struct device_item *it, uint32_t block, uint32_t thread,
                                  void *tile, int step)
{
    const uint32_t side = TILE_SIDE(8), x = thread % side, down = DEVICE_THREADS / side;
    const uint32_t ssize = body_size(it->from), dsize = it->size;
    const struct body_tile t = body_tile_find(image, it, block, side);
    uint64_t *values = (uint64_t *)tile;
    DEVICE_UNROLL for (uint32_t k = 0; k < side / down; k++)
    {
        const uint32_t y = thread / side + k * down;
        if (!step && x < t.columns && y < t.rows)
            values[y * (side + 1) + x] = body_load(t.src + x * ssize + (uint64_t)y * (uint64_t)t.sstep, ssize, it->any);
        if (step && x < t.rows && y < t.columns)
            body_store(t.dst + x * dsize + (uint64_t)y * (uint64_t)t.dstep, dsize, it->any,
                       body_finish(it, body_cast(values[x * (side + 1) + y], it->from, it->acc)));
    }
}

#ifndef __CUDACC__
/* The work of one block. */
static inline void device_body_block(const void *image, const struct device_launch *l, uint32_t block)
{
    const struct device_item *it = body_item(image, l->first, l->n, l->blocks, block);
    _Alignas(16) unsigned char tile[TILE_BYTES];
    for (uint32_t thread = 0; thread < DEVICE_THREADS; thread++)
        switch (l->kernel) {
        case DEVICE_COPY: body_copy(image, it, block, thread); break;
        case DEVICE_CAST: body_cast4(image, it, block, thread); break;
        case DEVICE_CAST_ANY: body_cast_any(image, it, block, thread); break;
        case DEVICE_FOLD: body_fold_sum(image, it, block, thread); break;
        case DEVICE_FOLD_ANY: body_fold_any(image, it, block, thread); break;
        case DEVICE_TRANSPOSE: body_transpose(image, it, block, thread, tile, 0); break;
        default: body_transpose_any(image, it, block, thread, tile, 0); break;
        }
    for (uint32_t thread = 0; thread < DEVICE_THREADS; thread++)
        if (l->kernel == DEVICE_TRANSPOSE)
            body_transpose(image, it, block, thread, tile, 1);
        else if (l->kernel == DEVICE_TRANSPOSE_ANY)
            body_transpose_any(image, it, block, thread, tile, 1);
}
#endif
#endif
