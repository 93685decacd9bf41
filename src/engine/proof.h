/* The check of messages (weft_bind_opts.check, WEFT_CHECK): every message is proved end to end. The sender sums each
 * part of a message in its own memory, when it sends it. The receiver sums the part in its own memory, where the
 * message was written. If the two sums (memory/sum.h) differ, the comm fails with a text that names the sender, the
 * tensor and the box.
 *
 *   proof.c         bind, and the sums of what is sent
 *   proof_came.c   comparing what has come with what was sent
 *   proof_wire.c    the sums of channels with other hosts
 *
 * What is summed are the elements as the destination has them: if a part is cast on the way, its sender casts what it
 * sums in the same way. The sums of ranks of one host are in the sender's control block. Between hosts they follow the
 * messages of a channel as one more message, and the last message of a channel is not over before they have come.
 *
 * Only the pipeline handles messages one by one. So an exec that is checked has no other driver, no eager messages, and
 * no folds that read a message in the sender's memory. A step's way is replaced by a copy of it that sums first
 * (proof_make). So an exec that is not checked pays nothing for messages of one host that one rank copies alone;
 * order/weave.c and ways/way_wire.c test a pointer for each message. */
#ifndef WEFT_ENGINE_PROOF_H
#define WEFT_ENGINE_PROOF_H
#include "engine/way.h"
#include "engine/ways/way_wire.h"

#define PROOF_WAYS 16 /* copies of ways: more than there are ways */

/* A part of a message in this rank's memory, and how it is summed. */
struct proof_part {
    const char *base;
    const struct memory_tile *tile; /* NULL: bytes in one piece, no cast */
    int64_t bytes;
    uint32_t same; /* the first part of the same data */
    uint8_t from, via, to;
    uint64_t run, sum; /* the run in which it was last summed, and the sum */
};

/* A way of a step that is checked. */
struct proof_way {
    struct way way; /* first, so that a step's way is one */
    const struct way *inner;
};

struct proof {
    /* Two for each part of the plan. Of a message to another host the first is the part as the message has it, and the
     * second as the destination has it. Other messages use the first alone. */
    struct proof_part *parts;
    uint64_t *copied; /* for each RECV: the last run in which its message was copied */
    struct proof_way ways[PROOF_WAYS];
    int nways;
};

/* ---- proof.c ---- */

/* asked: weft_bind_opts.check; 0: WEFT_CHECK decides. */
int proof_wanted(int64_t asked, bool *wanted);
/* Bytes in this rank's control block: two sums for each part, for even and for odd runs, and a stamp for each message,
 * which is the run whose sums are there. */
size_t proof_room(uint32_t nparts, uint32_t nmessages);
/* When the ways of all messages have been chosen. */
int proof_make(weft_exec *x, struct program *p);

uint64_t proof_sum(const struct proof_part *c);
/* The sum of one that is sent, computed once in a run. `out`: its message is the next one of this channel. NULL: it
 * goes to another host. */
uint64_t proof_sent(weft_exec *x, const struct exec_out *out, uint32_t part);
/* Where the sums of this run are in a block, one for each of its parts. Sums of the run before may still be read: a
 * sender that pushes is up to one run ahead. */
uint64_t *proof_sums(const weft_exec *x, const struct block *b);
/* Sums the next message of a channel, which waits for no step. The sender may do this again before it sends it. */
void proof_sends(weft_exec *x, const struct exec_out *out);

/* ---- proof_came.c ---- */

/* The next message of a channel has been written to its destination: sums it there. */
void proof_came_sum(weft_exec *x, const struct exec_in *in);
/* Its sender has summed it, too: is it what was sent? False: the comm has failed, and the message does not count as
 * taken. */
bool proof_came(weft_exec *x, const struct exec_in *in);
/* Fails the comm: this part of a message is not what was sent. Returns false. */
bool proof_came_fails(weft_exec *x, int peer, uint32_t part, uint64_t sent, uint64_t got);

/* ---- proof_wire.c ---- */

/* The sums of a channel's messages, and the message of the wire that carries them. */
struct proof_channel {
    struct wire_message *wire;
    uint32_t n, *first;   /* how many sums there are, and for each message its first one */
    uint64_t *sums, *got; /* as the sender has summed, and as the receiver has */
};

int proof_wire_parts(weft_exec *x, struct program *p, const struct wire_channel *ch, struct proof_part *parts);
int proof_wire_make(weft_exec *x, struct program *p, struct wire_channel *ch);
/* The next message of the channel has been started. Returns the wire's error code. */
int proof_wire_began(weft_exec *x, struct wire_channel *ch);
/* The next message has come or is sent: is it over? As `test` of a wire. The last one waits for the sums. */
int proof_wire_test(const struct wire_channel *ch);
/* It has been written to its destination: is it what was sent? False: the comm has failed. */
bool proof_wire_came(weft_exec *x, struct wire_channel *ch);

/* For proof_wire_parts. */
int proof_fill_part(weft_exec *x, struct program *p, uint32_t part, int to, struct proof_part *c);
int proof_fill_recv(weft_exec *x, struct program *p, uint32_t step, struct proof_part *parts);
#endif
