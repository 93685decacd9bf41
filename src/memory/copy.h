/* Copies of nests of loops, by bytes. */
#ifndef WEFT_MEMORY_COPY_H
#define WEFT_MEMORY_COPY_H
#include <stddef.h>
#include <stdint.h>

/* Copies one element of `size` bytes in every turn of the nest: n[i] turns of loop i (0 outermost), ds and ss bytes
 * apart on the two sides. Elements are disjoint; the order of turns is not defined. */
void copy_nest(int loops, const int64_t *n, const int64_t *ds, const int64_t *ss, void *dst, const void *src,
               size_t size);
#endif
