#include "engine/quantise.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "engine/device/sites.h"
#include "memory/memory.h"
#include "memory/scale.h"

#define ALIGN ((size_t)64)
#define TOO_MUCH (SIZE_MAX / 2 + 1)
#define PIECE 256 /* elements that are gathered or scattered at a time */

struct quantise_own {
    char *values, *scales; /* with the plan's layouts, dense */
    uint32_t *most;        /* for each slot of the scales: the largest absolute value; NULL: not made here */
    uint32_t *came;        /* what `fold` brings */
    size_t bytes;          /* of values */
};

/* ---- memory ---- */

static uint32_t side_buf(const weft_plan *p, const struct plan_scaled *s)
{
    return s->back ? p->tensors[s->tensor].dst_buf : p->tensors[s->tensor].src_buf;
}

/* Values of f8 are one byte each. */
static size_t value_bytes(const weft_plan *p, const struct plan_scaled *s)
{
    uint32_t buf = side_buf(p, s);
    if (buf == PLAN_NONE)
        return 0;
    if (plan_side_is_boxes(p, s->tensor, !s->back))
        return (size_t)plan_side_room(p, s->tensor, !s->back);
    size_t n = 1;
    for (int d = 0; d < s->ndim; d++)
        n *= (size_t)p->shapes[p->bufs[buf].shape + (size_t)d];
    return n;
}

/* Lays out the memory of one entry from *at on; base NULL: only counts. No more than TOO_MUCH are counted. */
static void lay_out(const weft_plan *p, const struct plan_scaled *s, char *base, size_t *at, struct quantise_own *own)
{
    const size_t bytes[] = {value_bytes(p, s), (size_t)s->slots * weft_dtype_size(s->scale),
                            s->back ? 0 : (size_t)s->slots * sizeof *own->most, (size_t)s->terms * sizeof *own->came};
    char *v[4] = {0};
    for (int i = 0; i < 4; i++) {
        v[i] = base ? base + *at : NULL;
        *at = bytes[i] < TOO_MUCH - *at ? *at + (bytes[i] + ALIGN - 1) / ALIGN * ALIGN : TOO_MUCH;
    }
    *own = (struct quantise_own){v[0], v[1], (uint32_t *)(void *)v[2], (uint32_t *)(void *)v[3], bytes[0]};
}

static int take_memory(weft_exec *x)
{
    const struct plan_scales *s = x->plan->scales;
    struct quantise *q = x->quantise;
    size_t all = ALIGN, at = 0; /* never 0 */
    uint64_t place;
    q->own = calloc(s->n, sizeof *q->own);
    if (!q->own)
        return error_nomem();
    for (size_t i = 0; i < s->n; i++)
        lay_out(x->plan, &s->v[i], NULL, &all, &q->own[i]);
    if (all < TOO_MUCH)
        q->memory = x->comm->transport->alloc(x->comm->link, all, &place);
    if (!q->memory)
        return error_set(WEFT_ENOMEM, "no memory for %zu bytes of values with scales", all);
    for (size_t i = 0; i < s->n; i++)
        lay_out(x->plan, &s->v[i], q->memory, &at, &q->own[i]);
    return 0;
}

/* ---- views ---- */

void quantise_unlook(struct quantise_bound *b)
{
    free(b->src);
    free(b->dst);
    free(b->given);
    free(b->inside);
    *b = (struct quantise_bound){0};
}

/* The caller's views are checked as those of a plan would be whose buffers have the dtypes that the caller has, and no
 * scales on the sides that were given without. */
static int look_at_given(const weft_exec *x, const weft_view *src, const weft_view *dst, struct exec_place *places)
{
    const weft_plan *p = x->plan;
    weft_plan shown = *p;
    shown.bufs = malloc(p->nbufs * sizeof *p->bufs + 1);
    shown.tensors = malloc(p->ntensors * sizeof *p->tensors);
    int err = shown.bufs && shown.tensors ? 0 : error_nomem();
    if (!err) {
        memcpy(shown.tensors, p->tensors, p->ntensors * sizeof *p->tensors);
        if (p->nbufs)
            memcpy(shown.bufs, p->bufs, p->nbufs * sizeof *p->bufs);
    }
    for (size_t i = 0; i < p->scales->n && !err; i++) {
        const struct plan_scaled *s = &p->scales->v[i];
        for (size_t k = 0; k < plan_side_bufs(p, s->tensor, !s->back); k++)
            shown.bufs[side_buf(p, s) + k].dtype = s->dtype;
        *(s->back ? &shown.tensors[s->tensor + 1].dst_buf : &shown.tensors[s->tensor + 1].src_buf) = PLAN_NONE;
    }
    if (!err)
        err = view_places(&shown, NULL, src, dst, places);
    if (!err)
        err = overlap_check(&shown, places);
    struct sites sites = {0};
    if (!err)
        err = sites_of(&shown, src, dst, &sites);
    if (!err && sites.placed)
        err =
            error_set(WEFT_EUNSUPPORTED,
                      "the plan makes scales, and a buffer is on device %d: bind buffers in host memory", sites.device);
    free(shown.bufs);
    free(shown.tensors);
    return err;
}

static weft_view *copy_views(const weft_plan *p, const weft_view *from)
{
    weft_view *v = calloc(p->ntensors, sizeof *v);
    if (v && from)
        memcpy(v, from, p->ntensors * sizeof *v);
    return v;
}

int quantise_look(const weft_exec *x, const weft_view *src, const weft_view *dst, struct quantise_bound *out)
{
    const weft_plan *p = x->plan;
    *out = (struct quantise_bound){.src = copy_views(p, src),
                                   .dst = copy_views(p, dst),
                                   .given = calloc(p->nbufs + 1, sizeof *out->given),
                                   .inside = calloc(p->nbufs + 1, sizeof *out->inside)};
    int err = out->src && out->dst && out->given && out->inside ? 0 : error_nomem();
    if (!err)
        err = look_at_given(x, src, dst, out->given);
    for (size_t i = 0; i < p->scales->n && !err; i++) {
        const struct plan_scaled *s = &p->scales->v[i];
        const struct quantise_own *own = &x->quantise->own[i];
        weft_view *v = (s->back ? out->dst : out->src) + s->tensor;
        v[0] = (weft_view){.data = own->values, .bytes = own->bytes};
        v[1] = (weft_view){.data = own->scales, .bytes = (size_t)s->slots * weft_dtype_size(s->scale)};
    }
    if (!err)
        err = view_places(p, NULL, out->src, out->dst, out->inside);
    if (err)
        quantise_unlook(out);
    return err;
}

/* The views to bind the plan of the maxima to. */
static int make_fold_views(const weft_exec *x)
{
    const struct plan_scales *s = x->plan->scales;
    struct quantise *q = x->quantise;
    if (!s->fold)
        return 0;
    q->fold_src = calloc(2 * s->fold->ntensors + 1, sizeof *q->fold_src);
    if (!q->fold_src)
        return error_nomem();
    q->fold_dst = q->fold_src + s->fold->ntensors;
    for (size_t i = 0; i < s->n; i++) {
        const struct quantise_own *own = &q->own[i];
        uint32_t t = s->v[i].fold;
        if (t == PLAN_NONE)
            continue;
        q->fold_src[t] = (weft_view){.data = own->most, .bytes = (size_t)s->v[i].slots * sizeof *own->most};
        q->fold_dst[t] = (weft_view){.data = own->came, .bytes = (size_t)s->v[i].terms * sizeof *own->came};
    }
    return 0;
}

int quantise_make(weft_exec *x, const weft_view *src, const weft_view *dst)
{
    x->quantise = calloc(1, sizeof *x->quantise);
    if (!x->quantise)
        return error_nomem();
    int err = take_memory(x);
    if (!err)
        err = make_fold_views(x);
    return err ? err : quantise_look(x, src, dst, &x->quantise->at);
}

void quantise_free(weft_exec *x, bool memory)
{
    struct quantise *q = x->quantise;
    if (!q)
        return;
    if (memory)
        x->comm->transport->release(x->comm->link, q->memory);
    quantise_unlook(&q->at);
    free(q->fold_src); /* fold_dst is in it */
    free(q->own);
    free(q);
    x->quantise = NULL;
}

/* ---- the work ---- */

/* The values of a box go row by row, in the order of memory, and each row block by block. */
struct row {
    const struct plan_scaled *s;
    struct quantise_own *own;
    const char *from;
    char *to;
    int64_t from_step, to_step; /* bytes between neighbours */
};

/* n values of one block. */
typedef void row_work(const struct row *r, int64_t at, int64_t slot, int64_t n);

/* Calls work for each part of a row that is in one block. r has the first row of the box. */
static void each_row(const struct plan_scaled_box *b, struct row *r, const int64_t *from_stride,
                     const int64_t *to_stride, row_work *work)
{
    const struct plan_scaled *s = r->s;
    const int last = s->ndim - 1;
    int64_t at[WEFT_MAX_DIMS] = {0};
    for (int d = 0; d >= 0;) {
        int64_t slot = b->slot;
        for (int k = 0; k < last; k++)
            slot += (b->skip[k] + at[k]) / s->block[k] * b->step[k];
        for (int64_t i = 0, n; i < b->len[last]; i += n, slot += b->step[last]) {
            n = s->block[last] - (i ? 0 : b->skip[last]);
            n = n < b->len[last] - i ? n : b->len[last] - i;
            work(r, i, slot, n);
        }
        for (d = last - 1; d >= 0; d--) {
            r->from += from_stride[d];
            r->to += to_stride[d];
            if (++at[d] < b->len[d])
                break;
            r->from -= b->len[d] * from_stride[d];
            r->to -= b->len[d] * to_stride[d];
            at[d] = 0;
        }
    }
}

static void each_box(weft_exec *x, size_t entry, const struct exec_place *from, const struct exec_place *to,
                     row_work *work)
{
    const struct plan_scaled *s = &x->plan->scales->v[entry];
    for (size_t i = 0; i < s->nboxes; i++) {
        const struct plan_scaled_box *b = &s->boxes[i];
        const uint32_t buf = side_buf(x->plan, s) + b->buf;
        const struct exec_place *f = &from[buf], *t = &to[buf];
        struct row r = {.s = s,
                        .own = &x->quantise->own[entry],
                        .from = f->base,
                        .to = t->base,
                        .from_step = f->stride[s->ndim - 1],
                        .to_step = t->stride[s->ndim - 1]};
        for (int d = 0; d < s->ndim; d++) {
            r.from += b->to[d] * f->stride[d];
            r.to += b->to[d] * t->stride[d];
        }
        each_row(b, &r, f->stride, t->stride, work);
    }
}

/* The next n elements at `at` of a row, contiguous. */
static const void *gathered(const char *row, int64_t step, int64_t at, int64_t n, size_t size, void *room)
{
    if (step == (int64_t)size || n == 1)
        return row + at * step;
    memory_copy_units(room, (int64_t)size, row + at * step, step, n, size);
    return room;
}

static int64_t piece(int64_t n, int64_t done, bool whole)
{
    return whole || n - done < PIECE ? n - done : PIECE;
}

static void measure_part(const struct row *r, int64_t at, int64_t slot, int64_t n)
{
    float room[PIECE];
    const size_t size = weft_dtype_size(r->s->dtype);
    const bool whole = r->from_step == (int64_t)size;
    for (int64_t i = 0, k; i < n; i += k) {
        k = piece(n, i, whole);
        const void *from = gathered(r->from, r->from_step, at + i, k, size, room);
        r->own->most[slot] = scale_most(r->own->most[slot], from, r->s->dtype, (size_t)k);
    }
}

static void cast_part(const struct row *r, int64_t at, int64_t slot, int64_t n, bool up)
{
    float in[PIECE], out[PIECE];
    const struct plan_scaled *s = r->s;
    const int from_dtype = up ? s->value : s->dtype, to_dtype = up ? s->dtype : s->value;
    const size_t from_size = weft_dtype_size(from_dtype), to_size = weft_dtype_size(to_dtype);
    const bool straight = r->to_step == (int64_t)to_size, whole = straight && r->from_step == (int64_t)from_size;
    const void *scale = r->own->scales + (size_t)slot * weft_dtype_size(s->scale);
    for (int64_t i = 0, k; i < n; i += k) {
        k = piece(n, i, whole);
        const void *from = gathered(r->from, r->from_step, at + i, k, from_size, in);
        char *to = r->to + (at + i) * r->to_step;
        void *cast = straight ? (void *)to : (void *)out;
        if (up)
            scale_up(cast, to_dtype, from, from_dtype, scale, s->scale, (size_t)k);
        else
            scale_down(cast, to_dtype, from, from_dtype, scale, s->scale, (size_t)k);
        if (!straight)
            memory_copy_units(to, r->to_step, out, (int64_t)to_size, k, to_size);
    }
}

static void down_part(const struct row *r, int64_t at, int64_t slot, int64_t n)
{
    cast_part(r, at, slot, n, false);
}

static void up_part(const struct row *r, int64_t at, int64_t slot, int64_t n)
{
    cast_part(r, at, slot, n, true);
}

void quantise_measure(weft_exec *x)
{
    const struct quantise *q = x->quantise;
    for (size_t i = 0; i < x->plan->scales->n; i++) {
        const struct plan_scaled *s = &x->plan->scales->v[i];
        if (s->back || !s->nboxes)
            continue;
        memset(q->own[i].most, 0, (size_t)s->slots * sizeof *q->own[i].most);
        each_box(x, i, q->at.given, q->at.inside, measure_part);
    }
}

/* Takes the maximum of what came and what is there. */
static void take_term(const struct plan_scaled *s, const struct plan_scaled_term *t, struct quantise_own *own)
{
    const uint32_t *came = own->came + t->from;
    int64_t at[WEFT_MAX_DIMS] = {0}, slot = t->slot;
    for (int d = 0; d >= 0;) {
        own->most[slot] = *came > own->most[slot] ? *came : own->most[slot];
        came++;
        for (d = s->ndim - 1; d >= 0; d--) {
            slot += t->step[d];
            if (++at[d] < t->len[d])
                break;
            slot -= t->len[d] * t->step[d];
            at[d] = 0;
        }
    }
}

void quantise_down(weft_exec *x)
{
    const struct quantise *q = x->quantise;
    for (size_t i = 0; i < x->plan->scales->n; i++) {
        const struct plan_scaled *s = &x->plan->scales->v[i];
        if (s->back || !s->nboxes)
            continue;
        for (size_t k = 0; k < s->nterms; k++)
            take_term(s, &s->term[k], &q->own[i]);
        for (int64_t k = 0; k < s->slots; k++)
            scale_of(q->own[i].most[k], s->value, s->scale, q->own[i].scales + (size_t)k * weft_dtype_size(s->scale));
        each_box(x, i, q->at.given, q->at.inside, down_part);
    }
}

void quantise_up(weft_exec *x)
{
    const struct quantise *q = x->quantise;
    for (size_t i = 0; i < x->plan->scales->n; i++)
        if (x->plan->scales->v[i].back)
            each_box(x, i, q->at.inside, q->at.given, up_part);
}
