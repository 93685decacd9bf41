/* Ways: how one message travels. Each is a file in ways/ that exports one struct way, and a row of the table in
 * way_table.c.
 *
 * A sender offers each message before it knows its peers (enum exec_offer): in place, in staging memory, or in an eager
 * slot of its block. At bind both ends see both descriptions of the message, ask the rows in order, and take the first
 * that fits. `fits` is a pure function of what the two blocks say, so both ends take the same way.
 *
 * The pipeline (drivers/pipeline.c) says what it does with a message when; the functions here do it. Those that may be
 * NULL say what happens then. They are called by whoever makes progress on the comm. None of them waits or allocates.
 */
#ifndef WEFT_ENGINE_WAY_H
#define WEFT_ENGINE_WAY_H
#include "engine/block.h"

/* Both ends of a message, and of its channel, as the blocks describe them. */
struct way_ends {
    const struct block *from, *to;
    const struct block_message *send, *recv;
    bool pushes; /* the channel is better copied by its sender */
    bool woven;  /* whoever copies should walk through the memory of all its peers' messages at once */
};

/* What `take` has done. */
enum way_state {
    WAY_BEGUN, /* some of it: `arrived` says when there is more to do */
    WAY_OVER   /* the message has been taken */
};

/* Which moves bind makes for a message. */
enum way_moves {
    WAY_MOVES_NONE,
    WAY_MOVES_MESSAGE, /* between its places and a dense message */
    WAY_MOVES_PLACES   /* between its places here and its places at the peer's */
};

/* Can a fold read the message where it is, instead of a copy? */
enum way_folds {
    WAY_FOLDS_COPY,
    WAY_FOLDS_SLOT, /* yes, in its slot of this run */
    WAY_FOLDS_PLACE /* yes, at the sender's, unless somebody waits to have it read */
};

struct way {
    const char *name;
    const char *what; /* in a few words, for explain */
    const char *why;  /* messages that it carries, in a few words; NULL: the sender's reasons to stage */
    bool basic;       /* messages that it carries have no other way, so it cannot be switched off */
    bool offered;     /* the offer alone decides it: the receiver cannot switch it off */
    bool own_signal;  /* the message shows by itself that it is there: `ready` is not told */
    bool at_launch;   /* the sender is through with the message when it is launched */
    bool told;        /* the receiver tells `done` when it has read the message */
    bool pushed;      /* the sender writes it: `done` says that it may, `ready` that it has */
    bool in_turn;     /* a pass launches one of a channel's, so that channels take turns */
    enum way_moves send_moves, recv_moves;
    enum way_folds folds;

    bool (*fits)(const struct way_ends *e);

    /* Bind, each may be NULL. The SEND s is described in m: adds what this way has to say of it. */
    void (*describe)(weft_exec *x, struct program *p, uint32_t s, struct block_message *m);
    /* This way was chosen for message k of the channel: notes what it needs to receive it. */
    int (*accept)(weft_exec *x, struct program *p, const struct exec_in *in, uint32_t k, struct exec_step *step);
    /* The moves of all messages have been made. */
    void (*complete)(weft_exec *x, struct program *p);

    /* The sender: shows the next message of a channel, which waits for nothing. False: it cannot go now. NULL: nothing
     * has to be done for it. */
    bool (*launch)(weft_exec *x, struct exec_out *out, const struct exec_step *step);
    /* The receiver has read the first message of the channel that is not retired. NULL: those that wait for the
     * message may go on, which is all. */
    void (*retire)(weft_exec *x, struct exec_out *out, const struct exec_step *step);
    /* The sender has nothing better to do: copies some of what was launched and not read; true: there was something.
     * May be NULL. */
    bool (*assist)(weft_exec *x);

    /* The receiver: is there something to take of the channel's next message? NULL: when `ready` says so. */
    bool (*arrived)(const weft_exec *x, const struct exec_in *in, const struct exec_step *step);
    /* Takes of it what is there. Sets *bytes to about the number of bytes that it copied. */
    enum way_state (*take)(weft_exec *x, struct exec_in *in, const struct exec_step *step, int64_t *bytes);
};

/* ---- way_table.c ---- */

extern const struct way way_eager, way_wire, way_staged, way_push, way_assist, way_pull;
extern const struct way *const way_table[];  /* in order; NULL after the last */
uint64_t way_table_bit(const struct way *w); /* of toggle.h */

/* ---- way.c ---- */

/* Does a channel push what is neither eager nor staged? Both ends come to the same answer. *woven: see way_ends. */
bool way_pushes(const struct block *from, const struct block_message *sends, const struct block *to,
                const struct block_message *recvs, uint32_t n, bool *woven);
/* The way of a message: the first row that fits. */
const struct way *way_choose(const struct way_ends *e);
/* The channel's message, to the sender and to the receiver. */
struct way_ends way_ends_in(const weft_exec *x, const struct exec_in *in, uint32_t k);
struct way_ends way_ends_out(const weft_exec *x, const struct exec_out *out, uint32_t k);
#endif
