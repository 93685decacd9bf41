/* Mail of the agreement. A set of ranks that does not fit into one packet goes in several, in order. Mail may be lost
 * with a connection that was ended after the failure, so a leader repeats its word until it is answered. */
#include <stdlib.h>
#include <string.h>

#include "comm/mail.h"
#include "comm/survive.h"
#include "comm/survive_state.h"
#include "transport/hosts/hosts.h"

enum {
    ASKS = MAIL_KIND(MAIL_SURVIVE, 1),    /* number: the agreement that its sender is in */
    LEADS = MAIL_KIND(MAIL_SURVIVE, 2),   /* ballot; number: the phase; a part of the list */
    DEAD = MAIL_KIND(MAIL_SURVIVE, 3),    /* a part of the set of the dead */
    HOLDS = MAIL_KIND(MAIL_SURVIVE, 4),   /* ballot: of the list that its sender has accepted; a part of it */
    REPORTS = MAIL_KIND(MAIL_SURVIVE, 5), /* ballot: promised; number: accepted. What belongs to it came before. */
    QUITS = MAIL_KIND(MAIL_SURVIVE, 6),   /* its sender closes the comm, and has not gone on with any list */
    GIVES_UP = MAIL_KIND(MAIL_SURVIVE, 7) /* ballot: the attempt to open a comm again; number: the rank gone, plus 1 */
};

#define HEAD 32
#define PART ((WIRE_MAIL - HEAD) / sizeof(uint64_t)) /* words of a set in one packet */

struct packet {
    uint32_t kind;
    uint32_t first, n; /* which words of a set it has */
    uint32_t unused;
    uint64_t ballot, number;
    uint64_t set[PART];
};

_Static_assert(offsetof(struct packet, set) == HEAD && sizeof(struct packet) <= WIRE_MAIL, "a packet fits");

/* ---- sending ---- */

static void send(struct survivors *s, int rank, struct packet *m)
{
    (void)mail_send(s->comm, rank, m, HEAD + m->n * sizeof *m->set); /* if it cannot be sent, `gone` says so */
}

static void send_set(struct survivors *s, int rank, struct packet *m, const uint64_t *set)
{
    for (size_t first = 0; first < s->words; first += PART) {
        size_t n = s->words - first < PART ? s->words - first : PART;
        m->first = (uint32_t)first;
        m->n = (uint32_t)n;
        memcpy(m->set, set + first, n * sizeof *set);
        send(s, rank, m);
    }
}

void survive_mail_ask(struct survivors *s, int rank)
{
    struct packet m = {.kind = ASKS, .number = s->agreement};
    send(s, rank, &m);
}

void survive_mail_word(struct survivors *s, int rank, const struct survive_word *w)
{
    struct packet m = {.kind = LEADS, .ballot = w->ballot, .number = w->phase};
    if (w->phase == SURVIVE_PREPARES)
        send(s, rank, &m);
    else
        send_set(s, rank, &m, w->list);
}

void survive_mail_report(struct survivors *s, int rank)
{
    struct packet m = {.kind = DEAD};
    bool any = false;
    for (size_t k = 0; k < s->words; k++)
        any |= s->dead[k] != 0;
    if (any)
        send_set(s, rank, &m, s->dead);
    if (s->accepted && s->accepted != s->view.ballot) {
        m = (struct packet){.kind = HOLDS, .ballot = s->accepted};
        send_set(s, rank, &m, s->accepted_list);
    }
    m = (struct packet){.kind = REPORTS, .ballot = s->promised, .number = s->accepted};
    send(s, rank, &m);
    s->news = false;
}

/* Of many ranks only some are told. So a rank that quits also tells which ranks it knows to be dead or to have quit.
 * Whoever leads the agreement hears it from any rank that reports. */
void survive_mail_quit(weft_comm *c)
{
    const struct survivors *s = c->survivors;
    struct packet m = {.kind = DEAD};
    for (size_t first = 0; s && mail_is_wide(c) && first < s->words; first += PART) {
        m.first = (uint32_t)first;
        m.n = (uint32_t)(s->words - first < PART ? s->words - first : PART);
        memcpy(m.set, s->dead + first, m.n * sizeof *m.set);
        mail_tell(c, &m, HEAD + m.n * sizeof *m.set);
    }
    m = (struct packet){.kind = QUITS};
    mail_tell(c, &m, HEAD);
}

void survive_mail_gives_up(weft_comm *c, int rank, uint64_t id, int gone)
{
    struct packet m = {.kind = GIVES_UP, .ballot = id, .number = (uint64_t)(gone + 1)};
    (void)mail_send(c, rank, &m, HEAD);
}

/* ---- receiving ---- */

static void take_part(uint64_t *set, size_t *upto, const struct packet *m)
{
    if (m->first > *upto)
        return; /* a part before it is missing: the leader will repeat it */
    memcpy(set + m->first, m->set, m->n * sizeof *set);
    *upto = m->first + m->n > *upto ? m->first + m->n : *upto;
}

static void take_word(struct survivors *s, int peer, const struct packet *m)
{
    struct survive_word *w = &s->coming;
    if (survive_leader(m->ballot) >= s->comm->size || m->number < SURVIVE_PREPARES || m->number > SURVIVE_FAILS ||
        (m->number != SURVIVE_COMMITS && survive_leader(m->ballot) != peer))
        return;
    /* A leader that asks about an agreement which this rank has the result of. */
    if (m->number < SURVIVE_COMMITS && s->decided.ballot &&
        survive_agreement(m->ballot) <= survive_agreement(s->decided.ballot)) {
        survive_mail_word(s, peer, &s->decided);
        return;
    }
    if (!m->first) {
        w->ballot = m->ballot;
        w->phase = m->number;
        s->coming_words = 0;
    }
    if (w->ballot != m->ballot || w->phase != m->number)
        return;
    take_part(w->list, &s->coming_words, m);
    if (s->coming_words < s->words && w->phase != SURVIVE_PREPARES)
        return;
    if (survive_state_newer(s, w->ballot, w->phase)) {
        survive_state_view(s, w->ballot, w->phase, w->list);
        if (s->block)
            survive_words_lead(s);
    } else {
        s->repeated = true;
        s->answers = peer;
    }
    uint64_t agreement = survive_agreement(w->ballot);
    s->newest = agreement > s->newest ? agreement : s->newest;
}

static void take_ask(struct survivors *s, int peer, const struct packet *m)
{
    if (s->decided.ballot && m->number <= survive_agreement(s->decided.ballot)) {
        survive_mail_word(s, peer, &s->decided);
        return;
    }
    if (m->number >= s->newest) {
        if (m->number > s->newest)
            memset(s->asked, 0, s->words * sizeof *s->asked);
        s->newest = m->number;
        survive_put(s->asked, peer, true);
    }
    s->peers[peer].direct = true;
    s->peers[peer].told = 0; /* tell it what it seems not to have heard */
}

static void take_holds(struct survivors *s, const struct packet *m)
{
    struct survive_word *w = &s->coming_best;
    if (w->ballot > m->ballot && survive_agreement(w->ballot) == survive_agreement(m->ballot))
        return;
    if (w->ballot != m->ballot)
        s->coming_best_words = 0;
    w->ballot = m->ballot;
    take_part(w->list, &s->coming_best_words, m);
}

/* A report counts if the list that it names is here. Otherwise the leader repeats its word, and gets another one. */
static void take_report(struct survivors *s, int peer, const struct packet *m)
{
    uint64_t accepted = m->number;
    bool lists = accepted && survive_agreement(accepted) == s->agreement && accepted > s->best.ballot &&
                 accepted != s->view.ballot;
    if (lists && (s->coming_best.ballot != accepted || s->coming_best_words < s->words))
        return;
    if (lists)
        survive_state_best(s, accepted, s->coming_best.list);
    s->peers[peer].promised = m->ballot;
    s->peers[peer].accepted = accepted;
}

void survive_mail_take(weft_comm *c, int peer, const void *packet, size_t n)
{
    struct packet m;
    struct survivors *s = survive_state_of(c);
    if (!s || n < HEAD || n > sizeof m)
        return; /* without memory the caller's deadline will run out */
    memcpy(&m, packet, n);
    if (m.n != (n - HEAD) / sizeof *m.set || (n - HEAD) % sizeof *m.set || m.first > s->words ||
        m.n > s->words - m.first)
        return;
    switch (m.kind) {
    case ASKS: take_ask(s, peer, &m); break;
    case LEADS: take_word(s, peer, &m); break;
    case DEAD:
        for (size_t k = 0; k < m.n; k++)
            s->dead[m.first + k] |= m.set[k];
        survive_put(s->dead, c->rank, false);
        break;
    case HOLDS: take_holds(s, &m); break;
    case REPORTS: take_report(s, peer, &m); break;
    case QUITS: /* it will not take part any more: that is known, though its farewell may come later, or to others */
        s->news |= !survive_in(s->dead, peer);
        survive_put(s->quit, peer, true);
        survive_put(s->dead, peer, true);
        break;
    case GIVES_UP:
        if (m.number > (uint64_t)c->size)
            break;
        atomic_store_explicit(&c->group->ranks[peer].gave_up_for, (int32_t)m.number, memory_order_seq_cst);
        atomic_store_explicit(&c->group->ranks[peer].gave_up, m.ballot, memory_order_seq_cst);
        atomic_fetch_add_explicit(&c->group->departures, 1, memory_order_seq_cst);
        break;
    default: break; /* cannot happen: the other end has the same version */
    }
}
