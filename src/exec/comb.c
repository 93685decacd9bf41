/* Staged messages whose elements lie far apart, of several channels side by side: the cells that go to the one neighbour
 * and to the other, or that come from them, often share lines of cache (the end of a row, the begin of the next). So
 * all channels have a piece copied, then all the next, and each line comes once and not once for each channel.
 * Unpacking begins at the end (fill.c): the lines that were packed last are the nearest.
 *
 * Messages are packed together that can go at the same time. Arrivals are waited for until all are there, or until the
 * rank has nothing better to do, as in weave.c. */
#include "base/error.h"
#include "exec/block.h"

#define PIECE 256 /* elements of a channel in a turn: of two channels, with a line each, a quarter of a small cache */

/* A message, and the move of it that is at hand. */
struct comb_lane {
    const struct exec_step *step;
    char *message; /* in the pool of its sender */
    uint32_t channel;
    uint8_t to, from;
    char *dst;
    const char *src;
    struct memory_tile tile; /* of a piece */
    int64_t turns;           /* of the outermost loop, in all pieces */
};

/* ---- making ---- */

static bool scattered(const weft_exec *x, const struct program *p, uint32_t s)
{
    const struct exec_step *step = &p->steps[s];
    return step->way == WAY_STAGED && !step->flows && way_scattered(x, p, &s, 1);
}

/* Marks the messages of a channel; true: there are some. */
static bool mark(const weft_exec *x, struct program *p, const uint32_t *steps, uint32_t n)
{
    bool any = false;
    for (uint32_t k = 0; k < n; k++)
        any |= p->steps[steps[k]].combed = scattered(x, p, steps[k]);
    return any;
}

int comb_make(const weft_exec *x, struct program *p)
{
    uint32_t nins = 0, nouts = 0;
    for (uint32_t i = 0; i < p->nins; i++)
        nins += mark(x, p, p->ins[i].steps, p->ins[i].n);
    for (uint32_t i = 0; i < p->nouts; i++)
        nouts += mark(x, p, p->outs[i].steps, p->outs[i].n);
    p->lanes = program_take(p, nins > nouts ? nins : nouts, sizeof *p->lanes);
    return p->lanes ? 0 : error_nomem();
}

/* ---- copying ---- */

/* Opens the lane's next move, if it has one. Returns how many pieces it should have. */
static int64_t open_move(struct comb_lane *l, const struct exec_move *m)
{
    bool pack = l->step->kind == PLAN_SEND;
    l->dst = pack ? l->message + m->offset : m->dst;
    l->src = pack ? m->src : l->message + m->offset;
    l->to = m->to;
    l->from = m->from;
    l->turns = m->tile && m->tile->loops ? m->tile->n[0] : 0;
    if (!l->turns) {
        engine_move(m, l->dst, l->src);
        return 0;
    }
    l->tile = *m->tile;
    return (memory_tile_count(&l->tile) + PIECE - 1) / PIECE;
}

/* Piece k of so many; lanes need not be alike. */
static void copy_piece(struct comb_lane *l, int64_t k, int64_t pieces)
{
    int64_t first = l->turns * k / pieces, end = l->turns * (k + 1) / pieces;
    l->tile.n[0] = end - first;
    if (end > first)
        memory_copy(&l->tile, l->dst + first * l->tile.stride[0][0], l->to, l->src + first * l->tile.stride[1][0],
                    l->from);
}

static void copy(const struct program *p, uint32_t n)
{
    bool more = true;
    for (uint32_t move = 0; more; move++) {
        int64_t pieces = 0;
        more = false;
        for (uint32_t i = 0; i < n; i++) {
            struct comb_lane *l = &p->lanes[i];
            l->turns = 0;
            if (move >= l->step->nwork)
                continue;
            int64_t own = open_move(l, &p->moves[l->step->work + move]);
            pieces = own > pieces ? own : pieces;
            more = true;
        }
        if (n == 1 && pieces)
            pieces = 1;
        for (int64_t k = 0; k < pieces; k++)
            for (uint32_t i = 0; i < n; i++)
                copy_piece(&p->lanes[i], k, pieces);
    }
}

static void add_lane(const struct program *p, uint32_t *n, uint32_t channel, const struct exec_step *step,
                     const char *message)
{
    struct comb_lane *l = &p->lanes[(*n)++];
    l->channel = channel;
    l->step = step;
    l->message = (char *)(uintptr_t)message; /* that of a RECV is only read */
}

void comb_pack(weft_exec *x, const struct exec_out *out)
{
    struct program *p = x->program;
    uint32_t n = 0;
    for (uint32_t i = (uint32_t)(out - p->outs); i < p->nouts; i++) {
        const struct exec_out *o = &p->outs[i];
        const struct exec_step *step = o->posted < o->n ? &p->steps[o->steps[o->posted]] : NULL;
        if (!step || !step->combed || p->open[o->steps[o->posted]])
            continue;
        struct exec_share *share = &p->shares[step->letter];
        if (o == out || (share->run != x->run && engine_slot(x, share)))
            add_lane(p, &n, i, step, x->comm->staging.base + share->slot);
    }
    copy(p, n);
}

bool comb_ready(const weft_exec *x)
{
    const struct program *p = x->program;
    for (uint32_t i = 0; i < p->nins; i++) {
        const struct exec_in *in = &p->ins[i];
        if (in->taken < in->n && p->steps[in->steps[in->taken]].combed && !engine_can_take(x, in))
            return false;
    }
    return true;
}

int64_t comb_take(weft_exec *x, const struct exec_in *first)
{
    struct program *p = x->program;
    uint32_t n = 0;
    int64_t bytes = 0;
    for (uint32_t i = (uint32_t)(first - p->ins); i < p->nins; i++) {
        const struct exec_in *in = &p->ins[i];
        if (in->taken < in->n && p->steps[in->steps[in->taken]].combed && engine_can_take(x, in))
            add_lane(p, &n, i, &p->steps[in->steps[in->taken]], NULL);
    }
    core_fence_looks(); /* pairs with the stores that engine_can_take has seen */
    for (uint32_t i = 0; i < n; i++) {
        struct exec_in *in = &p->ins[p->lanes[i].channel];
        p->lanes[i].message = (char *)(uintptr_t)in->staging + in->sends[in->taken].slot;
    }
    copy(p, n);
    for (uint32_t i = 0; i < n; i++) {
        bytes += p->lanes[i].step->bytes;
        engine_pulled(x, &p->ins[p->lanes[i].channel]);
    }
    return bytes;
}
