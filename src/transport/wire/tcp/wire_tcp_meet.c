/* How two ranks come to have one connection. The rank that uses a peer first is the caller. It calls the peer, address
 * by address. The peer answers, and the caller proves that it has got the answer (wire_tcp_proof.c). So both know which
 * rank is at the other end before anything else is sent. The caller may give up before the answer comes, and call
 * again. So the peer sends nothing on a connection before the proof has come, and if the connection ends before that,
 * nothing is lost with it. When two ranks call each other at the same time, the call of the lower rank counts: the
 * higher rank takes that connection and gives up its own call, and the lower rank keeps the other connection in reserve
 * until its own call has succeeded.
 *
 * Strangers are connections that send another call, or none, or a part of one. Each costs a file until it is closed.
 * It is closed at once if the call is wrong, otherwise after a minute. The oldest ones are closed earlier if there are
 * more newcomers than this group could have, or if no files are left. If no file is left at all, callers wait in the
 * kernel's queue, and the listeners are looked at again after a while. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/forks.h"
#include "base/open_files.h"
#include "transport/wire/tcp/wire_tcp.h"
#include "transport/wire/wire_keepalive.h"
#include "weft.h"

#define BACKLOG 4096 /* the system has a limit of its own */
#define ACCEPTS 64   /* at a time */
#define SECOND INT64_C(1000000000)
#define ANSWER_NS (10 * SECOND) /* to wait for an answer, if there are other addresses; a process may be busy */
#define BUSY_NS (60 * SECOND)   /* to wait for a connection inside this machine */
#define NEWCOMER_NS (60 * SECOND)
#define ROUNDS 3           /* how often all addresses are tried, if a process answered at one of them */
#define LAST_MOST TCP_TURN /* bytes of last frames */
#define NEWCOMERS(size) (2 * (size) + 64)

static void tune(const struct tcp_wire *w, int fd)
{
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (w->buffer) {
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &w->buffer, sizeof w->buffer);
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &w->buffer, sizeof w->buffer);
    }
}

/* A new connection takes these few bytes at once. */
static bool send_all(int fd, const void *bytes, size_t n)
{
    return send(fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)n;
}

/* Returns 1 when all n bytes have come, 0 if not yet, -1 if they never will. */
static int read_all(int fd, void *bytes, size_t n, size_t *got)
{
    if (*got == n)
        return 1;
    ssize_t some = recv(fd, (unsigned char *)bytes + *got, n - *got, MSG_DONTWAIT);
    if (some < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (some <= 0)
        return -1;
    *got += (size_t)some;
    return *got == n;
}

/* A caller that gets no answer for a long time hangs up and calls again. Before it is answered it sends nothing after
 * its call, unless it leaves. So if it does not leave, the only thing that can be read is the end of the
 * connection. */
static bool has_hung_up(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

/* The connection in reserve is not needed any more. */
void tcp_meet_open(struct tcp_wire *w, struct tcp_peer *p)
{
    if (p->reserve >= 0)
        tcp_link_end(p->reserve);
    p->reserve = -1;
    p->unsure = false;
    p->link = TCP_OPEN;
    tcp_out_push(w, p);
}

static void forget_proof(struct tcp_peer *p)
{
    free(p->words);
    p->words = NULL;
    p->proof_got = p->words_got = 0;
}

/* The 16 bytes of an address as IPv6 has them. */
static void widen(const struct sockaddr_storage *at, unsigned char out[16])
{
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    memcpy(out, mapped, sizeof mapped);
    if (at->ss_family == AF_INET6)
        memcpy(out, &((const struct sockaddr_in6 *)at)->sin6_addr, 16);
    else
        memcpy(out + 12, &((const struct sockaddr_in *)at)->sin_addr, 4);
}

/* Which of the peer's addresses is at the other end of the connection that it made? It is the one to be asked at. */
static void note_address(const struct tcp_wire *w, struct tcp_peer *p, int fd)
{
    struct sockaddr_storage there = {0}, at;
    unsigned char is[16], one[16];
    socklen_t n = sizeof there;
    p->address = 0;
    if (getpeername(fd, (struct sockaddr *)&there, &n))
        return;
    widen(&there, is);
    for (int i = 0; tcp_card_address(&w->cards[w->base.rank], &w->cards[p->rank], i, &at, &n); i++) {
        widen(&at, one);
        if (!memcmp(is, one, sizeof is))
            p->address = i + 1;
    }
}

/* Answers a call of the peer and takes the connection. known: epoll watches it already. False: the connection is of no
 * use. */
static bool adopt(struct tcp_wire *w, struct tcp_peer *p, int fd, const struct tcp_call *call, bool known)
{
    struct tcp_answer answer;
    p->taken = *call;
    if (!tcp_proof_answer(w, p, &answer) || !send_all(fd, &answer, sizeof answer) ||
        !tcp_link_watch(w, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, EPOLLIN, p))
        return false;
    tcp_link_hang_up(w, p);
    forget_proof(p);
    note_address(w, p, fd);
    p->fd = fd;
    p->link = TCP_OPEN;
    p->unsure = true;
    return true;
}

/* Takes the connection in reserve. False: there is none, or it is of no use. */
static bool adopt_reserve(struct tcp_wire *w, struct tcp_peer *p)
{
    int fd = p->reserve;
    p->reserve = -1;
    if (fd >= 0 && !has_hung_up(fd) && adopt(w, p, fd, &p->reserve_call, false))
        return true;
    if (fd >= 0)
        tcp_link_end(fd);
    return false;
}

/* ---- calling ---- */

/* A call has failed. If all addresses refuse, no process listens there; otherwise it is not known. */
static void failed(struct tcp_peer *p, int why)
{
    p->why = why;
    p->unclear |= why != ECONNREFUSED;
}

/* This process has no file left. False: it may not have more. */
static bool more_files(void)
{
    size_t before = open_files_limit();
    if (before <= SIZE_MAX / 2)
        open_files_allow(2 * before);
    return open_files_limit() > before;
}

/* Begins to connect to an address. False: it cannot be used. */
static bool dial(struct tcp_wire *w, struct tcp_peer *p, const struct sockaddr_storage *to, socklen_t n)
{
    int fd = socket(to->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 && errno == EMFILE && more_files())
        fd = socket(to->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 && errno == EMFILE)
        w->base.files = open_files_limit(); /* the comm fails with a text that says so */
    p->fd = forks_own(fd);
    if (fd >= 0) {
        tune(w, fd);
        if (!connect(fd, (const struct sockaddr *)to, n) || errno == EINPROGRESS) {
            p->since = core_now();
            p->answer_got = 0;
            if (tcp_link_watch(w, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLOUT, p))
                return true;
        }
    }
    failed(p, errno);
    tcp_link_hang_up(w, p);
    return false;
}

/* Looks at the callers that wait in the kernel's queue, and at newcomers. */
static void hear_newcomers(struct tcp_wire *w)
{
    for (int i = 0; i < BACKLOG / ACCEPTS && tcp_meet_accept(w); i++)
        ;
    for (struct tcp_newcomer *g = w->newcomers; g; g = g->next)
        tcp_meet_newcomer(w, g);
}

/* Tries the next address. After the last one it takes a connection that the peer made, or begins with the first address
 * again. A peer that has left may have called before it left, and its last words may wait here. */
static void call_next(struct tcp_wire *w, struct tcp_peer *p)
{
    struct sockaddr_storage to;
    socklen_t n;
    tcp_link_hang_up(w, p);
    p->link = TCP_CALLING;
    for (;;) {
        if (!tcp_card_address(&w->cards[w->base.rank], &w->cards[p->rank], p->address, &to, &n)) {
            hear_newcomers(w);
            if (p->link == TCP_OPEN || adopt_reserve(w, p))
                return;
            if (!p->turned_away || ++p->rounds >= ROUNDS) {
                tcp_link_lost(w, p, p->unclear || !p->why ? TRANSPORT_LOST : TRANSPORT_DIED,
                              p->why ? p->why : EADDRNOTAVAIL);
                return;
            }
            p->address = 0;
            p->turned_away = p->unclear = false;
            continue;
        }
        p->address++;
        if (dial(w, p, &to, n))
            return;
    }
}

int tcp_meet_use(struct tcp_wire *w, int peer)
{
    if (peer < 0 || peer >= w->base.size)
        return w->base.error(WEFT_EINVAL, "there is no rank %d among %d", peer, w->base.size);
    if (peer == w->base.rank)
        return w->base.error(WEFT_EINVAL, "tcp: rank %d sends nothing to itself", peer);
    struct tcp_peer *p = tcp_peer(w, peer);
    if (!p)
        return w->base.error(WEFT_ENOMEM, "out of memory");
    if (p->fate != TRANSPORT_HERE)
        return tcp_link_error(w, peer);
    if (p->link == TCP_UNUSED) {
        p->next_used = w->used;
        w->used = p;
        call_next(w, p);
    }
    return 0;
}

void tcp_meet_call_back(struct tcp_wire *w, struct tcp_peer *p)
{
    tcp_link_hang_up(w, p);
    p->unsure = p->turned_away = p->unclear = false;
    p->address = p->rounds = 0;
    if (!adopt_reserve(w, p))
        call_next(w, p);
}

static void turned_away(struct tcp_wire *w, struct tcp_peer *p, int why)
{
    p->turned_away = p->unclear = true;
    p->why = why;
    call_next(w, p);
}

void tcp_meet_event(struct tcp_wire *w, struct tcp_peer *p)
{
    if (p->link == TCP_CALLING) {
        struct sockaddr_storage at;
        int why = 0;
        socklen_t n = sizeof why, m = sizeof at;
        if (getsockopt(p->fd, SOL_SOCKET, SO_ERROR, &why, &n))
            why = errno;
        if (!why && getpeername(p->fd, (struct sockaddr *)&at, &m))
            return; /* not yet */
        if (why) {
            failed(p, why);
            call_next(w, p);
            return;
        }
        p->why = 0;
        p->link = TCP_ASKING;
        p->since = core_now();
        if (!tcp_proof_call(w, p) || !send_all(p->fd, &p->call, sizeof p->call) ||
            !tcp_link_watch(w, EPOLL_CTL_MOD, p->fd, EPOLLIN, p))
            turned_away(w, p, errno);
        return;
    }
    int whole = read_all(p->fd, &p->answer, sizeof p->answer, &p->answer_got);
    if (!whole)
        return;
    const struct tcp_proof proof = tcp_proof_make(w, p);
    if (whole < 0 || !tcp_proof_answered(w, p) || !send_all(p->fd, &proof, sizeof proof))
        turned_away(w, p, EPROTO);
    else
        tcp_meet_open(w, p);
}

/* ---- being called ---- */

/* Listens at an address, or returns a negative errno. */
static int listen_at(const struct tcp_wire *w, const struct sockaddr *at, socklen_t n)
{
    int off = at->sa_family == AF_INET6 && !memcmp(&((const struct sockaddr_in6 *)(const void *)at)->sin6_addr,
                                                   &in6addr_any, sizeof in6addr_any)
                  ? 0
                  : 1,
        fd = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (at->sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    tune(w, fd); /* accepted connections inherit it */
    if (!bind(fd, at, n) && !listen(fd, BACKLOG))
        return fd;
    int why = errno;
    close(fd);
    return -why;
}

/* Its port; 0: there is none. */
static uint16_t port_of(int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } at;
    socklen_t n = sizeof at;
    if (getsockname(fd, &at.any, &n))
        return 0;
    return ntohs(at.any.sa_family == AF_INET6 ? at.v6.sin6_port : at.v4.sin_port);
}

static bool keep_listener(struct tcp_wire *w, int fd)
{
    if (!tcp_link_watch(w, EPOLL_CTL_ADD, fd, EPOLLIN, &w->source)) {
        close(fd);
        return false;
    }
    w->listeners[w->nlisteners++] = forks_own(fd);
    return true;
}

/* One socket for all addresses of this machine. */
static int listen_anywhere(struct tcp_wire *w, struct tcp_card *card)
{
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    int fd = listen_at(w, (struct sockaddr *)&v6, sizeof v6);
    if (fd < 0) /* without IPv6 */
        fd = listen_at(w, (struct sockaddr *)&v4, sizeof v4);
    if (fd < 0)
        return -fd;
    uint16_t port = port_of(fd);
    for (uint32_t k = 0; k < card->n; k++)
        card->at[k].port = port;
    return keep_listener(w, fd) ? 0 : errno;
}

/* An address at which this process cannot listen is not told to peers. */
static int listen_at_each(struct tcp_wire *w, struct tcp_card *card)
{
    uint32_t n = 0;
    int why = EADDRNOTAVAIL;
    for (uint32_t k = 0; k < card->n; k++) {
        struct tcp_address a = card->at[k];
        struct sockaddr_storage at;
        a.port = 0;
        int fd = listen_at(w, (struct sockaddr *)&at, tcp_card_sockaddr(&a, &at));
        if (fd < 0 || (a.port = port_of(fd), !keep_listener(w, fd))) {
            why = fd < 0 ? -fd : errno;
            continue;
        }
        card->at[n++] = a;
    }
    card->n = n;
    return n ? 0 : why;
}

int tcp_meet_listen(struct tcp_wire *w, const struct wire_boot *boot, struct tcp_card *card, bool any)
{
    int why = any ? listen_anywhere(w, card) : listen_at_each(w, card);
    return why ? boot->error(WEFT_ETRANSPORT, "tcp: no socket to listen on: %s", strerror(why)) : 0;
}

/* Forgets a newcomer. useless: its connection is closed; otherwise it has become a peer's. */
static void dismiss(struct tcp_wire *w, struct tcp_newcomer *g, bool useless)
{
    if (useless)
        tcp_link_shut(w, g->fd);
    g->fd = -1;
    w->nnewcomers--;
    w->gone_newcomers = true;
}

/* Newcomers that came last are first in the list. The call of the oldest one may have come meanwhile, so it is read
 * before the connection is closed. */
static void dismiss_oldest(struct tcp_wire *w)
{
    struct tcp_newcomer *oldest = NULL;
    for (struct tcp_newcomer *g = w->newcomers; g; g = g->next)
        if (g->fd >= 0)
            oldest = g;
    if (oldest)
        tcp_meet_newcomer(w, oldest);
    if (oldest && oldest->fd >= 0)
        dismiss(w, oldest, true);
}

static void listen_for(struct tcp_wire *w, bool on)
{
    w->deaf = !on;
    for (int i = 0; i < w->nlisteners; i++)
        tcp_link_watch(w, EPOLL_CTL_MOD, w->listeners[i], on ? EPOLLIN : 0, &w->source);
}

static bool accept_some(struct tcp_wire *w, int listener)
{
    for (int i = 0; i < ACCEPTS; i++) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && errno == EMFILE && more_files())
            continue;
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
            if (w->nnewcomers)
                dismiss_oldest(w); /* a caller that waits may be of this group */
            listen_for(w, false);
            return false;
        }
        if (fd < 0)
            return false;
        forks_own(fd);
        if (w->nnewcomers >= NEWCOMERS(w->base.size))
            dismiss_oldest(w);
        struct tcp_newcomer *g = malloc(sizeof *g);
        if (g)
            *g = (struct tcp_newcomer){.source = TCP_NEWCOMER, .next = w->newcomers, .fd = fd, .since = core_now()};
        if (!g || !tcp_link_watch(w, EPOLL_CTL_ADD, fd, EPOLLIN, g)) {
            free(g);
            forks_close(fd);
            return false;
        }
        w->newcomers = g;
        w->nnewcomers++;
    }
    return true;
}

bool tcp_meet_accept(struct tcp_wire *w)
{
    bool more = false;
    for (int i = 0; i < w->nlisteners; i++)
        more |= accept_some(w, w->listeners[i]);
    return more;
}

void tcp_meet_newcomer(struct tcp_wire *w, struct tcp_newcomer *g)
{
    if (g->fd < 0)
        return;
    int whole = read_all(g->fd, &g->call, sizeof g->call, &g->got);
    if (!whole)
        return;
    struct tcp_peer *p = whole > 0 && tcp_proof_hear(w, &g->call) ? w->peers[g->call.from] : NULL;
    if (!p || (p->link == TCP_OPEN && !p->unsure) || p->link == TCP_LOST || has_hung_up(g->fd)) {
        dismiss(w, g, true);
        return;
    }
    bool first = p->link == TCP_UNUSED;
    /* This rank's own call counts, if it succeeds. A connection of the peer that was taken before does not: the peer
     * has given that call up, otherwise it would not call again. */
    if (!p->unsure && !first && p->rank > w->base.rank) {
        if (p->reserve >= 0)
            tcp_link_end(p->reserve);
        p->reserve = g->fd;
        p->reserve_call = g->call;
        tcp_link_watch(w, EPOLL_CTL_DEL, g->fd, 0, NULL);
        dismiss(w, g, false);
        return;
    }
    bool taken = adopt(w, p, g->fd, &g->call, true);
    dismiss(w, g, !taken); /* if the peer has just hung up, it calls again */
    if (taken && first) {
        p->next_used = w->used;
        w->used = p;
        if (w->leaves)
            tcp_out_bye(w, p);
    }
}

/* Last frames are read as a whole: none of them is believed before all are there. */
static int read_last(struct tcp_peer *p)
{
    if (p->proof.bytes > LAST_MOST || (!p->words && !(p->words = malloc(p->proof.bytes))))
        return -1;
    return read_all(p->fd, p->words, p->proof.bytes, &p->words_got);
}

bool tcp_meet_prove(struct tcp_wire *w, struct tcp_peer *p)
{
    int whole = read_all(p->fd, &p->proof, sizeof p->proof, &p->proof_got);
    if (whole > 0 && p->proof.bytes)
        whole = read_last(p);
    if (!whole)
        return false;
    if (whole > 0 && tcp_proof_holds(w, p)) {
        tcp_meet_open(w, p);
        return p->link == TCP_OPEN;
    }
    if (w->leaves)
        tcp_link_lost(w, p, TRANSPORT_HERE, 0);
    else
        tcp_meet_call_back(w, p);
    return false;
}

void tcp_meet_sweep(struct tcp_wire *w)
{
    if (!w->gone_newcomers)
        return;
    w->gone_newcomers = false;
    for (struct tcp_newcomer **at = &w->newcomers; *at;) {
        struct tcp_newcomer *g = *at;
        if (g->fd >= 0) {
            at = &g->next;
            continue;
        }
        *at = g->next;
        free(g);
    }
}

/* ---- calls without an answer ---- */

/* A host that does not answer at all has vanished, or there is no way to it. Of this machine it is known that it is
 * there: it is busy, and takes the call later. */
static bool takes_too_long(const struct tcp_wire *w, const struct tcp_peer *p, int64_t now)
{
    bool together = tcp_card_together(&w->cards[w->base.rank], &w->cards[p->rank]);
    return (p->link == TCP_CALLING && now - p->since >= (together ? BUSY_NS : KEEP_SILENT_NS)) ||
           (p->link == TCP_ASKING && now - p->since >= ANSWER_NS);
}

/* A process that accepts the call and does not answer is a busy peer or a stranger. If there is another address, that
 * is tried, and this one again after it, as often as necessary, since no peer has refused. */
static void give_up(struct tcp_wire *w, struct tcp_peer *p)
{
    struct sockaddr_storage to;
    socklen_t n;
    if (p->link == TCP_CALLING) {
        failed(p, ETIMEDOUT);
        call_next(w, p);
    } else if (p->reserve >= 0 || tcp_card_address(&w->cards[w->base.rank], &w->cards[p->rank], p->address, &to, &n)) {
        p->rounds = 0;
        turned_away(w, p, ETIMEDOUT);
    }
}

void tcp_meet_look(struct tcp_wire *w, struct tcp_peer *p, int64_t now)
{
    if (takes_too_long(w, p, now))
        tcp_meet_event(w, p); /* this rank itself may have been busy: then the answer has come, and was not read yet */
    if (takes_too_long(w, p, now))
        give_up(w, p);
}

void tcp_meet_look_newcomers(struct tcp_wire *w, int64_t now)
{
    if (w->deaf)
        listen_for(w, true);
    for (struct tcp_newcomer *g = w->newcomers; g; g = g->next)
        if (g->fd >= 0 && now - g->since >= NEWCOMER_NS)
            dismiss(w, g, true);
    tcp_meet_sweep(w);
}

/* ---- the end ---- */

void tcp_meet_farewell(struct tcp_wire *w, struct tcp_peer *p)
{
    size_t n = 0, at = sizeof(struct tcp_proof);
    if (p->link != TCP_ASKING)
        return;
    for (const struct tcp_out *o = p->first; o; o = o->next)
        n += o->n;
    unsigned char *all = n && n <= LAST_MOST ? malloc(at + n) : NULL;
    if (!all)
        return;
    for (const struct tcp_out *o = p->first; o; at += o->n, o = o->next)
        memcpy(all + at, o->bytes, o->n);
    const struct tcp_proof proof = tcp_proof_last(w, p, all + sizeof proof, n);
    memcpy(all, &proof, sizeof proof);
    send_all(p->fd, all, at);
    free(all);
}
