/* In place: a slot of the source and a slot of the destination that stand for the same element may
 * be one place in memory. Then every read of the element's source on a rank must have happened
 * before its destination is written there. A SEND has read once a step that waits for it runs, or
 * once its RECV has run; both are ways through the graph of waits, so the question is whether the
 * write can be reached from the read. That a channel is first in first out does not count. */
#include <stdlib.h>

#include "plan/verify.h"

struct access {
    size_t step;
    uint32_t tensor, part;
    bool write;
};
struct accesses {
    struct verify *v;
    size_t r;
    struct access *a; /* of one tensor on one rank */
    size_t n;
    size_t *before, nbefore, cap; /* pairs of steps: a write, and a read that must come before it */
    size_t *seen;                 /* of a step: the last write, plus one, whose past it is in */
    size_t *queue;
};

/* A plain copy writes to a shared slot what is there already, and a cast may not share. */
static bool may_share(const struct verify_tensor *t)
{
    return (t->folds || t->dst->nfolds > 0) && weft_dtype_size(t->src->dtype) == weft_dtype_size(t->dst->dtype);
}

static int note_pair(void *arg, size_t i, size_t j)
{
    struct accesses *x = arg;
    const struct access *a = &x->a[i], *b = &x->a[j];
    if (a->write == b->write || a->step == b->step) /* a step that reads what it writes does so element by element */
        return 0;
    if (x->nbefore == x->cap) {
        size_t cap = x->cap ? 2 * x->cap : 64;
        size_t *more = realloc(x->before, 2 * cap * sizeof *more);
        if (!more)
            return error_nomem();
        x->before = more;
        x->cap = cap;
    }
    x->before[2 * x->nbefore] = a->write ? a->step : b->step;
    x->before[2 * x->nbefore + 1] = a->write ? b->step : a->step;
    x->nbefore++;
    return 0;
}

static int by_write(const void *a, const void *b)
{
    const size_t *x = a, *y = b;
    return (x[0] > y[0]) - (x[0] < y[0]);
}

/* Marks all that comes before step w and not before the place `floor` in the order of all steps. */
static void mark_past(struct accesses *x, size_t w, size_t floor)
{
    const struct verify *v = x->v;
    size_t n = 0;
    x->queue[n++] = w;
    x->seen[w] = w + 1;
    while (n) {
        size_t i = x->queue[--n], r = verify_rank_of(v, i);
        const weft_plan *p = v->all[r];
        const struct plan_step *s = &p->steps[i - v->step0[r]];
        for (uint32_t k = 0; k <= s->ndeps; k++) {
            if (k == s->ndeps && s->kind != PLAN_RECV)
                break;
            size_t before = k < s->ndeps ? v->step0[r] + p->deps[s->dep + k] : v->match[i];
            if (x->seen[before] == w + 1 || v->at[before] < floor)
                continue;
            x->seen[before] = w + 1;
            x->queue[n++] = before;
        }
    }
}

static int check_pairs(struct accesses *x)
{
    const struct verify *v = x->v;
    if (x->nbefore)
        qsort(x->before, x->nbefore, 2 * sizeof *x->before, by_write);
    for (size_t i = 0, n; i < x->nbefore; i += n) {
        size_t w = x->before[2 * i], floor = SIZE_MAX;
        for (n = 0; i + n < x->nbefore && x->before[2 * (i + n)] == w; n++)
            if (v->at[x->before[2 * (i + n) + 1]] < floor)
                floor = v->at[x->before[2 * (i + n) + 1]];
        mark_past(x, w, floor);
        for (size_t k = i; k < i + n; k++) {
            char one[VERIFY_TEXT], two[VERIFY_TEXT];
            if (x->seen[x->before[2 * k + 1]] != w + 1)
                return verify_refuse("in place, %s may overwrite what %s reads of the source: it does not wait for it",
                                     verify_step_text(v, x->r, w - v->step0[x->r], one),
                                     verify_step_text(v, x->r, x->before[2 * k + 1] - v->step0[x->r], two));
        }
    }
    return 0;
}

static int check_tensor(struct accesses *x, uint32_t tensor)
{
    const weft_plan *p = x->v->all[x->r];
    int ndim = p->tensors[tensor].ndim;
    struct run *run = malloc((x->n * (size_t)ndim + 1) * sizeof *run);
    if (!run)
        return error_nomem();
    for (size_t i = 0; i < x->n; i++)
        for (int d = 0; d < ndim; d++) {
            struct run a = verify_run_of(p, &p->parts[x->a[i].part], d);
            a.to = a.at; /* the same element, wherever it stands */
            a.tostep = a.step;
            run[i * (size_t)ndim + (size_t)d] = a;
        }
    x->nbefore = 0;
    int rc = verify_overlaps(&(struct verify_boxes){ndim, x->n, run}, &x->v->work, note_pair, x);
    free(run);
    return rc ? rc : check_pairs(x);
}

static int by_tensor(const void *a, const void *b)
{
    const struct access *x = a, *y = b;
    return (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

/* What a rank reads of sources and writes to destinations, by tensor. */
static size_t collect(struct verify *v, size_t r, struct access *out)
{
    const weft_plan *p = v->all[r];
    size_t n = 0;
    for (size_t s = 0; s < p->nsteps; s++)
        for (uint32_t k = 0; k < p->steps[s].nparts; k++) {
            uint32_t part = p->steps[s].part + k;
            const struct plan_buf *b = verify_buf(p, &p->parts[part]);
            bool write = verify_writes(&p->steps[s], k);
            if (b->space == (write ? PLAN_DST : PLAN_SRC) && may_share(&v->tensors[b->tensor]))
                out[n++] = (struct access){v->step0[r] + s, b->tensor, part, write};
        }
    if (n)
        qsort(out, n, sizeof *out, by_tensor);
    return n;
}

static int check_rank(struct accesses *x, struct access *all)
{
    size_t n = collect(x->v, x->r, all);
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i += x->n) {
        x->a = all + i;
        for (x->n = 1; i + x->n < n && all[i + x->n].tensor == all[i].tensor;)
            x->n++;
        rc = check_tensor(x, all[i].tensor);
    }
    return rc;
}

int verify_in_place(struct verify *v)
{
    if (!v->all[0]->in_place)
        return 0;
    size_t steps = v->step0[v->ranks], parts = 0;
    for (size_t r = 0; r < v->ranks; r++)
        parts = v->all[r]->nparts > parts ? v->all[r]->nparts : parts;
    struct accesses x = {.v = v};
    struct access *all = verify_alloc(&v->arena, parts, sizeof *all);
    x.seen = verify_alloc(&v->arena, steps, sizeof *x.seen);
    x.queue = verify_alloc(&v->arena, steps, sizeof *x.queue);
    int rc = all && x.seen && x.queue ? 0 : WEFT_ENOMEM;
    for (x.r = 0; x.r < v->ranks && !rc; x.r++)
        rc = check_rank(&x, all);
    free(x.before);
    return rc;
}
