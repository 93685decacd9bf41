/* Every host has a core of the whole group in its own shared memory. What the core says about ranks of other hosts came
 * by mail.
 *
 * Votes: the first rank of a host sends the votes of its host's ranks to the first ranks of the other hosts. It puts
 * the votes that it gets from these into the core, where all ranks of its host find them. It is in the same meeting as
 * the ranks that it does this for, so it does not leave while they need it. A vote of meeting m + 2 replaces that of m:
 * a rank that has entered m + 2 knew all votes of m + 1, and so every rank here has left m.
 *
 * Failures: a rank that has failed tells every rank of other hosts itself, since the first rank of a host may be the
 * one that is gone. Farewells go the way of votes, and so come after them. Only first ranks send farewells: the first
 * rank of a host sees, in the same meeting, that another rank of its host has left. A rank that waits for messages of a
 * rank on another host asks the wire whether that rank has left.
 *
 * A vote is written into the core in the name of its rank, a failure in the name of the rank that got the packet. */
#include "comm/mail.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/task.h"
#include "transport/hosts/hosts.h"

enum {
    VOTE = MAIL_KIND(MAIL_COMM, 1),
    FAILURE = MAIL_KIND(MAIL_COMM, 2),
    GOODBYE = MAIL_KIND(MAIL_COMM, 3),
};

struct mail_packet {
    uint32_t kind;
    int32_t rank; /* the rank that the packet is about */
    union {
        struct {
            uint64_t meeting, object, digest, place, note;
            uint32_t call;
            int32_t code;
        } vote;
        struct {
            int32_t code;
        } failure;
    };
    char text[CORE_TEXT]; /* text of a vote or a failure, if any; the packet ends with the text */
};

struct mail {
    struct comm_task task; /* first member: a pointer to it is one to the mail */
    weft_comm *comm;
    mail_handler *handlers[MAIL_OWNERS];
};

_Static_assert(sizeof(struct mail_packet) <= WIRE_MAIL, "a packet fits");

/* ---- sending ---- */

int mail_send(weft_comm *c, int peer, const void *packet, size_t bytes)
{
    struct wire *wire = c->mail ? c->link->hosts->wire : NULL;
    return wire ? wire->ops->mail(wire, peer, packet, bytes) : 0;
}

void mail_send_all(weft_comm *c, const void *packet, size_t bytes)
{
    for (int r = 0; c->mail && r < c->size; r++)
        if (transport_elsewhere(c->link, r) && c->transport->gone(c->link, r) == TRANSPORT_HERE)
            (void)mail_send(c, r, packet, bytes);
}

static size_t length(const struct mail_packet *m)
{
    return offsetof(struct mail_packet, text) + strlen(m->text) + 1;
}

static void send_to_hosts(weft_comm *c, const struct mail_packet *m)
{
    const struct transport_hosts *hosts = c->link->hosts;
    for (int h = 0; h < hosts->nhosts; h++)
        if (hosts->firsts[h] != c->rank)
            (void)mail_send(c, hosts->firsts[h], m, length(m));
}

/* ---- votes ---- */

static void pass_on(weft_comm *c, int rank, uint64_t meeting)
{
    const struct core_vote *v = core_vote_of(c->group, rank, meeting);
    struct mail_packet m = {.kind = VOTE, .rank = rank};
    m.vote.meeting = meeting;
    m.vote.object = v->object;
    m.vote.digest = v->digest;
    m.vote.place = v->place;
    m.vote.note = v->note;
    m.vote.call = v->call;
    m.vote.code = v->code;
    if (v->code)
        snprintf(m.text, sizeof m.text, "%s", v->text);
    send_to_hosts(c, &m);
}

/* Called by the first rank of a host: passes on votes of its ranks that the other hosts do not know yet. */
static bool pass_on_votes(weft_comm *c)
{
    bool moved = false;
    if (c->link->hosts->near[c->rank] != 0)
        return false;
    for (int r = 0; r < c->size; r++) {
        if (transport_elsewhere(c->link, r))
            continue;
        for (; core_entered(c->group, r, c->link->hosts->told[r]); moved = true)
            pass_on(c, r, c->link->hosts->told[r]++);
    }
    return moved;
}

/* ---- what comes ---- */

/* Is the packet well formed, and may its sender say that of the rank? A rank speaks for itself. The first rank of a
 * host also votes for the others of its host. */
static bool is_sound(const weft_comm *c, int peer, const struct mail_packet *m, size_t n)
{
    const struct transport_hosts *h = c->link->hosts;
    size_t text = n - offsetof(struct mail_packet, text);
    if (n <= offsetof(struct mail_packet, text) || n > sizeof *m || m->rank < 0 || m->rank >= c->size ||
        !transport_elsewhere(c->link, m->rank) || !memchr(m->text, 0, text))
        return false;
    if (m->kind == VOTE)
        return h->host[peer] == h->host[m->rank] && h->firsts[h->host[peer]] == peer;
    return m->rank == peer;
}

static void take(weft_comm *c, int peer, const void *packet, size_t n)
{
    struct mail_packet m;
    memcpy(&m, packet, n < sizeof m ? n : sizeof m);
    if (!is_sound(c, peer, &m, n))
        return;
    switch (m.kind) {
    case VOTE: {
        struct core_vote v = {.call = m.vote.call,
                              .code = m.vote.code,
                              .object = m.vote.object,
                              .digest = m.vote.digest,
                              .place = m.vote.place,
                              .note = m.vote.note};
        snprintf(v.text, sizeof v.text, "%s", m.text);
        core_put_vote(c->group, m.rank, m.vote.meeting, &v);
        break;
    }
    case FAILURE: core_fail(c->group, c->rank, m.failure.code, m.text); break;
    case GOODBYE:
        atomic_store_explicit(&c->group->ranks[peer].state, CORE_LEFT, memory_order_seq_cst);
        core_ring_all(c->group);
        break;
    default: break; /* cannot happen: the other end has the same version */
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
    moved |= pass_on_votes(c);
    size_t files = c->link->hosts->wire->files;
    if (files && !core_failed(c->group)) /* otherwise the peers that it cannot connect with would be blamed */
        comm_fail(c, WEFT_ETRANSPORT,
                  "rank %d may have %zu files open, which is too few for its connections: raise its "
                  "limit (ulimit -n)",
                  c->rank, files);
    return moved;
}

static void mail_close(struct comm_task *t)
{
    weft_comm *c = ((struct mail *)t)->comm;
    struct mail_packet m = {.kind = GOODBYE, .rank = c->rank};
    if (c->link->hosts->near[c->rank] == 0) {
        pass_on_votes(c);
        send_to_hosts(c, &m); /* closing the wire flushes it */
    }
    comm_task_remove(c, t);
    free(c->mail);
    c->mail = NULL;
}

static const struct comm_task_ops mail_task = {.pass = pass, .wire = true, .close = mail_close};

struct mail *mail_new(void)
{
    return calloc(1, sizeof(struct mail));
}

void mail_open(weft_comm *c, struct mail *mail)
{
    mail->comm = c;
    mail->task.ops = &mail_task;
    c->mail = mail;
    mail_handle(c, MAIL_COMM, take);
    comm_task_add(c, &mail->task);
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
    pass_on_votes(c);
    while (!wire->ops->flushed(wire) && core_now() < until)
        if (!wire->ops->progress(wire))
            sched_yield();
}

void mail_failure(weft_comm *c, int code, const char *text)
{
    struct mail_packet m = {.kind = FAILURE, .rank = c->rank};
    if (!c->mail)
        return;
    m.failure.code = code;
    snprintf(m.text, sizeof m.text, "%s", text);
    mail_send_all(c, &m, length(&m));
}

void mail_failure_to(weft_comm *c, int peer)
{
    struct mail_packet m = {.kind = FAILURE, .rank = c->rank};
    const char *text;
    m.failure.code = core_failure(c->group, &text);
    if (!c->mail || !m.failure.code || c->transport->gone(c->link, peer) != TRANSPORT_HERE)
        return;
    snprintf(m.text, sizeof m.text, "%s", text);
    (void)mail_send(c, peer, &m, length(&m));
}
