/* A rank's source and destination in one buffer, one of them inside the other: the slice of an allgather, the interior
 * of a halo. Bind decides whether a move may run in this way. */
#ifndef WEFT_CLI_CHECK_INPLACE_H
#define WEFT_CLI_CHECK_INPLACE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weft.h"

/* A dense local shape as a view: a first byte in the buffer and strides. */
struct inplace_view {
    int ndim;
    int64_t shape[WEFT_MAX_DIMS], strides[WEFT_MAX_DIMS], first, width;
};
struct inplace {
    bool shared;
    int64_t bytes; /* of the one buffer */
    struct inplace_view src, dst;
};

/* Places the rank's two sides in one buffer. shared is false if the rank does not hold both sides, if they have no
 * element in common, if neither fits into the other, or if their elements differ in size. Returns 0 or a WEFT_E
 * code. */
int inplace_fit(const weft_layout *src, const weft_layout *dst, int rank, struct inplace *out);

/* Copy between a view of a buffer and a dense copy of it. */
void inplace_gather(const struct inplace_view *v, const void *buffer, void *dense);
void inplace_scatter(const struct inplace_view *v, void *buffer, const void *dense);
#endif
