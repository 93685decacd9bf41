/* The lower bound on what must cross between ranks, by brute force: for each element, the ranks that hold its summands
 * and the ranks that need the value.
 *
 * Positions along a dim that the same pieces hold, on both sides, form a class. All elements of one combination of
 * classes cost the same, so only one of them is computed. */
#include <stdlib.h>
#include <string.h>

#include "cli/check/oracle_impl.h"
#include "cli/check/scalar.h"

struct class
{
    int64_t example, count;
};
struct classes {
    struct class *v;
    int64_t n;
};

static bool same_slots(const struct oracle_side_dim *d, int64_t p, int64_t q)
{
    int64_t n = d->at[p + 1] - d->at[p];
    if (n != d->at[q + 1] - d->at[q])
        return false;
    for (int64_t i = 0; i < n; i++) {
        const struct oracle_side_slot *a = &d->where[d->at[p] + i], *b = &d->where[d->at[q] + i];
        if (a->piece != b->piece || a->ghost != b->ghost)
            return false;
    }
    return true;
}

static int classify(const struct oracle_side_dim *src, const struct oracle_side_dim *dst, struct classes *out)
{
    int64_t cap = 0, last = 0;
    *out = (struct classes){0};
    for (int64_t p = 0; p < src->extent; p++) {
        int64_t c = last; /* neighbours are mostly in the same class */
        for (int64_t tried = 0; tried < out->n; tried++, c = (c + 1) % out->n)
            if (same_slots(src, out->v[c].example, p) && same_slots(dst, out->v[c].example, p))
                goto found;
        if (out->n == cap) {
            cap = cap ? 2 * cap : 16;
            struct class *v = realloc(out->v, (size_t)cap * sizeof *v);
            if (!v)
                return WEFT_ENOMEM;
            out->v = v;
        }
        c = out->n++;
        out->v[c] = (struct class){.example = p};
    found:
        out->v[c].count++;
        last = c;
    }
    return 0;
}

/* Sets of ranks: a rank is in when its mark is the set's number. */
struct count {
    struct oracle *o;
    struct oracle_terms terms;
    int64_t *needs, *held; /* a mark for each rank; how many terms it holds (valid if it needs the value) */
    int64_t number;
};

/* Marks the ranks that must end with the value, and returns how many. */
static int64_t mark_needs(struct count *c, const int64_t *index)
{
    const struct oracle_side *s = &c->o->dst;
    int64_t slots[WEFT_MAX_DIMS], pick[WEFT_MAX_DIMS] = {0}, n = 0;
    for (int k = 0; k < s->desc.ndim; k++) /* the owner's slot comes first: without the ghosts it is the only one */
        slots[k] = s->ghost_terms ? 1 : s->dim[k].at[index[k] + 1] - s->dim[k].at[index[k]];
    do {
        int64_t at = 0;
        int ghosts = 0;
        for (int k = 0; k < s->desc.ndim; k++) {
            const struct oracle_side_slot *slot = &s->dim[k].where[s->dim[k].at[index[k]] + pick[k]];
            at += s->dim[k].offset[slot->piece];
            ghosts += slot->ghost;
        }
        if (oracle_side_corner(s, ghosts))
            continue;
        for (int64_t i = 0; i < s->replicas; i++) {
            int rank = s->desc.ranks[at + s->replica[i]];
            if (c->needs[rank] != c->number) {
                c->needs[rank] = c->number;
                c->held[rank] = 0;
                n++;
            }
        }
    } while (oracle_step(s->desc.ndim, slots, pick));
    return n;
}

static int64_t bytes_of(struct count *c, const int64_t *index)
{
    const struct oracle_side *s = &c->o->src;
    int64_t src = (int64_t)s->width, dst = (int64_t)c->o->dst.width, narrow = src < dst ? src : dst;
    c->number++;
    if (oracle_terms_of(s, index, &c->terms))
        return WEFT_ENOMEM;
    int64_t dests = mark_needs(c, index), terms = (int64_t)c->terms.n, have = 0, most = 0;
    for (size_t t = 0; t < c->terms.n; t++)
        for (int64_t i = 0; i < s->replicas; i++) {
            int rank = s->desc.ranks[c->terms.v[t].at + s->replica[i]];
            if (c->needs[rank] != c->number)
                continue;
            have++;
            if (++c->held[rank] > most)
                most = c->held[rank];
        }
    if (terms == 1)
        return (dests - have) * narrow;
    return (terms - most) * src + (dests - 1) * narrow;
}

int64_t oracle_bound(struct oracle *o)
{
    struct classes classes[WEFT_MAX_DIMS] = {{0}};
    int64_t n[WEFT_MAX_DIMS] = {0}, pick[WEFT_MAX_DIMS] = {0}, index[WEFT_MAX_DIMS], total = WEFT_ENOMEM;
    struct count c = {.o = o};
    c.needs = calloc((size_t)o->world, sizeof *c.needs);
    c.held = calloc((size_t)o->world, sizeof *c.held);
    if (!c.needs || !c.held || oracle_side_index(&o->src) || oracle_side_index(&o->dst))
        goto out;
    for (int k = 0; k < o->ndim; k++) {
        if (classify(&o->src.dim[k], &o->dst.dim[k], &classes[k]))
            goto out;
        n[k] = classes[k].n;
    }
    total = 0;
    if (!o->elements)
        goto out;
    do {
        int64_t count = 1;
        for (int k = 0; k < o->ndim; k++) {
            index[k] = classes[k].v[pick[k]].example;
            count *= classes[k].v[pick[k]].count;
        }
        int64_t bytes = bytes_of(&c, index);
        if (bytes < 0) {
            total = bytes;
            goto out;
        }
        total += bytes * count;
    } while (oracle_step(o->ndim, n, pick));
out:
    for (int k = 0; k < o->ndim; k++)
        free(classes[k].v);
    free(c.needs);
    free(c.held);
    free(c.terms.v);
    return total;
}
