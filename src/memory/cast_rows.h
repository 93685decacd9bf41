/* Casts of rows, and of pieces that are gathered before. */
#ifndef WEFT_MEMORY_CAST_ROWS_H
#define WEFT_MEMORY_CAST_ROWS_H
#include <stddef.h>
#include <stdint.h>

#include "memory/pick.h"

/* Casts turns, dstep bytes apart. In each the n pieces follow each other in dst: they are gathered in a block first, so
 * that dst is written in long runs. A turn has at most CAST_ROWS_BLOCK bytes on either side. What comes next is
 * prefetched. */
#define CAST_ROWS_BLOCK 16384
void cast_rows_pieces(void *dst, int64_t dstep, int to, const struct pick_piece *pieces, int n, int from,
                      int64_t turns);

/* cast_run for `rows` rows, dstep and sstep bytes apart. */
void cast_rows(void *dst, int64_t dstep, int to, const void *src, int64_t sstep, int from, size_t n, size_t rows);

/* Elements of the shortest row that cast_rows casts where it is as fast as if rows were gathered before. */
size_t cast_rows_shortest(int to, int from);
#endif
