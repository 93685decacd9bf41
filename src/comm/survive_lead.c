/* The rank that leads an agreement. survive.c says why it does what it does. */
#include <string.h>

#include "comm/survive_state.h"

#define ANSWER_NS                                                                                       \
    INT64_C(500000000) /* a rank that seems lost, or has been silent, may still answer within this time \
                        */

static int64_t answer_ns(const struct survivors *s)
{
    return s->comm->deadline_ns / 4 < ANSWER_NS ? s->comm->deadline_ns / 4 : ANSWER_NS;
}

/* May there be no result any more? Ranks that did not ask before the deadline get half as much time again to answer. */
static bool is_over(const struct survivors *s, int64_t now)
{
    return survive_late(s, now - s->comm->deadline_ns / 2);
}

static void say(struct survivors *s, enum survive_phase phase)
{
    s->view.phase = phase;
    survive_words_lead(s);
}

/* ---- the steps ---- */

static void prepare(struct survivors *s, uint64_t round, int64_t now)
{
    s->view.ballot = s->promised = survive_ballot(s->agreement, round, s->comm->rank);
    memset(s->view.list, 0, s->words * sizeof *s->view.list);
    s->prepared_at = now;
    survive_state_best(s, s->accepted, s->accepted_list);
    survive_words_hold(s);
    say(s, SURVIVE_PREPARES);
    survive_tree_lead(s);
}

/* Leaves this agreement without a result and begins the next one, in which nothing is accepted yet. */
static void begin_next(struct survivors *s, int64_t now)
{
    survive_state_enter(s, s->agreement + 1);
    survive_words_ask(s);
    prepare(s, 1, now);
}

/* While the leader prepares. */
static bool has_promised(const struct survivors *s, int rank)
{
    return rank == s->comm->rank || survive_in(s->answered, rank);
}

/* Is there a rank that is not on the list, and of which it is not known that it is dead? */
static bool leaves_out(const struct survivors *s, const uint64_t *list)
{
    for (int r = 0; r < s->comm->size; r++)
        if (!survive_in(list, r) && !survive_in(s->dead, r))
            return true;
    return false;
}

/* No result: the list says which ranks have taken part. */
static void give_up(struct survivors *s)
{
    const uint64_t *all = s->view.phase == SURVIVE_PREPARES ? s->answered : s->took_part;
    for (int r = 0; r < s->comm->size; r++)
        survive_put(s->view.list, r, (r == s->comm->rank || survive_in(all, r)) && !survive_in(s->dead, r));
    say(s, SURVIVE_FAILS);
}

static void try_to_propose(struct survivors *s, int64_t now)
{
    bool late = survive_late(s, now), lacks = false, unheard = false;
    int n = 0;
    for (int r = 0; r < s->comm->size; r++) {
        bool in = has_promised(s, r) && !survive_in(s->dead, r);
        bool silent = late || survive_in(s->lost, r);
        if (!in && !survive_in(s->dead, r) && (!silent || now - s->prepared_at < answer_ns(s)))
            return;
        survive_put(s->view.list, r, in);
    }
    s->fresh = !s->best.ballot;
    if (!s->fresh)
        memcpy(s->view.list, s->best.list, s->words * sizeof *s->best.list);
    for (int r = 0; r < s->comm->size; r++) {
        bool dead = survive_in(s->dead, r), promised = has_promised(s, r) && !dead;
        n += promised;
        unheard |= !promised && !dead;
        lacks |= survive_in(s->view.list, r) && !promised && !dead;
    }
    if (lacks || (unheard && 2 * n <= s->comm->size)) {
        if (is_over(s, now))
            give_up(s);
        return;
    }
    if (survive_in(s->view.list, s->comm->rank)) {
        s->accepted = s->view.ballot;
        memcpy(s->accepted_list, s->view.list, s->words * sizeof *s->accepted_list);
        survive_words_hold(s);
    }
    s->proposed_at = now;
    memcpy(s->took_part, s->answered, s->words * sizeof *s->took_part);
    say(s, SURVIVE_PROPOSES);
    survive_tree_collect(s);
}

static void try_to_commit(struct survivors *s, int64_t now)
{
    bool waits = false, stuck = false;
    int n = 0;
    for (int r = 0; r < s->comm->size; r++) {
        if (!survive_in(s->view.list, r) || survive_in(s->dead, r))
            continue;
        bool accepted = survive_in(s->answered, r);
        n += accepted;
        waits |= !accepted;
        stuck |= !accepted && now - s->proposed_at > (survive_in(s->lost, r) ? answer_ns(s) : s->comm->deadline_ns / 4);
    }
    if (!waits && leaves_out(s, s->view.list) && 2 * n <= s->comm->size)
        stuck = true; /* ranks of the list have died, and the others are too few */
    else if (!waits)
        say(s, SURVIVE_COMMITS);
    if (stuck && s->fresh)
        begin_next(s, now);
    else if (stuck && is_over(s, now))
        give_up(s);
}

void survive_lead_step(struct survivors *s, int64_t now)
{
    const struct survive_word *v = &s->view;
    bool same = survive_agreement(v->ballot) == s->agreement;
    uint64_t bid = same && survive_leader(v->ballot) != s->comm->rank ? survive_round(v->ballot) + 1 : !same;
    survive_tree_collect(s);
    if (survive_agreement(s->outbid) == s->agreement && s->outbid > v->ballot && survive_round(s->outbid) >= bid)
        bid = survive_round(s->outbid) + 1;
    if (bid)
        prepare(s, bid, now);
    survive_tree_collect(s);
    if (v->phase == SURVIVE_PREPARES)
        try_to_propose(s, now);
    else if (v->phase == SURVIVE_PROPOSES)
        try_to_commit(s, now);
}
