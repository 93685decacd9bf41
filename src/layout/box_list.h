/* Boxes as a layout: each rank has a list of boxes of the global tensor, and each box has a place in the rank's buffer,
 * an offset and a stride for each dim. The list is checked once, when the layout is made, and indexed, so that the
 * boxes of all ranks that meet a given box are found without a walk over all of them.
 *
 *   box_list.c    from the caller's arrays to a list; equal, hash
 *   box_index.c   the index: a tree of bounds, packed, over the boxes in Z-order
 *   box_region.c  boxes without other boxes
 *   box_copies.c  boxes of the same region
 *   box_check.c   is each element in one box? is each slot of a buffer in one box?
 *   box_shape.c   other layouts as boxes; dims permuted, split and joined
 *   box_json.c    the JSON form */
#ifndef WEFT_LAYOUT_BOX_LIST_H
#define WEFT_LAYOUT_BOX_LIST_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "layout/caret.h"
#include "weft.h"

#define BOX_FAN 8     /* children of a node of the index */
#define BOX_LEVELS 13 /* of the index, at most */
#define BOX_MOST ((size_t)1 << 31)

/* Node i of level 0 is box order[i]; node i of level k has nodes i * BOX_FAN and on of level k - 1. A node's bounds are
 * ndim pairs of first and end, and the nodes of level k begin at start[k]. */
struct box_index {
    uint32_t *order;
    size_t n;
    int levels;
    size_t start[BOX_LEVELS], count[BOX_LEVELS];
    int64_t *bound;
};

/* Of a list in which some element is in several boxes. A region is what a box has of the tensor. */
struct box_copies {
    size_t n;         /* different regions */
    uint32_t *region; /* of each box */
    size_t *first;    /* region k is that of boxes member[first[k]] .. member[first[k + 1] - 1], in ascending order */
    uint32_t *member;
    struct box_index index; /* over the first box of each region */
    struct box_index *own; /* of holder i: over its boxes, if some of them meet; otherwise n is 0. NULL: none has any */
};

struct box_list {
    int ndim;
    size_t n, holders;          /* boxes; ranks that have some */
    size_t *first;              /* holder i, in ascending order of ranks, has boxes first[i] .. first[i + 1] - 1 */
    int64_t *room;              /* elements of holder i's buffer: as far as its boxes reach */
    int *rank;                  /* of each box */
    int64_t *at, *len, *stride; /* ndim for each box; strides in elements */
    int64_t *offset;            /* of each box: its first element in the buffer */
    bool shared;                /* some element is in several boxes */
    bool gaps;                  /* some element is in no box */
    struct box_index index;
    struct box_copies copies; /* if it is shared */
};

/* A region of the global tensor. */
struct box_region {
    int64_t at[WEFT_MAX_DIMS], len[WEFT_MAX_DIMS];
};
/* A growing list of regions. */
struct box_regions {
    struct box_region *v;
    size_t n, cap;
    struct arena *arena;
};

/* Makes the list and checks it. extents are those of the tensor, size the bytes of an element. box[i] is where in the
 * text box i was. */
int box_list_new(const weft_boxes *from, int ndim, const int64_t *extents, int64_t size, uint64_t flags,
                 const struct caret *w, struct box_list **out);
void box_list_free(struct box_list *b);
bool box_list_equal(const struct box_list *a, const struct box_list *b);
uint64_t box_list_hash(uint64_t h, const struct box_list *b);
/* The strides of a dense box, and how many slots a box spans from its first on. */
void box_list_dense(int ndim, const int64_t *len, int64_t *stride);
int64_t box_list_span(int ndim, const int64_t *len, const int64_t *stride);

/* ---- the index ---- */
/* Over the n boxes whose numbers ids has; NULL: over all. */
int box_index_new(const struct box_list *b, const uint32_t *ids, size_t n, struct box_index *out);
void box_index_free(struct box_index *x);
/* Calls visit for each box that shares an element with the region, until it returns non-zero, and returns that. */
int box_index_at(const struct box_list *b, const struct box_index *x, const struct box_region *r,
                 int (*visit)(void *arg, uint32_t box), void *arg);
/* Finds two boxes that share an element; false: there are none. */
bool box_index_overlap(const struct box_list *b, const struct box_index *x, uint32_t *one, uint32_t *two);

/* ---- copies ---- */
/* The region of each box, numbered in the order of their first boxes, which `first` lists. Both have room for all. */
int box_copies_number(const struct box_list *b, uint32_t *region, uint32_t *first, size_t *n);
int box_copies_new(struct box_list *b); /* makes b->copies; box_list_free frees it, also after an error */
void box_copies_free(struct box_list *b);

/* ---- regions ---- */
struct box_region box_region_of(const struct box_list *b, size_t box);
/* The common part of two regions; false: there is none. out may be a or b. */
bool box_region_meet(int ndim, const struct box_region *a, const struct box_region *b, struct box_region *out);
/* Replaces the regions of the list by what is left of them without `cut`. The pieces depend on the regions and `cut`
 * alone. */
int box_region_without(int ndim, struct box_regions *list, const struct box_region *cut);
int box_region_add(struct box_regions *list, const struct box_region *r);
int64_t box_region_count(int ndim, const struct box_region *r);

/* ---- checks ---- */
int box_check_elements(struct box_list *b, const int64_t *extents, uint64_t flags, const struct caret *w);
int box_check_buffers(const struct box_list *b, const struct caret *w);
#endif
