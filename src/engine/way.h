/* Ways: how one message travels. Each is a file in ways/ that exports one struct way, and a row of the table in
 * way_table.c.
 *
 * A sender offers each message before it knows its peers (enum exec_offer): in place, in staging memory, or in an eager
 * slot of its control block. At bind both ends see both descriptions of the message, ask the rows in order, and take
 * the first that fits. `fits` is a pure function of what the two blocks say, so both ends take the same way.
 *
 * The pipeline (drivers/pipeline.c) decides when something is done with a message, and calls the functions here to do
 * it. The comment of a function that may be NULL says what happens then. None of them waits or allocates. */
#ifndef WEFT_ENGINE_WAY_H
#define WEFT_ENGINE_WAY_H
#include "engine/block.h"

/* Both ends of a message, and of its channel, as the blocks describe them. */
struct way_ends {
    const struct block *from, *to;
    const struct block_message *send, *recv;
    bool pushes; /* the channel is better copied by its sender */
    bool woven;  /* the side that copies should walk through its messages with all peers at once: order/weave.c */
};

/* What `take` has done. */
enum way_state {
    WAY_BEGUN, /* a part: `arrived` says when there is more to do */
    WAY_OVER   /* the message has been taken */
};

/* Which moves bind makes for a message. */
enum way_moves {
    WAY_MOVES_NONE,
    WAY_MOVES_MESSAGE, /* between its places and a dense message */
    WAY_MOVES_PLACES,  /* between its places here and its places in the peer's memory: zero-copy */
    WAY_MOVES_PRIVATE  /* from the peer's private memory, by addresses that only the peer can load from */
};

/* Can a fold read the message without a copy? */
enum way_folds {
    WAY_FOLDS_COPY,
    WAY_FOLDS_SLOT, /* yes, in its slot of this run */
    WAY_FOLDS_PLACE /* yes, in the sender's memory, unless a step of the sender waits until it has been read */
};

struct way {
    const char *name;
    const char *what; /* in a few words, for explain */
    const char *why;  /* why a message travels so, in a few words; NULL: the sender's reason to stage it */
    bool basic;       /* some messages have no other way, so it cannot be switched off */
    bool offered;     /* the offer alone decides it: the receiver cannot switch it off */
    bool own_signal;  /* the message itself says that it has arrived: the sender does not advance `ready` */
    bool at_launch;   /* the SEND is done when it is launched */
    bool told;        /* the receiver advances `done` when it has read the message */
    bool pushed;      /* the sender writes it: `done` says that it may be written, `ready` that it has been */
    bool in_turn;     /* a pass launches one message of a channel, so that channels take turns */
    enum way_moves send_moves, recv_moves;
    enum way_folds folds;

    bool (*fits)(const struct way_ends *e);

    /* For bind; each may be NULL. Adds what this way says about SEND or RECV s to its description m. */
    void (*describe)(weft_exec *x, struct program *p, uint32_t s, struct block_message *m);
    /* This way was chosen for message k of the channel: notes in `step` what the receiver needs. */
    int (*accept)(weft_exec *x, struct program *p, const struct exec_in *in, uint32_t k, struct exec_step *step);
    /* The moves of a SEND or RECV of `bytes` bytes have been made: notes in `step` what its runs need of them. */
    int (*prepare)(struct program *p, struct exec_step *step, int64_t bytes);

    /* The sender launches the next message of a channel, which waits for no other step. False: it cannot be launched
     * now. NULL: there is nothing to do for it. */
    bool (*launch)(weft_exec *x, struct exec_out *out, const struct exec_step *step);
    /* The receiver has read the first message of the channel that is not retired. NULL: the steps that wait for the
     * SEND may go on, and there is nothing else to do. */
    void (*retire)(weft_exec *x, struct exec_out *out, const struct exec_step *step);
    /* The sender has nothing else to do: it copies a part of what was launched and is not read yet. False: there is
     * nothing of that kind. May be NULL. */
    bool (*assist)(weft_exec *x);

    /* Can the receiver take something of the channel's next message? NULL: it can when `ready` says so. */
    bool (*arrived)(const weft_exec *x, const struct exec_in *in, const struct exec_step *step);
    /* The receiver takes what is there of it. Sets *bytes to about the number of bytes that it copied. */
    enum way_state (*take)(weft_exec *x, struct exec_in *in, const struct exec_step *step, int64_t *bytes);
};

/* ---- way_table.c ---- */

extern const struct way way_wire, way_pinned, way_eager, way_cma, way_staged, way_push, way_assist, way_pull;
extern const struct way *const way_table[];  /* in order; NULL after the last */
uint64_t way_table_bit(const struct way *w); /* of toggle.h */

/* ---- way.c ---- */

/* Are the messages of a channel that are neither eager nor staged pushed? Both ends come to the same answer. *woven:
 * they are better copied together with those of other channels (order/weave.c). */
bool way_pushes(const struct block *from, const struct block_message *sends, const struct block *to,
                const struct block_message *recvs, uint32_t n, bool *woven);
/* The way of a message: the first row that fits. */
const struct way *way_choose(const struct way_ends *e);
/* Both ends of message k of a channel: from the view of its receiver, and of its sender. */
struct way_ends way_ends_in(const weft_exec *x, const struct exec_in *in, uint32_t k);
struct way_ends way_ends_out(const weft_exec *x, const struct exec_out *out, uint32_t k);
#endif
