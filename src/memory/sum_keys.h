/* The keys of sum.h's product sum, for hosts and for kernels of src/device. */
#ifndef WEFT_MEMORY_SUM_KEYS_H
#define WEFT_MEMORY_SUM_KEYS_H
#include "memory/half.h"

/* The table T: odd random numbers, of which number j ends in 2 * j + 1, in 7 bits. */
/* clang-format off */
#define SUM_KEYS { \
    0xe220a801, 0x6e789e03, 0x06c45d05, 0xf88bb887, 0x1b398909, 0x53cb9f0b, 0x2c829a8d, 0xc584130f, \
    0x3ee57891, 0xf3b84893, 0x657eec95, 0xc2d32697, 0x8621a019, 0x8e1f751b, 0xb54e0f1d, 0x84bb3f9f, \
    0x7d298221, 0xc3cf1723, 0x3466e9a5, 0xd81a8d27, 0xdb016029, 0xa9038aab, 0xedf5f1ad, 0x54496aaf, \
    0xdd7c01b1, 0x935e82b3, 0x69b82eb5, 0x40d29eb7, 0xa2f09db9, 0xee521d3b, 0xf16952bd, 0x377d35bf, \
    0x0c7de841, 0x05582d43, 0xd2547445, 0x69630f47, 0x417ef949, 0x3c3c41cb, 0x6e19904d, 0x4fa9fa4f, \
    0x84eb4451, 0x134f70d3, 0x07dc9355, 0x12c015d7, 0xcc06c359, 0xecee655b, 0x3e84ecdd, 0x690ed45f, \
    0x774615e1, 0x22b353e3, 0xe3ddd865, 0xdf268ae7, 0x2098eb69, 0x03d6846b, 0xc952c56d, 0x9b196bef, \
    0x30260371, 0xcf448a73, 0xf4a578f5, 0xbfdeaef7, 0xed794079, 0x55f070fb, 0x3e00a37d, 0xe255b27f, \
}
/* clang-format on */

/* R of a block. Its low 33 bits are 1 + 128 times the number of the block, those of T[j] end in 2 * j + 1: together
 * they make the low 33 bits of all keys of 16 GiB different. */
HALF_FN uint64_t sum_factor(uint64_t block)
{
    uint64_t x = (block + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return x << 33 | (block << 7 & UINT64_C(0x1ffffffff)) | 1;
}
#endif
