/* In place: a slot of the source and a slot of the destination that have the same element may be one place in memory.
 * Then every read of the element's source on a rank must happen before its destination is written there: a chain of
 * waits must lead from the write back to the read. That a channel is first in first out is not enough.
 *
 * When has a SEND read its parts? When a step that waits for it runs. If no step waits for it, the receiver may read
 * the message from the sender's memory as late as its RECV runs, or, for parts that only folds read, as late as these
 * folds run. */
#include <stdlib.h>
#include <string.h>

#include "plan/verify/verify.h"

struct access {
    size_t step;
    uint32_t tensor, part;
    bool write;
};
/* A read that must come before a write on the same rank. */
struct before {
    size_t write, read;
    uint32_t part; /* the part that is read */
};
struct accesses {
    struct verify *v;
    size_t r;
    struct access *a; /* of one tensor on one rank */
    size_t n;
    struct before *before;
    size_t nbefore, cap;
    size_t *seen, *queue; /* seen, for each step: `mark` if it comes before the current write */
    size_t mark;
    bool *watched;           /* for each SEND: a step waits for it */
    uint32_t *reader, *more; /* reader, for each written part: the first part that reads it; more: the next one */
    uint32_t *reads;         /* for each read part: its step */
};

/* Without folds, a copy writes the value that a shared slot has already. A tensor that is cast may not share slots. */
static bool may_share(const struct verify_tensor *t)
{
    return (t->folds || t->dst->nfolds > 0) && t->src->dtype == t->dst->dtype;
}

/* Does the part write a value to a shared slot that differs from the source's? */
static bool changes(const struct verify *v, size_t r, uint32_t part)
{
    return v->value[v->part0[r] + part].kind != VERIFY_TERM;
}

static int note_pair(void *arg, size_t i, size_t j)
{
    struct accesses *x = arg;
    const struct access *a = &x->a[i], *b = &x->a[j];
    if (a->write == b->write || a->step == b->step) /* a step that reads what it writes does so element by element */
        return 0;
    if (x->nbefore == x->cap) {
        size_t cap = x->cap ? 2 * x->cap : 64;
        struct before *more = realloc(x->before, cap * sizeof *more);
        if (!more)
            return error_nomem();
        x->before = more;
        x->cap = cap;
    }
    const struct access *w = a->write ? a : b, *r = a->write ? b : a;
    x->before[x->nbefore++] = (struct before){w->step, r->step, r->part};
    return 0;
}

static int by_write(const void *a, const void *b)
{
    const struct before *x = a, *y = b;
    return (x->write > y->write) - (x->write < y->write);
}

/* Marks all steps that must come before step w, as far back as position `floor` in the order of all steps. */
static void mark_past(struct accesses *x, size_t w, size_t floor)
{
    const struct verify *v = x->v;
    size_t n = 0;
    x->mark++;
    x->queue[n++] = w;
    x->seen[w] = x->mark;
    while (n) {
        size_t i = x->queue[--n], r = verify_rank_of(v, i);
        const weft_plan *p = v->all[r];
        const struct plan_step *s = &p->steps[i - v->step0[r]];
        for (uint32_t k = 0; k <= s->ndeps; k++) {
            if (k == s->ndeps && s->kind != PLAN_RECV)
                break;
            size_t before = k < s->ndeps ? v->step0[r] + p->deps[s->dep + k] : v->match[i];
            if (x->seen[before] == x->mark || v->at[before] < floor)
                continue;
            x->seen[before] = x->mark;
            x->queue[n++] = before;
        }
    }
}

/* For part k on the rank of RECV i: is it read only by folds, and do all of these run before the write? */
static bool folds_ran(const struct accesses *x, size_t i, uint32_t k)
{
    const struct verify *v = x->v;
    size_t r = verify_rank_of(v, i), part0 = v->part0[r];
    const weft_plan *p = v->all[r];
    bool folds = verify_buf(p, &p->parts[k])->space == PLAN_TEMP, ran = true;
    for (uint32_t q = x->reader[part0 + k]; q != PLAN_NONE && folds; q = x->more[part0 + q]) {
        folds = p->steps[x->reads[part0 + q]].kind == PLAN_REDUCE;
        ran = ran && x->seen[v->step0[r] + x->reads[part0 + q]] == x->mark;
    }
    return ran || !folds;
}

/* Is the read done before the write, given the steps that come before the write? */
static bool has_read(const struct accesses *x, const struct before *b)
{
    const struct verify *v = x->v;
    const struct plan_step *s = verify_step(v, x->r, b->read - v->step0[x->r]);
    if (x->seen[b->read] != x->mark)
        return false;
    if (s->kind != PLAN_SEND || x->watched[b->read])
        return true;
    size_t recv = v->match[b->read], r = verify_rank_of(v, recv);
    return folds_ran(x, recv, verify_step(v, r, recv - v->step0[r])->part + (b->part - s->part));
}

static int check_pairs(struct accesses *x)
{
    const struct verify *v = x->v;
    if (x->nbefore)
        qsort(x->before, x->nbefore, sizeof *x->before, by_write);
    for (size_t i = 0, n; i < x->nbefore; i += n) {
        size_t w = x->before[i].write, floor = SIZE_MAX;
        for (n = 0; i + n < x->nbefore && x->before[i + n].write == w; n++)
            if (v->at[x->before[i + n].read] < floor)
                floor = v->at[x->before[i + n].read];
        mark_past(x, w, floor);
        for (size_t k = i; k < i + n; k++) {
            char one[VERIFY_TEXT], two[VERIFY_TEXT];
            if (!has_read(x, &x->before[k]))
                return verify_refuse("in place, %s may overwrite what %s reads of the source: it does not wait for it",
                                     verify_text_step(v, x->r, w - v->step0[x->r], one),
                                     verify_text_step(v, x->r, x->before[k].read - v->step0[x->r], two));
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
            a.to = a.at; /* compare elements, not places */
            a.tostep = a.step;
            run[i * (size_t)ndim + (size_t)d] = a;
        }
    x->nbefore = 0;
    int rc = verify_cover_overlaps(&(struct verify_boxes){ndim, x->n, run}, &x->v->work, note_pair, x);
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
            const struct verify_tensor *t = &v->tensors[b->tensor];
            if (b->space == (write ? PLAN_DST : PLAN_SRC) && may_share(t) && (!write || changes(v, r, part)))
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

/* Which parts read which written part, and which SENDs some step waits for. */
static int index_reads(struct accesses *x)
{
    struct verify *v = x->v;
    size_t steps = v->step0[v->ranks], parts = v->part0[v->ranks];
    x->seen = verify_alloc(&v->arena, steps, sizeof *x->seen);
    x->queue = verify_alloc(&v->arena, steps, sizeof *x->queue);
    x->watched = verify_alloc(&v->arena, steps, sizeof *x->watched);
    x->reader = verify_alloc(&v->arena, parts, sizeof *x->reader);
    x->more = verify_alloc(&v->arena, parts, sizeof *x->more);
    x->reads = verify_alloc(&v->arena, parts, sizeof *x->reads);
    if (!x->seen || !x->queue || !x->watched || !x->reader || !x->more || !x->reads)
        return WEFT_ENOMEM;
    memset(x->reader, 0xff, parts * sizeof *x->reader); /* PLAN_NONE */
    for (size_t r = 0; r < v->ranks; r++) {
        const weft_plan *p = v->all[r];
        size_t part0 = v->part0[r];
        for (size_t s = 0; s < p->nsteps; s++) {
            for (uint32_t k = 0; k < p->steps[s].ndeps; k++)
                x->watched[v->step0[r] + p->deps[p->steps[s].dep + k]] = true;
            for (uint32_t k = p->steps[s].part; k < p->steps[s].part + p->steps[s].nparts; k++) {
                uint32_t from = v->origin[part0 + k];
                if (from == PLAN_NONE)
                    continue;
                x->reads[part0 + k] = (uint32_t)s;
                x->more[part0 + k] = x->reader[part0 + from];
                x->reader[part0 + from] = k;
            }
        }
    }
    return 0;
}

int verify_alias(struct verify *v)
{
    if (!v->all[0]->in_place)
        return 0;
    size_t parts = 0;
    for (size_t r = 0; r < v->ranks; r++)
        parts = v->all[r]->nparts > parts ? v->all[r]->nparts : parts;
    struct accesses x = {.v = v};
    struct access *all = verify_alloc(&v->arena, parts, sizeof *all);
    int rc = all ? index_reads(&x) : WEFT_ENOMEM;
    for (x.r = 0; x.r < v->ranks && !rc; x.r++)
        rc = check_rank(&x, all);
    free(x.before);
    return rc;
}
