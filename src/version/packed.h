/* Boxes on the bus. In a rank's own buffer the boxes of a layout may have room between them, and the boxes of another
 * tensor may lie there: q, k and v in one array. So the bus keeps them packed: the boxes of a rank one behind the
 * other, in the order of its list, each dense and row-major. A snapshot, its digests, and what is staged for the
 * caller's arrays have no byte that is in no box. */
#ifndef WEFT_VERSION_PACKED_H
#define WEFT_VERSION_PACKED_H
#include "layout/layout.h"
#include "memory/memory.h"

/* The boxes of a rank: first to end - 1 of the list; both are 0 if it has none. */
void packed_boxes(const weft_layout *l, int rank, size_t *first, size_t *end);
int64_t packed_box(const struct box_list *b, size_t box); /* elements of a box */
/* Elements of all boxes of a rank: no more than its own buffer has, since no slot of that is in two boxes. */
int64_t packed_count(const weft_layout *l, int rank);

/* The rank's boxes, one by one. */
struct packed_walk {
    const struct box_list *list;
    size_t box, end;
    int64_t packed, count; /* in elements: where the box is in the packed array, and how many it has */
    int64_t loose;         /* where it is in the rank's own buffer */
};
struct packed_walk packed_begin(const weft_layout *l, int rank);
bool packed_next(struct packed_walk *w); /* false: that was the last one */
/* The box as loops. Operand `packed` is its packed form with elements of `size` bytes, the other one that in the rank's
 * own buffer with elements of `loose` bytes. */
struct memory_tile packed_tile(const struct packed_walk *w, int packed, int64_t size, int64_t loose);
#endif
