/* Host memory kernels: copy, cast and fold over strided tiles. Pure functions of addresses; they
 * know nothing of plans or layouts. A tile is a nest of loops over elements; bind makes it once
 * (memory_tile_merge) and every run walks it. */
#ifndef WEFT_MEMORY_MEMORY_H
#define WEFT_MEMORY_MEMORY_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memory/ops.h"
#include "weft.h"

#define MEMORY_LOOPS 16 /* two for each of eight dims */
#define MEMORY_OPERANDS 2

/* Loop i (0 outermost) runs n[i] times; stride[k][i] is in bytes, for operand k (0 is written, 1 is read). */
struct memory_tile {
    int loops;
    int64_t n[MEMORY_LOOPS];
    int64_t stride[MEMORY_OPERANDS][MEMORY_LOOPS];
};

/* Drops loops of one turn and joins neighbouring loops that can be one loop on both sides, so that the innermost loop
 * is as long as possible. Does not reorder. A tile without loops is one element. */
void memory_tile_merge(struct memory_tile *t);
int64_t memory_tile_count(const struct memory_tile *t); /* elements; 0 if some loop has none */

/* dst[...] = cast(src[...]): to == from moves bytes. The two must not overlap, unless they are the same
 * addresses element by element. Casts round to nearest, ties to even. From float to integer they truncate
 * and saturate, and NaN becomes 0. Integers wrap. To bool, all values except zero are true. A float that is too large
 * becomes an infinity, NaN in f8e4m3, which has no infinity, or the largest value in f8e4m3sat and f8e5m2sat. Real
 * numbers become complex ones with the imaginary part 0; there is no cast from complex to real. f8e8m0: see half.h. */
void memory_copy(const struct memory_tile *t, void *dst, int to, const void *src, int from);

/* Moves n units of `unit` bytes, which are dstep and sstep bytes apart: for short stretches of one loop. */
void memory_copy_units(void *dst, int64_t dstep, const void *src, int64_t sstep, int64_t n, size_t unit);

/* The same for units that go to memory which is not in the caches: 64 bytes or more are worth it. near: src is in them.
 */
void memory_copy_out(void *dst, int64_t dstep, const void *src, int64_t sstep, int64_t n, size_t unit, bool near);

/* memcpy with nontemporal stores, for bytes that are not read again soon. They bypass the caches on processors that
 * would otherwise read each line before they write it. Stores after this call are seen after the stores of this call.
 */
void memory_past_copy(void *dst, const void *src, size_t bytes);
/* memory_copy with such stores. False: it has done nothing, since memory_copy is as fast. */
bool memory_past_tile(const struct memory_tile *t, void *dst, int to, const void *src, int from);

/* memory_copy for n elements that are contiguous on both sides. */
void memory_cast(void *dst, int to, const void *src, int from, size_t n);

/* Fills with the identity of op for this dtype: sum 0, prod 1, min +inf or the largest integer, max -inf or the
 * smallest, band all ones (bool: true), bor and bxor 0. f8e4m3 and f8e8m0 have no infinity: their largest and smallest
 * values are used. Uses operand 0's strides. The identity of sum is +0; a fold starts with its first term, so a sum of
 * -0 alone stays -0. */
void memory_fill_identity(const struct memory_tile *t, void *dst, int dtype, int op);

struct memory_term {
    const void *data;
    int dtype;             /* the source's dtype or its accumulation dtype */
    const int64_t *stride; /* bytes, one for each loop of the tile */
};
/* dst[...] = cast(cast(fold(op, terms in order) / div, via), to) with n >= 1 terms, folded in acc. The tile gives the
 * loops and operand 0's strides; each term has its own strides. div <= 1: none; via 0: none. dst may have the same
 * address as a term in each element, if their dtypes have the same size. Reads each term once and writes dst once.
 * Bools are written as 0 or 1. A NaN that is the sum or product of two or more terms is always the positive quiet one.
 * The loops are merged as far as all operands allow, so the tile need not be merged. */
void memory_fold(const struct memory_tile *t, void *dst, int to, int via, int acc, int op, int64_t div,
                 const struct memory_term *terms, size_t n);

/* A fold of contiguous runs that one loop does in one pass, looked up once: small ones are not worth the search. */
struct memory_runs {
    ops_loop *loop; /* all operands have one dtype; NULL: */
    ops_narrow_loop *narrow;
    bool wide_out, ends; /* ends: min or max */
    int wide;
    float by; /* wide_out, wide and by are what `narrow` takes */
};
/* False: memory_fold is needed. */
bool memory_fold_runs(const struct memory_tile *t, int to, int via, int acc, int op, int64_t div,
                      const struct memory_term *terms, size_t n, struct memory_runs *out);
/* dst[i] = in[0][i] op in[1][i] op ... for n elements of `ways` runs. */
void memory_runs_fold(const struct memory_runs *r, void *dst, const void *const *in, int ways, size_t n);

/* For tests: uses the kernels of this level from now on, or of the best level of the processor if `level` is negative
 * or higher than that. Returns the level. 0 is plain C, 1 is what every processor of the architecture has; all give the
 * same bits. No kernel may run during the call. */
int memory_level(int level);
const char *memory_level_name(int level); /* NULL if the processor has no such level */

/* One value, for oracles and tests: exact scalar forms of the same rules. */
void memory_cast_one(void *dst, int to, const void *src, int from);
void memory_ops_fold_one(void *acc_value, const void *term_value, int acc, int op); /* both of dtype acc */
#endif
