#include "plan/scaled.h"

#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/error.h"
#include "layout/blocks.h"

void scaled_free(struct plan_scales *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n; i++) {
        weft_layout_free((weft_layout *)s->v[i].given);
        free(s->v[i].boxes);
        free(s->v[i].term);
    }
    free(s->v);
    weft_plan_free(s->fold);
    free(s);
}

static bool same_entry(const struct plan_scaled *a, const struct plan_scaled *b)
{
    return a->tensor == b->tensor && a->fold == b->fold && a->back == b->back && weft_layout_equal(a->given, b->given);
}

/* All else follows from the layouts. */
bool scaled_alike(const struct plan_scales *a, const struct plan_scales *b)
{
    if (!a || !b)
        return a == b;
    bool same = a->n == b->n && !a->fold == !b->fold;
    for (size_t i = 0; i < a->n && same; i++)
        same = same_entry(&a->v[i], &b->v[i]);
    return same;
}

bool scaled_same(const weft_plan *a, const weft_plan *b)
{
    return scaled_alike(a->scales, b->scales) && (!plan_fold(a) || weft_plan_equal(plan_fold(a), plan_fold(b)));
}

const struct plan_scaled *scaled_of(const weft_plan *p, size_t tensor)
{
    size_t lo = 0, hi = p->scales ? p->scales->n : 0; /* the entries are in order of their tensors */
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (p->scales->v[mid].tensor == tensor)
            return &p->scales->v[mid];
        if (p->scales->v[mid].tensor < tensor)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

#define wrong(...) error_set(WEFT_EINVAL, "plan: scales: " __VA_ARGS__)

/* The layouts that an entry follows from. */
struct sides {
    const weft_layout *values, *scales; /* with scales, on the side that the caller gave without */
    weft_layout *have, *want;           /* NULL: no ranks share blocks, or the source has scales */
    uint32_t *owner;
};

static void drop_sides(struct sides *f)
{
    weft_layout_free(f->have);
    weft_layout_free(f->want);
    free(f->owner);
}

/* Is tensor + 1, on one side, the scales of the tensor? */
static int check_scales(uint32_t tensor, const weft_layout *values, const weft_layout *scales)
{
    weft_layout *made = NULL;
    int err = weft_layout_scales(values, &made);
    if (!err && !weft_layout_equal(made, scales))
        err = wrong("tensor %u has not the scales of tensor %u", tensor + 1, tensor);
    weft_layout_free(made);
    return err;
}

static int check_layouts(const weft_plan *p, const struct plan_scaled *s, struct sides *f)
{
    const struct plan_tensor *t = &p->tensors[s->tensor];
    const weft_layout *other = s->back ? t->src : t->dst;
    weft_layout *like = NULL;
    f->values = s->back ? t->dst : t->src;
    f->scales = s->back ? t[1].dst : t[1].src;
    if (!dtype_unscaled(s->given->dtype) || s->given->scale.dtype || !f->values->scale.dtype)
        return wrong("tensor %u has no side to make scales for", s->tensor);
    if (other->dtype != f->values->dtype || !layout_same_scale(other, f->values))
        return wrong("tensor %u has other scales in the destination than in the source", s->tensor);
    int err = blocks_like(s->given, f->values, &like);
    if (!err && !weft_layout_equal(like, f->values))
        err = wrong("tensor %u is not the tensor that was given", s->tensor);
    if (!err)
        err = check_scales(s->tensor, f->values, f->scales);
    if (!err)
        err = check_scales(s->tensor, other, s->back ? t[1].src : t[1].dst);
    weft_layout_free(like);
    return err;
}

static int check_fold(const weft_plan *p, const struct plan_scaled *s, struct sides *f)
{
    const weft_plan *fold = p->scales->fold;
    int err = s->back ? 0 : blocks_fold(s->given, f->scales, &f->have, &f->want, &f->owner);
    if (err)
        return err;
    if (!f->have)
        return s->fold == PLAN_NONE ? 0 : wrong("tensor %u shares no blocks", s->tensor);
    if (!fold || s->fold >= fold->ntensors || !weft_layout_equal(fold->tensors[s->fold].src, f->have) ||
        !weft_layout_equal(fold->tensors[s->fold].dst, f->want))
        return wrong("tensor %u shares blocks, and their maxima do not come", s->tensor);
    return 0;
}

/* The i-th box of the rank: its place in the caller's buffer, and its blocks. */
static void make_box(const weft_plan *p, const struct plan_scaled *s, const struct sides *f, const weft_box *from,
                     size_t i, const int64_t *dense, struct plan_scaled_box *out)
{
    const struct plan_tensor *t = &p->tensors[s->tensor];
    const struct box_list *e = f->scales->boxes;
    *out = (struct plan_scaled_box){.buf = s->back ? t->dst_buf : t->src_buf};
    if (s->given->boxes)
        out->buf += (uint32_t)i;
    size_t at = e ? e->first[mesh_index(f->scales, p->rank)] + i : 0;
    out->slot = e ? e->offset[at] : 0;
    for (int d = 0; d < s->ndim; d++) {
        out->to[d] = s->given->boxes ? 0 : from->local[d];
        out->len[d] = from->len[d];
        out->skip[d] = from->at[d] % s->block[d];
        out->step[d] = e ? e->stride[at * (size_t)s->ndim + (size_t)d] : dense[d];
        /* In a mesh of scales blocks stand in the order of their values, and only the last one is cut short. */
        out->slot += e ? 0 : from->local[d] / s->block[d] * dense[d];
    }
}

static int make_boxes(const weft_plan *p, struct plan_scaled *s, const struct sides *f)
{
    weft_local local;
    int64_t dense[WEFT_MAX_DIMS] = {0};
    size_t n = 0;
    int err = weft_layout_local(f->scales, p->rank, &local);
    if (!err)
        err = weft_layout_boxes(s->given, p->rank, NULL, 0, &n);
    if (err || !n)
        return err;
    s->slots = local.count;
    if (!f->scales->boxes)
        box_list_dense(s->ndim, local.shape, dense);
    weft_box *from = malloc(n * sizeof *from);
    s->boxes = malloc(n * sizeof *s->boxes);
    err = from && s->boxes ? weft_layout_boxes(s->given, p->rank, from, n, &n) : error_nomem();
    for (size_t i = 0; i < n && !err; i++, s->nboxes++)
        make_box(p, s, f, &from[i], i, dense, &s->boxes[i]);
    free(from);
    return err;
}

/* Where what came belongs: to the slots of the rank's own box that shares these blocks. */
static int make_terms(const weft_plan *p, struct plan_scaled *s, const struct sides *f)
{
    const struct box_list *w = f->want ? f->want->boxes : NULL, *e = f->scales->boxes;
    int64_t at = w ? mesh_index(f->want, p->rank) : -1;
    if (at < 0)
        return 0;
    size_t n = w->first[at + 1] - w->first[at], dims = (size_t)s->ndim;
    s->terms = w->room[at];
    s->term = malloc(n * sizeof *s->term);
    if (!s->term)
        return error_nomem();
    for (; s->nterms < n; s->nterms++) {
        size_t i = w->first[at] + s->nterms, own = f->owner[i];
        struct plan_scaled_term *t = &s->term[s->nterms];
        *t = (struct plan_scaled_term){.from = w->offset[i], .slot = e->offset[own]};
        for (size_t d = 0; d < dims; d++) {
            t->len[d] = w->len[i * (dims + 1) + d + 1];
            t->step[d] = e->stride[own * dims + d];
            t->slot += (w->at[i * (dims + 1) + d + 1] - e->at[own * dims + d]) * t->step[d];
        }
    }
    return 0;
}

/* What was found out for the last entries. Tensors of a model share few layouts. */
#define KNOWN 64
struct known {
    const struct plan_scaled *entry[KNOWN]; /* NULL: none */
    struct sides f[KNOWN];
    size_t next;
};

static bool same_layouts(const weft_plan *p, const struct plan_scaled *a, const struct plan_scaled *b)
{
    const struct plan_tensor *x = &p->tensors[a->tensor], *y = &p->tensors[b->tensor];
    const struct plan_tensor *f = plan_fold(p) ? plan_fold(p)->tensors : NULL;
    size_t n = plan_fold(p) ? plan_fold(p)->ntensors : 0;
    bool folds = a->fold < n && b->fold < n && f[a->fold].src == f[b->fold].src && f[a->fold].dst == f[b->fold].dst;
    return a->back == b->back && x->src == y->src && x->dst == y->dst && x[1].src == y[1].src && x[1].dst == y[1].dst &&
           (folds || (a->fold == PLAN_NONE && b->fold == PLAN_NONE)) && weft_layout_equal(a->given, b->given);
}

/* The layouts of an entry, checked. *out is valid until KNOWN others have been asked for. */
static int find_sides(const weft_plan *p, const struct plan_scaled *s, struct known *k, const struct sides **out)
{
    for (size_t i = 0; i < KNOWN && k->entry[i]; i++)
        if (same_layouts(p, k->entry[i], s)) {
            *out = &k->f[i];
            return 0;
        }
    size_t at = k->next++ % KNOWN;
    drop_sides(&k->f[at]);
    k->f[at] = (struct sides){0};
    k->entry[at] = s;
    *out = &k->f[at];
    int err = check_layouts(p, s, &k->f[at]);
    return err ? err : check_fold(p, s, &k->f[at]);
}

static int make_entry(const weft_plan *p, struct plan_scaled *s, struct known *k)
{
    const struct sides *f;
    int err = find_sides(p, s, k, &f);
    if (err)
        return err;
    s->dtype = (uint8_t)s->given->dtype;
    s->value = (uint8_t)f->values->dtype;
    s->scale = (uint8_t)f->scales->dtype;
    s->ndim = s->given->ndim;
    memcpy(s->block, f->values->scale.block, sizeof s->block);
    err = make_boxes(p, s, f);
    return err ? err : make_terms(p, s, f);
}

static void drop_known(struct known *k)
{
    for (size_t i = 0; k && i < KNOWN; i++)
        drop_sides(&k->f[i]);
    free(k);
}

/* Each entry whose maxima are folded has a tensor of `fold` of its own, in the order of the entries. */
static int check_order(const weft_plan *p)
{
    const struct plan_scales *all = p->scales;
    size_t next = 0;
    for (size_t i = 0; i < all->n; i++)
        if (all->v[i].fold != PLAN_NONE && all->v[i].fold != next++)
            return wrong("tensor %u takes the maxima of another tensor", all->v[i].tensor);
    return next == (all->fold ? all->fold->ntensors : 0) ? 0 : wrong("maxima come that belong to no tensor");
}

int scaled_make(weft_plan *p)
{
    struct plan_scales *all = p->scales;
    struct known *k = calloc(1, sizeof *k);
    int err = k ? 0 : error_nomem();
    for (size_t i = 0; i < all->n && !err; i++) {
        struct plan_scaled *s = &all->v[i];
        if (s->tensor + (size_t)1 >= p->ntensors || (i && s->tensor <= all->v[i - 1].tensor + 1))
            err = wrong("there is no tensor %u with scales", s->tensor);
        else
            err = make_entry(p, s, k);
    }
    drop_known(k);
    if (!err)
        err = check_order(p);
    if (!err && all->fold && (all->fold->rank != p->rank || all->fold->world != p->world))
        err = wrong("the maxima are those of another rank");
    return err;
}

int scaled_check(const weft_plan *p)
{
    struct known *k = calloc(1, sizeof *k);
    const struct sides *f;
    int err = k ? 0 : error_nomem();
    for (size_t i = 0; i < p->scales->n && !err; i++)
        err = find_sides(p, &p->scales->v[i], k, &f);
    drop_known(k);
    return err ? err : check_order(p);
}
