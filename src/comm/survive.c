/* Survivor agreement: which ranks are left of a comm that has failed. All ranks that get a list get the same one. A
 * list leaves out only ranks that are dead, and ranks without which more than half of the comm's ranks have agreed to
 * go on.
 *
 * Dead is a rank that has ended, or that has closed the comm without going on with any list. That is known for sure,
 * and stays true. Of other ranks a rank can only say that it does not reach them (lost), or that they did not ask
 * before the deadline. They may live and go on without it.
 *
 * The agreement is a form of Paxos. The lowest rank that is neither dead nor lost leads, as each rank sees it; several
 * ranks may believe that they lead. A leader takes a ballot, a number above all that it knows, and then:
 *
 *   PREPARES  A rank that asks promises not to accept lower ballots. It reports the list that it has accepted last,
 *             with its ballot, and the dead that it knows. The leader waits for all ranks that are not dead, for lost
 *             ones half a second, and for silent ones until its deadline.
 *   PROPOSES  If a rank has reported a list, the leader proposes the one with the highest ballot. Otherwise it proposes
 *             all ranks that have promised. Before that each rank must have promised that is not dead, or more than
 *             half of all ranks, and among them each rank on the list that is not dead. A rank on the list accepts it,
 *             unless it has promised a higher ballot.
 *   COMMITS   The leader tells the list to all as soon as each rank on it has accepted or is dead, and, if the list
 *             leaves out a rank that is not dead, more than half of all ranks have accepted.
 *
 * Why two lists are never committed: let ballot b be committed, A the ranks that have accepted it, and b' the next
 * higher ballot with another list, P' the ranks that have promised b'. A rank in both A and P' has accepted b before it
 * promised b', since it does not accept b later. So it has reported b's list, and the leader of b' has proposed that.
 * So no rank is in both.
 *   - If P' has more than half of all ranks, A has not. So all ranks outside A were dead when b was committed, also all
 *     of P'. Only ranks of P' accept b'.
 *   - Otherwise P' has all ranks that were not dead when b' was proposed. So all of A were.
 * Either way only ranks that are dead can have got one of the two lists. It is not enough to count the ranks of a list:
 * those that died before they accepted it may have promised b'. tests/models/survive.pml checks this.
 *
 * A rank that closes the comm says so only if it has not gone on with any list (QUITS). It may have got one, but it
 * will not use it any more. A rank that has gone on and closes the comm is not dead: it uses its list. The model checks
 * both.
 *
 * If a rank of the list dies, the survivors miss it when they open their comm, and ask again: that is the next
 * agreement. A rank that hears of a newer agreement than the one that it is in joins the newer one. Ranks that have
 * asked before it have failed to go on with the older list. The leader itself begins the next agreement if a rank of a
 * list that it has proposed first does not answer: without the leader's acceptance that list cannot be committed.
 *
 * Words of leaders and the answers go along a tree of hosts: survive_tree.c.
 *
 * A rank that has its list answers ranks that still look for it, for as long as it asks or opens a comm again. */
#define _GNU_SOURCE
#include "comm/survive.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "comm/lock.h"
#include "comm/mail.h"
#include "comm/survive_state.h"
#include "transport/hosts/hosts.h"

/* How long a rank sleeps between two looks: from 1/100 to 1/10 of a beat, which is longer if many ranks share a
 * machine.
 */
#define NAP 100
#define NAP_MOST 10
#define NAP_LIMIT_NS INT64_C(100000000)
#define HEARD_NS INT64_C(2000000000)    /* until the wire reports a death of which another rank has told, at most */
#define HEARD_NAP_NS 1000000            /* between two looks */
#define FINISH_NS INT64_C(500000000)    /* for others to get the result that this rank has, at most, */
#define FINISH_BEATS 10                 /* or in beats */
#define ASK_NS INT64_C(50000000)        /* without a word of a leader: this rank mails the rank that should lead */
#define ASK_AGAIN_NS INT64_C(500000000) /* and again */
#define ASK_BEATS 4

void survive_open(weft_comm *c)
{
    mail_handle(c, MAIL_SURVIVE, survive_take);
}

void survive_close(weft_comm *c)
{
    if (core_failed(c->group) && !atomic_load_explicit(&c->group->ranks[c->rank].went_on, memory_order_relaxed)) {
        mail_spread_again(c);
        survive_mail_quit(c);
    }
    survive_state_free(c->survivors);
    c->survivors = NULL;
}

uint64_t survive_agreed(const weft_comm *c)
{
    return c->survivors ? survive_agreement(c->survivors->decided.ballot) : 0;
}

void survive_went_on(weft_comm *c)
{
    atomic_store_explicit(&c->group->ranks[c->rank].went_on, 1, memory_order_seq_cst);
}

/* ---- ranks that are gone ---- */

/* The comm's rank that was opened as this rank; -1: none. */
static int opened_as(const weft_comm *c, int opened)
{
    if (!c->link->origin)
        return opened < c->size ? opened : -1;
    int r = c->size - 1;
    while (r >= 0 && c->link->origin[r] != opened)
        r--;
    return r;
}

/* The next rank, from *r on, of which a sibling knows this; by its number in c. -1: no more. */
static int next_of_sibling(const weft_comm *c, const weft_comm *k, bool (*is)(enum transport_fate), int *r)
{
    for (; *r < k->size; ++*r) {
        if (*r == k->rank || !is(k->transport->gone(k->link, *r)))
            continue;
        int rank = opened_as(c, k->link->origin ? k->link->origin[*r] : *r);
        if (rank >= 0) {
            ++*r;
            return rank;
        }
    }
    return -1;
}

static bool has_died(enum transport_fate fate)
{
    return fate == TRANSPORT_DIED;
}

static void look_at(struct survivors *s, int rank)
{
    weft_comm *c = s->comm;
    enum transport_fate fate = c->transport->gone(c->link, rank);
    bool left = fate == TRANSPORT_LEFT;
    bool quit = left && (transport_elsewhere(c->link, rank)
                             ? survive_in(s->quit, rank)
                             : !atomic_load_explicit(&c->group->ranks[rank].went_on, memory_order_seq_cst));
    if ((fate == TRANSPORT_DIED || quit) && !survive_in(s->dead, rank)) {
        survive_put(s->dead, rank, true);
        s->news = true;
    }
    survive_put(s->lost, rank, fate == TRANSPORT_LOST || (left && !quit));
}

bool survive_is_gone(weft_comm *c, int rank)
{
    struct survivors *s = survive_state_of(c);
    if (!s)
        return false;
    look_at(s, rank);
    return survive_in(s->dead, rank) || c->transport->gone(c->link, rank) == TRANSPORT_LOST;
}

/* Looks at all ranks, at most once in a beat, unless it is known that none of them has gone since. */
static void look(struct survivors *s, int64_t now)
{
    weft_comm *c = s->comm;
    uint64_t departures = 0;
    if (now - s->looked_at < c->beat_ns || (liveness_departures(c, &departures) && departures == s->departures))
        return;
    s->departures = departures;
    s->looked_at = now;
    mail_spread_again(c);
    for (int r = 0; r < c->size; r++)
        if (r != c->rank && !survive_in(s->dead, r))
            look_at(s, r);
    for (const weft_comm *k = c->sibling; k != c; k = k->sibling)
        for (int at = 0, r; (r = next_of_sibling(c, k, has_died, &at)) >= 0;) {
            s->news |= !survive_in(s->dead, r);
            survive_put(s->dead, r, true);
        }
}

static bool has_asked(const struct survivors *s, int rank)
{
    uint64_t a = s->agreement;
    if (!transport_elsewhere(s->comm->link, rank))
        return survive_words_asked(s, rank) >= a;
    return (survive_in(s->asked, rank) && s->newest == a) ||
           (survive_agreement(s->view.ballot) == a && survive_leader(s->view.ballot) == rank);
}

/* Does this rank not expect the other one to lead? Later than the deadline, ranks tell others that they ask: they need
 * a moment for that. */
static bool is_out(const struct survivors *s, int rank, int64_t now)
{
    bool late = survive_late(s, now - s->comm->deadline_ns / 8);
    if (survive_in(s->dead, rank))
        return true;
    return has_asked(s, rank) ? late && survive_in(s->lost, rank) : late || survive_in(s->lost, rank);
}

static int leader(const struct survivors *s, int64_t now)
{
    int r = 0;
    while (r < s->comm->rank && is_out(s, r, now))
        r++;
    return r;
}

/* ---- one rank of an agreement ---- */

static int no_majority(const struct survivors *s)
{
    struct comm_names names = {0};
    weft_comm *c = s->comm;
    int n = 0;
    for (int r = 0; r < c->size; r++) {
        n += survive_in(s->view.list, r);
        if (!survive_in(s->view.list, r) && !survive_in(s->dead, r))
            names_add(&names, c, r, "");
    }
    return error_set(
        WEFT_EPEER,
        "weft_comm_survivors: %d of %d ranks agree, and %s may be alive: ranks that cannot be reached or do "
        "not ask are left out only if more than half of all ranks agree",
        n, c->size, names_text(&names));
}

/* A rank has told a word with a lower ballot than the one in view: its leader has to bid more, or has missed the
 * result. */
static void answer(struct survivors *s)
{
    if (s->repeated && s->view.phase == SURVIVE_COMMITS)
        survive_mail_word(s, s->answers, &s->view, 0, 0);
    else if (s->repeated)
        survive_mail_report(s, s->answers);
    s->repeated = false;
}

/* Does what the leader's word asks for. 1: it is the result; -1: there will be none. */
static int follow(struct survivors *s)
{
    const struct survive_word *v = &s->view;
    answer(s);
    if (survive_agreement(v->ballot) != s->agreement)
        return 0;
    if (v->phase == SURVIVE_COMMITS)
        return 1;
    if (v->phase == SURVIVE_FAILS)
        return -1;
    bool changed = v->ballot > s->promised;
    s->promised = changed ? v->ballot : s->promised;
    if (v->phase == SURVIVE_PROPOSES && v->ballot == s->promised && s->accepted != v->ballot &&
        survive_in(v->list, s->comm->rank)) {
        s->accepted = v->ballot;
        memcpy(s->accepted_list, v->list, s->words * sizeof *v->list);
        changed = true;
    }
    if (changed || s->news)
        survive_words_hold(s);
    s->changed |= s->news;
    s->news = false;
    return 0;
}

/* How many ranks of this host come before this one? */
static int before(const struct survivors *s)
{
    const struct core_group *g = s->comm->group;
    int n = 0;
    for (int i = 0; g->ranks[i].indexed != s->comm->rank; i++)
        n += !survive_in(s->dead, g->ranks[i].indexed);
    return n;
}

/* Without the word of a leader, the first rank of each host asks on the way up to the rank that should lead: so it
 * finds out whether ranks there are dead, and they hear of the agreement. The others ask later, one after the other.
 * After its deadline a rank tells others that it asks: the ranks 1, 2, 4, 8 and so on after it. So a rank hears it of
 * one before it, unless none of these asks, and does not lead then. If several ranks lead nevertheless, the lowest of
 * them outbids the others. */
static void ask(struct survivors *s, int from, int64_t now)
{
    weft_comm *c = s->comm;
    if (survive_agreement(s->view.ballot) == s->agreement)
        return;
    if (!s->asked_after && survive_late(s, now)) {
        s->asked_after = true;
        for (int step = 1; step < c->size - c->rank; step *= 2)
            if (transport_elsewhere(c->link, c->rank + step) && !survive_in(s->dead, c->rank + step))
                survive_mail_ask(s, c->rank + step);
    }
    if (!transport_elsewhere(c->link, from))
        return;
    if (!s->asked_at)
        s->asked_at = now;
    if (now - s->asked_at < survive_patience(s, ASK_NS, 1))
        return;
    int whom = survive_tree_up(s, from);
    int turn = before(s);
    if (now - s->asked_at < survive_patience(s, ASK_AGAIN_NS, ASK_BEATS) * (turn ? turn : whom == s->asked_whom))
        return;
    s->asked_more = s->asked_whom >= 0 && survive_in(s->dead, s->asked_whom) ? survive_more(s->asked_more) : 0;
    s->asked_at = now;
    s->asked_whom = whom;
    survive_mail_ask(s, whom);
    for (int r = whom, n = s->asked_more; n > 0 && (r = survive_tree_next(s, r)) >= 0; n--)
        survive_mail_ask(s, r);
}

static int agree(struct survivors *s)
{
    weft_comm *c = s->comm;
    char who[NAMES_RANK];
    int64_t least = c->beat_ns / NAP, most = c->beat_ns / NAP_MOST;
    most = most < NAP_LIMIT_NS ? most : NAP_LIMIT_NS;
    for (int64_t nap = least;; nap = 2 * nap < most ? 2 * nap : most) {
        uint64_t before = s->view.ballot * 5 + s->view.phase;
        int64_t now = core_now();
        mail_receive(c);
        survive_words_look(s, now);
        if (s->newest > s->agreement) {
            survive_state_enter(s, s->newest);
            survive_words_ask(s);
        }
        look(s, now);
        int from = leader(s, now), done = follow(s);
        if (!done && from == c->rank) {
            survive_lead_step(s, now);
            done = follow(s);
        }
        survive_tree_move(s, now);
        if (done)
            return done > 0 ? 0 : no_majority(s);
        ask(s, from, now);
        if (now >= s->began + 2 * c->deadline_ns)
            return error_set(WEFT_ETIMEOUT, "weft_comm_survivors: %s has not sent the list of survivors within %lld ms",
                             names_rank(c, from, who), (long long)(2 * c->deadline_ns / 1000000));
        if (s->view.ballot * 5 + s->view.phase != before)
            nap = least;
        nanosleep(&(struct timespec){.tv_nsec = nap}, NULL);
    }
}

static void decide(struct survivors *s)
{
    if (s->view.ballot == s->decided.ballot)
        return;
    s->decided.ballot = s->view.ballot;
    s->decided.phase = s->view.phase;
    memcpy(s->decided.list, s->view.list, s->words * sizeof *s->view.list);
}

static int64_t finish_ns(const struct survivors *s)
{
    int64_t ns = survive_patience(s, FINISH_NS, FINISH_BEATS), most = s->comm->deadline_ns / 8;
    return ns < most ? ns : most;
}

/* Stays until the ranks that this one speaks for have the result, too, for a bounded time. If others have begun the
 * next agreement, they have had it. */
static void finish(struct survivors *s)
{
    weft_comm *c = s->comm;
    uint64_t key = survive_key(&s->view);
    int64_t now = core_now(), until = now + finish_ns(s);
    int64_t least = c->beat_ns / NAP, most = c->beat_ns / NAP_MOST;
    for (int64_t nap = least; survive_key(&s->view) == key; nap = 2 * nap < most ? 2 * nap : most, now = core_now()) {
        survive_tree_move(s, now);
        if (survive_tree_settled(s))
            return;
        if (now >= until) {
            survive_tree_pass_on(s, &s->view, s->first, s->hosts);
            return;
        }
        nanosleep(&(struct timespec){.tv_nsec = nap}, NULL);
        mail_receive(c);
        look(s, now);
    }
}

/* ---- the call ---- */

/* A rank that has died, as this rank knows by this comm or by one that was split from it or that it was split from; or
 * -1. */
static int find_dead(weft_comm *c)
{
    int dead = -1;
    mail_move(c);
    for (int r = 0; r < c->size && dead < 0; r++)
        if (r != c->rank && transport_failed(c->transport->gone(c->link, r)))
            dead = r;
    for (const weft_comm *k = c->sibling; k != c && dead < 0; k = k->sibling) {
        int at = 0;
        dead = next_of_sibling(c, k, transport_failed, &at);
    }
    return dead;
}

/* Has such a comm failed because of a death that this rank's wire has not reported? Another rank has told of it. */
static bool heard_of_death(const weft_comm *c)
{
    const char *text;
    for (const weft_comm *k = c->sibling; k != c; k = k->sibling) {
        bool heard = core_failed(k->group) && core_failure(k->group, &text) == WEFT_EPEER;
        for (int r = 0; r < k->size && heard; r++)
            heard = r == k->rank || k->transport->gone(k->link, r) == TRANSPORT_HERE;
        if (heard)
            return true;
    }
    return false;
}

/* A rank may have died without a call on this comm that has found out. If others have told this rank of a death, its
 * own wire reports that within a bounded time. */
static int fail_for_the_dead(weft_comm *c)
{
    char who[NAMES_RANK];
    const int64_t until = core_now() + HEARD_NS;
    int dead = find_dead(c);
    while (dead < 0 && heard_of_death(c) && core_now() < until) {
        nanosleep(&(struct timespec){.tv_nsec = HEARD_NAP_NS}, NULL);
        dead = find_dead(c);
    }
    if (dead < 0)
        return error_set(WEFT_EINVAL, "weft_comm_survivors: the comm has not failed");
    comm_fail(c, WEFT_EPEER, "%s has died or cannot be reached, as rank %d found in weft_comm_survivors",
              names_rank(c, dead, who), c->rank);
    return 0;
}

static int find(weft_comm *c)
{
    int err = core_failed(c->group) ? 0 : fail_for_the_dead(c);
    struct survivors *s = err ? NULL : survive_state_of(c);
    if (!err)
        err = s ? survive_words_open(s) : error_nomem();
    if (err)
        return err;
    s->began = core_now();
    s->looked_at = 0;
    s->words_at = s->began;
    s->departures = UINT64_MAX;
    survive_state_enter(s, s->newest > s->agreement ? s->newest : s->agreement + 1);
    survive_words_ask(s);
    if (survive_agreement(s->view.ballot) == s->agreement)
        survive_words_lead(s); /* it came by mail before this rank had words */
    s->asking = true;
    err = agree(s);
    if (!err) {
        decide(s);
        finish(s);
    }
    s->asking = false;
    mail_flush(c, finish_ns(s)); /* what this rank said last: mail to silent ranks may stay unsent */
    return err;
}

int weft_comm_survivors(weft_comm *c, int *ranks, size_t cap, size_t *n)
{
    if (!c || !n || (cap && !ranks))
        return error_set(WEFT_EINVAL, "weft_comm_survivors: arguments must not be NULL");
    if (lock_in_callback(c))
        return error_set(WEFT_EBUSY, "weft_comm_survivors: not inside a callback");
    if (c->size > 1 << SURVIVE_RANK_BITS)
        return error_set(WEFT_EUNSUPPORTED, "weft_comm_survivors: at most %d ranks, not %d", 1 << SURVIVE_RANK_BITS,
                         c->size);
    struct comm_family *f = comm_enter(c);
    int err = find(c);
    const uint64_t *list = err ? NULL : c->survivors->decided.list;
    if (list && !survive_in(list, c->rank))
        err = error_set(WEFT_EPEER, "weft_comm_survivors: the others did not wait for rank %d and go on without it",
                        c->rank);
    *n = err ? *n : 0;
    for (int r = 0; r < c->size && !err; r++)
        if (survive_in(list, r)) {
            if (*n < cap)
                ranks[*n] = r;
            ++*n;
        }
    comm_leave(f);
    return err;
}
