/* Programs in which no message waits for another one to come, of eager messages and a few pulls, and with little else
 * to do. They are most of what programs send when they wait for each other, so they have a driver of their own that
 * keeps no state of channels: it writes all eager messages, looks for all that are due, then does the rest of the steps
 * in the order of the plan, all in one pass. Pulls are in onepass_pull.c.
 *
 * Messages are packed before anything else is written, so nothing in place can be lost; and nobody waits for what this
 * rank does with the messages that have come, since their slots are its peers' for some runs. */
#include "engine/drivers/onepass.h"

#include "base/error.h"
#include "engine/ways/eager.h"
#include "engine/work.h"

#define REST (256 << 10) /* bytes that the rest may read */

static bool is_message(const struct exec_step *step)
{
    return step->kind == PLAN_SEND || step->kind == PLAN_RECV;
}

static bool fits(const weft_plan *plan, const struct program *p)
{
    int64_t rest = 0, pulled = 0;
    for (uint32_t s = 0; s < p->nsteps; s++) {
        const struct plan_step *st = &plan->steps[s];
        bool message = is_message(&p->steps[s]);
        if (message ? p->steps[s].way != &way_eager && !onepass_pull_fits(p, &p->steps[s], &pulled)
                    : p->steps[s].order == ORDER_WEAVE || (rest += p->steps[s].bytes) > REST)
            return false;
        for (uint32_t k = 0; k < st->ndeps; k++) {
            uint32_t dep = plan->deps[st->dep + k];
            if (dep >= s || (message && p->steps[dep].kind != PLAN_SEND))
                return false;
        }
    }
    return p->nouts || p->nins;
}

/* Whom a letter wakes, each once. */
static uint32_t list_peers(const struct program *p, int *peers)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->nouts; i++)
        peers[n++] = p->outs[i].peer;
    return n;
}

/* The one piece of memory that a step's message is moved from or to; NULL: there is none such. */
static const struct exec_move *one_move(const struct program *p, const struct exec_step *step)
{
    const struct exec_move *m = &p->moves[step->work];
    return step->nwork == 1 && !m->tile && !m->offset ? m : NULL;
}

static struct onepass_eager eager_of(const struct program *p, uint32_t k)
{
    const struct exec_eager *eager = &p->eagers[k];
    const struct exec_move *m = one_move(p, &p->steps[eager->step]);
    return (struct onepass_eager){.slot = eager->slot,
                                  .src = m && m->bytes == eager->bytes ? m->src : NULL,
                                  .slot_bytes = (uint32_t)eager->slot_bytes,
                                  .slots = eager->slots,
                                  .bytes = (uint32_t)eager->bytes,
                                  .stamp = eager->joint ? 0 : (uint32_t)eager->stamp,
                                  .eager = k};
}

/* Joint letters that follow each other, in memory and in the slot, are written as one. */
static void add_eager(struct onepass *post, struct onepass_eager l)
{
    struct onepass_eager *last = post->neagers ? &post->eagers[post->neagers - 1] : NULL;
    bool large = last && l.bytes > EAGER_INLINE && last->bytes > EAGER_INLINE;
    if (large && l.src && last->src && !l.stamp && !last->stamp && last->src + last->bytes == l.src &&
        last->slot + last->bytes == l.slot)
        last->bytes += l.bytes;
    else
        post->eagers[post->neagers++] = l;
}

static struct onepass_due due_of(const struct program *p, const struct exec_step *step)
{
    const struct exec_move *m = one_move(p, step);
    bool plain = m && m->bytes == step->eager_bytes;
    return (struct onepass_due){.slot = step->slot,
                                .dst = plain ? m->dst : step->inlined,
                                .slot_bytes = (uint32_t)step->slot_bytes,
                                .slots = step->slots,
                                .bytes = (uint32_t)step->eager_bytes,
                                .stamp = (uint32_t)step->stamp,
                                .move = step->work,
                                .nmoves = plain ? 0 : step->nwork};
}

static bool take_room(struct program *p, struct onepass *post, uint32_t recvs, uint32_t rest)
{
    post->eagers = program_take(p, p->neagers, sizeof *post->eagers);
    post->dues = program_take(p, recvs, sizeof *post->dues);
    post->rest = program_take(p, rest, sizeof *post->rest);
    post->peers = program_take(p, p->nouts, sizeof *post->peers);
    return post->eagers && post->dues && post->rest && post->peers;
}

static int make(weft_exec *x, struct program *p, const uint64_t *block_at, void *state, bool *can)
{
    struct onepass *post = state;
    (void)block_at;
    *can = fits(x->plan, p);
    if (!*can)
        return 0;
    uint32_t recvs = 0, rest = 0;
    for (uint32_t s = 0; s < p->nsteps; s++) {
        recvs += p->steps[s].kind == PLAN_RECV;
        rest += !is_message(&p->steps[s]);
    }
    if (!take_room(p, post, recvs, rest))
        return error_nomem();
    post->npeers = list_peers(p, post->peers);
    for (uint32_t k = 0; k < p->neagers; k++)
        add_eager(post, eager_of(p, k));
    for (uint32_t i = 0; i < p->nins; i++)
        for (uint32_t k = 0; k < p->ins[i].n && p->steps[p->ins[i].steps[k]].way == &way_eager; k++) {
            struct onepass_due *due = &post->dues[post->ndues++];
            *due = due_of(p, &p->steps[p->ins[i].steps[k]]);
            post->moves |= due->nmoves || (due->dst && due->bytes > EAGER_INLINE);
        }
    for (uint32_t s = 0; s < p->nsteps; s++)
        if (!is_message(&p->steps[s]))
            post->rest[post->nrest++] = s;
    return onepass_pull_make(p, &post->pulls);
}

/* ---- the run ---- */

/* A run of small messages is short; what many of them do not need is kept out of its way. */
#define APART __attribute__((noinline))

/* Of letters that readers answer the slots are free anyway. */
APART static bool slots_free(const weft_exec *x, const struct program *p)
{
    struct onepass *post = driver_state(x);
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < p->nouts; i++) {
        if (!p->outs[i].acks)
            continue;
        uint64_t runs = atomic_load_explicit(p->outs[i].done, memory_order_seq_cst) / p->outs[i].n;
        least = runs < least ? runs : least;
    }
    post->free_until = least > UINT64_MAX - EAGER_SLOTS - 1 ? UINT64_MAX : least + EAGER_SLOTS + 1;
    return x->run < post->free_until;
}

APART static void write_large(char *slot, uint64_t run, const struct onepass_eager *l)
{
    memcpy(slot, l->src, l->bytes);
    if (l->stamp)
        eager_stamp(slot, run, l->stamp);
}

static bool write_all(weft_exec *x)
{
    const struct program *p = x->program;
    struct onepass *post = driver_state(x);
    const struct onepass_eager *eagers = post->eagers;
    const uint64_t run = x->run;
    const uint32_t n = post->neagers;
    if (run >= post->free_until && !slots_free(x, p))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        const struct onepass_eager *l = &eagers[i];
        char *slot = l->slot + eager_offset(run, l->slots, l->slot_bytes);
        if (!l->src)
            eager_write(x, &p->eagers[l->eager]);
        else if (l->bytes <= EAGER_INLINE)
            eager_store_inline(slot, run, l->src, l->bytes);
        else
            write_large(slot, run, l);
    }
    if (p->joint)
        eager_stamp_joint(x);
    if (post->pulls.nouts)
        onepass_pull_show(x);
    post->written = post->calls = true;
    return true;
}

/* Wakes those who sleep and are to see the letters, and what was shown or told of pulls. The fence between these and
 * the looks, as in core_signal, would wait for them to be out; so where a pass follows it comes when there is nothing
 * left to do beside. */
static void call(weft_exec *x)
{
    struct onepass *post = driver_state(x);
    bool told = post->pulls.nins && onepass_pull_tell(x, post->rested);
    if (!post->calls && !told)
        return;
    core_fence_all();
    for (uint32_t i = 0, n = post->calls ? post->npeers : 0; i < n; i++)
        core_call_fenced(x->comm->group, post->peers[i]);
    if (told)
        onepass_pull_call(x);
    post->calls = false;
}

static const char *slot_of(const weft_exec *x, const struct onepass_due *due)
{
    return due->slot + eager_offset(x->run, due->slots, due->slot_bytes);
}

/* A tiny letter is read where it is looked at; of others it is seen that they are there. */
static bool get(const weft_exec *x, const struct onepass_due *due)
{
    if (due->bytes <= EAGER_INLINE)
        return eager_load_inline(slot_of(x, due), x->run, due->dst, due->bytes);
    return eager_stamped(slot_of(x, due), x->run, due->stamp);
}

static void start(weft_exec *x)
{
    struct onepass *post = driver_state(x);
    x->program->left = 1;
    post->next = 0;
    post->written = post->rested = false;
    if (post->pulls.nins || post->pulls.nouts)
        onepass_pull_start(x);
    write_all(x);
}

/* What get has left to do. */
APART static void move_all(weft_exec *x)
{
    const struct program *p = x->program;
    const struct onepass *post = driver_state(x);
    for (uint32_t i = 0; i < post->ndues; i++) {
        const struct onepass_due *due = &post->dues[i];
        bool inlined = due->bytes <= EAGER_INLINE;
        const char *message = inlined ? due->dst : slot_of(x, due);
        if (due->dst && !inlined)
            memcpy(due->dst, message, due->bytes);
        for (uint32_t k = 0; k < due->nmoves; k++) {
            const struct exec_move *m = &p->moves[due->move + k];
            work_move(m, m->dst, message + m->offset);
        }
    }
}

APART static void do_rest(weft_exec *x)
{
    const struct program *p = x->program;
    const struct onepass *post = driver_state(x);
    for (uint32_t i = 0; i < post->nrest; i++)
        work_local(x, &p->steps[post->rest[i]]);
}

/* The letters of all runs up to this one have been read; those who sent one back know. */
APART static void let_go(weft_exec *x)
{
    const struct program *p = x->program;
    for (uint32_t i = 0; i < p->nins; i++)
        if (p->ins[i].acks)
            core_signal(x->comm->group, p->ins[i].peer, p->ins[i].done, x->run * p->ins[i].n);
}

/* All but pulls, which have come already. */
APART static void arrive(weft_exec *x)
{
    const struct program *p = x->program;
    for (uint32_t s = 0; s < p->nsteps; s++)
        if (p->steps[s].kind != PLAN_RECV || p->steps[s].way != &way_pull)
            arrivals_step(x, s);
}

static inline void finish(weft_exec *x)
{
    struct onepass *post = driver_state(x);
    core_fence_looks(); /* pairs with the stores that get has seen */
    if (post->moves)
        move_all(x);
    if (post->nrest)
        do_rest(x);
    post->rested = true;
    if (post->calls || post->pulls.nins)
        call(x);
    if (x->run % (EAGER_SLOTS / 2) == 0)
        let_go(x);
    if (x->arrivals)
        arrive(x);
}

/* What has come of messages; true: all. */
static inline bool receive(weft_exec *x, bool *moved)
{
    struct onepass *post = driver_state(x);
    uint32_t next = post->next, n = post->ndues;
    while (next < n && get(x, &post->dues[next]))
        next++;
    post->next = next;
    if (post->pulls.got < post->pulls.nins) {
        *moved |= onepass_pull_take(x);
        if (post->pulls.got < post->pulls.nins)
            return false;
    }
    return next == n;
}

static bool pass(weft_exec *x, bool eager)
{
    struct onepass *post = driver_state(x);
    (void)eager;
    bool moved = !post->written && write_all(x);
    if (post->written && !post->rested && receive(x, &moved)) {
        finish(x);
        moved = true;
    }
    if (post->rested && (!post->pulls.nouts || onepass_pull_read(x))) {
        x->program->left = 0;
        return true;
    }
    call(x);
    return moved;
}

/* ---- waiting ---- */

/* Has the channel's message k come? */
static bool there(const weft_exec *x, const struct exec_in *in, uint32_t k)
{
    const struct exec_step *step = &x->program->steps[in->steps[k]];
    if (step->way == &way_eager)
        return eager_there(eager_slot(x, step), x->run, step->eager_bytes, step->stamp);
    return atomic_load_explicit(in->ready, CORE_LOOK) >= x->run;
}

static bool in_waits(const weft_exec *x, const struct exec_in *in)
{
    for (uint32_t k = 0; k < in->n; k++) {
        if (!there(x, in, k))
            return true;
    }
    return false;
}

static bool out_waits(const weft_exec *x, const struct exec_out *out)
{
    const struct onepass *post = driver_state(x);
    uint64_t done = atomic_load_explicit(out->done, memory_order_seq_cst);
    if (post->written)
        return x->program->steps[out->steps[0]].way == &way_pull && done < x->run;
    return out->acks && done / out->n + EAGER_SLOTS < x->run;
}

/* As in the pipeline: arrivals, or those who read or let go of slots, whichever comes last. */
static int lacking(const weft_exec *x)
{
    const struct program *p = x->program;
    const struct onepass *post = driver_state(x);
    int ins = 0, outs = 0;
    for (uint32_t i = 0; i < p->nins; i++)
        ins += in_waits(x, &p->ins[i]);
    for (uint32_t i = 0; i < p->nouts; i++)
        outs += out_waits(x, &p->outs[i]);
    return outs && !post->written ? outs : ins ? ins : outs ? outs : 1;
}

static struct driver_count in_count(const weft_exec *x, const struct exec_in *in)
{
    struct driver_count c = {.next = in->n};
    for (uint32_t k = in->n; k--;) {
        bool come = there(x, in, k);
        c.done += come;
        c.next = come ? c.next : k;
    }
    c.begun = c.done;
    return c;
}

static struct driver_count out_count(const weft_exec *x, const struct exec_out *out)
{
    const struct onepass *post = driver_state(x);
    uint32_t written = post->written ? out->n : 0, read = written && !out_waits(x, out) ? written : 0;
    return (struct driver_count){written, read, read};
}

const struct driver driver_onepass = {
    .id = DRIVER_ONEPASS,
    .name = "onepass",
    .what = "all messages at once, in one pass",
    .state = sizeof(struct onepass),
    .make = make,
    .start = start,
    .pass = pass,
    .call = call,
    .in_waits = in_waits,
    .out_waits = out_waits,
    .lacking = lacking,
    .in_count = in_count,
    .out_count = out_count,
};
