/* The relay of a host: one process of the host pulls what its readers need of a set from other hosts, into memory that
 * all readers of the host map, and gives it to relays of other hosts. So each byte crosses to a host once, and the
 * publisher's link carries the set about once.
 *
 * The first reader of a host that needs data of another one puts the record readers/HOST/relay, and its process is the
 * relay as long as it has a subscriber of the set. If it dies, its record goes with its lease, and another one follows.
 * Readers that cannot use the relay (it has gone, it is of another user, or it is busy with another version) pull for
 * themselves.
 *
 * A relay has one version at a time. It goes to another one when no reader of its host holds the one it has. Its memory
 * is a file for each rank of the publisher, in the form of that rank's snapshot; only the blocks that were asked for
 * take memory. Behind the data a byte for each block says whether it is there:
 *
 *   relay    (new version) snapshot_begin, all bytes 0, snapshot_end: the generation is even before any data changes
 *            stores of a block, check of its digest, byte = 1 (release)
 *   reader   byte == 1 (acquire), loads of the block, and last of all the generation, as in snapshot.h
 *
 * A reader that sees the byte sees the block (release, acquire). A reader of the version before, whose loads see stores
 * of the new one, sees the odd generation or a later one: these stores stand behind the fence W1 of snapshot_begin, as
 * those of a publisher do, and the argument of snapshot.h holds. On AArch64 the byte's store is "stlrb" and its load
 * "ldarb". Peers are served by threads of the relay, which are counted (`busy`): the memory goes to another version
 * only when there are none, so they need no generation.
 *
 * If the memory has the version before, the relay asks for deltas, and keeps them for peers that have the same base.
 * The digest of the base was checked, and that of the new version follows from it and from the elements that change. A
 * block whose delta does not give the new digest is asked for whole. So is one of which a reader, which sums all bytes
 * that it reads, says that it is wrong (PART_LINK_WRONG), if all of its bytes do not give the digest here, either.
 *
 *     bus_relay.c        versions, parts, readers of this host, peers that ask
 *     bus_relay_pull.c   threads that pull */
#ifndef WEFT_VERSION_BUS_RELAY_H
#define WEFT_VERSION_BUS_RELAY_H
#include "base/error.h"
#include "base/math.h"
#include "base/vec.h"
#include "version/bus.h"
#include "version/catalog.h"
#include "version/part_blocks.h"
#include "version/part_client.h"
#include "version/snapshot.h"

#define BUS_RELAY_PUBLISHERS 4 /* threads that pull from publishers, at most; with fewer cores as many as these, */
#define BUS_RELAY_FEWEST 2     /* but not fewer than that: one waits for a reply while the other stores one */
#define BUS_RELAY_PEERS 3      /* threads that pull from peers: each has every third run of blocks */
#define BUS_RELAY_RUN 8        /* consecutive blocks that one of these takes */
/* A reply has at most that part of what is wanted, so that hosts soon have blocks for each other. */
#define BUS_RELAY_SHARE 128
#define BUS_RELAY_PAUSE_NS INT64_C(10000000)

enum bus_relay_state { BUS_RELAY_NONE, BUS_RELAY_WANTED, BUS_RELAY_STORING, BUS_RELAY_PRESENT };

/* What the relay has of one rank of the publisher. */
struct bus_relay_part {
    struct part_client_of of;
    struct schema_part places;
    struct snapshot file;
    uint64_t generation;
    bool begun;               /* the digests are those of this version */
    uint64_t *digests, *was;  /* was: those of the base */
    _Atomic uint8_t *present; /* in the file: for each block */
    uint8_t *state;           /* enum bus_relay_state, for each block */
    bool *taken, *based;      /* for each block: it has memory; which has the block of the base */
    size_t missing, nbased;   /* blocks that are wanted and not there; of those, with a base */
    struct part_blocks_delta *deltas;
    struct part_blocks_given given;
    struct catalog_slot slot; /* of the publisher's rank */
    bool slot_dead;           /* it cannot be reached; slot.job empty: it has gone */
};

struct bus_relay_peer {
    struct catalog_slot slot;
    bool bad; /* it has gone, or has lied */
    int busy; /* threads of this relay that take from it */
};

struct bus_relay {
    struct list node; /* of the bus */
    weft_bus *bus;
    int subscribers;
    bool delta;
    int64_t revision; /* of its record */
    uint64_t who;
    struct part_server_source source;
    pthread_mutex_t setup; /* going to a version, taking memory; before the lock */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by both locks, for writing: */
    weft_epoch_step version, base; /* epoch 0: none */
    struct schema *schema;
    int ranks;
    struct bus_relay_part **parts; /* by rank; NULL: not asked for yet */
    /* guarded by the lock: */
    int64_t round;    /* counts versions */
    int users;        /* readers of this host that hold the version */
    int busy;         /* threads at the memory */
    bool turning;     /* a turn to another version waits for them: no other thread comes to the memory */
    int workers;      /* threads that pull and have not ended */
    int pullers;      /* those of them that pull from publishers, at most */
    unsigned running; /* bits of those that look for more */
    bool stops;
    int error; /* of this round; 0: none */
    char text[ERROR_TEXT];
    int64_t progress, slowest; /* when a block came last without insisting; the longest time of a TAKE */
    VEC(struct bus_relay_peer *) peers;
    int64_t viewed; /* when the peers were looked up */
    /* How often something came that a thread may take, or somebody to take it from: a thread that has nothing to take
     * looks again then, otherwise after `idle_ns`. */
    int64_t news, idle_ns;
    int fds[BUS_RELAY_PUBLISHERS + BUS_RELAY_PEERS];
};

/* The relay of a set in this process, if the host has no other one: `slot` is how the host's relay is reached. c: what
 * the directory says. *mine becomes the relay if it is in this process, with one subscriber more if it was NULL. */
int bus_relay_find(weft_bus *b, const char *set, const struct catalog *c, bool delta, int64_t until,
                   struct bus_relay **mine, struct catalog_slot *slot);
void bus_relay_leave(struct bus_relay *r); /* one subscriber less; NULL is allowed */

/* The memory of a part, for a reader of this process, which has no other mapping of it. The version is held until
 * bus_relay_return, also if the server ends the reader's connection meanwhile. */
int bus_relay_borrow(struct bus_relay *r, const struct part_client_of *of, uint64_t generation, struct snapshot *out);
void bus_relay_return(struct bus_relay *r); /* once for each that was borrowed */

/* How many threads pull from publishers on a host with `cores` cores. */
static inline int bus_relay_pullers(int64_t cores)
{
    return (int)max64(BUS_RELAY_FEWEST, min64(cores, BUS_RELAY_PUBLISHERS));
}
/* Which of them takes a block: each has ranks of the publisher of its own. Of a single rank, each has runs of blocks.
 */
static inline int bus_relay_puller(int pullers, int ranks, int rank, size_t block)
{
    return (int)((ranks > 1 ? (size_t)rank : block / BUS_RELAY_RUN) % (size_t)pullers);
}

uint64_t bus_relay_who(const char *host); /* a host, as part_link.h names it */
/* Brings the list of peers and the publishers' slots up to date. */
int bus_relay_view(struct bus_relay *r, const struct catalog *c);
/* Stores a block that came in round `round`. `based`: a delta was asked for. False: it is not what the digest says.
 * The caller wakes those who wait for blocks (`changed`), once for all blocks of a reply. */
bool bus_relay_store(struct bus_relay *r, struct bus_relay_part *p, int64_t round, size_t block,
                     const unsigned char *bytes, size_t n, bool based);
void bus_relay_fail(struct bus_relay *r, int64_t round, int err); /* with the text of the error */
/* Starts the threads that do not run. With the lock. */
void bus_relay_pull_start(struct bus_relay *r);
#endif
