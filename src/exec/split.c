/* Splitting a comm. Each rank shows its list on a card, all meet; each compares its list with the cards of those in it
 * and makes its end of the new group, all meet again: the comms exist in all groups or in none. The first rank of a
 * list makes what its group shares before the first meeting, and says on its card where. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "exec/progress.h"

/* What a rank shows the others of the parent. */
struct card {
    uint64_t group; /* the first rank's: where the group is */
    int32_t n;
    int32_t ranks[];
};

struct split {
    weft_comm *parent, *comm;
    const int *ranks;
    int n, rank; /* of the new comm */
    struct card *card;
    uint64_t place; /* of the card */
    struct transport_link *link;
};

static int check(struct split *s)
{
    const weft_comm *c = s->parent;
    if (s->n < 0 || (s->n && !s->ranks))
        return error_set(WEFT_EINVAL, "weft_comm_split: %d ranks%s", s->n, s->n > 0 ? " at NULL" : "");
    if (!s->n)
        return 0;
    if (s->n > c->size) /* and so at least one twice: said before a table of them is made */
        return error_set(WEFT_EINVAL, "weft_comm_split: %d ranks, the comm has %d", s->n, c->size);
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
        err =
            error_set(WEFT_EINVAL,
                      "weft_comm_split: its list of %d ranks leaves out rank %d itself; who is in no group passes none",
                      s->n, c->rank);
    return err;
}

/* What one rank can do alone. */
static int prepare(struct split *s)
{
    weft_comm *c = s->parent;
    int err = check(s);
    if (err || !s->n)
        return err;
    s->comm = calloc(1, sizeof *s->comm);
    s->card = c->transport->alloc(c->link, sizeof *s->card + (size_t)s->n * sizeof *s->card->ranks, &s->place);
    if (!s->comm || !s->card)
        return error_nomem();
    s->card->n = s->n;
    for (int i = 0; i < s->n; i++)
        s->card->ranks[i] = s->ranks[i];
    return s->rank ? 0 : c->transport->split(c->link, s->ranks, s->n, 0, &s->card->group, &s->link);
}

/* Does the rank list the same ranks in the same order? */
static int compare(const struct card *mine, int rank, const struct card *other)
{
    if (!other)
        return error_set(WEFT_EMISMATCH, "weft_comm_split: it lists rank %d, whose own list is empty", rank);
    if (mine->n != other->n)
        return error_set(WEFT_EMISMATCH, "weft_comm_split: it lists %d ranks, rank %d, one of them, lists %d", mine->n,
                         rank, other->n);
    for (int i = 0; i < mine->n; i++)
        if (mine->ranks[i] != other->ranks[i])
            return error_set(WEFT_EMISMATCH,
                             "weft_comm_split: number %d of its list is rank %d, of the list of rank %d it is rank %d",
                             i, mine->ranks[i], rank, other->ranks[i]);
    return 0;
}

static int connect_ranks(struct split *s, uint64_t meeting)
{
    weft_comm *c = s->parent;
    uint64_t group = 0;
    for (int i = 0; i < s->n; i++) {
        int r = s->ranks[i];
        uint64_t place = core_vote_of(c->group, r, meeting)->place;
        const struct card *other = place ? c->transport->reach(c->link, r, place) : NULL;
        int err = compare(s->card, r, other);
        if (err)
            return err;
        if (i == 0)
            group = other->group;
    }
    return s->n && s->rank ? c->transport->split(c->link, s->ranks, s->n, s->rank, &group, &s->link) : 0;
}

/* After a refusal no rank looks at another's card or at the groups of this split. After a failure of the comm some may,
 * even be in such a group: the parent's then keeps the card, and the rank that made the new one leaves it in the sight
 * of all, so that it stays. The others must not touch it: to its maker the same may have been a refusal. */
static void discard(struct split *s)
{
    const char *text;
    bool failed = core_failure(s->parent->group, &text) != 0;
    if (s->link && s->rank == 0 && failed)
        transport_enter(s->link);
    if (s->link)
        s->parent->transport->leave(s->link);
    if (!failed)
        s->parent->transport->release(s->parent->link, s->card);
    free(s->comm);
}

static int split(weft_comm *c, const int *ranks, int n, weft_comm **out)
{
    if (c->in_callback)
        return error_set(WEFT_EBUSY, "weft_comm_split: not inside a callback");
    int err = comm_failure(c);
    if (err)
        return err;
    struct split s = {.parent = c, .ranks = ranks, .n = n};
    uint64_t meeting;
    err = prepare(&s);
    struct core_vote vote = {.call = COMM_SPLIT, .place = s.place, .code = err};
    err = comm_agree(c, &vote, c->deadline_ns, &meeting);
    if (!err) {
        err = connect_ranks(&s, meeting);
        vote = (struct core_vote){.call = COMM_SPLITTED, .object = meeting, .code = err};
        err = comm_agree(c, &vote, c->deadline_ns, &meeting);
    }
    if (err) {
        discard(&s);
        return err;
    }
    if (s.comm) {
        c->transport->release(c->link, s.card);
        transport_enter(s.link);
        comm_begin(s.comm, s.link, &c->opts, c->spins, c->family); /* the ranks that are not in it want cores, too */
        flight_split(s.comm, c, meeting);
        s.comm->tainted = c->tainted;
        s.comm->kin = c->kin;
        c->kin = s.comm;
    }
    *out = s.comm;
    return 0;
}

int weft_comm_split(weft_comm *c, const int *ranks, int n, weft_comm **out)
{
    if (!c || !out)
        return error_set(WEFT_EINVAL, "weft_comm_split: the comm and out must not be NULL");
    if (c->link->hosts)
        return error_set(WEFT_EUNSUPPORTED, "weft_comm_split: a comm on several hosts cannot be split yet");
    struct comm_family *f = comm_enter(c);
    int err = split(c, ranks, n, out);
    comm_leave(f);
    return err;
}
