/* The best of several rounds counts: what else the machine does at the time can only make a round slower. Of copies it
 * is the one that a quarter of them does not exceed. They follow each other without a pause, so that caches lose
 * nothing meanwhile. */
#define _GNU_SOURCE
#include "foresee/calibrate.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "foresee/links.h"

#define PIECE ((size_t)256 << 10)       /* bytes that are copied at once, as the engine does */
#define COPIES 25                       /* rounds of copies */
#define MEMORY ((size_t)256 << 20)      /* bytes that are read and written: more than caches hold */
#define LEAST_MEMORY ((size_t)32 << 20) /* of a core, if there are many */
#define MOST_HOST ((size_t)1 << 30)     /* bytes of all cores together: more are not in caches */
#define CACHED ((size_t)256 << 10) /* the smallest size for which caches are measured; the next is twice as large, */
#define FINER ((size_t)4 << 20)    /* from here on half as large again, or a third, */
#define MOST_CACHED ((size_t)64 << 20) /* up to this one */
#define CAST ((size_t)16 << 20)
#define RUNS 300 /* of an exec, in a round */
#define MOST_CORES 256

double calibrate_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int cores_here(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
    return n < 1 ? 1 : n > MOST_CORES ? MOST_CORES : n;
}

/* ---- a move of one rank ---- */

struct local {
    weft_layout *src, *dst;
    weft_plan *plan;
    weft_comm *comm;
    weft_exec *exec;
};

static int open_local(struct local *l, const char *src, const char *dst, weft_view in, weft_view out)
{
    int err = weft_comm_open("self:", NULL, &l->comm);
    if (!err)
        err = weft_layout_parse(src, &l->src);
    if (!err)
        err = weft_layout_parse(dst, &l->dst);
    if (!err)
        err = weft_lower(&(weft_move){"t", l->src, l->dst}, 1, 0, NULL, &l->plan);
    return err ? err : weft_bind(l->plan, l->comm, &in, &out, NULL, &l->exec);
}

static void close_local(struct local *l)
{
    weft_exec_close(l->exec);
    weft_plan_free(l->plan);
    weft_comm_close(l->comm);
    weft_layout_free(l->src);
    weft_layout_free(l->dst);
}

/* ---- copies ---- */

struct copier {
    const struct copying *all;
    char *memory; /* `bytes` of it are read and written: the first half is copied to the second one */
    double took[COPIES];
};

struct copying {
    int n;
    size_t bytes;
    bool whole;        /* by one move of the library, which may have faster stores for it; otherwise by memcpy */
    atomic_int *there; /* how often threads have come to the gate */
    atomic_int *go;    /* 0: not all threads are there yet; 1: begin; -1: end */
};

/* All threads come and go on together. */
static void gate(const struct copying *a, int turn)
{
    atomic_fetch_add(a->there, 1);
    while (atomic_load(a->there) < turn * a->n)
        sched_yield();
}

static void *copy_rounds(void *arg)
{
    struct copier *c = arg;
    size_t half = c->all->bytes / 2;
    struct local l = {0};
    char text[64];
    int go, err = 0;
    while (!(go = atomic_load(c->all->go)))
        sched_yield();
    if (go < 0)
        return NULL;
    memset(c->memory, 1, c->all->bytes);
    snprintf(text, sizeof text, "u8[%zu] @x1", half);
    weft_view in = WEFT_VIEW(c->memory, half), out = WEFT_VIEW(c->memory + half, half);
    if (c->all->whole)
        err = open_local(&l, text, text, in, out);
    for (int r = 0; r < COPIES; r++) {
        gate(c->all, r + 1);
        double t = calibrate_now();
        if (c->all->whole && !err)
            err = weft_exec_run(l.exec);
        for (size_t at = 0; at < half && !c->all->whole; at += PIECE)
            memcpy(c->memory + half + at, c->memory + at, half - at < PIECE ? half - at : PIECE);
        c->took[r] = err ? INFINITY : calibrate_now() - t;
    }
    close_local(&l);
    return NULL;
}

static int no_memory(struct failure *why)
{
    return failure_set(why, CLI_WRONG, "not enough memory, or threads, to measure with");
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* whole: see struct copying. The rate at which n threads copy together if each reads and writes `bytes` bytes, in bytes
 * a nanosecond. */
static int copy_rate(int n, size_t bytes, bool whole, double *rate, struct failure *why)
{
    struct copier c[MOST_CORES] = {0};
    pthread_t thread[MOST_CORES];
    atomic_int go = 0, there = 0;
    const struct copying all = {n, bytes, whole, &there, &go};
    size_t size = bytes * (size_t)n; /* of shared memory, as ranks of a host have: it may have smaller pages */
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return no_memory(why);
    int started = 1;
    for (int i = 0; i < n; i++)
        c[i] = (struct copier){.all = &all, .memory = memory + bytes * (size_t)i};
    while (started < n && !pthread_create(&thread[started], NULL, copy_rounds, &c[started]))
        started++;
    atomic_store(&go, started == n ? 1 : -1);
    copy_rounds(&c[0]);
    for (int i = 1; i < started; i++)
        pthread_join(thread[i], NULL);
    for (int r = 0; r < COPIES; r++) /* a round lasts until the last one is done */
        for (int i = 1; i < started; i++)
            c[0].took[r] = fmax(c[0].took[r], c[i].took[r]);
    qsort(c[0].took, COPIES, sizeof *c[0].took, compare);
    *rate = (double)bytes / 2 * n / c[0].took[COPIES / 4];
    munmap(memory, size);
    return started == n && *rate > 0 ? CLI_OK : no_memory(why);
}

/* What each of n cores reads and writes, so that caches hold nothing of it. */
static size_t memory_each(size_t n)
{
    return MEMORY / n > LEAST_MEMORY ? MEMORY / n : LEAST_MEMORY;
}

/* How one core, and all of them, copy what caches hold. */
static int cached_rates(struct machine_file *m, struct failure *why)
{
    int code = CLI_OK;
    for (size_t bytes = CACHED, step = 0; bytes <= MOST_CACHED && !code; bytes += step) {
        step = bytes < FINER ? bytes : bytes & (bytes - 1) ? bytes / 3 : bytes / 2;
        struct machine_file_cached *x = &m->cached[m->ncached++];
        bool all = bytes * (size_t)m->cores <= MOST_HOST, much = bytes / 2 >= LINKS_MUCH;
        *x = (struct machine_file_cached){.bytes = (double)bytes, .copy_host = m->copy_host};
        code = copy_rate(1, bytes, false, &x->copy, why);
        if (!code && all)
            code = copy_rate((int)m->cores, bytes, false, &x->copy_host, why);
        if (!code && much)
            code = copy_rate(1, bytes, true, &x->copy_long, why);
        if (!code && much)
            x->copy_long_host = m->copy_long_host;
        if (!code && much && all)
            code = copy_rate((int)m->cores, bytes, true, &x->copy_long_host, why);
    }
    /* Less is not copied more slowly: what says so was disturbed. */
    struct machine_file_cached least = {0, m->copy, m->copy_host, m->copy_long, m->copy_long_host};
    for (size_t i = m->ncached; i-- > 0;) {
        struct machine_file_cached *x = &m->cached[i];
        x->copy = least.copy = fmax(x->copy, least.copy);
        x->copy_host = least.copy_host = fmax(x->copy_host, least.copy_host);
        if (x->copy_long > 0) {
            x->copy_long = least.copy_long = fmax(x->copy_long, least.copy_long);
            x->copy_long_host = least.copy_long_host = fmax(x->copy_long_host, least.copy_long_host);
        }
    }
    return code;
}

/* ---- messages between two ranks ---- */

struct talker {
    const char *url;
    int rank;
    double best; /* nanoseconds of a run */
    int err;
};

static int talk_with(struct talker *t, weft_comm *comm, weft_plan *plan)
{
    char from[64] = {0}, to[64] = {0};
    weft_view src = WEFT_VIEW(from, sizeof from), dst = WEFT_VIEW(to, sizeof to);
    weft_exec *exec = NULL;
    int err = weft_bind(plan, comm, &src, &dst, NULL, &exec);
    t->best = INFINITY;
    for (int r = 0; r < CALIBRATE_ROUNDS && !err; r++) {
        err = weft_comm_barrier(comm, WEFT_DEADLINE);
        double start = calibrate_now();
        for (int i = 0; i < RUNS && !err; i++)
            err = weft_exec_run(exec);
        t->best = fmin(t->best, (calibrate_now() - start) / RUNS);
    }
    weft_exec_close(exec);
    return err;
}

static void *talk(void *arg)
{
    struct talker *t = arg;
    weft_layout *src = NULL, *dst = NULL;
    weft_plan *plan = NULL;
    weft_comm *comm = NULL;
    weft_comm_opts opts = WEFT_COMM_OPTS_INIT;
    opts.rank = t->rank;
    t->err = weft_comm_open(t->url, &opts, &comm);
    if (!t->err)
        t->err = weft_layout_parse("u8[16/x] @x2", &src);
    if (!t->err)
        t->err = weft_layout_parse("u8[16] @x2", &dst);
    if (!t->err)
        t->err = weft_lower(&(weft_move){"t", src, dst}, 1, t->rank, NULL, &plan);
    if (!t->err)
        t->err = talk_with(t, comm, plan);
    weft_plan_free(plan);
    weft_comm_close(comm);
    weft_layout_free(src);
    weft_layout_free(dst);
    return NULL;
}

/* The rate of a cast from f32 to bf16, on one core. */
static int cast_rate(double *rate, struct failure *why)
{
    char src[64], dst[64];
    size_t n = CAST / 4;
    struct local l = {0};
    char *from = malloc(4 * n), *to = malloc(2 * n);
    weft_view in = WEFT_VIEW(from, 4 * n), out = WEFT_VIEW(to, 2 * n);
    double best = INFINITY;
    if (from && to) { /* memory that nobody has written is one page of zeros, which a cache holds */
        memset(from, 0x3f, 4 * n);
        memset(to, 0x3f, 2 * n);
    }
    snprintf(src, sizeof src, "f32[%zu] @x1", n);
    snprintf(dst, sizeof dst, "bf16[%zu] @x1", n);
    int err = from && to ? open_local(&l, src, dst, in, out) : WEFT_ENOMEM;
    for (int r = 0; r < CALIBRATE_ROUNDS && !err; r++) {
        double start = calibrate_now();
        err = weft_exec_run(l.exec);
        best = fmin(best, calibrate_now() - start);
    }
    close_local(&l);
    free(from);
    free(to);
    *rate = 3.0 * (double)n / best;
    return err ? failure_set(why, CLI_WRONG, "a cast could not be measured: %s", weft_strerror(err)) : CLI_OK;
}

/* The time in which two threads give each other eight bytes. */
static int exchange_time(double *ns, struct failure *why)
{
    char url[64];
    snprintf(url, sizeof url, "threads:2/calibrate-%d", (int)getpid());
    struct talker t[2] = {{.url = url}, {.url = url, .rank = 1}};
    pthread_t other;
    if (pthread_create(&other, NULL, talk, &t[1]))
        return no_memory(why);
    talk(&t[0]);
    pthread_join(other, NULL);
    if (t[0].err || t[1].err)
        return failure_set(why, CLI_WRONG, "two ranks could not be measured: %s", weft_strerror(t[0].err));
    *ns = fmax(t[0].best, t[1].best);
    return CLI_OK;
}

int calibrate_measure(struct machine_file *m, struct failure *why)
{
    double both = 0;
    int code = machine_file_open("plain", m, why);
    m->ranks_per_host = 0;
    m->cores = cores_here();
    if (!code)
        code = copy_rate(1, MEMORY, false, &m->copy, why);
    if (!code)
        code = copy_rate((int)m->cores, memory_each((size_t)m->cores), false, &m->copy_host, why);
    if (!code)
        code = copy_rate(1, MEMORY, true, &m->copy_long, why);
    if (!code)
        code = copy_rate((int)m->cores, memory_each((size_t)m->cores), true, &m->copy_long_host, why);
    if (!code)
        code = cached_rates(m, why);
    if (!code)
        code = cast_rate(&m->cast, why);
    if (!code)
        code = exchange_time(&both, why);
    if (!code)
        calibrate_exchange(both, m);
    return code;
}

void calibrate_exchange(double both, struct machine_file *m)
{
    m->message = both / 4;
    m->inside_latency = both / 2;
}

/* With more hosts more is lost, by the logarithm of their peers (links.c). */
static double crowd_rate(int hosts, double rate, double nic)
{
    double lost = fmax(0, nic / rate - 1) * log(LINKS_CROWD - 1) / log(hosts - 1);
    return nic / (1 + lost);
}

void calibrate_nics(int hosts, double brief, double lengthy, struct machine_file *m)
{
    m->nic_crowd = crowd_rate(hosts, (hosts - 1) * (double)LINKS_CROWD_SHORT / brief, m->nic);
    m->nic_crowd_long = crowd_rate(hosts, (hosts - 1) * (double)LINKS_CROWD_LONG / lengthy, m->nic);
}

void calibrate_crowd(const struct calibrate_crowd *x, struct machine_file *m)
{
    double messages = x->hosts * (x->hosts - 1), bytes = messages * x->bytes;
    double all = fmax(0, x->cores * (x->much - x->small) / bytes);
    double own = fmin(all, fmax(0, x->hosts * (x->much_own - x->small_own) / bytes));
    m->nic_core = own > 0 ? 2 / own : 0; /* a byte has two ends, and a message */
    m->nic_path = all > own ? 1 / (all - own) : 0;
    m->nic_message = x->cores * x->small / messages / 2;
}
