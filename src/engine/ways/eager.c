/* Small messages, for which a separate signal would cost more than the copy. eager.h says how the message carries its
 * own signal.
 *
 * It is chosen for messages of up to 4 KiB, as long as all slots of the exec take at most 512 KiB and a quarter of the
 * comm's staging limit. A comm that was opened with `staged` has none. If every rank has a core, and a run would pack
 * more than 8 KiB for peers that could pull it and send something back, then of these messages only the inline ones are
 * eager. This rank waits for those peers anyway, so they may as well pull the others.
 *
 * The same data for several ranks is one message, which all of them read. Inline messages to several peers stand side
 * by side, several in a cache line. Larger ones that are all written when a run starts may be joint: they share one
 * stamp.
 *
 * A SEND is done when it is written. A rank may be 16 runs ahead of its receivers, which say every 8 runs (`done`) that
 * they have read all messages before. If ranks share cores and the receiver sends something back in each run, it says
 * nothing, and inline messages have two slots. */
#include "engine/ways/eager.h"

#include "base/error.h"
#include "engine/channel.h"
#include "engine/work.h"

#define EAGER_LIMIT (512 << 10) /* bytes of all eager slots of an exec */
#define EAGER_ONCE (8 << 10)    /* bytes of messages of a run that peers could pull: if there are more, they do */

/* ---- choosing ---- */

/* The message of the same data, if there is one already. Receivers that acknowledge it have one of their own. */
static uint32_t find_eager(const weft_plan *plan, const struct program *p, uint32_t step, bool unacked)
{
    uint32_t i = 0;
    while (i < p->neagers && (p->eagers[i].unacked != unacked ||
                              !program_same_data(plan, &plan->steps[p->eagers[i].step], &plan->steps[step])))
        i++;
    return i;
}

/* The inline messages that have the same number of slots stand side by side, run by run. So one cache line has several
 * of them, and neither the sender nor a receiver needs more than that line. Larger ones have lines of their own. */
struct room {
    int64_t unacked, others; /* bytes of the inline messages of one run */
    int64_t large;           /* bytes of all slots of the other messages */
};

static int64_t room_bytes(const struct room *r)
{
    return EAGER_SLOTS_UNACKED * eager_lines(r->unacked) + EAGER_SLOTS * eager_lines(r->others) + r->large;
}

static void add_eager(struct room *r, const struct exec_eager *eager)
{
    if (eager->bytes > EAGER_INLINE)
        r->large += eager->slots * eager_lines(eager_stamp_offset(eager->bytes) + 8);
    else if (!eager->unacked)
        r->others += eager_inline_bytes(eager->bytes);
    else
        r->unacked += eager_inline_bytes(eager->bytes);
}

/* Can the peer pull the message, and does it send something, so that this rank waits for it anyway? */
static bool could_be_pulled(const weft_exec *x, const struct program *p, uint32_t step)
{
    const struct plan_step *st = &x->plan->steps[step];
    bool all = program_hears(p, st->peer);
    for (uint32_t k = 0; k < st->nparts && all; k++)
        all = p->places[x->plan->parts[st->part + k].buf].reached;
    return all;
}

/* Makes every small SEND eager until the limit is reached, except those of more than `most` bytes that could be pulled.
 * Returns how many bytes of the chosen ones could be pulled. A rank that binds again makes the same SENDs eager as
 * before, because the block has slots for these. */
static int64_t choose(const weft_exec *x, struct program *p, int64_t limit, int64_t most, struct room *room)
{
    const struct program *was = x->program == p ? NULL : x->program;
    int64_t once = 0;
    for (uint32_t s = 0; s < p->nsteps; s++) {
        const struct plan_step *st = &x->plan->steps[s];
        if (st->kind != PLAN_SEND || st->bytes > EAGER_MOST || p->steps[s].offer == OFFER_WIRE)
            continue;
        bool choice = !was && could_be_pulled(x, p, s);
        if (was ? was->steps[s].offer != OFFER_EAGER : choice && st->bytes > most)
            continue;
        struct exec_out *out = &p->outs[p->steps[s].channel];
        uint32_t k = find_eager(x->plan, p, s, out->unacked);
        if (k == p->neagers) {
            struct exec_eager eager = {.unacked = out->unacked, .bytes = st->bytes, .step = s};
            eager.slots = eager.unacked && eager.bytes <= EAGER_INLINE ? EAGER_SLOTS_UNACKED : EAGER_SLOTS;
            struct room more = *room;
            add_eager(&more, &eager);
            if (room_bytes(&more) > limit)
                continue;
            *room = more;
            p->eagers[p->neagers++] = eager;
            once += choice ? eager.bytes : 0;
        }
        out->acks |= !out->unacked;
        p->eagers[k].nouts++;
        p->steps[s].offer = OFFER_EAGER;
        p->steps[s].eager = k;
    }
    return once;
}

static void choose_none(struct program *p, struct room *room)
{
    for (uint32_t s = 0; s < p->nsteps; s++)
        if (p->steps[s].offer == OFFER_EAGER)
            p->steps[s].offer = OFFER_PLACE;
    for (uint32_t i = 0; i < p->nouts; i++)
        p->outs[i].acks = false;
    p->neagers = 0;
    *room = (struct room){0};
}

/* Are all SENDs eager, and do they wait for nothing? Then all of them are written when a run starts. */
static bool all_at_once(const weft_plan *plan, const struct program *p)
{
    for (uint32_t s = 0; s < p->nsteps; s++)
        if (plan->steps[s].kind == PLAN_SEND && (p->steps[s].offer != OFFER_EAGER || plan->steps[s].ndeps))
            return false;
    return true;
}

/* Makes messages joint that are unacked and not inline, because their slots are free whenever a run starts. Returns the
 * bytes of all joint messages, in whole cache lines; 0: there are none. */
static int64_t join(const weft_plan *plan, struct program *p)
{
    int64_t bytes = 0;
    uint32_t n = 0;
    for (uint32_t k = 0; k < p->neagers; k++)
        n += p->eagers[k].bytes > EAGER_INLINE && p->eagers[k].unacked;
    if (n < 2 || !all_at_once(plan, p))
        return 0;
    for (uint32_t k = 0; k < p->neagers; k++) {
        struct exec_eager *eager = &p->eagers[k];
        eager->joint = eager->bytes > EAGER_INLINE && eager->unacked;
        if (eager->joint) {
            p->joint = eager;
            bytes += eager_lines(eager->bytes);
        }
    }
    return bytes;
}

/* Places the slots of all messages. */
static void lay_out(const weft_plan *plan, struct program *p, const struct room *room)
{
    struct room used = {0};
    int64_t unacked = eager_lines(room->unacked), others = eager_lines(room->others), joint = join(plan, p), joined = 0;
    int64_t first_joint = EAGER_SLOTS_UNACKED * unacked + EAGER_SLOTS * others;
    int64_t joint_bytes = joint ? joint + eager_lines(8) : 0, first_large = first_joint + EAGER_SLOTS * joint_bytes;
    for (uint32_t k = 0; k < p->neagers; k++) {
        struct exec_eager *eager = &p->eagers[k];
        if (eager->joint) {
            eager->at = first_joint + joined;
            eager->slot_bytes = joint_bytes;
            eager->stamp = joint - joined;
            joined += eager_lines(eager->bytes);
            continue;
        }
        bool large = eager->bytes > EAGER_INLINE;
        eager->at = large            ? first_large + used.large
                    : eager->unacked ? used.unacked
                                     : EAGER_SLOTS_UNACKED * unacked + used.others;
        eager->stamp = eager_stamp_offset(eager->bytes);
        eager->slot_bytes = large ? eager_lines(eager->stamp + 8) : eager->unacked ? unacked : others;
        add_eager(&used, eager);
    }
    p->eager_bytes = first_large + used.large;
}

int eager_choose(const weft_exec *x, struct program *p)
{
    int64_t limit = x->comm->staging.limit / 4;
    uint32_t sends = 0, at = 0;
    struct room room = {0};
    if (x->comm->staged)
        return 0;
    for (uint32_t s = 0; s < p->nsteps; s++)
        sends += x->plan->steps[s].kind == PLAN_SEND && x->plan->steps[s].bytes <= EAGER_MOST;
    p->eagers = program_take(p, sends, sizeof *p->eagers);
    p->eager_outs = program_take(p, sends, sizeof *p->eager_outs);
    if (!p->eagers || !p->eager_outs)
        return error_nomem();
    /* Two slots are better only if ranks share cores and drive each other's cache lines out: a line that is still in
     * the cache of the receiver's core takes longer to write than one that has left it. */
    for (uint32_t i = 0; i < p->nouts; i++)
        p->outs[i].unacked = !x->comm->dedicated_cores && program_hears(p, p->outs[i].peer);
    limit = limit < EAGER_LIMIT ? limit : EAGER_LIMIT;
    /* If every rank has a core, packing many messages takes longer than waiting until the peers have pulled them. */
    if (choose(x, p, limit, EAGER_MOST, &room) > EAGER_ONCE && x->comm->dedicated_cores) {
        choose_none(p, &room);
        choose(x, p, limit, EAGER_INLINE, &room);
    }
    lay_out(x->plan, p, &room);
    for (uint32_t k = 0; k < p->neagers; k++) {
        p->eagers[k].outs = at;
        at += p->eagers[k].nouts;
        p->eagers[k].nouts = 0;
    }
    for (uint32_t s = 0; s < p->nsteps; s++) {
        struct exec_eager *eager = &p->eagers[p->steps[s].eager];
        if (p->steps[s].kind == PLAN_SEND && p->steps[s].offer == OFFER_EAGER)
            p->eager_outs[eager->outs + eager->nouts++] = p->steps[s].channel;
    }
    return 0;
}

/* ---- sending ---- */

/* Has the receiver of a channel said that it has read the message that was last in the slot of this run? */
static bool slot_free(const weft_exec *x, struct exec_out *out)
{
    uint64_t need = x->run > EAGER_SLOTS ? (x->run - EAGER_SLOTS) * out->n : 0;
    if (out->seen_done < need)
        out->seen_done = atomic_load_explicit(out->done, memory_order_seq_cst);
    return out->seen_done >= need;
}

void eager_write(const weft_exec *x, const struct exec_eager *e)
{
    const struct exec_step *step = &x->program->steps[e->step];
    char *slot = e->slot + eager_offset(x->run, e->slots, e->slot_bytes);
    if (e->bytes > EAGER_INLINE) {
        work_pack(x->program, step, slot);
        if (!e->joint)
            eager_stamp(slot, x->run, e->stamp);
    } else {
        char message[EAGER_INLINE];
        work_pack(x->program, step, message);
        eager_store_inline(slot, x->run, message, e->bytes);
    }
}

void eager_stamp_joint(const weft_exec *x)
{
    const struct exec_eager *joint = x->program->joint;
    if (joint)
        eager_stamp(joint->slot + eager_offset(x->run, joint->slots, joint->slot_bytes), x->run, joint->stamp);
}

/* Wakes the receivers that sleep. */
static void call_readers(const weft_exec *x, const struct exec_eager *e)
{
    const struct program *p = x->program;
    core_fence_all(); /* between the message and the looks at which ranks sleep, as in core_signal */
    for (uint32_t i = 0; i < e->nouts; i++)
        core_call_fenced(x->comm->group, p->outs[p->eager_outs[e->outs + i]].peer);
}

void eager_launch_joint(weft_exec *x)
{
    const struct program *p = x->program;
    eager_stamp_joint(x);
    for (uint32_t i = 0; i < p->neagers; i++)
        if (p->eagers[i].joint)
            call_readers(x, &p->eagers[i]);
}

static bool launch(weft_exec *x, struct exec_out *out, const struct exec_step *step)
{
    struct program *p = x->program;
    struct exec_eager *e = &p->eagers[step->eager];
    (void)out;
    if (e->run != x->run) {
        const uint32_t *outs = p->eager_outs + e->outs;
        for (uint32_t i = 0; i < e->nouts && !e->unacked; i++)
            if (!slot_free(x, &p->outs[outs[i]]))
                return false;
        eager_write(x, e);
        if (!e->joint)
            call_readers(x, e);
        e->run = x->run;
    }
    channel_release(p, step);
    return true;
}

/* ---- receiving ---- */

const char *eager_slot(const weft_exec *x, const struct exec_step *step)
{
    return step->slot + eager_offset(x->run, step->slots, step->slot_bytes);
}

static bool arrived(const weft_exec *x, const struct exec_in *in, const struct exec_step *step)
{
    (void)in;
    return eager_there(eager_slot(x, step), x->run, step->eager_bytes, step->stamp);
}

static enum way_state take(weft_exec *x, struct exec_in *in, const struct exec_step *step, int64_t *bytes)
{
    const char *message = eager_slot(x, step);
    (void)in;
    if (step->inlined) {
        eager_load_inline(message, x->run, step->inlined, step->eager_bytes);
        message = step->inlined;
    }
    work_unpack(x->program, step, message);
    *bytes = step->nwork ? step->bytes : 0;
    return WAY_OVER;
}

/* ---- bind ---- */

static bool fits(const struct way_ends *e)
{
    return e->send->offer == OFFER_EAGER;
}

static void describe(weft_exec *x, struct program *p, uint32_t s, struct block_message *m)
{
    if (m->offer != OFFER_EAGER)
        return;
    const struct exec_eager *e = &p->eagers[p->steps[s].eager];
    m->slot = x->block->eagers + (uint64_t)e->at;
    m->slot_bytes = e->slot_bytes;
    m->slots = e->slots;
    m->stamp = e->stamp;
    m->unacked = e->unacked;
}

static int accept(weft_exec *x, struct program *p, const struct exec_in *in, uint32_t k, struct exec_step *step)
{
    const struct block_message *send = &in->sends[k];
    (void)x;
    step->slot = (const char *)in->block + send->slot;
    step->slots = send->slots;
    step->stamp = send->stamp;
    step->slot_bytes = send->slot_bytes;
    step->eager_bytes = send->bytes;
    if (send->bytes > EAGER_INLINE)
        return 0;
    step->inlined = program_take(p, 1, EAGER_INLINE);
    return step->inlined ? 0 : error_nomem();
}

const struct way way_eager = {
    .name = "eager",
    .what = "packed into a slot of the sender's block that carries its own signal",
    .why = "the message is small",
    .offered = true,
    .own_signal = true,
    .at_launch = true,
    .send_moves = WAY_MOVES_MESSAGE,
    .recv_moves = WAY_MOVES_MESSAGE,
    .folds = WAY_FOLDS_SLOT,
    .fits = fits,
    .describe = describe,
    .accept = accept,
    .launch = launch,
    .arrived = arrived,
    .take = take,
};
