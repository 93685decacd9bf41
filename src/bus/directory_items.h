/* Collects items into one piece of memory. */
#ifndef WEFT_BUS_DIRECTORY_ITEMS_H
#define WEFT_BUS_DIRECTORY_ITEMS_H
#include "base/vec.h"
#include "bus/directory.h"

struct directory_items_draft {
    VEC(struct directory_item) items;
    VEC(unsigned char) memory; /* keys with a zero, and values */
    VEC(size_t) places;        /* of each item's key in it */
};
/* Copies the item. False: memory is out. */
bool directory_items_add(struct directory_items_draft *d, const struct directory_item *item);
/* Makes *out of the draft, which is empty afterwards. */
void directory_items_finish(struct directory_items_draft *d, int64_t revision, struct directory_items *out);
void directory_items_discard(struct directory_items_draft *d);
#endif
