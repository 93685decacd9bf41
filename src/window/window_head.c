/* The words in a window's head that a rank on this host writes for another, and the end of a window's memory. */
#include <stdlib.h>

#include "window/remote.h"
#include "window/window_device.h"

uint64_t window_head_notify(weft_window *w, int rank, uint32_t signal, enum weft_notify how, uint64_t value)
{
    struct core_group *g = w->comm->group;
    _Atomic uint64_t *word = &window_signals(w->heads[rank])[signal].value;
    if (how == WEFT_NOTIFY_SET) {
        core_signal(g, rank, word, value);
        return value;
    }
    /* seq_cst: pairs with the load in compares, and with core_arm as in core_signal. */
    uint64_t before = atomic_fetch_add_explicit(word, value, memory_order_seq_cst);
    core_ring(g, rank);
    return before + value;
}

void window_head_turn(weft_window *w, int at, int of, uint64_t value)
{
    core_signal(w->comm->group, at, &window_turns(w->heads[at])[of].value, value);
}

void window_head_end(weft_window *w)
{
    weft_comm *c = w->comm;
    struct window_head *mine = w->heads[c->rank];
    struct comm_on_device on = {NULL, NULL, window_let_go(mine)};
    if (w->device) {
        on.device = w->device->device;
        on.memory = w->device->memory;
        window_device_close(w);
        for (int r = 0; r < c->size; r++) /* release: pairs with the owner's look before it frees the memory */
            atomic_store_explicit(&window_let_go(w->heads[r])[c->rank], 1, memory_order_release);
    }
    for (int r = 0; r < c->size; r++) /* release: pairs with the owner's look before it frees the memory */
        if (w->heads[r])
            atomic_fetch_sub_explicit(&w->heads[r]->refcount, 1, memory_order_release);
    if (w->remote && w->remote->stuck) /* the wire may still write there: leak it rather than reuse it */
        free(w->deferred);
    else
        comm_deferred_add(c, w->deferred, &mine->refcount, mine, w->device ? &on : NULL);
    arena_free(&w->arena);
    free(w);
}
