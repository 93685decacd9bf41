/* The loops that do the work, in one table for each level of the processor. The same sources are compiled once for each
 * level (kernels_body.h, with the instructions of that level) and give the same bits at every level. `plain` is scalar
 * C; the others are tested against it. The level is chosen when a table is first asked for. */
#ifndef WEFT_MEMORY_KERNELS_H
#define WEFT_MEMORY_KERNELS_H
#include "base/dtype.h"
#include "memory/cast.h"
#include "memory/copy.h"
#include "memory/ops.h"
#include "memory/pick.h"
#include "memory/sum.h"

#define KERNELS_PLAIN 0  /* scalar C */
#define KERNELS_BASE 1   /* what every processor of the architecture has: NEON, or SSE2 */
#define KERNELS_BF16 2   /* AArch64 with instructions for bf16 */
#define KERNELS_AVX2 2   /* x86-64 with AVX2 and F16C */
#define KERNELS_AVX512 3 /* and AVX-512 F, BW, DQ, VL */

struct kernels {
    const char *name;
    ops_loop *ops[OP_COUNT + 1][DTYPE_COUNT + 1];
    ops_narrow_loop *narrow[OP_COUNT + 1][DTYPE_COUNT + 1];
    ops_divide_loop *divide[DTYPE_COUNT + 1];
    ops_divide_loop *scale[DTYPE_COUNT + 1];           /* by powers of two */
    cast_loop *cast[DTYPE_COUNT + 1][DTYPE_COUNT + 1]; /* by source and target; NULL: in two steps through f32 */
    bool short_rows;                 /* the loops of cast[] are fast with rows that are shorter than a vector, too */
    cast_loop *odd[DTYPE_COUNT + 1]; /* to f32, rounded to odd, where f32 does not hold the source */
    cast_loop
        *beside_bf16; /* from f32, for rows of whole CAST_PIECEs with gaps between them; NULL: cast[] is as good */
    sum_loop *sum;
    sum_rows_loop *sum_rows, *sum_rows_bf16, *sum_rows_made; /* the latter two from f32 to bf16; made: bf16 is summed */
    pick_loop *pick;                                         /* NULL: there is no instruction for it; see pick_here */
};

extern const struct kernels kernels_plain, kernels_base;
#if defined(__aarch64__)
extern const struct kernels kernels_bf16;
#elif defined(__x86_64__)
extern const struct kernels kernels_avx2, kernels_avx512;
#endif

const struct kernels *memory_level_kernels(void); /* the table in use; any thread */
#endif
