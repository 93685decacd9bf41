#include "bus/delta.h"

#include <string.h>
#if defined(__ARM_NEON)
#include <arm_neon.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "memory/sum.h"

#define GROUP 64     /* elements that a word of bits stands for */
#define FAR 255      /* a gap of FAR elements without a changed one */
#define INDEX_HEAD 4 /* bytes before the gaps */
#define AHEAD 2048   /* bytes of the array that are prefetched ahead of a changed element */

bool delta_takes(size_t size)
{
    return size == 1 || size == 2 || size == 4 || size == 8 || size == 16;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t bitmap_bytes(size_t count)
{
    return (count + 7) / 8;
}

size_t delta_most(size_t count, size_t size)
{
    return (count + DELTA_BLOCK - 1) / DELTA_BLOCK + count * size;
}

/* ---- finding ---- */

/* GROUP bytes, each 0 or 255, to bits, the lowest first. */
static inline uint64_t pack(const unsigned char *flags)
{
#if defined(__ARM_NEON)
    const uint8x16_t weights = vreinterpretq_u8_u64(vdupq_n_u64(UINT64_C(0x8040201008040201)));
    uint8x16_t a = vandq_u8(vld1q_u8(flags), weights), b = vandq_u8(vld1q_u8(flags + 16), weights);
    uint8x16_t c = vandq_u8(vld1q_u8(flags + 32), weights), d = vandq_u8(vld1q_u8(flags + 48), weights);
    uint8x16_t sum = vpaddq_u8(vpaddq_u8(a, b), vpaddq_u8(c, d));
    return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(sum, sum)), 0);
#elif defined(__SSE2__)
    uint64_t found = 0;
    for (size_t i = 0; i < GROUP / 16; i++) {
        __m128i some = _mm_loadu_si128((const __m128i *)(const void *)(flags + 16 * i));
        found |= (uint64_t)(unsigned)_mm_movemask_epi8(some) << (16 * i);
    }
    return found;
#else
    uint64_t found = 0;
    for (size_t i = 0; i < GROUP; i++)
        found |= (uint64_t)(flags[i] & 1) << i;
    return found;
#endif
}

typedef uint16_t __attribute__((aligned(1), may_alias)) unaligned16;
typedef uint32_t __attribute__((aligned(1), may_alias)) unaligned32;
typedef uint64_t __attribute__((aligned(1), may_alias)) unaligned64;

/* The flags of n elements: loops that the compiler makes vectors of. Arrays need not be aligned. */
static inline __attribute__((always_inline)) void compare(const unsigned char *x, const unsigned char *y, size_t n,
                                                          size_t size, unsigned char *flags)
{
#define COMPARE(type)              \
    for (size_t i = 0; i < n; i++) \
    flags[i] = ((const type *)(const void *)x)[i] != ((const type *)(const void *)y)[i] ? 255 : 0
    switch (size) {
    case 1: COMPARE(unsigned char); break;
    case 2: COMPARE(unaligned16); break;
    case 4: COMPARE(unaligned32); break;
    case 8: COMPARE(unaligned64); break;
    default: {
        const unaligned64 *a = (const void *)x, *b = (const void *)y;
        for (size_t i = 0; i < n; i++)
            flags[i] = ((a[2 * i] ^ b[2 * i]) | (a[2 * i + 1] ^ b[2 * i + 1])) ? 255 : 0;
    }
    }
}

/* The elements of two arrays that differ, as bits; n <= GROUP. */
static inline __attribute__((always_inline)) uint64_t different(const unsigned char *a, const unsigned char *b,
                                                                size_t n, size_t size)
{
    unsigned char flags[GROUP];
    if (n == GROUP) {
        compare(a, b, GROUP, size, flags);
    } else {
        memset(flags, 0, sizeof flags);
        compare(a, b, n, size, flags);
    }
    return pack(flags);
}

/* An assignment for the sizes that there are, instead of a call. */
static inline __attribute__((always_inline)) void put_value(unsigned char *to, const unsigned char *from, size_t size)
{
    switch (size) {
    case 1: *to = *from; break;
    case 2: memcpy(to, from, 2); break;
    case 4: memcpy(to, from, 4); break;
    case 8: memcpy(to, from, 8); break;
    default: memcpy(to, from, 16);
    }
}

#define STEP 4 /* places that are written without a branch: more in a group are rare */

/* Where the bits of a group are; at least STEP places are written, of which `n` count. Few bits are found without a
 * branch that depends on their number, since it would be mispredicted in most groups. */
static inline void find_places(uint64_t word, size_t n, size_t first, uint16_t *places)
{
    const uint64_t top = UINT64_C(1) << 63; /* for words that have no more bits */
    for (size_t i = 0; i < STEP; i++, word &= word - 1)
        places[i] = (uint16_t)(first + (size_t)__builtin_ctzll(word | top));
    for (size_t i = STEP; i < n; i++, word &= word - 1)
        places[i] = (uint16_t)(first + (size_t)__builtin_ctzll(word));
}

/* Returns how many gaps there are, or a number beyond `room` if they do not fit. */
static size_t find_gaps(const uint16_t *places, size_t changed, unsigned char *gaps, size_t room)
{
    size_t n = 0, next = 0;
    for (size_t i = 0; i < changed; i++) {
        size_t gap = places[i] - next;
        for (; gap >= FAR && n < room; gap -= FAR)
            gaps[n++] = FAR;
        if (n == room)
            return room + 1;
        gaps[n++] = (unsigned char)gap;
        next = places[i] + (size_t)1;
    }
    return n;
}

static unsigned char *put16(unsigned char *out, size_t v)
{
    *out++ = (unsigned char)v;
    *out++ = (unsigned char)(v >> 8);
    return out;
}

static size_t get16(const unsigned char *in)
{
    return in[0] | (size_t)in[1] << 8;
}

/* Inlined for each size, so that its loops are those of the size. */
static inline __attribute__((always_inline)) unsigned char *
put_sized(unsigned char *out, const unsigned char *now, const unsigned char *base, size_t count, size_t size)
{
    uint64_t words[DELTA_BLOCK / GROUP];
    uint16_t places[DELTA_BLOCK + STEP];
    unsigned char gaps[DELTA_BLOCK / 8];
    size_t changed = 0, map = bitmap_bytes(count);
    for (size_t i = 0; i * GROUP < count; i++) {
        size_t first = i * GROUP * size;
        words[i] = different(now + first, base + first, smaller(GROUP, count - i * GROUP), size);
        size_t some = (size_t)__builtin_popcountll(words[i]);
        find_places(words[i], some, i * GROUP, places + changed);
        changed += some;
    }
    if (!changed) {
        *out++ = DELTA_SAME;
        return out;
    }
    size_t room = map > INDEX_HEAD ? map - INDEX_HEAD : 0; /* beyond it the bitmap is not longer */
    size_t ngaps = changed < room ? find_gaps(places, changed, gaps, room) : room + 1;
    size_t where = ngaps < room ? INDEX_HEAD + ngaps : map;
    if (where + changed * size >= count * size) {
        *out++ = DELTA_WHOLE;
        memcpy(out, now, count * size);
        return out + count * size;
    }
    if (ngaps < room) {
        *out++ = DELTA_INDEX;
        out = put16(put16(out, changed), ngaps);
        memcpy(out, gaps, ngaps);
        out += ngaps;
    } else {
        *out++ = DELTA_BITMAP;
        for (size_t i = 0; i < map; i++)
            *out++ = (unsigned char)(words[i / 8] >> (i % 8 * 8));
    }
    for (size_t i = 0; i < changed; i++, out += size)
        put_value(out, now + places[i] * size, size);
    return out;
}

static unsigned char *put_block(unsigned char *out, const unsigned char *now, const unsigned char *base, size_t count,
                                size_t size)
{
    switch (size) {
    case 1: return put_sized(out, now, base, count, 1);
    case 2: return put_sized(out, now, base, count, 2);
    case 4: return put_sized(out, now, base, count, 4);
    case 8: return put_sized(out, now, base, count, 8);
    default: return put_sized(out, now, base, count, 16);
    }
}

size_t delta_find(const void *now, const void *base, size_t count, size_t size, unsigned char *out)
{
    const unsigned char *a = now, *b = base;
    unsigned char *end = out;
    for (size_t at = 0; at < count; at += DELTA_BLOCK)
        end = put_block(end, a + at * size, b + at * size, smaller(DELTA_BLOCK, count - at), size);
    return (size_t)(end - out);
}

/* ---- reading ---- */

/* A block of bytes that nobody has checked: its form, and its parts. Returns its length with the form's byte; 0: it is
 * not a block of `count` elements. */
struct block {
    enum delta_form form;
    size_t changed, ngaps;
    const unsigned char *where, *values;
};

static bool gaps_fit(const unsigned char *gaps, size_t n, size_t changed, size_t count)
{
    size_t at = 0, found = 0;
    for (size_t i = 0; i < n; i++) {
        at += gaps[i];
        if (gaps[i] == FAR)
            continue;
        at++;
        found++;
    }
    return at <= count && found == changed && n && gaps[n - 1] != FAR;
}

static bool bits_fit(const unsigned char *map, size_t count, size_t *changed)
{
    size_t n = 0;
    for (size_t i = 0; i < bitmap_bytes(count); i++)
        n += (size_t)__builtin_popcount(map[i]);
    *changed = n;
    return !(count % 8) || !(map[count / 8] >> count % 8);
}

/* checked: it was taken before, so that its places need not be looked at again. */
static size_t take_block(const unsigned char *in, size_t n, size_t count, size_t size, bool checked, struct block *b)
{
    size_t head = 1;
    if (!n || in[0] > DELTA_WHOLE)
        return 0;
    *b = (struct block){.form = (enum delta_form)in[0], .where = in + 1};
    switch (b->form) {
    case DELTA_SAME: break;
    case DELTA_INDEX:
        if (n < 1 + INDEX_HEAD)
            return 0;
        b->changed = get16(in + 1);
        b->ngaps = get16(in + 3);
        b->where = in + 1 + INDEX_HEAD;
        head += INDEX_HEAD + b->ngaps;
        if (n < head || (!checked && !gaps_fit(b->where, b->ngaps, b->changed, count)))
            return 0;
        break;
    case DELTA_BITMAP:
        head += bitmap_bytes(count);
        if (n < head || !bits_fit(b->where, count, &b->changed))
            return 0;
        break;
    case DELTA_WHOLE: b->changed = count; break;
    }
    b->values = in + head;
    return (n - head) / size < b->changed ? 0 : head + b->changed * size;
}

bool delta_check(const unsigned char *in, size_t n, size_t count, size_t size, size_t *changed)
{
    struct block b;
    size_t all = 0, length;
    for (size_t at = 0; at < count; at += DELTA_BLOCK) {
        if (!(length = take_block(in, n, smaller(DELTA_BLOCK, count - at), size, false, &b)))
            return false;
        in += length;
        n -= length;
        all += b.changed;
    }
    if (changed)
        *changed = all;
    return !n;
}

/* ---- applying ---- */

/* Overwrites the element at byte `at`. Returns what that adds to the sum of the array: an element of less than a word
 * has the key of its word, and longer ones are several words. */
static inline __attribute__((always_inline)) uint64_t change(unsigned char *array, size_t at,
                                                             const unsigned char *value, size_t size)
{
    size_t word = size < 4 ? size : 4;
    uint64_t added = 0;
    for (size_t i = 0; i < size; i += word) {
        uint32_t before = 0, now = 0; /* the first bytes: numbers are little-endian (sum.c) */
        memcpy(&before, array + at + i, word);
        memcpy(&now, value + i, word);
        added += (((uint64_t)now - before) << (at + i) % 4 * 8) * sum_keys[(at + i) / 4 % SUM_WORDS];
    }
    put_value(array + at, value, size);
    return added * sum_factor(at / SUM_BLOCK);
}

static inline __attribute__((always_inline)) uint64_t apply_gaps(unsigned char *array, size_t at, const struct block *b,
                                                                 size_t size)
{
    const unsigned char *value = b->values;
    uint64_t added = 0;
    for (size_t i = 0; i < b->ngaps; i++) {
        at += b->where[i] * size;
        if (b->where[i] == FAR)
            continue;
        __builtin_prefetch((const void *)((uintptr_t)array + at + AHEAD), 1, 2);
        added += change(array, at, value, size);
        at += size;
        value += size;
    }
    return added;
}

static inline __attribute__((always_inline)) uint64_t apply_bits(unsigned char *array, size_t at, const struct block *b,
                                                                 size_t count, size_t size)
{
    const unsigned char *value = b->values;
    uint64_t added = 0;
    for (size_t i = 0; i < bitmap_bytes(count); i++)
        for (unsigned w = b->where[i]; w; w &= w - 1, value += size)
            added += change(array, at + (8 * i + (size_t)__builtin_ctz(w)) * size, value, size);
    return added;
}

static uint64_t apply_whole(unsigned char *array, size_t at, const struct block *b, size_t bytes)
{
    uint64_t before = sum_bytes(at, array + at, bytes);
    memcpy(array + at, b->values, bytes);
    return sum_bytes(at, array + at, bytes) - before;
}

/* Inlined for each size. `at` is where the block begins, in bytes. */
static inline __attribute__((always_inline)) uint64_t apply_sized(unsigned char *array, size_t at,
                                                                  const struct block *b, size_t count, size_t size)
{
    switch (b->form) {
    case DELTA_INDEX: return apply_gaps(array, at, b, size);
    case DELTA_BITMAP: return apply_bits(array, at, b, count, size);
    case DELTA_WHOLE: return apply_whole(array, at, b, count * size);
    default: return 0;
    }
}

static uint64_t apply_block(unsigned char *array, size_t at, const struct block *b, size_t count, size_t size)
{
    switch (size) {
    case 1: return apply_sized(array, at, b, count, 1);
    case 2: return apply_sized(array, at, b, count, 2);
    case 4: return apply_sized(array, at, b, count, 4);
    case 8: return apply_sized(array, at, b, count, 8);
    default: return apply_sized(array, at, b, count, 16);
    }
}

bool delta_apply(void *array, const unsigned char *in, size_t n, size_t count, size_t size, uint64_t *added)
{
    *added = 0;
    if (!delta_check(in, n, count, size, NULL))
        return false;
    for (size_t at = 0; at < count; at += DELTA_BLOCK) {
        struct block b = {0};
        size_t part = smaller(DELTA_BLOCK, count - at), length = take_block(in, n, part, size, true, &b);
        *added += apply_block(array, at * size, &b, part, size);
        in += length;
        n -= length;
    }
    return true;
}
