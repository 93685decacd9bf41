/* The last argument of the kernel that meets other ranks, and what it does with it (struct device_gate, device_work).
 *
 * All ranks are on one device, so words in device memory are written and read at its scope, and those in host memory at
 * that of the system. What came before the kernel in its stream is seen by those that see `come`; the kernel, and what
 * is behind it in the stream, sees what was written before the awaited words; those that see `told` see what all blocks
 * wrote. Why the last: each thread's stores come before the barrier of its block, the barrier before the fence and the
 * count of its first thread, the counts of all blocks before the last one, which comes before the stores of the block
 * that counted last. Levels are ordered by the same count.
 *
 * A store to host memory takes longer than all else, and a fence waits for the stores of its thread. So another warp
 * writes the words there.
 */
#ifndef WEFT_DEVICE_CUDA_GATE_H
#define WEFT_DEVICE_CUDA_GATE_H
#include "device/device.h"
#include "device/device_table.h"

/* What a kernel does at its end: the second half of a gate. */
struct gate_end {
    uint64_t
        count; /* the address of a word that counts blocks; of a kernel that meets nobody 0: there is no such end */
    uint64_t counter;
    struct device_words told;
    uint32_t counts;
};

struct gate {
    uint32_t n;
    struct device_launch launches[MEET_LAUNCHES];
    uint64_t late;
    struct device_words come, awaited;
    struct gate_end end;
    uint32_t shown;
};

static inline struct gate_end gate_end_of(const struct device_gate *g, uint64_t count)
{
    return (struct gate_end){count, g->counter, g->told, g->counts};
}

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

#define GATE_WARP 32

/* All threads of the block take part. `base` is the counter's value. */
static __device__ void gate_write_near(const struct device_words *w, uint32_t base)
{
    for (uint32_t i = threadIdx.x; i < w->n; i += DEVICE_THREADS)
        asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(gate_near(w, i)), "r"(w->value + base) : "memory");
}

static __device__ void gate_write_host(const struct device_words *w, uint32_t base)
{
    if (threadIdx.x < GATE_WARP)
        return;
    for (uint32_t i = threadIdx.x - GATE_WARP; i < w->hosts; i += DEVICE_THREADS - GATE_WARP)
        asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(w->at + (uint64_t)i * w->stride), "r"(w->value + base)
                     : "memory");
}

static __device__ uint32_t gate_base(const struct gate_end *e)
{
    return e->counter ? *(const volatile uint32_t *)e->counter : 0;
}

static __device__ bool gate_reached(const struct device_words *w, uint32_t base, uint32_t i, uint32_t look)
{
    uint32_t value;
    if (look % 64 == 63) {
        asm volatile("ld.acquire.sys.global.u32 %0, [%1];"
                     : "=r"(value)
                     : "l"(w->at + (uint64_t)i * w->stride)
                     : "memory");
        return (int32_t)(value - w->host_value - (w->host_counts ? base : 0)) >= 0;
    }
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(gate_near(w, i)) : "memory");
    return (int32_t)(value - w->value - base) >= 0;
}

static __device__ void gate_write_late(const struct gate *g, uint32_t word, uint32_t base)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(g->late + 4 * word), "r"(g->come.value + base) : "memory");
}

#define GATE_LATE 1024 /* looks */

/* True: this thread has waited for long, and the host is told. */
static __device__ bool gate_await(const struct gate *g, uint32_t base)
{
    bool late = false;
    for (uint32_t i = threadIdx.x; i < g->awaited.n; i += DEVICE_THREADS)
        for (uint32_t look = 0; !gate_reached(&g->awaited, base, i, look); look++)
            if (look == GATE_LATE && g->late && !blockIdx.x) {
                gate_write_late(g, 0, base);
                late = true;
            }
    return late;
}

/* Returns the counter's value, which no block changes before all blocks have come to the end. */
static __device__ uint32_t gate_begin(const struct gate *g)
{
    gate_order();
    const uint32_t base = gate_base(&g->end);
    if (!blockIdx.x) {
        gate_write_near(&g->come, base);
        gate_write_host(&g->come, base);
    }
    __syncwarp(); /* threads that wait must not keep others of their warp from writing */
    const bool late = __syncthreads_or(gate_await(g, base));
    if ((late || g->shown) && !threadIdx.x && !blockIdx.x) {
        if (!late)
            gate_write_late(g, 0, base);
        gate_write_late(g, 1, base);
    }
    gate_next();
    return base;
}

/* All threads of the block call it. True on the block that has come last, if all blocks have come `before` times. */
static __device__ bool gate_count(const struct gate_end *e, uint32_t before)
{
    int last = threadIdx.x == 0;
    __syncthreads();
    if (last && gridDim.x > 1) {
        __threadfence();
        last = atomicAdd((unsigned *)e->count, 1) == (before + 1) * gridDim.x - 1;
        __threadfence(); /* what blocks wrote that were counted before is seen behind it */
    }
    return __syncthreads_or(last);
}

/* A level is done when all blocks have come here. What they wrote is seen behind it, as it is by those that see `told`.
 */
static __device__ void gate_level(const struct gate_end *e, uint32_t before)
{
    if (gate_count(e, before))
        return;
    if (!threadIdx.x)
        for (uint32_t come = 0; come < (before + 1) * gridDim.x;)
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(come) : "l"(e->count) : "memory");
    __syncthreads();
}

/* On the block that has come last. */
static __device__ void gate_tell(const struct gate_end *e, uint32_t base)
{
    if (!threadIdx.x && gridDim.x > 1)
        *(volatile uint32_t *)e->count = 0; /* for the next run, which begins behind `told` or this kernel */
    if (!threadIdx.x && e->counts)
        *(volatile uint32_t *)e->counter = base + 1;
    __syncthreads();
    gate_write_near(&e->told, base);
    __syncthreads(); /* a rank whose host sees the word there may free its memory */
    gate_write_host(&e->told, base);
}

/* The end of a kernel that meets nobody at its beginning. */
static __device__ __forceinline__ void gate_last(const struct gate_end *e)
{
    if (!e->count || !gate_count(e, 0))
        return;
    const uint32_t base = gate_base(e);
    __syncthreads();
    gate_tell(e, base);
}
#endif
#endif
