/* A timeout means the same in every call that takes one: 0 polls once, WEFT_DEADLINE waits as long as the comm's
 * deadline, WEFT_FOREVER longer than that, and other negative values are refused. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "support/clock.h"
#include "support/conformance.h"
#include "support/processes.h"
#include "support/suite.h"

#define DEADLINE_NS (100 * MS)

struct ends {
    weft_comm *c;
    struct pair p;
    weft_exchange *x;
    weft_window *w;
    int other;
};

static int wait_exec(struct ends *e, int64_t timeout_ns)
{
    return weft_exec_wait(e->p.x, timeout_ns);
}

static int wait_exchange(struct ends *e, int64_t timeout_ns)
{
    return weft_exchange_wait(e->x, timeout_ns);
}

static int wait_signal(struct ends *e, int64_t timeout_ns)
{
    return weft_window_wait(e->w, 0, WEFT_GE, 1, timeout_ns);
}

static int enter_window(struct ends *e, int64_t timeout_ns)
{
    return weft_window_barrier(e->w, timeout_ns);
}

static int enter_with(struct ends *e, int64_t timeout_ns)
{
    return weft_window_barrier_with(e->w, &e->other, 1, timeout_ns);
}

static int enter_comm(struct ends *e, int64_t timeout_ns)
{
    return weft_comm_barrier(e->c, timeout_ns);
}

static int (*const calls[])(struct ends *e, int64_t timeout_ns) = {wait_exec,    wait_exchange, wait_signal,
                                                                   enter_window, enter_with,    enter_comm};
enum { CALLS = sizeof calls / sizeof *calls };

static void run_timeouts(struct ranks_rank *r)
{
    struct ends e = {.c = r->comm, .other = 1 - r->rank};
    RANKS_OK(r, pair_bind(&e.p, "f32[20000] @x1=1", "f32[20000] @x1=0", false, r->comm));
    RANKS_OK(r, weft_exchange_open(r->comm, &e.other, 1, &e.other, 1, NULL, &e.x));
    RANKS_OK(r, weft_window_open(r->comm, NULL, 0, 1, &e.w));
    if (r->rank == 0) { /* the other does nothing yet */
        RANKS_OK(r, weft_exec_start(e.p.x));
        RANKS_OK(r, weft_exchange_finish(e.x, false));
        for (int i = 0; i < CALLS; i++) {
            RANKS_CHECK(r, calls[i](&e, -3) == WEFT_EINVAL && strstr(weft_errmsg(), "a timeout of -3 ns"));
            RANKS_CHECK(r, strstr(weft_errmsg(), "WEFT_FOREVER") && strstr(weft_errmsg(), "WEFT_DEADLINE"));
            RANKS_CHECK(r, calls[i](&e, INT64_MIN) == WEFT_EINVAL);
            RANKS_CHECK(r, calls[i](&e, 0) == WEFT_ETIMEOUT);
            int64_t begin = clock_now();
            RANKS_CHECK(r, calls[i](&e, WEFT_DEADLINE) == WEFT_ETIMEOUT);
            RANKS_CHECK(r, clock_now() - begin >= DEADLINE_NS);
        }
    }
    ranks_meet(r);
    int64_t begin = clock_now();
    if (r->rank == 1) {
        usleep(3 * DEADLINE_NS / 1000);
        RANKS_OK(r, weft_exec_start(e.p.x));
        RANKS_OK(r, weft_exchange_finish(e.x, false));
        RANKS_OK(r, weft_window_notify(e.w, 0, 0, WEFT_NOTIFY_SET, 1));
        RANKS_OK(r, weft_window_notify(e.w, 1, 0, WEFT_NOTIFY_SET, 1));
    }
    for (int i = 0; i < CALLS; i++)
        RANKS_OK(r, calls[i](&e, WEFT_FOREVER));
    RANKS_CHECK(r, clock_now() - begin >= 2 * DEADLINE_NS);
    weft_window_close(e.w);
    weft_exchange_close(e.x);
    pair_release(&e.p);
}

static void timeouts_mean_the_same_in_all_calls(void **state)
{
    (void)state;
    for (int progress = WEFT_PROGRESS_CALLER; progress <= WEFT_PROGRESS_THREAD; progress++)
        ranks_run(2, &(weft_comm_opts){.deadline_ns = DEADLINE_NS, .progress = (enum weft_progress)progress},
                  run_timeouts, NULL, NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(timeouts_mean_the_same_in_all_calls)};
    return SUITE_MAIN(argc, argv, SUITE_AT(&conformance_one_host, tests));
}
