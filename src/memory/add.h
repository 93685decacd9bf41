/* Adding to elements to which other threads and processes add at the same time. */
#ifndef WEFT_MEMORY_ADD_H
#define WEFT_MEMORY_ADD_H
#include <stddef.h>

/* dst[i] += src[i] for n elements, each add atomic among all that are made by this function. dst is aligned to its
 * element. Integers wrap; floats are added in their accumulation dtype and rounded after each add, and a NaN is
 * always the positive quiet one. The adds are relaxed: the signal that follows orders the results. The dtype is one
 * that sum folds. */
void memory_add(void *dst, const void *src, int dtype, size_t n);
#endif
