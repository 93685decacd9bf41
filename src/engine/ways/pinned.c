/* Messages of an exec some of whose ranks have memory on a device that not all ranks share. Each channel has a few
 * slots in the control block of its sender, which both ends pin, and message k goes through slot k % slots. The
 * sender's device packs it there, and the receiver's device unpacks it from there; a rank without a device does so by
 * itself. The host copies nothing. A slot is free again when the receiver has read it.
 *
 * While one message is unpacked the next ones are packed (device/carry.h). So a run takes about as long as the slower
 * of the two, and not as long as both together. Slots are where they are as long as the exec lives: the tables of the
 * kernels have their addresses. They count against the staging memory of the comm. */
#include "engine/ways/pinned.h"

#include "base/error.h"
#include "engine/channel.h"
#include "engine/device/carry.h"
#include "engine/work.h"

/* ---- bind ---- */

/* Bytes of a slot of the channel. */
static int64_t slot_bytes(const weft_plan *plan, const struct exec_out *out)
{
    int64_t most = 0;
    for (uint32_t k = 0; k < out->n; k++)
        most = plan->steps[out->steps[k]].bytes > most ? plan->steps[out->steps[k]].bytes : most;
    return (most + CORE_LINE - 1) / CORE_LINE * CORE_LINE;
}

static uint32_t slots_of(const struct exec_out *out, uint32_t slots)
{
    return out->n < slots ? out->n : slots;
}

static int64_t all_slots(const weft_plan *plan, const struct program *p, uint32_t slots)
{
    int64_t all = 0;
    for (uint32_t i = 0; i < p->nouts; i++)
        all += slot_bytes(plan, &p->outs[i]) * slots_of(&p->outs[i], slots);
    return all;
}

/* At the first bind; the block stays as it is when the exec is bound again. */
static int choose_slots(weft_exec *x, const struct program *p)
{
    struct staging *pool = &x->comm->staging;
    uint32_t slots = (uint32_t)x->comm->channel_buckets;
    while (slots > 1 && all_slots(x->plan, p, slots) > (pool->limit - pool->taken) / 2)
        slots--;
    int64_t bytes = all_slots(x->plan, p, slots);
    if (!staging_charge(pool, bytes))
        return error_set(WEFT_ENOMEM,
                         "%u channels need %lld bytes of pinned staging, %lld of %lld are left: raise inflight_bytes, "
                         "or lower with a smaller bucket",
                         p->nouts, (long long)bytes, (long long)(pool->limit - pool->taken), (long long)pool->limit);
    x->slots = slots;
    x->slot_bytes = bytes;
    return 0;
}

int pinned_outline(weft_exec *x, struct program *p)
{
    if (!x->carried)
        return 0;
    int err = x->slots ? 0 : choose_slots(x, p);
    if (err)
        return err;
    for (uint32_t i = 0; i < p->nouts; i++) {
        const struct exec_out *out = &p->outs[i];
        int64_t bytes = slot_bytes(x->plan, out);
        for (uint32_t k = 0; k < out->n; k++) {
            p->steps[out->steps[k]].offer = OFFER_PINNED;
            p->steps[out->steps[k]].slot_at = (uint64_t)(p->pinned_bytes + (int64_t)(k % x->slots) * bytes);
        }
        p->pinned_bytes += bytes * slots_of(out, x->slots);
    }
    return 0;
}

void pinned_free(weft_exec *x)
{
    staging_uncharge(&x->comm->staging, x->slot_bytes);
    x->slot_bytes = 0;
    x->slots = 0;
}

static void describe(weft_exec *x, struct program *p, uint32_t s, struct block_message *m)
{
    struct exec_step *step = &p->steps[s];
    if (m->offer != OFFER_PINNED || step->kind != PLAN_SEND)
        return;
    m->slot = x->block->pinned + step->slot_at;
    step->slot = (const char *)x->block + m->slot;
}

static int accept(weft_exec *x, struct program *p, const struct exec_in *in, uint32_t k, struct exec_step *step)
{
    (void)x, (void)p;
    step->slot = (const char *)in->block + in->sends[k].slot;
    return 0;
}

static bool fits(const struct way_ends *e)
{
    return e->send->offer == OFFER_PINNED;
}

/* ---- sending ---- */

/* Packs the next message. False: its slot is not free, or the device has not packed it yet. Those behind it are begun,
 * as far as there are slots. */
static bool packed(weft_exec *x, const struct exec_out *out, const struct exec_step *step)
{
    struct program *p = x->program;
    if (out->posted - out->retired >= x->slots)
        return false;
    if (!p->carry) {
        work_pack(p, step, (char *)(uintptr_t)step->slot);
        return true;
    }
    for (uint32_t k = out->posted; k < out->n && k - out->retired < x->slots && !p->open[out->steps[k]]; k++)
        carry_begin(x, out->steps[k]);
    return carry_done(x, out->steps[out->posted]);
}

static bool launch(weft_exec *x, struct exec_out *out, const struct exec_step *step)
{
    if (!packed(x, out, step))
        return false;
    channel_release(x->program, step); /* the memory that it was packed from may change */
    return true;
}

/* What waited for the SEND has gone on when it was packed. */
static void retire(weft_exec *x, struct exec_out *out, const struct exec_step *step)
{
    (void)x, (void)out, (void)step;
}

/* ---- receiving ---- */

/* After a failure of the comm nothing is begun any more. */
static bool arrived(const weft_exec *x, const struct exec_in *in, const struct exec_step *step)
{
    const struct program *p = x->program;
    uint32_t s = (uint32_t)(step - p->steps);
    return channel_ready(in) && (!p->carry || (carry_begun(x, s) ? carry_done(x, s) : !core_failed(x->comm->group)));
}

static enum way_state take(weft_exec *x, struct exec_in *in, const struct exec_step *step, int64_t *bytes)
{
    struct program *p = x->program;
    uint32_t s = (uint32_t)(step - p->steps);
    (void)in;
    *bytes = step->nwork && !p->carry ? step->bytes : 0;
    if (!p->carry) {
        work_unpack(p, step, step->slot);
        return WAY_OVER;
    }
    carry_begin(x, s);
    return carry_done(x, s) ? WAY_OVER : WAY_BEGUN;
}

const struct way way_pinned = {
    .name = "pinned",
    .what = "through a slot of pinned memory, which the devices of both ends copy from and to",
    .why = "a rank has memory on a device that not all ranks share",
    .told = true,
    .send_moves = WAY_MOVES_MESSAGE,
    .recv_moves = WAY_MOVES_MESSAGE,
    .fits = fits,
    .describe = describe,
    .accept = accept,
    .launch = launch,
    .retire = retire,
    .arrived = arrived,
    .take = take,
};
