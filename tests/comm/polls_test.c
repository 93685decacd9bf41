/* A rank that only ever polls, or waits for short times, learns of a death as one that waits does. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "support/clock.h"
#include "support/processes.h"
#include "support/ranks.h"
#include "support/soon.h"
#include "support/suite.h"

struct ends {
    struct pair p;
    weft_exchange *x;
    weft_window *w;
};

/* Each makes one call, which does not wait for long. */
static int test_exec(weft_comm *c, struct ends *e)
{
    bool done;
    (void)c;
    return weft_exec_test(e->p.x, &done);
}
static int poll_exec(weft_comm *c, struct ends *e)
{
    (void)c;
    return weft_exec_wait(e->p.x, 0);
}
static int wait_exec(weft_comm *c, struct ends *e)
{
    (void)c;
    return weft_exec_wait(e->p.x, MS);
}
static int test_exchange(weft_comm *c, struct ends *e)
{
    bool complete;
    (void)c;
    return weft_exchange_test(e->x, &complete);
}
static int poll_exchange(weft_comm *c, struct ends *e)
{
    (void)c;
    return weft_exchange_wait(e->x, 0);
}
static int wait_exchange(weft_comm *c, struct ends *e)
{
    (void)c;
    return weft_exchange_wait(e->x, MS);
}
static int poll_barrier(weft_comm *c, struct ends *e)
{
    (void)e;
    return weft_comm_barrier(c, 0);
}
static int wait_barrier(weft_comm *c, struct ends *e)
{
    (void)e;
    return weft_comm_barrier(c, MS);
}
static int poll_signal(weft_comm *c, struct ends *e)
{
    (void)c;
    return weft_window_wait(e->w, 0, WEFT_EQ, 1, 0);
}
static int wait_signal(weft_comm *c, struct ends *e)
{
    (void)c;
    return weft_window_wait(e->w, 0, WEFT_EQ, 1, MS);
}
static int poll_window(weft_comm *c, struct ends *e)
{
    (void)c;
    return weft_window_barrier(e->w, 0);
}
static int wait_window(weft_comm *c, struct ends *e)
{
    (void)c;
    return weft_window_barrier_with(e->w, (int[]){1}, 1, MS);
}

static const struct {
    const char *name;
    int (*call)(weft_comm *c, struct ends *e);
} calls[] = {
    {"test", test_exec},
    {"wait 0", poll_exec},
    {"wait 1 ms", wait_exec},
    {"exchange test", test_exchange},
    {"exchange wait 0", poll_exchange},
    {"exchange wait 1 ms", wait_exchange},
    {"barrier 0", poll_barrier},
    {"barrier 1 ms", wait_barrier},
    {"window wait 0", poll_signal},
    {"window wait 1 ms", wait_signal},
    {"window barrier 0", poll_window},
    {"window barrier 1 ms", wait_window},
};
enum { CALLS = sizeof calls / sizeof *calls };

static void poll_until_told(struct ranks_rank *r)
{
    struct ends e;
    int which = *(const int *)r->arg, other = 1 - r->rank, err = 0;
    RANKS_OK(r, pair_bind(&e.p, "f32[20000] @x1=1", "f32[20000] @x1=0", false, r->comm));
    RANKS_OK(r, weft_exchange_open(r->comm, &other, 1, &other, 1, NULL, &e.x));
    RANKS_OK(r, weft_window_open(r->comm, NULL, 0, 1, &e.w));
    if (r->rank == 1)
        raise(SIGKILL);
    err = weft_exec_start(e.p.x);
    if (!err) /* a thread may know by now */
        err = weft_exchange_finish(e.x, false);
    int64_t begin = clock_now();
    while ((!err || err == WEFT_ETIMEOUT) && clock_now() - begin < SOON_LATE_NS)
        err = calls[which].call(r->comm, &e);
    RANKS_CHECK(r, err == WEFT_EPEER);
    RANKS_CHECK(r, strstr(weft_errmsg(), "rank 1 has died") != NULL);
    weft_exchange_close(e.x);
    weft_window_close(e.w);
    pair_release(&e.p);
}

static void rank_that_only_polls_learns_of_a_death(void **state)
{
    (void)state;
    ranks_on = "shm";
    ranks_forked = true;
    for (int progress = WEFT_PROGRESS_CALLER; progress <= WEFT_PROGRESS_THREAD; progress++)
        for (int which = 0; which < CALLS; which++) {
            print_message("%s%s\n", calls[which].name, progress ? ", with a thread" : "");
            ranks_run_but(2, &(weft_comm_opts){.progress = (enum weft_progress)progress}, poll_until_told, &which, 1);
        }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rank_that_only_polls_learns_of_a_death)};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
