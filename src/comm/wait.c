/* Waiting until a need is met: makes progress, and sleeps while there is nothing to do. */
#define _GNU_SOURCE
#include <sched.h>

#include "comm/lock.h"
#include "comm/mail.h"
#include "comm/task.h"

#define YIELDS 20

/* A rank that waits for several signals is woken by the last of them. A peer may need an answer before it sends its
 * signal, so a timer wakes the rank, too. The timer doubles while nothing comes. */
#define PATIENCE_NS 1000000

/* If waking takes longer than a rank spins, a rank that sleeps makes the ranks that wait for it sleep, too, and these
 * make their neighbours sleep: this does not end by itself. So after a short sleep a rank spins longer the next time,
 * and yields now and then in case another rank has no core. After a long sleep it spins as at first: sleeping was
 * right. It also does so if it lost its core while it spun: others need the core. */
#define STRETCH 16
#define SHORT_NS 2000000
#define TAKEN_NS 1000000
#define POLL_NS 20000 /* a device does not ring: between two looks at what it has done */
#define NOTES 16      /* waits between two notes of the core that the rank is on: asking may be a system call */
#define TELL_NS INT64_C(250000000) /* for the news of a failure to leave; a peer may have stopped reading */

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

/* A turn that only lets time pass. */
static void pause_for(const weft_comm *c, int turn)
{
    if (turn < turns_before_yields(c) && turn % c->spin_turns != c->spin_turns - 1)
        core_relax();
    else
        sched_yield();
}

static void doze(weft_comm *c, uint32_t bell, int lacking, int64_t ns, int64_t now)
{
    core_doze(c->group, c->rank, bell, lacking, ns);
    if (!c->dedicated_cores || c->mail) /* the rank may have to look at a wire now and then */
        return;
    int64_t slept = core_now() - now;
    if (slept >= c->beat_ns / 2)
        c->stretch = 1;
    else if (slept < SHORT_NS && c->stretch < STRETCH)
        c->stretch *= 2;
}

/* One turn of a wait that found nothing to do: spins while there is a core for each rank, then lets others run, then
 * sleeps until peers ring. The clock is not read in every turn. */
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
    liveness_watch(c, now, armed); /* a peer that left before we sleep will not ring */
    if (armed) {
        /* Tasks of siblings may need every signal. */
        int lacking = need->lacking && !comm_task_sibling_lacks(c) ? need->lacking(need->arg) : 1;
        int64_t ns = need->until >= 0 ? least(need->until - now, c->beat_ns) : c->beat_ns;
        if (c->polled)
            ns = least(ns, POLL_NS);
        if (lacking > 1) {
            ns = least(ns, s->patience);
            s->patience = least(2 * s->patience, c->beat_ns);
        }
        bool wired = false;
        if (mail_listen(c, &wired, &ns))
            doze(c, bell, wired ? 1 : lacking, ns, now);
        else
            core_disarm(c->group, c->rank);
    } else if (s->turn < turns_before_yields(c) && core_shares_cpu(c->group, c->rank)) {
        sched_yield(); /* maybe to the rank that this one waits for */
    } else {
        pause_for(c, s->turn);
    }
    return 0;
}

static int wait(weft_comm *c, const struct comm_need *need, int yields)
{
    struct sleep s = {0, PATIENCE_NS, 0};
    if (c->dedicated_cores && c->waits++ % NOTES == 0)
        core_note_cpu(c->group, c->rank);
    for (;;) {
        int turns = turns_before_yields(c) + yields;
        bool armed = s.turn >= turns;
        uint32_t bell = armed ? core_arm(c->group, c->rank) : 0;
        if (armed) {
            atomic_load_explicit(&c->family->nudges, memory_order_seq_cst); /* pairs with comm_task_nudge */
            lock_disturb(c->family);
        }
        /* From here to the doze everything is looked at once more: core_signal says why. */
        bool moved = comm_progress(c, armed);
        bool done = need->met(need->arg);
        int err = done ? 0 : comm_failure(c);
        if (done || moved || err) {
            if (armed)
                core_disarm(c->group, c->rank);
            if (err) { /* the comm may have failed since the last pass: end what is in flight first */
                comm_progress(c, armed);
                mail_flush(c, TELL_NS); /* the caller may not come back, and other hosts must hear of the failure */
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
        if (err) { /* a caller whose waits are all short must do what was postponed, too */
            if (!armed)
                comm_progress(c, true);
            return need->met(need->arg) ? 0 : err;
        }
        s.turn += s.turn < turns;
    }
}

int comm_wait(weft_comm *c, const struct comm_need *need)
{
    return wait(c, need, YIELDS);
}

int comm_wait_asleep(weft_comm *c, const struct comm_need *need)
{
    return wait(c, need, 0);
}

bool comm_wait_spin(const weft_comm *c, bool (*met)(void *arg), void *arg)
{
    int turns = c->dedicated_cores ? c->spin_turns / 4 : YIELDS / 4;
    bool is = false;
    for (int turn = 0; !is && turn < turns; turn++) {
        pause_for(c, turn);
        is = met(arg);
    }
    return is;
}

/* ---- waiting for ranks in the middle of a call ---- */

static bool nobody_lacks(void *arg)
{
    const struct comm_wait_ranks *a = arg;
    for (int i = 0; i < a->n; i++)
        if (a->lacks(a->arg, i))
            return false;
    return true;
}

/* Somebody lacks something. A rank that has died may be the one that should have passed it on, and what all ranks do
 * after this cannot succeed without it. For a rank that has left, the wait goes on as long as its last messages may
 * still come. */
static int await_check(weft_comm *c, const struct comm_wait_ranks *a)
{
    char who[NAMES_RANK];
    for (int i = 0; i < a->n; i++) {
        int r = a->ranks[i];
        enum transport_fate fate = r == c->rank ? TRANSPORT_HERE : c->transport->gone(c->link, r);
        if (transport_failed(fate) || (fate && a->lacks(a->arg, i)))
            return comm_fail(c, WEFT_EPEER, "%s %s, others are in %s", names_rank(c, r, who),
                             transport_failed(fate) ? names_gone(c, r) : "closed its comm", a->call);
    }
    return 0;
}

int comm_wait_ranks(weft_comm *c, const struct comm_wait_ranks *a)
{
    int64_t until = core_now() + c->deadline_ns;
    struct comm_wait_ranks wait = *a;
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
                names_add(&names, c, a->ranks[i], "");
        return comm_fail(c, WEFT_ETIMEOUT, "%s: %s did not take part within %lld ms", a->call, names_text(&names),
                         (long long)(c->deadline_ns / 1000000));
    }
}
