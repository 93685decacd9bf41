/* Windows whose buffers are on a device, the simulated one unless WEFT_DEVICE says otherwise: put and put_add, kernels
 * that write signals and wait for them, refusals, deaths, and that nothing is left. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pass_kernel.h"
#include "support/conformance.h"
#include "support/hosts_meet.h"
#include "support/ranks.h"
#include "support/simulated.h"
#include "support/suite.h"

enum { RANKS = 4, COUNT = 1000, ADDS = 20, ADDED = 300 };
enum { FLOATS, INTS, HALVES, HOST, BUFFERS };

static const weft_buffer usual[BUFFERS] = {
    [FLOATS] = {.name = "floats", .dtype = WEFT_F32, .count = COUNT, .memory = WEFT_MEMORY_CUDA},
    [INTS] = {.name = "ints", .dtype = WEFT_I32, .count = ADDED, .memory = WEFT_MEMORY_CUDA},
    [HALVES] = {.name = "halves", .dtype = WEFT_BF16, .count = ADDED, .memory = WEFT_MEMORY_CUDA},
    [HOST] = {.name = "host", .dtype = WEFT_F32, .count = COUNT},
};

static int open_device(struct device **d, void **stream)
{
    int err = device_open("test", WEFT_MEMORY_CUDA, 0, getenv("WEFT_MODULES"), d);
    return err ? err : (*d)->ops->stream_open(*d, stream);
}

static void close_device(struct device *d, void *stream)
{
    d->ops->stream_close(d, stream);
    d->ops->close(d);
}

static int fetch(struct device *d, void *stream, void *host, const void *from, size_t bytes)
{
    int err = d->ops->copy(d, stream, host, from, bytes);
    return err ? err : d->ops->sync(d, stream);
}

/* ---- puts ---- */

static void put_and_add(struct ranks_rank *r)
{
    struct device *d;
    void *stream;
    weft_window *w;
    static _Thread_local float in[COUNT], out[COUNT];
    int32_t ones[ADDED], sum[ADDED];
    uint16_t halves[ADDED];
    const int next = (r->rank + 1) % r->size, before = (r->rank + r->size - 1) % r->size;
    RANKS_OK(r, open_device(&d, &stream));
    RANKS_OK(r, weft_window_open(r->comm, usual, BUFFERS, 2, &w));
    for (int i = 0; i < COUNT; i++)
        in[i] = (float)(1000 * r->rank + i);
    RANKS_OK(r, weft_window_put(w, FLOATS, next, 100, in, COUNT - 100));
    RANKS_OK(r, weft_window_put(w, HOST, next, 0, in, COUNT));
    RANKS_OK(r, weft_window_notify(w, next, 0, WEFT_NOTIFY_ADD, 1));
    RANKS_OK(r, weft_window_wait(w, 0, WEFT_GE, 1, WEFT_DEADLINE));
    RANKS_OK(r, fetch(d, stream, out, weft_window_pointer(w, FLOATS, r->rank), sizeof out));
    const float *host = weft_window_pointer(w, HOST, r->rank);
    for (int i = 0; i < COUNT; i++) {
        RANKS_CHECK(r, out[i] == (i < 100 ? 0 : (float)(1000 * before + i - 100)));
        RANKS_CHECK(r, host[i] == (float)(1000 * before + i));
    }
    /* From device memory, too. */
    RANKS_OK(r, weft_window_barrier(w, WEFT_DEADLINE));
    RANKS_OK(r, weft_window_put(w, FLOATS, next, 0, weft_window_pointer(w, FLOATS, r->rank), 0));
    RANKS_OK(r, weft_window_put(w, HALVES, r->rank, 0, weft_window_pointer(w, INTS, r->rank), ADDED));
    RANKS_OK(r, weft_window_barrier(w, WEFT_DEADLINE)); /* the others add to both */
    for (int i = 0; i < ADDED; i++) {
        ones[i] = i + r->rank;
        halves[i] = 0x3f80; /* 1 */
    }
    for (int k = 0; k < ADDS; k++) {
        RANKS_OK(r, weft_window_put_add(w, INTS, 0, 0, ones, ADDED));
        RANKS_OK(r, weft_window_put_add(w, HALVES, 0, 1, halves, ADDED - 1));
    }
    RANKS_OK(r, weft_window_barrier(w, WEFT_DEADLINE));
    RANKS_OK(r, fetch(d, stream, sum, weft_window_pointer(w, INTS, 0), sizeof sum));
    RANKS_OK(r, fetch(d, stream, halves, weft_window_pointer(w, HALVES, 0), sizeof halves));
    const int32_t ranks = r->size * (r->size - 1) / 2;
    const float all = (float)(ADDS * r->size);
    uint32_t bits;
    memcpy(&bits, &all, sizeof bits);
    for (int i = 0; i < ADDED; i++) {
        RANKS_CHECK(r, sum[i] == ADDS * (i * r->size + ranks));
        RANKS_CHECK(r, halves[i] == (i ? bits >> 16 : 0));
    }
    weft_window_close(w);
    close_device(d, stream);
}

static void puts_and_adds_reach_devices(void **state)
{
    (void)state;
    ranks_run(RANKS, NULL, put_and_add, NULL, NULL);
    ranks_run(1, NULL, put_and_add, NULL, NULL);
}

/* ---- kernels ---- */

/* A kernel of each rank waits for signal 0, which the host of the rank before notifies, and signals the next rank,
 * whose host waits. */
static void signal_by_kernels(struct ranks_rank *r)
{
    struct device *d;
    void *stream;
    weft_window *w;
    const int next = (r->rank + 1) % r->size, before = (r->rank + r->size - 1) % r->size;
    RANKS_OK(r, open_device(&d, &stream));
    RANKS_OK(r, weft_window_open(r->comm, usual, BUFFERS, 2, &w));
    for (uint64_t run = 1; run <= 10; run++) {
        struct pass_kernel p = {.waits = weft_window_signal_pointer(w, r->rank, 0),
                                .to = (float *)weft_window_pointer(w, FLOATS, next) + run,
                                .tells = weft_window_signal_pointer(w, next, 1),
                                .value = run,
                                .x = (float)(100 * r->rank) + (float)run};
        float got = 0;
        RANKS_CHECK(r, p.waits && p.to && p.tells);
        RANKS_OK(r, pass_kernel_queue(d, stream, &p));
        RANKS_OK(r, weft_window_notify(w, next, 0, WEFT_NOTIFY_SET, run));
        RANKS_OK(r, weft_window_wait(w, 1, WEFT_GE, run, WEFT_DEADLINE));
        RANKS_OK(r, fetch(d, stream, &got, (float *)weft_window_pointer(w, FLOATS, r->rank) + run, sizeof got));
        RANKS_CHECK(r, got == (float)(100 * before) + (float)run);
    }
    RANKS_OK(r, weft_window_barrier(w, WEFT_DEADLINE));
    weft_window_close(w);
    close_device(d, stream);
}

static void kernels_wait_for_signals_and_write_them(void **state)
{
    (void)state;
    ranks_run(RANKS, NULL, signal_by_kernels, NULL, NULL);
}

/* ---- the end ---- */

/* Only the simulation can tell. */
static bool nothing_left(struct device *d)
{
    struct sim_use use;
    if (strcmp(d->ops->name, "sim") != 0)
        return true;
    simulated_calls()->use(d, &use);
    return !use.allocations && !use.maps && !use.pins && !use.streams;
}

/* Ranks close windows and comms at different times; what each has made on the device is given back. */
static void leave_nothing(struct ranks_rank *r)
{
    struct device *d;
    float x = 1;
    RANKS_OK(r, device_open("test", WEFT_MEMORY_CUDA, 0, getenv("WEFT_MODULES"), &d));
    for (int k = 0; k < 3; k++) {
        weft_window *w;
        RANKS_OK(r, weft_window_open(r->comm, usual, BUFFERS, k, &w));
        RANKS_OK(r, weft_window_put_add(w, FLOATS, 0, 0, &x, 1));
        if (r->rank == k)
            usleep(20000); /* the others may be done before */
        weft_window_close(w);
    }
    weft_comm_close(r->comm);
    r->keep = true;
    ranks_meet(r);
    RANKS_CHECK(r, nothing_left(d));
    d->ops->close(d);
}

static void a_window_leaves_nothing(void **state)
{
    (void)state;
    ranks_run(RANKS, NULL, leave_nothing, NULL, NULL);
}

static void lose_a_rank(struct ranks_rank *r)
{
    struct device *d;
    weft_window *w;
    float x = 1;
    RANKS_OK(r, device_open("test", WEFT_MEMORY_CUDA, 0, getenv("WEFT_MODULES"), &d));
    RANKS_OK(r, weft_window_open(r->comm, usual, BUFFERS, 1, &w));
    RANKS_OK(r, weft_window_put(w, FLOATS, 2, 0, &x, 1));
    RANKS_OK(r, weft_window_barrier(w, WEFT_DEADLINE));
    if (r->rank == 2)
        kill(getpid(), SIGKILL);
    int err = weft_window_wait(w, 0, WEFT_GE, 1, WEFT_DEADLINE);
    RANKS_CHECK(r, err == WEFT_EPEER && strstr(weft_errmsg(), "rank 2"));
    weft_window_close(w);
    weft_comm_close(r->comm);
    r->keep = true;
    RANKS_CHECK(r, nothing_left(d));
    d->ops->close(d);
}

static void a_death_ends_waits_and_leaves_nothing(void **state)
{
    (void)state;
    const char *on = ranks_on;
    bool forked = ranks_forked;
    ranks_on = "shm";
    ranks_forked = true;
    ranks_run_but(RANKS, NULL, lose_a_rank, NULL, 2);
    ranks_on = on;
    ranks_forked = forked;
}

/* ---- refusals ---- */

static void refuse_all(struct ranks_rank *r)
{
    weft_window *w;
    weft_buffer b[2] = {usual[FLOATS], usual[INTS]};
    b[1].device = 7;
    int err = weft_window_open(r->comm, b, 2, 0, &w);
    RANKS_CHECK(r, err == WEFT_EUNSUPPORTED && strstr(weft_errmsg(), "give all of them the same"));
    b[0].device = 7;
    err = weft_window_open(r->comm, b, 2, 0, &w);
    RANKS_CHECK(r, err == WEFT_EINVAL && strstr(weft_errmsg(), "no device 7"));
    b[0].device = b[1].device = 0;
    b[1].memory = 9;
    err = weft_window_open(r->comm, b, 2, 0, &w);
    RANKS_CHECK(r, err == WEFT_EUNSUPPORTED && strstr(weft_errmsg(), "kind 9"));
    b[1].memory = r->rank == 1 ? WEFT_MEMORY_HOST : WEFT_MEMORY_CUDA;
    err = weft_window_open(r->comm, b, 2, 0, &w);
    RANKS_CHECK(r, err == WEFT_EMISMATCH && strstr(weft_errmsg(), "in host memory"));
    RANKS_OK(r, weft_window_open(r->comm, &usual[HOST], 1, 1, &w));
    RANKS_CHECK(r, !weft_window_signal_pointer(w, 0, 0) && strstr(weft_errmsg(), "no buffer on a device"));
    weft_window_close(w);
    RANKS_OK(r, weft_window_open(r->comm, usual, 1, 1, &w));
    RANKS_CHECK(r, !weft_window_signal_pointer(w, 0, 1) && !weft_window_signal_pointer(w, r->size, 0));
    weft_window_close(w);
}

static void what_cannot_be_done_is_refused(void **state)
{
    (void)state;
    ranks_run(2, NULL, refuse_all, NULL, NULL);
}

static void refuse_hosts(struct ranks_rank *r)
{
    weft_window *w;
    int err = weft_window_open(r->comm, usual, BUFFERS, 1, &w);
    RANKS_CHECK(r, err == WEFT_EUNSUPPORTED && strstr(weft_errmsg(), "several hosts"));
}

static void several_hosts_are_refused(void **state)
{
    (void)state;
    const char *on = ranks_on, *hosts = ranks_hosts;
    bool forked = ranks_forked;
    hosts_need_wire();
    ranks_on = hosts_scheme("auto");
    ranks_hosts = "ab";
    ranks_forked = true;
    ranks_run(2, NULL, refuse_hosts, NULL, NULL);
    ranks_on = on;
    ranks_hosts = hosts;
    ranks_forked = forked;
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEVICE", "sim", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(puts_and_adds_reach_devices),
        cmocka_unit_test(kernels_wait_for_signals_and_write_them),
        cmocka_unit_test(a_window_leaves_nothing),
        cmocka_unit_test(what_cannot_be_done_is_refused),
    };
    const struct CMUnitTest once[] = {
        cmocka_unit_test(a_death_ends_waits_and_leaves_nothing),
        cmocka_unit_test_setup_teardown(several_hosts_are_refused, hosts_setup, hosts_teardown),
    };
    return SUITE_MAIN(argc, argv, SUITE_AT(&conformance_one_host, tests), SUITE_ONCE(once));
}
