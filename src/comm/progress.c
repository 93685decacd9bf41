/* Progress: one pass over what a comm and its siblings have in flight. */
#include "comm/task.h"

static __attribute__((noinline)) bool fail_task(weft_comm *c, struct comm_task *t)
{
    if (t->failed)
        return false;
    flight_failed(c); /* before the tasks that are in flight end */
    t->failed = true;
    if (t->ops->fail)
        t->ops->fail(t);
    return true;
}

/* The comm remembers the next task of the walk, so that a task may remove itself or any other. The walk checks for a
 * failure before it passes each task: peers that have failed may have freed their memory. */
static inline __attribute__((always_inline)) bool pass(weft_comm *c, bool idle)
{
    struct core_rank *me = c->me;
    bool moved = false;
    /* Relaxed: peers only check whether the pulse changes. */
    atomic_store_explicit(&me->pulse, atomic_load_explicit(&me->pulse, memory_order_relaxed) + 1, memory_order_relaxed);
    for (struct comm_task *t = c->tasks; t; t = c->task_at) {
        c->task_at = t->next;
        moved |= core_failed(c->group) ? fail_task(c, t) : t->ops->pass(t, idle);
    }
    return moved;
}

/* A callback may free what is in flight and close comms. It may not close the comm whose siblings are walked, since the
 * caller is in a call on it. */
static __attribute__((noinline)) bool pass_siblings(weft_comm *c, bool idle)
{
    bool moved = false;
    for (weft_comm *k = c->sibling, *next; k != c; k = next) {
        if (!k->tasks) {
            next = k->sibling;
            continue;
        }
        comm_hold(k);
        moved |= pass(k, idle);
        next = k->sibling;
        comm_drop(k);
    }
    return moved;
}

bool comm_progress(weft_comm *c, bool idle)
{
    bool moved = pass(c, idle);
    if (c->sibling != c)
        moved |= pass_siblings(c, idle);
    return moved;
}
