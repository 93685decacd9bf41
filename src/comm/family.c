/* The progress thread of a family, and the family's beginning and end. lock.c says how the thread and callers take
 * turns. */
#define _GNU_SOURCE
#include "comm/family.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/thread.h"
#include "comm/lock.h"
#include "comm/mail.h"
#include "comm/task.h"

#define THREAD_TURNS 16 /* turns that find nothing before the thread sleeps, if there is no core for it */

/* ---- the thread ---- */

/* One pass over all that the family has in flight. A callback in the pass may close any comm, even the last. */
static bool pass(struct comm_family *f, bool idle)
{
    weft_comm *c = f->any;
    bool moved = lock_begin_submitted(f->lock);
    comm_hold(c);
    moved |= comm_progress(c, idle);
    comm_drop(c);
    return moved;
}

/* Looks at everything once more and sleeps until peers ring if nothing moved. True: it has left the lock. */
static bool sleep_on_bell(struct comm_family *f)
{
    struct core_group *g = f->any->group;
    int rank = f->any->rank;
    uint32_t bell = core_arm(g, rank);
    atomic_load_explicit(&f->nudges, memory_order_seq_cst); /* pairs with comm_task_nudge */
    bool moved = pass(f, true);
    if (!f->comms)
        return false;
    g = f->any->group;
    rank = f->any->rank;
    if (!moved)
        liveness_watch(f->any, core_now(), true); /* a peer that left before we sleep will not ring */
    int64_t nap = f->any->beat_ns;
    bool wired = false;
    if (moved || !mail_listen(f->any, &wired, &nap) || !core_expect(g, rank, 1)) {
        core_disarm(g, rank);
        return false;
    }
    if (!comm_task_any_lacks(f->any, NULL) && !comm_task_sibling_lacks(f->any))
        nap = f->any->beat_ns; /* nothing is in flight: what comes by a wire that cannot wake us can wait */
    lock_thread_sleep(f->lock, bell, nap);
    return true;
}

/* Makes progress, with the lock, until there is nothing to do or a caller wants the lock. True: it has left the
 * lock. */
static bool drive(struct comm_family *f)
{
    core_disarm(f->any->group, f->any->rank);
    for (int turn = 0; f->comms; turn++) {
        if (pass(f, false))
            turn = 0;
        if (!f->comms)
            return false;
        if (lock_wanted(f->lock)) { /* the thread then parks, unless the caller has left already */
            lock_thread_leave(f->lock);
            return true;
        }
        if (!lock_has_work(f)) {
            lock_thread_park(f->lock);
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
    while (lock_thread_enter(f->lock))
        if (!drive(f)) { /* a callback has closed the last comm: no other thread knows the family any more */
            pthread_detach(pthread_self());
            lock_free_family(f);
            break;
        }
    return NULL;
}

/* ---- the beginning and the end ---- */

static int thread_begin(struct comm_family *f)
{
    struct progress_lock *l = f->lock;
    int err = thread_start(&l->thread, thread_main, f);
    if (err)
        return error_set(WEFT_ENOMEM, "no progress thread can be started (error %d)", err);
    pthread_setname_np(l->thread, "weft-progress");
    return 0;
}

int family_open(bool threaded, bool locked, struct comm_family **out)
{
    struct comm_family *f = calloc(1, sizeof *f);
    if (!f)
        return error_nomem();
    f->forks = forks_count();
    int err = 0;
    if (threaded || locked) {
        f->lock = lock_new(threaded);
        err = f->lock ? 0 : error_nomem();
    }
    if (!err && threaded)
        err = thread_begin(f);
    if (err) {
        lock_free_family(f);
        return err;
    }
    *out = f;
    return 0;
}

void family_unlock(struct comm_family *f)
{
    if (!f->lock || !f->lock->alone)
        return;
    free(f->lock);
    f->lock = NULL;
}

void family_settle(struct comm_family *f)
{
    const weft_comm *c = f->any;
    f->spin_turns = 2 * c->size <= core_cores(c->group) ? c->spin_turns : THREAD_TURNS;
    if (f->lock) {
        f->lock->door = core_door(c->group, c->rank);
        f->lock->shared = c->group->shared;
    }
}

void family_close(struct comm_family *f)
{
    struct progress_lock *l = f->lock;
    if (!l) {
        free(f);
        return;
    }
    if (!l->alone && pthread_equal(pthread_self(), l->thread)) {
        lock_wait_outside(l);
        return;
    }
    if (l->alone)
        return;
    lock_thread_stop(l);
    pthread_join(l->thread, NULL);
}
