/* Jacobi's iteration for Laplace's equation on N x N points, with a Cartesian communicator of MPI:
 *
 *   mpirun -n 4 build/examples/jacobi_openmpi 512 1000
 *
 * The same program for weft is 11_jacobi.c. */
#include <stdio.h>
#include <stdlib.h>

#include <mpi.h>

#include "jacobi.h"

/* Piece i of n points that are cut into p: ceil(n/p) each, the last ones fewer or none. */
static int64_t begin(int n, int p, int i)
{
    int64_t each = (n + p - 1) / p, at = each * i;
    return at < n ? at : n;
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 512, steps = argc > 2 ? atoi(argv[2]) : 1000;
    int rank, size, dims[2] = {0, 0}, periods[2] = {0, 0}, at[2];
    MPI_Comm grid_comm;
    double *grid[2];
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int d = 1; d * d <= size; d++) /* as MPI_Dims_create, but in the order of weft's */
        dims[0] = size % d ? dims[0] : d;
    dims[1] = size / dims[0];
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &grid_comm);
    MPI_Comm_rank(grid_comm, &rank);
    MPI_Cart_coords(grid_comm, rank, 2, at);
    int64_t inner[2], pitch;
    for (int d = 0; d < 2; d++)
        inner[d] = begin(n, dims[d], at[d] + 1) - begin(n, dims[d], at[d]);
    pitch = inner[1] + 2;
    /* Neighbours in the order of MPI: up, down, left, right. */
    MPI_Datatype row, column;
    MPI_Type_contiguous((int)inner[1], MPI_DOUBLE, &row);
    MPI_Type_vector((int)inner[0], 1, (int)pitch, MPI_DOUBLE, &column);
    MPI_Type_commit(&row);
    MPI_Type_commit(&column);
    MPI_Datatype types[4] = {row, row, column, column};
    int counts[4] = {1, 1, 1, 1};
    MPI_Aint send[4] = {pitch + 1, inner[0] * pitch + 1, pitch + 1, pitch + inner[1]};
    MPI_Aint receive[4] = {1, (inner[0] + 1) * pitch + 1, pitch, pitch + inner[1] + 1};
    for (int i = 0; i < 4; i++) {
        send[i] *= (MPI_Aint)sizeof(double);
        receive[i] *= (MPI_Aint)sizeof(double);
    }
    for (int i = 0; i < 2; i++) {
        grid[i] = malloc((size_t)((inner[0] + 2) * pitch) * sizeof(double));
        if (!grid[i])
            MPI_Abort(grid_comm, 1);
        jacobi_begin(grid[i], inner, at[0] == 0);
    }
    double change = 1, sum, started = jacobi_seconds();
    for (int step = 0; step < steps; step++) {
        double *old = grid[step % 2];
        MPI_Neighbor_alltoallw(old, counts, send, types, old, counts, receive, types, grid_comm);
        change = jacobi_step(grid[(step + 1) % 2], old, inner);
        if (step % 10 == 9)
            MPI_Allreduce(MPI_IN_PLACE, &change, 1, MPI_DOUBLE, MPI_MAX, grid_comm);
    }
    double took = jacobi_seconds() - started;
    sum = jacobi_sum(grid[steps % 2], inner);
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_DOUBLE, MPI_SUM, grid_comm);
    if (rank == 0)
        jacobi_print("MPI", n, size, steps, change, sum, took);
    for (int i = 0; i < 2; i++)
        free(grid[i]);
    MPI_Type_free(&row), MPI_Type_free(&column), MPI_Comm_free(&grid_comm);
    MPI_Finalize();
    return 0;
}
