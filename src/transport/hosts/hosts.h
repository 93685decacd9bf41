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

/* From here on the rank's bell, which it has armed, rings also when something comes by the wire. False: something has.
 */
bool hosts_listen(struct transport_link *l);
/* How long it may sleep: a wire that cannot be listened to is looked at now and then. */
int64_t hosts_nap(const struct transport_link *l, int64_t ns);

/* Opens the wire of a group that was split from `of`, of which it has these ranks. Collective over them; all have made
 * the group. */
int hosts_connect(struct transport_link *l, const struct transport_link *of, const int *ranks,
                  const struct wire_boot *how);

/* The next mail of the wire, those first that came early; as the wire's fetch. */
bool hosts_fetch(struct transport_hosts *h, int *peer, const void **bytes, size_t *n);
#endif
