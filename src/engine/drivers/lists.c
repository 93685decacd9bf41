/* The driver "lists": all ranks share their copies (jobs.h). For programs in which every rank sends to every other, no
 * step waits for another, and all memory can be reached by all. The copies of a rank, those that it sends and those to
 * itself, are a list of lines in its control block and one job. A rank that finds that all have begun does its own
 * list, and then those of any ranks that no rank has claimed.
 *
 * Where ranks share cores, context switches cost more than the copies of many small pieces. Without work sharing each
 * rank is scheduled three times in a run: to begin, to copy when all have begun, and to find that the others have
 * copied, too. With it, the rank that is running when the last one has begun does all lists, first those of ranks that
 * ran on its own core; nothing is left to do for the others. Where every rank has a core, each mostly does its own
 * list. What is gained there is that many small pieces are copied once, tensor by tensor, instead of being packed for
 * one peer after another and unpacked, and that there are two signals for all peers. But nothing is copied before the
 * last rank has begun, so it is done only for what is short, or in many pieces. */
#define _GNU_SOURCE
#include <sched.h>

#include "base/error.h"
#include "engine/drivers/jobs.h"
#include "engine/shape.h"
#include "memory/line.h"

#define LINES_MOST 65536      /* lines of a list: 5 MiB for both lists */
#define BYTES_MOST (8 << 20)  /* bytes of a list, and those after which a pass begins no other: half a millisecond */
#define ROWS_MOST (128 << 10) /* bytes of a tensor in rows: more are better walked row by row (order/weave.c) */
/* Where every rank has a core, messages must have many pieces: */
#define PIECES 4                      /* pieces of a message at least, if they are small: */
#define PIECE 1024                    /* bytes of a small piece on average, at most; */
#define PIECES_LARGE 16               /* or pieces of a message at least, if they are larger: */
#define PIECES_LARGE_MOST (256 << 10) /* bytes of a list then */
#define PIECES_ALL 64                 /* small pieces to all peers, from which on waiting for all beats packing */
#define SHARED (256 << 10)            /* bytes of a list from which on ranks that sleep are woken before it is done */
#define LINGER 100                    /* turns of waiting for the lists of other ranks before the core is given up */

/* In the control block. There are two, so that the list of the last bind is still there if binding again is refused. */
struct list {
    uint64_t n;
    int64_t bytes;              /* of all lines */
    struct memory_line lines[]; /* with places as addresses */
};

/* In the control block, before the lists and behind the words of jobs.h, of which those of rank 0 are used. */
struct lists_head {
    _Alignas(CORE_LINE) uint64_t list_bytes; /* of each list */
};

struct lists {
    struct jobs_state shared; /* one group of all ranks */
    struct jobs jobs;
    bool side; /* which of the two lists is this program's */
    uintptr_t base;
    const struct list **of; /* the lists of all ranks, this rank's first, then those of the next higher ones */
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

/* Are all parts of the step in memory that all ranks can reach, and does it wait for nothing? */
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

/* What a rank has to copy. */
struct load {
    int64_t bytes;          /* that it sends, and of its own copies */
    int64_t sent;           /* bytes that it sends */
    uint64_t sends, pieces; /* messages, and their parts */
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
    return l->pieces >= PIECES_LARGE * l->sends && l->bytes <= PIECES_LARGE_MOST;
}

static bool fits(const weft_exec *x, const struct program *p)
{
    const weft_plan *plan = x->plan;
    uint32_t others = (uint32_t)x->comm->size - 1;
    if (x->comm->staged || x->comm->size > JOBS_RANKS || !others || p->nins != others || p->nouts != others)
        return false;
    for (uint32_t s = 0; s < p->nsteps; s++)
        if (!fits_step(plan, p, s))
            return false;
    struct load all = load_of(plan);
    return all.bytes <= BYTES_MOST && most_lines(plan) <= LINES_MOST &&
           (!x->comm->dedicated_cores || small_and_many(&all) || large_but_many(&all));
}

/* Are `turns` runs of `bytes` bytes each, in `outer` loops, a line? */
static bool is_line(const weft_exec *x, int outer, int64_t turns, int64_t bytes)
{
    return outer <= 1 && (!outer || turns * bytes <= ROWS_MOST / x->comm->size);
}

/* Can all messages be lines, as far as this rank's side of them tells? */
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
    uint64_t bytes = sizeof(struct list) + lines * sizeof(struct memory_line);
    return (bytes + CORE_LINE - 1) / CORE_LINE * CORE_LINE;
}

static uint64_t room(const weft_exec *x, const struct program *p, bool *shown)
{
    (void)shown; /* all ranks are peers */
    uint32_t size = (uint32_t)x->comm->size;
    return fits(x, p) ? jobs_bytes(size, size) + sizeof(struct lists_head) + 2 * list_bytes(most_lines(x->plan)) : 0;
}

static struct lists_head *head_of(const weft_exec *x, const struct block *b)
{
    uint32_t size = (uint32_t)x->comm->size;
    return (struct lists_head *)(void *)((char *)driver_room(&driver_lists, b) + jobs_bytes(size, size));
}

static struct list *list_of(const weft_exec *x, const struct block *b, uint64_t side)
{
    struct lists_head *head = head_of(x, b);
    return (struct list *)(void *)((char *)(head + 1) + side * head->list_bytes);
}

/* Adds the copy from src to dst, with the strides of dst in stride[0]. False: it is not a line. */
static bool add_line(const weft_exec *x, struct list *list, uint64_t dst, uint64_t src, int loops, int64_t *n,
                     int64_t (*stride)[MEMORY_LOOPS], int64_t size)
{
    loops = shape_merge(loops, n, stride, 2);
    bool run = loops && stride[0][loops - 1] == size && stride[1][loops - 1] == size;
    int outer = loops - run;
    int64_t bytes = run ? n[loops - 1] * size : size, turns = outer ? n[0] : 1;
    if (!is_line(x, outer, turns, bytes))
        return false;
    list->bytes += turns * bytes;
    list->lines[list->n++] = (struct memory_line){
        dst, src, outer ? stride[0][0] : 0, outer ? stride[1][0] : 0, (uint32_t)turns, (uint32_t)bytes};
    return true;
}

static bool add_send(const weft_exec *x, const struct exec_out *out, uint32_t k, uint32_t q, struct list *list)
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

static bool add_copy(const weft_exec *x, const struct program *p, uint32_t s, struct list *list)
{
    const weft_plan *plan = x->plan;
    const struct plan_part *src = &plan->parts[plan->steps[s].part], *dst = src + 1;
    const struct exec_place *from = &p->places[src->buf], *to = &p->places[dst->buf];
    int64_t n[MEMORY_LOOPS], stride[2][MEMORY_LOOPS], first[2];
    if (plan->bufs[src->buf].dtype != plan->bufs[dst->buf].dtype)
        return false;
    shape_loops(plan, src, from->stride, n, stride[1], &first[1]);
    int loops = shape_loops(plan, dst, to->stride, n, stride[0], &first[0]);
    return !p->steps[s].nwork || /* a copy onto itself */
           add_line(x, list, to->at + (uint64_t)first[0], from->at + (uint64_t)first[1], loops, n, stride,
                    (int64_t)weft_dtype_size(plan->bufs[src->buf].dtype));
}

/* First the first parts of all channels, then the second parts, and so on: so parts that are neighbours in this rank's
 * memory are read one after the other. */
static bool list_sends(const weft_exec *x, const struct program *p, struct list *list)
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
    const weft_comm *c = x->comm;
    struct lists *l = state;
    const struct lists *before = driver_state_of(x->program, &driver_lists);
    const struct block *first = c->transport->reach(c->link, 0, block_at[0]);
    bool fit = driver_room(&driver_lists, x->block) && driver_room(&driver_lists, first) && fits(x, p);
    uint32_t size = (uint32_t)c->size;
    l->side = before && before != l && !before->side;
    if (!fit)
        return 0;
    l->of = program_take(p, size, sizeof *l->of);
    if (!l->of)
        return error_nomem();
    l->jobs = (struct jobs){.words = driver_room(&driver_lists, first), .ranks = size, .n = size};
    l->shared = (struct jobs_state){.all = true, .n = 1, .groups = &l->jobs};
    head_of(x, x->block)->list_bytes = list_bytes(most_lines(x->plan));
    struct list *list = list_of(x, x->block, l->side);
    *list = (struct list){.n = 0};
    for (uint32_t s = 0; s < p->nsteps && fit; s++)
        fit = p->steps[s].kind != PLAN_COPY || add_copy(x, p, s, list);
    *can = fit && list_sends(x, p, list);
    if (!c->rank)
        jobs_reset(x, &l->jobs);
    return 0;
}

static void open(weft_exec *x, struct program *p, const uint64_t *block_at)
{
    weft_comm *c = x->comm;
    struct lists *l = p->state;
    l->base = (uintptr_t)c->transport->reach(c->link, c->rank, 0);
    for (int i = 0; i < c->size; i++) {
        int r = (c->rank + i) % c->size;
        l->of[i] = list_of(x, c->transport->reach(c->link, r, block_at[r]), l->side);
    }
}

/* ---- the run ---- */

/* Does the list of the i-th rank from this one on. False: *room is used up, or another rank has the list. */
static bool do_list(weft_exec *x, int i, int64_t *room)
{
    struct lists *l = driver_state(x);
    uint32_t job = (uint32_t)((x->comm->rank + i) % x->comm->size);
    const struct list *list = l->of[i];
    if (*room <= 0 || !jobs_claim(x, &l->jobs, job))
        return false;
    for (uint64_t k = 0; k < list->n; k++)
        memory_copy_line(l->base, &list->lines[k]);
    jobs_finish(x, &l->jobs, job);
    *room -= list->bytes;
    return true;
}

/* First the lists of the ranks that began the run on this core: its cache has what they wrote. */
static bool do_all(weft_exec *x)
{
    const struct lists *l = driver_state(x);
    const struct jobs_word *words = l->jobs.words->word;
    int64_t core = sched_getcpu(), room = BYTES_MOST;
    int size = x->comm->size;
    bool any = false;
    for (int i = 0; i < size; i++)
        if (!i || atomic_load_explicit(&words[(x->comm->rank + i) % size].core, memory_order_relaxed) == core)
            any |= do_list(x, i, &room);
    for (int i = 1; i < size; i++)
        any |= do_list(x, i, &room);
    return any;
}

static bool pass(weft_exec *x, bool idle)
{
    const struct lists *l = driver_state(x);
    (void)idle;
    bool over = jobs_over(x, &l->jobs), moved = false;
    if (!over && jobs_ready(x, &l->jobs)) {
        if (l->of[0]->bytes >= SHARED)
            jobs_call(x);
        moved = do_all(x);
        over = jobs_over(x, &l->jobs);
        for (int turn = 0; turn < LINGER && !over; turn++) { /* the ranks that have them mostly run on other cores */
            core_relax();
            over = jobs_over(x, &l->jobs);
        }
    }
    jobs_call(x);
    if (over)
        jobs_end(x);
    return moved || over;
}

const struct driver driver_lists = {
    .id = DRIVER_LISTS,
    .name = "lists",
    .what = "copies of all ranks in lists that any rank works off",
    .agreed = true,
    .copies = true,
    .state = sizeof(struct lists),
    .prefers = prefers,
    .room = room,
    .make = make,
    .open = open,
    .start = jobs_start,
    .pass = pass,
    .call = jobs_call,
    .in_waits = jobs_in_waits,
    .out_waits = jobs_out_waits,
    .lacking = jobs_lacking,
    .in_count = jobs_in_count,
    .out_count = jobs_out_count,
};
