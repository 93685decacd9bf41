/* The driver "pipeline": one pipeline for all messages. It drives every program, so it is taken when no other driver
 * can. A SEND is launched, which means that the peer can see it, and retired when this rank may use its memory again. A
 * RECV is taken when its message is the next of its channel, has been launched, and waits for no other step. It is
 * settled, which the sender sees, when this rank will not look at the message again. The way of a message says how it
 * is launched, retired and taken (way.h). Channels are first in, first out, so one counter in each direction is enough.
 *
 * A pass does first what other ranks wait for: sends, folds that feed sends, receives. Copies that only this rank needs
 * come last. Each part of a pass moves about 256 KiB, so that no part holds up the others.
 *
 * Counters only grow. Message k of run r (both from 0) of a channel with n messages in a run:
 *   pulled, staged   is launched when `ready` reaches r*n + k + 1, and has been read when `done` does; both ends read a
 *                    message that is assisted (ways/assist.c)
 *   pushed           may be written when `done` reaches r*n + k + 1, and has been written when `ready` does
 *   eager            is launched when its slot has the number of the run; every EAGER_SLOTS / 2 runs `done` says that
 *                    the messages of all runs before have been read
 *
 * The store of a counter (core_signal), and that of a stamp in an eager slot, release what this side wrote or has read.
 * The load on the other side acquires it.
 *
 * Why runs need nothing else between them: peers read the SRC, DST and TEMP memory of a rank through its SENDs only,
 * and write its DST through its RECVs only. A run of a rank is over when all its steps are done and all its SENDs are
 * retired. From then on no peer touches its memory for this run. So the caller may change the source, and the next run
 * may overwrite DST and TEMP. A peer that is one run ahead only raises its counter further than this rank needs. Eager
 * messages are in memory of their own: a rank may be EAGER_SLOTS runs ahead of their readers before it must wait.
 *
 * Why staging cannot block for ever: a receiver unpacks a staged message as soon as it is launched and is the next of
 * its channel, and that frees the slot. So a SEND that waits for a slot waits, at worst, for receivers that have yet to
 * start. Each exec has one slot that no other exec can take. Only a SEND of the same run can hold that slot, and its
 * receivers take that one before this run can end.
 *
 * A step that waits for a SEND waits until the memory of the message has been read: by the packing if it is staged or
 * eager, by this rank if it is pushed, by the peer if it is pulled. */
#include <string.h>

#include "engine/channel.h"
#include "engine/device/carry.h"
#include "engine/driver.h"
#include "engine/order/weave.h"
#include "engine/tracer.h"
#include "engine/ways/eager.h"
#include "engine/ways/way_wire.h"
#include "engine/work.h"

#define SLICE (256 << 10) /* bytes that each part of a pass moves at most; the last step may go beyond that */

/* ---- sending ---- */

/* Launches all messages that wait for nothing; of those that go in turn (way.h) one for each channel. */
static bool launch(weft_exec *x)
{
    struct program *p = x->program;
    bool moved = false;
    p->launchable = false;
    for (uint32_t i = 0; i < p->nouts; i++) {
        struct exec_out *out = &p->outs[i];
        uint32_t before = out->posted, told = before;
        while (out->posted < out->n && !p->open[out->steps[out->posted]]) {
            const struct exec_step *step = &p->steps[out->steps[out->posted]];
            const struct way *way = step->way;
            if ((way->in_turn && told != before) || (way->launch && !way->launch(x, out, step)))
                break;
            out->posted++;
            if (p->tracer)
                tracer_sent(x, out);
            if (way->at_launch) {
                if (out->retired == out->posted - 1)
                    out->retired++;
                p->left--;
            }
            if (!way->own_signal)
                told = out->posted;
        }
        if (out->posted == before)
            continue;
        p->unposted -= out->posted - before;
        if (told != before)
            core_signal(x->comm->group, out->peer, out->ready, out->base + told);
        moved = true;
    }
    return moved;
}

static bool retire(weft_exec *x)
{
    struct program *p = x->program;
    bool moved = false;
    for (uint32_t i = 0; i < p->nouts; i++) {
        struct exec_out *out = &p->outs[i];
        if (out->retired == out->posted)
            continue;
        out->seen_done = atomic_load_explicit(out->done, memory_order_seq_cst);
        for (; out->retired < out->posted; out->retired++) {
            const struct exec_step *step = &p->steps[out->steps[out->retired]];
            if (step->way->at_launch) /* it was retired when it was launched */
                continue;
            if (out->base + out->retired >= out->seen_done)
                break;
            if (step->way->retire)
                step->way->retire(x, out, step);
            else
                channel_release(p, step);
            p->left--;
            moved = true;
        }
    }
    return moved;
}

/* ---- receiving ---- */

/* At the end of a run all eager messages have been read: tells the senders that need to know. */
static void free_slots(weft_exec *x)
{
    for (uint32_t i = 0; i < x->program->nins; i++) {
        struct exec_in *in = &x->program->ins[i];
        if (in->acks)
            core_signal(x->comm->group, in->peer, in->done, in->base + in->n);
    }
}

/* Tells the peers that push that they may write. */
static void open_pushed(weft_exec *x)
{
    for (uint32_t i = 0; i < x->program->nins; i++) {
        struct exec_in *in = &x->program->ins[i];
        if (in->pushed)
            core_signal(x->comm->group, in->peer, in->done, in->base + in->n);
    }
}

/* Returns about how many bytes it copied. */
static int64_t take(weft_exec *x, struct exec_in *in)
{
    const struct exec_step *step = &x->program->steps[in->steps[in->taken]];
    const uint32_t message = in->taken;
    int64_t bytes = 0;
    if (step->way->take(x, in, step, &bytes) == WAY_OVER)
        channel_pulled(x, in);
    if (x->program->tracer)
        tracer_took(x, in, message);
    return bytes;
}

static bool receive(weft_exec *x)
{
    struct program *p = x->program;
    int64_t room = SLICE;
    uint32_t first = 0;
    bool moved = false;
    for (; first < p->nins && !channel_can_take(x, &p->ins[first]); first++) {
    }
    for (uint32_t i = first; i < p->nins && room > 0; i++) {
        struct exec_in *in = &p->ins[i];
        while (room > 0 && channel_can_take(x, in)) {
            core_fence_looks(); /* pairs with the store that channel_arrived() has seen */
            room -= take(x, in);
            moved = true;
        }
    }
    return moved;
}

/* ---- local steps ---- */

static void work(weft_exec *x, uint32_t s)
{
    struct program *p = x->program;
    const struct exec_step *step = &p->steps[s];
    if (p->carry) { /* carried() goes on when the device has done it */
        carry_begin(x, s);
        return;
    }
    work_local(x, step);
    if (p->tracer)
        tracer_worked(x, s);
    for (uint32_t k = 0; k < step->nholds; k++) {
        uint32_t recv = p->holds[step->hold + k];
        if (--p->readers[recv] == 0)
            channel_settle(x, &p->ins[p->steps[recv].channel]);
    }
    channel_copied(x, s);
}

static bool drain(weft_exec *x, const uint32_t *queue, uint32_t *head, const uint32_t *tail)
{
    bool moved = false;
    for (int64_t room = SLICE; *head < *tail && room > 0; moved = true) {
        uint32_t s = queue[(*head)++];
        work(x, s);
        room -= x->program->steps[s].bytes;
    }
    return moved;
}

/* A device does the work of the steps, and the host goes on with those that are done. */
static bool carried(weft_exec *x)
{
    bool moved = carry_pass(x);
    for (uint32_t s; carry_next(x, &s); moved = true)
        channel_copied(x, s);
    return moved;
}

/* ---- the run ---- */

static void start(weft_exec *x)
{
    struct program *p = x->program;
    memcpy(p->open, p->open0, p->nsteps * sizeof *p->open);
    memcpy(p->readers, p->readers0, p->nsteps * sizeof *p->readers);
    p->left = p->nsteps;
    p->unposted = 0;
    for (uint32_t i = 0; i < p->nins; i++) {
        struct exec_in *in = &p->ins[i];
        in->base = (x->run - 1) * in->n;
        in->taken = in->settled = 0;
    }
    for (uint32_t i = 0; i < p->nouts; i++) {
        struct exec_out *out = &p->outs[i];
        out->base = (x->run - 1) * out->n;
        out->posted = out->retired = 0;
        p->unposted += out->n;
    }
    p->urgent_head = p->urgent_tail = p->lazy_head = p->lazy_tail = 0;
    for (uint32_t k = 0; k < p->nfirst; k++) {
        uint32_t s = p->first[k];
        if (p->steps[s].urgent)
            p->urgent[p->urgent_tail++] = s;
        else
            p->lazy[p->lazy_tail++] = s;
    }
    if (p->pushed)
        open_pushed(x);
    if (p->weave)
        weave_start(p->weave);
    if (p->unposted)
        launch(x);
    if (p->joint)
        eager_launch_joint(x);
    if (p->wired.n)
        way_wire_start(x);
}

static bool pass(weft_exec *x, bool idle)
{
    struct program *p = x->program;
    bool moved = retire(x);
    if (p->carry)
        moved |= carried(x);
    moved |= drain(x, p->urgent, &p->urgent_head, &p->urgent_tail);
    if (p->unposted && (p->launchable || p->may_block)) /* a slot that it waits for may have been freed by a peer */
        moved |= launch(x);
    if (receive(x)) {
        drain(x, p->urgent, &p->urgent_head, &p->urgent_tail);
        moved = true;
    }
    if (p->wired.n)
        moved |= way_wire_pass(x);
    if (p->weave)
        moved |= weave_pass(x, idle);
    if (!moved)
        moved = drain(x, p->lazy, &p->lazy_head, &p->lazy_tail);
    if (!moved && p->assists)
        moved = p->assists->assist(x);
    if (!p->left && x->run % (EAGER_SLOTS / 2) == 0)
        free_slots(x);
    return moved;
}

/* ---- waiting ---- */

static bool in_waits(const weft_exec *x, const struct exec_in *in)
{
    return in->taken < in->n && !x->program->open[in->steps[in->taken]] && !channel_arrived(x, in);
}

static bool out_waits(const weft_exec *x, const struct exec_out *out)
{
    const struct program *p = x->program;
    uint64_t done = atomic_load_explicit(out->done, memory_order_seq_cst);
    if (out->retired < out->posted && out->base + out->retired >= done)
        return true;
    if (out->posted == out->n)
        return false;
    if (out->acks && x->run > EAGER_SLOTS &&
        done < (x->run - EAGER_SLOTS) * out->n) /* only eager messages let a rank get that far ahead */
        return true;
    uint32_t s = out->steps[out->posted];
    return !p->open[s] && p->steps[s].way->pushed && out->base + out->posted >= done;
}

/* A rank that waits for messages and has read all that have come needs all others before its run can end. In the same
 * way it needs all peers that have yet to read a message, or to let one be pushed. Which of the two comes last is not
 * known. */
static int lacking(const weft_exec *x)
{
    const struct program *p = x->program;
    int ins = 0, outs = 0, opens = 0;
    if (p->wired.n)
        return 1;
    for (uint32_t i = 0; i < p->nins; i++)
        ins += in_waits(x, &p->ins[i]);
    for (uint32_t i = 0; i < p->nouts; i++) {
        bool waits = out_waits(x, &p->outs[i]);
        outs += waits;
        opens += waits && p->outs[i].posted < p->outs[i].n;
    }
    return opens ? opens : ins ? ins : outs ? outs : 1;
}

static struct driver_count in_count(const weft_exec *x, const struct exec_in *in)
{
    (void)x;
    return (struct driver_count){in->taken, in->taken, in->taken};
}

static struct driver_count out_count(const weft_exec *x, const struct exec_out *out)
{
    (void)x;
    return (struct driver_count){out->posted, out->retired, out->retired < out->posted ? out->retired : out->posted};
}

static int make(weft_exec *x, struct program *p, const uint64_t *block_at, void *state, bool *can)
{
    (void)x, (void)p, (void)block_at, (void)state;
    *can = true;
    return 0;
}

const struct driver driver_pipeline = {
    .id = DRIVER_PIPELINE,
    .name = "pipeline",
    .what = "channels first in first out, steps as what they wait for is done",
    .basic = true,
    .make = make,
    .start = start,
    .pass = pass,
    .in_waits = in_waits,
    .out_waits = out_waits,
    .lacking = lacking,
    .in_count = in_count,
    .out_count = out_count,
};
