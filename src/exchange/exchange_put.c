/* Sending: a message is written into its pipe at once if no message is queued before it and there is room. Otherwise it
 * is queued, with copies of what the caller may change, if the budget has room for them. If it has none, the caller
 * waits and receives meanwhile, so that the ranks that it waits for can go on. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "comm/lock.h"
#include "exchange/exchange_trace.h"

#define YIELDS 20
#define NAP_NS 50000

/* ---- frames ---- */

/* Cuts at most `most` bytes of the stream, from s->at on, as up to two parts. Returns the number of parts. */
static int cut(const struct exchange_send *s, uint64_t most, struct pipe_part *parts)
{
    uint64_t n = s->stream - s->at < most ? s->stream - s->at : most, meta = s->head.meta_bytes;
    int k = 0;
    if (s->at < meta && n) {
        uint64_t bytes = meta - s->at < n ? meta - s->at : n;
        parts[k++] = (struct pipe_part){s->meta + s->at, bytes};
        n -= bytes;
    }
    if (n)
        parts[k++] = (struct pipe_part){s->payload + (s->at > meta ? s->at - meta : 0), n};
    return k;
}

/* Writes as much of the message as there is room for; true: all of it is in the pipe. The end of the round often
 * follows a small message at once: with `hold` the message is held back, so that its frame can be marked as the
 * last. */
static bool advance(weft_exchange *x, struct exchange_out *out, struct exchange_send *s, bool hold)
{
    while (!s->begun || s->at < s->stream) {
        struct pipe_part parts[3] = {{&s->head, sizeof s->head}};
        int first = s->begun ? 0 : 1,
            n = first + cut(s, x->pipes.frame - (s->begun ? 0 : sizeof s->head), parts + first);
        if (!pipe_write(&x->pipes, out->pipe, parts, n, hold))
            return false;
        s->begun = true;
        for (int i = first; i < n; i++)
            s->at += parts[i].bytes;
    }
    return true;
}

/* Under the lock. For threads without the lock the value is a hint. */
static void add_sends(weft_exchange *x, int n)
{
    atomic_store_explicit(&x->sends, atomic_load_explicit(&x->sends, memory_order_relaxed) + n, memory_order_relaxed);
}

static bool one_frame(const weft_exchange *x, const struct exchange_send *s)
{
    return s->stream + sizeof s->head <= x->pipes.frame;
}

/* Sends what is queued behind a pipe, and then the end of the round; true: nothing is left. */
static bool flush(weft_exchange *x, struct exchange_out *out)
{
    for (struct exchange_send *s; (s = out->first);) {
        if (!advance(x, out, s, false))
            return false;
        out->first = s->next;
        if (!out->first)
            out->last = &out->first;
        x->queued -= s->cost;
        add_sends(x, -1);
        free(s);
    }
    if (out->ends && pipe_end(&x->pipes, out->pipe)) {
        pipe_wire_ended(out->pipe);
        out->ends = false;
        add_sends(x, -1);
    }
    return !out->ends;
}

bool exchange_put_flush(weft_exchange *x)
{
    bool moved = false;
    for (int i = 0; i < x->pipes.nouts && atomic_load_explicit(&x->sends, memory_order_relaxed); i++) {
        uint64_t written = x->outs[i].pipe->written;
        flush(x, &x->outs[i]);
        moved |= x->outs[i].pipe->written != written;
    }
    if (moved)
        pipe_call_readers(&x->pipes);
    return moved;
}

void exchange_put_seal(weft_exchange *x)
{
    for (int i = 0; i < x->pipes.nouts; i++)
        pipe_seal(x->outs[i].pipe);
    atomic_store_explicit(&x->holds, false, memory_order_relaxed);
}

void exchange_put_end(weft_exchange *x)
{
    add_sends(x, x->pipes.nouts);
    for (int i = 0; i < x->pipes.nouts; i++) {
        x->outs[i].ends = true;
        flush(x, &x->outs[i]);
    }
    exchange_put_seal(x);
    pipe_call_readers(&x->pipes);
}

void exchange_put_drop(weft_exchange *x)
{
    for (int i = 0; i < x->pipes.nouts; i++) {
        for (struct exchange_send *s; (s = x->outs[i].first);) {
            x->outs[i].first = s->next;
            free(s);
        }
        x->outs[i].last = &x->outs[i].first;
    }
}

/* Puts a copy of s at the queue's end. A small payload is copied; a large one stays where it is. */
static int enqueue(weft_exchange *x, struct exchange_out *out, const struct exchange_send *s, int64_t cost)
{
    struct exchange_send *q = malloc((size_t)cost);
    if (!q)
        return error_nomem();
    *q = *s;
    q->next = NULL;
    q->cost = cost;
    if (s->head.meta_bytes)
        memcpy(q->data, s->meta, s->head.meta_bytes);
    q->meta = q->data;
    if (s->head.kind == EXCHANGE_STREAM && s->head.bytes && s->head.bytes <= WEFT_EXCHANGE_SMALL) {
        memcpy(q->data + s->head.meta_bytes, s->payload, s->head.bytes);
        q->payload = q->data + s->head.meta_bytes;
    }
    *out->last = q;
    out->last = &q->next;
    x->queued += cost;
    x->queued_peak = x->queued > x->queued_peak ? x->queued : x->queued_peak;
    add_sends(x, 1);
    return 0;
}

static int64_t cost(size_t meta_bytes, size_t bytes)
{
    return (int64_t)(sizeof(struct exchange_send) + meta_bytes + (bytes <= WEFT_EXCHANGE_SMALL ? bytes : 0));
}

static int64_t cost_of(const struct exchange_send *s)
{
    return cost(s->head.meta_bytes, s->head.bytes);
}

int exchange_put_fits(const weft_exchange *x, const weft_message *m, const char *call)
{
    return m->meta_bytes <= (uint64_t)x->queue_limit && cost(m->meta_bytes, m->bytes) <= x->queue_limit
               ? 0
               : error_set(WEFT_ENOMEM, "%s: %zu bytes of metadata are more than the budget of %lld bytes has room for",
                           call, m->meta_bytes, (long long)x->budget);
}

/* ---- putting ---- */

static int check(const weft_exchange *x, int to, const weft_message *m, const char *call)
{
    if (!pipes_out(&x->pipes, to))
        return error_set(WEFT_EINVAL, "%s: rank %d is not among the %d ranks that this exchange sends to", call, to,
                         x->pipes.nouts);
    if ((m->meta_bytes && !m->meta) || (m->bytes && !m->payload))
        return error_set(WEFT_EINVAL, "%s: %zu bytes of %s at NULL", call,
                         m->bytes && !m->payload ? m->bytes : m->meta_bytes,
                         m->bytes && !m->payload ? "payload" : "metadata");
    return 0;
}

/* Fills s, which the caller has zeroed. */
static void outline(weft_exchange *x, const struct exchange_out *out, uint32_t tag, const weft_message *m,
                    struct exchange_send *s)
{
    s->head.kind = EXCHANGE_STREAM;
    s->head.tag = tag;
    s->head.meta_bytes = m->meta_bytes;
    s->head.bytes = m->bytes;
    s->meta = m->meta;
    s->payload = m->payload;
    s->stream = m->meta_bytes + m->bytes;
    if (m->bytes > WEFT_EXCHANGE_SMALL && !out->pipe->wire &&
        pipe_offer(&x->pipes, m->payload, m->bytes, &s->head.place)) {
        s->head.kind = EXCHANGE_PLACED;
        s->stream = m->meta_bytes;
    }
}

/* ---- waiting for room ---- */

static bool walk_try(struct comm_family *f)
{
    uint32_t nobody = 0;
    return atomic_compare_exchange_strong_explicit(&f->walked, &nobody, 1, memory_order_acquire, memory_order_relaxed);
}

static void walk_end(struct comm_family *f)
{
    atomic_store_explicit(&f->walked, 0, memory_order_release);
}

void exchange_put_join(weft_exchange *x)
{
    struct comm_family *f = x->comm->family;
    while (!walk_try(f))
        sched_yield();
    x->next = f->exchanges;
    f->exchanges = x;
    walk_end(f);
}

void exchange_put_leave(weft_exchange *x)
{
    struct comm_family *f = x->comm->family;
    while (!walk_try(f))
        sched_yield();
    weft_exchange **at = &f->exchanges;
    while (*at != x)
        at = &(*at)->next;
    *at = x->next;
    walk_end(f);
}

/* With a progress lock, a thread that waits may drive all tasks of its family. Without one only the thread that makes
 * the calls may, and other threads move only exchanges. On several hosts exchanges use the wire, which only the thread
 * that has the lock may touch. */
static bool drive(weft_exchange *x)
{
    struct comm_family *f = x->comm->family;
    bool moved = false;
    if (x->comm->has_lock && lock_try(f)) {
        moved = comm_progress(x->comm, true);
        lock_leave(f);
        return moved;
    }
    if (x->pipes.wide || !walk_try(f))
        return false;
    for (weft_exchange *y = f->exchanges; y; y = y->next)
        moved |= exchange_move(y);
    walk_end(f);
    return moved;
}

static void watch(weft_exchange *x)
{
    struct comm_family *f = x->comm->family;
    if (!x->pipes.wide) {
        exchange_watch_putter(x);
    } else if (lock_try(f)) { /* otherwise the thread that has the lock looks for ranks that are gone */
        exchange_watch_putter(x);
        lock_leave(f);
    }
}

/* Waits until the queue has room for `cost` bytes. */
static int wait_for_room(weft_exchange *x, int64_t cost, const char *call)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    int err = 0, turn = 0;
    if (comm_callback_active())
        return error_set(WEFT_EBUSY, "%s: there is no room now, and a callback must not wait for it", call);
    atomic_fetch_add_explicit(&x->putters, 1, memory_order_seq_cst);
    for (bool fits = false; !fits && !err;) {
        bool moved = drive(x);
        pthread_mutex_lock(&x->lock);
        fits = x->queued + cost <= x->queue_limit;
        pthread_mutex_unlock(&x->lock);
        turn = moved ? 0 : turn + 1;
        if (fits || moved)
            continue;
        watch(x);
        err = exchange_failure(x);
        if (turn < YIELDS)
            sched_yield();
        else
            nanosleep(&nap, NULL);
    }
    atomic_fetch_sub_explicit(&x->putters, 1, memory_order_seq_cst);
    return err;
}

enum put_end { PUT_WRITTEN, PUT_QUEUED, PUT_NO_ROOM };

/* With the lock. */
static int put(weft_exchange *x, struct exchange_out *out, struct exchange_send *s, enum put_end *end)
{
    int64_t cost = cost_of(s);
    bool can_queue = x->queued + cost <= x->queue_limit;
    bool whole = one_frame(x, s), hold = whole && s->head.kind == EXCHANGE_STREAM;
    *end = PUT_WRITTEN;
    if (!out->first && (can_queue || whole) && advance(x, out, s, hold)) {
        if (hold)
            atomic_store_explicit(&x->holds, true, memory_order_relaxed);
        return 0;
    }
    *end = can_queue ? PUT_QUEUED : PUT_NO_ROOM;
    return can_queue ? enqueue(x, out, s, cost) : 0;
}

/* With the lock: counts a message that was sent or queued. */
static void count(weft_exchange *x, struct exchange_out *out, const struct exchange_send *s)
{
    x->sent++;
    if (s->head.kind != EXCHANGE_PLACED)
        return;
    out->pipe->offers++;
    pipe_ring(&x->pipes, out->pipe); /* the reader can load it while the caller goes on */
}

int exchange_put(weft_exchange *x, int to, uint32_t tag, const weft_message *m, const char *call)
{
    int err = check(x, to, m, call);
    if (!err)
        err = exchange_put_fits(x, m, call);
    if (err)
        return err;
    struct exchange_out *out = &x->outs[pipes_out(&x->pipes, to) - x->pipes.outs];
    struct exchange_send s = {0};
    outline(x, out, tag, m, &s);
    for (;;) {
        enum put_end end = PUT_WRITTEN;
        err = exchange_failure(x);
        if (err)
            return err;
        pthread_mutex_lock(&x->lock);
        err = exchange_begin(x, call);
        int64_t at = exchange_trace_now(x);
        if (!err)
            err = put(x, out, &s, &end);
        if (!err && end != PUT_NO_ROOM) {
            count(x, out, &s);
            if (x->trace)
                exchange_trace_sent(x, out, &s.head, at);
        }
        pthread_mutex_unlock(&x->lock);
        /* The reader may have called a sleeping thread about room before this message was queued. */
        if (end == PUT_QUEUED)
            comm_task_nudge(x->comm);
        if (err || end != PUT_NO_ROOM)
            return err;
        err = wait_for_room(x, cost_of(&s), call);
        exchange_trace_waited(x, at, to, true);
        if (err)
            return err;
    }
}
