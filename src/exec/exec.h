/* An exec: a plan bound to memory and peers. What bind makes of the plan is a program: steps with
 * ready-made tiles, channels with their counters, and the arrays that a run works on. Nothing in it
 * is searched for, computed or allocated when it runs.
 *
 *   view.c     the caller's views become places: an address and strides for each buffer of the plan
 *   overlap.c  which places may share memory
 *   block.c    what a rank shows its peers: counters, and where its messages are
 *   program.c  steps and channels, from the plan alone; fill.c the tiles, with the peers' blocks at hand
 *   engine.c   the run; run.c the calls around it; watch.c peers that are gone or stalled */
#ifndef WEFT_EXEC_EXEC_H
#define WEFT_EXEC_EXEC_H
#include "base/arena.h"
#include "exec/comm.h"
#include "memory/memory.h"
#include "plan/plan.h"

/* Where a buffer of the plan stands in memory. */
struct exec_place {
    char *base;
    uint64_t at;                   /* where peers find base */
    bool reached;                  /* they can */
    int64_t stride[WEFT_MAX_DIMS]; /* in bytes */
};

/* One part read and written, cast on the way. */
struct exec_move {
    char *dst;       /* packing: dst is the message at offset */
    const char *src; /* unpacking: src is */
    int64_t offset;
    const struct memory_tile *tile; /* NULL: bytes in one piece, no cast */
    int64_t bytes;
    uint8_t to, from;
};

struct exec_fold {
    char *dst;
    const struct memory_tile *tile;
    struct memory_term *terms;
    size_t n; /* 0: fill with the identity */
    int64_t div;
    uint8_t to, via, acc, op;
};

struct exec_step {
    uint8_t kind; /* enum plan_kind */
    bool staged;  /* SEND, RECV: through staging memory */
    bool urgent;  /* COPY, REDUCE: other steps wait for it */
    uint32_t channel;
    uint32_t work, nwork;  /* moves; for REDUCE the fold's number */
    uint32_t next, nnext;  /* into program.next: the steps that wait for this one */
    uint32_t hold, nholds; /* REDUCE: into program.holds, the RECVs whose messages it reads where they are */
    int64_t bytes;         /* that are read */
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
    const struct block *block;     /* the peer's */
    const struct block_send *sends;
    const char *staging; /* the peer's pool */
    uint64_t seen_pulse; /* for watch.c */
    int64_t seen_at;
};

/* Messages to one peer. */
struct exec_out {
    int peer;
    uint32_t n;
    const uint32_t *steps;
    uint64_t base;
    _Atomic uint64_t *ready;      /* in the peer's block */
    const _Atomic uint64_t *done; /* in ours */
    uint32_t posted;              /* may be read */
    uint32_t retired;             /* have been read */
    const struct block *block;
    struct block_send *sends; /* in our block */
    uint64_t seen_pulse;
    int64_t seen_at;
};

struct program {
    struct arena arena;
    struct exec_place *places; /* one a buffer of the plan */
    uint32_t nsteps, nins, nouts, nfirst;
    bool staged; /* some SEND is */
    struct exec_step *steps;
    uint32_t *next, *holds, *buckets, *first; /* first: COPY and REDUCE steps that wait for nothing */
    uint32_t *open0, *readers0;               /* what open and readers are at the start of a run */
    struct exec_in *ins;                      /* from the next higher rank on, round the world */
    struct exec_out *outs;
    struct exec_move *moves;
    struct exec_fold *folds;
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

struct weft_exec {
    weft_comm *comm;
    const weft_plan *plan;
    uint64_t number; /* of the meeting that bound it: the same on all ranks */
    struct block *block;
    uint64_t place;           /* of the block */
    struct comm_grave *grave; /* for the block's end, kept so that free cannot fail */
    char *scratch;
    struct program *program;
    weft_exec *prev, *next_exec; /* in the comm's list of those in flight */
    bool inflight;
    bool binding; /* in rebind: callbacks that run meanwhile must not start it */
    bool orphan;  /* freed in a callback while in flight */
    int err;      /* 0, or the failure that ended its last run */
    uint64_t run; /* started so far */
    int64_t completed;
    void (*done)(void *arg, int err);
    void *arg;
};

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

/* ---- program.c and fill.c ---- */

/* Steps, channels and places: all that needs no peer. */
int program_outline(weft_exec *x, struct program *p);
/* The rest, with the peers' blocks: block_at[r] is where rank r's is. */
int program_fill(weft_exec *x, struct program *p, const uint64_t *block_at);
void program_free(weft_exec *x, struct program *p);
void *program_take(struct program *p, size_t n, size_t size); /* zeroed memory that lives as long as p; NULL: none */

/* ---- engine.c ---- */

void engine_start(weft_exec *x);
bool engine_pass(weft_exec *x); /* does what can be done, within bounds; true if something moved */
#endif
