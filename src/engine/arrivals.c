/* Arrivals: which boxes of the destination are complete while a run is in flight. Each destination element is written
 * once in a run, so a step that has written its elements has completed them. The drivers call arrivals_step for each
 * step that is done. A caller learns it by a callback, or by polling. An exec without arrivals pays one branch for each
 * step. */
#include <stdlib.h>

#include "base/error.h"
#include "comm/lock.h"
#include "engine/exec.h"

struct arrivals {
    void (*arrived)(void *arg, size_t i, const weft_arrival *a);
    void *arg;
    size_t *first;         /* for each step: the number of its first box */
    size_t n;              /* boxes */
    _Atomic size_t *order; /* the numbers of the boxes, as they came in this run */
    _Atomic size_t come;   /* how many have come */
};

static struct arrivals *make(const weft_plan *p)
{
    struct arrivals *a = calloc(1, sizeof *a);
    size_t all = 0;
    if (!a || !(a->first = calloc(p->nsteps + 1, sizeof *a->first)))
        goto fail;
    for (size_t s = 0; s < p->nsteps; s++) {
        a->first[s] = all;
        all += plan_boxes_count(p, &p->steps[s]);
    }
    a->first[p->nsteps] = a->n = all;
    a->order = calloc(all + 1, sizeof *a->order);
    if (a->order)
        return a;
fail:
    arrivals_free(a);
    return NULL;
}

void arrivals_free(struct arrivals *a)
{
    if (!a)
        return;
    free(a->order);
    free(a->first);
    free(a);
}

void arrivals_reset(struct arrivals *a)
{
    atomic_store_explicit(&a->come, 0, memory_order_relaxed);
}

static void come(weft_exec *x, struct arrivals *a, uint32_t s)
{
    const struct plan_step *st = &x->plan->steps[s];
    struct plan_place at = {0};
    for (size_t i = a->first[s]; i < a->first[s + 1]; i++) {
        size_t k = atomic_load_explicit(&a->come, memory_order_relaxed);
        atomic_store_explicit(&a->order[k], i, memory_order_relaxed);
        /* Release: the box's elements and its number; pairs with the load in weft_exec_arrived. */
        atomic_store_explicit(&a->come, k + 1, memory_order_release);
        if (a->arrived) {
            weft_arrival box;
            plan_boxes_next(x->plan, st, &at, &box);
            a->arrived(a->arg, i, &box);
        }
    }
}

void arrivals_step(weft_exec *x, uint32_t s)
{
    struct arrivals *a = x->arrivals;
    if (a->first[s] == a->first[s + 1])
        return;
    comm_callback(x->comm, true);
    come(x, a, s);
    comm_callback(x->comm, false);
}

static int watch(weft_exec *x, void (*arrived)(void *arg, size_t i, const weft_arrival *a), void *arg)
{
    if (exec_in_flight(x))
        return error_set(WEFT_EBUSY, "weft_exec_on_arrival: the exec is in flight");
    if (!x->arrivals)
        x->arrivals = make(x->plan);
    if (!x->arrivals)
        return error_nomem();
    x->arrivals->arrived = arrived;
    x->arrivals->arg = arg;
    return 0;
}

int weft_exec_on_arrival(weft_exec *x, void (*arrived)(void *arg, size_t i, const weft_arrival *a), void *arg)
{
    if (!x)
        return error_set(WEFT_EINVAL, "weft_exec_on_arrival: the exec is NULL");
    for (size_t i = 0; x->quantise && i < x->plan->scales->n; i++)
        if (x->plan->scales->v[i].back)
            return error_set(
                WEFT_EUNSUPPORTED,
                "weft_exec_on_arrival: the destination is multiplied by its scales when all of it has come");
    struct comm_family *f = comm_enter(x->comm);
    int err = watch(x, arrived, arg);
    comm_leave(f);
    return err;
}

int weft_exec_arrived(const weft_exec *x, size_t *out, size_t cap, size_t *n)
{
    if (!x || !n || (cap && !out))
        return error_set(WEFT_EINVAL, "weft_exec_arrived: arguments must not be NULL");
    if (!x->arrivals)
        return error_set(WEFT_EINVAL, "weft_exec_arrived: arrivals are not watched: call weft_exec_on_arrival first");
    *n = atomic_load_explicit(&x->arrivals->come, memory_order_acquire);
    for (size_t k = 0; k < *n && k < cap; k++)
        out[k] = atomic_load_explicit(&x->arrivals->order[k], memory_order_relaxed);
    return 0;
}
