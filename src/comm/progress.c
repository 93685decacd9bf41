/* The progress thread of a family, and the seat that it shares with the thread which makes the calls.
 *
 * Who is in the seat drives: it alone touches comms and execs, arms the bell and disarms it. A caller that waits stays
 * in the seat, also while it sleeps, so that it is woken by peers as if there were no thread; one that tests or starts
 * is in it for that moment. The thread leaves it before it sleeps. Nobody waits for the seat but calls that may wait:
 * test makes progress only if the seat is free; a start that finds it taken is left in `submitted` for who is in it.
 *
 * The thread sleeps in two places. ON_BELL: there is something in flight; it has armed the bell, looked at everything
 * once more, and left the seat. PARKED: there is nothing in flight, or another is in the seat.
 *
 * Why nothing is lost. Every pair below is a store and then a load on either side, all four seq_cst (the atomic
 * read-modify-writes, too), so in the one order that all agree on one of the loads comes after the other side's store.
 *   start, seat taken   store `submitted`, load `seat`  | leave: store `seat`, load `submitted`
 *       the starter finds the seat free and begins the run itself, or who leaves finds the run.
 *   park, seat taken    store `asleep`, load `seat` and `wanted` | leave: store `seat`, load `asleep`
 *       the thread finds the seat free, or who leaves finds the thread parked and, if there is work, calls it. Who only
 *       wanted the seat and gives up does the same after its store of `wanted`.
 *   wait for the seat   add `wanted`, futex looks at `seat` | leave: store `seat`, load `wanted`
 *   park or sleep in the seat: `asleep` is stored before the seat is left, so whoever is in it later sees it
 *       through the seat; it calls the thread if it leaves work that the thread has not seen: all of it if PARKED, what
 * was started, moved or disarmed since (`disturbed`) if ON_BELL. An armed bell that nobody has touched still rings for
 * the signals that the thread looked for. A call changes the word that the thread sleeps on (`calls`, or the bell),
 * which it has read before it stored `asleep`: the futex does not begin to sleep, or is woken. comm_nudge and peers'
 * signals ring the bell, as core_signal says, for whoever has armed it; a thread that they wake and that finds the seat
 * taken parks as above.
 *
 * The seat is taken with acquire and left with release (by seq_cst), so all that one driver wrote is there for the
 * next. */
#define _GNU_SOURCE
#include "comm/progress.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/forks.h"
#include "engine/exec.h"

#define SEAT_SPINS 1000 /* turns of a wait for the seat before it yields */
#define SEAT_YIELDS 20
#define SEAT_NS 20000000 /* and sleeps, at most so long at a time */
#define THREAD_TURNS 16  /* of the thread that find nothing before it sleeps, where there is no core for it */
#define THREAD_TRIES 64  /* turns for which the thread tries to get the seat before it parks */

enum { AWAKE = 0, PARKED, ON_BELL };

struct comm_seat {
    _Alignas(CORE_LINE) _Atomic uint32_t seat; /* 1: taken. A futex: callers sleep on it */
    _Atomic uint32_t wanted;                   /* callers that wait for it */
    _Atomic uintptr_t holder;                  /* self() of who is in it */
    int depth;                                 /* how many times */
    bool disturbed;                            /* since the thread went to sleep */
    _Atomic(weft_exec *) submitted;            /* linked by x->submitted, the last first */

    _Alignas(CORE_LINE) _Atomic uint32_t asleep; /* where the thread is */
    _Atomic uint32_t inside;                     /* callers that look at this */
    _Atomic uint32_t calls;                      /* a futex: it is parked on it */
    _Atomic bool stop;
    pthread_t thread;
    bool alone;             /* there is no thread */
    struct core_rank *door; /* that it sleeps at */
    bool shared;
};

static uintptr_t self(void)
{
    static _Thread_local char me;
    return (uintptr_t)&me;
}

static void futex_wait(_Atomic uint32_t *word, uint32_t value, int64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, ns < 0 ? NULL : &t, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void family_free(struct comm_family *f)
{
    free(f->seat);
    free(f);
}

/* ---- the seat ---- */

/* A call begins and ends to look at the family. While a start is about to return, a callback on the thread may close
 * the last comm: it waits for those who are inside. */
static void come_in(struct comm_seat *s)
{
    atomic_fetch_add_explicit(&s->inside, 1, memory_order_relaxed);
}

static void go_out(struct comm_seat *s)
{
    atomic_fetch_sub_explicit(&s->inside, 1, memory_order_release); /* pairs with the load in progress_close */
}

static bool take(struct comm_seat *s)
{
    uint32_t free_seat = 0;
    if (atomic_load_explicit(&s->seat, memory_order_seq_cst) || /* spares those who poll the exchange */
        !atomic_compare_exchange_strong_explicit(&s->seat, &free_seat, 1, memory_order_seq_cst, memory_order_seq_cst))
        return false;
    atomic_store_explicit(&s->holder, self(), memory_order_relaxed); /* only equal for who stored it */
    s->depth = 1;
    return true;
}

bool progress_seated(const struct comm_family *f)
{
    return atomic_load_explicit(&f->seat->holder, memory_order_relaxed) == self();
}

/* Begins the runs that were submitted, in their order; in the seat. */
static bool begin_submitted(struct comm_seat *s)
{
    if (!atomic_load_explicit(&s->submitted, memory_order_seq_cst))
        return false;
    weft_exec *x = atomic_exchange_explicit(&s->submitted, NULL, memory_order_seq_cst), *in_order = NULL;
    while (x) {
        weft_exec *next = x->submitted;
        x->submitted = in_order;
        in_order = x;
        x = next;
    }
    for (x = in_order; x; x = in_order) {
        in_order = x->submitted;
        x->submitted = NULL;
        exec_begin(x);
    }
    s->disturbed = true;
    return true;
}

/* Leaves the seat for good: when it is free no run is left that was submitted. True: one was begun here. */
static bool release(struct comm_seat *s)
{
    bool began = false;
    do {
        began |= begin_submitted(s);
        atomic_store_explicit(&s->holder, 0, memory_order_relaxed);
        atomic_store_explicit(&s->seat, 0, memory_order_seq_cst);
        if (atomic_load_explicit(&s->wanted, memory_order_seq_cst))
            futex_wake(&s->seat);
    } while (atomic_load_explicit(&s->submitted, memory_order_seq_cst) && take(s));
    return began;
}

static void call_thread(struct comm_seat *s)
{
    uint32_t asleep = atomic_load_explicit(&s->asleep, memory_order_seq_cst);
    if (asleep == PARKED) {
        atomic_fetch_add_explicit(&s->calls, 1, memory_order_seq_cst);
        futex_wake(&s->calls);
    } else if (asleep == ON_BELL) {
        core_knock(s->door, s->shared);
    }
}

bool progress_try(struct comm_family *f)
{
    struct comm_seat *s = f->seat;
    if (progress_seated(f)) {
        s->depth++;
        return true;
    }
    come_in(s);
    if (!take(s)) {
        go_out(s);
        return false;
    }
    begin_submitted(s);
    return true;
}

/* No longer wants it. The thread may have parked because of that. */
static void give_up(struct comm_seat *s)
{
    atomic_fetch_sub_explicit(&s->wanted, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&s->asleep, memory_order_seq_cst) == PARKED)
        call_thread(s);
}

int progress_enter_unless(struct comm_family *f, bool (*over)(void *arg), void *arg, int64_t until, bool *seated)
{
    struct comm_seat *s = f->seat;
    *seated = progress_try(f);
    if (*seated || (over && over(arg)))
        return 0;
    if (until >= 0 && core_now() >= until)
        return COMM_LATE;
    come_in(s);
    atomic_fetch_add_explicit(&s->wanted, 1, memory_order_seq_cst);
    for (int turn = 0; !take(s); turn++) {
        int64_t now = turn >= SEAT_SPINS || turn % 64 == 63 ? core_now() : 0;
        bool late = until >= 0 && now >= until;
        if (late || (over && over(arg))) {
            give_up(s);
            go_out(s);
            return late ? COMM_LATE : 0;
        }
        if (turn < SEAT_SPINS)
            core_relax();
        else if (turn < SEAT_SPINS + SEAT_YIELDS)
            sched_yield();
        else
            futex_wait(&s->seat, 1, until >= 0 && until - now < SEAT_NS ? until - now : SEAT_NS);
    }
    atomic_fetch_sub_explicit(&s->wanted, 1, memory_order_seq_cst);
    begin_submitted(s);
    *seated = true;
    return 0;
}

void progress_enter(struct comm_family *f)
{
    bool seated;
    progress_enter_unless(f, NULL, NULL, -1, &seated);
}

static bool has_work(const struct comm_family *f)
{
    const weft_comm *c = f->any;
    do
        if (c->first || c->tasks)
            return true;
    while ((c = c->kin) != f->any);
    return false;
}

void progress_leave(struct comm_family *f)
{
    struct comm_seat *s = f->seat;
    if (--s->depth)
        return;
    if (!f->comms) { /* the thread has been ended */
        family_free(f);
        return;
    }
    bool work = has_work(f), disturbed = s->disturbed;
    s->disturbed = false;
    if (release(s))
        work = disturbed = true;
    if (work && (disturbed || atomic_load_explicit(&s->asleep, memory_order_seq_cst) == PARKED))
        call_thread(s);
    go_out(s);
}

void progress_disturb(struct comm_family *f)
{
    if (f->seat)
        f->seat->disturbed = true;
}

void progress_submit(struct comm_family *f, weft_exec *x)
{
    struct comm_seat *s = f->seat;
    weft_exec *first = atomic_load_explicit(&s->submitted, memory_order_relaxed);
    come_in(s);
    do
        x->submitted = first;
    while (
        !atomic_compare_exchange_weak_explicit(&s->submitted, &first, x, memory_order_seq_cst, memory_order_relaxed));
    if (take(s))
        progress_leave(f);
    else
        go_out(s);
}

void progress_ended(struct comm_family *f)
{
    if (f->seat && atomic_load_explicit(&f->seat->wanted, memory_order_seq_cst))
        futex_wake(&f->seat->seat);
}

/* ---- the thread ---- */

static bool stopped(struct comm_seat *s)
{
    return atomic_load_explicit(&s->stop, memory_order_seq_cst);
}

/* Until the seat is the thread's; false: it shall end. */
static bool sit(struct comm_seat *s)
{
    for (int turn = 0; !stopped(s); turn++) {
        if (!atomic_load_explicit(&s->wanted, memory_order_seq_cst) && take(s))
            return true;
        if (turn < THREAD_TRIES) {
            core_relax();
            continue;
        }
        uint32_t calls = atomic_load_explicit(&s->calls, memory_order_seq_cst);
        atomic_store_explicit(&s->asleep, PARKED, memory_order_seq_cst);
        if (!stopped(s) && (atomic_load_explicit(&s->seat, memory_order_seq_cst) ||
                            atomic_load_explicit(&s->wanted, memory_order_seq_cst)))
            futex_wait(&s->calls, calls, -1);
        atomic_store_explicit(&s->asleep, AWAKE, memory_order_seq_cst);
        turn = 0;
    }
    return false;
}

/* One pass over all that the family has in flight. A callback in it may close any comm, even the last. */
static bool pass(struct comm_family *f, bool eager)
{
    weft_comm *c = f->any;
    bool moved = begin_submitted(f->seat);
    c->execs++;
    moved |= comm_progress(c, eager);
    comm_exec_gone(c);
    return moved;
}

/* Leaves the seat and sleeps until it is called. */
static void park(struct comm_seat *s)
{
    uint32_t calls = atomic_load_explicit(&s->calls, memory_order_seq_cst);
    atomic_store_explicit(&s->asleep, PARKED, memory_order_seq_cst);
    s->disturbed = false;
    if (!release(s) && !stopped(s))
        futex_wait(&s->calls, calls, -1);
    atomic_store_explicit(&s->asleep, AWAKE, memory_order_seq_cst);
}

/* Sleeps until peers ring, unless something moves when all has been looked at once more. True: it has left the seat. */
static bool sleep_on_bell(struct comm_family *f)
{
    struct comm_seat *s = f->seat;
    struct core_group *g = f->any->group;
    int rank = f->any->rank;
    uint32_t bell = core_arm(g, rank);
    atomic_load_explicit(&f->nudges, memory_order_seq_cst); /* pairs with comm_nudge */
    bool moved = pass(f, true);
    if (!f->comms)
        return false;
    g = f->any->group;
    rank = f->any->rank;
    if (!moved)
        comm_watch(f->any, core_now(), true); /* who went before we sleep rings no more */
    int64_t nap = f->any->beat_ns;
    bool wired = false;
    if (moved || !comm_listen(f->any, &wired, &nap) || !core_expect(g, rank, 1)) {
        core_disarm(g, rank);
        return false;
    }
    if (!f->any->first && !comm_tasks_lack(f->any, NULL) && !comm_kin_fly(f->any))
        nap = f->any->beat_ns; /* nothing flies: what comes by a wire that cannot wake us can wait */
    atomic_store_explicit(&s->asleep, ON_BELL, memory_order_seq_cst);
    s->disturbed = false;
    if (!release(s) && !stopped(s))
        core_sleep(s->door, s->shared, bell, nap);
    atomic_store_explicit(&s->asleep, AWAKE, memory_order_seq_cst);
    return true;
}

/* In the seat, until there is nothing to do or a caller wants it. True: it has left the seat. */
static bool drive(struct comm_family *f)
{
    struct comm_seat *s = f->seat;
    core_disarm(f->any->group, f->any->rank);
    for (int turn = 0; f->comms; turn++) {
        if (pass(f, false))
            turn = 0;
        if (!f->comms)
            return false;
        if (atomic_load_explicit(&s->wanted, memory_order_seq_cst)) {
            s->disturbed = false;
            release(s); /* and then parks in sit, unless who wanted it is through already */
            return true;
        }
        if (!has_work(f)) {
            park(s);
            return true;
        }
        if (turn < f->spin_turns)
            core_relax();
        else if (sleep_on_bell(f))
            return true;
    }
    return false;
}

static void *thread_main(void *arg)
{
    struct comm_family *f = arg;
    while (sit(f->seat))
        if (!drive(f)) { /* a callback has closed the last comm: nobody else knows the family any more */
            pthread_detach(pthread_self());
            family_free(f);
            break;
        }
    return NULL;
}

/* ---- the beginning and the end ---- */

static bool is_thread(const struct comm_seat *s)
{
    return !s->alone && pthread_equal(pthread_self(), s->thread);
}

static int thread_begin(struct comm_family *f)
{
    struct comm_seat *s = f->seat;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the threads of the program */
    int err = pthread_create(&s->thread, NULL, thread_main, f);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (err)
        return error_set(WEFT_ENOMEM, "the system has no progress thread to give (error %d)", err);
    pthread_setname_np(s->thread, "weft-progress");
    return 0;
}

int progress_open(bool threaded, bool seated, struct comm_family **out)
{
    struct comm_family *f = calloc(1, sizeof *f);
    if (!f)
        return error_nomem();
    f->forks = forks_count();
    int err = 0;
    if (threaded || seated) {
        f->seat = aligned_alloc(CORE_LINE, sizeof *f->seat);
        err = f->seat ? 0 : error_nomem();
    }
    if (f->seat) {
        memset(f->seat, 0, sizeof *f->seat);
        f->seat->alone = !threaded;
        come_in(f->seat);
        take(f->seat);
        err = threaded ? thread_begin(f) : 0;
    }
    if (err) {
        family_free(f);
        return err;
    }
    *out = f;
    return 0;
}

void progress_unseat(struct comm_family *f)
{
    if (!f->seat || !f->seat->alone)
        return;
    free(f->seat);
    f->seat = NULL;
}

void progress_settle(struct comm_family *f)
{
    const weft_comm *c = f->any;
    f->spin_turns = 2 * c->size <= core_cores(c->group) ? c->spin_turns : THREAD_TURNS;
    if (f->seat) {
        f->seat->door = core_door(c->group, c->rank);
        f->seat->shared = c->group->shared;
    }
}

void progress_close(struct comm_family *f)
{
    struct comm_seat *s = f->seat;
    if (!s) {
        free(f);
        return;
    }
    if (is_thread(s)) {
        while (atomic_load_explicit(&s->inside, memory_order_acquire))
            sched_yield();
        return;
    }
    if (s->alone)
        return;
    atomic_store_explicit(&s->stop, true, memory_order_seq_cst);
    call_thread(s);
    pthread_join(s->thread, NULL);
}
