#define _GNU_SOURCE
#include "rendezvous/address.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "rendezvous/deadline.h"

#define BACKLOG 4096 /* the system has a limit of its own */
#define TURN_NS INT64_C(2000000000)

int address_parse(const char *text, struct address *out)
{
    const char *colon = strrchr(text, ':'), *host = text;
    size_t n = colon ? (size_t)(colon - text) : 0;
    char *end;
    long port = colon && colon[1] ? strtol(colon + 1, &end, 10) : -1;
    if (port < 0 || port > 65535 || *end || colon[1] < '0' || colon[1] > '9')
        return error_set(WEFT_EINVAL, "tcp:%s: expected tcp:HOST:PORT with a port from 0 to 65535", text);
    if (n >= 2 && host[0] == '[' && host[n - 1] == ']') {
        host++;
        n -= 2;
    } else if (memchr(host, ':', n)) {
        return error_set(WEFT_EINVAL, "tcp:%s: put an address with colons into brackets, as in tcp:[::1]:5000", text);
    }
    if (n >= sizeof out->host)
        return error_set(WEFT_EINVAL, "tcp:%.40s...: the name of the host is too long", text);
    memcpy(out->host, host, n);
    out->host[n] = 0;
    if (!n)
        strcpy(out->host, "127.0.0.1");
    out->port = (int)port;
    return 0;
}

void address_format(const struct address *a, char text[ADDRESS_TEXT])
{
    snprintf(text, ADDRESS_TEXT, strchr(a->host, ':') ? "[%s]:%d" : "%s:%d", a->host, a->port);
}

static int resolve(const struct address *a, struct addrinfo **out)
{
    struct addrinfo hint = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    char port[8];
    snprintf(port, sizeof port, "%d", a->port);
    int err = getaddrinfo(a->host, port, &hint, out);
    return err ? error_set(WEFT_ETRANSPORT, "tcp:%s:%d: no address of '%s': %s", a->host, a->port, a->host,
                           err == EAI_SYSTEM ? strerror(errno) : gai_strerror(err))
               : 0;
}

static int port_of(int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } at;
    socklen_t len = sizeof at;
    if (getsockname(fd, &at.any, &len))
        return 0;
    return ntohs(at.any.sa_family == AF_INET6 ? at.v6.sin6_port : at.v4.sin_port);
}

static int listen_at(const struct addrinfo *i)
{
    int one = 1, fd = socket(i->ai_family, i->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, i->ai_protocol);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (!bind(fd, i->ai_addr, i->ai_addrlen) && !listen(fd, BACKLOG))
        return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

int address_listen(struct address *a, int *fd)
{
    struct addrinfo *list;
    int err = resolve(a, &list), why = EADDRNOTAVAIL;
    if (err)
        return err;
    *fd = -1;
    for (struct addrinfo *i = list; i && *fd < 0; i = i->ai_next) {
        *fd = listen_at(i);
        if (*fd < 0 && (errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT))
            why = errno;
    }
    freeaddrinfo(list);
    if (*fd >= 0) {
        a->port = port_of(*fd);
        return 0;
    }
    if (why == EADDRINUSE || why == EADDRNOTAVAIL)
        return why;
    return error_set(WEFT_ETRANSPORT, "tcp:%s:%d: cannot listen there: %s", a->host, a->port, strerror(why));
}

/* Returns 0 when the socket is connected, otherwise an errno. */
static int await_connected(int fd, int64_t until)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int why = 0, ready;
    socklen_t len = sizeof why;
    while ((ready = poll(&p, 1, deadline_left_ms(until))) < 0 && errno == EINTR)
        ;
    if (ready <= 0)
        return ready ? errno : ETIMEDOUT;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &len) ? errno : why;
}

/* The system may give this socket, as its own port, the port that it connects to. If no process listens there, TCP then
 * connects the socket to itself. */
static bool is_oneself(int fd)
{
    struct sockaddr_storage here, there;
    socklen_t n = sizeof here, m = sizeof there;
    memset(&here, 0, sizeof here);
    memset(&there, 0, sizeof there);
    return !getsockname(fd, (struct sockaddr *)&here, &n) && !getpeername(fd, (struct sockaddr *)&there, &m) &&
           n == m && !memcmp(&here, &there, n);
}

/* 0 or an errno. */
static int connect_to(const struct addrinfo *i, int64_t until, int *out)
{
    int one = 1, why = 0, fd = socket(i->ai_family, i->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, i->ai_protocol);
    if (fd < 0)
        return errno;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    if (connect(fd, i->ai_addr, i->ai_addrlen))
        why = errno;
    if (why == EINPROGRESS)
        why = await_connected(fd, until);
    if (!why && is_oneself(fd)) {
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1},
                   sizeof(struct linger)); /* frees the port at once */
        why = ECONNREFUSED;
    }
    if (why)
        close(fd);
    else
        *out = fd;
    return why;
}

int64_t address_turn(int64_t until)
{
    int64_t turn = deadline_now() + TURN_NS;
    return turn < until ? turn : until;
}

int address_connect(const struct address *a, int64_t until, int *fd)
{
    struct addrinfo *list;
    int err = resolve(a, &list), why = ECONNREFUSED;
    if (err)
        return err;
    for (struct addrinfo *i = list; i; i = i->ai_next) {
        why = connect_to(i, i->ai_next ? address_turn(until) : until, fd);
        if (!why)
            break;
    }
    freeaddrinfo(list);
    return why;
}

int address_here(int fd, struct address *out)
{
    struct sockaddr_storage at;
    socklen_t len = sizeof at;
    if (getsockname(fd, (struct sockaddr *)&at, &len) ||
        getnameinfo((struct sockaddr *)&at, len, out->host, sizeof out->host, NULL, 0, NI_NUMERICHOST))
        return error_set(WEFT_ETRANSPORT, "a socket does not say its address: %s", strerror(errno));
    out->port = port_of(fd);
    return 0;
}
