/* Progress by a thread: the seat that one thread at a time drives a family of comms from, and the thread that takes it
 * when nobody else does. What a comm, its kin and their execs hold is touched by who is in the seat alone, but for
 * what is atomic. A family without a progress thread has no seat: it is all one thread's at a time anyway; but on
 * several hosts, where threads that put into an exchange must be kept off the wire, it has one. */
#ifndef WEFT_COMM_PROGRESS_H
#define WEFT_COMM_PROGRESS_H
#include "comm/comm.h"

/* A family for a comm that is to be opened, with its thread if one is asked for, or with a seat alone; the caller is in
 * the seat then. */
int progress_open(bool threaded, bool seated, struct comm_family **out);
void progress_unseat(struct comm_family *f); /* takes away the seat, if it is alone and nobody knows it yet */
void progress_settle(struct comm_family *f); /* when it has its first comm */
/* The last comm is about to go: ends the thread, if it has one, and frees the family, with a thread when the seat is
 * left. By the thread itself: when it has come out of what it is in. */
void progress_close(struct comm_family *f);

/* In the seat, at once or not at all. All three: again for who is in it already. */
bool progress_try(struct comm_family *f);
void progress_enter(struct comm_family *f); /* waits for it */
/* The same until over(arg), which is asked without the seat, or core_now() is `until` (negative: never). 0: in the
 * seat, and over or not; COMM_LATE: not. *seated says which. */
int progress_enter_unless(struct comm_family *f, bool (*over)(void *arg), void *arg, int64_t until, bool *seated);
/* Out of it, once for each time in. Wakes the thread if there is something for it to do; frees the family if the last
 * comm is gone. */
void progress_leave(struct comm_family *f);
void progress_disturb(struct comm_family *f); /* the thread, if it sleeps, has to look again when the seat is left */

/* Starts a run that could not be started at once: who is in the seat does it before it leaves. */
void progress_submit(struct comm_family *f, weft_exec *x);
void progress_ended(struct comm_family *f); /* a run has: who waits for the seat may not need it any more */

bool progress_seated(const struct comm_family *f);          /* is the calling thread in the seat? */
static inline bool progress_called_back(const weft_comm *c) /* is it in a callback? */
{
    return (!c->threaded || progress_seated(c->family)) && c->in_callback;
}

/* For calls that may wait: between these two the caller is in the seat. *c may be gone by the second. */
static inline struct comm_family *comm_enter(weft_comm *c)
{
    if (!c->threaded)
        return NULL;
    progress_enter(c->family);
    return c->family;
}
static inline void comm_leave(struct comm_family *f)
{
    if (f)
        progress_leave(f);
}
#endif
