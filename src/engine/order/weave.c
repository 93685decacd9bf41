/* The order "weave": the strided copies of several channels in one walk through memory. It interleaves them row by row,
 * as a loom weaves its threads. A rank that sends columns of its rows to many peers then walks through its rows once,
 * for all peers and itself, and not once for each peer.
 *
 * It does all pushes. It does the pulls of a rank that pushes nothing, for channels whose bytes are mostly strided at
 * the receiver (way_pushes). If a run writes less than half of the destination, as an exchange of halos in place does,
 * pulls are not interleaved: nothing lies between the rows of one channel, so its message is better copied as a whole.
 *
 * A stream is what one channel has to copy, or this rank's own copies. The streams are sorted by their addresses on the
 * strided side. If they have rows at the same steps there, they take turns row by row: the strided side is then walked
 * from end to end, which the hardware can prefetch. Their rows may have different lengths. Otherwise they take turns in
 * proportion to their bytes, in pieces that stay in the cache (32 KiB for all streams together).
 *
 * The streams start when all of them can. If some peer is late, those that can start do so once the rank has nothing
 * else to do, since a peer may wait for them before it starts. */
#include "engine/order/weave.h"

#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/math.h"
#include "engine/channel.h"
#include "engine/order/lane.h"
#include "engine/proof.h"
#include "engine/shape.h"
#include "engine/work.h"
#include "memory/line.h"
#include "memory/pick.h"

#define PASS (8 << 20) /* bytes of a pass: half a millisecond */
#define BRIEF 2048     /* bytes of a row in pieces shorter than LANE_RUN that are rows of their own */
#define SPARSE 4       /* times the bytes that a turn writes, which may lie between two rows */

/* The copies of one channel, or local copies. */
struct weave_stream {
    uint8_t kind; /* PLAN_SEND: pushes of channel `index`; PLAN_RECV: pulls of it; PLAN_COPY: local steps */
    uint32_t index;
    const uint32_t *steps; /* COPY */
    uint32_t n;
    bool lined;      /* COPY: their moves follow each other in program.moves */
    int64_t quantum; /* bytes of a turn */

    int64_t credit; /* bytes that are left of this turn */
    uint32_t at;    /* COPY: the step at which it is */
    uint32_t move;  /* the move of that step */
    int64_t row;    /* the row of that move */
};

struct weave {
    struct weave_stream *streams;
    struct lane *lanes;
    /* One for each move of the program; it has no rows unless the move is plain rows in one loop. Lines are small: with
     * many tensors, the descriptions of their moves are as large as the tensors. */
    struct memory_line *lines;
    uint32_t n, left; /* streams; left: those that are not at their end */
};

/* ---- making ---- */

static bool woven_copy(const struct program *p, uint32_t s)
{
    return p->steps[s].kind == PLAN_COPY && !p->open0[s] && !p->steps[s].nnext && p->steps[s].nwork;
}

/* Is loop i the last of the tile, over elements that follow each other on both sides? */
static bool is_span(const struct exec_move *m, int i)
{
    return i == m->tile->loops - 1 && shape_tile_span(m->tile, m->to, m->from);
}

/* Moves whose rows are known: a move with the same tile has the same rows. */
#define SEEN 64 /* moves */
struct seen {
    const struct exec_move *moves[SEEN];
};

static bool same_rows(const struct exec_move *a, const struct exec_move *b)
{
    return a->tile == b->tile && a->bytes == b->bytes && a->to == b->to && a->from == b->from;
}

/* Are rows of this tile to be one piece each? Pieces must be long enough to be copied one by one. Shorter ones must be
 * enough for a call for all of them: those of several streams, which may fill rows of the destination together, are
 * picked or cast together (lane.c). */
static bool fine(const struct exec_move *m)
{
    const struct memory_tile *t = m->tile;
    if (t->loops < 2 || !is_span(m, t->loops - 1))
        return false;
    int64_t piece = t->n[t->loops - 1] * (int64_t)weft_dtype_size(m->to);
    if (piece >= LANE_RUN)
        return m->to == m->from;
    return (m->to != m->from || pick_here()) && piece * t->n[t->loops - 2] >= BRIEF;
}

/* Cuts a move into rows, which are the turns of its outer loops. It cuts as many loops as make a row at most LANE_ROW
 * bytes, and all but the last if rows are to be one piece. */
static int cut(struct program *p, struct exec_move *m, struct seen *seen)
{
    const struct exec_move **like = &seen->moves[hash_u64((uintptr_t)m->tile, (uint64_t)m->bytes) % SEEN];
    if (*like && same_rows(*like, m)) {
        m->rows = (*like)->rows;
        return 0;
    }
    *like = m;
    struct lane_rows *r = m->rows = program_take(p, 1, sizeof *r);
    const struct memory_tile *t = m->tile;
    if (!r)
        return error_nomem();
    r->n = 1;
    r->bytes = m->bytes;
    if (!t || !t->loops)
        return 0;
    const bool all = fine(m);
    for (int i = 0; !i || (i < t->loops - 1 && (all || r->bytes > LANE_ROW)); i++) {
        r->cut = i;
        r->n *= t->n[i];
        r->bytes /= t->n[i];
    }
    bool run = r->cut + 1 < t->loops && is_span(m, r->cut + 1);
    r->plain = (run || t->loops == 1) && m->to == m->from;
    r->casts = run && m->to != m->from;
    r->inner.loops = t->loops - r->cut;
    for (int i = 0; i < r->inner.loops; i++) {
        r->inner.n[i] = t->n[i + r->cut];
        for (int k = 0; k < MEMORY_OPERANDS; k++)
            r->inner.stride[k][i] = t->stride[k][i + r->cut];
    }
    return 0;
}

static struct memory_line line_of(const struct exec_move *m)
{
    const struct lane_rows *r = m->rows;
    if (!m->tile || !r->plain || r->cut || r->n > UINT32_MAX || r->bytes > UINT32_MAX)
        return (struct memory_line){.n = 0};
    return (struct memory_line){(uintptr_t)m->dst,     (uintptr_t)m->src, m->tile->stride[0][0],
                                m->tile->stride[1][0], (uint32_t)r->n,    (uint32_t)r->bytes};
}

/* Takes the steps that travel this way into the weave. Sets *bytes to what they move. */
static int mark(struct program *p, const uint32_t *steps, uint32_t n, const struct way *way, struct seen *seen,
                int64_t *bytes)
{
    int err = 0;
    *bytes = 0;
    for (uint32_t k = 0; k < n; k++) {
        struct exec_step *step = &p->steps[steps[k]];
        if (step->kind != PLAN_COPY && step->way != way)
            continue;
        step->order = ORDER_WEAVE;
        for (uint32_t i = 0; i < step->nwork && !err; i++) {
            err = cut(p, &p->moves[step->work + i], seen);
            *bytes += p->moves[step->work + i].bytes;
            if (!err)
                p->weave->lines[step->work + i] = line_of(&p->moves[step->work + i]);
        }
    }
    return err;
}

static int add_copies(struct program *p, struct weave_stream *s, struct seen *seen)
{
    uint32_t *steps = program_take(p, p->nfirst, sizeof *steps), kept = 0;
    if (!steps)
        return error_nomem();
    *s = (struct weave_stream){.kind = PLAN_COPY, .steps = steps};
    for (uint32_t k = 0; k < p->nfirst; k++) {
        if (woven_copy(p, p->first[k]))
            steps[s->n++] = p->first[k];
        else
            p->first[kept++] = p->first[k];
    }
    p->nfirst = kept;
    s->lined = true; /* each copy is one move; there may be moves of other steps between them */
    for (uint32_t k = 1; k < s->n; k++)
        s->lined &= p->steps[steps[k]].work == p->steps[steps[k - 1]].work + 1;
    return mark(p, steps, s->n, NULL, seen, &s->quantum);
}

static void add_channel(struct weave *w, int kind, uint32_t index)
{
    w->streams[w->n++] = (struct weave_stream){.kind = (uint8_t)kind, .index = index};
}

/* Does a run write at least half of the destination, so that the rows of one channel lie between those of others? */
static bool fills(const weft_exec *x, const struct program *p)
{
    const weft_plan *plan = x->plan;
    int64_t written = 0, room = 0;
    for (uint32_t s = 0; s < p->nsteps; s++) {
        const struct plan_step *st = &plan->steps[s];
        bool writes = st->kind == PLAN_RECV || (st->kind == PLAN_COPY && p->steps[s].nwork);
        for (uint32_t k = 0; k < st->nparts && writes; k++) {
            const struct plan_part *part = &plan->parts[st->part + k];
            if (plan->bufs[part->buf].space == PLAN_DST)
                written += part->count * (int64_t)weft_dtype_size(plan->bufs[part->buf].dtype);
        }
    }
    for (size_t b = 0; b < plan->nbufs; b++) {
        int64_t bytes = (int64_t)weft_dtype_size(plan->bufs[b].dtype);
        for (int d = 0; d < plan->tensors[plan->bufs[b].tensor].ndim; d++)
            bytes *= plan->shapes[plan->bufs[b].shape + (uint32_t)d];
        room += plan->bufs[b].space == PLAN_DST ? bytes : 0;
    }
    return written >= room / 2;
}

/* Do the rows that a turn of all pulls would write lie so far apart that the kernel, which prefetches, copies the
 * messages faster one by one? This is so with nested block-cyclic layouts, of which each channel has many moves. */
static bool sparse(const struct program *p)
{
    int64_t written = 0, step = 0;
    for (uint32_t i = 0; i < p->nins; i++) {
        const struct exec_in *in = &p->ins[i];
        const struct exec_step *s = in->n && in->woven && !in->pushed ? &p->steps[in->steps[0]] : NULL;
        if (!s || s->way != &way_pull || !s->nwork)
            continue;
        const struct exec_move *m = &p->moves[s->work];
        int last = m->tile ? m->tile->loops - 1 : 0;
        if (last < 1 || !is_span(m, last))
            return false;
        written += m->tile->n[last] * m->tile->stride[0][last];
        step = max64(step, m->tile->stride[0][last - 1]);
    }
    return written < step / SPARSE;
}

/* Takes pushes if there are any, and pulls otherwise. A rank that has both leaves its pulls to the pipeline. */
static void choose(const weft_exec *x, const struct program *p, struct weave *w)
{
    bool pulls = fills(x, p) && !sparse(p);
    for (uint32_t i = 0; i < p->nouts; i++)
        if (p->outs[i].pushed)
            add_channel(w, PLAN_SEND, i);
    for (uint32_t i = 0; i < p->nins && pulls && (!w->n || w->streams[0].kind == PLAN_RECV); i++)
        if (!p->ins[i].pushed && p->ins[i].woven)
            add_channel(w, PLAN_RECV, i);
}

/* The first address of a stream on the strided side, which is the one that pushes read and pulls write. */
static uintptr_t begins(const struct program *p, const struct weave_stream *s, bool pushes)
{
    const uint32_t *steps = s->kind == PLAN_SEND   ? p->outs[s->index].steps
                            : s->kind == PLAN_RECV ? p->ins[s->index].steps
                                                   : s->steps;
    while (p->steps[*steps].order != ORDER_WEAVE)
        steps++;
    const struct exec_step *step = &p->steps[*steps];
    const struct exec_move *m = &p->moves[step->work];
    return !step->nwork ? 0 : (uintptr_t)(pushes ? m->src : m->dst);
}

static void sort(const struct program *p, struct weave *w)
{
    bool pushes = w->streams[0].kind == PLAN_SEND;
    for (uint32_t i = 1; i < w->n; i++)
        for (uint32_t j = i; j > 0 && begins(p, &w->streams[j - 1], pushes) > begins(p, &w->streams[j], pushes); j--) {
            struct weave_stream t = w->streams[j];
            w->streams[j] = w->streams[j - 1];
            w->streams[j - 1] = t;
        }
}

int weave_make(weft_exec *x, struct program *p)
{
    struct weave *w = program_take(p, 1, sizeof *w);
    struct seen seen = {{NULL}};
    int64_t all = 0;
    int err = 0;
    if (w)
        w->streams = program_take(p, p->nins + p->nouts + 1, sizeof *w->streams);
    if (!w || !w->streams)
        return error_nomem();
    choose(x, p, w);
    if (!w->n)
        return 0;
    p->weave = w;
    uint32_t moves = 0;
    for (uint32_t s = 0; s < p->nsteps; s++)
        if (p->steps[s].kind != PLAN_REDUCE && p->steps[s].work + p->steps[s].nwork > moves)
            moves = p->steps[s].work + p->steps[s].nwork;
    w->lines = program_take(p, moves, sizeof *w->lines);
    if (!w->lines)
        return error_nomem();
    for (uint32_t i = 0; i < w->n && !err; i++) {
        struct weave_stream *s = &w->streams[i];
        if (s->kind == PLAN_SEND)
            err = mark(p, p->outs[s->index].steps, p->outs[s->index].n, &way_push, &seen, &s->quantum);
        else
            err = mark(p, p->ins[s->index].steps, p->ins[s->index].n, &way_pull, &seen, &s->quantum);
    }
    if (!err)
        err = add_copies(p, &w->streams[w->n], &seen);
    if (err)
        return err;
    w->n += w->streams[w->n].n > 0;
    sort(p, w);
    w->lanes = program_take(p, w->n, sizeof *w->lanes);
    if (!w->lanes)
        return error_nomem();
    for (uint32_t i = 0; i < w->n; i++)
        all += w->streams[i].quantum;
    int64_t turns = all / LANE_TURN + 1;
    for (uint32_t i = 0; i < w->n; i++)
        w->streams[i].quantum = w->streams[i].quantum / turns + 1;
    return 0;
}

void weave_start(struct weave *w)
{
    w->left = w->n;
    for (uint32_t i = 0; i < w->n; i++) {
        struct weave_stream *s = &w->streams[i];
        s->credit = s->row = 0;
        s->at = s->move = 0;
    }
}

/* ---- running ---- */

/* The step at which the stream is. PLAN_NONE: none can go on now; with *through, the stream is at its end. */
static uint32_t current(const weft_exec *x, const struct weave_stream *s, bool *through)
{
    const struct program *p = x->program;
    *through = false;
    if (s->kind == PLAN_COPY) {
        *through = s->at == s->n;
        return *through ? PLAN_NONE : s->steps[s->at];
    }
    if (s->kind == PLAN_SEND) {
        struct exec_out *out = &p->outs[s->index];
        *through = out->posted == out->n;
        uint32_t step = *through ? PLAN_NONE : out->steps[out->posted];
        if (*through || !p->steps[step].way->pushed || p->open[step])
            return PLAN_NONE;
        if (out->seen_done <= out->base + out->posted)
            out->seen_done = atomic_load_explicit(out->done, memory_order_seq_cst);
        return out->seen_done > out->base + out->posted ? step : PLAN_NONE;
    }
    const struct exec_in *in = &p->ins[s->index];
    *through = in->taken == in->n;
    uint32_t step = *through ? PLAN_NONE : in->steps[in->taken];
    if (*through || p->steps[step].order != ORDER_WEAVE || p->open[step])
        return PLAN_NONE;
    return atomic_load_explicit(in->ready, memory_order_seq_cst) > in->base + in->taken ? step : PLAN_NONE;
}

static void end_step(weft_exec *x, struct weave_stream *s)
{
    s->move = 0;
    switch (s->kind) {
    case PLAN_SEND:
        if (x->program->proof)
            proof_sends(x, &x->program->outs[s->index]);
        channel_pushed(x, &x->program->outs[s->index]);
        break;
    case PLAN_RECV:
        if (x->program->proof)
            proof_came_sum(x, &x->program->ins[s->index]);
        if (!x->program->proof || proof_came(x, &x->program->ins[s->index]))
            channel_pulled(x, &x->program->ins[s->index]);
        break;
    default: channel_copied(x, s->steps[s->at++]);
    }
}

/* Sets *to and *from to the offsets of a row. Returns how many rows, with this one, are left in the innermost cut
 * loop. */
static int64_t place_row(const struct exec_move *m, int64_t row, int64_t *to, int64_t *from)
{
    const struct memory_tile *t = m->tile;
    int at = m->rows->cut;
    int64_t in_loop = at ? row % t->n[at] : row, outer = at ? row / t->n[at] : 0;
    *to = in_loop * t->stride[0][at];
    *from = in_loop * t->stride[1][at];
    for (int i = at - 1; i >= 0; i--) {
        *to += outer % t->n[i] * t->stride[0][i];
        *from += outer % t->n[i] * t->stride[1][i];
        outer /= t->n[i];
    }
    return t->n[at] - in_loop;
}

/* Copies rows of a move, about `bytes` bytes from *row on. Returns the bytes that it copied. *row is then the next, or
 * 0 at the end. */
static int64_t move_rows(const struct exec_move *m, int64_t *row, int64_t bytes)
{
    struct lane_rows *r = m->rows;
    int64_t to, from;
    if (!m->tile) {
        int64_t n = min64((bytes + LANE_CHUNK - 1) / LANE_CHUNK * LANE_CHUNK, m->bytes - *row);
        work_bytes(m, m->dst + *row, m->src + *row, (size_t)n);
        *row = *row + n == m->bytes ? 0 : *row + n;
        return n;
    }
    if (!m->tile->loops) {
        work_move(m, m->dst, m->src);
        return m->bytes;
    }
    int64_t left = place_row(m, *row, &to, &from), n = min64((bytes + r->bytes - 1) / r->bytes, left);
    r->inner.n[0] = n;
    work_tile(m, &r->inner, m->dst + to, m->src + from);
    *row = *row + n == r->n ? 0 : *row + n;
    return n * r->bytes;
}

/* One turn of a stream. Returns the bytes that it copied. */
static int64_t turn(weft_exec *x, struct weave_stream *s)
{
    struct program *p = x->program;
    int64_t moved = 0;
    s->credit += s->quantum;
    while (s->credit > 0) {
        bool through;
        uint32_t at = current(x, s, &through);
        if (at == PLAN_NONE)
            break;
        const struct exec_step *step = &p->steps[at];
        if (s->move == step->nwork) {
            end_step(x, s);
            continue;
        }
        int64_t bytes = move_rows(&p->moves[step->work + s->move], &s->row, s->credit);
        s->credit -= bytes;
        moved += bytes;
        if (!s->row && ++s->move == step->nwork)
            end_step(x, s);
    }
    return moved;
}

/* Can all streams that are not at their end go on? A stream that waits loses its credit. */
static bool all_ready(weft_exec *x, bool *any)
{
    struct weave *w = x->program->weave;
    bool all = true;
    *any = false;
    w->left = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        bool through, ready = current(x, &w->streams[i], &through) != PLAN_NONE;
        if (through)
            continue;
        w->left++;
        *any |= ready;
        all &= ready;
        if (!ready)
            w->streams[i].credit = 0;
    }
    return all;
}

/* ---- row by row ---- */

/* The move at which a stream is, if it can go on and has rows; otherwise NULL. */
static const struct exec_move *move_at(const weft_exec *x, const struct weave_stream *s)
{
    bool through;
    uint32_t at = current(x, s, &through);
    if (at == PLAN_NONE || s->move >= x->program->steps[at].nwork)
        return NULL;
    const struct exec_move *m = &x->program->moves[x->program->steps[at].work + s->move];
    return m->tile && m->tile->loops ? m : NULL;
}

/* Do two lanes walk through memory in step, row by row? */
static bool in_step(const struct lane *a, const struct lane *b)
{
    return a->bytes == b->bytes || a->sstep == b->sstep || a->dstep == b->dstep;
}

/* Fills the lanes. Returns how many rows all of them have left; 0: they do not go in step. */
static int64_t line_up(weft_exec *x, uint32_t *n)
{
    struct weave *w = x->program->weave;
    int64_t rows = INT64_MAX;
    *n = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        struct weave_stream *s = &w->streams[i];
        if (s->kind == PLAN_COPY && s->at == s->n)
            continue;
        const struct exec_move *m = move_at(x, s);
        if (!m)
            return 0;
        int64_t to, from, left = place_row(m, s->row, &to, &from);
        struct lane *lane = &w->lanes[(*n)++], *first = w->lanes;
        *lane = (struct lane){.stream = s,
                              .pushes = s->kind == PLAN_SEND,
                              .rows = m->rows,
                              .dst = m->dst + to,
                              .src = m->src + from,
                              .dstep = m->tile->stride[0][m->rows->cut],
                              .sstep = m->tile->stride[1][m->rows->cut],
                              .bytes = m->rows->bytes,
                              .to = m->to,
                              .from = m->from};
        if (!in_step(lane, first) || lane->rows->plain != first->rows->plain ||
            lane->rows->casts != first->rows->casts || lane->to != first->to || lane->from != first->from)
            return 0;
        rows = min64(rows, left);
    }
    return *n ? rows : 0;
}

/* The line at which a stream is. Sets *n to how many can go from it on. NULL: none can, or it is within a move. */
static const struct memory_line *lines_at(const weft_exec *x, const struct weave_stream *s, uint32_t *n)
{
    const struct program *p = x->program;
    bool through;
    uint32_t at = s->row ? PLAN_NONE : current(x, s, &through);
    if (at == PLAN_NONE)
        return NULL;
    const struct exec_step *step = &p->steps[at];
    *n = step->nwork - s->move;
    if (s->kind == PLAN_COPY)
        *n = s->lined ? s->n - s->at : 1;
    return *n ? &p->weave->lines[step->work + s->move] : NULL;
}

static void pass_lines(weft_exec *x, struct weave_stream *s, uint32_t n)
{
    struct program *p = x->program;
    bool through;
    if (s->kind == PLAN_COPY) { /* no step waits for these copies: woven_copy */
        for (uint32_t k = 0; k < n && x->arrivals; k++)
            arrivals_step(x, s->steps[s->at + k]);
        s->at += n;
        p->left -= n;
        return;
    }
    s->move += n;
    if (s->move == p->steps[current(x, s, &through)].nwork)
        end_step(x, s);
}

/* Copies whole moves of all streams, as long as these are lines that go in step, without looking at anything else in
 * between. Returns the bytes that it copied; 0: there are none. */
static int64_t line_by_line(weft_exec *x)
{
    struct weave *w = x->program->weave;
    uint32_t n = 0, count = UINT32_MAX, done = 0;
    int64_t bytes = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        struct weave_stream *s = &w->streams[i];
        uint32_t left = 0;
        if (s->kind == PLAN_COPY && s->at == s->n)
            continue;
        const struct memory_line *line = lines_at(x, s, &left);
        if (!line || !line->n)
            return 0;
        w->lanes[n++] = (struct lane){.stream = s, .pushes = s->kind == PLAN_SEND, .line = line};
        count = left < count ? left : count;
    }
    for (bool alike = n > 0; done < count; done++) {
        const struct memory_line *first = w->lanes[0].line + done;
        for (uint32_t i = 0; i < n; i++) {
            struct lane *lane = &w->lanes[i];
            const struct memory_line *l = lane->line + done;
            lane->dst = (char *)(uintptr_t)l->dst;
            lane->src = (const char *)(uintptr_t)l->src;
            lane->dstep = l->dstep;
            lane->sstep = l->sstep;
            lane->bytes = l->bytes;
            alike &= l->n == first->n && in_step(lane, w->lanes);
        }
        int64_t more = first->n * lane_across(w->lanes, n);
        if (!alike || !more || bytes + more > PASS)
            break;
        lane_copy(w->lanes, n, first->n, x->program->past);
        bytes += more;
    }
    for (uint32_t i = 0; i < n && done; i++)
        pass_lines(x, w->lanes[i].stream, done);
    return bytes;
}

/* Moves the stream on by `rows` rows that were copied. If one more is left in their loop, as in blocks that are dealt
 * to ranks in turn, it is copied now: the streams then begin the next turn of the loop around it together. Returns its
 * bytes. */
static int64_t pass_rows(weft_exec *x, struct weave_stream *s, int64_t rows)
{
    const struct exec_move *m = move_at(x, s);
    const struct lane_rows *r = m->rows;
    int64_t bytes = 0;
    bool through;
    s->row += rows;
    if (r->cut && s->row < r->n && (s->row + 1) % m->tile->n[r->cut] == 0)
        bytes = move_rows(m, &s->row, r->bytes);
    if (s->row % r->n)
        return bytes;
    s->row = 0;
    if (++s->move == x->program->steps[current(x, s, &through)].nwork)
        end_step(x, s);
    return bytes;
}

/* Copies all streams row by row, as long as they go in step. Returns the bytes that it copied; 0: they do not. */
static int64_t abreast(weft_exec *x)
{
    struct weave *w = x->program->weave;
    uint32_t n;
    int64_t rows = line_up(x, &n);
    if (!rows)
        return 0;
    int64_t bytes = lane_across(w->lanes, n);
    rows = min64(rows, PASS / bytes + 1);
    if (w->lanes[0].rows->plain)
        lane_copy(w->lanes, n, rows, x->program->past);
    else if (w->lanes[0].rows->casts)
        lane_cast(w->lanes, n, rows, x->program->past);
    else
        lane_kernel(w->lanes, n, rows);
    bytes *= rows;
    for (uint32_t i = 0; i < n; i++)
        bytes += pass_rows(x, w->lanes[i].stream, rows);
    return bytes;
}

bool weave_pass(weft_exec *x, bool idle)
{
    struct weave *w = x->program->weave;
    bool any, moved = false;
    for (int64_t room = PASS; w->left && room > 0;) {
        bool all = all_ready(x, &any);
        if (!any || !(all || idle))
            break;
        moved = true;
        int64_t bytes = all ? line_by_line(x) : 0;
        if (all && !bytes)
            bytes = abreast(x);
        for (uint32_t i = 0; i < w->n && !bytes; i++)
            room -= turn(x, &w->streams[i]);
        room -= bytes;
    }
    return moved;
}
