/* Assisted pulls: large messages that both ends copy, from place to place. If every rank has a core, a rank that sends
 * much more than it receives would wait while its receivers copy. Instead both ends claim pieces of the message, by one
 * count, until none is left. A large broadcast then takes about half the time: 0.39 to 0.73 of it on 2 ranks of two
 * AArch64 cores and on 2 and 8 ranks of 16 x86-64 cores, for 1 and 16 MiB. It is chosen for messages of 128 KiB or more
 * if the sender receives less than half of what it sends. Strided ones with runs shorter than a cache line are left to
 * order/weave.c (way.c).
 *
 * Both ends make the same moves of a message, so they cut them into the same pieces. `claimed` has the run and how many
 * of its pieces have been claimed, `copied` the last run in which the sender has copied any, and how many. A count of
 * an earlier run counts as none. Only the receiver claims the first piece of a run. That tells the sender that the RECV
 * has begun, so that it may write the destination. The end that has claimed a piece copies it, and no other rank does.
 * The message is complete when the pieces that the two ends have copied are all pieces. Only then does the receiver say
 * that it was read, so no end begins a run while the other is still in the one before.
 *
 * Memory order: a claim acquires and releases. So what the receiver did with the destination before its run comes
 * before what the sender writes there. The sender advances `copied` by core_signal, behind what it has written. */
#include "engine/ways/assist.h"

#include "base/defaults.h"
#include "base/error.h"
#include "base/math.h"
#include "engine/channel.h"
#include "engine/shape.h"
#include "engine/work.h"

#define PIECES 8               /* pieces of a message; more if these would be larger than PIECE_MOST */
#define PIECE_MOST (128 << 10) /* bytes */
#define ROOM (256 << 10)       /* bytes that a receiver copies in one pass */
#define GRAIN 4096             /* bytes, or elements of a cast: a piece of a dense move has a multiple of these */
#define TURNS 64               /* a piece of a transpose has a multiple of these, so that few cache lines are cut */
#define COUNT_BITS 20          /* of `claimed` and `copied`: pieces; the other bits have the run */
#define COUNT_MOST ((1 << COUNT_BITS) - 1)
#define PARTS_MOST (COUNT_MOST / 4)   /* of a message: each is a piece at least, and all pieces must be counted */
#define NONE_LEFT (UINT64_C(1) << 63) /* in exec_in.begun, beside the pieces that the receiver has copied */

/* ---- pieces ---- */

struct assist_cut assist_cut(const struct exec_move *m, int64_t bytes)
{
    const struct memory_tile *t = m->tile;
    if (!t) {
        int64_t length = (bytes + GRAIN - 1) / GRAIN * GRAIN;
        return (struct assist_cut){0, length, (m->bytes + length - 1) / length};
    }
    int64_t wanted = (m->bytes + bytes - 1) / bytes;
    int loop = 0;
    for (int i = 1; i < t->loops && t->n[loop] < wanted; i++)
        if (t->n[i] > t->n[loop])
            loop = i;
    if (!t->loops || t->n[loop] < 2)
        return (struct assist_cut){0, t->loops ? t->n[0] : 1, 1};
    bool span = shape_tile_span(t, m->to, m->from);
    int64_t length = (t->n[loop] + wanted - 1) / wanted, grain = !span ? TURNS : loop == t->loops - 1 ? GRAIN : 1;
    length = (length + grain - 1) / grain * grain;
    return (struct assist_cut){loop, length, (t->n[loop] + length - 1) / length};
}

int64_t assist_copy(const struct exec_move *m, const struct assist_cut *c, int64_t i)
{
    if (c->n == 1) {
        work_move(m, m->dst, m->src);
        return m->bytes;
    }
    int64_t at = i * c->length, all = m->tile ? m->tile->n[c->loop] : m->bytes, n = min64(c->length, all - at);
    if (!m->tile) {
        work_bytes(m, m->dst + at, m->src + at, (size_t)n);
    } else {
        struct memory_tile t = *m->tile;
        t.n[c->loop] = n;
        work_tile(m, &t, m->dst + at * t.stride[0][c->loop], m->src + at * t.stride[1][c->loop]);
    }
    return m->bytes / all * n;
}

static int64_t piece_bytes(int64_t message)
{
    int64_t piece = min64((message + PIECES - 1) / PIECES, PIECE_MOST);
    return max64(piece, message / (COUNT_MOST / 2));
}

static uint32_t pieces(const struct exec_step *step)
{
    return step->pieces[step->nwork];
}

/* Copies a piece of the message: of the last move whose first piece is not behind it. */
static int64_t copy(const weft_exec *x, const struct exec_step *step, int64_t message, uint32_t piece)
{
    uint32_t low = 0, high = step->nwork;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        *(step->pieces[middle] <= piece ? &low : &high) = middle;
    }
    const struct exec_move *m = &x->program->moves[step->work + low];
    struct assist_cut c = assist_cut(m, piece_bytes(message));
    return assist_copy(m, &c, piece - step->pieces[low]);
}

/* ---- claims ---- */

static uint32_t of_run(const weft_exec *x, uint64_t word)
{
    return word >> COUNT_BITS == x->run ? (uint32_t)(word & COUNT_MOST) : 0;
}

static uint64_t word_of(const weft_exec *x, uint32_t count)
{
    return x->run << COUNT_BITS | count;
}

/* Pieces that the sender has copied in this run. */
static uint32_t sent(const weft_exec *x, const struct block_message *send)
{
    return of_run(x, atomic_load_explicit(&send->copied, memory_order_seq_cst));
}

/* Claims the next piece of this run; false: there is none. Only with `first` may it be the first piece. */
static bool claim(const weft_exec *x, struct block_message *send, uint32_t n, bool first, uint32_t *piece)
{
    uint64_t was = atomic_load_explicit(&send->claimed, memory_order_relaxed);
    do {
        *piece = of_run(x, was);
        if (*piece == n || (!*piece && !first) || core_failed(x->comm->group))
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&send->claimed, &was, word_of(x, *piece + 1), memory_order_acq_rel,
                                                    memory_order_relaxed));
    return true;
}

/* ---- the sender ---- */

bool assist_one(weft_exec *x, const struct exec_out *out, uint32_t k)
{
    const struct exec_step *step = &x->program->steps[out->steps[k]];
    struct block_message *send = &out->sends[k];
    uint32_t piece;
    if (!step->pieces || !claim(x, send, pieces(step), false, &piece)) /* step->way may be a copy: proof.h */
        return false;
    copy(x, step, send->bytes, piece);
    core_signal(x->comm->group, out->peer, &send->copied, word_of(x, sent(x, send) + 1));
    return true;
}

static bool assist(weft_exec *x)
{
    const struct program *p = x->program;
    for (uint32_t i = 0; i < p->nouts; i++)
        for (uint32_t k = p->outs[i].retired; k < p->outs[i].posted; k++)
            if (assist_one(x, &p->outs[i], k))
                return true;
    return false;
}

/* ---- the receiver ---- */

static bool complete(const weft_exec *x, const struct exec_in *in, const struct exec_step *step)
{
    return sent(x, &in->sends[in->taken]) + (in->begun & ~NONE_LEFT) == pieces(step);
}

static bool arrived(const weft_exec *x, const struct exec_in *in, const struct exec_step *step)
{
    return channel_ready(in) && (!(in->begun & NONE_LEFT) || complete(x, in, step));
}

static enum way_state take(weft_exec *x, struct exec_in *in, const struct exec_step *step, int64_t *bytes)
{
    struct block_message *send = (struct block_message *)&in->sends[in->taken];
    uint32_t piece;
    *bytes = 0;
    while (!(in->begun & NONE_LEFT) && *bytes < ROOM) {
        if (!claim(x, send, pieces(step), true, &piece)) {
            in->begun |= NONE_LEFT; /* from here on the receiver waits for the sender's pieces */
            break;
        }
        if (!piece)
            core_ring(x->comm->group, in->peer);
        *bytes += copy(x, step, send->bytes, piece);
        in->begun++;
    }
    if (!(in->begun & NONE_LEFT) || !complete(x, in, step))
        return WAY_BEGUN;
    in->begun = 0;
    return WAY_OVER;
}

/* ---- bind ---- */

/* Each part must be one move: it is not cast twice. Parts are not small on average: a claim costs more than a copy of
 * some hundred bytes. */
static bool fits(const struct way_ends *e)
{
    if (e->woven || !e->send->assists || !e->recv->open || e->recv->nparts != e->send->nparts ||
        e->send->nparts > PARTS_MOST || e->send->bytes / e->send->nparts < GRAIN)
        return false;
    for (uint32_t q = 0; q < e->send->nparts; q++) {
        const struct block_part *src = &block_parts(e->from)[e->send->part + q],
                                *dst = &block_parts(e->to)[e->recv->part + q];
        if (src->wire != src->dtype && src->wire != dst->dtype)
            return false;
    }
    return true;
}

static void describe(weft_exec *x, struct program *p, uint32_t s, struct block_message *m)
{
    (void)x, (void)s;
    m->assists = m->offer == OFFER_PLACE && m->bytes >= DEFAULTS_ASSIST && p->one_way;
}

static int prepare(struct program *p, struct exec_step *step, int64_t message)
{
    uint32_t *first = program_take(p, step->nwork + 1, sizeof *first);
    if (!first)
        return error_nomem();
    for (uint32_t k = 0; k < step->nwork; k++)
        first[k + 1] = first[k] + (uint32_t)assist_cut(&p->moves[step->work + k], piece_bytes(message)).n;
    step->pieces = first;
    p->assists = &way_assist;
    return 0;
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
    .prepare = prepare,
    .assist = assist,
    .arrived = arrived,
    .take = take,
};
