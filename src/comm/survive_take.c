/* Mail of the agreement that comes. Mail may be lost with a connection that was ended after the failure, so a word is
 * repeated until it is answered. */
#include <string.h>

#include "comm/survive_packet.h"
#include "comm/survive_state.h"

static void take_part(uint64_t *set, size_t *upto, const struct survive_packet *m)
{
    if (m->first > *upto)
        return; /* a part before it is missing: the leader will repeat it */
    memcpy(set + m->first, m->set, m->n * sizeof *set);
    *upto = m->first + m->n > *upto ? m->first + m->n : *upto;
}

/* This rank is in no agreement, and has the result that the word tells. */
static bool is_known(const struct survivors *s, const struct survive_word *w)
{
    return !s->asking && w->phase == SURVIVE_COMMITS && s->decided.ballot == w->ballot &&
           survive_key(&s->view) == survive_key(w);
}

static void take_whole_word(struct survivors *s, int peer, const struct survive_word *w, int first, int hosts)
{
    uint64_t agreement = survive_agreement(w->ballot);
    if (survive_state_newer(s, w->ballot, w->phase)) {
        survive_state_view(s, w->ballot, w->phase, w->list);
        if (s->block)
            survive_words_lead(s);
    } else if (hosts && is_known(s, w)) {
        survive_tree_pass_on(s, w, (first + 1) % s->comm->link->hosts->nhosts, hosts - 1);
        survive_mail_report(s, peer);
        return;
    } else if (s->asking && agreement < s->agreement) {
        survive_mail_ask(s, peer); /* it has to join the newer agreement */
        return;
    }
    if (hosts)
        survive_tree_told(s, peer, w, first, hosts, core_now());
    s->newest = agreement > s->newest ? agreement : s->newest;
}

static void take_word(struct survivors *s, int peer, const struct survive_packet *m)
{
    struct survive_word *w = &s->coming;
    int nhosts = s->comm->link->hosts->nhosts;
    uint64_t first = m->number >> 32, hosts = (uint32_t)m->number;
    if (survive_leader(m->ballot) >= s->comm->size || m->phase < SURVIVE_PREPARES || m->phase > SURVIVE_FAILS ||
        first >= (uint64_t)nhosts || hosts > (uint64_t)nhosts)
        return;
    /* A word of an agreement which this rank has the result of. */
    if (m->phase < SURVIVE_COMMITS && s->decided.ballot &&
        survive_agreement(m->ballot) <= survive_agreement(s->decided.ballot)) {
        survive_mail_word(s, peer, &s->decided, 0, 0);
        return;
    }
    if (!m->first) {
        w->ballot = m->ballot;
        w->phase = m->phase;
        s->coming_words = 0;
    }
    if (w->ballot != m->ballot || w->phase != m->phase)
        return;
    take_part(w->list, &s->coming_words, m);
    if (s->coming_words < s->words && w->phase != SURVIVE_PREPARES)
        return;
    take_whole_word(s, peer, w, (int)first, (int)hosts);
}

static void take_ask(struct survivors *s, int peer, const struct survive_packet *m)
{
    if (s->decided.ballot && m->number <= survive_agreement(s->decided.ballot)) {
        survive_mail_word(s, peer, &s->decided, 0, 0);
        return;
    }
    if (m->number >= s->newest) {
        if (m->number > s->newest)
            memset(s->asked, 0, s->words * sizeof *s->asked);
        s->newest = m->number;
        survive_put(s->asked, peer, true);
    }
    survive_tree_asked(s, peer, m->number);
}

static void take_holds(struct survivors *s, const struct survive_packet *m)
{
    struct survive_word *w = &s->coming_best;
    if (w->ballot > m->ballot && survive_agreement(w->ballot) == survive_agreement(m->ballot))
        return;
    if (w->ballot != m->ballot)
        s->coming_best_words = 0;
    w->ballot = m->ballot;
    take_part(w->list, &s->coming_best_words, m);
}

/* Answers count if they are to the word in view, and the list that they name is here. Otherwise the word is repeated,
 * and they come again. */
static void take_answers(struct survivors *s, int peer, const struct survive_packet *m)
{
    uint64_t held = m->held;
    bool lists = held && survive_agreement(held) == s->agreement && held > s->best.ballot;
    s->outbid = m->number > s->outbid ? m->number : s->outbid;
    survive_tree_sync(s);
    survive_tree_heard(s, peer, core_now());
    if (m->ballot != s->view.ballot || m->phase != s->view.phase || held >= m->ballot)
        return;
    if (lists && (s->coming_best.ballot != held || s->coming_best_words < s->words))
        return;
    if (lists)
        survive_state_best(s, held, s->coming_best.list);
    for (size_t k = 0; k < m->n; k++) {
        uint64_t *answered = &s->answered[m->first + k];
        s->changed |= (m->set[k] & ~*answered) != 0;
        *answered |= m->set[k];
        if (s->newest == survive_agreement(m->ballot))
            s->asked[m->first + k] |= m->set[k];
    }
}

void survive_take(weft_comm *c, int peer, const void *packet, size_t n)
{
    struct survive_packet m;
    struct survivors *s = survive_state_of(c);
    if (!s || n < SURVIVE_HEAD || n > sizeof m)
        return; /* without memory the caller's deadline will run out */
    memcpy(&m, packet, n);
    if (m.n != (n - SURVIVE_HEAD) / sizeof *m.set || (n - SURVIVE_HEAD) % sizeof *m.set || m.first > s->words ||
        m.n > s->words - m.first)
        return;
    switch (m.kind) {
    case SURVIVE_ASKS: take_ask(s, peer, &m); break;
    case SURVIVE_LEADS: take_word(s, peer, &m); break;
    case SURVIVE_DEAD: survive_state_dead(s, m.first, m.set, m.n); break;
    case SURVIVE_AWAY:
        for (size_t k = 0; k < m.n; k++) {
            s->changed |= (m.set[k] & ~s->away[m.first + k]) != 0;
            s->away[m.first + k] |= m.set[k];
        }
        break;
    case SURVIVE_HOLDS: take_holds(s, &m); break;
    case SURVIVE_ANSWERS: take_answers(s, peer, &m); break;
    case SURVIVE_QUITS: /* it will not take part any more: that is known, though its farewell may come later, or to
                           others */
        s->news |= !survive_in(s->dead, peer);
        survive_put(s->quit, peer, true);
        survive_put(s->dead, peer, true);
        break;
    case SURVIVE_GIVES_UP:
        if (m.number > (uint64_t)c->size)
            break;
        atomic_store_explicit(&c->group->ranks[peer].gave_up_for, (int32_t)m.number, memory_order_seq_cst);
        atomic_store_explicit(&c->group->ranks[peer].gave_up, m.ballot, memory_order_seq_cst);
        atomic_fetch_add_explicit(&c->group->departures, 1, memory_order_seq_cst);
        break;
    default: break; /* cannot happen: the other end has the same version */
    }
}
