/* Messages with ranks that this one shares no memory with. They travel as messages of a wire, set up
 * at bind and started in every run: from or to their place where that is dense and has the message's
 * dtype, else through slots that the channel keeps. Each has a tag of its own, and its nth start at
 * one end meets the nth at the other, so runs cannot be taken for each other. */
#ifndef WEFT_ENGINE_WAYS_WAY_WIRE_H
#define WEFT_ENGINE_WAYS_WAY_WIRE_H
#include "engine/exec.h"
#include "transport/hosts/hosts.h"

struct wire_bucket {
    struct wire_message *wire;
    uint32_t step;
    char *slot; /* NULL: none is needed */
};

/* Messages one way with one peer. */
struct wire_channel {
    int peer;
    bool sends;
    uint32_t n;
    struct wire_bucket *messages;
    uint64_t tag;   /* of the first message */
    uint32_t slots; /* that messages use in turn */

    /* the run */
    uint32_t begun, ended;             /* messages */
    uint32_t slots_begun, slots_ended; /* those of them that have one */

    uint64_t peer_run; /* that the peer is known to have started */
    int64_t heard_at;  /* when it last said that it is at work, or when this rank began to wait for it */
    bool gone;         /* the peer was, when this was last watched, */
    bool looked;       /* and what is waited for had not come when it was looked for after that */
    bool freed;        /* the peer has freed its exec, */
    uint64_t last_run; /* after this run */
};

/* From the plan alone: which steps are with ranks of other hosts. */
int way_wire_outline(weft_exec *x, struct program *p);
/* Gives the channels their tags. Ranks do this at the same place of every bind, so that both ends come to the same. No
 * tag is given twice, but a program that takes another's place has its tags: all that was sent with them has been
 * received. */
int way_wire_tags(weft_exec *x, struct program *p);
/* With the moves of the messages at hand: slots, and the wire's messages. */
int way_wire_fill(weft_exec *x, struct program *p);
/* False: the wire could not be made to let go of the slots. */
bool way_wire_free(const weft_exec *x, struct program *p);
void way_wire_start(weft_exec *x);
bool way_wire_pass(weft_exec *x);
/* Is the channel held up by its peer? */
bool way_wire_waits(const struct wire_channel *ch);
/* Word of a peer: it is at work in `run` of an exec. */
void way_wire_heard(weft_exec *x, int peer, uint64_t run, int64_t now);
/* Word of a peer: it has freed its exec after `run`. */
void way_wire_freed(weft_exec *x, int peer, uint64_t run);
#endif
