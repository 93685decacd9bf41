#include "lower/draft.h"

#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "layout/layout.h"

static int too_many(const char *what)
{
    return error_set(WEFT_EUNSUPPORTED, "lower: the plan needs more than 2^32 %s", what);
}

static int add_shape(struct draft *d, const int64_t *extents, int n, uint32_t *at)
{
    if (!vec_room(&d->shapes, (size_t)n))
        return error_nomem();
    *at = (uint32_t)d->shapes.n;
    if (n)
        memcpy(d->shapes.v + d->shapes.n, extents, (size_t)n * sizeof *extents);
    d->shapes.n += (size_t)n;
    return 0;
}

static int add_buf(struct draft *d, struct plan_buf b, const int64_t *extents, int n, uint32_t *buf)
{
    int rc = add_shape(d, extents, n, &b.shape);
    if (rc)
        return rc;
    if (d->bufs.n >= PLAN_NONE)
        return too_many("buffers");
    struct plan_buf *p = vec_push(&d->bufs);
    if (!p)
        return error_nomem();
    *p = b;
    *buf = (uint32_t)(d->bufs.n - 1);
    return 0;
}

static int add_side(struct draft *d, uint32_t tensor, const weft_layout *l, int space, uint32_t *buf)
{
    weft_local local;
    *buf = PLAN_NONE;
    int rc = weft_layout_local(l, d->rank, &local);
    if (rc || !local.holds)
        return rc;
    struct plan_buf b = {.space = (uint8_t)space, .dtype = (uint8_t)l->dtype, .tensor = tensor};
    if (!l->boxes)
        return add_buf(d, b, local.shape, l->ndim, buf);
    size_t holder = (size_t)mesh_index(l, d->rank), first = l->boxes->first[holder], n = (size_t)l->ndim;
    for (size_t i = first; i < l->boxes->first[holder + 1] && !rc; i++) {
        uint32_t one = PLAN_NONE;
        rc = add_buf(d, b, l->boxes->len + i * n, l->ndim, &one);
        if (!rc && i == first)
            *buf = one;
    }
    return rc;
}

int draft_tensor(struct draft *d, const weft_move *m)
{
    const char *name = m->name ? m->name : "";
    size_t n = strlen(name) + 1;
    if (d->names.n + n >= PLAN_NONE)
        return too_many("bytes of names");
    struct plan_tensor *t = vec_push(&d->tensors);
    if (!t)
        return error_nomem();
    *t = (struct plan_tensor){.src = layout_hold(m->src), .dst = layout_hold(m->dst), .name = (uint32_t)d->names.n};
    t->ndim = (uint8_t)m->src->ndim;
    if (!vec_room(&d->names, n))
        return error_nomem();
    memcpy(d->names.v + d->names.n, name, n);
    d->names.n += n;
    uint32_t i = d->tensor = (uint32_t)(d->tensors.n - 1);
    d->first = (uint32_t)d->nodes.n;
    int rc = add_side(d, i, m->src, PLAN_SRC, &t->src_buf);
    return rc ? rc : add_side(d, i, m->dst, PLAN_DST, &t->dst_buf);
}

int draft_temp(struct draft *d, int dtype, const int64_t *extents, uint32_t *buf)
{
    int n = d->tensors.v[d->tensor].ndim;
    int64_t bytes = (int64_t)weft_dtype_size(dtype);
    bool fits = true;
    for (int i = 0; i < n; i++) /* the tensor's bytes do not overflow, but partial values may be wider */
        fits = fits && !__builtin_mul_overflow(bytes, extents[i], &bytes);
    struct plan_buf b = {.space = PLAN_TEMP, .dtype = (uint8_t)dtype, .tensor = d->tensor, .offset = d->scratch};
    if (!fits || __builtin_add_overflow(bytes, 63, &bytes) ||
        __builtin_add_overflow(d->scratch, bytes / 64 * 64, &d->scratch))
        return error_set(WEFT_EUNSUPPORTED, "lower: the scratch memory needs more than 2^63 bytes");
    return add_buf(d, b, extents, n, buf);
}

/* Tensors of the same layouts have the same runs and spots. From MANY_PARTS on they are looked up among those that
 * were added lately, so that a plan of 45,000 tensors has them once. */
enum { MANY_PARTS = 1024, KNOWN = 4096 };

static bool same_entries(const void *v, size_t total, uint32_t at, const void *e, size_t n, size_t size)
{
    return !n || (at + n <= total && !memcmp((const char *)v + at * size, e, n * size));
}

/* Adds n runs, or finds them. */
static int add_runs(struct draft *d, const struct plan_run *r, size_t n, uint32_t *at)
{
    uint32_t *known = d->known ? &d->known[hash_bytes(n, r, n * sizeof *r) % KNOWN] : at;
    if (d->known && same_entries(d->runs.v, d->runs.n, *known, r, n, sizeof *r)) {
        *at = *known;
        return 0;
    }
    if (d->runs.n + n >= PLAN_NONE)
        return too_many("parts");
    if (!vec_room(&d->runs, n))
        return error_nomem();
    *known = *at = (uint32_t)d->runs.n;
    if (n)
        memcpy(d->runs.v + d->runs.n, r, n * sizeof *r);
    d->runs.n += n;
    return 0;
}

static int add_spots(struct draft *d, const struct plan_spot *s, size_t n, uint32_t *at)
{
    uint32_t *known = d->known ? &d->known[KNOWN + hash_bytes(n, s, n * sizeof *s) % KNOWN] : at;
    if (d->known && same_entries(d->spots.v, d->spots.n, *known, s, n, sizeof *s)) {
        *at = *known;
        return 0;
    }
    if (d->spots.n + n >= PLAN_NONE)
        return too_many("parts");
    if (!vec_room(&d->spots, n))
        return error_nomem();
    *known = *at = (uint32_t)d->spots.n;
    if (n)
        memcpy(d->spots.v + d->spots.n, s, n * sizeof *s);
    d->spots.n += n;
    return 0;
}

int draft_part(struct draft *d, uint32_t buf, const struct draft_dim *dims)
{
    struct plan_part *p = vec_push(&d->parts);
    if (!p)
        return error_nomem();
    if (d->parts.n >= PLAN_NONE)
        return too_many("parts");
    if (d->parts.n == MANY_PARTS && !(d->known = calloc(2 * KNOWN, sizeof *d->known)))
        return error_nomem();
    struct plan_run runs[WEFT_MAX_DIMS];
    struct plan_spot spots[WEFT_MAX_DIMS];
    size_t n = d->tensors.v[d->tensor].ndim;
    *p = (struct plan_part){.buf = buf, .count = 1};
    for (size_t i = 0; i < n; i++) {
        struct draft_dim x = dims[i];
        if (x.n == 1)
            x.step = x.tostep = 0;
        runs[i] = (struct plan_run){x.at, x.len, x.n, x.step};
        spots[i] = (struct plan_spot){x.to, x.tostep};
        p->count *= x.len * x.n;
    }
    int rc = add_runs(d, runs, n, &p->runs);
    if (!rc)
        rc = add_spots(d, spots, n, &p->spots);
    if (rc)
        return rc;
    /* No wire dtype is wider than the buffer's, so the bytes that are sent and received do not overflow either. */
    int64_t bytes = p->count * (int64_t)weft_dtype_size(d->bufs.v[buf].dtype);
    if (__builtin_add_overflow(d->bytes, bytes, &d->bytes))
        return error_set(WEFT_EUNSUPPORTED, "lower: rank %d would read and write more than 2^63 bytes in one run",
                         d->rank);
    return 0;
}

static int add_node(struct draft *d, struct draft_node n, const uint32_t *deps, size_t ndeps, uint32_t *node)
{
    if (d->nodes.n >= DRAFT_NONE || d->deps.n + ndeps >= DRAFT_NONE)
        return too_many("steps");
    const struct draft_node *last = d->nodes.n ? &d->nodes.v[d->nodes.n - 1] : NULL;
    n.part = last ? last->part + last->nparts : 0;
    n.nparts = (uint32_t)d->parts.n - n.part;
    n.tensor = d->tensor;
    n.origin = -1;
    n.dep = (uint32_t)d->deps.n;
    if (!vec_room(&d->deps, ndeps))
        return error_nomem();
    for (size_t i = 0; i < ndeps; i++)
        if (deps[i] != DRAFT_NONE)
            d->deps.v[d->deps.n++] = deps[i];
    n.ndeps = (uint32_t)d->deps.n - n.dep;
    struct draft_node *p = vec_push(&d->nodes);
    if (!p)
        return error_nomem();
    *p = n;
    if (node)
        *node = (uint32_t)(d->nodes.n - 1);
    return 0;
}

int draft_copy(struct draft *d, int32_t stage, const uint32_t *deps, size_t ndeps, uint32_t *node)
{
    return add_node(d, (struct draft_node){.kind = PLAN_COPY, .peer = -1, .stage = stage}, deps, ndeps, node);
}

int draft_reduce(struct draft *d, int32_t stage, int op, int64_t div, int via, const uint32_t *deps, size_t ndeps,
                 uint32_t *node)
{
    struct draft_node n = {
        .kind = PLAN_REDUCE, .op = (uint8_t)op, .via = (uint8_t)via, .div = div, .peer = -1, .stage = stage};
    return add_node(d, n, deps, ndeps, node);
}

int draft_send(struct draft *d, int32_t stage, int peer, int wire, int64_t tie, uint32_t dep, uint32_t *node)
{
    struct plan_part *p = &d->parts.v[d->parts.n - 1];
    p->wire = (uint8_t)wire;
    return add_node(d, (struct draft_node){.kind = PLAN_SEND, .peer = peer, .stage = stage, .tie = tie}, &dep, 1, node);
}

int draft_send_after(struct draft *d, int32_t stage, int peer, int wire, const uint32_t *deps, size_t ndeps)
{
    struct plan_part *p = &d->parts.v[d->parts.n - 1];
    p->wire = (uint8_t)wire;
    return add_node(d, (struct draft_node){.kind = PLAN_SEND, .peer = peer, .stage = stage}, deps, ndeps, NULL);
}

int draft_recv(struct draft *d, int32_t stage, int peer, int wire, int64_t tie, uint32_t *node)
{
    struct plan_part *p = &d->parts.v[d->parts.n - 1];
    p->wire = (uint8_t)wire;
    d->received += p->count * (int64_t)weft_dtype_size(wire);
    return add_node(d, (struct draft_node){.kind = PLAN_RECV, .peer = peer, .stage = stage, .tie = tie}, NULL, 0, node);
}

void draft_passed_on(struct draft *d, int origin)
{
    d->nodes.v[d->nodes.n - 1].origin = origin;
}

struct draft_slabs *draft_slabs(struct draft *d, const weft_layout *src, const weft_layout *dst)
{
    struct draft_slabs *s = &d->slabs[hash_u64(src->hash, dst->hash) % DRAFT_CHOICES];
    if (weft_layout_equal(s->src, src) && weft_layout_equal(s->dst, dst))
        return s;
    if (s->slabs) { /* these may be of the slabs */
        d->side = NULL;
        memset(d->hosts, 0, sizeof d->hosts);
    }
    weft_layout_free(s->slabs);
    *s = (struct draft_slabs){src, dst, NULL};
    return s;
}

void draft_drop(struct draft *d)
{
    for (size_t i = 0; i < DRAFT_CHOICES; i++)
        weft_layout_free(d->slabs[i].slabs);
    for (size_t i = 0; i < d->tensors.n; i++) {
        weft_layout_free((weft_layout *)d->tensors.v[i].src);
        weft_layout_free((weft_layout *)d->tensors.v[i].dst);
    }
    free(d->tensors.v);
    free(d->bufs.v);
    free(d->runs.v);
    free(d->spots.v);
    free(d->shapes.v);
    free(d->parts.v);
    free(d->nodes.v);
    free(d->deps.v);
    free(d->names.v);
    free(d->known);
    arena_free(&d->arena);
    arena_free(&d->sides);
    *d = (struct draft){0};
}
