/* The boxes of the destination that each step of a run completes, in order. */
#include <string.h>

#include "base/error.h"
#include "layout/layout.h"
#include "plan/plan.h"

/* The parts that a step writes. */
static const struct plan_part *written(const weft_plan *p, const struct plan_step *st, uint32_t *n)
{
    const struct plan_part *parts = &p->parts[st->part];
    *n = st->kind == PLAN_SEND ? 0 : st->kind == PLAN_RECV ? st->nparts : 1;
    return st->kind == PLAN_COPY ? parts + 1 : parts;
}

static size_t boxes(const weft_plan *p, const struct plan_part *part)
{
    size_t n = p->bufs[part->buf].space == PLAN_DST && part->count > 0;
    for (int d = 0; n && d < plan_ndim(p, part); d++)
        n *= (size_t)p->runs[part->runs + (uint32_t)d].n;
    return n;
}

size_t plan_boxes_count(const weft_plan *p, const struct plan_step *st)
{
    uint32_t n;
    const struct plan_part *parts = written(p, st, &n);
    size_t all = 0;
    for (uint32_t k = 0; k < n; k++)
        all += boxes(p, &parts[k]);
    return all;
}

void plan_boxes_next(const weft_plan *p, const struct plan_step *st, struct plan_place *at, weft_arrival *out)
{
    uint32_t n;
    const struct plan_part *parts = written(p, st, &n), *part;
    for (; part = &parts[at->part], at->box == boxes(p, part); at->part++)
        at->box = 0;
    size_t i = at->box++;
    memset(out, 0, sizeof *out);
    out->tensor = p->bufs[part->buf].tensor;
    const struct box_list *list = plan_side(p, part->buf)->boxes;
    size_t box = list ? plan_side_box(p, part->buf) : 0;
    int64_t slot = list ? list->offset[box] : 0;
    for (int d = plan_ndim(p, part) - 1; d >= 0; d--) {
        const struct plan_run *run = &p->runs[part->runs + (uint32_t)d];
        const struct plan_spot *spot = &p->spots[part->spots + (uint32_t)d];
        int64_t turn = (int64_t)(i % (size_t)run->n);
        i /= (size_t)run->n;
        out->box.at[d] = run->at + turn * run->step;
        out->box.len[d] = run->len;
        out->box.local[d] = spot->to + turn * spot->tostep;
        if (list)
            slot += out->box.local[d] * list->stride[box * (size_t)list->ndim + (size_t)d];
    }
    if (list) {
        memset(out->box.local, 0, sizeof out->box.local);
        out->box.local[0] = slot;
    }
}

int weft_plan_arrivals(const weft_plan *p, weft_arrival *out, size_t cap, size_t *n)
{
    if (!p || !n || (cap && !out))
        return error_set(WEFT_EINVAL, "weft_plan_arrivals: arguments must not be NULL");
    size_t all = 0;
    for (size_t s = 0; s < p->nsteps; s++) {
        struct plan_place at = {0};
        size_t here = plan_boxes_count(p, &p->steps[s]);
        for (size_t i = 0; i < here && all + i < cap; i++)
            plan_boxes_next(p, &p->steps[s], &at, &out[all + i]);
        all += here;
    }
    *n = all;
    return 0;
}
