/* The best of several rounds counts: what else the machine does at the time can only make a round slower. Of copies,
 * folds and casts it is the one that a quarter of them does not exceed. They follow each other without a pause, so that
 * caches lose nothing meanwhile. */
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
#include "memory/memory.h"

#define PIECE ((size_t)256 << 10) /* bytes that are copied at once, as the engine does */
#define COPIES 25                 /* rounds of copies, folds and casts */
#define FEWER 9                   /* the same of MANY_BYTES or more */
#define MANY_BYTES ((size_t)16 << 20)
#define MEMORY ((size_t)256 << 20)      /* bytes that are read and written, or BEYOND times the last cache: */
#define BEYOND 4                        /* more than caches hold */
#define LEAST_MEMORY ((size_t)32 << 20) /* of a core, if there are many */
#define MOST_HOST ((size_t)1 << 30)     /* bytes of all cores together: more are not in caches */
#define CACHED ((size_t)256 << 10) /* the smallest size for which caches are measured; the next is twice as large, */
#define FINER ((size_t)4 << 20)    /* from here on half as large again, or a third, */
#define COARSE ((size_t)64 << 20)  /* from here on twice as large, up to the last cache, or to this size */
#define FOLDED 4                   /* terms */
#define ROW 256                    /* bytes */
#define RUNS 300                   /* of an exec, in a round */
#define TENSORS 512                /* for what their parts cost */
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

/* ---- copies, folds and casts ---- */

struct copier {
    const struct copying *all;
    int number;
    char *memory; /* the thread's part of it, which it writes at first; `bytes` bytes are read and written then */
    double took[COPIES];
};

struct copying {
    int n, rounds;
    size_t bytes, room; /* room: of each thread's memory */
    enum machine_file_work work;
    char *memory;
    atomic_int *there; /* how often threads have come to the gate */
    atomic_int *go;    /* 0: not all threads are there yet; 1: begin; -1: end */
};

/* Threads copy rows in turn, as ranks do that get columns of one tensor: there is one of them behind the other in
 * memory. A thread that is alone copies each second row. */
static void copy_rows_of(const struct copier *c)
{
    const int64_t half = (int64_t)c->all->bytes / 2, n = c->all->n, apart = n > 1 ? n : 2;
    const struct memory_tile t = {.loops = 2, .n = {half / ROW, ROW}, .stride = {{ROW, 1}, {apart * ROW, 1}}};
    char *src = c->all->memory + c->number * ROW, *dst = c->all->memory + apart * half + c->number * half;
    if (half < LINKS_MUCH || !memory_past_tile(&t, dst, WEFT_U8, src, WEFT_U8))
        memory_copy(&t, dst, WEFT_U8, src, WEFT_U8);
}

/* The first part of the memory becomes the sum of the others, which have n elements, too. */
static void fold_parts(float *memory, size_t n)
{
    struct memory_tile t = {.loops = 1, .n = {(int64_t)n}, .stride = {{sizeof(float)}}};
    static const int64_t step = sizeof(float);
    struct memory_term terms[FOLDED];
    for (int i = 0; i < FOLDED; i++)
        terms[i] = (struct memory_term){memory + (size_t)(i + 1) * n, WEFT_F32, &step};
    memory_fold(&t, memory, WEFT_F32, 0, WEFT_F32, WEFT_SUM, 1, terms, FOLDED);
}

/* All threads come and go on together. */
static void gate(const struct copying *a, int turn)
{
    atomic_fetch_add(a->there, 1);
    while (atomic_load(a->there) < turn * a->n)
        sched_yield();
}

/* A part of the memory is written, the others are read. */
static void work_once(const struct copier *c)
{
    const size_t half = c->all->bytes / 2, part = c->all->bytes / (FOLDED + 1) / sizeof(float), n = half / 6 * 2;
    switch (c->all->work) {
    case MACHINE_FILE_LONG: memory_past_copy(c->memory + half, c->memory, half); break;
    case MACHINE_FILE_ROWS: copy_rows_of(c); break;
    case MACHINE_FILE_CAST: memory_cast(c->memory + 4 * n, WEFT_BF16, c->memory, WEFT_F32, n); break;
    case MACHINE_FILE_FOLD: fold_parts((float *)c->memory, part); break;
    default:
        for (size_t at = 0; at < half; at += PIECE)
            memcpy(c->memory + half + at, c->memory + at, half - at < PIECE ? half - at : PIECE);
    }
}

static void *copy_rounds(void *arg)
{
    struct copier *c = arg;
    int go;
    while (!(go = atomic_load(c->all->go)))
        sched_yield();
    if (go < 0)
        return NULL;
    memset(c->memory, 1, c->all->room);
    for (int r = 0; r < c->all->rounds; r++) {
        gate(c->all, r + 1);
        double t = calibrate_now();
        work_once(c);
        c->took[r] = calibrate_now() - t;
    }
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

/* The rate at which n threads work together if each reads and writes `bytes` bytes, in bytes a nanosecond. */
static int work_rate(char *memory, enum machine_file_work work, size_t n, size_t bytes, double *rate,
                     struct failure *why)
{
    struct copier c[MOST_CORES] = {0};
    pthread_t thread[MOST_CORES];
    atomic_int go = 0, there = 0;
    const size_t room = work == MACHINE_FILE_ROWS ? bytes / 2 * 3 : bytes;
    const int rounds = bytes < MANY_BYTES ? COPIES : FEWER;
    const struct copying all = {(int)n, rounds, bytes, room, work, memory, &there, &go};
    size_t started = 1;
    for (size_t i = 0; i < n; i++)
        c[i] = (struct copier){.all = &all, .number = (int)i, .memory = memory + room * i};
    while (started < n && !pthread_create(&thread[started], NULL, copy_rounds, &c[started]))
        started++;
    atomic_store(&go, started == n ? 1 : -1);
    copy_rounds(&c[0]);
    for (size_t i = 1; i < started; i++)
        pthread_join(thread[i], NULL);
    for (int r = 0; r < rounds; r++) /* a round lasts until the last one is done */
        for (size_t i = 1; i < started; i++)
            c[0].took[r] = fmax(c[0].took[r], c[i].took[r]);
    qsort(c[0].took, (size_t)rounds, sizeof *c[0].took, compare);
    *rate = (double)bytes / 2 * (double)n / c[0].took[rounds / 4];
    return started == n && *rate > 0 ? CLI_OK : no_memory(why);
}

/* Bytes; 0: not known. */
static size_t last_cache(void)
{
#ifdef _SC_LEVEL3_CACHE_SIZE
    long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return bytes > 0 ? (size_t)bytes : 0;
#else
    return 0;
#endif
}

/* What each of n cores reads and writes, so that caches hold nothing of it. */
static size_t memory_each(size_t n)
{
    size_t all = last_cache() * BEYOND > MEMORY ? last_cache() * BEYOND : MEMORY;
    return all / n > LEAST_MEMORY ? all / n : LEAST_MEMORY;
}

/* The next size for which caches are measured. */
static size_t next_size(size_t bytes)
{
    if (bytes < FINER || bytes >= COARSE)
        return 2 * bytes;
    return bytes & (bytes - 1) ? bytes / 3 * 4 : bytes / 2 * 3;
}

/* More bytes are not worked on faster. Rates which say so were disturbed: neighbours among them have their mean, in
 * time a byte. */
static void order_rates(double *rate[], size_t n)
{
    size_t first[MACHINE_FILE_CACHED + 1], pools = 0; /* each pool begins at `first`, and has one rate */
    for (size_t i = 0; i < n; i++) {
        first[pools++] = i;
        while (pools > 1 && *rate[first[pools - 1]] > *rate[first[pools - 2]]) {
            size_t a = first[pools - 2], b = first[pools - 1];
            double ns = (double)(b - a) / *rate[a] + (double)(i + 1 - b) / *rate[b];
            *rate[a] = (double)(i + 1 - a) / ns;
            pools--;
        }
    }
    first[pools] = n;
    for (size_t k = 0; k < pools; k++)
        for (size_t i = first[k]; i < first[k + 1]; i++)
            *rate[i] = *rate[first[k]];
}

/* The largest size for which caches are measured. */
static size_t most_cached(void)
{
    return last_cache() > COARSE ? last_cache() : COARSE;
}

/* How one core, and all of them, do what caches hold, and what they do not. */
static int rates_of(char *memory, struct machine_file *m, enum machine_file_work work, double *rank, double *host,
                    struct failure *why)
{
    const size_t cores = (size_t)m->cores, most = most_cached();
    int code = work_rate(memory, work, 1, memory_each(1), rank, why);
    if (!code)
        code = work_rate(memory, work, cores, memory_each(cores), host, why);
    for (size_t bytes = CACHED; bytes <= most && m->ncached[work] < MACHINE_FILE_CACHED && !code;
         bytes = next_size(bytes)) {
        if (work == MACHINE_FILE_LONG && bytes / 2 < LINKS_MUCH)
            continue;
        struct machine_file_cached *x = &m->cached[work][m->ncached[work]++];
        *x = (struct machine_file_cached){.bytes = (double)bytes, .host = *host};
        code = work_rate(memory, work, 1, bytes, &x->rank, why);
        if (!code && bytes * cores <= MOST_HOST)
            code = work_rate(memory, work, cores, bytes, &x->host, why);
    }
    double *ranks[MACHINE_FILE_CACHED], *hosts[MACHINE_FILE_CACHED];
    for (size_t i = 0; i < m->ncached[work]; i++) {
        ranks[i] = &m->cached[work][i].rank;
        hosts[i] = &m->cached[work][i].host;
    }
    order_rates(ranks, m->ncached[work]);
    order_rates(hosts, m->ncached[work]);
    return code;
}

/* ---- messages between two ranks ---- */

struct talker {
    const char *url, *src, *dst; /* the layouts of each tensor */
    int rank, tensors, runs;
    size_t bytes; /* of each tensor, on either side */
    double best;  /* nanoseconds of a run */
    int err;
};

static int talk_with(struct talker *t, weft_comm *comm, weft_plan *plan, weft_view *src, weft_view *dst)
{
    weft_exec *exec = NULL;
    int err = weft_bind(plan, comm, src, dst, NULL, &exec);
    t->best = INFINITY;
    for (int r = 0; r < CALIBRATE_ROUNDS && !err; r++) {
        err = weft_comm_barrier(comm, WEFT_DEADLINE);
        double start = calibrate_now();
        for (int i = 0; i < t->runs && !err; i++)
            err = weft_exec_run(exec);
        t->best = fmin(t->best, (calibrate_now() - start) / t->runs);
    }
    weft_exec_close(exec);
    return err;
}

static int lower_all(const struct talker *t, const weft_layout *src, const weft_layout *dst, weft_plan **out)
{
    weft_move *moves = calloc((size_t)t->tensors, sizeof *moves);
    char(*name)[16] = calloc((size_t)t->tensors, sizeof *name);
    int err = moves && name ? 0 : WEFT_ENOMEM;
    for (int i = 0; i < t->tensors && !err; i++) {
        snprintf(name[i], sizeof name[i], "%d", i);
        moves[i] = (weft_move){name[i], src, dst};
    }
    if (!err)
        err = weft_lower(moves, (size_t)t->tensors, t->rank, NULL, out);
    free(moves);
    free(name);
    return err;
}

static void *talk(void *arg)
{
    struct talker *t = arg;
    size_t n = (size_t)t->tensors, all = n * t->bytes;
    char *memory = malloc(2 * all);
    weft_view *views = calloc(2 * n, sizeof *views);
    weft_layout *src = NULL, *dst = NULL;
    weft_plan *plan = NULL;
    weft_comm *comm = NULL;
    weft_comm_opts opts = WEFT_COMM_OPTS_INIT;
    opts.rank = t->rank;
    t->err = memory && views ? weft_comm_open(t->url, &opts, &comm) : WEFT_ENOMEM;
    if (!t->err)
        memset(memory, 1, 2 * all);
    for (size_t i = 0; i < 2 * n && !t->err; i++)
        views[i] = (weft_view)WEFT_VIEW(memory + i * t->bytes, t->bytes);
    if (!t->err)
        t->err = weft_layout_parse(t->src, &src);
    if (!t->err)
        t->err = weft_layout_parse(t->dst, &dst);
    if (!t->err)
        t->err = lower_all(t, src, dst, &plan);
    if (!t->err)
        t->err = talk_with(t, comm, plan, views, views + n);
    weft_plan_free(plan);
    weft_comm_close(comm);
    weft_layout_free(src);
    weft_layout_free(dst);
    free(memory);
    free(views);
    return NULL;
}

/* The time in which two threads move tensors between each other. */
static int talk_time(int tensors, int runs, size_t bytes, const char *src, const char *dst, double *ns,
                     struct failure *why)
{
    char url[64];
    snprintf(url, sizeof url, "threads:2/calibrate-%d", (int)getpid());
    const struct talker both = {.url = url, .src = src, .dst = dst, .tensors = tensors, .runs = runs, .bytes = bytes};
    struct talker t[2] = {both, both};
    pthread_t other;
    t[1].rank = 1;
    if (pthread_create(&other, NULL, talk, &t[1]))
        return no_memory(why);
    talk(&t[0]);
    pthread_join(other, NULL);
    if (t[0].err || t[1].err)
        return failure_set(why, CLI_WRONG, "two ranks could not be measured: %s",
                           weft_strerror(t[0].err ? t[0].err : t[1].err));
    *ns = fmax(t[0].best, t[1].best);
    return CLI_OK;
}

/* As many bytes take longer in many tensors than in one: that is what their parts cost. Each rank has two of a tensor,
 * of which it keeps one. */
static int part_time(double *ns, struct failure *why)
{
    char src[64], dst[64];
    const int rows = 16, columns = 512;
    const size_t bytes = (size_t)rows / 2 * (size_t)columns;
    double many = 0, one = 0;
    snprintf(src, sizeof src, "u8[%d/x,%d] @x2", rows, columns);
    snprintf(dst, sizeof dst, "u8[%d,%d/x] @x2", rows, columns);
    int code = talk_time(TENSORS, RUNS / 10, bytes, src, dst, &many, why);
    snprintf(src, sizeof src, "u8[%d/x,%d] @x2", TENSORS * rows, columns);
    snprintf(dst, sizeof dst, "u8[%d,%d/x] @x2", TENSORS * rows, columns);
    if (!code)
        code = talk_time(1, RUNS / 10, TENSORS * bytes, src, dst, &one, why);
    *ns = fmax(0, many - one) / (2 * TENSORS);
    return code;
}

/* In shared memory, as ranks of a host have: it may have smaller pages than other memory. */
static int all_rates(struct machine_file *m, struct failure *why)
{
    const size_t cores = (size_t)m->cores, each = memory_each(cores) * cores;
    const size_t cached = most_cached() * cores < MOST_HOST ? most_cached() * cores : MOST_HOST;
    size_t most = memory_each(1) > each ? memory_each(1) : each;
    most = (most > cached ? most : cached) / 2 * 3; /* rows need more */
    char *memory = mmap(NULL, most, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return no_memory(why);
    int code = rates_of(memory, m, MACHINE_FILE_COPY, &m->copy, &m->copy_host, why);
    if (!code)
        code = rates_of(memory, m, MACHINE_FILE_LONG, &m->copy_long, &m->copy_long_host, why);
    if (!code)
        code = rates_of(memory, m, MACHINE_FILE_ROWS, &m->copy_rows, &m->copy_rows_host, why);
    if (!code)
        code = rates_of(memory, m, MACHINE_FILE_FOLD, &m->fold, &m->fold_host, why);
    if (!code)
        code = rates_of(memory, m, MACHINE_FILE_CAST, &m->cast, &m->cast_host, why);
    munmap(memory, most);
    return code;
}

int calibrate_measure(struct machine_file *m, struct failure *why)
{
    double both = 0;
    int code = machine_file_open("plain", m, why);
    m->ranks_per_host = 0;
    m->cores = cores_here();
    if (!code)
        code = all_rates(m, why);
    if (!code)
        code = talk_time(1, RUNS, 16, "u8[16/x] @x2", "u8[16] @x2", &both, why); /* each gives the other 8 bytes */
    if (!code)
        calibrate_exchange(both, m);
    if (!code)
        code = part_time(&m->part, why);
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
