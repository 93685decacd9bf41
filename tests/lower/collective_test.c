/* Collectives by name are the pairs of layouts that the notation's table says they are. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "support/suite.h"
#include "weft.h"

static void assert_pair(weft_collective c, const char *src, const char *dst)
{
    weft_layout *a, *b, *x, *y;
    c.size = sizeof c;
    assert_int_equal(weft_collective_layouts(&c, &a, &b), 0);
    assert_int_equal(weft_layout_parse(src, &x), 0);
    assert_int_equal(weft_layout_parse(dst, &y), 0);
    assert_true(weft_layout_equal(a, x));
    assert_true(weft_layout_equal(b, y));
    weft_layout_free(a);
    weft_layout_free(b);
    weft_layout_free(x);
    weft_layout_free(y);
}

static void collectives_are_their_pairs_of_layouts(void **state)
{
    (void)state;
    const int group[] = {4, 2, 7}, to[] = {2, 7, 4}, two[] = {5};
    weft_collective c = {.dtype = WEFT_F32, .count = 10, .n = 4, .root = 1};
    c.kind = "broadcast";
    assert_pair(c, "f32[10] @x1=1", "f32[10] @x4");
    c.root = 9; /* outside the group */
    assert_pair(c, "f32[10] @x1=9", "f32[10] @x4");
    c.kind = "scatter";
    assert_pair(c, "f32[4,10] @x1=9", "f32[4/x,10] @x4");
    c.kind = "gather";
    assert_pair(c, "f32[4/x,10] @x4", "f32[4,10] @x1=9");
    c.kind = "reduce";
    c.op = WEFT_MAX;
    assert_pair(c, "f32[10] @x4 +max(x)", "f32[10] @x1=9");
    c.kind = "allreduce";
    c.op = 0;
    assert_pair(c, "f32[10] @x4 +sum(x)", "f32[10] @x4");
    c.kind = "reduce_scatter";
    assert_pair(c, "f32[4,10] @x4 +sum(x)", "f32[4/x,10] @x4");
    c.kind = "allgather";
    assert_pair(c, "f32[4/x,10] @x4", "f32[4,10] @x4");
    c.kind = "all_to_all";
    c.ranks = group;
    c.n = 3;
    assert_pair(c, "f32[3/x,3,10] @x3=4,2,7", "f32[3,3/x,10] @x3=4,2,7");
    c.kind = "permute";
    c.to = to;
    assert_pair(c, "f32[3/x,10] @x3=4,2,7", "f32[3/x,10] @x3=2,7,4");
    c.kind = "send";
    c.ranks = two;
    c.n = 1;
    c.root = 0;
    assert_pair(c, "f32[10] @x1=0", "f32[10] @x1=5");
}

static void wrong_collectives_are_refused(void **state)
{
    (void)state;
    static const struct {
        weft_collective c;
        const char *words;
    } cases[] = {
        {{.kind = "allreduces", .dtype = WEFT_F32, .n = 2}, "there is no 'allreduces': broadcast scatter "},
        {{.kind = "all_reduce", .dtype = WEFT_F32, .n = 2}, "there is no 'all_reduce': do you mean allreduce?"},
        {{.kind = "AllToAll", .dtype = WEFT_F32, .n = 2}, "there is no 'AllToAll': do you mean all_to_all?"},
        {{.kind = "reduce-scatter", .dtype = WEFT_F32, .n = 2}, "do you mean reduce_scatter?"},
        {{.kind = "__", .dtype = WEFT_F32, .n = 2}, "there is no '__': broadcast scatter "},
        {{.kind = NULL, .dtype = WEFT_F32, .n = 2}, "there is no ''"},
        {{.kind = "allreduce", .dtype = WEFT_F32, .n = 0}, "a group of 0 ranks"},
        {{.kind = "allreduce", .dtype = WEFT_F32, .n = 2, .op = WEFT_BAND}, "band does not fold f32"},
        {{.kind = "allreduce", .dtype = WEFT_C64, .n = 2, .op = WEFT_PROD}, "prod does not fold c64"},
        {{.kind = "reduce", .dtype = WEFT_F8E8M0, .n = 2, .op = WEFT_AVG}, "avg does not fold f8e8m0"},
        {{.kind = "allreduce", .n = 2}, "not a dtype"},
        {{.kind = "permute", .dtype = WEFT_F32, .n = 2}, "where each piece goes"},
        {{.kind = "allgather", .dtype = WEFT_F32, .n = 2, .count = -1}, "-1"},
        {{.kind = "broadcast", .dtype = WEFT_F32, .n = 2, .root = -3}, "-3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_collective c = cases[i].c;
        weft_plan *p = NULL;
        c.size = sizeof c;
        assert_int_equal(weft_lower_collective(&c, 0, NULL, &p), WEFT_EINVAL);
        assert_null(p);
        if (!strstr(weft_errmsg(), cases[i].words))
            fail_msg("expected '%s', got '%s'", cases[i].words, weft_errmsg());
    }
    weft_plan *p;
    assert_int_equal(weft_lower_collective(&(weft_collective){.size = 3}, 0, NULL, &p), WEFT_EINVAL);
}

static void casts_from_complex_to_real_are_refused(void **state)
{
    (void)state;
    static const char *const complexes[] = {"c64[8/x] @x2", "c128[8] @x2 +sum(x)"};
    static const char *const reals[] = {"f64[8] @x2", "bool[8/x] @x2", "f8e8m0[8] @x2"};
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 3; k++) {
            weft_layout *a = NULL, *b = NULL;
            weft_plan *p = NULL;
            assert_int_equal(weft_layout_parse(complexes[i], &a), 0);
            assert_int_equal(weft_layout_parse(reals[k], &b), 0);
            assert_int_equal(weft_lower(&(weft_move){"w", a, b}, 1, 0, NULL, &p), WEFT_EINVAL);
            assert_null(p);
            assert_non_null(strstr(weft_errmsg(), "tensor 0 'w': there is no cast from c"));
            weft_layout_free(b);
            b = NULL;
            assert_int_equal(weft_layout_parse(i ? "c64[8] @x2" : "c128[8] @x2", &b), 0);
            assert_int_equal(weft_lower(&(weft_move){"w", a, b}, 1, 0, NULL, &p), 0);
            weft_plan_free(p);
            weft_layout_free(a);
            weft_layout_free(b);
        }
}

static void plans_of_collectives_have_their_kind(void **state)
{
    (void)state;
    static const char *const kinds[] = {"broadcast", "scatter",        "gather",    "reduce",
                                        "allgather", "reduce_scatter", "allreduce", "all_to_all"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        weft_collective c = {.size = sizeof c, .kind = kinds[i], .dtype = WEFT_BF16, .count = 7, .n = 5, .root = 2};
        weft_plan *all[5];
        for (int r = 0; r < 5; r++)
            assert_int_equal(weft_lower_collective(&c, r, NULL, &all[r]), 0);
        weft_stats s = {.size = sizeof s};
        assert_int_equal(weft_plan_stats(all[0], &s), 0);
        assert_string_equal(s.kind, kinds[i]);
        assert_int_equal(weft_plan_verify((const weft_plan *const *)all, 5), 0);
        for (int r = 0; r < 5; r++)
            weft_plan_free(all[r]);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_are_their_pairs_of_layouts),
        cmocka_unit_test(wrong_collectives_are_refused),
        cmocka_unit_test(casts_from_complex_to_real_are_refused),
        cmocka_unit_test(plans_of_collectives_have_their_kind),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
