/* Groups on several hosts: inside a host the ranks share memory, between hosts they have a wire. */
#ifndef WEFT_TRANSPORT_HOSTS_HOSTS_H
#define WEFT_TRANSPORT_HOSTS_HOSTS_H
#include "transport/wire/wire.h"

#define HOSTS_NAME 56 /* bytes of a host's name, with its end */

struct hosts_early; /* mail that came while this rank was still joining */

/* A group whose ranks do not all share memory. The core is then one for each host, and what happens on other hosts
 * comes to it by mail (comm/mail.c). */
struct transport_hosts {
    struct wire *wire;           /* by which ranks reach those that they share no memory with */
    struct transport_link *home; /* the group of this host's ranks */
    int *near;                   /* each rank's number in it, -1: it is on another host */
    int *host;                   /* of each rank, numbered in the order of their first ranks */
    int *firsts, nhosts;         /* the first rank of each host */
    char (*names)[HOSTS_NAME];   /* what people call each host; different ones, where not every rank is one */
    int crowd, cores; /* ranks on this machine, which may play several hosts, and cores that they have at least */
    uint64_t *told;   /* of each near rank: votes that other hosts were told of; kept by the first of them */
    uint64_t *tags_in, *tags_out; /* of each rank: tags that messages with it have taken, the same at both ends */
    struct hosts_early *early;
};

/* Does the rank share no memory with this one? */
static inline bool transport_far(const struct transport_link *l, int rank)
{
    return l->hosts && l->hosts->near[rank] < 0;
}

/* The name of its host; NULL: the group is on one. */
static inline const char *hosts_name(const struct transport_link *l, int rank)
{
    return l->hosts && l->hosts->names ? l->hosts->names[l->hosts->host[rank]] : NULL;
}

/* ---- hosts_link.c ---- */

/* Peers see this rank as one of the group from here on. For links of any transport. */
void hosts_link_enter(struct transport_link *l);
/* Which of the listed ranks makes a group of them for this rank: the first that shares memory with it. */
int hosts_link_founder(const struct transport_link *l, const int *ranks, int size);

/* ---- hosts_sleep.c ---- */

/* From here on the rank's bell, which the rank has armed, also rings when the wire brings something. False: the wire
 * has brought something already. */
bool hosts_sleep_arm(struct transport_link *l);
/* How long the rank may sleep: a wire that cannot ring the bell must be looked at now and then. */
int64_t hosts_sleep_nap(const struct transport_link *l, int64_t ns);

/* ---- hosts_early.c ---- */

/* The next mail, as the wire's fetch. Mail that came while this rank was joining comes first. */
bool hosts_early_fetch(struct transport_hosts *h, int *peer, const void **bytes, size_t *n);

/* ---- hosts_split.c ---- */

/* Opens the wire of a group that has these ranks of `of`, from which it was split. Collective over them, when all of
 * them have made the group. */
int hosts_split_connect(struct transport_link *l, const struct transport_link *of, const int *ranks,
                        const struct wire_boot *how);
#endif
