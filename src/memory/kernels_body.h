/* One level's kernels, included by kernels_*.c. Each of these defines the level (KERNELS_LEVEL), the table's variable
 * (KERNELS), its name in texts (KERNELS_NAME) and the instructions that may be used. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memory/raw.h"

#if KERNELS_LEVEL != KERNELS_PLAIN && defined(__aarch64__)
#include "memory/wide_neon.h"
#elif KERNELS_LEVEL == KERNELS_AVX2
#include "memory/wide_avx2.h"
#elif KERNELS_LEVEL == KERNELS_AVX512
#include "memory/wide_avx512.h"
#endif

#include "memory/cast_loops.h"
#include "memory/ops_loops.h"
#include "memory/pick_loops.h"
#ifdef WIDE
#include "memory/wide_folds.h"
#endif
#include "memory/sum_loops.h"

const struct kernels KERNELS = {
    .name = KERNELS_NAME,
    .ops = OPS_TABLE,
#if defined(WIDE) || KERNELS_LEVEL == KERNELS_PLAIN
    .narrow = NARROW_TABLE,
#endif
    .divide = DIVIDE_TABLE,
    .scale = SCALE_TABLE,
    .cast = CAST_TABLE,
#ifdef WIDE_PARTS
    .short_rows = true,
#endif
#ifdef CAST_BESIDE_BF16
    .beside_bf16 = CAST_BESIDE_BF16,
#endif
    .odd = ODD_TABLE,
    .sum = sum_blocks,
    .sum_rows = sum_rows,
    .sum_rows_bf16 = sum_rows_bf16,
    .sum_rows_made = sum_rows_made,
    .pick = pick_vectors,
};
