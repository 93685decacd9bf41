/* An exchange: rounds of messages to and from neighbours, over pipes.
 *
 *   exchange.c        the calls: opening, rounds, completion, the end
 *   exchange_put.c    what goes: frames, the queue behind a pipe that is full, waiting for room
 *   exchange_move.c   what comes, and when a round is complete
 *   exchange_watch.c  which ranks are waited for, and which of them will not come
 *   exchange_trace.c  what is recorded of all that, if there is a trace
 *   message.c         messages that came; pipe.h what they go through
 *
 * A message is a head and a stream of bytes: its metadata and then its payload. The stream is cut into frames; a small
 * message is one frame. A large payload that the receiver can load is not in the stream: the head says where it is. The
 * last frame of a round is marked. It is an empty frame if the last message was already sent when the sender finished
 * the round.
 *
 * Threads. `lock` guards the state of the round, all that is sent and the lists of received messages. No thread waits
 * while it holds the lock. One thread at a time reads the pipes: the one that has set `moving`. A thread that finds
 * `moving` set does not read. */
#ifndef WEFT_EXCHANGE_EXCHANGE_H
#define WEFT_EXCHANGE_EXCHANGE_H
#include <pthread.h>

#include "comm/task.h"
#include "exchange/message.h"
#include "exchange/pipe.h"

enum exchange_kind { EXCHANGE_STREAM = 1, EXCHANGE_PLACED };

struct exchange_head {
    uint32_t kind; /* enum exchange_kind */
    uint32_t tag;
    uint64_t meta_bytes, bytes;
    uint64_t place; /* PLACED: where the payload is */
};

/* A message of which not all is in its pipe yet. */
struct exchange_send {
    struct exchange_send *next;
    struct exchange_head head;
    const char *meta, *payload;
    uint64_t stream, at; /* bytes of the stream; how many of them are in the pipe */
    bool begun;          /* its head is in the pipe */
    int64_t cost;        /* bytes of memory that it takes */
    char data[];         /* copies of metadata and payload */
};

struct exchange_out {
    struct pipe_out *pipe;
    struct exchange_send *first, **last;
    bool ends; /* the end of the round follows them */
};

struct exchange_in {
    struct pipe_in *pipe;
    _Atomic uint64_t ends;         /* rounds that its sender has ended */
    struct exchange_head head;     /* of the message that is being received */
    struct message *building;      /* that message; NULL: none */
    uint64_t at;                   /* bytes of its stream that have come */
    size_t frame_at;               /* bytes of the pipe's next frame that were used */
    struct message *first, **last; /* messages that have come and were not taken; under the lock */
};

enum exchange_state {
    EXCHANGE_OPEN,    /* puts are allowed */
    EXCHANGE_FLYING,  /* this rank has finished the round, which is not complete */
    EXCHANGE_COMPLETE /* complete, and the caller does not know yet */
};

struct weft_exchange {
    struct comm_task task; /* first member: a pointer to it is one to the exchange */
    weft_comm *comm;
    weft_exchange *next; /* of the family */
    struct pipes pipes;
    struct exchange_out *outs; /* in the order of pipes.outs */
    struct exchange_in *ins;
    struct message_pool *pool;
    struct exchange_trace *trace; /* of exchange_trace.h; NULL: nobody asked for one */
    void *(*buffer)(void *arg, int from, const void *meta, size_t meta_bytes, size_t bytes);
    void *buffer_arg;

    pthread_mutex_t lock;
    bool locks;              /* the lock was made */
    _Atomic uint32_t state;  /* enum exchange_state; written under the lock */
    _Atomic uint64_t begun;  /* rounds that were begun; written under the lock */
    _Atomic uint64_t rounds; /* rounds that are complete; written under the lock */
    atomic_bool over;        /* all ranks voted done in the last of them */
    bool failed;             /* the comm has failed, and nothing is sent any more */
    uint64_t sent;
    int64_t queued, queued_peak; /* bytes of messages that are not in their pipes */
    int64_t budget, queue_limit;
    _Atomic int sends;       /* messages that are queued */
    atomic_bool holds;       /* a message in its pipe may be held back until the next one */
    _Atomic int64_t untaken; /* bytes */
    int64_t untaken_peak;
    uint64_t received;
    int take_at; /* the neighbour at which a take from any rank goes on */
    int fd;      /* -1: none was asked for */
    bool polls;  /* fd is readable */
    void (*done)(void *arg, int err);
    void *done_arg;
    bool orphan; /* freed by its callback */

    _Atomic int putters; /* threads that wait for room */
    atomic_flag moving;
    _Atomic int64_t watched_at; /* when threads that wait for room last looked for ranks that are gone */
    unsigned tests;
    int looked_at; /* the rank that the wait for a vote looked at last */
};

/* Rounds that the sender has ended. The thread that has set `moving` writes it; for others it is a hint. */
static inline uint64_t exchange_in_ends(const struct exchange_in *in)
{
    return atomic_load_explicit(&in->ends, memory_order_relaxed);
}

/* Relaxed: the failure may be seen a little later, and the load waits for no store. */
static inline bool exchange_has_failed(const weft_exchange *x)
{
    return atomic_load_explicit(&x->comm->group->failed, memory_order_relaxed) != 0;
}

/* ---- exchange.c ---- */

/* As weft_exchange_open. err is 0, or the error for which this rank cannot take part, with this thread's text set: then
 * all ranks get it. */
int exchange_open(weft_comm *c, const int *from, size_t nfrom, const int *to, size_t nto,
                  const weft_exchange_opts *opts, int err, weft_exchange **out);

/* Returns the comm's failure, with this thread's error text set; no peer looks at what was put afterwards. 0: no
 * failure. */
int exchange_failure(weft_exchange *x);
/* With the lock: begins the next round unless one has begun. WEFT_EINVAL: the current round is finished already. */
int exchange_begin(weft_exchange *x, const char *call);

/* The round in flight is over: makes the descriptor readable and calls the callback, which may free the exchange. */
void exchange_complete(weft_exchange *x, int err);

/* ---- exchange_put.c ---- */

int exchange_put(weft_exchange *x, int to, uint32_t tag, const weft_message *m, const char *call);
/* WEFT_ENOMEM: the message can never be put, since its metadata are larger than the queue. */
int exchange_put_fits(const weft_exchange *x, const weft_message *m, const char *call);
/* The caller of these four holds the lock. */
void exchange_put_seal(weft_exchange *x);  /* makes what is in the pipes visible to the readers */
void exchange_put_end(weft_exchange *x);   /* sends the end of the round to all neighbours */
bool exchange_put_flush(weft_exchange *x); /* sends what is queued as far as there is room; true: something was sent */
void exchange_put_drop(weft_exchange *x);  /* throws away what is queued */
/* A put that waits for room in one exchange receives in all exchanges of the family, so that no two ranks wait for each
 * other. */
void exchange_put_join(weft_exchange *x);
void exchange_put_leave(weft_exchange *x);

/* ---- exchange_move.c ---- */

/* Receives what has come and sends what is queued; true: something moved. From any thread. */
bool exchange_move(weft_exchange *x);
/* On several hosts: puts what is in the pipes on the wire now. If another thread drives the comm, that thread does
 * it. */
void exchange_move_post(weft_exchange *x);
bool exchange_move_pass(struct comm_task *t, bool idle); /* of the task */

/* ---- exchange_watch.c ---- */

int exchange_watch_lacking(struct comm_task *t);       /* of the task */
void exchange_watch(struct comm_task *t, int64_t now); /* of the task */
/* Fails the comm if there will never be room; looks at most once a millisecond. */
void exchange_watch_putter(weft_exchange *x);
int exchange_watch_timeout(weft_exchange *x); /* returns WEFT_ETIMEOUT; the text names the ranks that are missing */
#endif
