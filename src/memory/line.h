/* A line: runs of the same length at equal steps, with a step of its own on either side. And the copy of a short run.
 */
#ifndef WEFT_MEMORY_LINE_H
#define WEFT_MEMORY_LINE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined __x86_64__
#include <emmintrin.h>
#endif

struct memory_line {
    uint64_t dst, src; /* addresses, or offsets from a base */
    int64_t dstep, sstep;
    uint32_t n, bytes; /* n runs of `bytes` bytes each */
};

typedef uint8_t memory_vector __attribute__((vector_size(16)));
typedef uint8_t memory_vector_anywhere __attribute__((vector_size(16), aligned(1), may_alias));

/* Copies 16, 32 or 64 bytes, and reads all of them before it writes. */
#define MEMORY_COPY_VECTORS(bytes)                                                 \
    do {                                                                           \
        memory_vector x[(bytes) / 16];                                             \
        for (int i = 0; i < (bytes) / 16; i++)                                     \
            x[i] = ((const memory_vector_anywhere *)(const void *)(from + at))[i]; \
        for (int i = 0; i < (bytes) / 16; i++)                                     \
            ((memory_vector_anywhere *)(void *)(to + at))[i] = x[i];               \
        at += (bytes);                                                             \
    } while (0)

/* The hardware finds no pattern in runs with gaps between them. So the beginning of a run `ahead` bytes further on is
 * prefetched: as many bytes as MEMORY_AHEAD. There may be no memory at that address. */
#define MEMORY_AHEAD 1024
static inline void memory_prefetch(const void *p, uintptr_t ahead, size_t bytes)
{
    const uintptr_t at = (uintptr_t)p + ahead, in = at % 64;
    const size_t end = in + (bytes < MEMORY_AHEAD ? bytes : MEMORY_AHEAD);
    for (size_t i = 0; i < end; i += 64) /* counted: addresses may go round */
        __builtin_prefetch((const void *)(at - in + i), 0, 2);
}

#define MEMORY_COPY_PART(part)                \
    do {                                      \
        if (bytes & (part)) {                 \
            memcpy(to + at, from + at, part); \
            at += (part);                     \
        }                                     \
    } while (0)

/* memcpy that writes in the order of addresses, and no byte twice. Cores that notice that whole cache lines are written
 * need not fetch them first. A Neoverse-N1 notices it only of such stores: where run follows run, this is up to twice
 * as fast as memcpy, which writes the end of a run in stores that overlap. Cores of x86-64 fetch the lines anyway.
 * There it saves the call for a short run. */
static inline __attribute__((always_inline)) void memory_copy_ascending(void *dst, const void *src, size_t bytes)
{
    unsigned char *to = dst;
    const unsigned char *from = src;
    size_t at = 0;
#if defined __x86_64__
    if (bytes >= 256) {
        memcpy(dst, src, bytes);
        return;
    }
#endif
    while (at + 64 <= bytes)
        MEMORY_COPY_VECTORS(64);
    if (bytes & 32)
        MEMORY_COPY_VECTORS(32);
    if (bytes & 16)
        MEMORY_COPY_VECTORS(16);
    MEMORY_COPY_PART(8);
    MEMORY_COPY_PART(4);
    MEMORY_COPY_PART(2);
    MEMORY_COPY_PART(1);
}
#undef MEMORY_COPY_VECTORS
#undef MEMORY_COPY_PART

/* Copies whole cache lines to where they are not read again soon; dst is at the beginning of a line. x86-64 fetches a
 * line before it is written, except with nontemporal stores, which other processors need not: they notice by themselves
 * that whole lines are written. These stores are ordered with others only after memory_streamed. */
#if defined __x86_64__
#define MEMORY_STREAMS true
static inline __attribute__((always_inline)) void memory_stream(void *dst, const void *src, size_t bytes)
{
    unsigned char *to = dst;
    const unsigned char *from = src;
    for (size_t at = 0; at < bytes; at += 64) {
        __m128i x[4];
        for (int i = 0; i < 4; i++)
            x[i] = _mm_loadu_si128((const __m128i *)(const void *)(from + at + 16 * i));
        for (int i = 0; i < 4; i++)
            _mm_stream_si128((__m128i *)(void *)(to + at + 16 * i), x[i]);
    }
}
static inline void memory_streamed(void)
{
    _mm_sfence();
}
#else
#define MEMORY_STREAMS false
static inline void memory_stream(void *dst, const void *src, size_t bytes)
{
    memcpy(dst, src, bytes);
}
static inline void memory_streamed(void) {}
#endif

#define MEMORY_LINE_COPY(bytes)                \
    for (; n; n--, dst += dstep, src += sstep) \
        memcpy(dst, src, bytes);

/* Copies the line into local variables: otherwise the compiler must assume that the copy could overwrite the line. */
static inline void memory_copy_line(uintptr_t base, const struct memory_line *l)
{
    char *dst = (char *)(base + l->dst);
    const char *src = (const char *)(base + l->src);
    const int64_t dstep = l->dstep, sstep = l->sstep;
    const size_t bytes = l->bytes;
    uint32_t n = l->n;
    switch (bytes) {
    case 4: MEMORY_LINE_COPY(4) break;
    case 8: MEMORY_LINE_COPY(8) break;
    case 16: MEMORY_LINE_COPY(16) break;
    case 32: MEMORY_LINE_COPY(32) break;
    case 64: MEMORY_LINE_COPY(64) break;
    case 128: MEMORY_LINE_COPY(128) break;
    default:
        for (; n; n--, dst += dstep, src += sstep)
            memory_copy_ascending(dst, src, bytes);
    }
}
#undef MEMORY_LINE_COPY
#endif
