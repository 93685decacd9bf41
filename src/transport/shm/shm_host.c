/* The host: the rank that gathers the others of its group (shm_meet.h). */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/ended.h"
#include "base/error.h"
#include "base/forks.h"
#include "base/open_files.h"
#include "transport/shm/shm_meet.h"

#define DISAGREE_NS INT64_C(1000000000) /* how long ranks that still come are told that ranks have disagreed */
#define SPARE_FILES 6                   /* beside those for connections */
#define AGAIN_NS INT64_C(2000000000)    /* after that the host gives the file to SHM_FAN more */
#define EVENTS 64                       /* of connections that are looked at together */

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
    if (h->hands >= 0 && h->handed >= SHM_FAN && shm_hands_attend(h->link, h->events, h->hands))
        h->handed = 0;
}

/* number: of the rank, or of ranks for the listener */
static int attend_to(const struct host *h, int fd, int number)
{
    struct epoll_event what = {.events = EPOLLIN, .data.u32 = (uint32_t)number};
    return epoll_ctl(h->events, EPOLL_CTL_ADD, fd, &what) ? shm_talk_error(h->link, errno) : 0;
}

/* Returns 0, or the error for which this process cannot be a member. */
static int examine(const struct host *h, const struct shm_message *m, const struct ucred *who)
{
    const struct shm_link *l = h->link;
    if (m->protocol != SHM_PROTOCOL || m->kind != SHM_HELLO)
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
    struct shm_message m;
    int fd = forks_own(accept4(h->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd < 0)
        return errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM
                   ? shm_talk_error(h->link, errno)
                   : 0;
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) || who.uid != geteuid() || poll(&wait, 1, 1000) < 1 ||
        shm_talk_hear(fd, &m, NULL) < 1) {
        forks_close(fd);
        return 0;
    }
    int err = examine(h, &m, &who);
    if (err) {
        shm_talk_refuse(fd, err, weft_errmsg());
        forks_close(fd);
        h->told += err == WEFT_EMISMATCH;
        h->most = m.size > h->most ? m.size : h->most;
        if (m.protocol != SHM_PROTOCOL || m.kind != SHM_HELLO || m.size == h->link->base.size || h->differ[0])
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
        shm_talk_tell(fd,
                      &(struct shm_message){.protocol = SHM_PROTOCOL, .kind = SHM_WELCOME, .rank = h->link->base.rank},
                      (const int[2]){h->link->home->file, -1}, 1);
    return 0;
}

/* A member has sent something, or has ended. */
static int attend(struct host *h, int rank)
{
    struct shm_message m;
    int n = shm_talk_hear(h->peers[rank], &m, NULL);
    if (n < 0)
        return 0;
    if (n == 0)
        return shm_form_ended(h->link, h->ask, rank);
    if (m.kind == SHM_READY && !h->ready[rank]) {
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
            shm_talk_refuse(h->peers[r], err, weft_errmsg());
            h->told++;
        } else if (err) {
            shm_talk_say(h->peers[r], SHM_BYE, weft_errmsg());
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
        if (poll(&newcomers, 1, shm_talk_ms_until(limit)) > 0 && admit(h))
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
        int wait = shm_talk_wait_ms(h->ask, until);
        if (h->link->ended >= 0 && wait > ENDED_LOOK_MS)
            wait = ENDED_LOOK_MS;
        if (core_now() >= again) {
            hand_out_again(h);
            again = core_now() + AGAIN_NS;
        }
        wait = wait < AGAIN_NS / 1000000 ? wait : (int)(AGAIN_NS / 1000000);
        int n = epoll_wait(h->events, what, EVENTS, wait);
        if (n < 0 && errno != EINTR)
            return shm_talk_error(h->link, errno);
        int err = 0;
        for (int i = 0; i < n && !err; i++) {
            int r = (int)what[i].data.u32, asks;
            if (r == size)
                err = admit(h);
            else if (r > size && (asks = shm_hands_accept(h->hands)) >= 0)
                shm_hands_give(h->link, h->link->base.rank, h->events, h->hands, asks, &h->handed);
            else if (r < size && h->peers[r] >= 0)
                err = attend(h, r);
        }
        if (err)
            return h->differ[0] ? disagree(h, until) : err;
        if (h->nready < size - 1 && (err = transport_in_vain(h->ask)))
            return err;
        char how[80];
        if (h->nready < size - 1 && ended_look(h->link->ended, how, sizeof how) >= 0)
            return error_set(WEFT_EPEER, "shm:%s: %s before all ranks had opened the comm", h->link->name, how);
        if (h->nready < size - 1 && core_now() >= until)
            return shm_form_missing(h->link, h->ask->wait_ns);
    }
    return 0;
}

/* Without a socket, or a system that wakes one rank of many, the host sends the file to all. */
static int open_hands(const struct host *h)
{
    struct sockaddr_un a;
    socklen_t n = shm_hands_address(h->link, getpid(), &a);
    int fd = shm_talk_listen_on(&a, n, h->link->base.size + 16);
    if (fd >= 0 && !shm_hands_attend(h->link, h->events, fd)) {
        forks_close(fd);
        fd = -1;
    }
    return fd < 0 ? -1 : fd;
}

int shm_host(struct shm_link *l, const struct transport_ask *ask, int listener, int64_t until)
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
        err = h.events < 0 ? shm_talk_error(l, errno) : attend_to(&h, listener, (int)size);
    }
    if (!err)
        err = shm_file_create(l);
    if (!err) {
        shm_form_enter(l);
        h.hands = open_hands(&h);
        err = gather(&h, until);
        if (!err && !shm_form(l, true))
            err = shm_form_ended(l, ask, -1);
        else if (err == WEFT_EPEER && shm_form(l, false))
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
