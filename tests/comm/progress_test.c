/* Progress by a thread: what was started ends without a call of its owner, callbacks start more, errors reach the
 * owner, an idle thread sleeps, and the owner may call whatever it likes meanwhile. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "comm/lock.h"
#include "comm/task.h"
#include "engine/exec.h"
#include "support/conformance.h"
#include "support/exec_job.h"
#include "support/random.h"
#include "support/ranks.h"
#include "support/share.h"
#include "support/suite.h"

static int progress_threads(void)
{
    int n = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *d; tasks && (d = readdir(tasks)) != NULL;) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", d->d_name);
        FILE *f = fopen(path, "r");
        n += f && fgets(name, sizeof name, f) && !strcmp(name, "weft-progress\n");
        if (f)
            fclose(f);
    }
    if (tasks)
        closedir(tasks);
    return n;
}

/* One that closed its comm in a callback ends by itself some time after that. */
static bool become_threads(int n)
{
    for (int i = 0; i < 20000 && progress_threads() != n; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return progress_threads() == n;
}

static int64_t cpu_us(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (int64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000 + u.ru_utime.tv_usec + u.ru_stime.tv_usec;
}

static const weft_comm_opts by_thread = {.progress = WEFT_PROGRESS_THREAD};

/* A semaphore that callbacks post; a minute without it is a hang. */
static bool posted(sem_t *s)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 60;
    int err;
    do
        err = sem_timedwait(s, &until);
    while (err && errno == EINTR);
    return !err;
}

/* ---- without a call ---- */

struct chain {
    struct ranks_rank *r;
    struct job *j;
    sem_t end;
    int left, err, waited; /* waited: answers of a wait inside the callback */
};

static void next_in_chain(void *arg, int err)
{
    struct chain *c = arg;
    c->err = err;
    c->waited = weft_exec_wait(c->j->exec, 0);
    if (!err && --c->left > 0)
        c->err = weft_exec_start(c->j->exec);
    if (c->err || c->left == 0)
        sem_post(&c->end);
}

static const struct move kinds[] = {
    {.src = "f32[20/x,4] @x4", .dst = "f32[20,4/x] @x4", .bucket = 1, .tensors = 7},
    {.src = "f32[77] @x4 +sum(x)", .dst = "f32[77] @x4", .bucket = 100},
    {.src = "i32[25] @x1=2", .dst = "i32[25] @x4", .bucket = 200, .tensors = 9},
    {.src = "f32[300/x,300] @x4", .dst = "f32[300,300/x] @x4"},
    {.src = "f64[9000/x] @x4", .dst = "f64[9000] @x4", .bucket = 5000},
    {.src = "i32[1] @x1=3", .dst = "i32[1] @x1=0"},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* All runs of the chain after the first are started by callbacks, and nobody calls but they. */
static void run_alone(struct ranks_rank *r)
{
    for (int k = 0; k < KINDS; k++) {
        struct job j;
        RANKS_OK(r, job_make(&j, &kinds[k], r));
        job_seed(&j, r->rank, k);
        struct chain c = {.r = r, .j = &j, .left = 50};
        sem_init(&c.end, 0, 0);
        RANKS_OK(r, weft_exec_on_done(j.exec, next_in_chain, &c));
        RANKS_OK(r, weft_exec_start(j.exec));
        RANKS_CHECK(r, posted(&c.end));
        RANKS_CHECK(r, c.left == 0 && c.err == 0 && c.waited == WEFT_EBUSY);
        RANKS_OK(r, weft_exec_wait(j.exec, WEFT_FOREVER));
        RANKS_CHECK(r, !job_wrong(&j, r->rank, k));
        sem_destroy(&c.end);
        job_free(&j);
    }
}

static void runs_complete_without_a_call_of_their_owner(void **state)
{
    (void)state;
    ranks_run(4, &by_thread, run_alone, NULL, NULL);
    ranks_run(4, &(weft_comm_opts){.progress = WEFT_PROGRESS_THREAD, .staged = true}, run_alone, NULL, NULL);
}

/* ---- both at once ---- */

#define FLEET 6

static void end_one(struct ranks_rank *r, struct random *random, struct job *j, int seed)
{
    int err = WEFT_ETIMEOUT;
    bool done = false;
    switch (random_in(random, 0, 3)) {
    case 0:
        while (!done)
            RANKS_OK(r, weft_exec_test(j->exec, &done));
        break;
    case 1: /* the answer may be that time ran out, any number of times */
        while (err == WEFT_ETIMEOUT)
            err = weft_exec_wait(j->exec, random_in(random, 0, 1) * 20000);
        RANKS_CHECK(r, err == WEFT_OK);
        break;
    default: RANKS_OK(r, weft_exec_wait(j->exec, WEFT_FOREVER));
    }
    RANKS_CHECK(r, !job_wrong(j, r->rank, seed));
}

static void mix_calls(struct ranks_rank *r, struct random *shared)
{
    void *memory;
    switch (random_in(shared, 0, 5)) {
    case 0: RANKS_OK(r, weft_comm_barrier(r->comm, WEFT_DEADLINE)); break;
    case 1:
        RANKS_OK(r, weft_comm_alloc(r->comm, 100, WEFT_MEMORY_HOST, 0, &memory));
        weft_comm_free(r->comm, memory);
        break;
    case 2: {
        weft_comm *group;
        struct job j;
        struct ranks_rank in_group = *r;
        RANKS_OK(r, weft_comm_split(r->comm, (int[]){3, 1, 2, 0}, 4, &group));
        in_group.rank = weft_comm_rank(group);
        in_group.comm = group;
        RANKS_OK(r, job_make(&j, &kinds[1], &in_group));
        job_seed(&j, in_group.rank, 3);
        RANKS_OK(r, weft_exec_start(j.exec));
        weft_comm_close(group); /* it goes with its last exec, which waits for the run */
        job_free(&j);
        break;
    }
    default: break;
    }
}

/* Numbers that all ranks draw alike decide what is collective, each one's own the rest. */
static void run_mixed(struct ranks_rank *r)
{
    struct random shared = {11}, mine = {100 + (uint64_t)r->rank};
    struct job j[FLEET];
    weft_window *w;
    for (int i = 0; i < FLEET; i++)
        RANKS_OK(r, job_make(&j[i], &kinds[i % KINDS], r));
    RANKS_OK(r, weft_window_open(r->comm, NULL, 0, 1, &w));
    int seeds = (int)(conformance_on_hosts() ? test_share(10, 300) : test_share(60, 5000));
    for (int seed = 0; seed < seeds; seed++) {
        int from = (int)random_in(&mine, 0, FLEET - 1), to = (int)random_in(&mine, 0, FLEET - 1);
        for (int i = 0; i < FLEET; i++) {
            struct job *k = &j[(i + from) % FLEET];
            job_seed(k, r->rank, seed);
            RANKS_OK(r, weft_exec_start(k->exec));
        }
        mix_calls(r, &shared);
        RANKS_OK(r, weft_window_notify(w, (r->rank + 1) % r->size, 0, WEFT_NOTIFY_ADD, 1));
        for (int i = 0; i < FLEET && !r->failed[0]; i++)
            end_one(r, &mine, &j[(i + to) % FLEET], seed);
        if (r->failed[0])
            return;
        RANKS_OK(r, weft_window_wait(w, 0, WEFT_GE, (uint64_t)seed + 1, WEFT_FOREVER));
        job_seed(&j[0], r->rank, seed + 1);
        RANKS_OK(r, weft_exec_run(j[0].exec));
        RANKS_CHECK(r, !job_wrong(&j[0], r->rank, seed + 1));
    }
    weft_window_close(w);
    for (int i = 0; i < FLEET; i++)
        job_free(&j[i]);
}

static void calls_of_the_owner_and_the_thread_mix(void **state)
{
    (void)state;
    ranks_run(4, &by_thread, run_mixed, NULL, NULL);
    ranks_run(4, &(weft_comm_opts){.progress = WEFT_PROGRESS_THREAD, .staged = true}, run_mixed, NULL, NULL);
}

/* ---- tasks ---- */

struct counter {
    struct comm_task task;
    weft_comm *comm;
    _Atomic int asked, failed;
    int done;
    sem_t each;
};

static bool counter_pass(struct comm_task *t, bool eager)
{
    struct counter *c = (struct counter *)t;
    (void)eager;
    int asked = atomic_load_explicit(&c->asked, memory_order_acquire);
    if (c->done == asked)
        return false;
    for (; c->done < asked; c->done++)
        sem_post(&c->each);
    return true;
}

static int counter_lacking(struct comm_task *t)
{
    (void)t;
    return 0;
}

static void counter_watch(struct comm_task *t, int64_t now)
{
    (void)t;
    (void)now;
}

static void counter_fail(struct comm_task *t)
{
    struct counter *c = (struct counter *)t;
    atomic_fetch_add(&c->failed, 1);
    sem_post(&c->each);
}

static void *ask(void *arg)
{
    struct counter *c = arg;
    for (int i = 0; i < (int)test_share(300, 30000); i++) {
        atomic_fetch_add_explicit(&c->asked, 1, memory_order_release);
        comm_task_nudge(c->comm);
        if (!posted(&c->each))
            return "nobody passed after a nudge";
    }
    return NULL;
}

/* Another thread nudges; who passes is the progress thread, or the owner while it waits. */
static void run_nudged(struct ranks_rank *r)
{
    static const struct comm_task_ops ops = {
        .pass = counter_pass, .lacking = counter_lacking, .watch = counter_watch, .fail = counter_fail};
    struct counter c = {.task = {.ops = &ops}, .comm = r->comm};
    pthread_t thread;
    void *text = "";
    sem_init(&c.each, 0, 0);
    comm_task_add(r->comm, &c.task);
    for (int turn = 0; turn < 2; turn++) {
        RANKS_CHECK(r, !pthread_create(&thread, NULL, ask, &c));
        for (int i = 0; i < 20 && turn; i++)
            RANKS_OK(r, weft_comm_barrier(r->comm, WEFT_DEADLINE));
        pthread_join(thread, &text);
        RANKS_CHECK(r, !text);
    }
    ranks_meet(r);
    struct comm_family *f = comm_enter(r->comm);           /* between hosts it is mailed */
    comm_fail(r->comm, WEFT_EPEER, "the end of the test"); /* wakes all */
    comm_leave(f);
    RANKS_CHECK(r, posted(&c.each));
    RANKS_CHECK(r, atomic_load(&c.failed) == 1);
    comm_task_remove(r->comm, &c.task);
    comm_task_remove(r->comm, &c.task);
    sem_destroy(&c.each);
}

static void nudged_task_is_passed_by_thread_or_waiter(void **state)
{
    (void)state;
    ranks_run(2, &by_thread, run_nudged, NULL, NULL);
}

/* ---- a start that finds the progress lock taken ---- */

struct pause {
    sem_t begun, end;
};

static void hold_the_lock(void *arg, int err)
{
    struct pause *p = arg;
    (void)err;
    sem_post(&p->begun);
    posted(&p->end);
}

/* While the thread is in a callback, a run is left to it to begin: of that run nothing has come, whatever the last one
 * had. */
static void run_left_to_the_thread(struct ranks_rank *r)
{
    struct job j, own;
    struct pause p;
    size_t all, early = 0, n;
    sem_init(&p.begun, 0, 0);
    sem_init(&p.end, 0, 0);
    RANKS_OK(r, job_make(&j, &kinds[0], r));
    RANKS_OK(r, job_make(&own, &(struct move){.src = "i32[4/x] @x4", .dst = "i32[4/x] @x4"}, r));
    RANKS_OK(r, weft_plan_arrivals(j.plan, NULL, 0, &all));
    RANKS_OK(r, weft_exec_on_arrival(j.exec, NULL, NULL));
    RANKS_OK(r, weft_exec_on_done(own.exec, hold_the_lock, &p));
    for (int seed = 0; seed < 5; seed++) {
        job_seed(&j, r->rank, seed);
        RANKS_OK(r, weft_exec_start(own.exec));
        RANKS_CHECK(r, posted(&p.begun));
        int err = weft_exec_start(j.exec);
        if (!err)
            err = weft_exec_arrived(j.exec, NULL, 0, &early);
        sem_post(&p.end);
        RANKS_OK(r, err);
        RANKS_OK(r, weft_exec_wait(j.exec, WEFT_FOREVER));
        RANKS_OK(r, weft_exec_wait(own.exec, WEFT_FOREVER));
        RANKS_CHECK(r, !early);
        RANKS_OK(r, weft_exec_arrived(j.exec, NULL, 0, &n));
        RANKS_CHECK(r, n == all && !job_wrong(&j, r->rank, seed));
    }
    job_free(&j);
    job_free(&own);
    sem_destroy(&p.begun);
    sem_destroy(&p.end);
}

static void run_left_to_the_thread_has_no_arrivals_yet(void **state)
{
    (void)state;
    ranks_run(4, &by_thread, run_left_to_the_thread, NULL, NULL);
}

/* The thread has ended a run as far as a test can see, and may still be busy with that end when the next is started and
 * waited for: the wait is for the next. */
static void run_on_its_heels(struct ranks_rank *r)
{
    struct job j;
    int runs = (int)(conformance_on_hosts() ? test_share(20, 2000) : test_share(500, 100000));
    RANKS_OK(r, job_make(&j, &kinds[0], r));
    for (int seed = 0; seed < runs; seed++) {
        bool done = false;
        job_seed(&j, r->rank, seed);
        RANKS_OK(r, weft_exec_start(j.exec));
        while (seed % 2 && !done)
            RANKS_OK(r, weft_exec_test(j.exec, &done));
        RANKS_OK(r, seed % 2 ? 0 : weft_exec_wait(j.exec, WEFT_FOREVER));
        RANKS_CHECK(r, !job_wrong(&j, r->rank, seed));
    }
    job_free(&j);
}

/* The same for sure: another thread holds the progress lock, and counts the end of the first run only when the second
 * is waited for. */
struct slow_end {
    weft_exec *x;
    sem_t seated, started;
    atomic_bool left;
};

static void *count_late(void *arg)
{
    const struct timespec pause = {.tv_nsec = 50000000};
    struct slow_end *e = arg;
    struct comm_family *f = e->x->comm->family;
    lock_enter(f);
    sem_post(&e->seated);
    if (posted(&e->started))
        nanosleep(&pause, NULL);
    atomic_fetch_add(&e->x->ended, 1);
    lock_ended(f);
    nanosleep(&pause, NULL);
    atomic_store(&e->left, true);
    lock_leave(f);
    return NULL;
}

static void run_and_count_late(struct ranks_rank *r)
{
    struct job j;
    struct slow_end e = {0};
    pthread_t thread;
    RANKS_OK(r, job_make(&j, &kinds[0], r));
    RANKS_OK(r, weft_exec_run(j.exec));
    e.x = j.exec;
    sem_init(&e.seated, 0, 0);
    sem_init(&e.started, 0, 0);
    RANKS_CHECK(r, !pthread_create(&thread, NULL, count_late, &e));
    bool seated = posted(&e.seated);
    atomic_fetch_sub(&j.exec->ended, 1);
    job_seed(&j, r->rank, 1);
    int err = weft_exec_start(j.exec);
    sem_post(&e.started);
    if (!err)
        err = weft_exec_wait(j.exec, WEFT_FOREVER);
    bool left = atomic_load(&e.left);
    pthread_join(thread, NULL);
    RANKS_OK(r, err);
    RANKS_CHECK(r, seated && left && !job_wrong(&j, r->rank, 1));
    job_free(&j);
    sem_destroy(&e.seated);
    sem_destroy(&e.started);
}

static void wait_is_for_the_run_started_last(void **state)
{
    (void)state;
    ranks_run(4, &by_thread, run_and_count_late, NULL, NULL);
    ranks_run(4, &by_thread, run_on_its_heels, NULL, NULL);
}

/* ---- failure ---- */

static void run_left_alone(struct ranks_rank *r)
{
    struct job j;
    RANKS_OK(r, job_make(&j, &kinds[1], r));
    ranks_meet(r);                                     /* all are bound before one goes */
    bool dies = ranks_forked && !conformance_on_mpi(); /* MPI would end the job */
    if (r->rank == 1) {                                /* it never starts */
        if (dies)
            _exit(0);
        job_free(&j);
        return;
    }
    struct chain c = {.r = r, .j = &j, .left = 1};
    sem_init(&c.end, 0, 0);
    job_seed(&j, r->rank, 1);
    RANKS_OK(r, weft_exec_on_done(j.exec, next_in_chain, &c));
    int err = weft_exec_start(j.exec); /* others may have noticed first */
    RANKS_CHECK(r, err == WEFT_EPEER || (posted(&c.end) && c.err == WEFT_EPEER));
    RANKS_CHECK(r, weft_exec_wait(j.exec, WEFT_FOREVER) == (err ? 0 : WEFT_EPEER));
    RANKS_CHECK(r, weft_exec_start(j.exec) == WEFT_EPEER);
    snprintf(r->text, sizeof r->text, "%s", ranks_said());
    RANKS_CHECK(r, strstr(r->text, dies ? "rank 1 has died" : "rank 1 closed its comm or freed its exec") ||
                       (conformance_on_hosts() && strstr(r->text, " rank 1: rank 1 has "))); /* the wire saw it first */
    sem_destroy(&c.end);
    job_free(&j);
}

static void failure_that_the_thread_sees_reaches_the_owner(void **state)
{
    (void)state;
    struct ranks_rank out[4];
    ranks_run(4, &by_thread, run_left_alone, NULL, out);
    if (conformance_on_hosts()) /* who sees it at the same time says it in words of its own */
        return;
    assert_string_equal(out[0].text, out[2].text);
    assert_string_equal(out[0].text, out[3].text);
}

/* ---- the end ---- */

static void run_closed_in_flight(struct ranks_rank *r)
{
    struct job j;
    RANKS_OK(r, job_make(&j, &kinds[3], r));
    job_seed(&j, r->rank, 1);
    RANKS_OK(r, weft_exec_start(j.exec));
    weft_comm_close(r->comm);
    job_free(&j);
    r->keep = true;
}

struct ending {
    struct job *j;
    weft_comm *comm, *group;
    sem_t end;
};

/* The last of the family goes here, whoever runs it. */
static void end_all(void *arg, int err)
{
    struct ending *e = arg;
    (void)err;
    weft_comm_close(e->comm);
    weft_comm_close(e->group);
    weft_exec_close(e->j->exec);
    e->j->exec = NULL;
    sem_post(&e->end);
}

static void run_closed_in_callback(struct ranks_rank *r)
{
    struct job j;
    struct ending e = {.j = &j, .comm = r->comm};
    RANKS_OK(r, weft_comm_split(r->comm, (int[]){0, 1, 2, 3}, 4, &e.group));
    RANKS_OK(r, job_make(&j, &kinds[3], r));
    sem_init(&e.end, 0, 0);
    job_seed(&j, r->rank, 1);
    RANKS_OK(r, weft_exec_on_done(j.exec, end_all, &e));
    RANKS_OK(r, weft_exec_start(j.exec));
    RANKS_CHECK(r, posted(&e.end));
    RANKS_CHECK(r, !job_wrong(&j, r->rank, 1));
    r->keep = true;
    sem_destroy(&e.end);
    job_free(&j);
}

static void comm_closes_in_flight_and_in_callbacks(void **state)
{
    (void)state;
    for (int i = 0; i < (conformance_on_hosts() ? 2 : 10); i++) {
        ranks_run(4, &by_thread, run_closed_in_flight, NULL, NULL);
        if (!conformance_on_mpi()) /* which allows one thread at a time, and that of the callback still closes */
            ranks_run(4, &by_thread, run_closed_in_callback, NULL, NULL);
    }
}

/* ---- one thread, asleep ---- */

/* Nothing in flight, and then a run that waits for a rank that does not start: 2 ranks on threads have 200 ms twice, in
 * which a thread that polled would burn all of a core. */
#define PERIOD_MS 200
static void sleep_and_look(struct ranks_rank *r)
{
    ranks_meet(r);
    int64_t before = cpu_us();
    nanosleep(&(struct timespec){.tv_nsec = PERIOD_MS * 1000000L}, NULL);
    int64_t used = cpu_us() - before;
    ranks_meet(r);
    RANKS_CHECK(r, used < PERIOD_MS * 1000 / 10);
}

static void run_idle(struct ranks_rank *r)
{
    struct job j;
    weft_comm *pair;
    int opened = ranks_forked ? 1 : r->size;
    ranks_meet(r);
    RANKS_CHECK(r, become_threads(opened));
    ranks_meet(r);
    RANKS_OK(r, weft_comm_split(r->comm, (int[]){1, 0}, 2, &pair));
    RANKS_OK(r, job_make(&j, &(struct move){.src = "f32[90000/x] @x2", .dst = "f32[90000/x] @x2=1,0"}, r));
    job_seed(&j, r->rank, 1);
    RANKS_OK(r, weft_exec_run(j.exec));
    ranks_meet(r);
    RANKS_CHECK(r, become_threads(opened));
    sleep_and_look(r);
    if (r->rank == 0)
        RANKS_OK(r, weft_exec_start(j.exec));
    sleep_and_look(r);
    if (r->rank == 1)
        RANKS_OK(r, weft_exec_start(j.exec));
    RANKS_OK(r, weft_exec_wait(j.exec, WEFT_FOREVER));
    weft_comm_close(pair);
    job_free(&j);
}

static void one_progress_thread_a_comm_family_and_it_sleeps(void **state)
{
    (void)state;
    if (conformance_on_mpi()) { /* which cannot be slept on: docs/limits.md */
        print_message("mpi: looks every 0.1 ms\n");
        skip();
    }
    ranks_run(2, &by_thread, run_idle, NULL, NULL);
}

/* ---- options ---- */

static void bad_progress_options_are_refused(void **state)
{
    (void)state;
    weft_comm *c;
    weft_comm_opts o = {.size = sizeof o, .progress = (enum weft_progress)7};
    assert_int_equal(weft_comm_open("self:", &o, &c), WEFT_EINVAL);
    assert_string_equal(weft_errmsg(), "progress is 7: it must be WEFT_PROGRESS_CALLER or WEFT_PROGRESS_THREAD");
    o.progress = WEFT_PROGRESS_CALLER;
    setenv("WEFT_PROGRESS", "sometimes", 1);
    assert_int_equal(weft_comm_open("self:", &o, &c), WEFT_EINVAL);
    assert_string_equal(weft_errmsg(), "WEFT_PROGRESS=sometimes: expected thread or caller");
    setenv("WEFT_PROGRESS", "thread", 1);
    assert_int_equal(weft_comm_open("self:", &o, &c), 0);
    assert_true(become_threads(1));
    weft_comm_close(c);
    unsetenv("WEFT_PROGRESS");
    o.progress = WEFT_PROGRESS_THREAD; /* nobody comes: the thread is ended again */
    o.rank = 0;
    o.deadline_ns = 1000000;
    assert_int_equal(weft_comm_open("threads:2/alone", &o, &c), WEFT_ETIMEOUT);
}

/* Without the options, which are the same everywhere. */
static const struct CMUnitTest on_hosts[] = {
    cmocka_unit_test(runs_complete_without_a_call_of_their_owner),
    cmocka_unit_test(calls_of_the_owner_and_the_thread_mix),
    cmocka_unit_test(nudged_task_is_passed_by_thread_or_waiter),
    cmocka_unit_test(failure_that_the_thread_sees_reaches_the_owner),
    cmocka_unit_test(run_left_to_the_thread_has_no_arrivals_yet),
    cmocka_unit_test(wait_is_for_the_run_started_last),
    cmocka_unit_test(comm_closes_in_flight_and_in_callbacks),
    cmocka_unit_test(one_progress_thread_a_comm_family_and_it_sleeps),
};

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_complete_without_a_call_of_their_owner),
        cmocka_unit_test(calls_of_the_owner_and_the_thread_mix),
        cmocka_unit_test(nudged_task_is_passed_by_thread_or_waiter),
        cmocka_unit_test(failure_that_the_thread_sees_reaches_the_owner),
        cmocka_unit_test(run_left_to_the_thread_has_no_arrivals_yet),
        cmocka_unit_test(wait_is_for_the_run_started_last),
        cmocka_unit_test(comm_closes_in_flight_and_in_callbacks),
        cmocka_unit_test(one_progress_thread_a_comm_family_and_it_sleeps),
        cmocka_unit_test(bad_progress_options_are_refused),
    };
    return SUITE_MAIN(argc, argv, SUITE_AT(&conformance_one_host, tests), SUITE_AT(&conformance_hosts, on_hosts));
}
