/* Casts of runs. If there is no loop from one dtype to the other, one of them is f16, bf16 or f8, or the target is
 * complex. Then the cast goes through a block of f32 that stays in the first-level cache, rounded to odd where f32
 * cannot hold the source (see half.h). On the way to c128 it goes through f64 instead, if the source has a loop to f64.
 */
#include "memory/cast.h"

#include <string.h>

#include "base/dtype.h"
#include "memory/kernels.h"
#include "memory/memory.h"

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
