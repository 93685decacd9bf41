/* Copies that any rank may do. In a program in which every rank sends to every other, no step waits for another and all
 * memory can be reached by all, the copies of a rank (what it sends, and its own) are a chore: a list of lines in its
 * block. Who finds that all have begun does its own, and those that nobody has taken, whosesoever they are; a rank is
 * through when all are done.
 *
 * Where ranks share cores, what a run of many small pieces takes is mostly the way from one rank to the next: each is
 * given the core to begin, once more to copy when all have begun, and once more to find that the others have copied,
 * too. With chores the first one that can does all of them without giving up its core; for the others nothing is left
 * to do. Where every rank has a core, each does its own, most often. What is gained is that many small pieces are
 * copied once, tensor by tensor, rather than packed for one peer after another and unpacked; and that there are two
 * signals for all peers. But nothing is copied before the last rank has begun, so it is done only for what is short, or
 * in many pieces.
 *
 * `begun` counts the ranks that have begun a run, `over` the chores that are done, both over all runs: in run r all
 * have begun when it reaches r * n. It cannot be there too early: nobody begins run r + 1 before all chores of run r
 * are done, and so all have begun that. Adding to either releases what was written before, and keeps what others have
 * released; who finds the sum acquires all of it.
 *
 * A chore is taken by who changes its word from an earlier run's to this run's with its own rank in it. The word says
 * whom to blame for one that is not done; so it is set to DONE after `over` was added to: a rank that dies between the
 * two has done its part. */
#define _GNU_SOURCE
#include <sched.h>
#include <string.h>

#include "base/error.h"
#include "engine/block.h"
#include "engine/driver.h"
#include "engine/shape.h"

#define RANKS_MOST 64
#define LINES_MOST 65536      /* which is 5 MiB for both lists */
#define BYTES_MOST (8 << 20)  /* of a chore, and after which a pass takes no other one: half a millisecond */
#define ROWS_MOST (128 << 10) /* bytes of a tensor in rows: more are better walked row by row (weave.c) */
#define SPUN_MOST (256 << 10) /* bytes of a chore where every rank has a core and pieces are larger */
#define PIECES 4              /* in a message, at least, */
#define PIECE 1024            /* of so many bytes in the mean, at most: they are small and many, */
#define PIECES_LARGE 16       /* or larger, but as many as that, and no more than SPUN_MOST in all */
#define PIECES_ALL 64         /* to all peers, for which it is better to wait for all than to pack */
#define SHARED (256 << 10)    /* of a chore: ranks that sleep are woken to take some before, not after */
#define WHO_BITS 8
#define DONE ((1 << WHO_BITS) - 1)
#define LINGER 100 /* turns for which chores that others are at are waited for before the core is given up */

struct chore_line {
    uint64_t dst, src; /* places */
    int64_t dstep, sstep;
    uint32_t n, bytes; /* n times so many */
};

/* In the block; two, so that what was bound before stays as it is should binding again be refused. */
struct chore_list {
    uint64_t n;
    int64_t bytes; /* of all lines */
    struct chore_line lines[];
};

/* In the block, before the lists; that of rank 0 is the one that counts. */
struct chore_hall {
    uint64_t list_bytes; /* of each list */
    _Alignas(CORE_LINE) _Atomic uint64_t begun;
    _Alignas(CORE_LINE) _Atomic uint64_t over;
    struct chore_word {
        _Alignas(CORE_LINE) _Atomic uint64_t here; /* the last run that the rank has begun */
        _Atomic int64_t core;                      /* on which it did */
        _Atomic uint64_t taken; /* its chore: run << WHO_BITS | one more than the rank that has it, or DONE */
    } words[RANKS_MOST];
};

/* Copies that any rank may do, of all ranks from this one on, round the world. */
struct chores {
    bool side;  /* which lists are of this program */
    bool calls; /* those who sleep have yet to be woken for what was begun or done here */
    uint32_t n; /* ranks */
    uintptr_t base;
    struct chore_hall *hall;
    const struct chore_list **lists;
};

/* ---- making ---- */

static uint64_t most_lines(const weft_plan *plan)
{
    uint64_t n = 0;
    for (size_t s = 0; s < plan->nsteps; s++)
        n += plan->steps[s].kind == PLAN_SEND ? plan->steps[s].nparts : plan->steps[s].kind == PLAN_COPY;
    return n;
}

static bool fits_way(const struct exec_step *step)
{
    return step->kind != PLAN_SEND || step->offer == OFFER_PLACE;
}

/* Is it one that has no part but in memory that all can reach, and waits for nothing? */
static bool fits_step(const weft_plan *plan, const struct program *p, uint32_t s)
{
    const struct plan_step *st = &plan->steps[s];
    if (st->ndeps || st->kind == PLAN_REDUCE || !fits_way(&p->steps[s]))
        return false;
    for (uint32_t k = 0; k < st->nparts; k++)
        if (!p->places[plan->parts[st->part + k].buf].reached)
            return false;
    return true;
}

/* What it has to copy. */
struct load {
    int64_t bytes;          /* of all that it sends, and of its own copies */
    int64_t sent;           /* of the first alone, */
    uint64_t sends, pieces; /* messages and their parts */
};

static struct load load_of(const weft_plan *plan)
{
    struct load all = {0};
    for (size_t s = 0; s < plan->nsteps; s++) {
        const struct plan_step *st = &plan->steps[s];
        bool send = st->kind == PLAN_SEND;
        for (uint32_t k = 0; k < st->nparts && (send || (st->kind == PLAN_COPY && !k)); k++) {
            const struct plan_part *part = &plan->parts[st->part + k];
            int64_t bytes = part->count * (int64_t)weft_dtype_size(plan->bufs[part->buf].dtype);
            all.bytes += bytes;
            all.sent += send ? bytes : 0;
        }
        all.sends += send;
        all.pieces += send ? st->nparts : 0;
    }
    return all;
}

static bool small_and_many(const struct load *l)
{
    return l->pieces >= PIECES * l->sends && l->sent <= PIECE * (int64_t)l->pieces;
}

static bool large_but_many(const struct load *l)
{
    return l->pieces >= PIECES_LARGE * l->sends && l->bytes <= SPUN_MOST;
}

static bool fits(const weft_exec *x, const struct program *p)
{
    const weft_plan *plan = x->plan;
    uint32_t others = (uint32_t)x->comm->size - 1;
    if (x->comm->staged || x->comm->size > RANKS_MOST || !others || p->nins != others || p->nouts != others)
        return false;
    for (uint32_t s = 0; s < p->nsteps; s++)
        if (!fits_step(plan, p, s))
            return false;
    struct load all = load_of(plan);
    return all.bytes <= BYTES_MOST && most_lines(plan) <= LINES_MOST &&
           (!x->comm->dedicated_cores || small_and_many(&all) || large_but_many(&all));
}

/* Are `turns` runs of so many bytes, in `outer` loops, a line? */
static bool is_line(const weft_exec *x, int outer, int64_t turns, int64_t bytes)
{
    return outer <= 1 && (!outer || turns * bytes <= ROWS_MOST / x->comm->size);
}

/* Is this rank's side of all messages such that they can be lines? */
static bool lines_here(const weft_exec *x, const struct program *p)
{
    const weft_plan *plan = x->plan;
    for (uint32_t s = 0; s < p->nsteps; s++)
        for (uint32_t k = 0; k < plan->steps[s].nparts && plan->steps[s].kind != PLAN_COPY; k++) {
            const struct plan_part *part = &plan->parts[plan->steps[s].part + k];
            int dtype = plan->bufs[part->buf].dtype;
            int64_t n[MEMORY_LOOPS], stride[1][MEMORY_LOOPS], at, size = (int64_t)weft_dtype_size(dtype);
            int loops =
                shape_merge(shape_loops(plan, part, p->places[part->buf].stride, n, stride[0], &at), n, stride, 1);
            bool run = loops && stride[0][loops - 1] == size;
            if (part->wire != dtype || !is_line(x, loops - run, loops ? n[0] : 1, run ? n[loops - 1] * size : size))
                return false;
        }
    return true;
}

static bool prefers(const weft_exec *x, const struct program *p)
{
    struct load all = load_of(x->plan);
    return all.pieces >= PIECES_ALL && small_and_many(&all) && fits(x, p) && lines_here(x, p);
}

static uint64_t list_bytes(uint64_t lines)
{
    uint64_t bytes = sizeof(struct chore_list) + lines * sizeof(struct chore_line);
    return (bytes + CORE_LINE - 1) / CORE_LINE * CORE_LINE;
}

static uint64_t room(const weft_exec *x, const struct program *p, bool *shown)
{
    (void)shown; /* all ranks are peers */
    return fits(x, p) ? sizeof(struct chore_hall) + 2 * list_bytes(most_lines(x->plan)) : 0;
}

static struct chore_hall *hall_of(const struct block *b)
{
    return driver_room(&driver_chore, b);
}

static struct chore_list *list_of(const struct block *b, uint64_t side)
{
    struct chore_hall *hall = hall_of(b);
    return (struct chore_list *)((char *)(hall + 1) + side * hall->list_bytes);
}

/* Adds what is read at src and written at dst, with the strides of dst in stride[0]; false: it is no line. */
static bool add_line(const weft_exec *x, struct chore_list *list, uint64_t dst, uint64_t src, int loops, int64_t *n,
                     int64_t (*stride)[MEMORY_LOOPS], int64_t size)
{
    loops = shape_merge(loops, n, stride, 2);
    bool run = loops && stride[0][loops - 1] == size && stride[1][loops - 1] == size;
    int outer = loops - run;
    int64_t bytes = run ? n[loops - 1] * size : size, turns = outer ? n[0] : 1;
    if (!is_line(x, outer, turns, bytes))
        return false;
    list->bytes += turns * bytes;
    list->lines[list->n++] = (struct chore_line){
        dst, src, outer ? stride[0][0] : 0, outer ? stride[1][0] : 0, (uint32_t)turns, (uint32_t)bytes};
    return true;
}

static bool add_send(const weft_exec *x, const struct exec_out *out, uint32_t k, uint32_t q, struct chore_list *list)
{
    const struct block *own = x->block, *to = out->block;
    const struct block_part *src = &block_parts(own)[out->sends[k].part + q];
    const struct block_part *dst = &block_parts(to)[out->recvs[k].part + q];
    int64_t n[MEMORY_LOOPS], stride[2][MEMORY_LOOPS];
    if (src->dtype != dst->dtype || src->wire != src->dtype || src->nloops != dst->nloops)
        return false;
    for (int i = 0; i < src->nloops; i++) {
        n[i] = block_loops(own)[src->loop + (uint32_t)i].n;
        stride[0][i] = block_loops(to)[dst->loop + (uint32_t)i].stride;
        stride[1][i] = block_loops(own)[src->loop + (uint32_t)i].stride;
    }
    return add_line(x, list, dst->at, src->at, src->nloops, n, stride, (int64_t)weft_dtype_size(src->dtype));
}

static bool add_copy(const weft_exec *x, const struct program *p, uint32_t s, struct chore_list *list)
{
    const weft_plan *plan = x->plan;
    const struct plan_part *src = &plan->parts[plan->steps[s].part], *dst = src + 1;
    const struct exec_place *from = &p->places[src->buf], *to = &p->places[dst->buf];
    int64_t n[MEMORY_LOOPS], stride[2][MEMORY_LOOPS], first[2];
    if (plan->bufs[src->buf].dtype != plan->bufs[dst->buf].dtype)
        return false;
    shape_loops(plan, src, from->stride, n, stride[1], &first[1]);
    int loops = shape_loops(plan, dst, to->stride, n, stride[0], &first[0]);
    return !p->steps[s].nwork || /* it would change nothing */
           add_line(x, list, to->at + (uint64_t)first[0], from->at + (uint64_t)first[1], loops, n, stride,
                    (int64_t)weft_dtype_size(plan->bufs[src->buf].dtype));
}

/* Of all channels the first parts, then the second ones: what stands side by side in this rank's memory is read so. */
static bool list_sends(const weft_exec *x, const struct program *p, struct chore_list *list)
{
    bool more = true;
    for (uint32_t q = 0; more; q++) {
        more = false;
        for (uint32_t i = 0; i < p->nouts; i++)
            for (uint32_t k = 0; k < p->outs[i].n; k++) {
                if (q >= p->outs[i].sends[k].nparts)
                    continue;
                more = true;
                if (!add_send(x, &p->outs[i], k, q, list))
                    return false;
            }
    }
    return true;
}

static int make(weft_exec *x, struct program *p, const uint64_t *block_at, void *state, bool *can)
{
    struct block *b = x->block;
    struct chores *q = state;
    const struct chores *before = driver_state_of(x->program, &driver_chore);
    bool fit = hall_of(b) && fits(x, p);
    (void)block_at;
    q->side = before && before != q && !before->side;
    q->n = (uint32_t)x->comm->size;
    if (!fit)
        return 0;
    q->lists = program_take(p, q->n, sizeof *q->lists);
    if (!q->lists)
        return error_nomem();
    hall_of(b)->list_bytes = list_bytes(most_lines(x->plan));
    struct chore_list *list = list_of(b, q->side);
    *list = (struct chore_list){.n = 0};
    for (uint32_t s = 0; s < p->nsteps && fit; s++)
        fit = p->steps[s].kind != PLAN_COPY || add_copy(x, p, s, list);
    fit = fit && list_sends(x, p, list);
    if (!x->comm->rank) { /* the same numbers as after the last run, if that was one of chores */
        uint64_t all = x->run * (uint64_t)x->comm->size;
        atomic_store_explicit(&hall_of(b)->begun, all, memory_order_relaxed); /* published by the meeting */
        atomic_store_explicit(&hall_of(b)->over, all, memory_order_relaxed);
    }
    *can = fit;
    return 0;
}

static void open(weft_exec *x, struct program *p, const uint64_t *block_at)
{
    weft_comm *c = x->comm;
    struct chores *q = p->state;
    q->base = (uintptr_t)c->transport->reach(c->link, c->rank, 0);
    q->hall = hall_of(c->transport->reach(c->link, 0, block_at[0]));
    for (uint32_t i = 0; i < q->n; i++) {
        int r = (c->rank + (int)i) % c->size;
        q->lists[i] = list_of(c->transport->reach(c->link, r, block_at[r]), q->side);
    }
}

/* ---- the run ---- */

static uint64_t all_of(const weft_exec *x)
{
    return x->run * ((const struct chores *)driver_state(x))->n;
}

static void start(weft_exec *x)
{
    struct chores *q = driver_state(x);
    x->program->left = 1;
    q->calls = true;
    atomic_fetch_add_explicit(&q->hall->begun, 1, memory_order_seq_cst);
    atomic_store_explicit(&q->hall->words[x->comm->rank].core, sched_getcpu(), memory_order_relaxed);
    atomic_store_explicit(&q->hall->words[x->comm->rank].here, x->run, memory_order_relaxed);
}

static void call(weft_exec *x)
{
    struct chores *q = driver_state(x);
    if (!q->calls)
        return;
    q->calls = false;
    core_fence_all(); /* between what was added and the looks at who sleeps, as in core_signal */
    for (uint32_t i = 1; i < q->n; i++)
        core_call_fenced(x->comm->group, (x->comm->rank + (int)i) % x->comm->size);
}

/* In variables of its own: what is written might else be the line. */
#define COPY_TURNS(bytes)                      \
    for (; n; n--, dst += dstep, src += sstep) \
        memcpy(dst, src, bytes);

static inline void copy(uintptr_t base, const struct chore_line *l)
{
    char *dst = (char *)(base + l->dst);
    const char *src = (const char *)(base + l->src);
    const int64_t dstep = l->dstep, sstep = l->sstep;
    const size_t bytes = l->bytes;
    uint32_t n = l->n;
    switch (bytes) {
    case 4: COPY_TURNS(4) break;
    case 8: COPY_TURNS(8) break;
    case 16: COPY_TURNS(16) break;
    case 32: COPY_TURNS(32) break;
    case 64: COPY_TURNS(64) break;
    case 128: COPY_TURNS(128) break;
    default: COPY_TURNS(bytes)
    }
}

static struct chore_word *word_of(const weft_exec *x, uint32_t i)
{
    const struct chores *q = driver_state(x);
    return &q->hall->words[(x->comm->rank + (int)i) % x->comm->size];
}

/* Takes the chore and does it, if there is room; false: it does not, or another rank has it. */
static bool do_chore(weft_exec *x, uint32_t i, int64_t *room)
{
    struct chores *q = driver_state(x);
    _Atomic uint64_t *word = &word_of(x, i)->taken;
    uint64_t mine = x->run << WHO_BITS | (uint64_t)(x->comm->rank + 1);
    uint64_t was = atomic_load_explicit(word, memory_order_relaxed);
    if (*room <= 0 || was >> WHO_BITS >= x->run || core_failed(x->comm->group) ||
        !atomic_compare_exchange_strong_explicit(word, &was, mine, memory_order_acq_rel, memory_order_relaxed))
        return false;
    for (uint64_t k = 0; k < q->lists[i]->n; k++)
        copy(q->base, &q->lists[i]->lines[k]);
    atomic_fetch_add_explicit(&q->hall->over, 1, memory_order_seq_cst);
    atomic_store_explicit(word, x->run << WHO_BITS | DONE, memory_order_relaxed);
    q->calls = true;
    *room -= q->lists[i]->bytes;
    return true;
}

static bool all_over(const weft_exec *x)
{
    const struct chores *q = driver_state(x);
    return atomic_load_explicit(&q->hall->over, memory_order_seq_cst) >= all_of(x);
}

static bool all_begun(const weft_exec *x)
{
    const struct chores *q = driver_state(x);
    return atomic_load_explicit(&q->hall->begun, memory_order_seq_cst) >= all_of(x);
}

/* First those of the ranks that were on this core: what they have written is in its cache. */
static bool do_all(weft_exec *x)
{
    const struct chores *q = driver_state(x);
    int64_t core = sched_getcpu(), room = BYTES_MOST;
    bool any = false;
    for (uint32_t i = 0; i < q->n; i++)
        if (!i || atomic_load_explicit(&word_of(x, i)->core, memory_order_relaxed) == core)
            any |= do_chore(x, i, &room);
    for (uint32_t i = 1; i < q->n; i++)
        any |= do_chore(x, i, &room);
    return any;
}

static bool pass(weft_exec *x, bool eager)
{
    struct program *p = x->program;
    const struct chores *q = driver_state(x);
    (void)eager;
    bool over = all_over(x), moved = false;
    if (!over && all_begun(x)) {
        if (q->lists[0]->bytes >= SHARED)
            call(x);
        moved = do_all(x);
        over = all_over(x);
        for (int turn = 0; turn < LINGER && !over; turn++) { /* most often they run on another core */
            core_relax();
            over = all_over(x);
        }
    }
    call(x);
    if (!over)
        return moved;
    for (uint32_t s = 0; s < p->nsteps && x->arrivals; s++)
        arrivals_step(x, s);
    p->left = 0;
    return true;
}

/* ---- waiting ---- */

static bool waits(const weft_exec *x, int peer)
{
    const struct chores *q = driver_state(x);
    if (!all_begun(x))
        return atomic_load_explicit(&q->hall->words[peer].here, memory_order_seq_cst) < x->run;
    for (uint32_t i = 0; i < q->n && !all_over(x); i++)
        if (atomic_load_explicit(&q->hall->words[i].taken, memory_order_seq_cst) ==
            (x->run << WHO_BITS | (uint64_t)(peer + 1)))
            return true;
    return false;
}

static bool done(const weft_exec *x, int rank)
{
    const struct chores *q = driver_state(x);
    return all_over(x) ||
           atomic_load_explicit(&q->hall->words[rank].taken, memory_order_seq_cst) == (x->run << WHO_BITS | DONE);
}

static int lacking(const weft_exec *x)
{
    const struct chores *q = driver_state(x);
    uint64_t begun = atomic_load_explicit(&q->hall->begun, memory_order_seq_cst), all = all_of(x);
    return begun < all ? (int)(all - begun) : 1;
}

static bool in_waits(const weft_exec *x, const struct exec_in *in)
{
    return waits(x, in->peer);
}

static bool out_waits(const weft_exec *x, const struct exec_out *out)
{
    return waits(x, out->peer);
}

static struct driver_count in_count(const weft_exec *x, const struct exec_in *in)
{
    uint32_t n = done(x, in->peer) ? in->n : 0;
    return (struct driver_count){n, n, n};
}

static struct driver_count out_count(const weft_exec *x, const struct exec_out *out)
{
    uint32_t n = done(x, x->comm->rank) ? out->n : 0;
    return (struct driver_count){n, n, n};
}

const struct driver driver_chore = {
    .id = DRIVER_CHORE,
    .name = "chore",
    .what = "copies of all ranks in lists that any rank works off",
    .agreed = true,
    .copies = true,
    .state = sizeof(struct chores),
    .prefers = prefers,
    .room = room,
    .make = make,
    .open = open,
    .start = start,
    .pass = pass,
    .call = call,
    .in_waits = in_waits,
    .out_waits = out_waits,
    .lacking = lacking,
    .in_count = in_count,
    .out_count = out_count,
};
