/* Pulled messages that their sender helps to copy. Where every rank has a core and a rank sends more than it receives,
 * it would wait while its receivers copy; so both ends take pieces of the message, from one count, until none is left.
 *
 * `claimed` counts the pieces of a message that were taken, over all runs: run r has those from (r - 1) * pieces on.
 * `packed` is (r - 1) * pieces for the last run r in which the sender has copied any, and how many it has. The receiver
 * alone takes the first piece of a run: from that the sender knows that the destination may be written, since the RECV
 * has begun. What was claimed is copied by who has claimed it and by nobody else. The message is complete when the
 * pieces that each end has copied are all; only then is it told to be read, so no end begins a run while the other is
 * still at the one before.
 *
 * Order: claiming acquires and releases, so what the receiver did with the destination before its run comes before
 * what the sender writes there; `packed` is advanced by core_signal, behind what was written. */
#include <string.h>

#include "engine/block.h"

#define LEAST (128 << 10) /* bytes of a message that is worth it */
#define PIECES 8          /* of a message, unless that makes them larger than */
#define PIECE_MOST (128 << 10)
#define ROOM (256 << 10) /* bytes that a receiver copies in one pass */

static int64_t piece_bytes(int64_t bytes)
{
    int64_t piece = (bytes / PIECES + 4095) / 4096 * 4096;
    return piece < PIECE_MOST ? piece : PIECE_MOST;
}

static uint64_t pieces(int64_t bytes)
{
    return (uint64_t)((bytes + piece_bytes(bytes) - 1) / piece_bytes(bytes));
}

uint64_t help_claimed(uint64_t runs, int64_t bytes)
{
    return bytes < LEAST ? 0 : runs * pieces(bytes);
}

bool help_wants(const struct plan_step *send, const struct exec_step *step)
{
    return step->way == WAY_PULL && send->bytes >= LEAST && send->nparts == 1;
}

bool help_fits(const struct program *p, const struct exec_step *step, const struct block_message *send,
               const struct block_message *recv, bool woven)
{
    return !woven && send->helps && send->way == WAY_PULL && recv->open && step->nwork == 1 &&
           !p->moves[step->work].tile;
}

static uint64_t base_of(const weft_exec *x, const struct block_message *send)
{
    return (x->run - 1) * pieces(send->bytes);
}

/* Pieces that the sender has copied in this run. */
static uint64_t sent(const weft_exec *x, const struct block_message *send)
{
    uint64_t packed = atomic_load_explicit(&send->packed, memory_order_seq_cst), base = base_of(x, send);
    return packed > base ? packed - base : 0;
}

/* Takes the next piece of this run; false: there is none. Unless `first`, the first is left to the receiver. */
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
    engine_bytes(m, m->dst + at, m->src + at, (size_t)n);
    return n;
}

/* ---- the sender ---- */

static bool help(weft_exec *x, const struct exec_out *out, uint32_t k)
{
    const struct exec_step *step = &x->program->steps[out->steps[k]];
    struct block_message *send = &out->sends[k];
    uint64_t piece;
    if (!step->helped || !claim(x, send, false, &piece))
        return false;
    copy(x, step, piece);
    core_signal(x->comm->group, out->peer, &send->packed, base_of(x, send) + sent(x, send) + 1);
    return true;
}

bool help_pass(weft_exec *x)
{
    const struct program *p = x->program;
    for (uint32_t i = 0; i < p->nouts; i++)
        for (uint32_t k = p->outs[i].retired; k < p->outs[i].posted; k++)
            if (help(x, &p->outs[i], k))
                return true;
    return false;
}

/* ---- the receiver ---- */

/* in->at is how many pieces this end has copied. */
static bool complete(const weft_exec *x, const struct exec_in *in)
{
    const struct block_message *send = &in->sends[in->taken];
    return sent(x, send) + (uint64_t)in->at == pieces(send->bytes);
}

bool help_arrived(const weft_exec *x, const struct exec_in *in)
{
    return !in->seen || complete(x, in);
}

bool help_take(weft_exec *x, struct exec_in *in, const struct exec_step *step, int64_t *bytes)
{
    struct block_message *send = (struct block_message *)&in->sends[in->taken];
    uint64_t piece;
    *bytes = 0;
    while (!in->seen && *bytes < ROOM) {
        if (!claim(x, send, true, &piece)) {
            in->seen = 1; /* from here on it is the sender's pieces that are waited for */
            break;
        }
        if (!piece)
            core_ring(x->comm->group, in->peer);
        *bytes += copy(x, step, piece);
        in->at++;
    }
    if (!in->seen || !complete(x, in))
        return false;
    in->seen = in->at = 0;
    return true;
}
