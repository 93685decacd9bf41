/* What the run half needs of a transport: a group of ranks, memory that they can reach in each
 * other, and word of a rank that is gone. What a transport can do is data (struct transport_can)
 * that bind reads; every function is required.
 *
 * Shared structures hold places, never pointers. A place is a number that any rank of the group
 * turns into an address of its own with `reach`: threads use the address itself, processes an
 * offset into a mapping. The words that ranks meet on are the same for all of them (core.h). */
#ifndef WEFT_TRANSPORT_TRANSPORT_H
#define WEFT_TRANSPORT_TRANSPORT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transport/core/core.h"

#define TRANSPORT_HUGE ((size_t)2 << 20)
#define TRANSPORT_PIECES 256
#define TRANSPORT_CROSS ((size_t)1 << 30)

struct iovec;

struct transport_can {
    bool loads;   /* ranks load from and store to what their peers allocate or offer */
    bool deaths;  /* `gone` also knows ranks that ended without leaving */
    bool sized;   /* the URL says how many ranks there are */
    bool wide;    /* ranks may be on several hosts */
    bool meets;   /* and need a store to find each other */
    bool crosses; /* `cross` reads what peers have not offered, where the system lets it */
};

/* One rank's end of a group. A transport embeds it first in a struct of its own. */
struct transport_link {
    const struct transport *transport;
    struct core_group *group; /* mapped here */
    int rank, size;
    int *origin; /* of a group that was split: each rank's rank in the one that was joined by its URL; else NULL */
    bool inside; /* peers see this rank as one of the group */
    struct transport_hosts *hosts; /* of a group on several hosts; else NULL */
};

/* What join is to do. */
struct transport_ask {
    const char *place; /* the URL after its colon */
    int rank, size;    /* size 0: only the URL, or the launcher, says how many */
    int64_t wait_ns;
    /* for groups on several hosts */
    const char *host;      /* who says the same is on the same host */
    const char *host_name; /* what people call it; maybe empty */
    uint64_t machine;      /* and this, on the same cores */
    /* Gives every rank's bytes to all of them; NULL: no way to do so. The wire says more (wire.h). */
    int (*gather)(void *arg, const void *mine, size_t bytes, void *all);
    void *gather_arg;
    const void *communicator; /* the caller's MPI_Comm; NULL: all ranks of the job */
    const char *modules;      /* folder in which modules are looked for first; NULL: none */
    const char *wire;         /* by which auto: is to reach other hosts: "tcp" or "ucx"; NULL: it chooses */
};

enum transport_fate { TRANSPORT_HERE, TRANSPORT_LEFT, TRANSPORT_DIED };

struct transport {
    const char *scheme; /* the URL up to its colon */
    const char *form;   /* how such a URL looks, for people */
    struct transport_can can;

    /* Joins the group that `place` names as rank `rank` and waits for all its ranks, at most wait_ns. Errors:
     * WEFT_EINVAL, WEFT_EBUSY (the rank or the name is taken), WEFT_EMISMATCH, WEFT_ETIMEOUT (the text names the ranks
     * that did not come), WEFT_EPEER, WEFT_ENOMEM, WEFT_ETRANSPORT. */
    int (*join)(const struct transport_ask *ask, struct transport_link **out);
    /* This rank's end of a smaller group: `size` of the ranks of l's, of which this is number `rank`. The founder
     * (hosts_link_founder) makes the group, on several hosts what it needs on this one, and sets *place; the others get
     * it from there. Nobody is inside before hosts_link_enter. It may outlive l. A group on several hosts has no wire
     * yet: hosts_split_connect. Errors: WEFT_ENOMEM; WEFT_EPEER when the founder has left already. */
    int (*split)(struct transport_link *l, const int *ranks, int size, int rank, uint64_t *place,
                 struct transport_link **out);
    /* Leaves and frees the link. The group and its memory go with the last rank. Where nobody has gone inside and
     * nobody will, a group of `split` goes with its founder. */
    void (*leave)(struct transport_link *l);

    /* Zeroed memory that all ranks can reach, aligned to CORE_LINE, from TRANSPORT_HUGE bytes on to that; NULL when
     * memory is out. It lives until it is released or the group ends, also after the rank that allocated it has left.
     */
    void *(*alloc)(struct transport_link *l, size_t bytes, uint64_t *place);
    /* The same without the memory: addresses of which each part is backed before it is touched. What is in it is not
     * defined. */
    void *(*room)(struct transport_link *l, size_t bytes, uint64_t *place);
    bool (*back)(struct transport_link *l, const void *memory, size_t bytes); /* false: memory is out */
    void (*release)(struct transport_link *l, void *memory); /* by the rank that allocated it; NULL is fine */
    /* Where peers find memory of the caller's own; false: they cannot reach it. */
    bool (*offer)(struct transport_link *l, const void *memory, size_t bytes, uint64_t *place);
    /* The address here of a place that `rank` allocated or offered. */
    void *(*reach)(struct transport_link *l, int rank, uint64_t place);
    /* Is this rank permitted to `cross` out of that one's own memory? This and the next two only where can.crosses. */
    bool (*crosses)(struct transport_link *l, int rank);
    /* The least bytes in one piece with which a peer's `cross` out of this memory, the caller's own, takes less time
     * than two copies of its would, measured on what is there; INT64_MAX: it never does, or nothing is there yet. */
    int64_t (*worth)(struct transport_link *l, const void *memory, size_t bytes);
    /* Reads n pieces, at most TRANSPORT_PIECES, at addresses of `rank`'s own memory into pieces here of the same
     * lengths, of TRANSPORT_CROSS bytes at most together. Errors: WEFT_EPEER when it has ended, WEFT_ETRANSPORT, with
     * what the system says. Who reads must make sure afterwards that the rank was not gone meanwhile: its number may be
     * another process's then. */
    int (*cross)(struct transport_link *l, int rank, const struct iovec *to, const struct iovec *from, size_t n);
    /* Has the rank left the group, or (where deaths are seen) ended without leaving? */
    enum transport_fate (*gone)(struct transport_link *l, int rank);
};

/* ---- core/link.c ---- */

/* Peers see this rank as one of the group from here on. A group on several hosts: hosts_link_enter. */
void transport_link_enter(struct transport_link *l);
/* The ranks of a group to be split from l's, as they are in the one that was opened; NULL: no memory. */
int *transport_link_origin(const struct transport_link *l, const int *ranks, int size);

extern const struct transport transport_self, transport_threads, transport_shm, transport_tcp, transport_ucx,
    transport_mpi, transport_auto;

/* ---- core/afford.c ---- */

/* Has the system, or the part of it that this process may use, that much memory left? */
bool transport_afford(uint64_t bytes);

/* ---- transport.c ---- */

/* The transport of a URL, and the part of the URL after the colon; NULL (WEFT_EINVAL is set) for none. */
const struct transport *transport_find(const char *url, const char **place);
#endif
