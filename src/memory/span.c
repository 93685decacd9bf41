#include "memory/span.h"

#include <string.h>

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

/* Moves turns that ran over the end of a loop to the loop before it. */
static void carry(const struct span_nest *nest, int64_t *at, int from)
{
    for (int i = from; i > 0 && at[i] >= nest->n[i]; i--) {
        at[i - 1] += at[i] / nest->n[i];
        at[i] %= nest->n[i];
    }
}

static int64_t rows_left(const struct span_nest *nest, const int64_t *at)
{
    int64_t rows = 1, gone = 0;
    for (int i = 0; i < nest->loops - 1; i++) {
        rows *= nest->n[i];
        gone = gone * nest->n[i] + at[i];
    }
    return rows - gone;
}

bool span_next(const struct span_nest *nest, struct span *s, int64_t most)
{
    int last = nest->loops - 1;
    int64_t row = nest->n[last];
    s->at[last] += s->len;
    carry(nest, s->at, last);
    if (s->at[0] >= nest->n[0])
        return false;
    if (last == 0 || row > most / 2) {
        int64_t left = row - s->at[last];
        s->len = left < most ? left : most;
    } else {
        int64_t left = rows_left(nest, s->at), fit = most / row;
        s->len = (left < fit ? left : fit) * row;
    }
    return true;
}

void *span_direct(const struct span_nest *nest, const struct span *s, const void *base, const int64_t *stride,
                  size_t size)
{
    int64_t run = 1, start = 0; /* how far elements are contiguous, and where the span begins in there */
    for (int i = nest->loops - 1; i >= 0 && stride_of(nest, stride, i) == run * (int64_t)size; i--) {
        start += s->at[i] * run;
        run *= nest->n[i];
    }
    if (start + s->len > run)
        return NULL;
    return (unsigned char *)(uintptr_t)base + offset(nest, s->at, stride);
}

/* Copies between the operand and a contiguous buffer, box by box. A box is as many whole inner loops as the span still
 * covers. */
static void transfer(const struct span_nest *nest, const struct span *s, unsigned char *base, const int64_t *stride,
                     unsigned char *buf, size_t size, bool scatter)
{
    int last = nest->loops - 1;
    int64_t at[MEMORY_LOOPS], n[MEMORY_LOOPS], far[MEMORY_LOOPS], near[MEMORY_LOOPS], run = 1;
    for (int i = last; i >= 0; run *= nest->n[i], i--) {
        at[i] = s->at[i];
        n[i] = nest->n[i];
        far[i] = stride_of(nest, stride, i);
        near[i] = run * (int64_t)size;
    }
    for (int64_t left = s->len; left > 0;) {
        int i = last;
        int64_t inner = 1; /* elements of one turn of loop i */
        for (; i > 0 && at[i] == 0 && left >= inner * nest->n[i]; i--)
            inner *= nest->n[i];
        int64_t turns = nest->n[i] - at[i];
        turns = left / inner < turns ? left / inner : turns;
        n[i] = turns;
        unsigned char *p = base + offset(nest, at, stride);
        if (scatter)
            copy_nest(last - i + 1, n + i, far + i, near + i, p, buf, size);
        else
            copy_nest(last - i + 1, n + i, near + i, far + i, buf, p, size);
        n[i] = nest->n[i];
        at[i] += turns;
        carry(nest, at, i);
        left -= turns * inner;
        buf += turns * inner * (int64_t)size;
    }
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
