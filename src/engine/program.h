/* A program: what bind makes of a plan. Steps with ready-made moves, channels with their counters, and the arrays that
 * a run works on. Nothing in it is searched for, computed or allocated when it runs. */
#ifndef WEFT_ENGINE_PROGRAM_H
#define WEFT_ENGINE_PROGRAM_H
#include "base/arena.h"
#include "comm/comm.h"
#include "memory/memory.h"
#include "plan/plan.h"

struct block;
struct block_message;
struct proof;
struct tracer;
struct traffic;
struct driver;
struct way;
struct program_device;
struct carry;

/* Where a buffer of the plan stands in memory. */
struct exec_place {
    char *base;                    /* on a device that ranks share: a symbol (device/symbol.h) */
    uint64_t at;                   /* the place of base, for peers; if they cannot reach it, base itself */
    bool reached;                  /* peers can reach it */
    int64_t bytes;                 /* from its first element to the end of its last one */
    int64_t stride[WEFT_MAX_DIMS]; /* in bytes */
};

/* How a sender offers a message, before it sees the blocks of its peers. */
enum exec_offer {
    OFFER_PLACE,  /* in place: peers can reach it */
    OFFER_STAGED, /* packed into staging memory */
    OFFER_EAGER,  /* packed into a slot of the sender's control block that carries its own signal */
    OFFER_PINNED, /* packed into a slot of the control block that both ends pin for their devices */
    OFFER_WIRE    /* over a wire, to a rank on another host */
};

/* Which file of order/ copies a step together with steps of other channels. */
enum exec_order { ORDER_NONE, ORDER_WEAVE };

/* A copy of one part, with a cast if the dtypes differ. */
struct exec_move {
    char *dst;       /* NULL when it packs: the message at `offset` */
    const char *src; /* NULL when it unpacks: the message at `offset` */
    int64_t offset;
    const struct memory_tile *tile; /* NULL: bytes in one piece, no cast */
    int64_t bytes;                  /* that are written */
    struct lane_rows *rows;         /* how order/weave.c cuts it */
    uint8_t to, from;
    uint8_t via;      /* on a device: the dtype between the two; 0: none */
    bool nontemporal; /* with stores that bypass the caches: mark_nontemporal in fill.c */
};

/* A term of a fold that is read out of an eager slot. */
struct exec_eager_term {
    uint32_t term, slots;
    const char *at; /* in slot 0 */
    int64_t slot_bytes;
};

struct exec_fold {
    char *dst;
    const struct memory_tile *tile;
    struct memory_term *terms;
    size_t n; /* 0: fill with the identity */
    int64_t div;
    const struct exec_eager_term *eager_terms;
    uint32_t neager_terms;
    uint8_t to, via, acc, op;
    const void **in; /* the terms of `runs`; NULL: memory_fold does it */
    struct memory_runs runs;
    size_t count;
};

struct exec_step {
    uint8_t kind;  /* enum plan_kind */
    uint8_t offer; /* SEND: enum exec_offer */
    uint8_t order; /* enum exec_order */
    bool urgent;   /* COPY, REDUCE: other steps wait for it */
    uint32_t channel;
    union {
        uint32_t eager;     /* eager SEND: its index in program.eagers */
        uint32_t multicast; /* staged SEND: its index in program.multicasts */
    };
    const struct way *way; /* SEND, RECV: chosen with the peer's block */
    uint32_t work, nwork;  /* its first move in program.moves, and how many; REDUCE: its index in program.folds */
    uint32_t next, nnext;  /* in program.next: the steps that wait for this one */
    uint32_t hold, nholds; /* REDUCE, in program.holds: the RECVs whose messages it reads without a copy */
    int64_t bytes;         /* that it reads */
    /* for ways/assist.c: the first piece of each move, and how many pieces there are */
    const uint32_t *pieces;
    uint64_t slot_at; /* pinned SEND: where its slot is, behind the first one of the block */
    const char *slot; /* of its message, if that is eager (then slot 0), pinned, or over a wire on a device */
    /* eager RECV: */
    uint32_t slots;
    int64_t slot_bytes, eager_bytes;
    int64_t stamp; /* offset of the stamp in a slot; an inline message has none */
    char *inlined; /* where an inline message is put together; NULL: it is not inline */
};

/* Eager slots that this rank writes: for one message, or for several of the same data, whose readers all read them. */
struct exec_eager {
    char *slot;                    /* slot 0 */
    int64_t at, slot_bytes, bytes; /* at: offset of slot 0 from the first eager slot of the block */
    int64_t stamp;                 /* offset of the stamp in a slot; an inline message has none */
    uint32_t slots;
    bool unacked;         /* its receivers do not say that they have read it */
    bool joint;           /* it shares its stamp with others; all of them are written when a run starts */
    uint32_t step;        /* one of the SENDs */
    uint32_t outs, nouts; /* in program.eager_outs: the channels that it goes to */
    uint64_t run;         /* the last run in which it was written */
};

/* A staged message: one SEND, or a multicast: several SENDs of the same data that stand at the same position of their
 * channels and are packed once for all readers. */
struct exec_multicast {
    uint32_t step, index; /* one of the SENDs; its position in the channel */
    uint32_t outs, nouts; /* in program.multicast_outs: the channels that it goes to */
    uint64_t run;         /* the last run in which it was packed */
    int64_t slot;
    uint32_t readers; /* how many have yet to read it */
    bool alone;       /* no other SEND may join it */
};

/* For watch.c: the pulse of a peer for which this rank waits, since when it has not changed, and in which run. */
struct exec_seen {
    uint64_t pulse, run;
    int64_t at; /* nanoseconds; 0: this rank did not wait for it */
};

/* The messages from one peer, first in, first out. Counts are of this run, counters of all runs. */
struct exec_in {
    int peer;
    uint32_t n;                    /* messages of a run */
    const uint32_t *steps;         /* their RECV steps */
    uint64_t base;                 /* messages of all runs before this one */
    const _Atomic uint64_t *ready; /* in this rank's block: messages that may be read, or were pushed */
    _Atomic uint64_t *done;        /* in the peer's block: messages that have been read, or may be pushed */
    uint32_t taken;                /* messages that have arrived and were copied, unless a fold reads them in place */
    uint32_t settled;              /* messages that were read to the end */
    bool acks;                     /* some eager message has slots that are free when this rank says so */
    bool pushed, woven;            /* what way_pushes said */
    const struct block *block;     /* the peer's */
    const struct block_message *sends;
    struct block_message *recvs; /* in this rank's block */
    const char *staging;         /* the peer's pool */
    uint64_t begun;              /* for a way whose `take` has begun a message: how far it is; 0 between two messages */
    struct exec_seen watched;
};

/* The messages to one peer, in the same way. */
struct exec_out {
    int peer;
    uint32_t n;
    const uint32_t *steps;
    uint64_t base;
    _Atomic uint64_t *ready;      /* in the peer's block */
    const _Atomic uint64_t *done; /* in this rank's block */
    uint64_t seen_done;           /* `done` when this rank last looked */
    uint32_t posted;              /* messages that may be read, or have been pushed */
    uint32_t retired;             /* messages that have been read */
    bool unacked;       /* eager messages need no acknowledgement: the peer sends in each run, and ranks share cores */
    bool acks;          /* some eager message has slots that are free when the peer says so */
    bool pushed, woven; /* what way_pushes said */
    const struct block *block;
    struct block_message *sends;       /* in this rank's block */
    const struct block_message *recvs; /* in the peer's block */
    struct exec_seen watched;
};

/* The rows of the table in driver.c, in its order. */
enum driver_id { DRIVER_LAUNCHER, DRIVER_NCCL, DRIVER_LISTS, DRIVER_FACES, DRIVER_ONEPASS, DRIVER_PIPELINE, DRIVERS };

/* The bit of a driver among those that are switched off: toggle.h. */
static inline uint64_t driver_id_bit(enum driver_id id)
{
    return UINT64_C(1) << id;
}

/* Channels with ranks on other hosts (ways/way_wire.h). */
struct wire_channel;
struct wire_channels {
    uint32_t n;
    struct wire_channel *channels; /* first those that receive, then those that send */
    int64_t slot_bytes;            /* of all their slots: counts against the comm's staging limit */
};

struct program {
    const struct driver *driver; /* of its runs; NULL: not chosen yet */
    void *state;                 /* the driver's, one of states */
    uint32_t left;               /* steps of this run to do */
    struct arena arena;
    struct exec_place *places; /* one for each buffer of the plan */
    uint32_t nsteps, nins, nouts, nfirst;
    bool staged;               /* some SEND is staged */
    bool may_block;            /* some SEND is staged or eager, so that it may have to wait for peers to free a slot */
    bool pushed;               /* some RECV is pushed */
    int64_t sent, received;    /* bytes of all messages in a run */
    bool one_way;              /* this rank has a core of its own, and receives less than half of what it sends */
    const struct way *assists; /* the way of SENDs whose sender assists; NULL: there are none */
    int64_t cma_least;  /* ways/cma.c: bytes in one piece from which on private memory is read; 0: not measured */
    uint32_t cma_asked; /* and how often the exec has asked for it: once in each bind that has such messages */
    struct exec_step *steps;
    uint32_t *next, *holds, *buckets, *first; /* first: COPY and REDUCE steps that wait for nothing */
    uint32_t *open0, *readers0;               /* what open and readers are at the start of a run */
    uint32_t grouped[2]; /* FORM_GROUPED: RECVs and SENDs. They are in buckets, by peer, and there are no channels */
    struct exec_in *ins; /* from the next higher rank on, then from rank 0 on */
    struct exec_out *outs;
    struct exec_move *moves;
    struct exec_fold *folds;
    struct exec_eager *eagers, *joint; /* joint: one of the joint ones; NULL: there are none */
    uint32_t neagers, *eager_outs;
    int64_t eager_bytes;  /* of all their slots */
    int64_t pinned_bytes; /* of all pinned slots: ways/pinned.c */
    struct exec_multicast *multicasts;
    uint32_t nmulticasts, *multicast_outs;
    struct weave *weave; /* of order/weave.c; NULL: no copies are interleaved */
    bool past;           /* the run writes more than caches hold: mark_nontemporal in fill.c */
    struct wire_channels wired;
    bool carries;        /* the rank's device does the work of the steps: device/carry.c; its state, from fill on: */
    struct carry *carry; /* NULL: the host does the work */
    struct program_device *device; /* of device/exec_device.c; NULL: all memory is the host's */
    struct proof *proof;           /* of proof.c; NULL: messages are not checked */
    struct tracer *tracer;         /* of tracer.c; NULL: nobody takes the time */
    struct traffic *traffic;       /* of traffic.c: what a run moves */
    uint32_t ntraffic;
    void *states[DRIVERS];
    uint32_t drivers; /* a bit for each driver that could drive it */
    struct staging_reserve reserve;

    /* the run */
    uint32_t *open;          /* for each step: how many steps it still waits for */
    uint32_t *readers;       /* for each RECV: how many folds have yet to read its message in place */
    uint32_t *urgent, *lazy; /* queues of COPY and REDUCE steps that wait for nothing */
    uint32_t urgent_head, urgent_tail, lazy_head, lazy_tail;
    uint32_t unposted; /* SENDs to post */
    bool launchable;   /* since `launch` looked, a SEND has nothing to wait for any more */
};

void *program_take(struct program *p, size_t n,
                   size_t size);                       /* zeroed memory that lives as long as p; NULL: there is none */
bool program_hears(const struct program *p, int peer); /* does the peer send something in each run? */
/* Do two SENDs send the same data? */
bool program_same_data(const weft_plan *plan, const struct plan_step *a, const struct plan_step *b);

/* Fills steps[] with the SENDs or RECVs of the plan whose peers are on this host, on others, or anywhere, and returns
 * their number. They are ordered by peer, and for each peer as in the plan. steps and spare have room for as many
 * entries as the plan has steps. *peers: how many peers there are. */
enum program_peers { PEERS_HERE, PEERS_ELSEWHERE, PEERS_ALL };
uint32_t program_messages(const weft_exec *x, int kind, enum program_peers which, uint32_t *steps, uint32_t *spare,
                          uint32_t *peers);
/* How many of n such steps, from the first one on, are for the same peer. n is at least 1. */
uint32_t program_run(const weft_exec *x, const uint32_t *steps, uint32_t n);

/* ---- outline.c ---- */

/* Steps, channels and places: everything for which this rank needs no peer. */
int outline_program(weft_exec *x, struct program *p);
void outline_free(weft_exec *x, struct program *p);

/* ---- fill.c ---- */

/* Everything else, with the peers' blocks; block_at[r] is the place of rank r's block. */
int fill_program(weft_exec *x, struct program *p, const uint64_t *block_at);
#endif
