/* Works of one form whose runs are neighbours in memory, as when rows are cut into thin columns, become one work: its
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
    const int64_t each = w->kernel == DEVICE_COPY      ? ITEM_BYTES / w->item.size
                         : w->item.form == FORM_LANES4 ? CAST_ELEMENTS / 4
                         : w->item.form == FORM_LANES8 ? CAST_ELEMENTS / 8
                                                       : 4;
    w->loop = at;
    w->item.member = (uint8_t)outer;
    w->item.loops++;
    w->item.units *= (uint32_t)n;
    w->item.dst = w->item.src = 0;
    w->blocks = (uint32_t)ceil_div(w->item.units, DEVICE_THREADS * each);
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
    int e = join_side(t, c, 1);
    e = e ? e : join_side(t, c, 0);
    free(c);
    return e;
}
