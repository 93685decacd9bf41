/* What being many costs one rank: messages, bytes, connections, files, private memory and CPU time of open, meetings,
 * bind, runs, the death of others and close. bench/scale.py starts it by weft run, and prints the table.
 *
 *   scale FILE THREADS neighbours|all [dies]
 *
 * Each process has THREADS ranks, which are threads. They exchange ghosts with two neighbours, or sum up over all
 * ranks. Every rank writes its figures into its place in FILE. With `dies` the last process ends without a farewell
 * while all other ranks are in a barrier, and these ask for the survivors; otherwise all close.
 *
 * Nothing is added up by formula: the calls by which the library sends, connects and wakes others are counted where
 * they leave it (the linker's --wrap; CMakeLists.txt). A call that sends is a message. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "weft.h"

#define RUNS 100
#define MEETINGS 10
#define ROW 256 /* elements of a rank */
#define TEXT 240

enum counter { SENDS, BYTES, CONNECTS, WAKES, COUNTERS };
enum phase { OPEN, MEET, BIND, RUN, DEATH, AGREE, CLOSE, PHASES };

struct cost {
    double seconds, cpu;
    double counts[COUNTERS];
};

/* bench/scale.py reads it. */
struct figures {
    struct cost phases[PHASES];
    double files, connections; /* when all is bound: of the process, shared among its ranks */
    double private_bytes;      /* RssAnon, without what the program had before open */
    double shared_bytes;       /* RssShmem */
    double knew;               /* seconds after the death */
    int32_t code, went;        /* went: the phases that it has passed */
    char text[TEXT];
};

struct place {
    _Atomic int32_t waits;  /* ranks that are in the last barrier */
    _Atomic int32_t agreed; /* ranks that have the list of survivors */
    _Atomic int64_t died;   /* when, in ns */
    char pad[4080];
    struct figures ranks[];
};

static struct place *place;
static int threads, processes, process;
static bool dies, with_all;
static double private_before;
static pthread_barrier_t all_bound;

/* ---- counting ---- */

static _Thread_local _Atomic uint64_t *mine; /* NULL: a thread of the library, which works for all ranks here */
static _Atomic uint64_t others[COUNTERS];

static void count(enum counter what, ssize_t n)
{
    _Atomic uint64_t *counts = mine ? mine : others;
    if (n > 0)
        atomic_fetch_add_explicit(&counts[what], (uint64_t)n, memory_order_relaxed);
}

ssize_t __real_send(int fd, const void *bytes, size_t n, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t n, int flags);
ssize_t __real_sendmsg(int fd, const struct msghdr *m, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags);
int __real_connect(int fd, const struct sockaddr *to, socklen_t n);
int __wrap_connect(int fd, const struct sockaddr *to, socklen_t n);
long __real_syscall(long number, ...);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);

ssize_t __wrap_send(int fd, const void *bytes, size_t n, int flags)
{
    ssize_t sent = __real_send(fd, bytes, n, flags);
    count(SENDS, sent > 0);
    count(BYTES, sent);
    return sent;
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags)
{
    ssize_t sent = __real_sendmsg(fd, m, flags);
    count(SENDS, sent > 0);
    count(BYTES, sent);
    return sent;
}

int __wrap_connect(int fd, const struct sockaddr *to, socklen_t n)
{
    count(CONNECTS, 1);
    return __real_connect(fd, to, n);
}

long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    if (number == SYS_futex && (b & FUTEX_CMD_MASK) == FUTEX_WAKE)
        count(WAKES, 1);
    return __real_syscall(number, a, b, c, d, e, f);
}

/* ---- what the process has ---- */

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double status_bytes(const char *field)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    double bytes = 0;
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, field, strlen(field)))
            bytes = strtod(line + strlen(field), NULL) * 1024;
    if (f)
        fclose(f);
    return bytes;
}

static void count_files(double *files, double *connections)
{
    DIR *d = opendir("/proc/self/fd");
    *files = *connections = 0;
    for (const struct dirent *e; d && (e = readdir(d));) {
        struct sockaddr_storage peer;
        socklen_t n = sizeof peer;
        int fd = atoi(e->d_name);
        if (*e->d_name == '.' || fd <= 2 || fd == dirfd(d))
            continue;
        ++*files;
        *connections += !getpeername(fd, (struct sockaddr *)&peer, &n);
    }
    if (d)
        closedir(d);
}

/* ---- a rank ---- */

struct rank {
    _Atomic uint64_t counts[COUNTERS];
    int number;
    struct figures *out;
    struct cost begin;
};

static struct cost look(const struct rank *r)
{
    struct cost c = {now(CLOCK_MONOTONIC), now(threads > 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_PROCESS_CPUTIME_ID), {0}};
    for (int i = 0; i < COUNTERS; i++)
        c.counts[i] = (double)atomic_load(&r->counts[i]) + (double)atomic_load(&others[i]) / threads;
    return c;
}

/* Ends a phase, and begins the next one. Returns err. */
static int passed(struct rank *r, enum phase phase, int err)
{
    struct cost end = look(r), *to = &r->out->phases[phase];
    *to = (struct cost){end.seconds - r->begin.seconds, end.cpu - r->begin.cpu, {0}};
    for (int i = 0; i < COUNTERS; i++)
        to->counts[i] = end.counts[i] - r->begin.counts[i];
    if (err) {
        r->out->code = err;
        snprintf(r->out->text, TEXT, "%s", weft_errmsg());
    } else {
        r->out->went = (int32_t)phase + 1;
    }
    r->begin = look(r);
    return err;
}

struct tensors {
    float row[ROW], ghosts[ROW + 2];
    float one[16], all[16];
};

static int bind_move(weft_comm *c, const char *from, const char *to, const weft_view *src, const weft_view *dst,
                     weft_exec **x)
{
    weft_layout *a = NULL, *b = NULL;
    weft_plan *plan = NULL;
    weft_machine machine = WEFT_MACHINE_INIT;
    weft_lower_opts o = WEFT_LOWER_OPTS_INIT;
    int err = weft_layout_parse(from, &a);
    if (!err)
        err = weft_layout_parse(to, &b);
    if (!err)
        err = weft_comm_machine(c, &machine);
    o.machine = &machine;
    weft_move move = {"t", a, b};
    if (!err)
        err = weft_lower(&move, 1, weft_comm_rank(c), &o, &plan);
    if (!err)
        err = weft_bind(plan, c, src, dst, NULL, x);
    weft_plan_free(plan);
    weft_layout_free(a);
    weft_layout_free(b);
    return err;
}

static float value(int rank)
{
    return (float)(rank % 1000);
}

static int bind_work(int rank, weft_comm *c, struct tensors *t, weft_exec **x)
{
    int n = processes * threads;
    char from[64], to[64];
    *t = (struct tensors){{0}, {0}, {0}, {0}};
    for (int i = 0; i < ROW; i++)
        t->row[i] = value(rank);
    for (int i = 0; i < 16; i++)
        t->one[i] = 1;
    if (with_all) {
        snprintf(from, sizeof from, "f32[16] @x%d +sum(x)", n);
        snprintf(to, sizeof to, "f32[16] @x%d", n);
        weft_view src = WEFT_VIEW(t->one, sizeof t->one), dst = WEFT_VIEW(t->all, sizeof t->all);
        return bind_move(c, from, to, &src, &dst, x);
    }
    snprintf(from, sizeof from, "f32[%d/x] @x%d", ROW * n, n);
    snprintf(to, sizeof to, "f32[%d/x~1o] @x%d", ROW * n, n);
    weft_view src = WEFT_VIEW(t->row, sizeof t->row), dst = WEFT_VIEW(t->ghosts, sizeof t->ghosts);
    return bind_move(c, from, to, &src, &dst, x);
}

static bool is_right(int rank, const struct tensors *t)
{
    int n = processes * threads;
    if (with_all)
        return t->all[0] == (float)n && t->all[15] == (float)n;
    return t->ghosts[0] == value((rank + n - 1) % n) && t->ghosts[1] == value(rank) &&
           t->ghosts[ROW + 1] == value((rank + 1) % n);
}

static int meet(weft_comm *c, int times)
{
    int err = 0;
    for (int i = 0; i < times && !err; i++)
        err = weft_comm_barrier(c, WEFT_FOREVER);
    return err;
}

static int open_rank(const struct rank *r, weft_comm **c)
{
    weft_comm_opts o = WEFT_COMM_OPTS_INIT;
    const char *url = getenv("WEFT_URL");
    char name[64];
    o.deadline_ns = INT64_C(300000000000);
    if (threads == 1)
        return weft_comm_open(NULL, &o, c);
    o.rank = r->number;
    o.ranks = processes * threads;
    if (processes == 1) {
        snprintf(name, sizeof name, "threads:%d/scale", threads);
        url = name;
        o.ranks = 0;
    }
    return weft_comm_open(url, &o, c);
}

/* The last process ends when all other ranks wait for it. */
static void die(void)
{
    int rest = (processes - 1) * threads;
    while (atomic_load(&place->waits) < rest)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL); /* until they sleep */
    atomic_store(&place->died, (int64_t)(now(CLOCK_MONOTONIC) * 1e9));
    _exit(0);
}

static int let_die(struct rank *r, weft_comm *c)
{
    if (process == processes - 1)
        die();
    atomic_fetch_add(&place->waits, 1);
    int err = weft_comm_barrier(c, WEFT_FOREVER);
    r->out->knew = now(CLOCK_MONOTONIC) - (double)atomic_load(&place->died) / 1e9;
    if (err == WEFT_EPEER)
        return 0;
    return err ? err : WEFT_EMISMATCH; /* there is a barrier without the dead */
}

/* All that are left agree on the same list. */
static int agree(weft_comm *c)
{
    int rest = (processes - 1) * threads, *list = malloc((size_t)rest * sizeof *list);
    size_t n = 0;
    int err = list ? weft_comm_survivors(c, list, (size_t)rest, &n) : WEFT_ENOMEM;
    if (!err && (n != (size_t)rest || list[0] != 0 || list[rest - 1] != rest - 1))
        err = WEFT_EMISMATCH;
    free(list);
    return err;
}

static void work(struct rank *r)
{
    weft_comm *c = NULL;
    struct tensors t;
    weft_exec *x = NULL;
    r->begin = look(r);
    if (passed(r, OPEN, open_rank(r, &c)) || passed(r, MEET, meet(c, MEETINGS)) ||
        passed(r, BIND, bind_work(r->number, c, &t, &x)))
        return;
    int err = 0;
    for (int i = 0; i < RUNS && !err; i++)
        err = weft_exec_run(x);
    if (!err && !is_right(r->number, &t))
        err = WEFT_EMISMATCH;
    if (passed(r, RUN, err))
        return;
    if (threads > 1)
        pthread_barrier_wait(&all_bound);
    count_files(&r->out->files, &r->out->connections);
    r->out->private_bytes = status_bytes("RssAnon:") - private_before;
    r->out->shared_bytes = status_bytes("RssShmem:");
    if (meet(c, 1)) { /* whoever closes first has not left before others have looked */
        passed(r, RUN, WEFT_EPEER);
        return;
    }
    r->begin = look(r);
    if (passed(r, DEATH, dies ? let_die(r, c) : 0))
        return;
    weft_exec_close(x);
    r->begin = look(r);
    int agrees = passed(r, AGREE, dies ? agree(c) : 0);
    atomic_fetch_add(&place->agreed, 1);
    if (agrees)
        return;
    /* What ranks that close tell others is not part of their agreement. */
    while (dies && atomic_load(&place->agreed) < (processes - 1) * threads)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    r->begin = look(r);
    weft_comm_close(c);
    passed(r, CLOSE, 0);
}

static void *run_rank(void *arg)
{
    struct rank *r = arg;
    mine = r->counts;
    work(r);
    mine = NULL;
    return NULL;
}

static int number(const char *text)
{
    return text ? atoi(text) : 0;
}

int main(int argc, char **argv)
{
    int fd = argc > 3 ? open(argv[1], O_RDWR) : -1;
    threads = argc > 3 ? atoi(argv[2]) : 0;
    with_all = argc > 3 && !strcmp(argv[3], "all");
    dies = argc > 4 && !strcmp(argv[4], "dies");
    process = number(getenv("WEFT_RANK"));
    processes = number(getenv("WEFT_SIZE"));
    if (fd < 0 || threads < 1 || processes < 1) {
        fprintf(stderr, "usage: weft run -n N -- scale FILE THREADS neighbours|all [dies]; see bench/scale.py\n");
        return 2;
    }
    size_t bytes = sizeof *place + (size_t)processes * (size_t)threads * sizeof(struct figures);
    place = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    struct rank *ranks = calloc((size_t)threads, sizeof *ranks);
    pthread_t *ids = calloc((size_t)threads, sizeof *ids);
    pthread_attr_t small;
    if (place == MAP_FAILED || !ranks || !ids || pthread_attr_init(&small)) {
        fprintf(stderr, "scale: no memory\n");
        return 1;
    }
    pthread_attr_setstacksize(&small, 512 << 10);
    pthread_barrier_init(&all_bound, NULL, (unsigned)threads);
    private_before = status_bytes("RssAnon:");
    for (int t = 0; t < threads; t++) {
        ranks[t].number = process * threads + t;
        ranks[t].out = &place->ranks[ranks[t].number];
    }
    if (threads == 1) {
        run_rank(&ranks[0]);
    } else {
        for (int t = 0; t < threads; t++)
            if (pthread_create(&ids[t], &small, run_rank, &ranks[t])) {
                fprintf(stderr, "scale: no thread for rank %d\n", ranks[t].number);
                return 1;
            }
        for (int t = 0; t < threads; t++)
            pthread_join(ids[t], NULL);
    }
    int failed = 0;
    for (int t = 0; t < threads; t++)
        failed |= ranks[t].out->code != 0;
    return failed;
}
