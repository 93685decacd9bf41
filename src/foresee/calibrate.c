/* The best of several rounds counts: what else the machine does at the time can only make a round slower. */
#define _GNU_SOURCE
#include "foresee/calibrate.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BYTES ((size_t)16 << 20) /* more than caches hold */
#define RUNS 300                 /* of an exec, in a round */
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

/* ---- copies ---- */

struct copier {
    pthread_barrier_t *gate;
    atomic_int *go; /* 0: not all threads are there yet; 1: begin; -1: end */
    char *from, *to;
    double took[CALIBRATE_ROUNDS];
};

static void *copy_rounds(void *arg)
{
    struct copier *c = arg;
    int go;
    while (!(go = atomic_load(c->go)))
        sched_yield();
    for (int r = 0; r < CALIBRATE_ROUNDS && go > 0; r++) {
        pthread_barrier_wait(c->gate);
        double t = calibrate_now();
        memcpy(c->to, c->from, BYTES);
        pthread_barrier_wait(c->gate);
        c->took[r] = calibrate_now() - t; /* until the last one was done */
    }
    return NULL;
}

static int no_memory(struct failure *why)
{
    return failure_set(why, CLI_WRONG, "not enough memory, or threads, to measure with");
}

/* The rate at which n threads copy together, in bytes a nanosecond. */
static int copy_rate(int n, double *rate, struct failure *why)
{
    struct copier c[MOST_CORES] = {0};
    pthread_t thread[MOST_CORES];
    pthread_barrier_t gate;
    atomic_int go = 0;
    char *memory = malloc(2 * BYTES * (size_t)n);
    if (!memory)
        return no_memory(why);
    memset(memory, 1, 2 * BYTES * (size_t)n);
    pthread_barrier_init(&gate, NULL, (unsigned)n);
    int started = 1;
    for (int i = 0; i < n; i++)
        c[i] = (struct copier){&gate, &go, memory + 2 * BYTES * (size_t)i, memory + 2 * BYTES * (size_t)i + BYTES, {0}};
    while (started < n && !pthread_create(&thread[started], NULL, copy_rounds, &c[started]))
        started++;
    atomic_store(&go, started == n ? 1 : -1);
    copy_rounds(&c[0]);
    double best = INFINITY;
    for (int r = 0; r < CALIBRATE_ROUNDS; r++)
        best = fmin(best, c[0].took[r]);
    for (int i = 1; i < started; i++)
        pthread_join(thread[i], NULL);
    *rate = (double)BYTES * n / best;
    pthread_barrier_destroy(&gate);
    free(memory);
    return started == n ? CLI_OK : no_memory(why);
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
    char text[64];
    size_t n = BYTES / 4;
    weft_layout *src = NULL, *dst = NULL;
    weft_plan *plan = NULL;
    weft_comm *comm = NULL;
    weft_exec *exec = NULL;
    char *from = malloc(4 * n), *to = malloc(2 * n);
    weft_view in = WEFT_VIEW(from, 4 * n), out = WEFT_VIEW(to, 2 * n);
    double best = INFINITY;
    int err = from && to ? weft_comm_open("self:", NULL, &comm) : WEFT_ENOMEM;
    if (!err) { /* memory that nobody has written is one page of zeros, which a cache holds */
        memset(from, 0x3f, 4 * n);
        memset(to, 0x3f, 2 * n);
    }
    snprintf(text, sizeof text, "f32[%zu] @x1", n);
    if (!err)
        err = weft_layout_parse(text, &src);
    snprintf(text, sizeof text, "bf16[%zu] @x1", n);
    if (!err)
        err = weft_layout_parse(text, &dst);
    if (!err)
        err = weft_lower(&(weft_move){"t", src, dst}, 1, 0, NULL, &plan);
    if (!err)
        err = weft_bind(plan, comm, &in, &out, NULL, &exec);
    for (int r = 0; r < CALIBRATE_ROUNDS && !err; r++) {
        double start = calibrate_now();
        err = weft_exec_run(exec);
        best = fmin(best, calibrate_now() - start);
    }
    weft_exec_close(exec);
    weft_plan_free(plan);
    weft_comm_close(comm);
    weft_layout_free(src);
    weft_layout_free(dst);
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
        code = copy_rate(1, &m->copy, why);
    if (!code)
        code = copy_rate((int)m->cores, &m->copy_host, why);
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

void calibrate_crowd(const struct calibrate_crowd *x, struct machine_file *m)
{
    double messages = x->hosts * (x->hosts - 1), bytes = messages * x->bytes;
    double all = fmax(0, x->cores * (x->much - x->small) / bytes);
    double own = fmin(all, fmax(0, x->hosts * (x->much_own - x->small_own) / bytes));
    m->nic_core = own > 0 ? 2 / own : 0; /* a byte has two ends, and a message */
    m->nic_path = all > own ? 1 / (all - own) : 0;
    m->nic_message = x->cores * x->small / messages / 2;
}
