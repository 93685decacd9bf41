/* Tasks: what the waits, tests and the progress thread of a comm move along. An exec is one while it has a run in
 * flight, an exchange while it is open, and so are the mail and the windows of a comm on several hosts.
 *
 * Its owner embeds a struct comm_task and fills in `ops`. The functions are called by the thread that makes progress,
 * which holds the progress lock, one at a time, and may not wait. */
#ifndef WEFT_COMM_TASK_H
#define WEFT_COMM_TASK_H
#include "comm/comm.h"

struct comm_task_ops {
    /* Does what can be done without waiting; true: something moved. It may add and remove tasks, and call back to the
     * user between comm_callback(c, true) and comm_callback(c, false). */
    bool (*pass)(struct comm_task *t, bool idle);
    bool wire; /* its pass moves what comes and goes by a wire, and calls nobody back: mail_move passes it, too */

    /* These may be NULL: */
    int (*lacking)(struct comm_task *t);             /* signals without which it cannot go on; 0, as NULL: none */
    void (*watch)(struct comm_task *t, int64_t now); /* fails the comm if a peer that is waited for will not come */
    void (*fail)(struct comm_task *t);               /* the comm has failed: called once, pass no more */
    void (*begin)(struct comm_task *t);              /* adds itself: for those that lock_submit is told of */
    /* Before a barrier of the comm: waits until what this rank did before is where it belongs, or fails with the error
     * text set, in which `call` is named. At most one task of a comm has this. */
    int (*drain)(struct comm_task *t, int64_t timeout_ns, const char *call);
    void (*close)(struct comm_task *t);                             /* the comm is being freed: removes itself */
    void (*describe)(const struct comm_task *t, struct text *text); /* as JSON, for the flight recorder */
};

struct comm_task {
    struct comm_task *next, *prev; /* of the comm's tasks */
    const struct comm_task_ops *ops;
    bool failed;                 /* fail has been called */
    struct comm_task *submitted; /* the next one that lock_submit was told of */
    /* Where the flight recorder describes it, whether or not it is in the list of tasks: */
    uint64_t id; /* number of the meeting that made it: the same on all ranks, and no other has it on this comm */
    struct comm_task *described_next, *described_prev;
};

/* With the progress lock; the caller sees to it that the progress thread wakes (lock_disturb). Not for a task that has
 * failed: neither does its comm ever work again. */
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

/* Not from another thread than those that may make calls on the comm. Remove returns when no function of the task runs
 * any more, unless it is called by one of them; it may be called for a task that was never added (zeroed links). */
void comm_task_add(weft_comm *c, struct comm_task *t);
void comm_task_remove(weft_comm *c, struct comm_task *t);
/* There is new work for a task: from any thread, after the work was made visible (at least release). A thread that
 * sleeps on behalf of the comm wakes and passes; without a progress thread and a wait nobody does before the next call.
 */
void comm_task_nudge(weft_comm *c);
void comm_task_watch_all(weft_comm *c, int64_t now);
/* Does any task but `except` (may be NULL) lack signals? Then a wait for several signals must hear each. */
bool comm_task_any_lacks(const weft_comm *c, const struct comm_task *except);
bool comm_task_sibling_lacks(const weft_comm *c); /* does a task of a sibling? */
int comm_task_drain(weft_comm *c, int64_t timeout_ns, const char *call);
void comm_task_close_all(weft_comm *c); /* those added last first */

/* What the flight recorder describes; unlist may be called for a task that is not listed. */
void comm_task_list(weft_comm *c, struct comm_task *t);
void comm_task_unlist(weft_comm *c, struct comm_task *t);
struct comm_task *comm_task_find(const weft_comm *c, uint64_t id); /* among those; NULL: there is none */
#endif
