/* The last argument of kernels with a gate, and what they do with it (struct device_gate).
 *
 * All ranks are on one device, so words in device memory are written and read at its scope, and those in host memory at
 * that of the system. What came before the kernel in its stream is seen by those that see `come`; the kernel, and what
 * is behind it in the stream, sees what was written before the awaited words; those that see `told` see `reset` and
 * what all blocks wrote. Why the last: each thread's stores come before the barrier of its block, the barrier before
 * the fence and the count of its first thread, the counts of all blocks before the last one, which comes before the
 * fences and stores of the block that counted last. */
#ifndef WEFT_DEVICE_CUDA_GATE_H
#define WEFT_DEVICE_CUDA_GATE_H
#include "device/device.h"
#include "device/device_table.h"

struct gate {
    uint64_t count;
    struct device_gate words;
};

#ifdef __CUDACC__
static __device__ uint64_t gate_near(const struct device_words *w, uint32_t i)
{
    return w->near + (w->list ? ((const uint64_t *)w->list)[i] : 0);
}

static __device__ void gate_write_host(const struct device_words *w, uint32_t i)
{
    uint64_t at = w->at + (uint64_t)i * w->stride, time;
    if (w->stamped) {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
        asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(at), "l"(time << 32 | w->value) : "memory");
    } else {
        asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(at), "r"(w->value) : "memory");
    }
}

/* All threads of the block take part. */
static __device__ void gate_write(const struct device_words *w)
{
    for (uint32_t i = threadIdx.x; i < w->hosts; i += DEVICE_THREADS)
        gate_write_host(w, i);
    if (w->hosts > 1)
        __syncthreads(); /* a word alone is written by one thread */
    for (uint32_t i = threadIdx.x; i < w->n; i += DEVICE_THREADS)
        asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(gate_near(w, i)), "r"(w->value) : "memory");
}

static __device__ bool gate_reached(const struct device_words *w, uint32_t i, uint32_t look)
{
    uint32_t value;
    if (look % 64 == 63) {
        asm volatile("ld.acquire.sys.global.u32 %0, [%1];"
                     : "=r"(value)
                     : "l"(w->at + (uint64_t)i * w->stride)
                     : "memory");
        return (int32_t)(value - w->host_value) >= 0;
    }
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(gate_near(w, i)) : "memory");
    return (int32_t)(value - w->value) >= 0;
}

static __device__ void gate_await(const struct device_words *w)
{
    for (uint32_t i = threadIdx.x; i < w->n; i += DEVICE_THREADS)
        for (uint32_t look = 0; !gate_reached(w, i, look); look++)
            ;
}

static __device__ void gate_begin(const struct gate *g)
{
    if (!blockIdx.x)
        gate_write(&g->words.come);
    __syncwarp(); /* threads that wait must not keep others of their warp from writing */
    gate_await(&g->words.awaited);
    __syncthreads();
}

static __device__ void gate_end(const struct gate *g)
{
    int last = threadIdx.x == 0;
    __syncthreads();
    if (last && gridDim.x > 1) {
        __threadfence();
        last = atomicInc((unsigned *)g->count, gridDim.x - 1) == gridDim.x - 1; /* the last one makes it 0 again */
    }
    if (!__syncthreads_or(last))
        return;
    gate_write(&g->words.reset);
    __syncthreads();
    gate_write(&g->words.told);
}
#endif
#endif
