/* Ranks of a file: store that are killed between any two steps of theirs: behind each call that changes the folder, in
 * turn. Those that are left, or the next job if none is left, leave nothing behind. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "rendezvous/store.h"
#include "stores.h"
#include "support/suite.h"

enum { RANKS = 3, STEPS_MOST = 400 };

/* This process is killed when it has made so many steps; 0: it is not. */
static int steps_left;

static void step(void)
{
    if (steps_left && --steps_left == 0)
        kill(getpid(), SIGKILL);
}

int __real_openat(int folder, const char *name, int flags, ...);
int __wrap_openat(int folder, const char *name, int flags, ...);
int __real_renameat(int from, const char *name, int to, const char *as);
int __wrap_renameat(int from, const char *name, int to, const char *as);
int __real_unlinkat(int folder, const char *name, int flags);
int __wrap_unlinkat(int folder, const char *name, int flags);
int __real_mkdirat(int folder, const char *name, mode_t mode);
int __wrap_mkdirat(int folder, const char *name, mode_t mode);
int __real_rmdir(const char *path);
int __wrap_rmdir(const char *path);

int __wrap_openat(int folder, const char *name, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    int fd = __real_openat(folder, name, flags, flags & O_CREAT ? va_arg(args, mode_t) : 0);
    va_end(args);
    if (flags & O_CREAT)
        step();
    return fd;
}

int __wrap_renameat(int from, const char *name, int to, const char *as)
{
    int err = __real_renameat(from, name, to, as);
    step();
    return err;
}

int __wrap_unlinkat(int folder, const char *name, int flags)
{
    int err = __real_unlinkat(folder, name, flags);
    step();
    return err;
}

int __wrap_mkdirat(int folder, const char *name, mode_t mode)
{
    int err = __real_mkdirat(folder, name, mode);
    step();
    return err;
}

int __wrap_rmdir(const char *path)
{
    int err = __real_rmdir(path);
    step();
    return err;
}

struct plot {
    int victim, steps;           /* the rank that is killed, after how many steps */
    bool at_once;                /* it counts from the start on; otherwise, from when it gives up */
    _Atomic int told[RANKS];     /* the rank is told that another one has died */
    _Atomic int counting[RANKS]; /* the rank has begun to give up */
};

/* Is it in vain to wait? */
static int vain(void *arg, int rank)
{
    struct stores_rank *r = arg;
    struct plot *p = r->arg;
    (void)rank;
    if (!atomic_load(&p->told[r->rank]))
        return 0;
    if (r->rank == p->victim && !p->at_once && !atomic_exchange(&p->counting[r->rank], 1))
        steps_left = p->steps;
    return error_set(WEFT_EPEER, "a rank has died");
}

/* The store itself has seen the death: the rank learns of it when it is told. */
static int died(void *arg, int rank)
{
    struct stores_rank *r = arg;
    struct plot *p = r->arg;
    while (!atomic_load(&p->told[r->rank]))
        usleep(200);
    return vain(arg, rank);
}

/* Opens, waits until it is told, and closes. */
static void body(struct stores_rank *r)
{
    struct plot *p = r->arg;
    struct store_opts o = {
        .rank = r->rank, .size = r->size, .timeout_ns = LONG, .watch = {.vain = vain, .died = died, .arg = r}};
    if (r->rank == p->victim && p->at_once)
        steps_left = p->steps;
    r->code = store_open(r->url, &o, &r->s);
    STORES_CHECK(r, !r->code || r->code == WEFT_EPEER);
    if (r->code)
        return;
    store_set_watch(r->s, NULL);
    STORES_CHECK(r, !store_set(r->s, r->rank ? "a" : "b", "value", 5, LONG));
    while (r->rank != p->victim && !atomic_load(&p->told[r->rank]))
        usleep(200);
    store_close(r->s, LONG);
}

static pid_t begin(struct stores_rank *r)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        r->body(r);
        _exit(0);
    }
    return pid;
}

/* Has it come to its end by itself? */
static bool ends(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status);
}

static void print_names(const char *dir)
{
    char command[256];
    snprintf(command, sizeof command, "ls -R '%s'", dir);
    if (system(command))
        print_message("ls failed\n");
}

static void judge(struct stores_rank *ranks, const struct stores_place *at, const struct plot *p)
{
    for (int i = 0; i < RANKS; i++)
        if (ranks[i].broken)
            fail_msg("rank %d killed after %d steps: %s", p->victim, p->steps, ranks[i].text);
    if (stores_names(at->dir)) {
        print_names(at->dir);
        fail_msg("rank %d killed after %d steps: something is left", p->victim, p->steps);
    }
}

/* The others give up when the victim has ended, or they have opened and close then. */
static bool one_dies(int victim, int steps)
{
    struct stores_place at;
    struct plot *p = ranks_shared(sizeof *p);
    pid_t pids[RANKS];
    *p = (struct plot){.victim = victim, .steps = steps, .at_once = true};
    stores_begin(&at, STORES_FILE);
    struct stores_rank *ranks = stores_crew(&at, RANKS, body);
    for (int i = 0; i < RANKS; i++) {
        ranks[i].arg = p;
        pids[i] = begin(&ranks[i]);
    }
    bool lived = ends(pids[victim]);
    for (int i = 0; i < RANKS; i++)
        atomic_store(&p->told[i], 1);
    for (int i = 0; i < RANKS; i++)
        if (i != victim)
            assert_true(ends(pids[i]));
    judge(ranks, &at, p);
    stores_free(ranks, RANKS);
    stores_end(&at);
    munmap(p, sizeof *p);
    return lived;
}

static void others_leave_nothing_of_a_rank_that_dies_in_any_step(void **state)
{
    (void)state;
    for (int victim = 0; victim < RANKS; victim++) {
        int steps = 1;
        while (!one_dies(victim, steps))
            assert_true(++steps < STEPS_MOST);
        print_message("rank %d makes %d steps\n", victim, steps - 1);
        assert_true(steps > 3);
    }
}

/* Waits until a file is in the only room of the folder. */
static void await_in_room(const char *dir, const char *name)
{
    char command[256];
    snprintf(command, sizeof command, "test -e '%s'/weft.g-*/%s", dir, name);
    for (int64_t until = clock_now() + LONG; system(command);) {
        assert_true(clock_now() < until);
        usleep(1000);
    }
}

/* Rank 0 is killed while it waits for a rank that does not come. A second rank gives up for it, and is killed in the
 * middle of that. Then the last one gives up. */
static bool two_die(int steps)
{
    struct stores_place at;
    struct plot *p = ranks_shared(sizeof *p);
    pid_t pids[RANKS];
    *p = (struct plot){.victim = 1, .steps = steps};
    stores_begin(&at, STORES_FILE);
    struct stores_rank *ranks = stores_crew(&at, RANKS, body);
    for (int i = 0; i < RANKS; i++) {
        ranks[i].arg = p;
        ranks[i].size = RANKS + 1;
        pids[i] = begin(&ranks[i]);
    }
    await_in_room(at.dir, "here.1");
    await_in_room(at.dir, "here.2");
    kill(pids[0], SIGKILL);
    ends(pids[0]);
    atomic_store(&p->told[1], 1);
    bool lived = ends(pids[1]);
    atomic_store(&p->told[2], 1);
    assert_true(ends(pids[2]));
    judge(ranks, &at, p);
    stores_free(ranks, RANKS);
    stores_end(&at);
    munmap(p, sizeof *p);
    return lived;
}

static void last_rank_leaves_nothing_of_one_that_dies_while_it_gives_up(void **state)
{
    (void)state;
    int steps = 1;
    while (!two_die(steps))
        assert_true(++steps < STEPS_MOST);
    assert_true(steps > 1);
}

/* The last rank is killed while it removes what is there: the next job finishes that. */
static bool last_dies(int steps)
{
    struct stores_place at;
    struct plot *p = ranks_shared(sizeof *p);
    *p = (struct plot){.victim = 0, .steps = steps, .at_once = true};
    stores_begin(&at, STORES_FILE);
    struct stores_rank *r = stores_crew(&at, 1, body);
    r->arg = p;
    bool lived = ends(begin(r));
    *p = (struct plot){.victim = -1};
    atomic_store(&p->told[0], 1);
    r->broken = false;
    assert_true(ends(begin(r)));
    if (r->broken)
        fail_msg("after %d steps: %s", steps, r->text);
    if (stores_names(at.dir)) {
        print_names(at.dir);
        fail_msg("killed after %d steps: something is left", steps);
    }
    stores_free(r, 1);
    stores_end(&at);
    munmap(p, sizeof *p);
    return lived;
}

static void next_job_removes_what_a_rank_has_left_that_died_in_any_step(void **state)
{
    (void)state;
    int steps = 1;
    while (!last_dies(steps))
        assert_true(++steps < STEPS_MOST);
    assert_true(steps > 8);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(others_leave_nothing_of_a_rank_that_dies_in_any_step),
        cmocka_unit_test(last_rank_leaves_nothing_of_one_that_dies_while_it_gives_up),
        cmocka_unit_test(next_job_removes_what_a_rank_has_left_that_died_in_any_step),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
