/* What a rank knows of another one. It is made when the other one is first used, or calls: so memory grows with the
 * peers that a rank has, not with the ranks of the group. */
#include <stdlib.h>

#include "transport/wire/tcp/wire_tcp.h"

/* The host of a rank; NULL: no memory. */
static struct tcp_host *host_of(struct tcp_wire *w, int rank)
{
    uint64_t net = w->cards[rank].net;
    for (struct tcp_host *h = w->hosts; h && net; h = h->next)
        if (h->net == net)
            return h;
    struct tcp_host *h = calloc(1, sizeof *h);
    if (!h)
        return NULL;
    h->net = net;
    h->next = w->hosts;
    w->hosts = h;
    return h;
}

struct tcp_peer *tcp_peer(struct tcp_wire *w, int rank)
{
    if (w->peers[rank])
        return w->peers[rank];
    struct tcp_host *h = host_of(w, rank);
    struct tcp_peer *p = h ? calloc(1, sizeof *p) : NULL;
    if (!p)
        return NULL;
    p->source = TCP_PEER;
    p->rank = rank;
    p->host = h;
    p->fd = p->reserve = p->sensor.fd = -1;
    p->sensor.source = TCP_SENSOR;
    p->last = &p->first;
    p->sends_last = &p->sends;
    p->next_made = w->made;
    w->made = p;
    return w->peers[rank] = p;
}

void tcp_peer_free_all(struct tcp_wire *w)
{
    for (struct tcp_peer *p = w->made, *next; p; p = next) {
        next = p->next_made;
        free(p->words);
        free(p);
    }
    for (struct tcp_host *h = w->hosts, *next; h; h = next) {
        next = h->next;
        free(h);
    }
    free(w->peers);
}
