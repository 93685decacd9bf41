/* How the processes of a group find each other. As long as a rank is a member, it holds a socket with an abstract name,
 * made of the group's name and the rank: a second process with the same rank is refused. The first process that comes
 * also binds the group's own name. It is the host until all are there: it makes the file and hands it to each rank that
 * connects. The kernel drops abstract names with the process, so nothing is left behind, also if a rank is killed.
 *
 *   rank: HELLO    host: nothing, or REFUSED
 *   rank: READY    host: closes the connection when all ranks are ready, and has set the word `formed` in the file
 *
 * A rank gets the file by another connection, as soon as it has said HELLO. Its socket is made by the host. Who answers
 * there hands over the file and the socket itself (WELCOME), and so the rank that gets it can answer others. Each rank
 * answers FAN of them at most: no rank sends more messages if there are more ranks. Only a host without such a socket
 * sends WELCOME to all itself.
 *
 * Ranks that say different sizes are all refused: see disagree().
 *
 * If a rank or the host sees that others have ended, or that it is in vain to wait for them (struct transport_ask), the
 * word `formed` in the file decides for all: the group has formed if all ranks had come by then, and otherwise it never
 * will. So either all ranks that are left are members, or none is.
 *
 * Either may send BYE when its time has run out. After a rank's BYE the host waits for that rank again. After the
 * host's BYE another rank can be the host. If a connection ends without BYE, its process has ended. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/ended.h"
#include "base/error.h"
#include "base/forks.h"
#include "base/open_files.h"
#include "base/process.h"
#include "base/text.h"
#include "transport/shm/shm.h"

enum kind { HELLO = 1, WELCOME, REFUSED, READY, BYE };
#define PROTOCOL (UINT32_C(0x776b0000) | (uint32_t)sizeof(struct core_rank)) /* changes with the layout of the core */
#define DISAGREE_NS \
    INT64_C(1000000000)             /* after ranks have disagreed: for how long the host tells those that still come */
#define CLAIM_NS INT64_C(100000000) /* for how long a rank that is taken is tried again: its process may be ending */
#define LOOKS 8                     /* of the ranks that did not come: how many are looked for elsewhere */
#define SPARE_FILES 6               /* beside those for connections */
#define HANDS "weft-file:" /* before the host's process and the name of its group: where the file is given out */
#define FAN 8              /* ranks that a rank gives the file to */
#define AGAIN_NS INT64_C(2000000000) /* after that the host gives it to FAN more */
#define ASK_MS 200                   /* a rank that does not get the file within this time asks again */
#define EVENTS 64                    /* of connections that are looked at together */
#define AGAIN 1                      /* not an error: try to find the group once more */

struct message {
    uint32_t protocol, kind;
    int32_t rank, size, code;
    int64_t pid;
    char text[SHM_SAID];
};

#define ENDING_NS INT64_C(200000000) /* from the end of a connection to the end of its process */
#define BEAT_MS 20                   /* how often a rank asks whether it waits in vain, */
#define CROWD 64                     /* and less often if there are more ranks than this */

enum { FORMED = 1, BROKEN }; /* of struct shm_head */

struct host {
    struct shm_link *link;
    const struct transport_ask *ask;
    int listener;
    int hands;  /* where the file is given out; -1: this rank sends it to all by itself */
    int handed; /* to how many ranks it has given it */
    int *peers; /* connections; -1: none */
    bool *ready;
    int nready;
    int events; /* an epoll of the connections and the listener: what a rank sends costs the same, however many there
                   are */
    int told;   /* ranks that were refused because ranks disagree about the size */
    int most;   /* the largest size that a rank has said then */
    char differ[256]; /* how they disagree; empty: they do not */
};

/* ---- sockets ---- */

/* The group's name is "weft:NAME", a rank's is "weft-rank:RANK:NAME". The rank comes first because NAME may itself end
 * in a colon and a number. */
static socklen_t address(const struct shm_link *l, int rank, struct sockaddr_un *a)
{
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = rank < 0 ? snprintf(a->sun_path + 1, sizeof a->sun_path - 1, SHM_GATHERS "%s", l->name)
                     : snprintf(a->sun_path + 1, sizeof a->sun_path - 1, SHM_CLAIMS "%d:%s", rank, l->name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/* Where the ranks that this host gathers get the file. */
static socklen_t address_of_hands(const struct shm_link *l, int64_t host, struct sockaddr_un *a)
{
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, HANDS "%lld:%s", (long long)host, l->name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static int new_socket(void)
{
    return forks_own(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

/* Makes a listening socket, or returns a negative errno. */
static int listen_on(const struct sockaddr_un *a, socklen_t n, int backlog)
{
    int fd = new_socket();
    if (fd < 0)
        return -errno;
    if (bind(fd, (const struct sockaddr *)a, n) || listen(fd, backlog)) {
        int err = errno;
        forks_close(fd);
        return -err;
    }
    return fd;
}

static int listen_at(const struct shm_link *l, int rank)
{
    struct sockaddr_un a;
    socklen_t n = address(l, rank, &a);
    return listen_on(&a, n, rank < 0 ? l->base.size + 16 : 1);
}

static int connect_with(const struct sockaddr_un *a, socklen_t n, struct ucred *who)
{
    socklen_t len = sizeof *who;
    int fd = new_socket();
    if (fd < 0)
        return -errno;
    if (connect(fd, (const struct sockaddr *)a, n) || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, who, &len)) {
        int err = errno;
        forks_close(fd);
        return -err;
    }
    return fd;
}

static int connect_to(const struct shm_link *l, int rank, struct ucred *who)
{
    struct sockaddr_un a;
    socklen_t n = address(l, rank, &a);
    return connect_with(&a, n, who);
}

static int socket_error(const struct shm_link *l, int err)
{
    return error_set(WEFT_ETRANSPORT, "shm:%s: rank %d has no socket to find the other ranks by: %s", l->name,
                     l->base.rank, strerror(err));
}

static int milliseconds(int64_t until)
{
    int64_t left = until - core_now();
    return left <= 0 ? 0 : left > INT64_C(1000000000) * 3600 ? 3600000 : (int)(left / 1000000) + 1;
}

/* How long to wait now, in milliseconds. */
static int wait_ms(const struct transport_ask *ask, int64_t until)
{
    int ms = milliseconds(until), beat = BEAT_MS * (1 + ask->size / CROWD);
    return ask->vain && ms > beat ? beat : ms;
}

/* The first rank that calls it decides for all whether the group has formed. */
static bool form(const struct shm_link *l, bool formed)
{
    uint32_t was = 0;
    if (atomic_compare_exchange_strong_explicit(&l->home->head->formed, &was, formed ? FORMED : BROKEN,
                                                memory_order_seq_cst, memory_order_seq_cst))
        return formed;
    return was == FORMED;
}

static bool all_have_come(const struct shm_link *l)
{
    for (int r = 0; r < l->base.size; r++)
        if (atomic_load_explicit(&l->base.group->ranks[r].state, memory_order_seq_cst) != CORE_HERE)
            return false;
    return true;
}

/* Whether the group has formed, after the connection with the host has ended. If the host has not decided that, this
 * rank looks at the words of all others. */
static bool has_formed(const struct shm_link *l)
{
    uint32_t formed = atomic_load_explicit(&l->home->head->formed, memory_order_seq_cst);
    return formed ? formed == FORMED : form(l, all_have_come(l));
}

/* ---- messages ---- */

/* False: the message was not sent. Most callers ignore it: the next read finds out whether the other end is gone.
 * files: the first n of two are sent. */
static bool tell(int fd, const struct message *m, const int files[2], size_t n)
{
    struct iovec part = {.iov_base = (void *)(uintptr_t)m, .iov_len = sizeof *m};
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {0};
    struct msghdr h = {.msg_iov = &part, .msg_iovlen = 1};
    if (n) {
        h.msg_control = control;
        h.msg_controllen = CMSG_SPACE(n * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&h);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(n * sizeof(int));
        memcpy(CMSG_DATA(c), files, n * sizeof(int));
    }
    ssize_t sent;
    do
        sent = sendmsg(fd, &h, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent >= 0;
}

static void say(int fd, enum kind kind, const char *text)
{
    struct message m = {.protocol = PROTOCOL, .kind = kind};
    snprintf(m.text, sizeof m.text, "%s", text);
    tell(fd, &m, NULL, 0);
}

/* Returns 1 if a message has come: *m, and the files that it carries, of which the first is -EMFILE if this process
 * could not take it. Returns 0 if the other end is closed, -1 if nothing has come. files: two, or NULL. */
static int hear(int fd, struct message *m, int *files)
{
    struct iovec part = {.iov_base = m, .iov_len = sizeof *m};
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))];
    struct msghdr h = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t n;
    do /* if the other end closed before it had read all, ECONNRESET is reported once, before its last message */
        n = recvmsg(fd, &h, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    while (n < 0 && (errno == EINTR || errno == ECONNRESET));
    if (n < 0)
        return errno == EAGAIN ? -1 : 0;
    struct cmsghdr *c = n ? CMSG_FIRSTHDR(&h) : NULL;
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
        int got[2];
        size_t many = c->cmsg_len < CMSG_LEN(sizeof got) ? 1 : 2;
        memcpy(got, CMSG_DATA(c), many * sizeof *got);
        for (size_t i = 0; i < many; i++)
            if (files)
                files[i] = got[i];
            else
                close(got[i]);
    } else if (n && files && h.msg_flags & MSG_CTRUNC) {
        files[0] = -EMFILE;
    }
    if (n != (ssize_t)sizeof *m)
        memset(m, 0, sizeof *m); /* from another program, or another version of weft */
    m->text[sizeof m->text - 1] = 0;
    return n > 0;
}

/* ---- giving out the file ---- */

/* The number of the socket for the file in an epoll; those of connections are ranks, and that of the host's socket
 * comes after the last rank. */
static uint32_t number_of_hands(const struct shm_link *l)
{
    return (uint32_t)l->base.size + 1;
}

/* Of all ranks that wait for somebody who asks for the file, the system wakes one. */
static bool attend_to_hands(const struct shm_link *l, int events, int hands)
{
    struct epoll_event what = {.events = EPOLLIN | EPOLLEXCLUSIVE, .data.u32 = number_of_hands(l)};
    return !epoll_ctl(events, EPOLL_CTL_ADD, hands, &what);
}

/* Accepts a rank that asks for the file; -1: there is none. */
static int asker(int hands)
{
    return accept4(hands, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

/* Gives the file to the rank that asks by fd, and closes fd. When this rank has given it to FAN others, they do it. */
static void hand_out(const struct shm_link *l, int host, int events, int hands, int fd, int *handed)
{
    struct ucred who;
    socklen_t len = sizeof who;
    if (!getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) && who.uid == geteuid())
        *handed += tell(fd, &(struct message){.protocol = PROTOCOL, .kind = WELCOME, .rank = host},
                        (const int[2]){l->home->file, hands}, 2);
    close(fd);
    if (*handed >= FAN)
        epoll_ctl(events, EPOLL_CTL_DEL, hands, NULL);
}

/* ---- the host ---- */

/* Whether this rank is a member of another group with the same name. A rank whose own time has just run out holds its
 * socket for another moment: so this looks twice. */
static bool elsewhere(const struct shm_link *l, int rank)
{
    if (!shm_where_claimed(l->name, rank))
        return false;
    poll(NULL, 0, (int)(CLAIM_NS / 1000000));
    return shm_where_claimed(l->name, rank);
}

/* Names the ranks that have not come. */
static int missing(struct shm_link *l, int64_t wait_ns)
{
    char names[160], other[120] = "";
    struct text t = text_start(names, sizeof names);
    int n = 0;
    for (int r = 0; r < l->base.size; r++) {
        if (atomic_load_explicit(&l->base.group->ranks[r].state, memory_order_seq_cst) == CORE_HERE)
            continue;
        text_printf(&t, "%s%d", n++ ? ", " : "", r);
        if (n <= LOOKS && !other[0] && elsewhere(l, r))
            snprintf(other, sizeof other, "; rank %d is in another group with this name, perhaps of another size", r);
    }
    l->absent = true;
    return error_set(WEFT_ETIMEOUT, "shm:%s: %s %s did not come within %lld ms%s", l->name, n > 1 ? "ranks" : "rank",
                     names, (long long)(wait_ns / 1000000), other);
}

/* Closes the connection with a rank. It is taken out of the epoll first: a process that was forked may have it open. */
static void hang_up(struct host *h, int rank)
{
    epoll_ctl(h->events, EPOLL_CTL_DEL, h->peers[rank], NULL);
    forks_close(h->peers[rank]);
    h->peers[rank] = -1;
}

static void forget(struct host *h, int rank)
{
    atomic_store_explicit(&h->link->base.group->ranks[rank].state, CORE_ABSENT, memory_order_seq_cst);
    hang_up(h, rank);
    h->nready -= h->ready[rank];
    h->ready[rank] = false;
}

/* Ranks to which this one has given the file may have stopped or left, before they could give it to others. */
static void hand_out_again(struct host *h)
{
    if (h->hands >= 0 && h->handed >= FAN && attend_to_hands(h->link, h->events, h->hands))
        h->handed = 0;
}

static void refuse(int fd, int code, const char *text)
{
    struct message m = {.protocol = PROTOCOL, .kind = REFUSED, .code = code};
    snprintf(m.text, sizeof m.text, "%s", text);
    tell(fd, &m, NULL, 0);
}

/* number: of the rank, or of ranks for the listener */
static int attend_to(const struct host *h, int fd, int number)
{
    struct epoll_event what = {.events = EPOLLIN, .data.u32 = (uint32_t)number};
    return epoll_ctl(h->events, EPOLL_CTL_ADD, fd, &what) ? socket_error(h->link, errno) : 0;
}

/* Returns 0, or the error for which this process cannot be a member. */
static int examine(const struct host *h, const struct message *m, const struct ucred *who)
{
    const struct shm_link *l = h->link;
    if (m->protocol != PROTOCOL || m->kind != HELLO)
        return error_set(WEFT_EMISMATCH, "shm:%s: the others use another version of weft", l->name);
    if (h->differ[0])
        return error_set(WEFT_EMISMATCH, "%s", h->differ);
    if (m->size != l->base.size)
        return error_set(WEFT_EMISMATCH, "shm:%s: others have opened it with %d ranks, not %d", l->name, l->base.size,
                         m->size);
    if (m->rank < 0 || m->rank >= l->base.size || m->rank == l->base.rank || h->peers[m->rank] >= 0)
        return error_set(WEFT_EBUSY, "shm:%s: rank %d is open already", l->name, m->rank);
    if (m->pid != who->pid)
        return error_set(WEFT_EUNSUPPORTED, "shm:%s: rank %d runs in another PID namespace than rank %d", l->name,
                         m->rank, l->base.rank);
    return 0;
}

/* Accepts a connection; a rank sends its hello as soon as it is connected. An error means that this process has no
 * file descriptor or memory for it. */
static int admit(struct host *h)
{
    struct ucred who;
    socklen_t len = sizeof who;
    struct message m;
    int fd = forks_own(accept4(h->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd < 0)
        return errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM ? socket_error(h->link, errno)
                                                                                         : 0;
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) || who.uid != geteuid() || poll(&wait, 1, 1000) < 1 ||
        hear(fd, &m, NULL) < 1) {
        forks_close(fd);
        return 0;
    }
    int err = examine(h, &m, &who);
    if (err) {
        refuse(fd, err, weft_errmsg());
        forks_close(fd);
        h->told += err == WEFT_EMISMATCH;
        h->most = m.size > h->most ? m.size : h->most;
        if (m.protocol != PROTOCOL || m.kind != HELLO || m.size == h->link->base.size || h->differ[0])
            return 0;
        snprintf(h->differ, sizeof h->differ, "shm:%s: rank %d has opened it with %d ranks, rank %d with %d",
                 h->link->name, m.rank, m.size, h->link->base.rank, h->link->base.size);
        return error_set(WEFT_EMISMATCH, "%s", h->differ);
    }
    err = attend_to(h, fd, m.rank);
    if (err) {
        forks_close(fd);
        return err;
    }
    h->peers[m.rank] = fd;
    if (h->hands < 0)
        tell(fd, &(struct message){.protocol = PROTOCOL, .kind = WELCOME, .rank = h->link->base.rank},
             (const int[2]){h->link->home->file, -1}, 1);
    return 0;
}

/* The connection with a rank has ended. The caller may know more of it, but not before its process has ended. */
static int has_ended(const struct shm_link *l, const struct transport_ask *ask, int rank)
{
    int err = 0;
    for (int64_t limit = core_now() + ENDING_NS; ask->vain && !err && core_now() < limit;) {
        err = ask->vain(ask->vain_arg, -1);
        if (!err)
            poll(NULL, 0, 1);
    }
    if (err || rank >= 0)
        return err ? err : error_set(WEFT_EPEER, "shm:%s: rank %d ended while the ranks were joining", l->name, rank);
    return error_set(WEFT_EPEER, "shm:%s: a rank gave up while the ranks were joining", l->name);
}

/* A member has sent something, or has ended. */
static int attend(struct host *h, int rank)
{
    struct message m;
    int n = hear(h->peers[rank], &m, NULL);
    if (n < 0)
        return 0;
    if (n == 0)
        return has_ended(h->link, h->ask, rank);
    if (m.kind == READY && !h->ready[rank]) {
        h->ready[rank] = true;
        h->nready++;
    } else {
        forget(h, rank);
    }
    return 0;
}

/* Ends the connections with all members, and tells them if joining failed. They may try again only if time ran out,
 * since this rank may come back, too. If the group has formed, they find that in the file. */
static void dismiss(struct host *h, int err)
{
    for (int r = 0; r < h->link->base.size; r++) {
        if (h->peers[r] < 0)
            continue;
        if (err && err != WEFT_ETIMEOUT) {
            refuse(h->peers[r], err, weft_errmsg());
            h->told++;
        } else if (err) {
            say(h->peers[r], BYE, weft_errmsg());
        }
        hang_up(h, r);
    }
}

/* Ranks disagree about the size. The host tells all that are here, and for a moment those that still come: without a
 * host they would wait for each other in vain. */
static int disagree(struct host *h, int64_t until)
{
    int64_t limit = core_now() + DISAGREE_NS;
    if (limit > until)
        limit = until;
    dismiss(h, WEFT_EMISMATCH);
    while ((h->told < h->link->base.size - 1 || h->told < h->most - 1) && core_now() < limit) {
        struct pollfd newcomers = {.fd = h->listener, .events = POLLIN};
        if (poll(&newcomers, 1, milliseconds(limit)) > 0 && admit(h))
            break;
    }
    return error_set(WEFT_EMISMATCH, "%s", h->differ);
}

static int gather(struct host *h, int64_t until)
{
    int size = h->link->base.size;
    int64_t again = core_now() + AGAIN_NS;
    while (h->nready < size - 1) {
        struct epoll_event what[EVENTS];
        int wait = wait_ms(h->ask, until);
        if (h->link->ended >= 0 && wait > ENDED_LOOK_MS)
            wait = ENDED_LOOK_MS;
        if (core_now() >= again) {
            hand_out_again(h);
            again = core_now() + AGAIN_NS;
        }
        wait = wait < AGAIN_NS / 1000000 ? wait : (int)(AGAIN_NS / 1000000);
        int n = epoll_wait(h->events, what, EVENTS, wait);
        if (n < 0 && errno != EINTR)
            return socket_error(h->link, errno);
        int err = 0;
        for (int i = 0; i < n && !err; i++) {
            int r = (int)what[i].data.u32, asks;
            if (r == size)
                err = admit(h);
            else if (r > size && (asks = asker(h->hands)) >= 0)
                hand_out(h->link, h->link->base.rank, h->events, h->hands, asks, &h->handed);
            else if (r < size && h->peers[r] >= 0)
                err = attend(h, r);
        }
        if (err)
            return h->differ[0] ? disagree(h, until) : err;
        if (h->nready < size - 1 && (err = transport_in_vain(h->ask)))
            return err;
        char how[80];
        if (h->nready < size - 1 && ended_look(h->link->ended, how, sizeof how))
            return error_set(WEFT_EPEER, "shm:%s: %s before all ranks had opened the comm", h->link->name, how);
        if (h->nready < size - 1 && core_now() >= until)
            return missing(h->link, h->ask->wait_ns);
    }
    return 0;
}

static void come_in(struct shm_link *l)
{
    bool zombie;
    l->home->head->process[l->base.rank] = (struct shm_process){
        .pid = getpid(), .start = process_start(getpid(), &zombie), .map = (uintptr_t)l->home->map};
    transport_link_enter(&l->base);
}

/* Without a socket, or a system that wakes one rank of many, the host sends the file to all. */
static int open_hands(const struct host *h)
{
    struct sockaddr_un a;
    socklen_t n = address_of_hands(h->link, getpid(), &a);
    int fd = listen_on(&a, n, h->link->base.size + 16);
    if (fd >= 0 && !attend_to_hands(h->link, h->events, fd)) {
        forks_close(fd);
        fd = -1;
    }
    return fd < 0 ? -1 : fd;
}

static int host(struct shm_link *l, const struct transport_ask *ask, int listener, int64_t until)
{
    size_t size = (size_t)l->base.size;
    struct host h = {.link = l, .ask = ask, .listener = listener, .hands = -1, .events = -1};
    h.peers = malloc(size * sizeof *h.peers);
    h.ready = calloc(size, sizeof *h.ready);
    for (size_t r = 0; h.peers && r < size; r++)
        h.peers[r] = -1;
    size_t need;
    int err = h.peers && h.ready ? 0 : error_nomem();
    if (!err && !open_files_allow_more(size + SPARE_FILES, &need)) /* a connection with each rank */
        err = error_set(WEFT_ETRANSPORT,
                        "shm:%s: rank %d may have %zu files open, and needs %zu for %zu ranks: raise its limit (ulimit "
                        "-n)",
                        l->name, l->base.rank, open_files_limit(), need, size);
    if (!err) {
        h.events = forks_own(epoll_create1(EPOLL_CLOEXEC));
        err = h.events < 0 ? socket_error(l, errno) : attend_to(&h, listener, (int)size);
    }
    if (!err)
        err = shm_file_create(l);
    if (!err) {
        come_in(l);
        h.hands = open_hands(&h);
        err = gather(&h, until);
        if (!err && !form(l, true))
            err = has_ended(l, ask, -1);
        else if (err == WEFT_EPEER && form(l, false))
            err = 0;
        dismiss(&h, err);
        if (err)
            shm_file_unmap(l);
    }
    forks_close(listener);
    if (h.hands >= 0)
        forks_close(h.hands);
    if (h.events >= 0)
        forks_close(h.events);
    free(h.peers);
    free(h.ready);
    return err;
}

/* ---- the other ranks ---- */

/* The host has not answered. The socket names of the ranks show which rank its process is. If this rank has just come
 * from another host, whose time ran out, the reason is that host's. */
static int no_answer(const struct shm_link *l, const struct ucred *host, int64_t wait_ns)
{
    char name[40] = "the rank";
    if (l->late[0])
        return error_set(WEFT_ETIMEOUT, "%s", l->late);
    for (int r = 0; r < l->base.size; r++) {
        struct ucred who;
        int fd = connect_to(l, r, &who);
        if (fd < 0)
            continue;
        forks_close(fd);
        if (who.pid == host->pid) {
            snprintf(name, sizeof name, "rank %d", r);
            break;
        }
    }
    return error_set(WEFT_ETIMEOUT, "shm:%s: %s in process %d, which gathers the others, did not answer within %lld ms",
                     l->name, name, (int)host->pid, (long long)(wait_ns / 1000000));
}

/* A rank that is not the host, while it joins. */
struct newcomer {
    struct shm_link *link;
    const struct transport_ask *ask;
    int64_t until;
    int fd;        /* the connection with the host */
    int hosted_by; /* its rank */
    int files[2];  /* the file, and where it is given out; -1: not known */
    int events;    /* an epoll of both; -1: there is none, and the file is not given out */
    int handed;
};

/* Waits for the host's next message. Returns 0, AGAIN if the host is gone, the error if the wait is in vain, or
 * WEFT_ETIMEOUT without a text. Meanwhile other ranks get the file from this one. */
static int await(struct newcomer *g, struct message *m)
{
    int n = -1, err = 0;
    for (bool late = false; n < 0 && !late && !err;) {
        struct epoll_event what[2];
        struct pollfd wait = {.fd = g->fd, .events = POLLIN};
        int ms = wait_ms(g->ask, g->until), asks = -1;
        late = core_now() >= g->until;
        int came = g->events >= 0 ? epoll_wait(g->events, what, 2, ms) : poll(&wait, 1, ms);
        for (int i = 0; i < came && g->events >= 0; i++)
            if (what[i].data.u32 == number_of_hands(g->link))
                asks = asker(g->files[1]);
        if (came >= 0)
            n = hear(g->fd, m, NULL);
        /* A rank that asks after the host has dismissed this one may be another host's, in the same process: it must
         * not get this file. That the host has is known by now, because the rank was accepted before. */
        if (asks >= 0 && n < 0)
            hand_out(g->link, g->hosted_by, g->events, g->files[1], asks, &g->handed);
        else if (asks >= 0)
            close(asks);
        if (n < 0)
            err = transport_in_vain(g->ask);
    }
    return n < 0 ? err ? err : WEFT_ETIMEOUT : n ? 0 : AGAIN;
}

/* Asks for the file where the host's ranks give it out, and waits for it or for a word of the host. Results as those of
 * await. */
static int await_file(struct newcomer *g, const struct ucred *host, struct message *m)
{
    struct sockaddr_un a;
    socklen_t len = address_of_hands(g->link, host->pid, &a);
    int asks = -1, n = -1, err = 0;
    int64_t asked = 0;
    for (bool late = false; n < 0 && !late && !err;) {
        struct ucred who;
        late = core_now() >= g->until;
        if (asks >= 0 && core_now() - asked > ASK_MS * INT64_C(1000000)) { /* who should answer may have stopped */
            forks_close(asks);
            asks = -1;
        }
        if (asks < 0) {
            asks = connect_with(&a, len, &who);
            asked = core_now();
            if (asks >= 0 && (who.uid != host->uid || who.pid != host->pid)) { /* it is not the host's */
                forks_close(asks);
                asks = -ECONNREFUSED;
            }
        }
        if (asks == -EMFILE || asks == -ENFILE)
            return socket_error(g->link, -asks);
        struct pollfd wait[2] = {{.fd = g->fd, .events = POLLIN}, {.fd = asks, .events = POLLIN}};
        int ms = wait_ms(g->ask, g->until), most = asks < 0 ? 1 : ASK_MS;
        if (poll(wait, 2, ms < most ? ms : most) >= 0)
            n = hear(g->fd, m, g->files);
        int got = n < 0 && asks >= 0 ? hear(asks, m, g->files) : -1;
        if (got > 0)
            n = got;
        if (got == 0) {
            forks_close(asks);
            asks = -1;
        }
        if (n < 0)
            err = transport_in_vain(g->ask);
    }
    if (asks >= 0)
        forks_close(asks);
    return n < 0 ? err ? err : WEFT_ETIMEOUT : n ? 0 : AGAIN;
}

/* From here on this rank gives the file to others while it waits. If that is not possible, others do it. */
static void lend_a_hand(struct newcomer *g)
{
    struct epoll_event what = {.events = EPOLLIN};
    if (g->files[1] < 0)
        return;
    forks_own(g->files[1]);
    g->events = forks_own(epoll_create1(EPOLL_CLOEXEC));
    if (g->events >= 0 && epoll_ctl(g->events, EPOLL_CTL_ADD, g->fd, &what)) {
        forks_close(g->events);
        g->events = -1;
    }
    if (g->events >= 0)
        attend_to_hands(g->link, g->events, g->files[1]);
}

static void rest_hands(struct newcomer *g)
{
    if (g->events >= 0)
        forks_close(g->events);
    if (g->files[1] >= 0)
        forks_close(g->files[1]);
    g->events = g->files[1] = -1;
}

/* The host's time has run out. If this rank's time has run out, too, the host's text is the reason. */
static int bye(struct shm_link *l, const struct message *m)
{
    snprintf(l->late, sizeof l->late, "%s", m->text);
    l->absent = true;
    return AGAIN;
}

/* What the host has said instead of handing over the file, or of forming the group. */
static int dismissed(struct shm_link *l, const struct message *m)
{
    if (m->kind == REFUSED && m->protocol == PROTOCOL)
        return error_set(m->code < 0 ? m->code : WEFT_ETRANSPORT, "%s", m->text);
    if (m->kind == BYE)
        return bye(l, m);
    return error_set(WEFT_EMISMATCH, "shm:%s: the others use another version of weft", l->name);
}

/* This rank has the file, and is ready. */
static int settle(struct newcomer *g)
{
    struct shm_link *l = g->link;
    struct message m;
    int err = await(g, &m);
    if (err && err != WEFT_ETIMEOUT && has_formed(l))
        return 0;
    if (err == AGAIN)
        return has_ended(l, g->ask, g->hosted_by);
    if (err && err != WEFT_ETIMEOUT)
        return err;
    if (err) { /* in case the host has counted this rank, it is marked as left */
        err = missing(l, g->ask->wait_ns);
        core_depart(l->base.group, l->base.rank);
        return err;
    }
    return dismissed(l, &m);
}

static int enlist(struct newcomer *g, const struct ucred *host)
{
    struct shm_link *l = g->link;
    struct message m = {
        .protocol = PROTOCOL, .kind = HELLO, .rank = l->base.rank, .size = l->base.size, .pid = getpid()};
    tell(g->fd, &m, NULL, 0);
    int err = await_file(g, host, &m);
    l->home->file = g->files[0];
    if (err)
        return err == WEFT_ETIMEOUT ? no_answer(l, host, g->ask->wait_ns) : err;
    if (m.kind != WELCOME || m.protocol != PROTOCOL)
        return dismissed(l, &m);
    if (l->home->file < 0)
        return socket_error(l, EMFILE);
    g->hosted_by = m.rank;
    err = shm_file_attach(l);
    if (err)
        return err;
    if (l->base.group->size != l->base.size) { /* the host has heard it, and refuses this rank */
        err = await(g, &m);
        return err ? err == WEFT_ETIMEOUT ? no_answer(l, host, g->ask->wait_ns) : err : dismissed(l, &m);
    }
    come_in(l);
    lend_a_hand(g);
    say(g->fd, READY, "");
    return settle(g);
}

static int visit(struct shm_link *l, const struct transport_ask *ask, int fd, const struct ucred *who, int64_t until)
{
    struct newcomer g = {.link = l, .ask = ask, .until = until, .fd = fd, .files = {-1, -1}, .events = -1};
    int err = who->uid != geteuid()
                  ? error_set(WEFT_EBUSY, "shm:%s: the name is in use by another user (uid %u)", l->name, who->uid)
                  : enlist(&g, who);
    rest_hands(&g);
    if (err)
        shm_file_unmap(l);
    if (err)
        say(fd, BYE, "");
    forks_close(fd);
    return err;
}

/* ---- both ---- */

/* Claims this rank. A process that holds it may be ending: its name is free when it has ended. So a rank that is taken
 * is tried again for a moment, and as long as its process is ending. */
static int claim(struct shm_link *l, int64_t until)
{
    struct ucred who;
    l->claim = listen_at(l, l->base.rank);
    if (l->claim != -EADDRINUSE)
        return l->claim < 0 ? socket_error(l, -l->claim) : 0;
    int64_t limit = core_now() + CLAIM_NS;
    int fd = connect_to(l, l->base.rank, &who);
    if (fd >= 0)
        forks_close(fd);
    for (int64_t now = 0; l->claim == -EADDRINUSE && now < until; now = core_now()) {
        if (now >= limit && (fd < 0 || !process_ending(who.pid)))
            break;
        poll(NULL, 0, 1);
        l->claim = listen_at(l, l->base.rank);
    }
    if (l->claim >= 0)
        return 0;
    if (l->claim != -EADDRINUSE)
        return socket_error(l, -l->claim);
    if (fd < 0)
        return error_set(WEFT_EBUSY, "shm:%s: rank %d is open already", l->name, l->base.rank);
    if (who.uid != geteuid())
        return error_set(WEFT_EBUSY, "shm:%s: the name is in use by another user (uid %u)", l->name, who.uid);
    if (who.pid == getpid())
        return error_set(WEFT_EBUSY, "shm:%s: rank %d is open already, " TRANSPORT_OPEN_HERE, l->name, l->base.rank);
    return error_set(WEFT_EBUSY, "shm:%s: rank %d is open already, in process %d", l->name, l->base.rank, who.pid);
}

static int meet(struct shm_link *l, const struct transport_ask *ask)
{
    int64_t wait_ns = ask->wait_ns, now = core_now(), until = wait_ns < INT64_MAX - now ? now + wait_ns : INT64_MAX;
    int held = claim(l, until);
    if (held)
        return held;
    for (;;) {
        struct ucred who;
        int fd = listen_at(l, -1);
        if (fd >= 0)
            return host(l, ask, fd, until);
        if (fd != -EADDRINUSE)
            return socket_error(l, -fd);
        fd = connect_to(l, -1, &who);
        int err = fd >= 0 ? visit(l, ask, fd, &who, until) : AGAIN;
        int vain = err == AGAIN ? transport_in_vain(ask) : 0;
        if (vain)
            return vain;
        if (err != AGAIN)
            return err;
        if (fd < 0 && fd != -ECONNREFUSED && fd != -EAGAIN)
            return socket_error(l, -fd);
        if (core_now() >= until && l->late[0])
            return error_set(WEFT_ETIMEOUT, "%s", l->late);
        l->absent = core_now() >= until;
        if (l->absent)
            return error_set(WEFT_ETIMEOUT, "shm:%s: the group did not form within %lld ms", l->name,
                             (long long)(wait_ns / 1000000));
        poll(NULL, 0, 1); /* a host may be about to listen, or has just gone */
    }
}

int shm_meet(struct shm_link *l, const struct transport_ask *ask)
{
    int err = meet(l, ask);
    return err == WEFT_ETIMEOUT && l->absent ? shm_where(l->name, l->base.size) : err;
}
