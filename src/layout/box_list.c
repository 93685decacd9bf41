/* From the caller's arrays to a list of boxes. */
#include "layout/box_list.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/strides.h"

#define MAX_BYTES ((int64_t)1 << 62)

void box_list_dense(int ndim, const int64_t *len, int64_t *stride)
{
    uint64_t step = 1; /* of a text whose extents have not been checked yet the product may not fit */
    for (int d = ndim - 1; d >= 0; d--) {
        stride[d] = (int64_t)step;
        step *= (uint64_t)len[d];
    }
}

/* -1: more than 2^62. */
int64_t box_list_span(int ndim, const int64_t *len, const int64_t *stride)
{
    int64_t span = 1, step;
    for (int d = 0; d < ndim; d++)
        if (__builtin_mul_overflow(len[d] - 1, stride[d], &step) || __builtin_add_overflow(span, step, &span) ||
            span > MAX_BYTES)
            return -1;
    return span;
}

/* ---- one box ---- */

struct making {
    const weft_boxes *from;
    const int64_t *extents;
    int ndim;
    int64_t size;
    const struct caret *w;
};

static int where(const struct making *m, size_t i)
{
    return m->w && m->w->box ? m->w->box[i] : -1;
}

/* Is box i inside the tensor? *empty: it has no elements. */
static int check_box(const struct making *m, size_t i, bool *empty)
{
    size_t n = (size_t)m->ndim;
    *empty = false;
    if (m->from->rank[i] < 0 || m->from->rank[i] == INT_MAX)
        return caret_fail(m->w, where(m, i), "box %zu is of rank %d: a rank is 0 to %d", i, m->from->rank[i],
                          INT_MAX - 1);
    for (size_t d = 0; d < n; d++) {
        int64_t at = m->from->at[i * n + d], len = m->from->len[i * n + d];
        if (at < 0 || len < 0 || len > m->extents[d] || at > m->extents[d] - len)
            return caret_fail(m->w, where(m, i),
                              "box %zu, of rank %d, has %lld elements from %lld on in dim %zu, which has %lld", i,
                              m->from->rank[i], (long long)len, (long long)at, d, (long long)m->extents[d]);
        *empty = *empty || !len;
    }
    return 0;
}

/* Writes box i of the caller as box k, whose rank's boxes so far reach to *room. */
static int place_box(const struct making *m, size_t i, struct box_list *b, size_t k, int64_t *room)
{
    size_t n = (size_t)m->ndim;
    int64_t *at = b->at + k * n, *len = b->len + k * n, *stride = b->stride + k * n, dense[WEFT_MAX_DIMS];
    b->rank[k] = m->from->rank[i];
    if (n) {
        memcpy(at, m->from->at + i * n, n * sizeof *at);
        memcpy(len, m->from->len + i * n, n * sizeof *len);
    }
    box_list_dense(m->ndim, len, dense);
    for (size_t d = 0; d < n; d++) {
        stride[d] = m->from->stride && len[d] > 1 ? m->from->stride[i * n + d] : dense[d];
        if (stride[d] < 1)
            return caret_fail(m->w, where(m, i), "box %zu, of rank %d, has stride %lld in dim %zu: at least 1", i,
                              b->rank[k], (long long)stride[d], d);
    }
    b->offset[k] = m->from->offset ? m->from->offset[i] : *room;
    int64_t span = box_list_span(m->ndim, len, stride), end;
    if (b->offset[k] < 0)
        return caret_fail(m->w, where(m, i), "box %zu, of rank %d, is at %lld of its buffer", i, b->rank[k],
                          (long long)b->offset[k]);
    if (span < 0 || __builtin_add_overflow(b->offset[k], span, &end) || end > MAX_BYTES / m->size)
        return caret_fail(m->w, where(m, i), "box %zu, of rank %d, reaches beyond 2^62 bytes of its buffer", i,
                          b->rank[k]);
    if (m->from->stride && !strides_nest(m->ndim, len, stride, 1))
        return caret_fail(m->w, where(m, i), "box %zu, of rank %d, has two elements at one place of its buffer", i,
                          b->rank[k]);
    *room = end > *room ? end : *room;
    return 0;
}

/* ---- all boxes ---- */

struct ranked {
    int rank;
    uint32_t box;
};

static int by_rank(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    return x->rank != y->rank ? (x->rank < y->rank ? -1 : 1) : (x->box > y->box) - (x->box < y->box);
}

/* Numbers of the boxes that are not empty, by rank, and in the caller's order on each rank. */
static int order_boxes(const struct making *m, struct ranked *v, size_t *n, size_t *holders)
{
    bool sorted = true;
    *n = *holders = 0;
    for (size_t i = 0; i < m->from->n; i++) {
        bool empty;
        int rc = check_box(m, i, &empty);
        if (rc)
            return rc;
        if (empty)
            continue;
        sorted = sorted && (!*n || v[*n - 1].rank <= m->from->rank[i]);
        v[(*n)++] = (struct ranked){m->from->rank[i], (uint32_t)i};
    }
    if (!*n)
        return caret_fail(m->w, m->w ? m->w->boxes : -1, "no box has an element");
    if (!sorted)
        qsort(v, *n, sizeof *v, by_rank);
    for (size_t i = 0; i < *n; i++)
        *holders += !i || v[i].rank != v[i - 1].rank;
    return 0;
}

static int take_boxes(const struct making *m, const struct ranked *v, struct box_list *b)
{
    size_t holder = 0;
    int64_t room = 0;
    for (size_t k = 0; k < b->n; k++) {
        if (!k || v[k].rank != v[k - 1].rank) {
            if (k)
                b->room[holder++] = room;
            b->first[holder] = k;
            room = 0;
        }
        int rc = place_box(m, v[k].box, b, k, &room);
        if (rc)
            return rc;
    }
    b->room[holder] = room;
    b->first[holder + 1] = b->n;
    return 0;
}

/* Where in the text the boxes of the list were. */
static int *carets(const struct making *m, const struct ranked *v, size_t n)
{
    int *at = m->w && m->w->box ? malloc(n * sizeof *at) : NULL;
    for (size_t i = 0; at && i < n; i++)
        at[i] = m->w->box[v[i].box];
    return at;
}

static int make(const struct making *m, uint64_t flags, struct ranked *v, struct box_list *b)
{
    int rc = order_boxes(m, v, &b->n, &b->holders);
    if (rc)
        return rc;
    size_t words = (b->n * (size_t)m->ndim + 1) * sizeof(int64_t);
    b->first = malloc((b->holders + 1) * sizeof *b->first);
    b->room = malloc(b->holders * sizeof *b->room);
    b->rank = malloc(b->n * sizeof *b->rank);
    b->offset = malloc(b->n * sizeof *b->offset);
    b->at = malloc(words);
    b->len = malloc(words);
    b->stride = malloc(words);
    if (!b->first || !b->room || !b->rank || !b->offset || !b->at || !b->len || !b->stride)
        return error_nomem();
    rc = take_boxes(m, v, b);
    if (rc)
        return rc;
    struct caret w = {0};
    int *at = carets(m, v, b->n);
    if (m->w) {
        w = *m->w;
        w.box = at;
    }
    rc = box_index_new(b, NULL, b->n, &b->index);
    if (!rc)
        rc = box_check_elements(b, m->extents, flags, m->w ? &w : NULL);
    if (!rc)
        rc = box_check_buffers(b, m->w ? &w : NULL);
    free(at);
    return rc;
}

int box_list_new(const weft_boxes *from, int ndim, const int64_t *extents, int64_t size, uint64_t flags,
                 const struct caret *w, struct box_list **out)
{
    struct making m = {.from = from, .extents = extents, .ndim = ndim, .size = size, .w = w};
    if (from->n && (!from->rank || (ndim && (!from->at || !from->len))))
        return caret_fail(w, -1, "boxes.%s is NULL", !from->rank ? "rank" : !from->at ? "at" : "len");
    if (from->n >= BOX_MOST)
        return caret_fail(w, w ? w->boxes : -1, "%zu boxes: a layout has less than 2^31", from->n);
    struct box_list *b = calloc(1, sizeof *b);
    struct ranked *v = malloc((from->n + 1) * sizeof *v);
    int rc = b && v ? 0 : error_nomem();
    if (!rc) {
        b->ndim = ndim;
        rc = make(&m, flags, v, b);
    }
    free(v);
    if (rc)
        box_list_free(b);
    else
        *out = b;
    return rc;
}

void box_list_free(struct box_list *b)
{
    if (!b)
        return;
    box_copies_free(b);
    box_index_free(&b->index);
    free(b->first);
    free(b->room);
    free(b->rank);
    free(b->offset);
    free(b->at);
    free(b->len);
    free(b->stride);
    free(b);
}

bool box_list_equal(const struct box_list *a, const struct box_list *b)
{
    size_t words = a->n * (size_t)a->ndim * sizeof *a->at;
    return a->n == b->n && a->ndim == b->ndim && !memcmp(a->rank, b->rank, a->n * sizeof *a->rank) &&
           !memcmp(a->offset, b->offset, a->n * sizeof *a->offset) && !memcmp(a->at, b->at, words) &&
           !memcmp(a->len, b->len, words) && !memcmp(a->stride, b->stride, words);
}

uint64_t box_list_hash(uint64_t h, const struct box_list *b)
{
    size_t words = b->n * (size_t)b->ndim * sizeof *b->at;
    h = hash_bytes(h, b->rank, b->n * sizeof *b->rank);
    h = hash_bytes(h, b->offset, b->n * sizeof *b->offset);
    h = hash_bytes(hash_bytes(h, b->at, words), b->len, words);
    return hash_bytes(h, b->stride, words);
}
