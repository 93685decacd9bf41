/* Pipes: one-way connections from a rank to its neighbours that carry frames in order, hold a bounded number of bytes
 * and never wait. The code above them does not know how ranks reach each other. Frames go whole into a pipe and come
 * whole out of it. The writer may offer a large payload instead of copying it through the pipe, and the reader loads
 * it. A vote of all ranks goes beside the pipes. Within a host all of it is shared memory. Between hosts a pipe is two
 * rings: the wire carries what the writer puts into its ring to the reader's ring, and the ends send each other control
 * messages by mail (pipe_wire.c).
 *
 *   pipe.c        frames and payloads of one pipe, and peers that are gone
 *   pipes.c       all pipes of one rank: making them, and their end
 *   pipes_vote.c  the vote of all ranks at the end of a round
 *   pipe_wire.c   between hosts
 *
 * The writer's end of a pipe belongs to one thread at a time, and so does the reader's; the two need no lock between
 * them. */
#ifndef WEFT_EXCHANGE_PIPE_H
#define WEFT_EXCHANGE_PIPE_H
#include "comm/comm.h"

#define PIPE_LEAST ((size_t)32 << 10) /* bytes of a pipe: a power of two between these */
#define PIPE_MOST ((size_t)256 << 10)
#define PIPE_FRAME 16 /* bytes of a frame are a multiple of it */

/* What is shared of one pipe, in memory of its writer. */
struct pipe_ring {
    _Alignas(CORE_LINE) _Atomic uint32_t hungry; /* written by both: the writer wants to be called when there is room */
    _Alignas(CORE_LINE) _Atomic uint64_t read;   /* bytes that were read; written by the reader */
    _Atomic uint64_t loaded;                     /* offers that were loaded; written by the reader */
    _Atomic uint32_t loading;                    /* written by the reader: it is loading one now */
    _Alignas(CORE_LINE) unsigned char data[];
};

struct pipe_ballot {
    _Alignas(CORE_LINE) _Atomic uint64_t word; /* 2 * the number of votes that were cast, + 1 if the last was a yes */
};

/* What is shared of one rank's ends. Behind it are its lists, first the ranks that it reads from, and then its
 * rings. */
struct pipe_head {
    _Alignas(CORE_LINE) _Atomic uint64_t finished; /* rounds that the owner has finished */
    _Atomic uint32_t freed;                        /* the owner has closed its ends */
    _Atomic uint32_t refcount;                     /* one for the owner, and one for each pipe from or to each peer */
    int32_t nfrom, nto;
    bool votes;
    uint64_t ring_bytes, first; /* bytes from the head to the first ring */
    struct pipe_ballot up[2];   /* written by the ranks that vote through this one */
    struct pipe_ballot down;    /* written by the rank that this one votes through */
    int32_t lists[];
};

struct pipe_part {
    const void *data;
    size_t bytes;
};

/* One end of a pipe between hosts. */
#define PIPE_PIECES 8 /* most pieces of a ring on the wire at a time; each has at most a quarter ring */
struct pipe_wire {
    struct wire_message *pieces[PIPE_PIECES]; /* used in turn */
    uint64_t begun, ended;                    /* pieces */
    /* Bytes that the writer has given to the wire, or that came to the reader. */
    _Atomic uint64_t at;
    uint64_t round; /* the writer: what was written when the last round ended */
    bool ends;      /* the pipe is broken */
};

/* What is known of a rank of another host with which this one has pipes or votes. */
struct pipe_remote {
    int peer;
    struct pipe_head *head;     /* a copy of the peer's head: the peer's mail is put there */
    bool answered;              /* the peer has answered, and says that it */
    bool sends, receives;       /* sends to this rank, receives from this rank */
    uint64_t ring_bytes;        /* of its pipe to this rank */
    bool closed;                /* it has closed its end, after it had written and received */
    uint64_t written, received; /* bytes to this rank; bytes from this rank */
};

/* What is mailed about pipes. */
struct pipe_mail {
    uint32_t kind;     /* of pipe_wire.c */
    uint64_t exchange; /* the number of the meeting that opened it */
    uint64_t a, b;
};

/* What was seen of a peer in a wait for it, in one round. It says nothing about the next round. */
struct pipe_seen {
    uint64_t pulse, round;
    int64_t at;
};

struct pipe_out {
    int peer;
    struct pipe_ring *ring;
    struct pipe_head *head; /* the peer's */
    uint64_t written, read; /* bytes that were written; bytes that were read, as far as this end knows */
    uint64_t peak;          /* the most that were written and not read */
    uint64_t called;        /* `written` when the peer was last called or woken */
    size_t bytes;           /* of the ring */
    void *held;             /* the head of the last frame if it is held back and not sealed yet; NULL: none */
    uint64_t seal;          /* the value of its seal */
    uint64_t tail;          /* where the last frame begins */
    uint64_t offers;        /* payloads that were offered to the peer, which it confirms when it has loaded them */
    struct pipe_wire *wire; /* NULL: the reader shares this rank's memory */
    struct pipe_seen seen;
};

struct pipe_in {
    int peer;
    struct pipe_ring *ring;
    struct pipe_head *head;
    uint64_t read, told; /* bytes that were read; of these, bytes that the writer was told of */
    uint64_t loaded;     /* payloads that were loaded */
    size_t bytes;        /* of the ring */
    struct pipe_wire *wire;
    struct pipe_seen seen;
};

/* All ends of one rank. `memory` counts the bytes that were asked of the transport, which may round them up. */
struct pipes {
    weft_comm *comm;
    int nouts, nins;
    struct pipe_out *outs; /* ascending in rank */
    struct pipe_in *ins;   /* ascending in rank */
    size_t ring_bytes;     /* of each pipe out of this rank */
    size_t frame;          /* the largest frame on them */
    struct pipe_head *head;
    uint64_t place;
    struct comm_deferred *deferred; /* for the deferred free, allocated early so that closing cannot fail */
    struct pipe_head *up, *kids[2]; /* heads of the ranks that it votes with; NULL: none */
    struct pipe_seen up_seen, kids_seen[2];
    atomic_bool fenced; /* pipe_fence has returned */
    bool votes;
    uint64_t finished; /* rounds that this rank has finished */
    bool yes;          /* its vote in the last of them */
    bool passed;       /* this vote and the votes below it were passed up */
    uint64_t ballot;   /* votes that are complete here */
    bool all;          /* the result of the last of them */
    int64_t memory;    /* bytes of all of it */

    /* on several hosts */
    bool wide;
    uint64_t number;
    struct pipes *next; /* of the comm's list */
    struct pipe_remote *remotes;
    int nremotes; /* ascending in rank */
    int64_t pulsed_at;
};

/* ---- pipes.c: all ends of one rank ---- */

/* Checks the lists of weft_exchange_open as far as one rank can. pipes_open checks that no rank is listed twice. */
int pipes_check(const weft_comm *c, const int *from, size_t nfrom, const int *to, size_t nto);
/* Collective; ends in an agreement, as bind does. Makes pipes from the ranks of one list and to those of the other,
 * with `bytes` for each pipe out of this rank. The lists need not be sorted. votes must be equal on all ranks. `code`
 * is 0, or the error for which this rank cannot take part, with this thread's text set: then all ranks get it. The
 * caller has zeroed p. */
int pipes_open(struct pipes *p, weft_comm *c, const int *from, int nfrom, const int *to, int nto, size_t bytes,
               bool votes, int code);
/* Not collective: peers may look at their ends until they close theirs. Accepts pipes that pipes_open has refused. */
void pipes_close(struct pipes *p);
struct pipe_out *pipes_out(const struct pipes *p, int rank); /* NULL: none */
struct pipe_in *pipes_in(const struct pipes *p, int rank);

/* ---- pipe.c: frames ---- */

/* Puts the parts into the pipe as one frame, of at most p->frame bytes. False: there is no room now, and the reader
 * will call when there is. The reader finds the frame if it looks. It is woken once there is a quarter ring to read, or
 * by pipe_call_readers. With `hold` it finds the frame only after the next write, seal or end. */
bool pipe_write(struct pipes *p, struct pipe_out *o, const struct pipe_part *parts, int n, bool hold);
/* Ends the round, with the frame that is held or otherwise with an empty one. False: as in pipe_write. */
bool pipe_end(struct pipes *p, struct pipe_out *o);
void pipe_seal(struct pipe_out *o);
void pipe_call_readers(struct pipes *p);             /* signals each reader that had no signal since the last write */
void pipe_ring(struct pipes *p, struct pipe_out *o); /* wakes the reader if it sleeps */
/* Returns the next frame, in the pipe's memory; NULL: none yet. Pop removes the frame and says whether it was the last
 * of its round. Tell informs the writer, once for each quarter ring. */
const void *pipe_read(struct pipe_in *in, size_t *bytes);
bool pipe_pop(struct pipe_in *in);
void pipe_tell(struct pipes *p, struct pipe_in *in);
int64_t pipe_held(const struct pipe_out *o); /* bytes that were written and, as far as the writer was told, not read */

/* ---- pipe.c: payloads that do not go through the pipe ---- */

/* Can the peer load this memory? If so, *place is what it needs to find it. */
bool pipe_offer(struct pipes *p, const void *memory, size_t bytes, uint64_t *place);
/* Copies a payload here and tells the writer. False: the comm has failed, and nothing was read. */
bool pipe_load(struct pipes *p, struct pipe_in *in, void *dst, uint64_t place, size_t bytes);
bool pipe_offers_taken(const struct pipe_out *o);
/* After a failure: returns when no peer is loading from this rank, so that the caller may free its payloads. For a peer
 * process that was stopped while it loads, the wait ends with the deadline; the peer discards what it loads after
 * that. */
void pipe_fence(struct pipes *p);

/* ---- pipe.c: watching. What is waited for is passed in, since only the exchange knows it. ---- */

enum transport_fate pipe_fate(const struct pipes *p, int rank, const struct pipe_head *head);
/* Has a peer that has finished round number `round` shown no pulse for the whole deadline? */
bool pipe_stalled(const struct pipes *p, int rank, const struct pipe_head *head, uint64_t round, struct pipe_seen *seen,
                  int64_t now);
bool pipe_finished(const struct pipe_head *head, uint64_t round); /* has the peer finished that round? */

/* ---- pipes_vote.c: the ends of rounds ---- */

/* Sets the rounds that this rank has finished, and its vote in the last of them. */
void pipes_vote_round(struct pipes *p, uint64_t finished, bool yes);
/* Makes progress with the vote of round number `round` (from 0 on). True: it is complete, and p->all is the result. */
bool pipes_vote(struct pipes *p, uint64_t round);
/* Finds the up to 3 ranks whose votes are missing; returns how many. */
int pipes_vote_lacks(const struct pipes *p, uint64_t round, int *ranks);
/* The head of one of those. */
const struct pipe_head *pipes_vote_peer(struct pipes *p, int rank, struct pipe_seen **seen);

/* ---- for pipe_wire.c, from pipe.c and pipes.c ---- */

/* Finds whole frames of a ring between two positions: at most `most` bytes, and at most up to the head that says that
 * the rest of the ring is empty, which is included. Returns how many bytes they are, and sets the position behind
 * them. */
uint64_t pipe_span(struct pipe_ring *ring, size_t bytes, uint64_t from, uint64_t to, uint64_t most, uint64_t *next);
uint64_t pipe_sealed(const struct pipe_out *o); /* bytes that may be read */
const int32_t *pipes_from_list(const struct pipe_head *h);
const int32_t *pipes_to_list(const struct pipe_head *h);
int pipes_find(const int32_t *list, int n, int rank); /* index of the rank in a sorted list; -1: it is not there */

/* ---- pipe_wire.c: between hosts. All except the last two need the progress lock. ---- */

/* Before the first meeting, when the lists are known: notes all ranks of other hosts in them. From here on mail of
 * these ranks finds the pipes. */
int pipe_wire_prepare(struct pipes *p);
int pipe_wire_greet(struct pipes *p); /* after the first meeting: waits for an answer of each of them */
/* NULL: the rank is on this host, or has no pipe or vote with this rank. */
struct pipe_remote *pipe_wire_peer(const struct pipes *p, int rank);
int pipe_wire_connect_in(struct pipes *p, struct pipe_in *in); /* after the lists were found to match */
int pipe_wire_connect_out(struct pipes *p, struct pipe_out *o);
/* Moves frames between the rings and the wire; true: something moved. `busy`: peers may wait for this rank, so it tells
 * them that it is at work. Called by the one thread that reads and writes the pipes. */
bool pipe_wire_pump(struct pipes *p, bool busy);
/* Have all frames of complete rounds left this rank's memory? If some never will, because a peer has closed its end,
 * *refuses is that peer, otherwise -1. */
bool pipe_wire_drained(const struct pipes *p, int *refuses);
/* For a rank of another host. A rank that has closed its end counts as here until all that it wrote has come, since
 * mail may overtake its frames. */
enum transport_fate pipe_wire_fate(const struct pipes *p, int rank);
void pipe_wire_vote(struct pipes *p, int rank, uint64_t word);
/* Frees this end, and tells ranks of other hosts so unless `silent`. False: the wire may still read the rings. */
bool pipe_wire_close(struct pipes *p, bool silent);
/* From any thread. */
/* The last write has ended a round; called by the owner of the writer's end. */
void pipe_wire_ended(struct pipe_out *o);
bool pipe_wire_some(const struct pipe_in *in); /* is there something to read? Called by the owner of the reader's end */
#endif
