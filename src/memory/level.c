/* Which level of kernels is used: the best that the processor has, unless a test asks for a lower one. */
#include <stdatomic.h>
#include <stdbool.h>
#if defined(__aarch64__)
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#endif

#include "memory/kernels.h"
#include "memory/memory.h"

static const struct kernels *const tables[] = {
    [KERNELS_PLAIN] = &kernels_plain,
    [KERNELS_BASE] = &kernels_base,
#if defined(__aarch64__)
    [KERNELS_BF16] = &kernels_bf16,
#elif defined(__x86_64__)
    [KERNELS_AVX2] = &kernels_avx2,
    [KERNELS_AVX512] = &kernels_avx512,
#endif
};

/* Tables are constant data, so a relaxed pointer is enough. Threads that come here at the same time store the same
 * value.
 */
static _Atomic(const struct kernels *) in_use;

#if defined(__aarch64__)
static int best(void)
{
    const unsigned long bf16 = 1ul << 14; /* HWCAP2_BF16, which older headers lack */
    return getauxval(AT_HWCAP2) & bf16 ? KERNELS_BF16 : KERNELS_BASE;
}
#elif defined(__x86_64__)
/* __builtin_cpu_supports also checks that the system saves the registers. Not every compiler knows F16C by name. */
static int best(void)
{
    unsigned a, b, c, d;
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_F16C))
        return KERNELS_BASE;
    bool wider = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return wider ? KERNELS_AVX512 : KERNELS_AVX2;
}
#else
static int best(void)
{
    return KERNELS_BASE;
}
#endif

const struct kernels *memory_level_kernels(void)
{
    const struct kernels *k = atomic_load_explicit(&in_use, memory_order_relaxed);
    if (!k) {
        k = tables[best()];
        atomic_store_explicit(&in_use, k, memory_order_relaxed);
    }
    return k;
}

int memory_level(int level)
{
    int most = best();
    if (level < 0 || level > most)
        level = most;
    atomic_store_explicit(&in_use, tables[level], memory_order_relaxed);
    return level;
}

const char *memory_level_name(int level)
{
    return level >= 0 && level <= best() ? tables[level]->name : NULL;
}
