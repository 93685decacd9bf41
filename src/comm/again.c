/* A rank that opens a comm again waits for the others, as each rank does that opens one. But it has the old comm, which
 * sees deaths: shared memory at once, a wire when the connection with the rank breaks. Not every rank is connected with
 * every other one. So a rank that gives up tells the others, in the core of the old comm and by mail. Of many ranks it
 * tells a few, which give up and tell a few in turn.
 *
 * If one rank had opened the comm and another one had given up, the two would ask for survivors of different comms. So
 * all ranks that are left open it, or none: in shared memory a word decides (shm_form.c). With a store, a last gather
 * does (open.c): a rank gives up there only for a rank whose part is missing, and then no rank gets all parts. */
#include "comm/again.h"

#include <stdio.h>

#include "base/error.h"
#include "base/hash.h"
#include "comm/lock.h"
#include "comm/mail.h"
#include "comm/survive.h"
#include "transport/hosts/hosts.h"

#define LOOKS 4 /* in a beat, at the other ranks */
/* A rank may give up for a reason that it was told in words, by the store. The rank that is gone is then known here a
 * little later, by a connection that breaks or from another rank that gives up. */
#define REASON_NS INT64_C(300000000)
#define FLAT 64 /* of up to this many ranks each tells all others that it gives up */
#define FAN 8   /* more of them tell their neighbours in a tree in which each rank has this many below it */

void again_begin(struct again *a, weft_comm *old, const int *ranks, int n)
{
    uint64_t agreement = survive_agreed(old);
    *a = (struct again){.old = old, .ranks = ranks, .n = n, .departures = UINT64_MAX, .gone = -1};
    a->id = hash_bytes(hash_bytes(1, &agreement, sizeof agreement), ranks, (size_t)n * sizeof *ranks) | 1;
}

static int gone(const struct again *a, int rank)
{
    char who[NAMES_RANK];
    return error_set(WEFT_EPEER, "weft_comm_reopen: %s has died or cannot be reached", names_rank(a->old, rank, who));
}

/* Has a rank given up? Then *why is the rank that is gone, or -1: no rank that has given up says so. */
static bool is_given_up(const struct again *a, int *by, int *why)
{
    weft_comm *c = a->old;
    *by = *why = -1;
    for (int i = 0; i < a->n && *why < 0; i++) {
        const struct core_rank *r = &c->group->ranks[a->ranks[i]];
        if (a->ranks[i] != c->rank && atomic_load_explicit(&r->gave_up, memory_order_seq_cst) == a->id) {
            *by = a->ranks[i];
            *why = atomic_load_explicit(&r->gave_up_for, memory_order_seq_cst) - 1;
        }
    }
    return *by >= 0;
}

static int look(struct again *a, int rank, int64_t now)
{
    weft_comm *c = a->old;
    char who[NAMES_RANK];
    int by, why;
    for (int i = rank < 0 ? 0 : rank; i < (rank < 0 ? a->n : rank + 1); i++)
        if (a->ranks[i] != c->rank && survive_is_gone(c, a->ranks[i])) {
            a->gone = a->ranks[i];
            return gone(a, a->gone);
        }
    if (!is_given_up(a, &by, &why))
        return 0;
    if (why < 0 && !a->unclear_at)
        a->unclear_at = now;
    if (why < 0 && now - a->unclear_at < REASON_NS)
        return 0;
    a->told = true;
    if (why >= 0 && why < c->size) {
        a->gone = why;
        return gone(a, why);
    }
    return error_set(WEFT_EPEER, "weft_comm_reopen: %s has given up", names_rank(c, by, who));
}

/* Is it time to look at all ranks, and may something have changed since the last time? */
static bool is_due(struct again *a, int64_t now)
{
    uint64_t departures = 0;
    if (now - a->looked_at < a->old->beat_ns / LOOKS)
        return false;
    a->looked_at = now;
    if (liveness_departures(a->old, &departures) && departures == a->departures && !a->unclear_at)
        return false;
    a->departures = departures;
    return true;
}

int again_vain(void *arg, int rank)
{
    struct again *a = arg;
    int64_t now = core_now();
    struct comm_family *f = comm_enter(a->old);
    int err = 0;
    if (rank >= 0 || is_due(a, now)) { /* a look at one rank says nothing of the others */
        if (core_failed(a->old->group))
            mail_receive(a->old);
        else
            mail_move(a->old); /* a comm that has not failed may be opened again, too */
        err = look(a, rank, now);
    }
    comm_leave(f);
    return err;
}

int again_died(void *arg, int rank)
{
    struct again *a = arg;
    a->gone = a->ranks[rank];
    return gone(a, a->gone);
}

/* Tells a rank of the list that this one gives up. */
static void tell(const struct again *a, int number)
{
    if (number < a->n && transport_elsewhere(a->old->link, a->ranks[number]))
        survive_mail_gives_up(a->old, a->ranks[number], a->id, a->gone);
}

/* Tells the neighbours of a rank of the list in the tree. */
static void tell_around(const struct again *a, int number)
{
    if (number)
        tell(a, (number - 1) / FAN);
    for (int64_t i = (int64_t)number * FAN + 1; i <= (int64_t)number * FAN + FAN && i < a->n; i++)
        tell(a, (int)i);
}

/* If a rank of the tree is gone, its neighbours do not hear of it from each other. So a rank that finds out by itself
 * tells them, too. */
static void tell_others(const struct again *a)
{
    for (int i = 0; i < a->n; i++)
        if (a->n <= FLAT)
            tell(a, i);
        else if (a->ranks[i] == a->old->rank || (a->ranks[i] == a->gone && !a->told))
            tell_around(a, i);
}

void again_give_up(struct again *a, int err)
{
    weft_comm *c = a->old;
    struct core_rank *me = &c->group->ranks[c->rank];
    char text[1024];
    snprintf(text, sizeof text, "%s", weft_errmsg());
    struct comm_family *f = comm_enter(c);
    atomic_store_explicit(&me->gave_up_for, a->gone + 1, memory_order_seq_cst);
    atomic_store_explicit(&me->gave_up, a->id, memory_order_seq_cst);
    atomic_fetch_add_explicit(&c->group->departures, 1, memory_order_seq_cst); /* after that: others look now */
    tell_others(a);
    mail_flush(c, c->deadline_ns / 8);
    comm_leave(f);
    error_set(err, "%s", text);
}
