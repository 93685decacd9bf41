/* Proves that the plans of all ranks are right, without data and without knowledge of how they were made. The layouts
 * say what each destination slot must hold, and the steps say what it will hold. The cost is nearly linear in the parts
 * of all plans, and does not depend on the number of elements. */
#include "plan/scaled.h"
#include "plan/verify/verify.h"

#include <stdlib.h>
#include <string.h>

/* ---- what all plans have in common ---- */

#define disagree(...) error_set(WEFT_EMISMATCH, "verify: " __VA_ARGS__)

static int agree(const weft_plan *a, const weft_plan *p, size_t r)
{
    if (p->rank != (int32_t)r)
        return disagree("plans[%zu] is the plan of rank %d", r, (int)p->rank);
    if (p->world != a->world)
        return disagree("rank %zu's world has %d ranks, rank 0's %d", r, (int)p->world, (int)a->world);
    if (p->digest != a->digest)
        return disagree("rank %zu's plan was made for another problem than rank 0's: digest %016llx and %016llx", r,
                        (unsigned long long)p->digest, (unsigned long long)a->digest);
    if (p->in_place != a->in_place)
        return disagree("rank %zu's plan is %sfor use in place, rank 0's is %s", r, p->in_place ? "" : "not ",
                        a->in_place ? "so" : "not");
    if (!scaled_alike(p->scales, a->scales))
        return disagree("rank %zu makes other scales than rank 0", r);
    if (p->ntensors != a->ntensors)
        return disagree("rank %zu has %zu tensors, rank 0 has %zu", r, p->ntensors, a->ntensors);
    for (size_t i = 0; i < p->ntensors; i++) {
        const struct plan_tensor *x = &a->tensors[i], *y = &p->tensors[i];
        if (strcmp(a->names + x->name, p->names + y->name) != 0)
            return disagree("tensor %zu is '%.60s' on rank %zu, '%.60s' on rank 0", i, p->names + y->name, r,
                            a->names + x->name);
        if ((x->src != y->src && !weft_layout_equal(x->src, y->src)) ||
            (x->dst != y->dst && !weft_layout_equal(x->dst, y->dst)))
            return disagree("tensor '%.60s' has other layouts on rank %zu than on rank 0", p->names + y->name, r);
    }
    return 0;
}

static int check_all(const weft_plan *const *all, size_t ranks)
{
    if (ranks == 0)
        return disagree("no plans");
    for (size_t r = 0; r < ranks; r++) {
        if (!all[r])
            return disagree("plans[%zu] is NULL", r);
        int rc = plan_check(all[r]);
        if (!rc)
            rc = agree(all[0], all[r], r);
        if (rc)
            return rc;
    }
    if ((size_t)all[0]->world != ranks)
        return disagree("%zu plans for a world of %d ranks", ranks, (int)all[0]->world);
    return 0;
}

static int prepare(struct verify *v)
{
    v->step0 = verify_alloc(&v->arena, v->ranks + 1, sizeof *v->step0);
    v->part0 = verify_alloc(&v->arena, v->ranks + 1, sizeof *v->part0);
    if (!v->step0 || !v->part0)
        return WEFT_ENOMEM;
    for (size_t r = 0; r < v->ranks; r++) {
        v->step0[r + 1] = v->step0[r] + v->all[r]->nsteps;
        v->part0[r + 1] = v->part0[r] + v->all[r]->nparts;
    }
    size_t steps = v->step0[v->ranks], parts = v->part0[v->ranks], ntensors = v->all[0]->ntensors;
    v->match = verify_alloc(&v->arena, steps, sizeof *v->match);
    v->next = verify_alloc(&v->arena, steps, sizeof *v->next);
    v->prev = verify_alloc(&v->arena, steps, sizeof *v->prev);
    v->order = verify_alloc(&v->arena, steps, sizeof *v->order);
    v->at = verify_alloc(&v->arena, steps, sizeof *v->at);
    v->writer = verify_alloc(&v->arena, parts, sizeof *v->writer);
    v->origin = verify_alloc(&v->arena, parts, sizeof *v->origin);
    v->others = verify_alloc(&v->arena, parts, sizeof *v->others);
    v->value = verify_alloc(&v->arena, parts, sizeof *v->value);
    v->tensors = verify_alloc(&v->arena, ntensors, sizeof *v->tensors);
    if (!v->match || !v->next || !v->prev || !v->order || !v->at || !v->writer || !v->origin || !v->others ||
        !v->value || !v->tensors)
        return WEFT_ENOMEM;
    memset(v->next, 0xff, steps * sizeof *v->next); /* SIZE_MAX */
    memset(v->prev, 0xff, steps * sizeof *v->prev);
    int rc = 0;
    for (size_t i = 0; i < ntensors && !rc; i++)
        rc = verify_terms_tensor(v, &v->tensors[i], &v->all[0]->tensors[i]);
    return rc;
}

/* The plans that bring the maxima of blocks that ranks share. */
static int verify_folds(const weft_plan *const *all, size_t ranks)
{
    const weft_plan **folds = malloc(ranks * sizeof *folds);
    if (!folds)
        return error_nomem();
    for (size_t r = 0; r < ranks; r++)
        folds[r] = plan_fold(all[r]);
    int rc = weft_plan_verify(folds, ranks);
    free(folds);
    return rc;
}

int weft_plan_verify(const weft_plan *const *all, size_t ranks)
{
    struct verify v = {.all = all, .ranks = ranks};
    int rc = check_all(all, ranks);
    if (!rc)
        rc = prepare(&v);
    if (!rc)
        rc = verify_graph_match(&v);
    if (!rc)
        rc = verify_graph_sort(&v);
    for (size_t r = 0; r < ranks && !rc; r++)
        rc = verify_place(&v, r);
    if (!rc)
        rc = verify_run(&v);
    if (!rc)
        rc = verify_alias(&v);
    if (!rc && all[0]->scales)
        rc = scaled_check(all[0]); /* all ranks have the same layouts */
    if (!rc && plan_fold(all[0]))
        rc = verify_folds(all, ranks);
    arena_free(&v.work);
    arena_free(&v.arena);
    return rc;
}
