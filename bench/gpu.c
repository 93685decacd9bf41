/* Runs on one GPU beside the driver's own copy of the same bytes, in turns: `build/bench/gpu` with ranks that are
 * threads, or processes with --processes, which share the GPU by MPS if it is on. Each row is a pair of layouts. A run
 * is started on a stream of each rank, REPS of them back to back, and the time is that of one run. The last columns are
 * the microseconds that a start takes on the host, and those of a run from start to wait. --graphs adds those of a run
 * that was captured into a graph, REPS launches of it back to back. Medians of the rounds.
 * --json prints one object for each row. --bind times weft_bind of 45,000 tensors instead, whose buffers are in 1 to
 * 1,000 allocations in turns; it needs no CUDA beside weft, so WEFT_DEVICE=sim measures the host's share of it. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <weft.h>

#include "gpu.h"

#define RANKS 16
#define ROUNDS_MOST 101

/* ---- the rows ---- */

struct options {
    bool processes, json, graphs, bind;
    int64_t mib;
    int rounds, ranks[8], nranks;
    const char *only;
};

struct row {
    const char *name;
    char src[200], dst[200];
    int64_t bytes; /* that the driver's copy reads and writes: half of all that must be read and written */
    int reps;
    int tensors;     /* 0: one */
    int allocations; /* in which they are in turns on each side; 0: one */
};

static void name_row(struct row *r, const char *name, int64_t bytes)
{
    *r = (struct row){.name = name, .bytes = bytes, .reps = bytes > 64 << 20 ? 10 : 50};
}

#define SIDES(r, s, d, ...) \
    (snprintf((r)->src, sizeof(r)->src, s, __VA_ARGS__), snprintf((r)->dst, sizeof(r)->dst, d, __VA_ARGS__))

/* Of tensor i of n: 1 to 64 KiB, in an order that is not that of their sizes. */
static int64_t tensor_bytes(int i, int n)
{
    return (int64_t)(1024 * exp2(6.0 * (i * 7919 % n) / n)) / 64 * 64;
}

/* All rows for n ranks and data of `all` bytes. */
static int rows_of(struct row *r, int n, int64_t all)
{
    int64_t side = 1024;
    int k = 0;
    while (side * side * 4 < all)
        side *= 2;
    int64_t rows = all / 4 / side;
    name_row(&r[k], "contiguous", all);
    snprintf(r[k].src, sizeof r[k].src, "f32[%" PRId64 "/x] @x%d", all / 4, n);
    int at = snprintf(r[k].dst, sizeof r[k].dst, "f32[%" PRId64 "/x] @x%d=", all / 4, n);
    for (int i = 0; i < n; i++)
        at += snprintf(r[k].dst + at, sizeof r[k].dst - (size_t)at, "%s%d", i ? "," : "", (i + 1) % n);
    name_row(&r[++k], "rows to columns", all);
    SIDES(&r[k], "f32[%" PRId64 "/x,%" PRId64 "] @x%d", "f32[%" PRId64 ",%" PRId64 "/x] @x%d", rows, side, n);
    name_row(&r[++k], "rows to columns, bf16", all * 3 / 4);
    SIDES(&r[k], "f32[%" PRId64 "/x,%" PRId64 "] @x%d", "bf16[%" PRId64 ",%" PRId64 "/x] @x%d", rows, side, n);
    name_row(&r[++k], "block-cyclic rows", all);
    SIDES(&r[k], "f32[%" PRId64 "/x,%" PRId64 "] @x%d", "f32[%" PRId64 "/x:16,%" PRId64 "] @x%d", rows, side, n);
    name_row(&r[++k], "runs of 64 bytes", all);
    SIDES(&r[k], "f32[%" PRId64 "/x,%d] @x%d", "f32[%" PRId64 ",%d/x] @x%d", all / 64 / n, 16 * n, n);
    name_row(&r[++k], "runs of 32 bytes", all);
    SIDES(&r[k], "f32[%" PRId64 "/x,%d] @x%d", "f32[%" PRId64 ",%d/x] @x%d", all / 32 / n, 8 * n, n);
    name_row(&r[++k], "rows of 662 bytes", all / 662 / n * n * 662);
    SIDES(&r[k], "bf16[%" PRId64 "/x,%d] @x%d", "bf16[%" PRId64 ",%d/x] @x%d", all / 662 / n, 331 * n, n);
    name_row(&r[++k], "casts to runs of 64 bytes", all * 3 / 4);
    SIDES(&r[k], "f32[%" PRId64 "/x,%d] @x%d", "bf16[%" PRId64 ",%d/x] @x%d", all / 128 / n, 32 * n, n);
    /* of 1 to 64 KiB, as many small as large ones by the logarithm of their sizes */
    name_row(&r[++k], "2000 tensors, 31 MB", 0);
    r[k].tensors = 2000;
    for (int i = 0; i < r[k].tensors; i++)
        r[k].bytes += tensor_bytes(i, r[k].tensors);
    name_row(&r[++k], "reduce-scatter", (all + all / n) / 2);
    SIDES(&r[k], "f32[%" PRId64 "] @x%d +sum(x)", "f32[%" PRId64 "/x] @x%d", all / 4 / n, n);
    name_row(&r[++k], "allreduce", all);
    SIDES(&r[k], "f32[%" PRId64 "] @x%d +sum(x)", "f32[%" PRId64 "] @x%d", all / 4 / n, n);
    name_row(&r[++k], "allgather", (all / n + all) / 2);
    SIDES(&r[k], "f32[%" PRId64 "/x] @x%d", "f32[%" PRId64 "] @x%d", all / 4 / n, n);
    const int64_t sizes[] = {16, 65536, 1 << 20, 16 << 20};
    static const char *const names[] = {"allreduce 16 B", "allreduce 64 KiB", "allreduce 1 MiB", "allreduce 16 MiB"};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        name_row(&r[++k], names[i], sizes[i] * n);
        SIDES(&r[k], "f32[%" PRId64 "] @x%d +sum(x)", "f32[%" PRId64 "] @x%d", sizes[i] / 4, n);
    }
    if (n > 2)
        return k + 1;
    name_row(&r[++k], "8 bytes, rank 0 to 1", 8);
    snprintf(r[k].src, sizeof r[k].src, "i64[1] @x1=0");
    snprintf(r[k].dst, sizeof r[k].dst, "i64[1] @x1=1");
    return k + 1;
}

/* ---- a rank ---- */

struct job {
    const struct options *o;
    int rank, ranks, number;
    pid_t parent;
};

struct figures {
    double run, copy, host, once; /* microseconds */
    double graph;                 /* 0: not measured, or refused */
};

static void measure(const struct job *j, weft_comm *c, weft_exec *x, void *stream, void *const copies[2],
                    const struct row *r, struct figures *f)
{
    static _Thread_local double run[ROUNDS_MOST], copy[ROUNDS_MOST], host[ROUNDS_MOST], once[ROUNDS_MOST];
    for (int round = -2; round < j->o->rounds; round++) {
        int at = round < 0 ? 0 : round;
        must(weft_comm_barrier(c, WEFT_DEADLINE));
        double begin = now();
        for (int i = 0; i < r->reps; i++)
            must(weft_exec_start_on(x, stream));
        host[at] = (now() - begin) / r->reps;
        check(cuda.sync(stream), "cuStreamSynchronize");
        must(weft_exec_wait(x, WEFT_DEADLINE));
        must(weft_comm_barrier(c, WEFT_DEADLINE));
        run[at] = (now() - begin) / r->reps;
        begin = now();
        for (int i = 0; i < 5; i++)
            must(weft_exec_run(x));
        once[at] = (now() - begin) / 5;
        must(weft_comm_barrier(c, WEFT_DEADLINE));
        begin = now();
        for (int i = 0; i < r->reps && !j->rank; i++)
            check(cuda.copy((uintptr_t)copies[0], (uintptr_t)copies[1], (size_t)r->bytes, stream), "cuMemcpyDtoDAsync");
        if (!j->rank)
            check(cuda.sync(stream), "cuStreamSynchronize");
        copy[at] = (now() - begin) / r->reps;
    }
    *f = (struct figures){median(run, j->o->rounds), median(copy, j->o->rounds), median(host, j->o->rounds),
                          median(once, j->o->rounds), 0};
}

/* Each rank captures a run and launches its graph as often. If capture is refused, it is so on all ranks. */
static double measure_graph(const struct job *j, weft_comm *c, weft_exec *x, void *stream, const struct row *r)
{
    static _Thread_local double us[ROUNDS_MOST];
    void *graph = NULL, *launchable;
    check(cuda.capture(stream, 1), "cuStreamBeginCapture"); /* 1: calls of other threads do not matter */
    int refused = weft_exec_start_on(x, stream);
    int code = cuda.captured(stream, &graph);
    if (refused) {
        if (!j->rank)
            fprintf(stderr, "gpu: no graph: %s\n", weft_errmsg());
        if (!code && graph)
            cuda.free_graph(graph);
        return 0;
    }
    check(code, "cuStreamEndCapture");
    check(cuda.instantiate(&launchable, graph, 0), "cuGraphInstantiateWithFlags");
    for (int round = -2; round < j->o->rounds; round++) {
        must(weft_comm_barrier(c, WEFT_DEADLINE));
        double begin = now();
        for (int i = 0; i < r->reps; i++)
            check(cuda.launch(launchable, stream), "cuGraphLaunch");
        check(cuda.sync(stream), "cuStreamSynchronize");
        must(weft_comm_barrier(c, WEFT_DEADLINE));
        us[round < 0 ? 0 : round] = (now() - begin) / r->reps;
    }
    check(cuda.free_launchable(launchable), "cuGraphExecDestroy");
    check(cuda.free_graph(graph), "cuGraphDestroy");
    return median(us, j->o->rounds);
}

static void print_row(const struct job *j, const struct row *r, const struct figures *f)
{
    if (j->o->json)
        printf("{\"row\": \"%s\", \"ranks\": %d, \"form\": \"%s\", \"bytes\": %" PRId64
               ", \"us\": %.2f, \"copy_us\": %.2f, \"share\": %.3f, \"host_us\": %.2f, \"once_us\": %.2f, "
               "\"graph_us\": %.2f}\n",
               r->name, j->ranks, j->o->processes ? "processes" : "threads", r->bytes, f->run, f->copy,
               f->copy / f->run, f->host, f->once, f->graph);
    else
        printf("%-24s %5d  %10.1f us  %10.1f us  %5.2f  %8.2f us  %8.1f us  %8.1f us\n", r->name, j->ranks, f->run,
               f->copy, f->copy / f->run, f->host, f->once, f->graph);
    fflush(stdout);
}

static void *take(weft_comm *c, size_t bytes)
{
    void *memory;
    must(weft_comm_alloc(c, bytes, WEFT_MEMORY_CUDA, 0, &memory));
    return memory;
}

/* The tensors of a row, and this rank's buffers. */
struct tensors {
    int n, allocations;
    weft_move *moves;
    weft_view *side[2];
    void **memory[2];
};

static weft_layout *parse(const char *text)
{
    weft_layout *l;
    must(weft_layout_parse(text, &l));
    return l;
}

static void take_side(struct tensors *t, const struct job *j, weft_comm *c, int side)
{
    size_t *all = calloc((size_t)t->allocations, sizeof *all);
    for (int i = 0; i < t->n; i++) {
        weft_local local;
        must(weft_layout_local(side ? t->moves[i].dst : t->moves[i].src, j->rank, &local));
        t->side[side][i] = (weft_view)WEFT_VIEW_INIT;
        t->side[side][i].bytes = (size_t)local.bytes;
        t->side[side][i].memory = WEFT_MEMORY_CUDA;
        all[i % t->allocations] += (t->side[side][i].bytes + 255) / 256 * 256;
    }
    t->memory[side] = calloc((size_t)t->allocations, sizeof **t->memory);
    for (int k = 0; k < t->allocations; k++) {
        char *at = t->memory[side][k] = all[k] ? take(c, all[k]) : NULL;
        for (int i = k; i < t->n; i += t->allocations) {
            t->side[side][i].data = t->side[side][i].bytes ? at : NULL;
            at += (t->side[side][i].bytes + 255) / 256 * 256;
        }
    }
    free(all);
}

static void take_tensors(struct tensors *t, const struct job *j, weft_comm *c, const struct row *r)
{
    t->n = r->tensors ? r->tensors : 1;
    t->allocations = r->allocations ? r->allocations : 1;
    t->moves = calloc((size_t)t->n, sizeof *t->moves);
    for (int i = 0; i < t->n; i++) {
        char src[64], dst[64];
        int64_t n = r->allocations ? 64 : r->tensors ? tensor_bytes(i, r->tensors) / 4 : 0;
        snprintf(src, sizeof src, "f32[%" PRId64 "] @x1=%d", n, i % j->ranks);
        snprintf(dst, sizeof dst, "f32[%" PRId64 "] @x1=%d", n, (i + 1) % j->ranks);
        t->moves[i].src = parse(r->tensors ? src : r->src);
        t->moves[i].dst = parse(r->tensors ? dst : r->dst);
    }
    for (int side = 0; side < 2; side++) {
        t->side[side] = calloc((size_t)t->n, sizeof **t->side);
        take_side(t, j, c, side);
    }
}

static void give_tensors(struct tensors *t, weft_comm *c)
{
    for (int side = 0; side < 2; side++) {
        for (int k = 0; k < t->allocations; k++)
            weft_comm_free(c, t->memory[side][k]);
        free(t->memory[side]);
        free(t->side[side]);
    }
    for (int i = 0; i < t->n; i++) {
        weft_layout_free((weft_layout *)(uintptr_t)t->moves[i].src);
        weft_layout_free((weft_layout *)(uintptr_t)t->moves[i].dst);
    }
    free(t->moves);
}

static void do_row(const struct job *j, weft_comm *c, void *stream, const struct row *r)
{
    weft_plan *plan;
    weft_exec *x;
    struct figures f;
    struct tensors t;
    if (j->o->only && !strstr(r->name, j->o->only))
        return;
    take_tensors(&t, j, c, r);
    weft_machine machine = WEFT_MACHINE_INIT;
    must(weft_comm_machine(c, &machine));
    weft_lower_opts opts = WEFT_LOWER_OPTS_INIT;
    opts.machine = &machine;
    must(weft_lower(t.moves, (size_t)t.n, j->rank, &opts, &plan));
    void *copies[2] = {NULL, NULL};
    for (int i = 0; i < 2 && !j->rank; i++)
        copies[i] = take(c, (size_t)r->bytes);
    must(weft_bind(plan, c, t.side[0], t.side[1], NULL, &x));
    measure(j, c, x, stream, copies, r, &f);
    f.graph = j->o->graphs ? measure_graph(j, c, x, stream, r) : 0;
    if (!j->rank)
        print_row(j, r, &f);
    weft_exec_close(x);
    must(weft_comm_barrier(c, WEFT_DEADLINE));
    for (int i = 0; i < 2; i++)
        weft_comm_free(c, copies[i]);
    weft_plan_free(plan);
    give_tensors(&t, c);
}

/* Milliseconds of weft_bind, the slowest rank's: all ranks meet at its end. */
static void do_bind(const struct job *j, weft_comm *c, int allocations)
{
    struct row r = {.tensors = 45000, .allocations = allocations};
    struct tensors t;
    double ms[ROUNDS_MOST];
    weft_plan *plan;
    weft_exec *x;
    take_tensors(&t, j, c, &r);
    must(weft_lower(t.moves, (size_t)t.n, j->rank, NULL, &plan));
    for (int round = 0; round < j->o->rounds; round++) {
        must(weft_comm_barrier(c, WEFT_DEADLINE));
        double begin = now();
        must(weft_bind(plan, c, t.side[0], t.side[1], NULL, &x));
        ms[round] = (now() - begin) / 1000;
        weft_exec_close(x);
    }
    must(weft_comm_barrier(c, WEFT_DEADLINE));
    if (!j->rank)
        printf(j->o->json ? "{\"bind\": %d, \"allocations\": %d, \"ranks\": %d, \"ms\": %.1f}\n"
                          : "bind %d tensors in %d allocations a side, %d ranks: %.1f ms\n",
               t.n, allocations, j->ranks, median(ms, j->o->rounds));
    fflush(stdout);
    weft_plan_free(plan);
    give_tensors(&t, c);
}

static void *do_rank(void *arg)
{
    const struct job *j = arg;
    char url[96];
    weft_comm_opts opts = WEFT_COMM_OPTS_INIT;
    weft_comm *c;
    struct row rows[24];
    void *stream;
    if (j->o->processes)
        snprintf(url, sizeof url, "shm:bench-gpu-%ld-%d", (long)j->parent, j->number);
    else
        snprintf(url, sizeof url, "threads:%d/bench-gpu-%d", j->ranks, j->number);
    opts.rank = j->rank;
    opts.ranks = j->o->processes ? j->ranks : 0;
    must(weft_comm_open(url, &opts, &c));
    for (int k = 1; k <= 1000 && j->o->bind; k *= 10)
        do_bind(j, c, k);
    if (j->o->bind) {
        weft_comm_close(c);
        return NULL;
    }
    cuda_open();
    check(cuda.stream(&stream, 1), "cuStreamCreate"); /* 1: it does not wait for the default stream */
    int n = rows_of(rows, j->ranks, j->o->mib << 20);
    for (int i = 0; i < n; i++)
        do_row(j, c, stream, &rows[i]);
    weft_comm_close(c);
    return NULL;
}

/* ---- all ranks ---- */

static int run_threads(const struct options *o, int ranks, int number)
{
    /* Each rank has a stream, and streams that wait must not share queues of the hardware. */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    pthread_t thread[RANKS];
    struct job jobs[RANKS];
    for (int r = 0; r < ranks; r++) {
        jobs[r] = (struct job){o, r, ranks, number, getpid()};
        if (pthread_create(&thread[r], NULL, do_rank, &jobs[r]))
            stop("threads", "cannot be created");
    }
    for (int r = 0; r < ranks; r++)
        pthread_join(thread[r], NULL);
    return 0;
}

static int run_processes(const struct options *o, int ranks, int number)
{
    pid_t parent = getpid();
    int failed = 0, status;
    for (int r = 0; r < ranks; r++)
        if (!fork()) {
            struct job job = {o, r, ranks, number, parent};
            do_rank(&job);
            exit(0);
        }
    while (wait(&status) > 0)
        failed |= status;
    return failed;
}

static void usage(void)
{
    printf(
        "usage: gpu [--processes] [--ranks N,...] [--mib N] [--rounds N] [--only TEXT] [--graphs] [--bind] [--json]\n"
        "Measures runs on GPU 0 beside the driver's copy of the same bytes.\n"
        "  --processes  ranks are processes; without it they are threads\n"
        "  --ranks      numbers of ranks, up to %d; 2,4,8\n"
        "  --mib        MiB of the tensor, over all ranks; 256\n"
        "  --rounds     rounds, of which the median is printed; 7\n"
        "  --only       rows whose names have this text\n"
        "  --graphs     also runs that were captured into a graph\n"
        "  --bind       the time of weft_bind for 45,000 tensors in 1 to 1,000 allocations, and no runs\n",
        RANKS);
}

static void read_options(int argc, char **argv, struct options *o)
{
    *o = (struct options){.mib = 256, .rounds = 7, .ranks = {2, 4, 8}, .nranks = 3};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!strcmp(argv[i], "--help")) {
            usage();
            exit(0);
        } else if (!strcmp(argv[i], "--processes")) {
            o->processes = true;
        } else if (!strcmp(argv[i], "--json")) {
            o->json = true;
        } else if (!strcmp(argv[i], "--graphs")) {
            o->graphs = true;
        } else if (!strcmp(argv[i], "--bind")) {
            o->bind = true;
        } else if (!value) {
            stop(argv[i], "unknown, or without its value; --help prints what there is");
        } else if (!strcmp(argv[i], "--mib")) {
            o->mib = atoll(argv[++i]);
        } else if (!strcmp(argv[i], "--rounds")) {
            o->rounds = atoi(argv[++i]);
        } else if (!strcmp(argv[i], "--only")) {
            o->only = argv[++i];
        } else if (!strcmp(argv[i], "--ranks")) {
            char *text = argv[++i];
            for (o->nranks = 0; o->nranks < 8 && *text; o->nranks++)
                o->ranks[o->nranks] = (int)strtol(text + (*text == ','), &text, 10);
        } else {
            stop(argv[i], "unknown; --help prints what there is");
        }
    }
    if (o->mib < 1 || o->rounds < 1 || o->rounds > ROUNDS_MOST)
        stop("--mib and --rounds", "out of range");
    for (int i = 0; i < o->nranks; i++)
        if (o->ranks[i] < 2 || o->ranks[i] > RANKS)
            stop("--ranks", "out of range");
}

int main(int argc, char **argv)
{
    struct options o;
    read_options(argc, argv, &o);
    if (!o.json && !o.bind)
        printf("%-24s %5s  %13s  %13s  %5s  %11s  %11s  %11s\n", "", "ranks", "weft", "driver", "share", "start",
               "start+wait", "graph");
    fflush(stdout);
    int failed = 0;
    for (int i = 0; i < o.nranks; i++)
        failed |= o.processes ? run_processes(&o, o.ranks[i], i) : run_threads(&o, o.ranks[i], i);
    return failed ? 1 : 0;
}
