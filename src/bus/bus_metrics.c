#define _GNU_SOURCE
#include "bus/bus_metrics.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/forks.h"
#include "rendezvous/deadline.h"

#define CLIENT_NS INT64_C(2000000000) /* for a request and its reply */
#define REQUEST_MAX 4096

/* ---- the text ---- */

struct text {
    char *out;
    size_t cap, len;
};

static void add(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct text *t, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(t->len < t->cap ? t->out + t->len : NULL, t->len < t->cap ? t->cap - t->len : 0, fmt, args);
    va_end(args);
    t->len += n > 0 ? (size_t)n : 0;
}

static void family(struct text *t, const char *name, const char *type, const char *help)
{
    add(t, "# TYPE %s %s\n# HELP %s %s\n", name, type, name, help);
}

static void gauge(struct text *t, const char *name, const char *help, uint64_t value)
{
    family(t, name, "gauge", help);
    add(t, "%s %" PRIu64 "\n", name, value);
}

static void counter(struct text *t, const char *name, const char *help, uint64_t value)
{
    family(t, name, "counter", help);
    add(t, "%s_total %" PRIu64 "\n", name, value);
}

static void histogram(struct text *t, const char *name, const char *help, const struct bus_server_times *h)
{
    uint64_t sum = 0;
    family(t, name, "histogram", help);
    add(t, "# UNIT %s seconds\n", name);
    for (int i = 0; i < BUS_SERVER_BUCKETS; i++) {
        sum += h->buckets[i];
        add(t, "%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, (double)bus_server_bucket_ns(i) * 1e-9, sum);
    }
    add(t, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, h->n);
    add(t, "%s_sum %.9f\n%s_count %" PRIu64 "\n", name, (double)h->ns * 1e-9, name, h->n);
}

size_t bus_metrics_text(const struct bus_server_counts *c, char *out, size_t cap)
{
    struct text t = {.out = out, .cap = cap};
    if (cap)
        *out = 0;
    gauge(&t, "weft_bus_up", "1 if the server answers requests, 0 if it has lost the file with its state.", !c->broken);
    gauge(&t, "weft_bus_connections", "Connections, with those that have not proved yet that they have a token.",
          c->connections);
    gauge(&t, "weft_bus_watches", "Clients that wait for a change.", c->watches);
    gauge(&t, "weft_bus_leases", "Leases that have not ended.", c->leases);
    gauge(&t, "weft_bus_keys", "Keys in the directory.", c->keys);
    gauge(&t, "weft_bus_key_bytes", "Memory of the keys and their values, in bytes.", c->key_bytes);
    counter(&t, "weft_bus_requests", "Requests of clients.", c->requests);
    counter(&t, "weft_bus_changes", "Transactions that have changed keys.", c->changes);
    counter(&t, "weft_bus_conflicts", "Transactions that changed nothing, since a key was not as expected.",
            c->conflicts);
    counter(&t, "weft_bus_refusals", "Requests that were refused: no right, no room, or a lease that has ended.",
            c->refusals);
    counter(&t, "weft_bus_leases_granted", "Leases that were granted.", c->granted);
    counter(&t, "weft_bus_leases_ended", "Leases that ended with their time or with their owner's connection.",
            c->lapsed);
    family(&t, "weft_bus_bytes", "counter", "Bytes of the connections, from (received) and to (sent) clients.");
    add(&t, "weft_bus_bytes_total{direction=\"received\"} %" PRIu64 "\n", c->received);
    add(&t, "weft_bus_bytes_total{direction=\"sent\"} %" PRIu64 "\n", c->sent);
    family(&t, "weft_bus_cpu_seconds", "counter", "CPU time of the server's thread.");
    add(&t, "# UNIT weft_bus_cpu_seconds seconds\nweft_bus_cpu_seconds_total %.6f\n", (double)c->cpu_ns * 1e-9);
    histogram(&t, "weft_bus_commit_seconds", "Time of a transaction in the server, with the write to its file.",
              &c->commits);
    histogram(&t, "weft_bus_watch_seconds", "Time from a change to the reply for each client that waits for it.",
              &c->deliveries);
    add(&t, "# EOF\n");
    return t.len;
}

static size_t ask(struct bus_server *s, char *text)
{
    struct bus_server_counts c;
    bus_server_counts(s, &c);
    return bus_metrics_text(&c, text, BUS_METRICS_TEXT);
}

/* ---- a file ---- */

int bus_metrics_write(struct bus_server *s, const char *path)
{
    char text[BUS_METRICS_TEXT];
    return bus_metrics_replace(path, text, ask(s, text));
}

int bus_metrics_replace(const char *path, const char *text, size_t n)
{
    char *part;
    if (asprintf(&part, "%s.%d", path, (int)getpid()) < 0)
        return error_nomem();
    FILE *f = fopen(part, "we");
    bool written = f && fwrite(text, 1, n, f) == n;
    if (f && fclose(f))
        written = false;
    int why = errno;
    if (!written || rename(part, path)) {
        why = written ? errno : why;
        unlink(part);
        free(part);
        return error_set(WEFT_EIO, "%s: the metrics cannot be written: %s", path, strerror(why));
    }
    free(part);
    return 0;
}

/* ---- HTTP ---- */

struct bus_metrics {
    struct bus_server *server;
    int listener, wake;
    pthread_t thread;
};

/* Waits for the events, or for the end. False: the time is over, or the thread has to end. */
static bool await(const struct bus_metrics *m, int fd, short events, int64_t until)
{
    struct pollfd p[2] = {{.fd = fd, .events = events}, {.fd = m->wake, .events = POLLIN}};
    for (;;) {
        int n = poll(p, 2, until == INT64_MAX ? -1 : deadline_left_ms(until));
        if (n < 0 && errno == EINTR)
            continue;
        return n > 0 && !p[1].revents;
    }
}

static void send_all(const struct bus_metrics *m, int fd, const char *text, size_t n, int64_t until)
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
static bool read_head(const struct bus_metrics *m, int fd, char *head, int64_t until)
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

static void answer(const struct bus_metrics *m, int fd)
{
    char request[REQUEST_MAX + 1], text[BUS_METRICS_TEXT], head[256];
    int64_t until = deadline_now() + CLIENT_NS;
    const char *state = "200 OK", *type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    if (!read_head(m, fd, request, until))
        return;
    size_t n;
    if (!strncmp(request, "GET /metrics ", 13) || !strncmp(request, "GET /metrics?", 13)) {
        n = ask(m->server, text);
    } else {
        bool gets = !strncmp(request, "GET ", 4);
        state = gets ? "404 Not Found" : "405 Method Not Allowed";
        type = "text/plain; charset=utf-8";
        n = (size_t)snprintf(text, sizeof text, "%s\n", gets ? "only /metrics is here" : "only GET is answered");
    }
    int length =
        snprintf(head, sizeof head,
                 "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n", state, type, n);
    send_all(m, fd, head, (size_t)length, until);
    send_all(m, fd, text, n, until);
    shutdown(fd, SHUT_WR);
}

static void *serve(void *arg)
{
    struct bus_metrics *m = arg;
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

int bus_metrics_start(struct bus_server *s, int port, int *bound, struct bus_metrics **out)
{
    struct bus_metrics *m = calloc(1, sizeof *m);
    sigset_t all, before;
    if (!m)
        return error_nomem();
    m->server = s;
    m->wake = -1;
    m->listener = listen_at(port, bound);
    int why = m->listener < 0 || (m->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0 ? errno : 0;
    if (!why) {
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        why = pthread_create(&m->thread, NULL, serve, m);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
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

void bus_metrics_stop(struct bus_metrics *m)
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
