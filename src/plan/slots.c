/* The global positions of a buffer's slots, for callers that have memory and a plan but no layouts. */
#include <stdlib.h>

#include "base/error.h"
#include "layout/layout.h"
#include "plan/plan.h"

static int by_slot(const void *a, const void *b)
{
    const struct plan_slots *x = a, *y = b;
    return x->to < y->to ? -1 : x->to > y->to;
}

int plan_slots(const weft_plan *p, uint32_t buf, int dim, size_t most, struct plan_slots **out, size_t *n)
{
    const weft_layout *l = plan_side(p, buf);
    if (l->boxes) {
        size_t k = plan_side_box(p, buf) * (size_t)l->ndim + (size_t)dim;
        *n = 1;
        *out = malloc(sizeof **out);
        if (!*out)
            return error_nomem();
        **out = (struct plan_slots){0, l->boxes->len[k], l->boxes->at[k]};
        return 0;
    }
    struct arena arena = {0};
    struct runs runs = {.arena = &arena};
    struct plan_slots *v = NULL;
    size_t first, inner, count = 0;
    int rc = layout_piece_slots(l, dim, layout_piece(l, mesh_index(l, p->rank), dim), &runs, &first, &inner);
    for (size_t i = 0; i < runs.n && !rc; i++) {
        count += (size_t)runs.v[i].n;
        if ((size_t)runs.v[i].n > most || count > most)
            rc = error_set(WEFT_EUNSUPPORTED, "more than %zu blocks along a dim", most);
    }
    if (!rc && !(v = malloc((count + 1) * sizeof *v)))
        rc = error_nomem();
    count = 0;
    for (size_t i = 0; i < runs.n && !rc; i++)
        for (int64_t k = 0; k < runs.v[i].n; k++) {
            const struct run *r = &runs.v[i];
            v[count++] = (struct plan_slots){r->to + k * r->tostep, r->len, r->at + k * r->step};
        }
    arena_free(&arena);
    if (rc)
        return rc;
    qsort(v, count, sizeof *v, by_slot);
    *out = v;
    *n = count;
    return 0;
}
