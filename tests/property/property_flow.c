#define _GNU_SOURCE
#include "property_flow.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/dtype.h"
#include "layout/layout.h"
#include "memory/memory.h"

struct flow_message {
    struct flow_message *next;
    unsigned char *data;
};

struct flow_channel {
    struct flow_message *first, **last;
};

struct flow {
    weft_plan *const *plans;
    int ranks;
    void *const *src, *const *dst; /* [tensor * ranks + rank], dense */
    unsigned char **scratch;
    struct flow_channel *channel; /* [from * ranks + to] */
    struct arena arena;
};

/* The loops of a part: elements in order, two loops a dim. */
struct flow_part {
    unsigned char *at;
    int dtype, loops;
    int64_t n[MEMORY_LOOPS], stride[MEMORY_LOOPS];
};

static void flow_part(const struct flow *f, const weft_plan *p, const struct plan_part *part, struct flow_part *out)
{
    const struct plan_buf *b = &p->bufs[part->buf];
    int ndim = p->tensors[b->tensor].ndim;
    size_t side = b->tensor * (size_t)f->ranks + (size_t)p->rank;
    out->at = b->space == PLAN_TEMP  ? f->scratch[p->rank] + b->offset
              : b->space == PLAN_SRC ? f->src[side]
                                     : f->dst[side];
    out->dtype = b->dtype;
    out->loops = 2 * ndim;
    int64_t stride = (int64_t)weft_dtype_size(b->dtype);
    for (int d = ndim - 1; d >= 0; d--) {
        const struct plan_run *r = &p->runs[part->runs + (uint32_t)d];
        const struct plan_spot *s = &p->spots[part->spots + (uint32_t)d];
        out->at += s->to * stride;
        out->n[2 * d] = r->n;
        out->stride[2 * d] = s->tostep * stride;
        out->n[2 * d + 1] = r->len;
        out->stride[2 * d + 1] = stride;
        stride *= p->shapes[b->shape + (uint32_t)d];
    }
}

/* The same loops over a message. */
static void flow_packed(const struct flow_part *like, unsigned char *at, int wire, struct flow_part *out)
{
    *out = *like;
    out->at = at;
    out->dtype = wire;
    int64_t stride = (int64_t)weft_dtype_size(wire);
    for (int i = like->loops - 1; i >= 0; i--) {
        out->stride[i] = stride;
        stride *= like->n[i];
    }
}

static void flow_move(const struct flow_part *to, const struct flow_part *from)
{
    struct memory_tile t = {.loops = to->loops};
    memcpy(t.n, from->n, sizeof t.n);
    for (int i = 0; i < t.loops; i++) {
        t.stride[0][i] = to->stride[i];
        t.stride[1][i] = from->stride[i];
    }
    memory_tile_merge(&t);
    memory_copy(&t, to->at, to->dtype, from->at, from->dtype);
}

/* All parts of a step have one box, and so the same loops. */
static bool flow_alike(const struct flow_part *a, const struct flow_part *b)
{
    return a->loops == b->loops && !memcmp(a->n, b->n, (size_t)a->loops * sizeof a->n[0]);
}

static int flow_reduce(struct flow *f, const weft_plan *p, const struct plan_step *s)
{
    size_t n = s->nparts - 1;
    struct flow_part to, *in = arena_alloc(&f->arena, (n + 1) * sizeof *in);
    struct memory_term *term = arena_alloc(&f->arena, (n + 1) * sizeof *term);
    if (!in || !term)
        return WEFT_ENOMEM;
    flow_part(f, p, &p->parts[s->part], &to);
    struct memory_tile t = {.loops = to.loops};
    memcpy(t.n, to.n, sizeof t.n);
    memcpy(t.stride[0], to.stride, sizeof to.stride);
    for (size_t i = 0; i < n; i++) {
        flow_part(f, p, &p->parts[s->part + 1 + i], &in[i]);
        if (!flow_alike(&to, &in[i]))
            return WEFT_EINVAL;
        term[i] = (struct memory_term){in[i].at, in[i].dtype, in[i].stride};
    }
    int src = p->tensors[p->bufs[p->parts[s->part].buf].tensor].src->dtype;
    if (n)
        memory_fold(&t, to.at, to.dtype, s->via, dtype_acc(src), s->op, s->div, term, n);
    else
        memory_fill_identity(&t, to.at, to.dtype, s->op);
    return 0;
}

/* One step; *waits when its message is not there yet. */
static int flow_step(struct flow *f, const weft_plan *p, const struct plan_step *s, bool *waits)
{
    struct flow_part a, b;
    if (s->kind == PLAN_REDUCE)
        return flow_reduce(f, p, s);
    if (s->kind == PLAN_COPY) {
        flow_part(f, p, &p->parts[s->part], &a);
        flow_part(f, p, &p->parts[s->part + 1], &b);
        flow_move(&b, &a);
        return flow_alike(&a, &b) ? 0 : WEFT_EINVAL;
    }
    bool out = s->kind == PLAN_SEND;
    struct flow_channel *c = &f->channel[out ? p->rank * f->ranks + s->peer : s->peer * f->ranks + p->rank];
    struct flow_message *m = c->first;
    if (out) {
        m = arena_alloc(&f->arena, sizeof *m);
        unsigned char *data = arena_alloc(&f->arena, (size_t)s->bytes + 1);
        if (!m || !data)
            return WEFT_ENOMEM;
        *m = (struct flow_message){NULL, data};
        *(c->first ? c->last : &c->first) = m;
        c->last = &m->next;
    } else if (!m) {
        *waits = true;
        return 0;
    } else {
        c->first = m->next;
    }
    for (uint32_t i = 0; i < s->nparts; i++) {
        const struct plan_part *part = &p->parts[s->part + i];
        flow_part(f, p, part, &a);
        flow_packed(&a, m->data + part->offset, part->wire, &b);
        flow_move(out ? &b : &a, out ? &a : &b);
    }
    return 0;
}

int flow_run(weft_plan *const *plans, int ranks, void *const *src, void *const *dst)
{
    struct flow f = {.plans = plans, .ranks = ranks, .src = src, .dst = dst};
    size_t *next = calloc((size_t)ranks, sizeof *next);
    f.scratch = calloc((size_t)ranks, sizeof *f.scratch);
    f.channel = calloc((size_t)ranks * (size_t)ranks, sizeof *f.channel);
    int rc = next && f.scratch && f.channel ? 0 : WEFT_ENOMEM;
    for (int r = 0; r < ranks && !rc; r++) {
        f.scratch[r] = malloc((size_t)plans[r]->scratch + 1);
        if (f.scratch[r])
            memset(f.scratch[r], 0xa5, (size_t)plans[r]->scratch);
        else
            rc = WEFT_ENOMEM;
    }
    for (bool moved = true; moved && !rc;) {
        moved = false;
        for (int r = 0; r < ranks && !rc; r++)
            for (bool waits = false; next[r] < plans[r]->nsteps && !rc && !waits;) {
                rc = flow_step(&f, plans[r], &plans[r]->steps[next[r]], &waits);
                if (!waits) {
                    next[r]++;
                    moved = true;
                }
            }
    }
    for (int r = 0; r < ranks; r++) {
        if (!rc && next[r] < plans[r]->nsteps)
            rc = WEFT_ETIMEOUT;
        for (int k = 0; k < ranks && !rc; k++)
            if (f.channel[r * ranks + k].first)
                rc = WEFT_ETIMEOUT;
        if (f.scratch)
            free(f.scratch[r]);
    }
    arena_free(&f.arena);
    free(next);
    free(f.scratch);
    free(f.channel);
    return rc;
}
