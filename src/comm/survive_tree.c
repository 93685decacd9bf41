/* Which rank mails which in an agreement. A leader's word goes down a tree of hosts, and the answers come up, so no
 * rank mails more than a few others, however many there are.
 *
 * Hosts stand in a ring. The leader speaks for all of them, from its own on. A rank that speaks for several hosts cuts
 * those behind its own into SURVIVE_FAN parts, and tells one rank of the first host of each part, which speaks for that
 * part from then on. The other ranks of a host read the word there, and the rank that was told reads their answers
 * there. It sums up the answers of its hosts and reports them to the rank that has told it: at once when they are
 * complete, and otherwise now and then.
 *
 * Why that is safe: a sum is a set of ranks that have answered one word of one leader, the dead, and of all lists that
 * these ranks had accepted before the one with the highest ballot. Sums of two sets of ranks are merged into that of
 * both, in any order and any number of times. So it does not matter by which ranks an answer has come, how often, or
 * how late, and a leader that hears sums knows what a leader that hears each rank by itself would know, or less.
 * A sum that belongs to another word than the one in view is not merged. tests/models/survive.pml has it.
 *
 * Why every rank is told: a rank repeats its word to each part of which answers are missing. If the rank that it has
 * told is gone, or does not report, it hands the part over: to another rank of that host, or else to one of the next
 * host of the part, and keeps the first host for itself to tell. The new rank may tell ranks that were told before:
 * they report to the rank that has told them last, and answer each rank that repeats a word at once. The leader itself
 * tells ranks which others could not reach.
 *
 * A result is told in the same way. A rank that has it stays in the call until the ranks that it speaks for have it,
 * too. If one of these does not say so soon, the rank tells each of them that is left itself. */
#include <stdlib.h>
#include <string.h>

#include "comm/survive_state.h"
#include "transport/hosts/hosts.h"

#define REPEAT_NS INT64_C(300000000) /* after which a word that is not answered is mailed again, at least, */
#define REPEAT_BEATS 4               /* and in beats, which are longer if many ranks share a machine */
#define SILENT 2                     /* a rank that has not reported for 2 such times speaks for others no more */
#define HOLD_NS INT64_C(50000000)    /* between two reports that are not complete, at least */

static const struct transport_hosts *hosts_of(const struct survivors *s)
{
    return s->comm->link->hosts;
}

/* ---- which answers are missing ---- */

/* A word of the set of ranks of which this rank needs an answer to the word in view, and has none. */
static uint64_t missing(const struct survivors *s, size_t k)
{
    uint64_t all = k + 1 < s->words || s->comm->size % 64 == 0 ? UINT64_MAX : (UINT64_C(1) << s->comm->size % 64) - 1;
    uint64_t none = ~(s->answered[k] | s->dead[k]) & all;
    switch (s->view.phase) {
    case SURVIVE_PREPARES: return none;
    case SURVIVE_PROPOSES: return none & s->view.list[k];
    case SURVIVE_COMMITS: return none & s->view.list[k] & ~s->lost[k] & ~s->away[k];
    default: return 0;
    }
}

/* Is the host one of `n` from number `first` on? */
static bool is_among(const struct transport_hosts *h, int host, int first, int n)
{
    return (host - first + h->nhosts) % h->nhosts < n;
}

/* Is the answer of a rank of these hosts missing? */
static bool any_missing(const struct survivors *s, int first, int n)
{
    const struct transport_hosts *h = hosts_of(s);
    for (size_t k = 0; k < s->words; k++)
        for (uint64_t left = missing(s, k); left; left &= left - 1)
            if (is_among(h, h->host[k * 64 + (size_t)__builtin_ctzll(left)], first, n))
                return true;
    return false;
}

/* ---- answers ---- */

void survive_tree_sync(struct survivors *s)
{
    uint64_t key = survive_key(&s->view), before = s->key / 5;
    if (s->key == key)
        return;
    if (before != s->view.ballot)
        memset(s->away, 0, s->words * sizeof *s->away);
    /* A result is told to those for whom this rank speaks, whatever ballot it has. */
    if (before != s->view.ballot &&
        (s->view.phase < SURVIVE_COMMITS || survive_agreement(before) != survive_agreement(s->view.ballot))) {
        s->hosts = s->nparts = 0;
        s->above = -1;
        s->above_key = 0;
    }
    memset(s->answered, 0, s->words * sizeof *s->answered);
    s->key = key;
    s->changed = true;
    s->whole = false;
}

/* What a rank of this host has promised and accepted, as an answer. The ranks of a host find a result there. */
static void note(struct survivors *s, int rank, uint64_t promised, uint64_t accepted)
{
    uint64_t ballot = s->view.ballot;
    bool answers = s->view.phase == SURVIVE_PREPARES   ? promised == ballot && accepted != ballot
                   : s->view.phase == SURVIVE_PROPOSES ? accepted == ballot
                                                       : true;
    s->outbid = promised > s->outbid ? promised : s->outbid;
    if (answers && !survive_in(s->answered, rank)) {
        survive_put(s->answered, rank, true);
        s->changed = true;
    }
}

static void note_own(struct survivors *s)
{
    survive_state_best(s, s->accepted, s->accepted_list);
    note(s, s->comm->rank, s->promised, s->accepted);
}

void survive_tree_collect(struct survivors *s)
{
    const struct core_group *g = s->comm->group;
    survive_tree_sync(s);
    note_own(s);
    for (int i = 0; i < g->here; i++) {
        int rank = g->ranks[i].indexed;
        if (rank == s->comm->rank)
            continue;
        survive_words_collect(s, rank);
        note(s, rank, s->peers[i].promised, s->peers[i].accepted);
    }
}

/* ---- the parts ---- */

static bool is_usable(const struct survivors *s, int rank)
{
    return !survive_in(s->dead, rank) && !survive_in(s->lost, rank);
}

/* The first rank of a host, from rank `from` on, that may speak for others; -1: none. */
static int speaker(const struct survivors *s, int host, int from)
{
    const struct transport_hosts *h = hosts_of(s);
    for (int r = from > h->firsts[host] ? from : h->firsts[host]; r < s->comm->size; r++)
        if (h->host[r] == host && is_usable(s, r))
            return r;
    return -1;
}

int survive_tree_next(const struct survivors *s, int rank)
{
    return speaker(s, hosts_of(s)->host[rank], rank + 1);
}

/* The first rank of a host that is not dead; -1: none. */
static int rest_of(const struct survivors *s, int host)
{
    const struct transport_hosts *h = hosts_of(s);
    for (int r = h->firsts[host]; r < s->comm->size; r++)
        if (h->host[r] == host && !survive_in(s->dead, r))
            return r;
    return -1;
}

static void add_part(struct survivors *s, int first, int n, int rank)
{
    if (s->nparts == s->room) {
        int room = s->room ? 2 * s->room : 2 * SURVIVE_FAN;
        struct survive_part *parts = realloc(s->parts, (size_t)room * sizeof *parts);
        if (!parts)
            return; /* the leader's deadline will run out */
        s->parts = parts;
        s->room = room;
    }
    s->parts[s->nparts++] = (struct survive_part){.first = first, .n = n, .rank = rank};
}

/* Gives these hosts to a rank of the first of them of which a rank may speak for others. The hosts before it are parts
 * of their own: ranks there are told for as long as they are not dead. */
static void give(struct survivors *s, int first, int n)
{
    const struct transport_hosts *h = hosts_of(s);
    for (; n > 0; n--, first = (first + 1) % h->nhosts) {
        int rank = speaker(s, first, 0);
        if (rank >= 0) {
            add_part(s, first, n, rank);
            return;
        }
        rank = rest_of(s, first);
        if (rank >= 0)
            add_part(s, first, 1, rank);
    }
}

static void cut(struct survivors *s)
{
    const struct transport_hosts *h = hosts_of(s);
    int left = s->hosts - 1, first = (s->first + 1) % h->nhosts;
    s->nparts = 0;
    for (int i = SURVIVE_FAN; i > 0 && left > 0; i--) {
        int n = (left + i - 1) / i;
        give(s, first, n);
        first = (first + n) % h->nhosts;
        left -= n;
    }
}

static bool may_hand_over(const struct survivors *s, int i)
{
    return s->parts[i].n > 1 || speaker(s, s->parts[i].first, 0) >= 0;
}

/* The rank that speaks for the part is gone or silent. */
static void hand_over(struct survivors *s, int i, int64_t now)
{
    struct survive_part *p = &s->parts[i];
    int next = speaker(s, p->first, p->rank + 1), first = (p->first + 1) % hosts_of(s)->nhosts, n = p->n - 1;
    p->more = survive_in(s->dead, p->rank) ? survive_more(p->more) : 0;
    p->told = 0;
    p->heard_at = now;
    if (next < 0)
        next = speaker(s, p->first, 0);
    if (next < 0)
        next = rest_of(s, p->first);
    bool again = next < 0 || next <= p->rank; /* all ranks of the host were tried */
    p->rank = next >= 0 ? next : p->rank;
    if (again && n > 0) {
        p->n = 1;
        give(s, first, n);
    }
}

/* ---- down ---- */

void survive_tree_lead(struct survivors *s)
{
    const struct transport_hosts *h = hosts_of(s);
    survive_tree_sync(s);
    s->above = -1;
    if (!h)
        return;
    s->first = h->here;
    s->hosts = h->nhosts;
    cut(s);
}

static void tell(struct survivors *s, struct survive_part *p, int64_t now)
{
    if (p->told != s->key)
        p->heard_at = now;
    p->told = s->key;
    p->told_at = now;
    survive_mail_word(s, p->rank, &s->view, p->first, p->n);
}

static void tell_part(struct survivors *s, int i, int64_t now)
{
    int64_t repeat = survive_patience(s, REPEAT_NS, REPEAT_BEATS);
    if (s->parts[i].told == s->key) {
        if (!any_missing(s, s->parts[i].first, s->parts[i].n))
            return;
        bool silent = now - s->parts[i].heard_at >= SILENT * repeat;
        if (silent || (!is_usable(s, s->parts[i].rank) && may_hand_over(s, i)))
            hand_over(s, i, now);
        else if (now - s->parts[i].told_at < repeat)
            return;
    }
    if (!survive_in(s->dead, s->parts[i].rank))
        tell(s, &s->parts[i], now);
    for (int r = s->parts[i].rank, n = s->parts[i].more; n > 0 && (r = survive_tree_next(s, r)) >= 0; n--)
        survive_mail_word(s, r, &s->view, 0, 0);
    s->parts[i].told = s->key;
}

static bool is_part(const struct survivors *s, int rank)
{
    for (int i = 0; i < s->nparts; i++)
        if (s->parts[i].rank == rank)
            return true;
    return false;
}

/* Ranks that others could not reach may be reached by the leader. */
static void try_others(struct survivors *s)
{
    const struct transport_hosts *h = hosts_of(s);
    if (survive_leader(s->view.ballot) != s->comm->rank)
        return;
    for (size_t k = 0; k < s->words; k++)
        for (uint64_t left = missing(s, k) & s->away[k]; left; left &= left - 1) {
            int rank = (int)(k * 64) + __builtin_ctzll(left);
            if (h->host[rank] != h->here && !is_part(s, rank))
                add_part(s, h->host[rank], 1, rank);
        }
}

static void down(struct survivors *s, int64_t now)
{
    if (s->hosts > 1 && !s->nparts)
        cut(s);
    try_others(s);
    for (int i = 0; i < s->nparts; i++) /* more may come */
        tell_part(s, i, now);
}

void survive_tree_asked(struct survivors *s, int peer, uint64_t agreement)
{
    for (int i = 0; i < s->nparts; i++)
        if (s->parts[i].rank == peer)
            s->parts[i].told = 0;
    if (!is_part(s, peer) && survive_agreement(s->view.ballot) == agreement)
        survive_mail_word(s, peer, &s->view, 0,
                          0); /* its host finds it there, and reports to the rank that speaks for it */
}

void survive_tree_pass_on(struct survivors *s, const struct survive_word *w, int first, int hosts)
{
    const struct transport_hosts *h = hosts_of(s);
    for (int r = 0; h && r < s->comm->size; r++)
        if (h->host[r] != h->here && is_among(h, h->host[r], first, hosts) && survive_in(w->list, r) &&
            !survive_in(s->dead, r) && (w != &s->view || !survive_in(s->answered, r)))
            survive_mail_word(s, r, w, 0, 0);
}

/* ---- up ---- */

void survive_tree_told(struct survivors *s, int peer, const struct survive_word *w, int first, int hosts, int64_t now)
{
    const struct transport_hosts *h = hosts_of(s);
    uint64_t key = survive_key(w);
    survive_tree_sync(s);
    if (w->ballot != s->view.ballot) {
        s->repeated = true;
        s->answers = peer;
        return;
    }
    if (survive_leader(w->ballot) == s->comm->rank)
        return;
    if (first != h->here || hosts > h->nhosts) {
        first = h->here;
        hosts = 1;
    }
    if (s->above_key == key)
        s->answer_now = true;
    else
        s->reported_at = now;
    s->above = peer;
    s->above_key = key;
    if (hosts > s->hosts) {
        s->first = first;
        s->hosts = hosts;
        s->nparts = 0;
    }
}

void survive_tree_heard(struct survivors *s, int peer, int64_t now)
{
    for (int i = 0; i < s->nparts; i++)
        if (s->parts[i].rank == peer)
            s->parts[i].heard_at = now;
}

static void up(struct survivors *s, int64_t now)
{
    if (s->above < 0)
        return;
    if (s->view.phase == SURVIVE_COMMITS && s->above_key != s->key) { /* it has come by another way */
        survive_mail_word(s, s->above, &s->view, 0, 0);
        s->above_key = s->key;
        return;
    }
    bool whole = !any_missing(s, s->first, s->hosts);
    bool due = s->changed && now - s->reported_at >= survive_patience(s, HOLD_NS, 1);
    if (!s->answer_now && !due && (!whole || s->whole))
        return;
    survive_mail_report(s, s->above);
    s->answer_now = s->changed = false;
    s->whole = whole;
    s->reported_at = now;
}

void survive_tree_move(struct survivors *s, int64_t now)
{
    survive_tree_sync(s);
    if (survive_agreement(s->view.ballot) != s->agreement || !hosts_of(s))
        return;
    if (s->above >= 0 || s->hosts)
        survive_tree_collect(s);
    down(s, now);
    up(s, now);
}

bool survive_tree_settled(const struct survivors *s)
{
    return !s->hosts || !any_missing(s, s->first, s->hosts);
}

int survive_tree_up(const struct survivors *s, int leader)
{
    const struct transport_hosts *h = hosts_of(s);
    int top = h->host[leader], at = (h->here - top + h->nhosts) % h->nhosts;
    while (at > 0) {
        at = (at - 1) / SURVIVE_FAN;
        int rank = at ? speaker(s, (top + at) % h->nhosts, 0) : -1;
        if (rank >= 0)
            return rank;
    }
    return leader;
}
