/* Datatypes, requests and calls; see peer_grid.h. */
#include "bench/ranks/peer_grid.h"

#include <string.h>

/* A box of the buffer. */
static MPI_Datatype box(const struct grid *g, const int64_t *len, const int64_t *at)
{
    int shape[WORK_DIMS], size[WORK_DIMS], first[WORK_DIMS];
    MPI_Datatype type;
    for (int d = 0; d < g->dims; d++) {
        shape[d] = (int)g->shape[d];
        size[d] = (int)len[d];
        first[d] = (int)at[d];
    }
    MPI_Type_create_subarray(g->dims, shape, size, first, MPI_ORDER_C, MPI_FLOAT, &type);
    MPI_Type_commit(&type);
    return type;
}

static void open_along(struct peer_grid *p, const struct grid *g, int dim)
{
    struct grid_face faces[2];
    int n = grid_faces_along(g, dim, faces);
    for (int i = 0; i < n; i++) {
        MPI_Datatype recv = box(g, faces[i].len, faces[i].recv), send = box(g, faces[i].len, faces[i].send);
        MPI_Request *q = &p->along[dim][2 * i];
        MPI_Recv_init(p->cells, 1, recv, faces[i].rank, 1 + dim, MPI_COMM_WORLD, &q[0]);
        MPI_Send_init(p->cells, 1, send, faces[i].rank, 1 + dim, MPI_COMM_WORLD, &q[1]);
        MPI_Type_free(&recv); /* the requests keep them */
        MPI_Type_free(&send);
    }
    p->nalong[dim] = 2 * n;
}

void peer_grid_open(struct peer_grid *p, const struct work_grid *cell, int rank, float *cells)
{
    struct grid g = grid_of(cell, rank);
    struct grid_face faces[GRID_NEIGHBOURS];
    int ranks[GRID_NEIGHBOURS];
    memset(p, 0, sizeof *p);
    p->cells = cells;
    p->n = grid_faces(&g, faces);
    for (int i = 0; i < p->n; i++) {
        ranks[i] = faces[i].rank;
        p->ones[i] = 1;
        p->recv[i] = box(&g, faces[i].len, faces[i].recv);
        p->send[i] = box(&g, faces[i].len, faces[i].send);
        MPI_Recv_init(cells, 1, p->recv[i], ranks[i], 0, MPI_COMM_WORLD, &p->all[2 * i]);
        MPI_Send_init(cells, 1, p->send[i], ranks[i], 0, MPI_COMM_WORLD, &p->all[2 * i + 1]);
    }
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, p->n, ranks, MPI_UNWEIGHTED, p->n, ranks, MPI_UNWEIGHTED,
                                   MPI_INFO_NULL, 0, &p->around);
    p->dims = g.dims;
    for (int d = 0; d < g.dims; d++)
        open_along(p, &g, d);
}

static int run(int n, MPI_Request *requests)
{
    MPI_Startall(n, requests);
    return MPI_Waitall(n, requests, MPI_STATUSES_IGNORE);
}

int peer_grid_call(struct peer_grid *p, int variant)
{
    int err = 0;
    if (variant == 0)
        return MPI_Neighbor_alltoallw(p->cells, p->ones, p->none, p->send, p->cells, p->ones, p->none, p->recv,
                                      p->around);
    if (variant == 1)
        return run(2 * p->n, p->all);
    for (int d = 0; d < p->dims && !err; d++)
        err = run(p->nalong[d], p->along[d]);
    return err;
}

void peer_grid_close(struct peer_grid *p)
{
    if (!p->cells)
        return;
    for (int i = 0; i < p->n; i++) {
        MPI_Request_free(&p->all[2 * i]);
        MPI_Request_free(&p->all[2 * i + 1]);
        MPI_Type_free(&p->recv[i]);
        MPI_Type_free(&p->send[i]);
    }
    for (int d = 0; d < p->dims; d++)
        for (int i = 0; i < p->nalong[d]; i++)
            MPI_Request_free(&p->along[d][i]);
    MPI_Comm_free(&p->around);
    p->cells = NULL;
}
