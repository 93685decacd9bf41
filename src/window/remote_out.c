/* What goes to windows on other hosts. A put that fits into a packet is copied into it. A larger one is a message of
 * the wire. If it has at most REMOTE_COPY bytes and the budget has room, it is copied, so that the call need not wait
 * for the other end. Otherwise the wire reads the caller's memory in pieces, several at a time, and the call waits
 * until the wire is done with them. It handles incoming mail meanwhile, so two ranks that put to each other do not wait
 * in a circle. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "window/remote.h"
#include "window/window_trace.h"

/* ---- what is on its way ---- */

static uint64_t oldest_put(const struct remote_peer *p)
{
    for (uint64_t op = p->acked; op < p->sent; op++)
        if (p->puts[op % REMOTE_OPS])
            return p->puts[op % REMOTE_OPS];
    return UINT64_MAX;
}

/* Were the first `puts` of this rank acknowledged, except those to one rank? */
static bool have_landed(const struct remote *r, uint64_t puts, int except)
{
    for (const struct remote_peer *p = r->used; p; p = p->next)
        if (p->rank != except && oldest_put(p) <= puts)
            return false;
    return true;
}

static void let_go(struct remote *r, struct remote_send *s, bool ours)
{
    if (s->copy)
        r->copied -= (int64_t)s->bytes;
    if (s->copy && ours) /* otherwise the wire may still read the copy: leak it rather than reuse it */
        free(s->copy);
    s->wire = NULL;
    s->copy = NULL;
}

static void cancel(struct remote *r, struct remote_send *s)
{
    const struct wire_ops *ops = s->wire->wire->ops;
    bool ours = ops->cancel(s->wire);
    ops->drop(s->wire);
    let_go(r, s, ours);
}

void remote_out_acked(struct remote_peer *p, uint64_t ops)
{
    if (ops > p->acked && ops <= p->sent)
        p->acked = ops;
}

static void cancel_all(struct remote *r, struct remote_peer *p)
{
    for (int i = 0; i < REMOTE_TAGS; i++)
        if (p->sends[i].wire)
            cancel(r, &p->sends[i]);
}

void remote_out_forget(struct remote *r, struct remote_peer *p)
{
    cancel_all(r, p);
    p->acked = p->sent;
}

static int broken(struct remote *r, const struct remote_peer *p, int err)
{
    char who[NAMES_RANK], text[CORE_TEXT / 2];
    snprintf(text, sizeof text, "%s", weft_errmsg()); /* the wire's text */
    return comm_fail(r->comm, err, "rank %d, which was putting to %s: %s", r->comm->rank,
                     names_rank(r->comm, p->rank, who), text);
}

static bool has_left(const struct remote *r, const struct remote_peer *p)
{
    return r->comm->transport->gone(r->comm->link, p->rank) == TRANSPORT_LEFT;
}

static bool move_sends(struct remote *r, struct remote_peer *p)
{
    bool moved = false;
    for (int i = 0; i < REMOTE_TAGS; i++) {
        struct remote_send *s = &p->sends[i];
        if (!s->wire)
            continue;
        int done = s->wire->wire->ops->test(s->wire);
        if (!done)
            continue;
        moved = true;
        if (done < 0 && !has_left(r, p)) {
            broken(r, p, done);
            return true;
        }
        s->wire->wire->ops->drop(s->wire);
        let_go(r, s, true);
    }
    return moved;
}

/* ---- puts ---- */

static int free_slot(const struct remote_peer *p)
{
    for (int i = 0; i < REMOTE_TAGS; i++)
        if (!p->sends[i].wire && p->sends[i].op <= p->acked)
            return i;
    return -1;
}

struct want {
    const struct remote_peer *p;
    bool slot;
};

static bool has_room(void *arg)
{
    const struct want *w = arg;
    return w->p->sent - w->p->acked < REMOTE_OPS && (!w->slot || free_slot(w->p) >= 0);
}

/* Does the wire still read the caller's memory? */
static bool is_read(const struct remote_send *s)
{
    return s->wire && !s->copy;
}

static bool have_gone(void *arg)
{
    const struct remote_peer *p = arg;
    for (int i = 0; i < REMOTE_TAGS; i++)
        if (is_read(&p->sends[i]))
            return false;
    return true;
}

/* Sends one more operation; `put`: releases wait for it. */
static int post_op(struct remote *r, struct remote_peer *p, const struct remote_mail *m, size_t n, bool put)
{
    p->puts[p->sent++ % REMOTE_OPS] = put ? ++r->puts : 0;
    if (r->comm->trace)
        window_trace_op(remote_window(r, m), p->rank, p->sent, m->kind, put ? m->value : 0, true);
    return remote_peer_post(r, p->rank, m, n);
}

static int start_send(struct remote *r, struct remote_peer *p, int slot, const void *src, size_t bytes, bool copy)
{
    struct wire *wire = r->comm->link->hosts->wire;
    struct remote_send *s = &p->sends[slot];
    char *own = copy && r->copied + (int64_t)bytes <= r->budget / 2 ? malloc(bytes) : NULL;
    if (own)
        memcpy(own, src, bytes);
    struct wire_message *m;
    int err = wire->ops->make(wire, p->rank, r->tags_out[p->rank] + (uint64_t)slot, own ? own : (void *)(uintptr_t)src,
                              bytes, true, &m);
    if (!err && (err = wire->ops->start(m)))
        wire->ops->drop(m);
    if (err) {
        free(own);
        return err == WEFT_EPEER && has_left(r, p) ? 0 : broken(r, p, err);
    }
    r->copied += own ? (int64_t)bytes : 0;
    *s = (struct remote_send){m, own, bytes, p->sent + 1};
    return 0;
}

struct piece {
    uint64_t window, at;
    const char *src;
    size_t bytes;
    int add;
    bool copy; /* the message is the whole put, and may be copied */
};

static int put_piece(struct remote *r, struct remote_peer *p, const struct piece *t)
{
    bool fits = t->bytes <= REMOTE_INLINE;
    struct want want = {p, !fits};
    int err = remote_peer_wait(r, p, has_room, &want);
    if (err || has_left(r, p))
        return err;
    struct remote_mail m = {.kind = t->add ? REMOTE_ADD : REMOTE_PUT,
                            .slot = fits ? -1 : free_slot(p),
                            .window = t->window,
                            .at = t->at,
                            .value = t->bytes,
                            .dtype = (uint32_t)t->add};
    if (fits)
        memcpy(m.bytes, t->src, t->bytes);
    else
        err = start_send(r, p, m.slot, t->src, t->bytes, t->copy);
    return err ? err : post_op(r, p, &m, fits ? t->bytes : 0, true);
}

int remote_out_put(weft_window *w, int rank, uint64_t at, const void *src, size_t bytes, int add)
{
    struct remote *r = w->comm->remote;
    struct remote_peer *p = remote_peer(r, rank);
    size_t most = add ? REMOTE_COPY : REMOTE_PIECE;
    int err = p ? 0 : error_nomem();
    for (size_t done = 0, n; !err && done < bytes; done += n) {
        n = bytes - done < most ? bytes - done : most;
        err = put_piece(
            r, p, &(struct piece){w->remote->id, at + done, (const char *)src + done, n, add, bytes <= REMOTE_COPY});
    }
    if (!err)
        err = remote_peer_wait(r, p, have_gone, p);
    for (int i = 0; p && err && i < REMOTE_TAGS; i++)
        if (is_read(&p->sends[i])) {
            r->comm->link->hosts->wire->failed = core_failed(r->comm->group);
            cancel(r, &p->sends[i]);
        }
    return err;
}

/* ---- releases ---- */

static bool can_go(const struct remote *r, const struct remote_release *e)
{
    const struct remote_peer *p = e->rank >= 0 ? r->peers[e->rank] : NULL;
    if (p && !has_room(&(struct want){p, false}))
        return false;
    return have_landed(r, e->puts, e->rank);
}

static void part(struct remote *r, weft_window *w)
{
    struct remote_mail m = {.kind = REMOTE_FREED, .window = w->remote->id, .value = w->generation};
    /* All signals of this rank are ordered before this store; pairs with the loads in window_sync.c. */
    atomic_store_explicit(&w->heads[r->comm->rank]->freed, 1, memory_order_seq_cst);
    core_ring_all(r->comm->group);
    for (int i = 0; i < r->comm->size; i++)
        if (!w->heads[i])
            remote_peer_post(r, i, &m, 0);
    w->remote->parted = true;
}

static void go(struct remote *r, const struct remote_release *e)
{
    weft_comm *c = r->comm;
    weft_window *w = e->w;
    if (e->rank >= 0 && !w->heads[e->rank]) {
        struct remote_mail m = {.kind = e->kind, .window = w->remote->id, .value = e->value, .signal = e->signal};
        post_op(r, r->peers[e->rank], &m, 0, false);
        return;
    }
    switch (e->kind) {
    case REMOTE_ARRIVE:
        /* Releases what this rank has stored; the first rank of the host looks for it when it is rung. */
        atomic_store_explicit(&w->heads[c->rank]->entered, e->value, memory_order_seq_cst);
        core_ring(c->group, w->chair);
        break;
    case REMOTE_FREED: part(r, w); break;
    case REMOTE_TURN: window_head_turn(w, e->rank, c->rank, e->value); break;
    default: {
        const int64_t begun = window_trace_begin(w);
        enum weft_notify how = e->kind == REMOTE_SET ? WEFT_NOTIFY_SET : WEFT_NOTIFY_ADD;
        uint64_t got = window_head_notify(w, e->rank, e->signal, how, e->value);
        window_trace_notified(w, begun, e->rank, e->signal, got, c->rank);
    }
    }
}

static void append(struct remote *r, struct remote_release *e)
{
    e->next = NULL;
    *r->last = e;
    r->last = &e->next;
    atomic_fetch_add_explicit(&r->releases, 1, memory_order_seq_cst);
}

static bool move_releases(struct remote *r)
{
    bool moved = false;
    while (r->first && can_go(r, r->first)) {
        struct remote_release *e = r->first;
        r->first = e->next;
        if (!r->first)
            r->last = &r->first;
        go(r, e);
        if (!e->embedded)
            free(e);
        atomic_fetch_sub_explicit(&r->releases, 1, memory_order_seq_cst); /* pairs with the load in all_came */
        moved = true;
    }
    return moved;
}

static bool has_place(void *arg)
{
    return atomic_load_explicit(&((const struct remote *)arg)->releases, memory_order_relaxed) < REMOTE_RELEASES;
}

int remote_out_release(weft_window *w, int rank, uint32_t kind, uint32_t signal, uint64_t value)
{
    struct remote *r = w->comm->remote;
    struct remote_release *e,
        now = {.w = w, .rank = rank, .kind = kind, .signal = signal, .value = value, .puts = r->puts};
    if (rank >= 0 && !w->heads[rank] && !remote_peer(r, rank))
        return error_nomem();
    if (!r->first && can_go(r, &now)) {
        go(r, &now);
        return 0;
    }
    int err = remote_peer_wait(r, NULL, has_place, r);
    if (err)
        return err;
    if (!(e = malloc(sizeof *e)))
        return error_nomem();
    *e = now;
    append(r, e);
    return 0;
}

void remote_out_part(weft_window *w)
{
    struct remote *r = w->comm->remote;
    w->remote->part =
        (struct remote_release){.w = w, .rank = -1, .kind = REMOTE_FREED, .puts = r->puts, .embedded = true};
    append(r, &w->remote->part);
}

/* ---- all of it ---- */

bool remote_out_move(struct remote *r)
{
    bool moved = false;
    for (struct remote_peer *p = r->used; p && !core_failed(r->comm->group); p = p->next)
        moved |= move_sends(r, p);
    return !core_failed(r->comm->group) && move_releases(r) ? true : moved;
}

bool remote_out_quiet(const struct remote *r)
{
    return !r->first && have_landed(r, UINT64_MAX - 1, -1);
}

bool remote_out_sent(const struct remote *r)
{
    bool sent = !r->first;
    for (const struct remote_peer *p = r->used; p; p = p->next)
        for (int i = 0; i < REMOTE_TAGS; i++)
            sent &= !p->sends[i].wire;
    return sent;
}

void remote_out_end(struct remote *r)
{
    for (struct remote_peer *p = r->used; p; p = p->next)
        cancel_all(r, p);
    for (struct remote_release *e = r->first, *next; e; e = next) {
        next = e->next;
        if (!e->embedded)
            free(e);
    }
    r->first = NULL;
    r->last = &r->first;
    atomic_store_explicit(&r->releases, 0, memory_order_relaxed);
}
