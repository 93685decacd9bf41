#include "device_jobs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"

static int any_dtype(void)
{
    int dtype; /* complex numbers are taken apart before all else, and have no casts to real ones */
    do
        dtype = 1 + (int)nests_below(DTYPE_COUNT);
    while (dtype_is_complex(dtype));
    return dtype;
}

static void job_dtypes(struct job *j)
{
    static const int floats[] = {WEFT_F32, WEFT_BF16, WEFT_F16};
    bool usual = nests_below(2), one = nests_below(4) > 0;
    do {
        int term = usual ? floats[nests_below(3)] : any_dtype();
        j->to = nests_below(2) ? term : usual ? floats[nests_below(3)] : any_dtype();
        j->op = usual && nests_below(2) ? WEFT_SUM : 1 + (int)nests_below(OP_COUNT);
        j->acc = nests_below(4) ? dtype_acc(term) : dtype_acc(any_dtype());
        for (uint32_t k = 0; k < j->terms; k++)
            j->dtype[k] = one ? term : any_dtype();
        j->via = nests_below(4) ? 0 : any_dtype();
        j->div = nests_below(3) || j->acc == WEFT_BOOL ? (int64_t)nests_below(2) : 2 + nests_below(9);
    } while (j->op == WEFT_AVG || !dtype_foldable(j->op, j->acc));
    if (j->terms == 0) {
        j->via = 0;
        if (!dtype_foldable(j->op, j->to))
            j->op = dtype_foldable(WEFT_SUM, j->to) ? WEFT_SUM : WEFT_MAX;
    }
    if (j->terms == 1 && j->div <= 1 && nests_below(4)) {
        j->acc = 0;
        if (nests_below(2))
            j->via = 0;
        if (usual && nests_below(2)) /* a cast that has a form of its own */
            j->to = j->dtype[0] != WEFT_F32 ? WEFT_F32 : nests_below(2) ? WEFT_F16 : WEFT_BF16;
    }
}

/* Sums that have a form of their own, where they lie aligned. */
static void plain_sum(struct job *j)
{
    static const int floats[] = {WEFT_F32, WEFT_BF16, WEFT_F16};
    const int dtype = floats[nests_below(3)];
    j->to = nests_below(2) ? dtype : floats[nests_below(3)];
    j->op = WEFT_SUM;
    j->acc = WEFT_F32;
    j->via = nests_below(2) ? 0 : j->to;
    for (uint32_t k = 0; k < j->terms; k++)
        j->dtype[k] = dtype;
}

/* The order of loops that makes tiles: two long loops that are contiguous in one operand each. */
static void turned(struct job *j)
{
    j->tile.loops = 2 + (int)nests_below(2);
    for (int i = 0; i < j->tile.loops; i++)
        j->tile.n[i] = i < 2 ? 20 + nests_below(140) : 1 + nests_below(3);
    nests_dense = false;
    if (j->terms == 1 && nests_below(2)) {
        j->to = j->dtype[0];
        j->acc = j->via = 0;
        j->div = 0;
    }
}

void jobs_make(struct job *j)
{
    memset(j, 0, sizeof *j);
    j->terms = nests_below(8) ? 1 + (uint32_t)(nests_below(2) ? 0 : nests_below(JOBS_TERMS)) : 0;
    job_dtypes(j);
    nests_dense = nests_below(3) == 0;
    if (j->terms > 1 && nests_below(3) == 0) {
        plain_sum(j);
        nests_dense = nests_below(4) > 0;
    }
    nests_loops(&j->tile);
    if (nests_below(3) == 0)
        turned(j);
    nests_operand(&j->tile, &j->dst, (int64_t)weft_dtype_size(j->to), false);
    j->want = nests_twin(&j->dst);
    for (uint32_t k = 0; k < j->terms; k++) {
        nests_operand(&j->tile, &j->term[k], (int64_t)weft_dtype_size(j->dtype[k]), true);
        nests_values(&j->tile, &j->term[k], j->dtype[k]);
    }
}

/* ---- dense jobs ---- */

/* Half of the values of f32 are at ties of narrower floats, or beside them. */
static uint64_t dense_value(int dtype)
{
    uint64_t x = nests_value(dtype);
    if (dtype != WEFT_F32 || nests_below(2))
        return x;
    const uint32_t exponent = 100 + (uint32_t)nests_below(48), up = 8 + (uint32_t)nests_below(15);
    x = (uint64_t)nests_below(2) << 31 | (uint64_t)exponent << 23 | (uint64_t)nests_below(1 << 23);
    x = x >> up << up;
    return x + (uint64_t)nests_below(3) - (x & 0x7fffff ? 1 : 0);
}

static void dense_operand(const struct memory_tile *t, struct operand *o, int dtype, bool turned)
{
    const int64_t size = (int64_t)weft_dtype_size(dtype);
    memset(o, 0, sizeof *o);
    o->stride[t->loops - 1] = size;
    if (t->loops == 2) {
        o->stride[0] = turned ? size : t->n[1] * size;
        o->stride[1] = turned ? t->n[0] * size : size;
    }
    o->bytes = memory_tile_count(t) * size;
    o->data = malloc((size_t)o->bytes);
    if (!o->data)
        abort();
    for (int64_t i = 0; i < o->bytes; i += size) {
        uint64_t x = dense_value(dtype);
        memcpy(o->data + i, &x, (size_t)size);
    }
}

static void dense_finish(struct job *j, bool turned)
{
    dense_operand(&j->tile, &j->dst, j->to, false);
    j->want = nests_twin(&j->dst);
    for (uint32_t k = 0; k < j->terms; k++)
        dense_operand(&j->tile, &j->term[k], j->dtype[k], turned);
}

/* Casts first, then the same turned, then folds. */
bool jobs_make_dense(struct job *j, int64_t *at)
{
    const int64_t pairs = DTYPE_COUNT * DTYPE_COUNT, folds = DTYPE_COUNT * OP_COUNT * 4;
    memset(j, 0, sizeof *j);
    for (; *at < 2 * pairs + folds; ++*at) {
        const int64_t number = *at;
        const bool turned = number >= pairs && number < 2 * pairs;
        const int from = 1 + (int)(number % DTYPE_COUNT);
        if (dtype_is_complex(from))
            continue;
        nests_seed = (uint64_t)number * 31 + 7;
        j->dtype[0] = from;
        if (number < 2 * pairs) {
            j->to = 1 + (int)(number / DTYPE_COUNT % DTYPE_COUNT);
            if (dtype_is_complex(j->to) || !dtype_castable(from, j->to) || (turned && from != j->to && number % 5))
                continue;
            j->terms = 1;
            j->tile.loops = turned ? 2 : 1;
            j->tile.n[0] = turned ? 136 : 4096 + 1003;
            j->tile.n[1] = 272;
            dense_finish(j, turned);
            return true;
        }
        const int64_t rest = (number - 2 * pairs) / DTYPE_COUNT;
        j->op = 1 + (int)(rest % OP_COUNT);
        j->acc = dtype_acc(from);
        if (j->op == WEFT_AVG || !dtype_foldable(j->op, j->acc))
            continue;
        j->to = from == WEFT_F32 && rest / OP_COUNT == 3 ? WEFT_BF16 : from;
        j->div = dtype_is_float(from) && rest / OP_COUNT == 2 ? 3 : 0;
        j->terms = 2 + (uint32_t)(rest / OP_COUNT) * 2 + (uint32_t)nests_below(2);
        for (uint32_t k = 0; k < j->terms; k++)
            j->dtype[k] = from;
        j->tile.loops = 1;
        j->tile.n[0] = 4096 + 1003;
        dense_finish(j, false);
        return true;
    }
    return false;
}

static uint64_t place(const struct operand *o, uint64_t (*at)(const struct operand *o))
{
    return (at ? at(o) : (uint64_t)(uintptr_t)o->data) + (uint64_t)o->first;
}

int jobs_add(struct job *j, struct device_table *t, uint64_t (*at)(const struct operand *o))
{
    for (uint32_t k = 0; k < j->terms; k++)
        j->operand[k] = (struct device_operand){place(&j->term[k], at), j->term[k].stride, j->dtype[k]};
    const struct device_task task = {
        .level = j->level,
        .loops = j->tile.loops,
        .n = j->tile.n,
        .dst = {place(&j->dst, at), j->dst.stride, j->to},
        .terms = j->operand,
        .nterms = j->terms,
        .op = j->op,
        .acc = j->acc,
        .via = j->via,
        .div = j->div,
    };
    return device_table_add(t, &task);
}

/* What memory/ says. */
void jobs_host(struct job *j)
{
    struct memory_term terms[JOBS_TERMS];
    memcpy(j->tile.stride[0], j->dst.stride, sizeof j->dst.stride);
    for (uint32_t k = 0; k < j->terms; k++)
        terms[k] = (struct memory_term){j->term[k].data + j->term[k].first, j->dtype[k], j->term[k].stride};
    memcpy(j->tile.stride[1], j->term[0].stride, sizeof j->term[0].stride);
    if (!j->terms)
        memory_fill_identity(&j->tile, j->want + j->dst.first, j->to, j->op);
    else if (!j->acc && !j->via)
        memory_copy(&j->tile, j->want + j->dst.first, j->to, terms[0].data, j->dtype[0]);
    else
        memory_fold(&j->tile, j->want + j->dst.first, j->to, j->via, j->acc ? j->acc : j->dtype[0], j->op, j->div,
                    terms, j->terms);
}

bool jobs_nan(uint64_t x, int dtype)
{
    double f;
    memory_cast_one(&f, WEFT_F64, &x, dtype);
    return dtype_is_float(dtype) && f != f;
}

/* Every byte is as expected, those between the elements too. NaNs are made equal first. */
int64_t jobs_check(struct job *j)
{
    const size_t size = weft_dtype_size(j->to);
    int64_t wrong = 0;
    for (int64_t i = 0; i < memory_tile_count(&j->tile); i++) {
        const int64_t at = j->dst.first + nests_offset(&j->tile, j->dst.stride, i);
        uint64_t found = 0, want = 0;
        memcpy(&found, j->dst.data + at, size);
        memcpy(&want, j->want + at, size);
        if (jobs_nan(found, j->to) && jobs_nan(want, j->to))
            memcpy(j->dst.data + at, &want, size);
        else if (found != want && wrong++ == 0)
            printf("element %lld: %llx instead of %llx; to %s, from %s, via %d, acc %d, op %d, div %lld, %u terms\n",
                   (long long)i, (unsigned long long)found, (unsigned long long)want, weft_dtype_name(j->to),
                   j->terms ? weft_dtype_name(j->dtype[0]) : "none", j->via, j->acc, j->op, (long long)j->div,
                   j->terms);
    }
    return wrong ? wrong : memcmp(j->dst.data, j->want, (size_t)j->dst.bytes) != 0;
}

void jobs_free(struct job *j)
{
    free(j->dst.data);
    free(j->want);
    for (uint32_t k = 0; k < j->terms; k++)
        free(j->term[k].data);
}
