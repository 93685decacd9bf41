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

/* The values and scales of a side, and what has to be folded for it. A side that was given without scales becomes like
 * the other one. */
static int make_side(struct expand *e, struct expand_side *s)
{
    weft_layout *made = NULL, *want = NULL;
    uint32_t *owner = NULL;
    int rc = 0;
    s->values = s->given;
    if (!s->given->scale.dtype) {
        rc = blocks_like(s->given, s->as, &made);
        rc = rc ? rc : keep(e, made);
        s->values = made;
    }
    if (!rc)
        rc = weft_layout_scales(s->values, &made);
    if (!rc)
        rc = keep(e, made);
    s->scales = made;
    if (rc || !s->src || s->given->scale.dtype)
        return rc;
    rc = blocks_fold(s->given, s->scales, &made, &want, &owner);
    free(owner);
    if (rc || !made)
        return rc;
    s->have = made;
    s->want = want;
    rc = keep(e, made);
    int other = keep(e, want);
    return rc ? rc : other;
}

static bool same_side(const struct expand_side *a, const struct expand_side *b)
{
    return a->src == b->src && weft_layout_equal(a->given, b->given) &&
           (a->given->scale.dtype || (a->as->dtype == b->as->dtype && layout_same_scale(a->as, b->as)));
}

/* A side of a move: one that was made before, or a new one. */
static int find_side(struct expand *e, const weft_move *m, bool src, struct expand_side *out)
{
    *out = (struct expand_side){.given = src ? m->src : m->dst, .as = src ? m->dst : m->src, .src = src};
    size_t at = found_first(&e->table, hash_u64(out->given->hash, src));
    for (; e->table.v[at] != FOUND_NONE; at = found_next(&e->table, at))
        if (same_side(&e->sides.v[e->table.v[at]], out)) {
            *out = e->sides.v[e->table.v[at]];
            return 0;
        }
    int rc = make_side(e, out);
    struct expand_side *s = rc ? NULL : vec_push(&e->sides);
    if (!rc && !s)
        rc = error_nomem();
    if (rc)
        return rc;
    *s = *out;
    e->table.v[at] = (uint32_t)(e->sides.n - 1);
    return 0;
}

/* Notes that values are scaled before the move or behind it, and what has to be folded for it. */
static int add_entry(struct expand *e, const weft_move *m, const struct expand_side *p)
{
    bool back = m->src->scale.dtype;
    weft_move *fold = p->have ? vec_push(&e->folds) : NULL;
    if (p->have && !fold)
        return error_nomem();
    if (fold)
        *fold = (weft_move){m->name, p->have, p->want};
    struct plan_scales *all = e->scales;
    all->v[all->n++] = (struct plan_scaled){.tensor = (uint32_t)e->moves.n,
                                            .fold = fold ? (uint32_t)e->folds.n - 1 : PLAN_NONE,
                                            .back = back,
                                            .given = layout_hold(back ? m->dst : m->src)};
    return 0;
}

static int expand_one(struct expand *e, const weft_move *m)
{
    struct expand_side src, dst;
    const char *name = NULL;
    int rc = find_side(e, m, true, &src);
    if (!rc)
        rc = find_side(e, m, false, &dst);
    if (!rc && !(m->src->scale.dtype && m->dst->scale.dtype))
        rc = add_entry(e, m, &src);
    if (!rc)
        rc = scale_name(e, m->name ? m->name : "", &name);
    if (!rc)
        rc = add_move(e, m->name, src.values, dst.values);
    return rc ? rc : add_move(e, name, src.scales, dst.scales);
}

int expand_moves(const weft_move *moves, size_t n, struct expand *out)
{
    size_t scaled = 0, made = 0; /* tensors with scales; those with scales on one side */
    *out = (struct expand){0};
    for (size_t i = 0; i < n; i++) {
        bool src = moves[i].src->scale.dtype, dst = moves[i].dst->scale.dtype;
        scaled += src || dst;
        made += src != dst;
    }
    if (!found_open(&out->table, 2 * scaled) || !vec_room(&out->moves, n + scaled) || !vec_room(&out->names, scaled))
        return error_nomem();
    if (made &&
        (!(out->scales = calloc(1, sizeof *out->scales)) || !(out->scales->v = calloc(made, sizeof *out->scales->v))))
        return error_nomem();
    int rc = 0;
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
    free(e->sides.v);
    free(e->table.v);
    free(e->names.v);
    scaled_free(e->scales);
}
