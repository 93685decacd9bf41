/* Messages between ranks that share no memory: way_wire.c. */
#ifndef WEFT_ENGINE_WAYS_WAY_WIRE_H
#define WEFT_ENGINE_WAYS_WAY_WIRE_H
#include "engine/exec.h"
#include "transport/hosts/hosts.h"

struct wire_bucket {
    struct wire_message *wire;
    uint32_t step;
    char *slot; /* NULL: it needs none */
};

/* The messages with one peer in one direction. */
struct wire_channel {
    int peer;
    bool sends;
    uint32_t n;
    struct wire_bucket *messages;
    uint64_t tag;                /* of the first message */
    uint32_t slots;              /* how many slots its messages use in turn */
    struct proof_channel *proof; /* NULL: its messages are not checked */

    /* the run */
    uint32_t begun, came, ended;       /* messages; came: the wire has carried them */
    uint32_t slots_begun, slots_ended; /* messages that have a slot */

    uint64_t peer_run; /* the last run that the peer is known to have started */
    int64_t heard_at;  /* nanoseconds: when it last said that it is at work, or when this rank began to wait for it */
    bool gone;         /* the peer was gone when watch.c last looked, */
    bool looked;       /* and since then this rank has looked for its next message, which had not come */
    bool freed;        /* the peer has freed its exec, */
    uint64_t last_run; /* after this run */
};

/* Finds the steps whose peers are on other hosts, from the plan alone. */
int way_wire_outline(weft_exec *x, struct program *p);
/* Gives the channels their tags. Ranks do this at the same point of every bind, so that both ends come to the same
 * tags. No tag is given twice. One exception: after binding again, the new program has the tags of the old one, since
 * everything that was sent with them has been received. `checks`: all ranks check messages. */
int way_wire_tags(weft_exec *x, struct program *p, bool checks);
/* Makes slots and the messages of the wire, when the moves of all messages are known. */
int way_wire_fill(weft_exec *x, struct program *p);
/* False: the wire still uses the slots, and could not be made to stop. */
bool way_wire_free(const weft_exec *x, struct program *p);
void way_wire_start(weft_exec *x);
bool way_wire_pass(weft_exec *x);
/* Does the channel wait for its peer? */
bool way_wire_waits(const struct wire_channel *ch);
/* The peer says that it is at work in this run. */
void way_wire_heard(weft_exec *x, int peer, uint64_t run, int64_t now);
/* The peer says that it has freed its exec after this run. */
void way_wire_freed(weft_exec *x, int peer, uint64_t run);
#endif
