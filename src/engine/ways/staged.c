/* Messages that go through staging memory. The sender packs one into a slot of its pool, and the receiver unpacks it
 * from there. The slot is free when all its receivers have said that they have read it. The pool is bounded, and each
 * exec has one slot that no other exec can take (comm/staging.h); pipeline.c says why this cannot block for ever.
 *
 * It is for memory that the peer cannot reach, which is the private memory of processes, and for all messages of a comm
 * that was opened with `staged`. The sender also packs by choice if the elements lie far apart at both ends
 * (outline.c): in spans of at most 32 bytes, as the x faces of a 3-d array, or of at most 64 bytes if each is on a page
 * of its own. A receiver that read them in place would fetch, for each span, a cache line from the sender's core (the
 * line in which that core writes a ghost next) and need a TLB entry for the sender's page. The sender decides by its
 * own memory, and by where it puts what that peer sends. It does not pack by choice if more than a quarter of the pool
 * is taken, or if the message has more than 1/64 of it. */
#include "engine/ways/staged.h"

#include "base/error.h"
#include "engine/channel.h"
#include "engine/work.h"

/* ---- multicasts ---- */

/* The same data to several ranks is packed once. For that, all their channels must be at the message at the same time.
 * So only messages of one stage are joined that have the same position in their channels, with no message of a later
 * stage before them. Then no ranks can wait in a circle: of the messages of the earliest stage, those with the lowest
 * position wait only for earlier stages. */
static uint32_t find_multicast(const weft_plan *plan, const struct program *p, uint32_t first, uint32_t step)
{
    uint32_t i = first;
    while (i < p->nmulticasts &&
           (p->multicasts[i].alone || plan->steps[p->multicasts[i].step].stage != plan->steps[step].stage ||
            !program_same_data(plan, &plan->steps[p->multicasts[i].step], &plan->steps[step])))
        i++;
    return i;
}

/* Makes the multicasts of all messages at position `index`. latest[]: the latest stage so far of each channel. */
static void multicast_at(const weft_plan *plan, struct program *p, uint32_t index, int32_t *latest)
{
    uint32_t first = p->nmulticasts;
    for (uint32_t i = 0; i < p->nouts; i++) {
        if (index >= p->outs[i].n)
            continue;
        uint32_t s = p->outs[i].steps[index];
        bool in_order = plan->steps[s].stage >= latest[i];
        if (in_order)
            latest[i] = plan->steps[s].stage;
        if (p->steps[s].offer != OFFER_STAGED)
            continue;
        uint32_t multicast = in_order ? find_multicast(plan, p, first, s) : p->nmulticasts;
        if (multicast == p->nmulticasts)
            p->multicasts[p->nmulticasts++] = (struct exec_multicast){.step = s, .index = index, .alone = !in_order};
        p->multicasts[multicast].nouts++;
        p->steps[s].multicast = multicast;
    }
}

int staged_multicasts(const weft_exec *x, struct program *p)
{
    uint32_t sends = 0, most = 0, at = 0;
    for (uint32_t i = 0; i < p->nouts; i++) {
        sends += p->outs[i].n;
        most = p->outs[i].n > most ? p->outs[i].n : most;
    }
    int32_t *latest = program_take(p, p->nouts, sizeof *latest);
    p->multicasts = program_take(p, sends, sizeof *p->multicasts);
    p->multicast_outs = program_take(p, sends, sizeof *p->multicast_outs);
    if (!latest || !p->multicasts || !p->multicast_outs)
        return error_nomem();
    for (uint32_t index = 0; index < most; index++)
        multicast_at(x->plan, p, index, latest);
    for (uint32_t k = 0; k < p->nmulticasts; k++) {
        p->multicasts[k].outs = at;
        at += p->multicasts[k].nouts;
        p->multicasts[k].nouts = 0;
    }
    for (uint32_t i = 0; i < p->nouts; i++)
        for (uint32_t k = 0; k < p->outs[i].n; k++) {
            const struct exec_step *step = &p->steps[p->outs[i].steps[k]];
            struct exec_multicast *multicast = &p->multicasts[step->multicast];
            if (step->offer == OFFER_STAGED)
                p->multicast_outs[multicast->outs + multicast->nouts++] = i;
        }
    return 0;
}

/* ---- sending ---- */

/* Are all channels of the message at it, and below their limit of messages in flight? */
static bool all_at(const weft_exec *x, const struct exec_multicast *m)
{
    const struct program *p = x->program;
    for (uint32_t i = 0; i < m->nouts; i++) {
        const struct exec_out *out = &p->outs[p->multicast_outs[m->outs + i]];
        if (out->posted != m->index || p->open[out->steps[out->posted]] ||
            out->posted - out->retired >= (uint32_t)x->comm->channel_buckets)
            return false;
    }
    return true;
}

/* Takes a slot for the message of this run; false: it cannot be had now. */
static bool take_slot(weft_exec *x, struct exec_multicast *m)
{
    struct program *p = x->program;
    if (!all_at(x, m) || !staging_take(&x->comm->staging, &p->reserve, x->plan->steps[m->step].bytes, &m->slot))
        return false;
    m->run = x->run;
    m->readers = m->nouts;
    return true;
}

static bool launch(weft_exec *x, struct exec_out *out, const struct exec_step *step)
{
    struct exec_multicast *m = &x->program->multicasts[step->multicast];
    if (m->run != x->run) {
        if (!take_slot(x, m))
            return false;
        work_pack(x->program, step, x->comm->staging.base + m->slot);
    }
    out->sends[out->posted].slot = (uint64_t)m->slot;
    channel_release(x->program, step);
    return true;
}

static void retire(weft_exec *x, struct exec_out *out, const struct exec_step *step)
{
    struct program *p = x->program;
    const struct block_message *send = &out->sends[out->retired];
    if (--p->multicasts[step->multicast].readers == 0)
        staging_give(&x->comm->staging, &p->reserve, send->bytes, (int64_t)send->slot);
}

/* ---- receiving ---- */

static enum way_state take(weft_exec *x, struct exec_in *in, const struct exec_step *step, int64_t *bytes)
{
    work_unpack(x->program, step, in->staging + in->sends[in->taken].slot);
    *bytes = step->nwork ? step->bytes : 0;
    return WAY_OVER;
}

/* ---- bind ---- */

static bool fits(const struct way_ends *e)
{
    return e->send->offer == OFFER_STAGED;
}

const struct way way_staged = {
    .name = "staged",
    .what = "packed into staging memory and unpacked from there",
    .basic = true,
    .told = true,
    .in_turn = true,
    .send_moves = WAY_MOVES_MESSAGE,
    .recv_moves = WAY_MOVES_MESSAGE,
    .fits = fits,
    .launch = launch,
    .retire = retire,
    .take = take,
};
