/* Execs whose memory is on a device, on the simulated one unless WEFT_DEVICE says otherwise: which form they get, runs
 * in the order of streams, other buffers, refusals, and ranks that die while a stream waits for them. The property
 * campaign (property_device) has the pairs of layouts. */
#define _GNU_SOURCE
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device_side.h"
#include "support/clock.h"
#include "support/conformance.h"
#include "support/ranks.h"
#include "support/simulated.h"
#include "support/soon.h"
#include "support/suite.h"

enum { RANKS = 4, STREAMS = 16, RUNS = 20 };

/* ---- forms ---- */

static void run_all_forms(struct ranks_rank *r)
{
    static const char *const forms[] = {"", "-launcher", "-launcher,-pinned"};
    for (int form = 0; form < 3; form++) {
        struct side s;
        float host[COUNT];
        RANKS_OK(r, open_side(&s, r->comm, ROWS, SHIFT, forms[form]));
        RANKS_CHECK(r, explains(s.exec, "kernels of one rank") == !form);
        for (int run = 0; run < 3; run++) {
            for (int i = 0; i < COUNT; i++)
                host[i] = (float)(1000 * r->rank + i + run);
            RANKS_OK(r, copy(&s, s.src, host, sizeof host));
            RANKS_OK(r, sync_side(&s));
            RANKS_OK(r, weft_exec_run(s.exec));
            RANKS_OK(r, copy(&s, host, s.dst, sizeof host));
            RANKS_OK(r, sync_side(&s));
            int from = (r->rank + RANKS - 1) % RANKS;
            for (int i = 0; i < COUNT; i++)
                RANKS_CHECK(r, host[i] == (float)(1000 * from + i + run));
        }
        close_side(&s, r->comm);
    }
}

static void all_forms_move_the_data(void **state)
{
    (void)state;
    ranks_run(RANKS, NULL, run_all_forms, NULL, NULL);
}

/* ---- what an exec says ---- */

/* A side whose buffers are on the device, or one of them in `host` memory. */
static int bind_side(struct side *s, weft_comm *c, float *host, int device, const weft_bind_opts *opts)
{
    *s = (struct side){.device = NULL};
    void *src = NULL, *dst = NULL;
    int err = device_open("test", WEFT_MEMORY_CUDA, device, getenv("WEFT_MODULES"), &s->device);
    err = err ? err : lower(s, c, ROWS, SHIFT);
    err = err ? err : weft_comm_alloc(c, COUNT * sizeof *s->src, WEFT_MEMORY_CUDA, device, &src);
    err = err ? err : weft_comm_alloc(c, COUNT * sizeof *s->dst, WEFT_MEMORY_CUDA, device, &dst);
    s->src = src;
    s->dst = dst;
    weft_view from = view_of(s->src, COUNT), to = view_of(s->dst, COUNT);
    from.device = to.device = device;
    if (host)
        from = (weft_view)WEFT_VIEW(host, COUNT * sizeof *host);
    return err ? err : weft_bind(s->plan, c, &from, &to, opts, &s->exec);
}

static void explain_forms(struct ranks_rank *r)
{
    struct side s;
    float host[COUNT] = {0};
    char line[200];
    weft_bind_opts opts = WEFT_BIND_OPTS_INIT;
    RANKS_OK(r, bind_side(&s, r->comm, NULL, 0, &opts));
    snprintf(line, sizeof line, "device 0 (%s): shared by all ranks\n", s.device->ops->name);
    RANKS_CHECK(r, explains(s.exec, line) && !explains(s.exec, "mirrored"));
    RANKS_CHECK(
        r, explains_json(s.exec, "\"shared\": true, \"why\": null, \"slots\": 0, \"pinned\": 0, \"mirrored\": []}"));
    close_side(&s, r->comm);

    RANKS_OK(r, bind_side(&s, r->comm, r->rank == 1 ? host : NULL, 0, &opts));
    RANKS_CHECK(r, explains(s.exec, line));
    RANKS_CHECK(r, explains(s.exec, "source of tensor 0: 4096 bytes, mirrored on the device, because they are in host "
                                    "memory\n") == (r->rank == 1));
    RANKS_CHECK(r, !explains(s.exec, "destination of"));
    close_side(&s, r->comm);

    opts.ways = "-launcher";
    RANKS_OK(r, bind_side(&s, r->comm, r->rank == 1 ? host : NULL, 0, &opts));
    RANKS_CHECK(r, explains(s.exec, "not shared by all ranks: the driver launcher is switched off\n"));
    RANKS_CHECK(r, explains(s.exec, "messages go through 4 slots a channel of pinned host memory"));
    RANKS_CHECK(r, explains(s.exec, "1 message, 4096 bytes, pinned: a rank has memory on a device"));
    /* its own slot, that of the rank before it, and a view */
    RANKS_CHECK(r, explains(s.exec, "; 12288 bytes are pinned\n") == (r->rank == 1));
    RANKS_CHECK(r, explains_json(s.exec, "\"slots\": 4, \"pinned\": 8192, \"mirrored\": []}") == (r->rank != 1));
    close_side(&s, r->comm);

    opts.ways = "-launcher,-pinned";
    RANKS_OK(r, bind_side(&s, r->comm, r->rank == 1 ? host : NULL, 0, &opts));
    RANKS_CHECK(r, explains(s.exec, "not shared by all ranks: the driver launcher is switched off\n"));
    RANKS_CHECK(r, explains(s.exec, "source of tensor 0: 4096 bytes, mirrored on the host") == (r->rank != 1));
    RANKS_CHECK(r, explains(s.exec, "destination of tensor 0: 4096 bytes, mirrored on the host, because the device is "
                                    "not shared\n"));
    RANKS_CHECK(r, explains_json(s.exec, "\"shared\": false, \"why\": \"the driver launcher is switched off\", "
                                         "\"slots\": 0, \"pinned\": 0, \"mirrored\": [{\"tensor\": 0, \"side\": "));
    close_side(&s, r->comm);

    opts.ways = r->rank == 2 ? "-launcher" : "";
    RANKS_OK(r, bind_side(&s, r->comm, NULL, 0, &opts));
    RANKS_CHECK(r,
                explains(s.exec, "not shared by all ranks: another rank cannot share its memory\n") == (r->rank != 2));
    close_side(&s, r->comm);

    opts.ways = "";
    opts.check = 1;
    RANKS_OK(r, bind_side(&s, r->comm, NULL, 0, &opts));
    RANKS_CHECK(r, explains(s.exec, "not shared by all ranks: messages are checked\n"));
    close_side(&s, r->comm);

    const char *why;
    const struct device_ops *ops;
    RANKS_OK(r, device_find("test", WEFT_MEMORY_CUDA, getenv("WEFT_MODULES"), &ops));
    if (ops->count(&why) < 2)
        return;
    opts.check = 0;
    RANKS_OK(r, bind_side(&s, r->comm, NULL, r->rank % 2, &opts));
    RANKS_CHECK(r, explains(s.exec, "not shared by all ranks: the ranks have memory on several devices\n"));
    close_side(&s, r->comm);
}

static void an_exec_says_what_it_mirrors_and_why(void **state)
{
    (void)state;
    setenv("WEFT_SIM_DEVICES", "2", 1);
    ranks_run(RANKS, NULL, explain_forms, NULL, NULL);
    unsetenv("WEFT_SIM_DEVICES");
}

/* ---- streams ---- */

static void run_in_stream_order(struct ranks_rank *r)
{
    struct side s;
    RANKS_OK(r, open_side(&s, r->comm, ROWS, SHIFT, r->arg));
    keep_stream_order(r, &s, RUNS);
}

static void runs_keep_the_order_of_a_stream(void **state)
{
    (void)state;
    ranks_run(RANKS, NULL, run_in_stream_order, (void *)(uintptr_t) "", NULL);
    ranks_run(RANKS, NULL, run_in_stream_order, (void *)(uintptr_t) "-launcher", NULL);
}

enum { LARGE = 1 << 19, CALLS = 3 }; /* elements of a rank: more blocks than one kernel meets ranks with */
#define LARGE_ROWS "f32[2097152/x] @x4"
#define LARGE_SHIFT "f32[2097152/x] @x4=1,2,3,0"

/* Run `run` of a large exec: on a stream on all ranks, ordered by the host on all, or one and the other. */
static void run_large(struct ranks_rank *r, struct side *s, float *host, int run)
{
    const int from = (r->rank + RANKS - 1) % RANKS;
    for (int i = 0; i < LARGE; i++)
        host[i] = (float)(r->rank + i % 1000 * 8 + run * 8000);
    RANKS_OK(r, copy(s, s->src, host, LARGE * sizeof *host));
    if (run % 3 == 0 || (run % 3 == 2 && r->rank % 2)) {
        RANKS_OK(r, weft_exec_start_on(s->exec, s->stream));
    } else {
        RANKS_OK(r, sync_side(s));
        RANKS_OK(r, weft_exec_start(s->exec));
    }
    RANKS_OK(r, weft_exec_wait(s->exec, 30000000000));
    RANKS_OK(r, copy(s, host, s->dst, LARGE * sizeof *host));
    RANKS_OK(r, sync_side(s));
    for (int i = 0; i < LARGE; i++)
        if (host[i] != (float)(from + i % 1000 * 8 + run * 8000)) {
            RANKS_CHECK(r, !"the element is that of the rank before, in this run");
            break;
        }
}

/* A start of a small run or of a large one on a stream is one call of the driver on each rank, whose kernels can wait
 * for those of others. (One between is two calls.) */
static void run_by_one_call(struct ranks_rank *r)
{
    struct side s;
    struct sim_use before, after;
    float *host = malloc(LARGE * sizeof *host);
    const bool large = r->arg;
    RANKS_OK(r, open_side(&s, r->comm, large ? LARGE_ROWS : ROWS, large ? LARGE_SHIFT : SHIFT, ""));
    for (int run = 0; run < 9 && large; run++)
        run_large(r, &s, host, run);
    ranks_meet(r);
    const bool counts = !ranks_forked && !strcmp(s.device->ops->name, "sim");
    if (counts)
        simulated_calls()->use(s.device, &before);
    ranks_meet(r);
    for (int i = 0; i < CALLS; i++)
        RANKS_OK(r, weft_exec_start_on(s.exec, s.stream));
    RANKS_OK(r, weft_exec_wait(s.exec, 30000000000));
    ranks_meet(r);
    if (counts)
        simulated_calls()->use(s.device, &after);
    RANKS_CHECK(r, !counts || after.calls - before.calls == CALLS * RANKS);
    free(host);
    ranks_meet(r);
    close_side(&s, r->comm);
}

static void a_start_on_a_stream_is_one_call_of_the_driver(void **state)
{
    (void)state;
    ranks_run(RANKS, NULL, run_by_one_call, (void *)(uintptr_t) "large", NULL);
    ranks_run(RANKS, NULL, run_by_one_call, NULL, NULL);
}

/* Many execs, each on a stream of its own, started in another order on each rank. The hardware has 32 queues for all
 * streams of a process, so ranks that are threads use fewer. */
static int streams_of(void)
{
    return ranks_forked ? STREAMS : STREAMS / 4;
}

static void run_many_streams(struct ranks_rank *r)
{
    const int streams = streams_of();
    struct side s[STREAMS];
    float in[COUNT];
    for (int k = 0; k < streams; k++)
        RANKS_OK(r, open_side(&s[k], r->comm, ROWS, SHIFT, ""));
    float(*out)[COUNT] = pinned(&s[0], STREAMS * sizeof *out);
    RANKS_CHECK(r, out);
    for (int turn = 0; turn < 5; turn++) {
        for (int i = 0; i < streams; i++) {
            int k = (i * (2 * r->rank + 1) + turn) % streams;
            for (int e = 0; e < COUNT; e++)
                in[e] = (float)(turn * 100000 + k * 5000 + r->rank * 1000 + e);
            RANKS_OK(r, copy(&s[k], s[k].src, in, sizeof in));
            RANKS_OK(r, sync_side(&s[k]));
            RANKS_OK(r, weft_exec_start_on(s[k].exec, s[k].stream));
            RANKS_OK(r, copy(&s[k], out[k], s[k].dst, sizeof out[k]));
        }
        for (int k = 0; k < streams; k++) {
            RANKS_OK(r, sync_side(&s[k]));
            int from = (r->rank + RANKS - 1) % RANKS;
            for (int e = 0; e < COUNT; e++)
                RANKS_CHECK(r, out[k][e] == (float)(turn * 100000 + k * 5000 + from * 1000 + e));
        }
    }
    unpinned(&s[0], out);
    for (int k = 0; k < streams; k++)
        close_side(&s[k], r->comm);
}

static void execs_on_many_streams_go_in_any_order(void **state)
{
    (void)state;
    ranks_run(RANKS, NULL, run_many_streams, NULL, NULL);
}

/* ---- the host's order ---- */

/* Giving device memory back waits for all streams of the process. A rank that has started a run does so before the
 * others start theirs: its run must not wait in a stream. */
static void give_back_between_starts(struct ranks_rank *r)
{
    struct side s;
    float *more, host[COUNT];
    RANKS_OK(r, open_side(&s, r->comm, ROWS, SHIFT, ""));
    for (int turn = 0; turn < 2 * RANKS; turn++) {
        for (int i = 0; i < COUNT; i++)
            host[i] = (float)(turn * 10000 + r->rank * 1000 + i);
        RANKS_OK(r, copy(&s, s.src, host, sizeof host));
        RANKS_OK(r, sync_side(&s));
        bool early = r->rank == turn % RANKS;
        if (early)
            RANKS_OK(r, weft_exec_start(s.exec));
        RANKS_OK(r, device_memory(r->comm, sizeof host, &more));
        weft_comm_free(r->comm, more);
        RANKS_OK(r, weft_comm_barrier(r->comm, WEFT_DEADLINE));
        if (!early)
            RANKS_OK(r, weft_exec_start(s.exec));
        RANKS_OK(r, weft_exec_wait(s.exec, WEFT_DEADLINE));
        RANKS_OK(r, copy(&s, host, s.dst, sizeof host));
        RANKS_OK(r, sync_side(&s));
        int from = (r->rank + RANKS - 1) % RANKS;
        for (int i = 0; i < COUNT; i++)
            RANKS_CHECK(r, host[i] == (float)(turn * 10000 + from * 1000 + i));
        RANKS_OK(r, weft_comm_barrier(r->comm, WEFT_DEADLINE)); /* sources are written again */
    }
    close_side(&s, r->comm);
}

static void runs_that_the_host_orders_wait_in_no_stream(void **state)
{
    (void)state;
    ranks_run(RANKS, NULL, give_back_between_starts, NULL, NULL);
}

/* ---- other buffers ---- */

static void run_rebound(struct ranks_rank *r)
{
    struct side s;
    float *src, *dst, host[COUNT];
    RANKS_OK(r, open_side(&s, r->comm, ROWS, SHIFT, r->arg));
    RANKS_OK(r, device_memory(r->comm, sizeof host, &src));
    RANKS_OK(r, device_memory(r->comm, sizeof host, &dst));
    weft_view from = view_of(src, COUNT), to = view_of(dst, COUNT);
    RANKS_OK(r, weft_exec_run(s.exec));
    RANKS_OK(r, weft_exec_rebind(s.exec, &from, &to));
    for (int i = 0; i < COUNT; i++)
        host[i] = (float)(r->rank * 1000 + i);
    RANKS_OK(r, copy(&s, src, host, sizeof host));
    RANKS_OK(r, sync_side(&s));
    RANKS_OK(r, weft_exec_run(s.exec));
    RANKS_OK(r, copy(&s, host, dst, sizeof host));
    RANKS_OK(r, sync_side(&s));
    int peer = (r->rank + RANKS - 1) % RANKS;
    for (int i = 0; i < COUNT; i++)
        RANKS_CHECK(r, host[i] == (float)(peer * 1000 + i));
    close_side(&s, r->comm);
    weft_comm_free(r->comm, src);
    weft_comm_free(r->comm, dst);
}

static void an_exec_is_bound_to_other_buffers(void **state)
{
    (void)state;
    ranks_run(RANKS, NULL, run_rebound, (void *)(uintptr_t) "", NULL);
    ranks_run(RANKS, NULL, run_rebound, (void *)(uintptr_t) "-launcher", NULL);
}

/* ---- many tensors in few allocations ---- */

/* 64 tensors in one allocation a side: the device is asked for each allocation once, not for each tensor. */
static void bind_many(struct ranks_rank *r)
{
    enum { TENSORS = 64 };
    struct side s = {.device = NULL};
    weft_move moves[TENSORS];
    weft_view from[TENSORS], to[TENSORS];
    struct sim_use before, after;
    RANKS_OK(r, device_open("test", WEFT_MEMORY_CUDA, 0, getenv("WEFT_MODULES"), &s.device));
    RANKS_OK(r, weft_layout_parse(ROWS, &s.from));
    RANKS_OK(r, weft_layout_parse(SHIFT, &s.to));
    RANKS_OK(r, device_memory(r->comm, TENSORS * COUNT * sizeof *s.src, &s.src));
    RANKS_OK(r, device_memory(r->comm, TENSORS * COUNT * sizeof *s.dst, &s.dst));
    for (int i = 0; i < TENSORS; i++) {
        moves[i] = (weft_move){.src = s.from, .dst = s.to};
        from[i] = view_of(s.src + i * COUNT, COUNT);
        to[i] = view_of(s.dst + i * COUNT, COUNT);
    }
    RANKS_OK(r, weft_lower(moves, TENSORS, r->rank, NULL, &s.plan));
    bool counts = !strcmp(s.device->ops->name, "sim");
    ranks_meet(r);
    if (counts)
        simulated_calls()->use(s.device, &before);
    ranks_meet(r);
    RANKS_OK(r, weft_bind(s.plan, r->comm, from, to, NULL, &s.exec));
    ranks_meet(r);
    if (counts) /* both sides and the scratch memory, of each rank of the process */
        simulated_calls()->use(s.device, &after);
    RANKS_CHECK(r, !counts || after.shares - before.shares <= 3u * (ranks_forked ? 1 : RANKS));
    RANKS_OK(r, weft_exec_run(s.exec));
    ranks_meet(r);
    close_side(&s, r->comm);
}

static void an_allocation_is_asked_for_its_handle_once(void **state)
{
    (void)state;
    ranks_run(RANKS, NULL, bind_many, NULL, NULL);
}

/* ---- refusals ---- */

static void refuse_all(struct ranks_rank *r)
{
    struct side s = {.device = NULL};
    float host[COUNT] = {0}, other[COUNT];
    RANKS_OK(r, lower(&s, r->comm, ROWS, SHIFT));
    weft_view src = WEFT_VIEW(host, sizeof host), dst = WEFT_VIEW(other, sizeof other);
    RANKS_OK(r, weft_bind(s.plan, r->comm, &src, &dst, NULL, &s.exec));
    RANKS_CHECK(r, weft_exec_start_on(s.exec, NULL) == WEFT_EUNSUPPORTED && strstr(weft_errmsg(), "host memory"));
    RANKS_OK(r, device_memory(r->comm, sizeof host, &s.src));
    weft_view on_device = view_of(s.src, COUNT);
    RANKS_CHECK(r, weft_exec_rebind(s.exec, &on_device, &dst) == WEFT_EUNSUPPORTED &&
                       strstr(weft_errmsg(), "bind the plan again"));
    RANKS_OK(r, weft_exec_run(s.exec)); /* it is as it was */
    weft_exec *x;
    on_device.device = 7;
    int err = weft_bind(s.plan, r->comm, &on_device, &dst, NULL, &x);
    RANKS_CHECK(r, err == WEFT_EINVAL && strstr(weft_errmsg(), "no device 7"));
    on_device.device = 0;
    on_device.memory = 5;
    err = weft_bind(s.plan, r->comm, &on_device, &dst, NULL, &x);
    RANKS_CHECK(r, err == WEFT_EUNSUPPORTED && strstr(weft_errmsg(), "kind 5"));
    on_device = view_of(s.src, COUNT - 1); /* too small */
    err = weft_bind(s.plan, r->comm, &on_device, &dst, NULL, &x);
    RANKS_CHECK(r, err == WEFT_EINVAL && strstr(weft_errmsg(), "are needed"));
    close_side(&s, r->comm);
}

static void what_cannot_be_done_is_refused(void **state)
{
    (void)state;
    ranks_run(RANKS, NULL, refuse_all, NULL, NULL);
}

/* ---- deaths ---- */

/* What rank 2 does when it dies, and the others when they find out. */
enum death {
    IDLE,    /* nothing; then the others run by the host */
    MID_RUN, /* it has runs on its stream, as the others have */
    AWAITED, /* the others have a run on a stream that waits for it, and sit in the stream's wait */
    DEATHS
};

static bool under_mps(const struct device *d)
{
    struct device_facts facts;
    return d->ops->facts(d->number, &facts) && facts.mps;
}

/* Under MPS a rank that is killed while a kernel runs takes the contexts of the others with it. */
static bool named(const struct device *d, int err)
{
    return (err == WEFT_EPEER && strstr(weft_errmsg(), "rank 2")) || (err == WEFT_ETRANSPORT && under_mps(d));
}

struct loss {
    enum death death;
    int64_t died, took[RANKS]; /* when rank 2 did, and how long it took until a rank knew */
};

static void lose_a_rank(struct ranks_rank *r)
{
    struct side s;
    struct loss *loss = r->arg;
    const enum death death = loss->death;
    RANKS_OK(r, open_side(&s, r->comm, ROWS, SHIFT, ""));
    for (int run = 0; run < 3; run++)
        RANKS_OK(r, weft_exec_run(s.exec));
    RANKS_OK(r, weft_comm_barrier(r->comm, WEFT_DEADLINE));
    for (int run = 0; run < RUNS && death == MID_RUN && r->rank == 2; run++)
        RANKS_OK(r, weft_exec_start_on(s.exec, s.stream));
    if (r->rank == 2) {
        loss->died = clock_now();
        kill(getpid(), SIGKILL);
    }
    int64_t begin = clock_now();
    int err = 0;
    for (int run = 0; run < RUNS && death == MID_RUN && !err; run++)
        err = weft_exec_start_on(s.exec, s.stream);
    while (!err && clock_now() - begin < 20 * SECOND) { /* some runs may have come to their end before the death */
        err = death == IDLE ? weft_exec_run(s.exec) : weft_exec_start_on(s.exec, s.stream);
        int failed = err || death == IDLE ? 0 : sync_side(&s);
        RANKS_CHECK(r, !failed || under_mps(s.device));
    }
    begin = loss->died > begin ? loss->died : begin;
    loss->took[r->rank] = clock_now() - begin - (under_mps(s.device) ? 3 * SECOND : 0);
    RANKS_CHECK(r, named(s.device, err));
    close_side(&s, r->comm);
}

static int64_t lose(void *arg)
{
    struct loss *loss = arg;
    int64_t most = 0;
    ranks_run_but(RANKS, NULL, lose_a_rank, loss, 2);
    for (int r = 0; r < RANKS; r++)
        most = loss->took[r] > most ? loss->took[r] : most;
    return most;
}

/* WEFT_TEST_LIVES: how many ranks die, in turns of each kind; 3. */
static void a_death_is_named_and_releases_streams_that_wait(void **state)
{
    (void)state;
    const char *on = ranks_on, *lives = getenv("WEFT_TEST_LIVES");
    bool forked = ranks_forked;
    ranks_on = "shm";
    ranks_forked = true;
    struct loss *loss = ranks_shared(sizeof *loss);
    for (int i = 0; i < (lives ? atoi(lives) : DEATHS); i++) {
        loss->death = (enum death)(i % DEATHS);
        soon_at_last(lose, loss);
    }
    munmap(loss, sizeof *loss);
    ranks_on = on;
    ranks_forked = forked;
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEVICE", "sim", 0);
    setenv("WEFT_SIM_QUEUES", "32", 0); /* as many as the hardware has */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_forms_move_the_data),
        cmocka_unit_test(an_exec_says_what_it_mirrors_and_why),
        cmocka_unit_test(runs_keep_the_order_of_a_stream),
        cmocka_unit_test(a_start_on_a_stream_is_one_call_of_the_driver),
        cmocka_unit_test(execs_on_many_streams_go_in_any_order),
        cmocka_unit_test(runs_that_the_host_orders_wait_in_no_stream),
        cmocka_unit_test(an_exec_is_bound_to_other_buffers),
        cmocka_unit_test(an_allocation_is_asked_for_its_handle_once),
        cmocka_unit_test(what_cannot_be_done_is_refused),
    };
    const struct CMUnitTest deaths[] = {cmocka_unit_test(a_death_is_named_and_releases_streams_that_wait)};
    return SUITE_MAIN(argc, argv, SUITE_AT(&conformance_one_host, tests), SUITE_ONCE(deaths));
}
