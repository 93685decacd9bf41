/* The server's loop: one thread, one epoll. Whatever a connection does costs that connection only.
 *
 * A connection that has not proved itself may send 72 bytes, within 5 s. There are 256 such at most; beyond that the
 * oldest goes when it has had a quarter of a second, and until then the others wait in the system's queue. So a flood
 * delays ranks that come with it, by its number over 256 in quarters of a second, and hurts nobody who is inside. A
 * rank whose connection has to go tries again (tcp.c).
 *
 * A connection that has proved itself sends one request at a time: while it waits for a reply, or does not read it,
 * nothing is read from it, so that a connection holds one message each way at most. */
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
#include "rendezvous/guest.h"

#define EVENTS 64
#define REST_NS INT64_C(50000000) /* after the system had no more sockets to give */

struct connection {
    struct guest guest;
    struct connection *next, *previous; /* in the order in which they came */
    int fd;
    uint32_t events; /* that epoll was asked for */
    bool over;
};

struct server {
    const struct sodium *sodium;
    unsigned char key[SODIUM_KEY];
    struct desk desk;
    int epoll, wake, listener;
    bool listens;      /* epoll was asked for the listener */
    int64_t listen_at; /* not before */
    int strangers;
    struct connection *first, *last;
    pthread_t thread;
    _Atomic bool stopping; /* until stop_at, which is written before */
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

/* A child that was forked meanwhile has the socket, too, until it executes something: closing it would not do. */
static void drop(struct server *s, struct connection *c)
{
    epoll_ctl(s->epoll, EPOLL_CTL_DEL, c->fd, NULL);
    shutdown(c->fd, SHUT_RDWR);
    s->strangers -= !guest_known(&c->guest);
    *(c->previous ? &c->previous->next : &s->first) = c->next;
    *(c->next ? &c->next->previous : &s->last) = c->previous;
    forks_close(c->fd);
    guest_end(&c->guest, &s->desk);
    free(c);
}

/* As much as goes; what is left goes later. */
static void flush(struct connection *c, int64_t now)
{
    struct guest *g = &c->guest;
    while (g->out_at < g->out_end) {
        ssize_t n = send(c->fd, g->out + g->out_at, g->out_end - g->out_at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            c->over |= errno != EAGAIN && errno != EWOULDBLOCK;
            if (!g->since)
                g->since = now;
            return;
        }
        g->out_at += (size_t)n;
    }
    if (guest_known(g) && !g->have)
        g->since = 0;
}

static void ask_epoll(struct server *s, struct connection *c)
{
    unsigned char *at;
    uint32_t events = EPOLLRDHUP;
    events |= guest_room(&c->guest, &at) ? EPOLLIN : 0;
    events |= c->guest.out_at < c->guest.out_end ? EPOLLOUT : 0;
    if (events == c->events)
        return;
    struct epoll_event e = {.events = events, .data.ptr = c};
    c->over |= epoll_ctl(s->epoll, EPOLL_CTL_MOD, c->fd, &e) != 0;
    c->events = events;
}

static void hear(struct server *s, struct connection *c, int64_t now)
{
    unsigned char *at;
    for (size_t room; !c->over && (room = guest_room(&c->guest, &at)) > 0;) {
        ssize_t n = recv(c->fd, at, room, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        bool known = guest_known(&c->guest);
        c->over = n <= 0 || !guest_take(&c->guest, (size_t)n, &s->desk, s->sodium, s->key, now);
        s->strangers -= !known && guest_known(&c->guest);
        flush(c, now);
        if (guest_known(&c->guest) && c->guest.stage == GUEST_LENGTH && !c->guest.have)
            return; /* one request a turn: the others come, too */
    }
}

static void attend(struct server *s, struct connection *c, uint32_t events, int64_t now)
{
    if (events & EPOLLOUT)
        flush(c, now);
    if (events & EPOLLIN)
        hear(s, c, now);
    c->over |= (events & (EPOLLERR | EPOLLHUP)) || ((events & EPOLLRDHUP) && !(events & EPOLLIN));
}

/* ---- newcomers ---- */

static struct connection *oldest_stranger(const struct server *s)
{
    struct connection *c = s->first;
    while (c && guest_known(&c->guest))
        c = c->next;
    return c;
}

/* Is there room for one more, if need be that of one who has had its time? If not, when. */
static bool make_room(struct server *s, int64_t now, bool full)
{
    if (!full && s->strangers < SERVER_STRANGERS)
        return true;
    struct connection *c = oldest_stranger(s);
    if (c && now - c->guest.since >= SERVER_STAY_NS) {
        drop(s, c);
        return true;
    }
    s->listen_at = c ? c->guest.since + SERVER_STAY_NS : now + REST_NS;
    return false;
}

static void admit(struct server *s, int fd, int64_t now)
{
    int one = 1;
    struct connection *c = calloc(1, sizeof *c);
    struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = c};
    if (!c || epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &e)) {
        free(c);
        forks_close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    guest_begin(&c->guest, now);
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

/* Drops who is over or too slow; when to look again. */
static int64_t tidy(struct server *s, int64_t now, bool stopping)
{
    int64_t next = desk_expire(&s->desk, now);
    for (struct connection *c = s->first, *after; c; c = after) {
        struct guest *g = &c->guest;
        int64_t limit = g->since ? g->since + (guest_known(g) ? SERVER_FRAME_NS : SERVER_PROVE_NS) : INT64_MAX;
        after = c->next;
        if (g->out_at < g->out_end && !c->over)
            flush(c, now);
        if (c->over || g->broken || now >= limit || (stopping && (!g->at_desk.session || desk_joining(&g->at_desk)))) {
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
        /* Acquire: pairs with server_stop's release; stop_at is there then. */
        bool stopping = atomic_load_explicit(&s->stopping, memory_order_acquire);
        int64_t now = store_now();
        if (stopping)
            close_listener(s);
        int64_t next = tidy(s, now, stopping);
        if (stopping && (!s->first || now >= s->stop_at))
            return NULL;
        if (stopping)
            next = min64(next, s->stop_at);
        int n = epoll_wait(s->epoll, events, EVENTS, next == INT64_MAX ? -1 : store_left_ms(next));
        now = store_now();
        bool newcomers = false;
        for (int i = 0; i < n; i++) {
            uint64_t count;
            if (events[i].data.ptr == &s->listener)
                newcomers = true; /* last: it may drop others */
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

/* The thread takes no signals: they are the program's. */
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
    s->desk = (struct desk){.served_by = served_by, .answer = guest_answer};
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
