/* A rank claims its number, and finds its group: as the host if it is the first that comes, and otherwise as a
 * newcomer, which gets the file from others and waits until all have come (shm_meet.h). */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/error.h"
#include "base/forks.h"
#include "base/process.h"
#include "transport/shm/shm_meet.h"

#define ASK_MS 200 /* a rank that does not get the file within this time asks again */
#define AGAIN 1    /* not an error: try to find the group once more */

/* The host has not answered. The socket names of the ranks show which rank its process is. If this rank has just come
 * from another host, whose time ran out, the reason is that host's. */
static int no_answer(const struct shm_link *l, const struct ucred *host, int64_t wait_ns)
{
    char name[40] = "the rank";
    if (l->late[0])
        return error_set(WEFT_ETIMEOUT, "%s", l->late);
    for (int r = 0; r < l->base.size; r++) {
        struct ucred who;
        int fd = shm_talk_connect(l, r, &who);
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
static int await(struct newcomer *g, struct shm_message *m)
{
    int n = -1, err = 0;
    for (bool late = false; n < 0 && !late && !err;) {
        struct epoll_event what[2];
        struct pollfd wait = {.fd = g->fd, .events = POLLIN};
        int ms = shm_talk_wait_ms(g->ask, g->until), asks = -1;
        late = core_now() >= g->until;
        int came = g->events >= 0 ? epoll_wait(g->events, what, 2, ms) : poll(&wait, 1, ms);
        for (int i = 0; i < came && g->events >= 0; i++)
            if (what[i].data.u32 == shm_hands_number(g->link))
                asks = shm_hands_accept(g->files[1]);
        if (came >= 0)
            n = shm_talk_hear(g->fd, m, NULL);
        /* A rank that asks after the host has dismissed this one may be another host's, in the same process: it must
         * not get this file. That the host has is known by now, because the rank was accepted before. */
        if (asks >= 0 && n < 0)
            shm_hands_give(g->link, g->hosted_by, g->events, g->files[1], asks, &g->handed);
        else if (asks >= 0)
            close(asks);
        if (n < 0)
            err = transport_in_vain(g->ask);
    }
    return n < 0 ? err ? err : WEFT_ETIMEOUT : n ? 0 : AGAIN;
}

/* Asks for the file where the host's ranks give it out, and waits for it or for a word of the host. Results as those of
 * await. */
static int await_file(struct newcomer *g, const struct ucred *host, struct shm_message *m)
{
    struct sockaddr_un a;
    socklen_t len = shm_hands_address(g->link, host->pid, &a);
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
            asks = shm_talk_connect_with(&a, len, &who);
            asked = core_now();
            if (asks >= 0 && (who.uid != host->uid || who.pid != host->pid)) { /* it is not the host's */
                forks_close(asks);
                asks = -ECONNREFUSED;
            }
        }
        if (asks == -EMFILE || asks == -ENFILE)
            return shm_talk_error(g->link, -asks);
        struct pollfd wait[2] = {{.fd = g->fd, .events = POLLIN}, {.fd = asks, .events = POLLIN}};
        int ms = shm_talk_wait_ms(g->ask, g->until), most = asks < 0 ? 1 : ASK_MS;
        if (poll(wait, 2, ms < most ? ms : most) >= 0)
            n = shm_talk_hear(g->fd, m, g->files);
        int got = n < 0 && asks >= 0 ? shm_talk_hear(asks, m, g->files) : -1;
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
        shm_hands_attend(g->link, g->events, g->files[1]);
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
static int bye(struct shm_link *l, const struct shm_message *m)
{
    snprintf(l->late, sizeof l->late, "%s", m->text);
    l->absent = true;
    return AGAIN;
}

/* What the host has said instead of handing over the file, or of forming the group. */
static int dismissed(struct shm_link *l, const struct shm_message *m)
{
    if (m->kind == SHM_REFUSED && m->protocol == SHM_PROTOCOL)
        return error_set(m->code < 0 ? m->code : WEFT_ETRANSPORT, "%s", m->text);
    if (m->kind == SHM_BYE)
        return bye(l, m);
    return error_set(WEFT_EMISMATCH, "shm:%s: the others use another version of weft", l->name);
}

/* This rank has the file, and is ready. */
static int settle(struct newcomer *g)
{
    struct shm_link *l = g->link;
    struct shm_message m;
    int err = await(g, &m);
    if (err && err != WEFT_ETIMEOUT && shm_form_known(l))
        return 0;
    if (err == AGAIN)
        return shm_form_ended(l, g->ask, g->hosted_by);
    if (err && err != WEFT_ETIMEOUT)
        return err;
    if (err) { /* in case the host has counted this rank, it is marked as left */
        err = shm_form_missing(l, g->ask->wait_ns);
        core_depart(l->base.group, l->base.rank);
        return err;
    }
    return dismissed(l, &m);
}

static int enlist(struct newcomer *g, const struct ucred *host)
{
    struct shm_link *l = g->link;
    struct shm_message m = {
        .protocol = SHM_PROTOCOL, .kind = SHM_HELLO, .rank = l->base.rank, .size = l->base.size, .pid = getpid()};
    shm_talk_tell(g->fd, &m, NULL, 0);
    int err = await_file(g, host, &m);
    l->home->file = g->files[0];
    if (err)
        return err == WEFT_ETIMEOUT ? no_answer(l, host, g->ask->wait_ns) : err;
    if (m.kind != SHM_WELCOME || m.protocol != SHM_PROTOCOL)
        return dismissed(l, &m);
    if (l->home->file < 0)
        return shm_talk_error(l, EMFILE);
    g->hosted_by = m.rank;
    err = shm_file_attach(l);
    if (err)
        return err;
    if (l->base.group->size != l->base.size) { /* the host has heard it, and refuses this rank */
        err = await(g, &m);
        return err ? err == WEFT_ETIMEOUT ? no_answer(l, host, g->ask->wait_ns) : err : dismissed(l, &m);
    }
    shm_form_enter(l);
    lend_a_hand(g);
    shm_talk_say(g->fd, SHM_READY, "");
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
        shm_talk_say(fd, SHM_BYE, "");
    forks_close(fd);
    return err;
}

/* Claims this rank. A process that holds it may be ending: its name is free when it has ended. So a rank that is taken
 * is tried again for a moment, and as long as its process is ending. */
static int claim(struct shm_link *l, int64_t until)
{
    struct ucred who;
    l->claim = shm_talk_listen(l, l->base.rank);
    if (l->claim != -EADDRINUSE)
        return l->claim < 0 ? shm_talk_error(l, -l->claim) : 0;
    int64_t limit = core_now() + SHM_CLAIM_NS;
    int fd = shm_talk_connect(l, l->base.rank, &who);
    if (fd >= 0)
        forks_close(fd);
    for (int64_t now = 0; l->claim == -EADDRINUSE && now < until; now = core_now()) {
        if (now >= limit && (fd < 0 || !process_ending(who.pid)))
            break;
        poll(NULL, 0, 1);
        l->claim = shm_talk_listen(l, l->base.rank);
    }
    if (l->claim >= 0)
        return 0;
    if (l->claim != -EADDRINUSE)
        return shm_talk_error(l, -l->claim);
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
        int fd = shm_talk_listen(l, -1);
        if (fd >= 0)
            return shm_host(l, ask, fd, until);
        if (fd != -EADDRINUSE)
            return shm_talk_error(l, -fd);
        fd = shm_talk_connect(l, -1, &who);
        int err = fd >= 0 ? visit(l, ask, fd, &who, until) : AGAIN;
        int vain = err == AGAIN ? transport_in_vain(ask) : 0;
        if (vain)
            return vain;
        if (err != AGAIN)
            return err;
        if (fd < 0 && fd != -ECONNREFUSED && fd != -EAGAIN)
            return shm_talk_error(l, -fd);
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
