/* Folds of runs that are looked up once give the same bits as memory_fold, in all dtypes, by all ops. */
#include <string.h>

#include "base/dtype.h"
#include "memory/memory.h"
#include "memory_levels.h"
#include "memory_ref.h"

enum { MOST = 300, ROOM = (MOST + 3) * 16 };

static uint64_t seed = 71;

static int upto(int n) /* 0 .. n - 1 */
{
    return (int)(ref_random(&seed) % (uint64_t)n);
}

/* Values of a dtype as other values become them, so that they are ordinary ones, infinities and NaNs among them. */
static void fill(unsigned char *to, int dtype, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double x = (double)(int64_t)ref_random(&seed) * (upto(8) ? 0x1p-61 : upto(2) ? 1 : 0x1p1000);
        if (!upto(50))
            x = upto(2) ? __builtin_nan("") : __builtin_inf();
        if (dtype == WEFT_C64 || dtype == WEFT_C128)
            memory_cast(to + i * weft_dtype_size(dtype), dtype, &x, WEFT_F64, 1);
        else
            memory_cast_one(to + i * weft_dtype_size(dtype), dtype, &x, WEFT_F64);
    }
}

static int of(const int *v, int n)
{
    return v[upto(n)];
}

/* True: it is a fold of runs. *narrow counts those that are rounded, or widened, on the way. */
static bool one_case(int dtype, int op, int *narrow)
{
    static unsigned char in[8][ROOM], got[ROOM], want[ROOM];
    const int acc = dtype_acc(dtype), any[] = {dtype, acc, WEFT_F32, WEFT_BF16}, vias[] = {0, 0, dtype, acc};
    const int to = of(any, 4), via = of(vias, 4), terms = 1 + upto(9), n = upto(3) ? 1 + upto(MOST) : 1 + upto(20);
    const int kinds = upto(4), shift = upto(3);
    const int64_t div = op == WEFT_AVG ? 1 + upto(9) : 1, to_size = (int64_t)weft_dtype_size(to);
    int64_t strides[8];
    struct memory_term term[9];
    const void *from[9];
    if (terms > 8)
        return false;
    for (int k = 0; k < terms; k++) {
        const int is = kinds == 0 || (kinds == 1 && !k) ? acc : dtype;
        strides[k] = (int64_t)weft_dtype_size(is);
        from[k] = in[k] + (size_t)shift * weft_dtype_size(is);
        fill(in[k], is, (size_t)(n + shift));
        term[k] = (struct memory_term){from[k], is, &strides[k]};
    }
    struct memory_tile t = {.loops = n > 1, .n = {n}, .stride = {{to_size}, {0}}};
    struct memory_runs runs;
    memset(got, 0, sizeof got);
    memset(want, 0, sizeof want);
    if (!memory_fold_runs(&t, to, via, acc, op, div, term, (size_t)terms, &runs))
        return false;
    memory_fold(&t, want, to, via, acc, op, div, term, (size_t)terms);
    memory_runs_fold(&runs, got, from, terms, (size_t)n);
    if (memcmp(got, want, sizeof got))
        fail_msg("%d terms of %s, the first %s, by %s in %s by %s to %s, %d elements, divided by %d", terms,
                 weft_dtype_name(dtype), weft_dtype_name(term[0].dtype), weft_op_name(op), weft_dtype_name(acc),
                 via ? weft_dtype_name(via) : "nothing", weft_dtype_name(to), n, (int)div);
    *narrow += !runs.loop;
    return true;
}

static void runs_are_folded_as_all_others(void **state)
{
    (void)state;
    int found[DTYPE_COUNT + 1] = {0}, narrow[DTYPE_COUNT + 1] = {0};
    for (int dtype = 1; dtype <= DTYPE_COUNT; dtype++)
        for (int op = 1; op <= OP_COUNT; op++)
            for (int i = 0; i < 200 && dtype_foldable(op, dtype); i++)
                found[dtype] += one_case(dtype, op, &narrow[dtype]);
    for (int dtype = 1; dtype <= DTYPE_COUNT; dtype++)
        if (dtype != WEFT_BOOL && !found[dtype])
            fail_msg("no fold of %s was one of runs", weft_dtype_name(dtype));
    static const int rounded[] = {WEFT_BF16, WEFT_F16, WEFT_F32};
    for (int i = 0; i < 3; i++) /* sse2 has no such loops */
        if (ops_find_narrow(WEFT_SUM, rounded[i]) && !narrow[rounded[i]])
            fail_msg("no fold of %s was one of runs that are rounded", weft_dtype_name(rounded[i]));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(runs_are_folded_as_all_others)};
    return SUITE_MAIN(argc, argv, SUITE_AT(&memory_levels, tests));
}
