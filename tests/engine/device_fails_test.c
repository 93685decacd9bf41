/* A simulated device that fails in the middle of a run, ordered by the host or by a stream of the caller: all ranks get
 * the device's own text within 2 s, also those whose device works, and those that wait in a stream. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "device_side.h"
#include "support/clock.h"
#include "support/conformance.h"
#include "support/ranks.h"
#include "support/simulated.h"
#include "support/suite.h"

enum { RANKS = 4, RUNS = 10, FAILS = 4 /* the launch that fails */ };

/* Does the text of the last error say what has happened? Where ranks are processes, only rank 0 has a device that
 * failed: it launches for all. */
static bool told(const struct ranks_rank *r, int err)
{
    char rank[16];
    snprintf(rank, sizeof rank, "rank %d", ranks_forked ? 0 : r->rank);
    return err == WEFT_ETRANSPORT && strstr(weft_errmsg(), "simulated device 0 has failed: launch 4 failed") &&
           (!ranks_forked || strstr(weft_errmsg(), rank));
}

static void fail_in_runs(struct ranks_rank *r)
{
    struct side s;
    int err = 0, runs = 0;
    RANKS_OK(r, open_side(&s, r->comm, ROWS, SHIFT, ""));
    int64_t begin = clock_now();
    for (; runs < RUNS && !err; runs++)
        err = weft_exec_run(s.exec);
    RANKS_CHECK(r, clock_now() - begin < 2 * SECOND);
    RANKS_CHECK(r, runs == FAILS);
    RANKS_CHECK(r, told(r, err));
    RANKS_CHECK(r, told(r, weft_exec_start(s.exec))); /* and again */
    close_side(&s, r->comm);
}

/* All runs are queued before the first one is done, and the caller waits in weft, or in the stream. */
static void fail_in_stream(struct ranks_rank *r)
{
    struct side s;
    bool in_weft = *(const bool *)r->arg;
    RANKS_OK(r, open_side(&s, r->comm, ROWS, SHIFT, ""));
    int64_t begin = clock_now();
    int err = 0;
    for (int run = 0; run < RUNS && !err; run++)
        err = weft_exec_start_on(s.exec, s.stream);
    if (in_weft && !err)
        err = weft_exec_wait(s.exec, WEFT_DEADLINE);
    else if (!err) {
        int failed = sync_side(&s);
        RANKS_CHECK(r, (failed == WEFT_ETRANSPORT) == (!ranks_forked || r->rank == 0));
        while (!err && clock_now() - begin < 2 * SECOND) /* a rank may be ahead of the one that finds it out */
            err = weft_exec_start_on(s.exec, s.stream);
    }
    RANKS_CHECK(r, clock_now() - begin < 2 * SECOND);
    RANKS_CHECK(r, told(r, err));
    close_side(&s, r->comm);
}

static void set_failure(bool on)
{
    simulated_set("WEFT_SIM_FAIL", on ? "4" : NULL);
}

static void a_device_that_fails_ends_a_run(void **state)
{
    (void)state;
    set_failure(true);
    ranks_run(RANKS, NULL, fail_in_runs, NULL, NULL);
    set_failure(false);
}

static void a_device_that_fails_ends_a_wait_for_runs_on_a_stream(void **state)
{
    (void)state;
    bool in_weft = true;
    set_failure(true);
    ranks_run(RANKS, NULL, fail_in_stream, &in_weft, NULL);
    set_failure(false);
}

static void a_device_that_fails_releases_streams(void **state)
{
    (void)state;
    bool in_weft = false;
    set_failure(true);
    ranks_run(RANKS, NULL, fail_in_stream, &in_weft, NULL);
    set_failure(false);
}

/* ---- carried ---- */

/* Each rank packs and unpacks three messages with kernels, so that the device fails when some of them have begun and
 * others are there to be unpacked. */
static void fail_while_carried(struct ranks_rank *r)
{
    struct side s;
    char text[64];
    int err = 0, fails = *(const int *)r->arg;
    RANKS_OK(r, open_side(&s, r->comm, "f32[32/x,32] @x4", "f32[32,32/x] @x4", "-launcher"));
    for (int run = 0; run < RUNS && !err; run++)
        err = weft_exec_run(s.exec);
    snprintf(text, sizeof text, "simulated device 0 has failed: launch %d failed", fails);
    RANKS_CHECK(r, err == WEFT_ETRANSPORT && strstr(weft_errmsg(), text));
    close_side(&s, r->comm);
}

static void a_device_that_fails_ends_runs_that_it_carries(void **state)
{
    (void)state;
    for (int fails = 1; fails <= 30; fails += 2) {
        char number[16];
        snprintf(number, sizeof number, "%d", fails);
        simulated_set("WEFT_SIM_FAIL", number);
        ranks_run(RANKS, NULL, fail_while_carried, &fails, NULL);
    }
    set_failure(false);
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEVICE", "sim", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_that_fails_ends_a_run),
        cmocka_unit_test(a_device_that_fails_ends_a_wait_for_runs_on_a_stream),
        cmocka_unit_test(a_device_that_fails_releases_streams),
        cmocka_unit_test(a_device_that_fails_ends_runs_that_it_carries),
    };
    return SUITE_MAIN(argc, argv, SUITE_AT(&conformance_one_host, tests));
}
