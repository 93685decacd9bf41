/* Tasks of a comm: what is moved along beside execs. A walk through them keeps its place in the comm, so that a task
 * may remove itself or any other. */
#include "comm/progress.h"

void comm_task_add(weft_comm *c, struct comm_task *t)
{
    struct comm_family *f = comm_enter(c);
    t->failed = false;
    t->prev = NULL;
    t->next = c->tasks;
    if (c->tasks)
        c->tasks->prev = t;
    c->tasks = t;
    progress_disturb(c->family);
    comm_leave(f);
}

static void take_out(weft_comm *c, struct comm_task *t)
{
    if (c->tasks != t && !t->prev)
        return;
    if (c->task_at == t)
        c->task_at = t->next;
    if (t->prev)
        t->prev->next = t->next;
    else
        c->tasks = t->next;
    if (t->next)
        t->next->prev = t->prev;
    t->next = t->prev = NULL;
}

void comm_task_remove(weft_comm *c, struct comm_task *t)
{
    struct comm_family *f = comm_enter(c);
    take_out(c, t);
    comm_leave(f);
}

/* Whoever is about to sleep arms and then loads `nudges` before it looks at tasks: either it sees this nudge, and with
 * it the work, or the ring here sees it armed. */
void comm_nudge(weft_comm *c)
{
    atomic_fetch_add_explicit(&c->family->nudges, 1, memory_order_seq_cst);
    core_ring(c->group, c->rank);
}

static void fail_one(struct comm_task *t)
{
    if (t->failed)
        return;
    t->failed = true;
    t->fail(t);
}

bool comm_tasks_pass(weft_comm *c, bool eager)
{
    bool moved = false, failed = core_failed(c->group);
    for (struct comm_task *t = c->tasks; t; t = c->task_at) {
        c->task_at = t->next;
        if (failed)
            fail_one(t);
        else
            moved |= t->pass(t, eager);
    }
    return moved;
}

void comm_tasks_watch(weft_comm *c, int64_t now)
{
    for (struct comm_task *t = c->tasks; t; t = c->task_at) {
        c->task_at = t->next;
        if (!t->failed)
            t->watch(t, now);
    }
}

bool comm_tasks_lack(const weft_comm *c, const struct comm_task *except)
{
    for (struct comm_task *t = c->tasks; t; t = t->next)
        if (t != except && !t->failed && t->lacking(t) > 0)
            return true;
    return false;
}
