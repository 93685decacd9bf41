/* The kernels of weft_cuda.so: body.h, compiled for CUDA. No thread waits for another block, so that a launch ends
 * whatever other processes do; only a gate waits (gate.h), where that does no harm. Launches are one-shot: each thread
 * moves 16 bytes of a copy, or a few times as many of a cast or fold, and ends, which is faster than loops. */
#include "device/body.h"
#include "device/cuda/gate.h"

/* `blocks`: how many of them a multiprocessor has at once, for which registers must suffice. */
#define KERNEL(name, blocks)                                             \
    extern "C" __global__ void __launch_bounds__(DEVICE_THREADS, blocks) \
        weft_device_##name(const void *image, uint32_t first, uint32_t n)
/* The same body behind a gate, for launches of few blocks. */
#define GATED(name, body)                                                                                             \
    extern "C" __global__ void __launch_bounds__(DEVICE_THREADS)                                                      \
        weft_device_##name(const void *image, uint32_t first, uint32_t n, const __grid_constant__ struct gate gate) \
    {                                                                                                                 \
        gate_begin(&gate);                                                                                            \
        body;                                                                                                         \
        gate_end(&gate);                                                                                              \
    }
#define ITEM body_item(image, first, n, gridDim.x, blockIdx.x)

KERNEL(copy, 8)
{
    body_copy(image, ITEM, blockIdx.x, threadIdx.x);
}

KERNEL(cast, 4)
{
    body_cast_lanes(image, ITEM, blockIdx.x, threadIdx.x);
}

KERNEL(cast_any, 5)
{
    body_cast_any(image, ITEM, blockIdx.x, threadIdx.x);
}

KERNEL(fold, 4)
{
    body_fold_lanes(image, ITEM, blockIdx.x, threadIdx.x);
}

KERNEL(fold_any, 6)
{
    body_fold_any(image, ITEM, blockIdx.x, threadIdx.x);
}

KERNEL(transpose, 4)
{
    __shared__ __align__(16) unsigned char tile[TILE_BYTES];
    const struct device_item *it = ITEM;
    body_transpose(image, it, blockIdx.x, threadIdx.x, tile, 0);
    __syncthreads();
    body_transpose(image, it, blockIdx.x, threadIdx.x, tile, 1);
}

KERNEL(transpose_any, 5)
{
    __shared__ __align__(16) unsigned char tile[TILE_BYTES];
    const struct device_item *it = ITEM;
    body_transpose_any(image, it, blockIdx.x, threadIdx.x, tile, 0);
    __syncthreads();
    body_transpose_any(image, it, blockIdx.x, threadIdx.x, tile, 1);
}

GATED(copy_gated, body_copy(image, ITEM, blockIdx.x, threadIdx.x))
GATED(cast_gated, body_cast_lanes(image, ITEM, blockIdx.x, threadIdx.x))
GATED(fold_gated, body_fold_lanes(image, ITEM, blockIdx.x, threadIdx.x))
GATED(meet, (void)0)
