/* The loop over whole blocks of a sum (sum.h), included by kernels_body.h. A block is summed in several parts at a
 * time, so that the additions do not wait for each other. */
#if defined(__aarch64__) && KERNELS_LEVEL != KERNELS_PLAIN
#include <arm_neon.h>

#define SUM_SCALAR 16 /* words that the integer unit multiplies, while the vector unit multiplies the others */

/* The two units work at the same time only if their instructions take turns: a core looks about a hundred instructions
 * ahead. gcc would sort them by unit, so the order is fixed by asm volatile. clang keeps the order of the source. */
#ifdef __clang__
#define SUM_VECTOR(a, b, x, k) (a = vmlal_u32(a, vget_low_u32(x), vget_low_u32(k)), b = vmlal_high_u32(b, x, k))
#define SUM_WORD(s, x, k) __asm__("umaddl %0, %w1, %w2, %0" : "+r"(s) : "r"(x), "r"(k))
#else
#define SUM_VECTOR(a, b, x, k) \
    __asm__ volatile("umlal %0.2d, %2.2s, %3.2s\n\tumlal2 %1.2d, %2.4s, %3.4s" : "+w"(a), "+w"(b) : "w"(x), "w"(k))
#define SUM_WORD(s, x, k) __asm__ volatile("umaddl %0, %w1, %w2, %0" : "+r"(s) : "r"(x), "r"(k))
#endif

static inline uint64_t sum_block(const void *bytes)
{
    const uint8_t *at = bytes;
    uint64x2_t a = vdupq_n_u64(0), b = a;
    uint64_t s = 0, t = 0;
    RAW_UNROLL
    for (int j = 0; j < (SUM_WORDS - SUM_SCALAR) / 4; j++) {
        uint32x4_t x = vreinterpretq_u32_u8(vld1q_u8(at + 16 * j)), k = vld1q_u32(sum_keys + 4 * j);
        int w = SUM_WORDS - SUM_SCALAR + 2 * j;
        SUM_VECTOR(a, b, x, k);
        if (w < SUM_WORDS) {
            uint64_t pair = *(const raw_u64 *)(const void *)(at + 4 * w);
            SUM_WORD(s, pair, sum_keys[w]);
            SUM_WORD(t, pair >> 32, sum_keys[w + 1]);
        }
    }
    return s + t + vaddvq_u64(vaddq_u64(a, b));
}
#undef SUM_VECTOR
#undef SUM_WORD
#else
static uint64_t sum_block(const void *bytes)
{
    const raw_u32 *words = bytes;
    uint64_t part[8] = {0}, sum = 0;
    for (int j = 0; j < SUM_WORDS; j += 8)
        for (int i = 0; i < 8; i++)
            part[i] += (uint64_t)words[j + i] * sum_keys[j + i];
    for (int i = 0; i < 8; i++)
        sum += part[i];
    return sum;
}
#endif

static uint64_t sum_blocks(const void *bytes, uint64_t block, size_t n)
{
    const char *at = bytes;
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++, at += SUM_BLOCK)
        sum += sum_block(at) * sum_factor(block + i);
    return sum;
}
