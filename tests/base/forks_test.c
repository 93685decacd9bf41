/* Children that ranks fork: what they free and close is their parents' and stays as it is; they keep no name and no
 * connection of theirs alive. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "rendezvous/store.h"
#include "support/clock.h"
#include "support/hosts_meet.h"
#include "support/processes.h"
#include "support/ranks.h"
#include "support/soon.h"
#include "support/suite.h"
#include "weft/halo.h"
#include "weft/store.h"

#define HANGS 30 /* seconds */

/* ---- what a child frees ---- */

struct things {
    struct pair p;
    weft_window *w;
    weft_exchange *x;
    weft_halo *h;
    void *memory;
};

static int free_all(weft_comm *c, struct things *t)
{
    weft_halo_close(t->h);
    weft_exchange_close(t->x);
    weft_window_close(t->w);
    weft_comm_free(c, t->memory);
    weft_exec_close(t->p.x);
    weft_comm_close(c);
    return 0;
}

static int use_all(weft_comm *c, struct things *t)
{
    weft_message *left, *right;
    int err = weft_exec_run(t->p.x);
    if (!err)
        err = weft_window_barrier(t->w, WEFT_DEADLINE);
    if (!err)
        err = weft_exchange_finish(t->x, true);
    if (!err)
        err = weft_exchange_wait(t->x, WEFT_FOREVER);
    if (!err && !(err = weft_halo_exchange(t->h, NULL, NULL, &left, &right))) {
        weft_message_free(left);
        weft_message_free(right);
    }
    memset(t->memory, 1, 1000);
    return err ? err : weft_comm_barrier(c, WEFT_DEADLINE);
}

static void child_frees(struct ranks_rank *r)
{
    struct things t;
    int other = 1 - r->rank;
    const weft_exchange_opts vote = {.size = sizeof vote, .vote = true};
    RANKS_OK(r, pair_bind(&t.p, "f32[4000/x] @x2", "f32[4000] @x2", false, r->comm));
    RANKS_OK(r, weft_window_open(r->comm, NULL, 0, 1, &t.w));
    RANKS_OK(r, weft_exchange_open(r->comm, &other, 1, &other, 1, &vote, &t.x));
    RANKS_OK(r, weft_halo_open(r->comm, true, NULL, &t.h));
    RANKS_OK(r, weft_comm_alloc(r->comm, 1000, WEFT_MEMORY_HOST, 0, &t.memory));
    for (int i = 0; i < 3; i++) {
        RANKS_OK(r, use_all(r->comm, &t));
        int status;
        pid_t pid = fork();
        if (pid == 0) {
            alarm(HANGS);
            _exit(free_all(r->comm, &t));
        }
        RANKS_CHECK(r, waitpid(pid, &status, 0) == pid && !status);
    }
    RANKS_OK(r, use_all(r->comm, &t));
    weft_halo_close(t.h);
    weft_exchange_close(t.x);
    weft_window_close(t.w);
    weft_comm_free(r->comm, t.memory);
    pair_release(&t.p);
}

static void child_that_closes_leaves_the_parents_comm_alone(void **state)
{
    (void)state;
    ranks_on = "shm";
    ranks_forked = true;
    for (int progress = WEFT_PROGRESS_CALLER; progress <= WEFT_PROGRESS_THREAD; progress++)
        ranks_run(2, &(weft_comm_opts){.progress = (enum weft_progress)progress}, child_frees, NULL, NULL);
    ranks_on = "tcp";
    ranks_run(2, NULL, child_frees, NULL, NULL);
}

/* A child that stops its parent's store does nothing to it, nor to files of its own, which may have the numbers of the
 * store's sockets. */
static int stop_in_child(void *store)
{
    int files[8], lost = 0;
    alarm(HANGS);
    for (int i = 0; i < 8; i++)
        files[i] = open("/dev/null", O_RDONLY);
    weft_store_close(store);
    for (int i = 0; i < 8; i++)
        lost += fcntl(files[i], F_GETFD) < 0;
    return lost;
}

static void child_that_stops_a_store_leaves_the_parents_alone(void **state)
{
    (void)state;
    weft_store *s;
    struct store *mine;
    int err = weft_store_open("tcp::0", &s);
    if (err == WEFT_EUNSUPPORTED)
        skip();
    assert_int_equal(err, 0);
    assert_int_equal(process_do(stop_in_child, s), 0);
    struct store_opts o = {.size = 1, .token = weft_store_token(s), .timeout_ns = HANGS * SECOND};
    assert_int_equal(store_open(weft_store_at(s), &o, &mine), 0);
    store_close(mine, 0);
    weft_store_close(s);
}

/* ---- what a child keeps ---- */

struct survivor {
    char url[64];
    _Atomic pid_t child;
};

/* Leaves a child behind that does nothing. */
static void leave_a_child(struct survivor *s)
{
    atomic_store(&s->child, 0);
    if (fork() == 0) {
        alarm(2 * HANGS); /* should the test end before */
        atomic_store(&s->child, getpid());
        for (;;)
            pause();
    }
    while (!atomic_load(&s->child)) /* has begun */
        nanosleep(&(struct timespec){.tv_nsec = MS}, NULL);
    raise(SIGKILL);
}

static int open_and_die(void *arg)
{
    struct survivor *s = arg;
    weft_comm *c;
    if (process_open(s->url, 0, 1, 0, &c))
        return 1;
    leave_a_child(s);
    return 1;
}

static void name_is_free_when_its_owner_died_and_a_child_lives(void **state)
{
    (void)state;
    struct survivor *s = ranks_shared(sizeof *s);
    weft_comm *c = NULL;
    snprintf(s->url, sizeof s->url, "shm:child-%ld", (long)getpid());
    assert_int_equal(process_do(open_and_die, s), 1000 + SIGKILL);
    int err = process_open(s->url, 0, 1, 0, &c);
    char text[256];
    snprintf(text, sizeof text, "%s", weft_errmsg());
    weft_comm_close(c);
    kill(atomic_load(&s->child), SIGKILL);
    munmap(s, sizeof *s);
    if (err)
        fail_msg("%s", text);
}

/* Rank 0 waits for what rank 1 never sends. */
static void miss_the_parent(struct ranks_rank *r)
{
    struct pair p;
    RANKS_OK(r, pair_bind(&p, "f32[4000] @x1=1", "f32[4000] @x1=0", false, r->comm));
    RANKS_OK(r, weft_exec_run(p.x));
    RANKS_OK(r, weft_comm_barrier(r->comm, WEFT_DEADLINE));
    if (r->rank == 1)
        leave_a_child(r->arg);
    int64_t begin = clock_now();
    RANKS_OK(r, weft_exec_start(p.x));
    RANKS_CHECK(r, weft_exec_wait(p.x, HANGS * SECOND) == WEFT_EPEER);
    RANKS_CHECK(r, strstr(weft_errmsg(), "rank 1") && clock_now() - begin < SOON_LATE_NS);
    pair_release(&p);
}

static void child_does_not_hide_the_death_of_its_parent(void **state)
{
    (void)state;
    struct survivor *s = ranks_shared(sizeof *s);
    static const char *const on[] = {"shm", "tcp"};
    ranks_forked = true;
    for (int i = 0; i < 2; i++) {
        ranks_on = on[i];
        ranks_run_but(2, NULL, miss_the_parent, s, 1);
        kill(atomic_load(&s->child), SIGKILL);
    }
    munmap(s, sizeof *s);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(child_that_closes_leaves_the_parents_comm_alone),
        cmocka_unit_test(child_that_stops_a_store_leaves_the_parents_alone),
        cmocka_unit_test(name_is_free_when_its_owner_died_and_a_child_lives),
        cmocka_unit_test(child_does_not_hide_the_death_of_its_parent),
    };
    return SUITE_MAIN(argc, argv, SUITE_FIXTURE(tests, hosts_setup, hosts_teardown));
}
