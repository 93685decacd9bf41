/* A grid of cells that is cut into equal boxes, one for each rank, each with ghosts around it: what an exchange of
 * halos moves, computed by hand. Rows are along the last dim; the ends of the grid do not wrap round. */
#ifndef WEFT_BENCH_WORK_GRID_H
#define WEFT_BENCH_WORK_GRID_H
#include "bench/work/work.h"

enum { GRID_NEIGHBOURS = 26 };

/* One rank's box. */
struct grid {
    int dims, coord[WORK_DIMS], ranks[WORK_DIMS];
    int64_t own[WORK_DIMS], wide[WORK_DIMS], shape[WORK_DIMS]; /* cells; ghosts on either side; both together */
    int64_t floats;                                            /* of the buffer, with ghosts */
};

/* What one neighbour gets and gives: boxes of the buffer. */
struct grid_face {
    int rank;
    int64_t len[WORK_DIMS], send[WORK_DIMS], recv[WORK_DIMS];
};

struct grid grid_of(const struct work_grid *cell, int rank);
/* All neighbours, at edges and corners too. Returns how many. */
int grid_faces(const struct grid *g, struct grid_face out[GRID_NEIGHBOURS]);
/* The neighbours along a dim, if the dims before it have been exchanged already, so that corners are included. */
int grid_faces_along(const struct grid *g, int dim, struct grid_face out[2]);

/* The first gives cells their values and spoils all other slots. The second counts the slots that are not as an
 * exchange leaves them. */
void grid_fill(const struct grid *g, float *cells);
int64_t grid_check(const struct grid *g, const float *cells);
double grid_moved(const struct work_grid *cell); /* bytes that all ranks together get */

/* Divides the ranks into a box that is as near to a cube as possible; the first dims have more. */
void grid_deal(int ranks, int dims, int out[WORK_DIMS]);
#endif
