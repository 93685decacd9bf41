/* Copies, with or without a cast, between a side that is contiguous along rows and a side that is contiguous along
 * columns. */
#ifndef WEFT_MEMORY_TRANSPOSE_H
#define WEFT_MEMORY_TRANSPOSE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* dst[b * drow + a * size] = src[a * srow + b * ssize] for a < high, b < wide: in bytes, for elements of `size` in dst
 * and of ssize in src. They are cast from dtype `from` to `to`. If the two are equal, or both 0, elements are moved as
 * they are. */
struct transpose {
    int64_t high, wide;
    int64_t drow, srow, ssize;
    int to, from;
};

bool transpose_knows(size_t size); /* powers of two up to 16 */
void transpose(const struct transpose *t, void *dst, const void *src, size_t size);
#endif
