/* Attacks on a wire of sockets. A stranger that has recorded connections and repeats them, as they were or changed,
 * does not get in. A rank of the group that sends nonsense costs its own connection, and no memory. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/random.h"
#include "support/share.h"
#include "support/suite.h"
#include "wire_bodies.h"
#include "wire_strangers.h"

#define CAMPAIGN 5150

static struct tcp_wire *wire_of(const struct wire_rank *r)
{
    return (struct tcp_wire *)r->w;
}

static void run(int n, void (*body)(struct wire_rank *))
{
    const char *failed = wire_run("tcp:", n, -1, body, NULL);
    if (failed)
        fail_msg("%s", failed);
}

/* ---- strangers ---- */

/* What somebody on the network has seen of a connection, from the caller and back, and a mail that was not there. */
struct record {
    struct tcp_call call;
    struct tcp_answer answer;
    struct tcp_proof proof;
    struct tcp_head head;
    char mail[8];
};

/* In memory that the ranks share: cards are not used any more when all wires are open. */
static struct record *record_of(const struct wire_rank *r, int from, int to)
{
    return (struct record *)(void *)r->job->cards[from * r->size + to];
}

/* True: the stranger was sent away without a word. Otherwise the connection stays open, or an answer came. */
static bool is_sent_away(struct wire_rank *r, const struct tcp_card *card, const void *says, size_t n)
{
    char byte;
    int fd = wire_stranger(card, says, n);
    ssize_t got = -1;
    errno = EAGAIN;
    for (int64_t end = clock_now() + PATIENCE; fd >= 0 && got < 0 && errno == EAGAIN && clock_now() < end;) {
        wire_pump(r);
        got = recv(fd, &byte, 1, MSG_DONTWAIT);
    }
    bool away = fd < 0 || got == 0 || (got < 0 && errno != EAGAIN);
    if (fd >= 0)
        close(fd);
    return away;
}

/* The stranger is a rank, so that it has a card with the addresses. It does not use its key here. Ranks 0 and 1 have
 * connected, in both directions of calls over the cases. */
static void replay_body(struct wire_rank *r)
{
    struct tcp_wire *w = wire_of(r);
    struct tcp_peer *p = tcp_peer(w, 1 - r->rank % 2);
    if (r->rank == 0) {
        WIRE_OK(r, r->w->ops->mail(r->w, 1, "b", 1));
        WIRE_UNTIL(r, p->link == TCP_OPEN);
        struct record *seen = record_of(r, 0, 1);
        *seen = (struct record){.call = p->call, .answer = p->answer, .proof = tcp_proof_make(w, p)};
        seen->head = (struct tcp_head){.kind = TCP_MAIL, .bytes = sizeof seen->mail};
        memcpy(seen->mail, "PWNED", 6);
        atomic_store(&r->job->signs[0], 1);
    }
    WIRE_UNTIL(r, atomic_load(&r->job->signs[0]) && (r->rank != 1 || r->arrived == 1));
    r->arrived = 0;
    for (int64_t i = 0; r->rank == 2 && i < test_share(600, 20000) / 2; i++) {
        struct random x = random_of(CAMPAIGN, i);
        struct record says = *record_of(r, 0, 1);
        int to = (int)random_in(&x, 0, 1);
        size_t n = i % 3 == 0 ? sizeof says.call : sizeof says;
        switch (i % 7) { /* 0: as it was */
        case 1: says.call.from = 2; break;
        case 2: says.call.number++; break;
        case 3: says.call.number = random_next(&x); break;
        case 4: says.call.nonce[random_in(&x, 0, TCP_NONCE - 1)] ^= (unsigned char)random_in(&x, 1, 255); break;
        case 5: says.call.mac[random_in(&x, 0, TCP_MAC - 1)] ^= (unsigned char)random_in(&x, 1, 255); break;
        case 6: /* back to its sender */
            says.call.from = 1;
            says.call.to = 0;
            memcpy(says.call.mac, i % 2 ? says.answer.mac : says.proof.mac, TCP_MAC);
            to = 0;
            break;
        default: break;
        }
        if (i % 2 && i % 7 != 6)
            says.call.to = (uint32_t)to;
        if (!is_sent_away(r, &w->cards[to], &says, n)) {
            wire_note(r, __FILE__, __LINE__, "case %lld got in", (long long)i);
            return;
        }
    }
    if (r->rank == 2)
        atomic_store(&r->job->signs[1], 1);
    WIRE_UNTIL(r, atomic_load(&r->job->signs[1]));
    wire_barrier(r); /* an unexpected mail would have been noted */
}

static void recorded_connections_cannot_be_replayed(void **state)
{
    (void)state;
    run(3, replay_body);
}

/* The stranger is faster than the rank whose call it has seen: it is answered, but has no proof, and the rank gets in
 * all the same. */
static void overtaken_body(struct wire_rank *r)
{
    struct tcp_wire *w = wire_of(r);
    int share = (int)test_share(8, 100), times = share > 4 ? share : 4; /* all four kinds of proofs */
    for (int i = 0; i < times && r->rank == 0; i++) {
        struct tcp_peer *p = tcp_peer(w, 1);
        struct record says = {.head = {.kind = TCP_MAIL, .bytes = sizeof says.mail}, .mail = "PWNED"};
        WIRE_CHECK(r, tcp_proof_call(w, p));
        says.proof.bytes = i % 2 ? sizeof says.head + sizeof says.mail : 0;
        int fd = wire_stranger(&w->cards[1], &p->call, sizeof p->call);
        WIRE_CHECK(r, fd >= 0 && recv(fd, &says.answer, sizeof says.answer, MSG_WAITALL) == sizeof says.answer);
        memcpy(says.proof.mac, i % 4 < 2 ? says.answer.mac : p->call.mac, TCP_MAC);
        size_t n = sizeof says - offsetof(struct record, proof);
        WIRE_CHECK(r, send(fd, &says.proof, n, MSG_NOSIGNAL) == (ssize_t)n);
        char byte;
        WIRE_CHECK(r, recv(fd, &byte, 1, 0) <= 0);
        close(fd);
    }
    if (r->rank == 0)
        atomic_store(&r->job->signs[0], 1);
    WIRE_UNTIL(r, atomic_load(&r->job->signs[0]));
    wire_mail_body(r);
}

static void stranger_that_overtakes_a_rank_has_no_proof(void **state)
{
    (void)state;
    run(2, overtaken_body);
}

/* ---- opening ---- */

static bool is_inside(int fd)
{
    struct sockaddr_storage at;
    socklen_t n = sizeof at;
    assert_false(getsockname(fd, (struct sockaddr *)&at, &n));
    if (at.ss_family == AF_INET)
        return (ntohl(((struct sockaddr_in *)&at)->sin_addr.s_addr) >> 24) == 127;
    return IN6_IS_ADDR_LOOPBACK(&((struct sockaddr_in6 *)&at)->sin6_addr);
}

static int alone_gather(void *arg, const void *mine, size_t bytes, void *all)
{
    memcpy(all, mine, bytes);
    memcpy((char *)all + bytes, mine, bytes);
    if (arg) /* rank 1 has another key */
        ((struct tcp_card *)all)[1].check[0] ^= 1;
    return 0;
}

static void sockets_listen_no_wider_than_needed(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) { /* all ranks are on this machine; one interface was chosen */
        struct wire_boot boot = {.size = 2, .gather = alone_gather, .local = i == 0};
        struct wire *w;
        if (i)
            setenv("WEFT_TCP_INTERFACE", "lo", 1);
        assert_int_equal(wire_open("tcp:", &boot, &w), 0);
        unsetenv("WEFT_TCP_INTERFACE");
        const struct tcp_wire *t = (const struct tcp_wire *)w;
        assert_true(t->nlisteners > 0);
        for (int k = 0; k < t->nlisteners; k++)
            assert_true(is_inside(t->listeners[k]));
        w->ops->close(w);
    }
}

static void ranks_with_different_tokens_are_told(void **state)
{
    (void)state;
    const unsigned char key[WIRE_KEY] = {1, 2, 3};
    struct wire_boot boot = {.size = 2, .gather = alone_gather, .arg = &boot, .key = key};
    struct wire *w;
    assert_int_equal(wire_open("tcp:", &boot, &w), WEFT_EMISMATCH);
    assert_non_null(strstr(weft_errmsg(), "WEFT_TOKEN"));
    boot.arg = NULL;
    assert_int_equal(wire_open("tcp:", &boot, &w), 0);
    w->ops->close(w);
}

/* ---- a rank that sends nonsense ---- */

static size_t kept(const struct tcp_wire *w)
{
    size_t bytes = 0;
    for (size_t i = 0; i < w->nbuckets; i++)
        for (const struct tcp_lane *l = w->buckets[i]; l; l = l->next)
            for (const struct tcp_arrival *a = l->first; a; a = a->next)
                bytes += a->bytes;
    return bytes;
}

static void hostile_head(struct random *x, struct tcp_head *h)
{
    h->kind = (uint32_t)(random_once_in(x, 8) ? random_next(x) : (uint64_t)random_in(x, TCP_MAIL, TCP_ABORT));
    h->bytes = (uint32_t)(random_once_in(x, 4) ? random_next(x) : (uint64_t)random_in(x, 0, 64));
    h->tag = random_once_in(x, 16) ? random_next(x) : (uint64_t)random_in(x, 0, 3);
    h->value = random_once_in(x, 3) ? random_next(x) : (uint64_t)random_in(x, 0, 20000);
    if (h->kind == TCP_DATA && !random_once_in(x, 8))
        h->value = h->bytes = (uint32_t)random_in(x, 0, 64);
    if (h->kind != TCP_DATA && h->kind != TCP_MAIL && !random_once_in(x, 8))
        h->bytes = 0;
}

/* A start of a small message that needs a grant does not wait, if the receiver has had the message before. */
static void granted_early_body(struct wire_rank *r)
{
    const struct wire_ops *o = r->w->ops;
    struct wire_message *m = NULL;
    uint64_t value = 0;
    WIRE_OK(r, o->make(r->w, 1 - r->rank, 3, &value, sizeof value, r->rank == 0, &m));
    for (uint64_t i = 0; i < 5 * WIRE_AHEAD; i++) {
        const bool last = i % WIRE_AHEAD == WIRE_AHEAD - 1;
        if (last) /* the receiver has had all messages before, and does not start meanwhile */
            wire_barrier(r);
        if (r->rank == 0)
            value = i;
        WIRE_OK(r, o->start(m));
        if (r->rank == 0 && last)
            WIRE_CHECK(r, ((struct tcp_message *)m)->state != TCP_WAITS);
        WIRE_UNTIL(r, o->test(m) != 0);
        WIRE_CHECK(r, o->test(m) == 1 && value == i);
        if (last)
            wire_barrier(r);
    }
    o->drop(m);
}

static void grants_of_small_messages_come_before_they_are_needed(void **state)
{
    (void)state;
    run(2, granted_early_body);
}

/* A small message is replaced when its next start has been granted. The large one that replaces it waits. */
static void granted_small_body(struct wire_rank *r)
{
    static unsigned char memory[2][100000];
    const struct wire_ops *o = r->w->ops;
    struct wire_message *small = NULL, *large = NULL;
    WIRE_OK(r, o->make(r->w, 1 - r->rank, 3, memory[r->rank], 8, r->rank == 0, &small));
    for (int i = 0; i < WIRE_AHEAD - 1; i++) {
        WIRE_OK(r, o->start(small));
        WIRE_UNTIL(r, o->test(small) == 1);
    }
    wire_barrier(r);
    WIRE_OK(r, o->make(r->w, 1 - r->rank, 3, memory[r->rank], sizeof memory[0], r->rank == 0, &large));
    o->drop(small);
    if (r->rank == 0) {
        wire_fill(memory[0], sizeof memory[0], 1);
        WIRE_OK(r, o->start(large));
        WIRE_CHECK(r, ((struct tcp_message *)large)->state == TCP_WAITS);
    }
    wire_barrier(r);
    if (r->rank == 1)
        WIRE_OK(r, o->start(large));
    WIRE_UNTIL(r, o->test(large) == 1);
    WIRE_CHECK(r, wire_differs(memory[r->rank], sizeof memory[0], 1) == sizeof memory[0]);
    wire_barrier(r);
    o->drop(large);
}

static void grant_of_a_small_message_is_not_for_a_large_one(void **state)
{
    (void)state;
    run(2, granted_small_body);
}

/* One connection, until it is ended or has sent enough. Receives are started before or after, or not at all. */
static int64_t hostile_connection(int64_t number, int64_t most)
{
    struct random x = random_of(CAMPAIGN + 1, number);
    struct wire_boot boot = {.rank = 0, .size = 2, .gather = alone_gather, .local = true, .wait_ns = SECOND};
    struct wire *base;
    struct wire_message *m[4] = {NULL};
    unsigned char memory[4][16384];
    int ends[2];
    int64_t sent = 0;
    assert_int_equal(wire_open("tcp:", &boot, &base), 0);
    struct tcp_wire *w = (struct tcp_wire *)base;
    struct tcp_peer *p = tcp_peer(w, 1);
    assert_false(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends));
    p->fd = ends[0];
    p->link = TCP_OPEN;
    w->used = p;
    p->next_used = NULL;
    assert_true(tcp_link_watch(w, 1, p->fd, 1, p)); /* EPOLL_CTL_ADD, EPOLLIN */
    for (int i = 0; i < 4; i++) {
        bool send = random_once_in(&x, 3);
        if (!random_once_in(&x, 4))
            assert_int_equal(
                base->ops->make(base, 1, (uint64_t)i, memory[i], (size_t)random_in(&x, 0, 16384), send, &m[i]), 0);
        if (m[i] && !send && random_once_in(&x, 2))
            m[i]->loose = true;
    }
    while (sent < most && p->link == TCP_OPEN) {
        struct tcp_head h;
        unsigned char body[64];
        for (size_t i = 0; i < sizeof body; i++)
            body[i] = (unsigned char)random_next(&x);
        hostile_head(&x, &h);
        size_t n = h.bytes < sizeof body ? h.bytes : sizeof body;
        if (send(ends[1], &h, sizeof h, MSG_NOSIGNAL) < 0 || (n && send(ends[1], body, n, MSG_NOSIGNAL) < 0))
            break;
        sent++;
        int i = (int)random_in(&x, 0, 3);
        if (m[i] && base->ops->test(m[i]) == 1 && random_once_in(&x, 2))
            base->ops->start(m[i]);
        else if (m[i] && random_once_in(&x, 16))
            base->ops->cancel(m[i]);
        base->ops->progress(base);
        const void *bytes;
        size_t got;
        int peer;
        while (base->ops->fetch(base, &peer, &bytes, &got))
            assert_in_range(got, 1, WIRE_MAIL);
        assert_true(kept(w) <= (size_t)(2 * WIRE_AHEAD + 2) * TCP_EAGER * w->nlanes);
        unsigned char back[4096];
        while (recv(ends[1], back, sizeof back, 0) > 0)
            ;
    }
    for (int i = 0; i < 4; i++)
        base->ops->drop(m[i]);
    base->failed = true;
    base->ops->close(base);
    close(ends[1]);
    return sent ? sent : 1;
}

static void hostile_frames_cost_a_connection_and_no_memory(void **state)
{
    (void)state;
    int64_t frames = 0, all = test_share(20000, 1000000);
    for (int64_t i = 0; frames < all && suite_seed(&i, 0, all); i++)
        frames += hostile_connection(i, 200);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_connections_cannot_be_replayed),
        cmocka_unit_test(stranger_that_overtakes_a_rank_has_no_proof),
        cmocka_unit_test(sockets_listen_no_wider_than_needed),
        cmocka_unit_test(ranks_with_different_tokens_are_told),
        cmocka_unit_test(grants_of_small_messages_come_before_they_are_needed),
        cmocka_unit_test(grant_of_a_small_message_is_not_for_a_large_one),
        cmocka_unit_test(hostile_frames_cost_a_connection_and_no_memory),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
