/* Random layouts of boxes, and small meshes beside them, with what each slot of each rank's buffer stands for, found
 * element by element and without the library's help. */
#ifndef WEFT_TESTS_BOXES_RANDOM_H
#define WEFT_TESTS_BOXES_RANDOM_H
#include <stdbool.h>
#include <stdint.h>

#include "random.h"
#include "weft.h"

enum { BOXES_RANKS = 6, BOXES_MOST = 48, BOXES_ROOM = 4096, BOXES_ELEMENTS = 600 };

/* The caller's arrays of a list of boxes. */
struct boxes_sample {
    int ndim;
    int64_t extents[WEFT_MAX_DIMS];
    uint64_t flags;
    weft_boxes boxes;
    int rank[BOXES_MOST];
    int64_t at[BOXES_MOST * 4], len[BOXES_MOST * 4], stride[BOXES_MOST * 4], offset[BOXES_MOST];
    /* Found element by element. */
    bool overlaps, gaps, clash; /* an element in two boxes; in none; a slot in two boxes */
};

/* What the ranks hold: slot[r][i] is the number of the element, row-major, or -1. */
struct boxes_side {
    weft_layout *layout;
    int64_t room[BOXES_RANKS];
    int64_t slot[BOXES_RANKS][BOXES_ROOM];
};

void boxes_shape(struct random *g, struct boxes_sample *s);
/* Fills the list of a sample whose shape is set. wild: it may overlap, have gaps and clash; otherwise the tensor is cut
 * into boxes, some of them perhaps copied to other ranks or left out, with the flags that this needs. */
void boxes_fill(struct random *g, struct boxes_sample *s, bool wild);
int boxes_create(const struct boxes_sample *s, enum weft_dtype dtype, weft_layout **out);
/* What the ranks of a sample hold. */
void boxes_slots(const struct boxes_sample *s, struct boxes_side *out);
/* A random mesh on the sample's shape. */
void boxes_mesh(struct random *g, const struct boxes_sample *s, char *text, size_t cap);
/* What the ranks of a mesh without ghosts hold, by weft_layout_boxes. */
void boxes_mesh_slots(const weft_layout *l, const struct boxes_sample *s, struct boxes_side *out);
#endif
