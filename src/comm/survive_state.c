#include "comm/survive_state.h"

#include <stdlib.h>
#include <string.h>

#define SETS 13 /* of struct survivors */

struct survivors *survive_state_of(weft_comm *c)
{
    struct survivors *s = c->survivors;
    if (s)
        return s;
    size_t words = ((size_t)c->size + 63) / 64;
    uint64_t *sets = calloc(SETS * words, sizeof *sets);
    s = calloc(1, sizeof *s);
    struct survive_peer *peers = calloc((size_t)c->group->here, sizeof *peers);
    if (!s || !sets || !peers) {
        free(s);
        free(sets);
        free(peers);
        return NULL;
    }
    uint64_t **all[SETS] = {&s->accepted_list, &s->view.list, &s->decided.list, &s->coming.list, &s->dead,
                            &s->lost,          &s->quit,      &s->asked,        &s->best.list,   &s->coming_best.list,
                            &s->took_part,     &s->answered,  &s->away};
    for (size_t i = 0; i < SETS; i++)
        *all[i] = sets + i * words;
    s->comm = c;
    s->words = words;
    s->peers = peers;
    s->above = s->asked_whom = -1;
    return c->survivors = s;
}

void survive_state_free(struct survivors *s)
{
    if (!s)
        return;
    free(s->accepted_list); /* the first of all sets */
    free(s->peers);
    free(s->parts);
    free(s);
}

void survive_state_enter(struct survivors *s, uint64_t agreement)
{
    s->agreement = agreement;
    s->newest = agreement > s->newest ? agreement : s->newest;
    s->accepted = s->best.ballot = 0;
    s->asked_at = 0;
    s->asked_whom = -1;
    s->asked_after = false;
}

bool survive_state_newer(const struct survivors *s, uint64_t ballot, uint64_t phase)
{
    uint64_t now = survive_agreement(s->view.ballot), then = survive_agreement(ballot);
    if (now != then)
        return then > now;
    if (s->view.phase == SURVIVE_COMMITS || phase == SURVIVE_COMMITS)
        return s->view.phase != SURVIVE_COMMITS;
    return ballot > s->view.ballot || (ballot == s->view.ballot && phase > s->view.phase);
}

void survive_state_view(struct survivors *s, uint64_t ballot, uint64_t phase, const uint64_t *list)
{
    s->view.ballot = ballot;
    s->view.phase = phase;
    memcpy(s->view.list, list, s->words * sizeof *list);
    s->newest = survive_agreement(ballot) > s->newest ? survive_agreement(ballot) : s->newest;
}

void survive_state_best(struct survivors *s, uint64_t ballot, const uint64_t *list)
{
    if (survive_agreement(ballot) != s->agreement || ballot <= s->best.ballot)
        return;
    s->best.ballot = ballot;
    memcpy(s->best.list, list, s->words * sizeof *list);
}

void survive_state_dead(struct survivors *s, size_t first, const uint64_t *set, size_t n)
{
    for (size_t k = 0; k < n; k++) {
        s->changed |= (set[k] & ~s->dead[first + k]) != 0;
        s->dead[first + k] |= set[k];
    }
    survive_put(s->dead, s->comm->rank, false);
}
