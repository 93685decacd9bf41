/* The same work through an MPI library, for weft bench --peers: started by mpirun, driven by the board that its argument
 * names. Buffers, datatypes and requests are made once for each cell, not in the calls. */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench/board.h"

struct peer {
    int rank, ranks;
    struct work_cell cell;
    float *in, *out, *pack;
    int count, share; /* floats */
    MPI_Request halo[4];
    int nhalo;
    /* reshard */
    int k, first, h, w; /* shards; first destination rank; rows and columns of one piece */
    int scount[BOARD_RANKS], rcount[BOARD_RANKS], sbytes[BOARD_RANKS], rbytes[BOARD_RANKS];
    int pcount[BOARD_RANKS], pat[BOARD_RANKS], rat[BOARD_RANKS];
    MPI_Datatype stype[BOARD_RANKS], rtype[BOARD_RANKS], piece[BOARD_RANKS];
    int npieces;
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

static int reshard(struct peer *p, bool pack)
{
    if (!pack)
        return MPI_Alltoallw(p->in, p->scount, p->sbytes, p->stype, p->out, p->rcount, p->rbytes, p->rtype, MPI_COMM_WORLD);
    size_t row = (size_t)p->cell.columns, w = (size_t)p->w, h = (size_t)p->h;
    for (size_t j = 0; p->rank < p->k && j < (size_t)p->k; j++)
        for (size_t r = 0; r < h; r++)
            memcpy(p->pack + (j * h + r) * w, p->in + r * row + j * w, w * sizeof(float));
    return MPI_Alltoallv(p->pack, p->pcount, p->pat, MPI_FLOAT, p->out, p->rcount, p->rat, MPI_FLOAT, MPI_COMM_WORLD);
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
    case WORK_PING: return ping(p);
    case WORK_RESHARD: return reshard(p, variant == 1);
    default: return -1;
    }
}

static void release(struct peer *p)
{
    for (int i = 0; i < p->nhalo; i++)
        MPI_Request_free(&p->halo[i]);
    for (int i = 0; i < p->npieces; i++)
        MPI_Type_free(&p->piece[i]);
    free(p->in);
    free(p->out);
    free(p->pack);
    p->in = p->out = p->pack = NULL;
    p->nhalo = p->npieces = 0;
}

static void open_reshard(struct peer *p)
{
    const struct work_cell *c = &p->cell;
    int k = p->k = c->apart ? p->ranks / 2 : p->ranks, piece = 0;
    p->first = p->ranks - k;
    p->h = (int)(c->rows / k);
    p->w = (int)(c->columns / k);
    piece = p->h * p->w;
    for (int r = 0; r < p->ranks; r++) {
        p->stype[r] = p->rtype[r] = MPI_FLOAT;
        p->scount[r] = p->rcount[r] = p->sbytes[r] = p->rbytes[r] = p->pcount[r] = p->pat[r] = p->rat[r] = 0;
    }
    for (int j = 0; p->rank < k && j < k; j++) {
        int whole[2] = {p->h, (int)c->columns}, part[2] = {p->h, p->w}, at[2] = {0, j * p->w}, to = p->first + j;
        MPI_Type_create_subarray(2, whole, part, at, MPI_ORDER_C, MPI_FLOAT, &p->piece[j]);
        MPI_Type_commit(&p->piece[j]);
        p->npieces++;
        p->stype[to] = p->piece[j];
        p->scount[to] = 1;
        p->pcount[to] = piece;
        p->pat[to] = j * piece;
    }
    for (int i = 0; p->rank >= p->first && i < k; i++) {
        p->rcount[i] = piece;
        p->rat[i] = i * piece;
        p->rbytes[i] = i * piece * (int)sizeof(float);
    }
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
    bool reshards = cell->op == WORK_RESHARD;
    p->in = malloc(in ? in : 1);
    p->out = malloc(out ? out : 1);
    p->pack = malloc(reshards && in ? in : 1);
    if (!p->in || !p->out || !p->pack) {
        snprintf(why, cap, "no memory for buffers of %zu and %zu bytes", in, out);
        return -1;
    }
    memset(p->in, 0, in);
    memset(p->out, 0, out);
    if (reshards) {
        memset(p->pack, 0, in);
        open_reshard(p);
    }
    if (cell->op == WORK_HALO)
        p->nhalo = halo_post(p, p->halo, true);
    return 0;
}

static void do_fill(void *self, int variant)
{
    struct peer *p = self;
    (void)variant;
    struct work_memory m = {p->in, p->out, p->out + (p->cell.op == WORK_HALO ? p->count : 0)};
    work_fill(&p->cell, p->rank, p->ranks, &m);
}

static int64_t do_check(void *self, int variant)
{
    struct peer *p = self;
    struct work_memory m = {p->in, p->out, p->out + (p->cell.op == WORK_HALO ? p->count : 0)};
    if (p->cell.op == WORK_REDUCE_SCATTER && variant)
        m.out += (size_t)p->rank * (size_t)p->share;
    return work_check(&p->cell, p->rank, p->ranks, &m);
}

static int do_barrier(void *self)
{
    (void)self;
    return MPI_Barrier(MPI_COMM_WORLD);
}

/* Lets the library go on with what other ranks still wait for. */
static void do_idle(void *self)
{
    int some;
    (void)self;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &some, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv)
{
    static struct peer p;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &p.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &p.ranks);
    int fd = argc == 2 ? open(argv[1], O_RDWR) : -1;
    struct board *b = MAP_FAILED;
    if (fd >= 0)
        b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (b == MAP_FAILED || b->ranks != (uint32_t)p.ranks) {
        fprintf(stderr, "peer_mpi: started by weft bench --peers, with the board to work by\n");
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
    board_serve(b, &s);
    release(&p);
    MPI_Finalize();
    return 0;
}
