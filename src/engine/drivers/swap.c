/* Faces that two ranks give each other where they lie: what one sends stands beside what it receives, each cell in a
 * line of cache of its own (the x faces of a 3-d array). Packed and unpacked, each line is fetched twice, and by then
 * the first cells of a long face have left the cache. Here one walk along both faces does both directions: it reads and
 * writes a line of either rank once.
 *
 * Where every rank has a core, both ranks of a pair walk, from either end, until they meet; one that comes late, or
 * computes, finds it done. Whose core fetches a line that its owner has just written matters as long as it is in that
 * core's own cache; so these are faces that span more memory than that: the owner's way through it has driven them out.
 * And they are of ranks with one neighbour: the lines of one between two others would go from core to core.
 *
 * Where ranks share cores, whoever runs walks along the faces of all pairs that have begun, also of those that it is
 * not in, row by row, so that the line of a rank between two others is fetched once; and each core has an end of its
 * own, so that it finds in its cache what it left there. It is worth waiting until all have begun, but not sleeping.
 *
 * The hall of a pair stands in the block of the lower rank. A rank that begins run r stores r in `begun`, which
 * releases what it wrote before; who acquires the r of both may read and write both faces, if it takes a share of run r
 * by changing its word from an earlier run's to this one's with its own rank in it. `over` counts the shares that are
 * done, of all runs: the adds release what was copied and form one chain, so who finds r * SWAP_SHARES there acquires
 * all of it. Neither of the two begins run r + 1 before that. So who finds a word of an earlier run takes a share that
 * nobody has copied, and no copy of run r is left when its memory is the owner's again. The word says whom to blame for
 * a share that is not done; it is set to SWAP_DONE after `over` was added to.
 *
 * All ranks agree on it at bind, by their votes: until then messages are staged ones like others of their kind, and
 * remain so if one rank says no. */
#define _GNU_SOURCE
#include <sched.h>

#include "base/error.h"
#include "engine/block.h"
#include "engine/drivers/swap.h"
#include "engine/shape.h"
#include "transport/hosts/hosts.h"

#define RUNS_LEAST 8192 /* of a message: those of a shorter one stay in the cache until it is unpacked */
#define SPAN (4 << 20)  /* bytes of memory that a face is spread over: more than a core's own cache */
#define RANKS_MOST 64   /* that share cores */
#define BLOCK 64        /* runs of each line in turn: their lines stay in the smallest cache */
#define PASS (64 << 10) /* runs of a pass, a fraction of a millisecond */
#define OUTER 2         /* loops over runs */

/* Runs that go from one place to another, one way. */
struct swap_line {
    char *dst;
    const char *src;
    int64_t dstep[OUTER], sstep[OUTER];
};

struct swap_pair {
    int low, high; /* its ranks */
    struct swap_hall *hall;
    struct swap_line *lines; /* those that the lower rank sends and those that it receives, in turn */
    uint32_t nlines;
    int64_t n[OUTER]; /* runs, of all lines alike */
    size_t unit;      /* bytes of a run */
    int share;        /* that this rank is at, -1: none */
};

/* Faces that are copied where they lie, with each neighbour. */
struct swaps {
    bool helps; /* pairs that this rank is not in are among these */
    bool calls; /* those who sleep have yet to be woken for what was begun or done here */
    uint32_t n;
    struct swap_pair *pairs;
};

/* ---- making ---- */

static bool fits_step(const weft_exec *x, const struct program *p, uint32_t s)
{
    const struct plan_step *st = &x->plan->steps[s];
    if (st->ndeps || st->kind == PLAN_REDUCE)
        return false;
    if (st->kind == PLAN_COPY)
        return true; /* swap_make, which knows, takes those that change nothing */
    for (uint32_t k = 0; k < st->nparts; k++)
        if (!p->places[x->plan->parts[st->part + k].buf].reached)
            return false;
    return (st->kind != PLAN_SEND || p->steps[s].offer == OFFER_STAGED) && shape_scattered(x, p, &s, 1) &&
           shape_spans(x, p, s) >= RUNS_LEAST;
}

static bool fits(const weft_exec *x, const struct program *p)
{
    const weft_comm *c = x->comm;
    bool few = c->dedicated_cores ? p->nouts == 1 : c->size <= RANKS_MOST;
    bool fit = few && !c->staged && p->nouts && p->nouts == p->nins;
    for (int r = 0; r < c->size && fit; r++)
        fit = !transport_far(c->link, r);
    for (uint32_t i = 0; i < p->nouts && fit; i++)
        fit = program_hears(p, p->outs[i].peer);
    for (uint32_t s = 0; s < p->nsteps && fit; s++)
        fit = fits_step(x, p, s);
    return fit;
}

/* Are the halls shown to all ranks? */
static bool all_help(const weft_exec *x)
{
    return !x->comm->dedicated_cores;
}

static uint64_t room(const weft_exec *x, const struct program *p, bool *shown)
{
    bool fit = fits(x, p);
    *shown |= fit && all_help(x);
    return fit ? p->nouts * sizeof(struct swap_hall) : 0;
}

/* A face: messages of one channel as their sender and their receiver have described them. */
struct face {
    const struct block *from, *to;
    const struct block_message *sends, *recvs;
    uint32_t n;
};

static int64_t emit_span_of(const struct swap_pair *pair, const int64_t *step)
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
    int loops = shape_merge(src->nloops, n, stride, 2);
    bool run = loops && stride[0][loops - 1] == size && stride[1][loops - 1] == size;
    int outer = loops - run, first = OUTER - outer;
    if (outer < 1 || outer > OUTER)
        return false;
    *line = (struct swap_line){.dst = link->transport->reach(link, x->comm->rank, dst->at),
                               .src = link->transport->reach(link, x->comm->rank, src->at)};
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
    return alike && (!x->comm->dedicated_cores ||
                     (emit_span_of(pair, line->dstep) >= SPAN && emit_span_of(pair, line->sstep) >= SPAN));
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

/* What rank a, whose block is `from`, sends to rank b; *i: its channel. */
static bool find_face(const struct block *from, int a, const struct block *to, int b, struct face *f, uint32_t *i)
{
    uint32_t k = 0;
    for (*i = 0; *i < from->nouts && block_outs(from)[*i].peer != b;)
        ++*i;
    while (k < to->nins && block_ins(to)[k].peer != a)
        k++;
    if (*i == from->nouts || k == to->nins || block_outs(from)[*i].n != block_ins(to)[k].n)
        return false;
    *f = (struct face){from, to, block_messages(from) + block_outs(from)[*i].message,
                       block_messages(to) + block_ins(to)[k].message, block_outs(from)[*i].n};
    return true;
}

static bool make_pair(weft_exec *x, struct program *p, const struct block *low, const struct block *high,
                      struct swap_pair *pair)
{
    struct face up, down;
    uint32_t at, other;
    struct swap_hall *halls = driver_room(&driver_swap, low);
    if (!halls || !driver_room(&driver_swap, high) || !find_face(low, pair->low, high, pair->high, &up, &at) ||
        !find_face(high, pair->high, low, pair->low, &down, &other))
        return false;
    pair->hall = halls + at;
    uint32_t n = parts_of(&up);
    pair->lines = n && n == parts_of(&down) ? program_take(p, 2 * n, sizeof *pair->lines) : NULL;
    if (!pair->lines || !add_face(x, pair, &up, pair->lines) || !add_face(x, pair, &down, pair->lines + 1))
        return false;
    if (pair->low == x->comm->rank) /* the same number as after the last run, if that was one of these */
        atomic_store_explicit(&pair->hall->over, x->run * SWAP_SHARES,
                              memory_order_relaxed); /* published by the meeting */
    return true;
}

/* The pairs of a rank with higher ones, if this rank is in them or helps. */
static bool make_pairs(weft_exec *x, struct program *p, struct swaps *w, int low, const uint64_t *block_at)
{
    const weft_comm *c = x->comm;
    const struct block *b = c->transport->reach(c->link, low, block_at[low]);
    for (uint32_t i = 0; i < b->nouts; i++) {
        int high = block_outs(b)[i].peer;
        bool in_it = low == c->rank || high == c->rank;
        if (high < low || !(in_it || (w->helps && b->shown)))
            continue;
        struct swap_pair *pair = &w->pairs[w->n++];
        *pair = (struct swap_pair){.low = low, .high = high, .share = -1};
        if (!make_pair(x, p, b, c->transport->reach(c->link, high, block_at[high]), pair))
            return false;
    }
    return true;
}

static int make(weft_exec *x, struct program *p, const uint64_t *block_at, void *state, bool *can)
{
    const weft_comm *c = x->comm;
    struct swaps *w = state;
    bool fit = driver_room(&driver_swap, x->block) && fits(x, p);
    uint32_t most = 0;
    for (uint32_t s = 0; s < p->nsteps && fit; s++)
        fit = p->steps[s].kind != PLAN_COPY || !p->steps[s].nwork;
    w->helps = all_help(x);
    for (int r = 0; r < c->size && fit; r++)
        most += ((const struct block *)c->transport->reach(c->link, r, block_at[r]))->nouts;
    w->pairs = fit ? program_take(p, most, sizeof *w->pairs) : NULL;
    fit = fit && w->pairs;
    for (int r = 0; r < c->size && fit; r++)
        fit = make_pairs(x, p, w, r, block_at);
    *can = fit;
    return 0;
}

/* ---- the run ---- */

static bool mine(const weft_exec *x, const struct swap_pair *pair)
{
    return pair->low == x->comm->rank || pair->high == x->comm->rank;
}

static bool has_begun(const weft_exec *x, const struct swap_pair *pair, bool high)
{
    return atomic_load_explicit(&pair->hall->begun[high].run, memory_order_seq_cst) >= x->run;
}

static bool ready(const weft_exec *x, const struct swap_pair *pair)
{
    return has_begun(x, pair, false) && has_begun(x, pair, true);
}

static bool over(const weft_exec *x, const struct swap_pair *pair)
{
    return atomic_load_explicit(&pair->hall->over, memory_order_seq_cst) >= x->run * SWAP_SHARES;
}

static void start(weft_exec *x)
{
    struct swaps *w = driver_state(x);
    x->program->left = 1;
    w->calls = true;
    for (uint32_t i = 0; i < w->n; i++)
        if (mine(x, &w->pairs[i]))
            atomic_store_explicit(&w->pairs[i].hall->begun[w->pairs[i].high == x->comm->rank].run, x->run,
                                  memory_order_seq_cst);
}

static void call(weft_exec *x)
{
    struct swaps *w = driver_state(x);
    if (!w->calls)
        return;
    w->calls = false;
    core_fence_all(); /* between what was stored and the looks at who sleeps, as in core_signal */
    for (int i = 1; i < x->comm->size && w->helps; i++)
        core_call_fenced(x->comm->group, (x->comm->rank + i) % x->comm->size);
    for (uint32_t i = 0; i < x->program->nouts && !w->helps; i++)
        core_call_fenced(x->comm->group, x->program->outs[i].peer);
}

/* Runs `first` to `end` - 1 of all lines. */
static void copy(const struct swap_pair *pair, int64_t first, int64_t end)
{
    for (int64_t at = first, n; at < end; at += n) {
        int64_t outer = at / pair->n[1], inner = at % pair->n[1];
        n = pair->n[1] - inner < end - at ? pair->n[1] - inner : end - at;
        for (uint32_t i = 0; i < pair->nlines; i++) {
            const struct swap_line *l = &pair->lines[i];
            memory_copy_units(l->dst + outer * l->dstep[0] + inner * l->dstep[1], l->dstep[1],
                              l->src + outer * l->sstep[0] + inner * l->sstep[1], l->sstep[1], n, pair->unit);
        }
    }
}

/* Takes a share, the first or the last that is left; -1: there is none. */
static int take(const weft_exec *x, const struct swap_pair *pair, bool back)
{
    const uint64_t word = x->run << SWAP_WHO_BITS | (uint64_t)(x->comm->rank + 1);
    for (int i = 0; i < SWAP_SHARES; i++) {
        int share = back ? SWAP_SHARES - 1 - i : i;
        _Atomic uint64_t *taken = &pair->hall->taken[share];
        uint64_t was = atomic_load_explicit(taken, memory_order_relaxed);
        if (was >> SWAP_WHO_BITS < x->run &&
            atomic_compare_exchange_strong_explicit(taken, &was, word, memory_order_acq_rel, memory_order_relaxed))
            return share;
    }
    return -1;
}

static int64_t first_of(const struct swap_pair *pair, int share)
{
    return pair->n[0] * pair->n[1] * share / SWAP_SHARES;
}

/* Takes a share of each pair that has begun, and copies these side by side. Returns the runs. */
static int64_t do_shares(weft_exec *x, bool back)
{
    struct swaps *w = driver_state(x);
    int64_t most = 0, runs = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        struct swap_pair *pair = &w->pairs[i];
        pair->share = core_failed(x->comm->group) || !ready(x, pair) ? -1 : take(x, pair, back);
        int64_t n = pair->share < 0 ? 0 : first_of(pair, pair->share + 1) - first_of(pair, pair->share);
        most = n > most ? n : most;
        runs += n * pair->nlines;
    }
    for (int64_t at = 0; at < most; at += BLOCK)
        for (uint32_t i = 0; i < w->n; i++) {
            const struct swap_pair *pair = &w->pairs[i];
            if (pair->share < 0)
                continue;
            int64_t first = first_of(pair, pair->share) + at, end = first_of(pair, pair->share + 1);
            copy(pair, first, first + BLOCK < end ? first + BLOCK : end);
        }
    for (uint32_t i = 0; i < w->n; i++) {
        const struct swap_pair *pair = &w->pairs[i];
        if (pair->share < 0)
            continue;
        atomic_fetch_add_explicit(&pair->hall->over, 1, memory_order_seq_cst);
        atomic_store_explicit(&pair->hall->taken[pair->share], x->run << SWAP_WHO_BITS | SWAP_DONE,
                              memory_order_relaxed);
    }
    return runs;
}

static bool work(weft_exec *x)
{
    struct swaps *w = driver_state(x);
    const bool back = w->helps ? sched_getcpu() & 1 : w->pairs[0].high == x->comm->rank;
    int64_t room = PASS, runs;
    bool any = false;
    do {
        runs = do_shares(x, back);
        any |= runs > 0;
        room -= runs;
    } while (runs && room > 0);
    w->calls |= any;
    return any;
}

static bool all_ready(const weft_exec *x)
{
    const struct swaps *w = driver_state(x);
    for (uint32_t i = 0; i < w->n; i++)
        if (!ready(x, &w->pairs[i]))
            return false;
    return true;
}

static bool all_over(const weft_exec *x)
{
    const struct swaps *w = driver_state(x);
    for (uint32_t i = 0; i < w->n; i++)
        if (mine(x, &w->pairs[i]) && !over(x, &w->pairs[i]))
            return false;
    return true;
}

static bool pass(weft_exec *x, bool eager)
{
    struct program *p = x->program;
    const struct swaps *w = driver_state(x);
    bool moved = (eager || !w->helps || all_ready(x)) && work(x);
    call(x);
    if (!all_over(x))
        return moved;
    for (uint32_t s = 0; s < p->nsteps && x->arrivals; s++)
        arrivals_step(x, s);
    p->left = 0;
    return true;
}

/* ---- waiting ---- */

static bool has_share(const weft_exec *x, const struct swap_pair *pair, int rank)
{
    for (int i = 0; i < SWAP_SHARES; i++)
        if (atomic_load_explicit(&pair->hall->taken[i], memory_order_seq_cst) ==
            (x->run << SWAP_WHO_BITS | (uint64_t)(rank + 1)))
            return true;
    return false;
}

/* For the rank to begin, or to copy what it has taken. */
static bool waits(const weft_exec *x, int rank)
{
    const struct swaps *w = driver_state(x);
    for (uint32_t i = 0; i < w->n; i++) {
        const struct swap_pair *pair = &w->pairs[i];
        if (!mine(x, pair) || over(x, pair))
            continue;
        bool lacks =
            (rank == pair->low && !has_begun(x, pair, false)) || (rank == pair->high && !has_begun(x, pair, true));
        if (lacks || has_share(x, pair, rank))
            return true;
    }
    return false;
}

static bool done(const weft_exec *x, int peer)
{
    const struct swaps *w = driver_state(x);
    for (uint32_t i = 0; i < w->n; i++)
        if (mine(x, &w->pairs[i]) && (w->pairs[i].low == peer || w->pairs[i].high == peer))
            return over(x, &w->pairs[i]);
    return true;
}

static int lacking(const weft_exec *x)
{
    const struct swaps *w = driver_state(x);
    int n = 0;
    for (uint32_t i = 0; i < w->n; i++)
        n += mine(x, &w->pairs[i]) && !ready(x, &w->pairs[i]);
    return n ? n : 1;
}

static bool in_waits(const weft_exec *x, const struct exec_in *in)
{
    return waits(x, in->peer);
}

static bool out_waits(const weft_exec *x, const struct exec_out *out)
{
    return waits(x, out->peer);
}

/* A rank that copies for others need not be a peer. */
static bool rank_waits(const weft_exec *x, int rank)
{
    const struct swaps *w = driver_state(x);
    return w->helps && waits(x, rank);
}

static struct driver_count in_count(const weft_exec *x, const struct exec_in *in)
{
    uint32_t n = done(x, in->peer) ? in->n : 0;
    return (struct driver_count){n, n, n};
}

static struct driver_count out_count(const weft_exec *x, const struct exec_out *out)
{
    uint32_t n = done(x, out->peer) ? out->n : 0;
    return (struct driver_count){n, n, n};
}

const struct driver driver_swap = {
    .id = DRIVER_SWAP,
    .name = "swap",
    .what = "faces that two ranks give each other, copied where they lie by either",
    .agreed = true,
    .copies = true,
    .state = sizeof(struct swaps),
    .room = room,
    .make = make,
    .start = start,
    .pass = pass,
    .call = call,
    .in_waits = in_waits,
    .out_waits = out_waits,
    .rank_waits = rank_waits,
    .lacking = lacking,
    .in_count = in_count,
    .out_count = out_count,
};
