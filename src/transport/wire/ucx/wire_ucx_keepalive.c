/* Hosts that vanish without a reset, over TCP (wire_keepalive.h). Over other networks UCX notices this itself.
 *
 * UCX switches the keepalive on only for connections that it opens itself. Accepted connections inherit it from the
 * listening socket, which belongs to UCX: it is found as a socket that listens after the worker was created and did not
 * before. When a connection is ended here, UCX reads its end. Only sockets in the epoll sets of the worker are looked
 * at, so no other sockets of the process are touched. If the user sets UCX_TCP_KEEPIDLE, none of this is done: only the
 * deadline of the comm then ends a wait for data in flight. */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "transport/wire/ucx/wire_ucx.h"
#include "transport/wire/wire_keepalive.h"

static bool listens(int fd)
{
    int on = 0, kind = 0;
    socklen_t n = sizeof on;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &n) || !on)
        return false;
    n = sizeof kind;
    return !getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &kind, &n) && (kind == AF_INET || kind == AF_INET6);
}

size_t ucx_keepalive_listeners(int *fds, size_t cap)
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

void ucx_keepalive_inherit(const int *before, size_t n)
{
    int now[UCX_LISTENERS];
    size_t m = ucx_keepalive_listeners(now, UCX_LISTENERS);
    for (size_t i = 0; i < m; i++) {
        size_t k = 0;
        while (k < n && before[k] != now[i])
            k++;
        if (k == n)
            keep_alive(now[i]);
    }
}

/* ---- silence ---- */

#define DEPTH 3 /* of epoll sets in epoll sets */

/* Since when the connection has awaited an answer without a pause. False: there is no memory to remember it. */
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
    if (!keep_awaits(&info) || getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &m) || !since(w, cookie, now, &from))
        return true;
    if (keep_silent(&info, now - from)) { /* UCX reads the end, and its close resets the connection */
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
        shutdown(fd, SHUT_RDWR);
        w->ended_at = now;
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

void ucx_keepalive_look(struct ucx_wire *wire)
{
    struct ucx_watch *w = &wire->watch;
    int64_t now = ucx_now();
    if (!w->on || !wire->worker || now - w->at < KEEP_LOOK_NS)
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

void ucx_keepalive_end(struct ucx_wire *wire)
{
    free(wire->watch.awaits);
    free(wire->watch.before);
    wire->watch = (struct ucx_watch){.on = false};
}
