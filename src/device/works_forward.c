/* A copy of what a fold has written becomes a fold of the same terms, at the level of that fold: join_replicas then
 * makes one work of both. A copy may move to the lower level if nothing else touches its destination between the two
 * levels, and nothing else writes there what it copies. Memory is compared by the ranges from the first to the last
 * byte of operands, so a copy into strided memory stays where it is. */
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/vec.h"
#include "device/works.h"

#define LOOKS 1000 /* ranges that are compared with one copy at most */

/* Memory that a work of a level reads or writes. */
struct range {
    uint64_t lo, hi; /* the first byte, and the one behind the last */
    uint32_t level;
    bool write;
    const struct work *work;
};

struct ranges {
    VEC(struct range) of; /* sorted by lo */
    uint64_t *highest;    /* hi of all up to each one */
};

/* One operand of a work: units of `bytes` bytes, the last one of `rest` bytes. */
struct walked {
    uint64_t at, bytes, rest;
    const struct works_loop *loops;
    const int64_t *strides; /* of a term; NULL: those of the loops */
    int nloops, side;
};

static int64_t stride_of(const struct walked *o, int i)
{
    return o->strides ? o->strides[i] : o->loops[i].stride[o->side];
}

/* Elements of a unit. */
static uint64_t lanes_of(const struct work *w)
{
    switch (w->item.form) {
    case FORM_LANES4:
    case FORM_FOLD_F32: return 4;
    case FORM_LANES8:
    case FORM_FOLD_THIN: return 8;
    case FORM_FOLD_BITS: return ITEM_BYTES / w->item.size;
    default: return 1;
    }
}

/* The destination of a work, or with `side` 1 the source of one that has no terms. */
static struct walked walked_side(const struct device_table *t, const struct work *w, int side)
{
    const struct device_item *it = &w->item;
    const bool copies = w->kernel == DEVICE_COPY;
    const uint64_t size = copies || !side ? it->size : weft_dtype_size(it->from);
    if (it->form == FORM_SUM) {
        const uint64_t bytes = side ? (uint64_t)it->units * ITEM_BYTES : sizeof(uint64_t);
        return (struct walked){.at = side ? it->src : it->dst, .bytes = bytes, .rest = bytes};
    }
    return (struct walked){.at = side ? it->src : it->dst,
                           .bytes = lanes_of(w) * size,
                           .rest = it->rest ? it->rest * (copies ? 1 : size) : lanes_of(w) * size,
                           .loops = t->loops.v + w->loop,
                           .nloops = it->loops,
                           .side = side};
}

static struct walked walked_term(const struct device_table *t, const struct work *w, uint32_t k)
{
    const struct works_side *term = &t->terms.v[w->term + k];
    struct walked o = walked_side(t, w, 0);
    const uint64_t size = (uint64_t)term->size;
    o.at = term->at;
    o.bytes = lanes_of(w) * size;
    o.rest = w->item.rest ? w->item.rest * size : o.bytes;
    o.strides = term->stride;
    return o;
}

/* ---- ranges ---- */

/* Are the loops those over the operand's units? Those of tiles and of rows go beyond the operand's end. */
static bool ends_with_loops(const struct work *w)
{
    return w->kernel != DEVICE_TRANSPOSE && w->kernel != DEVICE_TRANSPOSE_ANY && w->item.form != FORM_ROWS;
}

static struct range range_of(const struct work *w, const struct walked *o, bool write)
{
    const uint64_t beyond = !ends_with_loops(w);
    struct range r = {o->at, o->at + (beyond ? ITEM_BYTES : o->rest), w->level, write, w};
    for (int i = 0; i < o->nloops; i++) {
        const uint64_t length = ((uint64_t)o->loops[i].n - 1 + beyond) * (uint64_t)stride_of(o, i);
        if (stride_of(o, i) < 0)
            r.lo += length;
        else
            r.hi += length;
    }
    return r;
}

static int compare_ranges(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    return (x->lo > y->lo) - (x->lo < y->lo);
}

static int ranges_make(struct ranges *r, const struct device_table *t)
{
    for (size_t i = 0; i < t->works.n; i++) {
        const struct work *w = &t->works.v[i];
        if (w->gone)
            continue;
        const bool source = !w->item.terms && w->item.form != FORM_FILL;
        if (!vec_room(&r->of, 2 + (size_t)w->item.terms))
            return error_nomem();
        struct walked o = walked_side(t, w, 0);
        r->of.v[r->of.n++] = range_of(w, &o, true);
        o = walked_side(t, w, 1);
        if (source)
            r->of.v[r->of.n++] = range_of(w, &o, false);
        for (uint32_t k = 0; k < w->item.terms; k++) {
            o = walked_term(t, w, k);
            r->of.v[r->of.n++] = range_of(w, &o, false);
        }
    }
    r->highest = malloc((r->of.n + 1) * sizeof *r->highest);
    if (!r->highest)
        return error_nomem();
    qsort(r->of.v, r->of.n, sizeof *r->of.v, compare_ranges);
    for (size_t i = 0; i < r->of.n; i++)
        r->highest[i] = i && r->highest[i - 1] > r->of.v[i].hi ? r->highest[i - 1] : r->of.v[i].hi;
    return 0;
}

/* Does the fold walk through all its terms as it does through its destination? */
static bool walks_alike(const struct device_table *t, const struct work *fold)
{
    bool alike = fold->item.alike;
    for (int i = 0; i < fold->item.loops && alike; i++)
        alike = t->loops.v[fold->loop + (size_t)i].stride[0] == t->loops.v[fold->loop + (size_t)i].stride[1];
    for (uint32_t k = 0; k < fold->item.terms && alike; k++)
        alike = t->terms.v[fold->term + k].size == fold->item.size;
    return alike;
}

/* Does a work of a level from `first` on and below `end` write to this memory, or with `reads` read it? A read of
 * exactly this memory by `term_of` does not count. */
static bool touched(const struct ranges *r, const struct range *memory, uint32_t first, uint32_t end, bool reads,
                    const struct work *term_of)
{
    size_t low = 0, high = r->of.n;
    while (low < high) { /* the first one behind the memory */
        const size_t mid = low + (high - low) / 2;
        if (r->of.v[mid].lo < memory->hi)
            low = mid + 1;
        else
            high = mid;
    }
    for (size_t i = low, looks = 0; i > 0 && r->highest[i - 1] > memory->lo; i--, looks++) {
        const struct range *o = &r->of.v[i - 1];
        if (looks == LOOKS)
            return true;
        if (o->hi <= memory->lo || o->level < first || o->level >= end || !(o->write || reads))
            continue;
        if (o->write || o->work != term_of || o->lo != memory->lo || o->hi != memory->hi)
            return true;
    }
    return false;
}

/* ---- copies ---- */

/* Leaves out a loop along which units are contiguous: returns the bytes of all its units. */
static uint64_t take_run(struct walked *o)
{
    if (!o->nloops || (uint64_t)stride_of(o, o->nloops - 1) != o->bytes)
        return o->rest;
    o->nloops--;
    return ((uint64_t)o->loops[o->nloops].n - 1) * o->bytes + o->rest;
}

/* Does the copy read all that the fold writes, and write it as the fold does, elsewhere? */
static bool copies_all(const struct device_table *t, const struct work *copy, const struct work *fold)
{
    struct walked from = walked_side(t, copy, 1), to = walked_side(t, copy, 0), made = walked_side(t, fold, 0);
    const uint64_t bytes = take_run(&made);
    if (take_run(&from) != bytes || take_run(&to) != bytes || from.nloops != made.nloops || to.nloops != made.nloops ||
        (copy->item.dst - fold->item.dst) % ITEM_BYTES)
        return false;
    for (int i = 0; i < made.nloops; i++)
        if (made.loops[i].n != from.loops[i].n || stride_of(&made, i) != stride_of(&from, i) ||
            stride_of(&made, i) != stride_of(&to, i))
            return false;
    return true;
}

static bool may_move(const struct device_table *t, const struct ranges *r, const struct work *copy,
                     const struct work *fold)
{
    const struct walked to = walked_side(t, copy, 0), made = walked_side(t, fold, 0);
    const struct range there = range_of(copy, &to, true), here = range_of(fold, &made, true);
    return !touched(r, &there, fold->level, copy->level, true, walks_alike(t, fold) ? fold : NULL) &&
           !touched(r, &here, fold->level + 1, copy->level, false, NULL);
}

static bool is_fold(const struct work *w)
{
    return !w->gone && (w->kernel == DEVICE_FOLD || w->kernel == DEVICE_FOLD_ANY);
}

static int compare_folds(const void *a, const void *b)
{
    const struct work *x = *(struct work *const *)a, *y = *(struct work *const *)b;
    return (x->item.dst > y->item.dst) - (x->item.dst < y->item.dst);
}

int works_forward(struct device_table *t)
{
    struct ranges r = {0};
    struct work **folds = malloc((t->works.n + 1) * sizeof *folds);
    size_t n = 0;
    uint32_t level = 0;
    if (!folds)
        return error_nomem();
    for (size_t i = 0; i < t->works.n; i++) {
        level = t->works.v[i].level > level ? t->works.v[i].level : level;
        if (is_fold(&t->works.v[i]))
            folds[n++] = &t->works.v[i];
    }
    int e = n && level ? ranges_make(&r, t) : 0;
    if (n && level && !e)
        qsort(folds, n, sizeof *folds, compare_folds);
    for (size_t i = 0; i < t->works.n && n && level && !e; i++) {
        struct work *w = &t->works.v[i], key = {.item.dst = w->item.src}, *pointer = &key;
        if (w->gone || w->kernel != DEVICE_COPY || w->item.form != FORM_COPY)
            continue;
        struct work *const *fold = bsearch(&pointer, folds, n, sizeof *folds, compare_folds);
        if (!fold || (*fold)->level >= w->level || !copies_all(t, w, *fold) || !may_move(t, &r, w, *fold))
            continue;
        const uint64_t dst = w->item.dst;
        *w = **fold;
        w->item.dst = dst;
    }
    free(folds);
    free(r.of.v);
    free(r.highest);
    return e;
}
