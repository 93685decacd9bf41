/* How long a move takes, for bench/foreseen.py to lay beside what weft sim foresees. It is started by weft run.
 *
 *   foreseen TIMES TABLE RUNS FIGURE...
 *
 * TABLE has a line `name: SRC -> DST` for each tensor. The figures are the machine that plans are lowered for, the same
 * as that of weft sim: see `figures`. Rank 0 prints a line, and reads one before it opens its comm: in between the
 * caller can limit the links. All ranks begin a run at the same time, which rank 0 sets. TIMES is a file of as many
 * bytes as RUNS times (1 + ranks) times 8, all zero: it gets the begin of each run and the end on each rank, in ns. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "weft.h"

#define MOST 4096 /* tensors */
/* ns from the barrier to the begin of a run. Until then all ranks know it: on one host soon, so that caches lose
 * nothing; between hosts the barrier is over at different times. */
#define AHEAD_HERE 200000
#define AHEAD 2000000
#define AWAKE 200000 /* ns before the begin from which ranks do not sleep */
#define ALIGNED 128

static weft_machine machine = WEFT_MACHINE_INIT;
static int64_t per_host, cores;
static int64_t *const figures[] = {&per_host,
                                   &machine.latency_ns,
                                   &machine.bytes_per_us,
                                   &machine.inside_latency_ns,
                                   &machine.copy_bytes_per_us,
                                   &machine.host_copy_bytes_per_us,
                                   &machine.core_bytes_per_us,
                                   &machine.message_ns,
                                   &cores};
#define FIGURES ((int)(sizeof figures / sizeof *figures))

static weft_move moves[MOST];
static weft_view from[MOST], to[MOST];
static size_t tensors;

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int read_table(const char *path)
{
    FILE *f = fopen(path, "r");
    char line[1024];
    int err = f ? 0 : WEFT_EINVAL;
    while (!err && fgets(line, sizeof line, f)) {
        char *src = strstr(line, ": "), *dst = strstr(line, " -> ");
        if (!src || !dst || tensors == MOST) {
            err = WEFT_EINVAL;
            break;
        }
        *dst = 0;
        dst[4 + strcspn(dst + 4, "\n")] = 0;
        weft_layout *a = NULL, *b = NULL;
        err = weft_layout_parse(src + 2, &a);
        if (!err)
            err = weft_layout_parse(dst + 4, &b);
        moves[tensors++] = (weft_move){"t", a, b};
    }
    if (f)
        fclose(f);
    return err;
}

/* Memory for this rank's shards of all sources, or of all destinations, which peers can load from. */
static int make_views(weft_comm *c, bool source, weft_view *views)
{
    size_t all = 0;
    char *memory = NULL;
    for (size_t i = 0; i < tensors; i++) {
        weft_local l;
        int err = weft_layout_local(source ? moves[i].src : moves[i].dst, weft_comm_rank(c), &l);
        if (err)
            return err;
        views[i] = (weft_view)WEFT_VIEW(NULL, (size_t)l.bytes);
        all += (views[i].bytes + ALIGNED - 1) / ALIGNED * ALIGNED;
    }
    int err = weft_comm_alloc(c, all + ALIGNED, WEFT_MEMORY_HOST, 0, (void **)&memory);
    for (size_t i = 0; i < tensors && !err; i++) {
        views[i].data = memory;
        memory += (views[i].bytes + ALIGNED - 1) / ALIGNED * ALIGNED;
    }
    return err;
}

/* Lets the rank go on, on a core of its own or, with more ranks than cores, on one that has as many as the others.
 * Ranks that slept often wake up on the same core, and the system moves none of them within a run of a millisecond:
 * they would take turns while another core is idle. From here on the system may move it again. */
static void spread(int rank)
{
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all))
        return;
    int skip = rank % CPU_COUNT(&all);
    size_t core = 0;
    while (!CPU_ISSET(core, &all) || skip-- > 0)
        core++;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
    sched_setaffinity(0, sizeof all, &all);
}

static void wait_until(int64_t at, int rank)
{
    for (int64_t left; (left = at - now()) > 2 * AWAKE;)
        nanosleep(&(struct timespec){.tv_nsec = (long)(left - AWAKE) % 1000000000}, NULL);
    spread(rank);
    while (now() < at)
        sched_yield();
}

static int run(weft_comm *c, weft_exec *x, _Atomic int64_t *times, int runs)
{
    int rank = weft_comm_rank(c), err = 0;
    for (int i = 0; i < runs && !err; i++, times += 1 + weft_comm_size(c)) {
        err = weft_comm_barrier(c, WEFT_FOREVER);
        if (!err && rank == 0)
            atomic_store(times, now() + (per_host ? AHEAD : AHEAD_HERE));
        while (!err && !atomic_load(times))
            if (per_host)
                nanosleep(&(struct timespec){.tv_nsec = AWAKE}, NULL);
            else
                sched_yield();
        if (!err) {
            wait_until(atomic_load(times), rank);
            err = weft_exec_run(x);
            atomic_store(times + 1 + rank, now());
        }
    }
    return err;
}

static int work(char **argv)
{
    weft_comm *c = NULL;
    weft_plan *plan = NULL;
    weft_exec *x = NULL;
    weft_lower_opts opts = WEFT_LOWER_OPTS_INIT;
    int runs = atoi(argv[3]), err = read_table(argv[2]);
    for (int i = 0; i < FIGURES; i++)
        *figures[i] = atoll(argv[4 + i]);
    machine.ranks_per_host = (int)per_host;
    machine.cores = (int)cores;
    opts.machine = &machine;
    if (!err)
        err = weft_comm_open(NULL, NULL, &c);
    if (!err)
        err = weft_lower(moves, tensors, weft_comm_rank(c), &opts, &plan);
    if (!err)
        err = make_views(c, true, from);
    if (!err)
        err = make_views(c, false, to);
    if (!err)
        err = weft_bind(plan, c, from, to, NULL, &x);
    if (!err) {
        size_t bytes = (size_t)runs * (size_t)(1 + weft_comm_size(c)) * 8;
        int fd = open(argv[1], O_RDWR | O_CLOEXEC);
        void *times = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (fd >= 0)
            close(fd);
        err = times == MAP_FAILED ? WEFT_ENOMEM : run(c, x, times, runs);
    }
    if (err)
        fprintf(stderr, "foreseen: %s: %s\n", weft_strerror(err), weft_errmsg());
    weft_exec_close(x);
    weft_plan_free(plan);
    weft_comm_close(c);
    return err ? 1 : 0;
}

int main(int argc, char **argv)
{
    const char *rank = getenv("WEFT_RANK");
    char line[16];
    if (argc != 4 + FIGURES || !rank) {
        fprintf(stderr, "usage: weft run -n N -- foreseen TIMES TABLE RUNS FIGURE...; see bench/foreseen.py\n");
        return 2;
    }
    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    if (!strcmp(rank, "0")) {
        puts("ready");
        fflush(stdout);
        if (!fgets(line, sizeof line, stdin))
            return 2;
    }
    return work(argv);
}
