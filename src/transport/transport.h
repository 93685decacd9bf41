/* What the run half needs of a transport: a group of ranks, memory that they can reach in each other, and notice of a
 * rank that is gone. What a transport can do is data (struct transport_can) that bind reads. Every function is
 * required, except those that say otherwise.
 *
 * Shared structures hold places, never pointers. A place is a number that any rank of the group turns into an address
 * of its own with `reach`: threads use the address itself, processes an offset into a mapping. The shared words on
 * which ranks meet are the same for all transports (core/core.h). */
#ifndef WEFT_TRANSPORT_TRANSPORT_H
#define WEFT_TRANSPORT_TRANSPORT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/roster.h"
#include "transport/core/core.h"

#define TRANSPORT_HUGE ((size_t)2 << 20)
#define TRANSPORT_PIECES 256             /* most pieces in one call of `read`, */
#define TRANSPORT_READ ((size_t)1 << 30) /* and most bytes */

/* The end of the error for a rank that this process opens for the second time. */
#define TRANSPORT_OPEN_HERE "in this process: use that comm, or a split of it (weft_comm_split; comm.split in Python)"

struct iovec;

struct transport_can {
    bool loads;  /* ranks load from and store to memory that their peers allocate or offer */
    bool deaths; /* `gone` also reports ranks that ended without leaving */
    bool sized;  /* the URL says how many ranks there are */
    bool wide;   /* ranks may be on several hosts */
    bool meets;  /* the ranks need a store to find each other */
    bool reads;  /* `read` reads private memory of peers, where the system permits it */
};

/* One rank's end of a group. A transport embeds it first in a struct of its own. */
struct transport_link {
    const struct transport *transport;
    struct core_group *group; /* as mapped in this process */
    int rank, size;
    int *origin; /* of a group that was split: each rank's rank in the group that was joined by its URL; otherwise NULL
                  */
    bool inside; /* peers see this rank as a member of the group */
    struct transport_hosts *hosts; /* of a group on several hosts; otherwise NULL */
};

/* The arguments of join. */
struct transport_ask {
    const char *place; /* the URL after its colon */
    int rank, size;    /* size 0: the URL or the launcher says how many ranks there are */
    int64_t wait_ns;
    int ended; /* a file of base/ended.h: when a rank has ended, the group cannot form any more; -1: none */
    /* for groups on several hosts */
    const char *host;      /* ranks with the same text are on the same host */
    const char *host_name; /* the host's name for messages; may be empty */
    uint64_t machine;      /* ranks with the same number run on the same cores */
    /* Collective: what all ranks tell each other; NULL: there is no way to do so. */
    int (*roster)(void *arg, const struct roster_ask *ask, struct roster *out);
    void *roster_arg;
    /* NULL, or asked now and then while this rank waits for the others: is it in vain to wait for that rank (-1: for
     * any of them)? Returns 0, or the error, with its text set. */
    int (*vain)(void *arg, int rank);
    void *vain_arg;
    const void *communicator; /* the caller's MPI_Comm; NULL: all ranks of the job */
    const char *modules;      /* the folder where modules are looked for first; NULL: none */
    const unsigned char *key; /* a secret of the ranks, for sockets: see wire_boot; NULL: none */
    const char *wire;         /* how auto: reaches other hosts: "tcp" or "ucx"; NULL: it chooses */
};

/* What is known of a peer. DIED is never a guess: its process has ended. LOST: it cannot be reached, and whether it
 * lives is not known. */
enum transport_fate { TRANSPORT_HERE, TRANSPORT_LEFT, TRANSPORT_DIED, TRANSPORT_LOST };

/* Is the peer gone without a farewell, or out of reach? Both fail whatever waits for it. */
static inline bool transport_failed(enum transport_fate fate)
{
    return fate == TRANSPORT_DIED || fate == TRANSPORT_LOST;
}

struct transport {
    const char *scheme; /* the URL up to its colon */
    const char *form;   /* what the transport's URLs look like, for messages */
    struct transport_can can;

    /* Joins the group that `place` names, as rank `rank`, and waits for all its ranks, at most wait_ns. Errors:
     * WEFT_EINVAL, WEFT_EBUSY (the rank or the name is taken), WEFT_EMISMATCH, WEFT_ETIMEOUT (the text names the ranks
     * that did not come), WEFT_EPEER, WEFT_ENOMEM, WEFT_ETRANSPORT. */
    int (*join)(const struct transport_ask *ask, struct transport_link **out);
    /* Makes this rank's end of a smaller group, which has `size` of the ranks of l; this rank is number `rank` of it.
     * The founder (hosts_link_founder) makes the group, or on several hosts the part of it that is on this one, and
     * sets *place; the caller hands *place to the other ranks before they call. No rank is a member before
     * hosts_link_enter. The group may outlive l. On several hosts it has no wire yet: see hosts_split_connect. Errors:
     * WEFT_ENOMEM; WEFT_EPEER when the founder has left already. */
    int (*split)(struct transport_link *l, const int *ranks, int size, int rank, uint64_t *place,
                 struct transport_link **out);
    /* Leaves and frees the link. The group and its memory are freed with the last rank. A group that was made by
     * `split` and that no rank has entered, or will enter, is freed with its founder. */
    void (*leave)(struct transport_link *l);

    /* Zeroed memory that all ranks can reach, aligned to CORE_LINE; blocks of TRANSPORT_HUGE bytes or more are aligned
     * to TRANSPORT_HUGE. NULL: memory is out. It lives until it is released or the group ends, also after the rank that
     * allocated it has left. */
    void *(*alloc)(struct transport_link *l, size_t bytes, uint64_t *place);
    /* Reserves addresses without memory: the caller must `back` each part before it touches it. The contents are
     * undefined. */
    void *(*room)(struct transport_link *l, size_t bytes, uint64_t *place);
    bool (*back)(struct transport_link *l, const void *memory, size_t bytes); /* false: memory is out */
    void (*release)(struct transport_link *l, void *memory); /* by the rank that allocated it; NULL is allowed */
    /* The place at which peers find the caller's own memory; false: they cannot reach it. */
    bool (*offer)(struct transport_link *l, const void *memory, size_t bytes, uint64_t *place);
    /* The address, in this process, of a place that `rank` has allocated or offered. */
    void *(*reach)(struct transport_link *l, int rank, uint64_t place);
    /* These three exist only where can.reads. May this rank read private memory of `rank`? */
    bool (*may_read)(struct transport_link *l, int rank);
    /* From how many bytes in one piece on a peer's `read` of this memory, the caller's own, takes less time than two
     * ordinary copies. It is measured on the memory itself. INT64_MAX: never, or the memory was not touched yet. */
    int64_t (*read_worth)(const void *memory, size_t bytes);
    /* Reads n pieces at addresses of `rank`'s private memory into pieces here of the same lengths. Errors: WEFT_EPEER
     * when the rank has ended, WEFT_ETRANSPORT with what the system says. */
    int (*read)(struct transport_link *l, int rank, const struct iovec *to, const struct iovec *from, size_t n);
    /* Has the rank left the group, or (where deaths are seen) ended without leaving, or can it not be reached? */
    enum transport_fate (*gone)(struct transport_link *l, int rank);
    /* A number that is 0 as long as no rank is gone or has given up opening a comm again, and grows when one has: a
     * caller that watches all ranks looks at each of them only then. NULL: it is not known. */
    uint64_t (*departures)(struct transport_link *l);
};

static inline int transport_in_vain(const struct transport_ask *ask)
{
    return ask->vain ? ask->vain(ask->vain_arg, -1) : 0;
}

/* ---- core/link.c ---- */

/* Peers see this rank as one of the group from here on. A group on several hosts: hosts_link_enter. */
void transport_link_enter(struct transport_link *l);
/* For ranks of l's group that are to be split from it: their ranks in the group that was opened. NULL: no memory. */
int *transport_link_origin(const struct transport_link *l, const int *ranks, int size);

extern const struct transport transport_self, transport_threads, transport_shm, transport_tcp, transport_ucx,
    transport_mpi, transport_auto;

/* ---- core/afford.c ---- */

/* Does the system, or the part of it that this process may use, have this much memory left? */
bool transport_afford(uint64_t bytes);
/* How many bytes are left. `root` is put before the names of all files of the system: empty, except in tests. */
uint64_t transport_afford_left(const char *root);

/* ---- transport.c ---- */

/* The transport of a URL, and the part of the URL after the colon; NULL, with WEFT_EINVAL set, if no transport has this
 * scheme. */
const struct transport *transport_find(const char *url, const char **place);
#endif
