/* Casts of rows with gaps between them. A row that is shorter than a vector, or ends within one, costs as much as a
 * whole vector. So short rows are gathered in a block if dst has no gaps, and cast in one run. Otherwise each is cast
 * by itself, by a loop that masks a part of a vector where there is one. */
#include "memory/cast_rows.h"

#include <stdbool.h>

#include "base/dtype.h"
#include "base/math.h"
#include "memory/cast.h"
#include "memory/kernels.h"
#include "memory/memory.h"

#define SHORT 128  /* bytes of a row in src that are better copied before they are cast */
#define TURN 1024  /* bytes of src in short rows that are cast at a time */
#define LONG 128   /* elements of a row that is cast by itself */
#define BESIDE 512 /* elements of the longest row that is better cast side by side with others */
#define LINE 64    /* bytes of a cache line */
#define PICKED 32  /* bytes of a turn in src: a vector then has pieces of several turns out of each source */
#define STEP 16    /* elements of a vector */
#define MASKED 8   /* elements of a row for which a vector pays, if masks leave out the others */

void cast_rows_pieces(void *dst, int64_t dstep, int to, const struct pick_piece *pieces, int n, int from, int64_t turns)
{
    unsigned char block[CAST_ROWS_BLOCK], out[CAST_ROWS_BLOCK], *d = dst;
    int64_t turn = 0;
    for (int i = 0; i < n; i++)
        turn += pieces[i].bytes;
    const size_t count = (size_t)turn / weft_dtype_size(from), written = count * weft_dtype_size(to);
    const bool gaps = dstep != (int64_t)written;
    const int64_t most = CAST_ROWS_BLOCK / (gaps ? max64(turn, (int64_t)written) : turn);
    struct pick_period period;
    const int64_t picked = n > 1 && turn <= PICKED ? pick_begin(&period, turn, pieces, n, turns) : 0;
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

size_t cast_rows_shortest(int to, int from)
{
    const struct kernels *k = memory_level_kernels();
    const bool vector = weft_dtype_size(from) <= 4 && weft_dtype_size(to) <= 4; /* a row is a part of one */
    return k->short_rows && k->cast[from][to] && vector ? MASKED : STEP;
}

void cast_rows(void *dst, int64_t dstep, int to, const void *src, int64_t sstep, int from, size_t n, size_t rows)
{
    cast_loop *loop = memory_level_kernels()->cast[from][to];
    const size_t ssize = weft_dtype_size(from), dsize = weft_dtype_size(to);
    const int64_t bytes = (int64_t)(n * ssize);
    unsigned char *d = dst;
    const unsigned char *s = src;
    if (dstep == (int64_t)(n * dsize) && bytes < SHORT && (!loop || (n % STEP && (ssize < 4 || dsize < 4))))
        cast_rows_pieces(dst, dstep, to, &(struct pick_piece){src, sstep, bytes}, 1, from, (int64_t)rows);
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
