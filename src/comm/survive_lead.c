/* The rank that leads an agreement. survive.c says why it does what it does. */
#include <stdlib.h>
#include <string.h>

#include "comm/mail.h"
#include "comm/survive_state.h"
#include "transport/hosts/hosts.h"

#define ANSWER_NS                                                                                                     \
    INT64_C(500000000)               /* a rank that seems lost, or has been silent, may still answer within this time \
                                      */
#define REPEAT_NS INT64_C(300000000) /* after which a word that is not answered is mailed again */

static int64_t answer_ns(const struct survivors *s)
{
    return s->comm->deadline_ns / 4 < ANSWER_NS ? s->comm->deadline_ns / 4 : ANSWER_NS;
}

/* May there be no result any more? Ranks that did not ask before the deadline get half as much time again to answer. */
static bool is_over(const struct survivors *s, int64_t now)
{
    return survive_late(s, now - s->comm->deadline_ns / 2);
}

/* ---- telling ---- */

static bool has_answered(const struct survivors *s, int rank)
{
    const struct survive_peer *p = &s->peers[rank];
    switch (s->view.phase) {
    case SURVIVE_PREPARES: return p->promised == s->view.ballot;
    case SURVIVE_PROPOSES: return p->accepted == s->view.ballot || !survive_in(s->view.list, rank);
    default: return true;
    }
}

static void tell_one(struct survivors *s, int rank, int64_t now)
{
    struct survive_peer *p = &s->peers[rank];
    uint64_t key = s->view.ballot * 5 + s->view.phase;
    if (p->told == key && (has_answered(s, rank) || now - p->told_at < REPEAT_NS))
        return;
    p->told = key;
    p->told_at = now;
    survive_mail_word(s, rank, &s->view);
}

/* One rank of each other host is told, and the others read its words: the first that has answered, or the first. A rank
 * that has asked by mail hears nothing there: it is told, too. */
static void tell(struct survivors *s, int64_t now)
{
    const struct transport_hosts *hosts = s->comm->link->hosts;
    if (!hosts)
        return;
    int *speaks = malloc((size_t)hosts->nhosts * sizeof *speaks);
    for (int h = 0; h < hosts->nhosts && speaks; h++)
        speaks[h] = -1;
    for (int r = 0; r < s->comm->size && speaks; r++) {
        int *k = &speaks[hosts->host[r]];
        bool promised = s->peers[r].promised == s->view.ballot;
        if (!survive_in(s->dead, r) && (*k < 0 || (promised && s->peers[*k].promised != s->view.ballot)))
            *k = r;
    }
    for (int r = 0; r < s->comm->size && speaks; r++)
        if (hosts->host[r] != hosts->here && !survive_in(s->dead, r) &&
            (speaks[hosts->host[r]] == r || s->peers[r].direct))
            tell_one(s, r, now);
    free(speaks);
}

static void say(struct survivors *s, enum survive_phase phase, int64_t now)
{
    s->view.phase = phase;
    survive_words_lead(s);
    tell(s, now);
}

/* ---- the steps ---- */

static void prepare(struct survivors *s, uint64_t round, int64_t now)
{
    s->view.ballot = s->promised = survive_ballot(s->agreement, round, s->comm->rank);
    memset(s->view.list, 0, s->words * sizeof *s->view.list);
    s->prepared_at = now;
    survive_state_best(s, s->accepted, s->accepted_list);
    survive_words_hold(s);
    say(s, SURVIVE_PREPARES, now);
}

/* Leaves this agreement without a result and begins the next one, in which nothing is accepted yet. */
static void begin_next(struct survivors *s, int64_t now)
{
    survive_state_enter(s, s->agreement + 1);
    survive_words_ask(s);
    prepare(s, 1, now);
}

static bool has_promised(const struct survivors *s, int rank)
{
    return rank == s->comm->rank || s->peers[rank].promised == s->view.ballot;
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
static void give_up(struct survivors *s, int64_t now)
{
    for (int r = 0; r < s->comm->size; r++)
        survive_put(s->view.list, r, has_promised(s, r) && !survive_in(s->dead, r));
    say(s, SURVIVE_FAILS, now);
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
            give_up(s, now);
        return;
    }
    if (survive_in(s->view.list, s->comm->rank)) {
        s->accepted = s->view.ballot;
        memcpy(s->accepted_list, s->view.list, s->words * sizeof *s->accepted_list);
        survive_words_hold(s);
    }
    s->proposed_at = now;
    say(s, SURVIVE_PROPOSES, now);
}

static void try_to_commit(struct survivors *s, int64_t now)
{
    bool waits = false, stuck = false;
    int n = 0;
    for (int r = 0; r < s->comm->size; r++) {
        if (!survive_in(s->view.list, r) || survive_in(s->dead, r))
            continue;
        bool accepted = r == s->comm->rank || s->peers[r].accepted == s->view.ballot;
        n += accepted;
        waits |= !accepted;
        stuck |= !accepted && now - s->proposed_at > (survive_in(s->lost, r) ? answer_ns(s) : s->comm->deadline_ns / 4);
    }
    if (!waits && leaves_out(s, s->view.list) && 2 * n <= s->comm->size)
        stuck = true; /* ranks of the list have died, and the others are too few */
    else if (!waits)
        say(s, SURVIVE_COMMITS, now);
    if (stuck && s->fresh)
        begin_next(s, now);
    else if (stuck && is_over(s, now))
        give_up(s, now);
}

void survive_lead_step(struct survivors *s, int64_t now)
{
    const struct survive_word *v = &s->view;
    bool same = survive_agreement(v->ballot) == s->agreement;
    uint64_t bid = same && survive_leader(v->ballot) != s->comm->rank ? survive_round(v->ballot) + 1 : !same;
    for (int r = 0; r < s->comm->size; r++) {
        if (r == s->comm->rank)
            continue;
        if (!transport_elsewhere(s->comm->link, r))
            survive_words_collect(s, r);
        uint64_t promised = s->peers[r].promised;
        if (survive_agreement(promised) == s->agreement && promised > v->ballot && survive_round(promised) >= bid)
            bid = survive_round(promised) + 1;
    }
    if (bid)
        prepare(s, bid, now);
    tell(s, now);
    if (v->phase == SURVIVE_PREPARES)
        try_to_propose(s, now);
    else if (v->phase == SURVIVE_PROPOSES)
        try_to_commit(s, now);
}
