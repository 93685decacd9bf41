/* DEVICE_SUM: the product sum of memory/sum.h over the bytes of an item. A block sums one item: each thread some of its
 * units of 16 bytes, and then one thread the sums of all. */
#ifndef WEFT_DEVICE_BODY_SUM_H
#define WEFT_DEVICE_BODY_SUM_H
#include "device/body_walk.h"
#include "memory/sum_keys.h"

#define BODY_SUM_ROW 16 /* units of a block of sum.h, which have the same R */

#ifdef __CUDACC__
static __constant__ const uint32_t body_sum_keys[4 * BODY_SUM_ROW] = SUM_KEYS;
#else
static const uint32_t body_sum_keys[4 * BODY_SUM_ROW] = SUM_KEYS;
#endif

/* The last unit, if it has fewer bytes: each adds its part of a word. */
DEVICE_FN uint64_t body_sum_rest(const struct device_item *it)
{
    const uint32_t u = it->units - 1, rest = it->rest;
    const uint64_t at = it->src + (uint64_t)u * ITEM_BYTES;
    uint64_t sum = 0;
    uint8_t byte;
    DEVICE_ROLLED for (uint32_t i = 0; i < rest; i++)
    {
        BODY_LOAD(uint8_t, byte, at + i);
        sum += ((uint64_t)byte << 8 * (i % 4)) * body_sum_keys[4 * (u % BODY_SUM_ROW) + i / 4];
    }
    return sum * sum_factor(u / BODY_SUM_ROW);
}

/* `sums` has room for the sum of each thread of the block. Phase 1 begins when all threads have done phase 0. */
DEVICE_FN void body_sum(const struct device_item *it, uint32_t thread, uint64_t *sums, int phase)
{
    uint64_t sum = 0;
    if (!phase) {
        const uint32_t *keys = body_sum_keys + 4 * (thread % BODY_SUM_ROW); /* DEVICE_THREADS is a multiple of a row */
        const uint64_t a = keys[0], b = keys[1], c = keys[2], d = keys[3];
        const uint32_t whole = it->rest ? it->units - 1 : it->units;
        DEVICE_ROLLED for (uint32_t u = thread; u < whole; u += DEVICE_THREADS)
        {
            body_v16 v;
            BODY_LOAD(body_v16, v, it->src + (uint64_t)u * ITEM_BYTES);
            sum += (v.x * a + v.y * b + v.z * c + v.w * d) * sum_factor(u / BODY_SUM_ROW);
        }
        sums[thread] = sum;
    } else if (!thread) {
        sum = body_sum_rest(it);
        DEVICE_ROLLED for (uint32_t i = 0; i < DEVICE_THREADS; i++) sum += sums[i];
        BODY_STORE(uint64_t, it->dst, sum);
    }
}
#endif
