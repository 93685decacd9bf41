/* A publisher: an epoch of a set, this rank's slot, and a ring of snapshots that are put and committed.
 *
 * Rank 0 takes the epoch: it puts the record of the set's epoch if that has not changed since it was read. The revision
 * of that record is the fence: every later transaction of the publisher compares it. So nothing that an older publisher
 * does can be seen after a newer one has begun, also if the older one was stopped in between.
 *
 *     publish.c         epochs, slots, closing
 *     publish_serve.c   what readers ask for
 *     put.c             snapshots: which one is reused, and copying
 *     put_device.c      the same from devices
 *     put_delta.c       deltas to the version before, found on the way
 *     partial.c         partial sums, before they are put
 *     lend.c            a version in the caller's own memory
 *     hand_over.c       snapshots that the agent of this host is to hold, too
 *     commit.c, part_record.c    parts and versions
 *
 * The agent of a host (bus_agent.h) has such a struct for each rank whose snapshots it holds. */
#ifndef WEFT_VERSION_PUBLISH_H
#define WEFT_VERSION_PUBLISH_H
#include "version/bus.h"
#include "version/catalog.h"
#include "version/copy_threads.h"
#include "version/part_blocks.h"
#include "version/partial.h"
#include "version/put_delta.h"
#include "version/schema.h"

enum publish_state {
    PUBLISH_FREE,
    PUBLISH_FILLED /* put */,
    PUBLISH_SHOWN /* committed by this rank */,
    PUBLISH_RETIRED /* deleted from the directory */
};
struct publish_ring {
    enum publish_state state;
    int64_t step;
    uint64_t generation;
    struct snapshot snapshot;
    uint64_t *sums; /* of its blocks */
    struct part_blocks_given given;
    int64_t held; /* the agent that holds it, too: the revision of its record; 0: none */
};

struct weft_publisher {
    weft_bus *bus;
    struct part_server_source source;
    struct schema *schema;
    struct schema_part part;
    int rank, ranks, keep;
    bool wait, digests, served;
    int threads;         /* that copy in put, with the one that puts */
    int64_t least;       /* bytes of a tensor that one of them copies, at least; tests set it */
    int64_t epoch, last; /* last: the step that was put or lent last, -1: none */
    int64_t gone;        /* the last step whose loan has ended after its commit, -1: none */
    struct keeper_fence fence;
    pthread_mutex_t lock; /* of the ring, which connections of readers look at */
    struct publish_ring *ring;
    struct put_delta delta;
    struct publish_ring lent;     /* without a snapshot; its state is FREE if nothing is lent */
    const unsigned char **arrays; /* the caller's, of the lent version, by tensor */
    struct partial *fold;         /* partial sums; NULL: there are none */
    struct put_device *device;    /* NULL: nothing was put from a device yet */
    bool swept;                   /* what older epochs have left was deleted */
    struct catalog_slot agent;    /* of this host; its revision is 0 if none is known */
    int64_t later;                /* before this time no agent is looked for */
};

void publish_part_key(const weft_publisher *p, int64_t step, char key[RECORD_KEY]);
void publish_version_key(const weft_publisher *p, int64_t step, char key[RECORD_KEY]);
/* Changes behind the fence, if these compares hold, too. An error if the fence has fallen: WEFT_EPEER. */
int publish_change(weft_publisher *p, const struct directory_compare *more, size_t nmore,
                   struct directory_change *changes, size_t n, int64_t until, bool *done);
/* Starts serving it: schema, part and ring are there. */
void publish_serve(weft_publisher *p);
/* What older epochs have left in the directory: versions that no process holds. Not before this publisher has committed
 * one, so that agents have the time to take over what the publisher before has left. */
void publish_sweep(weft_publisher *p, int64_t until);
void publish_slot_key(const weft_publisher *p, char key[RECORD_KEY]);
/* Gives the snapshots that readers may ask for to the agent of this host, if there is one, and waits until it has them.
 * `all`: also those that it should have. What went wrong is in the log, and is no error. */
void hand_over(weft_publisher *p, bool all, int64_t until);
/* Is it a step that may be put or lent now? */
int publish_check_step(const weft_publisher *p, const char *call, int64_t step);
/* Is this the lent version, and is it committed? With the lock. */
bool lend_is(const weft_publisher *p, int64_t step, uint64_t generation);
/* The bytes [at, at + n) of the lent version's part, for the server. WEFT_EPEER: it is not lent any more. */
int lend_copy(void *owner, const struct part_link_message *m, int64_t at, int64_t n, unsigned char *to);
/* Deletes a version from the directory. */
int publish_delete(weft_publisher *p, int64_t step, int64_t until);
/* The same, for the version of a snapshot, which can be reused then. */
int publish_retire(weft_publisher *p, struct publish_ring *r, int64_t until);
#endif
