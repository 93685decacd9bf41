/* Pipes: one-way connections from a rank to its neighbours that carry frames in order, hold a bounded number of bytes
 * and never wait. The code above them does not know how ranks reach each other. Frames go whole into a pipe and come
 * whole out of it. A payload that is not to be copied through the pipe is offered, and the other end loads it if it
 * can. A vote of all ranks goes beside the pipes. All of it is memory that ranks share. Between hosts a pipe is two
 * rings: the wire carries what the writer puts into its ring to the reader's ring, and what the ends tell each other
 * goes by mail (pipe_wire.c).
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

/* What is shared of one pipe, in memory of its writer. */
struct pipe_ring {
    _Alignas(CORE_LINE) _Atomic uint32_t hungry; /* by both: the writer wants to be called when there is room */
    _Alignas(CORE_LINE) _Atomic uint64_t read;   /* bytes, by the reader */
    _Atomic uint64_t loaded;                     /* offers, by the reader */
    _Atomic uint32_t loading;                    /* by the reader: it is in the middle of it */
    _Alignas(CORE_LINE) unsigned char data[];
};

struct pipe_ballot {
    _Alignas(CORE_LINE) _Atomic uint64_t word; /* twice the votes that were cast, and one more if the last was a yes */
};

/* What is shared of one rank's ends. Its lists, those it reads from first, and then its rings follow. */
struct pipe_head {
    _Alignas(CORE_LINE) _Atomic uint64_t finished; /* rounds, by the owner */
    _Atomic uint32_t freed;                        /* the owner has closed its ends */
    _Atomic uint32_t refcount;                     /* of the owner, and of each peer once for each relation */
    int32_t nfrom, nto;
    bool votes;
    uint64_t ring_bytes, first; /* bytes from the head to the first ring */
    struct pipe_ballot up[2];   /* by the ranks that vote through this one */
    struct pipe_ballot down;    /* by the rank that this one votes through */
    int32_t lists[];
};

struct pipe_part {
    const void *data;
    size_t bytes;
};

/* One end of a pipe between hosts. */
#define PIPE_PIECES 8 /* of a ring that may be on the wire at a time; of a quarter ring at most each */
struct pipe_wire {
    struct wire_message *pieces[PIPE_PIECES]; /* used in turn */
    uint64_t begun, ended;                    /* pieces */
    _Atomic uint64_t at;                      /* bytes: the writer's that are on the wire, or came to the reader */
    uint64_t round;                           /* the writer: what was written when the last round ended */
    bool ends;                                /* it is broken */
};

/* What is known of a rank of another host that this one has pipes or votes with. */
struct pipe_remote {
    int peer;
    struct pipe_head *head;     /* stands for the peer's: what it mails is put there */
    bool answered;              /* and says that it */
    bool sends, receives;       /* to this rank, from it */
    uint64_t ring_bytes;        /* of its pipe to this rank */
    bool closed;                /* it has closed its end, after it had written */
    uint64_t written, received; /* bytes to this rank and from it */
};

/* What is mailed about pipes. */
struct pipe_mail {
    uint32_t kind;     /* of pipe_wire.c */
    uint64_t exchange; /* the number of the meeting that opened it */
    uint64_t a, b;
};

/* What was seen of a peer while it was waited for, in one round. It says nothing of the next round. */
struct pipe_seen {
    uint64_t pulse, round;
    int64_t at;
};

struct pipe_out {
    int peer;
    struct pipe_ring *ring;
    struct pipe_head *head; /* the peer's */
    uint64_t written, read; /* bytes: of this end, and as far as is known of the other */
    uint64_t peak;          /* the most that were written and not read */
    uint64_t called;        /* written when the peer was last called or woken */
    size_t bytes;           /* of the ring */
    void *held;             /* the head that the last frame waits for and that is not sealed yet; NULL: none */
    uint64_t seal;          /* and what its seal will be */
    uint64_t tail;          /* where the last frame begins */
    uint64_t offers;        /* payloads that the peer was told of and has to say when it has loaded them */
    struct pipe_wire *wire; /* NULL: the reader shares this rank's memory */
    struct pipe_seen seen;
};

struct pipe_in {
    int peer;
    struct pipe_ring *ring;
    struct pipe_head *head;
    uint64_t read, told; /* bytes: of this end, and what the other was told of it */
    uint64_t loaded;     /* payloads */
    size_t bytes;        /* of the ring */
    struct pipe_wire *wire;
    struct pipe_seen seen;
};

/* All ends of one rank. `memory` stands for what the transport gave, which is more by its own rounding. */
struct pipes {
    weft_comm *comm;
    int nouts, nins;
    struct pipe_out *outs; /* ascending in rank */
    struct pipe_in *ins;   /* ascending in rank */
    size_t ring_bytes;     /* of each pipe out of this rank */
    size_t frame;          /* the largest frame on them */
    struct pipe_head *head;
    uint64_t place;
    struct comm_deferred *deferred; /* for the memory's end, kept so that closing cannot fail */
    struct pipe_head *up, *kids[2]; /* of the ranks that it votes with; NULL: none */
    struct pipe_seen up_seen, kids_seen[2];
    atomic_bool fenced; /* pipe_fence is through */
    bool votes;
    uint64_t finished; /* rounds of this rank */
    bool yes;          /* its vote in the last of them */
    bool passed;       /* that and the votes below it went up */
    uint64_t ballot;   /* votes that are complete here */
    bool all;          /* the outcome of the last of them */
    int64_t memory;    /* bytes of all of it */

    /* on several hosts */
    bool wide;
    uint64_t number;
    struct pipes *next; /* of the comm */
    struct pipe_remote *remotes;
    int nremotes; /* ascending in rank */
    int64_t pulsed_at;
};

/* ---- pipes.c: all ends of one rank ---- */

/* The lists of weft_exchange_open, as far as one rank can check them; that no rank is in one twice is left to
 * pipes_open. */
int pipes_check(const weft_comm *c, const int *from, size_t nfrom, const int *to, size_t nto);
/* Collective and ends in an agreement, as bind does: pipes from the ranks of one list and to those of the other, which
 * need not be sorted, with `bytes` a pipe out of this rank; votes must be equal on all ranks. `code` is 0 or the error,
 * with this thread's text, that keeps this rank from taking part: then all get it. p is zeroed before. */
int pipes_open(struct pipes *p, weft_comm *c, const int *from, int nfrom, const int *to, int nto, size_t bytes,
               bool votes, int code);
/* Not collective: peers may look at their ends until they close theirs. Takes what pipes_open did not make. */
void pipes_close(struct pipes *p);
struct pipe_out *pipes_out(const struct pipes *p, int rank); /* NULL: none */
struct pipe_in *pipes_in(const struct pipes *p, int rank);

/* ---- pipe.c: frames ---- */

/* Puts one frame of the parts into the pipe, at most p->frame bytes. False: there is no room now, and the reader will
 * call when there is. The reader finds the frame if it looks; it is woken once there is a good deal to read, or by a
 * call. With `hold` it finds it only after the next write, or after it was sealed or ended. */
bool pipe_write(struct pipes *p, struct pipe_out *o, const struct pipe_part *parts, int n, bool hold);
/* Ends the round, with the frame that is held or otherwise an empty one; false as before. */
bool pipe_end(struct pipes *p, struct pipe_out *o);
void pipe_seal(struct pipe_out *o);
void pipe_call_readers(struct pipes *p);             /* a signal to each reader that had none since the last write */
void pipe_ring(struct pipes *p, struct pipe_out *o); /* wakes the reader if it sleeps */
/* The next frame, in the pipe's memory; NULL: none yet. Pop lets go of it and says whether it was the last of its
 * round; tell lets the writer know, by and by. */
const void *pipe_read(struct pipe_in *in, size_t *bytes);
bool pipe_pop(struct pipe_in *in);
void pipe_tell(struct pipes *p, struct pipe_in *in);
int64_t pipe_held(const struct pipe_out *o); /* bytes that were written and not read, or read and not told */

/* ---- pipe.c: payloads that do not go through the pipe ---- */

/* Can the peer load this memory? Then *place is what it needs to know. */
bool pipe_offer(struct pipes *p, const void *memory, size_t bytes, uint64_t *place);
/* Copies it here and says so. False: the comm has failed, nothing was looked at. */
bool pipe_load(struct pipes *p, struct pipe_in *in, void *dst, uint64_t place, size_t bytes);
bool pipe_offers_taken(const struct pipe_out *o);
/* After a failure: returns when no peer is in the middle of loading from this rank, so that payloads may go. A process
 * that was stopped there has the deadline: what it loads after that it throws away. */
void pipe_fence(struct pipes *p);

/* ---- pipe.c: watching. What is waited for is passed in, since only the exchange knows it. ---- */

enum transport_fate pipe_fate(const struct pipes *p, int rank, const struct pipe_head *head);
/* Has a peer that finished its round number `round` shown no pulse for the whole deadline? */
bool pipe_stalled(const struct pipes *p, int rank, const struct pipe_head *head, uint64_t round, struct pipe_seen *seen,
                  int64_t now);
bool pipe_finished(const struct pipe_head *head, uint64_t round); /* has the peer finished that round? */

/* ---- pipes_vote.c: the ends of rounds ---- */

/* The rounds that this rank has finished, and its vote in the last of them. */
void pipes_vote_round(struct pipes *p, uint64_t finished, bool yes);
/* Moves the vote of round number `round` (from 0 on) on; true when it is complete: then p->all says what came out. */
bool pipes_vote(struct pipes *p, uint64_t round);
int pipes_vote_lacks(const struct pipes *p, uint64_t round, int *ranks); /* the up to 3 that are waited for; how many */
const struct pipe_head *pipes_vote_peer(struct pipes *p, int rank, struct pipe_seen **seen); /* of one of those */

/* ---- for pipe_wire.c, from pipe.c and pipes.c ---- */

/* Whole frames of a ring from one position to another, of `most` bytes at most, up to and with the one that says that
 * the rest of the ring is empty: how many bytes they are, and where it goes on behind them. */
uint64_t pipe_span(struct pipe_ring *ring, size_t bytes, uint64_t from, uint64_t to, uint64_t most, uint64_t *next);
uint64_t pipe_sealed(const struct pipe_out *o); /* bytes that may be read */
const int32_t *pipes_from_list(const struct pipe_head *h);
const int32_t *pipes_to_list(const struct pipe_head *h);
int pipes_find(const int32_t *list, int n, int rank); /* where the rank is in a sorted list; -1: nowhere */

/* ---- pipe_wire.c: between hosts. All but the last two with the progress lock. ---- */

/* Before the first meeting, with the lists: all ranks of other hosts there are. From here on they may speak of it. */
int pipe_wire_prepare(struct pipes *p);
int pipe_wire_greet(struct pipes *p); /* after it: hears from all of them */
struct pipe_remote *pipe_wire_peer(const struct pipes *p,
                                   int rank); /* NULL: it is on this host, or has nothing to do with this rank */
int pipe_wire_connect_in(struct pipes *p, struct pipe_in *in); /* when the lists are known to match */
int pipe_wire_connect_out(struct pipes *p, struct pipe_out *o);
/* Moves what is in the rings on: true if something moved. `busy`: peers may wait for this rank, and hear that it is at
 * work. By the one thread that reads and writes the pipes. */
bool pipe_wire_pump(struct pipes *p, bool busy);
/* All that belongs to complete rounds has left this rank's memory, or will not since *refuses has closed its end; -1:
 * none has. */
bool pipe_wire_drained(const struct pipes *p, int *refuses);
/* Of a rank of another host. One that has closed its end is here as long as not all that it wrote has come: mail may
 * overtake it.
 */
enum transport_fate pipe_wire_fate(const struct pipes *p, int rank);
void pipe_wire_vote(struct pipes *p, int rank, uint64_t word);
/* Tells ranks of other hosts that this end is closed, unless `silent`, and frees all of it. False: the wire may still
 * read the rings. */
bool pipe_wire_close(struct pipes *p, bool silent);
/* From any thread. */
void pipe_wire_ended(struct pipe_out *o);      /* a round is, by what was written last; with the writer's end */
bool pipe_wire_some(const struct pipe_in *in); /* is there something to read? With the reader's end */
#endif
