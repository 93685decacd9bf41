/* Every host has a core of the whole group in its own shared memory. Of far ranks it has what came by mail.
 *
 * Votes: the first rank of a host passes on what the ranks of its host have voted to the first ranks of the
 * others, and puts what it gets from these into the core, where all its neighbours find it. It is in the same
 * meeting as those for whom it does this, so it is there as long as it is needed. A vote of meeting m + 2
 * takes the place of that of m: whoever has entered m + 2 knew all votes of m + 1, and so every rank here
 * has left m.
 *
 * Failures go from who has them to every far rank: the first rank of a host may be the one that is gone.
 * Farewells go the way of votes, and so come after those: of the first ranks only, since for any other it is
 * the first of its host, in the same meeting, who sees that it has left. Who waits for messages of a far rank
 * asks the wire whether it has left.
 *
 * A vote is written into the core as by the rank that it is of, a failure as by the one that got the mail. */
#include "comm/mail.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/split.h"
#include "comm/survive.h"
#include "engine/ways/far.h"
#include "exchange/pipe.h"
#include "window/remote.h"

#define PULSE_NS INT64_C(250000000)

enum kind { VOTE = 1, FAILURE, PULSE, FREED, GOODBYE, SURVIVES, VERDICT, SPLIT, PIPE };

struct letter {
    uint32_t kind;
    int32_t rank; /* of whom it speaks */
    union {
        struct {
            uint64_t meeting, object, digest, place, note;
            uint32_t call;
            int32_t code;
        } vote;
        struct {
            int32_t code;
        } failure;
        struct {
            uint64_t exec, run;
        } pulse; /* and freed */
        struct {
            uint32_t times, bytes;
        } survival;
        struct split_mail split;
        struct pipe_mail pipe;
    };
    char text[CORE_TEXT]; /* of a vote or a failure that has one, or bytes; what is mailed ends with it */
};

struct mail {
    struct comm_task task;
    weft_comm *comm;
    int64_t pulsed_at;
};

_Static_assert(sizeof(struct letter) <= WIRE_MAIL, "a mail fits");

/* Bytes that are no text; SIZE_MAX: there is a text. */
static size_t bytes_of(const struct letter *m)
{
    return m->kind == VERDICT ? m->survival.bytes : m->kind == SPLIT ? m->split.bytes : SIZE_MAX;
}

static size_t length(const struct letter *m)
{
    size_t bytes = bytes_of(m);
    return offsetof(struct letter, text) + (bytes == SIZE_MAX ? strlen(m->text) : bytes) + 1;
}

static void send_to(weft_comm *c, int peer, const struct letter *m)
{
    struct wire *wire = c->link->hosts->wire;
    /* A peer that cannot be reached is seen by who waits for it. */
    (void)wire->ops->mail(wire, peer, m, length(m));
}

static void send_to_hosts(weft_comm *c, const struct letter *m)
{
    const struct transport_hosts *hosts = c->link->hosts;
    for (int h = 0; h < hosts->nhosts; h++)
        if (hosts->firsts[h] != c->rank)
            send_to(c, hosts->firsts[h], m);
}

static void send_to_all(weft_comm *c, const struct letter *m)
{
    for (int r = 0; r < c->size; r++)
        if (transport_far(c->link, r) && c->transport->gone(c->link, r) == TRANSPORT_HERE)
            send_to(c, r, m);
}

/* ---- votes ---- */

static void pass_on(weft_comm *c, int rank, uint64_t meeting)
{
    const struct core_vote *v = core_vote_of(c->group, rank, meeting);
    struct letter m = {.kind = VOTE, .rank = rank};
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

/* The first rank of a host: votes of its ranks that the other hosts have yet to hear of. */
static bool pass_on_votes(weft_comm *c)
{
    bool moved = false;
    if (c->link->hosts->near[c->rank] != 0)
        return false;
    for (int r = 0; r < c->size; r++) {
        if (transport_far(c->link, r))
            continue;
        for (; core_entered(c->group, r, c->link->hosts->told[r]); moved = true)
            pass_on(c, r, c->link->hosts->told[r]++);
    }
    return moved;
}

/* ---- what comes ---- */

static void take(weft_comm *c, int peer, const struct letter *m)
{
    switch (m->kind) {
    case VOTE: {
        struct core_vote v = {.call = m->vote.call,
                              .code = m->vote.code,
                              .object = m->vote.object,
                              .digest = m->vote.digest,
                              .place = m->vote.place,
                              .note = m->vote.note};
        snprintf(v.text, sizeof v.text, "%s", m->text);
        core_put_vote(c->group, m->rank, m->vote.meeting, &v);
        break;
    }
    case FAILURE: core_fail(c->group, c->rank, m->failure.code, m->text); break;
    case PULSE:
        for (weft_exec *x = c->first; x; x = x->next_exec)
            if (x->id == m->pulse.exec)
                far_heard(x, peer, m->pulse.run, core_now());
        break;
    case FREED:
        for (weft_exec *x = c->bound; x; x = x->bound_next)
            if (x->id == m->pulse.exec)
                far_freed(x, peer, m->pulse.run);
        break;
    case GOODBYE:
        atomic_store_explicit(&c->group->ranks[peer].state, CORE_LEFT, memory_order_seq_cst);
        core_ring_all(c->group);
        break;
    case SURVIVES:
        atomic_store_explicit(&c->group->ranks[peer].survives, m->survival.times, memory_order_seq_cst);
        break;
    case VERDICT: survive_heard(c, peer, m->survival.times, m->text, m->survival.bytes); break;
    case PIPE: pipe_far_heard(c, peer, &m->pipe); break;
    case SPLIT: split_heard(c, peer, &m->split, m->text); break;
    default: break; /* the same version is at the other end; bytes that are not ours cannot come */
    }
}

/* Is it a mail at all, and of a rank that may speak of that rank? */
static bool is_sound(const weft_comm *c, const struct letter *m, size_t n)
{
    size_t text = n - offsetof(struct letter, text), bytes = bytes_of(m);
    return n > offsetof(struct letter, text) && n <= sizeof *m && m->rank >= 0 && m->rank < c->size &&
           transport_far(c->link, m->rank) && text <= sizeof m->text &&
           (bytes == SIZE_MAX ? memchr(m->text, 0, text) != NULL : bytes < text);
}

static bool receive(weft_comm *c)
{
    struct wire *wire = c->link->hosts->wire;
    bool moved = wire->ops->progress(wire);
    const void *bytes;
    size_t n;
    int peer;
    while (hosts_early_fetch(c->link->hosts, &peer, &bytes, &n)) {
        struct letter m;
        moved = true;
        if (remote_is(bytes, n)) {
            remote_take(c, peer, bytes, n);
            continue;
        }
        memcpy(&m, bytes, n < sizeof m ? n : sizeof m);
        if (is_sound(c, &m, n))
            take(c, peer, &m);
    }
    return remote_move(c) || moved;
}

static bool pass(struct comm_task *t, bool eager)
{
    (void)eager;
    weft_comm *c = ((struct mail *)t)->comm;
    bool moved = receive(c);
    moved |= pass_on_votes(c);
    return split_pass_on(c) || moved;
}

/* What it waits for comes by the wire, which wakes whoever sleeps for it. */
static int lacking(struct comm_task *t)
{
    (void)t;
    return 0;
}

/* ---- being at work ---- */

/* Where a peer has channels both ways it is told twice, which does no harm. */
static void tell_peers(const weft_exec *x, uint32_t kind)
{
    struct letter m = {.kind = kind, .rank = x->comm->rank};
    m.pulse.exec = x->id;
    m.pulse.run = x->run;
    for (uint32_t i = 0; i < x->program->far.n; i++)
        send_to(x->comm, x->program->far.channels[i].peer, &m);
}

void mail_freed(const weft_exec *x)
{
    tell_peers(x, FREED);
}

/* Those who wait for this rank hear so often that it is at work: they have to tell it from one that has stalled. */
static void pulse(weft_comm *c)
{
    for (const weft_exec *x = c->first; x; x = x->next_exec)
        tell_peers(x, PULSE);
}

static void watch(struct comm_task *t, int64_t now)
{
    struct mail *mail = (struct mail *)t;
    weft_comm *c = mail->comm;
    remote_watch(c);
    int64_t every = c->deadline_ns / 8 < PULSE_NS ? c->deadline_ns / 8 : PULSE_NS;
    if (now - mail->pulsed_at < every)
        return;
    mail->pulsed_at = now;
    pulse(c);
}

static void fail(struct comm_task *t)
{
    remote_fail(((struct mail *)t)->comm); /* whoever failed the comm has told the others */
}

struct mail *mail_new(void)
{
    return calloc(1, sizeof(struct mail));
}

void mail_open(weft_comm *c, struct mail *mail)
{
    mail->comm = c;
    mail->task.pass = pass;
    mail->task.lacking = lacking;
    mail->task.watch = watch;
    mail->task.fail = fail;
    c->mail = mail;
    comm_task_add(c, &mail->task);
}

/* ---- from the comm ---- */

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

bool mail_move_kin(weft_comm *c)
{
    bool moved = false;
    weft_comm *k = c;
    do
        if (k->mail && !core_failed(k->group))
            moved |= k->mail->task.pass(&k->mail->task, true);
    while ((k = k->kin) != c);
    return moved;
}

bool mail_doubts(weft_comm *c)
{
    if (c->link->hosts->wire->ops->can.cancels)
        return false;
    receive(c);
    return core_failed(c->group);
}

void mail_failure(weft_comm *c, int code, const char *text)
{
    struct letter m = {.kind = FAILURE, .rank = c->rank};
    if (!c->mail)
        return;
    m.failure.code = code;
    snprintf(m.text, sizeof m.text, "%s", text);
    send_to_all(c, &m);
}

void mail_failure_to(weft_comm *c, int peer)
{
    struct letter m = {.kind = FAILURE, .rank = c->rank};
    const char *text;
    m.failure.code = core_failure(c->group, &text);
    if (!c->mail || !m.failure.code || c->transport->gone(c->link, peer) != TRANSPORT_HERE)
        return;
    snprintf(m.text, sizeof m.text, "%s", text);
    send_to(c, peer, &m);
}

void mail_receive(weft_comm *c)
{
    if (!c->mail)
        return;
    c->link->hosts->wire->failed = true;
    receive(c);
}

void mail_survives(weft_comm *c, uint32_t times)
{
    struct letter m = {.kind = SURVIVES, .rank = c->rank};
    if (!c->mail)
        return;
    m.survival.times = times;
    send_to_all(c, &m);
}

void mail_verdict(weft_comm *c, uint32_t times, const unsigned char *list, size_t bytes)
{
    struct letter m = {.kind = VERDICT, .rank = c->rank};
    if (!c->mail)
        return;
    m.survival.times = times;
    m.survival.bytes = (uint32_t)bytes;
    memcpy(m.text, list, bytes);
    send_to_all(c, &m);
}

void mail_split(weft_comm *c, int peer, const struct split_mail *s, const void *bytes)
{
    struct letter m = {.kind = SPLIT, .rank = c->rank, .split = *s};
    if (s->bytes)
        memcpy(m.text, bytes, s->bytes);
    send_to(c, peer, &m);
}

void mail_pipe(weft_comm *c, int peer, const struct pipe_mail *p)
{
    const struct letter m = {.kind = PIPE, .rank = c->rank, .pipe = *p};
    send_to(c, peer, &m);
}

void mail_close(weft_comm *c)
{
    struct letter m = {.kind = GOODBYE, .rank = c->rank};
    if (!c->mail)
        return;
    if (c->link->hosts->near[c->rank] == 0) {
        pass_on_votes(c);
        send_to_hosts(c, &m); /* the wire's close sees to it that it leaves */
    }
    comm_task_remove(c, &c->mail->task);
    free(c->mail);
    c->mail = NULL;
}
