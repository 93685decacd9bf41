/* Works become fewer and larger.
 *
 * Works of one form that go on where others end, as the messages do into which a piece is cut, become one: a block
 * finds its work sooner if there are few.
 *
 * Works that copy the same source to several places, as replicas are made, become one: a thread reads once and writes
 * to all of them. So do folds of the same terms. And a copy of what a fold has written becomes one more place of that
 * fold, which needs no level of its own: an allreduce is one level.
 *
 * Works of one form whose runs are neighbours in memory, as when rows are cut into thin columns, become one: its
 * threads walk through the neighbours of a row before they go on to the next row. So each line of that side is read or
 * written at once. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/math.h"
#include "device/works.h"

#define THIN 256 /* bytes of a run up to which interleaved boxes are joined */

struct candidate {
    struct work *work;
    const struct works_loop *loops;
    const struct works_side *terms;
    int side; /* the side whose addresses sort works of one form */
};

static int compare_u64(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static uint64_t candidate_at(const struct candidate *c)
{
    return c->side ? c->work->item.src : c->work->item.dst;
}

/* ---- works that go on where others end ---- */

struct piece {
    struct work *work;
    struct works_loop *loops; /* the first one may have another number of turns */
    const struct works_side *terms;
};

/* 0: the pieces differ in their addresses, in the turns of their first loops, and in their last units alone. */
static int compare_shape(const struct piece *a, const struct piece *b)
{
    const struct work *x = a->work, *y = b->work;
    struct device_item p = x->item, q = y->item;
    p.dst = q.dst = p.src = q.src = 0;
    p.units = q.units = p.rest = q.rest = 0;
    int c = compare_u64(x->level, y->level);
    c = c ? c : compare_u64(x->kernel, y->kernel);
    c = c ? c : memcmp(&p, &q, sizeof p);
    c = c ? c : memcmp(a->loops->stride, b->loops->stride, sizeof a->loops->stride);
    c = c || p.loops == 1 ? c : memcmp(a->loops + 1, b->loops + 1, (p.loops - 1u) * sizeof *a->loops);
    for (uint32_t k = 0; k < p.terms && !c; k++) {
        c = compare_u64((uint64_t)a->terms[k].dtype, (uint64_t)b->terms[k].dtype);
        c = c ? c : memcmp(a->terms[k].stride, b->terms[k].stride, p.loops * sizeof *a->terms->stride);
    }
    return c;
}

static int compare_pieces(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    int c = compare_shape(x, y);
    return c ? c : compare_u64(x->work->item.dst, y->work->item.dst);
}

/* Does `b` begin where `a` ends, in all operands? */
static bool goes_on(const struct piece *a, const struct piece *b)
{
    const struct device_item *p = &a->work->item, *q = &b->work->item;
    const uint64_t n = (uint64_t)a->loops->n;
    bool on = !p->rest && q->dst - p->dst == n * (uint64_t)a->loops->stride[0] &&
              (uint64_t)p->units + q->units <= (uint64_t)WORKS_MOST / ITEM_BYTES;
    if (!p->terms)
        return on && q->src - p->src == n * (uint64_t)a->loops->stride[1];
    for (uint32_t k = 0; k < p->terms && on; k++)
        on = b->terms[k].at - a->terms[k].at == n * (uint64_t)a->terms[k].stride[0];
    return on;
}

static void append(struct piece *a, const struct piece *b)
{
    struct work *w = a->work;
    a->loops->n += b->loops->n;
    w->item.units += b->work->item.units;
    w->item.rest = b->work->item.rest;
    for (int side = 0; side < 2 && w->item.loops == 1 && w->inner; side++)
        w->run[side] = w->run[side] && b->work->run[side] ? w->run[side] + b->work->run[side] : 0;
    w->blocks = works_blocks(w);
    b->work->gone = true;
}

/* The piece of the n sorted ones that begins where `a` ends; NULL: there is none. */
static struct piece *next_piece(struct piece *p, size_t n, const struct piece *a)
{
    struct work end = *a->work;
    end.item.dst += (uint64_t)a->loops->n * (uint64_t)a->loops->stride[0];
    struct piece *next = bsearch(&(struct piece){&end, a->loops, a->terms}, p, n, sizeof *p, compare_pieces);
    return next && next != a && !next->work->gone && goes_on(a, next) ? next : NULL;
}

static int join_pieces(struct device_table *t)
{
    struct piece *p = malloc((t->works.n + 1) * sizeof *p), *next;
    size_t n = 0;
    if (!p)
        return error_nomem();
    for (size_t i = 0; i < t->works.n; i++) {
        struct work *w = &t->works.v[i];
        if (w->each && w->item.loops > (w->item.form == FORM_ROWS)) /* a row has no other behind it */
            p[n++] = (struct piece){w, t->loops.v + w->loop, t->terms.v + w->term};
    }
    if (n)
        qsort(p, n, sizeof *p, compare_pieces);
    for (size_t i = 0; i < n; i++)
        while (!p[i].work->gone && (next = next_piece(p, n, &p[i])))
            append(&p[i], next);
    free(p);
    return 0;
}

/* ---- works that copy the same, or fold the same ---- */

/* 0: the works differ in their destinations alone. */
static int compare_source(const struct candidate *a, const struct candidate *b)
{
    const struct work *x = a->work, *y = b->work;
    struct device_item p = x->item, q = y->item;
    p.dst = q.dst = 0;
    int c = compare_u64(x->level, y->level);
    c = c ? c : compare_u64(x->kernel, y->kernel);
    c = c ? c : memcmp(&p, &q, sizeof p);
    c = c || !p.loops ? c : memcmp(a->loops, b->loops, p.loops * sizeof *a->loops);
    for (uint32_t k = 0; k < p.terms && !c; k++) {
        c = compare_u64(a->terms[k].at, b->terms[k].at);
        c = c ? c : compare_u64((uint64_t)a->terms[k].dtype, (uint64_t)b->terms[k].dtype);
        c = c || !p.loops ? c : memcmp(a->terms[k].stride, b->terms[k].stride, p.loops * sizeof *a->terms->stride);
    }
    return c;
}

static int compare_copies(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    int c = compare_source(x, y);
    return c ? c : compare_u64(x->work->item.dst, y->work->item.dst);
}

/* Makes one work of n that read the same. */
static int join_copies(struct device_table *t, const struct candidate *c, size_t n)
{
    struct work *w = c->work;
    if (!vec_room(&t->boxes, n))
        return error_nomem();
    w->box = t->boxes.n;
    w->boxes = (uint32_t)n - 1;
    if (w->kernel == DEVICE_COPY)
        w->item.form = FORM_COPIES;
    w->item.turned[0] = w->boxes;
    w->run[0] = w->run[1] = 0;
    for (size_t i = 1; i < n; i++) {
        t->boxes.v[t->boxes.n++] = (struct device_box){.dst = c[i].work->item.dst - w->item.dst};
        c[i].work->gone = true;
    }
    return 0;
}

static bool is_fold(const struct work *w)
{
    return w->kernel == DEVICE_FOLD || w->kernel == DEVICE_FOLD_ANY;
}

static bool has_places(const struct work *w)
{
    return is_fold(w) || (w->kernel == DEVICE_COPY && w->item.form == FORM_COPY && w->item.size == ITEM_BYTES);
}

static int join_replicas(struct device_table *t, struct candidate *c)
{
    size_t n = 0;
    int e = 0;
    for (size_t i = 0; i < t->works.n; i++) {
        struct work *w = &t->works.v[i];
        if (!w->gone && has_places(w))
            c[n++] = (struct candidate){.work = w, .loops = t->loops.v + w->loop, .terms = t->terms.v + w->term};
    }
    if (n > 1)
        qsort(c, n, sizeof *c, compare_copies);
    for (size_t i = 0, k; i < n && !e; i = k) {
        for (k = i + 1; k < n && compare_source(&c[i], &c[k]) == 0; k++)
            ;
        if (k - i > 1)
            e = join_copies(t, &c[i], k - i);
    }
    return e;
}

/* ---- works whose runs are neighbours ---- */

/* 0: the works differ in their addresses alone. */
static int compare_form(const struct candidate *a, const struct candidate *b)
{
    const struct work *x = a->work, *y = b->work;
    struct device_item p = x->item, q = y->item;
    p.dst = q.dst = p.src = q.src = 0;
    int c = compare_u64(x->level, y->level);
    c = c ? c : compare_u64(x->kernel, y->kernel);
    c = c ? c : memcmp(x->run, y->run, sizeof x->run);
    c = c ? c : memcmp(&p, &q, sizeof p);
    return c || !p.loops ? c : memcmp(a->loops, b->loops, p.loops * sizeof *a->loops);
}

static int compare_candidates(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    int c = compare_form(x, y);
    return c ? c : compare_u64(candidate_at(x), candidate_at(y));
}

/* Makes one work of n candidates. Its loop over the boxes is the one around the run. */
static int join(struct device_table *t, const struct candidate *c, size_t n)
{
    struct work *w = c->work;
    if (!vec_room(&t->boxes, n) || !vec_room(&t->loops, w->item.loops + (size_t)1))
        return error_nomem();
    const size_t at = t->loops.n, outer = w->item.loops - (size_t)w->inner;
    for (size_t i = 0; i < w->item.loops; i++)
        t->loops.v[at + i + (i >= outer)] = t->loops.v[w->loop + i];
    t->loops.v[at + outer] = (struct works_loop){.n = (int64_t)n};
    t->loops.n += w->item.loops + (size_t)1;
    w->box = t->boxes.n;
    w->boxes = (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        t->boxes.v[t->boxes.n++] = (struct device_box){c[i].work->item.dst, c[i].work->item.src};
        c[i].work->gone = i > 0;
    }
    w->loop = at;
    w->item.member = (uint8_t)outer;
    w->item.loops++;
    w->item.units *= (uint32_t)n;
    w->item.dst = w->item.src = 0;
    w->blocks = works_blocks(w);
    return 0;
}

static bool may_join(const struct work *w)
{
    return !w->gone && !w->boxes && w->run[0] && (w->run[0] <= THIN || w->run[1] <= THIN) &&
           w->item.loops < WORKS_LOOPS;
}

/* Joins works that are neighbours on one side. */
static int join_side(struct device_table *t, struct candidate *c, int side)
{
    size_t n = 0;
    int e = 0;
    for (size_t i = 0; i < t->works.n; i++)
        if (may_join(&t->works.v[i]))
            c[n++] = (struct candidate){.work = &t->works.v[i], .side = side};
    if (n < 2)
        return 0;
    for (size_t i = 0; i < n; i++)
        c[i].loops = t->loops.v + c[i].work->loop;
    qsort(c, n, sizeof *c, compare_candidates);
    /* The loops move when more are added: forms are compared before. */
    size_t *ends = malloc(n * sizeof *ends), groups = 0;
    if (!ends)
        return error_nomem();
    for (size_t i = 0, k; i < n; i = k) {
        const uint64_t most = (uint64_t)WORKS_MOST / c[i].work->item.units;
        for (k = i + 1; k < n && k - i < most && compare_form(&c[i], &c[k]) == 0 &&
                        candidate_at(&c[k]) - candidate_at(&c[k - 1]) == c[i].work->run[side];
             k++)
            ;
        ends[groups++] = k;
    }
    for (size_t g = 0, i = 0; g < groups && !e; i = ends[g++])
        if (ends[g] - i > 1)
            e = join(t, &c[i], ends[g] - i);
    free(ends);
    return e;
}

int works_join(struct device_table *t)
{
    struct candidate *c = malloc((t->works.n + 1) * sizeof *c);
    if (!c)
        return error_nomem();
    int e = join_pieces(t);
    e = e || t->apart ? e : works_forward(t);
    e = e ? e : join_replicas(t, c);
    e = e ? e : join_side(t, c, 1);
    e = e ? e : join_side(t, c, 0);
    free(c);
    return e;
}
