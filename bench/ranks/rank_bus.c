#define _GNU_SOURCE
#include "bench/ranks/rank_bus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/work/work.h"
#include "weft/bus.h"
#include "weft/collective.h"

#define COPIED (INT64_C(32) << 20) /* bytes of memcpy's buffers, which are copied again and again */
#define SECOND INT64_C(1000000000)

/* One rank, in its own process. */
struct side {
    weft_bus *bus;
    weft_publisher *publisher;
    weft_subscriber *subscriber;
    weft_view views[RANK_BUS_TENSORS];
    float *in; /* this rank's rows of all tensors */
    unsigned char *from, *to;
    weft_comm *readers;     /* the ranks that read are one job */
    weft_comm *comm, *self; /* for the way over a gather: of both ranks; of rank 0, which casts */
    weft_plan *plans[2];    /* one tensor: gather, then cast; or both at once */
    float *wide;            /* a gathered tensor */
    uint16_t *whole, *cut;
};
static struct side side;

int64_t rank_bus_elements(const struct rank_bus_job *j)
{
    return j->tensors * j->rows * j->columns / RANK_BUS_RANKS;
}

/* ---- a rank ---- */

int rank_bus_input(void *arg, int rank)
{
    struct rank_bus_job *j = arg;
    int64_t n = j->rows / RANK_BUS_RANKS * j->columns;
    side.in = malloc((size_t)rank_bus_elements(j) * sizeof *side.in);
    side.from = malloc(COPIED);
    side.to = malloc(COPIED);
    if (!side.in || !side.from || !side.to)
        return WEFT_ENOMEM;
    memset(side.from, 1, COPIED);
    memset(side.to, 1, COPIED);
    for (int t = 0; t < j->tensors; t++) {
        for (int64_t i = 0; i < n; i++)
            side.in[t * n + i] = work_value(rank * n + i + t);
        side.views[t] = (weft_view)WEFT_VIEW(side.in + t * n, (size_t)n * sizeof(float));
    }
    return 0;
}

int rank_bus_begin(void *arg, int rank)
{
    const struct rank_bus_job *j = arg;
    static weft_bus_tensor mine[RANK_BUS_TENSORS], theirs[RANK_BUS_TENSORS];
    static char names[RANK_BUS_TENSORS][16];
    char text[128], run[16];
    weft_layout *rows = NULL, *columns = NULL;
    weft_publish_opts p = WEFT_PUBLISH_OPTS_INIT;
    weft_subscribe_opts s = WEFT_SUBSCRIBE_OPTS_INIT;
    snprintf(text, sizeof text, "%s[%lld/x,%lld] @x2", j->way.cast_at_fetch ? "f32" : "bf16", (long long)j->rows,
             (long long)j->columns);
    int err = weft_bus_open(j->url, NULL, &side.bus);
    if (!err)
        err = weft_layout_parse(text, &rows);
    snprintf(text, sizeof text, "bf16[%lld,%lld/x] @x2", (long long)j->rows, (long long)j->columns);
    if (!err)
        err = weft_layout_parse(text, &columns);
    for (int t = 0; t < j->tensors; t++) {
        snprintf(names[t], sizeof names[t], "t%d", t);
        mine[t] = (weft_bus_tensor){.name = names[t], .layout = rows, .dtype = WEFT_F32};
        theirs[t] = (weft_bus_tensor){.name = names[t], .layout = columns};
    }
    snprintf(run, sizeof run, "%lld", (long long)j->step); /* another one for each way */
    p.rank = rank;
    p.ranks = RANK_BUS_RANKS;
    p.run = run;
    p.no_digest = s.no_check = !j->way.digest;
    weft_comm_opts opts = {.size = sizeof opts, .rank = rank, .ranks = RANK_BUS_RANKS};
    snprintf(text, sizeof text, "%s-%s", j->comm, run);
    if (!err)
        err = weft_comm_open(text, &opts, &side.readers);
    s.comm = side.readers;
    if (!err)
        err = weft_publish(side.bus, "bench", mine, (size_t)j->tensors, &p, &side.publisher);
    if (!err)
        err = weft_subscribe(side.bus, "bench", theirs, (size_t)j->tensors, &s, &side.subscriber);
    weft_layout_free(rows);
    weft_layout_free(columns);
    return err;
}

int rank_bus_end(void *arg, int rank)
{
    (void)arg, (void)rank;
    weft_subscriber_close(side.subscriber);
    weft_publisher_close(side.publisher);
    int err = weft_bus_close(side.bus);
    weft_comm_close(side.readers);
    side.readers = NULL;
    side.subscriber = NULL;
    side.publisher = NULL;
    side.bus = NULL;
    return err;
}

static double cpu_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void clock_begin(struct rank_bus_job *j, int rank)
{
    j->begin[rank] = work_now();
    j->used[rank] = -cpu_now();
}

static void clock_end(struct rank_bus_job *j, int rank)
{
    j->used[rank] += cpu_now();
    j->end[rank] = work_now();
}

int rank_bus_memcpy(void *arg, int rank)
{
    struct rank_bus_job *j = arg;
    clock_begin(j, rank);
    for (int64_t left = rank_bus_elements(j) * (int64_t)sizeof(float); left > 0; left -= COPIED)
        memcpy(side.to, side.from, (size_t)(left < COPIED ? left : COPIED));
    clock_end(j, rank);
    return 0;
}

int rank_bus_put(void *arg, int rank)
{
    struct rank_bus_job *j = arg;
    clock_begin(j, rank);
    int err = weft_put(side.publisher, j->step, side.views);
    clock_end(j, rank);
    return err ? err : weft_commit(side.publisher, j->step, NULL, NULL);
}

int rank_bus_fetch(void *arg, int rank)
{
    struct rank_bus_job *j = arg;
    weft_epoch_step v;
    clock_begin(j, rank);
    int err = weft_fetch(side.subscriber, &(weft_want){WEFT_WANT_STEP, j->step}, 60 * SECOND, &v);
    clock_end(j, rank);
    return err ? err : weft_swap(side.subscriber, &v, 60 * SECOND);
}

int rank_bus_both(void *arg, int rank)
{
    struct rank_bus_job *j = arg;
    weft_epoch_step v;
    clock_begin(j, rank);
    int err = weft_put(side.publisher, j->step, side.views);
    if (!err)
        err = weft_commit(side.publisher, j->step, NULL, NULL);
    if (!err)
        err = weft_fetch(side.subscriber, &(weft_want){WEFT_WANT_STEP, j->step}, 60 * SECOND, &v);
    clock_end(j, rank);
    return err ? err : weft_swap(side.subscriber, &v, 60 * SECOND);
}

/* What a rank reads of a tensor: value i of its columns stands at `place` of the whole tensor. */
static bool is_right(const struct rank_bus_job *j, int rank, int t, const uint16_t *got)
{
    int64_t wide = j->columns / RANK_BUS_RANKS;
    for (int64_t r = 0; r < j->rows; r++)
        for (int64_t c = 0; c < wide; c++) {
            float want = work_value(r * j->columns + rank * wide + c + t);
            uint32_t bits;
            memcpy(&bits, &want, sizeof bits);
            if (got[r * wide + c] != bits >> 16) /* the values are exact in bf16 */
                return false;
        }
    return true;
}

int rank_bus_check(void *arg, int rank)
{
    struct rank_bus_job *j = arg;
    weft_pin *pin;
    int err = weft_use(side.subscriber, &pin);
    if (err)
        return err;
    for (int t = 0; t < j->tensors && !err; t++) {
        const void *data;
        err = weft_pin_data(pin, (size_t)t, &data, NULL);
        if (!err && !is_right(j, rank, t, data))
            __atomic_add_fetch(&j->wrong, 1, __ATOMIC_RELAXED);
    }
    weft_unuse(pin);
    return err;
}

/* ---- gather, cast, broadcast, slice, on weft's own engine ---- */

static int make_plans(const struct rank_bus_job *j, int rank)
{
    static const char *const forms[] = {"f32[%lld/x,%lld] @x2", "f32[%lld,%lld] @x1", "bf16[%lld,%lld] @x1"};
    char text[128];
    weft_layout *l[3] = {NULL, NULL, NULL};
    weft_machine machine = WEFT_MACHINE_INIT;
    weft_lower_opts opts = {.size = sizeof opts, .machine = &machine};
    int err = weft_comm_machine(side.comm, &machine);
    for (int i = 0; i < 3 && !err; i++) {
        snprintf(text, sizeof text, forms[i], (long long)j->rows, (long long)j->columns);
        err = weft_layout_parse(text, &l[i]);
    }
    if (!err)
        err = weft_lower(&(weft_move){"t", l[0], l[j->fused ? 2 : 1]}, 1, rank, &opts, &side.plans[0]);
    if (!err && side.self)
        err = weft_lower(&(weft_move){"t", l[1], l[2]}, 1, rank, &opts, &side.plans[1]);
    for (int i = 0; i < 3; i++)
        weft_layout_free(l[i]);
    return err;
}

int rank_bus_gather_open(void *arg, int rank)
{
    struct rank_bus_job *j = arg;
    weft_comm_opts opts = {.size = sizeof opts, .rank = rank, .ranks = RANK_BUS_RANKS};
    size_t n = (size_t)(j->rows * j->columns);
    int err = weft_comm_open(j->comm, &opts, &side.comm);
    if (!err && !j->fused && !rank)
        err = weft_comm_open("self:", &(weft_comm_opts)WEFT_COMM_OPTS_INIT, &side.self);
    if (!err)
        err = make_plans(j, rank);
    if (!err)
        err = weft_comm_alloc(side.comm, n * sizeof *side.wide, WEFT_MEMORY_HOST, 0, (void **)&side.wide);
    if (!err)
        err = weft_comm_alloc(side.comm, n * sizeof *side.whole, WEFT_MEMORY_HOST, 0, (void **)&side.whole);
    side.cut = err ? NULL : malloc((size_t)rank_bus_elements(j) * sizeof *side.cut);
    if (!err && side.cut)
        memset(side.cut, 1, (size_t)rank_bus_elements(j) * sizeof *side.cut);
    return err ? err : side.cut ? 0 : WEFT_ENOMEM;
}

int rank_bus_gather_close(void *arg, int rank)
{
    (void)arg, (void)rank;
    for (int i = 0; i < 2; i++)
        weft_plan_free(side.plans[i]);
    if (side.wide)
        weft_comm_free(side.comm, side.wide);
    if (side.whole)
        weft_comm_free(side.comm, side.whole);
    free(side.cut);
    weft_comm_close(side.self);
    weft_comm_close(side.comm);
    side.plans[0] = side.plans[1] = NULL;
    side.wide = NULL;
    side.whole = side.cut = NULL;
    side.comm = side.self = NULL;
    return 0;
}

/* The execs of a tensor. Rank 1 has no part of what is gathered. */
static int bind_steps(const struct rank_bus_job *j, int rank, weft_view in, weft_exec *x[2])
{
    size_t n = (size_t)(j->rows * j->columns);
    weft_view wide = WEFT_VIEW(side.wide, n * sizeof *side.wide), out = WEFT_VIEW(side.whole, n * sizeof *side.whole);
    int err = weft_bind(side.plans[0], side.comm, &in, rank ? NULL : j->fused ? &out : &wide, NULL, &x[0]);
    return err || !side.self ? err : weft_bind(side.plans[1], side.self, &wide, &out, NULL, &x[1]);
}

/* Tensor after tensor, as frameworks do it. The binding is part of no time. */
int rank_bus_gather(void *arg, int rank)
{
    struct rank_bus_job *j = arg;
    int64_t n = j->rows / RANK_BUS_RANKS * j->columns, wide = j->columns / RANK_BUS_RANKS;
    int err = 0;
    double took = 0, used = 0;
    for (int t = 0; t < j->tensors && !err; t++) {
        weft_exec *x[2] = {NULL, NULL};
        err = bind_steps(j, rank, (weft_view)WEFT_VIEW(side.in + t * n, (size_t)n * sizeof(float)), x);
        if (!err)
            err = weft_comm_barrier(side.comm, WEFT_DEADLINE);
        double begin = work_now(), cpu = cpu_now();
        for (int i = 0; i < 2 && !err && x[i]; i++)
            err = weft_exec_run(x[i]);
        if (!err)
            err = weft_broadcast(side.comm, side.whole, j->rows * j->columns, WEFT_BF16, 0);
        for (int64_t r = 0; r < j->rows && !err; r++)
            memcpy(side.cut + t * j->rows * wide + r * wide, side.whole + r * j->columns + rank * wide,
                   (size_t)wide * sizeof *side.cut);
        if (!err)
            err = weft_comm_barrier(side.comm, WEFT_DEADLINE);
        used += cpu_now() - cpu;
        took += work_now() - begin;
        for (int i = 0; i < 2; i++)
            weft_exec_close(x[i]);
        if (!err && !is_right(j, rank, t, side.cut + t * j->rows * wide))
            __atomic_add_fetch(&j->wrong, 1, __ATOMIC_RELAXED);
    }
    j->begin[rank] = 0;
    j->end[rank] = took;
    j->used[rank] = used;
    return err;
}
