/* Spans: a nest of loops, cut into stretches of consecutive turns that fit into a small buffer, for kernels that need
 * contiguous elements. An operand whose elements of a span are contiguous is used in place; any other operand is
 * gathered into a buffer or scattered from it. */
#ifndef WEFT_MEMORY_SPAN_H
#define WEFT_MEMORY_SPAN_H
#include <stdbool.h>
#include <stddef.h>

#include "memory/memory.h"

/* The loops that remain (at least one) of a tile, merged where all operands allow it: loop i is
 * loop of[i] of the tile, with n[i] turns. */
struct span_nest {
    int loops;
    int64_t n[MEMORY_LOOPS];
    int of[MEMORY_LOOPS];
};

/* Some turns of loop `cut`, with all turns of the loops inside of it. */
struct span {
    int64_t at[MEMORY_LOOPS]; /* turn of each loop at the first element */
    int64_t turns, len;       /* of loop `cut`; elements */
    int cut;
    int64_t inner, fit; /* elements of a turn of it; how many turns a span has at most */
};

/* False if the tile has no elements. */
bool span_nest_make(struct span_nest *nest, const struct memory_tile *t, const struct memory_term *terms, size_t n);

/* What is before the first span. No span is longer than `most` elements. */
struct span span_before(const struct span_nest *nest, int64_t most);
bool span_next(const struct span_nest *nest, struct span *s); /* false after the last */

/* The address of the span's elements if they are contiguous, otherwise NULL. Strides are the tile's. */
void *span_direct(const struct span_nest *nest, const struct span *s, const void *base, const int64_t *stride,
                  size_t size);
void span_gather(const struct span_nest *nest, const struct span *s, void *buf, const void *base, const int64_t *stride,
                 size_t size);
void span_scatter(const struct span_nest *nest, const struct span *s, void *base, const int64_t *stride,
                  const void *buf, size_t size);
#endif
