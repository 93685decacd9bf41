/* Which parts of messages are summed, how, and the sums of what is sent. */
#include "engine/proof.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/math.h"
#include "engine/channel.h"
#include "engine/shape.h"
#include "engine/ways/assist.h"
#include "memory/sum.h"

/* ---- bind ---- */

int proof_wanted(int64_t asked, bool *wanted)
{
    const char *text = getenv("WEFT_CHECK");
    *wanted = asked > 0;
    if (asked < -1 || asked > 1)
        return error_set(WEFT_EINVAL, "weft_bind: opts.check is %" PRId64 ": it must be -1, 0 or 1", asked);
    if (asked || !text || !*text)
        return 0;
    if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
        return error_set(WEFT_EINVAL, "WEFT_CHECK=%s: expected 0 or 1", text);
    *wanted = text[0] == '1';
    return 0;
}

size_t proof_room(uint32_t nparts, uint32_t nmessages)
{
    return (2 * (size_t)nparts + nmessages) * sizeof(uint64_t);
}

/* Part `part` of the plan, in this rank's memory, summed as dtype `to`. */
int proof_fill_part(weft_exec *x, struct program *p, uint32_t part, int to, struct proof_part *c)
{
    const struct plan_part *pp = &x->plan->parts[part];
    const struct exec_place *at = &p->places[pp->buf];
    struct memory_tile t = {0};
    int64_t first;
    *c = (struct proof_part){.from = x->plan->bufs[pp->buf].dtype, .via = pp->wire, .to = (uint8_t)to};
    int64_t size = (int64_t)weft_dtype_size(to);
    t.loops = shape_loops(x->plan, pp, at->stride, t.n, t.stride[1], &first);
    shape_dense(t.loops, t.n, size, t.stride[0]);
    memory_tile_merge(&t);
    c->base = pp->count ? at->base + first : NULL;
    c->bytes = pp->count * size;
    bool cast = c->from != to || (c->via != to && c->via != c->from);
    if (!cast && (!t.loops || !pp->count || (t.loops == 1 && t.stride[1][0] == size)))
        return 0;
    struct memory_tile *tile = arena_alloc(&p->arena, sizeof *tile);
    if (!tile)
        return error_nomem();
    *tile = t;
    c->tile = tile;
    return 0;
}

static bool same_tile(const struct memory_tile *a, const struct memory_tile *b)
{
    if (!a || !b)
        return a == b;
    size_t bytes = (size_t)a->loops * sizeof *a->n;
    return a->loops == b->loops && !memcmp(a->n, b->n, bytes) && !memcmp(a->stride[1], b->stride[1], bytes);
}

static bool same_data(const struct proof_part *a, const struct proof_part *b)
{
    return a->base == b->base && a->bytes == b->bytes && a->from == b->from && a->via == b->via && a->to == b->to &&
           same_tile(a->tile, b->tile);
}

/* A part that several messages send is summed once. Parts of different buffers differ, even if the buffers share
 * memory: what the memory has changes then within a run. */
static int find_same(const weft_exec *x, struct proof_part *parts)
{
    const weft_plan *plan = x->plan;
    uint32_t room = 1;
    while (room < 4 * plan->nparts)
        room *= 2;
    uint32_t *seen = calloc(room, sizeof *seen);
    if (!seen)
        return error_nomem();
    for (size_t s = 0; s < plan->nsteps; s++) {
        const struct plan_step *st = &plan->steps[s];
        for (uint32_t i = 2 * st->part; st->kind == PLAN_SEND && i < 2 * (st->part + st->nparts); i++) {
            const struct proof_part *c = &parts[i];
            if (!c->to)
                continue;
            uint64_t h = hash_bytes(hash_bytes(0, &c->base, sizeof c->base), &c->bytes, sizeof c->bytes);
            while (seen[h % room] && (plan->parts[(seen[h % room] - 1) / 2].buf != plan->parts[i / 2].buf ||
                                      !same_data(&parts[seen[h % room] - 1], c)))
                h++;
            if (!seen[h % room])
                seen[h % room] = i + 1;
            parts[i].same = seen[h % room] - 1;
        }
    }
    free(seen);
    return 0;
}

/* The receiver's memory may have any dtype. */
static int fill_outs(weft_exec *x, struct program *p, struct proof_part *parts)
{
    int err = 0;
    for (uint32_t i = 0; i < p->nouts; i++) {
        const struct exec_out *out = &p->outs[i];
        for (uint32_t k = 0; k < out->n; k++) {
            const struct plan_step *st = &x->plan->steps[out->steps[k]];
            const struct block_part *theirs = &block_parts(out->block)[out->recvs[k].part];
            if (out->recvs[k].nparts != st->nparts)
                return error_set(WEFT_EMISMATCH, "rank %d expects another message %u from this rank", out->peer, k);
            for (uint32_t q = 0; q < st->nparts && !err; q++)
                err = proof_fill_part(x, p, st->part + q, theirs[q].dtype, &parts[2 * (st->part + q)]);
        }
    }
    return err;
}

int proof_fill_recv(weft_exec *x, struct program *p, uint32_t step, struct proof_part *parts)
{
    const struct plan_step *st = &x->plan->steps[step];
    int err = 0;
    for (uint32_t part = st->part; part < st->part + st->nparts && !err; part++) {
        struct proof_part *c = &parts[2 * part];
        err = proof_fill_part(x, p, part, x->plan->bufs[x->plan->parts[part].buf].dtype, c);
        c->via = 0; /* what has come is summed as it is */
    }
    return err;
}

static _Atomic uint64_t *stamp_of(const struct block *b, const struct block_message *send)
{
    return (_Atomic uint64_t *)(void *)((char *)(uintptr_t)b + b->sums) + 2 * b->nparts + (send - block_messages(b));
}

/* The receiver may copy the message while its sender sums it: the sums have a signal of their own, the stamp. One
 * exception: the copies of order/weave.c end without waiting for anything. */
static bool launch(weft_exec *x, struct exec_out *out, const struct exec_step *step)
{
    const struct way *inner = ((const struct proof_way *)step->way)->inner;
    if (inner->pushed) /* order/weave.c sends and sums it */
        return inner->launch(x, out, step);
    if (out->woven)
        proof_sends(x, out);
    if (inner->launch && !inner->launch(x, out, step))
        return false;
    if (!out->woven) {
        core_signal(x->comm->group, out->peer, out->ready, out->base + out->posted + 1);
        proof_sends(x, out);
    }
    return true;
}

/* Has the next message been copied, so that only its sums are waited for? */
static bool copied(const weft_exec *x, const struct exec_in *in)
{
    return x->program->proof->copied[in->steps[in->taken]] == x->run;
}

/* Has the sender stored the sums of the next message? Acquire: pairs with the store in proof_sends. */
static bool summed(const weft_exec *x, const struct exec_in *in)
{
    return atomic_load_explicit(stamp_of(in->block, &in->sends[in->taken]), memory_order_acquire) >= x->run;
}

static bool arrived(const weft_exec *x, const struct exec_in *in, const struct exec_step *step)
{
    const struct way *inner = ((const struct proof_way *)step->way)->inner;
    if (copied(x, in))
        return summed(x, in);
    return inner->arrived ? inner->arrived(x, in, step) : channel_ready(in);
}

static enum way_state take(weft_exec *x, struct exec_in *in, const struct exec_step *step, int64_t *bytes)
{
    const struct way *inner = ((const struct proof_way *)step->way)->inner;
    *bytes = 0;
    if (!copied(x, in)) {
        if (inner->take(x, in, step, bytes) == WAY_BEGUN)
            return WAY_BEGUN;
        proof_came_sum(x, in);
        x->program->proof->copied[in->steps[in->taken]] = x->run;
    }
    if (!summed(x, in))
        return WAY_BEGUN;
    if (proof_came(x, in))
        return WAY_OVER;
    *bytes = INT64_MAX; /* the comm has failed: nothing more in this pass */
    return WAY_BEGUN;
}

/* Replaces the way of a step by its copy that sums. */
static void wrap(struct proof *c, struct exec_step *step)
{
    int i = 0;
    while (i < c->nways && c->ways[i].inner != step->way)
        i++;
    if (i == c->nways) {
        c->ways[c->nways++] = (struct proof_way){*step->way, step->way};
        c->ways[i].way.launch = launch;
        c->ways[i].way.arrived = arrived;
        c->ways[i].way.take = take;
    }
    step->way = &c->ways[i].way;
}

int proof_make(weft_exec *x, struct program *p)
{
    struct proof *c = program_take(p, 1, sizeof *c);
    struct proof_part *parts = program_take(p, 2 * x->plan->nparts, sizeof *parts);
    if (!c || !parts || !(c->copied = program_take(p, p->nsteps, sizeof *c->copied)))
        return error_nomem();
    int err = fill_outs(x, p, parts);
    for (uint32_t i = 0; i < p->nins && !err; i++)
        for (uint32_t k = 0; k < p->ins[i].n && !err; k++)
            err = proof_fill_recv(x, p, p->ins[i].steps[k], parts);
    for (uint32_t i = 0; i < p->wired.n && !err; i++)
        err = proof_wire_parts(x, p, &p->wired.channels[i], parts);
    if (!err)
        err = find_same(x, parts);
    for (uint32_t s = 0; s < p->nsteps && !err; s++)
        if (p->steps[s].way && p->steps[s].offer != OFFER_WIRE)
            wrap(c, &p->steps[s]);
    c->parts = parts;
    p->proof = c;
    return err;
}

/* ---- sums ---- */

#define PIECE (32 << 10) /* bytes that a sender sums before it looks again whether the receiver has begun */

/* The sum of some turns of the first loop of a part, or of some of its bytes. */
static uint64_t sum_some(const struct proof_part *c, int64_t from, int64_t n)
{
    if (!c->tile)
        return sum_bytes((uint64_t)from, c->base + from, (size_t)n);
    struct memory_tile t = *c->tile;
    uint64_t position = from ? (uint64_t)(c->bytes / t.n[0] * from) : 0;
    t.n[0] = n;
    return sum_tile(position, &t, c->base + from * t.stride[1][0], c->from, c->via, c->to);
}

static int64_t turns_of(const struct proof_part *c)
{
    return !c->tile ? c->bytes : c->tile->loops ? c->tile->n[0] : 1;
}

uint64_t proof_sum(const struct proof_part *c)
{
    return sum_some(c, 0, turns_of(c));
}

/* As proof_sum. If both ends copy the message, its sender first copies all it can: then both ends sum at the same time.
 * A receiver that begins later is helped between two pieces of the sum. */
static uint64_t sum_and_help(weft_exec *x, const struct exec_out *out, const struct proof_part *c)
{
    int64_t all = turns_of(c), step = all;
    uint64_t sum = 0;
    if (x->program->steps[out->steps[out->posted]].pieces && c->bytes)
        step = max64(1, PIECE / (c->bytes / all));
    for (int64_t at = 0; at < all; at += step) {
        while (step < all && assist_one(x, out, out->posted))
            continue;
        sum += sum_some(c, at, min64(step, all - at));
    }
    return sum;
}

uint64_t proof_sent(weft_exec *x, const struct exec_out *out, uint32_t part)
{
    struct proof_part *parts = x->program->proof->parts, *c = &parts[parts[part].same];
    if (c->run != x->run) {
        c->sum = out ? sum_and_help(x, out, c) : proof_sum(c);
        c->run = x->run;
    }
    return c->sum;
}

uint64_t *proof_sums(const weft_exec *x, const struct block *b)
{
    return (uint64_t *)(void *)((char *)(uintptr_t)b + b->sums) + (x->run % 2) * b->nparts;
}

void proof_sends(weft_exec *x, const struct exec_out *out)
{
    const struct plan_step *st = &x->plan->steps[out->steps[out->posted]];
    uint64_t *sums = proof_sums(x, x->block) + out->sends[out->posted].part;
    for (uint32_t q = 0; q < st->nparts; q++)
        sums[q] = proof_sent(x, out, 2 * (st->part + q));
    atomic_store_explicit(stamp_of(x->block, &out->sends[out->posted]), x->run, memory_order_release);
}
