/* Staged messages that keep slots of their own, two of them, which runs use in turn: the run that has packed one need
 * not wait until it has been read. Ranks that exchange ghosts again and again then wait once in a run, for what comes,
 * and not a second time for their readers; and a rank that has unpacked goes on to pack the next run's while the lines
 * of both are in its cache.
 *
 * For messages whose elements lie far apart, to peers that send something back in each run. Nobody has to say that one
 * of these was read: when this rank has ended run r - 1, the peer had begun that run, so it had ended run r - 2 and
 * read what came in it, and the slot of run r - 2 is the one that run r packs into. What was read before the peer sent
 * is ordered before what is written after that came.
 *
 * The slots stand in the sender's block, behind the letters, so they stay until all readers have let go of it. All that
 * a reader looks at is there, and where it is was noted at bind: a sender that binds again describes its messages anew
 * while a reader may still be in the last run. The room is made when the exec is bound first, and charged to the
 * staging. */
#include "engine/block.h"

#define SHARE_MESSAGE 64 /* of the staging limit, for one message, */
#define SHARE_ALL 4      /* and for all that is taken of it, with these */

static int64_t in_lines(int64_t bytes)
{
    return (bytes + CORE_LINE - 1) / CORE_LINE * CORE_LINE;
}

/* A line for `packed`, and the slots. */
static int64_t room_of(int64_t bytes)
{
    return CORE_LINE + KEEP_SLOTS * in_lines(bytes);
}

static bool fits(const weft_exec *x, const struct program *p, const struct exec_share *share)
{
    int64_t bytes = x->plan->steps[share->step].bytes;
    if (bytes > x->comm->staging.limit / SHARE_MESSAGE || bytes >= KEEP_MOST || !way_scattered(x, p, &share->step, 1))
        return false;
    for (uint32_t i = 0; i < share->nouts; i++) {
        const struct exec_out *out = &p->outs[p->sharers[share->outs + i]];
        if (!way_answered(p, out->peer) || KEEP_SLOTS * (share->index + 1) > (uint32_t)x->comm->channel_buckets)
            return false;
    }
    return true;
}

void keep_choose(weft_exec *x, struct program *p)
{
    struct staging *pool = &x->comm->staging;
    bool again = x->program != p; /* what room there is was made at first */
    int64_t most = again ? p->room : pool->limit / SHARE_ALL - pool->taken, room = 0;
    for (uint32_t k = 0; k < p->nshares && x->comm->opts.cross <= 0; k++) { /* else what can be crosses */
        struct exec_share *share = &p->shares[k];
        int64_t bytes = x->plan->steps[share->step].bytes;
        if (!fits(x, p, share) || room_of(bytes) > most - room)
            continue;
        share->kept = true;
        share->room = room;
        room += room_of(bytes);
        for (uint32_t i = 0; i < share->nouts; i++)
            p->steps[p->outs[p->sharers[share->outs + i]].steps[share->index]].kept = true;
    }
    if (!again && staging_charge(pool, room))
        p->room = room;
}

void keep_none(weft_exec *x, struct program *p)
{
    for (uint32_t s = 0; s < p->nsteps; s++)
        p->steps[s].kept = false;
    if (x->program != p)
        return;
    staging_uncharge(&x->comm->staging, p->room);
    p->room = 0;
}

static uint64_t from_head(const weft_exec *x, const struct program *p, const struct exec_share *share)
{
    return x->block->letters + (uint64_t)(p->letter_bytes + share->room);
}

void keep_describe(const weft_exec *x, const struct program *p, const struct exec_share *share, struct block_message *m)
{
    m->kept = true;
    m->slot = from_head(x, p, share);
    m->slot_bytes = in_lines(m->bytes);
}

void keep_open(const weft_exec *x, struct program *p)
{
    for (uint32_t k = 0; k < p->nshares; k++) {
        struct exec_share *share = &p->shares[k];
        if (!share->kept)
            continue;
        share->kept_at = (char *)x->block + from_head(x, p, share);
        share->slot_bytes = in_lines(x->plan->steps[share->step].bytes);
        /* Should binding again be refused after that, this is right also for a message that had its count there before.
         * Relaxed: published by the meeting that comes. */
        atomic_store_explicit(keep_packed(share->kept_at), x->run * (uint64_t)KEEP_MOST, memory_order_relaxed);
    }
}
