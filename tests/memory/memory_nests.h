/* Random nests of loops, and operands that hold exactly the bytes that such a nest touches. */
#ifndef WEFT_TESTS_MEMORY_NESTS_H
#define WEFT_TESTS_MEMORY_NESTS_H
#include "memory/memory.h"
#include "memory_ref.h"

static uint64_t seed;
static bool dense; /* operands are packed in the order of the loops */

static int64_t upto(int64_t n) /* 0 .. n - 1 */
{
    return (int64_t)(ref_random(&seed) % (uint64_t)n);
}

/* A buffer of exactly the bytes that a nest touches, at any alignment. */
struct operand {
    int64_t stride[MEMORY_LOOPS];
    int64_t first; /* offset of element 0 in the buffer */
    int64_t bytes;
    unsigned char *data;
};

static void random_loops(struct memory_tile *t)
{
    static const int64_t lengths[] = {1, 2, 2, 3, 4, 5, 7, 8, 16, 17, 33};
    int64_t left = 6000;
    t->loops = (int)upto(7);
    for (int i = 0; i < t->loops; i++) {
        int64_t n = upto(12) == 0 ? 1 + upto(3000) : lengths[upto(11)];
        t->n[i] = n <= left ? n : 1;
        left /= t->n[i];
    }
}

/* Strides that never let two elements overlap: loops take their places from the smallest on in
 * some order, often the natural one, with gaps at times, and any may run backwards. A read operand may
 * stand still in some loops. */
static void random_operand(const struct memory_tile *t, struct operand *o, int64_t size, bool read)
{
    int order[MEMORY_LOOPS];
    for (int i = 0; i < t->loops; i++)
        order[i] = t->loops - 1 - i;
    if (!dense && upto(2))
        for (int i = t->loops - 1; i > 0; i--) {
            int j = (int)upto(i + 1), k = order[i];
            order[i] = order[j];
            order[j] = k;
        }
    bool gaps = !dense && upto(3) == 0, backwards = !dense && upto(4) == 0;
    bool still = !dense && read && upto(4) == 0, odd = upto(4) == 0;
    int64_t extent = size;
    o->first = 0;
    for (int i = 0; i < t->loops; i++) {
        int l = order[i];
        if (gaps && upto(2))
            extent += odd ? upto(9) : size * upto(4);
        o->stride[l] = extent;
        if (still && upto(3) == 0) {
            o->stride[l] = 0;
        } else if (backwards && upto(2)) {
            o->stride[l] = -extent;
            o->first += extent * (t->n[l] - 1);
            extent *= t->n[l];
        } else {
            extent *= t->n[l];
        }
    }
    int64_t shift = odd ? upto(8) : 0;
    o->first += shift;
    o->bytes = extent + shift;
    o->data = malloc((size_t)o->bytes);
    assert_non_null(o->data);
    for (int64_t i = 0; i < o->bytes; i++)
        o->data[i] = (unsigned char)ref_random(&seed);
}

static int64_t offset_of(const struct memory_tile *t, const int64_t *stride, int64_t index)
{
    int64_t off = 0;
    for (int i = t->loops - 1; i >= 0; i--) {
        off += index % t->n[i] * stride[i];
        index /= t->n[i];
    }
    return off;
}

/* Values that mean something in a dtype: small ones, ends, zeros of both signs, infinities, NaNs, any bits. */
static uint64_t random_value(int dtype)
{
    static const double special[] = {0, -0.0, 1, -1, 2, 3, 0.5, 1e-7, 1e30, -1e30, HUGE_VAL, -HUGE_VAL, NAN, 200, -90};
    uint64_t word = ref_random(&seed), value = 0;
    double small = (double)(int64_t)(word % 200) - 100;
    switch (upto(4)) {
    case 0: memory_cast1(&value, dtype, &special[upto(15)], WEFT_F64); return value;
    case 1: return weft_dtype_size(dtype) == 8 ? word : word & (UINT64_MAX >> (64 - 8 * weft_dtype_size(dtype)));
    default: memory_cast1(&value, dtype, &small, WEFT_F64); return value;
    }
}

static void random_values(const struct memory_tile *t, struct operand *o, int dtype)
{
    for (int64_t i = 0; i < memory_tile_count(t); i++) {
        uint64_t v = random_value(dtype);
        memcpy(o->data + o->first + offset_of(t, o->stride, i), &v, weft_dtype_size(dtype));
    }
}

static unsigned char *twin(const struct operand *o)
{
    unsigned char *p = malloc((size_t)o->bytes);
    assert_non_null(p);
    memcpy(p, o->data, (size_t)o->bytes);
    return p;
}
#endif
