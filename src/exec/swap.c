/* Faces that two ranks give each other where they lie: what one sends stands beside what it receives, each cell in a line
 * of cache of its own (the x faces of a 3-d array). Packed and unpacked, each line is fetched twice, and by then the
 * first cells of a long face have left the cache. Here one walk along both faces does both directions: it reads and
 * writes a line of either rank once. Both ranks do it, from either end of the faces, until they meet; one that comes late,
 * or computes, finds it done.
 *
 * Whose core fetches a line that its owner has just written matters as long as it is in that core's own cache. So where
 * every rank has a core these are faces that span more memory than that: the owner's walk through it has driven them out.
 * Where ranks share cores the owner's lines are wherever it ran last.
 *
 * The hall of a pair stands in the block of the lower rank. A rank that begins run r stores r in `begun`, which releases
 * what it wrote before; who has begun and acquires the other's r may read and write both faces. Shares are taken by
 * changing `taken`, in which only the one atomic word matters; `over` counts the shares that are done, of all runs: the
 * adds release what was copied and form one chain, so who finds r * SHARES there acquires all of it. Nobody begins run r + 1
 * before that, so no copy of run r is left then, and a word of `taken` that is not of this run stands for none taken.
 *
 * All ranks agree on it at bind, by their votes: until then messages are staged ones like others of their kind, and
 * remain so if one rank says no. */
#include "base/error.h"
#include "exec/block.h"

#define RUNS_LEAST 8192 /* of a message: those of a shorter one stay in the cache until it is unpacked */
#define SPAN (4 << 20)  /* bytes of memory that a face is spread over: more than a core's own cache */
#define SHARES 16       /* parts that the faces of a pair are copied in */
#define BLOCK 64        /* runs of each line in turn: their lines stay in the smallest cache */
#define PASS (64 << 10) /* runs of a pass, a fraction of a millisecond */
#define OUTER 2         /* loops over runs */

struct swap_hall {
    struct {
        _Alignas(CORE_LINE) _Atomic uint64_t run;
    } begun[2]; /* of the lower rank, of the higher */
    _Alignas(CORE_LINE) _Atomic uint64_t taken; /* run << 32 | shares from the begin << 16 | shares from the end */
    _Alignas(CORE_LINE) _Atomic uint64_t over;
};

/* Runs that go from one place to another, one way. */
struct swap_line {
    char *dst;
    const char *src;
    int64_t dstep[OUTER], sstep[OUTER];
};

struct swap_pair {
    int peer;
    bool higher, back; /* this rank is the higher of the two; it takes shares from the end */
    struct swap_hall *hall;
    struct swap_line *lines; /* those that this rank sends and those that it receives in turn */
    uint32_t nlines;
    int64_t n[OUTER]; /* runs, of all lines alike */
    size_t unit;      /* bytes of a run */
};

/* ---- making ---- */

static bool fits_step(const weft_exec *x, const struct program *p, uint32_t s)
{
    const struct plan_step *st = &x->plan->steps[s];
    if (st->ndeps || st->kind == PLAN_REDUCE)
        return false;
    if (st->kind == PLAN_COPY)
        return true; /* of those that change nothing: makes */
    for (uint32_t k = 0; k < st->nparts; k++)
        if (!p->places[x->plan->parts[st->part + k].buf].reached)
            return false;
    return (st->kind != PLAN_SEND || p->steps[s].way == WAY_STAGED) && way_scattered(x, p, &s, 1) &&
           way_runs(x, p, s) >= RUNS_LEAST;
}

static bool fits(const weft_exec *x, const struct program *p)
{
    bool fit = !x->comm->staged && x->comm->opts.cross <= 0 && p->nouts && p->nouts == p->nins;
    for (uint32_t i = 0; i < p->nouts && fit; i++)
        fit = way_answered(p, p->outs[i].peer);
    for (uint32_t s = 0; s < p->nsteps && fit; s++)
        fit = fits_step(x, p, s);
    return fit;
}

uint64_t swap_bytes(const weft_exec *x, const struct program *p)
{
    return fits(x, p) ? p->nouts * sizeof(struct swap_hall) : 0;
}

/* The hall of the lower rank's channel to the higher; NULL: it has none. */
static struct swap_hall *hall_of(const struct block *lower, int higher)
{
    struct swap_hall *halls = (struct swap_hall *)((uintptr_t)lower + lower->swaps);
    for (uint32_t i = 0; i < lower->nouts && lower->swaps; i++)
        if (block_outs(lower)[i].peer == higher)
            return &halls[i];
    return NULL;
}

/* A face: messages of one channel as their sender and their receiver have described them. */
struct face {
    const struct block *from, *to;
    const struct block_message *sends, *recvs;
    uint32_t n;
};

static int64_t span_of(const struct swap_pair *pair, const int64_t *step)
{
    int64_t span = 0;
    for (int i = 0; i < OUTER; i++) {
        int64_t all = pair->n[i] * step[i];
        all = all < 0 ? -all : all;
        span = all > span ? all : span;
    }
    return span;
}

/* Part q of message k becomes a line; false: it is none, or not like those before. */
static bool add_line(const weft_exec *x, struct swap_pair *pair, const struct face *f, uint32_t k, uint32_t q,
                     struct swap_line *line)
{
    const struct block_part *src = &block_parts(f->from)[f->sends[k].part + q];
    const struct block_part *dst = &block_parts(f->to)[f->recvs[k].part + q];
    struct transport_link *link = x->comm->link;
    int64_t n[MEMORY_LOOPS], stride[2][MEMORY_LOOPS], size = (int64_t)weft_dtype_size(src->dtype);
    if (!src->reached || !dst->reached || src->dtype != dst->dtype || src->wire != src->dtype ||
        src->nloops != dst->nloops)
        return false;
    for (int i = 0; i < src->nloops; i++) {
        n[i] = block_loops(f->from)[src->loop + (uint32_t)i].n;
        stride[0][i] = block_loops(f->to)[dst->loop + (uint32_t)i].stride;
        stride[1][i] = block_loops(f->from)[src->loop + (uint32_t)i].stride;
    }
    int loops = tile_merge(src->nloops, n, stride, 2);
    bool run = loops && stride[0][loops - 1] == size && stride[1][loops - 1] == size;
    int outer = loops - run, first = OUTER - outer;
    if (outer < 1 || outer > OUTER)
        return false;
    *line = (struct swap_line){.dst = link->transport->reach(link, x->comm->rank, dst->place),
                               .src = link->transport->reach(link, x->comm->rank, src->place)};
    int64_t turns[OUTER] = {1, 1};
    for (int i = 0; i < outer; i++) {
        turns[first + i] = n[i];
        line->dstep[first + i] = stride[0][i];
        line->sstep[first + i] = stride[1][i];
    }
    size_t unit = (size_t)(run ? n[loops - 1] * size : size);
    bool alike = !pair->nlines || (unit == pair->unit && turns[0] == pair->n[0] && turns[1] == pair->n[1]);
    pair->unit = unit;
    pair->n[0] = turns[0];
    pair->n[1] = turns[1];
    pair->nlines++;
    return alike &&
           (!x->comm->spins || (span_of(pair, line->dstep) >= SPAN && span_of(pair, line->sstep) >= SPAN));
}

static uint32_t parts_of(const struct face *f)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < f->n; k++)
        n += f->sends[k].nparts;
    return n;
}

/* Every other line from this one on. */
static bool add_face(const weft_exec *x, struct swap_pair *pair, const struct face *f, struct swap_line *line)
{
    bool fit = true;
    for (uint32_t k = 0; k < f->n && fit; k++)
        for (uint32_t q = 0; q < f->sends[k].nparts && fit; q++, line += 2)
            fit = f->sends[k].nparts == f->recvs[k].nparts && add_line(x, pair, f, k, q, line);
    return fit;
}

/* Ranks side by side most often are one even and one odd: so both walks of a rank that has two neighbours begin at one
 * end, where its own lines are shared by both. */
static bool make_pair(weft_exec *x, struct program *p, const struct exec_out *out, const struct exec_in *in,
                      struct swap_pair *pair)
{
    int rank = x->comm->rank;
    struct face gives = {x->block, out->block, out->sends, out->recvs, out->n};
    struct face gets = {in->block, x->block, in->sends, in->recvs, in->n};
    bool higher = rank > out->peer;
    *pair = (struct swap_pair){.peer = out->peer, .higher = higher, .back = rank % 2};
    pair->hall = higher ? hall_of(out->block, rank) : hall_of(x->block, out->peer);
    if (!pair->hall || !parts_of(&gives) || parts_of(&gives) != parts_of(&gets))
        return false;
    pair->lines = program_take(p, 2 * parts_of(&gives), sizeof *pair->lines);
    if (!pair->lines || !add_face(x, pair, &gives, pair->lines) || !add_face(x, pair, &gets, pair->lines + 1))
        return false;
    if (!higher) /* the same number as after the last run, if that was one of these; published by the meeting */
        atomic_store_explicit(&pair->hall->over, x->run * SHARES, memory_order_relaxed);
    return true;
}

bool swap_make(weft_exec *x, struct program *p)
{
    struct swaps *w = &p->swaps;
    bool fit = x->block->swaps && fits(x, p);
    for (uint32_t s = 0; s < p->nsteps && fit; s++)
        fit = p->steps[s].kind != PLAN_COPY || !p->steps[s].nwork;
    w->n = p->nouts;
    w->pairs = fit ? program_take(p, w->n, sizeof *w->pairs) : NULL;
    for (uint32_t i = 0; i < w->n && w->pairs && fit; i++) {
        uint32_t k = 0;
        while (p->ins[k].peer != p->outs[i].peer)
            k++;
        fit = make_pair(x, p, &p->outs[i], &p->ins[k], &w->pairs[i]);
    }
    return fit && w->pairs;
}

void swap_open(weft_exec *x, struct program *p, uint64_t meeting)
{
    for (int r = 0; r < x->comm->size; r++)
        if (!(core_vote_of(x->comm->group, r, meeting)->note & SWAP_NOTE))
            return;
    p->swaps.on = true;
}

/* ---- the run ---- */

static bool begun(const weft_exec *x, const struct swap_pair *pair)
{
    return atomic_load_explicit(&pair->hall->begun[!pair->higher].run, memory_order_seq_cst) >= x->run;
}

static bool over(const weft_exec *x, const struct swap_pair *pair)
{
    return atomic_load_explicit(&pair->hall->over, memory_order_seq_cst) >= x->run * SHARES;
}

void swap_start(weft_exec *x)
{
    struct swaps *w = &x->program->swaps;
    x->program->left = 1;
    w->calls = true;
    for (uint32_t i = 0; i < w->n; i++)
        atomic_store_explicit(&w->pairs[i].hall->begun[w->pairs[i].higher].run, x->run, memory_order_seq_cst);
}

void swap_call(weft_exec *x)
{
    struct swaps *w = &x->program->swaps;
    if (!w->calls)
        return;
    w->calls = false;
    core_fence_all(); /* between what was stored and the looks at who sleeps, as in core_signal */
    for (uint32_t i = 0; i < w->n; i++)
        core_call_fenced(x->comm->group, w->pairs[i].peer);
}

/* Runs `first` to `end` - 1 of all lines. */
static void copy(const struct swap_pair *pair, int64_t first, int64_t end)
{
    for (int64_t at = first, n; at < end; at += n) {
        int64_t outer = at / pair->n[1], inner = at % pair->n[1];
        n = pair->n[1] - inner;
        n = n < end - at ? n : end - at;
        n = n < BLOCK ? n : BLOCK;
        for (uint32_t i = 0; i < pair->nlines; i++) {
            const struct swap_line *l = &pair->lines[i];
            memory_copy_units(l->dst + outer * l->dstep[0] + inner * l->dstep[1], l->dstep[1],
                              l->src + outer * l->sstep[0] + inner * l->sstep[1], l->sstep[1], n, pair->unit);
        }
    }
}

/* Takes a share; -1: all are taken. Relaxed: what may be read and written `begun` has said. */
static int take(const weft_exec *x, const struct swap_pair *pair)
{
    const uint64_t none = (uint64_t)(uint32_t)x->run << 32;
    uint64_t was = atomic_load_explicit(&pair->hall->taken, memory_order_relaxed), now;
    uint32_t front, rear;
    do {
        uint64_t from = was >> 32 == none >> 32 ? was : none;
        front = from >> 16 & 0xffff;
        rear = from & 0xffff;
        if (front + rear == SHARES)
            return -1;
        now = from + (pair->back ? 1 : 1 << 16);
    } while (!atomic_compare_exchange_weak_explicit(&pair->hall->taken, &was, now, memory_order_relaxed,
                                                    memory_order_relaxed));
    return (int)(pair->back ? SHARES - 1 - rear : front);
}

/* Takes shares of all pairs that have begun, in turn. Returns how many it copied of pair i in done[i]. */
static bool work(weft_exec *x)
{
    struct swaps *w = &x->program->swaps;
    bool any = false;
    int64_t room = PASS;
    for (bool more = true; more && room > 0;) {
        more = false;
        for (uint32_t i = 0; i < w->n; i++) {
            struct swap_pair *pair = &w->pairs[i];
            int share = core_failed(x->comm->group) || !begun(x, pair) ? -1 : take(x, pair);
            if (share < 0)
                continue;
            int64_t runs = pair->n[0] * pair->n[1];
            copy(pair, runs * share / SHARES, runs * (share + 1) / SHARES);
            atomic_fetch_add_explicit(&pair->hall->over, 1, memory_order_seq_cst);
            room -= runs / SHARES * pair->nlines;
            more = any = true;
        }
    }
    w->calls |= any;
    return any;
}

static bool all_over(const weft_exec *x)
{
    const struct swaps *w = &x->program->swaps;
    for (uint32_t i = 0; i < w->n; i++)
        if (!over(x, &w->pairs[i]))
            return false;
    return true;
}

bool swap_pass(weft_exec *x)
{
    struct program *p = x->program;
    bool moved = work(x);
    swap_call(x);
    if (!all_over(x))
        return moved;
    for (uint32_t s = 0; s < p->nsteps && x->arrivals; s++)
        arrivals_step(x, s);
    p->left = 0;
    return true;
}

/* ---- waiting ---- */

bool swap_waits(const weft_exec *x, int peer)
{
    const struct swaps *w = &x->program->swaps;
    for (uint32_t i = 0; i < w->n; i++)
        if (w->pairs[i].peer == peer)
            return !over(x, &w->pairs[i]);
    return false;
}

/* One signal of each pair at least: the peer begins, or it has copied the last share. */
int swap_lacking(const weft_exec *x)
{
    const struct swaps *w = &x->program->swaps;
    int n = 0;
    for (uint32_t i = 0; i < w->n; i++)
        n += !over(x, &w->pairs[i]);
    return n ? n : 1;
}
