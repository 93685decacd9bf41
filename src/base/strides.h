/* Strides of a box of elements in memory. */
#ifndef WEFT_BASE_STRIDES_H
#define WEFT_BASE_STRIDES_H
#include <stdbool.h>
#include <stdint.h>

#include "weft.h"

/* Has each element of a box a place of its own, `size` wide? It has if, from the smallest stride on, the stride of each
 * dim is at least the extent of the dims before. The extents must not overflow. */
static inline bool strides_nest(int ndim, const int64_t *len, const int64_t *stride, int64_t size)
{
    bool taken[WEFT_MAX_DIMS] = {false};
    int64_t inside = size;
    for (int k = 0; k < ndim; k++) {
        int d = -1;
        for (int i = 0; i < ndim; i++)
            if (!taken[i] && (d < 0 || stride[i] < stride[d]))
                d = i;
        taken[d] = true;
        if (len[d] == 1)
            continue;
        if (stride[d] < inside)
            return false;
        inside += (len[d] - 1) * stride[d];
    }
    return true;
}
#endif
