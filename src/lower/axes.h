/* Sets of axes of a mesh, bit a for axis a. Coordinates on a set of axes have numbers 0, 1, ..., row-major in the order
 * of the mesh; these functions turn mesh positions into these numbers and back. */
#ifndef WEFT_LOWER_AXES_H
#define WEFT_LOWER_AXES_H
#include "layout/layout.h"

int64_t axes_count(const weft_layout *l, uint32_t set); /* how many numbers there are for the set */
int64_t axes_number(const weft_layout *l, uint32_t set, int64_t index);
int64_t axes_offset(const weft_layout *l, uint32_t set, int64_t number);
/* The part of a mesh position that comes from these axes. */
int64_t axes_part(const weft_layout *l, uint32_t set, int64_t index);

/* One number after the other, from 0: `offset` grows by what axes_offset would give, without its divisions. It may
 * start at any mesh position; the rest starts as zeros. */
struct axes_walk {
    int64_t offset, coord[WEFT_MAX_AXES];
};
void axes_next(const weft_layout *l, uint32_t set, struct axes_walk *w);
#endif
