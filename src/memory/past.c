/* Copies and casts whose stores go past the caches. They must be of whole cache lines: what a unit has of a line at its
 * beginning and at its end is written as usual. */
#include "memory/past.h"

#include <stdatomic.h>

#include "base/dtype.h"
#include "memory/cast.h"
#include "memory/line.h"
#include "memory/memory.h"
#include "memory/raw.h"

#define LINE 64       /* bytes of a cache line */
#define SIDE 16       /* units that are copied side by side */
#define PAIR 128      /* bytes that are copied of each of them at a time */
#define PAGE 4096     /* bytes of a unit of a long run */
#define ENDS 1024     /* bytes of a unit whose ends weigh little */
#define BLOCK 4096    /* bytes that are cast before they are written */
#define CAST_ROW 2048 /* bytes of a row of dst for which that pays */

static _Atomic int is_many = -1; /* -1: not known yet; threads that find out at the same time store the same */

static bool find_many(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512vbmi2");
#else
    return false;
#endif
}

bool past_many(void)
{
    int known = atomic_load_explicit(&is_many, memory_order_relaxed);
    if (known < 0) {
        known = find_many();
        atomic_store_explicit(&is_many, known, memory_order_relaxed);
    }
    return known;
}

void past_assume(int many)
{
    atomic_store_explicit(&is_many, MEMORY_STREAMS ? many : 0, memory_order_relaxed);
}

static size_t to_line(const void *p)
{
    return -(uintptr_t)p % LINE;
}

bool past_pays(const void *dst, int64_t dstep, size_t unit)
{
    bool whole = ((uintptr_t)dst | (uintptr_t)dstep | unit) % LINE == 0;
    return unit >= (whole ? PAIR : ENDS) && past_many();
}

static void prefetch_pair(uintptr_t at)
{
    __builtin_prefetch((const void *)at, 0, 2);
    __builtin_prefetch((const void *)(at + LINE), 0, 2);
}

/* Up to SIDE units, PAIR bytes of each at a time. What comes next of all of them is prefetched meanwhile: there may be
 * no memory at that address. lines: dst and dstep are multiples of a line. */
RAW_INLINE void beside(unsigned char *d, int64_t dstep, const unsigned char *s, int64_t sstep, int64_t n, size_t unit,
                       const bool lines)
{
    size_t at = 0;
    for (; at + PAIR <= unit; at += PAIR) {
        const bool last = at + 2 * PAIR > unit; /* then the next units are prefetched */
        const uintptr_t next = (uintptr_t)s + (last ? (uintptr_t)(SIDE * sstep) : at + PAIR);
        for (int64_t i = 0; i < n; i++) {
            prefetch_pair(next + (uintptr_t)(i * sstep));
            if (lines)
                memory_stream(d + i * dstep + at, s + i * sstep + at, PAIR);
            else
                memory_copy_ascending(d + i * dstep + at, s + i * sstep + at, PAIR);
        }
    }
    for (int64_t i = 0; i < n && at < unit; i++)
        memory_copy_ascending(d + i * dstep + at, s + i * sstep + at, unit - at);
}

/* The bytes of a unit before its first whole line. */
static size_t head_of(const unsigned char *d, size_t unit)
{
    const size_t head = to_line(d);
    return head < unit ? head : unit;
}

/* The same where lines begin within the units. First the beginnings are written, up to a line, and last the ends. */
static void beside_ends(unsigned char *d, int64_t dstep, const unsigned char *s, int64_t sstep, int64_t n, size_t unit)
{
    size_t most = 0; /* bytes of whole lines in a unit */
    for (int64_t i = 0; i < n; i++) {
        const size_t head = head_of(d + i * dstep, unit), whole = (unit - head) / LINE * LINE;
        memory_copy_ascending(d + i * dstep, s + i * sstep, head);
        most = most > whole ? most : whole;
    }
    for (size_t at = 0; at < most; at += PAIR) {
        const uintptr_t next = at + PAIR >= most ? (uintptr_t)(SIDE * sstep) : at + PAIR;
        for (int64_t i = 0; i < n; i++) {
            const size_t head = head_of(d + i * dstep, unit), whole = (unit - head) / LINE * LINE;
            unsigned char *to = d + i * dstep + head + at;
            const unsigned char *from = s + i * sstep + head + at;
            prefetch_pair((uintptr_t)(s + i * sstep) + next);
            if (at + PAIR <= whole)
                memory_stream(to, from, PAIR);
            else if (at + LINE <= whole)
                memory_stream(to, from, LINE);
        }
    }
    for (int64_t i = 0; i < n; i++) {
        const size_t head = head_of(d + i * dstep, unit), end = (unit - head) % LINE;
        memory_copy_ascending(d + i * dstep + unit - end, s + i * sstep + unit - end, end);
    }
}

void past_units(void *dst, int64_t dstep, const void *src, int64_t sstep, int64_t n, size_t unit)
{
    const bool lines = MEMORY_STREAMS && ((uintptr_t)dst | (uintptr_t)dstep) % LINE == 0;
    unsigned char *d = dst;
    const unsigned char *s = src;
    for (int64_t r = 0; r < n; r += SIDE, d += SIDE * dstep, s += SIDE * sstep) {
        const int64_t side = n - r < SIDE ? n - r : SIDE;
        if (lines)
            beside(d, dstep, s, sstep, side, unit, true);
        else if (past_many())
            beside_ends(d, dstep, s, sstep, side, unit);
        else
            beside(d, dstep, s, sstep, side, unit, false);
    }
    memory_streamed();
}

/* As units that follow each other: the hardware's prefetch begins anew with each page, of which several are read side
 * by side. */
void memory_past_copy(void *dst, const void *src, size_t bytes)
{
    unsigned char *to = dst;
    const unsigned char *from = src;
    size_t head = MEMORY_STREAMS ? to_line(to) : bytes, at = head < bytes ? head : bytes;
    size_t pages = past_many() ? (bytes - at) / PAGE * PAGE : 0, whole = (bytes - at) / LINE * LINE;
    memcpy(to, from, at);
    past_units(to + at, PAGE, from + at, PAGE, (int64_t)(pages / PAGE), PAGE);
    memory_stream(to + at + pages, from + at + pages, whole - pages);
    memcpy(to + at + whole, from + at + whole, bytes - at - whole);
    memory_streamed();
}

/* A cast writes parts of lines, so it goes through a block that stays in the first-level cache. */
static void cast_past(unsigned char *dst, int to, const unsigned char *src, int from, size_t n)
{
    const size_t dsize = weft_dtype_size(to), ssize = weft_dtype_size(from);
    _Alignas(LINE) unsigned char block[BLOCK];
    size_t i = to_line(dst) / dsize;
    cast_run(dst, to, src, from, i);
    for (size_t k = 0; i < n; i += k) {
        k = n - i < BLOCK / dsize ? n - i : BLOCK / dsize;
        const size_t bytes = k * dsize, whole = bytes / LINE * LINE;
        cast_run(block, to, src + i * ssize, from, k);
        memory_stream(dst + i * dsize, block, whole);
        memcpy(dst + i * dsize + whole, block + whole, bytes - whole);
    }
    memory_streamed();
}

/* Elements in one piece on both sides at the end of the loops. *loops: those before. */
static int64_t piece_of(const struct memory_tile *t, int64_t dsize, int64_t ssize, int *loops)
{
    int64_t n = 1;
    for (*loops = t->loops; *loops; n *= t->n[*loops])
        if (t->stride[0][*loops - 1] != n * dsize || t->stride[1][*loops - 1] != n * ssize)
            break;
        else
            --*loops;
    return n;
}

/* All turns of the first `loops` loops but the last one of these, which past_units walks. */
static void walk(const struct memory_tile *t, int loops, unsigned char *dst, int to, const unsigned char *src, int from,
                 int64_t piece)
{
    const bool casts = to != from && !cast_is_move(to, from);
    const int last = loops - 1;
    int64_t at[MEMORY_LOOPS] = {0};
    for (int i = 0; i >= 0;) {
        if (!casts)
            past_units(dst, t->stride[0][last], src, t->stride[1][last], t->n[last],
                       (size_t)piece * weft_dtype_size(to));
        for (int64_t k = 0; casts && k < t->n[last]; k++)
            cast_past(dst + k * t->stride[0][last], to, src + k * t->stride[1][last], from, (size_t)piece);
        for (i = last - 1; i >= 0; i--) {
            dst += t->stride[0][i];
            src += t->stride[1][i];
            if (++at[i] < t->n[i])
                break;
            dst -= t->stride[0][i] * t->n[i];
            src -= t->stride[1][i] * t->n[i];
            at[i] = 0;
        }
    }
}

bool memory_past_tile(const struct memory_tile *t, void *dst, int to, const void *src, int from)
{
    const int64_t dsize = (int64_t)weft_dtype_size(to), ssize = (int64_t)weft_dtype_size(from);
    const bool casts = to != from && !cast_is_move(to, from);
    int loops;
    const int64_t piece = piece_of(t, dsize, ssize, &loops);
    if (!past_many() || !memory_tile_count(t))
        return false;
    if (casts && (dsize <= ssize || dsize < 4 || piece * dsize < CAST_ROW || (uintptr_t)dst % (uintptr_t)dsize))
        return false;
    for (int i = 0; i < loops; i++) {
        if (!casts && !past_pays(dst, t->stride[0][i], (size_t)(piece * dsize)))
            return false;
        if (casts && t->stride[0][i] % dsize)
            return false;
    }
    if (loops)
        walk(t, loops, dst, to, src, from, piece);
    else if (casts)
        cast_past(dst, to, src, from, (size_t)piece);
    else
        memory_past_copy(dst, src, (size_t)(piece * dsize));
    return true;
}
