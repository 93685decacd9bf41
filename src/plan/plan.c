/* The plan as an object: its life, what it was made of, when two are equal, and the words for what it is. */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "layout/layout.h"
#include "plan/scaled.h"

static const char *const kinds[] = {
    "copy",   "reshard",      "send",      "permute",        "broadcast", "scatter",
    "gather", "reduce",       "allgather", "reduce_scatter", "allreduce", "all_to_all",
    "halo",   "reverse_halo", "slice",     "identity",       "mixed",
};

const char *plan_kind_text(const char *text, size_t len)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strlen(kinds[i]) == len && memcmp(kinds[i], text, len) == 0)
            return kinds[i];
    return NULL;
}

bool plan_is_word(const char *text)
{
    size_t len = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return len && len < PLAN_WORD && !text[len];
}

int plan_dst_dtype(const weft_plan *p, uint32_t tensor)
{
    return p->tensors[tensor].dst->dtype;
}

void weft_plan_free(weft_plan *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->ntensors; i++) {
        weft_layout_free((weft_layout *)p->tensors[i].src);
        weft_layout_free((weft_layout *)p->tensors[i].dst);
    }
    free(p->tensors);
    free(p->bufs);
    free(p->runs);
    free(p->spots);
    free(p->shapes);
    free(p->parts);
    free(p->steps);
    free(p->deps);
    free(p->names);
    scaled_free(p->scales);
    free(p);
}

uint64_t weft_plan_digest(const weft_plan *p)
{
    return p->digest;
}

size_t weft_plan_tensors(const weft_plan *p)
{
    return p->ntensors;
}

int weft_plan_tensor(const weft_plan *p, size_t i, weft_move *out)
{
    if (i >= p->ntensors)
        return error_set(WEFT_EINVAL, "plan: no tensor %zu, there are %zu", i, p->ntensors);
    const struct plan_tensor *t = &p->tensors[i];
    *out = (weft_move){.name = p->names + t->name, .src = t->src, .dst = t->dst};
    const struct plan_scaled *s = scaled_of(p, i);
    if (s)
        *(s->back ? &out->dst : &out->src) = s->given;
    return 0;
}

int weft_plan_rank(const weft_plan *p)
{
    return p->rank;
}

int weft_plan_world(const weft_plan *p)
{
    return p->world;
}

/* The structs have holes, so their fields are compared and not their bytes. */
static bool same_tensor(const struct plan_tensor *a, const struct plan_tensor *b)
{
    return a->name == b->name && a->src_buf == b->src_buf && a->dst_buf == b->dst_buf && a->ndim == b->ndim &&
           (a->src == b->src || weft_layout_equal(a->src, b->src)) &&
           (a->dst == b->dst || weft_layout_equal(a->dst, b->dst));
}

static bool same_buf(const struct plan_buf *a, const struct plan_buf *b)
{
    return a->space == b->space && a->dtype == b->dtype && a->tensor == b->tensor && a->shape == b->shape &&
           a->offset == b->offset;
}

static bool same_part(const struct plan_part *a, const struct plan_part *b)
{
    return a->buf == b->buf && a->runs == b->runs && a->spots == b->spots && a->wire == b->wire &&
           a->offset == b->offset && a->count == b->count;
}

static bool same_step(const struct plan_step *a, const struct plan_step *b)
{
    return a->kind == b->kind && a->op == b->op && a->via == b->via && a->peer == b->peer && a->stage == b->stage &&
           a->part == b->part && a->nparts == b->nparts && a->dep == b->dep && a->ndeps == b->ndeps &&
           a->div == b->div && a->bytes == b->bytes;
}

static bool same_head(const weft_plan *a, const weft_plan *b)
{
    return a->rank == b->rank && a->world == b->world && a->digest == b->digest && strcmp(a->kind, b->kind) == 0 &&
           strcmp(a->algorithm, b->algorithm) == 0 && a->scratch == b->scratch && a->bound == b->bound &&
           a->stated == b->stated && a->bucket == b->bucket && a->in_place == b->in_place &&
           a->machine.ranks_per_host == b->machine.ranks_per_host && a->machine.latency_ns == b->machine.latency_ns &&
           a->machine.bytes_per_us == b->machine.bytes_per_us && a->machine.ranks == b->machine.ranks;
}

static bool same_bytes(const void *a, const void *b, size_t n, size_t size)
{
    return n == 0 || memcmp(a, b, n * size) == 0;
}

bool weft_plan_equal(const weft_plan *a, const weft_plan *b)
{
    if (a == b)
        return true;
    if (!same_head(a, b) || a->ntensors != b->ntensors || a->nbufs != b->nbufs || a->nruns != b->nruns ||
        a->nspots != b->nspots || a->nshapes != b->nshapes || a->nparts != b->nparts || a->nsteps != b->nsteps ||
        a->ndeps != b->ndeps || a->nnames != b->nnames)
        return false;
    for (size_t i = 0; i < a->ntensors; i++)
        if (!same_tensor(&a->tensors[i], &b->tensors[i]))
            return false;
    for (size_t i = 0; i < a->nbufs; i++)
        if (!same_buf(&a->bufs[i], &b->bufs[i]))
            return false;
    for (size_t i = 0; i < a->nparts; i++)
        if (!same_part(&a->parts[i], &b->parts[i]))
            return false;
    for (size_t i = 0; i < a->nsteps; i++)
        if (!same_step(&a->steps[i], &b->steps[i]))
            return false;
    return same_bytes(a->runs, b->runs, a->nruns, sizeof *a->runs) &&
           same_bytes(a->spots, b->spots, a->nspots, sizeof *a->spots) &&
           same_bytes(a->shapes, b->shapes, a->nshapes, sizeof *a->shapes) &&
           same_bytes(a->deps, b->deps, a->ndeps, sizeof *a->deps) && same_bytes(a->names, b->names, a->nnames, 1) &&
           scaled_same(a, b);
}
