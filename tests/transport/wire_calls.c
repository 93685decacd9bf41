#define _GNU_SOURCE
#include "wire_calls.h"

#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "transport/wire/tcp/wire_tcp.h"

#define CALL_NS (5 * SECOND)    /* too long for a connection */
#define ANSWER_NS (11 * SECOND) /* too long for a welcome, if there is something else to try */

static struct tcp_wire *calls_wire(const struct wire_rank *r)
{
    return (struct tcp_wire *)r->w;
}

/* The ranks of this test do not share their cards. */
static struct tcp_card *calls_card(struct wire_rank *r, int peer)
{
    return (struct tcp_card *)(uintptr_t)&calls_wire(r)->cards[peer];
}

/* From now on this rank knows the peer by n addresses: 127.0.0.1, and one at which there is nobody, or 127.0.0.1 again.
 */
static void calls_know(struct wire_rank *r, int peer, uint32_t n, bool nobody)
{
    static const unsigned char here[] = {127, 0, 0, 1}, nowhere[] = {224, 0, 0, 1};
    struct tcp_card *card = calls_card(r, peer);
    uint16_t port = card->at[0].port;
    for (card->n = 0; card->n < n; card->n++) {
        bool none = nobody && card->n;
        card->at[card->n] = (struct tcp_address){.family = 4, .prefix = 32, .loopback = !none, .port = port};
        memcpy(card->at[card->n].bytes, none ? nowhere : here, sizeof here);
    }
}

/* So much time has passed since the peer was called last, and nobody has looked. */
static void calls_age(struct wire_rank *r, int peer, int64_t ns)
{
    tcp_peer(calls_wire(r), peer)->since -= ns;
    calls_wire(r)->looked_at = 0;
}

static bool calls_readable(const struct tcp_peer *p, short events)
{
    return poll(&(struct pollfd){.fd = p->fd, .events = events}, 1, (int)(PATIENCE / MS)) == 1;
}

/* Both have mailed to each other: it must come. */
static void calls_meet(struct wire_rank *r)
{
    WIRE_UNTIL(r, r->arrived >= 1 || r->w->ops->gone(r->w, 1 - r->rank) != TRANSPORT_HERE);
    WIRE_CHECK(r, r->arrived >= 1 && r->w->ops->gone(r->w, 1 - r->rank) == TRANSPORT_HERE);
    r->arrived--; /* the barrier's own may be here already */
    wire_barrier(r);
}

static void calls_sign(struct wire_rank *r, int i)
{
    atomic_store(&r->job->signs[i], 1);
}

static void calls_await(struct wire_rank *r, int i)
{
    int64_t end = clock_now() + PATIENCE;
    while (!atomic_load(&r->job->signs[i]) && clock_now() < end)
        sched_yield();
    WIRE_CHECK(r, atomic_load(&r->job->signs[i]));
}

void calls_busy_body(struct wire_rank *r)
{
    struct tcp_peer *p = tcp_peer(calls_wire(r), 1 - r->rank);
    if (r->rank == 0) {
        calls_know(r, 1, 1, false);
        WIRE_OK(r, r->w->ops->mail(r->w, 1, "b", 1));
        WIRE_CHECK(r, p->link == TCP_CALLING && calls_readable(p, POLLOUT));
        calls_age(r, 1, CALL_NS);
        WIRE_CHECK(r, r->w->ops->gone(r->w, 1) == TRANSPORT_HERE);
        calls_know(r, 1, 2, false);
        WIRE_UNTIL(r, p->link == TCP_ASKING);
        calls_sign(r, 0);
        calls_await(r, 1);
        WIRE_CHECK(r, p->link == TCP_ASKING && calls_readable(p, POLLIN));
        calls_age(r, 1, ANSWER_NS);
        WIRE_CHECK(r, r->w->ops->gone(r->w, 1) == TRANSPORT_HERE && p->link == TCP_OPEN);
    } else {
        calls_await(r, 0);
        WIRE_UNTIL(r, p->link == TCP_OPEN);
        calls_sign(r, 1);
        WIRE_OK(r, r->w->ops->mail(r->w, 0, "b", 1));
    }
    calls_meet(r);
}

void calls_again_body(struct wire_rank *r)
{
    struct tcp_peer *p = tcp_peer(calls_wire(r), 1 - r->rank);
    const struct calls_case *c = r->arg;
    pid_t child = 0;
    if (r->rank == 0) {
        calls_know(r, 1, 2, c->nobody);
        WIRE_OK(r, r->w->ops->mail(r->w, 1, "b", 1));
        child = c->child ? fork() : 0;
        WIRE_CHECK(r, child >= 0);
        if (c->child && !child) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;)
                pause();
        }
        for (int i = 0; i < (c->nobody ? 5 : 1); i++) {
            WIRE_UNTIL(r, p->link == TCP_ASKING || r->w->ops->gone(r->w, 1) != TRANSPORT_HERE);
            WIRE_CHECK(r, r->w->ops->gone(r->w, 1) == TRANSPORT_HERE);
            calls_age(r, 1, ANSWER_NS);
            r->w->ops->progress(r->w);
        }
        WIRE_UNTIL(r, p->link != TCP_CALLING);
        calls_sign(r, 0);
    } else {
        calls_await(r, 0);
        WIRE_UNTIL(r, p->link == TCP_OPEN);
        WIRE_OK(r, r->w->ops->mail(r->w, 0, "b", 1));
    }
    calls_meet(r);
    if (child) {
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
}

void calls_crossed_body(struct wire_rank *r)
{
    struct tcp_peer *p = tcp_peer(calls_wire(r), 1 - r->rank);
    if (r->rank == 0) {
        struct tcp_answer answer;
        calls_know(r, 1, 2, false);
        WIRE_OK(r, r->w->ops->mail(r->w, 1, "b", 1));
        WIRE_UNTIL(r, p->link == TCP_ASKING);
        calls_sign(r, 0);
        calls_await(r, 1);
        WIRE_CHECK(r, p->link == TCP_ASKING && calls_readable(p, POLLIN));
        WIRE_CHECK(r, recv(p->fd, &answer, sizeof answer, MSG_WAITALL) == sizeof answer); /* has not come in time */
        calls_age(r, 1, ANSWER_NS);
        r->w->ops->gone(r->w, 1);
        WIRE_CHECK(r, p->link == TCP_CALLING);
    } else {
        calls_await(r, 0);
        WIRE_UNTIL(r, p->link == TCP_OPEN);
        WIRE_OK(r, r->w->ops->mail(r->w, 0, "b", 1));
        calls_sign(r, 1);
    }
    calls_meet(r);
}

void calls_taken_and_left_body(struct wire_rank *r)
{
    struct tcp_peer *p = tcp_peer(calls_wire(r), 1 - r->rank);
    if (r->rank == 0) {
        WIRE_OK(r, r->w->ops->mail(r->w, 1, "b", 1));
        WIRE_UNTIL(r, p->link == TCP_ASKING);
        calls_sign(r, 0);
        calls_await(r, 1);
        WIRE_UNTIL(r, r->w->ops->gone(r->w, 1) != TRANSPORT_HERE);
        WIRE_CHECK(r, r->arrived == 1 && r->w->ops->gone(r->w, 1) == TRANSPORT_LEFT);
        return;
    }
    calls_await(r, 0);
    WIRE_UNTIL(r, p->link == TCP_OPEN);
    WIRE_OK(r, r->w->ops->mail(r->w, 0, "b", 1));
    r->w->ops->close(r->w);
    r->w = NULL;
    calls_sign(r, 1);
}

void calls_farewell_body(struct wire_rank *r)
{
    struct tcp_peer *p = tcp_peer(calls_wire(r), 1 - r->rank);
    if (r->rank == *(int *)r->arg) {
        WIRE_OK(r, r->w->ops->mail(r->w, 1 - r->rank, "b", 1));
        WIRE_UNTIL(r, p->link == TCP_ASKING);
        r->w->failed = true; /* or it would wait for seconds */
        r->w->ops->close(r->w);
        r->w = NULL;
        calls_sign(r, 0);
        return;
    }
    calls_await(r, 0);
    WIRE_OK(r, r->w->ops->mail(r->w, 1 - r->rank, "b", 1));
    WIRE_UNTIL(r, r->w->ops->gone(r->w, 1 - r->rank) != TRANSPORT_HERE);
    WIRE_CHECK(r, r->arrived == 1 && r->w->ops->gone(r->w, 1 - r->rank) == TRANSPORT_LEFT);
}

void calls_files_body(struct wire_rank *r)
{
    struct rlimit before, none;
    WIRE_CHECK(r, !getrlimit(RLIMIT_NOFILE, &before));
    if (r->rank == 1) {
        int fd = dup(0); /* the lowest that is free, and so are those above it */
        WIRE_CHECK(r, fd >= 0);
        close(fd);
        none = (struct rlimit){.rlim_cur = (rlim_t)fd, .rlim_max = before.rlim_max};
        WIRE_CHECK(r, !setrlimit(RLIMIT_NOFILE, &none) && dup(0) < 0);
        calls_sign(r, 0);
        WIRE_UNTIL(r, atomic_load(&r->job->signs[1]));
        for (int64_t end = clock_now() + 250 * MS; clock_now() < end;) /* often enough to lose what can be lost */
            wire_pump(r);
        WIRE_CHECK(r, !setrlimit(RLIMIT_NOFILE, &before));
    } else {
        calls_await(r, 0);
    }
    WIRE_OK(r, r->w->ops->mail(r->w, 1 - r->rank, "b", 1));
    if (r->rank == 0) {
        WIRE_UNTIL(r, tcp_peer(calls_wire(r), 1)->link != TCP_CALLING);
        calls_sign(r, 1);
    }
    calls_meet(r);
}

void calls_reserve_body(struct wire_rank *r)
{
    struct tcp_peer *p = tcp_peer(calls_wire(r), 1 - r->rank);
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t n = sizeof at;
    int fd = r->rank ? -1 : socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (r->rank == 0) {
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        WIRE_CHECK(r, fd >= 0 && !bind(fd, (struct sockaddr *)&at, n) && !listen(fd, 4));
        WIRE_CHECK(r, !getsockname(fd, (struct sockaddr *)&at, &n));
        calls_know(r, 1, 1, false);
        calls_card(r, 1)->at[0].port = ntohs(at.sin_port);
    }
    WIRE_OK(r, r->w->ops->mail(r->w, 1 - r->rank, "b", 1));
    if (r->rank == 0) {
        WIRE_UNTIL(r, p->link == TCP_ASKING && p->reserve >= 0);
        calls_age(r, 1, ANSWER_NS);
    }
    calls_meet(r);
    if (fd >= 0)
        close(fd);
}

void calls_crowd_body(struct wire_rank *r)
{
    int fds[STRANGERS];
    if (r->rank == 0) {
        const struct tcp_card *card = &calls_wire(r)->cards[1];
        struct tcp_peer *p = tcp_peer(calls_wire(r), 1);
        WIRE_CHECK(r, tcp_proof_call(calls_wire(r), p));
        for (int i = 0; i < STRANGERS; i++) {
            fds[i] = wire_stranger(card, &p->call, i ? 0 : sizeof p->call);
            WIRE_CHECK(r, fds[i] >= 0);
        }
        calls_sign(r, 0);
        WIRE_CHECK(r, recv(fds[0], &p->answer, sizeof p->answer, MSG_WAITALL) == (ssize_t)sizeof p->answer);
        WIRE_CHECK(r, tcp_proof_answered(calls_wire(r), p));
        calls_sign(r, 1);
        for (int i = 0; i < STRANGERS; i++)
            close(fds[i]);
        return;
    }
    calls_await(r, 0);
    WIRE_UNTIL(r, calls_wire(r)->nnewcomers > STRANGERS / 4);
    WIRE_UNTIL(r, atomic_load(&r->job->signs[1]));
}

void calls_leave_body(struct wire_rank *r)
{
    unsigned char mail[WIRE_MAIL] = "b";
    if (r->rank == 1) {
        for (int i = 0; i < 20000; i++)
            WIRE_OK(r, r->w->ops->mail(r->w, 2, mail, sizeof mail));
        WIRE_UNTIL(r, tcp_peer(calls_wire(r), 2)->blocked);
        calls_sign(r, 1);
        r->w->ops->close(r->w);
        r->w = NULL;
        return;
    }
    if (r->rank == 2) {
        WIRE_UNTIL(r, tcp_peer(calls_wire(r), 1)->link == TCP_OPEN);
        calls_await(r, 0);
        WIRE_UNTIL(r, r->w->ops->gone(r->w, 1) != TRANSPORT_HERE);
        WIRE_CHECK(r, r->arrived == 20000 && r->w->ops->gone(r->w, 1) == TRANSPORT_LEFT);
        return;
    }
    calls_await(r, 1);
    WIRE_OK(r, r->w->ops->mail(r->w, 1, mail, sizeof mail));
    WIRE_UNTIL(r, tcp_peer(calls_wire(r), 1)->link >= TCP_OPEN);
    calls_sign(r, 0);
    WIRE_UNTIL(r, r->w->ops->gone(r->w, 1) != TRANSPORT_HERE);
    WIRE_CHECK(r, r->w->ops->gone(r->w, 1) == TRANSPORT_LEFT);
}
