/* Mail that has come, and notices that a peer is gone, in the order in which they came. */
#include <stdlib.h>

#include "transport/wire/tcp/wire_tcp.h"

void tcp_inbox_post(struct tcp_wire *w, struct tcp_mail *l)
{
    l->next = NULL;
    *w->inbox_last = l;
    w->inbox_last = &l->next;
}

/* The notice that a peer is gone takes effect when all mail of that peer has been read. */
bool tcp_inbox_fetch(struct wire *base, int *peer, const void **bytes, size_t *n)
{
    struct tcp_wire *w = (struct tcp_wire *)base;
    free(w->reading);
    w->reading = NULL;
    for (struct tcp_mail *l; (l = w->inbox);) {
        w->inbox = l->next;
        if (!w->inbox)
            w->inbox_last = &w->inbox;
        if (l->fate != TRANSPORT_HERE) { /* it is a part of struct tcp_peer, and is not freed */
            w->peers[l->peer]->fate = l->fate;
            continue;
        }
        w->reading = l;
        *peer = l->peer;
        *bytes = l->bytes;
        *n = l->n;
        return true;
    }
    return false;
}
