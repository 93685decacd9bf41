/* The kernels of weft_cuda.so: body.h, compiled for CUDA. No thread waits for another block, so that a launch ends
 * whatever other processes do. Launches are one-shot: each thread moves 16 bytes and ends, which is faster than loops. */
#include "device/body.h"

/* `blocks`: how many of them a multiprocessor has at once, for which registers must suffice. */
#define KERNEL(name, blocks)                                           \
    extern "C" __global__ void __launch_bounds__(DEVICE_THREADS, blocks) \
        weft_device_##name(const void *image, uint32_t first, uint32_t n)
#define ITEM body_item(image, first, n, gridDim.x, blockIdx.x)

KERNEL(copy, 8)
{
    body_copy(image, ITEM, blockIdx.x, threadIdx.x);
}

KERNEL(cast, 8)
{
    body_cast4(image, ITEM, blockIdx.x, threadIdx.x);
}

KERNEL(cast_any, 5)
{
    body_cast_any(image, ITEM, blockIdx.x, threadIdx.x);
}

KERNEL(fold, 4)
{
    body_fold_sum(image, ITEM, blockIdx.x, threadIdx.x);
}

KERNEL(fold_any, 6)
{
    body_fold_any(image, ITEM, blockIdx.x, threadIdx.x);
}

KERNEL(transpose, 5)
{
    __shared__ __align__(16) unsigned char tile[TILE_BYTES];
    const struct device_item *it = ITEM;
    body_transpose(image, it, blockIdx.x, threadIdx.x, tile, 0);
    __syncthreads();
    body_transpose(image, it, blockIdx.x, threadIdx.x, tile, 1);
}

KERNEL(transpose_any, 6)
{
    __shared__ __align__(16) unsigned char tile[TILE_BYTES];
    const struct device_item *it = ITEM;
    body_transpose_any(image, it, blockIdx.x, threadIdx.x, tile, 0);
    __syncthreads();
    body_transpose_any(image, it, blockIdx.x, threadIdx.x, tile, 1);
}
