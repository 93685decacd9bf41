/* Pieces of a reader's plan, as they are made: their steps, and the blocks that these read. */
#ifndef WEFT_VERSION_READER_PIECE_H
#define WEFT_VERSION_READER_PIECE_H
#include "version/reader_plan.h"

/* Ends a step, whose `from` and `to` are set, of a piece, which grows by it. size: bytes of the publisher's element.
 * The tile is merged. */
int reader_piece_step(struct reader_plan *p, struct reader_piece *piece, struct memory_tile *t, int64_t size,
                      struct reader_step *s);
/* Adds a piece that has all its steps: lists the blocks that they read. */
int reader_piece_add(struct reader_plan *p, struct reader_piece *piece, int64_t size);
/* Adds a piece that has its list of blocks already. */
int reader_piece_push(struct reader_plan *p, const struct reader_piece *piece);

/* ---- reader_boxes.c ---- */
/* The pieces of a tensor of which at least one side is boxes. packed: the reader's boxes are packed (packed.h),
 * otherwise as in its own buffer. *missing: how many elements that the rank needs are in no box of the publisher. */
int reader_boxes(struct reader_plan *p, size_t tensor, size_t other, const weft_layout *src, const weft_layout *dst,
                 int rank, bool packed, struct arena *arena, int64_t *missing);
/* Is each element that is in a box of the publisher in a box of a live rank? *missing is a rank whose box is not. */
bool reader_boxes_covered(const weft_layout *l, const bool *live, int *missing);
#endif
