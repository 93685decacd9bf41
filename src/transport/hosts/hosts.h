/* Groups on several hosts: ranks of one host share memory, ranks of different hosts use a wire. */
#ifndef WEFT_TRANSPORT_HOSTS_HOSTS_H
#define WEFT_TRANSPORT_HOSTS_HOSTS_H
#include "transport/wire/wire.h"

#define HOSTS_NAME 56 /* bytes of a host's name, with the closing zero */

struct hosts_early; /* mail that came while this rank was still joining */

/* A group whose ranks do not all share memory. Each host has a core of its own, which learns by mail what happens on
 * other hosts (comm/mail.c). */
struct transport_hosts {
    struct wire *wire;           /* to ranks on other hosts */
    struct transport_link *home; /* the group of this host's ranks */
    /* The ranks of a host share these; hosts are numbered in the order of their first ranks. */
    const int *host;                 /* each rank's host */
    const int *index;                /* each rank's number among the ranks of its host: the one that it has in `home` */
    const int *firsts;               /* the first rank of each host */
    int nhosts, here;                /* here: this rank's host */
    const char (*names)[HOSTS_NAME]; /* of the hosts, for messages; all different, unless every rank is a host of its
                                        own; NULL: not known */
    /* How many ranks are on this machine, which may play several hosts, and how many cores they have at least. */
    int crowd, cores;
    /* For each rank: how many tags its messages have used; the same at both ends. Of zeroed memory, which the system
     * provides when a peer's is first used. */
    uint64_t *tags_in, *tags_out;
    struct hosts_early *early;
};

/* Is the rank on another host? */
static inline bool transport_elsewhere(const struct transport_link *l, int rank)
{
    return l->hosts && l->hosts->host[rank] != l->hosts->here;
}

/* The name of the rank's host; NULL: the group is on one host. */
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
