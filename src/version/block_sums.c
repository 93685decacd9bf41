#include "version/block_sums.h"

#include "base/math.h"
#include "memory/sum.h"

#define CHUNK 65536 /* bytes that are copied before they are summed, so that they are in the cache still */

void block_sums_add(const void *bytes, int64_t at, int64_t n, uint64_t *sums)
{
    const unsigned char *p = bytes;
    while (n > 0) {
        int64_t inside = at % SCHEMA_BLOCK, take = min64(n, SCHEMA_BLOCK - inside);
        sums[at / SCHEMA_BLOCK] += sum_bytes((uint64_t)inside, p, (size_t)take);
        p += take;
        at += take;
        n -= take;
    }
}

void block_sums_store(void *dst, int64_t at, int to, const void *src, int from, int64_t n, uint64_t *sums)
{
    int64_t out = (int64_t)weft_dtype_size(to), in = (int64_t)weft_dtype_size(from);
    int64_t step = sums ? CHUNK / out : n;
    for (int64_t i = 0; i < n; i += step) {
        int64_t take = min64(step, n - i);
        unsigned char *to_at = (unsigned char *)dst + i * out;
        memory_cast(to_at, to, (const unsigned char *)src + i * in, from, (size_t)take);
        if (sums)
            block_sums_add(to_at, at + i * out, take * out, sums);
    }
}

void block_sums_load(void *dst, int to, const void *src, int64_t at, int from, int64_t n, uint64_t *sums)
{
    int64_t out = (int64_t)weft_dtype_size(to), in = (int64_t)weft_dtype_size(from);
    int64_t step = sums ? CHUNK / in : n;
    for (int64_t i = 0; i < n; i += step) {
        int64_t take = min64(step, n - i);
        const unsigned char *from_at = (const unsigned char *)src + i * in;
        if (sums)
            block_sums_add(from_at, at + i * in, take * in, sums);
        memory_cast((unsigned char *)dst + i * out, to, from_at, from, (size_t)take);
    }
}
