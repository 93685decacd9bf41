/* Runs the plans of all ranks on values instead of numbers: every step once, in an order that respects all waits.
 * verify_place.c has found which written part each read gets, so any order that respects the waits gives the same
 * values. What is written to a destination is compared with what must be there. */
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/hash.h"
#include "base/text.h"
#include "base/vec.h"
#include "plan/verify/verify.h"

static bool same_value(const struct verify_value *a, const struct verify_value *b)
{
    return verify_value_same_terms(a, b) && a->order == b->order && a->form == b->form && a->dtype == b->dtype &&
           a->op == b->op;
}

static int read_part(struct verify *v, size_t r, uint32_t k, struct verify_value *out)
{
    const weft_plan *p = v->all[r];
    if (verify_buf(p, &p->parts[k])->space == PLAN_SRC)
        return verify_terms_leaf(v, r, &p->parts[k], out);
    size_t part0 = v->part0[r];
    *out = v->value[part0 + v->origin[part0 + k]];
    for (const uint32_t *w = v->others[part0 + k]; w && *w != PLAN_NONE; w++)
        if (!same_value(out, &v->value[part0 + *w])) {
            char what[VERIFY_TEXT];
            return verify_refuse("rank %zu reads %s, in which not all elements have the same terms in the same order",
                                 r, verify_text_part(p, &p->parts[k], what));
        }
    return 0;
}

/* ---- words for a wrong value ---- */

typedef VEC(struct verify_value) terms;
enum { EXPLAIN_TERMS = 1 << 16 }; /* with more terms the error text is shorter */

/* The terms that went into a written part, each as often as it did. */
static int gather(struct verify *v, size_t r, uint32_t k, terms *out)
{
    const weft_plan *p = v->all[r];
    const struct plan_step *s = &p->steps[v->writer[v->part0[r] + k]];
    size_t step = v->step0[r] + v->writer[v->part0[r] + k], from = r;
    uint32_t first = s->part, n = s->nparts;
    if (s->kind == PLAN_RECV) {
        from = verify_rank_of(v, v->match[step]);
        first = verify_step(v, from, v->match[step] - v->step0[from])->part + (k - s->part);
        n = 1;
    } else if (s->kind == PLAN_REDUCE) {
        first++;
        n--;
    } else {
        n = 1;
    }
    int rc = 0;
    for (uint32_t i = first; i < first + n && !rc && out->n < EXPLAIN_TERMS; i++) {
        const weft_plan *q = v->all[from];
        if (verify_buf(q, &q->parts[i])->space != PLAN_SRC) {
            rc = gather(v, from, v->origin[v->part0[from] + i], out);
            continue;
        }
        struct verify_value *x = vec_push(out);
        rc = x ? verify_terms_leaf(v, from, &q->parts[i], x) : error_nomem();
    }
    return rc;
}

static int by_id(const void *a, const void *b)
{
    const struct verify_value *x = a, *y = b;
    return (x->set[0] > y->set[0]) - (x->set[0] < y->set[0]);
}

static int refuse_value(struct verify *v, size_t r, size_t s, uint32_t k)
{
    const weft_plan *p = v->all[r];
    const struct verify_tensor *t = &v->tensors[verify_buf(p, &p->parts[k])->tensor];
    char step[VERIFY_TEXT], words[VERIFY_TEXT];
    struct text text = text_start(words, sizeof words);
    terms have = {0};
    int rc = gather(v, r, k, &have);
    if (!rc && have.n)
        qsort(have.v, have.n, sizeof *have.v, by_id);
    if (!rc)
        rc = verify_terms_compare(v, t, t->ndim ? &p->runs[p->parts[k].runs] : NULL, have.v, have.n, &text);
    free(have.v);
    return rc ? rc : verify_refuse("%s: %s", verify_text_step(v, r, s, step), words);
}

/* ---- what is written ---- */

static int refuse_cast(struct verify *v, size_t r, size_t s, const struct plan_part *part, int dtype)
{
    char step[VERIFY_TEXT], what[VERIFY_TEXT];
    const struct verify_tensor *t = &v->tensors[verify_buf(v->all[r], part)->tensor];
    return verify_refuse("%s rounds %s to %s: terms stay %s, folds %s, results become %s and then %s",
                         verify_text_step(v, r, s, step), verify_text_part(v->all[r], part, what),
                         weft_dtype_name(dtype), weft_dtype_name(t->src->dtype), weft_dtype_name(t->acc),
                         weft_dtype_name(t->fin), weft_dtype_name(t->dst->dtype));
}

/* The bits of a fold of floats depend on its order. Boxes are compared later, if there are several orders. */
static void note_order(struct verify_tensor *t, const struct verify_value *x)
{
    int dtype = t->src->dtype;
    if (!t->folds || (!dtype_is_float(dtype) && !dtype_is_complex(dtype)) || x->kind == VERIFY_TERM)
        return;
    t->differ = t->differ || (t->seen && t->order != x->order);
    t->seen = true;
    t->order = x->order;
}

static int deliver(struct verify *v, size_t r, size_t s, uint32_t k, const struct verify_value *x)
{
    const weft_plan *p = v->all[r];
    const struct plan_part *part = &p->parts[k];
    struct verify_tensor *t = &v->tensors[verify_buf(p, part)->tensor];
    struct verify_value expected = t->expected;
    char step[VERIFY_TEXT], what[VERIFY_TEXT];
    int op = verify_terms_dst_op(v, r, part);
    if (op < 0)
        return verify_refuse("%s fills slots that carry the value and slots that carry an identity",
                             verify_text_step(v, r, s, step));
    if (op > 0) {
        if (x->kind == VERIFY_IDENTITY && x->op == op)
            return 0;
        return verify_refuse("%s: the destination's %s must hold the identity of %s here",
                             verify_text_step(v, r, s, step), verify_text_part(p, part, what), weft_op_name(op));
    }
    if (x->kind == VERIFY_IDENTITY)
        return verify_refuse("%s: it holds the identity of %s in place of the value", verify_text_step(v, r, s, step),
                             weft_op_name(x->op));
    int rc = t->ghosts ? verify_terms_expected(v, t, &p->runs[part->runs], &expected) : 0;
    if (rc < 0)
        return rc;
    if (rc || !verify_value_same_terms(x, &expected))
        return refuse_value(v, r, s, k);
    if (!verify_value_delivered(x, t, &expected))
        return refuse_cast(v, r, s, part, x->dtype);
    note_order(t, x);
    return 0;
}

static int write_part(struct verify *v, size_t r, size_t s, uint32_t k, struct verify_value x)
{
    const weft_plan *p = v->all[r];
    const struct plan_part *part = &p->parts[k];
    const struct plan_buf *b = verify_buf(p, part);
    if (!verify_value_cast(&x, &v->tensors[b->tensor], b->dtype))
        return refuse_cast(v, r, s, part, b->dtype);
    v->value[v->part0[r] + k] = x;
    return b->space == PLAN_DST ? deliver(v, r, s, k, &x) : 0;
}

/* ---- the steps ---- */

static int run_copy(struct verify *v, size_t r, size_t s)
{
    uint32_t part = verify_step(v, r, s)->part;
    struct verify_value x;
    int rc = read_part(v, r, part, &x);
    return rc ? rc : write_part(v, r, s, part + 1, x);
}

static int run_reduce(struct verify *v, size_t r, size_t s)
{
    const weft_plan *p = v->all[r];
    const struct plan_step *step = &p->steps[s];
    const struct plan_part *out = &p->parts[step->part];
    const struct verify_tensor *t = &v->tensors[verify_buf(p, out)->tensor];
    if (step->nparts == 1)
        return write_part(v, r, s, step->part, verify_value_identity(step->op, verify_buf(p, out)->dtype));
    struct verify_fold f;
    verify_value_fold_start(&f, step->op);
    for (uint32_t k = step->part + 1; k < step->part + step->nparts; k++) {
        struct verify_value x;
        int rc = read_part(v, r, k, &x);
        if (rc)
            return rc;
        if (x.form != VERIFY_EXACT || !verify_value_cast(&x, t, t->acc)) {
            char text[VERIFY_TEXT];
            return verify_refuse("%s folds a value that was rounded before", verify_text_step(v, r, s, text));
        }
        verify_value_fold_add(&f, &x);
    }
    struct verify_value x = verify_value_fold_end(&f, step->div, t->acc);
    if (step->via && !verify_value_cast(&x, t, step->via))
        return refuse_cast(v, r, s, out, step->via);
    return write_part(v, r, s, step->part, x);
}

static int run_recv(struct verify *v, size_t r, size_t s)
{
    const weft_plan *p = v->all[r];
    const struct plan_step *step = &p->steps[s];
    size_t send = v->match[v->step0[r] + s], from = verify_rank_of(v, send);
    uint32_t first = verify_step(v, from, send - v->step0[from])->part;
    for (uint32_t k = 0; k < step->nparts; k++) {
        const struct plan_part *part = &p->parts[step->part + k];
        struct verify_value x;
        int rc = read_part(v, from, first + k, &x);
        if (!rc && !verify_value_cast(&x, &v->tensors[verify_buf(p, part)->tensor], part->wire))
            rc = refuse_cast(v, from, send - v->step0[from], &v->all[from]->parts[first + k], part->wire);
        if (!rc)
            rc = write_part(v, r, s, step->part + k, x);
        if (rc)
            return rc;
    }
    return 0;
}

/* ---- the same bits everywhere ---- */

/* A part of a destination that carries a folded value. */
struct copy {
    uint32_t tensor, part;
    size_t r;
};
struct copies {
    struct verify *v;
    struct copy *at;
    size_t n;
};

static uint64_t order_of(const struct copies *c, size_t i)
{
    return c->v->value[c->v->part0[c->at[i].r] + c->at[i].part].order;
}

static int refuse_bits(void *arg, size_t i, size_t j)
{
    const struct copies *c = arg;
    const struct copy *a = &c->at[i], *b = &c->at[j];
    char one[VERIFY_TEXT], two[VERIFY_TEXT], what[VERIFY_TEXT];
    if (order_of(c, i) == order_of(c, j))
        return 0;
    return verify_refuse("%s and %s deliver %s folded in different orders: the bits may differ",
                         verify_text_step(c->v, a->r, c->v->writer[c->v->part0[a->r] + a->part], one),
                         verify_text_step(c->v, b->r, c->v->writer[c->v->part0[b->r] + b->part], two),
                         verify_text_part(c->v->all[a->r], &c->v->all[a->r]->parts[a->part], what));
}

static const struct plan_run *box_of(const struct copies *c, size_t i)
{
    const weft_plan *p = c->v->all[c->at[i].r];
    return p->runs + p->parts[c->at[i].part].runs;
}

/* Equal boxes have equal orders; keeps one of each. */
static int merge_equal(struct copies *c, size_t ndim)
{
    size_t mask = 1, n = 0, bytes = ndim * sizeof(struct plan_run);
    while (mask < 2 * c->n)
        mask *= 2;
    size_t *table = verify_alloc(&c->v->work, mask, sizeof *table); /* index plus one */
    if (!table)
        return WEFT_ENOMEM;
    mask--;
    for (size_t i = 0; i < c->n; i++) {
        size_t h = (bytes ? hash_bytes(0, box_of(c, i), bytes) : 0) & mask;
        while (table[h] && bytes && memcmp(box_of(c, table[h] - 1), box_of(c, i), bytes) != 0)
            h = (h + 1) & mask;
        if (table[h]) {
            int rc = refuse_bits(c, table[h] - 1, i);
            if (rc)
                return rc;
            continue;
        }
        c->at[n] = c->at[i];
        table[h] = ++n;
    }
    c->n = n;
    arena_reset(&c->v->work);
    return 0;
}

static int same_bits(struct copies *c)
{
    const struct verify_tensor *t = &c->v->tensors[c->at[0].tensor];
    size_t ndim = (size_t)t->ndim;
    int rc = merge_equal(c, ndim);
    if (rc)
        return rc;
    struct run *run = malloc((c->n * ndim + 1) * sizeof *run);
    if (!run)
        return error_nomem();
    for (size_t i = 0; i < c->n; i++)
        for (size_t d = 0; d < ndim; d++) {
            const struct plan_run *x = &box_of(c, i)[d];
            run[i * ndim + d] = (struct run){x->at, x->len, x->n, x->step, x->at, x->step};
        }
    rc = verify_cover_overlaps(&(struct verify_boxes){(int)ndim, c->n, run}, &c->v->work, refuse_bits, c);
    free(run);
    return rc;
}

static int by_tensor(const void *a, const void *b)
{
    const struct copy *x = a, *y = b;
    return (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

/* For tensors that were folded in several orders: checks that any two boxes that overlap have the same order. */
static int check_bits(struct verify *v)
{
    VEC(struct copy) all = {0};
    int rc = 0;
    for (size_t r = 0; r < v->ranks && !rc; r++) {
        const weft_plan *p = v->all[r];
        for (uint32_t k = 0; k < p->nparts && !rc; k++) {
            const struct plan_buf *b = verify_buf(p, &p->parts[k]);
            int kind = v->value[v->part0[r] + k].kind;
            if (!v->tensors[b->tensor].differ || b->space != PLAN_DST || v->writer[v->part0[r] + k] == PLAN_NONE ||
                (kind != VERIFY_OPEN && kind != VERIFY_CLOSED))
                continue;
            struct copy *x = vec_push(&all);
            if (x)
                *x = (struct copy){b->tensor, k, r};
            else
                rc = error_nomem();
        }
    }
    if (!rc && all.n)
        qsort(all.v, all.n, sizeof *all.v, by_tensor);
    for (size_t i = 0, n; i < all.n && !rc; i += n) {
        for (n = 1; i + n < all.n && all.v[i + n].tensor == all.v[i].tensor;)
            n++;
        rc = same_bits(&(struct copies){v, all.v + i, n});
    }
    free(all.v);
    return rc;
}

int verify_run(struct verify *v)
{
    int rc = 0;
    for (size_t i = 0; i < v->step0[v->ranks] && !rc; i++) {
        size_t r = verify_rank_of(v, v->order[i]), s = v->order[i] - v->step0[r];
        switch (verify_step(v, r, s)->kind) {
        case PLAN_COPY: rc = run_copy(v, r, s); break;
        case PLAN_REDUCE: rc = run_reduce(v, r, s); break;
        case PLAN_RECV: rc = run_recv(v, r, s); break;
        default: /* a SEND is evaluated with its RECV: its parts cannot change in between */ break;
        }
    }
    return rc ? rc : check_bits(v);
}
