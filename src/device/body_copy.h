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
#endif
