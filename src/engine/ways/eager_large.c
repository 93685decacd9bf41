/* Staged messages that have slots of their own, like eager ones: two, which runs use in turn, and nobody has to say
 * that one was read (eager.h has the argument). The run that has packed one need not wait until it has been read. Ranks
 * that exchange ghosts again and again then wait once in a run, for what comes, and not a second time for their
 * readers; and a rank that has unpacked goes on to pack the next run's while the lines of both are in its cache.
 *
 * For messages whose elements lie far apart, to peers that send something back in each run.
 *
 * The slots stand in the sender's block, behind those of eager messages, so they stay until all readers have let go of
 * it. All that a reader looks at is there, and where it is was noted at bind: a sender that binds again describes its
 * messages anew while a reader may still be in the last run. The room is made when the exec is bound first, and charged
 * to the staging. */
#include "engine/block.h"
#include "engine/shape.h"
#include "engine/ways/eager.h"

#define PART_MESSAGE 64 /* of the staging limit, for one message, */
#define PART_ALL 4      /* and for all that is taken of it, with these */

static int64_t in_lines(int64_t bytes)
{
    return (bytes + CORE_LINE - 1) / CORE_LINE * CORE_LINE;
}

/* A line for `packed`, and the slots. */
static int64_t room_of(int64_t bytes)
{
    return CORE_LINE + EAGER_SLOTS_UNACKED * in_lines(bytes);
}

static bool fits(const weft_exec *x, const struct program *p, const struct exec_multicast *m)
{
    int64_t bytes = x->plan->steps[m->step].bytes;
    if (bytes > x->comm->staging.limit / PART_MESSAGE || bytes >= EAGER_LARGE_MOST ||
        !shape_scattered(x, p, &m->step, 1))
        return false;
    for (uint32_t i = 0; i < m->nouts; i++) {
        const struct exec_out *out = &p->outs[p->multicast_outs[m->outs + i]];
        if (!program_hears(p, out->peer) || EAGER_SLOTS_UNACKED * (m->index + 1) > (uint32_t)x->comm->channel_buckets)
            return false;
    }
    return true;
}

void eager_large_choose(weft_exec *x, struct program *p)
{
    struct staging *pool = &x->comm->staging;
    bool again = x->program != p; /* what room there is was made at first */
    int64_t most = again ? p->room : pool->limit / PART_ALL - pool->taken, room = 0;
    for (uint32_t k = 0; k < p->nmulticasts && x->comm->opts.cross <= 0 && !(x->off & toggle_extra(TOGGLE_OWN_SLOTS));
         k++) { /* otherwise what can be crosses */
        struct exec_multicast *m = &p->multicasts[k];
        int64_t bytes = x->plan->steps[m->step].bytes;
        if (!fits(x, p, m) || room_of(bytes) > most - room)
            continue;
        m->own_slots = true;
        m->room = room;
        room += room_of(bytes);
        for (uint32_t i = 0; i < m->nouts; i++)
            p->steps[p->outs[p->multicast_outs[m->outs + i]].steps[m->index]].own_slots = true;
    }
    if (!again && staging_charge(pool, room))
        p->room = room;
}

void eager_large_none(weft_exec *x, struct program *p)
{
    for (uint32_t s = 0; s < p->nsteps; s++)
        p->steps[s].own_slots = false;
    if (x->program != p)
        return;
    staging_uncharge(&x->comm->staging, p->room);
    p->room = 0;
}

/* From the head of the block to slot 0. */
static uint64_t from_head(const weft_exec *x, const struct program *p, const struct exec_multicast *m)
{
    return x->block->eagers + (uint64_t)(p->eager_bytes + m->room) + CORE_LINE;
}

void eager_large_describe(const weft_exec *x, const struct program *p, const struct exec_multicast *m,
                          struct block_message *message)
{
    message->own_slots = true;
    message->slot = from_head(x, p, m);
    message->slots = EAGER_SLOTS_UNACKED;
    message->slot_bytes = in_lines(message->bytes);
}

void eager_large_open(const weft_exec *x, struct program *p)
{
    for (uint32_t k = 0; k < p->nmulticasts; k++) {
        struct exec_multicast *m = &p->multicasts[k];
        if (!m->own_slots)
            continue;
        m->own = (char *)x->block + from_head(x, p, m);
        m->slot_bytes = in_lines(x->plan->steps[m->step].bytes);
        /* Should binding again be refused after that, this is right also for a message that had its count there before.
         * Relaxed: published by the meeting that comes. */
        atomic_store_explicit(eager_large_packed(m->own), x->run * (uint64_t)EAGER_LARGE_MOST, memory_order_relaxed);
    }
}
