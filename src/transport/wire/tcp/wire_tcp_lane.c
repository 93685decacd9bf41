/* Lanes: a lane joins the messages of one tag, direction and peer with the data that has come for them. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "transport/wire/tcp/wire_tcp.h"

static size_t bucket_of(size_t nbuckets, int peer, uint64_t tag, bool send)
{
    return hash_mix(hash_mix(tag << 1 | send) + (uint64_t)peer) & (nbuckets - 1);
}

static void rehash(struct tcp_wire *w)
{
    size_t n = w->nbuckets ? 2 * w->nbuckets : 64;
    struct tcp_lane **more = calloc(n, sizeof(struct tcp_lane *));
    if (!more)
        return; /* the table works with longer chains, too */
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

/* What has come may also be a grant: then the receiver has made its next message already. */
void tcp_lane_leave(struct tcp_wire *w, struct tcp_lane *l)
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

void tcp_lane_free_all(struct tcp_wire *w)
{
    for (size_t i = 0; i < w->nbuckets; i++)
        for (struct tcp_lane *l = w->buckets[i], *next; l; l = next) {
            next = l->next;
            free_lane(l);
        }
    free(w->buckets);
}

/* ---- what has come ---- */

static void finish(struct tcp_message *m, size_t got, bool fits)
{
    m->base.got = got;
    m->state = fits && (got == m->base.bytes || m->base.loose) ? TCP_DONE : TCP_UNFIT;
}

/* The message may be of another size than the receive. */

void tcp_lane_deliver(struct tcp_lane *l)
{
    struct tcp_message *m = l->message;
    struct tcp_arrival *a = l->first;
    bool fits = a->bytes <= m->base.bytes;
    l->first = a->next;
    l->waiting--;
    if (fits)
        tcp_memory_put(m, a->data, a->bytes);
    finish(m, a->bytes, fits);
    free(a);
}

void tcp_lane_arrived(struct tcp_lane *l)
{
    struct tcp_message *m = l->message;
    enum tcp_into into = l->into;
    l->into = TCP_NOWHERE;
    if (into == TCP_STASH) {
        l->last->whole = true;
        if (m && m->state == TCP_MOVES && l->first->whole)
            tcp_lane_deliver(l);
    } else if (into == TCP_MEMORY || l->unfit) {
        finish(m, l->total, !l->unfit);
        l->unfit = false;
    }
}

/* The receive goes on waiting: the sender has failed, and says why by mail, or leaves. */
void tcp_lane_aborted(struct tcp_lane *l)
{
    struct tcp_arrival **at = &l->first, *before = NULL;
    if (l->into == TCP_STASH) {
        for (; (*at)->next; at = &(*at)->next)
            before = *at;
        free(*at);
        *at = NULL;
        l->last = before;
        l->waiting--;
    }
    if (l->into == TCP_MEMORY)
        l->message->part = l->message->offset = 0;
    l->into = TCP_NOWHERE;
    l->unfit = false;
}
