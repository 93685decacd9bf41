/* Messages that are set up once and started many times. The start of a send is one system call, if the socket has room.
 * The start of a receive needs none: its grant leaves with the next bytes that go to the peer. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "base/hash.h"
#include "transport/wire/tcp/wire_tcp.h"
#include "weft.h"

static struct tcp_wire *wire_of(const struct tcp_message *m)
{
    return (struct tcp_wire *)m->base.wire;
}

static bool is_active(const struct tcp_message *m)
{
    return m->state == TCP_WAITS || m->state == TCP_MOVES;
}

/* ---- offers and grants ---- */

/* A message's own note can be in the queue once at a time; a second note is a copy. */
static bool send_note(struct tcp_wire *w, struct tcp_message *m, enum tcp_kind kind, uint64_t number)
{
    struct tcp_peer *p = w->peers[m->base.peer];
    const struct tcp_head head = {.kind = kind, .tag = m->base.tag, .value = number};
    if (m->note.queued)
        return tcp_queue_copy(w, p, &head, NULL, 0);
    m->note = (struct tcp_out){.head = head, .n = sizeof head};
    m->note.bytes = &m->note.head;
    tcp_queue(w, p, &m->note);
    return true;
}

/* Does this start of a small message need a grant? */
static bool is_last_ahead(uint64_t number)
{
    return number % WIRE_AHEAD == WIRE_AHEAD - 1;
}

/* If there is no memory for a copy, the grant is sent with the next offer. If no offer comes, the deadline of the comm
 * ends the wait. */
static void grant(struct tcp_wire *w, struct tcp_message *m, uint64_t number)
{
    if (send_note(w, m, TCP_GRANT, number))
        m->granted = (int64_t)number;
    m->lane->offered = false;
    w->peers[m->base.peer]->bulk |= !m->base.loose && m->base.bytes > TCP_EAGER;
}

void tcp_data_offered(struct tcp_wire *w, struct tcp_lane *l, uint64_t number)
{
    struct tcp_message *m = l->message;
    l->offered = true;
    l->offer = number;
    if (m && m->state == TCP_MOVES && m->granted == (int64_t)number)
        l->offered = false; /* the grant and the offer have crossed */
    else if (m && m->state == TCP_MOVES && !l->first && l->into == TCP_NOWHERE)
        grant(w, m, number);
}

/* A small message that needs a grant gets it when the one before it has come: then the sender need not wait, and the
 * grant leaves with what this rank sends next. */
void tcp_data_arrived(struct tcp_wire *w, struct tcp_lane *l)
{
    struct tcp_message *m = l->message;
    if (m && m->state == TCP_DONE && !m->early && !m->base.loose && m->base.bytes <= TCP_EAGER &&
        is_last_ahead(l->starts))
        m->early = send_note(w, m, TCP_GRANT, l->starts | TCP_SMALL);
}

/* Does what has come allow this start? */
static bool is_granted(const struct tcp_message *m, uint64_t value, uint64_t number)
{
    return (value & ~TCP_SMALL) == number && (!(value & TCP_SMALL) || m->base.bytes <= TCP_EAGER);
}

void tcp_data_granted(struct tcp_wire *w, struct tcp_lane *l, uint64_t value)
{
    struct tcp_message *m = l->message;
    if (m && m->state == TCP_WAITS) {
        if (!is_granted(m, value, l->starts - 1))
            return; /* for a start that is over. The receiver answers the offer of this one */
        tcp_queue_begin(w->peers[l->peer], m);
        tcp_out_push(w, w->peers[l->peer]);
        return;
    }
    if (m || !value)
        l->granted = (int64_t)(value & INT64_MAX);
    else
        tcp_lane_leave(w, l); /* for a start that never came: the message was dropped before */
}

/* ---- the calls ---- */

int tcp_data_make_list(struct wire *base, int peer, uint64_t tag, const struct wire_part *parts, size_t n, bool send,
                       struct wire_message **out)
{
    struct tcp_wire *w = (struct tcp_wire *)base;
    if (tag >= base->tags)
        return base->error(WEFT_EINVAL, "tcp: no tag %llu", (unsigned long long)tag);
    int err = tcp_meet_use(w, peer);
    if (err)
        return err;
    struct tcp_lane *l = tcp_lane(w, peer, tag, send);
    if (l && l->message && is_active(l->message))
        return base->error(WEFT_EINVAL, "tcp: a message with tag %llu %s rank %d is under way already",
                           (unsigned long long)tag, send ? "to" : "from", peer);
    struct tcp_message *m = l ? malloc(sizeof *m + n * sizeof *m->parts) : NULL;
    if (!m) {
        if (l && !l->message)
            tcp_lane_leave(w, l);
        return base->error(WEFT_ENOMEM, "out of memory");
    }
    *m = (struct tcp_message){.base = {.wire = base, .memory = parts->memory, .tag = tag, .peer = peer, .send = send},
                              .lane = l,
                              .under = l->message,
                              .granted = -1,
                              .nparts = n};
    for (size_t i = 0; i < n; i++) {
        m->base.bytes += parts[i].bytes;
        m->parts[i] = parts[i];
    }
    if (!l->message)
        l->starts = 0;
    l->message = m;
    *out = &m->base;
    return 0;
}

int tcp_data_make(struct wire *base, int peer, uint64_t tag, void *memory, size_t bytes, bool send,
                  struct wire_message **out)
{
    return tcp_data_make_list(base, peer, tag, &(struct wire_part){memory, bytes}, 1, send, out);
}

static void start_send(struct tcp_wire *w, struct tcp_peer *p, struct tcp_message *m, uint64_t number)
{
    bool granted = m->lane->granted >= 0 && is_granted(m, (uint64_t)m->lane->granted, number);
    m->left = m->base.bytes;
    m->lane->granted = -1;                /* the grant is for this start, or for an earlier one that needed none */
    if (p->link == TCP_LOST || p->mute) { /* whether it left or ended is not known yet: test will tell */
        m->state = TCP_MOVES;
        return;
    }
    if ((m->base.bytes > TCP_EAGER || is_last_ahead(number)) && !granted) {
        m->state = TCP_WAITS;
        send_note(w, m, TCP_OFFER, number); /* its note is free: the last offer has left, since its grant has come */
    } else {
        tcp_queue_begin(p, m);
    }
    if (!p->blocked)
        tcp_out_push(w, p);
}

static void start_receive(struct tcp_wire *w, struct tcp_message *m, uint64_t number)
{
    struct tcp_lane *l = m->lane;
    bool large = m->base.bytes > TCP_EAGER && (!m->base.loose || l->large);
    const bool early = m->early;
    m->state = TCP_MOVES;
    m->granted = -1;
    m->early = false;
    if (l->first && l->first->whole) {
        tcp_lane_deliver(l);
        tcp_data_arrived(w, l);
    } else if (l->first || l->into != TCP_NOWHERE) {
        return; /* the message is coming already */
    } else if (l->offered) {
        grant(w, m, l->offer);
    } else if (large || (is_last_ahead(number) && !early)) {
        grant(w, m, number);
    }
}

int tcp_data_start(struct wire_message *base)
{
    struct tcp_message *m = (struct tcp_message *)base;
    struct tcp_wire *w = wire_of(m);
    struct tcp_peer *p = w->peers[base->peer];
    if (is_active(m))
        return w->base.error(WEFT_EBUSY, "a message with rank %d is started twice", base->peer);
    /* What a peer sent before it left can still be received. */
    if (base->send && p->fate != TRANSPORT_HERE)
        return tcp_link_error(w, base->peer);
    m->part = m->offset = 0;
    if (base->loose)
        m->parts[0] = (struct wire_part){base->memory, base->bytes};
    if (base->send)
        start_send(w, p, m, m->lane->starts++);
    else
        start_receive(w, m, m->lane->starts++);
    return 0;
}

int tcp_data_test(struct wire_message *base)
{
    const struct tcp_message *m = (const struct tcp_message *)base;
    const struct tcp_wire *w = wire_of(m);
    if (m->state == TCP_UNFIT)
        return base->wire->error(WEFT_EMISMATCH, "rank %d sent %zu bytes, but %zu are expected of it", base->peer,
                                 base->got, base->bytes);
    if (!is_active(m))
        return 1;
    return w->peers[base->peer]->fate == TRANSPORT_HERE ? 0 : tcp_link_error(w, base->peer);
}

bool tcp_data_cancel(struct wire_message *base)
{
    struct tcp_message *m = (struct tcp_message *)base;
    struct tcp_wire *w = wire_of(m);
    struct tcp_peer *p = w->peers[base->peer];
    struct tcp_lane *l = m->lane;
    if (!is_active(m))
        return true;
    if (base->send && m->state == TCP_MOVES && p->link != TCP_LOST && !p->mute)
        tcp_out_stop(w, p, m);
    if (!base->send && l->into == TCP_MEMORY)
        l->into = TCP_DISCARD;
    l->unfit = false;
    m->state = TCP_IDLE;
    return true;
}

void tcp_data_drop(struct wire_message *base)
{
    struct tcp_message *m = (struct tcp_message *)base;
    if (!m)
        return;
    struct tcp_wire *w = wire_of(m);
    tcp_data_cancel(base);
    tcp_out_withdraw(w, w->peers[base->peer], &m->note);
    struct tcp_message **at = &m->lane->message;
    while (*at != m)
        at = &(*at)->under;
    *at = m->under;
    /* A grant for a start that never came: the next message begins with start 0. Or one for a start that needed none:
     * before the first message the receiver does not know the size of a loose one. */
    if (base->loose || (!m->lane->message && m->lane->granted > 0))
        m->lane->granted = -1;
    if (!m->lane->message)
        tcp_lane_leave(w, m->lane);
    free(m);
}
