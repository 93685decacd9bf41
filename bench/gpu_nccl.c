/* Collectives of ranks that share one GPU: weft beside NCCL, in turns, `build/bench/gpu_nccl LIBNCCL`. Ranks are
 * processes, which share the GPU by MPS if it is on, or threads with --threads. LIBNCCL is a libnccl.so of version 2.30
 * or later: earlier ones refuse several ranks on a GPU. Each call is queued on a stream of each rank, some of them back
 * to back, and the time is that of one call; medians of the rounds. A size is that of the larger buffer of a rank.
 *
 * NCCL's variables choose how it works; NCCL_MAX_CTAS is set to 128 over the ranks if it is not set, since the kernels
 * of all ranks must run at the same time. --symmetric registers its buffers as symmetric windows. "rows to columns" is
 * packed by cuMemcpy2D, one copy for each peer, and sent by ncclSend and ncclRecv in a group; nothing is unpacked,
 * because what a rank gets from another one is contiguous. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <weft.h>

#include "gpu.h"

#define RANKS 8
#define ROUNDS 9

struct id {
    char bytes[128];
};

static struct {
    int (*id)(struct id *out);
    int (*open)(void **comm, int ranks, struct id id, int rank);
    int (*close)(void *comm);
    int (*alloc)(void **out, size_t bytes);
    int (*free)(void *memory);
    int (*window)(void *comm, void *memory, size_t bytes, void **out, int flags);
    int (*unwindow)(void *comm, void *window);
    int (*allreduce)(const void *src, void *dst, size_t n, int dtype, int op, void *comm, void *stream);
    int (*allgather)(const void *src, void *dst, size_t n, int dtype, void *comm, void *stream);
    int (*reduce_scatter)(const void *src, void *dst, size_t n, int dtype, int op, void *comm, void *stream);
    int (*send)(const void *src, size_t n, int dtype, int peer, void *comm, void *stream);
    int (*recv)(void *dst, size_t n, int dtype, int peer, void *comm, void *stream);
    int (*all_to_all)(const void *src, void *dst, size_t n, int dtype, void *comm, void *stream);
    int (*begin)(void);
    int (*end)(void);
} nccl;

#define NCCL_F32 7
#define NCCL_SUM 0

/* CUDA_MEMCPY2D of cuda.h. */
struct copy2d {
    size_t src_x, src_y;
    int src_type;
    const void *src_host;
    uintptr_t src_device;
    void *src_array;
    size_t src_pitch, dst_x, dst_y;
    int dst_type;
    void *dst_host;
    uintptr_t dst_device;
    void *dst_array;
    size_t dst_pitch, width, height;
};
static int (*copy_2d)(const struct copy2d *what, void *stream);

static void nccl_open(const char *path)
{
    void *l = dlopen(path, RTLD_NOW | RTLD_LOCAL), *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!l)
        stop(path, dlerror());
    *(void **)&nccl.id = find(l, "ncclGetUniqueId");
    *(void **)&nccl.open = find(l, "ncclCommInitRank");
    *(void **)&nccl.close = find(l, "ncclCommDestroy");
    *(void **)&nccl.alloc = find(l, "ncclMemAlloc");
    *(void **)&nccl.free = find(l, "ncclMemFree");
    *(void **)&nccl.window = find(l, "ncclCommWindowRegister");
    *(void **)&nccl.unwindow = find(l, "ncclCommWindowDeregister");
    *(void **)&nccl.allreduce = find(l, "ncclAllReduce");
    *(void **)&nccl.allgather = find(l, "ncclAllGather");
    *(void **)&nccl.reduce_scatter = find(l, "ncclReduceScatter");
    *(void **)&nccl.send = find(l, "ncclSend");
    *(void **)&nccl.recv = find(l, "ncclRecv");
    *(void **)&nccl.all_to_all = find(l, "ncclAlltoAll");
    *(void **)&nccl.begin = find(l, "ncclGroupStart");
    *(void **)&nccl.end = find(l, "ncclGroupEnd");
    *(void **)&copy_2d = find(driver, "cuMemcpy2DAsync_v2");
}

/* ---- the cells ---- */

enum what { ALLREDUCE, ALLGATHER, REDUCE_SCATTER, ALL_TO_ALL, ROWS_TO_COLUMNS, KINDS };
static const char *const names[KINDS] = {"allreduce", "allgather", "reduce-scatter", "all-to-all", "rows to columns"};

struct job {
    const char *path;
    int rank, ranks, number;
    bool processes, symmetric;
    pid_t parent;
    struct id *id;
};

struct cell {
    enum what what;
    int64_t bytes; /* of the larger buffer of a rank */
    int64_t n[2];  /* elements of this rank's source and destination */
    char src[96], dst[96];
    int reps;
};

static void make_cell(struct cell *c, enum what what, int64_t bytes, int ranks)
{
    const int64_t all = bytes / 4, part = all / ranks > 0 ? all / ranks : 1;
    *c = (struct cell){.what = what, .bytes = bytes, .reps = bytes >= 16 << 20 ? 10 : 50};
#define SIDES(s, d, ...) \
    (snprintf(c->src, sizeof c->src, s, __VA_ARGS__), snprintf(c->dst, sizeof c->dst, d, __VA_ARGS__))
#define N "%" PRId64
    switch (what) {
    case ALLREDUCE:
        SIDES("f32[" N "] @x%d +sum(x)", "f32[" N "] @x%d", all, ranks);
        c->n[0] = c->n[1] = all;
        break;
    case ALLGATHER:
        SIDES("f32[" N "/x] @x%d", "f32[" N "] @x%d", part * ranks, ranks);
        c->n[0] = part;
        c->n[1] = part * ranks;
        break;
    case REDUCE_SCATTER:
        SIDES("f32[" N "] @x%d +sum(x)", "f32[" N "/x] @x%d", part * ranks, ranks);
        c->n[0] = part * ranks;
        c->n[1] = part;
        break;
    case ALL_TO_ALL:
        SIDES("f32[%d/x,%d," N "] @x%d", "f32[%d,%d/x," N "] @x%d", ranks, ranks, part, ranks);
        c->n[0] = c->n[1] = part * ranks;
        break;
    default: /* 8192 columns */
        SIDES("f32[" N "/x,8192] @x%d", "f32[" N ",8192/x] @x%d", bytes * ranks / 4 / 8192, ranks);
        c->n[0] = c->n[1] = all;
    }
}

static void peers(const struct job *j, const struct cell *c, const float *src, float *dst, void *comm, void *stream)
{
    const size_t part = (size_t)c->n[0] / (size_t)j->ranks;
    check(nccl.begin(), "ncclGroupStart");
    for (int p = 0; p < j->ranks; p++) {
        check(nccl.send(src + (size_t)p * part, part, NCCL_F32, p, comm, stream), "ncclSend");
        check(nccl.recv(dst + (size_t)p * part, part, NCCL_F32, p, comm, stream), "ncclRecv");
    }
    check(nccl.end(), "ncclGroupEnd");
}

/* The columns of each peer, one after the other. */
static void pack(const struct job *j, const struct cell *c, const float *src, float *to, void *stream)
{
    const size_t width = 8192 / (size_t)j->ranks * 4, rows = (size_t)c->n[0] / 8192;
    for (size_t p = 0; p < (size_t)j->ranks; p++) {
        const struct copy2d copy = {.src_type = 2, /* device memory */
                                    .src_device = (uintptr_t)src + p * width,
                                    .src_pitch = 8192 * 4,
                                    .dst_type = 2,
                                    .dst_device = (uintptr_t)to + p * rows * width,
                                    .dst_pitch = width,
                                    .width = width,
                                    .height = rows};
        check(copy_2d(&copy, stream), "cuMemcpy2DAsync");
    }
}

/* buffer: source, destination, and room to pack into. */
static void call(const struct job *j, const struct cell *c, float *const buffer[3], void *comm, void *stream)
{
    switch (c->what) {
    case ALLREDUCE:
        check(nccl.allreduce(buffer[0], buffer[1], (size_t)c->n[0], NCCL_F32, NCCL_SUM, comm, stream), "ncclAllReduce");
        break;
    case ALLGATHER:
        check(nccl.allgather(buffer[0], buffer[1], (size_t)c->n[0], NCCL_F32, comm, stream), "ncclAllGather");
        break;
    case REDUCE_SCATTER:
        check(nccl.reduce_scatter(buffer[0], buffer[1], (size_t)c->n[1], NCCL_F32, NCCL_SUM, comm, stream),
              "ncclReduceScatter");
        break;
    case ALL_TO_ALL:
        check(nccl.all_to_all(buffer[0], buffer[1], (size_t)(c->n[0] / j->ranks), NCCL_F32, comm, stream),
              "ncclAlltoAll");
        break;
    default: pack(j, c, buffer[0], buffer[2], stream); peers(j, c, buffer[2], buffer[1], comm, stream);
    }
}

/* ---- a rank ---- */

static weft_exec *bind(weft_comm *c, int rank, const struct cell *cell, float *const memory[2], weft_plan **plan)
{
    weft_move move = {0};
    weft_layout *l;
    weft_machine machine = WEFT_MACHINE_INIT;
    weft_lower_opts opts = WEFT_LOWER_OPTS_INIT;
    weft_view side[2] = {WEFT_VIEW_INIT, WEFT_VIEW_INIT};
    weft_exec *x;
    must(weft_layout_parse(cell->src, &l));
    move.src = l;
    must(weft_layout_parse(cell->dst, &l));
    move.dst = l;
    must(weft_comm_machine(c, &machine));
    opts.machine = &machine;
    must(weft_lower(&move, 1, rank, &opts, plan));
    for (int i = 0; i < 2; i++) {
        side[i].data = memory[i];
        side[i].bytes = (size_t)cell->n[i] * 4;
        side[i].memory = WEFT_MEMORY_CUDA;
    }
    must(weft_bind(*plan, c, &side[0], &side[1], NULL, &x));
    weft_layout_free((weft_layout *)(uintptr_t)move.src);
    weft_layout_free((weft_layout *)(uintptr_t)move.dst);
    return x;
}

static void measure(const struct job *j, weft_comm *c, void *comm, void *stream, const struct cell *cell)
{
    float *memory[2], *buffer[3];
    void *windows[3];
    weft_plan *plan;
    double own[ROUNDS], theirs[ROUNDS];
    for (int i = 0; i < 2; i++)
        must(weft_comm_alloc(c, (size_t)cell->n[i] * 4, WEFT_MEMORY_CUDA, 0, (void **)&memory[i]));
    for (int i = 0; i < 3; i++) {
        check(nccl.alloc((void **)&buffer[i], (size_t)cell->bytes + 4096), "ncclMemAlloc");
        if (j->symmetric)
            check(nccl.window(comm, buffer[i], (size_t)cell->bytes + 4096, &windows[i], 1), "ncclCommWindowRegister");
    }
    weft_exec *x = bind(c, j->rank, cell, memory, &plan);
    for (int round = -2; round < ROUNDS; round++) {
        const int at = round < 0 ? 0 : round;
        must(weft_comm_barrier(c, WEFT_DEADLINE));
        double begin = now();
        for (int i = 0; i < cell->reps; i++)
            must(weft_exec_start_on(x, stream));
        check(cuda.sync(stream), "cuStreamSynchronize");
        must(weft_exec_wait(x, WEFT_DEADLINE));
        must(weft_comm_barrier(c, WEFT_DEADLINE));
        own[at] = (now() - begin) / cell->reps;
        begin = now();
        for (int i = 0; i < cell->reps; i++)
            call(j, cell, buffer, comm, stream);
        check(cuda.sync(stream), "cuStreamSynchronize");
        must(weft_comm_barrier(c, WEFT_DEADLINE));
        theirs[at] = (now() - begin) / cell->reps;
    }
    if (!j->rank) {
        const double a = median(own, ROUNDS), b = median(theirs, ROUNDS);
        printf("%d %-16s %10" PRId64 " %10.1f %10.1f %6.2f\n", j->ranks, names[cell->what], cell->bytes, a, b, b / a);
        fflush(stdout);
    }
    weft_exec_close(x);
    weft_plan_free(plan);
    for (int i = 0; i < 3; i++) {
        if (j->symmetric)
            check(nccl.unwindow(comm, windows[i]), "ncclCommWindowDeregister");
        check(nccl.free(buffer[i]), "ncclMemFree");
    }
    for (int i = 0; i < 2; i++)
        weft_comm_free(c, memory[i]);
}

static void *do_rank(void *arg)
{
    static const int64_t sizes[] = {8, 64 << 10, 1 << 20, 16 << 20, 256 << 20};
    const struct job *j = arg;
    char url[96];
    weft_comm_opts opts = WEFT_COMM_OPTS_INIT;
    weft_comm *c;
    void *stream, *comm;
    struct cell cell;
    if (j->processes)
        snprintf(url, sizeof url, "shm:bench-nccl-%ld-%d", (long)j->parent, j->number);
    else
        snprintf(url, sizeof url, "threads:%d/bench-nccl-%d", j->ranks, j->number);
    opts.rank = j->rank;
    opts.ranks = j->processes ? j->ranks : 0;
    must(weft_comm_open(url, &opts, &c));
    cuda_open();
    nccl_open(j->path);
    check(cuda.stream(&stream, 1), "cuStreamCreate"); /* 1: it does not wait for the default stream */
    if (!j->rank)
        check(nccl.id(j->id), "ncclGetUniqueId");
    must(weft_comm_barrier(c, WEFT_DEADLINE));
    check(nccl.open(&comm, j->ranks, *j->id, j->rank), "ncclCommInitRank");
    for (int what = 0; what < ROWS_TO_COLUMNS; what++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            make_cell(&cell, what, sizes[i], j->ranks);
            measure(j, c, comm, stream, &cell);
        }
    make_cell(&cell, ROWS_TO_COLUMNS, (256 << 20) / j->ranks, j->ranks);
    measure(j, c, comm, stream, &cell);
    check(nccl.close(comm), "ncclCommDestroy");
    weft_comm_close(c);
    return NULL;
}

/* ---- all ranks ---- */

static int run(struct job *j)
{
    pthread_t thread[RANKS];
    struct job jobs[RANKS];
    int failed = 0, status;
    for (int r = 0; r < j->ranks; r++) {
        jobs[r] = *j;
        jobs[r].rank = r;
        if (!j->processes) {
            if (pthread_create(&thread[r], NULL, do_rank, &jobs[r]))
                stop("threads", "cannot be created");
        } else if (!fork()) {
            do_rank(&jobs[r]);
            exit(0);
        }
    }
    for (int r = 0; r < j->ranks && !j->processes; r++)
        pthread_join(thread[r], NULL);
    while (j->processes && wait(&status) > 0)
        failed |= status;
    return failed;
}

int main(int argc, char **argv)
{
    struct job job = {.processes = true, .parent = getpid()};
    int ranks[8] = {2, 4, 8}, n = 3, failed = 0;
    const bool asked = getenv("NCCL_MAX_CTAS");
    char most[16];
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--threads")) {
            job.processes = false;
        } else if (!strcmp(argv[i], "--symmetric")) {
            job.symmetric = true;
        } else if (!strcmp(argv[i], "--ranks") && i + 1 < argc) {
            char *text = argv[++i];
            for (n = 0; n < 8 && *text; n++)
                ranks[n] = (int)strtol(text + (*text == ','), &text, 10);
        } else if (argv[i][0] == '-' || job.path) {
            printf("usage: gpu_nccl LIBNCCL [--threads] [--symmetric] [--ranks N,...]\n"
                   "Collectives of 2 to %d ranks on GPU 0: microseconds of weft and of NCCL, and NCCL's time over "
                   "weft's.\n",
                   RANKS);
            return strcmp(argv[i], "--help") ? 2 : 0;
        } else {
            job.path = argv[i];
        }
    }
    if (!job.path)
        stop("libnccl.so", "its path is missing; --help says how");
    job.id = mmap(NULL, sizeof *job.id, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (job.id == MAP_FAILED)
        stop("mmap", "no memory");
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
    if (!job.processes) /* streams that wait must not share queues of the hardware; for processes weft asks for as many
                           as MPS has */
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    printf("ranks what              bytes       weft       NCCL  ratio\n");
    fflush(stdout);
    for (job.number = 0; job.number < n; job.number++) {
        job.ranks = ranks[job.number];
        if (job.ranks < 2 || job.ranks > RANKS)
            stop("--ranks", "out of range");
        snprintf(most, sizeof most, "%d", 128 / job.ranks);
        setenv("NCCL_MAX_CTAS", most, !asked);
        failed |= run(&job);
    }
    return failed ? 1 : 0;
}
