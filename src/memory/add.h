/* Adding to elements to which other threads and processes add at the same time. */
#ifndef WEFT_MEMORY_ADD_H
#define WEFT_MEMORY_ADD_H
#include <stddef.h>

/* dst[i] += src[i] for n elements. Each add is atomic with respect to other adds of this function. dst is aligned to
 * its element. Integers wrap. The two parts of a complex number are added one after the other. Floats are added in
 * their accumulation dtype and rounded after each add. A NaN is always the positive quiet one. The adds are relaxed:
 * the signal that follows orders the results. The dtype must be one that sum can fold. */
void memory_add(void *dst, const void *src, int dtype, size_t n);
#endif
