/* The progress lock of a family of comms: one thread at a time drives them. What a comm, its siblings and their tasks
 * hold is touched by the thread that holds the lock and by no other, except for what is atomic.
 *
 * A family has a lock where two threads may want to drive: the progress thread and the thread that makes the calls; and
 * on several hosts, where threads that put into an exchange must be kept off the wire. Without one, all calls are of
 * one thread at a time anyway. */
#ifndef WEFT_COMM_LOCK_H
#define WEFT_COMM_LOCK_H
#include <pthread.h>

#include "comm/comm.h"

/* Takes it at once or not at all. All three may be called by the thread that holds it: it then holds it once more. */
bool lock_try(struct comm_family *f);
void lock_enter(struct comm_family *f); /* waits for it */
/* Waits for it until over(arg), which is asked without the lock, or core_now() is `until` (negative: never). *held says
 * whether the caller has it. 0: it has, or over(arg); COMM_LATE: the time ran out first. */
int lock_enter_unless(struct comm_family *f, bool (*over)(void *arg), void *arg, int64_t until, bool *held);
/* Once for each time that it was taken. Wakes the progress thread if there is something for it to do; frees the family
 * if the last comm is gone. */
void lock_leave(struct comm_family *f);
bool lock_held(const struct comm_family *f); /* by the calling thread? */

/* With the lock, or without one: the progress thread, if it sleeps, has to look again when the lock is left. */
void lock_disturb(struct comm_family *f);
/* Begins a task (its ops->begin) whose caller found the lock taken: the thread that holds it does so before it leaves.
 */
void lock_submit(struct comm_family *f, struct comm_task *t);
void lock_ended(struct comm_family *f); /* a run has: a thread that waits for the lock may not need it any more */

static inline bool lock_in_callback(const weft_comm *c) /* is the calling thread in a callback of the comm? */
{
    return (!c->has_lock || lock_held(c->family)) && c->in_callback;
}

/* For calls that may wait: between these two the caller has the lock. *c may be gone by the second. */
static inline struct comm_family *comm_enter(weft_comm *c)
{
    if (!c->has_lock)
        return NULL;
    lock_enter(c->family);
    return c->family;
}
static inline void comm_leave(struct comm_family *f)
{
    if (f)
        lock_leave(f);
}

/* ---- for family.c: the lock's own end of the progress thread ---- */

struct progress_lock {
    _Alignas(CORE_LINE) _Atomic uint32_t taken; /* 1: by a thread. A futex: callers sleep on it */
    _Atomic uint32_t wanted;                    /* callers that wait for it */
    _Atomic uintptr_t holder;                   /* which thread has it */
    int depth;                                  /* how many times */
    bool disturbed;                             /* since the progress thread went to sleep */
    _Atomic(struct comm_task *) submitted;      /* linked by t->submitted, the last first */

    _Alignas(CORE_LINE) _Atomic uint32_t asleep; /* where the progress thread is */
    _Atomic uint32_t inside;                     /* calls that look at this struct */
    _Atomic uint32_t calls;                      /* a futex: the progress thread is parked on it */
    _Atomic bool stop;
    pthread_t thread;
    bool alone;             /* there is no progress thread */
    struct core_rank *door; /* that the progress thread sleeps at */
    bool shared;
};

bool lock_has_work(const struct comm_family *f); /* has one of its comms tasks? With the lock */
struct progress_lock *lock_new(bool threaded);   /* the caller has it; NULL: no memory */
void lock_free_family(struct comm_family *f);
bool lock_begin_submitted(struct progress_lock *l); /* with the lock; true: there were some */
/* By the progress thread: waits for the lock, and lets callers go first; false: the thread shall end. */
bool lock_thread_enter(struct progress_lock *l);
bool lock_wanted(struct progress_lock *l);       /* does a caller wait for it? */
void lock_thread_leave(struct progress_lock *l); /* for such a one */
void lock_thread_park(struct progress_lock *l);  /* leaves it and sleeps until it is called */
/* Leaves it and sleeps on the bell, which was armed and whose value was `bell`, for at most ns. */
void lock_thread_sleep(struct progress_lock *l, uint32_t bell, int64_t ns);
void lock_thread_stop(struct progress_lock *l);  /* has it end */
void lock_wait_outside(struct progress_lock *l); /* until no call looks at it any more */
#endif
