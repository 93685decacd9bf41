/* Pipes between hosts. The writer's ring is in its own memory, as within a host. The reader has a ring of the same
 * size, in which every frame has the same position. Sealed frames go over the wire in pieces. A piece is some whole
 * frames, at most a quarter ring, and is received at its position. The reader always has room for them, since the
 * writer never has more in its ring than fits. The reader starts to receive the next piece behind the last one as soon
 * as the largest possible piece fits there: a quarter ring, or the rest up to the ring's end, which no piece crosses.
 *
 * What is a word in shared memory goes by mail: how far the reader has read, votes, that a rank is at work, that it has
 * closed. When ranks open pipes, each asks its neighbours on other hosts whether it is in their lists. All of them
 * answer, also those that do not list it, so that both ends can say what does not match. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/mail.h"
#include "exchange/pipe.h"
#include "transport/hosts/hosts.h"

#define PULSE_NS INT64_C(250000000)

enum {
    ASK = MAIL_KIND(MAIL_PIPE, 1),
    ANSWER = MAIL_KIND(MAIL_PIPE, 2),
    READ = MAIL_KIND(MAIL_PIPE, 3),
    BALLOT = MAIL_KIND(MAIL_PIPE, 4),
    PULSE = MAIL_KIND(MAIL_PIPE, 5),
    CLOSED = MAIL_KIND(MAIL_PIPE, 6),
};
enum { SENDS = 1, RECEIVES = 2 }; /* of an answer */

static void send_to(const struct pipes *p, int peer, uint32_t kind, uint64_t a, uint64_t b)
{
    struct pipe_mail m;
    memset(&m, 0, sizeof m);
    m.kind = kind;
    m.exchange = p->number;
    m.a = a;
    m.b = b;
    (void)mail_send(p->comm, peer, &m, sizeof m);
}

struct pipe_remote *pipe_wire_peer(const struct pipes *p, int rank)
{
    int lo = 0, hi = p->nremotes;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (p->remotes[mid].peer < rank)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < p->nremotes && p->remotes[lo].peer == rank ? &p->remotes[lo] : NULL;
}

/* ---- opening ---- */

static int by_peer(const void *a, const void *b)
{
    const struct pipe_remote *x = a, *y = b;
    return (x->peer > y->peer) - (x->peer < y->peer);
}

static void add(struct pipes *p, int rank)
{
    if (rank < p->comm->size && transport_elsewhere(p->comm->link, rank))
        p->remotes[p->nremotes++].peer = rank;
}

static int make_head(struct pipe_remote *f)
{
    size_t bytes = (sizeof *f->head + CORE_LINE - 1) / CORE_LINE * CORE_LINE;
    f->head = aligned_alloc(CORE_LINE, bytes);
    if (f->head)
        memset(f->head, 0, bytes);
    return f->head ? 0 : error_nomem();
}

static mail_handler take;

int pipe_wire_prepare(struct pipes *p)
{
    weft_comm *c = p->comm;
    const struct pipe_head *h = p->head;
    p->remotes = calloc((size_t)h->nfrom + (size_t)h->nto + 3, sizeof *p->remotes);
    if (!p->remotes)
        return error_nomem();
    for (int i = 0; i < h->nfrom + h->nto; i++)
        add(p, h->lists[i]);
    if (p->votes && c->rank)
        add(p, (c->rank - 1) / 2);
    for (int k = 1; k <= 2 && p->votes; k++)
        add(p, 2 * c->rank + k);
    qsort(p->remotes, (size_t)p->nremotes, sizeof *p->remotes, by_peer);
    int n = 0, err = 0;
    for (int i = 0; i < p->nremotes; i++)
        if (!n || p->remotes[n - 1].peer != p->remotes[i].peer)
            p->remotes[n++] = p->remotes[i];
    p->nremotes = n;
    for (int i = 0; i < n && !err; i++)
        err = make_head(&p->remotes[i]);
    p->memory += (int64_t)((size_t)n * (sizeof *p->remotes + sizeof *h));
    mail_handle(c, MAIL_PIPE, take);
    p->next = c->pipes;
    c->pipes = p;
    return err;
}

static bool lacks_answer(void *arg, int i)
{
    const struct pipes *p = arg;
    return !p->remotes[i].answered;
}

int pipe_wire_greet(struct pipes *p)
{
    int *ranks = malloc((size_t)(p->nremotes + 1) * sizeof *ranks);
    if (!ranks)
        return error_nomem();
    for (int i = 0; i < p->nremotes; i++) {
        ranks[i] = p->remotes[i].peer;
        send_to(p, ranks[i], ASK, 0, 0);
    }
    int err =
        comm_wait_ranks(p->comm, &(struct comm_wait_ranks){ranks, p->nremotes, lacks_answer, p, "weft_exchange_open"});
    free(ranks);
    return err;
}

static void answer(const struct pipes *p, int peer)
{
    const struct pipe_head *h = p->head;
    bool sends = pipes_find(pipes_to_list(h), h->nto, peer) >= 0,
         receives = pipes_find(pipes_from_list(h), h->nfrom, peer) >= 0;
    send_to(p, peer, ANSWER, (sends ? SENDS : 0) | (receives ? RECEIVES : 0), p->ring_bytes);
}

/* Both ends count the tags of pipes that both have in their lists. */
static int make_pieces(struct pipes *p, int peer, bool send, struct pipe_wire **out)
{
    struct transport_hosts *hosts = p->comm->link->hosts;
    uint64_t *next = &(send ? hosts->tags_out : hosts->tags_in)[peer], tag = *next;
    struct pipe_wire *w = *out = calloc(1, sizeof *w);
    *next += PIPE_PIECES;
    int err = w ? 0 : error_nomem();
    for (int i = 0; i < PIPE_PIECES && !err; i++) {
        err = hosts->wire->ops->make(hosts->wire, peer, tag + (uint64_t)i, NULL, 0, send, &w->pieces[i]);
        if (!err)
            w->pieces[i]->loose = true;
    }
    p->memory += (int64_t)sizeof *w;
    return err;
}

int pipe_wire_connect_in(struct pipes *p, struct pipe_in *in)
{
    uint64_t bytes = pipe_wire_peer(p, in->peer)->ring_bytes;
    size_t all = sizeof *in->ring + bytes;
    if (bytes < PIPE_LEAST || bytes > PIPE_MOST || bytes & (bytes - 1))
        return error_set(WEFT_ETRANSPORT, "rank %d says that its pipe has %llu bytes", in->peer,
                         (unsigned long long)bytes);
    in->bytes = bytes;
    in->ring = aligned_alloc(CORE_LINE, all);
    int err = make_pieces(p, in->peer, false, &in->wire);
    if (!in->ring)
        return error_nomem();
    memset(in->ring, 0, all); /* the first touch of a page is expensive, so it is done here */
    p->memory += (int64_t)all;
    return err;
}

int pipe_wire_connect_out(struct pipes *p, struct pipe_out *o)
{
    return make_pieces(p, o->peer, true, &o->wire);
}

/* ---- moving ---- */

/* A quarter ring, or the bytes up to the ring's end if these are fewer. */
static uint64_t most_at(size_t bytes, uint64_t at)
{
    uint64_t rest = bytes - (at & (bytes - 1));
    return rest < bytes / 4 ? rest : bytes / 4;
}

static uint64_t at_of(const struct pipe_wire *w)
{
    return atomic_load_explicit(&w->at, memory_order_acquire);
}

/* The pipe ends. If the peer is gone, the comm does not fail here: a rank that waits for the peer finds out when it
 * watches. */
static bool broken(struct pipes *p, struct pipe_wire *w, int peer, const char *what, int err)
{
    char who[NAMES_RANK], text[CORE_TEXT / 2];
    w->ends = true;
    if (err == WEFT_EPEER)
        return false;
    strncpy(text, weft_errmsg(), sizeof text - 1); /* the wire's text */
    text[sizeof text - 1] = 0;
    comm_fail(p->comm, err, "rank %d, which was %s %s in an exchange: %s", p->comm->rank, what,
              names_rank(p->comm, peer, who), text);
    return true;
}

static bool send_pieces(struct pipes *p, struct pipe_out *o)
{
    struct pipe_wire *w = o->wire;
    const struct wire_ops *ops = p->comm->link->hosts->wire->ops;
    uint64_t sealed = pipe_sealed(o);
    bool moved = false;
    int err = 0;
    while (w->ended < w->begun && (err = ops->test(w->pieces[w->ended % PIPE_PIECES])) == 1)
        w->ended++;
    while (err >= 0 && w->begun - w->ended < PIPE_PIECES && at_of(w) < sealed) {
        struct wire_message *m = w->pieces[w->begun % PIPE_PIECES];
        uint64_t at = at_of(w), next;
        m->bytes = pipe_span(o->ring, o->bytes, at, sealed, most_at(o->bytes, at), &next);
        m->memory = o->ring->data + (at & (o->bytes - 1));
        err = ops->start(m);
        if (err)
            break;
        w->begun++;
        atomic_store_explicit(&w->at, next, memory_order_release);
        moved = true;
    }
    return err < 0 ? broken(p, w, o->peer, "sending to", err) : moved;
}

static bool receive_pieces(struct pipes *p, struct pipe_in *in)
{
    struct pipe_wire *w = in->wire;
    const struct wire_ops *ops = p->comm->link->hosts->wire->ops;
    bool moved = false;
    int err = 0;
    for (;;) {
        struct wire_message *m = w->pieces[w->ended % PIPE_PIECES];
        uint64_t at = at_of(w), most = most_at(in->bytes, at), next;
        if (w->begun == w->ended) {
            if (at + most - in->read > in->bytes)
                break;
            m->memory = in->ring->data + (at & (in->bytes - 1));
            m->bytes = most;
            err = ops->start(m);
            if (err)
                break;
            w->begun++;
        }
        err = ops->test(m);
        if (err != 1)
            break;
        w->ended++;
        if (m->got % PIPE_FRAME || pipe_span(in->ring, in->bytes, at, at + m->got, m->got, &next) != m->got) {
            err = error_set(WEFT_ETRANSPORT, "what came is not a row of whole frames");
            break;
        }
        atomic_store_explicit(&w->at, next, memory_order_release); /* pairs with pipe_wire_some */
        moved = true;
    }
    return err < 0 ? broken(p, w, in->peer, "waiting for", err) : moved;
}

bool pipe_wire_some(const struct pipe_in *in)
{
    return at_of(in->wire) > in->read;
}

static void tell_read(struct pipes *p, struct pipe_in *in)
{
    if (in->read - in->told < in->bytes / 4)
        return;
    in->told = in->read;
    send_to(p, in->peer, READ, in->read, 0);
}

/* A peer that has closed counts as gone when all that it wrote has come. */
static void settle(struct pipes *p, struct pipe_remote *f)
{
    const struct pipe_in *in = pipes_in(p, f->peer);
    if (f->closed && (!in || at_of(in->wire) >= f->written))
        atomic_store_explicit(&f->head->freed, 1, memory_order_seq_cst);
}

/* Has the rank closed while some of what it wrote is still on the way? */
static bool comes(const struct pipes *p, int rank)
{
    const struct pipe_remote *f = pipe_wire_peer(p, rank);
    const struct pipe_in *in = f && f->closed ? pipes_in(p, rank) : NULL;
    return in && !in->wire->ends && at_of(in->wire) < f->written;
}

/* Other ranks may report that a rank has left before its frames have come. The wire's own report comes after the
 * frames. */
enum transport_fate pipe_wire_fate(const struct pipes *p, int rank)
{
    struct wire *wire = p->comm->link->hosts->wire;
    enum transport_fate fate = wire->ops->gone(wire, rank);
    return fate == TRANSPORT_LEFT && comes(p, rank) ? TRANSPORT_HERE : fate;
}

static void pulse(struct pipes *p)
{
    int64_t now = core_now(), eighth = p->comm->deadline_ns / 8, every = eighth < PULSE_NS ? eighth : PULSE_NS;
    if (now - p->pulsed_at < every)
        return;
    p->pulsed_at = now;
    for (int i = 0; i < p->nremotes; i++)
        send_to(p, p->remotes[i].peer, PULSE, p->finished, 0);
}

bool pipe_wire_pump(struct pipes *p, bool busy)
{
    bool moved = false;
    for (int i = 0; i < p->nouts; i++)
        if (p->outs[i].wire && !p->outs[i].wire->ends)
            moved |= send_pieces(p, &p->outs[i]);
    for (int i = 0; i < p->nins; i++)
        if (p->ins[i].wire && !p->ins[i].wire->ends) {
            moved |= receive_pieces(p, &p->ins[i]);
            tell_read(p, &p->ins[i]);
        }
    for (int i = 0; i < p->nremotes; i++)
        settle(p, &p->remotes[i]);
    if (busy)
        pulse(p);
    return moved;
}

void pipe_wire_ended(struct pipe_out *o)
{
    if (o->wire)
        o->wire->round = o->written;
}

void pipe_wire_vote(struct pipes *p, int rank, uint64_t word)
{
    send_to(p, rank, BALLOT, word, 0);
}

/* ---- what comes by mail ---- */

static void ballot(struct pipes *p, int peer, uint64_t word)
{
    int rank = p->comm->rank, kid = peer - (2 * rank + 1);
    struct pipe_ballot *at = rank && peer == (rank - 1) / 2 ? &p->head->down
                             : kid >= 0 && kid < 2          ? &p->head->up[kid]
                                                            : NULL;
    if (at)
        atomic_store_explicit(&at->word, word, memory_order_seq_cst);
}

static void hear(struct pipes *p, int peer, const struct pipe_mail *m)
{
    if (m->kind == ASK)
        answer(p, peer);
    struct pipe_remote *f = pipe_wire_peer(p, peer);
    struct pipe_out *o = pipes_out(p, peer);
    if (!f)
        return;
    switch (m->kind) {
    case ANSWER:
        f->answered = true;
        f->sends = m->a & SENDS;
        f->receives = m->a & RECEIVES;
        f->ring_bytes = f->sends ? m->b : 0;
        break;
    case READ: /* what has left, and no less than before */
        if (o && o->ring && o->wire && m->a <= at_of(o->wire) &&
            m->a >= atomic_load_explicit(&o->ring->read, memory_order_relaxed))
            atomic_store_explicit(&o->ring->read, m->a, memory_order_seq_cst);
        break;
    case BALLOT: ballot(p, peer, m->a); break;
    case PULSE:
        atomic_store_explicit(&f->head->finished, m->a, memory_order_relaxed);
        atomic_fetch_add_explicit(&p->comm->group->ranks[peer].pulse, 1, memory_order_relaxed);
        break;
    case CLOSED:
        f->closed = true;
        f->written = m->a;
        f->received = m->b;
        settle(p, f);
        break;
    default: break;
    }
}

static void take(weft_comm *c, int peer, const void *packet, size_t n)
{
    struct pipe_mail m;
    if (n != sizeof m)
        return;
    memcpy(&m, packet, n);
    struct pipes *p = c->pipes;
    while (p && p->number != m.exchange)
        p = p->next;
    if (p) /* otherwise the exchange is closed here */
        hear(p, peer, &m);
}

/* ---- the end ---- */

bool pipe_wire_drained(const struct pipes *p, int *refuses)
{
    *refuses = -1;
    for (int i = 0; i < p->nouts; i++) {
        const struct pipe_wire *w = p->outs[i].wire;
        if (!w || w->ends || (w->begun == w->ended && at_of(w) >= w->round))
            continue;
        const struct pipe_remote *f = pipe_wire_peer(p, p->outs[i].peer);
        if (!f->closed || f->received >= at_of(w))
            return false;
        *refuses = f->peer;
    }
    return true;
}

/* False: the wire may still use the memory. */
static bool free_wire(struct pipe_wire *w)
{
    bool ours = true;
    for (int i = 0; w && i < PIPE_PIECES; i++) {
        struct wire_message *m = w->pieces[i];
        if (!m)
            continue;
        ours &= m->wire->ops->cancel(m);
        m->wire->ops->drop(m);
    }
    free(w);
    return ours;
}

bool pipe_wire_close(struct pipes *p, bool silent)
{
    weft_comm *c = p->comm;
    bool ours = true;
    for (int i = 0; i < p->nremotes; i++)
        mail_failure_to(c, p->remotes[i].peer);
    for (int i = 0; i < p->nremotes && !silent; i++) {
        const struct pipe_out *o = pipes_out(p, p->remotes[i].peer);
        const struct pipe_in *in = pipes_in(p, p->remotes[i].peer);
        send_to(p, p->remotes[i].peer, CLOSED, o ? at_of(o->wire) : 0, in ? at_of(in->wire) : 0);
    }
    for (int i = 0; i < p->nouts; i++)
        ours &= free_wire(p->outs[i].wire);
    for (int i = 0; i < p->nins; i++) {
        struct pipe_in *in = &p->ins[i];
        if (pipe_wire_peer(p, in->peer) && free_wire(in->wire))
            free(in->ring);
    }
    for (int i = 0; i < p->nremotes; i++)
        free(p->remotes[i].head);
    free(p->remotes);
    p->remotes = NULL;
    p->nremotes = 0;
    for (struct pipes **at = &c->pipes; *at; at = &(*at)->next)
        if (*at == p) {
            *at = p->next;
            break;
        }
    return ours;
}
