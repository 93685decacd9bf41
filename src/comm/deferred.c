/* Deferred frees: shared memory that its owner is done with while peers may still look at it. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <time.h>

#include "comm/comm.h"
#include "device/device.h"

#define LOOK_NS 1000000 /* between two looks at memory of a device that peers have */

static void drop_device(struct comm_deferred *d)
{
    if (!d->device)
        return;
    d->device->ops->free(d->device, d->on_device);
    d->device->ops->close(d->device);
}

static void sweep(weft_comm *c)
{
    for (struct comm_deferred **at = &c->deferred; *at;) {
        struct comm_deferred *d = *at;
        /* Acquire: pairs with the release of the last peer, which does not look at the memory after it. */
        if (atomic_load_explicit(d->refcount, memory_order_acquire)) {
            at = &d->next;
            continue;
        }
        *at = d->next;
        drop_device(d);
        c->transport->release(c->link, d->memory);
        free(d);
    }
}

static bool has_device(const weft_comm *c)
{
    for (const struct comm_deferred *d = c->deferred; d; d = d->next)
        if (d->device)
            return true;
    return false;
}

/* Has each other rank let go of all memory, or is it gone? */
static bool all_let_go(const weft_comm *c)
{
    for (const struct comm_deferred *d = c->deferred; d; d = d->next)
        for (int r = 0; r < c->size && d->device; r++)
            if (r != c->rank && !atomic_load_explicit(&d->let_go[r], memory_order_acquire) &&
                c->transport->gone(c->link, r) == TRANSPORT_HERE)
                return false;
    return true;
}

void comm_deferred_add(weft_comm *c, struct comm_deferred *d, const _Atomic uint32_t *refcount, void *memory,
                       const struct comm_on_device *on)
{
    *d = (struct comm_deferred){.next = c->deferred, .refcount = refcount, .memory = memory};
    if (on) {
        d->device = on->device;
        d->on_device = on->memory;
        d->let_go = on->let_go;
    }
    c->deferred = d;
    sweep(c);
}

void comm_deferred_close(weft_comm *c)
{
    sweep(c);
    const int64_t until = core_now() + c->deadline_ns;
    bool ended = false;
    while (has_device(c) && !ended && core_now() < until) {
        ended = all_let_go(c);
        if (!ended)
            nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
        sweep(c);
    }
    while (c->deferred) {
        struct comm_deferred *d = c->deferred;
        c->deferred = d->next;
        if (ended)
            drop_device(d);
        free(d);
    }
}
