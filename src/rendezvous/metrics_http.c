#define _GNU_SOURCE
#include "rendezvous/metrics_http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/thread.h"
#include "rendezvous/deadline.h"

#define CLIENT_NS INT64_C(2000000000) /* for a request and its reply */
#define REQUEST_MAX 4096
#define TEXT_FIRST 8192

struct metrics_http {
    metrics_http_ask *ask;
    void *arg;
    int listener, wake;
    pthread_t thread;
};

/* Waits for the events, or for the end. False: the time is over, or the thread has to end. */
static bool await(const struct metrics_http *m, int fd, short events, int64_t until)
{
    struct pollfd p[2] = {{.fd = fd, .events = events}, {.fd = m->wake, .events = POLLIN}};
    for (;;) {
        int n = poll(p, 2, until == INT64_MAX ? -1 : deadline_left_ms(until));
        if (n < 0 && errno == EINTR)
            continue;
        return n > 0 && !p[1].revents;
    }
}

static void send_all(const struct metrics_http *m, int fd, const char *text, size_t n, int64_t until)
{
    while (n && await(m, fd, POLLOUT, until)) {
        ssize_t some = send(fd, text, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (some < 0 && errno != EAGAIN && errno != EINTR)
            return;
        text += some > 0 ? some : 0;
        n -= some > 0 ? (size_t)some : 0;
    }
}

/* Reads a request to the end of its head. False: there is none within its time and size. */
static bool read_head(const struct metrics_http *m, int fd, char *head, int64_t until)
{
    size_t n = 0;
    while (n < REQUEST_MAX && await(m, fd, POLLIN, until)) {
        ssize_t some = recv(fd, head + n, REQUEST_MAX - n, MSG_DONTWAIT);
        if (some < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (some <= 0)
            return false;
        n += (size_t)some;
        head[n] = 0;
        if (strstr(head, "\r\n\r\n") || strstr(head, "\n\n"))
            return true;
    }
    return false;
}

/* The text grows while it is asked for, perhaps: then again with more room. The caller frees it. */
static char *gather(const struct metrics_http *m, size_t *n)
{
    char *text = NULL;
    for (size_t cap = TEXT_FIRST;;) {
        char *more = realloc(text, cap);
        if (!more)
            break;
        text = more;
        *n = m->ask(m->arg, text, cap);
        if (*n < cap)
            return text;
        cap = *n + *n / 4 + 1;
    }
    free(text);
    return NULL;
}

static void answer(const struct metrics_http *m, int fd)
{
    char request[REQUEST_MAX + 1], small[64], head[256], *text = small, *metrics = NULL;
    int64_t until = deadline_now() + CLIENT_NS;
    const char *state = "200 OK", *type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    if (!read_head(m, fd, request, until))
        return;
    size_t n;
    if (!strncmp(request, "GET /metrics ", 13) || !strncmp(request, "GET /metrics?", 13)) {
        text = metrics = gather(m, &n);
        if (!text)
            return;
    } else {
        bool gets = !strncmp(request, "GET ", 4);
        state = gets ? "404 Not Found" : "405 Method Not Allowed";
        type = "text/plain; charset=utf-8";
        n = (size_t)snprintf(small, sizeof small, "%s\n", gets ? "only /metrics is here" : "only GET is answered");
    }
    int length =
        snprintf(head, sizeof head,
                 "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n", state, type, n);
    send_all(m, fd, head, (size_t)length, until);
    send_all(m, fd, text, n, until);
    free(metrics);
    shutdown(fd, SHUT_WR);
}

static void *serve(void *arg)
{
    struct metrics_http *m = arg;
    while (await(m, m->listener, POLLIN, INT64_MAX)) {
        int fd = accept4(m->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            answer(m, fd);
            close(fd);
        } else if (errno != EINTR && errno != ECONNABORTED && errno != EAGAIN) {
            /* The process is out of files or memory: it tries again in a while. */
            (void)await(m, -1, 0, deadline_now() + INT64_C(100000000));
        }
    }
    return NULL;
}

static int listen_at(int port, int *bound)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t n = sizeof at;
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 16) || getsockname(fd, (struct sockaddr *)&at, &n)) {
        int why = errno;
        close(fd);
        errno = why;
        return -1;
    }
    *bound = ntohs(at.sin_port);
    return fd;
}

int metrics_http_start(metrics_http_ask *ask, void *arg, int port, int *bound, struct metrics_http **out)
{
    struct metrics_http *m = calloc(1, sizeof *m);
    if (!m)
        return error_nomem();
    m->ask = ask;
    m->arg = arg;
    m->wake = -1;
    m->listener = listen_at(port, bound);
    int why = m->listener < 0 || (m->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0 ? errno : 0;
    if (!why)
        why = thread_start(&m->thread, serve, m);
    if (why) {
        if (m->listener >= 0)
            close(m->listener);
        if (m->wake >= 0)
            close(m->wake);
        free(m);
        return error_set(WEFT_ETRANSPORT, "metrics cannot be served at 127.0.0.1:%d: %s", port, strerror(why));
    }
    *out = m;
    return 0;
}

void metrics_http_stop(struct metrics_http *m)
{
    uint64_t one = 1;
    if (!m)
        return;
    (void)!write(m->wake, &one, sizeof one);
    pthread_join(m->thread, NULL);
    close(m->listener);
    close(m->wake);
    free(m);
}
