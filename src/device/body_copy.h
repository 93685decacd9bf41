/* DEVICE_COPY. */
#ifndef WEFT_DEVICE_BODY_COPY_H
#define WEFT_DEVICE_BODY_COPY_H
#include "device/body_value.h"

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
            body_find_any(image, it, loops, u + k * DEVICE_THREADS, &d, &s);                              \
            BODY_LOAD(T, v[k], s);                                                                        \
        }                                                                                                 \
        DEVICE_UNROLL for (uint32_t k = 0; k < (each); k++) if (u + k * DEVICE_THREADS < units)           \
        {                                                                                                 \
            body_find_any(image, it, loops, u + k * DEVICE_THREADS, &d, &s);                              \
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

/* The same source to several places. */
DEVICE_FN void body_copy_all(const void *image, const struct device_item *it, uint32_t block, uint32_t thread)
{
    const uint32_t u = body_unit(it, block, thread, 1), rest = it->rest, more = it->turned[0];
    const struct device_box *places = (const struct device_box *)((const unsigned char *)image + (size_t)it->more * 16);
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
            DEVICE_ROLLED for (uint32_t k = 0; k < more; k++) BODY_STORE(uint8_t, d + places[k].dst + i, byte);
        }
    } else {
        BODY_LOAD(body_v16, v, s);
        BODY_STORE(body_v16, d, v);
        DEVICE_ROLLED for (uint32_t k = 0; k < more; k++) BODY_STORE(body_v16, d + places[k].dst, v);
    }
}

/* ---- rows whose addresses are anything ----
 * A unit is 16 bytes of dst that begin at a multiple of 16 and have bytes of a row. A thread loads the two words of src
 * around its unit, which are aligned to 16 bytes, too, and shifts them into the unit. So all loads have 16 bytes, and
 * all stores but those at the ends of a row. A thread loads a word of src only if a byte of it is copied: then the
 * whole word is in the allocation, because allocations begin and end at multiples of 16. Other kernels may write the
 * bytes around the row meanwhile; no thread uses what it loaded of them. */

/* The word of src at `at`, of which bytes [from, to) are used; on the host no others are read. */
DEVICE_FN body_v16 body_row_word(uint64_t at, uint32_t from, uint32_t to)
{
    body_v16 v;
    v.x = v.y = v.z = v.w = 0;
    if (from < to) {
#ifdef __CUDACC__
        BODY_LOAD(body_v16, v, at);
#else
        memcpy((unsigned char *)&v + from, DEVICE_AT(at + from, to - from), to - from);
#endif
    }
    return v;
}

/* The 32 bits that begin `bits` bits above the lowest one of high and low. */
DEVICE_FN uint32_t body_funnel(uint32_t low, uint32_t high, uint32_t bits)
{
#ifdef __CUDA_ARCH__
    return __funnelshift_r(low, high, bits);
#else
    return bits ? low >> bits | high << (32 - bits) : low;
#endif
}

/* The 16 bytes that begin `off` bytes behind the first one of a and b. Words are chosen by conditions: an array that is
 * indexed by a variable would be in memory. */
DEVICE_FN body_v16 body_row_shift(body_v16 a, body_v16 b, uint32_t off)
{
    const uint32_t bits = off % 4 * 8;
    uint32_t e = b.x;
    body_v16 v;
    if (off & 8) {
        a.x = a.z;
        a.y = a.w;
        a.z = b.x;
        a.w = b.y;
        e = b.z;
        b.y = b.w;
    }
    if (off & 4) {
        a.x = a.y;
        a.y = a.z;
        a.z = a.w;
        a.w = e;
        e = b.y;
    }
    v.x = body_funnel(a.x, a.y, bits);
    v.y = body_funnel(a.y, a.z, bits);
    v.z = body_funnel(a.z, a.w, bits);
    v.w = body_funnel(a.w, e, bits);
    return v;
}

/* Stores bytes [from, to) of the unit: its first ones or its last ones are missing. */
DEVICE_FN void body_row_end(uint64_t at, body_v16 v, uint32_t from, uint32_t to)
{
    const uint64_t low = (uint64_t)v.y << 32 | v.x, high = (uint64_t)v.w << 32 | v.z;
    DEVICE_ROLLED for (uint32_t size; from < to; from += size)
    {
        size = from & 1 || to - from < 2 ? 1 : from & 2 || to - from < 4 ? 2 : from & 4 || to - from < 8 ? 4 : 8;
        body_store(at + from, size, 0, (from & 8 ? high : low) >> 8 * (from & 7));
    }
}

DEVICE_FN void body_copy_row(const void *image, const struct device_item *it, uint32_t block, uint32_t thread)
{
    const struct device_loop *inner = body_loops(it) + it->loops - 1;
    const uint32_t u = body_unit(it, block, thread, 1), bytes = it->turned[0];
    uint64_t d, s;
    if (u >= it->units)
        return;
    const uint32_t k = u - (it->loops > 1 ? body_divide_turn(inner, u) : 0) * inner->n;
    body_find(image, it, it->loops, u, &d, &s);
    /* Bytes [from, to) of the unit are those of the row from 16 * k + from - before on. */
    const uint32_t before = (uint32_t)(d % ITEM_BYTES), from = k ? 0 : before, end = bytes + before - ITEM_BYTES * k;
    const uint32_t to = end < ITEM_BYTES ? end : ITEM_BYTES;
    if (k && bytes + before <= ITEM_BYTES * k)
        return;
    d -= before;
    s -= before;
    const uint32_t off = (uint32_t)(s % ITEM_BYTES), cut = ITEM_BYTES - off; /* `cut` bytes are in the first word */
    const body_v16 a = body_row_word(s - off, off + from, to < cut ? off + to : ITEM_BYTES);
    const body_v16 b = body_row_word(s - off + ITEM_BYTES, from > cut ? from - cut : 0, to > cut ? to - cut : 0);
    const body_v16 v = body_row_shift(a, b, off);
    if (to - from == ITEM_BYTES)
        BODY_STORE(body_v16, d, v);
    else
        body_row_end(d, v, from, to);
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
    if (it->form == FORM_ROWS) {
        body_copy_row(image, it, block, thread);
        return;
    }
    if (it->form == FORM_COPIES) {
        body_copy_all(image, it, block, thread);
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
#endif
