/* Digests of blocks: the product sum of memory/sum.h over the bytes of a block in the published dtype. It is computed
 * while the bytes are in the cache: as they are copied into a snapshot, or out of it. sum.h says which changes it is
 * certain to find. A sum of 0 is as good as any other. */
#ifndef WEFT_VERSION_BLOCK_SUMS_H
#define WEFT_VERSION_BLOCK_SUMS_H
#include "memory/memory.h"
#include "version/schema.h"

/* Copies n contiguous elements from an array into the part of a snapshot that begins at byte `at` of a tensor's array,
 * cast to its dtype, and adds to the sums of the array's blocks. sums NULL: no digests. */
void block_sums_store(void *dst, int64_t at, int to, const void *src, int from, int64_t n, uint64_t *sums);
/* Adds the bytes [at, at + n) of an array to the sums of its blocks. */
void block_sums_add(const void *bytes, int64_t at, int64_t n, uint64_t *sums);
/* Copies n contiguous elements out of a snapshot: those that begin at byte `at` of the array. */
void block_sums_load(void *dst, int to, const void *src, int64_t at, int from, int64_t n, uint64_t *sums);

/* Copies out of an array, tile by tile, and sums its bytes [at, end) on the way: each once, shortly before it is
 * copied, so that it comes from memory once. */
struct block_sums_walk {
    const unsigned char *array;
    int64_t at, end;
    uint64_t *sums; /* NULL: no digests */
    bool copied;    /* only bytes that are copied are summed; at and end mean nothing */
};
void block_sums_upto(struct block_sums_walk *w, int64_t end); /* sums what stands before `end` and is not summed yet */
/* Operand 1 of the tile begins at byte `at` of the array. Its strides are not negative. */
void block_sums_copy(struct block_sums_walk *w, const struct memory_tile *t, void *dst, int to, int64_t at, int from);
#endif
