/* Grids for tests of halos: pieces, ghosts and edges straight from the definitions, slot by slot, without the library.
 */
#ifndef WEFT_TESTS_HALO_GRID_H
#define WEFT_TESTS_HALO_GRID_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "random.h"
#include "weft.h"

enum { GRID_DIMS = 4, GRID_SLOTS = 1 << 16, EDGE = -1 };

struct grid {
    int ndim, ranks;
    struct grid_dim {
        int64_t extent, pieces, lo, hi;
        bool wrap;
    } dim[GRID_DIMS];
};

/* One rank's part: shape with ghosts, own elements from lo on. */
struct grid_rank {
    int64_t at[GRID_DIMS], own[GRID_DIMS], shape[GRID_DIMS];
    int64_t slots; /* 0: an empty piece */
};
struct grid_rank grid_rank(const struct grid *g, int rank);

/* What a slot is: the global index of the element that it stands for, or EDGE; and whether it is an own one. */
int64_t grid_slot(const struct grid *g, const struct grid_rank *r, int64_t slot, bool *own);

/* Adds a slot to the check of values that has begun (values.h): global is what grid_slot says. */
void grid_check(const struct grid *g, int64_t slot, int64_t global, int64_t expected, int64_t found);

/* Any grid for n ranks: uneven and empty pieces, ghosts of any width, wider than pieces too. */
void grid_random(struct random *g, int ranks, struct grid *out);

/* The layout of its elements, with ghosts or without. */
void grid_text(const struct grid *g, const char *dtype, bool ghosts, char *out, size_t cap);

/* Both layouts. */
int grid_layouts(const struct grid *g, const char *dtype, weft_layout **own, weft_layout **all);

/* The own elements as a view of the buffer with ghosts, elements of that size. */
struct grid_view {
    weft_view all, own;
    int64_t strides[GRID_DIMS];
};
void grid_view(const struct grid *g, const struct grid_rank *r, void *buffer, size_t size, struct grid_view *out);
#endif
