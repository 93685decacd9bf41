#include "engine/device/joining.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

/* Can this rank join, as far as it knows? `text` says what makes the group, or why not. */
static bool can_join(const weft_exec *x, const struct device *d, bool together, char *text, size_t cap)
{
    const char *why = !d                                    ? "this rank has no memory on a device"
                      : x->checks                           ? "messages are checked"
                      : x->comm->size < 2                   ? "there is one rank"
                      : x->off & driver_id_bit(DRIVER_NCCL) ? "the driver nccl is switched off"
                                                            : NULL;
    const char *name = why ? NULL : d->ops->group_name(together, &why);
    snprintf(text, cap, "%s", name ? name : why);
    return name;
}

/* A meeting. *first is the note of rank 0, *all what all notes have in common. */
static int vote_note(weft_comm *c, uint64_t digest, uint64_t note, int64_t deadline_ns, uint64_t *first, uint64_t *all)
{
    struct core_vote vote = {.call = COMM_BIND, .digest = digest, .note = note};
    uint64_t meeting;
    int err = meeting_agree(c, &vote, deadline_ns, &meeting);
    if (err)
        return err;
    struct core_tally tally = core_tally(c->group, meeting);
    *first = tally.first;
    *all = tally.note;
    return 0;
}

/* Rank 0 makes the id, and tells it word by word. *made: it could. */
static int tell_id(weft_exec *x, struct device *d, int64_t deadline_ns, char id[DEVICE_GROUP], bool *made, char *why,
                   size_t cap)
{
    uint64_t words[DEVICE_GROUP / 8] = {0}, first, all;
    bool failed = !x->comm->rank && d->ops->group_id(d, (char *)words);
    snprintf(why, cap, "%s", failed ? weft_errmsg() : "rank 0 could not make a group");
    int err = vote_note(x->comm, x->plan->digest, !failed, deadline_ns, &first, &all);
    *made = !err && first;
    for (size_t i = 0; i < DEVICE_GROUP / 8 && *made && !err; i++)
        err = vote_note(x->comm, x->plan->digest, words[i], deadline_ns, &words[i], &all);
    memcpy(id, words, sizeof words);
    return err;
}

int joining_all(weft_exec *x, struct device *d, bool together, int64_t deadline_ns, struct device_group **out,
                char *text, size_t cap)
{
    char id[DEVICE_GROUP], why[200];
    bool made, can = can_join(x, d, together, text, cap);
    uint64_t first, all = 0;
    struct device_group *g = NULL;
    *out = NULL;
    int err = vote_note(x->comm, x->plan->digest, can, deadline_ns, &first, &all);
    if (!err && !all && can)
        snprintf(text, cap, "another rank cannot join a group");
    if (err || !all)
        return err;
    err = tell_id(x, d, deadline_ns, id, &made, why, sizeof why);
    if (err || !made) {
        snprintf(text, cap, "%s", why);
        return err;
    }
    /* Half of the time: a rank that cannot join waits for the others at the next meeting. */
    bool joined = !d->ops->group_join(d, id, x->comm->rank, x->comm->size, deadline_ns / 2, &g);
    snprintf(why, sizeof why, "%s", joined ? "another rank could not join the group" : weft_errmsg());
    err = vote_note(x->comm, x->plan->digest, joined, deadline_ns, &first, &all);
    if (!err && all) {
        *out = g;
        return 0;
    }
    snprintf(text, cap, "%s", why);
    if (g) {
        d->ops->group_abort(g);
        d->ops->group_leave(g, 0);
    }
    return err;
}
