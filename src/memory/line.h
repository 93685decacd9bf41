/* A line: runs of the same length at equal steps, with a step of its own on either side. */
#ifndef WEFT_MEMORY_LINE_H
#define WEFT_MEMORY_LINE_H
#include <stdint.h>
#include <string.h>

struct memory_line {
    uint64_t dst, src; /* addresses, or offsets from a base */
    int64_t dstep, sstep;
    uint32_t n, bytes; /* n runs of `bytes` bytes each */
};

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
    default: MEMORY_LINE_COPY(bytes)
    }
}
#undef MEMORY_LINE_COPY
#endif
