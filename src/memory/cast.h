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

/* Casts turns, dstep bytes apart. In each the n pieces follow each other in dst: they are gathered in a block first, so
 * that dst is written in long runs. A turn has at most CAST_BLOCK bytes on either side. What comes next is prefetched.
 */
#define CAST_BLOCK 16384
struct pick_piece;
void cast_pieces(void *dst, int64_t dstep, int to, const struct pick_piece *pieces, int n, int from, int64_t turns);

/* cast_run for `rows` rows, dstep and sstep bytes apart. */
void cast_many(void *dst, int64_t dstep, int to, const void *src, int64_t sstep, int from, size_t n, size_t rows);

/* Elements of the shortest row that cast_many casts where it is as fast as if rows were gathered before. */
size_t cast_shortest(int to, int from);

/* Does the cast leave every bit pattern as it is? True of equal dtypes other than bool, and of
 * integers of one size. */
bool cast_is_move(int to, int from);
#endif
