/* A 64-bit hash of bytes. It is the same on all machines of one byte order (weft's targets are all little-endian). It
 * is good enough to tell problems apart, but no defence against an adversary. */
#ifndef WEFT_BASE_HASH_H
#define WEFT_BASE_HASH_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t hash_mix(uint64_t h)
{
    h ^= h >> 32;
    h *= UINT64_C(0xd6e8feb86659fd93);
    h ^= h >> 32;
    h *= UINT64_C(0xd6e8feb86659fd93);
    h ^= h >> 32;
    return h;
}

static inline uint64_t hash_u64(uint64_t seed, uint64_t x)
{
    return hash_mix(seed * UINT64_C(0x9e3779b97f4a7c15) + x + UINT64_C(0x632be59bd9b4e019));
}

static inline uint64_t hash_bytes(uint64_t seed, const void *data, size_t n)
{
    const unsigned char *p = data;
    uint64_t h = hash_u64(seed, n), w;
    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&w, p, 8);
        h = hash_u64(h, w);
    }
    w = 0;
    memcpy(&w, p, n);
    return n ? hash_u64(h, w) : h;
}
#endif
