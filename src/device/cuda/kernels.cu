/* The kernels of weft_cuda.so: body.h, compiled for CUDA. No thread waits for another block, so that a launch ends
 * whatever other processes do. Only those that meet other ranks wait (gate.h): for words of these, where kernels of all
 * ranks run at the same time, and between levels for their own blocks, which are few. Other launches are one-shot: each
 * thread moves 16 bytes of a copy, or a few times as many of a cast or fold, and ends, which is faster than loops. */
#include "device/body.h"
#include "device/cuda/gate.h"

/* The table is brought into the second cache, and kept there while the data goes through it: a block brings the line of
 * its number, which blocks behind it need. Nothing that is copied is read before gate_order. */
static __device__ __forceinline__ const struct device_item *begin(const void *image, uint32_t first, uint32_t n,
                                                                  uint32_t lines)
{
    if (!threadIdx.x && blockIdx.x < lines)
        asm volatile("prefetch.global.L2::evict_last [%0];" ::"l"(
            __cvta_generic_to_global((const unsigned char *)image + (size_t)blockIdx.x * 128)));
    const struct device_item *it = body_item(image, first, n, gridDim.x, blockIdx.x);
    gate_order();
    return it;
}

/* `blocks`: how many of them a multiprocessor has at once, for which registers must suffice. */
#define KERNEL(name, blocks)                                                                 \
    extern "C" __global__ void __launch_bounds__(DEVICE_THREADS, blocks) weft_device_##name( \
        const void *image, uint32_t first, uint32_t n, uint32_t lines, const __grid_constant__ struct gate_end end)
#define ITEM begin(image, first, n, lines)

KERNEL(copy, 8)
{
    body_copy(image, ITEM, blockIdx.x, threadIdx.x);
    gate_last(&end);
}

KERNEL(cast, 4)
{
    body_cast_lanes(image, ITEM, blockIdx.x, threadIdx.x);
    gate_last(&end);
}

KERNEL(cast_any, 5)
{
    body_cast_any(image, ITEM, blockIdx.x, threadIdx.x);
    gate_last(&end);
}

KERNEL(fold, 4)
{
    body_fold_lanes(image, ITEM, blockIdx.x, threadIdx.x);
    gate_last(&end);
}

KERNEL(fold_any, 6)
{
    body_fold_any(image, ITEM, blockIdx.x, threadIdx.x);
    gate_last(&end);
}

KERNEL(transpose, 4)
{
    __shared__ __align__(16) unsigned char tile[TILE_BYTES];
    const struct device_item *it = ITEM;
    body_transpose(image, it, blockIdx.x, threadIdx.x, tile, 0);
    __syncthreads();
    body_transpose(image, it, blockIdx.x, threadIdx.x, tile, 1);
    gate_last(&end);
}

KERNEL(transpose_any, 5)
{
    __shared__ __align__(16) unsigned char tile[TILE_BYTES];
    const struct device_item *it = ITEM;
    body_transpose_any(image, it, blockIdx.x, threadIdx.x, tile, 0);
    __syncthreads();
    body_transpose_any(image, it, blockIdx.x, threadIdx.x, tile, 1);
    gate_last(&end);
}

KERNEL(sum, 8)
{
    __shared__ uint64_t sums[DEVICE_THREADS];
    const struct device_item *it = ITEM;
    body_sum(it, threadIdx.x, sums, 0);
    __syncthreads();
    body_sum(it, threadIdx.x, sums, 1);
    gate_last(&end);
}

/* While other ranks are awaited: the first item comes into the first cache. */
static __device__ __forceinline__ void ahead(const void *image, const struct gate *gate)
{
    const struct device_launch *l = gate->launches;
    if (gate->n && blockIdx.x < l->blocks && threadIdx.x < 2)
        asm volatile("prefetch.global.L1 [%0];" ::"l"(__cvta_generic_to_global(
            (const unsigned char *)body_item(image, l->first, l->n, l->blocks, blockIdx.x) + threadIdx.x * 128)));
}

/* Kernels that meet other ranks and do small work by themselves: `work` is that of a block. Those that have one body
 * are smaller, and so they begin sooner. A multiprocessor has places for two blocks of each at least: docs/gpu.md. */
#define MEET(name, work)                                                                \
    extern "C" __global__ void __launch_bounds__(DEVICE_THREADS, 2)                     \
        weft_device_##name(const void *image, const __grid_constant__ struct gate gate) \
    {                                                                                   \
        uint32_t levels = 0;                                                            \
        ahead(image, &gate);                                                            \
        const uint32_t base = gate_begin(&gate);                                        \
        for (uint32_t i = 0; i < gate.n; i++) {                                         \
            const struct device_launch *l = &gate.launches[i];                          \
            if (i && l->level != l[-1].level)                                           \
                gate_level(&gate.end, levels++);                                        \
            for (uint32_t block = blockIdx.x; block < l->blocks; block += gridDim.x)    \
                work;                                                                   \
        }                                                                               \
        if (gate_count(&gate.end, levels))                                              \
            gate_tell(&gate.end, base);                                                 \
    }
#define MEET_BODY(body) body(image, body_item(image, l->first, l->n, l->blocks, block), block, threadIdx.x)
MEET(meet, (void)0)
MEET(meet_copy, MEET_BODY(body_copy))
MEET(meet_cast, MEET_BODY(body_cast_lanes))
MEET(meet_fold, MEET_BODY(body_fold_lanes))

static __device__ void meet_launch(const void *image, const struct device_launch *l, uint32_t block)
{
    switch (l->kernel) {
    case DEVICE_COPY: MEET_BODY(body_copy); break;
    case DEVICE_CAST: MEET_BODY(body_cast_lanes); break;
    default: MEET_BODY(body_fold_lanes); break;
    }
}
MEET(meet_any, meet_launch(image, l, block))

/* With single elements, too. */
static __device__ void meet_launch_elements(const void *image, const struct device_launch *l, uint32_t block)
{
    switch (l->kernel) {
    case DEVICE_CAST_ANY: MEET_BODY(body_cast_any); break;
    case DEVICE_FOLD_ANY: MEET_BODY(body_fold_any); break;
    default: meet_launch(image, l, block); break;
    }
}
MEET(meet_elements, meet_launch_elements(image, l, block))
