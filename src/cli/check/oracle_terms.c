/* The summands of one element and the order of the fold.
 *
 * Level l is the l-th fold written; level 0 is folded first. Two terms are in one group of level l if they have the
 * same coordinates at all levels from l on; the fold at level l combines groups of level l into groups of level l + 1.
 * Groups, like single terms, are taken in the order of their first term: owners before ghosts, by rank, by slot. */
#include <stdlib.h>

#include "cli/check/oracle_impl.h"

static struct oracle_term *push(struct oracle_terms *t)
{
    if (t->n == t->cap) {
        size_t cap = t->cap ? 2 * t->cap : 16;
        struct oracle_term *v = realloc(t->v, cap * sizeof *v);
        if (!v)
            return NULL;
        t->v = v;
        t->cap = cap;
    }
    return &t->v[t->n++];
}

/* Adds the terms of one slot of one piece, one for each combination of the fold axes. */
static int add_slot(const struct oracle_side *s, const struct oracle_side_slot *const *at, struct oracle_terms *out)
{
    int64_t piece = 0, slot = 0;
    int ghosts = 0;
    for (int k = 0; k < s->desc.ndim; k++) {
        piece += s->dim[k].offset[at[k]->piece];
        slot = slot * oracle_side_extent(&s->dim[k], at[k]->piece) + at[k]->slot;
        ghosts += at[k]->ghost;
    }
    if (oracle_side_corner(s, ghosts))
        return 0;
    for (int64_t c = 0; c < s->folds; c++) {
        struct oracle_term *t = push(out);
        if (!t)
            return WEFT_ENOMEM;
        *t = (struct oracle_term){
            .at = piece + s->fold[c], .ghost = ghosts > 0, .slot = slot, .piece = piece, .combo = c};
        t->rank = s->desc.ranks[t->at];
    }
    return 0;
}

static int collect(const struct oracle_side *s, const int64_t *index, struct oracle_terms *out)
{
    struct oracle_side_slot owner[WEFT_MAX_DIMS];
    const struct oracle_side_slot *list[WEFT_MAX_DIMS], *at[WEFT_MAX_DIMS];
    int64_t count[WEFT_MAX_DIMS], pick[WEFT_MAX_DIMS] = {0};
    for (int k = 0; k < s->desc.ndim; k++) {
        const struct oracle_side_dim *d = &s->dim[k];
        owner[k] = (struct oracle_side_slot){d->owner_piece[index[k]], d->owner_slot[index[k]], false};
        list[k] = s->ghost_terms ? d->where + d->at[index[k]] : &owner[k];
        count[k] = s->ghost_terms ? d->at[index[k] + 1] - d->at[index[k]] : 1;
    }
    do {
        for (int k = 0; k < s->desc.ndim; k++)
            at[k] = list[k] + pick[k];
        if (add_slot(s, at, out))
            return WEFT_ENOMEM;
    } while (oracle_step(s->desc.ndim, count, pick));
    return 0;
}

static int by_rank(const void *a, const void *b)
{
    const struct oracle_term *x = a, *y = b;
    if (x->ghost != y->ghost)
        return x->ghost ? 1 : -1;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->slot < y->slot ? -1 : x->slot > y->slot;
}

static int by_group(const void *a, const void *b)
{
    const struct oracle_term *x = a, *y = b;
    for (int l = WEFT_MAX_AXES; l >= 0; l--)
        if (x->key[l] != y->key[l])
            return x->key[l] < y->key[l] ? -1 : 1;
    return 0;
}

static bool same_group(const struct oracle_side *s, const struct oracle_term *x, const struct oracle_term *y, int level)
{
    for (int l = level; l < s->nlevels; l++) {
        if (s->coord[x->combo * s->nlevels + l] != s->coord[y->combo * s->nlevels + l])
            return false;
        bool same_copy = x->ghost == y->ghost && (!x->ghost || (x->piece == y->piece && x->slot == y->slot));
        if (s->level[l].ghosts && !same_copy)
            return false;
    }
    return true;
}

int oracle_terms_of(const struct oracle_side *s, const int64_t *index, struct oracle_terms *out)
{
    out->n = 0;
    if (collect(s, index, out))
        return WEFT_ENOMEM;
    struct oracle_term *v = out->v;
    qsort(v, out->n, sizeof *v, by_rank);
    for (size_t i = 0; i < out->n; i++) {
        v[i].key[0] = (int64_t)i;
        for (int l = 1; l < s->nlevels; l++) {
            size_t first = 0;
            while (!same_group(s, &v[first], &v[i], l))
                first++;
            v[i].key[l] = (int64_t)first;
        }
    }
    if (s->nlevels > 1)
        qsort(v, out->n, sizeof *v, by_group);
    for (size_t i = 1; i < out->n; i++)
        for (int l = 1; l < s->nlevels && v[i].key[l] != v[i - 1].key[l]; l++)
            v[i].close = l;
    return 0;
}
