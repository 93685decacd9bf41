/* The progress lock, which the progress thread of a family shares with the threads that make calls.
 *
 * The thread that has the lock drives: it alone touches comms and tasks, arms the bell and disarms it. A caller that
 * waits keeps the lock, also while it sleeps, so that peers wake it as if there were no progress thread. A caller that
 * tests or starts has the lock for that moment. The progress thread leaves the lock before it sleeps. Only calls that
 * may wait also wait for the lock: a test makes progress only if the lock is free; a start that finds it taken leaves
 * its task in `submitted` for the thread that has the lock.
 *
 * The progress thread sleeps in two places. ON_BELL: there is something in flight; it has armed the bell, looked at
 * everything once more, and left the lock. PARKED: there is nothing in flight, or another thread has the lock.
 *
 * Why nothing is lost. Every pair below is a store and then a load on either side, all four seq_cst (the atomic
 * read-modify-writes, too), so in the total order of these operations one of the loads comes after the other side's
 * store.
 *   start, lock taken   store `submitted`, load `taken`  | leave: store `taken`, load `submitted`
 *       the starter finds the lock free and begins the run itself, or the thread that leaves finds the run.
 *   park, lock taken    store `asleep`, load `taken` and `wanted` | leave: store `taken`, load `asleep`
 *       the progress thread finds the lock free, or the thread that leaves finds it parked and, if there is work, calls
 *       it. A caller that only wanted the lock and gives up does the same after its store of `wanted`.
 *   wait for the lock   add `wanted`, futex looks at `taken` | leave: store `taken`, load `wanted`
 *   park or sleep with the lock: `asleep` is stored before the lock is left, so a thread that has it later sees that
 *       through the lock; it calls the progress thread if it leaves work that the progress thread has not seen: all of
 *       it if PARKED, what was started, moved or disarmed since (`disturbed`) if ON_BELL. An armed bell that no thread
 *       has touched still rings for the signals that the progress thread looked for. A call changes the word that the
 *       progress thread sleeps on (`calls`, or the bell), which it has read before it stored `asleep`: the futex does
 *       not begin to sleep, or is woken. comm_task_nudge and peers' signals ring the bell, as core_signal says, for the
 *       thread that has armed it; a progress thread that they wake and that finds the lock taken parks as above.
 *
 * The lock is taken with acquire and left with release (by seq_cst), so all that one driver wrote is there for the
 * next. */
#define _GNU_SOURCE
#include "comm/lock.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "comm/task.h"

#define LOCK_SPINS 1000 /* turns of a wait for the lock before it yields */
#define LOCK_YIELDS 20
#define LOCK_NS 20000000 /* and then sleeps, for at most this long at a time */
#define THREAD_TRIES 64  /* turns for which the progress thread tries to get the lock before it parks */

enum { AWAKE = 0, PARKED, ON_BELL };

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

void lock_free_family(struct comm_family *f)
{
    free(f->lock);
    free(f);
}

/* ---- taking and leaving ---- */

/* A call says when it begins and ends to look at the family. While a start is about to return, a callback on the
 * progress thread may close the last comm. The progress thread then waits for calls that are inside. */
static void come_in(struct progress_lock *l)
{
    atomic_fetch_add_explicit(&l->inside, 1, memory_order_relaxed);
}

static void go_out(struct progress_lock *l)
{
    atomic_fetch_sub_explicit(&l->inside, 1, memory_order_release); /* pairs with the load in lock_wait_outside */
}

void lock_wait_outside(struct progress_lock *l)
{
    while (atomic_load_explicit(&l->inside, memory_order_acquire))
        sched_yield();
}

static bool take(struct progress_lock *l)
{
    uint32_t is_free = 0;
    if (atomic_load_explicit(&l->taken, memory_order_seq_cst) || /* a thread that polls needs no compare-exchange */
        !atomic_compare_exchange_strong_explicit(&l->taken, &is_free, 1, memory_order_seq_cst, memory_order_seq_cst))
        return false;
    /* Relaxed: a thread finds its own value there only if it stored it itself. */
    atomic_store_explicit(&l->holder, self(), memory_order_relaxed);
    l->depth = 1;
    return true;
}

struct progress_lock *lock_new(bool threaded)
{
    struct progress_lock *l = aligned_alloc(CORE_LINE, sizeof *l);
    if (!l)
        return NULL;
    memset(l, 0, sizeof *l);
    l->alone = !threaded;
    come_in(l);
    take(l);
    return l;
}

bool lock_held(const struct comm_family *f)
{
    return atomic_load_explicit(&f->lock->holder, memory_order_relaxed) == self();
}

/* Begins the tasks in the order in which they were submitted. */
bool lock_begin_submitted(struct progress_lock *l)
{
    if (!atomic_load_explicit(&l->submitted, memory_order_seq_cst))
        return false;
    struct comm_task *t = atomic_exchange_explicit(&l->submitted, NULL, memory_order_seq_cst), *in_order = NULL;
    while (t) {
        struct comm_task *next = t->submitted;
        t->submitted = in_order;
        in_order = t;
        t = next;
    }
    for (t = in_order; t; t = in_order) {
        in_order = t->submitted;
        t->submitted = NULL;
        t->ops->begin(t);
    }
    l->disturbed = true;
    return true;
}

/* Leaves the lock. When the lock is free no submitted task is left. True: a submitted task was begun here. */
static bool release(struct progress_lock *l)
{
    bool began = false;
    do {
        began |= lock_begin_submitted(l);
        atomic_store_explicit(&l->holder, 0, memory_order_relaxed);
        atomic_store_explicit(&l->taken, 0, memory_order_seq_cst);
        if (atomic_load_explicit(&l->wanted, memory_order_seq_cst))
            futex_wake(&l->taken);
    } while (atomic_load_explicit(&l->submitted, memory_order_seq_cst) && take(l));
    return began;
}

static void call_thread(struct progress_lock *l)
{
    uint32_t asleep = atomic_load_explicit(&l->asleep, memory_order_seq_cst);
    if (asleep == PARKED) {
        atomic_fetch_add_explicit(&l->calls, 1, memory_order_seq_cst);
        futex_wake(&l->calls);
    } else if (asleep == ON_BELL) {
        core_knock(l->door, l->shared);
    }
}

bool lock_try(struct comm_family *f)
{
    struct progress_lock *l = f->lock;
    if (lock_held(f)) {
        l->depth++;
        return true;
    }
    come_in(l);
    if (!take(l)) {
        go_out(l);
        return false;
    }
    lock_begin_submitted(l);
    return true;
}

/* The caller no longer wants the lock. The progress thread may have parked because it did. */
static void give_up(struct progress_lock *l)
{
    atomic_fetch_sub_explicit(&l->wanted, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&l->asleep, memory_order_seq_cst) == PARKED)
        call_thread(l);
}

int lock_enter_unless(struct comm_family *f, bool (*over)(void *arg), void *arg, int64_t until, bool *held)
{
    struct progress_lock *l = f->lock;
    *held = lock_try(f);
    if (*held || (over && over(arg)))
        return 0;
    if (until >= 0 && core_now() >= until)
        return COMM_LATE;
    come_in(l);
    atomic_fetch_add_explicit(&l->wanted, 1, memory_order_seq_cst);
    for (int turn = 0; !take(l); turn++) {
        int64_t now = turn >= LOCK_SPINS || turn % 64 == 63 ? core_now() : 0;
        bool late = until >= 0 && now >= until;
        if (late || (over && over(arg))) {
            give_up(l);
            go_out(l);
            return late ? COMM_LATE : 0;
        }
        if (turn < LOCK_SPINS)
            core_relax();
        else if (turn < LOCK_SPINS + LOCK_YIELDS)
            sched_yield();
        else
            futex_wait(&l->taken, 1, until >= 0 && until - now < LOCK_NS ? until - now : LOCK_NS);
    }
    atomic_fetch_sub_explicit(&l->wanted, 1, memory_order_seq_cst);
    lock_begin_submitted(l);
    *held = true;
    return 0;
}

void lock_enter(struct comm_family *f)
{
    bool held;
    lock_enter_unless(f, NULL, NULL, -1, &held);
}

bool lock_has_work(const struct comm_family *f)
{
    const weft_comm *c = f->any;
    do
        if (c->tasks)
            return true;
    while ((c = c->sibling) != f->any);
    return false;
}

void lock_leave(struct comm_family *f)
{
    struct progress_lock *l = f->lock;
    if (--l->depth)
        return;
    if (!f->comms) { /* the progress thread has ended */
        lock_free_family(f);
        return;
    }
    bool work = lock_has_work(f), disturbed = l->disturbed;
    l->disturbed = false;
    if (release(l))
        work = disturbed = true;
    if (work && (disturbed || atomic_load_explicit(&l->asleep, memory_order_seq_cst) == PARKED))
        call_thread(l);
    go_out(l);
}

void lock_disturb(struct comm_family *f)
{
    if (f->lock)
        f->lock->disturbed = true;
}

void lock_submit(struct comm_family *f, struct comm_task *t)
{
    struct progress_lock *l = f->lock;
    struct comm_task *first = atomic_load_explicit(&l->submitted, memory_order_relaxed);
    come_in(l);
    do
        t->submitted = first;
    while (
        !atomic_compare_exchange_weak_explicit(&l->submitted, &first, t, memory_order_seq_cst, memory_order_relaxed));
    if (take(l))
        lock_leave(f);
    else
        go_out(l);
}

void lock_ended(struct comm_family *f)
{
    if (f->lock && atomic_load_explicit(&f->lock->wanted, memory_order_seq_cst))
        futex_wake(&f->lock->taken);
}

/* ---- the progress thread ---- */

static bool stopped(struct progress_lock *l)
{
    return atomic_load_explicit(&l->stop, memory_order_seq_cst);
}

void lock_thread_stop(struct progress_lock *l)
{
    atomic_store_explicit(&l->stop, true, memory_order_seq_cst);
    call_thread(l);
}

bool lock_wanted(struct progress_lock *l)
{
    return atomic_load_explicit(&l->wanted, memory_order_seq_cst);
}

bool lock_thread_enter(struct progress_lock *l)
{
    for (int turn = 0; !stopped(l); turn++) {
        if (!lock_wanted(l) && take(l))
            return true;
        if (turn < THREAD_TRIES) {
            core_relax();
            continue;
        }
        uint32_t calls = atomic_load_explicit(&l->calls, memory_order_seq_cst);
        atomic_store_explicit(&l->asleep, PARKED, memory_order_seq_cst);
        if (!stopped(l) && (atomic_load_explicit(&l->taken, memory_order_seq_cst) || lock_wanted(l)))
            futex_wait(&l->calls, calls, -1);
        atomic_store_explicit(&l->asleep, AWAKE, memory_order_seq_cst);
        turn = 0;
    }
    return false;
}

void lock_thread_leave(struct progress_lock *l)
{
    l->disturbed = false;
    release(l);
}

void lock_thread_park(struct progress_lock *l)
{
    uint32_t calls = atomic_load_explicit(&l->calls, memory_order_seq_cst);
    atomic_store_explicit(&l->asleep, PARKED, memory_order_seq_cst);
    l->disturbed = false;
    if (!release(l) && !stopped(l))
        futex_wait(&l->calls, calls, -1);
    atomic_store_explicit(&l->asleep, AWAKE, memory_order_seq_cst);
}

void lock_thread_sleep(struct progress_lock *l, uint32_t bell, int64_t ns)
{
    atomic_store_explicit(&l->asleep, ON_BELL, memory_order_seq_cst);
    l->disturbed = false;
    if (!release(l) && !stopped(l))
        core_sleep(l->door, l->shared, bell, ns);
    atomic_store_explicit(&l->asleep, AWAKE, memory_order_seq_cst);
}
