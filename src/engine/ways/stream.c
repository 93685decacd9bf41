/* Staged messages that stream: where every rank has a core and this one sends more than it receives, it shows the slot
 * before it packs and then says, piece by piece, how far it is. The receivers unpack behind it, so that two copies take
 * little more than the time of one. Where ranks both send and receive, or share cores, all of them are busy with copies
 * anyway, and larger pieces are better.
 *
 * As long as the receivers keep up, the pieces go round in the front of the slot, a ring that stays in the caches.
 * Otherwise the rest of the message goes straight to where it belongs in the slot: packing never waits for long. Byte b
 * is at b % RING below `straight`, at b from there on. A whole ring has been packed by then, so the two do not meet.
 * Parts that are strided or cast, at either end, are packed and unpacked as a whole: a message with such a part is
 * straight from byte 0 on.
 *
 * `packed` of a message counts bytes over all runs; run r has those from (r - 1) * bytes on, or, with slots of its own
 * (eager_large.c), from (r - 1) * EAGER_LARGE_MOST on. Its stores release what was packed, and `straight`, which is
 * stored before the first byte that it speaks of is told: whoever acquires `packed` knows where all bytes below it are.
 * The last store is a signal, which wakes a receiver that sleeps; before that one `ready` did. `unpacked` of the RECV
 * is stored when bytes have been read, and acquired before they are written over. The sender looks at it only while it
 * packs, so nobody is woken for it. */
#include "engine/ways/stream.h"

#include <string.h>

#include "engine/channel.h"
#include "engine/shape.h"
#include "engine/ways/eager.h"
#include "engine/ways/staged.h"
#include "engine/work.h"

#define LEAST (64 << 10)  /* bytes of a message that is worth it */
#define PIECE (16 << 10)  /* the receivers' start against what a signal costs */
#define RING (16 * PIECE) /* with the source, in the second cache */
#define TURNS 1000        /* of a spin, until receivers do not keep up */
#define STRIPPED 8192     /* spans of a scattered message: their lines are half of a cache of the second level */

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

/* Is each part a piece of memory in the order of the message, of the same dtype? */
static bool in_line(const struct block *b, const struct block_message *m)
{
    for (uint32_t q = 0; q < m->nparts; q++) {
        const struct block_part *part = &block_parts(b)[m->part + q];
        int64_t size = (int64_t)weft_dtype_size(part->dtype);
        struct shape s = {.loops = part->nloops};
        for (int i = 0; i < part->nloops; i++) {
            s.n[i] = block_loops(b)[part->loop + (uint32_t)i].n;
            s.stride[0][i] = block_loops(b)[part->loop + (uint32_t)i].stride;
        }
        shape_dense(s.loops, s.n, size, s.stride[1]);
        shape_settle(&s, 2, (int64_t[]){size, size});
        if (part->dtype != part->wire || !shape_is_dense(&s))
            return false;
    }
    return true;
}

/* With the peers' blocks: which messages can go through a ring. */
static void complete(weft_exec *x, struct program *p)
{
    for (uint32_t k = 0; k < p->nmulticasts; k++) {
        struct exec_multicast *m = &p->multicasts[k];
        const struct exec_out *out = &p->outs[p->multicast_outs[m->outs]];
        m->ring = p->steps[m->step].way == &way_stream && in_line(x->block, &out->sends[m->index]);
        for (uint32_t i = 0; i < m->nouts && m->ring; i++) {
            out = &p->outs[p->multicast_outs[m->outs + i]];
            m->ring = in_line(out->block, &out->recvs[m->index]);
        }
    }
}

bool stream_in_strips(const weft_exec *x, const struct program *p, uint32_t send)
{
    return x->comm->dedicated_cores && !(x->off & toggle_extra(TOGGLE_COMB)) && shape_scattered(x, p, &send, 1) &&
           shape_spans(x, p, send) >= STRIPPED;
}

/* ---- sending ---- */

/* Where the count of a message is when this run begins. */
static uint64_t begin_of(const weft_exec *x, bool own_slots, int64_t bytes)
{
    return (x->run - 1) * (uint64_t)(own_slots ? EAGER_LARGE_MOST : bytes);
}

void stream_tell(weft_exec *x, const struct exec_multicast *m, int64_t bytes)
{
    const struct program *p = x->program;
    for (uint32_t i = 0; i < m->nouts; i++) {
        const struct exec_out *out = &p->outs[p->multicast_outs[m->outs + i]];
        struct block_message *send = &out->sends[m->index];
        _Atomic uint64_t *count = m->own_slots ? eager_large_packed(m->own) : &send->packed;
        uint64_t packed = begin_of(x, m->own_slots, send->bytes) + (uint64_t)bytes;
        if (bytes < send->bytes)
            atomic_store_explicit(count, packed, memory_order_release);
        else
            core_signal(x->comm->group, out->peer, count, packed);
    }
}

void stream_show(weft_exec *x, const struct exec_multicast *m)
{
    const struct program *p = x->program;
    for (uint32_t i = 0; i < m->nouts; i++) {
        const struct exec_out *out = &p->outs[p->multicast_outs[m->outs + i]];
        if (!m->own_slots) {
            out->sends[m->index].slot = (uint64_t)m->slot;
            atomic_store_explicit(&out->sends[m->index].straight, m->ring ? INT64_MAX : 0, memory_order_relaxed);
        }
        core_signal(x->comm->group, out->peer, out->ready, out->base + m->index + 1);
    }
}

/* Have all receivers unpacked so much, or will they soon? Acquire: what they have read can be written. */
static bool keep_up(const weft_exec *x, const struct exec_multicast *m, int64_t bytes)
{
    const struct program *p = x->program;
    int turns = 0;
    for (uint32_t i = 0; i < m->nouts;) {
        const struct exec_out *out = &p->outs[p->multicast_outs[m->outs + i]];
        const struct block_message *recv = &out->recvs[m->index];
        uint64_t need = (x->run - 1) * (uint64_t)recv->bytes + (uint64_t)bytes;
        if (atomic_load_explicit(&recv->unpacked, memory_order_acquire) >= need)
            i++;
        else if (turns++ < TURNS && atomic_load_explicit(&out->block->started, memory_order_relaxed) >= x->run)
            core_relax();
        else
            return false;
    }
    return true;
}

/* Relaxed: what is told next releases it. */
static void go_straight(const weft_exec *x, const struct exec_multicast *m, int64_t from)
{
    const struct program *p = x->program;
    for (uint32_t i = 0; i < m->nouts; i++) {
        const struct exec_out *out = &p->outs[p->multicast_outs[m->outs + i]];
        atomic_store_explicit(&out->sends[m->index].straight, from, memory_order_relaxed);
    }
}

static void pack(weft_exec *x, const struct exec_multicast *mc, const struct exec_step *step)
{
    const struct program *p = x->program;
    char *message = mc->message;
    int64_t all = x->plan->steps[mc->step].bytes, straight = mc->ring ? INT64_MAX : 0;
    stream_show(x, mc);
    for (uint32_t k = 0; k < step->nwork; k++) {
        const struct exec_move *m = &p->moves[step->work + k];
        for (int64_t at = 0, n; !m->tile && at < m->bytes; at += n) {
            int64_t from = m->offset + at;
            n = in_piece(from, m->bytes - at);
            if (from < straight && from + n > RING && !keep_up(x, mc, from + n - RING)) {
                straight = from;
                go_straight(x, mc, straight);
            }
            memcpy(message + place_of(from, straight), m->src + at, (size_t)n);
            if (from + n < all)
                stream_tell(x, mc, from + n);
        }
        if (m->tile)
            work_move(m, message + m->offset, m->src);
    }
    stream_tell(x, mc, all);
}

static bool launch(weft_exec *x, struct exec_out *out, const struct exec_step *step)
{
    struct exec_multicast *m = &x->program->multicasts[step->multicast];
    (void)out;
    if (m->run != x->run) {
        if (!staged_slot(x, m))
            return false;
        pack(x, m, step);
    }
    channel_release(x->program, step); /* it has been shown already */
    return true;
}

/* ---- receiving ---- */

/* All of it also where the sender is a run ahead, which it is with slots of its own. */
int64_t stream_there(const weft_exec *x, const struct exec_in *in)
{
    uint32_t s = in->steps[in->taken];
    int64_t bytes = x->plan->steps[s].bytes;
    const struct exec_step *step = &x->program->steps[s];
    uint64_t packed = atomic_load_explicit(step->packed, memory_order_seq_cst);
    int64_t there = (int64_t)(packed - begin_of(x, step->own_slots, bytes));
    return there < bytes ? there : bytes;
}

static bool arrived(const weft_exec *x, const struct exec_in *in, const struct exec_step *step)
{
    (void)step;
    return channel_ready(in) && stream_there(x, in) > in->stream.seen;
}

/* A move's bytes up to end. `straight` is read after `packed` was acquired: what it says of those bytes stays so. */
static void unpack(const weft_exec *x, struct exec_in *in, const struct exec_move *m, const char *message, int64_t end)
{
    uint32_t s = in->steps[in->taken];
    bool own_slots = x->program->steps[s].own_slots; /* then it has no ring */
    int64_t straight = own_slots ? 0 : atomic_load_explicit(&in->sends[in->taken].straight, memory_order_relaxed);
    uint64_t before = (x->run - 1) * (uint64_t)x->plan->steps[s].bytes;
    while (in->stream.at < end) {
        int64_t from = m->offset + in->stream.at, n = in_piece(from, end - in->stream.at);
        memcpy(m->dst + in->stream.at, message + place_of(from, straight), (size_t)n);
        in->stream.at += n;
        /* Release: it has been read. */
        atomic_store_explicit(&in->recvs[in->taken].unpacked, before + (uint64_t)(from + n), memory_order_release);
    }
}

/* Tiles are unpacked when all is there. */
static enum way_state take(weft_exec *x, struct exec_in *in, const struct exec_step *step, int64_t *bytes)
{
    const char *message = staged_message(x, in);
    const int64_t all = x->plan->steps[in->steps[in->taken]].bytes;
    *bytes = 0;
    for (int64_t there; (there = stream_there(x, in)) > in->stream.seen; in->stream.seen = there)
        for (; in->stream.move < step->nwork; in->stream.move++, in->stream.at = 0) {
            const struct exec_move *m = &x->program->moves[step->work + in->stream.move];
            int64_t n = there - m->offset < m->bytes ? there - m->offset : m->bytes;
            if (m->tile && there < all)
                break;
            if (m->tile) {
                work_move(m, m->dst, message + m->offset);
                *bytes += m->bytes;
                continue;
            }
            *bytes += n > in->stream.at ? n - in->stream.at : 0;
            unpack(x, in, m, message, n);
            if (in->stream.at < m->bytes)
                break;
        }
    if (in->stream.seen < all)
        return WAY_BEGUN;
    memset(&in->stream, 0, sizeof in->stream);
    return WAY_OVER;
}

/* ---- bind ---- */

static bool fits(const struct way_ends *e)
{
    return e->send->offer == OFFER_STAGED && e->send->streams;
}

static void describe(weft_exec *x, struct program *p, uint32_t s, struct block_message *m)
{
    if (m->offer == OFFER_STAGED)
        m->streams = (p->one_way && m->bytes >= LEAST) || stream_in_strips(x, p, s);
}

const struct way way_stream = {
    .name = "stream",
    .what = "packed into staging memory, and unpacked while it is packed",
    .told = true,
    .in_turn = true,
    .send_moves = WAY_MOVES_MESSAGE,
    .recv_moves = WAY_MOVES_MESSAGE,
    .fits = fits,
    .describe = describe,
    .accept = staged_accept,
    .complete = complete,
    .launch = launch,
    .retire = staged_retire,
    .arrived = arrived,
    .take = take,
};
