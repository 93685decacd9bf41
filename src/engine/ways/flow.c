/* Staged messages that flow: where every rank has a core and this one sends more than it receives, it shows the slot
 * before it packs and then says, piece by piece, how far it is. The receivers unpack behind it, so that two copies
 * take little more than the time of one. Where ranks both send and receive, or share cores, all of them are busy with
 * copies anyway, and larger pieces are better.
 *
 * As long as the receivers keep up, the pieces go round in the front of the slot, a ring that stays in the caches. If
 * they do not, the rest of the message goes straight to where it belongs in the slot: packing never waits for long.
 * Byte b is at b % RING below `straight`, at b from there on. A whole ring has been packed by then, so the two do not
 * meet. Parts that are strided or cast, at either end, are packed and unpacked as a whole: a message with such a part
 * is straight from byte 0 on.
 *
 * `packed` of a message counts bytes over all runs; run r has those from (r - 1) * bytes on, or, with slots of its own
 * (keep.c), from (r - 1) * KEEP_MOST on. Its stores release what was packed, and `straight`, which is stored before the
 * first byte that it speaks of is told: whoever acquires `packed` knows where all bytes below it are. The last store is
 * a signal, which wakes who sleeps; before that one `ready` did. `packed` of the RECV counts what was unpacked: stored
 * when it has been read, acquired before it is written over. The sender looks at it only while it packs, so nobody is
 * woken for it. */
#include <string.h>

#include "engine/block.h"

#define LEAST (64 << 10)  /* bytes of a message that is worth it */
#define PIECE (16 << 10)  /* the receivers' start against what a signal costs */
#define RING (16 * PIECE) /* with the source, in the second cache */
#define TURNS 1000        /* of a spin, until receivers do not keep up */

/* Of so many bytes from one on, those that stand in one piece. */
static int64_t in_piece(int64_t from, int64_t bytes)
{
    int64_t most = PIECE - from % PIECE;
    return bytes < most ? bytes : most;
}

static int64_t place_of(int64_t from, int64_t straight)
{
    return from < straight ? from % RING : from;
}

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
    return x->comm->dedicated_cores && received < sent / 2;
}

bool flow_fits(const struct plan_step *send)
{
    return send->bytes >= LEAST;
}

/* Is each part a piece of memory in the order of the message, of the same dtype? */
static bool in_line(const struct block *b, const struct block_message *m)
{
    for (uint32_t q = 0; q < m->nparts; q++) {
        const struct block_part *part = &block_parts(b)[m->part + q];
        int64_t n[MEMORY_LOOPS], stride[2][MEMORY_LOOPS], size = (int64_t)weft_dtype_size(part->dtype);
        for (int i = 0; i < part->nloops; i++) {
            n[i] = block_loops(b)[part->loop + (uint32_t)i].n;
            stride[0][i] = block_loops(b)[part->loop + (uint32_t)i].stride;
        }
        tile_dense(part->nloops, n, size, stride[1]);
        int loops = tile_merge(part->nloops, n, stride, 2);
        if (part->dtype != part->wire || loops > 1 || (loops && (stride[0][0] != size || stride[1][0] != size)))
            return false;
    }
    return true;
}

void flow_make(const weft_exec *x, struct program *p)
{
    for (uint32_t k = 0; k < p->nshares; k++) {
        struct exec_share *share = &p->shares[k];
        const struct exec_out *out = &p->outs[p->sharers[share->outs]];
        share->ring = p->steps[share->step].flows && in_line(x->block, &out->sends[share->index]);
        for (uint32_t i = 0; i < share->nouts && share->ring; i++) {
            out = &p->outs[p->sharers[share->outs + i]];
            share->ring = in_line(out->block, &out->recvs[share->index]);
        }
    }
}

/* ---- sending ---- */

/* Where the count of a message is when this run begins. */
static uint64_t begin_of(const weft_exec *x, bool kept, int64_t bytes)
{
    return (x->run - 1) * (uint64_t)(kept ? KEEP_MOST : bytes);
}

void flow_tell(weft_exec *x, const struct exec_share *share, int64_t bytes)
{
    const struct program *p = x->program;
    for (uint32_t i = 0; i < share->nouts; i++) {
        const struct exec_out *out = &p->outs[p->sharers[share->outs + i]];
        struct block_message *send = &out->sends[share->index];
        _Atomic uint64_t *count = share->kept ? keep_packed(share->kept_at) : &send->packed;
        uint64_t packed = begin_of(x, share->kept, send->bytes) + (uint64_t)bytes;
        if (bytes < send->bytes)
            atomic_store_explicit(count, packed, memory_order_release);
        else
            core_signal(x->comm->group, out->peer, count, packed);
    }
}

void flow_show(weft_exec *x, const struct exec_share *share)
{
    const struct program *p = x->program;
    for (uint32_t i = 0; i < share->nouts; i++) {
        const struct exec_out *out = &p->outs[p->sharers[share->outs + i]];
        if (!share->kept) {
            out->sends[share->index].slot = (uint64_t)share->slot;
            atomic_store_explicit(&out->sends[share->index].straight, share->ring ? INT64_MAX : 0,
                                  memory_order_relaxed);
        }
        core_signal(x->comm->group, out->peer, out->ready, out->base + share->index + 1);
    }
}

/* Have all receivers unpacked so much, or will they soon? Acquire: what they have read can be written. */
static bool keep_up(const weft_exec *x, const struct exec_share *share, int64_t bytes)
{
    const struct program *p = x->program;
    int turns = 0;
    for (uint32_t i = 0; i < share->nouts;) {
        const struct exec_out *out = &p->outs[p->sharers[share->outs + i]];
        const struct block_message *recv = &out->recvs[share->index];
        uint64_t need = (x->run - 1) * (uint64_t)recv->bytes + (uint64_t)bytes;
        if (atomic_load_explicit(&recv->packed, memory_order_acquire) >= need)
            i++;
        else if (turns++ < TURNS && atomic_load_explicit(&out->block->started, memory_order_relaxed) >= x->run)
            core_relax();
        else
            return false;
    }
    return true;
}

/* Relaxed: what is told next releases it. */
static void go_straight(const weft_exec *x, const struct exec_share *share, int64_t from)
{
    const struct program *p = x->program;
    for (uint32_t i = 0; i < share->nouts; i++) {
        const struct exec_out *out = &p->outs[p->sharers[share->outs + i]];
        atomic_store_explicit(&out->sends[share->index].straight, from, memory_order_relaxed);
    }
}

void flow_pack(weft_exec *x, const struct exec_share *share, const struct exec_step *step, char *message)
{
    const struct program *p = x->program;
    int64_t all = x->plan->steps[share->step].bytes, straight = share->ring ? INT64_MAX : 0;
    flow_show(x, share);
    for (uint32_t k = 0; k < step->nwork; k++) {
        const struct exec_move *m = &p->moves[step->work + k];
        for (int64_t at = 0, n; !m->tile && at < m->bytes; at += n) {
            int64_t from = m->offset + at;
            n = in_piece(from, m->bytes - at);
            if (from < straight && from + n > RING && !keep_up(x, share, from + n - RING)) {
                straight = from;
                go_straight(x, share, straight);
            }
            memcpy(message + place_of(from, straight), m->src + at, (size_t)n);
            if (from + n < all)
                flow_tell(x, share, from + n);
        }
        if (m->tile)
            engine_move(m, message + m->offset, m->src);
    }
    flow_tell(x, share, all);
}

/* ---- receiving ---- */

/* All of it also where the sender is a run ahead, which it is with slots that it keeps. */
int64_t flow_there(const weft_exec *x, const struct exec_in *in)
{
    uint32_t s = in->steps[in->taken];
    int64_t bytes = x->plan->steps[s].bytes;
    const struct exec_step *step = &x->program->steps[s];
    uint64_t packed = atomic_load_explicit(step->packed, memory_order_seq_cst);
    int64_t there = (int64_t)(packed - begin_of(x, step->kept, bytes));
    return there < bytes ? there : bytes;
}

bool flow_arrived(const weft_exec *x, const struct exec_in *in)
{
    return flow_there(x, in) > in->seen;
}

/* A move's bytes up to end. `straight` is read after `packed` was acquired: what it says of those bytes stays so. */
static void unpack(const weft_exec *x, struct exec_in *in, const struct exec_move *m, const char *message, int64_t end)
{
    uint32_t s = in->steps[in->taken];
    bool kept = x->program->steps[s].kept; /* then it has no ring */
    int64_t straight = kept ? 0 : atomic_load_explicit(&in->sends[in->taken].straight, memory_order_relaxed);
    uint64_t before = (x->run - 1) * (uint64_t)x->plan->steps[s].bytes;
    while (in->at < end) {
        int64_t from = m->offset + in->at, n = in_piece(from, end - in->at);
        memcpy(m->dst + in->at, message + place_of(from, straight), (size_t)n);
        in->at += n;
        /* Release: it has been read. */
        atomic_store_explicit(&in->recvs[in->taken].packed, before + (uint64_t)(from + n), memory_order_release);
    }
}

/* Tiles are unpacked when all is there. */
bool flow_take(const weft_exec *x, struct exec_in *in, const struct exec_step *step, int64_t *bytes)
{
    const char *message = engine_staged(x, in);
    const int64_t all = x->plan->steps[in->steps[in->taken]].bytes;
    *bytes = 0;
    for (int64_t there; (there = flow_there(x, in)) > in->seen; in->seen = there)
        for (; in->move < step->nwork; in->move++, in->at = 0) {
            const struct exec_move *m = &x->program->moves[step->work + in->move];
            int64_t n = there - m->offset < m->bytes ? there - m->offset : m->bytes;
            if (m->tile && there < all)
                break;
            if (m->tile) {
                engine_move(m, m->dst, message + m->offset);
                *bytes += m->bytes;
                continue;
            }
            *bytes += n > in->at ? n - in->at : 0;
            unpack(x, in, m, message, n);
            if (in->at < m->bytes)
                break;
        }
    if (in->seen < all)
        return false;
    in->seen = in->at = 0;
    in->move = 0;
    return true;
}
