/* Layouts of values with scales, without data: which layout their scales have, what is refused, how many bytes cross.
 */
#include <string.h>

#include "support/suite.h"
#include "weft.h"

#define OK(call)                                \
    do {                                        \
        if ((call)) {                           \
            print_error("%s\n", weft_errmsg()); \
            assert_false(#call);                \
        }                                       \
    } while (0)

static void assert_scales(const char *text, const char *expected)
{
    weft_layout *l, *s;
    char found[400];
    OK(weft_layout_parse(text, &l));
    OK(weft_layout_scales(l, &s));
    OK(weft_layout_format(s, found, sizeof found, NULL));
    assert_string_equal(found, expected);
    weft_layout_free(l);
    weft_layout_free(s);
}

static void scales_have_a_layout(void **state)
{
    (void)state;
    assert_scales("f8e4m3[512/x,384] @x4 *f32(128,128)", "f32[4/x,3] @x4");
    assert_scales("f8e4m3[512,384/x] @x4 *f32(128,128)", "f32[4,3] @{0: [:,0:1]; 1: [:,0:2]; 2: [:,1:3]; 3: [:,2:3]} "
                                                         "+overlaps");
    assert_scales("f8e4m3[8,512/x,384] @x4.r2 *f32(128,128)", "f32[8,4/x,3] @x4.r2");
    assert_scales("f8e4m3[4096/x,100] @x4 *f8e8m0(32)", "f8e8m0[4096/x,4] @x4");
    assert_scales("f8e4m3[600/a/b] @a2.b2 *f32(150)", "f32[4/a/b] @a2.b2");
    assert_scales("f8e4m3[600/a/b] @a2.b2 *f32(300)", "f32[2] @{0: [0:1]; 1: [0:1]; 2: [1:2]; 3: [1:2]} +overlaps");
    assert_scales("f8e4m3[1000/x:256] @x2 *f32(128)", "f32[8/x:2] @x2");
    assert_scales("f8e5m2[7/x] @x4 *f32(1)", "f32[7/x] @x4");
    assert_scales("f8e4m3[0/x] @x4 *f32(8)", "f32[0/x] @x4");
    assert_scales("f8e4m3[4,4] @{0: [0:3,:]; 2: [3:4,:]} *f32(2,4)", "f32[2,1] @{0: [:,:]; 2: [1:2,:]} +overlaps");
}

static void assert_refused(const char *src, const char *dst, const char *why)
{
    weft_layout *a = NULL, *b = NULL;
    weft_plan *p = NULL;
    int rc = weft_layout_parse(src, &a);
    if (!rc && dst)
        rc = weft_layout_parse(dst, &b);
    if (!rc && dst)
        rc = weft_lower(&(weft_move){"w", a, b}, 1, 0, NULL, &p);
    if (!rc || !strstr(weft_errmsg(), why))
        fail_msg("'%s' '%s': %s", src, dst ? dst : "", rc ? weft_errmsg() : "taken");
    weft_layout_free(a);
    weft_layout_free(b);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    assert_refused("f32[8] @x2 *f32(4)", NULL, "f32 values cannot have scales");
    assert_refused("f8e4m3[8] @x2 *bf16(4)", NULL, "scales of bf16");
    assert_refused("f8e4m3[8] @x2 *f33(4)", NULL, "is not a dtype of scales");
    assert_refused("f8e4m3[8] @x2 *f32", NULL, "'(' and the blocks");
    assert_refused("f8e4m3[8] @x2 *f32(", NULL, "the extent of a block");
    assert_refused("f8e4m3[8] @x2 *f32(4", NULL, "',' or ')'");
    assert_refused("f8e4m3[8] @x2 *f32(0)", NULL, "extent 0");
    assert_refused("f8e4m3[8] @x2 *f32(4,4)", NULL, "more blocks than the 1 dims");
    assert_refused("f8e4m3[8] @x2 *f32(4) *f32(4)", NULL, "the end");
    assert_refused("f8e4m3[] @x2 *f32(4)", NULL, "more blocks than the 0 dims");
    assert_refused("f8e4m3[1,1,1,1,1,1,1,1] @x2 *f32(4)", NULL, "1 to 7 dims");
    assert_refused("f8e4m3[8/x~1] @x2 *f32(4)", NULL, "ghosts");
    assert_refused("f8e4m3[8] @x2 +sum(x) *f32(4)", NULL, "cannot be folded");
    assert_refused("f32[8] @x2 +sum(x)", "f8e4m3[8] @x2 *f32(4)", "has folds");
    assert_refused("f32[8/x~1] @x2", "f8e4m3[8] @x2 *f32(4)", "has ghosts");
    assert_refused("f8e4m3[8] @x2 *f32(4)", "bf16[8/x~1] @x2", "the destination has ghosts");
    assert_refused("f64[8] @x2", "f8e4m3[8] @x2 *f32(4)", "is f64 on the other");
    assert_refused("f8e4m3[8] @x2", "f8e4m3[8] @x2 *f32(4)", "is f8e4m3 on the other");
    assert_refused("f8e4m3[8] @x2 *f32(4)", "f8e4m3[8] @x2 *f32(8)", "other scales");
    assert_refused("f8e4m3[8] @x2 *f32(4)", "f8e5m2[8] @x2 *f32(4)", "another dtype");
    assert_refused("f32[8] @{0: [0:4]} +gaps", "f8e4m3[8] @x2 *f32(4)", "boxes +gaps");
    assert_refused("f32[9] @x2", "f8e4m3[8] @x2 *f32(4)", "two different shapes");
    assert_refused("f32[1000000000000/x:3] @x2", "f8e4m3[1000000000000] @x2 *f32(128)", "more than 2^22 boxes");
    weft_layout *l, *m;
    OK(weft_layout_parse("f8e4m3[8] @x2 *f32(4)", &l));
    assert_int_equal(weft_layout_dual(l, &m), WEFT_EUNSUPPORTED);
    assert_int_equal(weft_layout_boxed(l, &m), WEFT_EUNSUPPORTED);
    weft_layout_free(l);
    OK(weft_layout_parse("f8e4m3[8] @x2", &l));
    assert_int_equal(weft_layout_scales(l, &m), WEFT_EINVAL);
    weft_layout_free(l);
}

static int64_t sent_by_all(const char *src, const char *dst, int ranks)
{
    weft_layout *a, *b;
    int64_t sent = 0;
    OK(weft_layout_parse(src, &a));
    OK(weft_layout_parse(dst, &b));
    for (int r = 0; r < ranks; r++) {
        weft_plan *p;
        weft_stats s = WEFT_STATS_INIT;
        OK(weft_lower(&(weft_move){"w", a, b}, 1, r, NULL, &p));
        OK(weft_plan_stats(p, &s));
        sent += s.sent;
        weft_plan_free(p);
    }
    weft_layout_free(a);
    weft_layout_free(b);
    return sent;
}

static void bytes_are_those_of_f8(void **state)
{
    (void)state;
    /* 3/4 of one byte each, and of 4 bytes for each block */
    assert_int_equal(sent_by_all("f32[512/x,512] @x4", "f8e4m3[512,512/x] @x4 *f32(128,128)", 4),
                     512 * 512 * 3 / 4 + 16 * 4 * 3 / 4);
    assert_int_equal(sent_by_all("f8e4m3[512/x,512] @x4 *f32(128,128)", "bf16[512,512/x] @x4", 4),
                     512 * 512 * 3 / 4 + 16 * 4 * 3 / 4);
    assert_int_equal(sent_by_all("bf16[512/x,512] @x4", "f8e4m3[512,512/x] @x4 *f8e8m0(32)", 4),
                     512 * 512 * 3 / 4 + 512 * 16 * 3 / 4);
    /* Two ranks share the 3 blocks of a row, and tell each other their maxima: nothing else moves. */
    assert_int_equal(sent_by_all("f32[128/x,384] @x2", "f8e4m3[128/x,384] @x2 *f32(128,128)", 2), 2 * 3 * 4);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scales_have_a_layout),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(bytes_are_those_of_f8),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
