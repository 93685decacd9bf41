/* The progress lock of a family of comms: one thread at a time drives them. Only the thread that holds the lock touches
 * the state of the comms and their tasks. Atomic members are the exception.
 *
 * A family has a lock in two cases. With a progress thread, that thread and the thread that makes the calls may both
 * want to drive. On several hosts, threads that put into an exchange must be kept off the wire. Without a lock, the
 * caller makes all calls from one thread at a time. */
#ifndef WEFT_COMM_LOCK_H
#define WEFT_COMM_LOCK_H
#include <pthread.h>

#include "comm/comm.h"

/* Takes the lock at once or not at all. The thread that holds the lock may call all three, and then holds it once
 * more. */
bool lock_try(struct comm_family *f);
void lock_enter(struct comm_family *f); /* waits for it */
/* Waits for the lock until over(arg), which is called without the lock, or until core_now() is `until` (negative:
 * never). *held says whether the caller has the lock. 0: it has, or over(arg). COMM_LATE: the time ran out first. */
int lock_enter_unless(struct comm_family *f, bool (*over)(void *arg), void *arg, int64_t until, bool *held);
/* Called once for each time that the lock was taken. Wakes the progress thread if there is work for it. Frees the
 * family if the last comm is gone. */
void lock_leave(struct comm_family *f);
bool lock_held(const struct comm_family *f); /* does the calling thread hold the lock? */

/* A progress thread that sleeps has to look again when the lock is left. The caller holds the lock, or the family has
 * none. */
void lock_disturb(struct comm_family *f);
/* For a caller that found the lock taken: the thread that holds the lock begins the task (ops->begin) before it leaves
 * the lock. */
void lock_submit(struct comm_family *f, struct comm_task *t);
void lock_ended(struct comm_family *f); /* a run has ended: a thread that waits for the lock may not need it any more */

static inline bool lock_in_callback(const weft_comm *c) /* is the calling thread in a callback of the comm? */
{
    return (!c->has_lock || lock_held(c->family)) && c->in_callback;
}

/* For calls that may wait: between these two the caller has the lock. The comm may be freed before the second. */
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
    _Alignas(CORE_LINE) _Atomic uint32_t taken; /* 1: a thread holds the lock. A futex: callers sleep on it */
    _Atomic uint32_t wanted;                    /* number of callers that wait for the lock */
    _Atomic uintptr_t holder;                   /* which thread has it */
    int depth;                                  /* how many times the holder has taken it */
    bool disturbed;                             /* lock_disturb was called since the progress thread went to sleep */
    _Atomic(struct comm_task *) submitted;      /* linked by t->submitted, the last first */

    _Alignas(CORE_LINE) _Atomic uint32_t asleep; /* where the progress thread is */
    _Atomic uint32_t inside;                     /* calls that look at this struct */
    _Atomic uint32_t calls;                      /* a futex: the progress thread is parked on it */
    _Atomic bool stop;
    pthread_t thread;
    bool alone;             /* there is no progress thread */
    struct core_rank *door; /* of this rank: the bell that the progress thread sleeps on */
    bool shared;
};

bool lock_has_work(const struct comm_family *f); /* has a comm of the family tasks? With the lock */
struct progress_lock *lock_new(bool threaded);   /* the caller has it; NULL: no memory */
void lock_free_family(struct comm_family *f);
bool lock_begin_submitted(struct progress_lock *l); /* with the lock; true: there were submitted tasks */
/* Called by the progress thread: waits for the lock and lets callers go first. False: the thread shall end. */
bool lock_thread_enter(struct progress_lock *l);
bool lock_wanted(struct progress_lock *l);       /* does a caller wait for the lock? */
void lock_thread_leave(struct progress_lock *l); /* leaves the lock to a caller that waits */
void lock_thread_park(struct progress_lock *l);  /* leaves the lock and sleeps until it is called */
/* Leaves the lock and sleeps for at most ns on the bell, which is armed and had the value `bell`. */
void lock_thread_sleep(struct progress_lock *l, uint32_t bell, int64_t ns);
void lock_thread_stop(struct progress_lock *l);  /* tells the thread to end */
void lock_wait_outside(struct progress_lock *l); /* waits until no call looks at the lock any more */
#endif
