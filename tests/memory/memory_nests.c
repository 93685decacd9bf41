#define _GNU_SOURCE
#include "memory_nests.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "memory_ref.h"
#include "support/suite.h"

uint64_t nests_seed;

bool nests_dense; /* operands are packed in the order of the loops */

int64_t nests_below(int64_t n) /* 0 .. n - 1 */
{
    return (int64_t)(ref_random(&nests_seed) % (uint64_t)n);
}

void nests_loops(struct memory_tile *t)
{
    static const int64_t lengths[] = {1, 2, 2, 3, 4, 5, 7, 8, 16, 17, 33};
    int64_t left = 6000;
    t->loops = (int)nests_below(7);
    for (int i = 0; i < t->loops; i++) {
        int64_t n = nests_below(12) == 0 ? 1 + nests_below(3000) : lengths[nests_below(11)];
        t->n[i] = n <= left ? n : 1;
        left /= t->n[i];
    }
}

void nests_operand(const struct memory_tile *t, struct operand *o, int64_t size, bool read)
{
    int order[MEMORY_LOOPS];
    for (int i = 0; i < t->loops; i++)
        order[i] = t->loops - 1 - i;
    if (!nests_dense && nests_below(2))
        for (int i = t->loops - 1; i > 0; i--) {
            int j = (int)nests_below(i + 1), k = order[i];
            order[i] = order[j];
            order[j] = k;
        }
    bool gaps = !nests_dense && nests_below(3) == 0, backwards = !nests_dense && nests_below(4) == 0;
    bool still = !nests_dense && read && nests_below(4) == 0, odd = nests_below(4) == 0;
    int64_t extent = size;
    o->first = 0;
    for (int i = 0; i < t->loops; i++) {
        int l = order[i];
        if (gaps && nests_below(2))
            extent += odd ? nests_below(9) : size * nests_below(4);
        o->stride[l] = extent;
        if (still && nests_below(3) == 0) {
            o->stride[l] = 0;
        } else if (backwards && nests_below(2)) {
            o->stride[l] = -extent;
            o->first += extent * (t->n[l] - 1);
            extent *= t->n[l];
        } else {
            extent *= t->n[l];
        }
    }
    int64_t shift = odd ? nests_below(8) : 0;
    o->first += shift;
    o->bytes = extent + shift;
    o->data = malloc((size_t)o->bytes);
    assert_non_null(o->data);
    for (int64_t i = 0; i < o->bytes; i++)
        o->data[i] = (unsigned char)ref_random(&nests_seed);
}

int64_t nests_offset(const struct memory_tile *t, const int64_t *stride, int64_t index)
{
    int64_t off = 0;
    for (int i = t->loops - 1; i >= 0; i--) {
        off += index % t->n[i] * stride[i];
        index /= t->n[i];
    }
    return off;
}

/* f8e5m2sat has no infinity to begin with. */
static uint64_t any_bits(int dtype, uint64_t word)
{
    size_t size = weft_dtype_size(dtype);
    word = size == 8 ? word : word & (UINT64_MAX >> (64 - 8 * size));
    return dtype == WEFT_F8E5M2SAT && (word & 0x7f) == 0x7c ? word - 1 : word;
}

uint64_t nests_value(int dtype)
{
    static const double special[] = {0, -0.0, 1, -1, 2, 3, 0.5, 1e-7, 1e30, -1e30, HUGE_VAL, -HUGE_VAL, NAN, 200, -90};
    uint64_t word = ref_random(&nests_seed), value = 0;
    double small = (double)(int64_t)(word % 200) - 100;
    switch (nests_below(4)) {
    case 0: memory_cast_one(&value, dtype, &special[nests_below(15)], WEFT_F64); return value;
    case 1: return any_bits(dtype, word);
    default: memory_cast_one(&value, dtype, &small, WEFT_F64); return value;
    }
}

void nests_put(void *p, int dtype)
{
    int part = dtype == WEFT_C64 ? WEFT_F32 : dtype == WEFT_C128 ? WEFT_F64 : dtype;
    size_t size = weft_dtype_size(part);
    for (size_t i = 0; i < weft_dtype_size(dtype); i += size) {
        uint64_t v = nests_value(part);
        memcpy((unsigned char *)p + i, &v, size);
    }
}

void nests_values(const struct memory_tile *t, struct operand *o, int dtype)
{
    for (int64_t i = 0; i < memory_tile_count(t); i++)
        nests_put(o->data + o->first + nests_offset(t, o->stride, i), dtype);
}

unsigned char *nests_twin(const struct operand *o)
{
    unsigned char *p = malloc((size_t)o->bytes);
    assert_non_null(p);
    memcpy(p, o->data, (size_t)o->bytes);
    return p;
}
