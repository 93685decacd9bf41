/* The last argument of the kernel that meets other ranks, and what it does with it (struct device_gate, device_work).
 *
 * All ranks are on one device, so words in device memory are written and read at its scope, and those in host memory at
 * that of the system. What came before the kernel in its stream is seen by those that see `come`; the kernel, and what
 * is behind it in the stream, sees what was written before the awaited words; those that see `told` see `reset` and
 * what all blocks wrote. Why the last: each thread's stores come before the barrier of its block, the barrier before
 * the fence and the count of its first thread, the counts of all blocks before the last one, which comes before the
 * fences and stores of the block that counted last. Levels are ordered by the same count.
 */
#ifndef WEFT_DEVICE_CUDA_GATE_H
#define WEFT_DEVICE_CUDA_GATE_H
#include "device/device.h"
#include "device/device_table.h"

struct gate {
    uint64_t count;
    uint32_t n;
    struct device_launch launches[MEET_LAUNCHES];
    struct device_gate words;
};

#ifdef __CUDACC__
/* A launch of weft may begin while the one before it in its stream ends (cuda.c); it does nothing before that one is
 * done and its stores are seen. */
static __device__ __forceinline__ void gate_order(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* What is behind this kernel in the stream may be brought to the multiprocessors. Not before the wait: blocks that wait
 * there could keep those of another rank from running. */
static __device__ __forceinline__ void gate_next(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

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
    gate_order();
    if (!blockIdx.x)
        gate_write(&g->words.come);
    __syncwarp(); /* threads that wait must not keep others of their warp from writing */
    gate_await(&g->words.awaited);
    __syncthreads();
    gate_next();
}

/* All threads of the block call it. True on the block that has come last, if all blocks have come `before` times. */
static __device__ bool gate_count(const struct gate *g, uint32_t before)
{
    int last = threadIdx.x == 0;
    __syncthreads();
    if (last && gridDim.x > 1) {
        __threadfence();
        last = atomicAdd((unsigned *)g->count, 1) == (before + 1) * gridDim.x - 1;
        __threadfence(); /* what blocks wrote that were counted before is seen behind it */
    }
    return __syncthreads_or(last);
}

/* A level is done when all blocks have come here. What they wrote is seen behind it, as it is by those that see `told`.
 */
static __device__ void gate_level(const struct gate *g, uint32_t before)
{
    if (gate_count(g, before))
        return;
    if (!threadIdx.x)
        for (uint32_t come = 0; come < (before + 1) * gridDim.x;)
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(come) : "l"(g->count) : "memory");
    __syncthreads();
}

static __device__ void gate_end(const struct gate *g, uint32_t levels)
{
    if (!gate_count(g, levels))
        return;
    if (!threadIdx.x && gridDim.x > 1)
        *(volatile unsigned *)g->count = 0; /* for the next run, which begins behind `told` or this kernel */
    gate_write(&g->words.reset);
    __syncthreads();
    gate_write(&g->words.told);
}
#endif
#endif
