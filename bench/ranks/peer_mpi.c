/* The same work through an MPI library, for weft bench --peers: started by mpirun, driven by the orders that its
 * argument names. Buffers, datatypes and requests are made once for each cell, not in the calls. */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench/ranks/orders.h"
#include "bench/ranks/peer_grid.h"
#include "bench/work/matrix.h"

struct peer {
    int rank, ranks;
    struct work_cell cell;
    float *in, *out, *pack;
    int count, share; /* floats */
    MPI_Request halo[4];
    int nhalo;
    struct peer_grid grid;
    /* reshard and many */
    float *got; /* what came and is not in its place yet; pack is what is sent */
    struct matrix matrix, *tensors;
    struct lists {
        int scount[ORDERS_RANKS], rcount[ORDERS_RANKS], sat[ORDERS_RANKS], rat[ORDERS_RANKS];
    } typed, packed; /* counts of types and bytes of displacement; elements */
    MPI_Datatype stype[ORDERS_RANKS], rtype[ORDERS_RANKS], send_type, recv_type;
};

/* in: to the left, to the right; out: from the left, from the right. */
static int halo_post(struct peer *p, MPI_Request *q, bool persistent)
{
    int n = 0;
    for (int side = 0; side < 2; side++) {
        int other = side ? p->rank + 1 : p->rank - 1;
        if (other < 0 || other >= p->ranks)
            continue;
        float *r = p->out + (size_t)side * (size_t)p->count, *s = p->in + (size_t)side * (size_t)p->count;
        if (persistent) {
            MPI_Recv_init(r, p->count, MPI_FLOAT, other, !side, MPI_COMM_WORLD, &q[n++]);
            MPI_Send_init(s, p->count, MPI_FLOAT, other, side, MPI_COMM_WORLD, &q[n++]);
        } else {
            MPI_Irecv(r, p->count, MPI_FLOAT, other, !side, MPI_COMM_WORLD, &q[n++]);
            MPI_Isend(s, p->count, MPI_FLOAT, other, side, MPI_COMM_WORLD, &q[n++]);
        }
    }
    return n;
}

static int halo(struct peer *p, bool persistent)
{
    MPI_Request q[4];
    if (persistent) {
        MPI_Startall(p->nhalo, p->halo);
        return MPI_Waitall(p->nhalo, p->halo, MPI_STATUSES_IGNORE);
    }
    int n = halo_post(p, q, false);
    return MPI_Waitall(n, q, MPI_STATUSES_IGNORE);
}

/* Takes messages as they come; a probe tells their sizes. */
static int exchange(struct peer *p)
{
    MPI_Request q[2];
    int n = 0, err = 0;
    for (int side = 0; side < 2; side++) {
        int other = side ? p->rank + 1 : p->rank - 1;
        if (other >= 0 && other < p->ranks)
            MPI_Isend(p->in + (size_t)side * (size_t)p->count, p->count, MPI_FLOAT, other, 0, MPI_COMM_WORLD, &q[n++]);
    }
    for (int i = 0; i < n && !err; i++) {
        MPI_Status s;
        int count;
        MPI_Probe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &s);
        MPI_Get_count(&s, MPI_FLOAT, &count);
        float *to = p->out + (s.MPI_SOURCE > p->rank ? (size_t)p->count : 0);
        err = MPI_Recv(to, count, MPI_FLOAT, s.MPI_SOURCE, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    return err ? err : MPI_Waitall(n, q, MPI_STATUSES_IGNORE);
}

static int ping(struct peer *p)
{
    MPI_Comm world = MPI_COMM_WORLD;
    if (p->rank == 0) {
        MPI_Send(p->in, p->count, MPI_FLOAT, 1, 0, world);
        return MPI_Recv(p->out, p->count, MPI_FLOAT, 1, 0, world, MPI_STATUS_IGNORE);
    }
    if (p->rank == 1) {
        MPI_Recv(p->out, p->count, MPI_FLOAT, 0, 0, world, MPI_STATUS_IGNORE);
        return MPI_Send(p->out, p->count, MPI_FLOAT, 0, 0, world);
    }
    return 0;
}

/* ---- rows to columns ---- */

/* With derived types, from place to place; a cast follows. */
static int reshard_typed(struct peer *p)
{
    bool casts = p->matrix.size == 2;
    struct lists *l = &p->typed;
    int err = MPI_Alltoallw(p->in, l->scount, l->sat, p->stype, casts ? p->got : p->out, l->rcount, l->rat, p->rtype,
                            MPI_COMM_WORLD);
    if (casts && (size_t)p->rank >= p->matrix.first)
        matrix_round((uint16_t *)(void *)p->out, p->got, p->matrix.rows * p->matrix.width);
    return err;
}

/* Packed by hand, cast while packing, and unpacked if it does not land in its place. */
static int reshard_packed(struct peer *p)
{
    const struct matrix *m = &p->matrix;
    struct lists *l = &p->packed;
    MPI_Datatype type = m->size == 2 ? MPI_UINT16_T : MPI_FLOAT;
    bool lands = matrix_lands_packed(m);
    if ((size_t)p->rank < m->k)
        matrix_pack(m, p->in, p->pack);
    int err = MPI_Alltoallv(p->pack, l->scount, l->sat, type, lands ? p->out : p->got, l->rcount, l->rat, type,
                            MPI_COMM_WORLD);
    if (!lands && (size_t)p->rank >= m->first)
        matrix_unpack(m, p->got, p->out);
    return err;
}

/* All tensors in one exchange: packed by destination, unpacked by source. */
static int many_packed(struct peer *p)
{
    size_t n = (size_t)p->ranks, whole = (size_t)work_count(&p->cell) / n / n, at = 0;
    for (int t = 0; t < p->cell.tensors; t++) {
        const struct matrix *m = &p->tensors[t];
        for (size_t j = 0; j < n; j++)
            matrix_cut(m, j, p->in + at * n, p->pack + j * whole + at);
        at += m->height * m->width;
    }
    int err = MPI_Alltoall(p->pack, (int)whole, MPI_FLOAT, p->got, (int)whole, MPI_FLOAT, MPI_COMM_WORLD);
    at = 0;
    for (int t = 0; t < p->cell.tensors; t++) {
        size_t piece = p->tensors[t].height * p->tensors[t].width;
        for (size_t i = 0; i < n; i++)
            memcpy(p->out + at * n + i * piece, p->got + i * whole + at, piece * sizeof *p->out);
        at += piece;
    }
    return err;
}

static int do_call(void *self, int variant)
{
    struct peer *p = self;
    MPI_Comm world = MPI_COMM_WORLD;
    switch (p->cell.op) {
    case WORK_BARRIER: return MPI_Barrier(world);
    case WORK_BROADCAST: return MPI_Bcast(p->out, p->count, MPI_FLOAT, 0, world);
    case WORK_ALLGATHER: return MPI_Allgather(p->in, p->count, MPI_FLOAT, p->out, p->count, MPI_FLOAT, world);
    case WORK_REDUCE_SCATTER:
        if (variant)
            return MPI_Allreduce(p->in, p->out, p->share * p->ranks, MPI_FLOAT, MPI_SUM, world);
        return MPI_Reduce_scatter_block(p->in, p->out, p->share, MPI_FLOAT, MPI_SUM, world);
    case WORK_ALLREDUCE: return MPI_Allreduce(p->in, p->out, p->count, MPI_FLOAT, MPI_SUM, world);
    case WORK_ALL_TO_ALL: return MPI_Alltoall(p->in, p->share, MPI_FLOAT, p->out, p->share, MPI_FLOAT, world);
    case WORK_HALO: return halo(p, variant == 1);
    case WORK_EXCHANGE: return exchange(p);
    case WORK_PING: return ping(p);
    case WORK_RESHARD: return variant ? reshard_packed(p) : reshard_typed(p);
    case WORK_MANY: return many_packed(p);
    case WORK_GRID: return peer_grid_call(&p->grid, variant);
    default: return -1;
    }
}

static void free_type(MPI_Datatype *type)
{
    if (*type != MPI_DATATYPE_NULL)
        MPI_Type_free(type);
}

static void release(struct peer *p)
{
    for (int i = 0; i < p->nhalo; i++)
        MPI_Request_free(&p->halo[i]);
    peer_grid_close(&p->grid);
    free_type(&p->send_type);
    free_type(&p->recv_type);
    free(p->in);
    free(p->out);
    free(p->pack);
    free(p->got);
    free(p->tensors);
    p->in = p->out = p->pack = p->got = NULL;
    p->tensors = NULL;
    p->nhalo = 0;
}

/* Makes the types of what a source has for a destination, relative to the first of its columns, and of where it lands,
 * relative to the first of its rows. */
static void make_types(struct peer *p)
{
    const struct matrix *m = &p->matrix;
    int width = (int)m->width, row_block = (int)m->row_block, column_block = (int)m->column_block, k = (int)m->k;
    int blocks = (int)(m->height / m->row_block);
    MPI_Type_vector((int)(m->height * m->width / m->column_block), column_block, k * column_block, MPI_FLOAT,
                    &p->send_type);
    if (m->turned) { /* a row at a time, each behind the one before */
        MPI_Datatype row;
        MPI_Type_vector(width, 1, (int)m->rows, MPI_FLOAT, &row);
        MPI_Type_create_resized(row, 0, sizeof(float), &p->recv_type);
        MPI_Type_free(&row);
    } else {
        MPI_Type_vector(blocks, row_block * width, k * row_block * width, MPI_FLOAT, &p->recv_type);
    }
    MPI_Type_commit(&p->send_type);
    MPI_Type_commit(&p->recv_type);
}

static void open_reshard(struct peer *p)
{
    const struct matrix *m = &p->matrix;
    int piece = (int)(m->height * m->width), k = (int)m->k, first = (int)m->first;
    make_types(p);
    memset(&p->typed, 0, sizeof p->typed);
    memset(&p->packed, 0, sizeof p->packed);
    for (int r = 0; r < p->ranks; r++) {
        p->stype[r] = p->send_type;
        p->rtype[r] = p->recv_type;
    }
    for (int j = 0; p->rank < k && j < k; j++) {
        p->typed.scount[first + j] = 1;
        p->typed.sat[first + j] = j * (int)m->column_block * (int)sizeof(float);
        p->packed.scount[first + j] = piece;
        p->packed.sat[first + j] = j * piece;
    }
    for (int i = 0; p->rank >= first && i < k; i++) {
        size_t row = matrix_row(m, (size_t)i, 0);
        p->typed.rcount[i] = m->turned ? (int)m->height : 1;
        p->typed.rat[i] = (int)((m->turned ? row : row * m->width) * sizeof(float));
        p->packed.rcount[i] = piece;
        p->packed.rat[i] = i * piece;
    }
}

static float *take(size_t bytes, bool wanted)
{
    float *f = malloc(wanted && bytes ? bytes : 1);
    if (f && wanted)
        memset(f, 0, bytes);
    return f;
}

static int do_open(void *self, const struct work_cell *cell, char *why, size_t cap)
{
    struct peer *p = self;
    size_t in, out;
    release(p);
    p->cell = *cell;
    work_sizes(cell, p->rank, p->ranks, &in, &out);
    p->count = (int)work_count(cell);
    p->share = (int)work_share(cell, p->ranks);
    p->matrix = matrix_of(cell, p->ranks);
    bool reshards = cell->op == WORK_RESHARD, many = cell->op == WORK_MANY;
    p->in = take(in, true);
    p->out = take(out, true);
    p->pack = take(in, reshards || many);
    p->got = take(out, many || (reshards && (p->matrix.size == 2 || !matrix_lands_packed(&p->matrix))));
    p->tensors = calloc((size_t)cell->tensors + 1, sizeof *p->tensors);
    if (!p->in || !p->out || !p->pack || !p->got || !p->tensors) {
        snprintf(why, cap, "no memory for buffers of %zu and %zu bytes", in, out);
        return -1;
    }
    for (int i = 0; i < cell->tensors; i++)
        p->tensors[i] = matrix_of_tensor(i, p->ranks);
    if (reshards)
        open_reshard(p);
    if (cell->op == WORK_HALO)
        p->nhalo = halo_post(p, p->halo, true);
    if (cell->op == WORK_GRID)
        peer_grid_open(&p->grid, &cell->grid, p->rank, p->out);
    return 0;
}

static struct work_memory memory_of(const struct peer *p)
{
    bool faces = p->cell.op == WORK_HALO || p->cell.op == WORK_EXCHANGE;
    return (struct work_memory){p->in, p->out, p->out + (faces ? p->count : 0)};
}

static void do_fill(void *self, int variant)
{
    struct peer *p = self;
    (void)variant;
    struct work_memory m = memory_of(p);
    work_fill(&p->cell, p->rank, p->ranks, &m);
}

static int64_t do_check(void *self, int variant)
{
    struct peer *p = self;
    struct work_memory m = memory_of(p);
    if (p->cell.op == WORK_REDUCE_SCATTER && variant)
        m.out += (size_t)p->rank * (size_t)p->share;
    return work_check(&p->cell, p->rank, p->ranks, &m);
}

static int do_barrier(void *self)
{
    (void)self;
    return MPI_Barrier(MPI_COMM_WORLD);
}

/* Lets the library make progress with what other ranks still wait for. */
static void do_idle(void *self)
{
    int some;
    (void)self;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &some, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv)
{
    static struct peer p = {.send_type = MPI_DATATYPE_NULL, .recv_type = MPI_DATATYPE_NULL};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &p.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &p.ranks);
    if (work_cores() > 1) /* otherwise the launcher has bound it */
        work_pin(p.rank);
    int fd = argc == 2 ? open(argv[1], O_RDWR) : -1;
    struct orders *b = MAP_FAILED;
    if (fd >= 0)
        b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (b == MAP_FAILED || b->ranks != (uint32_t)p.ranks) {
        fprintf(stderr, "peer_mpi: started by weft bench --peers, with the orders to work by\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    struct subject s = {.self = &p,
                        .rank = p.rank,
                        .ranks = p.ranks,
                        .open = do_open,
                        .fill = do_fill,
                        .check = do_check,
                        .barrier = do_barrier,
                        .call = do_call,
                        .idle = do_idle};
    orders_serve(b, &s);
    release(&p);
    MPI_Finalize();
    return 0;
}
