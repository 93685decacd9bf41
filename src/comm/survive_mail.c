/* Mail of the agreement that this rank sends. */
#include <stdlib.h>
#include <string.h>

#include "comm/survive.h"
#include "comm/survive_packet.h"
#include "comm/survive_state.h"

static void send(struct survivors *s, int rank, struct survive_packet *m)
{
    (void)mail_send(s->comm, rank, m, SURVIVE_HEAD + m->n * sizeof *m->set); /* if it cannot be sent, `gone` says so */
}

static void send_set(struct survivors *s, int rank, struct survive_packet *m, const uint64_t *set)
{
    for (size_t first = 0; first < s->words; first += SURVIVE_PART) {
        size_t n = s->words - first < SURVIVE_PART ? s->words - first : SURVIVE_PART;
        m->first = (uint32_t)first;
        m->n = (uint32_t)n;
        memcpy(m->set, set + first, n * sizeof *set);
        send(s, rank, m);
    }
}

void survive_mail_ask(struct survivors *s, int rank)
{
    struct survive_packet m = {.kind = SURVIVE_ASKS, .number = s->agreement};
    send(s, rank, &m);
}

void survive_mail_word(struct survivors *s, int rank, const struct survive_word *w, int first, int hosts)
{
    struct survive_packet m = {.kind = SURVIVE_LEADS,
                               .ballot = w->ballot,
                               .phase = (uint32_t)w->phase,
                               .number = (uint64_t)first << 32 | (uint32_t)hosts};
    if (w->phase == SURVIVE_PREPARES)
        send(s, rank, &m);
    else
        send_set(s, rank, &m, w->list);
}

static void send_away(struct survivors *s, int rank)
{
    uint64_t *away = malloc(s->words * sizeof *away), any = 0;
    for (size_t k = 0; k < s->words && away; k++)
        any |= away[k] = (s->lost[k] | s->away[k]) & ~s->answered[k] & ~s->dead[k];
    struct survive_packet m = {.kind = SURVIVE_AWAY};
    if (any)
        send_set(s, rank, &m, away);
    free(away);
}

void survive_mail_report(struct survivors *s, int rank)
{
    struct survive_packet m = {.kind = SURVIVE_DEAD};
    bool any = false;
    for (size_t k = 0; k < s->words; k++)
        any |= s->dead[k] != 0;
    if (any)
        send_set(s, rank, &m, s->dead);
    send_away(s, rank);
    uint64_t held = s->view.phase == SURVIVE_PREPARES ? s->best.ballot : 0;
    if (held) {
        m = (struct survive_packet){.kind = SURVIVE_HOLDS, .ballot = held};
        send_set(s, rank, &m, s->best.list);
    }
    m = (struct survive_packet){.kind = SURVIVE_ANSWERS,
                                .ballot = s->view.ballot,
                                .phase = (uint32_t)s->view.phase,
                                .number = s->outbid > s->promised ? s->outbid : s->promised,
                                .held = held};
    send_set(s, rank, &m, s->answered);
}

/* Is no rank of this host left that may still take part in the agreement? If two ranks quit at the same time, at least
 * one of them sees the word of the other: each sets its own before it looks. */
static bool is_last(weft_comm *c)
{
    struct core_group *g = c->group;
    atomic_store_explicit(&g->ranks[c->rank].quits, 1, memory_order_seq_cst);
    for (int i = 0; i < g->here; i++) {
        int r = g->ranks[i].indexed;
        if (!atomic_load_explicit(&g->ranks[r].quits, memory_order_seq_cst) &&
            c->transport->gone(c->link, r) == TRANSPORT_HERE)
            return false;
    }
    return true;
}

/* Of many ranks only some are told. So a rank that quits also tells which ranks it knows to be dead or to have quit.
 * Whoever leads the agreement hears it from any rank that reports. The ranks of a host see in its memory which of them
 * have quit, and report it if they take part. So only the last rank of a host tells hosts that it is not connected
 * with. If the last one dies instead, the ranks that speak to this host find out by their mail that none is there. */
void survive_mail_quit(weft_comm *c)
{
    if (!c->mail)
        return;
    bool last = is_last(c);
    struct survivors *s = last && mail_is_wide(c) && c->group->here > 1 ? survive_state_of(c) : c->survivors;
    for (int i = 0; s && last && i < c->group->here; i++) {
        int r = c->group->ranks[i].indexed;
        if (atomic_load_explicit(&c->group->ranks[r].quits, memory_order_seq_cst) ||
            c->transport->gone(c->link, r) == TRANSPORT_DIED)
            survive_put(s->dead, r, true);
    }
    struct survive_packet m = {.kind = SURVIVE_DEAD};
    for (size_t first = 0; s && mail_is_wide(c) && first < s->words; first += SURVIVE_PART) {
        m.first = (uint32_t)first;
        m.n = (uint32_t)(s->words - first < SURVIVE_PART ? s->words - first : SURVIVE_PART);
        memcpy(m.set, s->dead + first, m.n * sizeof *m.set);
        mail_tell(c, &m, SURVIVE_HEAD + m.n * sizeof *m.set, last);
    }
    m = (struct survive_packet){.kind = SURVIVE_QUITS};
    mail_tell(c, &m, SURVIVE_HEAD, last);
}

void survive_mail_gives_up(weft_comm *c, int rank, uint64_t id, int gone)
{
    struct survive_packet m = {.kind = SURVIVE_GIVES_UP, .ballot = id, .number = (uint64_t)(gone + 1)};
    (void)mail_send(c, rank, &m, SURVIVE_HEAD);
}
