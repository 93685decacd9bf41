/* The outline of a program: its steps, which step waits for which, its channels, and how it offers its messages. A rank
 * makes it alone: it depends on the plan, on the comm, and on whether peers can reach the places. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "engine/block.h"
#include "engine/device/exec_device.h"
#include "engine/driver.h"
#include "engine/shape.h"
#include "engine/ways/eager.h"
#include "engine/ways/pinned.h"
#include "engine/ways/staged.h"
#include "engine/ways/way_wire.h"

static bool allocate(const weft_plan *plan, struct program *p)
{
    size_t n = plan->nsteps;
    p->steps = program_take(p, n, sizeof *p->steps);
    p->next = program_take(p, plan->ndeps, sizeof *p->next);
    p->buckets = program_take(p, n, sizeof *p->buckets);
    p->first = program_take(p, n, sizeof *p->first);
    p->open0 = program_take(p, n, sizeof *p->open0);
    p->open = program_take(p, n, sizeof *p->open);
    p->readers0 = program_take(p, n, sizeof *p->readers0);
    p->readers = program_take(p, n, sizeof *p->readers);
    p->urgent = program_take(p, n, sizeof *p->urgent);
    p->lazy = program_take(p, n, sizeof *p->lazy);
    return p->steps && p->next && p->buckets && p->first && p->open0 && p->open && p->readers0 && p->readers &&
           p->urgent && p->lazy;
}

/* The plan lists the steps for which a step waits (deps). The program lists the steps that wait for a step (next). */
static void turn_deps(const weft_plan *plan, struct program *p)
{
    for (size_t s = 0; s < plan->nsteps; s++)
        for (uint32_t k = 0; k < plan->steps[s].ndeps; k++)
            p->steps[plan->deps[plan->steps[s].dep + k]].nnext++;
    uint32_t at = 0;
    for (size_t s = 0; s < plan->nsteps; s++) {
        p->steps[s].next = at;
        at += p->steps[s].nnext;
        p->steps[s].nnext = 0;
    }
    for (uint32_t s = 0; s < plan->nsteps; s++) {
        p->open0[s] = plan->steps[s].ndeps;
        for (uint32_t k = 0; k < plan->steps[s].ndeps; k++) {
            struct exec_step *dep = &p->steps[plan->deps[plan->steps[s].dep + k]];
            p->next[dep->next + dep->nnext++] = s;
        }
    }
}

/* The channels of the messages with ranks of this host; FORM_GROUPED: a list of all messages instead. What is done
 * costs as much as there are messages, however many ranks the comm has. */
static int channels(const weft_exec *x, struct program *p)
{
    const weft_plan *plan = x->plan;
    for (size_t s = 0; s < plan->nsteps; s++) {
        const struct plan_step *st = &plan->steps[s];
        if ((st->kind == PLAN_SEND || st->kind == PLAN_RECV) &&
            (st->peer < 0 || st->peer >= x->comm->size || st->peer == x->comm->rank))
            return error_set(WEFT_EINVAL, "step %zu of the plan has rank %d as its peer", s, st->peer);
    }
    uint32_t nins, nouts, *spare = p->lazy; /* a queue that the run uses */
    enum program_peers which = exec_device_form(x) == FORM_GROUPED ? PEERS_ALL : PEERS_HERE;
    uint32_t recvs = program_messages(x, PLAN_RECV, which, p->buckets, spare, &nins), *sent = p->buckets + recvs;
    uint32_t sends = program_messages(x, PLAN_SEND, which, sent, spare, &nouts);
    if (which == PEERS_ALL) {
        p->grouped[0] = recvs;
        p->grouped[1] = sends;
        return 0;
    }
    p->ins = program_take(p, nins, sizeof *p->ins);
    p->outs = program_take(p, nouts, sizeof *p->outs);
    if (!p->ins || !p->outs)
        return error_nomem();
    for (uint32_t at = 0, n; at < recvs; at += n) {
        n = program_run(x, p->buckets + at, recvs - at);
        for (uint32_t k = at; k < at + n; k++)
            p->steps[p->buckets[k]].channel = p->nins;
        p->ins[p->nins++] =
            (struct exec_in){.peer = plan->steps[p->buckets[at]].peer, .n = n, .steps = p->buckets + at};
    }
    for (uint32_t at = 0, n; at < sends; at += n) {
        n = program_run(x, sent + at, sends - at);
        for (uint32_t k = at; k < at + n; k++)
            p->steps[sent[k]].channel = p->nouts;
        p->outs[p->nouts++] = (struct exec_out){.peer = plan->steps[sent[at]].peer, .n = n, .steps = sent + at};
    }
    return 0;
}

/* Packing by choice takes only a part of the pool, since other messages may need it. */
#define CHOICE_MESSAGE 64 /* 1/64 of the pool for each message, at most */
#define CHOICE_POOL 4     /* not if more than 1/4 of the pool is taken */

/* Is a message that the peer could reach better packed, because it is scattered at both ends? This rank does not know
 * the receiver's memory yet. It assumes that it is like its own memory into which that peer sends. */
static bool better_packed(const weft_exec *x, const struct program *p, uint32_t step)
{
    const struct staging *pool = &x->comm->staging;
    if (pool->taken > pool->limit / CHOICE_POOL || pool->nslots >= pool->buckets / CHOICE_POOL ||
        x->plan->steps[step].bytes > pool->limit / CHOICE_MESSAGE || !shape_scattered(x, p, &step, 1))
        return false;
    for (uint32_t i = 0; i < p->nins; i++)
        if (p->ins[i].peer == x->plan->steps[step].peer)
            return shape_scattered(x, p, p->ins[i].steps, p->ins[i].n);
    return false;
}

/* A message that is neither eager nor on the wire is staged if the comm is to stage all, if peers cannot reach a part
 * of it, or, with `choice`, if it is better packed. True: some message is staged for the last reason. */
static bool choose_staging(const weft_exec *x, struct program *p, bool choice)
{
    const weft_plan *plan = x->plan;
    bool chosen = false;
    p->staged = false;
    for (uint32_t s = 0; s < p->nsteps; s++) {
        const struct plan_step *st = &plan->steps[s];
        if (st->kind != PLAN_SEND || p->steps[s].offer == OFFER_EAGER || p->steps[s].offer == OFFER_PINNED ||
            p->steps[s].offer == OFFER_WIRE)
            continue;
        bool staged = x->comm->staged && !exec_device_shared(x);
        for (uint32_t k = 0; k < st->nparts && !staged; k++)
            staged = !p->places[plan->parts[st->part + k].buf].reached;
        if (choice && !staged && better_packed(x, p, s))
            staged = chosen = true;
        p->steps[s].offer = staged ? OFFER_STAGED : OFFER_PLACE;
        p->staged |= staged;
    }
    return chosen;
}

/* The bytes of the largest staged message, and those that all channels together can have in the pool. */
static void staging_needs(const weft_exec *x, const struct program *p, int64_t *largest, int64_t *wanted)
{
    *largest = *wanted = 0;
    for (uint32_t i = 0; i < p->nouts; i++) {
        const struct exec_out *out = &p->outs[i];
        int64_t most = 0, staged = 0;
        for (uint32_t k = 0; k < out->n; k++) {
            int64_t bytes = x->plan->steps[out->steps[k]].bytes;
            if (p->steps[out->steps[k]].offer != OFFER_STAGED)
                continue;
            most = bytes > most ? bytes : most;
            staged++;
        }
        if (staged > x->comm->channel_buckets)
            staged = x->comm->channel_buckets;
        int64_t all;
        if (__builtin_mul_overflow(most + STAGING_ALIGN, staged, &all) || __builtin_add_overflow(*wanted, all, wanted))
            *wanted = INT64_MAX;
        *largest = most > *largest ? most : *largest;
    }
}

/* Reserves room in the pool, and finds the multicasts. */
static int reserve(weft_exec *x, struct program *p)
{
    int64_t largest, wanted;
    p->may_block = p->staged || p->neagers || p->pinned_bytes;
    p->nmulticasts = 0;
    if (!p->staged)
        return 0;
    int err = staged_multicasts(x, p);
    if (err)
        return err;
    staging_needs(x, p, &largest, &wanted);
    if (x->program && x->program->reserve.offset >= 0 && largest <= x->program->reserve.bytes) {
        p->reserve = x->program->reserve; /* binding again: the program that stays keeps it */
        return 0;
    }
    return staging_reserve(&x->comm->staging, x->comm->link, largest ? largest : 1, wanted, &p->reserve);
}

static void count_bytes(const weft_exec *x, struct program *p)
{
    for (size_t s = 0; s < x->plan->nsteps; s++) {
        const struct plan_step *st = &x->plan->steps[s];
        if (st->kind == PLAN_RECV)
            p->received += st->bytes;
        else if (st->kind == PLAN_SEND)
            p->sent += st->bytes;
    }
    p->one_way = x->comm->dedicated_cores && p->received < p->sent / 2;
}

int outline_program(weft_exec *x, struct program *p)
{
    const weft_plan *plan = x->plan;
    p->nsteps = (uint32_t)plan->nsteps;
    if (!allocate(plan, p))
        return error_nomem();
    turn_deps(plan, p);
    count_bytes(x, p);
    for (uint32_t s = 0; s < plan->nsteps; s++) {
        const struct plan_step *st = &plan->steps[s];
        p->steps[s].kind = st->kind;
        p->steps[s].urgent = p->steps[s].nnext > 0;
        if ((st->kind == PLAN_COPY || st->kind == PLAN_REDUCE) && !st->ndeps)
            p->first[p->nfirst++] = s;
        for (uint32_t k = 0; k < st->nparts; k++)
            if (plan->parts[st->part + k].count && !p->places[plan->parts[st->part + k].buf].base)
                return error_set(WEFT_EINVAL, "step %u of the plan is in a buffer that this rank does not hold", s);
    }
    int err = channels(x, p);
    if (err || exec_device_form(x) == FORM_GROUPED)
        return err;
    err = way_wire_outline(x, p);
    bool stay = !err && driver_prefers(x, p);
    bool eager = !(x->off & way_table_bit(&way_eager));
    if (!err && eager && (!stay || x->program != p))
        err = eager_choose(x, p);
    err = err ? err : pinned_outline(x, p);
    if (err)
        return err;
    bool chosen = choose_staging(x, p, !stay && !exec_device_shared(x));
    err = reserve(x, p);
    if (err && chosen) { /* the pool is too small to pack by choice */
        choose_staging(x, p, false);
        err = reserve(x, p);
    }
    return err;
}

void outline_free(weft_exec *x, struct program *p)
{
    if (!p)
        return;
    driver_free(x, p);
    exec_device_outline_free(x, p);
    bool ours = way_wire_free(x, p);
    staging_unreserve(&x->comm->staging, &p->reserve);
    staging_uncharge(&x->comm->staging, p->wired.slot_bytes);
    if (ours) /* otherwise, after a failure, its memory is lost rather than written by the wire while others use it */
        arena_free(&p->arena);
    free(p);
}
