/* Deltas that put finds: the elements of the version that is put which differ from the version before. A block is
 * compared while it is in the cache, so a reader of another host that asks for deltas (TAKE of part_link.h) gets them
 * without a search.
 *
 * They are found if readers took deltas of the version before, and for that version as the base. They are kept for the
 * version that was put last, in memory of at most a sixteenth of the part. Blocks that have no delta here (the memory
 * is full, they came from a device, or are boxes), and other bases, are compared when they are asked for. */
#ifndef WEFT_VERSION_PUT_DELTA_H
#define WEFT_VERSION_PUT_DELTA_H
#include <stdbool.h>

#include "version/part_blocks.h"

struct publish_ring;

struct put_delta {
    /* guarded by the publisher's lock: */
    int64_t asked;       /* the version of which readers took deltas to the one before it; -1: none */
    int64_t step, base;  /* step -1: none is kept */
    uint64_t generation; /* of the snapshot of `step` */
    int users;           /* threads that read `v` */
    /* Written by put, while step is -1 and there are no users: */
    struct part_blocks_delta *v; /* for each block; NULL: no memory was taken yet */
    unsigned char *room;
    size_t used, size;         /* used: also guarded by the lock */
    const unsigned char *from; /* the base's data; NULL: put finds none */
};

/* Put is about to write a version into `into`. Decides whether deltas are found. */
void put_delta_begin(weft_publisher *p, const struct publish_ring *into);
/* The bytes [at, at + n) of a tensor's array are there: whole blocks, the last of which may be shorter. Several threads
 * of a put may call it, each for other blocks. */
void put_delta_find(weft_publisher *p, const struct publish_ring *into, size_t tensor, int64_t at, int64_t n);
void put_delta_end(weft_publisher *p, const struct publish_ring *into); /* with the lock: the version is whole */
/* With the lock. The deltas that a request asks for; NULL: they were not found by put. Otherwise there is one user
 * more. */
const struct part_blocks_delta *put_delta_use(weft_publisher *p, const struct part_link_message *m);
void put_delta_free(struct put_delta *d);
#endif
