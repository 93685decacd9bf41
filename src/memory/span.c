#include "memory/span.h"

#include <string.h>

#include "base/math.h"
#include "memory/copy.h"

/* Does one turn of tile loop a equal all n turns of loop b, for the written operand and all terms? */
static bool joins(const struct memory_tile *t, const struct memory_term *terms, size_t nterms, int a, int b, int64_t n)
{
    if (t->stride[0][a] != t->stride[0][b] * n)
        return false;
    for (size_t k = 0; k < nterms; k++)
        if (terms[k].stride[a] != terms[k].stride[b] * n)
            return false;
    return true;
}

bool span_nest_make(struct span_nest *nest, const struct memory_tile *t, const struct memory_term *terms, size_t n)
{
    int first = MEMORY_LOOPS; /* filled from the innermost loop on, then moved to the front */
    for (int i = t->loops - 1; i >= 0; i--) {
        if (t->n[i] == 0)
            return false;
        if (t->n[i] == 1)
            continue;
        if (first < MEMORY_LOOPS && joins(t, terms, n, i, nest->of[first], nest->n[first])) {
            nest->n[first] *= t->n[i];
        } else {
            nest->n[--first] = t->n[i];
            nest->of[first] = i;
        }
    }
    nest->loops = MEMORY_LOOPS - first;
    memmove(nest->n, nest->n + first, (size_t)nest->loops * sizeof *nest->n);
    memmove(nest->of, nest->of + first, (size_t)nest->loops * sizeof *nest->of);
    if (!nest->loops) { /* one element: its stride is never used */
        nest->loops = 1;
        nest->n[0] = 1;
        nest->of[0] = -1;
    }
    return true;
}

static int64_t stride_of(const struct span_nest *nest, const int64_t *stride, int i)
{
    return nest->of[i] < 0 ? 0 : stride[nest->of[i]];
}

static int64_t offset(const struct span_nest *nest, const int64_t *at, const int64_t *stride)
{
    int64_t off = 0;
    for (int i = 0; i < nest->loops; i++)
        off += at[i] * stride_of(nest, stride, i);
    return off;
}

struct span span_before(const struct span_nest *nest, int64_t most)
{
    struct span s = {.cut = nest->loops - 1, .inner = 1};
    while (s.cut > 0 && s.inner * nest->n[s.cut] <= most)
        s.inner *= nest->n[s.cut--];
    s.fit = most / s.inner;
    return s;
}

bool span_next(const struct span_nest *nest, struct span *s)
{
    int i = s->cut;
    for (s->at[i] += s->turns; s->at[i] == nest->n[i]; s->at[i]++) {
        if (!i)
            return false;
        s->at[i--] = 0;
    }
    s->turns = min64(s->fit, nest->n[s->cut] - s->at[s->cut]);
    s->len = s->turns * s->inner;
    return true;
}

void *span_direct(const struct span_nest *nest, const struct span *s, const void *base, const int64_t *stride,
                  size_t size)
{
    int64_t run = (int64_t)size;
    for (int i = nest->loops - 1; i > s->cut; run *= nest->n[i--])
        if (stride_of(nest, stride, i) != run)
            return NULL;
    if (s->turns > 1 && stride_of(nest, stride, s->cut) != run)
        return NULL;
    return (unsigned char *)(uintptr_t)base + offset(nest, s->at, stride);
}

/* Copies between the operand and a contiguous buffer. */
static void transfer(const struct span_nest *nest, const struct span *s, unsigned char *base, const int64_t *stride,
                     unsigned char *buf, size_t size, bool scatter)
{
    const int loops = nest->loops - s->cut;
    int64_t n[MEMORY_LOOPS], far[MEMORY_LOOPS], near[MEMORY_LOOPS], run = (int64_t)size;
    for (int i = loops - 1; i >= 0; run *= n[i--]) {
        n[i] = i ? nest->n[s->cut + i] : s->turns;
        far[i] = stride_of(nest, stride, s->cut + i);
        near[i] = run;
    }
    base += offset(nest, s->at, stride);
    if (scatter)
        copy_nest(loops, n, far, near, base, buf, size);
    else
        copy_nest(loops, n, near, far, buf, base, size);
}

void span_gather(const struct span_nest *nest, const struct span *s, void *buf, const void *base, const int64_t *stride,
                 size_t size)
{
    transfer(nest, s, (unsigned char *)(uintptr_t)base, stride, buf, size, false);
}

void span_scatter(const struct span_nest *nest, const struct span *s, void *base, const int64_t *stride,
                  const void *buf, size_t size)
{
    transfer(nest, s, base, stride, (unsigned char *)(uintptr_t)buf, size, true);
}
