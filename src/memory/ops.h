/* Folds of contiguous runs, all in one dtype that machines compute with: not f16, bf16 or f8. */
#ifndef WEFT_MEMORY_OPS_H
#define WEFT_MEMORY_OPS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OPS_WAYS 8
/* In the control register of floats: default NaNs; subnormals become 0. */
#define OPS_NAN (UINT64_C(1) << 25)
#define OPS_FLUSH (UINT64_C(1) << 24)

/* dst[i] = in[0][i] op in[1][i] op ... from the left, for n elements of 2 to OPS_WAYS runs. dst may be one of
 * them. A NaN that sum or prod gives is always the same one (quiet, positive), so that results do not depend on
 * how operands were ordered in instructions. Bools are 0 or 1 on both sides. */
typedef void ops_loop(void *dst, const void *const *in, int ways, size_t n);

/* dst[i] = in[0][i] op in[1][i] op ... for n elements of f16, bf16, f8 or (sums) f32 in 2 to OPS_WAYS runs, folded in
 * f32, divided by `by` if that is more than 1 and multiplied by it if it is less (1 for min and max), and rounded once.
 * The first `wide` runs are f32 (0, 1 or all of them); wide_out: dst is f32 and nothing is rounded. dst may be a run of
 * its own dtype, or in[0]. */
typedef void ops_narrow_loop(void *dst, bool wide_out, const void *const *in, int wide, int ways, float by, size_t n);

/* From begin to end, sums and products of this thread that are NaN are the quiet positive one on AArch64, and
 * subnormals are not flushed. To switch takes as long as some dozen vectors of a sum, and nothing if it is switched
 * already. */
static inline uint64_t ops_nan_begin(void)
{
    uint64_t was = OPS_NAN;
#if defined(__aarch64__)
    __asm__ volatile("mrs %0, fpcr" : "=r"(was));
    if ((was & (OPS_NAN | OPS_FLUSH)) != OPS_NAN)
        __asm__ volatile("msr fpcr, %0" : : "r"((was | OPS_NAN) & ~OPS_FLUSH) : "memory");
#endif
    return was;
}

static inline void ops_nan_end(uint64_t was)
{
#if defined(__aarch64__)
    if ((was & (OPS_NAN | OPS_FLUSH)) != OPS_NAN)
        __asm__ volatile("msr fpcr, %0" : : "r"(was) : "memory");
#endif
    (void)was;
}

/* dst[i] = src[i] / div */
typedef void ops_divide_loop(void *dst, const void *src, int64_t div, size_t n);

/* NULL if op does not fold dtype. avg folds as sum. */
ops_loop *ops_find(int op, int dtype);
/* NULL: there is none, and the caller uses casts and the loop of ops_find. */
ops_narrow_loop *ops_find_narrow(int op, int dtype);

/* dst[i] = src[i] / div; integers are rounded toward zero, also if div does not fit into their dtype. dst may be src.
 */
void ops_divide(void *dst, const void *src, int dtype, int64_t div, size_t n);

/* The identity of op, in any dtype that op folds. */
void ops_identity(void *value, int dtype, int op);
#endif
