/* Leaving a group. Any rank of the group may still look at memory that another one has taken of the file. So this
 * memory stays until all ranks have left the group. Each rank gives back its own when it finds that they have
 * (shm_leave_sweep), and says that it is settled. The core of a split group is given back last, by the rank that made
 * it, when all ranks are settled. The rank unmaps the file when it has left its last group. */
#include <stdlib.h>
#include <unistd.h>

#include "base/forks.h"
#include "transport/shm/shm.h"

static void drop(struct shm_link *l)
{
    free(l->base.origin);
    free(l->process);
    free(l->used.item);
    forks_close(l->claim);
    free(l);
}

static void give_back(struct shm_link *l, uint64_t but)
{
    for (size_t i = l->used.n; i > 0; i--)
        if (l->used.item[i - 1].at != but)
            shm_heap_give(l, l->used.item[i - 1].at);
}

void shm_leave_free(struct shm_link *l)
{
    struct shm_home *h = l->home;
    if (h && --h->links == 0) {
        while (h->left) {
            struct shm_link *next = h->left->next;
            drop(h->left);
            h->left = next;
        }
        shm_file_unmap(l);
        for (int r = 0; h->pidfd && r < h->ranks; r++)
            if (h->pidfd[r] >= 0)
                close(h->pidfd[r]);
        free(h->pidfd);
        free(h->small.item);
        free(h->large.item);
        free(h);
    }
    drop(l);
}

static _Atomic uint32_t *state_of(const struct shm_link *l, int rank)
{
    return &l->base.group->ranks[rank].state;
}

static bool all_left(struct shm_link *l)
{
    for (int r = 0; r < l->base.size; r++)
        if (r != l->base.rank && !l->base.transport->gone(&l->base, r))
            return false;
    return true;
}

static bool all_settled(struct shm_link *l)
{
    for (int r = 0; r < l->base.size; r++)
        /* Acquire: pairs with the store in settle. That rank's last accesses to the core come before the store. */
        if (r != l->base.rank && atomic_load_explicit(state_of(l, r), memory_order_acquire) != CORE_SETTLED &&
            !shm_process_died(l, r))
            return false;
    return true;
}

/* True: no part of the file is the link's any more. */
static bool settle(struct shm_link *l)
{
    if (!l->settled && !all_left(l))
        return false;
    if (!l->settled) {
        give_back(l, l->core);
        l->settled = true;
        /* Release: this is the rank's last access to the group, unless it has made the group. */
        atomic_store_explicit(state_of(l, l->base.rank), CORE_SETTLED, memory_order_release);
    }
    if (l->core && !all_settled(l))
        return false;
    give_back(l, 0);
    return true;
}

void shm_leave_sweep(struct shm_home *home)
{
    for (struct shm_link **at = &home->left; *at;) {
        struct shm_link *l = *at;
        if (!settle(l)) {
            at = &l->next;
            continue;
        }
        *at = l->next;
        drop(l);
    }
}

void shm_leave(struct transport_link *base)
{
    struct shm_link *l = (struct shm_link *)base;
    struct shm_home *h = l->home;
    if (!base->inside) /* no other rank has looked at its memory, or will */
        give_back(l, 0);
    else
        core_depart(base->group, base->rank);
    if (!base->inside || h->links == 1) {
        shm_leave_free(l);
        return;
    }
    h->links--;
    forks_close(l->claim);
    l->claim = -1;
    l->next = h->left;
    h->left = l;
    shm_leave_sweep(h);
}
