/* Meetings of all ranks: barriers, and the agreement that ends bind, rebind, split and making windows. */
#include <stdio.h>

#include "base/error.h"
#include "base/nvtx.h"
#include "comm/ballot.h"
#include "comm/lock.h"
#include "comm/mail.h"
#include "comm/relay.h"
#include "comm/task.h"
#include "transport/hosts/hosts.h"

#define CROWD 64 /* more ranks than this that share cores do not meet before a rank has let others run many times */

struct meeting {
    weft_comm *comm;
    uint64_t number;
    int next;            /* all ranks with a lower number have entered */
    uint64_t departures; /* of the transport, when this rank last looked for ranks that are gone */
};

static bool met(void *arg)
{
    struct meeting *m = arg;
    return core_met(m->comm->group, m->number, &m->next);
}

static int absent(void *arg)
{
    const struct meeting *m = arg;
    int n = 0;
    for (int r = m->next; !m->comm->group->tree && r < m->comm->size; r++) /* the tree gives one signal for all */
        n += !core_entered(m->comm->group, r, m->number);
    return comm_task_any_lacks(m->comm, NULL) || !n ? 1 : n; /* a run in flight needs every signal */
}

/* The ranks that have not entered the meeting. */
static const char *missing(weft_comm *c, uint64_t meeting, struct comm_names *names)
{
    *names = (struct comm_names){0};
    for (int r = 0; r < c->size; r++)
        if (core_lacks(c->group, r, meeting))
            names_add(names, c, r, "");
    if (!names->n)
        relay_names(c, meeting, names);
    return names->n ? names_text(names) : "a rank on another host";
}

/* On one host all ranks look at the same votes, so all get the same result. On several hosts one rank has judged for
 * all. */
static int decide(weft_comm *c, uint64_t meeting)
{
    const struct core_group *g = c->group;
    core_met_wake(c->group, c->rank);
    if (!core_tally(g, meeting).differ)
        return 0;
    if (g->here < g->size)
        return error_set(g->results[meeting % 2].code, "%s", g->results[meeting % 2].text);
    struct ballot b;
    ballot_begin(&b);
    for (int r = 0; r < c->size; r++)
        ballot_add(&b, r, core_vote_of(g, r, meeting));
    return ballot_judge(c, &b);
}

/* Will the meeting, which is not complete, never be, since this rank has left? What is on its way of a rank on another
 * host, which has entered and then left, only the relay knows. The first rank of this host may have entered, too, but
 * without it no votes go to other hosts and no result comes. */
static bool will_not_come(const weft_comm *c, int rank, uint64_t meeting)
{
    if (transport_elsewhere(c->link, rank))
        return relay_awaits(c, rank);
    return !core_entered(c->group, rank, meeting) || relay_needs(c, rank);
}

/* Looks for ranks that are gone, if there are any that it has not looked at in this meeting. A rank that had left when
 * it was looked at, and is not to blame, had entered.
 *
 * A rank that left before it entered will never come. A rank that has died may have entered without all others hearing
 * of it: it is to blame if the meeting is not complete after its death. */
static int someone_left(struct meeting *m, const char *call)
{
    weft_comm *c = m->comm;
    char who[NAMES_RANK];
    uint64_t departures = c->transport->departures ? c->transport->departures(c->link) : 1;
    if (c->transport->departures && departures == m->departures)
        return 0;
    m->departures = departures;
    for (int r = 0; r < c->size; r++) {
        enum transport_fate fate = r == c->rank ? TRANSPORT_HERE : c->transport->gone(c->link, r);
        if (!fate || met(m)) /* in this order: what the rank did before it left counts */
            continue;
        if (transport_failed(fate))
            return comm_fail(c, WEFT_EPEER, "%s %s, others are in %s", names_rank(c, r, who), names_gone(c, r), call);
        if (will_not_come(c, r, m->number))
            return comm_fail(c, WEFT_EPEER, "%s closed its comm, others are in %s", names_rank(c, r, who), call);
    }
    return 0;
}

/* Like comm_wait for a meeting, but sees ranks that can no longer come. */
static int wait_for(weft_comm *c, struct meeting *m, int64_t until, const char *call)
{
    for (;;) {
        int64_t now = core_now(), next = now + c->beat_ns;
        struct comm_need need = {met, absent, m, until >= 0 && until < next ? until : next};
        int err = c->size > CROWD && !c->dedicated_cores ? comm_wait_asleep(c, &need) : comm_wait(c, &need);
        if (!err)
            mail_flush(c, c->deadline_ns); /* the next call may come late, and other hosts wait for these votes */
        if (err != COMM_LATE)
            return err;
        now = core_now();
        if (now - c->missed_at >= c->beat_ns) { /* also in waits that are shorter than that */
            c->missed_at = now;
            int gone = someone_left(m, call);
            if (gone)
                return gone;
        }
        if (until >= 0 && now >= until)
            return err;
    }
}

int meeting_agree(weft_comm *c, struct core_vote *vote, int64_t deadline_ns, uint64_t *meeting)
{
    if (c->barrier_open)
        return error_set(WEFT_EBUSY, "%s: a barrier that ran out of time is still open: enter it again first",
                         names_call(vote->call));
    if (vote->code)
        snprintf(vote->text, sizeof vote->text, "%s", weft_errmsg());
    int err = comm_failure(c);
    if (err)
        return err;
    struct meeting m = {.comm = c, .number = core_enter(c->group, c->rank, vote)};
    flight_meets(&c->flight, vote->call, m.number, vote->digest);
    if (c->trace)
        trace_meets(c->trace);
    if (c->profiled)
        nvtx_push(names_call(vote->call));
    err = wait_for(c, &m, core_now() + deadline_ns, names_call(vote->call));
    if (c->profiled)
        nvtx_pop();
    if (err == COMM_LATE) {
        struct comm_names names;
        err = comm_fail(c, WEFT_ETIMEOUT, "%s: %s did not take part within %lld ms", names_call(vote->call),
                        missing(c, m.number, &names), (long long)(deadline_ns / 1000000));
    }
    *meeting = m.number;
    if (!err)
        err = decide(c, m.number);
    flight_met(&c->flight, err);
    if (c->trace)
        trace_met(c, vote->call, m.number, err);
    return err;
}

static int barrier(weft_comm *c, int64_t timeout_ns)
{
    if (c->in_callback)
        return error_set(WEFT_EBUSY, "weft_comm_barrier: not inside a callback");
    int err = comm_failure(c);
    if (err)
        return err;
    /* What this rank has put into windows on other hosts arrives before the rank enters the barrier. */
    if (!c->barrier_open && (err = comm_task_drain(c, timeout_ns, "weft_comm_barrier")))
        return err;
    if (!c->barrier_open) {
        static const struct core_vote vote = {.call = COMM_BARRIER};
        c->barrier = core_enter(c->group, c->rank, &vote);
        c->barrier_open = true;
        flight_meets(&c->flight, COMM_BARRIER, c->barrier, 0);
        if (c->trace)
            trace_meets(c->trace);
    }
    struct meeting m = {.comm = c, .number = c->barrier};
    /* Most meetings end here, without a look at the clock. */
    bool all = met(&m) || (!c->tasks && comm_wait_spin(c, met, &m));
    if (all) {
        mail_flush(c, c->deadline_ns);
    } else {
        int64_t now = core_now(), until = timeout_ns >= 0 && timeout_ns < INT64_MAX - now ? now + timeout_ns : -1;
        err = wait_for(c, &m, until, "weft_comm_barrier");
    }
    if (err == COMM_LATE) {
        struct comm_names names;
        err =
            error_set(WEFT_ETIMEOUT, "weft_comm_barrier: time ran out, %s not there yet", missing(c, m.number, &names));
        if (timeout_ns)
            flight_late(c);
        return err;
    }
    c->barrier_open = false;
    if (!err)
        err = decide(c, m.number);
    flight_met(&c->flight, err);
    if (c->trace)
        trace_met(c, COMM_BARRIER, m.number, err);
    return err;
}

int weft_comm_barrier(weft_comm *c, int64_t timeout_ns)
{
    if (!c)
        return error_set(WEFT_EINVAL, "weft_comm_barrier: the comm is NULL");
    int err = comm_timeout(c, "weft_comm_barrier", &timeout_ns);
    if (err)
        return err;
    struct comm_family *f = comm_enter(c);
    if (c->profiled)
        nvtx_push("weft_comm_barrier");
    err = barrier(c, timeout_ns);
    if (c->profiled)
        nvtx_pop();
    comm_leave(f);
    return err;
}
