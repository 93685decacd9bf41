/* Deferred frees: shared memory that its owner is done with while peers may still look at it. */
#include <stdlib.h>

#include "comm/comm.h"

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
        c->transport->release(c->link, d->memory);
        free(d);
    }
}

void comm_deferred_add(weft_comm *c, struct comm_deferred *d, const _Atomic uint32_t *refcount, void *memory)
{
    *d = (struct comm_deferred){.next = c->deferred, .refcount = refcount, .memory = memory};
    c->deferred = d;
    sweep(c);
}

void comm_deferred_close(weft_comm *c)
{
    sweep(c);
    while (c->deferred) {
        struct comm_deferred *d = c->deferred;
        c->deferred = d->next;
        free(d);
    }
}
