/* What the kernels do, in the part of C that is C++ too: kernels.cu compiles it for CUDA, and the simulation and the
 * tests compile it for the host. body_walk.h says what an includer may define. On the host, device_body_block does the
 * work of one block of a launch. */
#ifndef WEFT_DEVICE_BODY_H
#define WEFT_DEVICE_BODY_H
#include "device/body_cast.h"
#include "device/body_copy.h"
#include "device/body_fold.h"
#include "device/body_sum.h"
#include "device/body_tile.h"

#ifndef __CUDACC__
/* The work of one block. */
static inline void device_body_block(const void *image, const struct device_launch *l, uint32_t block)
{
    const struct device_item *it = body_item(image, l->first, l->n, l->blocks, block);
    _Alignas(16) unsigned char tile[TILE_BYTES];
    for (uint32_t thread = 0; thread < DEVICE_THREADS; thread++)
        switch (l->kernel) {
        case DEVICE_COPY: body_copy(image, it, block, thread); break;
        case DEVICE_CAST: body_cast_lanes(image, it, block, thread); break;
        case DEVICE_CAST_ANY: body_cast_any(image, it, block, thread); break;
        case DEVICE_FOLD: body_fold_lanes(image, it, block, thread); break;
        case DEVICE_FOLD_ANY: body_fold_any(image, it, block, thread); break;
        case DEVICE_TRANSPOSE: body_transpose(image, it, block, thread, tile, 0); break;
        case DEVICE_SUM: body_sum(it, thread, (uint64_t *)(void *)tile, 0); break;
        default: body_transpose_any(image, it, block, thread, tile, 0); break;
        }
    for (uint32_t thread = 0; thread < DEVICE_THREADS; thread++)
        if (l->kernel == DEVICE_TRANSPOSE)
            body_transpose(image, it, block, thread, tile, 1);
        else if (l->kernel == DEVICE_TRANSPOSE_ANY)
            body_transpose_any(image, it, block, thread, tile, 1);
        else if (l->kernel == DEVICE_SUM)
            body_sum(it, thread, (uint64_t *)(void *)tile, 1);
}
#endif
#endif
