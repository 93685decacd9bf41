/* Messages that are set up once, and the lanes on which they meet: by tag, way and peer. A start is one call of the
 * system for a send, if the socket has room, and none for a receive, whose grant leaves with the next thing that goes
 * to the peer. */
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

/* ---- lanes ---- */

static size_t bucket_of(size_t nbuckets, int peer, uint64_t tag, bool send)
{
    return hash_mix(hash_mix(tag << 1 | send) + (uint64_t)peer) & (nbuckets - 1);
}

static void rehash(struct tcp_wire *w)
{
    size_t n = w->nbuckets ? 2 * w->nbuckets : 64;
    struct tcp_lane **more = calloc(n, sizeof(struct tcp_lane *));
    if (!more)
        return; /* longer chains do it, too */
    for (size_t i = 0; i < w->nbuckets; i++)
        for (struct tcp_lane *l = w->buckets[i], *next; l; l = next) {
            struct tcp_lane **at = &more[bucket_of(n, l->peer, l->tag, l->send)];
            next = l->next;
            l->next = *at;
            *at = l;
        }
    free(w->buckets);
    w->buckets = more;
    w->nbuckets = n;
}

struct tcp_lane *tcp_lane(struct tcp_wire *w, int peer, uint64_t tag, bool send)
{
    if (w->nlanes >= w->nbuckets)
        rehash(w);
    if (!w->nbuckets)
        return NULL;
    struct tcp_lane **at = &w->buckets[bucket_of(w->nbuckets, peer, tag, send)], *l = *at;
    while (l && (l->tag != tag || l->peer != peer || l->send != send))
        l = l->next;
    if (l || !(l = malloc(sizeof *l)))
        return l;
    *l = (struct tcp_lane){.next = *at, .tag = tag, .peer = peer, .send = send, .granted = -1};
    *at = l;
    w->nlanes++;
    return l;
}

static void free_lane(struct tcp_lane *l)
{
    for (struct tcp_arrival *a = l->first, *next; a; a = next) {
        next = a->next;
        free(a);
    }
    free(l);
}

/* Of a lane that has no message any more: it goes, unless something has come that the next one gets. Leave to send may
 * have: the receiver has the next one already. */
static void leave_lane(struct tcp_wire *w, struct tcp_lane *l)
{
    if (l->first || l->into != TCP_NOWHERE || l->offered || l->granted >= 0)
        return;
    struct tcp_lane **at = &w->buckets[bucket_of(w->nbuckets, l->peer, l->tag, l->send)];
    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    w->nlanes--;
    free_lane(l);
}

void tcp_lanes_free(struct tcp_wire *w)
{
    for (size_t i = 0; i < w->nbuckets; i++)
        for (struct tcp_lane *l = w->buckets[i], *next; l; l = next) {
            next = l->next;
            free_lane(l);
        }
    free(w->buckets);
}

/* ---- the memory of a message ---- */

size_t tcp_pieces(const struct tcp_message *m, size_t n, struct iovec *out, size_t cap)
{
    size_t k = 0, offset = m->offset;
    for (size_t i = m->part; n && k < cap && i < m->nparts; i++, offset = 0) {
        size_t rest = m->parts[i].bytes - offset, some = n < rest ? n : rest;
        if (!some)
            continue;
        out[k++] = (struct iovec){(unsigned char *)m->parts[i].memory + offset, some};
        n -= some;
    }
    return k;
}

void tcp_advance(struct tcp_message *m, size_t n)
{
    while (n) {
        size_t rest = m->parts[m->part].bytes - m->offset;
        if (n < rest) {
            m->offset += n;
            return;
        }
        n -= rest;
        m->part++;
        m->offset = 0;
    }
}

void tcp_put(struct tcp_message *m, const void *bytes, size_t n)
{
    const unsigned char *from = bytes;
    for (struct iovec v; n && tcp_pieces(m, n, &v, 1); n -= v.iov_len, from += v.iov_len) {
        memcpy(v.iov_base, from, v.iov_len);
        tcp_advance(m, v.iov_len);
    }
}

/* ---- leave to send ---- */

/* The note of a message is in the queue once at a time; another one is a copy. */
static bool send_note(struct tcp_wire *w, struct tcp_message *m, enum tcp_kind kind, uint64_t number)
{
    struct tcp_peer *p = &w->peers[m->base.peer];
    const struct tcp_head head = {.kind = kind, .tag = m->base.tag, .value = number};
    if (m->note.queued)
        return tcp_queue_copy(w, p, &head, NULL, 0);
    m->note = (struct tcp_out){.head = head, .n = sizeof head};
    m->note.bytes = &m->note.head;
    tcp_queue(w, p, &m->note);
    return true;
}

/* Where there is no memory for a copy the grant is given with the next offer, or not: then the deadline of the comm
 * ends it. */
static void grant(struct tcp_wire *w, struct tcp_message *m, uint64_t number)
{
    if (send_note(w, m, TCP_GRANT, number))
        m->granted = (int64_t)number;
    m->lane->offered = false;
    w->peers[m->base.peer].bulk |= !m->base.loose && m->base.bytes > TCP_EAGER;
}

void tcp_offered(struct tcp_wire *w, struct tcp_lane *l, uint64_t number)
{
    struct tcp_message *m = l->message;
    l->offered = true;
    l->offer = number;
    if (m && m->state == TCP_MOVES && m->granted == (int64_t)number)
        l->offered = false; /* the two have crossed */
    else if (m && m->state == TCP_MOVES && !l->first && l->into == TCP_NOWHERE)
        grant(w, m, number);
}

void tcp_granted(struct tcp_wire *w, struct tcp_lane *l, uint64_t number)
{
    struct tcp_message *m = l->message;
    if (!m || m->state != TCP_WAITS || number + 1 != l->starts) {
        l->granted = (int64_t)number;
        return;
    }
    tcp_begin(&w->peers[l->peer], m);
    tcp_push(w, &w->peers[l->peer]);
}

/* ---- what has come ---- */

static void finish(struct tcp_message *m, size_t got, bool fits)
{
    m->base.got = got;
    m->state = fits && (got == m->base.bytes || m->base.loose) ? TCP_DONE : TCP_UNFIT;
}

/* Gives a receive that was started the first message that came before. */
static void deliver(struct tcp_lane *l)
{
    struct tcp_message *m = l->message;
    struct tcp_arrival *a = l->first;
    bool fits = a->bytes <= m->base.bytes;
    l->first = a->next;
    if (fits)
        tcp_put(m, a->data, a->bytes);
    finish(m, a->bytes, fits);
    free(a);
}

void tcp_arrived(struct tcp_lane *l)
{
    struct tcp_message *m = l->message;
    enum tcp_into into = l->into;
    l->into = TCP_NOWHERE;
    if (into == TCP_STASH) {
        l->last->whole = true;
        if (m && m->state == TCP_MOVES && l->first->whole)
            deliver(l);
    } else if (into == TCP_MEMORY || l->unfit) {
        finish(m, l->total, !l->unfit);
        l->unfit = false;
    }
}

/* Whoever waits for it goes on waiting: the sender, which has failed, says why by mail, or leaves. */
void tcp_aborted(struct tcp_lane *l)
{
    struct tcp_arrival **at = &l->first, *before = NULL;
    if (l->into == TCP_STASH) {
        for (; (*at)->next; at = &(*at)->next)
            before = *at;
        free(*at);
        *at = NULL;
        l->last = before;
    }
    if (l->into == TCP_MEMORY)
        l->message->part = l->message->offset = 0;
    l->into = TCP_NOWHERE;
    l->unfit = false;
}

/* ---- the calls ---- */

int tcp_make_list(struct wire *base, int peer, uint64_t tag, const struct wire_part *parts, size_t n, bool send,
                  struct wire_message **out)
{
    struct tcp_wire *w = (struct tcp_wire *)base;
    if (tag >= base->tags)
        return base->error(WEFT_EINVAL, "tcp: no tag %llu", (unsigned long long)tag);
    int err = tcp_use(w, peer);
    if (err)
        return err;
    struct tcp_lane *l = tcp_lane(w, peer, tag, send);
    if (l && l->message && is_active(l->message))
        return base->error(WEFT_EINVAL, "tcp: a message with tag %llu %s rank %d is under way already",
                           (unsigned long long)tag, send ? "to" : "from", peer);
    struct tcp_message *m = l ? malloc(sizeof *m + n * sizeof *m->parts) : NULL;
    if (!m) {
        if (l && !l->message)
            leave_lane(w, l);
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

int tcp_make(struct wire *base, int peer, uint64_t tag, void *memory, size_t bytes, bool send,
             struct wire_message **out)
{
    return tcp_make_list(base, peer, tag, &(struct wire_part){memory, bytes}, 1, send, out);
}

static void start_send(struct tcp_wire *w, struct tcp_peer *p, struct tcp_message *m, uint64_t number)
{
    bool granted = m->lane->granted == (int64_t)number;
    m->left = m->base.bytes;
    m->lane->granted = -1;                /* it is for this start, or for one that needed none */
    if (p->link == TCP_LOST || p->mute) { /* whether it left or ended is not known yet: test will tell */
        m->state = TCP_MOVES;
        return;
    }
    if ((m->base.bytes > TCP_EAGER || number % WIRE_AHEAD == WIRE_AHEAD - 1) && !granted) {
        m->state = TCP_WAITS;
        send_note(w, m, TCP_OFFER, number); /* its note is free: it is sent before the grant comes */
    } else {
        tcp_begin(p, m);
    }
    if (!p->blocked)
        tcp_push(w, p);
}

static void start_receive(struct tcp_wire *w, struct tcp_message *m, uint64_t number)
{
    struct tcp_lane *l = m->lane;
    bool large = m->base.bytes > TCP_EAGER && (!m->base.loose || l->large);
    m->state = TCP_MOVES;
    m->granted = -1;
    if (l->first && l->first->whole)
        deliver(l);
    else if (l->first || l->into != TCP_NOWHERE)
        return; /* it is on its way */
    else if (l->offered)
        grant(w, m, l->offer);
    else if (large || number % WIRE_AHEAD == WIRE_AHEAD - 1)
        grant(w, m, number);
}

int tcp_start(struct wire_message *base)
{
    struct tcp_message *m = (struct tcp_message *)base;
    struct tcp_wire *w = wire_of(m);
    struct tcp_peer *p = &w->peers[base->peer];
    if (is_active(m))
        return w->base.error(WEFT_EBUSY, "a message with rank %d is started twice", base->peer);
    /* What a peer sent before it left can still be received. */
    if (base->send && p->fate != TRANSPORT_HERE)
        return tcp_lost_error(w, base->peer);
    m->part = m->offset = 0;
    if (base->loose)
        m->parts[0] = (struct wire_part){base->memory, base->bytes};
    if (base->send)
        start_send(w, p, m, m->lane->starts++);
    else
        start_receive(w, m, m->lane->starts++);
    return 0;
}

int tcp_test(struct wire_message *base)
{
    const struct tcp_message *m = (const struct tcp_message *)base;
    const struct tcp_wire *w = wire_of(m);
    if (m->state == TCP_UNFIT)
        return base->wire->error(WEFT_EMISMATCH, "rank %d sent %zu bytes, but %zu are expected of it", base->peer,
                                 base->got, base->bytes);
    if (!is_active(m))
        return 1;
    return w->peers[base->peer].fate == TRANSPORT_HERE ? 0 : tcp_lost_error(w, base->peer);
}

bool tcp_cancel(struct wire_message *base)
{
    struct tcp_message *m = (struct tcp_message *)base;
    struct tcp_wire *w = wire_of(m);
    struct tcp_peer *p = &w->peers[base->peer];
    struct tcp_lane *l = m->lane;
    if (!is_active(m))
        return true;
    if (base->send && m->state == TCP_MOVES && p->link != TCP_LOST && !p->mute)
        tcp_stop(w, p, m);
    if (!base->send && l->into == TCP_MEMORY)
        l->into = TCP_DISCARD;
    l->unfit = false;
    m->state = TCP_IDLE;
    return true;
}

void tcp_drop(struct wire_message *base)
{
    struct tcp_message *m = (struct tcp_message *)base;
    if (!m)
        return;
    struct tcp_wire *w = wire_of(m);
    tcp_cancel(base);
    tcp_withdraw(w, &w->peers[base->peer], &m->note);
    struct tcp_message **at = &m->lane->message;
    while (*at != m)
        at = &(*at)->under;
    *at = m->under;
    if (base->loose)
        m->lane->granted =
            -1; /* for a start that needed none: of the first one of a loose message the receiver knows no size */
    if (!m->lane->message)
        leave_lane(w, m->lane);
    free(m);
}
