/* What all bodies of kernels need: how they load and store, and how a thread finds its work in the table.
 *
 * An includer may define DEVICE_AT(address, bytes), which turns an address of the table into a pointer to these bytes;
 * without it the address is the pointer. The pointer must have the alignment of the address up to 16 bytes. */
#ifndef WEFT_DEVICE_BODY_WALK_H
#define WEFT_DEVICE_BODY_WALK_H
#include <stdint.h>
#include <string.h>

#include "device/device_table.h"
#include "device/item.h"
#include "memory/half.h"
#include "weft.h"

#ifdef __CUDACC__ /* addresses of tables are in global memory: compilers must know it to load without a detour */
#define DEVICE_AT(address, bytes) __cvta_global_to_generic((size_t)(address))
#elif !defined DEVICE_AT
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
    uint32_t lo = map[block >> shift], hi = shift ? map[(block >> shift) + 1] : lo;
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

/* Where turn `turn` of loop i is behind the beginning. */
DEVICE_FN void body_turn_at(const void *image, const struct device_item *it, const struct device_loop *l, int i,
                            uint32_t turn, uint64_t *d, uint64_t *s)
{
    if (i == it->member) {
        const struct device_box *box =
            (const struct device_box *)((const unsigned char *)image + (size_t)it->more * 16) + turn;
        *d += box->dst;
        *s += box->src;
    } else {
        *d += (uint64_t)turn * (uint64_t)l[i].stride[0];
        *s += (uint64_t)turn * (uint64_t)l[i].stride[1];
    }
}

/* The addresses of turn u of the loops, for any number of loops. */
DEVICE_FN void body_find_any(const void *image, const struct device_item *it, int loops, uint32_t u, uint64_t *dst,
                             uint64_t *src)
{
    const struct device_loop *l = body_loops(it);
    uint64_t d = it->dst, s = it->src;
    DEVICE_ROLLED for (int i = loops - 1; i >= 0; i--)
    {
        uint32_t q = i ? body_divide_turn(&l[i], u) : 0;
        body_turn_at(image, it, l, i, u - q * l[i].n, &d, &s);
        u = q;
    }
    *dst = d;
    *src = s;
}

/* The same. Most works have up to three loops: then no turn of a loop waits for what another one loads. Boxes are the
 * last of them, or the last but one. */
DEVICE_FN void body_find(const void *image, const struct device_item *it, int loops, uint32_t u, uint64_t *dst,
                         uint64_t *src)
{
    const struct device_loop *l = body_loops(it);
    const int member = it->member;
    uint64_t d = it->dst, s = it->src;
    if (member == ITEM_NONE && loops == 1) {
        d += (uint64_t)u * (uint64_t)l[0].stride[0];
        s += (uint64_t)u * (uint64_t)l[0].stride[1];
    } else if (member == ITEM_NONE && loops == 2) {
        const uint32_t q = body_divide_turn(&l[1], u), turn = u - q * l[1].n;
        d += (uint64_t)turn * (uint64_t)l[1].stride[0] + (uint64_t)q * (uint64_t)l[0].stride[0];
        s += (uint64_t)turn * (uint64_t)l[1].stride[1] + (uint64_t)q * (uint64_t)l[0].stride[1];
    } else if (loops == 3) {
        const uint32_t q = body_divide_turn(&l[2], u), p = body_divide_turn(&l[1], q);
        d += (uint64_t)p * (uint64_t)l[0].stride[0];
        s += (uint64_t)p * (uint64_t)l[0].stride[1];
        body_turn_at(image, it, l, 1, q - p * l[1].n, &d, &s);
        body_turn_at(image, it, l, 2, u - q * l[2].n, &d, &s);
    } else if (loops) {
        body_find_any(image, it, loops, u, &d, &s);
    }
    *dst = d;
    *src = s;
}

/* The first unit of this thread. Its others follow at distances of DEVICE_THREADS; it has `each` of them. */
DEVICE_FN uint32_t body_unit(const struct device_item *it, uint32_t block, uint32_t thread, uint32_t each)
{
    return (block - it->block) * (DEVICE_THREADS * each) + thread;
}
#endif
