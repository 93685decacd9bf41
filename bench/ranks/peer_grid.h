/* Halos of a grid through an MPI library, in place: as a neighbourhood collective, by persistent requests to all
 * neighbours at once, and by persistent requests to those along one dim after another. Faces are derived datatypes. */
#ifndef WEFT_BENCH_RANKS_PEER_GRID_H
#define WEFT_BENCH_RANKS_PEER_GRID_H
#include <mpi.h>

#include "bench/work/grid.h"

struct peer_grid {
    float *cells;
    MPI_Comm around; /* the neighbours */
    int n, ones[GRID_NEIGHBOURS];
    MPI_Aint none[GRID_NEIGHBOURS]; /* displacements: datatypes begin at the buffer */
    MPI_Datatype send[GRID_NEIGHBOURS], recv[GRID_NEIGHBOURS];
    MPI_Request all[2 * GRID_NEIGHBOURS];
    int dims, nalong[WORK_DIMS];
    MPI_Request along[WORK_DIMS][4];
};

void peer_grid_open(struct peer_grid *p, const struct work_grid *cell, int rank, float *cells);
int peer_grid_call(struct peer_grid *p, int variant);
void peer_grid_close(struct peer_grid *p); /* what was opened; nothing otherwise */
#endif
