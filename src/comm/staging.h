/* Staging memory of a comm: one pool of bounded size. Messages that cannot be read in place take slots of it. Bytes and
 * buckets in flight over all channels and all execs stay within the limits. An exec reserves a slot at bind, which
 * counts against the limit from then on and which no other exec can take: so the limit cannot make ranks wait for each
 * other in a circle. Nothing here allocates once the pool is open. */
#ifndef WEFT_COMM_STAGING_H
#define WEFT_COMM_STAGING_H
#include "transport/transport.h"

#define STAGING_ALIGN 64 /* of slots */

struct staging_slot {
    int64_t offset, bytes;
};

struct staging {
    int64_t limit;          /* bytes */
    int buckets;            /* most slots, with the reserved ones */
    char *base;             /* NULL until it is open */
    uint64_t place;         /* where peers find it */
    int64_t room;           /* bytes of the pool: the limit plus what alignment may waste */
    int64_t wanted, backed; /* what the execs can have in flight; bytes from the front that have memory behind them */
    struct staging_slot *slots; /* taken and reserved slots, by ascending offset */
    int nslots;
    int64_t taken;      /* bytes of all slots */
    int64_t used, peak; /* bytes of slots that hold a message */
};

/* A reserved slot: offset < 0 for none. */
struct staging_reserve {
    int64_t offset, bytes;
    int64_t wanted; /* bytes that the exec can have in flight */
    bool busy;
};

void staging_init(struct staging *s, int64_t limit, int buckets);
void staging_close(struct staging *s); /* the pool's memory stays until the group ends */

/* Reserves bytes (at least 1) for an exec that can have `wanted` bytes in flight. Opens the pool if it is not open. The
 * text of WEFT_ENOMEM says what is needed and what is allowed. */
int staging_reserve(struct staging *s, struct transport_link *l, int64_t bytes, int64_t wanted,
                    struct staging_reserve *out);
void staging_unreserve(struct staging *s, struct staging_reserve *r);

/* Charges memory in which an exec keeps messages of its own. It counts like a slot that always holds a message. False:
 * it is beyond the limit. */
bool staging_charge(struct staging *s, int64_t bytes);
void staging_uncharge(struct staging *s, int64_t bytes);

/* Takes a slot for one message: the reserved one if it is free and large enough, otherwise one of the shared rest.
 * False: none is free now. */
bool staging_take(struct staging *s, struct staging_reserve *r, int64_t bytes, int64_t *offset);
void staging_give(struct staging *s, struct staging_reserve *r, int64_t bytes, int64_t offset);
#endif
