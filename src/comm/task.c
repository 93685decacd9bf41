/* Tasks of a comm: adding and removing them, and what is asked of all of them. */
#include "comm/task.h"

#include "comm/lock.h"

void comm_task_add(weft_comm *c, struct comm_task *t)
{
    struct comm_family *f = comm_enter(c);
    t->failed = false;
    comm_task_link(c, t);
    lock_disturb(c->family);
    comm_leave(f);
}

void comm_task_remove(weft_comm *c, struct comm_task *t)
{
    struct comm_family *f = comm_enter(c);
    if (c->tasks == t || t->prev)
        comm_task_unlink(c, t);
    comm_leave(f);
}

/* A thread that is about to sleep arms the bell and then loads `nudges` before it looks at tasks. Either it sees this
 * nudge, and with it the work, or the ring here sees that the bell is armed. */
void comm_task_nudge(weft_comm *c)
{
    atomic_fetch_add_explicit(&c->family->nudges, 1, memory_order_seq_cst);
    core_ring(c->group, c->rank);
}

void comm_task_watch_all(weft_comm *c, int64_t now)
{
    for (struct comm_task *t = c->tasks; t; t = t->next)
        if (t->ops->watch && !t->failed)
            t->ops->watch(t, now);
}

bool comm_task_any_lacks(const weft_comm *c, const struct comm_task *except)
{
    for (struct comm_task *t = c->tasks; t; t = t->next)
        if (t != except && !t->failed && t->ops->lacking && t->ops->lacking(t) > 0)
            return true;
    return false;
}

bool comm_task_sibling_lacks(const weft_comm *c)
{
    for (const weft_comm *k = c->sibling; k != c; k = k->sibling)
        if (comm_task_any_lacks(k, NULL))
            return true;
    return false;
}

int comm_task_drain(weft_comm *c, int64_t timeout_ns, const char *call)
{
    for (struct comm_task *t = c->tasks; t; t = t->next)
        if (t->ops->drain)
            return t->ops->drain(t, timeout_ns, call);
    return 0;
}

void comm_task_close_all(weft_comm *c)
{
    while (c->last_task)
        c->last_task->ops->close(c->last_task);
}

/* ---- what is described ---- */

void comm_task_list(weft_comm *c, struct comm_task *t)
{
    t->described_next = c->described;
    t->described_prev = NULL;
    if (c->described)
        c->described->described_prev = t;
    c->described = t;
}

void comm_task_unlist(weft_comm *c, struct comm_task *t)
{
    if (t->described_prev)
        t->described_prev->described_next = t->described_next;
    else if (c->described == t)
        c->described = t->described_next;
    if (t->described_next)
        t->described_next->described_prev = t->described_prev;
}

struct comm_task *comm_task_find(const weft_comm *c, uint64_t id)
{
    struct comm_task *t = c->described;
    while (t && t->id != id)
        t = t->described_next;
    return t;
}
