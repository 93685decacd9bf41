/* Casts of contiguous runs. */
#ifndef WEFT_MEMORY_CAST_H
#define WEFT_MEMORY_CAST_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CAST_PIECE 64 /* elements of a row that are cast at a time */

/* dst[i] = cast(src[i]) for rows of n elements, dstep and sstep bytes apart: the loop of one pair of dtypes. */
typedef void cast_loop(void *dst, int64_t dstep, const void *src, int64_t sstep, size_t n, size_t rows);

/* dst[i] = cast(src[i]) for n elements, at any alignment. The runs are disjoint. If both dtypes have the same size they
 * may also be the same run. to == from is allowed; for bool it writes 0 or 1. dtype_castable(from, to) holds. */
void cast_run(void *dst, int to, const void *src, int from, size_t n);

/* Does the cast leave every bit pattern as it is? True of equal dtypes other than bool, and of
 * integers of one size. */
bool cast_is_move(int to, int from);
#endif
