/* Every host has a core of the whole group in its own shared memory. Meetings of several hosts are relay.c's.
 *
 * Failures: a rank that learns of a failure tells the ranks of other hosts that it has a connection with. One rank of
 * each host also tells the first ranks of the hosts next to its own in the tree of hosts (relay.h): the first rank that
 * claims it, by a word in the memory of the host. Each rank that hears it does the same. So the news reaches every rank
 * that is connected with others, by ranks that are in a call of weft. Each rank sends as many mails as it has
 * connections, and one of a host a few more. A rank whose neighbour in the tree is gone finds that out by itself.
 *
 * If the rank that has claimed it dies before its mails have left: the first rank of the host tells its neighbours
 * whether or not another rank has claimed it. If it dies, too, its neighbours notice that by themselves, since meetings
 * have connected them. If it is not in a call, another rank takes the claim over: each rank of the host that hears of
 * the failure later looks whether the rank with the claim lives, and so does each that asks for survivors or closes the
 * comm (mail_spread_again).
 *
 * Farewells: the first rank of a host tells those next to it in the tree. A rank that waits for messages of a rank on
 * another host asks the wire whether that rank has left.
 *
 * A failure is written into the core in the name of the rank that got the packet. */
#include "comm/mail.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/relay.h"
#include "comm/task.h"
#include "transport/hosts/hosts.h"

enum { FAILURE = MAIL_KIND(MAIL_COMM, 1), GOODBYE = MAIL_KIND(MAIL_COMM, 2) };

struct mail_packet {
    uint32_t kind;
    int32_t code;         /* FAILURE */
    char text[CORE_TEXT]; /* of the failure; the packet ends with the text */
};

struct mail {
    struct comm_task task; /* first member: a pointer to it is one to the mail */
    weft_comm *comm;
    mail_handler *handlers[MAIL_OWNERS];
    struct relay *relay; /* until mail_open hands it to the comm */
    bool told;           /* this rank has told others that the comm has failed */
};

_Static_assert(sizeof(struct mail_packet) <= WIRE_MAIL, "a packet fits");

/* ---- sending ---- */

int mail_send(weft_comm *c, int peer, const void *packet, size_t bytes)
{
    struct wire *wire = c->mail ? c->link->hosts->wire : NULL;
    return wire ? wire->ops->mail(wire, peer, packet, bytes) : 0;
}

static bool is_here(weft_comm *c, int rank)
{
    return c->transport->gone(c->link, rank) == TRANSPORT_HERE;
}

/* Sends to the ranks of other hosts that this rank is connected with. */
static void send_connected(weft_comm *c, const void *packet, size_t bytes)
{
    struct wire *wire = c->link->hosts->wire;
    for (int r = 0; r < c->size; r++)
        if (transport_elsewhere(c->link, r) && wire->ops->used(wire, r) && is_here(c, r))
            (void)mail_send(c, r, packet, bytes);
}

/* Sends to the first ranks of the hosts next to this rank's own in the tree of hosts, as far as it is not connected
 * with them. If the one above is gone, the next one above it takes its place. */
static void send_beside(weft_comm *c, const void *packet, size_t bytes)
{
    const struct transport_hosts *h = c->link->hosts;
    struct wire *wire = h->wire;
    int near[RELAY_HOSTS + 1], host = h->host[c->rank], n = relay_tree(host, h->nhosts, near);
    for (int i = 0; i < n; i++) {
        int above[RELAY_HOSTS + 1];
        while (near[i] && near[i] < host && !is_here(c, h->firsts[near[i]])) {
            relay_tree(near[i], h->nhosts, above);
            near[i] = above[0];
        }
        if (!wire->ops->used(wire, h->firsts[near[i]]))
            (void)mail_send(c, h->firsts[near[i]], packet, bytes);
    }
}

void mail_tell(weft_comm *c, const void *packet, size_t bytes, bool beside)
{
    if (c->mail && mail_is_wide(c))
        send_connected(c, packet, bytes);
    if (c->mail && mail_is_wide(c) && beside)
        send_beside(c, packet, bytes);
    for (int r = 0; c->mail && !mail_is_wide(c) && r < c->size; r++)
        if (transport_elsewhere(c->link, r) && is_here(c, r))
            (void)mail_send(c, r, packet, bytes);
}

static size_t length(const struct mail_packet *m)
{
    return offsetof(struct mail_packet, text) + strlen(m->text) + 1;
}

static void send_to_neighbours(weft_comm *c, const struct mail_packet *m)
{
    int ranks[RELAY_HOSTS + 1];
    for (int i = relay_neighbours(c, ranks) - 1; i >= 0; i--)
        (void)mail_send(c, ranks[i], m, length(m));
}

/* Is this rank from here on the one of its host that tells other hosts of the failure? It is if no other rank has
 * claimed that, or the one that has claimed it has died. */
static bool claim(weft_comm *c)
{
    _Atomic int32_t *speaks = &c->group->speaks;
    int32_t was = atomic_load_explicit(speaks, memory_order_seq_cst);
    if (was == c->rank + 1 || (was && c->transport->gone(c->link, was - 1) != TRANSPORT_DIED))
        return false;
    return atomic_compare_exchange_strong_explicit(speaks, &was, c->rank + 1, memory_order_seq_cst,
                                                   memory_order_seq_cst);
}

/* Tells the failure, once. */
static void spread(weft_comm *c, const struct mail_packet *m)
{
    if (c->mail->told)
        return;
    c->mail->told = true;
    send_connected(c, m, length(m));
    if (claim(c) || c->link->hosts->index[c->rank] == 0)
        send_beside(c, m, length(m));
}

/* ---- what comes ---- */

static void take(weft_comm *c, int peer, const void *packet, size_t n)
{
    struct mail_packet m;
    if (n <= offsetof(struct mail_packet, text) || n > sizeof m)
        return;
    memcpy(&m, packet, n);
    if (!memchr(m.text, 0, n - offsetof(struct mail_packet, text)))
        return;
    if (m.kind == FAILURE && m.code < 0) {
        core_fail(c->group, c->rank, m.code, m.text);
        spread(c, &m);
    } else if (m.kind == GOODBYE) {
        core_depart(c->group, peer);
    }
}

static bool receive(weft_comm *c)
{
    struct wire *wire = c->link->hosts->wire;
    bool moved = wire->ops->progress(wire);
    const void *bytes;
    size_t n;
    int peer;
    while (hosts_early_fetch(c->link->hosts, &peer, &bytes, &n)) {
        uint32_t kind = 0;
        moved = true;
        if (n < sizeof kind)
            continue;
        memcpy(&kind, bytes, sizeof kind);
        uint32_t owner = kind & 0xff;
        if (owner < MAIL_OWNERS && c->mail->handlers[owner])
            c->mail->handlers[owner](c, peer, bytes, n);
    }
    return moved;
}

void mail_handle(weft_comm *c, enum mail_owner owner, mail_handler *handler)
{
    if (c->mail)
        c->mail->handlers[owner] = handler;
}

void mail_receive(weft_comm *c)
{
    if (!c->mail)
        return;
    c->link->hosts->wire->failed = true;
    receive(c);
}

/* ---- the task ---- */

/* The mail lacks no signal: what it waits for comes by the wire, which wakes the thread that sleeps. */
static bool pass(struct comm_task *t, bool idle)
{
    (void)idle;
    weft_comm *c = ((struct mail *)t)->comm;
    bool moved = receive(c);
    size_t files = c->link->hosts->wire->files;
    if (files && !core_failed(c->group)) /* otherwise the peers that it cannot connect with would be blamed */
        comm_fail(c, WEFT_ETRANSPORT,
                  "rank %d may have %zu files open, which is too few for its connections: raise its "
                  "limit (ulimit -n)",
                  c->rank, files);
    return moved;
}

/* This rank has seen in the core that the comm has failed. */
static void tell_failure(struct comm_task *t)
{
    weft_comm *c = ((struct mail *)t)->comm;
    const char *text;
    int code = core_failure(c->group, &text);
    mail_failure(c, code, text);
}

static void mail_close(struct comm_task *t)
{
    weft_comm *c = ((struct mail *)t)->comm;
    const struct mail_packet m = {.kind = GOODBYE};
    if (c->link->hosts->index[c->rank] == 0)
        send_to_neighbours(c, &m); /* closing the wire flushes it */
    comm_task_remove(c, t);
    free(c->mail);
    c->mail = NULL;
}

static const struct comm_task_ops mail_task = {.pass = pass, .wire = true, .fail = tell_failure, .close = mail_close};

struct mail *mail_new(void)
{
    struct mail *m = calloc(1, sizeof *m);
    if (m && !(m->relay = relay_new())) {
        free(m);
        return NULL;
    }
    return m;
}

void mail_free(struct mail *m)
{
    if (m)
        free(m->relay);
    free(m);
}

void mail_open(weft_comm *c, struct mail *mail)
{
    mail->comm = c;
    mail->task.ops = &mail_task;
    c->mail = mail;
    mail_handle(c, MAIL_COMM, take);
    comm_task_add(c, &mail->task);
    relay_open(c, mail->relay);
    mail->relay = NULL;
}

/* ---- from the comm ---- */

bool mail_move(weft_comm *c)
{
    bool moved = false;
    weft_comm *k = c;
    do
        for (struct comm_task *t = k->mail && !core_failed(k->group) ? k->tasks : NULL; t; t = t->next)
            if (t->ops->wire)
                moved |= t->ops->pass(t, true);
    while ((k = k->sibling) != c);
    return moved;
}

bool mail_listen(const weft_comm *c, bool *wired, int64_t *ns)
{
    const weft_comm *k = c;
    do {
        if (!k->mail)
            continue;
        *wired = true;
        if (!hosts_sleep_arm(k->link))
            return false;
        *ns = hosts_sleep_nap(k->link, *ns);
    } while ((k = k->sibling) != c);
    return true;
}

bool mail_doubts(weft_comm *c)
{
    if (!c->mail || c->link->hosts->wire->ops->can.cancels)
        return false;
    receive(c);
    return core_failed(c->group);
}

void mail_flush(weft_comm *c, int64_t ns)
{
    if (!c->mail)
        return;
    struct wire *wire = c->link->hosts->wire;
    int64_t until = core_now() + ns;
    relay_move(c);
    while (!wire->ops->flushed(wire) && core_now() < until)
        if (!wire->ops->progress(wire))
            sched_yield();
}

void mail_failure(weft_comm *c, int code, const char *text)
{
    struct mail_packet m = {.kind = FAILURE, .code = code};
    if (!c->mail)
        return;
    snprintf(m.text, sizeof m.text, "%s", text);
    spread(c, &m);
}

/* The packet that tells the comm's failure. False: it has not failed, or is on one host. */
static bool failure(const weft_comm *c, struct mail_packet *m)
{
    const char *text;
    *m = (struct mail_packet){.kind = FAILURE, .code = c->mail ? core_failure(c->group, &text) : 0};
    if (m->code)
        snprintf(m->text, sizeof m->text, "%s", text);
    return m->code;
}

void mail_failure_to(weft_comm *c, int peer)
{
    struct mail_packet m;
    if (failure(c, &m) && c->transport->gone(c->link, peer) == TRANSPORT_HERE)
        (void)mail_send(c, peer, &m, length(&m));
}

void mail_spread_again(weft_comm *c)
{
    struct mail_packet m;
    if (!failure(c, &m))
        return;
    if (!c->mail->told)
        spread(c, &m);
    else if (claim(c))
        send_beside(c, &m, length(&m));
}
