/* Helpers for making a program. */
#include "engine/program.h"

#include <string.h>

void *program_take(struct program *p, size_t n, size_t size)
{
    void *v = arena_alloc(&p->arena, n ? n * size : 1);
    if (v)
        memset(v, 0, n ? n * size : 1);
    return v;
}

bool program_hears(const struct program *p, int peer)
{
    for (uint32_t i = 0; i < p->nins; i++)
        if (p->ins[i].peer == peer)
            return true;
    return false;
}

bool program_same_data(const weft_plan *plan, const struct plan_step *a, const struct plan_step *b)
{
    if (a->nparts != b->nparts || a->bytes != b->bytes)
        return false;
    for (uint32_t k = 0; k < a->nparts; k++) {
        const struct plan_part *pa = &plan->parts[a->part + k], *pb = &plan->parts[b->part + k];
        if (pa->buf != pb->buf || pa->wire != pb->wire || pa->offset != pb->offset || pa->count != pb->count)
            return false;
        size_t ndim = (size_t)plan_ndim(plan, pa);
        if (ndim && (memcmp(plan->runs + pa->runs, plan->runs + pb->runs, ndim * sizeof *plan->runs) ||
                     memcmp(plan->spots + pa->spots, plan->spots + pb->spots, ndim * sizeof *plan->spots)))
            return false;
    }
    return true;
}
