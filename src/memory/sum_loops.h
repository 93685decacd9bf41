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

/* The same, and copies the block. */
static inline uint64_t sum_copied(unsigned char *dst, const unsigned char *src)
{
    uint64x2_t a = vdupq_n_u64(0), b = a;
    RAW_UNROLL
    for (int j = 0; j < SUM_WORDS; j += 16) { /* lines are stored in order, and whole */
        uint8x16_t x[4];
        for (int i = 0; i < 4; i++)
            x[i] = vld1q_u8(src + 4 * j + 16 * i);
        for (int i = 0; i < 4; i++)
            vst1q_u8(dst + 4 * j + 16 * i, x[i]);
        for (int i = 0; i < 4; i++) {
            uint32x4_t w = vreinterpretq_u32_u8(x[i]), k = vld1q_u32(sum_keys + j + 4 * i);
            a = vmlal_u32(a, vget_low_u32(w), vget_low_u32(k));
            b = vmlal_high_u32(b, w, k);
        }
    }
    return vaddvq_u64(vaddq_u64(a, b));
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

static inline uint64_t sum_copied(unsigned char *dst, const unsigned char *src)
{
    if ((uintptr_t)dst % 64)
        memcpy(dst, src, SUM_BLOCK);
    else
        memory_stream(dst, src, SUM_BLOCK);
    return sum_block(src);
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

static inline __attribute__((always_inline)) void sum_narrow(unsigned char *dst, const unsigned char *src, size_t n)
{
#ifdef WIDE
    RAW_UNROLL
    for (size_t i = 0; i < n; i += STEP)
        if (!f32_try_bf16(dst + 2 * i, src + 4 * i))
            f32_as_bf16(dst + 2 * i, src + 4 * i);
#else
    f32_to_bf16(dst, 0, src, 0, n, 1);
#endif
}

/* The same for a block of f32 that becomes bf16. */
static inline uint64_t sum_cast(unsigned char *dst, const unsigned char *src)
{
    sum_narrow(dst, src, SUM_WORDS);
    return sum_block(src);
}

/* The same for f32 that become a block of bf16, of which the sum is. */
static inline uint64_t sum_made(unsigned char *dst, const unsigned char *src)
{
    _Alignas(64) unsigned char block[SUM_BLOCK];
    sum_narrow(block, src, 2 * SUM_WORDS);
    return sum_copied(dst, block);
}

/* SUM_SIDE rows are walked side by side, a block of each at a time, and what comes next of all of them is prefetched:
 * the hardware would read on behind the end of each row. There may be no memory at that address. Rows have the step
 * `step` where they are summed. Beside a block, src has `wide` times as many bytes, or dst fewer by the factor
 * `narrow`. */
#define SUM_SIDE 8
#define SUM_ROWS(name, block, step, wide, narrow, level)                                                              \
    static void name(struct sum_rows r)                                                                               \
    {                                                                                                                 \
        const uint64_t mask = (UINT64_C(1) << r.shift) - 1;                                                           \
        uint64_t now = r.at >> r.shift, sum = 0; /* stores between those of the rows would end their streaming */     \
        for (int64_t i = 0; i < r.n; i += SUM_SIDE) {                                                                 \
            const int64_t end = r.n - i < SUM_SIDE ? r.n : i + SUM_SIDE;                                              \
            for (size_t b = 0; b < r.unit; b += SUM_BLOCK)                                                            \
                for (int64_t k = i; k < end; k++) {                                                                   \
                    const unsigned char *s = r.src + k * r.sstep + b * (wide);                                        \
                    const uint64_t at = r.at + (uint64_t)(k * (step)) + b;                                            \
                    const uintptr_t next =                                                                            \
                        (uintptr_t)s +                                                                                \
                        (b + SUM_BLOCK < r.unit ? SUM_BLOCK * (wide) : (uintptr_t)(SUM_SIDE * r.sstep) - b * (wide)); \
                    for (int line = 0; line < SUM_BLOCK * (wide); line += 64)                                         \
                        __builtin_prefetch((const void *)(next + (uintptr_t)line), 0, level);                         \
                    if (at >> r.shift != now) {                                                                       \
                        r.sums[now] += sum;                                                                           \
                        now = at >> r.shift;                                                                          \
                        sum = 0;                                                                                      \
                    }                                                                                                 \
                    sum += block(r.dst + k * r.dstep + b / (narrow), s) * sum_factor((at & mask) / SUM_BLOCK);        \
                }                                                                                                     \
        }                                                                                                             \
        r.sums[now] += sum;                                                                                           \
        memory_streamed();                                                                                            \
    }
SUM_ROWS(sum_rows, sum_copied, r.sstep, 1, 1, 2)
SUM_ROWS(sum_rows_bf16, sum_cast, r.sstep, 1, 2, 3)
SUM_ROWS(sum_rows_made, sum_made, r.dstep, 2, 1, 2)
#undef SUM_ROWS
#undef SUM_SIDE
