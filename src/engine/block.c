/* Making a rank's control block, describing its messages in it, and comparing a peer's block with this rank's plan. */
#include "engine/block.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "engine/device/exec_device.h"
#include "engine/driver.h"
#include "engine/proof.h"
#include "engine/shape.h"
#include "engine/way.h"
#include "transport/hosts/hosts.h"

/* Counts the entries of the tables. */
static void count(const weft_plan *plan, struct block *head)
{
    for (size_t s = 0; s < plan->nsteps; s++) {
        const struct plan_step *st = &plan->steps[s];
        if (st->kind != PLAN_SEND && st->kind != PLAN_RECV)
            continue;
        head->nmessages++;
        head->nparts += st->nparts;
        for (uint32_t k = 0; k < st->nparts; k++)
            head->nloops += 2 * (uint32_t)plan_ndim(plan, &plan->parts[st->part + k]);
    }
}

static uint32_t holders(const struct program *p)
{
    uint32_t n = 1 + p->nouts;
    for (uint32_t i = 0; i < p->nins; i++) {
        bool also_out = false;
        for (uint32_t j = 0; j < p->nouts && !also_out; j++)
            also_out = p->outs[j].peer == p->ins[i].peer;
        n += !also_out;
    }
    return n;
}

int block_make(weft_exec *x, const struct program *p, uint64_t *place)
{
    struct block head = {.nins = p->nins, .nouts = p->nouts};
    count(x->plan, &head);
    size_t bytes = sizeof head + head.nins * sizeof(struct block_in) + head.nouts * sizeof(struct block_out) +
                   head.nmessages * sizeof(struct block_message) + head.nparts * sizeof(struct block_part) +
                   head.nloops * sizeof(struct block_loop);
    uint64_t sums = x->checks ? bytes : 0;
    bytes += x->checks ? proof_room(head.nparts, head.nmessages) : 0;
    bytes = (bytes + CORE_LINE - 1) / CORE_LINE * CORE_LINE;
    size_t eagers = ((size_t)p->eager_bytes + CORE_LINE - 1) / CORE_LINE * CORE_LINE;
    uint64_t rooms = driver_rooms(x, p, bytes + eagers, head.rooms, &head.shown);
    size_t pinned = bytes + eagers + rooms;
    struct block *b = x->comm->transport->alloc(x->comm->link, pinned + (size_t)p->pinned_bytes, place);
    if (!b)
        return error_nomem();
    b->nins = head.nins;
    b->nouts = head.nouts;
    b->nmessages = head.nmessages;
    b->nparts = head.nparts;
    b->nloops = head.nloops;
    b->eagers = bytes;
    b->pinned = pinned;
    memcpy(b->rooms, head.rooms, sizeof b->rooms);
    b->shown = head.shown;
    b->off = x->off;
    b->sums = sums;
    atomic_store_explicit(&b->holders, b->shown ? (uint32_t)x->comm->size : holders(p),
                          memory_order_relaxed); /* published by the meeting */
    uint32_t message = 0;
    for (uint32_t i = 0; i < p->nouts; i++) {
        block_outs(b)[i].peer = p->outs[i].peer;
        block_outs(b)[i].n = p->outs[i].n;
        block_outs(b)[i].message = message;
        message += p->outs[i].n;
    }
    for (uint32_t i = 0; i < p->nins; i++) {
        block_ins(b)[i].peer = p->ins[i].peer;
        block_ins(b)[i].n = p->ins[i].n;
        block_ins(b)[i].message = message;
        message += p->ins[i].n;
    }
    x->block = b;
    return 0;
}

/* The next free entries of the tables of parts and loops. */
struct cursor {
    uint32_t part, loop;
};

static void describe(weft_exec *x, struct program *p, uint32_t s, struct block_message *m, struct cursor *c)
{
    const weft_plan *plan = x->plan;
    const struct plan_step *st = &plan->steps[s];
    const struct exec_step *step = &p->steps[s];
    struct block *b = x->block;
    *m = (struct block_message){.bytes = st->bytes,
                                .part = c->part,
                                .nparts = st->nparts,
                                .offer = step->offer,
                                .watched = step->nnext > 0,
                                .open = st->kind == PLAN_RECV && !st->ndeps};
    for (const struct way *const *w = way_table; *w && !exec_device_shared(x); w++)
        if ((*w)->describe)
            (*w)->describe(x, p, s, m);
    for (uint32_t q = 0; q < st->nparts; q++) {
        const struct plan_part *pp = &plan->parts[st->part + q];
        const struct exec_place *at = &p->places[pp->buf];
        int64_t n[MEMORY_LOOPS], stride[MEMORY_LOOPS], first;
        int loops = shape_loops(plan, pp, at->stride, n, stride, &first);
        block_parts(b)[c->part++] = (struct block_part){.at = at->at + (uint64_t)first,
                                                        .reached = at->reached,
                                                        .offset = pp->offset,
                                                        .count = pp->count,
                                                        .loop = c->loop,
                                                        .nloops = (uint8_t)loops,
                                                        .wire = pp->wire,
                                                        .dtype = plan->bufs[pp->buf].dtype};
        for (int l = 0; l < loops; l++)
            block_loops(b)[c->loop++] = (struct block_loop){n[l], stride[l]};
        m->open &= at->reached && plan->bufs[pp->buf].space == PLAN_DST;
    }
}

void block_describe(weft_exec *x, struct program *p)
{
    struct block_message *message = block_messages(x->block);
    struct cursor c = {0, 0};
    x->block->staging = x->comm->staging.place;
    x->block->sent = p->sent;
    x->block->received = p->received;
    for (uint32_t i = 0; i < p->neagers; i++)
        p->eagers[i].slot = (char *)x->block + x->block->eagers + p->eagers[i].at;
    for (uint32_t i = 0; i < p->nouts; i++)
        for (uint32_t k = 0; k < p->outs[i].n; k++)
            describe(x, p, p->outs[i].steps[k], message++, &c);
    for (uint32_t i = 0; i < p->nins; i++)
        for (uint32_t k = 0; k < p->ins[i].n; k++)
            describe(x, p, p->ins[i].steps[k], message++, &c);
}

static int find_in(const struct block *b, int peer, uint32_t n)
{
    for (uint32_t i = 0; i < b->nins; i++)
        if (block_ins(b)[i].peer == peer && block_ins(b)[i].n == n)
            return (int)i;
    return -1;
}

static int find_out(const struct block *b, int peer, uint32_t n)
{
    for (uint32_t i = 0; i < b->nouts; i++)
        if (block_outs(b)[i].peer == peer && block_outs(b)[i].n == n)
            return (int)i;
    return -1;
}

int block_connect(weft_exec *x, struct program *p, const uint64_t *block_at)
{
    weft_comm *c = x->comm;
    for (uint32_t i = 0; i < p->nins; i++) {
        struct exec_in *in = &p->ins[i];
        struct block *b = c->transport->reach(c->link, in->peer, block_at[in->peer]);
        int k = find_out(b, c->rank, in->n);
        if (k < 0)
            return error_set(WEFT_EMISMATCH, "rank %d does not send the %u messages that this rank's plan has",
                             in->peer, in->n);
        in->block = b;
        in->done = &block_outs(b)[k].done;
        in->sends = block_messages(b) + block_outs(b)[k].message;
        in->staging = b->staging ? c->transport->reach(c->link, in->peer, b->staging) : NULL;
        in->ready = &block_ins(x->block)[i].ready;
        in->recvs = block_messages(x->block) + block_ins(x->block)[i].message;
    }
    for (uint32_t i = 0; i < p->nouts; i++) {
        struct exec_out *out = &p->outs[i];
        struct block *b = c->transport->reach(c->link, out->peer, block_at[out->peer]);
        int k = find_in(b, c->rank, out->n);
        if (k < 0)
            return error_set(WEFT_EMISMATCH, "rank %d does not expect the %u messages that this rank's plan has",
                             out->peer, out->n);
        out->block = b;
        out->ready = &block_ins(b)[k].ready;
        out->done = &block_outs(x->block)[i].done;
        out->sends = block_messages(x->block) + block_outs(x->block)[i].message;
        out->recvs = block_messages(b) + block_ins(b)[k].message;
    }
    return 0;
}

static bool same_part(const weft_plan *plan, const struct plan_part *mine, const struct block *b,
                      const struct block_part *theirs)
{
    static const int64_t no_stride[WEFT_MAX_DIMS];
    int64_t n[MEMORY_LOOPS], stride[MEMORY_LOOPS], first;
    int loops = shape_loops(plan, mine, no_stride, n, stride, &first);
    if (mine->wire != theirs->wire || mine->offset != theirs->offset || mine->count != theirs->count ||
        loops != theirs->nloops)
        return false;
    for (int l = 0; l < loops; l++)
        if (n[l] != block_loops(b)[theirs->loop + (uint32_t)l].n)
            return false;
    return true;
}

int block_compare(const weft_exec *x, const struct exec_in *in, uint32_t k)
{
    const struct plan_step *st = &x->plan->steps[in->steps[k]];
    const struct block_message *send = &in->sends[k];
    bool same = st->bytes == send->bytes && st->nparts == send->nparts;
    for (uint32_t q = 0; same && q < st->nparts; q++)
        same = same_part(x->plan, &x->plan->parts[st->part + q], in->block, &block_parts(in->block)[send->part + q]);
    return same ? 0
                : error_set(WEFT_EMISMATCH, "message %u from rank %d is not the one this rank's plan has", k, in->peer);
}

int block_hold(weft_exec *x, const struct program *p, const uint64_t *block_at)
{
    const weft_comm *c = x->comm;
    x->held = malloc((size_t)c->size * sizeof *x->held);
    if (!x->held)
        return error_nomem();
    for (int r = 0; r < c->size; r++) {
        bool known = r == c->rank || transport_elsewhere(c->link, r) || program_hears(p, r);
        for (uint32_t i = 0; i < p->nouts && !known; i++)
            known = p->outs[i].peer == r;
        const struct block *b = known ? NULL : c->transport->reach(c->link, r, block_at[r]);
        if (b && b->shown)
            x->held[x->nheld++] = b;
    }
    return 0;
}

void block_drop(const struct block *b)
{
    /* Release: pairs with the owner's look before it frees the block. */
    atomic_fetch_sub_explicit(&((struct block *)(uintptr_t)b)->holders, 1, memory_order_release);
}
