/* What ranks of other hosts do to this rank's windows. The operations of each rank are done in the order of that rank,
 * at once if possible. An operation whose bytes come as a message of the wire holds up those behind it until the bytes
 * are here. Its receive begins as soon as its memory is free. For a put that is when no operation before it in the
 * queue is for the same bytes. For an add that is when there is room for it. The queue is bounded by the number of
 * operations that a sender may have on the way. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/error.h"
#include "memory/add.h"
#include "window/remote.h"
#include "window/window_trace.h"

static bool is_put(const struct remote_mail *m)
{
    return m->kind == REMOTE_PUT || m->kind == REMOTE_ADD;
}

/* Does the packet name things that exist? The other end has the same version of weft, so if it does not, something is
 * broken. */
static bool is_sound(const struct remote *r, const struct remote_mail *m, size_t n)
{
    const weft_window *w = remote_window(r, m);
    if (!w)
        return false;
    if (!is_put(m))
        return m->kind == REMOTE_TURN || m->signal < (uint32_t)w->signals;
    size_t size = m->kind == REMOTE_ADD ? weft_dtype_size((int)m->dtype) : 1;
    return size && m->value % size == 0 && m->at <= w->remote->bytes && m->value <= w->remote->bytes - m->at &&
           m->slot < REMOTE_TAGS && (m->slot >= 0 || m->value == n);
}

static bool overlap(const struct remote_mail *a, const struct remote_mail *b)
{
    return is_put(a) && is_put(b) && a->window == b->window && a->at < b->at + b->value && b->at < a->at + a->value;
}

/* ---- messages ---- */

static void broken(struct remote *r, const struct remote_peer *p, int err)
{
    char who[NAMES_RANK], text[CORE_TEXT / 2];
    snprintf(text, sizeof text, "%s", weft_errmsg()); /* the text of the wire, or of a lack of memory */
    comm_fail(r->comm, err, "rank %d, to which %s was putting: %s", r->comm->rank, names_rank(r->comm, p->rank, who),
              text);
}

/* Is there room for an add? The first operation of a queue must get room sooner or later, otherwise the queue is stuck.
 * Operations behind it keep their room until they are first, so they leave enough for one more. */
static bool has_room(const struct remote *r, const struct remote_peer *p, const struct remote_item *i)
{
    int64_t left = r->budget / 2 - r->roomed - (i == p->first ? 0 : (int64_t)REMOTE_COPY);
    return (int64_t)i->mail.value <= left;
}

/* Begins to receive, unless it has begun or there is no room now. */
static void begin(struct remote *r, const struct remote_peer *p, struct remote_item *i)
{
    struct wire *wire = r->comm->link->hosts->wire;
    const struct remote_mail *m = &i->mail;
    if (i->wire)
        return;
    bool add = m->kind == REMOTE_ADD;
    if (add && !has_room(r, p, i))
        return;
    if (add && !(i->room = malloc(m->value))) {
        broken(r, p, error_nomem());
        return;
    }
    r->roomed += add ? (int64_t)m->value : 0;
    char *to = add ? i->room : remote_window(r, m)->data[r->comm->rank] + m->at;
    int err = wire->ops->make(wire, p->rank, r->tags_in[p->rank] + (uint64_t)m->slot, to, m->value, false, &i->wire);
    if (!err)
        err = wire->ops->start(i->wire);
    if (err)
        broken(r, p, err);
}

static void give_back(struct remote *r, struct remote_item *i, bool ours)
{
    if (i->room)
        r->roomed -= (int64_t)i->mail.value;
    if (ours)
        free(i->room);
    i->room = NULL;
    if (i->wire)
        i->wire->wire->ops->drop(i->wire);
    i->wire = NULL;
}

/* ---- doing it ---- */

static void do_it(struct remote *r, struct remote_peer *p, const struct remote_mail *m, const char *bytes)
{
    weft_window *w = remote_window(r, m);
    int me = r->comm->rank;
    char *to = w->data[me] + m->at;
    switch (m->kind) {
    case REMOTE_PUT:
        if (bytes)
            memcpy(to, bytes, m->value);
        break;
    case REMOTE_ADD: memory_add(to, bytes, (int)m->dtype, m->value / weft_dtype_size((int)m->dtype)); break;
    case REMOTE_TURN: window_head_turn(w, me, p->rank, m->value); break;
    default: {
        const int64_t begun = window_trace_begin(w);
        enum weft_notify how = m->kind == REMOTE_SET ? WEFT_NOTIFY_SET : WEFT_NOTIFY_ADD;
        uint64_t got = window_head_notify(w, me, m->signal, how, m->value);
        window_trace_notified(w, begun, me, m->signal, got, p->rank);
    }
    }
    p->done++;
    window_trace_op(w, p->rank, p->done, m->kind, is_put(m) ? m->value : 0, false);
    p->owes |= is_put(m);
}

/* The first of a queue, if it can be done now. */
static bool do_first(struct remote *r, struct remote_peer *p)
{
    struct remote_item *i = p->first;
    const struct remote_mail *m = &i->mail;
    if (is_put(m) && m->slot >= 0) {
        begin(r, p, i);
        int got = i->wire && !core_failed(r->comm->group) ? i->wire->wire->ops->test(i->wire) : 0;
        if (got < 0)
            broken(r, p, got);
        if (got <= 0)
            return false;
        do_it(r, p, m, i->room);
    } else {
        do_it(r, p, m, m->bytes);
    }
    p->first = i->next;
    if (!p->first)
        p->last = &p->first;
    give_back(r, i, true);
    free(i);
    return true;
}

void remote_in_take(struct remote *r, struct remote_peer *p, const struct remote_mail *m, size_t n)
{
    char who[NAMES_RANK];
    if (!is_sound(r, m, n)) {
        comm_fail(r->comm, WEFT_ETRANSPORT, "rank %d got a malformed message for a window from %s", r->comm->rank,
                  names_rank(r->comm, p->rank, who));
        return;
    }
    bool here = !is_put(m) || m->slot < 0;
    if (here && !p->first) {
        do_it(r, p, m, m->bytes);
        return;
    }
    struct remote_item *i = malloc(offsetof(struct remote_item, mail) + REMOTE_HEAD + n);
    if (!i) {
        broken(r, p, error_nomem());
        return;
    }
    i->next = NULL;
    i->wire = NULL;
    i->room = NULL;
    memcpy(&i->mail, m, REMOTE_HEAD + n);
    bool clear = true;
    for (const struct remote_item *k = p->first; k; k = k->next)
        clear &= !overlap(&k->mail, m);
    *p->last = i;
    p->last = &i->next;
    if (!here && (clear || m->kind == REMOTE_ADD))
        begin(r, p, i);
}

/* Puts are acknowledged at once, since releases of the sender may wait for that. Signals are acknowledged when half of
 * the operations that may be on the way were done. */
static void acknowledge(struct remote *r, struct remote_peer *p)
{
    if (!p->owes && p->done - p->told < REMOTE_OPS / 2)
        return;
    struct remote_mail m = {.kind = REMOTE_ACK, .value = p->done};
    p->told = p->done;
    p->owes = false;
    remote_peer_post(r, p->rank, &m, 0);
}

bool remote_in_move(struct remote *r)
{
    bool moved = false;
    for (struct remote_peer *p = r->used; p && !core_failed(r->comm->group); p = p->next) {
        while (p->first && do_first(r, p))
            moved = true;
        acknowledge(r, p);
    }
    return moved;
}

void remote_in_end(struct remote *r)
{
    for (struct remote_peer *p = r->used; p; p = p->next) {
        for (struct remote_item *i = p->first, *next; i; i = next) {
            next = i->next;
            bool ours = !i->wire || i->wire->wire->ops->cancel(i->wire);
            weft_window *w = remote_window(r, &i->mail);
            if (!ours && w)
                w->remote->stuck = true;
            give_back(r, i, ours);
            free(i);
        }
        p->first = NULL;
        p->last = &p->first;
    }
}
