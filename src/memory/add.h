/* Adding to elements that others add to at the same time. */
#ifndef WEFT_MEMORY_ADD_H
#define WEFT_MEMORY_ADD_H
#include <stddef.h>

/* dst[i] += src[i] for n elements, each add atomic among all that are made by this function. dst is aligned to its
 * element. Integers wrap; floats are added in their accumulation dtype and rounded after each add, and a NaN is
 * always the positive quiet one. Relaxed: what orders the results is the signal that follows. The dtype is one that
 * sum folds. */
void memory_add(void *dst, const void *src, int dtype, size_t n);
#endif
