/* Staged messages that flow: where every rank has a core and this one sends more than it receives, it
 * shows the slot before it packs and then says, piece by piece, how far it is. The receivers unpack
 * behind it, so that two copies take little more than the time of one. Where ranks both send and
 * receive, or share cores, all of them are busy with copies anyway, and larger pieces are better.
 *
 * `packed` of a message counts bytes over all runs; run r has those from (r - 1) * bytes on. It is
 * advanced by core_signal, which releases what was packed and wakes those who sleep. */
#include <string.h>

#include "exec/block.h"

#define LEAST (64 << 10)       /* bytes of a message that is worth it */
#define PIECES 16              /* of a message, unless that makes them smaller or larger than */
#define PIECE_LEAST (16 << 10) /* what a signal costs, and */
#define PIECE_MOST (256 << 10) /* what stays in cache */

bool flow_one_way(const weft_exec *x, const struct program *p)
{
    int64_t sent = 0, received = 0;
    for (uint32_t s = 0; s < p->nsteps; s++) {
        const struct plan_step *st = &x->plan->steps[s];
        if (st->kind == PLAN_RECV)
            received += st->bytes;
        else if (st->kind == PLAN_SEND)
            sent += st->bytes;
    }
    return x->comm->spins && received < sent / 2;
}

bool flow_fits(const struct plan_step *send)
{
    return send->bytes >= LEAST;
}

/* ---- sending ---- */

void flow_tell(weft_exec *x, const struct exec_share *share, int64_t bytes)
{
    const struct program *p = x->program;
    for (uint32_t i = 0; i < share->nouts; i++) {
        const struct exec_out *out = &p->outs[p->sharers[share->outs + i]];
        struct block_message *send = &out->sends[share->index];
        core_signal(x->comm->group, out->peer, &send->packed, (x->run - 1) * (uint64_t)send->bytes + (uint64_t)bytes);
    }
}

void flow_show(weft_exec *x, const struct exec_share *share)
{
    const struct program *p = x->program;
    for (uint32_t i = 0; i < share->nouts; i++) {
        const struct exec_out *out = &p->outs[p->sharers[share->outs + i]];
        out->sends[share->index].slot = (uint64_t)share->slot;
        core_signal(x->comm->group, out->peer, out->ready, out->base + share->index + 1);
    }
}

void flow_pack(weft_exec *x, const struct exec_share *share, const struct exec_step *step, char *message)
{
    const struct program *p = x->program;
    int64_t all = x->plan->steps[share->step].bytes;
    int64_t piece = all / PIECES < PIECE_LEAST ? PIECE_LEAST : all / PIECES < PIECE_MOST ? all / PIECES : PIECE_MOST;
    flow_show(x, share);
    for (uint32_t k = 0; k < step->nwork; k++) {
        const struct exec_move *m = &p->moves[step->work + k];
        for (int64_t at = 0; !m->tile && at < m->bytes; at += piece) {
            int64_t n = m->bytes - at < piece ? m->bytes - at : piece;
            memcpy(message + m->offset + at, m->src + at, (size_t)n);
            if (m->offset + at + n < all)
                flow_tell(x, share, m->offset + at + n);
        }
        if (m->tile)
            engine_move(m, message + m->offset, m->src);
    }
    flow_tell(x, share, all);
}

/* ---- receiving ---- */

static int64_t packed(const weft_exec *x, const struct block_message *send)
{
    return (int64_t)(atomic_load_explicit(&send->packed, memory_order_seq_cst) - (x->run - 1) * (uint64_t)send->bytes);
}

int64_t flow_there(const weft_exec *x, const struct exec_in *in)
{
    return packed(x, &in->sends[in->taken]);
}

bool flow_arrived(const weft_exec *x, const struct exec_in *in)
{
    return flow_there(x, in) > in->seen;
}

/* Tiles are unpacked when all is there. */
bool flow_take(const weft_exec *x, struct exec_in *in, const struct exec_step *step, int64_t *bytes)
{
    const struct block_message *send = &in->sends[in->taken];
    const char *message = in->staging + send->slot;
    *bytes = 0;
    for (int64_t there; (there = packed(x, send)) > in->seen; in->seen = there)
        for (; in->move < step->nwork; in->move++, in->at = 0) {
            const struct exec_move *m = &x->program->moves[step->work + in->move];
            int64_t n = there - m->offset < m->bytes ? there - m->offset : m->bytes;
            if (m->tile && there < send->bytes)
                break;
            if (m->tile) {
                engine_move(m, m->dst, message + m->offset);
                *bytes += m->bytes;
                continue;
            }
            if (n > in->at) {
                memcpy(m->dst + in->at, message + m->offset + in->at, (size_t)(n - in->at));
                *bytes += n - in->at;
                in->at = n;
            }
            if (in->at < m->bytes)
                break;
        }
    if (in->seen < send->bytes)
        return false;
    in->seen = in->at = 0;
    in->move = 0;
    return true;
}
