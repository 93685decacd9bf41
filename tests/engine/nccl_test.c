/* Execs whose ranks have memory on several devices, and join a group: the driver nccl, on simulated devices with
 * WEFT_SIM_NCCL=1. Rank r has device r. Pairs of layouts give the bits of the same pair in host memory, in runs that
 * the host orders and in runs on streams; when there is no group; other buffers; a device that fails, and a rank that
 * dies. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "device_places.h"
#include "device_side.h"
#include "support/clock.h"
#include "support/ranks.h"
#include "support/simulated.h"
#include "support/suite.h"

enum { RANKS = 4, RUNS = 20 };

/* On a GPU (WEFT_DEVICE=cuda) ranks are processes that share it, which needs NCCL 2.30, WEFT_NCCL if that is not the
 * system's, and NCCL_MULTI_RANK_GPU_ENABLE=1. */
static bool real;
#define WAYS "-launcher"

static int device_of(const struct ranks_rank *r)
{
    return real ? 0 : r->rank;
}

static void left_out_on_a_gpu(void)
{
    if (real) {
        print_message("skip: it needs the simulated device\n");
        skip();
    }
}

static void on(const char *place, void (*body)(struct ranks_rank *), void *arg)
{
    bool wide = !strcmp(place, "tcp");
    ranks_forked = real;
    if (!real || !wide)
        run_at(real ? "shm" : place, RANKS, NULL, body, arg);
    ranks_forked = false;
}

/* ---- pairs of layouts ---- */

static const struct {
    const char *from, *to, *algorithm;
    bool partial; /* a rank has no elements of one side, so that it may have none on a device */
} pairs[] = {
    {ROWS, SHIFT, NULL, false},
    {"f32[32/x,48] @x4", "bf16[32,48/x] @x4", NULL, false},
    {"f32[8,40] @x4 +sum(x)", "f32[8,40] @x4", NULL, false},
    {"f32[64,40] @x4 +sum(x)", "f32[64,40] @x4", "ring", false},
    {"bf16[33,7] @x4 +max(x)", "f32[33/x,7] @x4", NULL, false},
    {"f64[6,4,10/x] @x4", "f64[6/x,4,10] @x4", NULL, false},
    {"f32[64/x] @x4", "f32[64] @x4", "ring", false},
    {"f32[10/x] @x4", "f32[10] @x4", "ring2", false},
    {"i32[17] @x1=2", "i64[17] @x4", NULL, true},
    {"f32[64,64/x] @x4", "f32[64,64] @x2=3,0", NULL, true},
    {"f32[33/x] @x4", "f32[33/x~1] @x4", NULL, false},
    {"f16[5,0] @x4", "f16[5,0] @x4", NULL, true},
};

/* Which sides are on the device: both of each rank, or one of each. */
static bool is_placed(int mix, int rank, int side)
{
    return mix == 0 || (rank + side) % 2;
}

static int run_some(struct side *s, bool streams)
{
    int err = 0;
    for (int run = 0; run < 3 && !err; run++)
        err = streams ? weft_exec_start_on(s->exec, s->stream) : weft_exec_run(s->exec);
    return err || !streams ? err : weft_exec_wait(s->exec, WEFT_DEADLINE);
}

/* mix < 0: in host memory; *want gets the result. */
static void one_pair(struct ranks_rank *r, int pair, int mix, struct where *want)
{
    struct side s = {.device = NULL};
    struct where sides[2] = {{.host = NULL}};
    weft_lower_opts how = WEFT_LOWER_OPTS_INIT;
    weft_bind_opts opts = WEFT_BIND_OPTS_INIT;
    opts.ways = WAYS;
    how.algorithm = pairs[pair].algorithm;
    how.bucket = mix == 1 ? 64 : 0;
    RANKS_OK(r, device_open("test", WEFT_MEMORY_CUDA, device_of(r), getenv("WEFT_MODULES"), &s.device));
    RANKS_OK(r, s.device->ops->stream_open(s.device, &s.stream));
    RANKS_OK(r, weft_layout_parse(pairs[pair].from, &s.from));
    RANKS_OK(r, weft_layout_parse(pairs[pair].to, &s.to));
    weft_move move = {.src = s.from, .dst = s.to};
    RANKS_OK(r, weft_lower(&move, 1, r->rank, &how, &s.plan));
    RANKS_OK(r, place_side(&sides[0], r, s.from, mix >= 0 && is_placed(mix, r->rank, 0) ? device_of(r) : -1));
    RANKS_OK(r, place_side(&sides[1], r, s.to, mix >= 0 && is_placed(mix, r->rank, 1) ? device_of(r) : -1));
    RANKS_OK(r, weft_bind(s.plan, r->comm, &sides[0].view, &sides[1].view, &opts, &s.exec));
    if (mix >= 0 && !pairs[pair].partial) {
        RANKS_CHECK(r, explains(s.exec, "driver nccl: "));
        RANKS_CHECK(r, explains(s.exec, real ? "messages go by NCCL" : "messages go by a simulation of NCCL"));
        RANKS_CHECK(r, real || explains_json(s.exec, "\"group\": \"a simulation of NCCL\", \"shared\": false"));
    }
    RANKS_OK(r, move_side(&s, &sides[0], true));
    RANKS_OK(r, move_side(&s, &sides[1], true)); /* ghosts beyond the ends stay as they are */
    RANKS_OK(r, run_some(&s, mix == 0 && pair % 2 && !pairs[pair].partial));
    RANKS_OK(r, move_side(&s, &sides[1], false));
    if (mix >= 0)
        RANKS_CHECK(r, !memcmp(sides[1].host, want->host, (size_t)want->local.bytes));
    else
        *want = sides[1];
    weft_exec_close(s.exec);
    s.exec = NULL;
    for (int side = 0; side < 2; side++) {
        weft_comm_free(r->comm, sides[side].device);
        if (mix >= 0 || side == 0)
            free(sides[side].host);
    }
    close_side(&s, r->comm);
}

static void all_pairs(struct ranks_rank *r)
{
    for (int pair = 0; pair < (int)(sizeof pairs / sizeof *pairs); pair++) {
        struct where expected = {.host = NULL};
        for (int mix = -1; mix < 2 && !r->failed[0]; mix++)
            one_pair(r, pair, mix, &expected);
        free(expected.host);
        if (r->failed[0])
            return;
    }
    struct device *d;
    struct sim_use use;
    if (real)
        return;
    RANKS_OK(r, device_open("test", WEFT_MEMORY_CUDA, device_of(r), getenv("WEFT_MODULES"), &d));
    simulated_calls()->use(d, &use);
    RANKS_CHECK(r, !use.allocations && !use.maps && !use.pins && !use.streams);
    d->ops->close(d);
}

static void pairs_give_the_bits_of_host_memory(void **state)
{
    (void)state;
    for (size_t i = 0; i < (real ? 1 : DEVICE_PLACES); i++)
        on(device_places[i], all_pairs, NULL);
}

/* ---- streams ---- */

static void run_in_stream_order(struct ranks_rank *r)
{
    struct side s;
    RANKS_OK(r, open_side_on(&s, r->comm, device_of(r), ROWS, SHIFT, WAYS));
    keep_stream_order(r, &s, RUNS);
}

static void runs_keep_the_order_of_a_stream(void **state)
{
    (void)state;
    on("threads", run_in_stream_order, NULL);
}

static void refuse_a_graph(struct ranks_rank *r)
{
    struct side s;
    void *graph;
    RANKS_OK(r, open_side_on(&s, r->comm, device_of(r), ROWS, SHIFT, WAYS));
    RANKS_OK(r, simulated_calls()->capture_begin(s.device, s.stream));
    RANKS_CHECK(r, weft_exec_start_on(s.exec, s.stream) == WEFT_EUNSUPPORTED && strstr(weft_errmsg(), "NCCL"));
    RANKS_OK(r, simulated_calls()->capture_end(s.device, s.stream, &graph));
    simulated_calls()->graph_free(s.device, graph);
    RANKS_OK(r, weft_exec_run(s.exec));
    close_side(&s, r->comm);
}

static void a_graph_is_refused(void **state)
{
    (void)state;
    left_out_on_a_gpu();
    on("threads", refuse_a_graph, NULL);
}

/* ---- no group ---- */

/* What one rank lacks decides for all. */
static void look_at_forms(struct ranks_rank *r)
{
    struct side s;
    RANKS_OK(r, open_side_on(&s, r->comm, device_of(r), ROWS, SHIFT, r->rank == 2 ? WAYS ",-nccl" : WAYS));
    RANKS_CHECK(r, explains(s.exec, "messages go through 4 slots a channel of pinned host memory"));
    RANKS_CHECK(r, explains(s.exec, r->rank == 2 ? "not by NCCL: the driver nccl is switched off\n"
                                                 : "not by NCCL: another rank cannot join a group\n"));
    RANKS_CHECK(r, explains_json(s.exec, "\"group\": null, \"shared\": false"));
    RANKS_OK(r, weft_exec_run(s.exec));
    close_side(&s, r->comm);

    weft_bind_opts opts = WEFT_BIND_OPTS_INIT;
    float host[COUNT] = {0};
    RANKS_OK(r, open_side_on(&s, r->comm, device_of(r), ROWS, SHIFT, WAYS));
    RANKS_CHECK(r, explains(s.exec, "driver nccl: "));
    weft_exec_close(s.exec);
    weft_view src = view_of(s.src, COUNT), dst = view_of(s.dst, COUNT);
    src.device = dst.device = device_of(r);
    if (r->rank == 1)
        src = dst = (weft_view)WEFT_VIEW(host, sizeof host);
    opts.ways = WAYS;
    int err = weft_bind(s.plan, r->comm, &src, &dst, &opts, &s.exec);
    RANKS_CHECK(r, err == WEFT_EINVAL); /* source and destination of rank 1 overlap: no rank has an exec */
    s.exec = NULL;
    float other[COUNT] = {0};
    if (r->rank == 1)
        dst = (weft_view)WEFT_VIEW(other, sizeof other);
    RANKS_OK(r, weft_bind(s.plan, r->comm, &src, &dst, &opts, &s.exec));
    RANKS_CHECK(r, !explains(s.exec, "driver nccl: "));
    RANKS_OK(r, weft_exec_run(s.exec));
    close_side(&s, r->comm);
}

static void a_rank_that_cannot_join_decides_for_all(void **state)
{
    (void)state;
    on("threads", look_at_forms, NULL);
}

/* A rank that fails when all thought that they could join: the exec is carried, before the deadline. */
static void fail_to_join(struct ranks_rank *r)
{
    struct side s;
    RANKS_OK(r, open_side_on(&s, r->comm, device_of(r), ROWS, SHIFT, WAYS));
    RANKS_CHECK(r, explains(s.exec, "messages go through 4 slots a channel of pinned host memory"));
    RANKS_CHECK(r, explains(s.exec, r->rank == 1 ? "not by NCCL: rank 1 does not join" : "not by NCCL: "));
    RANKS_OK(r, weft_exec_run(s.exec));
    close_side(&s, r->comm);
}

static void a_rank_that_fails_to_join_decides_for_all(void **state)
{
    (void)state;
    left_out_on_a_gpu();
    weft_comm_opts opts = WEFT_COMM_OPTS_INIT;
    opts.deadline_ns = 4 * SECOND;
    simulated_set("WEFT_SIM_NCCL", "2");
    for (size_t i = 0; i < DEVICE_PLACES; i++)
        run_at(device_places[i], RANKS, &opts, fail_to_join, NULL);
    simulated_set("WEFT_SIM_NCCL", "1");
}

/* ---- other buffers ---- */

static void run_rebound(struct ranks_rank *r)
{
    struct side s;
    float host[COUNT], *other;
    RANKS_OK(r, open_side_on(&s, r->comm, device_of(r), ROWS, SHIFT, WAYS));
    RANKS_OK(r, weft_exec_run(s.exec));
    RANKS_OK(r, device_memory_on(r->comm, device_of(r), sizeof host, &other));
    weft_view src = view_of(other, COUNT), dst = view_of(s.dst, COUNT);
    src.device = dst.device = device_of(r);
    for (int i = 0; i < COUNT; i++)
        host[i] = (float)(1000 * r->rank + i);
    RANKS_OK(r, copy(&s, other, host, sizeof host));
    RANKS_OK(r, sync_side(&s));
    RANKS_OK(r, weft_exec_rebind(s.exec, &src, &dst));
    RANKS_OK(r, weft_exec_run(s.exec));
    RANKS_OK(r, copy(&s, host, s.dst, sizeof host));
    RANKS_OK(r, sync_side(&s));
    int from = (r->rank + RANKS - 1) % RANKS;
    for (int i = 0; i < COUNT; i++)
        RANKS_CHECK(r, host[i] == (float)(1000 * from + i));
    float *mine = s.src;
    s.src = other;
    weft_comm_free(r->comm, mine);
    close_side(&s, r->comm);
}

static void an_exec_is_bound_to_other_buffers(void **state)
{
    (void)state;
    for (size_t i = 0; i < (real ? 1 : DEVICE_PLACES); i++)
        on(device_places[i], run_rebound, NULL);
}

/* ---- failures ---- */

/* The device of each rank fails at the same launch; the text is that of the first. */
static void fail_in_runs(struct ranks_rank *r)
{
    struct side s;
    int err = 0;
    RANKS_OK(r, open_side_on(&s, r->comm, device_of(r), "f32[32/x,32] @x4", "f32[32,32/x] @x4", WAYS));
    int64_t begin = clock_now();
    for (int run = 0; run < RUNS && !err; run++)
        err = weft_exec_run(s.exec);
    RANKS_CHECK(r, clock_now() - begin < 5 * SECOND);
    RANKS_CHECK(r, err == WEFT_ETRANSPORT && strstr(weft_errmsg(), "has failed: launch 4 failed"));
    close_side(&s, r->comm);
}

static void a_device_that_fails_ends_a_run(void **state)
{
    (void)state;
    left_out_on_a_gpu();
    simulated_set("WEFT_SIM_FAIL", "4");
    on("threads", fail_in_runs, NULL);
    simulated_set("WEFT_SIM_FAIL", NULL);
}

/* Rank 2 dies; the others wait for it in weft, or in their streams. */
static void lose_a_rank(struct ranks_rank *r)
{
    struct side s;
    struct sim_use use;
    bool streams = *(const bool *)r->arg;
    RANKS_OK(r, open_side_on(&s, r->comm, device_of(r), ROWS, SHIFT, WAYS));
    for (int run = 0; run < 2; run++)
        RANKS_OK(r, weft_exec_run(s.exec));
    RANKS_OK(r, weft_comm_barrier(r->comm, WEFT_DEADLINE));
    if (r->rank == 2)
        kill(getpid(), SIGKILL);
    int64_t begin = clock_now();
    int err = 0;
    while (!err && clock_now() - begin < 20 * SECOND) {
        err = streams ? weft_exec_start_on(s.exec, s.stream) : weft_exec_run(s.exec);
        if (!err && streams)
            sync_side(&s);
    }
    /* Under MPS a rank that is killed while a kernel runs takes the contexts of the others with it. */
    RANKS_CHECK(r, (err == WEFT_EPEER && strstr(weft_errmsg(), "rank 2")) || (real && err == WEFT_ETRANSPORT));
    RANKS_CHECK(r, clock_now() - begin < 15 * SECOND);
    if (real) {
        close_side(&s, r->comm);
        return;
    }
    struct device *d = s.device;
    RANKS_OK(r, device_open("test", WEFT_MEMORY_CUDA, device_of(r), getenv("WEFT_MODULES"), &d));
    close_side(&s, r->comm);
    simulated_calls()->use(d, &use);
    RANKS_CHECK(r, !use.allocations && !use.maps && !use.pins && !use.streams);
    d->ops->close(d);
}

static void a_death_is_named_and_releases_streams(void **state)
{
    (void)state;
    const char *before = ranks_on;
    ranks_on = "shm";
    ranks_forked = true;
    for (int i = 0; i < 4; i++) {
        bool streams = i % 2;
        ranks_run_but(RANKS, NULL, lose_a_rank, &streams, 2);
    }
    ranks_on = before;
    ranks_forked = false;
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEVICE", "sim", 0);
    real = strcmp(getenv("WEFT_DEVICE"), "sim") != 0;
    setenv("WEFT_SIM_NCCL", "1", 1);
    setenv("WEFT_SIM_DEVICES", "4", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_give_the_bits_of_host_memory),
        cmocka_unit_test(runs_keep_the_order_of_a_stream),
        cmocka_unit_test(a_graph_is_refused),
        cmocka_unit_test(a_rank_that_cannot_join_decides_for_all),
        cmocka_unit_test(a_rank_that_fails_to_join_decides_for_all),
        cmocka_unit_test(an_exec_is_bound_to_other_buffers),
        cmocka_unit_test(a_device_that_fails_ends_a_run),
        cmocka_unit_test(a_death_is_named_and_releases_streams),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
