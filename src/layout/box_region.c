/* Regions: what two have in common, and one without another. */
#include <string.h>

#include "base/error.h"
#include "layout/box_list.h"

struct box_region box_region_of(const struct box_list *b, size_t box)
{
    struct box_region r;
    size_t n = (size_t)b->ndim;
    memcpy(r.at, b->at + box * n, n * sizeof *r.at);
    memcpy(r.len, b->len + box * n, n * sizeof *r.len);
    return r;
}

int64_t box_region_count(int ndim, const struct box_region *r)
{
    int64_t count = 1;
    for (int d = 0; d < ndim; d++)
        count *= r->len[d];
    return count;
}

bool box_region_meet(int ndim, const struct box_region *a, const struct box_region *b, struct box_region *out)
{
    struct box_region r;
    for (int d = 0; d < ndim; d++) {
        int64_t lo = a->at[d] > b->at[d] ? a->at[d] : b->at[d];
        int64_t end = a->at[d] + a->len[d], other = b->at[d] + b->len[d];
        end = end < other ? end : other;
        if (lo >= end)
            return false;
        r.at[d] = lo;
        r.len[d] = end - lo;
    }
    for (int d = 0; d < ndim; d++) {
        out->at[d] = r.at[d];
        out->len[d] = r.len[d];
    }
    return true;
}

int box_region_add(struct box_regions *list, const struct box_region *r)
{
    if (list->n == list->cap) {
        size_t cap = list->cap ? 2 * list->cap : 8;
        struct box_region *more = arena_alloc(list->arena, cap * sizeof *more);
        if (!more)
            return error_nomem();
        if (list->n)
            memcpy(more, list->v, list->n * sizeof *more);
        list->v = more;
        list->cap = cap;
    }
    list->v[list->n++] = *r;
    return 0;
}

/* Adds what is left of r without its part `hit`: for each dim what is before it and what is behind it. */
static int add_rest(int ndim, struct box_regions *list, struct box_region r, const struct box_region *hit)
{
    for (int d = 0; d < ndim; d++) {
        struct box_region side = r;
        side.len[d] = hit->at[d] - r.at[d];
        int rc = side.len[d] ? box_region_add(list, &side) : 0;
        side.at[d] = hit->at[d] + hit->len[d];
        side.len[d] = r.at[d] + r.len[d] - side.at[d];
        if (!rc && side.len[d])
            rc = box_region_add(list, &side);
        if (rc)
            return rc;
        r.at[d] = hit->at[d];
        r.len[d] = hit->len[d];
    }
    return 0;
}

int box_region_without(int ndim, struct box_regions *list, const struct box_region *cut)
{
    size_t n = list->n, kept = 0;
    for (size_t i = 0; i < n; i++) {
        struct box_region r = list->v[i], hit;
        int rc = 0;
        if (box_region_meet(ndim, &r, cut, &hit))
            rc = add_rest(ndim, list, r, &hit);
        else
            list->v[kept++] = r;
        if (rc)
            return rc;
    }
    memmove(list->v + kept, list->v + n, (list->n - n) * sizeof *list->v);
    list->n -= n - kept;
    return 0;
}
