/* The server's loop: one thread, one epoll. A connection that misbehaves harms only itself.
 *
 * A stranger, a connection that has not proved yet that it has the token, may send 73 bytes, within 5 s. There are at
 * most 256 strangers. When there are more, the oldest is closed once it has had a quarter of a second; until then
 * newcomers wait in the system's queue. So a flood of n connections delays ranks that connect during it by n / 256
 * quarters of a second, and does not touch connections that have proved themselves. A rank whose connection is closed
 * tries again (store_tcp.c).
 *
 * After the proof a client sends one request at a time. The server reads nothing from it while it waits for a reply or
 * has not read its reply. So the server holds at most one message each way for a connection.
 *
 * A turn of the loop looks at the connections that something has happened to, and at no others. These are in the list
 * `touched`: they have sent or taken bytes, or the state has answered them. All connections are in one of three lists,
 * which are in the order of time, so that those whose time is over stand at the front. */
#define _GNU_SOURCE
#include "rendezvous/server.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/forks.h"
#include "base/math.h"
#include "base/open_files.h"
#include "base/thread.h"
#include "rendezvous/connection.h"
#include "rendezvous/deadline.h"

#define EVENTS 64
#define REST_NS INT64_C(50000000)     /* before the next try, when the system is out of sockets */
#define OUT_MOST ((size_t)64 << 20)   /* bytes not sent yet, beyond which large replies have to wait */
#define SPARE_FILES 64                /* that this process may need beside connections */
#define OTHERS_NS INT64_C(1000000000) /* for which a count of them will do */

struct server_socket {
    struct connection connection;
    struct list node; /* in one of the server's three lists */
    struct list touched;
    int64_t since; /* connection.since when it was put into that list */
    int fd;
    uint32_t events; /* events that epoll watches for */
    size_t out;      /* bytes not sent yet, as counted in server.out */
    bool over;
};

struct server {
    const struct sodium *sodium;
    struct connection_keys keys;
    struct server_state state;
    int epoll, wake, listener;
    int reserve;       /* a file that is given up to tell a newcomer that no file is left for it; -1: none */
    bool listens;      /* epoll watches the listener */
    int64_t listen_at; /* accept no connection before this time */
    int nstrangers;
    struct list strangers; /* in the order in which they were accepted */
    struct list busy;      /* with a message under way, in the order in which it began */
    struct list idle;
    struct list touched;
    size_t connections, out;
    size_t files;  /* open_files_limit() */
    size_t others; /* files of this process that are no connections, as counted at others_at */
    int64_t others_at;
    pthread_t thread;
    _Atomic bool stopping; /* stop_at is written before it */
    int64_t stop_at;
    /* Written by the server's thread; relaxed, since they are counts. */
    _Atomic uint64_t requests, steps, sent, received, open;
    _Atomic uint64_t turns; /* after the counts, with release */
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

void server_counts(struct server *s, struct server_counts *out)
{
    clockid_t clock;
    struct timespec t = {.tv_sec = 0};
    /* The turn that is under way may have begun before this call; the one after it has not. Acquire: pairs with the
     * release in publish_counts. */
    uint64_t seen = atomic_load_explicit(&s->turns, memory_order_acquire), one = 1;
    while (atomic_load_explicit(&s->turns, memory_order_acquire) < seen + 2) {
        (void)!write(s->wake, &one, sizeof one);
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
    if (!pthread_getcpuclockid(s->thread, &clock))
        clock_gettime(clock, &t);
    *out = (struct server_counts){.requests = atomic_load_explicit(&s->requests, memory_order_relaxed),
                                  .steps = atomic_load_explicit(&s->steps, memory_order_relaxed),
                                  .sent = atomic_load_explicit(&s->sent, memory_order_relaxed),
                                  .received = atomic_load_explicit(&s->received, memory_order_relaxed),
                                  .connections = atomic_load_explicit(&s->open, memory_order_relaxed),
                                  .cpu_ns = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec};
}

static void count(_Atomic uint64_t *what, uint64_t n)
{
    atomic_fetch_add_explicit(what, n, memory_order_relaxed);
}

/* ---- connections ---- */

static void touch(struct server *s, struct server_socket *c)
{
    if (!list_has(&c->touched))
        list_append(&s->touched, &c->touched);
}

/* server_state.answer */
static void answer(struct server_state *d, struct server_client *client, const struct frame_reply *r)
{
    connection_answer(d, client, r);
    touch(LIST_OF(d, struct server, state), LIST_OF(client, struct server_socket, connection.client));
}

/* A child that was forked meanwhile also has the socket, until it executes a program. So close alone would not end the
 * connection; shutdown does. */
static void drop(struct server *s, struct server_socket *c)
{
    epoll_ctl(s->epoll, EPOLL_CTL_DEL, c->fd, NULL);
    shutdown(c->fd, SHUT_RDWR);
    s->nstrangers -= !connection_known(&c->connection);
    s->out -= c->out;
    s->connections--;
    list_remove(&c->node);
    list_remove(&c->touched);
    forks_close(c->fd);
    connection_end(&c->connection, &s->state);
    free(c);
}

/* Sends as much as the socket takes now; the rest is sent later. */
static void flush(struct server *s, struct server_socket *c, int64_t now)
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
        count(&s->sent, (uint64_t)n);
        x->out_at += (size_t)n;
    }
    connection_sent(x);
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
        count(&s->received, n > 0 ? (uint64_t)n : 0);
        bool known = connection_known(&c->connection);
        c->over = n <= 0 || !connection_take(&c->connection, (size_t)n, &s->state, s->sodium, &s->keys, now);
        s->nstrangers -= !known && connection_known(&c->connection);
        flush(s, c, now);
        if (connection_known(&c->connection) && c->connection.stage == CONNECTION_LENGTH && !c->connection.have)
            return; /* one request a turn, so that other connections get theirs */
    }
}

static void attend(struct server *s, struct server_socket *c, uint32_t events, int64_t now)
{
    if (events & EPOLLOUT)
        flush(s, c, now);
    if (events & EPOLLIN)
        hear(s, c, now);
    c->over |= (events & (EPOLLERR | EPOLLHUP)) || ((events & EPOLLRDHUP) && !(events & EPOLLIN));
    touch(s, c);
}

/* Puts a connection into the list in which its time is counted. */
static void file_away(struct server *s, struct server_socket *c)
{
    const struct connection *x = &c->connection;
    if (!connection_known(x) || (list_has(&c->node) && c->since == x->since))
        return;
    list_remove(&c->node);
    list_append(x->since ? &s->busy : &s->idle, &c->node);
    c->since = x->since;
}

/* Something has happened to the connection: sends, asks for events, or drops it. */
static void settle(struct server *s, struct server_socket *c, int64_t now)
{
    const struct connection *x = &c->connection;
    list_remove(&c->touched);
    count(&s->steps, 1);
    if (x->out_at < x->out_end && !c->over)
        flush(s, c, now);
    if (!c->over && !x->broken)
        ask_epoll(s, c);
    if (c->over || x->broken) {
        drop(s, c);
        return;
    }
    s->out += x->out_end - x->out_at - c->out;
    c->out = x->out_end - x->out_at;
    file_away(s, c);
}

/* Settles what the events and the state have touched. Large replies are made one by one, as they can be sent. */
static void settle_all(struct server *s, int64_t now)
{
    do {
        for (struct list *n; (n = list_first(&s->touched));)
            settle(s, LIST_OF(n, struct server_socket, touched), now);
    } while (s->out < OUT_MOST && server_state_next(&s->state));
}

/* ---- newcomers ---- */

/* Is there room for one more connection? It may take the place of a stranger that has had its time. If there is none,
 * listen_at says when to try again. */
static bool make_room(struct server *s, int64_t now, bool full)
{
    if (!full && s->nstrangers < SERVER_STRANGERS)
        return true;
    struct list *n = list_first(&s->strangers);
    struct server_socket *c = n ? LIST_OF(n, struct server_socket, node) : NULL;
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
    c->since = now;
    list_append(&s->strangers, &c->node);
    s->nstrangers++;
    s->connections++;
}

static void keep_reserve(struct server *s)
{
    if (s->reserve < 0)
        s->reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* There is no file for a newcomer: it is accepted with the one in reserve, told so, and closed. False: that cannot be
 * done. */
static bool turn_away(struct server *s, int64_t now)
{
    unsigned char full[FRAME_HELLO] = FRAME_FULL, first[FRAME_HELLO];
    uint64_t files = s->files;
    if (s->reserve < 0)
        return false;
    close(s->reserve);
    s->reserve = -1;
    int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    memcpy(full + FRAME_MAGIC_SIZE, &files, sizeof files);
    if (fd >= 0) {
        (void)!send(fd, full, sizeof full, MSG_NOSIGNAL | MSG_DONTWAIT);
        shutdown(fd, SHUT_WR);
        (void)!recv(fd, first, sizeof first, MSG_DONTWAIT);
        close(fd);
        s->state.files = s->files;
        s->state.files_at = now;
    }
    keep_reserve(s);
    return fd >= 0;
}

/* Tries to get more files. */
static bool more_files(struct server *s)
{
    size_t before = s->files;
    if (before <= SIZE_MAX / 2)
        open_files_allow(2 * before);
    s->files = open_files_limit();
    return s->files > before;
}

static void welcome(struct server *s, int64_t now)
{
    for (int i = 0; i < EVENTS && make_room(s, now, false); i++) {
        int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), why = fd < 0 ? errno : 0;
        if (!why)
            admit(s, forks_own(fd), now);
        else if (why == EMFILE || why == ENFILE || why == ENOBUFS || why == ENOMEM) {
            if (!(why == EMFILE && more_files(s)) && !make_room(s, now, true) && !turn_away(s, now))
                return;
            s->listen_at = 0;
        } else if (why != EINTR && why != ECONNABORTED) {
            return;
        }
    }
}

/* server_state.room: one connection for each rank. Connections that have joined no store may be some of them. */
static bool room(struct server_state *d, int size, char *text, size_t cap)
{
    struct server *s = LIST_OF(d, struct server, state);
    size_t free_ones = s->connections - d->clients;
    size_t need = d->clients + ((size_t)size > free_ones ? (size_t)size : free_ones);
    if (2 * (need + SPARE_FILES) <= s->files)
        return true;
    if (!s->others_at || deadline_now() - s->others_at > OTHERS_NS) {
        size_t all = open_files_count();
        s->others = all > s->connections ? all - s->connections : 0;
        s->others_at = deadline_now();
    }
    need += s->others;
    bool fine = open_files_allow(need + SPARE_FILES) || open_files_allow(need);
    s->files = open_files_limit();
    if (fine)
        return true;
    d->files = s->files;
    d->files_at = deadline_now();
    snprintf(text, cap,
             "the process that serves the store may have %zu files open, and needs %zu for %d ranks: raise the "
             "limit (ulimit -n)",
             s->files, need, size);
    return false;
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

/* Drops the connections of a list that are too slow. Returns when the next one will be. */
static int64_t drop_slow(struct server *s, const struct list *list, int64_t limit_ns, int64_t now)
{
    for (struct list *n; (n = list_first(list));) {
        struct server_socket *c = LIST_OF(n, struct server_socket, node);
        if (now < c->since + limit_ns)
            return c->since + limit_ns;
        drop(s, c);
    }
    return INT64_MAX;
}

/* Ends waits and connections whose time is over. Returns when to call it again. */
static int64_t expire(struct server *s, int64_t now)
{
    int64_t next = server_state_expire(&s->state, now);
    next = min64(next, drop_slow(s, &s->strangers, SERVER_PROVE_NS, now));
    next = min64(next, drop_slow(s, &s->busy, SERVER_FRAME_NS, now));
    settle_all(s, now);
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

static void drop_list(struct server *s, const struct list *list, bool all)
{
    for (struct list *n = list_first(list), *next; n; n = next) {
        struct server_socket *c = LIST_OF(n, struct server_socket, node);
        const struct server_client *client = &c->connection.client;
        next = list_after(list, n);
        if (all || !client->session || server_state_joining(client))
            drop(s, c);
    }
}

/* Accepts no connections from here on, and drops those that are not in a store that all ranks have opened. No other
 * connection gets into one later, so this is done once. */
static void wind_up(struct server *s)
{
    if (s->listener < 0)
        return;
    close_listener(s);
    drop_list(s, &s->strangers, true);
    drop_list(s, &s->busy, false);
    drop_list(s, &s->idle, false);
}

static void publish_counts(struct server *s)
{
    atomic_store_explicit(&s->requests, s->state.requests, memory_order_relaxed);
    atomic_store_explicit(&s->open, s->connections, memory_order_relaxed);
    count(&s->steps, server_state_steps(&s->state));
    s->state.steps = s->state.forming.steps = s->state.wheel.steps = 0;
    atomic_fetch_add_explicit(&s->turns, 1, memory_order_release);
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
            wind_up(s);
        int64_t next = expire(s, now);
        publish_counts(s);
        if (stopping && (!s->connections || now >= s->stop_at))
            return NULL;
        if (stopping)
            next = min64(next, s->stop_at);
        int n = epoll_wait(s->epoll, events, EVENTS, next == INT64_MAX ? -1 : deadline_left_ms(next));
        now = deadline_now();
        bool newcomers = false;
        for (int i = 0; i < n; i++) {
            uint64_t wakes;
            if (events[i].data.ptr == &s->listener)
                newcomers = true; /* handled last: it may drop other connections */
            else if (events[i].data.ptr == &s->wake)
                (void)!read(s->wake, &wakes, sizeof wakes);
            else
                attend(s, events[i].data.ptr, events[i].events, now);
        }
        settle_all(s, now);
        if (newcomers && s->listener >= 0)
            welcome(s, now);
    }
}

/* ---- starting and stopping ---- */

static void server_free(struct server *s)
{
    drop_list(s, &s->strangers, true);
    drop_list(s, &s->busy, true);
    drop_list(s, &s->idle, true);
    server_state_end(&s->state);
    close_listener(s);
    if (s->reserve >= 0)
        close(s->reserve);
    if (s->wake >= 0)
        close(s->wake);
    if (s->epoll >= 0)
        close(s->epoll);
    s->sodium->wipe(&s->keys, sizeof s->keys);
    free(s);
}

static int start(int listener, const struct server_token *tokens, int ntokens, int served_by,
                 struct server_service *service, struct server **out)
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
    list_begin(&s->strangers);
    list_begin(&s->busy);
    list_begin(&s->idle);
    list_begin(&s->touched);
    s->reserve = -1;
    keep_reserve(s);
    s->files = open_files_limit();
    s->state.served_by = served_by;
    s->state.answer = answer;
    s->state.room = room;
    na->random(&s->state.forming.seed, sizeof s->state.forming.seed);
    s->keys.n = ntokens;
    for (int i = 0; i < ntokens; i++) {
        frame_token_key(na, tokens[i].token, s->keys.of[i].key);
        s->keys.of[i].rights = tokens[i].rights;
    }
    s->state.service = service;
    if (service)
        service->state = &s->state;
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = &s->listener}, w = {.events = EPOLLIN, .data.ptr = &s->wake};
    int err = 0;
    if (s->epoll < 0 || s->wake < 0 || epoll_ctl(s->epoll, EPOLL_CTL_ADD, listener, &e) ||
        epoll_ctl(s->epoll, EPOLL_CTL_ADD, s->wake, &w))
        err = errno;
    if (!err)
        err = thread_start(&s->thread, serve, s);
    if (err) {
        server_free(s);
        return error_set(WEFT_ETRANSPORT, "a tcp: store cannot be served: %s", strerror(err));
    }
    *out = s;
    return 0;
}

int server_start(int listener, const char *token, int served_by, struct server **out)
{
    return start(listener, &(struct server_token){.token = token}, 1, served_by, NULL, out);
}

int server_start_service(int listener, const struct server_token *tokens, int ntokens, struct server_service *service,
                         struct server **out)
{
    return start(listener, tokens, ntokens, -1, service, out);
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
