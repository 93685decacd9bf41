/* What is to be sent to a peer, in two lists: short frames in their order, and messages, which are sent in turns of a
 * frame. */
#include <stdlib.h>
#include <string.h>

#include "transport/wire/tcp/wire_tcp.h"

void tcp_queue_dirty(struct tcp_wire *w, struct tcp_peer *p)
{
    if (p->dirty)
        return;
    p->dirty = true;
    p->next_dirty = w->dirty;
    w->dirty = p;
}

/* Nothing is queued for a peer to which nothing can be written any more. */
void tcp_queue(struct tcp_wire *w, struct tcp_peer *p, struct tcp_out *o)
{
    if (p->link == TCP_LOST || p->mute) {
        if (o->owned)
            free(o);
        return;
    }
    o->next = NULL;
    o->queued = true;
    *p->last = o;
    p->last = &o->next;
    w->mails += o->mail;
    tcp_queue_dirty(w, p);
}

struct tcp_out *tcp_queue_room(size_t n)
{
    struct tcp_out *o = malloc(sizeof *o + n);
    if (o)
        *o = (struct tcp_out){.bytes = o + 1, .n = n, .owned = true};
    return o;
}

bool tcp_queue_copy(struct tcp_wire *w, struct tcp_peer *p, const struct tcp_head *head, const void *bytes, size_t n)
{
    struct tcp_out *o = tcp_queue_room(sizeof *head + n);
    if (!o)
        return false;
    memcpy(o + 1, head, sizeof *head);
    if (n)
        memcpy((unsigned char *)(o + 1) + sizeof *head, bytes, n);
    o->mail = head->kind == TCP_MAIL;
    tcp_queue(w, p, o);
    return true;
}

void tcp_queue_first(struct tcp_peer *p, struct tcp_out *o)
{
    o->queued = true;
    o->next = p->first;
    if (!p->first)
        p->last = &o->next;
    p->first = o;
}

void tcp_queue_pop(struct tcp_wire *w, struct tcp_peer *p)
{
    struct tcp_out *o = p->first;
    p->first = o->next;
    if (!p->first)
        p->last = &p->first;
    p->first_sent = 0;
    w->mails -= o->mail;
    o->queued = false;
    if (o->owned)
        free(o);
}

void tcp_queue_begin(struct tcp_peer *p, struct tcp_message *m)
{
    m->state = TCP_MOVES;
    m->next = NULL;
    *p->sends_last = m;
    p->sends_last = &m->next;
}

void tcp_queue_unlink(struct tcp_peer *p, struct tcp_message *m)
{
    struct tcp_message **at = &p->sends;
    while (*at && *at != m)
        at = &(*at)->next;
    if (!*at)
        return;
    *at = m->next;
    if (!*at)
        p->sends_last = at;
    m->next = NULL;
}

void tcp_queue_end_frame(struct tcp_peer *p)
{
    struct tcp_message *m = p->sends;
    p->frame_sent = 0;
    tcp_queue_unlink(p, m);
    if (m->left)
        tcp_queue_begin(p, m);
    else
        m->state = TCP_DONE;
}

void tcp_queue_clear(struct tcp_wire *w, struct tcp_peer *p)
{
    while (p->first)
        tcp_queue_pop(w, p);
    while (p->sends)
        tcp_queue_unlink(p, p->sends);
    p->frame_sent = 0;
}
