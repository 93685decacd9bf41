#define _GNU_SOURCE
#include "base/blake2s.h"

#include <string.h>

static const uint32_t iv[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                               0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

/* The order in which the words of a block are used, in each round. */
static const unsigned char order[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};

static uint32_t turn(uint32_t x, int by)
{
    return x >> by | x << (32 - by);
}

static void mix(uint32_t *v, int a, int b, int c, int d, uint32_t x, uint32_t y)
{
    v[a] += v[b] + x;
    v[d] = turn(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = turn(v[b] ^ v[c], 12);
    v[a] += v[b] + y;
    v[d] = turn(v[d] ^ v[a], 8);
    v[c] += v[d];
    v[b] = turn(v[b] ^ v[c], 7);
}

static void compress(struct blake2s *b, bool last)
{
    uint32_t v[16], m[16];
    for (int i = 0; i < 16; i++)
        m[i] = (uint32_t)b->block[4 * i] | (uint32_t)b->block[4 * i + 1] << 8 | (uint32_t)b->block[4 * i + 2] << 16 |
               (uint32_t)b->block[4 * i + 3] << 24;
    memcpy(v, b->h, sizeof b->h);
    memcpy(v + 8, iv, sizeof iv);
    v[12] ^= (uint32_t)b->count;
    v[13] ^= (uint32_t)(b->count >> 32);
    if (last)
        v[14] = ~v[14];
    for (int r = 0; r < 10; r++) {
        const unsigned char *s = order[r];
        mix(v, 0, 4, 8, 12, m[s[0]], m[s[1]]);
        mix(v, 1, 5, 9, 13, m[s[2]], m[s[3]]);
        mix(v, 2, 6, 10, 14, m[s[4]], m[s[5]]);
        mix(v, 3, 7, 11, 15, m[s[6]], m[s[7]]);
        mix(v, 0, 5, 10, 15, m[s[8]], m[s[9]]);
        mix(v, 1, 6, 11, 12, m[s[10]], m[s[11]]);
        mix(v, 2, 7, 8, 13, m[s[12]], m[s[13]]);
        mix(v, 3, 4, 9, 14, m[s[14]], m[s[15]]);
    }
    for (int i = 0; i < 8; i++)
        b->h[i] ^= v[i] ^ v[i + 8];
    blake2s_wipe(v, sizeof v);
    blake2s_wipe(m, sizeof m);
}

void blake2s_begin(struct blake2s *b, size_t length, const void *key, size_t keylen)
{
    memset(b, 0, sizeof *b);
    memcpy(b->h, iv, sizeof iv);
    b->h[0] ^= UINT32_C(0x01010000) ^ (uint32_t)keylen << 8 ^ (uint32_t)length;
    b->length = length;
    if (!keylen)
        return;
    memcpy(b->block, key, keylen); /* the key is the first block */
    b->filled = sizeof b->block;
}

/* A full block waits until more comes, because the last one is marked. */
void blake2s_add(struct blake2s *b, const void *bytes, size_t n)
{
    const unsigned char *from = bytes;
    while (n) {
        if (b->filled == sizeof b->block) {
            b->count += sizeof b->block;
            compress(b, false);
            b->filled = 0;
        }
        size_t room = sizeof b->block - b->filled, some = n < room ? n : room;
        memcpy(b->block + b->filled, from, some);
        b->filled += some;
        from += some;
        n -= some;
    }
}

void blake2s_end(struct blake2s *b, void *out)
{
    unsigned char all[BLAKE2S_MOST];
    b->count += b->filled;
    memset(b->block + b->filled, 0, sizeof b->block - b->filled);
    compress(b, true);
    for (size_t i = 0; i < sizeof all; i++)
        all[i] = (unsigned char)(b->h[i / 4] >> 8 * (i % 4));
    memcpy(out, all, b->length);
    blake2s_wipe(all, sizeof all);
    blake2s_wipe(b, sizeof *b);
}

bool blake2s_same(const void *a, const void *b, size_t n)
{
    const volatile unsigned char *x = a, *y = b;
    unsigned char differ = 0;
    for (size_t i = 0; i < n; i++)
        differ |= (unsigned char)(x[i] ^ y[i]);
    return !differ;
}

void blake2s_wipe(void *bytes, size_t n)
{
    explicit_bzero(bytes, n);
}
