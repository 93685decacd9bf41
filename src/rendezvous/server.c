/* The server's loop: one thread, one epoll. A connection that misbehaves harms only itself.
 *
 * A stranger, a connection that has not proved yet that it has the token, may send 72 bytes, within 5 s. There are at
 * most 256 strangers. When there are more, the oldest is closed once it has had a quarter of a second; until then
 * newcomers wait in the system's queue. So a flood of n connections delays ranks that connect during it by n / 256
 * quarters of a second, and does not touch connections that have proved themselves. A rank whose connection is closed
 * tries again (store_tcp.c).
 *
 * After the proof a client sends one request at a time. The server reads nothing from it while it waits for a reply or
 * has not read its reply. So the server holds at most one message each way for a connection. */
#define _GNU_SOURCE
#include "rendezvous/server.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/forks.h"
#include "base/math.h"
#include "rendezvous/connection.h"
#include "rendezvous/deadline.h"

#define EVENTS 64
#define REST_NS INT64_C(50000000) /* before the next try, when the system is out of sockets */

struct server_socket {
    struct connection connection;
    struct server_socket *next, *previous; /* in the order in which they were accepted */
    int fd;
    uint32_t events; /* events that epoll watches for */
    bool over;
};

struct server {
    const struct sodium *sodium;
    unsigned char key[SODIUM_KEY];
    struct server_state state;
    int epoll, wake, listener;
    bool listens;      /* epoll watches the listener */
    int64_t listen_at; /* accept no connection before this time */
    int strangers;
    struct server_socket *first, *last;
    pthread_t thread;
    _Atomic bool stopping; /* stop_at is written before it */
    int64_t stop_at;
};

int server_check_token(const char *token, const char *url)
{
    size_t n = token ? strlen(token) : 0;
    if (!n)
        return error_set(
            WEFT_EINVAL,
            "%s: a tcp: store needs a token that all ranks have; make one by 'head -c 32 /dev/urandom | base64 > "
            "FILE; chmod 600 FILE' and set WEFT_TOKEN_FILE=FILE (or WEFT_TOKEN) for all of them",
            url);
    if (n < SERVER_TOKEN_MIN || n > SERVER_TOKEN_MAX)
        return error_set(WEFT_EINVAL, "%s: the token has %zu letters; it should have %d to %d, at random", url, n,
                         SERVER_TOKEN_MIN, SERVER_TOKEN_MAX);
    return 0;
}

/* ---- connections ---- */

/* A child that was forked meanwhile also has the socket, until it executes a program. So close alone would not end the
 * connection; shutdown does. */
static void drop(struct server *s, struct server_socket *c)
{
    epoll_ctl(s->epoll, EPOLL_CTL_DEL, c->fd, NULL);
    shutdown(c->fd, SHUT_RDWR);
    s->strangers -= !connection_known(&c->connection);
    *(c->previous ? &c->previous->next : &s->first) = c->next;
    *(c->next ? &c->next->previous : &s->last) = c->previous;
    forks_close(c->fd);
    connection_end(&c->connection, &s->state);
    free(c);
}

/* Sends as much as the socket takes now; the rest is sent later. */
static void flush(struct server_socket *c, int64_t now)
{
    struct connection *x = &c->connection;
    while (x->out_at < x->out_end) {
        ssize_t n = send(c->fd, x->out + x->out_at, x->out_end - x->out_at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            c->over |= errno != EAGAIN && errno != EWOULDBLOCK;
            if (!x->since)
                x->since = now;
            return;
        }
        x->out_at += (size_t)n;
    }
    if (connection_known(x) && !x->have)
        x->since = 0;
}

static void ask_epoll(struct server *s, struct server_socket *c)
{
    unsigned char *at;
    uint32_t events = EPOLLRDHUP;
    events |= connection_room(&c->connection, &at) ? EPOLLIN : 0;
    events |= c->connection.out_at < c->connection.out_end ? EPOLLOUT : 0;
    if (events == c->events)
        return;
    struct epoll_event e = {.events = events, .data.ptr = c};
    c->over |= epoll_ctl(s->epoll, EPOLL_CTL_MOD, c->fd, &e) != 0;
    c->events = events;
}

static void hear(struct server *s, struct server_socket *c, int64_t now)
{
    unsigned char *at;
    for (size_t room; !c->over && (room = connection_room(&c->connection, &at)) > 0;) {
        ssize_t n = recv(c->fd, at, room, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        bool known = connection_known(&c->connection);
        c->over = n <= 0 || !connection_take(&c->connection, (size_t)n, &s->state, s->sodium, s->key, now);
        s->strangers -= !known && connection_known(&c->connection);
        flush(c, now);
        if (connection_known(&c->connection) && c->connection.stage == CONNECTION_LENGTH && !c->connection.have)
            return; /* one request a turn, so that other connections get theirs */
    }
}

static void attend(struct server *s, struct server_socket *c, uint32_t events, int64_t now)
{
    if (events & EPOLLOUT)
        flush(c, now);
    if (events & EPOLLIN)
        hear(s, c, now);
    c->over |= (events & (EPOLLERR | EPOLLHUP)) || ((events & EPOLLRDHUP) && !(events & EPOLLIN));
}

/* ---- newcomers ---- */

static struct server_socket *oldest_stranger(const struct server *s)
{
    struct server_socket *c = s->first;
    while (c && connection_known(&c->connection))
        c = c->next;
    return c;
}

/* Is there room for one more connection? It may take the place of a stranger that has had its time. If there is none,
 * listen_at says when to try again. */
static bool make_room(struct server *s, int64_t now, bool full)
{
    if (!full && s->strangers < SERVER_STRANGERS)
        return true;
    struct server_socket *c = oldest_stranger(s);
    if (c && now - c->connection.since >= SERVER_STAY_NS) {
        drop(s, c);
        return true;
    }
    s->listen_at = c ? c->connection.since + SERVER_STAY_NS : now + REST_NS;
    return false;
}

static void admit(struct server *s, int fd, int64_t now)
{
    int one = 1;
    struct server_socket *c = calloc(1, sizeof *c);
    struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = c};
    if (!c || epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &e)) {
        free(c);
        forks_close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    connection_begin(&c->connection, now);
    c->fd = fd;
    c->events = e.events;
    c->previous = s->last;
    *(s->last ? &s->last->next : &s->first) = c;
    s->last = c;
    s->strangers++;
}

static void welcome(struct server *s, int64_t now)
{
    for (int i = 0; i < EVENTS && make_room(s, now, false); i++) {
        int fd = forks_own(accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (fd >= 0)
            admit(s, fd, now);
        else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            if (!make_room(s, now, true))
                return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return;
        }
    }
}

static void listen_or_not(struct server *s, int64_t now)
{
    bool want = s->listener >= 0 && now >= s->listen_at;
    if (s->listener < 0 || want == s->listens)
        return;
    struct epoll_event e = {.events = want ? EPOLLIN : 0, .data.ptr = &s->listener};
    epoll_ctl(s->epoll, EPOLL_CTL_MOD, s->listener, &e);
    s->listens = want;
}

/* ---- the loop ---- */

/* Drops connections that are over or too slow. Returns when to call it again. */
static int64_t tidy(struct server *s, int64_t now, bool stopping)
{
    int64_t next = server_state_expire(&s->state, now);
    for (struct server_socket *c = s->first, *after; c; c = after) {
        struct connection *x = &c->connection;
        int64_t limit = x->since ? x->since + (connection_known(x) ? SERVER_FRAME_NS : SERVER_PROVE_NS) : INT64_MAX;
        after = c->next;
        if (x->out_at < x->out_end && !c->over)
            flush(c, now);
        if (c->over || x->broken || now >= limit ||
            (stopping && (!x->client.session || server_state_joining(&x->client)))) {
            drop(s, c);
            continue;
        }
        ask_epoll(s, c);
        next = min64(next, limit);
    }
    listen_or_not(s, now);
    return s->listener >= 0 && now < s->listen_at ? min64(next, s->listen_at) : next;
}

static void close_listener(struct server *s)
{
    if (s->listener < 0)
        return;
    epoll_ctl(s->epoll, EPOLL_CTL_DEL, s->listener, NULL);
    shutdown(s->listener, SHUT_RDWR);
    forks_close(s->listener);
    s->listener = -1;
}

static void *serve(void *arg)
{
    struct server *s = arg;
    struct epoll_event events[EVENTS];
    for (;;) {
        /* Acquire: pairs with server_stop's release, so that stop_at is seen, too. */
        bool stopping = atomic_load_explicit(&s->stopping, memory_order_acquire);
        int64_t now = deadline_now();
        if (stopping)
            close_listener(s);
        int64_t next = tidy(s, now, stopping);
        if (stopping && (!s->first || now >= s->stop_at))
            return NULL;
        if (stopping)
            next = min64(next, s->stop_at);
        int n = epoll_wait(s->epoll, events, EVENTS, next == INT64_MAX ? -1 : deadline_left_ms(next));
        now = deadline_now();
        bool newcomers = false;
        for (int i = 0; i < n; i++) {
            uint64_t count;
            if (events[i].data.ptr == &s->listener)
                newcomers = true; /* handled last: it may drop other connections */
            else if (events[i].data.ptr == &s->wake)
                (void)!read(s->wake, &count, sizeof count);
            else
                attend(s, events[i].data.ptr, events[i].events, now);
        }
        if (newcomers && s->listener >= 0)
            welcome(s, now);
    }
}

/* ---- starting and stopping ---- */

static void server_free(struct server *s)
{
    while (s->first)
        drop(s, s->first);
    close_listener(s);
    if (s->wake >= 0)
        close(s->wake);
    if (s->epoll >= 0)
        close(s->epoll);
    s->sodium->wipe(s->key, sizeof s->key);
    free(s);
}

/* The thread blocks all signals: the program's threads handle them. */
static int start_thread(struct server *s)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int err = pthread_create(&s->thread, NULL, serve, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return err;
}

int server_start(int listener, const char *token, int served_by, struct server **out)
{
    const struct sodium *na = sodium_find();
    struct server *s = na ? calloc(1, sizeof *s) : NULL;
    if (!s) {
        forks_close(listener);
        return na ? error_nomem() : WEFT_EUNSUPPORTED;
    }
    s->sodium = na;
    s->listener = listener;
    s->listens = true;
    s->state = (struct server_state){.served_by = served_by, .answer = connection_answer};
    frame_token_key(na, token, s->key);
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = &s->listener}, w = {.events = EPOLLIN, .data.ptr = &s->wake};
    int err = 0;
    if (s->epoll < 0 || s->wake < 0 || epoll_ctl(s->epoll, EPOLL_CTL_ADD, listener, &e) ||
        epoll_ctl(s->epoll, EPOLL_CTL_ADD, s->wake, &w))
        err = errno;
    if (!err)
        err = start_thread(s);
    if (err) {
        server_free(s);
        return error_set(WEFT_ETRANSPORT, "a tcp: store cannot be served: %s", strerror(err));
    }
    *out = s;
    return 0;
}

void server_stop(struct server *s, int64_t until)
{
    uint64_t one = 1;
    s->stop_at = until;
    atomic_store_explicit(&s->stopping, true, memory_order_release);
    (void)!write(s->wake, &one, sizeof one);
    pthread_join(s->thread, NULL);
    server_free(s);
}
