/* Waiting, and meetings of all ranks: barriers, and the agreement that ends bind, rebind, split and making windows. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>

#include "base/error.h"
#include "comm/mail.h"
#include "comm/progress.h"
#include "transport/hosts/hosts.h"
#include "window/remote.h"

#define YIELDS 20

/* Who waits for several signals is woken by the last of them, and should one of those need what has come already, by
 * this timer; it doubles while nothing comes. */
#define PATIENCE_NS 1000000

/* Where waking takes longer than a rank spins, one that sleeps makes those who wait for it sleep, too, and these their
 * neighbours: it does not end by itself. So who has slept for a short time only spins longer the next time, with a
 * yield now and then for whoever else has no core. Who has slept for long was right to sleep, and so was whose core was
 * taken while it span: others need it. */
#define STRETCH 16
#define SHORT_NS 2000000
#define TAKEN_NS 1000000

struct sleep {
    int turn;
    int64_t patience;
    int64_t looked; /* when the clock was last read, in a spin */
};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int turns_before_yields(const weft_comm *c)
{
    return c->spin_turns * c->stretch;
}

/* A turn that lets time pass and no more. */
static void pause_for(const weft_comm *c, int turn)
{
    if (turn < turns_before_yields(c) && turn % c->spin_turns != c->spin_turns - 1)
        core_relax();
    else
        sched_yield();
}

bool comm_listen(const weft_comm *c, bool *wired, int64_t *ns)
{
    const weft_comm *k = c;
    do {
        if (!k->mail)
            continue;
        *wired = true;
        if (!hosts_sleep_arm(k->link))
            return false;
        *ns = hosts_sleep_nap(k->link, *ns);
    } while ((k = k->kin) != c);
    return true;
}

static void doze(weft_comm *c, uint32_t bell, int lacking, int64_t ns, int64_t now)
{
    core_doze(c->group, c->rank, bell, lacking, ns);
    if (!c->dedicated_cores || c->mail) /* it may have to look at a wire now and then */
        return;
    int64_t slept = core_now() - now;
    if (slept >= c->beat_ns / 2)
        c->stretch = 1;
    else if (slept < SHORT_NS && c->stretch < STRETCH)
        c->stretch *= 2;
}

/* One turn of a wait that found nothing to do: spin while there is a core for each rank, then let
 * others run, then sleep until peers ring. The clock is not read in every turn. */
static int idle(weft_comm *c, const struct comm_need *need, struct sleep *s, uint32_t bell, bool armed)
{
    int each = s->turn < turns_before_yields(c) ? 64 : 4;
    if (!armed && s->turn % each != each - 1) {
        pause_for(c, s->turn);
        return 0;
    }
    int64_t now = core_now();
    if (s->looked && now - s->looked > TAKEN_NS)
        c->stretch = 1;
    s->looked = s->turn < turns_before_yields(c) ? now : 0;
    if (need->until >= 0 && now >= need->until) {
        if (armed)
            core_disarm(c->group, c->rank);
        return COMM_LATE;
    }
    comm_watch(c, now, armed); /* who went before we sleep rings no more */
    if (armed) {
        /* What is in flight on kin may need every signal. */
        int lacking = need->lacking && !comm_kin_fly(c) ? need->lacking(need->arg) : 1;
        int64_t ns = need->until >= 0 ? least(need->until - now, c->beat_ns) : c->beat_ns;
        if (lacking > 1) {
            ns = least(ns, s->patience);
            s->patience = least(2 * s->patience, c->beat_ns);
        }
        bool wired = false;
        if (comm_listen(c, &wired, &ns))
            doze(c, bell, wired ? 1 : lacking, ns, now);
        else
            core_disarm(c->group, c->rank);
    } else {
        pause_for(c, s->turn);
    }
    return 0;
}

int comm_wait(weft_comm *c, const struct comm_need *need)
{
    struct sleep s = {0, PATIENCE_NS, 0};
    for (;;) {
        int turns = turns_before_yields(c) + YIELDS;
        bool armed = s.turn >= turns;
        uint32_t bell = armed ? core_arm(c->group, c->rank) : 0;
        if (armed) {
            atomic_load_explicit(&c->family->nudges, memory_order_seq_cst); /* pairs with comm_nudge */
            progress_disturb(c->family);
        }
        /* From here to the doze everything is looked at once more: core_signal says why. */
        bool moved = comm_progress(c, armed);
        bool done = need->met(need->arg);
        int err = done ? 0 : comm_failure(c);
        if (done || moved || err) {
            if (armed)
                core_disarm(c->group, c->rank);
            if (err) { /* it may have failed since progress looked: end what is in flight, then say why */
                comm_progress(c, armed);
                return comm_failure(c);
            }
            if (done)
                return 0;
            if (need->until >= 0 && core_now() >= need->until)
                return COMM_LATE;
            s = (struct sleep){0, PATIENCE_NS, 0};
            continue;
        }
        err = idle(c, need, &s, bell, armed);
        if (err) { /* who only ever waits for short times has to be eager, too */
            if (!armed)
                comm_progress(c, true);
            return need->met(need->arg) ? 0 : err;
        }
        s.turn += s.turn < turns;
    }
}

/* ---- meetings ---- */

struct meeting {
    weft_comm *comm;
    uint64_t number;
    int next; /* all ranks before it have entered */
};

static bool met(void *arg)
{
    struct meeting *m = arg;
    while (m->next < m->comm->size && core_entered(m->comm->group, m->next, m->number))
        m->next++;
    return m->next == m->comm->size;
}

static int absent(void *arg)
{
    const struct meeting *m = arg;
    int n = 0;
    for (int r = m->next; r < m->comm->size; r++)
        n += !core_entered(m->comm->group, r, m->number);
    return m->comm->first || comm_tasks_lack(m->comm, NULL) || !n ? 1 : n; /* a run in flight needs every signal */
}

const char *comm_call_name(uint32_t call)
{
    switch (call) {
    case COMM_BARRIER: return "weft_comm_barrier";
    case COMM_BIND:
    case COMM_BOUND: return "weft_bind";
    case COMM_WINDOW:
    case COMM_WINDOWED: return "weft_window_open";
    case COMM_SPLIT:
    case COMM_SPLITTED:
    case COMM_SPLIT_WIRED: return "weft_comm_split";
    case COMM_EXCHANGE:
    case COMM_EXCHANGED: return "weft_exchange_open";
    default: return "weft_exec_rebind";
    }
}

/* Those who have not entered the meeting. */
static const char *missing(weft_comm *c, uint64_t meeting, struct comm_names *names)
{
    *names = (struct comm_names){0};
    for (int r = 0; r < c->size; r++)
        if (!core_entered(c->group, r, meeting))
            comm_name(names, c, r, "");
    return comm_named(names);
}

static bool unanimous(const weft_comm *c, uint64_t meeting)
{
    const struct core_vote *zero = core_vote_of(c->group, 0, meeting);
    for (int r = 0; r < c->size; r++) {
        const struct core_vote *v = core_vote_of(c->group, r, meeting);
        if (v->code || v->call != zero->call || v->object != zero->object || v->digest != zero->digest)
            return false;
    }
    return true;
}

/* All ranks look at the same votes, so all come to the same end. */
static int decide(weft_comm *c, uint64_t meeting)
{
    if (unanimous(c, meeting))
        return 0;
    const struct core_vote *zero = core_vote_of(c->group, 0, meeting);
    char who[COMM_WHO];
    for (int r = 1; r < c->size; r++) {
        const struct core_vote *v = core_vote_of(c->group, r, meeting);
        if (v->call != zero->call)
            return error_set(WEFT_EMISMATCH,
                             "rank 0 is in %s, %s in %s: all ranks must make the same calls in one order",
                             comm_call_name(zero->call), comm_who(c, r, who), comm_call_name(v->call));
        if (v->object != zero->object)
            return error_set(WEFT_EMISMATCH, "%s: rank 0 means exec %" PRIu64 ", %s exec %" PRIu64,
                             comm_call_name(zero->call), zero->object, comm_who(c, r, who), v->object);
    }
    for (int r = 0; r < c->size; r++) {
        const struct core_vote *v = core_vote_of(c->group, r, meeting);
        if (v->code)
            return error_set(v->code, "%s: %s", comm_who(c, r, who), v->text);
    }
    for (int r = 1; r < c->size; r++) {
        const struct core_vote *v = core_vote_of(c->group, r, meeting);
        if (v->digest != zero->digest && v->call == COMM_WINDOW)
            return error_set(WEFT_EMISMATCH, "%s: its window has other buffers or signals than rank 0's",
                             comm_who(c, r, who));
        if (v->digest != zero->digest)
            return error_set(WEFT_EMISMATCH,
                             "%s: its plan differs from rank 0's (digests %016" PRIx64 " and %016" PRIx64
                             "): all ranks must give the same layouts, names and options",
                             comm_who(c, r, who), v->digest, zero->digest);
    }
    return 0;
}

/* The vote of a far rank comes by the first rank of its host and to the first rank of this one, its farewell may come
 * before: those first ones, in the same meeting, see whether it has voted. */
static bool is_spoken_for(const weft_comm *c, int rank)
{
    const struct transport_hosts *hosts = c->link->hosts;
    return transport_far(c->link, rank) &&
           (hosts->firsts[hosts->host[rank]] != rank || hosts->firsts[hosts->host[c->rank]] != c->rank);
}

/* A rank that left before it entered will never come. One that has died may have entered and not told all: it is to
 * blame whenever the meeting is not complete after its death. */
static int someone_left(struct meeting *m, const char *call)
{
    weft_comm *c = m->comm;
    char who[COMM_WHO];
    for (int r = 0; r < c->size; r++) {
        enum transport_fate fate = r == c->rank ? TRANSPORT_HERE : c->transport->gone(c->link, r);
        if (!fate || met(m))
            continue;
        if (fate == TRANSPORT_DIED)
            return comm_fail(c, WEFT_EPEER, "%s %s, others are in %s", comm_who(c, r, who), comm_ended(c, r), call);
        if (!core_entered(c->group, r, m->number) && !is_spoken_for(c, r))
            return comm_fail(c, WEFT_EPEER, "%s closed its comm, others are in %s", comm_who(c, r, who), call);
    }
    return 0;
}

/* Like comm_wait for a meeting, but sees ranks that can no longer come. */
static int wait_for(weft_comm *c, struct meeting *m, int64_t until, const char *call)
{
    for (;;) {
        int64_t now = core_now(), next = now + c->beat_ns;
        struct comm_need need = {met, absent, m, until >= 0 && until < next ? until : next};
        int err = comm_wait(c, &need);
        if (!err)
            mail_flush(c, c->deadline_ns); /* it may be long before the next call, and others wait for these votes */
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

int comm_agree(weft_comm *c, struct core_vote *vote, int64_t deadline_ns, uint64_t *meeting)
{
    if (c->barrier_open)
        return error_set(WEFT_EBUSY, "%s: a barrier that ran out of time is still open: enter it again first",
                         comm_call_name(vote->call));
    if (vote->code)
        snprintf(vote->text, sizeof vote->text, "%s", weft_errmsg());
    int err = comm_failure(c);
    if (err)
        return err;
    struct meeting m = {c, core_enter(c->group, c->rank, vote), 0};
    flight_meets(&c->flight, vote->call, m.number, vote->digest);
    err = wait_for(c, &m, core_now() + deadline_ns, comm_call_name(vote->call));
    if (err == COMM_LATE) {
        struct comm_names names;
        err = comm_fail(c, WEFT_ETIMEOUT, "%s: %s did not take part within %lld ms", comm_call_name(vote->call),
                        missing(c, m.number, &names), (long long)(deadline_ns / 1000000));
    }
    *meeting = m.number;
    if (!err)
        err = decide(c, m.number);
    flight_met(&c->flight, err);
    return err;
}

/* What was put into windows on other hosts is there before the barrier is entered. */
static int drain(weft_comm *c, int64_t timeout_ns)
{
    int err = remote_drain(c, timeout_ns < 0 ? c->deadline_ns : timeout_ns);
    return err == COMM_LATE ? remote_late(c->remote, "weft_comm_barrier") : err;
}

static bool nobody_lacks(void *arg)
{
    const struct comm_await *a = arg;
    for (int i = 0; i < a->n; i++)
        if (a->lacks(a->arg, i))
            return false;
    return true;
}

/* One that has left is still waited for as long as what it sent before may come. */
static int await_check(weft_comm *c, const struct comm_await *a)
{
    char who[COMM_WHO];
    for (int i = 0; i < a->n; i++) {
        int r = a->ranks[i];
        enum transport_fate fate = r == c->rank ? TRANSPORT_HERE : c->transport->gone(c->link, r);
        if (fate && a->lacks(a->arg, i))
            return comm_fail(c, WEFT_EPEER, "%s %s, others are in %s", comm_who(c, r, who),
                             fate == TRANSPORT_DIED ? "has died" : "closed its comm", a->call);
    }
    return 0;
}

int comm_await(weft_comm *c, const struct comm_await *a)
{
    int64_t until = core_now() + c->deadline_ns;
    struct comm_await wait = *a;
    for (;;) {
        int64_t now = core_now();
        struct comm_need need = {nobody_lacks, NULL, &wait, until - now < c->beat_ns ? until : now + c->beat_ns};
        int err = comm_wait(c, &need);
        if (err != COMM_LATE)
            return err;
        err = await_check(c, a);
        if (err || core_now() < until) {
            if (err)
                return err;
            continue;
        }
        struct comm_names names = {0};
        for (int i = 0; i < a->n; i++)
            if (a->lacks(a->arg, i))
                comm_name(&names, c, a->ranks[i], "");
        return comm_fail(c, WEFT_ETIMEOUT, "%s: %s did not take part within %lld ms", a->call, comm_named(&names),
                         (long long)(c->deadline_ns / 1000000));
    }
}

static int barrier(weft_comm *c, int64_t timeout_ns)
{
    if (c->in_callback)
        return error_set(WEFT_EBUSY, "weft_comm_barrier: not inside a callback");
    int err = comm_failure(c);
    if (err)
        return err;
    if (!c->barrier_open && c->remote && (err = drain(c, timeout_ns)))
        return err;
    if (!c->barrier_open) {
        struct core_vote vote = {.call = COMM_BARRIER};
        c->barrier = core_enter(c->group, c->rank, &vote);
        c->barrier_open = true;
        flight_meets(&c->flight, COMM_BARRIER, c->barrier, 0);
    }
    struct meeting m = {c, c->barrier, 0};
    bool all = met(&m);
    bool idle_else = !c->first && !c->tasks;
    int turns = c->dedicated_cores ? c->spin_turns / 4 : YIELDS / 4;
    for (int turn = 0; !all && idle_else && turn < turns; turn++) { /* most end here: no clock is read */
        pause_for(c, turn);
        all = met(&m);
    }
    if (all) {
        mail_flush(c, c->deadline_ns);
    } else {
        int64_t wait_ns = timeout_ns < 0 ? c->deadline_ns : timeout_ns, now = core_now();
        err = wait_for(c, &m, wait_ns < INT64_MAX - now ? now + wait_ns : -1, "weft_comm_barrier");
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
    return err;
}

int weft_comm_barrier(weft_comm *c, int64_t timeout_ns)
{
    if (!c)
        return error_set(WEFT_EINVAL, "weft_comm_barrier: the comm is NULL");
    struct comm_family *f = comm_enter(c);
    int err = barrier(c, timeout_ns);
    comm_leave(f);
    return err;
}
