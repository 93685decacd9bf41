/* What a wire of sockets takes for the death of a peer, and what not. Packets are lost by a filter on the sockets of
 * this test: it drops what comes in before TCP sees it. Hosts are played: the ranks are told by their cards that they
 * are in different network namespaces, and reach each other by 127.0.0.2. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "support/share.h"
#include "support/suite.h"
#include "transport/wire/tcp/wire_tcp.h"
#include "wire_ranks.h"

#define NAMED_NS (5 * SECOND)   /* within which a host that vanishes is named, ... */
#define LOADED_NS (12 * SECOND) /* ... and on a busy machine */

static struct tcp_wire *wire_of(const struct wire_rank *r)
{
    return (struct tcp_wire *)r->w;
}

/* ---- lost packets ---- */

/* From now on what comes for the socket is lost: all, or packets without data (probes, and the answers to them). */
static bool deafen(int fd, bool all)
{
    struct sock_filter drop[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
    struct sock_filter probes[] = {
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 12), /* the length of TCP's head, in words, is in the upper four bits */
        BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 4),
        BPF_STMT(BPF_ALU | BPF_LSH | BPF_K, 2),
        BPF_STMT(BPF_MISC | BPF_TAX, 0),
        BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_X, 0, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 0),
        BPF_STMT(BPF_RET | BPF_K, 0xffffffff)};
    struct sock_fprog filter = {all ? 1 : sizeof probes / sizeof *probes, all ? drop : probes};
    return !setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter);
}

static bool hear(int fd)
{
    int nothing = 0;
    return !setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &nothing, sizeof nothing);
}

static bool is_probed(int fd)
{
    int on = -1;
    socklen_t n = sizeof on;
    return getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, &n) || on;
}

/* All ranks come here, without a packet; `where` is used once. A rank that has failed does not come. */
static void meet(struct wire_rank *r, int where)
{
    if (r->failed[0])
        return;
    atomic_fetch_add(&r->job->signs[where], 1);
    WIRE_UNTIL(r, atomic_load(&r->job->signs[where]) == r->size);
}

/* Lets things move for a while, in which no peer may be gone. */
static void idle(struct wire_rank *r, int64_t ns)
{
    for (int64_t end = clock_now() + ns; clock_now() < end;) {
        wire_pump(r);
        for (int i = 0; i < r->size; i++)
            WIRE_CHECK(r, i == r->rank || r->w->ops->gone(r->w, i) == TRANSPORT_HERE);
    }
}

/* All ranks are connected with all others. */
static void connect_all(struct wire_rank *r)
{
    for (int i = 0; i < r->size; i++)
        if (i != r->rank)
            WIRE_OK(r, r->w->ops->mail(r->w, i, "b", 1));
    WIRE_UNTIL(r, r->arrived == r->size - 1);
    for (int i = 0; i < r->size; i++)
        WIRE_UNTIL(r, i == r->rank || tcp_peer(wire_of(r), i)->link == TCP_OPEN);
    r->arrived = 0;
    meet(r, 1);
}

/* Before the ranks have connected: host[i] is the host of rank i. */
static void play_hosts(struct wire_rank *r, const int *host)
{
    static const unsigned char there[] = {127, 0, 0, 2}, here[] = {192, 0, 2, 1};
    struct tcp_wire *w = wire_of(r);
    for (int i = 0; i < r->size; i++) {
        struct tcp_card *c = (struct tcp_card *)(uintptr_t)&w->cards[i]; /* the ranks do not share it */
        c->net = 1000 + (uint64_t)host[i];
        uint16_t port = c->at[0].port;
        c->n = 1;
        c->at[0] = (struct tcp_address){.family = 4, .prefix = 32, .loopback = host[i] == host[r->rank], .port = port};
        memcpy(c->at[0].bytes, i == r->rank ? here : there, sizeof here);
    }
}

static void run(int n, void (*body)(struct wire_rank *))
{
    const char *failed = wire_run("tcp:", n, -1, body, NULL);
    if (failed)
        fail_msg("%s", failed);
}

/* ---- the own machine ---- */

static void silent_loopback_body(struct wire_rank *r)
{
    connect_all(r);
    for (int i = 0; i < r->size && !r->failed[0]; i++)
        WIRE_CHECK(r, i == r->rank ||
                          (!is_probed(tcp_peer(wire_of(r), i)->fd) && deafen(tcp_peer(wire_of(r), i)->fd, true)));
    idle(r, 6 * SECOND);
    if (r->failed[0])
        return;
    for (int i = 0; i < r->size; i++)
        WIRE_CHECK(r, i == r->rank || hear(tcp_peer(wire_of(r), i)->fd));
    meet(r, 2);
    wire_barrier(r);
}

static void packets_lost_inside_a_machine_kill_nobody(void **state)
{
    (void)state;
    run(3, silent_loopback_body);
}

/* ---- other hosts ---- */

static void lost_probes_body(struct wire_rank *r)
{
    play_hosts(r, (const int[]){0, 1});
    connect_all(r);
    struct tcp_peer *p = tcp_peer(wire_of(r), 1 - r->rank);
    WIRE_UNTIL(r, is_probed(p->fd));
    WIRE_CHECK(r, deafen(p->fd, false));
    idle(r, 8 * SECOND);
    if (r->failed[0])
        return;
    WIRE_CHECK(r, p->alive_at > 0); /* it was doubted */
    WIRE_CHECK(r, hear(p->fd));
    meet(r, 2);
    wire_barrier(r);
}

static void lost_probes_are_cleared_up_by_asking_the_listener(void **state)
{
    (void)state;
    run(2, lost_probes_body);
}

/* Ranks 1 and 2 are one host, and vanish. */
static void vanish_body(struct wire_rank *r)
{
    play_hosts(r, (const int[]){0, 1, 1, 3});
    connect_all(r);
    struct tcp_wire *w = wire_of(r);
    idle(r, SECOND / 2);
    WIRE_CHECK(r, r->rank % 3 || is_probed(tcp_peer(w, 1)->fd) + is_probed(tcp_peer(w, 2)->fd) == 1);
    meet(r, 2);
    int64_t from = clock_now();
    if (r->rank % 3) {
        for (int i = 0; i < r->size; i++)
            WIRE_CHECK(r, i == r->rank || deafen(tcp_peer(w, i)->fd, true));
        WIRE_CHECK(r, w->nlisteners == 1 && deafen(w->listeners[0], true));
    } else {
        WIRE_UNTIL(r, r->w->ops->gone(r->w, 1) != TRANSPORT_HERE && r->w->ops->gone(r->w, 2) != TRANSPORT_HERE);
        WIRE_CHECK(r, r->w->ops->gone(r->w, 1) == TRANSPORT_LOST && r->w->ops->gone(r->w, 2) == TRANSPORT_LOST);
        WIRE_CHECK(r, r->w->ops->gone(r->w, 3 - r->rank) == TRANSPORT_HERE);
        WIRE_CHECK(r, r->w->ops->mail(r->w, 1, "x", 1) == WEFT_EPEER && strstr(weft_errmsg(), "cannot be reached"));
    }
    int64_t took = r->rank % 3 ? 0 : clock_now() - from;
    if (took > NAMED_NS)
        print_message("rank %d saw it after %lld ms\n", r->rank, (long long)(took / MS));
    WIRE_CHECK(r, took < LOADED_NS);
    r->w->failed = true;
    meet(r, 3);
}

static void host_that_vanishes_is_lost_in_time(void **state)
{
    (void)state;
    run(4, vanish_body);
}

/* Rank 1 resets its connection with rank 0, as a device between the two might. */
static void cut_body(struct wire_rank *r)
{
    connect_all(r);
    if (r->rank == 1) {
        const struct sockaddr none = {.sa_family = AF_UNSPEC};
        WIRE_CHECK(r, !connect(tcp_peer(wire_of(r), 0)->fd, &none, sizeof none));
        WIRE_UNTIL(r, atomic_load(&r->job->signs[0]));
    } else {
        WIRE_UNTIL(r, r->w->ops->gone(r->w, 1) != TRANSPORT_HERE);
        WIRE_CHECK(r, r->w->ops->gone(r->w, 1) == TRANSPORT_LOST);
        atomic_store(&r->job->signs[0], 1);
    }
}

static void peer_whose_connection_was_cut_is_not_dead(void **state)
{
    (void)state;
    run(2, cut_body);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packets_lost_inside_a_machine_kill_nobody),
        cmocka_unit_test(lost_probes_are_cleared_up_by_asking_the_listener),
        cmocka_unit_test(host_that_vanishes_is_lost_in_time),
        cmocka_unit_test(peer_whose_connection_was_cut_is_not_dead),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
