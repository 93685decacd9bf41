/* Folds by op and dtype: finding loops, dividing, identities. */
#include "memory/ops.h"

#include <math.h>

#include "base/dtype.h"
#include "memory/cast.h"
#include "memory/kernels.h"
#include "memory/memory.h"

ops_loop *ops_find(int op, int acc)
{
    return op >= 1 && op <= OP_COUNT && acc >= 1 && acc <= DTYPE_COUNT ? memory_level_kernels()->ops[op][acc] : NULL;
}

ops_narrow_loop *ops_find_narrow(int op, int dtype)
{
    return memory_level_kernels()->narrow[op][dtype];
}

void memory_ops_fold_one(void *acc_value, const void *term_value, int acc, int op)
{
    _Alignas(DTYPE_MAX_SIZE) unsigned char a[DTYPE_MAX_SIZE], b[DTYPE_MAX_SIZE];
    const void *in[2] = {a, b};
    cast_run(a, acc, acc_value, acc, 1);
    cast_run(b, acc, term_value, acc, 1);
    ops_find(op, acc)(acc_value, in, 2, 1);
}

void ops_divide(void *dst, const void *src, int dtype, int64_t div, size_t n)
{
    const struct kernels *k = memory_level_kernels();
    ops_divide_loop *loop = (div & (div - 1)) == 0 && k->scale[dtype] ? k->scale[dtype] : k->divide[dtype];
    loop(dst, src, div, n);
}

void ops_identity(void *value, int dtype, int op)
{
    static const int64_t zero = 0, one = 1, ones = -1;
    bool power = dtype == WEFT_F8E8M0; /* this and f8e4m3 have no infinity */
    const double up = power ? 0x1p127 : dtype == WEFT_F8E4M3 ? 448 : INFINITY;
    const double down = power || dtype == WEFT_BOOL ? 0 : -up;
    switch (op) {
    case WEFT_PROD: cast_run(value, dtype, &one, WEFT_I64, 1); break;
    case WEFT_MIN: cast_run(value, dtype, &up, WEFT_F64, 1); break;
    case WEFT_MAX: cast_run(value, dtype, &down, WEFT_F64, 1); break;
    case WEFT_BAND: cast_run(value, dtype, &ones, WEFT_I64, 1); break;
    default: cast_run(value, dtype, &zero, WEFT_I64, 1); break;
    }
}
