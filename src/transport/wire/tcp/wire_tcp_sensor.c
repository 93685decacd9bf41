/* Asking a peer's kernel whether the peer's process still listens: a fresh connection to its listener. The kernel
 * refuses it if the process has ended, and takes it for a process that is busy or stopped. A process that is just
 * ending may close its listener after its connections. Then the kernel ends the fresh connection, too, and is asked
 * again. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/forks.h"
#include "transport/wire/tcp/wire_tcp.h"

#define TRIES 8 /* connections that are taken and ended again, until it is believed that the process lives */

static void hang_up(const struct tcp_wire *w, struct tcp_sensor *s)
{
    if (s->fd < 0)
        return;
    epoll_ctl(w->base.fd, EPOLL_CTL_DEL, s->fd, NULL);
    shutdown(s->fd, SHUT_RDWR);
    forks_close(s->fd);
    s->fd = -1;
}

/* An error other than a refusal says nothing about the process. */
static void fail(const struct tcp_wire *w, struct tcp_sensor *s, int why)
{
    s->refused = why == ECONNREFUSED;
    hang_up(w, s);
}

/* Calls the address by which the peer was reached before; p->address is the number of the next one. */
static void dial(const struct tcp_wire *w, struct tcp_peer *p)
{
    struct tcp_sensor *s = &p->sensor;
    struct sockaddr_storage to;
    socklen_t n;
    int i = p->address ? p->address - 1 : 0;
    const struct tcp_card *me = &w->cards[w->base.rank], *peer = &w->cards[p->rank];
    s->answered = 0;
    if (!tcp_card_address(me, peer, i, &to, &n) && !tcp_card_address(me, peer, 0, &to, &n))
        return;
    s->fd = forks_own(socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (s->fd < 0)
        return;
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT, .data.ptr = s};
    if ((connect(s->fd, (const struct sockaddr *)&to, n) && errno != EINPROGRESS) ||
        epoll_ctl(w->base.fd, EPOLL_CTL_ADD, s->fd, &e))
        fail(w, s, errno);
}

void tcp_sensor_begin(struct tcp_wire *w, struct tcp_peer *p)
{
    if (p->sensor.began)
        return;
    p->sensor = (struct tcp_sensor){.source = TCP_SENSOR, .fd = -1, .began = core_now()};
    dial(w, p);
}

void tcp_sensor_event(struct tcp_wire *w, struct tcp_peer *p)
{
    struct tcp_sensor *s = &p->sensor;
    if (!s->began || s->refused)
        return;
    if (s->fd < 0) {
        if (!s->answered)
            dial(w, p); /* there was no way to the host before */
        return;
    }
    struct sockaddr_storage at;
    int why = 0;
    socklen_t n = sizeof why, m = sizeof at;
    char byte;
    if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &why, &n))
        why = errno;
    if (!s->answered && why) {
        fail(w, s, why);
    } else if (!s->answered && !getpeername(s->fd, (struct sockaddr *)&at, &m)) {
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = s};
        s->answered = core_now();
        epoll_ctl(w->base.fd, EPOLL_CTL_MOD, s->fd, &e);
    } else if (s->answered && (why || recv(s->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)) {
        hang_up(w, s);
        if (++s->tries < TRIES)
            dial(w, p);
    }
}

void tcp_sensor_end(const struct tcp_wire *w, struct tcp_peer *p)
{
    hang_up(w, &p->sensor);
    p->sensor.began = 0;
}
