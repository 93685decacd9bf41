/* Groups that are split from a group on several hosts. If all ranks of the new group are on one host, it is split from
 * that host's group. Otherwise it is like the group that it was split from: the ranks of each host are a group of that
 * host, the core of the whole group is in that group's memory, and it has a wire of its own. So a failure in one group,
 * which may end connections, does not touch the others. */
#include <stdlib.h>

#include "base/error.h"
#include "transport/hosts/hosts_link.h"

/* What the first rank of each host makes: first the place of the host's group, then the core of the whole group. */
struct ground {
    _Alignas(CORE_LINE) uint64_t home;
};

static struct core_group *core_on(struct ground *g)
{
    return (struct core_group *)(void *)(g + 1);
}

/* Numbers hosts in the order of their first ranks in the list. */
static int sort_out(struct hosts_link *k, const struct transport_hosts *of, const int *ranks, int size)
{
    struct transport_hosts *h = &k->hosts;
    int *host = malloc(3 * (size_t)size * sizeof *host), *index = host + size, *firsts = index + size;
    int *number = malloc((size_t)of->nhosts * sizeof *number), *n = calloc((size_t)of->nhosts, sizeof *n);
    if (!host || !number || !n) {
        free(host);
        free(number);
        free(n);
        return error_nomem();
    }
    h->crowd = of->crowd;
    for (int r = 0; r < size; r++) {
        int was = of->host[ranks[r]];
        if (n[was] == 0) {
            number[was] = h->nhosts;
            firsts[h->nhosts++] = r;
        }
        host[r] = number[was];
        index[r] = n[was]++;
    }
    free(number);
    free(n);
    h->here = host[k->base.rank];
    h->host = host;
    h->index = index;
    h->firsts = firsts;
    k->roster = (struct roster){.all = host, .drop = roster_drop_own};
    return 0;
}

/* The listed ranks that are on this host, by their numbers in the host's group; *n says how many. NULL: no memory. */
static int *near_ones(const struct transport_hosts *of, const int *ranks, int size, int *n)
{
    int *list = malloc((size_t)size * sizeof *list);
    *n = 0;
    for (int r = 0; r < size && list; r++)
        if (of->host[ranks[r]] == of->here)
            list[(*n)++] = of->index[ranks[r]];
    return list;
}

/* Splits a group of this host alone. Messages name its ranks by their ranks in the group that was opened. */
static int split_home(struct transport_link *l, const int *ranks, const int *near, int size, int rank, uint64_t *place,
                      struct transport_link **out)
{
    struct transport_link *home = l->hosts->home;
    int *origin = transport_link_origin(l, ranks, size);
    int err = origin ? home->transport->split(home, near, size, rank, place, out) : error_nomem();
    if (err) {
        free(origin);
        return err;
    }
    free((*out)->origin);
    (*out)->origin = origin;
    return 0;
}

static int make_ground(struct hosts_link *k, uint64_t home_place, uint64_t *place)
{
    struct transport_hosts *h = &k->hosts;
    int size = k->base.size;
    struct ground *g = h->home->transport->alloc(h->home, sizeof *g + core_bytes(size), place);
    if (!g)
        return error_set(WEFT_ENOMEM, "no memory for the control words of %d ranks", size);
    g->home = home_place;
    k->base.group = core_on(g);
    int *near = hosts_link_near(h, size);
    if (!near)
        return error_nomem();
    core_init_split(k->base.group, h->home->group, near, size);
    free(near);
    return 0;
}

int hosts_split(struct transport_link *l, const int *ranks, int size, int rank, uint64_t *place,
                struct transport_link **out)
{
    struct transport_link *home = l->hosts->home;
    int nnear, *near = near_ones(l->hosts, ranks, size, &nnear);
    if (!near)
        return error_nomem();
    if (nnear == size) {
        int err = split_home(l, ranks, near, size, rank, place, out);
        free(near);
        return err;
    }
    struct hosts_link *k = calloc(1, sizeof *k);
    int err = k ? 0 : error_nomem();
    if (err)
        goto out;
    k->events = k->stop = -1;
    k->base = (struct transport_link){.transport = l->transport, .rank = rank, .size = size, .hosts = &k->hosts};
    k->base.origin = transport_link_origin(l, ranks, size);
    err = k->base.origin ? hosts_link_tags(&k->hosts, size) : error_nomem();
    if (!err)
        err = sort_out(k, l->hosts, ranks, size);
    if (err)
        goto out;
    int first = hosts_link_founder(l, ranks, size);
    uint64_t home_place = 0;
    struct ground *g = first == rank ? NULL : home->transport->reach(home, near[0], *place);
    if (g)
        home_place = g->home;
    err = home->transport->split(home, near, nnear, k->hosts.index[rank], &home_place, &k->hosts.home);
    if (!err && !g)
        err = make_ground(k, home_place, place);
    else if (!err)
        k->base.group = core_on(g);
out:
    free(near);
    if (err && k)
        hosts_link_free(k);
    else if (!err)
        *out = &k->base;
    return err;
}

int hosts_split_connect(struct transport_link *base, const struct transport_link *of, const int *ranks,
                        const struct wire_boot *how)
{
    struct hosts_link *l = (struct hosts_link *)base;
    struct wire *parent = of->hosts->wire;
    int err = parent->ops->split(parent, ranks, how, &l->hosts.wire);
    return err ? err : hosts_sleep_post(l);
}
