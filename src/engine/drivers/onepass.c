/* The driver "onepass": small exchanges, in one pass and without the state of channels.
 *
 * It is chosen for programs in which no message waits for another one to arrive, each message is eager or the one pull
 * of its channel (at most 512 KiB of pulls), and the other steps read at most 256 KiB. Most small collectives, for
 * which latency matters, are of this kind. A run writes all eager messages and shows all pulls, looks for all messages
 * that are due, does the other steps in the order of the plan, and waits until its pulls have been read. Pulls are in
 * onepass_pull.c.
 *
 * Where there are more ranks than cores, the time of a run is what a rank does, and how many cache lines it needs, each
 * time it is scheduled. This driver needs one cache line or less for each message, and sends all its signals together.
 *
 * This rank packs its messages before it writes anything else, so an exchange in place loses nothing. No peer waits for
 * what this rank does with the messages that have arrived, since their slots are used again only some runs later. */
#include "engine/drivers/onepass.h"

#include "base/error.h"
#include "engine/ways/eager.h"
#include "engine/work.h"

#define REST (256 << 10) /* bytes that the COPY and REDUCE steps may read */

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

static uint32_t list_peers(const weft_exec *x, const struct program *p, struct onepass_peer *peers)
{
    for (uint32_t i = 0; i < p->nouts; i++)
        peers[i] = (struct onepass_peer){&core_door(x->comm->group, p->outs[i].peer)->awaits, p->outs[i].peer};
    return p->nouts;
}

/* The one move of a step whose message is one piece of memory; NULL: it is not in one piece. */
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

/* Joint messages that follow each other, in memory and in the slot, are written as one. */
static void add_eager(struct onepass *one, struct onepass_eager e)
{
    struct onepass_eager *last = one->neagers ? &one->eagers[one->neagers - 1] : NULL;
    bool large = last && e.bytes > EAGER_INLINE && last->bytes > EAGER_INLINE;
    if (large && e.src && last->src && !e.stamp && !last->stamp && last->src + last->bytes == e.src &&
        last->slot + last->bytes == e.slot)
        last->bytes += e.bytes;
    else
        one->eagers[one->neagers++] = e;
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

static bool take_room(struct program *p, struct onepass *one, uint32_t recvs, uint32_t rest)
{
    one->eagers = program_take(p, p->neagers, sizeof *one->eagers);
    one->dues = program_take(p, recvs, sizeof *one->dues);
    one->rest = program_take(p, rest, sizeof *one->rest);
    one->peers = program_take(p, p->nouts, sizeof *one->peers);
    return one->eagers && one->dues && one->rest && one->peers;
}

static int make(weft_exec *x, struct program *p, const uint64_t *block_at, void *state, bool *can)
{
    struct onepass *one = state;
    (void)block_at;
    *can = fits(x->plan, p);
    if (!*can)
        return 0;
    uint32_t recvs = 0, rest = 0;
    for (uint32_t s = 0; s < p->nsteps; s++) {
        recvs += p->steps[s].kind == PLAN_RECV;
        rest += !is_message(&p->steps[s]);
    }
    if (!take_room(p, one, recvs, rest))
        return error_nomem();
    one->npeers = list_peers(x, p, one->peers);
    for (uint32_t k = 0; k < p->neagers; k++)
        add_eager(one, eager_of(p, k));
    for (uint32_t i = 0; i < p->nins; i++)
        for (uint32_t k = 0; k < p->ins[i].n && p->steps[p->ins[i].steps[k]].way == &way_eager; k++) {
            struct onepass_due *due = &one->dues[one->ndues++];
            *due = due_of(p, &p->steps[p->ins[i].steps[k]]);
            one->moves |= due->nmoves || (due->dst && due->bytes > EAGER_INLINE);
        }
    for (uint32_t s = 0; s < p->nsteps; s++)
        if (!is_message(&p->steps[s]))
            one->rest[one->nrest++] = s;
    return onepass_pull_make(p, &one->pulls);
}

/* ---- the run ---- */

/* A run of small messages is short. What most runs do not need is not inlined into it. */
#define APART __attribute__((noinline))

/* Are the slots of this run free? Those of unacknowledged messages always are. */
APART static bool slots_free(const weft_exec *x, const struct program *p, struct onepass *one)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < p->nouts; i++) {
        if (!p->outs[i].acks)
            continue;
        uint64_t runs = atomic_load_explicit(p->outs[i].done, memory_order_seq_cst) / p->outs[i].n;
        least = runs < least ? runs : least;
    }
    one->free_until = least > UINT64_MAX - EAGER_SLOTS - 1 ? UINT64_MAX : least + EAGER_SLOTS + 1;
    return x->run < one->free_until;
}

#define WORD 8 /* bytes of most small messages, which are written and read without a call */

APART static void write_any(char *slot, uint64_t run, const struct onepass_eager *e)
{
    if (e->bytes <= EAGER_INLINE) {
        eager_store_inline(slot, run, e->src, e->bytes);
        return;
    }
    memcpy(slot, e->src, e->bytes);
    if (e->stamp)
        eager_stamp(slot, run, e->stamp);
}

static bool write_all(weft_exec *x, struct onepass *one)
{
    const struct program *p = x->program;
    const struct onepass_eager *eagers = one->eagers;
    const uint64_t run = x->run;
    const uint32_t n = one->neagers;
    if (run >= one->free_until && !slots_free(x, p, one))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        const struct onepass_eager *e = &eagers[i];
        char *slot = e->slot + eager_offset(run, e->slots, e->slot_bytes);
        if (!e->src)
            eager_write(x, &p->eagers[e->eager]);
        else if (e->bytes == WORD)
            eager_store_inline(slot, run, e->src, WORD);
        else
            write_any(slot, run, e);
    }
    if (p->joint)
        eager_stamp_joint(x);
    if (one->pulls.nouts)
        onepass_pull_show(x);
    one->written = true;
    one->calls = one->npeers > 0; /* a rank that sends nothing needs no fence */
    return true;
}

/* Wakes the ranks that sleep and wait for the eager messages, or for a signal about pulls. As in core_signal, there is
 * a fence between these stores and the looks at which ranks sleep. The fence waits until the stores are visible. So a
 * pass does all its other work before it calls this. */
APART static void call_some(weft_exec *x, struct onepass *one)
{
    bool told = one->pulls.nins && onepass_pull_tell(x, one->rested);
    if (!one->calls && !told)
        return;
    core_fence_all();
    for (uint32_t i = 0, n = one->calls ? one->npeers : 0; i < n; i++)
        if (atomic_load_explicit(one->peers[i].awaits, CORE_LOOK) > 0)
            core_call(x->comm->group, one->peers[i].rank);
    if (told)
        onepass_pull_call(x);
    one->calls = false;
}

static inline void call_peers(weft_exec *x, struct onepass *one)
{
    if (one->calls || one->pulls.nins)
        call_some(x, one);
}

static void call(weft_exec *x)
{
    call_peers(x, driver_state(x));
}

static inline const char *slot_of(const weft_exec *x, const struct onepass_due *due)
{
    return due->slot + eager_offset(x->run, due->slots, due->slot_bytes);
}

APART static bool get_inline(const char *slot, uint64_t run, const struct onepass_due *due)
{
    return eager_load_inline(slot, run, due->dst, due->bytes);
}

/* Has the message come? An inline one is also read. */
static inline bool get(const weft_exec *x, const struct onepass_due *due)
{
    const char *slot = slot_of(x, due);
    if (due->bytes == WORD)
        return eager_load_inline(slot, x->run, due->dst, WORD);
    if (due->bytes <= EAGER_INLINE)
        return get_inline(slot, x->run, due);
    return eager_stamped(slot, x->run, due->stamp);
}

static void start(weft_exec *x)
{
    struct onepass *one = driver_state(x);
    x->program->left = 1;
    one->next = 0;
    one->written = one->rested = false;
    if (one->pulls.nins || one->pulls.nouts)
        onepass_pull_start(x);
    write_all(x, one);
}

/* Copies what `get` has not. */
APART static void move_all(weft_exec *x)
{
    const struct program *p = x->program;
    const struct onepass *one = driver_state(x);
    for (uint32_t i = 0; i < one->ndues; i++) {
        const struct onepass_due *due = &one->dues[i];
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
    const struct onepass *one = driver_state(x);
    for (uint32_t i = 0; i < one->nrest; i++)
        work_local(x, &p->steps[one->rest[i]]);
}

/* Says that the eager messages of all runs up to this one have been read, to the senders that need to be told. */
APART static void free_slots(weft_exec *x)
{
    const struct program *p = x->program;
    for (uint32_t i = 0; i < p->nins; i++)
        if (p->ins[i].acks)
            core_signal(x->comm->group, p->ins[i].peer, p->ins[i].done, x->run * p->ins[i].n);
}

/* Reports the arrivals of all steps. Those of pulls were reported before. */
APART static void arrive(weft_exec *x)
{
    const struct program *p = x->program;
    for (uint32_t s = 0; s < p->nsteps; s++)
        if (p->steps[s].kind != PLAN_RECV || p->steps[s].way != &way_pull)
            arrivals_step(x, s);
}

static inline void finish(weft_exec *x, struct onepass *one)
{
    core_fence_looks(); /* pairs with the stores that get has seen */
    if (one->moves)
        move_all(x);
    if (one->nrest)
        do_rest(x);
    one->rested = true;
    call_peers(x, one);
    if (x->run % (EAGER_SLOTS / 2) == 0)
        free_slots(x);
    if (x->arrivals)
        arrive(x);
}

/* Takes the messages that have come; true: all have. */
static inline bool receive(weft_exec *x, struct onepass *one, bool *moved)
{
    uint32_t next = one->next, n = one->ndues;
    while (next < n && get(x, &one->dues[next]))
        next++;
    one->next = next;
    if (one->pulls.got < one->pulls.nins) {
        *moved |= onepass_pull_take(x);
        if (one->pulls.got < one->pulls.nins)
            return false;
    }
    return next == n;
}

static bool pass(weft_exec *x, bool idle)
{
    struct onepass *one = driver_state(x);
    (void)idle;
    bool moved = !one->written && write_all(x, one);
    if (one->written && !one->rested && receive(x, one, &moved)) {
        finish(x, one);
        moved = true;
    }
    if (one->rested && (!one->pulls.nouts || onepass_pull_read(x))) {
        x->program->left = 0;
        return true;
    }
    call_peers(x, one);
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
    const struct onepass *one = driver_state(x);
    uint64_t done = atomic_load_explicit(out->done, memory_order_seq_cst);
    if (one->written)
        return x->program->steps[out->steps[0]].way == &way_pull && done < x->run;
    return out->acks && done / out->n + EAGER_SLOTS < x->run;
}

/* As in the pipeline: the messages that have yet to come, or the peers that have yet to read or to free slots. */
static int lacking(const weft_exec *x)
{
    const struct program *p = x->program;
    const struct onepass *one = driver_state(x);
    int ins = 0, outs = 0;
    for (uint32_t i = 0; i < p->nins; i++)
        ins += in_waits(x, &p->ins[i]);
    for (uint32_t i = 0; i < p->nouts; i++)
        outs += out_waits(x, &p->outs[i]);
    return outs && !one->written ? outs : ins ? ins : outs ? outs : 1;
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
    const struct onepass *one = driver_state(x);
    uint32_t written = one->written ? out->n : 0, read = written && !out_waits(x, out) ? written : 0;
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
