/* Random nests of loops, and operands that hold exactly the bytes that such a nest touches. */
#ifndef WEFT_TESTS_MEMORY_NESTS_H
#define WEFT_TESTS_MEMORY_NESTS_H
#include <stdbool.h>
#include <stdint.h>

#include "memory/memory.h"

extern uint64_t nests_seed;

extern bool nests_dense; /* operands are packed in the order of the loops */
int64_t nests_below(int64_t n) /* 0 .. n - 1 */;

/* A buffer of exactly the bytes that a nest touches, at any alignment. */
struct operand {
    int64_t stride[MEMORY_LOOPS];
    int64_t first; /* offset of element 0 in the buffer */
    int64_t bytes;
    unsigned char *data;
};
void nests_loops(struct memory_tile *t);

/* Strides that never let two elements overlap: loops take their places from the smallest on in
 * some order, often the natural one, with gaps at times, and any may run backwards. A read operand may
 * stand still in some loops. */
void nests_operand(const struct memory_tile *t, struct operand *o, int64_t size, bool read);
int64_t nests_offset(const struct memory_tile *t, const int64_t *stride, int64_t index);

/* Values that mean something in a dtype: small ones, ends, zeros of both signs, infinities, NaNs, any bits. */
uint64_t nests_value(int dtype); /* not of a complex dtype */
void nests_put(void *p, int dtype);
void nests_values(const struct memory_tile *t, struct operand *o, int dtype);
unsigned char *nests_twin(const struct operand *o);
#endif
