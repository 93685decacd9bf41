/* Staging memory of a comm: one pool of bounded size, out of which messages that cannot be read in
 * place take slots. Bytes and buckets in flight over all channels and all execs stay within the
 * limits. What an exec reserves at bind no other exec can take, so that the limit cannot make ranks
 * wait for each other in a circle. It counts against the limit from then on. Nothing here
 * allocates once the pool is open. */
#ifndef WEFT_COMM_STAGING_H
#define WEFT_COMM_STAGING_H
#include "transport/transport.h"

#define STAGING_ALIGN 64 /* of slots */

struct staging_slot {
    int64_t offset, bytes;
};

struct staging {
    int64_t limit;          /* bytes */
    int buckets;            /* slots, those that are reserved too */
    char *base;             /* NULL until it is open */
    uint64_t place;         /* where peers find it */
    int64_t room;           /* bytes of the pool: the limit and what alignment may waste */
    int64_t wanted, backed; /* what the execs can have in flight; bytes from the front that have memory behind them */
    struct staging_slot *slots; /* taken and reserved ones, ascending */
    int nslots;
    int64_t taken;      /* bytes of all slots */
    int64_t used, peak; /* bytes of those that hold a message */
};

/* A reserved slot: offset < 0 for none. */
struct staging_reserve {
    int64_t offset, bytes;
    int64_t wanted; /* bytes that the exec can have in flight */
    bool busy;
};

void staging_init(struct staging *s, int64_t limit, int buckets);
void staging_close(struct staging *s); /* the pool's memory stays until the group ends */

/* Reserves bytes (at least 1) for an exec that can have `wanted` bytes in flight, opening the pool if need be.
 * WEFT_ENOMEM names what is needed and what is allowed. */
int staging_reserve(struct staging *s, struct transport_link *l, int64_t bytes, int64_t wanted,
                    struct staging_reserve *out);
void staging_unreserve(struct staging *s, struct staging_reserve *r);

/* Memory that an exec has of its own for what travels: counts like a slot that holds a message all the time. False: it
 * is beyond the limit. */
bool staging_charge(struct staging *s, int64_t bytes);
void staging_uncharge(struct staging *s, int64_t bytes);

/* A slot for one message: the reserved one if it is free and large enough, otherwise one of the shared rest. False: not
 * now.
 */
bool staging_take(struct staging *s, struct staging_reserve *r, int64_t bytes, int64_t *offset);
void staging_give(struct staging *s, struct staging_reserve *r, int64_t bytes, int64_t offset);
#endif
