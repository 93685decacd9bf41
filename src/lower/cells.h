/* Cells: with folds, the positions of a dim are cut so that within one cell the set of source
 * slots that are terms, and the set of destination pieces that want the value, do not change. The cut depends on the
 * two layouts alone, so that all ranks that take part in a cell see the same one. */
#ifndef WEFT_LOWER_CELLS_H
#define WEFT_LOWER_CELLS_H
#include "lower/job.h"

struct cell_term {
    int64_t piece, a, astep; /* of the source, and where the cell stands there */
    bool ghost;
};
struct cell_dest {
    int64_t piece, b, bstep; /* of the destination, and where the cell's first slot stands there */
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
