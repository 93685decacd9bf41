#include "base/dtype.h"

#include <string.h>

enum kind { INTEGER, FLOAT, COMPLEX };

static const struct {
    char name[10];
    unsigned char size;
    bool is_signed;
    enum kind kind;
} dtypes[DTYPE_COUNT + 1] = {
    [WEFT_BOOL] = {"bool", 1, false, INTEGER},
    [WEFT_U8] = {"u8", 1, false, INTEGER},
    [WEFT_I8] = {"i8", 1, true, INTEGER},
    [WEFT_U16] = {"u16", 2, false, INTEGER},
    [WEFT_I16] = {"i16", 2, true, INTEGER},
    [WEFT_U32] = {"u32", 4, false, INTEGER},
    [WEFT_I32] = {"i32", 4, true, INTEGER},
    [WEFT_U64] = {"u64", 8, false, INTEGER},
    [WEFT_I64] = {"i64", 8, true, INTEGER},
    [WEFT_F16] = {"f16", 2, true, FLOAT},
    [WEFT_BF16] = {"bf16", 2, true, FLOAT},
    [WEFT_F32] = {"f32", 4, true, FLOAT},
    [WEFT_F64] = {"f64", 8, true, FLOAT},
    [WEFT_F8E4M3] = {"f8e4m3", 1, true, FLOAT},
    [WEFT_F8E5M2] = {"f8e5m2", 1, true, FLOAT},
    [WEFT_F8E4M3SAT] = {"f8e4m3sat", 1, true, FLOAT},
    [WEFT_F8E5M2SAT] = {"f8e5m2sat", 1, true, FLOAT},
    [WEFT_F8E8M0] = {"f8e8m0", 1, false, FLOAT},
    [WEFT_C64] = {"c64", 8, true, COMPLEX},
    [WEFT_C128] = {"c128", 16, true, COMPLEX},
};

static const char ops[OP_COUNT + 1][5] = {
    [WEFT_SUM] = "sum", [WEFT_PROD] = "prod", [WEFT_MIN] = "min", [WEFT_MAX] = "max",
    [WEFT_AVG] = "avg", [WEFT_BAND] = "band", [WEFT_BOR] = "bor", [WEFT_BXOR] = "bxor",
};

static bool dtype_exists(int dtype)
{
    return dtype >= 1 && dtype <= DTYPE_COUNT;
}

const char *weft_dtype_name(int dtype)
{
    return dtype_exists(dtype) ? dtypes[dtype].name : NULL;
}

size_t weft_dtype_size(int dtype)
{
    return dtype_exists(dtype) ? dtypes[dtype].size : 0;
}

const char *weft_op_name(int op)
{
    return op >= 1 && op <= OP_COUNT ? ops[op] : NULL;
}

bool dtype_is_float(int dtype)
{
    return dtype_exists(dtype) && dtypes[dtype].kind == FLOAT;
}

bool dtype_is_complex(int dtype)
{
    return dtype_exists(dtype) && dtypes[dtype].kind == COMPLEX;
}

bool dtype_is_signed(int dtype)
{
    return dtype_exists(dtype) && dtypes[dtype].is_signed;
}

static bool same(const char *name, const char *text, size_t len)
{
    return strlen(name) == len && memcmp(name, text, len) == 0;
}

int dtype_parse(const char *text, size_t len)
{
    for (int d = 1; d <= DTYPE_COUNT; d++)
        if (same(dtypes[d].name, text, len))
            return d;
    return 0;
}

int dtype_parse_op(const char *text, size_t len)
{
    for (int o = 1; o <= OP_COUNT; o++)
        if (same(ops[o], text, len))
            return o;
    return 0;
}

bool dtype_foldable(int op, int dtype)
{
    if (!dtype_exists(dtype) || !weft_op_name(op))
        return false;
    bool bits = op == WEFT_BAND || op == WEFT_BOR || op == WEFT_BXOR, ends = op == WEFT_MIN || op == WEFT_MAX;
    switch (dtype) {
    case WEFT_BOOL: return bits || ends;
    case WEFT_F8E8M0: return ends || op == WEFT_PROD;
    case WEFT_C64:
    case WEFT_C128: return op == WEFT_SUM || op == WEFT_AVG;
    default: return !(bits && dtypes[dtype].kind == FLOAT);
    }
}

const char *dtype_folds(int dtype)
{
    switch (dtype) {
    case WEFT_BOOL: return "min, max, band, bor and bxor do";
    case WEFT_F8E8M0: return "it has no zero; prod, min and max do";
    case WEFT_C64:
    case WEFT_C128: return "sum and avg do";
    default: return "bit ops take integers and bool";
    }
}

bool dtype_castable(int from, int to)
{
    return dtype_exists(from) && dtype_exists(to) && (!dtype_is_complex(from) || dtype_is_complex(to));
}

bool dtype_scalable(int value, int scale)
{
    bool f8 = value == WEFT_F8E4M3 || value == WEFT_F8E4M3SAT || value == WEFT_F8E5M2 || value == WEFT_F8E5M2SAT;
    return f8 && (scale == WEFT_F32 || scale == WEFT_F8E8M0);
}

bool dtype_unscaled(int dtype)
{
    return dtype == WEFT_F32 || dtype == WEFT_BF16 || dtype == WEFT_F16;
}

int dtype_acc(int dtype)
{
    return dtype_is_float(dtype) && dtypes[dtype].size < 4 ? WEFT_F32 : dtype;
}
