#include "plan/scaled.h"

#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/found.h"
#include "base/hash.h"
#include "base/vec.h"
#include "layout/blocks.h"

void scaled_free(struct plan_scales *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n; i++)
        weft_layout_free((weft_layout *)s->v[i].given);
    for (size_t i = 0; i < s->nkept; i++)
        free(s->kept[i]);
    free(s->kept);
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

/* The layouts that an entry follows from, and what follows for this rank. Tensors of a model share them. */
struct sides {
    const weft_layout *given, *values, *scales; /* the side that the caller gave without scales; with scales */
    bool back;
    weft_layout *have, *want; /* NULL: no ranks share blocks, or the source has scales */
    uint32_t *owner;
    const weft_layout *src, *dst; /* of `fold`, found to be equal to the two */
    struct plan_scaled made;      /* its boxes and terms */
};

/* What was found out for earlier entries. */
struct known {
    VEC(struct sides) sides;
    VEC(const weft_layout *) pairs; /* values and scales that were found to fit, by turns */
    struct found by_side, by_pair;
    struct plan_scales *into; /* gets the boxes and terms; NULL: they are not made */
};

static void drop_known(struct known *k)
{
    for (size_t i = 0; i < k->sides.n; i++) {
        weft_layout_free(k->sides.v[i].have);
        weft_layout_free(k->sides.v[i].want);
        free(k->sides.v[i].owner);
    }
    free(k->sides.v);
    free(k->pairs.v);
    free(k->by_side.v);
    free(k->by_pair.v);
}

/* Is tensor + 1, on one side, the scales of the tensor? */
static int check_scales(struct known *k, uint32_t tensor, const weft_layout *values, const weft_layout *scales)
{
    size_t at = found_first(&k->by_pair, hash_u64(values->hash, scales->hash));
    for (uint32_t i; (i = k->by_pair.v[at]) != FOUND_NONE; at = found_next(&k->by_pair, at))
        if (weft_layout_equal(k->pairs.v[2 * i], values) && weft_layout_equal(k->pairs.v[2 * i + 1], scales))
            return 0;
    weft_layout *made = NULL;
    int err = weft_layout_scales(values, &made);
    if (!err && !weft_layout_equal(made, scales))
        err = wrong("tensor %u has not the scales of tensor %u", tensor + 1, tensor);
    if (!err && !vec_room(&k->pairs, 2))
        err = error_nomem();
    weft_layout_free(made);
    if (err)
        return err;
    k->by_pair.v[at] = (uint32_t)(k->pairs.n / 2);
    k->pairs.v[k->pairs.n++] = values;
    k->pairs.v[k->pairs.n++] = scales;
    return 0;
}

/* Finds out what an entry's side, of which f has the layouts, needs to be folded. */
static int derive_sides(struct known *k, const struct plan_scaled *s, struct sides *f)
{
    weft_layout *like = NULL;
    int err = blocks_like(f->given, f->values, &like);
    if (!err && !weft_layout_equal(like, f->values))
        err = wrong("tensor %u is not the tensor that was given", s->tensor);
    weft_layout_free(like);
    if (!err)
        err = check_scales(k, s->tensor, f->values, f->scales);
    return err || f->back ? err : blocks_fold(f->given, f->scales, &f->have, &f->want, &f->owner);
}

/* The i-th box of the rank: its place in the caller's buffer, and its blocks. */
static void make_box(const struct sides *f, int rank, const weft_box *from, size_t i, const int64_t *dense,
                     struct plan_scaled_box *out)
{
    const struct plan_scaled *s = &f->made;
    const struct box_list *e = f->scales->boxes;
    *out = (struct plan_scaled_box){.buf = f->given->boxes ? (uint32_t)i : 0};
    size_t at = e ? e->first[mesh_index(f->scales, rank)] + i : 0;
    out->slot = e ? e->offset[at] : 0;
    for (int d = 0; d < s->ndim; d++) {
        out->to[d] = f->given->boxes ? 0 : from->local[d];
        out->len[d] = from->len[d];
        out->skip[d] = from->at[d] % s->block[d];
        out->step[d] = e ? e->stride[at * (size_t)s->ndim + (size_t)d] : dense[d];
        /* In a mesh of scales blocks stand in the order of their values, and only the last one is cut short. */
        out->slot += e ? 0 : from->local[d] / s->block[d] * dense[d];
    }
}

/* Memory that the plan keeps. */
static void *kept(struct plan_scales *all, size_t n, size_t size)
{
    void **more = realloc(all->kept, (all->nkept + 1) * sizeof *more);
    if (!more)
        return NULL;
    all->kept = more;
    more[all->nkept] = malloc(n * size);
    all->bytes += n * size;
    return more[all->nkept++];
}

static int make_boxes(struct plan_scales *all, struct sides *f, int rank)
{
    struct plan_scaled *s = &f->made;
    weft_local local;
    int64_t dense[WEFT_MAX_DIMS] = {0};
    size_t n = 0;
    int err = weft_layout_local(f->scales, rank, &local);
    if (!err)
        err = weft_layout_boxes(f->given, rank, NULL, 0, &n);
    if (err || !n)
        return err;
    s->slots = local.count;
    if (!f->scales->boxes)
        box_list_dense(s->ndim, local.shape, dense);
    weft_box *from = malloc(n * sizeof *from);
    struct plan_scaled_box *to = kept(all, n, sizeof *to);
    err = from && to ? weft_layout_boxes(f->given, rank, from, n, &n) : error_nomem();
    for (size_t i = 0; i < n && !err; i++, s->nboxes++)
        make_box(f, rank, &from[i], i, dense, &to[i]);
    s->boxes = to;
    free(from);
    return err;
}

/* Where what came belongs: to the slots of the rank's own box that shares these blocks. */
static int make_terms(struct plan_scales *all, struct sides *f, int rank)
{
    struct plan_scaled *s = &f->made;
    const struct box_list *w = f->want ? f->want->boxes : NULL, *e = f->scales->boxes;
    int64_t at = w ? mesh_index(f->want, rank) : -1;
    if (at < 0)
        return 0;
    size_t n = w->first[at + 1] - w->first[at], dims = (size_t)s->ndim;
    struct plan_scaled_term *to = kept(all, n, sizeof *to);
    if (!to)
        return error_nomem();
    s->terms = w->room[at];
    s->term = to;
    for (; s->nterms < n; s->nterms++) {
        size_t i = w->first[at] + s->nterms, own = f->owner[i];
        struct plan_scaled_term *t = &to[s->nterms];
        *t = (struct plan_scaled_term){.from = w->offset[i], .slot = e->offset[own]};
        for (size_t d = 0; d < dims; d++) {
            t->len[d] = w->len[i * (dims + 1) + d + 1];
            t->step[d] = e->stride[own * dims + d];
            t->slot += (w->at[i * (dims + 1) + d + 1] - e->at[own * dims + d]) * t->step[d];
        }
    }
    return 0;
}

/* The sides of an entry: those of an earlier one, or new ones. *out is valid until others are asked for. */
static int find_sides(struct known *k, const struct plan_scaled *s, const struct sides *want, int rank,
                      struct sides **out)
{
    size_t at = found_first(&k->by_side, hash_u64(hash_u64(want->given->hash, want->values->hash), want->back));
    for (uint32_t i; (i = k->by_side.v[at]) != FOUND_NONE; at = found_next(&k->by_side, at)) {
        const struct sides *f = *out = &k->sides.v[i];
        if (f->back == want->back && weft_layout_equal(f->given, want->given) &&
            weft_layout_equal(f->values, want->values) && weft_layout_equal(f->scales, want->scales))
            return 0;
    }
    struct sides *f = vec_push(&k->sides);
    if (!f)
        return error_nomem();
    *f = *want;
    *out = f;
    k->by_side.v[at] = (uint32_t)(k->sides.n - 1);
    f->made = (struct plan_scaled){.dtype = (uint8_t)f->given->dtype,
                                   .value = (uint8_t)f->values->dtype,
                                   .scale = (uint8_t)f->scales->dtype,
                                   .ndim = f->given->ndim};
    memcpy(f->made.block, f->values->scale.block, sizeof f->made.block);
    int err = derive_sides(k, s, f);
    if (!err && k->into)
        err = make_boxes(k->into, f, rank);
    return err || !k->into ? err : make_terms(k->into, f, rank);
}

/* Checks an entry against the layouts of the plan. */
static int check_entry(const weft_plan *p, const struct plan_scaled *s, struct known *k, struct sides **out)
{
    const struct plan_tensor *t = &p->tensors[s->tensor];
    const weft_layout *other = s->back ? t->src : t->dst;
    const struct sides want = {.given = s->given,
                               .values = s->back ? t->dst : t->src,
                               .scales = s->back ? t[1].dst : t[1].src,
                               .back = s->back};
    if (!dtype_unscaled(s->given->dtype) || s->given->scale.dtype || !want.values->scale.dtype)
        return wrong("tensor %u has no side to make scales for", s->tensor);
    if (other->dtype != want.values->dtype || !layout_same_scale(other, want.values))
        return wrong("tensor %u has other scales in the destination than in the source", s->tensor);
    int err = check_scales(k, s->tensor, other, s->back ? t[1].src : t[1].dst);
    if (!err)
        err = find_sides(k, s, &want, p->rank, out);
    if (err)
        return err;
    const weft_plan *fold = p->scales->fold;
    struct sides *f = *out;
    if (!f->have)
        return s->fold == PLAN_NONE ? 0 : wrong("tensor %u shares no blocks", s->tensor);
    const struct plan_tensor *m = fold && s->fold < fold->ntensors ? &fold->tensors[s->fold] : NULL;
    if (m && m->src == f->src && m->dst == f->dst)
        return 0;
    if (!m || !weft_layout_equal(m->src, f->have) || !weft_layout_equal(m->dst, f->want))
        return wrong("tensor %u shares blocks, and their maxima do not come", s->tensor);
    f->src = m->src;
    f->dst = m->dst;
    return 0;
}

static int make_entry(const weft_plan *p, struct plan_scaled *s, struct known *k)
{
    struct sides *f;
    int err = check_entry(p, s, k, &f);
    if (err)
        return err;
    struct plan_scaled made = f->made;
    made.tensor = s->tensor;
    made.fold = s->fold;
    made.back = s->back;
    made.given = s->given;
    *s = made;
    return 0;
}

static int open_known(struct known *k, size_t entries, struct plan_scales *into)
{
    *k = (struct known){.into = into};
    return found_open(&k->by_side, entries) && found_open(&k->by_pair, 2 * entries) ? 0 : error_nomem();
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
    struct known k;
    int err = open_known(&k, all->n, all);
    for (size_t i = 0; i < all->n && !err; i++) {
        struct plan_scaled *s = &all->v[i];
        if (s->tensor + (size_t)1 >= p->ntensors || (i && s->tensor <= all->v[i - 1].tensor + 1))
            err = wrong("there is no tensor %u with scales", s->tensor);
        else
            err = make_entry(p, s, &k);
    }
    drop_known(&k);
    if (!err)
        err = check_order(p);
    if (!err && all->fold && (all->fold->rank != p->rank || all->fold->world != p->world))
        err = wrong("the maxima are those of another rank");
    return err;
}

int scaled_check(const weft_plan *p)
{
    struct known k;
    struct sides *f;
    int err = open_known(&k, p->scales->n, NULL);
    for (size_t i = 0; i < p->scales->n && !err; i++)
        err = check_entry(p, &p->scales->v[i], &k, &f);
    drop_known(&k);
    return err ? err : check_order(p);
}
