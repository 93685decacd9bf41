/* The driver "faces": two ranks give each other faces where they lie, and share the copies (jobs.h). For programs that
 * have nothing else, whose faces have each cell in a cache line of its own, beside the cell that is received (the x
 * faces of a 3-d array). Packed and unpacked, each line would be fetched twice, and by then the first cells of a long
 * face have left the cache. Here one walk along both faces does both directions: it reads and writes a line of either
 * rank once. The faces of two ranks are cut into SHARES jobs; the words of jobs.h stand in the control block of the
 * lower rank.
 *
 * Where every rank has a core, both ranks of a pair walk, from either end, until they meet. A rank that comes late, or
 * computes, finds it done. Half of each face is then fetched by the other core. That costs nothing extra if the owner's
 * work has driven the face out of its own cache, and more than packing otherwise; so a face has to span more memory
 * than that cache. And each rank has one neighbour: the lines of a rank between two others would go from core to core.
 *
 * Where ranks share cores, the rank that runs walks along the faces of all pairs that have begun, also of those that it
 * is not in, row by row, so that the line of a rank between two others is fetched once. Each core has an end of its
 * own, so that it finds in its cache what it left there. It is worth waiting until all have begun, but not sleeping.
 *
 * Until all ranks have voted for it at bind, the messages are staged, as scattered messages are. They remain so if one
 * rank votes against it. */
#define _GNU_SOURCE
#include <sched.h>

#include "base/error.h"
#include "engine/drivers/jobs.h"
#include "engine/shape.h"
#include "transport/hosts/hosts.h"

#define RUNS_LEAST 8192 /* runs of a message: a shorter one stays in the cache between packing and unpacking */
#define SPAN (4 << 20)  /* bytes of memory over which a face is spread: more than a core's own cache */
#define SHARES 16       /* jobs of a pair */
#define BLOCK 64        /* runs of each line in turn, whose cache lines stay in the smallest cache */
#define PASS (64 << 10) /* runs of a pass: a fraction of a millisecond */
#define OUTER 2         /* loops over runs */

/* Runs of one part of a face, in OUTER loops. */
struct face_line {
    char *dst;
    const char *src;
    int64_t dstep[OUTER], sstep[OUTER];
};

struct face_pair {
    struct face_line *lines; /* those that the lower rank sends and those that it receives, in turn */
    uint32_t nlines;
    int64_t n[OUTER]; /* runs, the same for all lines */
    size_t unit;      /* bytes of a run */
    int share;        /* the job that this rank is at; -1: none */
};

struct faces {
    struct jobs_state shared; /* a group for each pair */
    struct face_pair *pairs;
};

/* ---- making ---- */

static bool fits_step(const weft_exec *x, const struct program *p, uint32_t s)
{
    const struct plan_step *st = &x->plan->steps[s];
    if (st->ndeps || st->kind == PLAN_REDUCE)
        return false;
    if (st->kind == PLAN_COPY)
        return true; /* a copy onto itself fits; `make` refuses the others */
    for (uint32_t k = 0; k < st->nparts; k++)
        if (!p->places[x->plan->parts[st->part + k].buf].reached)
            return false;
    return (st->kind != PLAN_SEND || p->steps[s].offer == OFFER_STAGED) && shape_scattered(x, p, &s, 1) &&
           shape_spans(x, p, s) >= RUNS_LEAST;
}

static bool fits(const weft_exec *x, const struct program *p)
{
    const weft_comm *c = x->comm;
    bool few = c->dedicated_cores ? p->nouts == 1 : c->size <= JOBS_RANKS;
    bool fit = few && !c->staged && p->nouts && p->nouts == p->nins;
    for (int r = 0; r < c->size && fit; r++)
        fit = !transport_elsewhere(c->link, r);
    for (uint32_t i = 0; i < p->nouts && fit; i++)
        fit = program_hears(p, p->outs[i].peer);
    for (uint32_t s = 0; s < p->nsteps && fit; s++)
        fit = fits_step(x, p, s);
    return fit;
}

#define HELPERS 64 /* with more ranks, bind would map the blocks of all of them on each rank */

/* Do all ranks walk along the faces of all pairs? */
static bool all_help(const weft_exec *x)
{
    return !x->comm->dedicated_cores && x->comm->size <= HELPERS;
}

static uint64_t words_bytes(void)
{
    return jobs_bytes(2, SHARES);
}

static uint64_t room(const weft_exec *x, const struct program *p, bool *shown)
{
    bool fit = fits(x, p);
    *shown |= fit && all_help(x);
    return fit ? p->nouts * words_bytes() : 0;
}

/* A face: messages of one channel as their sender and their receiver have described them. */
struct face {
    const struct block *from, *to;
    const struct block_message *sends, *recvs;
    uint32_t n;
};

static int64_t span_of(const struct face_pair *pair, const int64_t *step)
{
    int64_t span = 0;
    for (int i = 0; i < OUTER; i++) {
        int64_t all = pair->n[i] * step[i];
        all = all < 0 ? -all : all;
        span = all > span ? all : span;
    }
    return span;
}

/* Makes a line of part q of message k. False: it cannot be one, or differs from those before. */
static bool add_line(const weft_exec *x, struct face_pair *pair, const struct face *f, uint32_t k, uint32_t q,
                     struct face_line *line)
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
    *line = (struct face_line){.dst = link->transport->reach(link, x->comm->rank, dst->at),
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
    return alike &&
           (!x->comm->dedicated_cores || (span_of(pair, line->dstep) >= SPAN && span_of(pair, line->sstep) >= SPAN));
}

static uint32_t parts_of(const struct face *f)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < f->n; k++)
        n += f->sends[k].nparts;
    return n;
}

/* Makes every other line from `line` on. */
static bool add_face(const weft_exec *x, struct face_pair *pair, const struct face *f, struct face_line *line)
{
    bool fit = true;
    for (uint32_t k = 0; k < f->n && fit; k++)
        for (uint32_t q = 0; q < f->sends[k].nparts && fit; q++, line += 2)
            fit = f->sends[k].nparts == f->recvs[k].nparts && add_line(x, pair, f, k, q, line);
    return fit;
}

/* What rank a, whose block is `from`, sends to rank b. Sets *i to its channel. */
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
                      struct jobs *jobs, struct face_pair *pair)
{
    struct face up, down;
    uint32_t at, other;
    char *words = driver_room(&driver_faces, low);
    if (!words || !driver_room(&driver_faces, high) || !find_face(low, jobs->low, high, jobs->high, &up, &at) ||
        !find_face(high, jobs->high, low, jobs->low, &down, &other))
        return false;
    jobs->words = (struct jobs_words *)(void *)(words + at * words_bytes());
    uint32_t n = parts_of(&up);
    pair->lines = n && n == parts_of(&down) ? program_take(p, 2 * n, sizeof *pair->lines) : NULL;
    if (!pair->lines || !add_face(x, pair, &up, pair->lines) || !add_face(x, pair, &down, pair->lines + 1))
        return false;
    if (jobs->low == x->comm->rank)
        jobs_reset(x, jobs);
    return true;
}

/* The pairs of rank `low` with higher ranks, if this rank is in them or may do their jobs. */
static bool make_pairs(weft_exec *x, struct program *p, struct faces *f, int low, const uint64_t *block_at)
{
    const weft_comm *c = x->comm;
    const struct block *b = c->transport->reach(c->link, low, block_at[low]);
    for (uint32_t i = 0; i < b->nouts; i++) {
        int high = block_outs(b)[i].peer;
        bool in_it = low == c->rank || high == c->rank;
        if (high < low || !(in_it || (f->shared.all && b->shown)))
            continue;
        struct jobs *jobs = &f->shared.groups[f->shared.n];
        struct face_pair *pair = &f->pairs[f->shared.n++];
        *jobs = (struct jobs){.pair = true, .low = low, .high = high, .ranks = 2, .n = SHARES};
        *pair = (struct face_pair){.share = -1};
        if (!make_pair(x, p, b, c->transport->reach(c->link, high, block_at[high]), jobs, pair))
            return false;
    }
    return true;
}

/* Is the rank in a pair that this rank works on? */
static bool works_with(const weft_exec *x, const struct program *p, const struct faces *f, int rank)
{
    return f->shared.all || rank == x->comm->rank || program_hears(p, rank);
}

static int make(weft_exec *x, struct program *p, const uint64_t *block_at, void *state, bool *can)
{
    const weft_comm *c = x->comm;
    struct faces *f = state;
    bool fit = driver_room(&driver_faces, x->block) && fits(x, p);
    uint32_t most = 0;
    for (uint32_t s = 0; s < p->nsteps && fit; s++)
        fit = p->steps[s].kind != PLAN_COPY || !p->steps[s].nwork;
    f->shared.all = all_help(x);
    for (int r = 0; r < c->size && fit; r++)
        if (works_with(x, p, f, r))
            most += ((const struct block *)c->transport->reach(c->link, r, block_at[r]))->nouts;
    f->pairs = fit ? program_take(p, most, sizeof *f->pairs) : NULL;
    f->shared.groups = fit ? program_take(p, most, sizeof *f->shared.groups) : NULL;
    fit = fit && f->pairs && f->shared.groups;
    for (int r = 0; r < c->size && fit; r++)
        fit = !works_with(x, p, f, r) || make_pairs(x, p, f, r, block_at);
    *can = fit;
    return 0;
}

/* ---- the run ---- */

/* Copies runs `first` to `end` - 1 of all lines. */
static void copy(const struct face_pair *pair, int64_t first, int64_t end)
{
    for (int64_t at = first, n; at < end; at += n) {
        int64_t outer = at / pair->n[1], inner = at % pair->n[1];
        n = pair->n[1] - inner < end - at ? pair->n[1] - inner : end - at;
        for (uint32_t i = 0; i < pair->nlines; i++) {
            const struct face_line *l = &pair->lines[i];
            memory_copy_units(l->dst + outer * l->dstep[0] + inner * l->dstep[1], l->dstep[1],
                              l->src + outer * l->sstep[0] + inner * l->sstep[1], l->sstep[1], n, pair->unit);
        }
    }
}

/* Claims the first share that is left, or the last if `back`; -1: there is none. */
static int claim(weft_exec *x, const struct jobs *jobs, bool back)
{
    for (int i = 0; i < SHARES; i++) {
        int share = back ? SHARES - 1 - i : i;
        if (jobs_claim(x, jobs, (uint32_t)share))
            return share;
    }
    return -1;
}

static int64_t first_of(const struct face_pair *pair, int share)
{
    return pair->n[0] * pair->n[1] * share / SHARES;
}

/* Claims a share of each pair that has begun, and copies these side by side. Returns the number of runs. */
static int64_t do_shares(weft_exec *x, bool back)
{
    const struct faces *f = driver_state(x);
    int64_t most = 0, runs = 0;
    for (uint32_t i = 0; i < f->shared.n; i++) {
        struct face_pair *pair = &f->pairs[i];
        const struct jobs *jobs = &f->shared.groups[i];
        pair->share = jobs_ready(x, jobs) ? claim(x, jobs, back) : -1;
        int64_t n = pair->share < 0 ? 0 : first_of(pair, pair->share + 1) - first_of(pair, pair->share);
        most = n > most ? n : most;
        runs += n * pair->nlines;
    }
    for (int64_t at = 0; at < most; at += BLOCK)
        for (uint32_t i = 0; i < f->shared.n; i++) {
            const struct face_pair *pair = &f->pairs[i];
            if (pair->share < 0)
                continue;
            int64_t first = first_of(pair, pair->share) + at, end = first_of(pair, pair->share + 1);
            copy(pair, first, first + BLOCK < end ? first + BLOCK : end);
        }
    for (uint32_t i = 0; i < f->shared.n; i++)
        if (f->pairs[i].share >= 0)
            jobs_finish(x, &f->shared.groups[i], (uint32_t)f->pairs[i].share);
    return runs;
}

static bool work(weft_exec *x)
{
    const struct jobs_state *s = driver_state(x);
    const bool back = s->all ? sched_getcpu() & 1 : s->groups[0].high == x->comm->rank;
    int64_t room = PASS, runs;
    bool any = false;
    do {
        runs = do_shares(x, back);
        any |= runs > 0;
        room -= runs;
    } while (runs && room > 0);
    return any;
}

static bool all_ready(const weft_exec *x)
{
    const struct jobs_state *s = driver_state(x);
    for (uint32_t i = 0; i < s->n; i++)
        if (!jobs_ready(x, &s->groups[i]))
            return false;
    return true;
}

static bool pass(weft_exec *x, bool idle)
{
    const struct jobs_state *s = driver_state(x);
    bool moved = (idle || !s->all || all_ready(x)) && work(x);
    jobs_call(x);
    if (!jobs_all_over(x))
        return moved;
    jobs_end(x);
    return true;
}

/* A rank that does a job of this one need not be a peer. */
static bool rank_waits(const weft_exec *x, int rank)
{
    const struct jobs_state *s = driver_state(x);
    return s->all && jobs_rank_waits(x, rank);
}

const struct driver driver_faces = {
    .id = DRIVER_FACES,
    .name = "faces",
    .what = "faces that two ranks give each other, copied where they lie by either",
    .agreed = true,
    .copies = true,
    .state = sizeof(struct faces),
    .room = room,
    .make = make,
    .start = jobs_start,
    .pass = pass,
    .call = jobs_call,
    .in_waits = jobs_in_waits,
    .out_waits = jobs_out_waits,
    .rank_waits = rank_waits,
    .lacking = jobs_lacking,
    .in_count = jobs_in_count,
    .out_count = jobs_out_count,
};
