/* The control block of an exec: what one rank shows its peers, in memory that they can reach. It has the counters that
 * the peers advance, the places of all parts of every message that the rank sends or receives, its eager slots, and
 * what drivers keep there. It has places and no pointers. The tables stand behind the head, in the order of the
 * functions below.
 *
 * A counter stands in the block of the rank that polls it. The block is freed when all its holders, the owner and the
 * peers, have let go of it. */
#ifndef WEFT_ENGINE_BLOCK_H
#define WEFT_ENGINE_BLOCK_H
#include "engine/exec.h"
#include "transport/core/core.h"

struct block {
    _Alignas(CORE_LINE) _Atomic uint64_t started; /* runs that the owner has begun */
    _Atomic uint32_t freed;                       /* the owner has freed its exec */
    _Atomic uint32_t holders;                     /* how many ranks have yet to let go of the block */
    uint32_t nins, nouts, nmessages, nparts, nloops;
    uint64_t staging;        /* place of the owner's pool */
    uint64_t eagers;         /* offset of the eager slots, in bytes from the head */
    uint64_t off;            /* what the owner has switched off: toggle.h */
    int64_t sent, received;  /* bytes of all messages in a run */
    uint64_t pinned;         /* offset of the pinned slots: ways/pinned.c */
    uint64_t sums;           /* offset of the sums of its parts: proof.h; 0: there are none */
    uint64_t rooms[DRIVERS]; /* offset of what each driver has here; 0: nothing */
    bool shown;              /* all ranks look at what a driver has here, so all of them hold the block */
};

struct block_in {
    /* The peer counts here, over all runs, the messages that may be read or were pushed. */
    _Alignas(CORE_LINE) _Atomic uint64_t ready;
    int32_t peer;
    uint32_t n;       /* messages of a run */
    uint32_t message; /* the first of them in block_messages */
};

struct block_out {
    /* The peer counts here, over all runs, the messages that were read or may be pushed. */
    _Alignas(CORE_LINE) _Atomic uint64_t done;
    int32_t peer;
    uint32_t n, message;
};

/* What one end of a channel says about a message. */
struct block_message {
    int64_t bytes;
    uint32_t part, nparts;
    uint8_t offer;  /* SEND: enum exec_offer */
    uint8_t memory; /* enum weft_memory of its parts, */
    int32_t device; /* and the device, for memory of one */
    bool watched;   /* SEND: a step waits until it has been read, so its reader must not wait for others first */
    bool open;      /* RECV: the peer may write it from the start of a run on */
    bool assists;   /* SEND in place: its sender has the time to copy a part of it (ways/assist.c) */
    bool unacked;   /* eager SEND: the receiver does not say that it has read it */
    bool reads;     /* RECV: the receiver may read private memory of the sender */
    int64_t
        read_least; /* SEND out of private memory: bytes in one piece from which on it should be read there; 0: never */
    uint64_t slot;  /* staged: offset in the pool of the message of this run; eager: offset of slot 0 from the head;
                     * pinned: of  the slot */
    int64_t slot_bytes, stamp; /* eager */
    uint32_t slots;
    _Atomic uint64_t claimed, copied; /* for ways/assist.c */
};

struct block_part {
    uint64_t at; /* the place of its first element; if peers cannot reach it, its address at the owner */
    bool reached;
    int64_t offset, count;
    uint32_t loop; /* the first in block_loops */
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

/* Allocates the exec's block for the channels of p and writes what does not depend on the caller's views. */
int block_make(weft_exec *x, const struct program *p, uint64_t *place);
/* Writes into it where the messages are, and gives eager messages their slots. */
void block_describe(weft_exec *x, struct program *p);
/* Points the channels of p to their counters in this rank's block and in the peers', which are at block_at[rank]. */
int block_connect(weft_exec *x, struct program *p, const uint64_t *block_at);
/* Is message k the one that the receiver's plan has? WEFT_EMISMATCH if not. */
int block_compare(const weft_exec *x, const struct exec_in *in, uint32_t k);
/* At the first bind: holds the blocks of ranks that are not peers and show their blocks to all ranks. */
int block_hold(weft_exec *x, const struct program *p, const uint64_t *block_at);
/* Lets go of a peer's block, or of this rank's own. */
void block_drop(const struct block *b);
#endif
