/* The keepalive of connections that peers open to this process. UCX asks for it on those that it opens itself alone; Linux
 * lets those that come in inherit it from the socket that listens. Those sockets are UCX's: they are found as the ones that
 * listen when the worker has been created and did not before. */
#define _GNU_SOURCE
#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
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
