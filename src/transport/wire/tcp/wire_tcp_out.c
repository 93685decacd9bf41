/* Writing to a peer's socket. Short frames go first, in their order: mail, offers and grants. Then messages take turns,
 * a frame each. Both go to the socket in one call. first_sent, frame_sent and the position in the message say what the
 * socket has not taken yet. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "transport/wire/tcp/wire_tcp.h"

#define SHORT 64 /* short frames in one call, at most */

/* ---- the socket ---- */

/* Bytes of the frame's head, and of the message, that have not left. */
static void frame_rest(const struct tcp_peer *p, size_t *head, size_t *body)
{
    *head = p->frame_sent < sizeof p->frame ? sizeof p->frame - p->frame_sent : 0;
    *body = sizeof p->frame + p->frame.bytes - p->frame_sent - *head;
}

/* n bytes were written: takes them off the queue first, unless a frame was begun, then off the frame. */
static void wrote(struct tcp_wire *w, struct tcp_peer *p, size_t n)
{
    while (n && p->first && !p->frame_sent) {
        size_t rest = p->first->n - p->first_sent, some = n < rest ? n : rest;
        p->first_sent += some;
        n -= some;
        if (some == rest)
            tcp_queue_pop(w, p);
    }
    struct tcp_message *m = p->sends;
    if (!m || (!n && !p->frame_sent))
        return;
    size_t head = p->frame_sent < sizeof p->frame ? sizeof p->frame - p->frame_sent : 0;
    size_t body = n > head ? n - head : 0;
    p->frame_sent += n;
    m->left -= body;
    tcp_memory_advance(m, body);
    if (p->frame_sent == sizeof p->frame + p->frame.bytes)
        tcp_queue_end_frame(p);
}

/* Lists what to write next. Returns the number of pieces. */
static size_t gather(struct tcp_peer *p, struct iovec *v, size_t *bytes)
{
    size_t n = 0, sent = p->first_sent;
    *bytes = 0;
    for (struct tcp_out *o = p->frame_sent ? NULL : p->first; o && n < SHORT; o = o->next, sent = 0) {
        v[n++] = (struct iovec){(unsigned char *)(uintptr_t)o->bytes + sent, o->n - sent};
        *bytes += o->n - sent;
        if (n == SHORT && o->next)
            return n;
    }
    const struct tcp_message *m = p->sends;
    if (!m)
        return n;
    if (!p->frame_sent)
        p->frame = (struct tcp_head){.kind = TCP_DATA,
                                     .bytes = (uint32_t)(m->left < TCP_FRAME ? m->left : TCP_FRAME),
                                     .tag = m->base.tag,
                                     .value = m->base.bytes};
    size_t head, body;
    frame_rest(p, &head, &body);
    if (head)
        v[n++] = (struct iovec){(unsigned char *)&p->frame + p->frame_sent, head};
    size_t from = n;
    n += tcp_memory_pieces(m, body, v + n, TCP_PIECES - n);
    *bytes += head;
    for (size_t i = from; i < n; i++)
        *bytes += v[i].iov_len;
    return n;
}

static void watch_room(struct tcp_wire *w, struct tcp_peer *p, bool on)
{
    struct epoll_event e = {.events = EPOLLIN | (on ? (uint32_t)EPOLLOUT : 0), .data.ptr = p};
    if (p->blocked != on)
        epoll_ctl(w->base.fd, EPOLL_CTL_MOD, p->fd, &e);
    p->blocked = on;
}

/* After an error nothing more can be written. What the peer sent before can still be read; a goodbye may be among it.
 * If the connection itself is intact (memory that cannot be read, no memory in the kernel), the peer sees the end of
 * the stream and ends the connection. */
static void fall_mute(struct tcp_wire *w, struct tcp_peer *p)
{
    p->why = errno;
    watch_room(w, p, false);
    p->mute = true;
    shutdown(p->fd, SHUT_WR);
    tcp_queue_clear(w, p);
}

/* A rank that leaves does not wait for a peer that may be busy for long. It takes the risk that its last words are
 * lost. */
static bool may_send(const struct tcp_wire *w, const struct tcp_peer *p)
{
    return !p->unsure || w->leaves;
}

void tcp_out_push(struct tcp_wire *w, struct tcp_peer *p)
{
    struct iovec v[TCP_PIECES];
    for (size_t room = TCP_TURN; p->link == TCP_OPEN && !p->mute && may_send(w, p) && (p->first || p->sends);) {
        size_t bytes;
        struct msghdr h = {.msg_iov = v, .msg_iovlen = gather(p, v, &bytes)};
        ssize_t n = sendmsg(p->fd, &h, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN) {
            fall_mute(w, p);
            return;
        }
        if (n < 0) {
            watch_room(w, p, true);
            return;
        }
        wrote(w, p, (size_t)n);
        if ((size_t)n < bytes) { /* the socket is full: the next call would fail */
            watch_room(w, p, true);
            return;
        }
        if ((size_t)n >= room) {
            tcp_queue_dirty(w, p);
            return;
        }
        room -= (size_t)n;
    }
    if (p->blocked && p->link == TCP_OPEN)
        watch_room(w, p, false);
}

bool tcp_out_push_dirty(struct tcp_wire *w)
{
    struct tcp_peer *p = w->dirty;
    bool some = false;
    w->dirty = NULL;
    for (struct tcp_peer *next; p; p = next) {
        next = p->next_dirty;
        p->dirty = false;
        if (p->link != TCP_OPEN || !may_send(w, p) || p->blocked || !(p->first || p->sends))
            continue;
        some = true;
        tcp_out_push(w, p);
    }
    return some;
}

/* ---- taking back ---- */

void tcp_out_withdraw(struct tcp_wire *w, struct tcp_peer *p, struct tcp_out *o)
{
    if (!o->queued)
        return;
    if (o == p->first && p->first_sent) { /* its first bytes have left, so the others must follow */
        struct tcp_out *rest = tcp_queue_room(o->n - p->first_sent);
        if (!rest) {
            tcp_link_lost(w, p, TRANSPORT_HERE, ENOMEM);
            return;
        }
        memcpy(rest + 1, (const unsigned char *)o->bytes + p->first_sent, rest->n);
        tcp_queue_pop(w, p);
        tcp_queue_first(p, rest);
        return;
    }
    struct tcp_out **at = &p->first;
    while (*at != o)
        at = &(*at)->next;
    *at = o->next;
    if (!*at)
        p->last = at;
    o->queued = false;
}

/* Copies the rest of a frame that was begun, so that the peer finds the next frame where it expects it. */
static bool keep_frame(struct tcp_peer *p, struct tcp_message *m)
{
    size_t head, body;
    frame_rest(p, &head, &body);
    struct tcp_out *rest = tcp_queue_room(head + body);
    if (!rest)
        return false;
    unsigned char *to = (unsigned char *)(rest + 1);
    memcpy(to, (const unsigned char *)&p->frame + p->frame_sent, head);
    for (to += head; body;) {
        struct iovec v;
        tcp_memory_pieces(m, body, &v, 1);
        memcpy(to, v.iov_base, v.iov_len);
        to += v.iov_len;
        body -= v.iov_len;
        m->left -= v.iov_len;
        tcp_memory_advance(m, v.iov_len);
    }
    p->frame_sent = 0;
    tcp_queue_first(p, rest); /* no other bytes have left since the frame was begun */
    return true;
}

void tcp_out_stop(struct tcp_wire *w, struct tcp_peer *p, struct tcp_message *m)
{
    bool begun = p->sends == m && p->frame_sent;
    const struct tcp_head abort = {.kind = TCP_ABORT, .tag = m->base.tag};
    if (begun && !keep_frame(p, m)) {
        tcp_link_lost(w, p, TRANSPORT_HERE, ENOMEM);
        return;
    }
    tcp_queue_unlink(p, m);
    if ((begun || m->left < m->base.bytes) && m->left && !tcp_queue_copy(w, p, &abort, NULL, 0))
        tcp_link_lost(w, p, TRANSPORT_HERE, ENOMEM);
    tcp_queue_dirty(w, p);
}

void tcp_out_bye(struct tcp_wire *w, struct tcp_peer *p)
{
    const struct tcp_head bye = {.kind = TCP_BYE};
    tcp_queue_copy(w, p, &bye, NULL, 0);
}
