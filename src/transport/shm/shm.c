/* The transport shm:NAME: joining, and memory that all ranks reach. */
#define _GNU_SOURCE
#include "transport/shm/shm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* ---- joining ---- */

static struct shm_home *home_new(int size)
{
    struct shm_home *h = calloc(1, sizeof *h);
    if (!h)
        return NULL;
    h->ranks = size;
    h->file = -1;
    h->links = 1;
    return h;
}

static int shm_join(const struct transport_ask *ask, struct transport_link **out)
{
    const char *place = ask->place;
    int rank = ask->rank, size = ask->size;
    if (strlen(place) > SHM_NAME)
        return error_set(WEFT_EINVAL, "shm:%s: the name has more than %d letters", place, SHM_NAME);
    if (!*place)
        return error_set(WEFT_EINVAL, "shm: has no name here; weft run makes one for the ranks that it starts");
    if (size < 1)
        return error_set(WEFT_EINVAL,
                         "shm:%s: the number of ranks is not known: set ranks and rank, or start with weft run", place);
    if (size > SHM_RANKS)
        return error_set(WEFT_EUNSUPPORTED, "shm:%s: at most %d ranks, not %d", place, SHM_RANKS, size);
    if (rank < 0 || rank >= size)
        return error_set(WEFT_EINVAL, "shm:%s: there is no rank %d among %d", place, rank, size);
    struct shm_link *l = calloc(1, sizeof *l);
    if (!l)
        return error_nomem();
    l->base = (struct transport_link){.transport = &transport_shm, .rank = rank, .size = size};
    l->claim = -1;
    l->ended = ask->ended;
    snprintf(l->name, sizeof l->name, "%s", place);
    l->home = home_new(size);
    int err = l->home ? shm_meet(l, ask) : error_nomem();
    if (err)
        shm_leave_free(l);
    else
        *out = &l->base;
    return err;
}

/* ---- memory ---- */

static void *shm_room(struct transport_link *base, size_t bytes, uint64_t *place)
{
    struct shm_link *l = (struct shm_link *)base;
    shm_leave_sweep(l->home);
    *place = shm_heap_take(l, bytes);
    return *place ? l->home->map + *place : NULL;
}

static bool shm_back(struct transport_link *base, const void *memory, size_t bytes)
{
    struct shm_link *l = (struct shm_link *)base;
    return shm_heap_back(l, (uint64_t)((const char *)memory - l->home->map), bytes);
}

static void shm_release(struct transport_link *base, void *memory)
{
    struct shm_link *l = (struct shm_link *)base;
    if (memory)
        shm_heap_give(l, (uint64_t)((char *)memory - l->home->map));
}

static void *shm_alloc(struct transport_link *base, size_t bytes, uint64_t *place)
{
    char *memory = shm_room(base, bytes, place);
    if (memory && !shm_back(base, memory, bytes)) {
        shm_release(base, memory);
        return NULL;
    }
    if (memory && shm_heap_small(bytes))
        memset(memory, 0,
               bytes); /* it may have been used before; a large block is a hole in the file, which reads as zeros */
    return memory;
}

static bool shm_offer(struct transport_link *base, const void *memory, size_t bytes, uint64_t *place)
{
    struct shm_link *l = (struct shm_link *)base;
    uint64_t at = (uint64_t)((uintptr_t)memory - (uintptr_t)l->home->map);
    if (at >= l->home->head->total || bytes > l->home->head->total - at)
        return false;
    *place = at;
    return true;
}

static void *shm_reach(struct transport_link *base, int rank, uint64_t place)
{
    (void)rank;
    return ((struct shm_link *)base)->home->map + place;
}

static enum transport_fate shm_gone(struct transport_link *base, int rank)
{
    const _Atomic uint32_t *state = &base->group->ranks[rank].state;
    if (atomic_load_explicit(state, memory_order_seq_cst) >= CORE_LEFT)
        return TRANSPORT_LEFT;
    if (!shm_process_died((struct shm_link *)base, rank))
        return TRANSPORT_HERE;
    /* It may have left just before it ended. */
    return atomic_load_explicit(state, memory_order_seq_cst) >= CORE_LEFT ? TRANSPORT_LEFT : TRANSPORT_DIED;
}

static uint64_t shm_departures(struct transport_link *base)
{
    return atomic_load_explicit(&base->group->departures, memory_order_seq_cst) +
           shm_process_deaths((struct shm_link *)base);
}

const struct transport transport_shm = {.scheme = "shm",
                                        .form = "shm:NAME",
                                        .can = {.loads = true, .deaths = true, .reads = true},
                                        .join = shm_join,
                                        .split = shm_split,
                                        .leave = shm_leave,
                                        .alloc = shm_alloc,
                                        .room = shm_room,
                                        .back = shm_back,
                                        .release = shm_release,
                                        .offer = shm_offer,
                                        .reach = shm_reach,
                                        .may_read = shm_read_permitted,
                                        .read_worth = shm_read_worth,
                                        .read = shm_read,
                                        .gone = shm_gone,
                                        .departures = shm_departures};
