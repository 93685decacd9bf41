/* Cells: with folds, the positions of a dim are cut into cells. Within one cell the set of source slots that are terms
 * is the same for all positions, and so is the set of destination pieces that need the value. The cut depends only on
 * the two layouts, so all ranks that take part in a cell see the same cell. */
#ifndef WEFT_LOWER_CELLS_H
#define WEFT_LOWER_CELLS_H
#include "lower/job.h"

struct cell_term {
    int64_t piece, a, astep; /* a piece of the source, and where the cell is in it */
    bool ghost;
};
struct cell_dest {
    int64_t piece, b, bstep; /* a piece of the destination, and where the cell's first slot is in it */
    bool ghost;
};
struct cell {
    int64_t at, len, n, step;
    struct cell_term *term;
    struct cell_dest *dest;
    size_t nterms, ndests;
};
struct cells {
    struct cell *v;
    size_t n, cap;
};

/* The cells of a dim that this rank's piece takes part in, as a destination or as a source. */
int cells_dst(const struct job *j, int dim, struct cells *out);
int cells_src(const struct job *j, int dim, struct cells *out);
#endif
