/* The last pass: packs parts of a channel into buckets, turns nodes into steps, and makes the plan. */
#include <string.h>

#include "base/error.h"
#include "lower/draft.h"

/* Sorting key of a node: the block of steps that it goes into, and its position in the block. */
struct slot {
    int32_t stage, class, peer;
    uint32_t node;
    int64_t place; /* of a part that is passed on: bytes of its origin before it in the channel; otherwise 0 */
};

enum { SENDS, COPIES, RECVS, LATER }; /* the order within a stage */

static int class_of(const struct draft_node *n)
{
    switch (n->kind) {
    case PLAN_SEND: return SENDS;
    case PLAN_RECV: return RECVS;
    default: return n->ndeps ? LATER : COPIES;
    }
}

/* Order of two parts of one channel and stage: by tensor, box, tie. */
static int order_parts(const struct draft *d, const struct draft_node *a, const struct draft_node *b)
{
    if (a->tensor != b->tensor)
        return a->tensor < b->tensor ? -1 : 1;
    const struct plan_run *x = d->runs.v + d->parts.v[a->part].runs, *y = d->runs.v + d->parts.v[b->part].runs;
    for (int i = 0; i < d->tensors.v[a->tensor].ndim; i++)
        if (x[i].at != y[i].at)
            return x[i].at < y[i].at ? -1 : 1;
    return a->tie < b->tie ? -1 : a->tie > b->tie;
}

static int order_slots(const struct draft *d, const struct slot *a, const struct slot *b)
{
    if (a->stage != b->stage)
        return a->stage < b->stage ? -1 : 1;
    if (a->class != b->class)
        return a->class < b->class ? -1 : 1;
    if (a->class == SENDS || a->class == RECVS) {
        if (a->peer != b->peer)
            return a->peer < b->peer ? -1 : 1;
        if (a->place != b->place)
            return a->place < b->place ? -1 : 1;
        int c = order_parts(d, &d->nodes.v[a->node], &d->nodes.v[b->node]);
        if (c)
            return c;
    }
    return a->node < b->node ? -1 : a->node > b->node; /* nodes were added in order of their deps */
}

/* Merge sort: stable, needs no context pointer, and linear if the nodes are in order already. */
static void sort_slots(const struct draft *d, struct slot *v, struct slot *tmp, size_t n)
{
    if (n < 2)
        return;
    size_t h = n / 2;
    sort_slots(d, v, tmp, h);
    sort_slots(d, v + h, tmp, n - h);
    if (order_slots(d, &v[h - 1], &v[h]) <= 0)
        return;
    memcpy(tmp, v, h * sizeof *v);
    size_t i = 0, j = h, k = 0;
    while (i < h)
        v[k++] = j < n && order_slots(d, &v[j], &tmp[i]) < 0 ? v[j++] : tmp[i++];
}

static int64_t bytes_of(const struct draft *d, const struct draft_node *n)
{
    const struct plan_part *p = &d->parts.v[n->part];
    return p->count * (int64_t)weft_dtype_size(p->wire);
}

/* Reorders what a channel passes on. Its origins all send from the start, at about the same rate. In the order of
 * tensors the parts of one origin would wait for all of another, which has its own on the way for as long as the run
 * takes. So the origins take turns, by the bytes that each has sent. Both ends of the channel have the same parts. */
static int take_turns(const struct draft *d, struct slot *v, struct slot *tmp, size_t n, struct arena *arena)
{
    int64_t *sum = NULL;
    for (size_t i = 0, end; i < n; i = end) {
        bool passed = false;
        for (end = i; end < n && v[end].stage == v[i].stage && v[end].class == v[i].class && v[end].peer == v[i].peer;)
            passed |= d->nodes.v[v[end++].node].origin >= 0;
        if (!passed)
            continue;
        if (!sum && !(sum = arena_alloc(arena, (size_t)d->world * sizeof *sum)))
            return error_nomem();
        for (size_t k = i; k < end; k++)
            if (d->nodes.v[v[k].node].origin >= 0)
                sum[d->nodes.v[v[k].node].origin] = 0;
        for (size_t k = i; k < end; k++) {
            const struct draft_node *x = &d->nodes.v[v[k].node];
            if (x->origin < 0)
                continue;
            v[k].place = sum[x->origin];
            sum[x->origin] += bytes_of(d, x);
        }
        sort_slots(d, v + i, tmp, end - i);
    }
    return 0;
}

/* Peers are numbered from this rank on, so that not all ranks send to rank 0 first. */
static int32_t turn(const struct draft *d, int32_t peer)
{
    return peer > d->rank ? peer - d->rank - 1 : peer - d->rank - 1 + d->world;
}

struct packing {
    struct draft *d;
    VEC(struct plan_step) steps;
    VEC(struct plan_part) parts;
    VEC(uint32_t) deps;
    uint32_t *waits; /* for each step: the number of steps when a step last waited for it */
};

/* To a multiple of the size of a dtype, which is a power of two. */
static int64_t round_up(int64_t bytes, int64_t size)
{
    return (bytes + size - 1) & -size;
}

static int start_step(struct packing *k, const struct draft_node *n)
{
    struct plan_step *s = vec_push(&k->steps);
    if (!s)
        return error_nomem();
    *s = (struct plan_step){.kind = n->kind,
                            .op = n->op,
                            .via = n->via,
                            .peer = n->peer,
                            .stage = n->stage,
                            .part = (uint32_t)k->parts.n,
                            .dep = (uint32_t)k->deps.n,
                            .div = n->div};
    return 0;
}

/* Adds a node's parts and deps to the current step; there is room for those of all nodes. */
static void add_to_step(struct packing *k, struct draft_node *n)
{
    struct plan_step *s = &k->steps.v[k->steps.n - 1];
    for (uint32_t i = 0; i < n->nparts; i++) {
        struct plan_part p = k->d->parts.v[n->part + i];
        if (p.wire) {
            int64_t size = (int64_t)weft_dtype_size(p.wire);
            p.offset = round_up(s->bytes, size);
            s->bytes = p.offset + p.count * size;
        }
        k->parts.v[k->parts.n++] = p;
    }
    s->nparts += n->nparts;
    for (uint32_t i = 0; i < n->ndeps; i++) {
        uint32_t step = k->d->nodes.v[k->d->deps.v[n->dep + i]].step;
        if (k->waits[step] == k->steps.n) /* this step waits for it already */
            continue;
        k->deps.v[k->deps.n++] = step;
        k->waits[step] = (uint32_t)k->steps.n;
        s->ndeps++;
    }
    n->step = (uint32_t)(k->steps.n - 1);
}

/* Does the part go into the current bucket? */
static bool fits(const struct packing *k, const struct slot *prev, const struct slot *next)
{
    if (!prev || (next->class != SENDS && next->class != RECVS) || prev->stage != next->stage ||
        prev->class != next->class || prev->peer != next->peer)
        return false;
    const struct plan_part *p = &k->d->parts.v[k->d->nodes.v[next->node].part];
    int64_t size = (int64_t)weft_dtype_size(p->wire), bytes = k->steps.v[k->steps.n - 1].bytes;
    return round_up(bytes, size) + p->count * size <= k->d->bucket;
}

static int pack(struct packing *k)
{
    struct draft *d = k->d;
    size_t n = d->nodes.n;
    struct slot *v = arena_alloc(&d->arena, (n + n / 2 + 1) * sizeof *v); /* half as many to sort with */
    k->waits = arena_alloc(&d->arena, (n + 1) * sizeof *k->waits);        /* no more steps than nodes */
    if (!v || !k->waits || !vec_room(&k->parts, d->parts.n) || !vec_room(&k->deps, d->deps.n))
        return error_nomem();
    memset(k->waits, 0, n * sizeof *k->waits);
    for (size_t i = 0; i < n; i++) {
        const struct draft_node *x = &d->nodes.v[i];
        v[i] = (struct slot){x->stage, class_of(x), x->peer < 0 ? 0 : turn(d, x->peer), (uint32_t)i, 0};
    }
    sort_slots(d, v, v + n, n);
    int rc = take_turns(d, v, v + n, n, &d->arena);
    if (rc)
        return rc;
    for (size_t i = 0; i < n; i++) {
        struct draft_node *x = &d->nodes.v[v[i].node];
        rc = fits(k, i ? &v[i - 1] : NULL, &v[i]) ? 0 : start_step(k, x);
        if (rc)
            return rc;
        add_to_step(k, x);
    }
    return 0;
}

#define GIVE(plan, list, count, from) ((plan)->list = (from).v, (plan)->count = (from).n, (from).v = NULL, (from).n = 0)

int bucket_pack(struct draft *d, weft_plan **out)
{
    weft_plan *p = calloc(1, sizeof *p);
    if (!p)
        return error_nomem();
    struct packing k = {.d = d};
    int rc = pack(&k);
    if (rc) {
        free(k.steps.v);
        free(k.parts.v);
        free(k.deps.v);
        free(p);
        return rc;
    }
    p->rank = d->rank;
    p->world = d->world;
    p->bucket = d->bucket;
    p->scratch = d->scratch;
    GIVE(p, tensors, ntensors, d->tensors);
    GIVE(p, bufs, nbufs, d->bufs);
    GIVE(p, runs, nruns, d->runs);
    GIVE(p, spots, nspots, d->spots);
    GIVE(p, shapes, nshapes, d->shapes);
    GIVE(p, names, nnames, d->names);
    GIVE(p, steps, nsteps, k.steps);
    GIVE(p, parts, nparts, k.parts);
    GIVE(p, deps, ndeps, k.deps);
    *out = p;
    return 0;
}
