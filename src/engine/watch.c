/* A rank waits for a peer if the next message from it has not arrived, if it has not read a message of this rank, or if
 * it does not yet let this rank push one. A peer that has left or has freed its exec will do none of these, so the comm
 * fails. A peer that has started the run must show a pulse (it makes progress, or tries to) within the deadline. A peer
 * that has not started may take its time. One exception: if the wire cannot tell that a peer has died, a peer that has
 * not started has the deadline, too. A peer that waits for a third rank has a pulse. So only the rank that waits for
 * the last one of the chain finds a fault, and it blames that one. */
#include "engine/watch.h"

#include "base/error.h"
#include "engine/block.h"
#include "engine/driver.h"
#include "engine/exec_mail.h"
#include "engine/ways/way_wire.h"

static enum transport_fate fate_of(const weft_comm *c, int peer, const struct block *b)
{
    return atomic_load_explicit(&b->freed, memory_order_seq_cst) ? TRANSPORT_LEFT : c->transport->gone(c->link, peer);
}

static bool has_started(const weft_exec *x, const struct block *b)
{
    return atomic_load_explicit(&b->started, memory_order_relaxed) >= x->run;
}

/* Has a peer that started the run shown no pulse for the whole deadline? */
static bool has_stalled(const weft_exec *x, int peer, const struct block *b, struct exec_seen *seen, int64_t now)
{
    uint64_t pulse = atomic_load_explicit(&x->comm->group->ranks[peer].pulse, memory_order_relaxed);
    if (!seen->at || seen->run != x->run || !has_started(x, b) || pulse != seen->pulse)
        *seen = (struct exec_seen){pulse, x->run, now};
    return liveness_silence(x->comm, seen->at, now) >= x->comm->deadline_ns;
}

/* The ranks to blame, among those for which this rank waits; -1: none. */
struct blame {
    int left, died, stalled;
    int absent; /* has not started the run, and the wire could not tell if it had died */
};

/* A peer may have sent something just before it went. So this rank looks for that once more after it has seen that the
 * peer is gone. */
static void watch_in(const weft_exec *x, struct exec_in *in, int64_t now, struct blame *b)
{
    if (!x->program->driver->in_waits(x, in)) {
        in->watched.at = 0;
        return;
    }
    enum transport_fate fate = fate_of(x->comm, in->peer, in->block);
    if (fate && x->program->driver->in_waits(x, in))
        *(transport_failed(fate) ? &b->died : &b->left) = in->peer;
    else if (!fate && x->program->driver->form == FORM_HOST && has_stalled(x, in->peer, in->block, &in->watched, now))
        b->stalled = in->peer;
}

static void watch_out(const weft_exec *x, struct exec_out *out, int64_t now, struct blame *b)
{
    if (!x->program->driver->out_waits(x, out)) {
        out->watched.at = 0;
        return;
    }
    enum transport_fate fate = fate_of(x->comm, out->peer, out->block);
    if (fate && x->program->driver->out_waits(x, out))
        *(transport_failed(fate) ? &b->died : &b->left) = out->peer;
    else if (!fate && x->program->driver->form == FORM_HOST &&
             has_stalled(x, out->peer, out->block, &out->watched, now))
        b->stalled = out->peer;
}

static void watch_wired(const weft_exec *x, struct wire_channel *ch, int64_t now, struct blame *b)
{
    if (!way_wire_waits(ch)) {
        ch->heard_at = 0;
        ch->gone = false;
        return;
    }
    struct wire *wire = x->comm->link->hosts->wire;
    enum transport_fate fate =
        wire->ops->gone(wire, ch->peer); /* known when all that it sent has come, which may be just now */
    bool gone = fate || (ch->freed && ch->last_run < x->run);
    if (gone && ch->gone &&
        ch->looked) /* looked: a put into an exchange watches, too, but does not look for messages */
        *(transport_failed(fate) ? &b->died : &b->left) = ch->peer;
    ch->looked &= gone && ch->gone;
    ch->gone = gone;
    if (gone)
        return;
    if (!ch->heard_at || (ch->peer_run < x->run && wire->ops->can.deaths))
        ch->heard_at = now;
    else if (liveness_silence(x->comm, ch->heard_at, now) >= x->comm->deadline_ns)
        *(ch->peer_run < x->run ? &b->absent : &b->stalled) = ch->peer;
}

/* With work sharing, a rank that has a job need not be a peer. */
static void watch_helpers(const weft_exec *x, struct blame *b)
{
    for (int r = 0; r < x->comm->size; r++) {
        if (r == x->comm->rank || !x->program->driver->rank_waits(x, r))
            continue;
        enum transport_fate fate = x->comm->transport->gone(x->comm->link, r);
        if (fate && x->program->driver->rank_waits(x, r)) /* twice, as in watch_in */
            *(transport_failed(fate) ? &b->died : &b->left) = r;
    }
}

void watch_exec(struct comm_task *t, int64_t now)
{
    weft_exec *x = (weft_exec *)t;
    weft_comm *c = x->comm;
    struct program *p = x->program;
    struct blame b = {-1, -1, -1, -1};
    char who[NAMES_RANK];
    for (uint32_t i = 0; i < p->nins; i++)
        watch_in(x, &p->ins[i], now, &b);
    for (uint32_t i = 0; i < p->nouts; i++)
        watch_out(x, &p->outs[i], now, &b);
    for (uint32_t i = 0; i < p->wired.n; i++)
        watch_wired(x, &p->wired.channels[i], now, &b);
    if (p->driver->rank_waits)
        watch_helpers(x, &b);
    if (b.died >= 0)
        comm_fail(c, WEFT_EPEER, "%s %s, rank %d was waiting for it", names_rank(c, b.died, who), names_gone(c, b.died),
                  c->rank);
    else if (b.left >= 0)
        comm_fail(c, WEFT_EPEER, "%s closed its comm or freed its exec, rank %d was waiting for it",
                  names_rank(c, b.left, who), c->rank);
    else if (b.stalled >= 0)
        comm_fail(c, WEFT_EPEER, "%s started a run and made no progress for %lld ms, rank %d was waiting for it",
                  names_rank(c, b.stalled, who), (long long)(c->deadline_ns / 1000000), c->rank);
    else if (b.absent >= 0)
        comm_fail(c, WEFT_EPEER, "%s has not started a run for %lld ms and may have died, rank %d was waiting for it",
                  names_rank(c, b.absent, who), (long long)(c->deadline_ns / 1000000), c->rank);
    exec_mail_pulse(x, now);
}

static void add_name(const weft_exec *x, struct comm_names *names, int peer, const struct block *b)
{
    names_add(names, x->comm, peer, has_started(x, b) ? "" : " (has not started)");
}

int watch_timeout(const weft_exec *x)
{
    const struct program *p = x->program;
    struct comm_names names = {0};
    for (uint32_t i = 0; i < p->nins; i++)
        if (x->program->driver->in_waits(x, &p->ins[i]))
            add_name(x, &names, p->ins[i].peer, p->ins[i].block);
    for (uint32_t i = 0; i < p->nouts; i++) {
        bool named = false;
        for (uint32_t k = 0; k < p->nins && !named; k++)
            named = p->ins[k].peer == p->outs[i].peer && x->program->driver->in_waits(x, &p->ins[k]);
        if (!named && x->program->driver->out_waits(x, &p->outs[i]))
            add_name(x, &names, p->outs[i].peer, p->outs[i].block);
    }
    for (uint32_t i = 0; i < p->wired.n; i++) {
        const struct wire_channel *ch = &p->wired.channels[i];
        bool named = false;
        for (uint32_t k = 0; k < i && !named; k++)
            named = p->wired.channels[k].peer == ch->peer && way_wire_waits(&p->wired.channels[k]);
        if (!named && way_wire_waits(ch))
            names_add(&names, x->comm, ch->peer, ch->peer_run < x->run ? " (has not started)" : "");
    }
    for (int r = 0; r < x->comm->size && p->driver->form == FORM_GROUPED; r++)
        if (r != x->comm->rank && p->driver->rank_waits(x, r))
            names_add(&names, x->comm, r, "");
    if (!names.n)
        return error_set(WEFT_ETIMEOUT, "time ran out: there is work of this rank's own left");
    return error_set(WEFT_ETIMEOUT, "time ran out: waiting for %s", names_text(&names));
}
