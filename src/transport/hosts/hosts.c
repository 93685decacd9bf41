/* The transports tcp:, ucx:, mpi: and auto:. With the first three every rank is a host of its own, and all messages go
 * over the wire; auto: finds out which ranks share a host. The ranks of a host are a group of shm: (or of self:). The
 * core of the whole group is in that group's memory and uses its bells. All memory that is allocated is the host's.
 *
 * Prefixes of hosts.c: transport_auto_, transport_mpi_, transport_tcp_, transport_ucx_. */
#include "transport/hosts/hosts.h"

#include <stdio.h>

#include "base/error.h"
#include "transport/hosts/hosts_link.h"

static struct transport_link *home(const struct transport_link *l)
{
    return l->hosts->home;
}

static int tcp_join(const struct transport_ask *ask, struct transport_link **out)
{
    return hosts_join(ask, &transport_tcp, "tcp:", true, out);
}

static int ucx_join(const struct transport_ask *ask, struct transport_link **out)
{
    return hosts_join(ask, &transport_ucx, "ucx:", true, out);
}

static int mpi_join(const struct transport_ask *ask, struct transport_link **out)
{
    char url[64];
    snprintf(url, sizeof url, "mpi:%s", ask->place);
    return hosts_join(ask, &transport_mpi, url, true, out);
}

static int auto_join(const struct transport_ask *ask, struct transport_link **out)
{
    if (ask->roster)
        return hosts_join(ask, &transport_auto, NULL, false, out);
    int err = hosts_join(ask, &transport_auto, "mpi:", false, out);
    char why[512];
    snprintf(why, sizeof why, "%s", err ? weft_errmsg() : "");
    return err ? error_set(err, "auto: there is no place to meet (WEFT_AT), and MPI cannot be used: %s", why) : 0;
}

static void hosts_leave(struct transport_link *l)
{
    if (l->inside)
        core_depart(l->group, l->rank);
    hosts_link_free((struct hosts_link *)l);
}

/* ---- memory: the host's ---- */

static void *hosts_alloc(struct transport_link *l, size_t bytes, uint64_t *place)
{
    return home(l)->transport->alloc(home(l), bytes, place);
}

static void *hosts_room(struct transport_link *l, size_t bytes, uint64_t *place)
{
    return home(l)->transport->room(home(l), bytes, place);
}

static bool hosts_back(struct transport_link *l, const void *memory, size_t bytes)
{
    return home(l)->transport->back(home(l), memory, bytes);
}

static void hosts_release(struct transport_link *l, void *memory)
{
    home(l)->transport->release(home(l), memory);
}

static bool hosts_offer(struct transport_link *l, const void *memory, size_t bytes, uint64_t *place)
{
    return home(l)->transport->offer(home(l), memory, bytes, place);
}

static void *hosts_reach(struct transport_link *l, int rank, uint64_t place)
{
    return home(l)->transport->reach(home(l), l->hosts->index[rank], place);
}

static enum transport_fate hosts_gone(struct transport_link *l, int rank)
{
    if (atomic_load_explicit(&l->group->ranks[rank].state, memory_order_seq_cst) == CORE_LEFT)
        return TRANSPORT_LEFT;
    if (!transport_elsewhere(l, rank))
        return home(l)->transport->gone(home(l), l->hosts->index[rank]);
    return l->hosts->wire->ops->gone(l->hosts->wire, rank);
}

#define HOSTS_FUNCTIONS                                                                                       \
    .split = hosts_split, .leave = hosts_leave, .alloc = hosts_alloc, .room = hosts_room, .back = hosts_back, \
    .release = hosts_release, .offer = hosts_offer, .reach = hosts_reach, .gone = hosts_gone

const struct transport transport_tcp = {.scheme = "tcp",
                                        .form = "tcp:NAME",
                                        .can = {.loads = true, .deaths = true, .wide = true, .meets = true},
                                        .join = tcp_join,
                                        HOSTS_FUNCTIONS};
const struct transport transport_ucx = {.scheme = "ucx",
                                        .form = "ucx:NAME",
                                        .can = {.loads = true, .deaths = true, .wide = true, .meets = true},
                                        .join = ucx_join,
                                        HOSTS_FUNCTIONS};
const struct transport transport_mpi = {.scheme = "mpi",
                                        .form = "mpi:",
                                        .can = {.loads = true, .sized = true, .wide = true},
                                        .join = mpi_join,
                                        HOSTS_FUNCTIONS};
const struct transport transport_auto = {.scheme = "auto",
                                         .form = "auto:NAME",
                                         .can = {.loads = true, .deaths = true, .wide = true},
                                         .join = auto_join,
                                         HOSTS_FUNCTIONS};
