/* DEVICE_CAST and DEVICE_CAST_ANY. */
#ifndef WEFT_DEVICE_BODY_CAST_H
#define WEFT_DEVICE_BODY_CAST_H
#include "device/body_lanes.h"

/* The last unit of a run, which is not whole. */
DEVICE_FN void body_cast_rest(const void *image, const struct device_item *it)
{
    const uint32_t ssize = body_size(it->from), dsize = it->size;
    uint64_t d, s;
    body_find(image, it, it->loops, it->units - 1, &d, &s);
    DEVICE_ROLLED for (uint32_t i = 0; i < it->rest; i++)
        body_store(d + i * dsize, dsize, 0, body_cast(body_load(s + i * ssize, ssize, 0), it->from, it->to));
}

#define BODY_CAST_LOAD(lanes, dtype)                                                                              \
    case dtype: {                                                                                                 \
        uint32_t w[CAST_ELEMENTS / (lanes)][BODY_WORDS] BODY_ZERO;                                                \
        DEVICE_UNROLL for (uint32_t k = 0; k < each; k++) body_words_load(at[k], (lanes)*body_size(dtype), w[k]); \
        DEVICE_UNROLL for (uint32_t k = 0; k < each; k++) body_decode(dtype, w[k], f + k * (lanes), lanes);       \
        break;                                                                                                    \
    }
#define BODY_CAST_STORE(lanes, dtype)                                                         \
    case dtype: {                                                                             \
        DEVICE_UNROLL for (uint32_t k = 0; k < each; k++) if (u + k * DEVICE_THREADS < whole) \
        {                                                                                     \
            uint32_t w[BODY_WORDS] BODY_ZERO;                                                 \
            body_encode(dtype, f + k * (lanes), w, lanes);                                    \
            body_words_store(to[k], (lanes)*body_size(dtype), w);                             \
        }                                                                                     \
        break;                                                                                \
    }

/* A thread loads all its units before it stores one. What is behind the end of the item is loaded from its last unit
 * and not stored: so no load waits for a branch. */
#define BODY_CAST(name, lanes, FROM, TO, LOAD, STORE)                                                     \
    DEVICE_FN void name(const void *image, const struct device_item *it, uint32_t block, uint32_t thread) \
    {                                                                                                     \
        const uint32_t each = CAST_ELEMENTS / (lanes), u = body_unit(it, block, thread, each);            \
        const uint32_t whole = it->units - (it->rest ? 1 : 0);                                            \
        if (u < whole) {                                                                                  \
            uint64_t at[CAST_ELEMENTS / (lanes)] BODY_ZERO, to[CAST_ELEMENTS / (lanes)] BODY_ZERO;        \
            float f[CAST_ELEMENTS] BODY_ZERO;                                                             \
            DEVICE_UNROLL for (uint32_t k = 0; k < each; k++)                                             \
            {                                                                                             \
                const uint32_t v = u + k * DEVICE_THREADS;                                                \
                body_find(image, it, it->loops, v < whole ? v : whole - 1, &to[k], &at[k]);               \
            }                                                                                             \
            switch (it->from) {                                                                           \
                FROM(LOAD)                                                                                \
            }                                                                                             \
            switch (it->to) {                                                                             \
                TO(STORE)                                                                                 \
            }                                                                                             \
        }                                                                                                 \
        if (it->rest && (whole - thread) / DEVICE_THREADS / each == block - it->block &&                  \
            (whole - thread) % DEVICE_THREADS == 0 && whole >= thread)                                    \
            body_cast_rest(image, it);                                                                    \
    }
#define BODY_LOAD4(dtype) BODY_CAST_LOAD(4, dtype)
#define BODY_STORE4(dtype) BODY_CAST_STORE(4, dtype)
#define BODY_LOAD8(dtype) BODY_CAST_LOAD(8, dtype)
#define BODY_STORE8(dtype) BODY_CAST_STORE(8, dtype)
BODY_CAST(body_cast_lanes4, 4, BODY_LANES_ALL, BODY_LANES_ALL, BODY_LOAD4, BODY_STORE4)
BODY_CAST(body_cast_lanes8, 8, BODY_LANES_NARROW, BODY_LANES_THIN, BODY_LOAD8, BODY_STORE8)

DEVICE_FN void body_cast_lanes(const void *image, const struct device_item *it, uint32_t block, uint32_t thread)
{
    if (it->form == FORM_LANES8)
        body_cast_lanes8(image, it, block, thread);
    else
        body_cast_lanes4(image, it, block, thread);
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
#endif
