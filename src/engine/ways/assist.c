/* Assisted pulls: large messages that both ends copy, from place to place. If every rank has a core, a rank that sends
 * much more than it receives would wait while its receivers copy. Instead both ends claim pieces of the message, by one
 * count, until none is left. A large broadcast to one rank then takes half the time. It is chosen for messages of 128
 * KiB or more that are one piece of memory at both ends and are not cast, if the sender receives less than half of what
 * it sends.
 *
 * `claimed` counts the pieces of a message that were claimed, over all runs: run r has those from (r - 1) * pieces on.
 * `copied` is (r - 1) * pieces plus the number of pieces that the sender has copied in run r, the last in which it
 * copied any. Only the receiver claims the first piece of a run. That tells the sender that the RECV has begun, so that
 * it may write the destination. The end that has claimed a piece copies it, and no other rank does. The message is
 * complete when the pieces that the two ends have copied are all pieces. Only then does the receiver say that it was
 * read, so no end begins a run while the other is still in the one before.
 *
 * Memory order: a claim acquires and releases. So what the receiver did with the destination before its run comes
 * before what the sender writes there. The sender advances `copied` by core_signal, behind what it has written. */
#include "engine/ways/assist.h"

#include <string.h>

#include "engine/channel.h"
#include "engine/shape.h"
#include "engine/work.h"

#define LEAST (128 << 10)      /* bytes of a message that is worth it */
#define PIECES 8               /* pieces of a message; more if these would be larger than PIECE_MOST */
#define PIECE_MOST (128 << 10) /* bytes */
#define ROOM (256 << 10)       /* bytes that a receiver copies in one pass */

static int64_t piece_bytes(int64_t bytes)
{
    int64_t piece = (bytes / PIECES + 4095) / 4096 * 4096;
    return piece < PIECE_MOST ? piece : PIECE_MOST;
}

static uint64_t pieces(int64_t bytes)
{
    return (uint64_t)((bytes + piece_bytes(bytes) - 1) / piece_bytes(bytes));
}

uint64_t assist_claimed(uint64_t runs, int64_t bytes)
{
    return bytes < LEAST ? 0 : runs * pieces(bytes);
}

static uint64_t base_of(const weft_exec *x, const struct block_message *send)
{
    return (x->run - 1) * pieces(send->bytes);
}

/* Pieces that the sender has copied in this run. */
static uint64_t sent(const weft_exec *x, const struct block_message *send)
{
    uint64_t copied = atomic_load_explicit(&send->copied, memory_order_seq_cst), base = base_of(x, send);
    return copied > base ? copied - base : 0;
}

/* Claims the next piece of this run; false: there is none. Only with `first` may it be the first piece. */
static bool claim(const weft_exec *x, struct block_message *send, bool first, uint64_t *piece)
{
    uint64_t n = pieces(send->bytes), base = base_of(x, send);
    uint64_t next = atomic_load_explicit(&send->claimed, memory_order_relaxed);
    do {
        if (next - base >= n || (next == base && !first))
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&send->claimed, &next, next + 1, memory_order_acq_rel,
                                                    memory_order_relaxed));
    *piece = next - base;
    return true;
}

static int64_t copy(const weft_exec *x, const struct exec_step *step, uint64_t piece)
{
    const struct exec_move *m = &x->program->moves[step->work];
    int64_t most = piece_bytes(m->bytes), at = (int64_t)piece * most, n = m->bytes - at < most ? m->bytes - at : most;
    work_bytes(m, m->dst + at, m->src + at, (size_t)n);
    return n;
}

/* ---- the sender ---- */

static bool copy_one(weft_exec *x, const struct exec_out *out, uint32_t k)
{
    const struct exec_step *step = &x->program->steps[out->steps[k]];
    struct block_message *send = &out->sends[k];
    uint64_t piece;
    if (step->way != &way_assist || !claim(x, send, false, &piece))
        return false;
    copy(x, step, piece);
    core_signal(x->comm->group, out->peer, &send->copied, base_of(x, send) + sent(x, send) + 1);
    return true;
}

static bool assist(weft_exec *x)
{
    const struct program *p = x->program;
    for (uint32_t i = 0; i < p->nouts; i++)
        for (uint32_t k = p->outs[i].retired; k < p->outs[i].posted; k++)
            if (copy_one(x, &p->outs[i], k))
                return true;
    return false;
}

/* ---- the receiver ---- */

static bool complete(const weft_exec *x, const struct exec_in *in)
{
    const struct block_message *send = &in->sends[in->taken];
    return sent(x, send) + in->begun.copied == pieces(send->bytes);
}

static bool arrived(const weft_exec *x, const struct exec_in *in, const struct exec_step *step)
{
    (void)step;
    return channel_ready(in) && (!in->begun.none_left || complete(x, in));
}

static enum way_state take(weft_exec *x, struct exec_in *in, const struct exec_step *step, int64_t *bytes)
{
    struct block_message *send = (struct block_message *)&in->sends[in->taken];
    uint64_t piece;
    *bytes = 0;
    while (!in->begun.none_left && *bytes < ROOM) {
        if (!claim(x, send, true, &piece)) {
            in->begun.none_left = true; /* from here on the receiver waits for the sender's pieces */
            break;
        }
        if (!piece)
            core_ring(x->comm->group, in->peer);
        *bytes += copy(x, step, piece);
        in->begun.copied++;
    }
    if (!in->begun.none_left || !complete(x, in))
        return WAY_BEGUN;
    memset(&in->begun, 0, sizeof in->begun);
    return WAY_OVER;
}

/* ---- bind ---- */

/* The message must be one part, in one piece at both ends and without a cast. */
static bool fits(const struct way_ends *e)
{
    if (e->woven || !e->send->assists || !e->recv->open || e->recv->nparts != 1)
        return false;
    const struct block_part *src = &block_parts(e->from)[e->send->part], *dst = &block_parts(e->to)[e->recv->part];
    if (src->dtype != dst->dtype || src->wire != src->dtype || src->nloops != dst->nloops)
        return false;
    struct shape s = shape_pair(e->from, src, e->to, dst);
    return shape_is_dense(&s);
}

static void describe(weft_exec *x, struct program *p, uint32_t s, struct block_message *m)
{
    const struct plan_step *st = &x->plan->steps[s];
    m->assists = m->offer == OFFER_PLACE && p->one_way && st->bytes >= LEAST && st->nparts == 1;
    /* Binding again writes this even if the message is not to be assisted from now on: if it is refused, the exec goes
     * on as it was bound before. */
    atomic_store_explicit(&m->claimed, assist_claimed(x->run, st->bytes), memory_order_relaxed);
}

const struct way way_assist = {
    .name = "assist",
    .what = "both ends copy pieces from the sender's memory to the receiver's",
    .why = "the sender has little to receive, and a core",
    .told = true,
    .send_moves = WAY_MOVES_PLACES,
    .recv_moves = WAY_MOVES_PLACES,
    .fits = fits,
    .describe = describe,
    .assist = assist,
    .arrived = arrived,
    .take = take,
};
