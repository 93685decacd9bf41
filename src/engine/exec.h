/* An exec: a plan bound to memory and peers. What bind makes of the plan is a program: steps with
 * ready-made tiles, channels with their counters, and the arrays that a run works on. Nothing in it
 * is searched for, computed or allocated when it runs.
 *
 *   view.c     the caller's views become places: an address and strides for each buffer of the plan
 *   overlap.c  which places may share memory
 *   block.c    what a rank shows its peers: counters, and where its messages are
 *   program.c  steps and channels, from the plan alone; fill.c the tiles, with the peers' blocks at hand
 *   way.c      how each message travels: as a letter, staged, pulled or pushed; cross.c pulls of private memory
 *   far.c      messages with ranks on other hosts; remote.h windows there
 *   flow.c     staged messages that are unpacked while they are packed; help.c pulled ones that both ends copy
 *   keep.c     staged messages that a run does not wait to have read
 *   comb.c     staged messages of several channels that are copied side by side
 *   engine.c   the run; weave.c strided copies of several channels at once; post.c programs in which
 *              no message waits for another; chore.c copies that any rank may do; swap.c faces that two ranks give
 *              each other where they lie
 *   run.c      the calls around it; arrivals.c which boxes of the destination are complete
 *   lack.c     what a run waits for; watch.c peers that are gone or stalled */
#ifndef WEFT_ENGINE_EXEC_H
#define WEFT_ENGINE_EXEC_H
#include "base/arena.h"
#include "comm/task.h"
#include "engine/ways/letter.h"
#include "memory/memory.h"
#include "plan/plan.h"

/* Where a buffer of the plan stands in memory. */
struct exec_place {
    char *base;
    uint64_t at;                   /* where peers find base */
    bool reached;                  /* they can */
    int64_t stride[WEFT_MAX_DIMS]; /* in bytes */
};

/* How a message travels. */
enum exec_way {
    WAY_PULL,   /* the receiver reads it at the sender's and writes it where it belongs */
    WAY_PUSH,   /* the sender does both */
    WAY_STAGED, /* packed into staging memory, unpacked from there */
    WAY_LETTER, /* the same for small ones, in a slot of the sender's block that carries its own signal */
    WAY_CROSS,  /* RECV: pulled out of memory that only the system reaches; to the sender it is a pull */
    WAY_WIRE    /* a message of the wire: far.c */
};

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

/* A term of a fold that is read out of a letter. */
struct exec_lettered {
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
    const struct exec_lettered *letters;
    uint32_t nletters;
    uint8_t to, via, acc, op;
    memory_runs *runs; /* NULL: memory_fold does it */
    const void **in;   /* for runs */
    size_t count;
};

struct exec_step {
    uint8_t kind; /* enum plan_kind */
    uint8_t way;  /* SEND, RECV: enum exec_way */
    bool urgent;  /* COPY, REDUCE: other steps wait for it */
    bool woven;   /* weave.c does it */
    bool flows;   /* SEND, RECV that is staged */
    bool helped;  /* SEND, RECV that is pulled: both ends copy it */
    bool combed;  /* SEND, RECV that is staged: copied together with those of other channels */
    bool kept;    /* SEND, RECV that is staged: in slots of its own */
    bool joins;   /* RECV that is pulled: the next one of the channel goes on where it ends (join.c) */
    uint32_t channel;
    uint32_t letter;       /* SEND: which; of a staged one its share */
    uint32_t work, nwork;  /* moves; for REDUCE the fold's number */
    uint32_t next, nnext;  /* into program.next: the steps that wait for this one */
    uint32_t hold, nholds; /* REDUCE: into program.holds, the RECVs whose messages it reads where they are */
    int64_t bytes;         /* that are read */
    const char *slot;      /* RECV of a letter: its slot 0; of a message that keeps its slots: their room */
    uint32_t slots;        /* that it has */
    int64_t slot_bytes, letter_bytes;
    const _Atomic uint64_t *packed; /* RECV that flows: how far it is */
    int64_t number;                 /* where it stands in a slot; not of a tiny letter */
    char *tiny;                     /* where a tiny letter is put together; else NULL */
};

/* A letter of this rank's: one or more SENDs of the same data. */
struct exec_letter {
    char *slot;                    /* slot 0 */
    int64_t at, slot_bytes, bytes; /* at: where slot 0 is behind the first letter */
    int64_t number;                /* where it stands in a slot; not of a tiny one */
    uint32_t slots;
    bool answered;        /* all readers are */
    bool joint;           /* it has its number in common with others, all of which are written when a run starts */
    uint32_t step;        /* one of the SENDs */
    uint32_t outs, nouts; /* into program.readers_of: the channels that it goes to */
    uint64_t run;         /* the last that it was written in */
};

/* A staged message: one SEND, or several of the same data that stand at the same place in their channels. */
struct exec_share {
    uint32_t step, index; /* one of the SENDs; how many of its channel are before it */
    uint32_t outs, nouts; /* into program.sharers */
    uint64_t run;         /* the last that it was packed in */
    int64_t slot;
    char *message;    /* in its slot of this run */
    uint32_t readers; /* that have yet to read it */
    bool alone;       /* no other SEND may share it */
    bool ring;        /* it can go through a ring at the front of its slot */
    bool kept;        /* it has slots of its own, of so many bytes, in this room: */
    int64_t slot_bytes, room;
    char *kept_at;
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
    const _Atomic uint64_t *ready; /* in our block: buckets that may be read */
    _Atomic uint64_t *done;        /* in the peer's block: buckets that have been read */
    uint32_t taken;                /* arrived, and copied where they are not read in place */
    uint32_t settled;              /* read to the end, told to the peer */
    bool letters, pushed;          /* some message is a letter that is not answered; those that are none are pushed */
    bool woven;                    /* way_pushes */
    const struct block *block;     /* the peer's */
    const struct block_message *sends;
    struct block_message *recvs; /* in our block */
    const char *staging;         /* the peer's pool */
    uint32_t move;               /* of a message that flows: where unpacking is, */
    int64_t at, seen; /* bytes of that move (turns, in comb.c), and bytes that were packed when it last looked; of
                       * one that is helped: pieces that were copied here, and 1 when none is left to take */
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
    bool answered;                /* the peer sends something in each run, too, and ranks share cores */
    bool letters;                 /* some message is a letter, and none is answered */
    bool pushed, woven;           /* way_pushes */
    const struct block *block;
    struct block_message *sends;       /* in our block */
    const struct block_message *recvs; /* in the peer's */
    bool crosses;                      /* the peer may read our private memory */
    struct exec_seen watched;
};

/* A tile whose outer loops 0 to cut are walked by the weave: n rows of so many bytes. */
struct weave_rows {
    struct memory_tile inner;
    int cut;
    bool plain; /* a row is bytes in one piece, on both sides, */
    bool casts; /* or such a run and cast */
    int64_t n, bytes;
};

/* Copies that take turns. */
struct weave_stream {
    uint8_t kind; /* PLAN_SEND: pushes of channel `index`; PLAN_RECV: pulls of it; PLAN_COPY: local steps */
    uint32_t index;
    const uint32_t *steps; /* COPY */
    uint32_t n;
    bool lined;      /* COPY: their moves follow each other */
    int64_t quantum; /* bytes a turn */

    int64_t credit; /* of this turn */
    uint32_t at;    /* COPY: the step */
    uint32_t move;  /* of the step */
    int64_t row;    /* of the move */
};

/* Where a stream is that goes row by row with the others. */
struct weave_lane {
    char *dst;
    const char *src;
    int64_t dstep, sstep;
    struct weave_stream *stream;
    struct weave_rows *rows;
    const struct weave_line *line;
    uint8_t to, from;
};

/* A move that is plain rows in one loop, in a small space: with many tensors, what there is to know about their moves
 * is as large as the tensors. */
struct weave_line {
    char *dst;
    const char *src;
    int64_t dstep, sstep, n; /* n rows; 0: the move is none such */
    int64_t bytes;           /* of a row */
};

struct weave {
    struct weave_stream *streams;
    struct weave_lane *lanes;
    struct weave_line *lines; /* one for each move of the program */
    uint32_t n, left;         /* left: streams that are not through */
};

/* Channels with ranks on other hosts (far.h). */
struct far_channel;
struct far {
    uint32_t n;
    struct far_channel *channels; /* those that receive first */
    int64_t slot_bytes;           /* of all of them: counts against the comm's limit */
};

#define DRIVERS_MOST 8 /* rows of the table in driver.c, at most */
struct driver;

struct program {
    struct arena arena;
    struct exec_place *places; /* one a buffer of the plan */
    uint32_t nsteps, nins, nouts, nfirst;
    bool staged; /* some SEND is */
    bool held;   /* some SEND may have to wait for what peers do: it is staged or a letter */
    bool pushed; /* some RECV is */
    bool helps;  /* some SEND is helped */
    struct exec_step *steps;
    uint32_t *next, *holds, *buckets, *first; /* first: COPY and REDUCE steps that wait for nothing */
    uint32_t *open0, *readers0;               /* what open and readers are at the start of a run */
    struct exec_in *ins;                      /* from the next higher rank on, round the world */
    struct exec_out *outs;
    struct exec_move *moves;
    struct exec_fold *folds;
    struct exec_letter *letters, *joint; /* joint: one of those that are, if any */
    uint32_t nletters, *readers_of;
    int64_t letter_bytes; /* of all their slots */
    struct exec_share *shares;
    uint32_t nshares, *sharers;
    struct weave weave;
    struct comb_lane *lanes; /* of comb.c: one a channel, outs first */
    struct far far;
    const struct driver *driver; /* of its runs, NULL: not chosen yet */
    void *state;                 /* the driver's own, one of states */
    void *states[DRIVERS_MOST];
    uint32_t drivers; /* that could drive it: a bit for each row of the table */
    struct staging_reserve reserve;
    int64_t room; /* bytes in the block for messages that keep their slots: charged */

    /* the run */
    uint32_t *open;          /* steps that a step still waits for */
    uint32_t *readers;       /* RECV: folds that have yet to read its message where it is */
    uint32_t *urgent, *lazy; /* steps that can go */
    uint32_t urgent_head, urgent_tail, lazy_head, lazy_tail;
    uint32_t left;     /* steps to do */
    uint32_t unposted; /* SENDs to post */
    bool launchable;   /* a SEND has opened since launch looked */
};

struct weft_exec {
    struct comm_task task; /* first: a task is its exec. In the comm's list while a run is in flight */
    weft_comm *comm;
    const weft_plan *plan;
    struct block *block;
    const struct block **held; /* of ranks that are no peers: swap.c */
    uint32_t nheld;
    uint64_t place;                 /* of the block */
    struct comm_deferred *deferred; /* for the block's end, kept so that free cannot fail */
    char *scratch;
    struct program *program;
    int64_t pulsed_at; /* exec_mail.c: when peers on other hosts last heard that this rank is at work */
    /* These four are also for threads without the progress lock: */
    _Atomic int state;                    /* EXEC_IN_FLIGHT, or how its last run ended: 0 or a failure */
    _Atomic int64_t asked, ended, failed; /* runs; asked: for which start was called, with a progress thread */
    bool binding;                         /* in rebind: callbacks that run meanwhile must not start it */
    bool orphan;                          /* freed in a callback while in flight */
    uint64_t run;                         /* started so far */
    void (*done)(void *arg, int err);
    void *arg;
    struct arrivals *arrivals; /* NULL: nobody asks for them */
};

/* ---- run.c ---- */

#define EXEC_IN_FLIGHT 1

/* Has it a run in flight? Acquire: if not, all that the last one wrote is there. */
static inline bool exec_in_flight(const weft_exec *x)
{
    return atomic_load_explicit(&x->state, memory_order_acquire) == EXEC_IN_FLIGHT;
}
extern const struct comm_task_ops exec_task;

/* ---- describe.c ---- */

void describe_exec(const struct comm_task *t, struct text *text); /* for the flight recorder, as a JSON object */

/* ---- view.c ---- */

/* Fills places of SRC, DST and TEMP buffers; refuses views that are missing, too small or not aligned. */
int view_places(const weft_exec *x, const weft_view *src, const weft_view *dst, struct exec_place *places);
/* Bytes from the first element's address to the last one's end; shape without a 0. */
int64_t view_extent(int ndim, const int64_t *shape, const int64_t *stride, int64_t size);
/* "tensor 'w'" or, without a name, "tensor 3"; in a buffer of VIEW_NAME bytes. */
#define VIEW_NAME 96
const char *view_tensor(const weft_plan *p, uint32_t tensor, char *buf);

/* ---- overlap.c ---- */

int overlap_check(const weft_plan *p, const struct exec_place *places);

/* ---- tile.c ---- */

/* A part's loops, outermost first: two a dim. Returns their number; *at is the first element's offset in bytes. */
int tile_loops(const weft_plan *p, const struct plan_part *part, const int64_t *dim_stride, int64_t *n, int64_t *stride,
               int64_t *at);
/* The strides of the same loops over a dense message. */
void tile_dense(int loops, const int64_t *n, int64_t size, int64_t *stride);
/* Makes k operands walk together in as few and as long loops as can be: drops loops of one turn, puts the others in
 * order of operand 0's memory, joins neighbours. Returns the loops that are left. */
int tile_merge(int loops, int64_t *n, int64_t (*stride)[MEMORY_LOOPS], size_t k);
uint64_t tile_hash(const struct memory_tile *t);
bool tile_same(const struct memory_tile *a, const struct memory_tile *b);

/* ---- program.c and fill.c ---- */

/* Steps, channels and places: all that needs no peer. */
int program_outline(weft_exec *x, struct program *p);
/* The rest, with the peers' blocks: block_at[r] is where rank r's is. */
int program_fill(weft_exec *x, struct program *p, const uint64_t *block_at);
void program_free(weft_exec *x, struct program *p);
void *program_take(struct program *p, size_t n, size_t size); /* zeroed memory that lives as long as p; NULL: none */

/* ---- way.c ---- */

bool way_answered(const struct program *p, int peer); /* does the peer send something in each run? */
/* Which SENDs are letters, from the plan alone; room for all in *p. */
int way_letters(const weft_exec *x, struct program *p);
/* Are most bytes of these SENDs, or RECVs, far apart in this rank's memory? */
bool way_scattered(const weft_exec *x, const struct program *p, const uint32_t *steps, uint32_t n);
/* Of a SEND or RECV: how many pieces of this rank's memory it is. */
int64_t way_runs(const weft_exec *x, const struct program *p, uint32_t step);
/* Which staged SENDs share a slot. */
int way_shares(const weft_exec *x, struct program *p);
/* Does a channel push what is neither letter nor staged? Both ends come to the same answer. *woven: whoever copies
 * should walk through the memory of all its peers' messages at once. */
struct block;
struct block_message;
bool way_pushes(const struct block *from, const struct block_message *sends, const struct block *to,
                const struct block_message *recvs, uint32_t n, bool *woven);

/* ---- cross.c ---- */

/* May this rank read the peer's private memory? */
bool cross_may(const weft_comm *c, int peer);
/* The least bytes in one piece with which the messages of this rank's private memory should be read there; INT64_MAX:
 * none. */
int64_t cross_worth(const weft_exec *x, const struct program *p);
/* Is the message read so, by a receiver that may? Both ends come to the same answer. */
bool cross_fits(const struct block *from, const struct block_message *send, const struct block *to,
                const struct block_message *recv, bool may);
/* Reads the message; false: the comm has failed. */
bool cross_take(weft_exec *x, const struct exec_in *in, const struct exec_step *step);

/* ---- flow.c ---- */

/* Is this rank one whose messages flow: with a core for itself, and with more to send than to receive? */
bool flow_one_way(const weft_exec *x, const struct program *p);
bool flow_fits(const struct plan_step *send);
/* With the peers' blocks: which shares can go through a ring. */
void flow_make(const weft_exec *x, struct program *p);
/* Packs a share that has its slot; the receivers see it from the first piece on. */
void flow_pack(weft_exec *x, const struct exec_share *share, const struct exec_step *step, char *message);
/* Does what the engine will do for each channel when the message is packed: they can see it. */
void flow_show(weft_exec *x, const struct exec_share *share);
void flow_tell(weft_exec *x, const struct exec_share *share, int64_t bytes); /* so many are packed */
/* Of the next message of the channel, which has been launched: is there more than was seen? */
bool flow_arrived(const weft_exec *x, const struct exec_in *in);
int64_t flow_there(const weft_exec *x, const struct exec_in *in); /* its bytes that are packed; acquires them */
/* Unpacks what is there, so many bytes; true: that was the rest. */
bool flow_take(const weft_exec *x, struct exec_in *in, const struct exec_step *step, int64_t *bytes);

/* ---- keep.c ---- */

/* Which staged messages keep their slots; room in *p for these, unless it is bound again. */
void keep_choose(weft_exec *x, struct program *p);
void keep_none(weft_exec *x, struct program *p); /* takes that back */
void keep_describe(const weft_exec *x, const struct program *p, const struct exec_share *share,
                   struct block_message *m);
void keep_open(const weft_exec *x, struct program *p); /* between the meetings of bind: no peer is in a run */
#define KEEP_SLOTS 2
#define KEEP_MOST (INT64_C(1) << 32)                          /* bytes of a message */
static inline _Atomic uint64_t *keep_packed(const char *room) /* of one that flows: flow.c */
{
    return (_Atomic uint64_t *)(uintptr_t)room;
}
static inline char *keep_slot(const char *room, int64_t slot_bytes, uint64_t run) /* of this run's message */
{
    return (char *)(uintptr_t)room + CORE_LINE + (int64_t)(run % KEEP_SLOTS) * slot_bytes;
}

/* ---- comb.c ---- */

/* Does this SEND flow in strips? */
bool comb_flows(const weft_exec *x, const struct program *p, uint32_t send);
int comb_make(const weft_exec *x, struct program *p);
/* Packs the channel's message, which has its slot, together with those of later channels that can go and get one. */
void comb_pack(weft_exec *x, const struct exec_out *out);
/* Is it better to wait until what is unpacked together with the channel's next message has come, too? */
bool comb_waits(const weft_exec *x, const struct exec_in *in);
/* Unpacks the channel's message, which is there, together with those of later channels; returns their bytes. */
int64_t comb_take(weft_exec *x, const struct exec_in *first);

/* ---- help.c ---- */

/* What `claimed` of a message is after so many runs in which it was helped. Binding again writes it whether or not the
 * message is to be helped then: if that is refused, what was bound before goes on. */
uint64_t help_claimed(uint64_t runs, int64_t bytes);
/* May a rank that has the time help with this SEND? */
bool help_wants(const struct plan_step *send, const struct exec_step *step);
/* Is the message helped? Its moves here are known; both ends come to the same answer. */
bool help_fits(const struct program *p, const struct exec_step *step, const struct block_message *send,
               const struct block_message *recv, bool woven);
bool help_pass(weft_exec *x); /* copies a piece of what was sent and not read; true: there was one */
/* Of the next message of the channel, which has been launched: can anything be done with it? */
bool help_arrived(const weft_exec *x, const struct exec_in *in);
/* Copies some of it, so many bytes; true: all of it is there. */
bool help_take(weft_exec *x, struct exec_in *in, const struct exec_step *step, int64_t *bytes);

/* ---- join.c: pulls that go on where the one before ends ---- */

void join_make(struct program *p); /* when all else is chosen */
/* Takes the message that has come, and those with it that go on and have come, too. Returns the bytes. */
int64_t join_take(weft_exec *x, struct exec_in *in);

/* ---- engine.c ---- */

bool engine_arrived(const weft_exec *x, const struct exec_in *in); /* the next message of the channel is there */
/* A step is done as far as those that wait for it are concerned. */
void engine_opened(struct program *p, const struct exec_step *step);
/* Takes a slot for a staged message of this run; false: not now. */
bool engine_slot(weft_exec *x, struct exec_share *share);
bool engine_can_take(const weft_exec *x, const struct exec_in *in);      /* is the channel's next message there? */
const char *engine_staged(const weft_exec *x, const struct exec_in *in); /* where it is, if it is staged */
void engine_pack(const struct program *p, const struct exec_step *step, char *message);
void engine_unpack(const struct program *p, const struct exec_step *step, const char *message);
void engine_move(const struct exec_move *m, char *dst, const char *src);
void engine_bytes(const struct exec_move *m, char *dst, const char *src, size_t bytes); /* some that are in one piece */
void engine_write(const weft_exec *x, const struct exec_letter *letter);                /* does not seal a joint one */
void engine_seal(const weft_exec *x);                                                   /* the joint ones, if any */
const char *engine_letter(const weft_exec *x, const struct exec_step *step); /* RECV of a letter: this run's slot */
void engine_do(const weft_exec *x, const struct exec_step *step);            /* COPY or REDUCE */
void engine_pushed(weft_exec *x, struct exec_out *out); /* the first that was not posted has been */
void engine_pulled(weft_exec *x, struct exec_in *in);   /* the first that was not taken has been */
void engine_copied(weft_exec *x, uint32_t step);

/* ---- arrivals.c: only where x->arrivals ---- */

void arrivals_reset(struct arrivals *a);         /* a run begins */
void arrivals_step(weft_exec *x, uint32_t step); /* a COPY, REDUCE or RECV is done */
void arrivals_free(struct arrivals *a);          /* NULL is fine */

/* ---- weave.c ---- */

/* Is the tile's loop its last, and bytes in one piece on both sides? */
bool weave_is_run(const struct exec_move *m, int loop);
int weave_make(weft_exec *x, struct program *p);
void weave_start(struct program *p);
bool weave_pass(weft_exec *x, bool eager);
#endif
