/* The connection with one peer: what epoll watches of it, and its end. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/forks.h"
#include "transport/wire/tcp/wire_tcp.h"
#include "weft.h"

bool tcp_link_watch(const struct tcp_wire *w, int op, int fd, uint32_t events, void *who)
{
    return !epoll_ctl(w->base.fd, op, fd, &(struct epoll_event){.events = events, .data.ptr = who});
}

/* A forked child may have the file, too; without the shutdown the other end would then see no end. */
void tcp_link_end(int fd)
{
    shutdown(fd, SHUT_RDWR);
    forks_close(fd);
}

/* For the same reason epoll would go on reporting the file. */
void tcp_link_shut(const struct tcp_wire *w, int fd)
{
    tcp_link_watch(w, EPOLL_CTL_DEL, fd, 0, NULL);
    tcp_link_end(fd);
}

void tcp_link_hang_up(const struct tcp_wire *w, struct tcp_peer *p)
{
    if (p->fd >= 0)
        tcp_link_shut(w, p->fd);
    p->fd = -1;
    p->probed = false;
}

void tcp_link_lost(struct tcp_wire *w, struct tcp_peer *p, enum transport_fate fate, int why)
{
    if (p->link == TCP_LOST)
        return;
    tcp_queue_clear(w, p);
    if (why && p->fd >= 0) /* the kernel need not keep data for a host that does not answer */
        setsockopt(p->fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
    tcp_link_hang_up(w, p);
    if (p->reserve >= 0)
        tcp_link_end(p->reserve);
    p->reserve = -1;
    p->unsure = false;
    p->link = TCP_LOST;
    p->why = why;
    free(p->mail);
    p->mail = NULL;
    p->lane = NULL;
    /* A connection may have been ended on its way, so its end says nothing about the peer. */
    if (fate == TRANSPORT_HERE && !w->leaves) {
        p->broken = true;
        tcp_sensor_end(w, p);
        tcp_sensor_begin(w, p);
        return;
    }
    tcp_link_settle(w, p, fate == TRANSPORT_HERE ? TRANSPORT_LOST : fate);
}

void tcp_link_settle(struct tcp_wire *w, struct tcp_peer *p, enum transport_fate fate)
{
    tcp_sensor_end(w, p);
    p->broken = false;
    p->end = (struct tcp_mail){.peer = p->rank, .fate = fate};
    tcp_inbox_post(w, &p->end);
}

int tcp_link_error(const struct tcp_wire *w, int peer)
{
    const struct tcp_peer *p = w->peers[peer];
    if (p->fate == TRANSPORT_LEFT)
        return w->base.error(WEFT_EPEER, "rank %d has left", peer);
    if (p->fate == TRANSPORT_DIED)
        return w->base.error(WEFT_EPEER, "rank %d has ended", peer);
    return w->base.error(WEFT_EPEER, "rank %d cannot be reached: %s", peer,
                         p->why ? strerror(p->why) : "its connection was closed");
}
