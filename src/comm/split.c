/* Splitting a comm. Each rank shows its list on a card, and all meet. Then lists are compared: each rank's with that of
 * its founder, the first rank of the list, and the founder's with those of all others in it. Each rank makes its end of
 * the new group. Then all meet again: the comms exist in all groups or in none. The founder makes the shared memory of
 * its group before the first meeting, and says on its card where it is. On several hosts each host has a founder: the
 * first rank of the list on that host. Ranks see only the cards of their own host, so founders ask each other for their
 * lists, along a tree of the list's hosts. A third meeting follows after new groups across hosts have opened their
 * wires (split_hosts.c). */
#include "comm/split.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/lock.h"
#include "comm/mail.h"
#include "transport/hosts/hosts.h"

static int check(struct split *s, size_t nranks)
{
    const weft_comm *c = s->parent;
    if (nranks && !s->ranks)
        return error_set(WEFT_EINVAL, "weft_comm_split: %zu ranks at NULL", nranks);
    if (nranks > (size_t)c->size) /* at least one rank is listed twice: refuse before allocating a table */
        return error_set(WEFT_EINVAL, "weft_comm_split: %zu ranks, the comm has %d", nranks, c->size);
    s->n = (int)nranks;
    if (!s->n)
        return 0;
    bool *seen = calloc((size_t)c->size, sizeof *seen);
    int err = seen ? 0 : error_nomem();
    s->rank = -1;
    for (int i = 0; i < s->n && !err; i++) {
        int r = s->ranks[i];
        if (r < 0 || r >= c->size)
            err = error_set(WEFT_EINVAL, "weft_comm_split: there is no rank %d, the comm has %d", r, c->size);
        else if (seen[r])
            err = error_set(WEFT_EINVAL, "weft_comm_split: rank %d is listed twice", r);
        else
            seen[r] = true;
        if (r == c->rank)
            s->rank = i;
    }
    free(seen);
    if (!err && s->rank < 0)
        err = error_set(
            WEFT_EINVAL,
            "weft_comm_split: its list of %d ranks leaves out rank %d itself; a rank that is in no group passes none",
            s->n, c->rank);
    return err;
}

/* What a rank does alone, before the meetings. */
static int prepare(struct split *s, size_t nranks)
{
    weft_comm *c = s->parent;
    int err = check(s, nranks);
    if (err || !s->n)
        return err;
    s->comm = calloc(1, sizeof *s->comm);
    s->card = c->transport->alloc(c->link, sizeof *s->card + (size_t)s->n * sizeof *s->card->ranks, &s->place);
    if (!s->comm || !s->card)
        return error_nomem();
    s->card->n = s->n;
    for (int i = 0; i < s->n; i++) {
        s->card->ranks[i] = s->ranks[i];
        s->wide |= transport_elsewhere(c->link, s->ranks[i]);
    }
    if (s->wide && !(s->mail = mail_new()))
        return error_nomem();
    s->founder = hosts_link_founder(c->link, s->ranks, s->n);
    if (s->rank != s->founder)
        return 0;
    err = s->wide ? split_hosts_table_make(s, &s->card->table) : 0;
    return err ? err : c->transport->split(c->link, s->ranks, s->n, s->rank, &s->card->group, &s->link);
}

int split_compare(const struct split_card *mine, int rank, const struct split_card *other)
{
    if (!other)
        return error_set(WEFT_EMISMATCH, "weft_comm_split: it lists rank %d, whose own list is empty", rank);
    if (mine->n != other->n)
        return error_set(WEFT_EMISMATCH, "weft_comm_split: it lists %d ranks, but rank %d, one of them, lists %d",
                         mine->n, rank, other->n);
    for (int i = 0; i < mine->n; i++)
        if (mine->ranks[i] != other->ranks[i])
            return error_set(
                WEFT_EMISMATCH,
                "weft_comm_split: entry %d of its list is rank %d, but in the list of rank %d it is rank %d", i,
                mine->ranks[i], rank, other->ranks[i]);
    return 0;
}

static int connect_ranks(struct split *s, uint64_t meeting)
{
    weft_comm *c = s->parent;
    const struct split_card *founder = NULL;
    bool founds = s->n && s->rank == s->founder;
    for (int i = 0; i < s->n; i++) {
        if (i != s->founder && (!founds || transport_elsewhere(c->link, s->ranks[i])))
            continue;
        const struct core_vote *vote = core_vote_of(c->group, s->ranks[i], meeting);
        const struct split_card *other = vote->place ? c->transport->reach(c->link, s->ranks[i], vote->place) : NULL;
        int err = split_compare(s->card, s->ranks[i], other);
        if (err)
            return err;
        founder = i == s->founder ? other : founder;
    }
    if (!s->n || founds)
        return founds && s->wide ? split_hosts_compare(s) : 0;
    uint64_t group = founder->group;
    if (s->wide)
        split_hosts_table_find(s, founder->table);
    return c->transport->split(c->link, s->ranks, s->n, s->rank, &group, &s->link);
}

/* After a refusal no rank looks at another's card or at the groups of this split. After a failure of the comm some
 * ranks may still look, or may even be in a new group. Then the parent's group keeps the card, and the founder leaves
 * the new group in a way that all can see, so that its memory stays. The other ranks must not touch it: the founder may
 * have seen a refusal. */
static void discard(struct split *s)
{
    const char *text;
    bool failed = core_failure(s->parent->group, &text) != 0;
    if (s->link && s->rank == s->founder && failed)
        hosts_link_enter(s->link);
    if (s->link)
        s->link->transport->leave(s->link);
    if (!failed)
        s->parent->transport->release(s->parent->link, s->card);
    mail_free(s->mail);
    free(s->comm);
}

/* All meetings, and what is done between them. */
static int agree(struct split *s, size_t nranks, uint64_t *meeting)
{
    weft_comm *c = s->parent;
    int err = prepare(s, nranks);
    struct core_vote vote = {.call = COMM_SPLIT, .place = s->place, .code = err};
    err = meeting_agree(c, &vote, c->deadline_ns, meeting);
    if (err)
        return err;
    err = connect_ranks(s, *meeting);
    vote = (struct core_vote){.call = COMM_SPLIT_GROUPS, .object = *meeting, .code = err};
    err = meeting_agree(c, &vote, c->deadline_ns, meeting);
    if (err || !c->link->hosts)
        return err;
    err = s->wide ? split_hosts_wire(s) : 0;
    vote = (struct core_vote){.call = COMM_SPLIT_DONE, .object = *meeting, .code = err};
    return meeting_agree(c, &vote, c->deadline_ns, meeting);
}

static int split(weft_comm *c, const int *ranks, size_t n, weft_comm **out)
{
    if (c->in_callback)
        return error_set(WEFT_EBUSY, "weft_comm_split: not inside a callback");
    int err = comm_failure(c);
    if (err)
        return err;
    struct split s = {.parent = c, .ranks = ranks, .meeting = c->group->ranks[c->rank].meetings};
    uint64_t meeting;
    split_hosts_begin(&s);
    err = agree(&s, n, &meeting);
    split_hosts_end(&s);
    split_hosts_table_drop(&s);
    if (err) {
        discard(&s);
        return err;
    }
    if (s.comm) {
        c->transport->release(c->link, s.card);
        hosts_link_enter(s.link);
        comm_begin(s.comm, s.link, &c->opts, c->dedicated_cores,
                   c->family); /* ranks outside the new group need cores, too */
        flight_split(s.comm, c, meeting);
        trace_split(s.comm, c);
        metrics_split(s.comm, c);
        flight_log(s.comm, WEFT_LOG_INFO, EVENT_OPENED, "the comm was split from another");
        s.comm->tainted = c->tainted;
        s.comm->sibling = c->sibling;
        c->sibling = s.comm;
        if (s.mail)
            comm_begin_mail(s.comm, s.mail);
    }
    *out = s.comm;
    return 0;
}

int weft_comm_split(weft_comm *c, const int *ranks, size_t n, weft_comm **out)
{
    if (!c || !out)
        return error_set(WEFT_EINVAL, "weft_comm_split: the comm and out must not be NULL");
    struct comm_family *f = comm_enter(c);
    int err = split(c, ranks, n, out);
    comm_leave(f);
    return err;
}
