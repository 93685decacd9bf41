/* Tasks: what the waits, the tests and the progress thread of a comm move along. An exec is a task while it has a run
 * in flight, and an exchange while it is open. The mail and the windows of a comm on several hosts are tasks, too.
 *
 * The owner of a task embeds a struct comm_task and fills in `ops`. The thread that makes progress and holds the
 * progress lock calls these functions, one at a time. They must not wait. */
#ifndef WEFT_COMM_TASK_H
#define WEFT_COMM_TASK_H
#include "comm/comm.h"

struct comm_task_ops {
    /* Does what can be done without waiting; true: something moved. It may add and remove tasks, and call back to the
     * user between comm_callback(c, true) and comm_callback(c, false). */
    bool (*pass)(struct comm_task *t, bool idle);
    bool wire; /* its pass moves what goes over a wire and calls no callback, so that mail_move may pass it, too */

    /* These may be NULL: */
    int (*lacking)(struct comm_task *t);             /* signals that must come before it can go on; 0 or NULL: none */
    void (*watch)(struct comm_task *t, int64_t now); /* fails the comm if a peer that it waits for will not come */
    void (*fail)(struct comm_task *t);  /* the comm has failed: called once, and pass is not called again */
    void (*begin)(struct comm_task *t); /* adds the task; for tasks that are given to lock_submit */
    /* Before a barrier of the comm: waits until all that this rank has put has arrived. On failure the error text is
     * set and names `call`. At most one task of a comm has this function. */
    int (*drain)(struct comm_task *t, int64_t timeout_ns, const char *call);
    void (*close)(struct comm_task *t);                             /* the comm is being freed: removes the task */
    void (*describe)(const struct comm_task *t, struct text *text); /* as JSON, for the flight recorder */
    void (*count)(struct comm_task *t); /* adds what it has done since it was last asked to the comm's metrics */
    /* The members of an event's arguments, as JSON without braces, for the trace; of NULL: the name of its track, as a
     * JSON string. A task that records events has this function, and writes the trace before it is unlisted. */
    void (*trace)(const struct comm_task *t, const struct trace_event *e, struct text *text);
};

struct comm_task {
    struct comm_task *next, *prev; /* of the comm's tasks */
    const struct comm_task_ops *ops;
    bool failed;                 /* fail has been called */
    struct comm_task *submitted; /* the next task that was given to lock_submit */
    /* For the flight recorder, which describes it whether or not it is in the list of tasks: */
    uint64_t id; /* number of the meeting that made it: the same on all ranks, and unique on this comm */
    struct comm_task *described_next, *described_prev;
    bool named; /* the trace has the name of its track, or must not ask for it yet */
};

/* With the progress lock. The caller wakes the progress thread (lock_disturb). Not for a task that has failed, whose
 * comm has failed for good. */
static inline void comm_task_link(weft_comm *c, struct comm_task *t)
{
    t->next = NULL;
    t->prev = c->last_task;
    if (c->last_task)
        c->last_task->next = t;
    else
        c->tasks = t;
    c->last_task = t;
}
static inline void comm_task_unlink(weft_comm *c, struct comm_task *t)
{
    if (c->task_at == t)
        c->task_at = t->next;
    if (t->prev)
        t->prev->next = t->next;
    else
        c->tasks = t->next;
    if (t->next)
        t->next->prev = t->prev;
    else
        c->last_task = t->prev;
    t->next = t->prev = NULL;
}

/* Only from threads that may make calls on the comm. Remove returns when no function of the task runs any more, unless
 * one of these functions calls it. It may be called for a task that was never added (zeroed links). */
void comm_task_add(weft_comm *c, struct comm_task *t);
void comm_task_remove(weft_comm *c, struct comm_task *t);
/* Says that there is new work for a task. Any thread may call it, after it made the work visible (at least release). A
 * thread that sleeps on behalf of the comm wakes and passes the task. If no thread sleeps there, the task is passed in
 * the next call. */
void comm_task_nudge(weft_comm *c);
void comm_task_watch_all(weft_comm *c, int64_t now);
/* Does any task other than `except` (may be NULL) lack signals? Then a rank that waits for several signals must be
 * woken by each. */
bool comm_task_any_lacks(const weft_comm *c, const struct comm_task *except);
bool comm_task_sibling_lacks(const weft_comm *c); /* does a task of a sibling lack signals? */
int comm_task_drain(weft_comm *c, int64_t timeout_ns, const char *call);
void comm_task_close_all(weft_comm *c); /* in the opposite order of adding */

/* The list of tasks that the flight recorder describes. Unlist may be called for a task that is not listed. */
void comm_task_list(weft_comm *c, struct comm_task *t);
void comm_task_unlist(weft_comm *c, struct comm_task *t);
struct comm_task *comm_task_find(const weft_comm *c, uint64_t id); /* in that list; NULL: there is none */
#endif
