/* Which collective a pair of layouts is. */
#ifndef WEFT_LOWER_RECOGNISE_H
#define WEFT_LOWER_RECOGNISE_H
#include "lower/job.h"

struct recognised {
    const char *kind; /* a text of plan_kind_text */
    /* If both meshes are the same and one set of axes changes its role: these axes; otherwise 0. */
    uint32_t axes;
    int src_dim, dst_dim; /* the dim that they split on either side, -1 for none */
};
void recognise(const weft_layout *src, const weft_layout *dst, struct recognised *out);
#endif
