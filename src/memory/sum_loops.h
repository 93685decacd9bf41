/* The loop over whole blocks of a sum (sum.h), included by kernels_body.h. A block is summed in eight parts at a time,
 * so that the additions do not wait for each other. */
#if defined(__aarch64__) && KERNELS_LEVEL != KERNELS_PLAIN
#include <arm_neon.h>

#define SUM_SCALAR 8 /* words that the integer unit multiplies, while the vector unit multiplies the others */

/* Compilers other than gcc do not make these instructions of the loop below. */
static uint64_t sum_block(const void *bytes)
{
    const uint8_t *at = bytes;
    uint64x2_t a = vdupq_n_u64(0), b = a, c = a, d = a;
    uint64_t s = 0, t = 0;
    RAW_UNROLL
    for (int j = 0; j < SUM_WORDS - SUM_SCALAR; j += 8) {
        uint32x4_t x = vreinterpretq_u32_u8(vld1q_u8(at + 4 * j)), y = vreinterpretq_u32_u8(vld1q_u8(at + 4 * j + 16));
        uint32x4_t k = vld1q_u32(sum_keys + j), m = vld1q_u32(sum_keys + j + 4);
        a = vmlal_u32(a, vget_low_u32(x), vget_low_u32(k));
        b = vmlal_high_u32(b, x, k);
        c = vmlal_u32(c, vget_low_u32(y), vget_low_u32(m));
        d = vmlal_high_u32(d, y, m);
    }
    RAW_UNROLL
    for (int j = SUM_WORDS - SUM_SCALAR; j < SUM_WORDS; j += 2) {
        uint32_t x = ((const raw_u32 *)bytes)[j], y = ((const raw_u32 *)bytes)[j + 1];
        __asm__("" : "+r"(x), "+r"(y)); /* not in vectors */
        s += (uint64_t)x * sum_keys[j];
        t += (uint64_t)y * sum_keys[j + 1];
    }
    return s + t + vaddvq_u64(vaddq_u64(vaddq_u64(a, b), vaddq_u64(c, d)));
}
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
