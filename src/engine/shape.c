/* Loops over parts, from the plan's runs and spots to strides in bytes, and what they look like. */
#include "engine/shape.h"

/* A message is scattered, and better packed, if its spans have at most this many bytes. */
#define SCATTERED 32     /* bytes: half of a cache line, on most machines */
#define SCATTERED_FAR 64 /* bytes, if each span is on a page of its own */
#define PAGE 4096        /* bytes between two spans that are on different pages */

int shape_loops(const weft_plan *p, const struct plan_part *part, const int64_t *dim_stride, int64_t *n,
                int64_t *stride, int64_t *at)
{
    int ndim = plan_ndim(p, part), loops = 0;
    *at = 0;
    for (int d = 0; d < ndim; d++) {
        const struct plan_run *r = &p->runs[part->runs + (uint32_t)d];
        const struct plan_spot *s = &p->spots[part->spots + (uint32_t)d];
        *at += s->to * dim_stride[d];
        n[loops] = r->n;
        stride[loops++] = s->tostep * dim_stride[d];
        n[loops] = r->len;
        stride[loops++] = dim_stride[d];
    }
    return loops;
}

void shape_dense(int loops, const int64_t *n, int64_t size, int64_t *stride)
{
    for (int i = loops - 1; i >= 0; i--) {
        stride[i] = size;
        size *= n[i];
    }
}

static void swap_loops(int a, int b, int64_t *n, int64_t (*stride)[MEMORY_LOOPS], size_t k)
{
    int64_t t = n[a];
    n[a] = n[b];
    n[b] = t;
    for (size_t i = 0; i < k; i++) {
        t = stride[i][a];
        stride[i][a] = stride[i][b];
        stride[i][b] = t;
    }
}

int shape_merge(int loops, int64_t *n, int64_t (*stride)[MEMORY_LOOPS], size_t k)
{
    int kept = 0;
    for (int i = 0; i < loops; i++) {
        if (n[i] == 1)
            continue;
        if (kept != i)
            swap_loops(kept, i, n, stride, k);
        for (int j = kept++; j > 0 && stride[0][j - 1] < stride[0][j]; j--)
            swap_loops(j - 1, j, n, stride, k);
    }
    int out = 0;
    for (int i = 1; i < kept; i++) {
        bool joins = true;
        for (size_t j = 0; joins && j < k; j++)
            joins = stride[j][out] == n[i] * stride[j][i];
        if (joins) {
            n[out] *= n[i];
        } else {
            out++;
            n[out] = n[i];
        }
        for (size_t j = 0; j < k; j++)
            stride[j][out] = stride[j][i];
    }
    return kept ? out + 1 : 0;
}

/* ---- shapes ---- */

/* Merges the loops of s and finds the span. size: bytes of an element on each side. */
static void settle(struct shape *s, int sides, const int64_t size[2])
{
    s->loops = shape_merge(s->loops, s->n, s->stride, (size_t)sides);
    int last = s->loops - 1;
    s->span = last >= 0;
    for (int k = 0; k < sides && s->span; k++)
        s->span = s->stride[k][last] == size[k];
    s->outer = s->loops - s->span;
    s->length = s->span ? s->n[last] : 1;
}

/* One side: a part of the plan in this rank's memory. */
static struct shape own(const weft_exec *x, const struct program *p, const struct plan_part *part)
{
    struct shape s;
    int64_t at, size[2] = {(int64_t)weft_dtype_size(x->plan->bufs[part->buf].dtype)};
    s.loops = shape_loops(x->plan, part, p->places[part->buf].stride, s.n, s.stride[0], &at);
    settle(&s, 1, size);
    return s;
}

static void add_side(struct shape *s, int side, const struct block *b, const struct block_part *part)
{
    const struct block_loop *loops = block_loops(b) + part->loop;
    s->loops = part->nloops;
    for (int i = 0; i < part->nloops; i++) {
        s->n[i] = loops[i].n;
        s->stride[side][i] = loops[i].stride;
    }
}

struct shape shape_side(const struct block *b, const struct block_part *part)
{
    struct shape s;
    int64_t size[2] = {(int64_t)weft_dtype_size(part->dtype)};
    add_side(&s, 0, b, part);
    settle(&s, 1, size);
    return s;
}

struct shape shape_pair(const struct block *from, const struct block_part *src, const struct block *to,
                        const struct block_part *dst)
{
    struct shape s;
    int64_t size[2] = {(int64_t)weft_dtype_size(dst->dtype), (int64_t)weft_dtype_size(src->dtype)};
    add_side(&s, 0, to, dst);
    add_side(&s, 1, from, src);
    settle(&s, 2, size);
    return s;
}

/* ---- messages ---- */

bool shape_scattered(const weft_exec *x, const struct program *p, const uint32_t *steps, uint32_t n)
{
    const weft_plan *plan = x->plan;
    int64_t all = 0, scattered = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct plan_step *st = &plan->steps[steps[i]];
        for (uint32_t k = 0; k < st->nparts; k++) {
            const struct plan_part *part = &plan->parts[st->part + k];
            int64_t size = (int64_t)weft_dtype_size(plan->bufs[part->buf].dtype);
            struct shape s = own(x, p, part);
            int64_t step = s.outer ? s.stride[0][s.outer - 1] : 0;
            all += part->count * size;
            if (step && s.length * size <= (step < PAGE ? SCATTERED : SCATTERED_FAR))
                scattered += part->count * size;
        }
    }
    return scattered > all / 2;
}

int64_t shape_spans(const weft_exec *x, const struct program *p, uint32_t step)
{
    const weft_plan *plan = x->plan;
    const struct plan_step *st = &plan->steps[step];
    int64_t spans = 0;
    for (uint32_t k = 0; k < st->nparts; k++) {
        const struct plan_part *part = &plan->parts[st->part + k];
        spans += part->count ? part->count / own(x, p, part).length : 0;
    }
    return spans;
}
