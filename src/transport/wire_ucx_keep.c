/* Hosts that vanish without a word: no reset comes, nothing comes at all. Over other networks than TCP UCX sees that itself.
 *
 * Where nothing is on its way the keepalive of TCP asks every second whether the other host is there. UCX asks for that on
 * connections that it opens itself alone; Linux lets those that come in inherit it from the socket that listens. Those sockets
 * are UCX's: they are found as the ones that listen when the worker has been created and did not before. Where something is on
 * its way the kernel sends it again, for a quarter of an hour.
 *
 * So whoever waits looks at what the kernel knows of each connection (TCP_INFO), and ends those of which the other end's
 * kernel has given no sign for UCX_SILENT_NS though it was asked again and again. UCX then reads its end. Why that is right:
 *   - A process that is stopped or busy has a kernel that answers for it. When its buffers are full that announces a window of 0;
 *     then nothing is unacknowledged, and it answers the probes. (TCP_USER_TIMEOUT, which UCX 1.13 cannot be told to set, would
 *     end such connections, too.)
 *   - The kernel doubles its patience from some 0.2 s on, so after a break of t it sends again within 2 t + 0.2 s from its
 *     beginning: a link that is down for 2 s is not taken for a dead one.
 *   - What was unanswered at two looks and brought no sign in between was unanswered all the time.
 * The sockets are those in the epoll sets of the worker, so no other ones of the process are touched. Who sets UCX_TCP_KEEPIDLE
 * decides alone: then the deadline of the comm remains for what is on its way. */
#define _GNU_SOURCE
#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "transport/wire_ucx.h"

static bool listens(int fd)
{
    int on = 0, kind = 0;
    socklen_t n = sizeof on;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &n) || !on)
        return false;
    n = sizeof kind;
    return !getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &kind, &n) && (kind == AF_INET || kind == AF_INET6);
}

size_t ucx_listeners(int *fds, size_t cap)
{
    size_t n = 0;
    DIR *d = opendir("/proc/self/fd");
    for (struct dirent *e; d && n < cap && (e = readdir(d));) {
        int fd = atoi(e->d_name);
        if (e->d_name[0] != '.' && listens(fd))
            fds[n++] = fd;
    }
    if (d)
        closedir(d);
    return n;
}

static void keep_alive(int fd)
{
    const int on = 1, idle = UCX_KEEPIDLE, interval = UCX_KEEPINTVL, count = UCX_KEEPCNT;
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

void ucx_keep_alive(const int *before, size_t n)
{
    int now[UCX_LISTENERS];
    size_t m = ucx_listeners(now, UCX_LISTENERS);
    for (size_t i = 0; i < m; i++) {
        size_t k = 0;
        while (k < n && before[k] != now[i])
            k++;
        if (k == n)
            keep_alive(now[i]);
    }
}

/* ---- silence ---- */

#define LOOK_NS INT64_C(100000000)
#define DEPTH 3 /* of epoll sets in epoll sets */

/* Has it sent something that was not answered yet? */
static bool awaits_answer(const struct tcp_info *i)
{
    return (i->tcpi_state == TCP_ESTABLISHED || i->tcpi_state == TCP_CLOSE_WAIT) && (i->tcpi_unacked || i->tcpi_probes);
}

/* Probes come every second, so three of them say by themselves for how long. */
static bool is_silent(const struct tcp_info *i, int64_t awaited_ns)
{
    const uint32_t ms = (uint32_t)(UCX_SILENT_NS / 1000000);
    return i->tcpi_last_ack_recv >= ms && i->tcpi_last_data_recv >= ms &&
           (i->tcpi_probes >= 3 || (i->tcpi_retransmits >= 2 && awaited_ns >= UCX_SILENT_NS));
}

/* When it was first seen to await an answer without a pause. False: no memory to remember it. */
static bool since(struct ucx_watch *w, uint64_t cookie, int64_t now, int64_t *out)
{
    *out = now;
    for (size_t k = 0; k < w->nbefore; k++)
        if (w->before[k].cookie == cookie)
            *out = w->before[k].since;
    if (w->n == w->room) {
        size_t room = w->room ? 2 * w->room : 8;
        struct ucx_awaits *more = realloc(w->awaits, room * sizeof *more);
        if (!more)
            return false;
        w->awaits = more;
        w->room = room;
    }
    w->awaits[w->n++] = (struct ucx_awaits){cookie, *out};
    return true;
}

static bool look_at(struct ucx_watch *w, int fd, int64_t now)
{
    struct tcp_info info = {0};
    uint64_t cookie;
    socklen_t n = sizeof info, m = sizeof cookie;
    int64_t from;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n))
        return false;
    if (!awaits_answer(&info) || getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &m) || !since(w, cookie, now, &from))
        return true;
    if (is_silent(&info, now - from)) { /* UCX reads its end, and its close resets it */
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
        shutdown(fd, SHUT_RDWR);
    }
    return true;
}

/* All sockets of a set, and of sets in it. */
static void look_in(struct ucx_watch *w, int set, int64_t now, int depth)
{
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", set);
    FILE *f = fopen(path, "re");
    for (int fd; f && fgets(line, sizeof line, f);)
        if (sscanf(line, "tfd: %d", &fd) == 1 && !look_at(w, fd, now) && depth > 1)
            look_in(w, fd, now, depth - 1);
    if (f)
        fclose(f);
}

void ucx_look(struct ucx_wire *wire)
{
    struct ucx_watch *w = &wire->watch;
    int64_t now = ucx_now();
    if (!w->on || !wire->worker || now - w->at < LOOK_NS)
        return;
    struct ucx_awaits *old = w->before;
    w->at = now;
    w->before = w->awaits;
    w->nbefore = w->n;
    w->awaits = NULL;
    w->n = w->room = 0;
    free(old);
    look_in(w, wire->base.fd, now, DEPTH);
}

void ucx_look_no_more(struct ucx_wire *wire)
{
    free(wire->watch.awaits);
    free(wire->watch.before);
    wire->watch = (struct ucx_watch){.on = false};
}
