/* The vote of all ranks at the end of a round, beside the pipes.
 *
 * Ranks form a tree: r votes through (r - 1) / 2. A rank that has voted and has the votes of the ranks below it passes
 * its own and theirs up. The result comes back the same way. A word is not written again before it was read: its writer
 * casts the next vote only after the result of this one, which depends on all votes. */
#include "exchange/pipe.h"

void pipes_vote_round(struct pipes *p, uint64_t finished, bool yes)
{
    p->finished = finished;
    p->yes = yes;
    atomic_store_explicit(&p->head->finished, finished, memory_order_relaxed); /* for ranks that watch */
}

static bool cast(const struct pipe_ballot *b, uint64_t votes, bool *yes)
{
    uint64_t word = atomic_load_explicit(&b->word, memory_order_seq_cst);
    if (word >> 1 < votes)
        return false;
    *yes &= word & 1;
    return true;
}

static void tell_vote(struct pipes *p, int rank, struct pipe_ballot *at, uint64_t word)
{
    if (pipe_wire_peer(p, rank))
        pipe_wire_vote(p, rank, word);
    else
        core_signal(p->comm->group, rank, &at->word, word);
}

bool pipes_vote(struct pipes *p, uint64_t round)
{
    int rank = p->comm->rank;
    uint64_t votes = round + 1;
    bool yes = p->yes;
    if (p->ballot >= votes)
        return true;
    if (p->finished < votes)
        return false;
    for (int k = 0; k < 2; k++)
        if (p->kids[k] && !cast(&p->head->up[k], votes, &yes))
            return false;
    if (p->up) {
        if (!p->passed)
            tell_vote(p, (rank - 1) / 2, &p->up->up[(rank - 1) % 2], votes << 1 | yes);
        p->passed = true;
        yes = true;
        if (!cast(&p->head->down, votes, &yes))
            return false;
    }
    for (int k = 0; k < 2; k++)
        if (p->kids[k])
            tell_vote(p, 2 * rank + 1 + k, &p->kids[k]->down, votes << 1 | yes);
    p->ballot = votes;
    p->passed = false;
    p->all = yes;
    return true;
}

int pipes_vote_lacks(const struct pipes *p, uint64_t round, int *ranks)
{
    int n = 0, rank = p->comm->rank;
    bool yes = true;
    if (!p->votes || p->ballot > round || p->finished <= round)
        return 0;
    for (int k = 0; k < 2; k++)
        if (p->kids[k] && !cast(&p->head->up[k], round + 1, &yes))
            ranks[n++] = 2 * rank + 1 + k;
    if (p->up && p->passed && !cast(&p->head->down, round + 1, &yes))
        ranks[n++] = (rank - 1) / 2;
    return n;
}

const struct pipe_head *pipes_vote_peer(struct pipes *p, int rank, struct pipe_seen **seen)
{
    int kid = rank - (2 * p->comm->rank + 1);
    *seen = kid < 0 ? &p->up_seen : &p->kids_seen[kid];
    return kid < 0 ? p->up : p->kids[kid];
}
