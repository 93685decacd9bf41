/* Staged messages whose elements lie far apart: each has a line of cache fetched for it alone, and what can be done is
 * to fetch that once for all that is beside it.
 *
 * - The cells that go to one neighbour and to another often share lines (the end of a row, the begin of the next), and
 *   so do those that come. So the messages of all channels that can go are packed side by side, piece by piece, and
 *   those that have come are unpacked so. Where ranks share cores, what has come waits for the rest until the rank
 *   has nothing better to do, as in weave.c; else it would wait with an idle core.
 *   Two lanes that are alike are unpacked run by run: what goes into one line is then one write.
 * - A ghost often shares a line with a cell that is sent. So messages are unpacked from the end: what was packed last
 *   is the nearest in cache.
 * - Where every rank has a core, large ones flow in strips: shown before they are packed (flow.c), and a strip of what
 *   comes is unpacked as soon as one of what goes is packed. A peer that is not there yet is not waited for.
 *
 * Lengths are counted in runs: elements that follow each other in memory. */
#include "engine/order/comb.h"

#include "base/error.h"
#include "engine/channel.h"
#include "engine/shape.h"
#include "engine/ways/staged.h"
#include "engine/ways/stream.h"
#include "engine/work.h"

#define PIECE 128    /* runs of a channel in a turn: their lines stay in a small cache until all channels are through */
#define STRIP 1536   /* runs: larger ones have left the cache when as much has come, and each costs signals */
#define AHEAD 16     /* runs: what comes from the last cache is there in time */
#define PATIENCE 400 /* turns that a peer which has begun is waited for, until it was too late once */

/* A message, and where it is: before turn `at` of the outermost loop of a move. Packing goes up, unpacking down. */
struct comb_lane {
    const struct exec_step *step;
    const struct exec_move *moves;
    char *message; /* in the pool of its sender */
    uint32_t channel, move;
    int64_t at;
    char *dst; /* of turn 0 of the move */
    const char *src;
    int64_t unit;               /* bytes of a turn that is one run, without a cast; else 0 */
    int64_t down_to, down_from; /* turns of a message that flows, which is one move here */
};

/* ---- making ---- */

static bool streams(const struct exec_step *step)
{
    return step->way == &way_stream;
}

/* Is loop i the last of the move's tile, and walks elements that follow each other on both sides? */
static bool is_span(const struct exec_move *m, int i)
{
    return i == m->tile->loops - 1 && shape_tile_span(m->tile, m->to, m->from);
}

static int64_t turns_of(const struct exec_move *m)
{
    return m->tile && m->tile->loops ? m->tile->n[0] : 1;
}

/* Bytes of the message in a turn of an unpacking move, if its turns follow each other in the message; else 0. */
static int64_t turn_bytes(const struct exec_move *m)
{
    const struct memory_tile *t = m->tile;
    if (!t || !t->loops)
        return 0;
    int64_t bytes = memory_tile_count(t) * (int64_t)weft_dtype_size(m->from);
    return t->stride[1][0] * t->n[0] == bytes ? t->stride[1][0] : 0;
}

static bool fits(const weft_exec *x, const struct program *p, uint32_t s)
{
    const struct exec_step *step = &p->steps[s];
    if ((step->way != &way_staged && !streams(step)) || !shape_scattered(x, p, &s, 1))
        return false;
    if (step->kind == PLAN_SEND)
        return !streams(step) || stream_in_strips(x, p, s);
    return !streams(step) || (step->nwork == 1 && turn_bytes(&p->moves[step->work]));
}

/* Marks the messages of a channel; true: there are some. */
static bool mark(const weft_exec *x, struct program *p, const uint32_t *steps, uint32_t n)
{
    bool any = false;
    for (uint32_t k = 0; k < n; k++) {
        bool fit = !(x->off & toggle_extra(TOGGLE_COMB)) && fits(x, p, steps[k]);
        p->steps[steps[k]].order = fit ? ORDER_COMB : ORDER_NONE;
        any |= fit;
    }
    return any;
}

int comb_make(const weft_exec *x, struct program *p)
{
    bool any = false;
    for (uint32_t i = 0; i < p->nins; i++)
        any |= mark(x, p, p->ins[i].steps, p->ins[i].n);
    for (uint32_t i = 0; i < p->nouts; i++)
        any |= mark(x, p, p->outs[i].steps, p->outs[i].n);
    p->lanes = program_take(p, any ? p->nouts + p->nins : 0, sizeof *p->lanes);
    return p->lanes ? 0 : error_nomem();
}

/* ---- copying ---- */

/* Begins with the lane's move. */
static void open_move(struct comb_lane *l)
{
    const struct exec_move *m = &l->moves[l->move];
    bool packs = l->step->kind == PLAN_SEND;
    l->dst = packs ? l->message + m->offset : m->dst;
    l->src = packs ? m->src : l->message + m->offset;
    bool runs = m->to == m->from && m->tile && (m->tile->loops == 1 || (m->tile->loops == 2 && is_span(m, 1)));
    l->unit = runs ? (int64_t)weft_dtype_size(m->to) * (m->tile->loops == 2 ? m->tile->n[1] : 1) : 0;
}

/* Turns of a move that have about so many runs. */
static int64_t turns_for(const struct exec_move *m, int64_t runs)
{
    for (int i = 1; m->tile && i < m->tile->loops; i++)
        runs /= is_span(m, i) ? 1 : m->tile->n[i];
    return runs > 0 ? runs : 1;
}

/* The turns from first to end - 1; back: from the last run to the first. */
static void copy_turns(const struct comb_lane *l, int64_t first, int64_t end, bool back)
{
    const struct exec_move *m = &l->moves[l->move];
    if (!m->tile || !m->tile->loops) {
        work_move(m, l->dst, l->src);
        return;
    }
    if (l->unit) {
        int64_t to = m->tile->stride[0][0], from = m->tile->stride[1][0], begin = back ? end - 1 : first;
        memory_copy_units(l->dst + begin * to, back ? -to : to, l->src + begin * from, back ? -from : from, end - first,
                          (size_t)l->unit);
        return;
    }
    char *dst = l->dst;
    const char *src = l->src;
    struct memory_tile t;
    t.loops = m->tile->loops;
    int turned = back ? t.loops - is_span(m, t.loops - 1) : 0;
    for (int i = 0; i < t.loops; i++) {
        int64_t to = m->tile->stride[0][i], from = m->tile->stride[1][i], begin = i ? 0 : first;
        t.n[i] = i ? m->tile->n[i] : end - first;
        begin += i < turned ? t.n[i] - 1 : 0;
        dst += begin * to;
        src += begin * from;
        t.stride[0][i] = i < turned ? -to : to;
        t.stride[1][i] = i < turned ? -from : from;
    }
    memory_copy(&t, dst, m->to, src, m->from);
}

/* Packs the next piece; false: there is none. */
static bool go_up(struct comb_lane *l, int64_t runs)
{
    if (l->move == l->step->nwork)
        return false;
    if (!l->at)
        open_move(l);
    const struct exec_move *m = &l->moves[l->move];
    int64_t left = turns_of(m) - l->at, n = turns_for(m, runs);
    n = n < left ? n : left;
    copy_turns(l, l->at, l->at + n, false);
    l->at += n;
    if (n == left) {
        l->move++;
        l->at = 0;
    }
    return true;
}

static int64_t step_of(const struct comb_lane *l, int side)
{
    return l->moves[l->move].tile->stride[side][0];
}

/* Are the moves of both runs of one size at the same distances? */
static bool alike(const struct comb_lane *a, const struct comb_lane *b)
{
    return a->unit && a->unit == b->unit && step_of(a, 0) == step_of(b, 0) && step_of(a, 1) == step_of(b, 1);
}

/* The turns of the piece before, to unpack; 0: there is none. */
static int64_t turns_down(struct comb_lane *l, int64_t runs)
{
    if (l->at == l->down_to && !l->move)
        return 0;
    if (l->at == l->down_to) {
        l->at = turns_of(&l->moves[--l->move]);
        open_move(l);
    }
    int64_t left = l->at - l->down_to, n = turns_for(&l->moves[l->move], runs);
    return n < left ? n : left;
}

/* Unpacks the pieces before of a lane and, where it is alike, of the one behind it; returns how many lanes it was.
 * *more is set if there was something. far: their lines have left the cache. */
static uint32_t go_down(struct comb_lane *l, uint32_t n, int64_t runs, bool far, bool *more)
{
    int64_t turns = turns_down(l, runs), other = turns && n > 1 ? turns_down(l + 1, runs) : 0;
    *more |= turns > 0;
    if (!other || !alike(l, l + 1)) {
        if (turns)
            copy_turns(l, l->at - turns, l->at, true);
        l->at -= turns;
        return 1;
    }
    turns = turns < other ? turns : other;
    const int64_t to = step_of(l, 0), from = step_of(l, 1);
    void *const dst[] = {l[0].dst + (l[0].at - 1) * to, l[1].dst + (l[1].at - 1) * to};
    const void *const src[] = {l[0].src + (l[0].at - 1) * from, l[1].src + (l[1].at - 1) * from};
    memory_copy_pairs(dst, -to, src, -from, turns, (size_t)l->unit, far ? AHEAD : 0);
    l[0].at -= turns;
    l[1].at -= turns;
    return 2;
}

static struct comb_lane lane_of(const struct program *p, uint32_t channel, const struct exec_step *step, char *message)
{
    return (struct comb_lane){.step = step, .moves = p->moves + step->work, .message = message, .channel = channel};
}

/* ---- unpacking ---- */

/* The channel's next message, if it is of these; else NULL. */
static const struct exec_step *next_in(const struct program *p, const struct exec_in *in)
{
    const struct exec_step *step = in->taken < in->n ? &p->steps[in->steps[in->taken]] : NULL;
    return step && step->order == ORDER_COMB && !p->open[in->steps[in->taken]] ? step : NULL;
}

bool comb_waits(const weft_exec *x, const struct exec_in *in)
{
    const struct program *p = x->program;
    if (x->comm->dedicated_cores || !next_in(p, in))
        return false;
    int32_t stage = x->plan->steps[in->steps[in->taken]].stage;
    for (uint32_t i = 0; i < p->nins; i++) {
        const struct exec_step *step = next_in(p, &p->ins[i]);
        if (step && x->plan->steps[step - p->steps].stage == stage && !channel_can_take(x, &p->ins[i]))
            return true;
    }
    return false;
}

/* From the end of what is there down to what was there before. */
static void open_in(const weft_exec *x, struct exec_in *in, struct comb_lane *l)
{
    const struct exec_move *m = l->moves;
    l->message = (char *)(uintptr_t)staged_message(x, in); /* it is only read */
    l->move = l->step->nwork ? l->step->nwork - 1 : 0;
    l->at = l->step->nwork ? turns_of(&m[l->move]) : 0;
    if (l->step->nwork)
        open_move(l);
    if (!streams(l->step))
        return;
    in->stream.seen = stream_there(x, in);
    int64_t turns = (in->stream.seen - m->offset) / turn_bytes(m);
    l->down_to = in->stream.turns;
    l->at = l->down_from = turns < l->at ? turns : l->at;
}

/* Notes what was unpacked; returns its bytes. */
static int64_t close_in(weft_exec *x, struct exec_in *in, const struct comb_lane *l)
{
    int64_t bytes = l->step->bytes;
    if (streams(l->step)) {
        bytes = (l->down_from - l->down_to) * turn_bytes(l->moves);
        in->stream.turns = l->down_from;
        if (in->stream.turns < turns_of(l->moves))
            return bytes;
        in->stream.seen = in->stream.turns = 0;
    }
    channel_pulled(x, in);
    return bytes;
}

int64_t comb_take(weft_exec *x, const struct exec_in *first)
{
    struct program *p = x->program;
    struct comb_lane *lanes = p->lanes + p->nouts; /* those before may be at work: meet */
    uint32_t n = 0;
    int64_t bytes = 0;
    for (uint32_t i = (uint32_t)(first - p->ins); i < p->nins; i++) {
        const struct exec_step *step = next_in(p, &p->ins[i]);
        if (step && channel_can_take(x, &p->ins[i]))
            lanes[n++] = lane_of(p, i, step, NULL);
    }
    core_fence_looks(); /* pairs with the stores that channel_can_take has seen */
    for (uint32_t i = 0; i < n; i++)
        open_in(x, &p->ins[lanes[i].channel], &lanes[i]);
    for (bool more = true; more;) {
        more = false;
        for (uint32_t i = 0; i < n;)
            i += go_down(&lanes[i], n - i, n > 1 ? PIECE : INT64_MAX, !x->comm->dedicated_cores, &more);
    }
    for (uint32_t i = 0; i < n; i++)
        bytes += close_in(x, &p->ins[lanes[i].channel], &lanes[i]);
    return bytes;
}

/* ---- packing ---- */

/* The messages that can go with that of a channel, from this on, and get a slot. Returns how many. */
static uint32_t open_outs(weft_exec *x, const struct exec_out *first)
{
    struct program *p = x->program;
    uint32_t n = 0;
    for (uint32_t i = (uint32_t)(first - p->outs); i < p->nouts; i++) {
        const struct exec_out *out = &p->outs[i];
        const struct exec_step *step = out->posted < out->n ? &p->steps[out->steps[out->posted]] : NULL;
        if (!step || step->order != ORDER_COMB || p->open[out->steps[out->posted]])
            continue;
        struct exec_multicast *multicast = &p->multicasts[step->multicast];
        if (out != first && (multicast->run == x->run || !staged_slot(x, multicast)))
            continue;
        p->lanes[n++] = lane_of(p, i, step, multicast->message);
        if (streams(step))
            stream_show(x, multicast);
    }
    return n;
}

/* Packs a strip of each, or all of it; false: there was nothing left. */
static bool pack_strip(const struct program *p, uint32_t n, bool flows)
{
    const int64_t piece = n > 1 ? PIECE : flows ? STRIP : INT64_MAX;
    bool more = true, any = false;
    for (int64_t left = flows ? STRIP / piece : INT64_MAX; more && left; left--) {
        more = false;
        for (uint32_t i = 0; i < n; i++)
            more |= go_up(&p->lanes[i], piece);
        any |= more;
    }
    return any;
}

/* Says how far the messages are that flow. */
static void tell(weft_exec *x, uint32_t n)
{
    const struct program *p = x->program;
    for (uint32_t i = 0; i < n; i++) {
        const struct comb_lane *l = &p->lanes[i];
        const struct exec_multicast *multicast = &p->multicasts[l->step->multicast];
        if (!streams(l->step))
            continue;
        int64_t bytes = x->plan->steps[multicast->step].bytes;
        if (l->move < l->step->nwork) {
            const struct exec_move *m = &l->moves[l->move];
            bytes = m->offset + (l->at ? l->at * m->tile->stride[0][0] : 0);
        }
        stream_tell(x, multicast, bytes);
    }
}

/* Unpacks as many strips as were packed of what peers have shown. False: one was too late. */
static bool meet(weft_exec *x, int64_t strips)
{
    struct program *p = x->program;
    bool met = true;
    for (uint32_t i = 0; i < p->nins; i++) {
        struct exec_in *in = &p->ins[i];
        const struct exec_step *step = next_in(p, in);
        if (!step || !streams(step) || atomic_load_explicit(in->ready, CORE_LOOK) <= in->base + in->taken)
            continue;
        int64_t want = turns_for(&p->moves[step->work], strips * STRIP);
        int turn = 0;
        for (; turn < PATIENCE && next_in(p, in) == step && in->stream.turns < want; turn++) {
            if (channel_can_take(x, in))
                comb_take(x, in);
            else
                core_relax();
        }
        met &= turn < PATIENCE;
    }
    return met;
}

/* Packs the channel's message, which has its slot. */
static void pack(weft_exec *x, const struct exec_out *out)
{
    struct program *p = x->program;
    uint32_t n = open_outs(x, out);
    bool strips_go = false, waits = !x->arrivals; /* whose callbacks are not for the start of a run */
    for (uint32_t i = 0; i < n; i++)
        strips_go |= streams(p->lanes[i].step);
    for (int64_t strips = 1; pack_strip(p, n, strips_go); strips++) {
        tell(x, n);
        if (strips_go && waits)
            waits = meet(x, strips);
    }
}

bool comb_launch(weft_exec *x, struct exec_out *out, const struct exec_step *step)
{
    struct exec_multicast *m = &x->program->multicasts[step->multicast];
    if (m->run != x->run) {
        if (!staged_slot(x, m))
            return false;
        pack(x, out);
    }
    if (streams(step))
        channel_release(x->program, step); /* it has been shown already */
    else
        staged_show(x, out, step);
    return true;
}
