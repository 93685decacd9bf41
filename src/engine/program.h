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
struct driver;
struct way;

/* Where a buffer of the plan stands in memory. */
struct exec_place {
    char *base;
    uint64_t at;                   /* where peers find base */
    bool reached;                  /* they can */
    int64_t stride[WEFT_MAX_DIMS]; /* in bytes */
};

/* How a sender offers a message, before it knows its peers. */
enum exec_offer {
    OFFER_PLACE,  /* where it is: peers can reach it */
    OFFER_STAGED, /* packed into staging memory */
    OFFER_EAGER,  /* packed into a slot of the sender's block that carries its own signal */
    OFFER_WIRE    /* by a wire, to a rank on another host */
};

/* Which file of order/ copies a step together with steps of other channels. */
enum exec_order { ORDER_NONE, ORDER_WEAVE };

/* One part read and written, cast on the way. */
struct exec_move {
    char *dst;       /* packing: dst is the message at offset */
    const char *src; /* unpacking: src is */
    int64_t offset;
    const struct memory_tile *tile; /* NULL: bytes in one piece, no cast */
    int64_t bytes;                  /* that are written */
    struct weave_rows *rows;        /* where weave.c cuts it */
    uint8_t to, from;
    bool nontemporal; /* stored around the caches: contiguous, in a run that writes more than caches keep */
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
    memory_runs *runs; /* NULL: memory_fold does it */
    const void **in;   /* for runs */
    size_t count;
};

struct exec_step {
    uint8_t kind;  /* enum plan_kind */
    uint8_t offer; /* SEND: enum exec_offer */
    uint8_t order; /* enum exec_order */
    bool urgent;   /* COPY, REDUCE: other steps wait for it */
    uint32_t channel;
    union {
        uint32_t eager;     /* SEND that is eager: which of program.eagers */
        uint32_t multicast; /* SEND that is staged: which of program.multicasts */
    };
    const struct way *way; /* SEND, RECV: chosen with the peer's block */
    uint32_t work, nwork;  /* moves; for REDUCE the fold's number */
    uint32_t next, nnext;  /* into program.next: the steps that wait for this one */
    uint32_t hold, nholds; /* REDUCE: into program.holds, the RECVs whose messages it reads where they are */
    int64_t bytes;         /* that are read */
    /* RECV that is eager: */
    const char *slot; /* slot 0 */
    uint32_t slots;
    int64_t slot_bytes, eager_bytes;
    int64_t stamp; /* where the run's number stands in a slot; not of an inline message */
    char *inlined; /* where an inline message is put together; NULL: it is none */
};

/* Eager slots that this rank writes: for one message, or for several of the same data, whose readers all read them. */
struct exec_eager {
    char *slot;                    /* slot 0 */
    int64_t at, slot_bytes, bytes; /* at: where slot 0 is behind the first of all */
    int64_t stamp;                 /* where the run's number stands in a slot; not of an inline message */
    uint32_t slots;
    bool unacked;         /* no reader has to say that it has read the message */
    bool joint;           /* it has its stamp in common with others, all of which are written when a run starts */
    uint32_t step;        /* one of the SENDs */
    uint32_t outs, nouts; /* into program.eager_outs: the channels that it goes to */
    uint64_t run;         /* the last that it was written in */
};

/* A staged message: one SEND, or several of the same data that stand at the same place in their channels and are packed
 * once for all readers. */
struct exec_multicast {
    uint32_t step, index; /* one of the SENDs; how many of its channel are before it */
    uint32_t outs, nouts; /* into program.multicast_outs */
    uint64_t run;         /* the last that it was packed in */
    int64_t slot;
    uint32_t readers; /* that have yet to read it */
    bool alone;       /* no other SEND may join it */
};

/* Of a peer that is waited for, by watch.c: the pulse that it had, since when, in which run. */
struct exec_seen {
    uint64_t pulse, run;
    int64_t at; /* 0: it was not waited for */
};

/* Messages from one peer, first in first out. Counts are of this run, counters of all runs. */
struct exec_in {
    int peer;
    uint32_t n;                    /* buckets a run */
    const uint32_t *steps;         /* their RECV steps */
    uint64_t base;                 /* buckets of all runs before this one */
    const _Atomic uint64_t *ready; /* in our block: buckets that may be read, or were pushed */
    _Atomic uint64_t *done;        /* in the peer's block: buckets that have been read, or may be pushed */
    uint32_t taken;                /* arrived, and copied where they are not read in place */
    uint32_t settled;              /* read to the end, told to the peer */
    bool acks;                     /* some message is eager, and its slot is free when this rank says so */
    bool pushed, woven;            /* way_pushes */
    const struct block *block;     /* the peer's */
    const struct block_message *sends;
    struct block_message *recvs; /* in our block */
    const char *staging;         /* the peer's pool */
    /* Its way's own: how far the message is that is being taken. Zero between two messages. */
    struct {
        uint64_t copied; /* pieces, by this end */
        bool none_left;  /* to copy, here */
    } begun;
    struct exec_seen watched;
};

/* Messages to one peer. */
struct exec_out {
    int peer;
    uint32_t n;
    const uint32_t *steps;
    uint64_t base;
    _Atomic uint64_t *ready;      /* in the peer's block */
    const _Atomic uint64_t *done; /* in ours */
    uint64_t seen_done;           /* what it was when we last looked */
    uint32_t posted;              /* may be read, or has been pushed */
    uint32_t retired;             /* have been read */
    bool unacked;       /* its eager messages are: the peer sends something in each run, and ranks share cores */
    bool acks;          /* some message is eager, and its slot is free when the peer says so */
    bool pushed, woven; /* way_pushes */
    const struct block *block;
    struct block_message *sends;       /* in our block */
    const struct block_message *recvs; /* in the peer's */
    struct exec_seen watched;
};

/* The rows of the table in driver.c, in its order. */
enum driver_id { DRIVER_LISTS, DRIVER_FACES, DRIVER_ONEPASS, DRIVER_PIPELINE, DRIVERS };

/* Channels with ranks on other hosts (ways/way_wire.h). */
struct wire_channel;
struct wire_channels {
    uint32_t n;
    struct wire_channel *channels; /* those that receive first */
    int64_t slot_bytes;            /* of all of them: counts against the comm's limit */
};

struct program {
    struct arena arena;
    struct exec_place *places; /* one a buffer of the plan */
    uint32_t nsteps, nins, nouts, nfirst;
    bool staged;               /* some SEND is */
    bool may_block;            /* some SEND may have to wait for what peers do: it is staged or eager */
    bool pushed;               /* some RECV is */
    bool one_way;              /* this rank has a core for itself, and more to send than to receive */
    const struct way *assists; /* a way of some SEND whose sender helps to copy; NULL: there is none */
    struct exec_step *steps;
    uint32_t *next, *holds, *buckets, *first; /* first: COPY and REDUCE steps that wait for nothing */
    uint32_t *open0, *readers0;               /* what open and readers are at the start of a run */
    struct exec_in *ins;                      /* from the next higher rank on, round the world */
    struct exec_out *outs;
    struct exec_move *moves;
    struct exec_fold *folds;
    struct exec_eager *eagers, *joint; /* joint: one of those that are, if any */
    uint32_t neagers, *eager_outs;
    int64_t eager_bytes; /* of all their slots */
    struct exec_multicast *multicasts;
    uint32_t nmulticasts, *multicast_outs;
    struct weave *weave; /* of order/weave.c; NULL: no copies are woven */
    struct wire_channels wired;
    const struct driver *driver; /* of its runs, NULL: not chosen yet */
    void *state;                 /* the driver's own, one of states */
    void *states[DRIVERS];
    uint32_t drivers; /* that could drive it: a bit for each row of the table */
    struct staging_reserve reserve;

    /* the run */
    uint32_t *open;          /* steps that a step still waits for */
    uint32_t *readers;       /* RECV: folds that have yet to read its message where it is */
    uint32_t *urgent, *lazy; /* steps that can go */
    uint32_t urgent_head, urgent_tail, lazy_head, lazy_tail;
    uint32_t left;     /* steps to do */
    uint32_t unposted; /* SENDs to post */
    bool launchable;   /* a SEND has opened since launch looked */
};

void *program_take(struct program *p, size_t n, size_t size); /* zeroed memory that lives as long as p; NULL: none */
bool program_hears(const struct program *p, int peer);        /* does the peer send something in each run? */
/* Do two SENDs send the same data? */
bool program_same_data(const weft_plan *plan, const struct plan_step *a, const struct plan_step *b);

/* ---- outline.c ---- */

/* Steps, channels and places: all that needs no peer. */
int outline_program(weft_exec *x, struct program *p);
void outline_free(weft_exec *x, struct program *p);

/* ---- fill.c ---- */

/* The rest, with the peers' blocks: block_at[r] is where rank r's is. */
int fill_program(weft_exec *x, struct program *p, const uint64_t *block_at);
#endif
