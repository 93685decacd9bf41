/* Whether a process is alive is asked of the process, not of its first thread or of whoever has its number now; and who
 * was stopped itself does not blame others for what they did not do meanwhile. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/sched.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/clock.h"
#include "support/processes.h"
#include "support/ranks.h"
#include "support/suite.h"

#define HANGS 30 /* seconds after which a rank that has not ended is ended by its alarm */

struct job {
    char url[64];
    atomic_int joined, died, replaced, over;
    struct {
        int code;
        char text[512];
    } end[2];
};

static struct job *job_new(const char *name)
{
    struct job *j = ranks_shared(sizeof *j);
    snprintf(j->url, sizeof j->url, "shm:%s-%ld", name, (long)getpid());
    return j;
}

static void until(atomic_int *flag)
{
    while (!atomic_load(flag))
        nanosleep(&(struct timespec){.tv_nsec = MS}, NULL);
}

static void note(struct job *j, int rank, int err)
{
    j->end[rank].code = err;
    snprintf(j->end[rank].text, sizeof j->end[rank].text, "%s", err ? weft_errmsg() : "");
}

/* ---- a process whose first thread has ended ---- */

static bool first_thread_is_gone(void)
{
    char state = 0, text[512];
    FILE *f = fopen("/proc/self/stat", "r");
    if (f && fgets(text, sizeof text, f))
        state = strrchr(text, ')')[2];
    if (f)
        fclose(f);
    return state == 'Z';
}

/* Rank 1 comes late, so that rank 0 looks where it is. */
static void *second_thread(void *arg)
{
    struct job *j = arg;
    weft_comm *c;
    while (!first_thread_is_gone())
        nanosleep(&(struct timespec){.tv_nsec = MS}, NULL);
    int err = process_open(j->url, 1, 2, 0, &c);
    if (!err) {
        nanosleep(&(struct timespec){.tv_nsec = 300 * MS}, NULL);
        err = weft_comm_barrier(c, WEFT_DEADLINE);
        weft_comm_close(c);
    }
    note(j, 1, err);
    _exit(0);
}

static int open_and_meet(void *arg)
{
    struct job *j = arg;
    weft_comm *c;
    int err = process_open(j->url, 0, 2, 0, &c);
    if (!err) {
        err = weft_comm_barrier(c, WEFT_DEADLINE);
        weft_comm_close(c);
    }
    note(j, 0, err);
    return 0;
}

static void process_without_its_first_thread_counts_as_alive(void **state)
{
    (void)state;
    struct job *j = job_new("first");
    pthread_t t;
    pid_t pid = process_fork(HANGS);
    if (pid == 0) {
        if (pthread_create(&t, NULL, second_thread, j))
            _exit(1);
        syscall(SYS_exit, 0); /* this thread alone */
    }
    assert_int_equal(process_do(open_and_meet, j), 0);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    for (int r = 0; r < 2; r++)
        if (j->end[r].code)
            fail_msg("rank %d: %s", r, j->end[r].text);
    munmap(j, sizeof *j);
}

/* ---- a number that is used again ---- */

/* A process with that number, if this one may choose; else -1. */
static pid_t process_with(pid_t number)
{
    struct clone_args a = {.exit_signal = SIGCHLD, .set_tid = (uintptr_t)&number, .set_tid_size = 1};
    return (pid_t)syscall(SYS_clone3, &a, sizeof a);
}

static int open_and_die(struct job *j)
{
    weft_comm *c;
    if (process_open(j->url, 1, 2, 0, &c))
        return 1;
    raise(SIGKILL);
    return 1;
}

/* Looks for rank 1 only when another process has its number. */
static int open_and_look(struct job *j)
{
    weft_comm *c;
    int ranks[2];
    size_t n = 0;
    int err = process_open(j->url, 0, 2, HANGS * SECOND / 3, &c);
    atomic_store(&j->joined, 1);
    until(&j->replaced);
    if (!err)
        err = weft_comm_barrier(c, WEFT_DEADLINE);
    note(j, 0, err);
    int64_t begin = clock_now();
    if (err && !weft_comm_survivors(c, ranks, 2, &n)) /* asks again and again */
        j->end[1].code = n == 1 && ranks[0] == 0 && clock_now() - begin < HANGS * SECOND / 6;
    weft_comm_close(c);
    return 0;
}

static void reused_process_id_does_not_hide_a_death(void **state)
{
    (void)state;
    struct job *j = job_new("number");
    pid_t pids[2];
    int status;
    for (int r = 0; r < 2; r++) {
        pids[r] = process_fork(HANGS);
        if (pids[r] == 0)
            _exit(r ? open_and_die(j) : open_and_look(j));
    }
    assert_int_equal(waitpid(pids[1], &status, 0), pids[1]);
    until(&j->joined);
    nanosleep(&(struct timespec){.tv_nsec = 50 * MS}, NULL); /* some ticks of the kernel's clock */
    pid_t again = process_with(pids[1]);
    if (again == 0) {
        until(&j->over);
        _exit(0);
    }
    bool may = again == pids[1];
    atomic_store(&j->replaced, 1);
    assert_int_equal(waitpid(pids[0], &status, 0), pids[0]);
    atomic_store(&j->over, 1);
    if (again > 0)
        assert_int_equal(waitpid(again, &status, 0), again);
    assert_int_equal(j->end[0].code, WEFT_EPEER);
    assert_non_null(strstr(j->end[0].text, "rank 1 has died"));
    assert_true(j->end[1].code);
    munmap(j, sizeof *j);
    if (!may) {
        print_message("skip: the number of a process cannot be chosen here\n");
        skip();
    }
}

/* ---- a job that is stopped and goes on ---- */

enum { STOPPED = 3 };
#define DEADLINE (2 * SECOND)

struct suspended {
    char url[64];
    bool votes; /* an exchange, else an exec */
    atomic_int begun, go_on;
    struct {
        int code;
        char text[512];
    } end[STOPPED];
};

/* The last rank has not begun, so that the others wait for it and, in the vote or round the ring, for each other. */
static int take_part(struct suspended *s, int rank)
{
    weft_comm *c;
    weft_exchange *x = NULL;
    weft_plan *plan = NULL;
    weft_exec *run = NULL;
    char mine[60000] = {0}, all[STOPPED * sizeof mine] = {0};
    const weft_collective ring = {
        .size = sizeof ring, .kind = "allgather", .dtype = WEFT_U8, .count = sizeof mine, .n = STOPPED};
    const weft_lower_opts lower = {.size = sizeof lower, .algorithm = "ring"};
    const weft_exchange_opts vote = {.size = sizeof vote, .vote = true};
    const weft_view src = WEFT_VIEW(mine, sizeof mine), dst = WEFT_VIEW(all, sizeof all);
    int err = process_open(s->url, rank, STOPPED, DEADLINE, &c);
    if (err)
        return err;
    err = s->votes ? weft_exchange_open(c, NULL, 0, NULL, 0, &vote, &x)
                   : weft_lower_collective(&ring, rank, &lower, &plan);
    if (!err && plan)
        err = weft_bind(plan, c, &src, &dst, NULL, &run);
    if (rank == STOPPED - 1)
        until(&s->go_on);
    if (!err)
        err = x ? weft_exchange_finish(x, true) : weft_exec_start(run);
    if (!err && rank < STOPPED - 1) { /* has looked at the others when it is stopped */
        err = (x ? weft_exchange_wait(x, 100 * MS) : weft_exec_wait(run, 100 * MS)) == WEFT_ETIMEOUT ? 0 : 1;
        atomic_fetch_add(&s->begun, 1);
    }
    if (!err)
        err = x ? weft_exchange_wait(x, WEFT_FOREVER) : weft_exec_wait(run, WEFT_FOREVER);
    s->end[rank].code = err;
    snprintf(s->end[rank].text, sizeof s->end[rank].text, "%s", err ? weft_errmsg() : "");
    weft_exchange_close(x);
    weft_exec_close(run);
    weft_plan_free(plan);
    weft_comm_close(c);
    return 0;
}

static void suspend(bool votes, int first)
{
    struct suspended *s = ranks_shared(sizeof *s);
    pid_t pids[STOPPED];
    int status;
    s->votes = votes;
    snprintf(s->url, sizeof s->url, "shm:stopped-%ld-%d-%d", (long)getpid(), votes, first);
    for (int r = 0; r < STOPPED; r++) {
        pids[r] = process_fork(HANGS);
        if (pids[r] == 0)
            _exit(take_part(s, r));
    }
    while (atomic_load(&s->begun) < STOPPED - 1)
        nanosleep(&(struct timespec){.tv_nsec = MS}, NULL);
    for (int r = 0; r < STOPPED; r++)
        kill(pids[r], SIGSTOP);
    nanosleep(&(struct timespec){.tv_sec = (DEADLINE + SECOND) / SECOND}, NULL);
    kill(pids[first], SIGCONT);
    nanosleep(&(struct timespec){.tv_nsec = 100 * MS}, NULL);
    for (int r = 0; r < STOPPED; r++)
        kill(pids[r], SIGCONT);
    atomic_store(&s->go_on, 1);
    for (int r = 0; r < STOPPED; r++) {
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        if (status || s->end[r].code)
            fail_msg("rank %d, rank %d first: status %#x, '%s'", r, first, (unsigned)status, s->end[r].text);
    }
    munmap(s, sizeof *s);
}

static void job_that_was_stopped_as_a_whole_goes_on(void **state)
{
    (void)state;
    suspend(true, 1);
    suspend(false, 1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(process_without_its_first_thread_counts_as_alive),
        cmocka_unit_test(reused_process_id_does_not_hide_a_death),
        cmocka_unit_test(job_that_was_stopped_as_a_whole_goes_on),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
