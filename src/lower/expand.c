#include "lower/expand.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "layout/blocks.h"
#include "plan/scaled.h"

bool expand_needed(const weft_move *moves, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (moves[i].src->scale.dtype || moves[i].dst->scale.dtype)
            return true;
    return false;
}

static int keep(struct expand *e, weft_layout *l)
{
    weft_layout **v = vec_push(&e->made);
    if (!v) {
        weft_layout_free(l);
        return error_nomem();
    }
    *v = l;
    return 0;
}

/* "w.scale" for the scales of "w". */
static int scale_name(struct expand *e, const char *of, const char **out)
{
    size_t room = strlen(of) + sizeof ".scale";
    char **v = vec_push(&e->names);
    char *name = v ? malloc(room) : NULL;
    if (v)
        *v = name;
    if (!name)
        return error_nomem();
    snprintf(name, room, "%s%sscale", of, *of ? "." : "");
    *out = name;
    return 0;
}

static int add_move(struct expand *e, const char *name, const weft_layout *src, const weft_layout *dst)
{
    weft_move *m = vec_push(&e->moves);
    if (!m)
        return error_nomem();
    *m = (weft_move){name, src, dst};
    return 0;
}

/* The scales of both sides, and the values of a side that was given without. */
static int make_pair(struct expand *e, const weft_move *m, struct expand_pair *p)
{
    const weft_layout *sides[2] = {m->src, m->dst};
    weft_layout *made = NULL, *want = NULL;
    uint32_t *owner = NULL;
    int rc = 0;
    *p = (struct expand_pair){.src = m->src, .dst = m->dst};
    for (int i = 0; i < 2 && !rc; i++) {
        p->values[i] = sides[i];
        if (!sides[i]->scale.dtype) { /* it becomes like the other side */
            rc = blocks_like(sides[i], sides[!i], &made);
            rc = rc ? rc : keep(e, made);
            p->values[i] = made;
        }
        if (!rc)
            rc = weft_layout_scales(p->values[i], &made);
        if (!rc)
            rc = keep(e, made);
        p->scales[i] = made;
    }
    if (rc || m->src->scale.dtype)
        return rc;
    rc = blocks_fold(m->src, p->scales[0], &made, &want, &owner);
    free(owner);
    if (rc || !made)
        return rc;
    p->have = made;
    p->want = want;
    rc = keep(e, made);
    int other = keep(e, want);
    return rc ? rc : other;
}

/* The pair of a move: one that was made before, or a new one. */
static int find_pair(struct expand *e, const weft_move *m, struct expand_pair *out)
{
    size_t at = hash_mix(hash_u64(m->src->hash, m->dst->hash)) & e->mask;
    for (; e->table[at] != PLAN_NONE; at = (at + 1) & e->mask) {
        const struct expand_pair *p = &e->pairs.v[e->table[at]];
        if (weft_layout_equal(p->src, m->src) && weft_layout_equal(p->dst, m->dst)) {
            *out = *p;
            return 0;
        }
    }
    int rc = make_pair(e, m, out);
    struct expand_pair *p = rc ? NULL : vec_push(&e->pairs);
    if (!rc && !p)
        rc = error_nomem();
    if (rc)
        return rc;
    *p = *out;
    e->table[at] = (uint32_t)(e->pairs.n - 1);
    return 0;
}

/* Notes that values are scaled before the move or behind it, and what has to be folded for it. */
static int add_entry(struct expand *e, const weft_move *m, const struct expand_pair *p)
{
    bool back = m->src->scale.dtype;
    if (!e->scales && !(e->scales = calloc(1, sizeof *e->scales)))
        return error_nomem();
    struct plan_scaled *v = realloc(e->scales->v, (e->scales->n + 1) * sizeof *v);
    if (!v)
        return error_nomem();
    e->scales->v = v;
    weft_move *fold = p->have ? vec_push(&e->folds) : NULL;
    if (p->have && !fold)
        return error_nomem();
    if (fold)
        *fold = (weft_move){m->name, p->have, p->want};
    v[e->scales->n++] = (struct plan_scaled){.tensor = (uint32_t)e->moves.n,
                                             .fold = fold ? (uint32_t)e->folds.n - 1 : PLAN_NONE,
                                             .back = back,
                                             .given = layout_hold(back ? m->dst : m->src)};
    return 0;
}

static int expand_one(struct expand *e, const weft_move *m)
{
    struct expand_pair p;
    const char *name = NULL;
    int rc = find_pair(e, m, &p);
    if (!rc && !(m->src->scale.dtype && m->dst->scale.dtype))
        rc = add_entry(e, m, &p);
    if (!rc)
        rc = scale_name(e, m->name ? m->name : "", &name);
    if (!rc)
        rc = add_move(e, m->name, p.values[0], p.values[1]);
    return rc ? rc : add_move(e, name, p.scales[0], p.scales[1]);
}

int expand_moves(const weft_move *moves, size_t n, struct expand *out)
{
    size_t cap = 4;
    while (cap < 2 * n)
        cap *= 2;
    *out = (struct expand){.table = malloc(cap * sizeof *out->table), .mask = cap - 1};
    int rc = out->table ? 0 : error_nomem();
    if (!rc)
        memset(out->table, 0xff, cap * sizeof *out->table); /* PLAN_NONE */
    for (size_t i = 0; i < n && !rc; i++)
        rc = moves[i].src->scale.dtype || moves[i].dst->scale.dtype
                 ? expand_one(out, &moves[i])
                 : add_move(out, moves[i].name, moves[i].src, moves[i].dst);
    return rc;
}

void expand_free(struct expand *e)
{
    for (size_t i = 0; i < e->made.n; i++)
        weft_layout_free(e->made.v[i]);
    for (size_t i = 0; i < e->names.n; i++)
        free(e->names.v[i]);
    free(e->moves.v);
    free(e->folds.v);
    free(e->made.v);
    free(e->pairs.v);
    free(e->table);
    free(e->names.v);
    scaled_free(e->scales);
}
