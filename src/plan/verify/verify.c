#include "plan/verify/verify.h"

#include <string.h>

void *verify_alloc(struct arena *a, size_t n, size_t size)
{
    void *p = n > SIZE_MAX / size ? NULL : arena_alloc(a, n * size);
    if (!p) {
        error_nomem();
        return NULL;
    }
    return memset(p, 0, n * size);
}

size_t verify_rank_of(const struct verify *v, size_t step)
{
    size_t lo = 0, hi = v->ranks; /* step0[lo] <= step < step0[hi] */
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (v->step0[mid] <= step)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

struct run verify_run_of(const weft_plan *p, const struct plan_part *part, int dim)
{
    const struct plan_run *r = &p->runs[part->runs + (size_t)dim];
    const struct plan_spot *s = &p->spots[part->spots + (size_t)dim];
    return (struct run){r->at, r->len, r->n, r->step, s->to, s->tostep};
}
