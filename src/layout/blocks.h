/* The blocks of a layout with scales: which ranks have which scales, and which ranks share a block and have to fold
 * what each of them knows of it. */
#ifndef WEFT_LAYOUT_BLOCKS_H
#define WEFT_LAYOUT_BLOCKS_H
#include "layout/layout.h"

/* l's elements at l's places, with the dtype and the scales of `as`; NULL for `as`: l without its scales. */
int blocks_like(const weft_layout *l, const weft_layout *as, weft_layout **out);

/* Where several ranks hold parts of a block, each of them knows the largest value of its own part. This gives the
 * layouts of a move after which each of them knows those of all parts. `scales` is weft_layout_scales(l). Its tensor is
 * u32 and has one more dim before the blocks: which part it is, where equal boxes of values (copies) are one part.
 * A rank has its own parts in the order of its scales, dense, so that its buffer is that of its scales. It wants the
 * parts of others in the blocks that it shares with them; the i-th box of `want` is for box owner[i] of `scales`. The
 * caller frees all three. *have is NULL if no two parts share a block. */
int blocks_fold(const weft_layout *l, const weft_layout *scales, weft_layout **have, weft_layout **want,
                uint32_t **owner);
#endif
