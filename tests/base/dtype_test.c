/* Names and sizes of dtypes and ops, both ways. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/dtype.h"
#include "support/suite.h"

static void dtypes_have_names_and_sizes_both_ways(void **state)
{
    (void)state;
    static const char *const names[] = {"bool",   "u8",        "i8",        "u16",    "i16", "u32", "i32",
                                        "u64",    "i64",       "f16",       "bf16",   "f32", "f64", "f8e4m3",
                                        "f8e5m2", "f8e4m3sat", "f8e5m2sat", "f8e8m0", "c64", "c128"};
    static const size_t sizes[] = {1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1, 1, 1, 1, 1, 8, 16};
    for (int d = 1; d <= DTYPE_COUNT; d++) {
        assert_string_equal(weft_dtype_name(d), names[d - 1]);
        assert_int_equal(weft_dtype_size(d), sizes[d - 1]);
        assert_int_equal(dtype_parse(names[d - 1], strlen(names[d - 1])), d);
        assert_int_equal(dtype_is_float(d), strchr(names[d - 1], 'f') != NULL);
        assert_int_equal(dtype_is_complex(d), names[d - 1][0] == 'c');
        bool powers = strcmp(names[d - 1], "f8e8m0") == 0;
        assert_int_equal(dtype_is_signed(d),
                         !powers && (dtype_is_float(d) || dtype_is_complex(d) || names[d - 1][0] == 'i'));
        assert_true(weft_dtype_size(d) <= DTYPE_MAX_SIZE);
    }
    assert_int_equal(dtype_parse("f32x", 3), WEFT_F32);
    assert_int_equal(dtype_parse("f32x", 4), 0);
    assert_int_equal(dtype_parse("f3", 2), 0);
    assert_int_equal(dtype_parse("", 0), 0);
}

static void casts_exist_except_from_complex_to_real(void **state)
{
    (void)state;
    for (int from = 0; from <= DTYPE_COUNT + 1; from++)
        for (int to = 0; to <= DTYPE_COUNT + 1; to++) {
            bool exist = weft_dtype_name(from) && weft_dtype_name(to);
            bool complex[] = {from == WEFT_C64 || from == WEFT_C128, to == WEFT_C64 || to == WEFT_C128};
            assert_int_equal(dtype_castable(from, to), exist && (!complex[0] || complex[1]));
        }
}

static void ops_have_names_both_ways(void **state)
{
    (void)state;
    static const char *const names[] = {"sum", "prod", "min", "max", "avg", "band", "bor", "bxor"};
    for (int o = 1; o <= OP_COUNT; o++) {
        assert_string_equal(weft_op_name(o), names[o - 1]);
        assert_int_equal(dtype_parse_op(names[o - 1], strlen(names[o - 1])), o);
    }
    assert_int_equal(dtype_parse_op("summ", 4), 0);
    assert_int_equal(dtype_parse_op("", 0), 0);
}

static void unknown_dtypes_and_ops_have_no_name(void **state)
{
    (void)state;
    static const int none[] = {0, -1, DTYPE_COUNT + 1, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        assert_null(weft_dtype_name(none[i]));
        assert_int_equal(weft_dtype_size(none[i]), 0);
        assert_null(weft_op_name(none[i]));
        assert_false(dtype_is_float(none[i]) || dtype_is_signed(none[i]));
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtypes_have_names_and_sizes_both_ways),
        cmocka_unit_test(casts_exist_except_from_complex_to_real),
        cmocka_unit_test(ops_have_names_both_ways),
        cmocka_unit_test(unknown_dtypes_and_ops_have_no_name),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
