/* Receiving: frames become messages, in the order of each pipe and only for the round that this rank is in. This file
 * also decides when a round is complete. */
#include <string.h>

#include "comm/lock.h"
#include "exchange/exchange_trace.h"

/* ---- receiving ---- */

/* Messages that were not taken are bounded. There is no bound while the caller cannot take them: when it waits for
 * room, or has finished and needs the whole round. */
static bool may_receive(const weft_exchange *x)
{
    return atomic_load_explicit(&x->untaken, memory_order_relaxed) < x->budget ||
           atomic_load_explicit(&x->putters, memory_order_relaxed) > 0 ||
           atomic_load_explicit(&x->state, memory_order_relaxed) != EXCHANGE_OPEN;
}

static struct message *build(weft_exchange *x, struct exchange_in *in)
{
    struct message *m = message_new(x->pool, in->head.meta_bytes, in->head.bytes, x->buffer != NULL);
    if (!m) {
        comm_fail(x->comm, WEFT_ENOMEM, "rank %d: no memory for a message of %llu bytes from rank %d", x->comm->rank,
                  (unsigned long long)in->head.meta_bytes + in->head.bytes, in->pipe->peer);
        return NULL;
    }
    m->is.from = in->pipe->peer;
    m->is.round = exchange_in_ends(in);
    m->tag = in->head.tag;
    in->at = 0;
    in->building = m;
    return m;
}

/* Takes bytes of the frame for a part of the message; true: the part is complete. */
static bool fill(struct exchange_in *in, char *part, uint64_t begin, uint64_t bytes, const char *frame,
                 size_t frame_bytes)
{
    uint64_t lacks = begin + bytes - in->at, there = frame_bytes - in->frame_at, n = lacks < there ? lacks : there;
    if (n)
        memcpy(part + (in->at - begin), frame + in->frame_at, n);
    in->at += n;
    in->frame_at += n;
    return n == lacks;
}

/* Is there memory for the payload? */
static bool has_buffer(weft_exchange *x, weft_message *m)
{
    if (!m->payload && m->bytes)
        m->payload = x->buffer(x->buffer_arg, m->from, m->meta, m->meta_bytes, m->bytes);
    return m->payload || !m->bytes;
}

/* Goes on with a message; true: it is complete. Otherwise the frame is used up, or *stuck is set. */
static bool receive(weft_exchange *x, struct exchange_in *in, const char *frame, size_t bytes, bool *stuck)
{
    weft_message *m = &in->building->is;
    uint64_t meta = in->head.meta_bytes;
    if (in->at < meta && !fill(in, (char *)(uintptr_t)m->meta, 0, meta, frame, bytes))
        return false;
    *stuck = !has_buffer(x, m);
    if (*stuck)
        return false;
    if (in->head.kind == EXCHANGE_PLACED) {
        *stuck = !pipe_load(&x->pipes, in->pipe, m->payload, in->head.place, m->bytes);
        return !*stuck;
    }
    return fill(in, m->payload, meta, in->head.bytes, frame, bytes);
}

struct batch {
    struct message *first, **last;
    uint64_t n;
    int64_t bytes;
};

/* One frame; false: there is none, or it must wait. */
static bool receive_frame(weft_exchange *x, struct exchange_in *in, struct batch *batch)
{
    size_t bytes;
    bool stuck = false;
    const char *frame = pipe_read(in->pipe, &bytes);
    if (!frame)
        return false;
    if (bytes && !in->building) {
        memcpy(&in->head, frame, sizeof in->head);
        in->frame_at = sizeof in->head;
        if (!build(x, in))
            return false;
    }
    if (bytes && receive(x, in, frame, bytes, &stuck)) {
        struct message *m = in->building;
        in->building = NULL;
        m->next = NULL;
        *batch->last = m;
        batch->last = &m->next;
        batch->n++;
        batch->bytes += (int64_t)m->held;
    }
    if (stuck)
        return false;
    in->frame_at = 0;
    if (pipe_pop(in->pipe))
        atomic_store_explicit(&in->ends, exchange_in_ends(in) + 1, memory_order_relaxed);
    pipe_tell(&x->pipes, in->pipe);
    return true;
}

/* With the lock. */
static void deliver(weft_exchange *x, struct exchange_in *in, const struct batch *b)
{
    for (const struct message *m = x->trace ? b->first : NULL; m; m = m->next)
        exchange_trace_received(x, in, m);
    *in->last = b->first;
    in->last = b->last;
    x->received += b->n;
    int64_t untaken = atomic_load_explicit(&x->untaken, memory_order_relaxed) + b->bytes;
    atomic_store_explicit(&x->untaken, untaken, memory_order_relaxed); /* for other threads it is a hint */
    x->untaken_peak = untaken > x->untaken_peak ? untaken : x->untaken_peak;
}

/* Receives what one pipe has for this round, at most about the size of the ring. */
static bool receive_from(weft_exchange *x, struct exchange_in *in)
{
    struct batch b = {.last = &b.first};
    uint64_t begun = atomic_load_explicit(&x->begun, memory_order_acquire), stop = in->pipe->read + in->pipe->bytes;
    bool moved = false;
    while (exchange_in_ends(in) < begun && in->pipe->read < stop && may_receive(x) && receive_frame(x, in, &b)) {
        moved = true;
        if (b.n && (b.n >= 64 || b.bytes >= x->budget / 4)) {
            pthread_mutex_lock(&x->lock);
            deliver(x, in, &b);
            pthread_mutex_unlock(&x->lock);
            b = (struct batch){.last = &b.first};
        }
    }
    if (b.n) {
        pthread_mutex_lock(&x->lock);
        deliver(x, in, &b);
        pthread_mutex_unlock(&x->lock);
    }
    return moved;
}

/* While `moving` is set. */
static bool move(weft_exchange *x)
{
    bool moved = false;
    if (exchange_has_failed(x))
        return false;
    if (atomic_load_explicit(&x->holds, memory_order_relaxed)) {
        pthread_mutex_lock(&x->lock);
        exchange_put_seal(x);
        pthread_mutex_unlock(&x->lock);
    }
    if (atomic_load_explicit(&x->sends, memory_order_relaxed)) {
        pthread_mutex_lock(&x->lock);
        if (!x->failed)
            moved = exchange_put_flush(x);
        pthread_mutex_unlock(&x->lock);
    }
    for (int i = 0; i < x->pipes.nins; i++)
        moved |= receive_from(x, &x->ins[i]);
    return moved;
}

bool exchange_move(weft_exchange *x)
{
    if (atomic_flag_test_and_set_explicit(&x->moving, memory_order_acquire))
        return false;
    bool moved = move(x);
    atomic_flag_clear_explicit(&x->moving, memory_order_release);
    return moved;
}

/* ---- the end of a round ---- */

/* While `moving` is set. What is queued is known for sure under the lock only, but nothing is added in this state. */
static bool is_complete(weft_exchange *x)
{
    uint64_t begun = atomic_load_explicit(&x->begun, memory_order_relaxed);
    bool voted = true;
    if (x->pipes.votes) { /* the vote makes progress even if other things are missing */
        pthread_mutex_lock(&x->lock);
        voted = pipes_vote(&x->pipes, begun - 1);
        pthread_mutex_unlock(&x->lock);
    }
    if (!voted || atomic_load_explicit(&x->sends, memory_order_acquire))
        return false;
    for (int i = 0; i < x->pipes.nins; i++)
        if (exchange_in_ends(&x->ins[i]) < begun)
            return false;
    for (int i = 0; i < x->pipes.nouts; i++)
        if (!pipe_offers_taken(x->outs[i].pipe))
            return false;
    return true;
}

/* While `moving` is set, with the progress lock. */
static bool pump(weft_exchange *x)
{
    if (!x->pipes.wide || exchange_has_failed(x))
        return false;
    bool busy = atomic_load_explicit(&x->state, memory_order_relaxed) == EXCHANGE_FLYING ||
                atomic_load_explicit(&x->putters, memory_order_relaxed) > 0;
    pthread_mutex_lock(&x->lock);
    bool moved = pipe_wire_pump(&x->pipes, busy);
    pthread_mutex_unlock(&x->lock);
    return moved;
}

void exchange_move_post(weft_exchange *x)
{
    struct comm_family *f = x->comm->family;
    if (!x->pipes.wide || !lock_try(f))
        return;
    if (!atomic_flag_test_and_set_explicit(&x->moving, memory_order_acquire)) {
        pump(x);
        atomic_flag_clear_explicit(&x->moving, memory_order_release);
    }
    lock_disturb(f);
    lock_leave(f);
}

bool exchange_move_pass(struct comm_task *t, bool idle)
{
    weft_exchange *x = (weft_exchange *)t;
    (void)idle;
    if (atomic_flag_test_and_set_explicit(&x->moving, memory_order_acquire))
        return true; /* the thread that moves may have looked before the newest signal came: do not sleep yet */
    bool moved = pump(x);
    if (move(x)) {
        moved = true;
        pump(x); /* queued messages have gone into rings, and reads have made room */
    }
    /* Acquire: pairs with finish. After finish only this thread changes what is_complete looks at. */
    bool complete = atomic_load_explicit(&x->state, memory_order_acquire) == EXCHANGE_FLYING && is_complete(x);
    atomic_flag_clear_explicit(&x->moving, memory_order_release);
    if (x->trace)
        exchange_trace_pass(x);
    if (complete)
        exchange_complete(x, 0);
    return moved || complete;
}
