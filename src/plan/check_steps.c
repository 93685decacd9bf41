/* The second half of plan_check: the steps, after tensors, buffers and parts were found right. It checks what each kind
 * of step may read and write, how a message is laid out, and that steps wait only for earlier ones. */
#include <inttypes.h>
#include <string.h>

#include "base/dtype.h"
#include "layout/layout.h"
#include "plan/check.h"

static const struct plan_buf *buf_of(const weft_plan *p, const struct plan_part *part)
{
    return &p->bufs[part->buf];
}

static bool same_box(const weft_plan *p, const struct plan_part *a, const struct plan_part *b)
{
    size_t ndim = (size_t)plan_ndim(p, a);
    return buf_of(p, a)->tensor == buf_of(p, b)->tensor &&
           (a->runs == b->runs || ndim == 0 ||
            memcmp(&p->runs[a->runs], &p->runs[b->runs], ndim * sizeof *p->runs) == 0);
}

static int check_cast(size_t i, uint32_t k, int from, int to)
{
    return dtype_castable(from, to) ? 0
                                    : check_refuse("step %zu, part %" PRIu32 ": there is no cast from %s to %s", i, k,
                                                   weft_dtype_name(from), weft_dtype_name(to));
}

static int check_message(const weft_plan *p, size_t i)
{
    const struct plan_step *s = &p->steps[i];
    int64_t end = 0;
    if (s->op || s->via || s->div)
        return check_refuse("step %zu: a message with an op, a via or a divisor", i);
    if (s->peer < 0 || s->peer >= p->world || s->peer == p->rank)
        return check_refuse("step %zu: peer %" PRId32 " of rank %" PRId32 " in a world of %" PRId32, i, s->peer,
                            p->rank, p->world);
    if (s->nparts == 0)
        return check_refuse("step %zu: a message without parts", i);
    for (uint32_t k = 0; k < s->nparts; k++) {
        const struct plan_part *part = &p->parts[s->part + k];
        int64_t size = (int64_t)weft_dtype_size(part->wire);
        if (size == 0)
            return check_refuse("step %zu, part %" PRIu32 ": no wire dtype", i, k);
        if (s->kind == PLAN_RECV && buf_of(p, part)->space == PLAN_SRC)
            return check_refuse("step %zu, part %" PRIu32 ": receives into a source", i, k);
        bool sends = s->kind == PLAN_SEND;
        int mine = buf_of(p, part)->dtype, err = check_cast(i, k, sends ? mine : part->wire, sends ? part->wire : mine);
        if (err)
            return err;
        if (part->offset % size)
            return check_refuse("step %zu, part %" PRIu32 ": offset %" PRId64 " is not aligned for %s", i, k,
                                part->offset, weft_dtype_name(part->wire));
        if (part->offset < end || part->offset - end >= CHECK_PAD)
            return check_refuse("step %zu, part %" PRIu32 ": offset %" PRId64 ", the part before ends at %" PRId64, i,
                                k, part->offset, end);
        if (__builtin_add_overflow(part->offset, part->count * size, &end))
            return check_refuse("step %zu, part %" PRIu32 ": ends beyond what can be counted", i, k);
    }
    if (s->bytes != end)
        return check_refuse("step %zu: %" PRId64 " bytes, its parts end at %" PRId64, i, s->bytes, end);
    return 0;
}

/* What COPY and REDUCE share: part `to` is written, all parts are the same box, and fields for messages are 0. */
static int check_local(const weft_plan *p, size_t i, uint32_t to)
{
    const struct plan_step *s = &p->steps[i];
    const struct plan_part *written = &p->parts[s->part + to];
    if (s->peer != -1 || s->bytes)
        return check_refuse("step %zu: a local step with a peer or a message size", i);
    if (buf_of(p, written)->space == PLAN_SRC)
        return check_refuse("step %zu: writes to a source", i);
    for (uint32_t k = 0; k < s->nparts; k++) {
        const struct plan_part *part = &p->parts[s->part + k];
        if (part->wire || part->offset)
            return check_refuse("step %zu, part %" PRIu32 ": a local part with a wire dtype or an offset", i, k);
        if (!same_box(p, part, written))
            return check_refuse("step %zu, part %" PRIu32 ": its box is not the one that is written", i, k);
    }
    return 0;
}

static int check_copy(const weft_plan *p, size_t i)
{
    const struct plan_step *s = &p->steps[i];
    if (s->nparts != 2)
        return check_refuse("step %zu: a copy of %" PRIu32 " parts", i, s->nparts);
    if (s->op || s->via || s->div)
        return check_refuse("step %zu: a copy with an op, a via or a divisor", i);
    int err = check_local(p, i, 1);
    const struct plan_part *parts = &p->parts[s->part];
    return err ? err : check_cast(i, 1, buf_of(p, &parts[0])->dtype, buf_of(p, &parts[1])->dtype);
}

static int check_reduce(const weft_plan *p, size_t i)
{
    const struct plan_step *s = &p->steps[i];
    if (s->nparts == 0)
        return check_refuse("step %zu: a reduction without parts", i);
    int err = check_local(p, i, 0);
    if (err)
        return err;
    const struct plan_buf *out = buf_of(p, &p->parts[s->part]);
    int src = p->tensors[out->tensor].src->dtype;
    int folded = s->nparts > 1 ? src : out->dtype; /* without inputs it is the identity of the written dtype */
    if (s->op == WEFT_AVG || !dtype_foldable(s->op, folded))
        return check_refuse("step %zu: op %s (%d) cannot fold %s", i, weft_op_name(s->op) ? weft_op_name(s->op) : "?",
                            s->op, weft_dtype_name(folded));
    if (s->via && !weft_dtype_size(s->via))
        return check_refuse("step %zu: via dtype %d is unknown", i, s->via);
    int from = s->nparts > 1 ? src : out->dtype, via = s->via ? s->via : from;
    if ((err = check_cast(i, 0, from, via)) || (err = check_cast(i, 0, via, out->dtype)))
        return err;
    if (s->div < 0 || (s->div > 1 && s->op != WEFT_SUM))
        return check_refuse("step %zu: divisor %" PRId64 " with op %s", i, s->div, weft_op_name(s->op));
    for (uint32_t k = 1; k < s->nparts; k++) {
        int dtype = buf_of(p, &p->parts[s->part + k])->dtype;
        if (dtype != src && dtype != dtype_acc(src))
            return check_refuse("step %zu, part %" PRIu32 ": folds %s, the source is %s", i, k, weft_dtype_name(dtype),
                                weft_dtype_name(src));
    }
    return 0;
}

static int check_deps(const weft_plan *p, size_t i)
{
    const struct plan_step *s = &p->steps[i];
    if (s->stage < 0)
        return check_refuse("step %zu: stage %" PRId32, i, s->stage);
    for (uint32_t k = 0; k < s->ndeps; k++) {
        uint32_t dep = p->deps[s->dep + k];
        if (dep >= i)
            return check_refuse("step %zu: waits for step %" PRIu32 ", which is not before it", i, dep);
        if (s->kind == PLAN_SEND && p->steps[dep].stage >= s->stage)
            return check_refuse("step %zu: a send at stage %" PRId32 " waits for step %" PRIu32 " at stage %" PRId32, i,
                                s->stage, dep, p->steps[dep].stage);
    }
    return 0;
}

static int check_ranges(const weft_plan *p, size_t i)
{
    const struct plan_step *s = &p->steps[i];
    if (s->part > p->nparts || s->nparts > p->nparts - s->part)
        return check_refuse("step %zu: %" PRIu32 " parts at %" PRIu32 " of %zu", i, s->nparts, s->part, p->nparts);
    if (s->dep > p->ndeps || s->ndeps > p->ndeps - s->dep)
        return check_refuse("step %zu: %" PRIu32 " deps at %" PRIu32 " of %zu", i, s->ndeps, s->dep, p->ndeps);
    return 0;
}

static int check_step(const weft_plan *p, size_t i)
{
    const struct plan_step *s = &p->steps[i];
    int err = check_deps(p, i);
    if (err)
        return err;
    switch (s->kind) {
    case PLAN_COPY: return check_copy(p, i);
    case PLAN_REDUCE: return check_reduce(p, i);
    case PLAN_SEND:
    case PLAN_RECV: return check_message(p, i);
    default: return check_refuse("step %zu: kind %d is unknown", i, s->kind);
    }
}

int check_steps(const weft_plan *p)
{
    /* Counts so far. A step is walked only while they stay within the plan's, so that all walks together are linear. */
    size_t parts = 0, deps = 0;
    for (size_t i = 0; i < p->nsteps; i++) {
        int err = check_ranges(p, i);
        if (err)
            return err;
        parts += p->steps[i].nparts;
        deps += p->steps[i].ndeps;
        if (parts > p->nparts || deps > p->ndeps)
            return check_refuse("step %zu: its parts or deps are shared with another step", i);
        err = check_step(p, i);
        if (err)
            return err;
    }
    if (parts != p->nparts || deps != p->ndeps)
        return check_refuse("%zu parts and %zu deps, the steps have %zu and %zu", p->nparts, p->ndeps, parts, deps);
    return 0;
}
