#define _GNU_SOURCE
#include "tensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "memory/memory.h"
#include "unwatched.h"
#include "values.h"

/* Row after row: only where a row begins is computed from its number. */
UNWATCHED static void tensors_visit_box(const weft_box *box, const weft_local *at, const weft_layout_desc *desc,
                                        void (*visit)(void *arg, int64_t global, int64_t local), void *arg)
{
    int64_t rows = 1, columns = at->ndim ? box->len[at->ndim - 1] : 1;
    for (int d = 0; d < at->ndim - 1; d++)
        rows *= box->len[d];
    for (int64_t row = 0; row < rows && columns; row++) {
        int64_t global = 0, local = 0, rest = row, size = rows;
        for (int d = 0; d < at->ndim; d++) {
            int64_t k = 0; /* the first of the row */
            if (d < at->ndim - 1) {
                size /= box->len[d];
                k = rest / size;
                rest %= size;
            }
            global = global * desc->dims[d].extent + box->at[d] + k;
            local = local * at->shape[d] + box->local[d] + k;
        }
        for (int64_t k = 0; k < columns; k++)
            visit(arg, global + k, local + k);
    }
}

int tensors_visit(const weft_layout *l, int rank, void (*visit)(void *arg, int64_t global, int64_t local), void *arg)
{
    weft_local at;
    weft_layout_desc desc = {.size = sizeof desc};
    size_t n;
    int err = weft_layout_local(l, rank, &at);
    if (!err)
        err = weft_layout_describe(l, &desc);
    if (!err)
        err = weft_layout_boxes(l, rank, NULL, 0, &n);
    if (err || !at.holds)
        return err;
    weft_box *boxes = calloc(n + 1, sizeof *boxes);
    weft_layout_boxes(l, rank, boxes, n, &n);
    for (size_t b = 0; b < n; b++)
        tensors_visit_box(&boxes[b], &at, &desc, visit, arg);
    free(boxes);
    return 0;
}

double tensors_value(int64_t global, int rank, int seed)
{
    return (double)((global * 7 + rank * 5 + seed * 3) % 13);
}

struct tensors_side {
    const weft_layout *l;
    int dtype, rank, seed, op; /* op 0: equal copies */
    size_t bytes;              /* of an element */
    unsigned char *data;
    double *global; /* expected, by global index */
    bool *set;
    int ndim;
    int64_t extent[WEFT_MAX_DIMS];
};

static void tensors_put(void *arg, int64_t global, int64_t local)
{
    struct tensors_side *s = arg;
    double v = tensors_value(global, s->op ? s->rank : 0, s->seed);
    memory_cast_one(s->data + (size_t)local * s->bytes, s->dtype, &v, WEFT_F64);
}

UNWATCHED static void tensors_expect(void *arg, int64_t global, int64_t local)
{
    struct tensors_side *s = arg;
    double v = tensors_value(global, s->op ? s->rank : 0, s->seed);
    (void)local;
    if (!s->set[global] || !s->op)
        s->global[global] = v;
    else if (s->op == WEFT_SUM)
        s->global[global] += v;
    else if (s->op == WEFT_MAX)
        s->global[global] = fmax(s->global[global], v);
    s->set[global] = true;
}

static void tensors_compare(void *arg, int64_t global, int64_t local)
{
    struct tensors_side *s = arg;
    double v;
    memory_cast_one(&v, WEFT_F64, s->data + (size_t)local * s->bytes, s->dtype);
    if (v != s->global[global])
        values_differ(global, s->ndim, s->extent, s->global[global], v);
}

static struct tensors_side tensors_of(const weft_layout *l, int rank, void *data, int seed)
{
    weft_layout_desc d = {.size = sizeof d};
    weft_layout_describe(l, &d);
    struct tensors_side s = {
        .l = l, .dtype = (int)d.dtype, .rank = rank, .seed = seed, .data = data, .ndim = (int)d.ndim};
    s.bytes = weft_dtype_size(s.dtype);
    s.op = d.nfolds ? (int)d.folds[0].op : 0;
    for (int i = 0; i < s.ndim; i++)
        s.extent[i] = d.dims[i].extent;
    return s;
}

void tensors_fill(const weft_layout *l, int rank, void *data, int seed)
{
    struct tensors_side s = tensors_of(l, rank, data, seed);
    tensors_visit(l, rank, tensors_put, &s);
}

static int64_t tensors_count(const weft_layout *l)
{
    weft_layout_desc d = {.size = sizeof d};
    int64_t n = 1;
    weft_layout_describe(l, &d);
    for (int i = 0; i < d.ndim; i++)
        n *= d.dims[i].extent;
    return n;
}

void tensors_check(const weft_layout *src, const weft_layout *dst, int rank, void *data, int seed)
{
    size_t n = (size_t)tensors_count(src);
    struct tensors_side s = tensors_of(src, 0, NULL, seed), d = tensors_of(dst, rank, data, seed);
    d.global = s.global = calloc(n + 1, sizeof *s.global);
    d.set = s.set = calloc(n + 1, sizeof *s.set);
    for (s.rank = 0; s.rank < weft_layout_ranks(src); s.rank++)
        tensors_visit(src, s.rank, tensors_expect, &s);
    tensors_visit(dst, rank, tensors_compare, &d);
    free(s.global);
    free(s.set);
}

int64_t tensors_wrong(const weft_layout *src, const weft_layout *dst, int rank, void *data, int seed)
{
    values_begin();
    tensors_check(src, dst, rank, data, seed);
    return values_wrong();
}
