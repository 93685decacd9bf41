/* Runs in graphs of the caller, on the simulated device: replayed 1,000 times with each replay's values checked,
 * between ordinary runs, with host memory on some ranks; what is refused; a rank that dies, or that
 * does not launch its graph, while the others' replays wait. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "device_side.h"
#include "support/clock.h"
#include "support/conformance.h"
#include "support/ranks.h"
#include "support/share.h"
#include "support/simulated.h"
#include "support/soon.h"
#include "support/suite.h"

enum { RANKS = 4 };

static const struct sim_calls *sim;

/* What kernels of a rank's graph work with. The source counts up with each replay, and so does what is expected. */
struct replayed {
    float *src, *dst;
    int from; /* the rank whose source becomes this destination */
    int rank;
    int count, expected; /* replays that the source and the check have seen */
    int wrong;           /* values */
};

static void write_source(struct sim_view *view, void *arg)
{
    struct replayed *p = arg;
    float *src = sim->at(view, p->src, COUNT * sizeof *src);
    p->count++;
    for (int i = 0; i < COUNT; i++)
        src[i] = (float)(p->rank * 1000 + p->count * 4 + i % 4);
}

static void check_destination(struct sim_view *view, void *arg)
{
    struct replayed *p = arg;
    float *dst = sim->at(view, p->dst, COUNT * sizeof *dst);
    p->expected++;
    for (int i = 0; i < COUNT; i++)
        p->wrong += dst[i] != (float)(p->from * 1000 + p->expected * 4 + i % 4);
}

static struct replayed replayed_of(const struct ranks_rank *r, const struct side *s)
{
    return (struct replayed){.src = s->src, .dst = s->dst, .rank = r->rank, .from = (r->rank + RANKS - 1) % RANKS};
}

/* Records: the source, `runs` runs, the check. */
static int capture(struct side *s, struct replayed *p, int runs, void **graph)
{
    int err = sim->capture_begin(s->device, s->stream);
    err = err ? err : sim->kernel(s->device, s->stream, write_source, p);
    for (int i = 0; i < runs && !err; i++)
        err = weft_exec_start_on(s->exec, s->stream);
    err = err ? err : sim->kernel(s->device, s->stream, check_destination, p);
    void *end = NULL;
    int ended = sim->capture_end(s->device, s->stream, &end);
    *graph = end;
    return err ? err : ended;
}

/* 1,000 at one place, and a share of them at the others. */
static int replays(void)
{
    int64_t n = test_share(1000, 20000), least = strcmp(ranks_on, "threads") ? 200 : 1000;
    return (int)(n < least ? least : n);
}

static void replay_runs(struct ranks_rank *r)
{
    struct side s;
    void *graph;
    RANKS_OK(r, open_side(&s, r->comm, ROWS, SHIFT, ""));
    struct replayed p = replayed_of(r, &s);
    int n = replays();
    RANKS_OK(r, capture(&s, &p, 1, &graph));
    for (int i = 0; i < n; i++)
        RANKS_OK(r, sim->graph_launch(s.device, graph, s.stream));
    RANKS_OK(r, sync_side(&s));
    RANKS_CHECK(r, p.count == n && p.expected == n && p.wrong == 0);
    weft_exec_info info = WEFT_EXEC_INFO_INIT;
    RANKS_OK(r, weft_exec_stats(s.exec, &info));
    RANKS_CHECK(r, info.runs == 0); /* the exec does not know of them */
    sim->graph_free(s.device, graph);
    RANKS_OK(r, weft_comm_barrier(r->comm, WEFT_DEADLINE));
    close_side(&s, r->comm);
}

static void a_captured_run_is_replayed_many_times(void **state)
{
    (void)state;
    if (ranks_forked)
        setenv("WEFT_SIM_MPS", "1", 1);
    ranks_run(RANKS, NULL, replay_runs, NULL, NULL);
    unsetenv("WEFT_SIM_MPS");
}

/* Two graphs of one exec, one of them with two runs, and ordinary runs between them. */
static void mix_runs(struct ranks_rank *r)
{
    struct side s;
    void *once, *twice;
    RANKS_OK(r, open_side(&s, r->comm, ROWS, SHIFT, ""));
    struct replayed p = replayed_of(r, &s);
    RANKS_OK(r, capture(&s, &p, 1, &once));
    RANKS_OK(r, capture(&s, &p, 2, &twice));
    for (int i = 0; i < 60; i++) {
        if (i % 3 < 2) {
            RANKS_OK(r, sim->graph_launch(s.device, i % 3 ? twice : once, s.stream));
            continue;
        }
        RANKS_OK(r, sim->kernel(s.device, s.stream, write_source, &p));
        RANKS_OK(r, weft_exec_start_on(s.exec, s.stream));
        RANKS_OK(r, sim->kernel(s.device, s.stream, check_destination, &p));
    }
    RANKS_OK(r, sync_side(&s));
    RANKS_OK(r, weft_exec_wait(s.exec, WEFT_DEADLINE));
    RANKS_CHECK(r, p.expected == 60 && p.wrong == 0);
    weft_exec_info info = WEFT_EXEC_INFO_INIT;
    RANKS_OK(r, weft_exec_stats(s.exec, &info));
    RANKS_CHECK(r, info.runs == 20);
    sim->graph_free(s.device, once);
    sim->graph_free(s.device, twice);
    RANKS_OK(r, weft_comm_barrier(r->comm, WEFT_DEADLINE));
    close_side(&s, r->comm);
}

static void replays_and_runs_take_turns(void **state)
{
    (void)state;
    if (ranks_forked)
        setenv("WEFT_SIM_MPS", "1", 1);
    ranks_run(RANKS, NULL, mix_runs, NULL, NULL);
    unsetenv("WEFT_SIM_MPS");
}

/* ---- host memory ---- */

/* Odd ranks have their source in host memory, which they change between two replays. */
static void replay_mirrors(struct ranks_rank *r)
{
    struct side s = {.device = NULL};
    float in[COUNT];
    void *graph;
    bool hosted = r->rank % 2;
    RANKS_OK(r, device_open("test", WEFT_MEMORY_CUDA, 0, getenv("WEFT_MODULES"), &s.device));
    RANKS_OK(r, s.device->ops->stream_open(s.device, &s.stream));
    RANKS_OK(r, lower(&s, r->comm, ROWS, SHIFT));
    RANKS_OK(r, device_memory(r->comm, sizeof in, &s.src));
    RANKS_OK(r, device_memory(r->comm, sizeof in, &s.dst));
    weft_view src = view_of(s.src, COUNT), dst = view_of(s.dst, COUNT);
    if (hosted)
        src = (weft_view)WEFT_VIEW(in, sizeof in);
    RANKS_OK(r, weft_bind(s.plan, r->comm, &src, &dst, NULL, &s.exec));
    struct replayed p = replayed_of(r, &s);
    RANKS_OK(r, sim->capture_begin(s.device, s.stream));
    RANKS_OK(r, weft_exec_start_on(s.exec, s.stream));
    RANKS_OK(r, sim->kernel(s.device, s.stream, check_destination, &p));
    RANKS_OK(r, sim->capture_end(s.device, s.stream, &graph));
    for (int run = 1; run <= 20; run++) {
        for (int i = 0; i < COUNT && hosted; i++)
            in[i] = (float)(r->rank * 1000 + run * 4 + i % 4);
        if (!hosted)
            RANKS_OK(r, sim->kernel(s.device, s.stream, write_source, &p));
        RANKS_OK(r, sim->graph_launch(s.device, graph, s.stream));
        RANKS_OK(r, sync_side(&s));
    }
    RANKS_CHECK(r, p.expected == 20 && p.wrong == 0);
    sim->graph_free(s.device, graph);
    RANKS_OK(r, weft_comm_barrier(r->comm, WEFT_DEADLINE));
    close_side(&s, r->comm);
}

static void host_memory_is_copied_in_each_replay(void **state)
{
    (void)state;
    if (ranks_forked)
        setenv("WEFT_SIM_MPS", "1", 1);
    ranks_run(RANKS, NULL, replay_mirrors, NULL, NULL);
    unsetenv("WEFT_SIM_MPS");
}

/* ---- refusals ---- */

static void refuse_captures(struct ranks_rank *r)
{
    struct side s;
    void *graph = NULL;
    RANKS_OK(r, open_side(&s, r->comm, ROWS, SHIFT, ""));
    struct replayed p = replayed_of(r, &s);
    int err = capture(&s, &p, 1, &graph);
    RANKS_CHECK(r, (err == WEFT_EUNSUPPORTED) == ranks_forked);
    RANKS_CHECK(r, !ranks_forked || strstr(weft_errmsg(), "processes that share the device without MPS"));
    sim->graph_free(s.device, graph);
    RANKS_OK(r, weft_exec_run(s.exec)); /* it is as it was */
    close_side(&s, r->comm);
    RANKS_OK(r, open_side(&s, r->comm, ROWS, SHIFT, "-launcher"));
    p = replayed_of(r, &s);
    err = capture(&s, &p, 1, &graph);
    RANKS_CHECK(r, err == WEFT_EUNSUPPORTED && strstr(weft_errmsg(), "the host carries the data of this exec") &&
                       strstr(weft_errmsg(), "the driver launcher is switched off"));
    sim->graph_free(s.device, graph);
    RANKS_OK(r, weft_exec_run(s.exec));
    close_side(&s, r->comm);
}

static void capture_is_refused_with_the_reason(void **state)
{
    (void)state;
    ranks_run(RANKS, NULL, refuse_captures, NULL, NULL);
}

/* ---- deaths ---- */

/* A rank that others wait for in vain, and how long they did. */
struct loss {
    int rank;
    int64_t died, took[RANKS];
};

static int64_t slowest(const struct loss *loss)
{
    int64_t most = 0;
    for (int r = 0; r < RANKS; r++)
        most = loss->took[r] > most ? loss->took[r] : most;
    return most;
}

/* A rank dies after some replays. The others have many more queued, and sit in the stream's wait. */
static void lose_a_rank(struct ranks_rank *r)
{
    struct side s;
    void *graph;
    struct loss *loss = r->arg;
    RANKS_OK(r, open_side(&s, r->comm, ROWS, SHIFT, ""));
    struct replayed p = replayed_of(r, &s);
    RANKS_OK(r, capture(&s, &p, 1, &graph));
    for (int i = 0; i < 5; i++)
        RANKS_OK(r, sim->graph_launch(s.device, graph, s.stream));
    RANKS_OK(r, sync_side(&s));
    RANKS_OK(r, weft_comm_barrier(r->comm, WEFT_DEADLINE));
    if (r->rank == loss->rank) {
        loss->died = clock_now();
        kill(getpid(), SIGKILL);
    }
    int64_t begin = clock_now();
    for (int i = 0; i < 50; i++)
        RANKS_OK(r, sim->graph_launch(s.device, graph, s.stream));
    RANKS_OK(r, sync_side(&s));
    loss->took[r->rank] = clock_now() - (loss->died > begin ? loss->died : begin);
    int err = weft_exec_start_on(s.exec, s.stream);
    char who[16];
    snprintf(who, sizeof who, "rank %d", loss->rank);
    RANKS_CHECK(r, err == WEFT_EPEER && strstr(weft_errmsg(), who));
    sim->graph_free(s.device, graph);
    close_side(&s, r->comm);
}

static int64_t lose(void *arg)
{
    struct loss *loss = arg;
    ranks_run_but(RANKS, NULL, lose_a_rank, loss, loss->rank);
    return slowest(loss);
}

static void a_death_releases_replays_that_wait(void **state)
{
    (void)state;
    const char *on = ranks_on;
    bool forked = ranks_forked;
    ranks_on = "shm";
    ranks_forked = true;
    setenv("WEFT_SIM_MPS", "1", 1);
    struct loss *loss = ranks_shared(sizeof *loss);
    for (loss->rank = 0; loss->rank < RANKS; loss->rank += 2) /* the launcher, and another rank */
        soon_at_last(lose, loss);
    munmap(loss, sizeof *loss);
    unsetenv("WEFT_SIM_MPS");
    ranks_on = on;
    ranks_forked = forked;
}

/* ---- a graph that is not launched ---- */

/* A rank launches its graph once less than the others. */
static void forget_a_launch(struct ranks_rank *r)
{
    struct side s;
    void *graph;
    struct loss *loss = r->arg;
    const int forgets = loss->rank;
    RANKS_OK(r, open_side(&s, r->comm, ROWS, SHIFT, ""));
    struct replayed p = replayed_of(r, &s);
    RANKS_OK(r, capture(&s, &p, 1, &graph));
    for (int i = 0; i < 5 + (r->rank != forgets); i++)
        RANKS_OK(r, sim->graph_launch(s.device, graph, s.stream));
    int64_t begin = clock_now();
    RANKS_OK(r, sync_side(&s));
    loss->took[r->rank] = clock_now() - begin - r->opts.deadline_ns;
    ranks_meet(r);
    int err = weft_exec_start_on(s.exec, s.stream);
    char text[64];
    snprintf(text, sizeof text, "rank %d has not launched its graph for 1200 ms", forgets);
    RANKS_CHECK(r, err == WEFT_EPEER && strstr(ranks_said(), text));
    sim->graph_free(s.device, graph);
    close_side(&s, r->comm);
}

static int64_t forget(void *arg)
{
    weft_comm_opts opts = WEFT_COMM_OPTS_INIT;
    opts.deadline_ns = 1200 * INT64_C(1000000);
    ranks_run(RANKS, &opts, forget_a_launch, arg, NULL);
    return slowest(arg);
}

static void a_graph_that_is_not_launched_releases_those_that_wait_for_it(void **state)
{
    (void)state;
    const char *on = ranks_on;
    bool forked = ranks_forked;
    ranks_on = CONFORMANCE_ON > 1 ? "shm" : "threads";
    ranks_forked = false;
    struct loss loss = {0};
    for (; loss.rank < RANKS; loss.rank += 3) /* the launcher, and another rank */
        soon_at_last(forget, &loss);
    ranks_on = on;
    ranks_forked = forked;
}

static int setup(void **state)
{
    (void)state;
    sim = simulated_calls();
    return sim ? 0 : 1;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_captured_run_is_replayed_many_times),
        cmocka_unit_test(replays_and_runs_take_turns),
        cmocka_unit_test(host_memory_is_copied_in_each_replay),
        cmocka_unit_test(capture_is_refused_with_the_reason),
    };
    const struct CMUnitTest deaths[] = {cmocka_unit_test(a_death_releases_replays_that_wait),
                                        cmocka_unit_test(a_graph_that_is_not_launched_releases_those_that_wait_for_it)};
    return SUITE_MAIN(argc, argv, {tests, sizeof tests / sizeof *tests, &conformance_one_host, setup, NULL},
                      SUITE_FIXTURE(deaths, setup, NULL));
}
