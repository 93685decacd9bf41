/* Addresses that mean the same on all ranks: a rank, one of its objects (allocations of device memory), and an offset
 * in it. The program of an exec on a device has them in place of pointers. The launcher alone turns them into
 * addresses. */
#ifndef WEFT_ENGINE_DEVICE_SYMBOL_H
#define WEFT_ENGINE_DEVICE_SYMBOL_H
#include <stdint.h>

#define SYMBOL_OFFSET_BITS 38 /* 256 GiB in an object */
#define SYMBOL_OBJECT_BITS 14
#define SYMBOL_OBJECTS (UINT32_C(1) << SYMBOL_OBJECT_BITS)
#define SYMBOL_RANKS 4095 /* ranks, at most */

static inline uint64_t symbol_make(int rank, uint32_t object, uint64_t offset)
{
    return (uint64_t)(rank + 1) << (SYMBOL_OFFSET_BITS + SYMBOL_OBJECT_BITS) | (uint64_t)object << SYMBOL_OFFSET_BITS |
           offset;
}
static inline int symbol_rank(uint64_t s)
{
    return (int)(s >> (SYMBOL_OFFSET_BITS + SYMBOL_OBJECT_BITS)) - 1;
}
static inline uint32_t symbol_object(uint64_t s)
{
    return (uint32_t)(s >> SYMBOL_OFFSET_BITS) & (SYMBOL_OBJECTS - 1);
}
static inline uint64_t symbol_offset(uint64_t s)
{
    return s & ((UINT64_C(1) << SYMBOL_OFFSET_BITS) - 1);
}
#endif
