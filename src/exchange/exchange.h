/* An exchange: rounds of messages to and from neighbours, over pipes.
 *
 *   exchange.c        the calls: opening, rounds, completion, the end
 *   exchange_put.c    what goes: frames, the queue behind a pipe that is full, waiting for room
 *   exchange_move.c   what comes, and when a round is complete
 *   exchange_watch.c  which ranks are waited for, and which of them will not come
 *   message.c         messages that came; pipe.h what they go through
 *
 * A message is a head and a stream of bytes, its metadata and its payload one after the other, cut into frames; a small
 * one is one frame. A large payload that the other end can load is not in the stream: the head says where it is. The
 * last frame of a round is marked so; it is empty where that is known too late to mark a message.
 *
 * Threads. `lock` guards the round's state, all that goes and the lists of what came; holding it nobody waits. What
 * comes is read by one thread at a time, the one that has set `moving`; a thread that finds it set goes away. */
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

/* A message that is not in its pipe yet, or not all of it. */
struct exchange_send {
    struct exchange_send *next;
    struct exchange_head head;
    const char *meta, *payload;
    uint64_t stream, at; /* bytes of the stream, and how many of them are in the pipe */
    bool begun;          /* its head is in the pipe */
    int64_t cost;        /* bytes in memory */
    char data[];         /* copies */
};

struct exchange_out {
    struct pipe_out *pipe;
    struct exchange_send *first, **last;
    bool ends; /* the end of the round is to follow them */
};

struct exchange_in {
    struct pipe_in *pipe;
    _Atomic uint64_t ends;         /* rounds that its sender has ended */
    struct exchange_head head;     /* of the message that is being received */
    struct message *building;      /* that; NULL: none */
    uint64_t at;                   /* bytes of its stream that came */
    size_t frame_at;               /* bytes of the pipe's next frame that were used */
    struct message *first, **last; /* came and were not taken; under the lock */
};

enum exchange_state {
    EXCHANGE_OPEN,    /* puts are welcome */
    EXCHANGE_FLYING,  /* finished */
    EXCHANGE_COMPLETE /* and nobody was told yet */
};

struct weft_exchange {
    struct comm_task task; /* first: a task is its exchange */
    weft_comm *comm;
    weft_exchange *next; /* of the family */
    struct pipes pipes;
    struct exchange_out *outs; /* as in pipes */
    struct exchange_in *ins;
    struct message_pool *pool;
    void *(*buffer)(void *arg, int from, const void *meta, size_t meta_bytes, size_t bytes);
    void *buffer_arg;

    pthread_mutex_t lock;
    bool locks;              /* the lock was made */
    _Atomic uint32_t state;  /* enum exchange_state; written under the lock */
    _Atomic uint64_t begun;  /* rounds; written under the lock */
    _Atomic uint64_t rounds; /* complete; written under the lock */
    atomic_bool over;        /* all voted done in the last of them */
    bool failed;             /* the comm has, and nothing is sent any more */
    uint64_t sent;
    int64_t queued, queued_peak; /* bytes of messages that are not in their pipes */
    int64_t budget, queue_limit;
    _Atomic int sends;       /* that are queued */
    atomic_bool holds;       /* a message that is in its pipe may wait there for the next */
    _Atomic int64_t untaken; /* bytes */
    int64_t untaken_peak;
    uint64_t received;
    int take_at; /* where taking from anyone goes on */
    int fd;      /* -1: none was asked for */
    bool polls;  /* it is readable */
    void (*done)(void *arg, int err);
    void *done_arg;
    bool orphan; /* freed by its callback */

    _Atomic int putters; /* that wait for room */
    atomic_flag moving;
    _Atomic int64_t watched_at; /* by putters */
    unsigned tests;
    int looked_at; /* the rank that a vote's wait looked at last */
};

/* Rounds that the sender has ended. Written by the thread that has set `moving`; others only guess by it. */
static inline uint64_t exchange_in_ends(const struct exchange_in *in)
{
    return atomic_load_explicit(&in->ends, memory_order_relaxed);
}

/* Relaxed: it is seen a little later, without waiting for what this rank has stored. */
static inline bool exchange_has_failed(const weft_exchange *x)
{
    return atomic_load_explicit(&x->comm->group->failed, memory_order_relaxed) != 0;
}

/* ---- exchange.c ---- */

/* As weft_exchange_open; err is 0 or why this rank cannot take part, with this thread's text: then all ranks are told.
 */
int exchange_open(weft_comm *c, const int *from, size_t nfrom, const int *to, size_t nto,
                  const weft_exchange_opts *opts, int err, weft_exchange **out);

/* The comm's failure, with this thread's error text set; then nobody looks at what was put any more. 0: none. */
int exchange_failure(weft_exchange *x);
/* Begins the next round unless one has begun. With the lock. WEFT_EINVAL: this one is finished. */
int exchange_begin(weft_exchange *x, const char *call);

/* The round that flies is over: tells the descriptor and the callback, which may free the exchange. */
void exchange_complete(weft_exchange *x, int err);

/* ---- exchange_put.c ---- */

int exchange_put(weft_exchange *x, int to, uint32_t tag, const weft_message *m, const char *call);
/* WEFT_ENOMEM: it never will be put, since its metadata are more than the queue has room for. */
int exchange_put_fits(const weft_exchange *x, const weft_message *m, const char *call);
/* These four with the lock. */
void exchange_put_seal(weft_exchange *x);  /* what is in the pipes can be seen */
void exchange_put_end(weft_exchange *x);   /* the end of the round to everyone */
bool exchange_put_flush(weft_exchange *x); /* what is queued, as far as there is room; true: something went */
void exchange_put_drop(weft_exchange *x);  /* throws away what is queued */
/* A put that waits for room in one exchange receives in all of the family, so that no two ranks wait for each other. */
void exchange_put_join(weft_exchange *x);
void exchange_put_leave(weft_exchange *x);

/* ---- exchange_move.c ---- */

/* Receives what came and sends what is queued; true: something moved. From any thread. */
bool exchange_move(weft_exchange *x);
/* On several hosts: puts what is in the pipes on the wire now, unless another thread drives the comm: that one will. */
void exchange_move_post(weft_exchange *x);
bool exchange_move_pass(struct comm_task *t, bool idle); /* of the task */

/* ---- exchange_watch.c ---- */

int exchange_watch_lacking(struct comm_task *t);       /* of the task */
void exchange_watch(struct comm_task *t, int64_t now); /* of the task */
void exchange_watch_putter(weft_exchange *x); /* fails the comm if room will not come; looks only every so often */
int exchange_watch_timeout(weft_exchange *x); /* WEFT_ETIMEOUT, with the ranks that are waited for */
#endif
