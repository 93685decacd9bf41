/* What one rank of an exec shows its peers, in memory that they can reach: the counters that they
 * advance, for every message it sends or receives where the parts are, and its eager slots. Places only,
 * no pointers; the tables stand behind the head in the order of the functions below.
 *
 * A counter stands with the rank that polls it. The block stays until all its holders, the owner and
 * its peers, have let go of it. */
#ifndef WEFT_ENGINE_BLOCK_H
#define WEFT_ENGINE_BLOCK_H
#include "engine/exec.h"
#include "transport/core/core.h"

struct block {
    _Alignas(CORE_LINE) _Atomic uint64_t started; /* runs that the owner has begun */
    _Atomic uint32_t freed;                       /* the owner has freed its exec */
    _Atomic uint32_t holders;
    uint32_t nins, nouts, nmessages, nparts, nloops;
    uint64_t staging;        /* place of the owner's pool */
    uint64_t eagers;         /* bytes from the head to the first */
    uint64_t off;            /* what the owner has switched off: toggle.h */
    uint64_t rooms[DRIVERS]; /* to what each driver has there, 0: nothing */
    bool shown;              /* these, to all ranks: they hold the block */
};

struct block_in {
    _Alignas(
        CORE_LINE) _Atomic uint64_t ready; /* by the peer: buckets that may be read, or were pushed, over all runs */
    int32_t peer;
    uint32_t n, message; /* buckets a run; into messages */
};

struct block_out {
    _Alignas(
        CORE_LINE) _Atomic uint64_t done; /* by the peer: buckets that were read, or may be pushed, over all runs */
    int32_t peer;
    uint32_t n, message;
};

/* What one end of a channel says of a message. */
struct block_message {
    int64_t bytes;
    uint32_t part, nparts;
    uint8_t offer;  /* SEND: enum exec_offer */
    uint8_t memory; /* enum weft_memory of its parts, */
    int32_t device; /* and the device, for memory of one */
    bool watched;   /* SEND: a step waits until it has been read: the reader must not wait for others before it reads */
    bool open;      /* RECV: peers can write it from the start of a run on */
    bool assists;   /* SEND in place: its sender has the time to copy some of it (assist.c) */
    bool unacked;   /* SEND that is eager: nobody has to say that it was read */
    uint64_t slot;  /* staged: where in the pool the message of this run is; eager: from the head to slot 0 */
    int64_t slot_bytes, stamp; /* eager */
    uint32_t slots;
    /* SEND that assists (assist.c): */
    _Atomic uint64_t copied;  /* pieces that its sender has copied, over all runs */
    _Atomic uint64_t claimed; /* pieces that either end has taken, over all runs */
};

struct block_part {
    uint64_t at; /* of its first element: a place, if peers can reach it */
    bool reached;
    int64_t offset, count;
    uint32_t loop; /* into loops */
    uint8_t nloops, dtype, wire;
};

struct block_loop {
    int64_t n, stride;
};

static inline struct block_in *block_ins(const struct block *b)
{
    return (struct block_in *)((uintptr_t)b + sizeof *b);
}
static inline struct block_out *block_outs(const struct block *b)
{
    return (struct block_out *)(void *)(block_ins(b) + b->nins);
}
static inline struct block_message *block_messages(const struct block *b)
{
    return (struct block_message *)(void *)(block_outs(b) + b->nouts);
}
static inline struct block_part *block_parts(const struct block *b)
{
    return (struct block_part *)(void *)(block_messages(b) + b->nmessages);
}
static inline struct block_loop *block_loops(const struct block *b)
{
    return (struct block_loop *)(void *)(block_parts(b) + b->nparts);
}

/* Allocates the exec's block for the channels of p and writes what does not depend on views. */
int block_make(weft_exec *x, const struct program *p, uint64_t *place);
/* Writes where the messages are, and gives eager messages their slots. */
void block_describe(weft_exec *x, struct program *p);
/* Points the channels of p to their counters in this rank's block and in the peers', which are at block_at[rank]. */
int block_connect(weft_exec *x, struct program *p, const uint64_t *block_at);
/* Does the bucket travel as the receiver's plan says? WEFT_EMISMATCH if not. */
int block_compare(const weft_exec *x, const struct exec_in *in, uint32_t k);
/* At the first bind: holds the blocks of ranks that are no peers and show them to all. */
int block_hold(weft_exec *x, const struct program *p, const uint64_t *block_at);
/* Lets go of a peer's block, or of one's own. */
void block_drop(const struct block *b);
#endif
