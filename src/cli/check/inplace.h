/* A rank's source and destination in one buffer, where one of them stands inside the other: the slice of an allgather,
 * the interior of a halo. Whether a move may run so is for bind to say. */
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

/* How the rank's two sides stand in one buffer. shared is false where the rank does not hold both, where they have no
 * element in common or neither fits into the other, and where their elements differ in size. 0 or a WEFT_E code. */
int inplace_fit(const weft_layout *src, const weft_layout *dst, int rank, struct inplace *out);

/* Between a view of a buffer and a dense copy of it. */
void inplace_gather(const struct inplace_view *v, const void *buffer, void *dense);
void inplace_scatter(const struct inplace_view *v, void *buffer, const void *dense);
#endif
