/* Casts of runs. If there is no loop from one dtype to the other, one of them is f16, bf16 or f8, or the target is
 * complex. Then the cast goes through a block of f32 that stays in the first-level cache, rounded to odd where f32
 * cannot hold the source (see half.h). On the way to c128 it goes through f64 instead, if the source has a loop to f64.
 */
#include "memory/cast.h"

#include <string.h>

#include "base/dtype.h"
#include "base/math.h"
#include "memory/kernels.h"
#include "memory/line.h"
#include "memory/memory.h"
#include "memory/pick.h"

#define SHORT 128  /* bytes of a row in src that are better copied before they are cast */
#define TURN 1024  /* bytes of src in short rows that are cast at a time */
#define LONG 128   /* elements of a row that is cast by itself */
#define BESIDE 512 /* elements of the longest row that is better cast side by side with others */
#define LINE 64    /* bytes of a cache line */
#define STEP 16    /* elements of a vector */
#define MASKED 8   /* elements of a row for which a vector pays, if masks leave out the others */

static void cast_twice(unsigned char *dst, size_t dsize, cast_loop *second, const unsigned char *src, size_t ssize,
                       cast_loop *first, size_t n)
{
    double block[512];
    const size_t most = sizeof block / sizeof *block;
    for (size_t i = 0; i < n; i += most) {
        size_t k = n - i < most ? n - i : most;
        first(block, 0, src + i * ssize, 0, k, 1);
        second(dst + i * dsize, 0, block, 0, k, 1);
    }
}

void cast_run(void *dst, int to, const void *src, int from, size_t n)
{
    const struct kernels *k = memory_level_kernels();
    if (k->cast[from][to]) {
        k->cast[from][to](dst, 0, src, 0, n, 1);
    } else if (to == from) {
        memmove(dst, src, n * weft_dtype_size(to));
    } else {
        bool narrow = dtype_is_float(to) && weft_dtype_size(to) < 4;
        int mid = to == WEFT_C128 && k->cast[from][WEFT_F64] ? WEFT_F64 : WEFT_F32;
        cast_loop *first = narrow && k->odd[from] ? k->odd[from] : k->cast[from][mid];
        cast_twice(dst, weft_dtype_size(to), k->cast[mid][to], src, weft_dtype_size(from), first, n);
    }
}

void cast_pieces(void *dst, int64_t dstep, int to, const struct pick_piece *pieces, int n, int from, int64_t turns)
{
    unsigned char block[CAST_BLOCK], out[CAST_BLOCK], *d = dst;
    int64_t turn = 0;
    for (int i = 0; i < n; i++)
        turn += pieces[i].bytes;
    const size_t count = (size_t)turn / weft_dtype_size(from), written = count * weft_dtype_size(to);
    const bool gaps = dstep != (int64_t)written;
    const int64_t most = CAST_BLOCK / (gaps ? max64(turn, (int64_t)written) : turn);
    struct pick_period period;
    const int64_t picked = n > 1 ? pick_begin(&period, turn, pieces, n, turns) : 0;
    for (int64_t r = 0, k; r < turns; r += k, d += k * dstep) {
        k = min64(most, turns - r);
        if (r < picked) {
            k = min64(most / period.turns * period.turns, picked - r);
            pick_next(&period, block, turn, k);
        }
        unsigned char *at = block;
        for (int i = 0; i < n; at += pieces[i++].bytes) {
            const struct pick_piece *p = &pieces[i];
            if (r >= picked)
                memory_copy_units(at, turn, p->src + r * p->step, p->step, k, (size_t)p->bytes);
            const uintptr_t next = (uintptr_t)p->src + (uintptr_t)((r + k) * p->step);
            for (int64_t b = 0; b < k * p->bytes && p->step == p->bytes; b += LINE)
                __builtin_prefetch((const void *)(next + (uintptr_t)b), 0, 2);
        }
        cast_run(gaps ? out : d, to, block, from, (size_t)k * count);
        if (gaps)
            memory_copy_units(d, dstep, out, (int64_t)written, k, written);
    }
}

/* Short rows with gaps between them in src. The hardware's prefetch begins anew with each row, and reads beyond its
 * end. So a few rows are cast at a time, and those after the next ones are prefetched. */
static void cast_beside(unsigned char *d, int64_t dstep, const unsigned char *s, int64_t sstep, size_t ssize, size_t n,
                        size_t rows, cast_loop *loop)
{
    const size_t bytes = n * ssize, beside = TURN / bytes + 1;
    for (size_t r = 0; r < rows; r += beside) {
        for (size_t i = r + 2 * beside; i < r + 3 * beside && i < rows; i++)
            for (size_t b = 0; b < bytes; b += LINE)
                __builtin_prefetch(s + (int64_t)i * sstep + b, 0, 2);
        loop(d + (int64_t)r * dstep, dstep, s + (int64_t)r * sstep, sstep, n, rows - r < beside ? rows - r : beside);
    }
}

/* Longer rows: one after the other, in pieces, and the same piece of the row after the next is prefetched.
 * There may be no memory at that address. */
static void cast_long(unsigned char *d, int64_t dstep, int to, const unsigned char *s, int64_t sstep, int from,
                      size_t n, size_t rows, cast_loop *loop)
{
    const size_t ssize = weft_dtype_size(from), dsize = weft_dtype_size(to);
    for (; rows; rows--, d += dstep, s += sstep)
        for (size_t at = 0, take; at < n; at += take) {
            take = n - at < 2 * CAST_PIECE ? n - at : CAST_PIECE;
            const uintptr_t next = (uintptr_t)(s + at * ssize) + 2 * (uintptr_t)sstep;
            for (size_t b = 0; b < take * ssize; b += LINE)
                __builtin_prefetch((const void *)(next + b), 0, 2);
            loop(d + at * dsize, 0, s + at * ssize, 0, take, 1);
        }
}

size_t cast_shortest(int to, int from)
{
    const struct kernels *k = memory_level_kernels();
    const bool vector = weft_dtype_size(from) <= 4 && weft_dtype_size(to) <= 4; /* a row is a part of one */
    return k->short_rows && k->cast[from][to] && vector ? MASKED : STEP;
}

void cast_many(void *dst, int64_t dstep, int to, const void *src, int64_t sstep, int from, size_t n, size_t rows)
{
    cast_loop *loop = memory_level_kernels()->cast[from][to];
    const size_t ssize = weft_dtype_size(from), dsize = weft_dtype_size(to);
    const int64_t bytes = (int64_t)(n * ssize);
    unsigned char *d = dst;
    const unsigned char *s = src;
    if (dstep == (int64_t)(n * dsize) && bytes < SHORT && (!loop || (n % 16 && (ssize < 4 || dsize < 4))))
        cast_pieces(dst, dstep, to, &(struct pick_piece){src, sstep, bytes}, 1, from, (int64_t)rows);
    else if (sstep != bytes && from == WEFT_F32 && to == WEFT_BF16 && n >= LONG && n % CAST_PIECE == 0 && n <= BESIDE &&
             memory_level_kernels()->beside_bf16)
        memory_level_kernels()->beside_bf16(d, dstep, s, sstep, n, rows);
    else if (loop && sstep != bytes && n >= LONG)
        cast_long(d, dstep, to, s, sstep, from, n, rows, loop);
    else if (loop && sstep != bytes)
        cast_beside(d, dstep, s, sstep, ssize, n, rows, loop);
    else if (loop)
        loop(d, dstep, s, sstep, n, rows);
    else
        for (size_t r = 0; r < rows; r++)
            cast_run(d + (int64_t)r * dstep, to, s + (int64_t)r * sstep, from, n);
}

void memory_cast(void *dst, int to, const void *src, int from, size_t n)
{
    cast_run(dst, to, src, from, n);
}

bool cast_is_move(int to, int from)
{
    if (to == from)
        return to != WEFT_BOOL;
    return to != WEFT_BOOL && from != WEFT_BOOL && !dtype_is_float(to) && !dtype_is_float(from) &&
           !dtype_is_complex(to) && weft_dtype_size(to) == weft_dtype_size(from);
}

void memory_cast_one(void *dst, int to, const void *src, int from)
{
    if (to == from)
        memmove(dst, src, weft_dtype_size(to));
    else
        cast_run(dst, to, src, from, 1);
}
