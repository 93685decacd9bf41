/* Jacobi's iteration for Laplace's equation on N x N points, on any number of processes:
 *
 *   weft run -n 4 build/examples/11_jacobi 512 1000
 *
 * The same program for MPI is jacobi_mpi.c: what differs are the lines that move data. The square is cut both ways. One
 * side is kept at 1, the others at 0. Each rank has its points with one ghost around them, twice: a step reads one
 * buffer and writes the other. Five points read no corners, so the layout with ghosts has none: that is the + in it. */
#include <stdio.h>
#include <stdlib.h>

#include <weft.h>
#include <weft/collective.h>

#include "jacobi.h"

static void must(int err)
{
    if (!err)
        return;
    fprintf(stderr, "jacobi: %s; start it by: weft run -n 4 build/examples/11_jacobi\n", weft_errmsg());
    exit(1);
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 512, steps = argc > 2 ? atoi(argv[2]) : 1000, down = 1;
    char text[2][80];
    weft_comm *comm;
    weft_layout *points, *ghosts;
    weft_plan *plan;
    weft_exec *exec[2];
    weft_local local;
    weft_box own;
    size_t boxes;
    void *grid[2];
    must(weft_comm_open(NULL, NULL, &comm));
    int rank = weft_comm_rank(comm), size = weft_comm_size(comm);
    for (int d = 1; d * d <= size; d++)
        down = size % d ? down : d;
    snprintf(text[0], sizeof text[0], "f64[%d/y,%d/x] @y%d.x%d", n, n, down, size / down);
    snprintf(text[1], sizeof text[1], "f64[%d/y~1,%d/x~1]+ @y%d.x%d", n, n, down, size / down);
    must(weft_layout_parse(text[0], &points));
    must(weft_layout_parse(text[1], &ghosts));
    must(weft_lower(&(weft_move){"grid", points, ghosts}, 1, rank, NULL, &plan));
    must(weft_layout_local(ghosts, rank, &local));
    must(weft_layout_boxes(points, rank, &own, 1, &boxes));
    int64_t pitch = local.shape[1], strides[2] = {pitch * 8, 8};
    for (int i = 0; i < 2; i++) { /* in place: the source is inside the destination */
        must(weft_comm_alloc(comm, (size_t)local.bytes, WEFT_MEMORY_HOST, 0, &grid[i]));
        weft_view to = WEFT_VIEW(grid[i], (size_t)local.bytes), from = to;
        from.data = (double *)grid[i] + pitch + 1;
        from.bytes = (size_t)(local.bytes - (pitch + 1) * 8);
        from.strides = strides;
        must(weft_bind(plan, comm, &from, &to, NULL, &exec[i]));
        jacobi_begin(grid[i], local.inner, own.at[0] == 0);
    }
    double change = 1, sum, started = jacobi_seconds();
    for (int step = 0; step < steps; step++) {
        must(weft_exec_run(exec[step % 2]));
        change = jacobi_step(grid[(step + 1) % 2], grid[step % 2], local.inner);
        if (step % 10 == 9)
            must(weft_allreduce(comm, &change, &change, 1, WEFT_F64, WEFT_MAX));
    }
    double took = jacobi_seconds() - started;
    sum = jacobi_sum(grid[steps % 2], local.inner);
    must(weft_allreduce(comm, &sum, &sum, 1, WEFT_F64, WEFT_SUM));
    if (rank == 0)
        jacobi_print("weft", n, size, steps, change, sum, took);
    for (int i = 0; i < 2; i++)
        weft_exec_close(exec[i]);
    weft_plan_free(plan), weft_layout_free(points), weft_layout_free(ghosts), weft_comm_close(comm);
    return 0;
}
