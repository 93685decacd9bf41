#include "lower/expand.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
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

/* Notes that values are scaled before the move or behind it, and what has to be folded for it. values and scales are
 * those of the side that was given without. */
static int add_entry(struct expand *e, const weft_move *m, bool back, const weft_layout *scales)
{
    weft_layout *have = NULL, *want = NULL;
    uint32_t *owner = NULL;
    const weft_layout *given = back ? m->dst : m->src;
    if (!e->scales && !(e->scales = calloc(1, sizeof *e->scales)))
        return error_nomem();
    struct plan_scaled *v = realloc(e->scales->v, (e->scales->n + 1) * sizeof *v);
    if (!v)
        return error_nomem();
    e->scales->v = v;
    int rc = back ? 0 : blocks_fold(given, scales, &have, &want, &owner);
    free(owner);
    if (!rc && have) {
        rc = keep(e, have);
        int other = keep(e, want);
        weft_move *fold = rc || other ? NULL : vec_push(&e->folds);
        if (fold)
            *fold = (weft_move){m->name, have, want};
        rc = fold ? 0 : error_nomem();
    }
    if (rc)
        return rc;
    v[e->scales->n++] = (struct plan_scaled){.tensor = (uint32_t)e->moves.n,
                                             .fold = have ? (uint32_t)e->folds.n - 1 : PLAN_NONE,
                                             .back = back,
                                             .given = layout_hold(given)};
    return 0;
}

static int expand_one(struct expand *e, const weft_move *m)
{
    const weft_layout *src = m->src, *dst = m->dst;
    weft_layout *made, *s = NULL, *d = NULL;
    const char *name = NULL;
    bool scaled = src->scale.dtype && dst->scale.dtype, back = src->scale.dtype;
    int rc = 0;
    if (!scaled) { /* the other side becomes like the one with scales */
        rc = blocks_like(back ? dst : src, back ? src : dst, &made);
        if (!rc)
            rc = keep(e, made);
        if (rc)
            return rc;
        *(back ? &dst : &src) = made;
    }
    rc = weft_layout_scales(src, &s);
    if (!rc)
        rc = keep(e, s);
    if (!rc)
        rc = weft_layout_scales(dst, &d);
    if (!rc)
        rc = keep(e, d);
    if (!rc && !scaled)
        rc = add_entry(e, m, back, back ? d : s);
    if (!rc)
        rc = scale_name(e, m->name ? m->name : "", &name);
    if (!rc)
        rc = add_move(e, m->name, src, dst);
    return rc ? rc : add_move(e, name, s, d);
}

int expand_moves(const weft_move *moves, size_t n, struct expand *out)
{
    int rc = 0;
    *out = (struct expand){0};
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
    free(e->names.v);
    scaled_free(e->scales);
}
