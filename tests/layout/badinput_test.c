/* Wrong layouts: every text and every struct with the very message it gets. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "support/suite.h"
#include "weft.h"

#define DTYPES "bool u8 i8 u16 i16 u32 i32 u64 i64 f16 bf16 f32 f64 f8e4m3 f8e5m2 f8e4m3sat f8e5m2sat f8e8m0 c64 c128"
#define OPS "sum prod min max avg band bor bxor"
#define AFTER_EXTENT "'/' and an axis, '~' and ghosts, ',' or ']'"
#define AFTER_MESH "'.' and an axis, '=' and ranks, '+' and an op, '*' and scales, or the end"

static void assert_refused(const char *text, const char *message)
{
    weft_layout *l = NULL;
    int rc = weft_layout_parse(text, &l);
    assert_int_equal(rc, WEFT_EINVAL);
    assert_null(l); /* outputs are set on success only */
    assert_string_equal(weft_errmsg(), message);
}

static void wrong_texts_get_their_message_and_caret(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
        int caret; /* below this character of the text */
    } cases[] = {
        {"", "expected a dtype, and the text ends", 0},
        {"   ", "expected a dtype, and the text ends", 3},
        {"f32", "expected '[', and the text ends", 3},
        {"F32[8] @x2", "'F32' is not a dtype: " DTYPES, 0},
        {"float32[8] @x2", "'float32' is not a dtype: " DTYPES, 0},
        {"[8] @x2", "expected a dtype, not '['", 0},
        {"f32 8 @x2", "expected '[', not '8'", 4},
        {"f32[8", "expected " AFTER_EXTENT ", and the text ends", 5},
        {"f32[8]", "expected '@' and a mesh, and the text ends", 6},
        {"f32[8] x2", "expected '@' and a mesh, not 'x'", 7},
        {"f32[8~1,8~1]+x2", "expected '@' and a mesh, not 'x'", 13},
        {"f32[8~1,8~1]++@x2", "expected '@' and a mesh, not '+'", 13},
        {"f32[8,] @x2", "expected an extent, not ']'", 6},
        {"f32[,8] @x2", "expected an extent, not ','", 4},
        {"f32[8x] @x2", "expected " AFTER_EXTENT ", not 'x'", 5},
        {"f32[n/x] @x2", "expected an extent, not 'n'", 4},
        {"f32[-8/x] @x2", "expected an extent, not '-'", 4},
        {"f32[8.5] @x2", "expected " AFTER_EXTENT ", not '.'", 5},
        {"f32[1e6] @x2", "expected " AFTER_EXTENT ", not 'e'", 5},
        {"f32[9223372036854775808] @x2", "the number is too large: at most 2^63 - 1", 4},
        {"f32[1152921504606846977] @x2", "the tensor with its ghosts has more than 2^62 bytes", 4},
        {"f32[65536,65536,65536,65536] @x2", "the tensor with its ghosts has more than 2^62 bytes", 22},
        {"f32[1,2,3,4,5,6,7,8,9] @x2", "a tensor has at most 8 dims", 20},
        {"f32[8/] @x2", "expected the name of an axis, not ']'", 6},
        {"f32[8/2] @x2", "expected the name of an axis, not '2'", 6},
        {"f32[8/y] @x2", "axis 'y' is not in the mesh", 6},
        {"f32[8/x/x] @x2", "axis 'x' is used in two places", 8},
        {"f32[8/x,8/x] @x2", "axis 'x' is used in two places", 10},
        {"f32[8/x] @x2 +sum(x)", "axis 'x' is used in two places", 18},
        {"f32[8] @x2 +sum(x) +sum(x)", "axis 'x' is used in two places", 24},
        {"f32[8/x:] @x2", "expected the size of a block, not ']'", 8},
        {"f32[8/x:0] @x2", "a block has size 0: it must be at least 1", 8},
        {"f32[8/x:y] @x2", "expected the size of a block, not 'y'", 8},
        {"f32[8/x~] @x2", "expected the number of ghosts, not ']'", 8},
        {"f32[8/x~-1] @x2", "expected the number of ghosts, not '-'", 8},
        {"f32[8/x~1:] @x2", "expected the number of ghosts behind the piece, not ']'", 10},
        {"f32[8/x~1p] @x2", "expected ',' or ']', not 'p'", 9},
        {"f32[8/x~o] @x2", "expected the number of ghosts, not 'o'", 8},
        {"f32[8/x:2~1] @x2", "dim 0: ghosts need contiguous pieces, and ':2' deals blocks", 9},
        {"f32[8~1/x] @x2", "splits come before ghosts, as in 8/x~1", 7},
        {"f32[3~4000o] @x2", "dim 0: ghosts wrap round an extent of 3 more than 1024 times", 5},
        {"f32[8/x] @", "expected the name of an axis, and the text ends", 10},
        {"f32[8/x] @2", "expected the name of an axis, not '2'", 10},
        {"f32[8/x] @x", "expected the size of the axis, and the text ends", 11},
        {"f32[8/x] @x0", "axis 'x' has size 0: it must be at least 1", 10},
        {"f32[8/x] @x-2", "expected the size of the axis, not '-'", 11},
        {"f32[8/x] @x2x2", "expected " AFTER_MESH ", not 'x'", 12},
        {"f32[8/x] @x2.x2", "axis 'x' is twice in the mesh", 13},
        {"f32[8/x] @x2.", "expected the name of an axis, and the text ends", 13},
        {"f32[8/x] @x2,y2", "expected " AFTER_MESH ", not ','", 12},
        {"f32[8] @a1.b1.c1.d1.e1.f1.g1.h1.i1", "a mesh has at most 8 axes", 32},
        {"f32[8] @x65536.y65536", "the mesh has more than 2147483647 ranks", 15},
        {"f32[8/x] @x2=", "expected a rank, and the text ends", 13},
        {"f32[8/x] @x2=0", "the mesh has 2 ranks and the list has 1", 13},
        {"f32[8/x] @x2=0,1,2", "the mesh has 2 ranks and the list has 3", 13},
        {"f32[8/x] @x2=0,0", "rank 0 is listed twice", 15},
        {"f32[8/x] @x4=0..2,1", "rank 1 is listed twice", 18},
        {"f32[8/x] @x2=1..0", "the range 1..0 runs backwards: list the ranks one by one", 13},
        {"f32[8/x] @x2=-1,0", "expected a rank, not '-'", 13},
        {"f32[8/x] @x2=0,,1", "expected a rank, not ','", 15},
        {"f32[8/x] @x2=0...1", "expected the last rank of the range, not '.'", 16},
        {"f32[8/x] @x2=a,b", "expected a rank, not 'a'", 13},
        {"f32[8/x] @x1=2147483647", "a rank is at most 2147483646", 13},
        {"f32[8/x] @x1=9999999999", "a rank is at most 2147483646", 13},
        {"f32[8/x] @x2 sum(x)", "expected " AFTER_MESH ", not 's'", 13},
        {"f32[8] @x2 +", "expected an op, and the text ends", 12},
        {"f32[8] @x2 +total(x)", "'total' is not an op: " OPS, 12},
        {"f32[8] @x2 +SUM(x)", "'SUM' is not an op: " OPS, 12},
        {"f32[8] @x2 +sum", "expected '(' and the axes to fold over, and the text ends", 15},
        {"f32[8] @x2 +sum()", "expected the name of an axis or '~', not ')'", 16},
        {"f32[8] @x2 +sum(y)", "axis 'y' is not in the mesh", 16},
        {"f32[8] @x2 +sum(x", "expected ',' or ')', and the text ends", 17},
        {"f32[8] @x2 +sum(x) @y2", "expected '+' and an op, or the end, not '@'", 19},
        {"f32[8] @x2 +sum(~)", "'~' folds over ghosts, but no dim has ghosts", 16},
        {"f32[8~1] @x2 +sum(~,~)", "'~' is used in two places", 20},
        {"f32[8~1] @x2 +sum(~) +max(~)", "'~' is used in two places", 26},
        {"f32[8] @x2 +band(x)", "band does not fold f32: bit ops take integers and bool", 12},
        {"bool[8] @x2 +sum(x)", "sum does not fold bool: min, max, band, bor and bxor do", 13},
        {"c64[8] @x2 +max(x)", "max does not fold c64: sum and avg do", 12},
        {"c128[8] @x2 +prod(x)", "prod does not fold c128: sum and avg do", 13},
        {"f8e8m0[8] @x2 +sum(x)", "sum does not fold f8e8m0: it has no zero; prod, min and max do", 15},
        {"f32[8/abcdefghijklmnopqrstuvwxyzabcdef] @x2", "an axis name has at most 31 characters", 6},
        {"f32[8/x] @abcdefghijklmnopqrstuvwxyzabcdef2", "an axis name has at most 31 characters", 10},
        {"f32[8/x1] @x1 2", "in an axis name, digits must follow a '_'", 7},
        {"f32[8/_x] @_x2", "expected the name of an axis, not '_'", 6},
        {"f32[8/x_1] @x_12", "axis 'x_12' has no size: digits after a '_' belong to the name, write 'x_1 4'", 16},
        {"f32[8/x] @x2;", "expected " AFTER_MESH ", not ';'", 12},
        {"f32(8/x) @x2", "expected '[', not '('", 3},
        {"f32[8/a] @a4 -> f32[8] @a4", "expected " AFTER_MESH ", not '-'", 13},
        {"f32[8/x] @x2.y2=0..3 +sum(y) +max(y)", "axis 'y' is used in two places", 34},
        {"f8[8] @x2", "'f8' is not a dtype: " DTYPES, 0},
        {"f32[8/x/x/x/x/x/x/x/x/x] @x2", "a dim has at most 8 splits", 21},
        {"f32[8/a/b/c/d/e/f/g/h,8/a/b/c/d/e/f/g/h,8/a/b/c/d/e/f/g/h,8/a] @x2",
         "more axes are used than a mesh can have (8)", 60},
        {"f32[8] @x2 +sum(a,b,c,d,e,f,g,h,i,j)", "more axes are used than a mesh can have (8)", 34},
        {"f32[8] @x2 +sum(x)+sum(x)+sum(x)+sum(x)+sum(x)+sum(x)+sum(x)+sum(x)+sum(x)+sum(x)",
         "a layout has at most 9 folds", 74},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char message[600];
        snprintf(message, sizeof message, "layout: %s\n  %s\n  %*s^", cases[i].words, cases[i].text, cases[i].caret,
                 "");
        assert_refused(cases[i].text, message);
    }
}

/* A byte is a column, whatever it is, so that the caret stands right. */
static void odd_bytes_keep_the_caret_in_place(void **state)
{
    (void)state;
    assert_refused("f32[8\xc3\x97"
                   "8] @x2",
                   "layout: expected " AFTER_EXTENT ", not byte 0xc3\n"
                   "  f32[8??8] @x2\n"
                   "       ^");
    assert_refused("f32[8\t/y]\n@x2", "layout: axis 'y' is not in the mesh\n"
                                      "  f32[8 /y] @x2\n"
                                      "         ^");
    assert_refused("f32[8\x7f] @x2", "layout: expected " AFTER_EXTENT ", not byte 0x7f\n"
                                     "  f32[8?] @x2\n"
                                     "       ^");
    assert_refused("f32[8\v] @x2", "layout: expected " AFTER_EXTENT ", not byte 0x0b\n"
                                   "  f32[8 ] @x2\n"
                                   "       ^");
}

/* Of a long text the part around the caret is shown; a long word is cut. */
static void long_texts_are_cut(void **state)
{
    (void)state;
    char text[2000] = "f32[8/x] @x300=0", *at = text + strlen(text);
    for (int r = 1; r < 300; r++)
        at += sprintf(at, ",%d", r == 200 ? 7 : r);
    assert_refused(text,
                   "layout: rank 7 is listed twice\n"
                   "  ...185,186,187,188,189,190,191,192,193,194,195,196,197,198,199,7,201,202,203,204,205,206,207,"
                   "208,209,210,211,212,213,214,21...\n"
                   "                                                                 ^");
    memset(text, 'a', 1000);
    strcpy(text + 1000, "[8] @x2");
    char message[600];
    snprintf(message, sizeof message, "layout: '%.40s...' is not a dtype: " DTYPES "\n  %.120s...\n  ^", text, text);
    assert_refused(text, message);
}

/* ---- structs ---- */

/* A right description, of which each case spoils one thing. */
struct form {
    weft_layout_desc desc;
    weft_dim dims[9];
    weft_axis axes[9];
    weft_fold folds[10];
    int ranks[4];
};

static void right(struct form *f)
{
    *f = (struct form){
        .dims = {{.extent = 8, .splits = {{"x", 0}}, .nsplits = 1, .lo = 1, .hi = 1}, {.extent = 4}},
        .axes = {{"x", 2}, {"y", 2}},
        .folds = {{.op = WEFT_SUM, .over = {"y"}, .nover = 1}},
        .ranks = {0, 1, 2, 3},
    };
    f->desc = (weft_layout_desc){.size = sizeof f->desc,
                                 .dtype = WEFT_F32,
                                 .dims = f->dims,
                                 .ndim = 2,
                                 .axes = f->axes,
                                 .naxes = 2,
                                 .ranks = f->ranks,
                                 .folds = f->folds,
                                 .nfolds = 1};
}

/* One spoiled thing each: SPOIL(what is done to f, the message). */
#define CASES                                                                                                     \
    SPOIL(f.desc.dtype = 0, "dtype is 0, which is not a dtype")                                                   \
    SPOIL(f.desc.dtype = 21, "dtype is 21, which is not a dtype")                                                 \
    SPOIL(f.desc.dims = NULL, "desc.dims is NULL, but its count is not 0")                                        \
    SPOIL(f.desc.axes = NULL, "desc.axes is NULL, but its count is not 0")                                        \
    SPOIL(f.desc.folds = NULL, "desc.folds is NULL, but its count is not 0")                                      \
    SPOIL(f.desc.ndim = -1, "a tensor has 0 to 8 dims, not -1")                                                   \
    SPOIL(f.desc.ndim = 9, "a tensor has 0 to 8 dims, not 9")                                                     \
    SPOIL(f.desc.naxes = 0, "a mesh has 1 to 8 axes, not 0")                                                      \
    SPOIL(f.desc.naxes = -1, "a mesh has 1 to 8 axes, not -1")                                                    \
    SPOIL(f.desc.naxes = 9, "a mesh has 1 to 8 axes, not 9")                                                      \
    SPOIL(f.desc.nfolds = -1, "a layout has 0 to 9 folds, not -1")                                                \
    SPOIL(f.desc.nfolds = 10, "a layout has 0 to 9 folds, not 10")                                                \
    SPOIL(f.axes[1].name = NULL, "axes[1].name is NULL")                                                          \
    SPOIL(f.axes[1].name = "", "'' is not an axis name: a letter, then letters, '_', and digits after a '_'")     \
    SPOIL(f.axes[1].name = "y2", "'y2' is not an axis name: a letter, then letters, '_', and digits after a '_'") \
    SPOIL(f.axes[1].name = "~", "'~' is not an axis name: a letter, then letters, '_', and digits after a '_'")   \
    SPOIL(f.axes[1].name = "abcdefghijklmnopqrstuvwxyzabcdef", "an axis name has at most 31 characters")          \
    SPOIL(f.axes[1].name = "x", "axis 'x' is twice in the mesh")                                                  \
    SPOIL(f.axes[1].size = 0, "axis 'y' has size 0: it must be at least 1")                                       \
    SPOIL(f.axes[1].size = -2, "axis 'y' has size -2: it must be at least 1")                                     \
    SPOIL(f.axes[1].size = INT64_MAX, "the mesh has more than 2147483647 ranks")                                  \
    SPOIL(f.dims[1].extent = -4, "dim 1 has extent -4: it must be at least 0")                                    \
    SPOIL(f.dims[1].extent = INT64_MAX, "the tensor with its ghosts has more than 2^62 bytes")                    \
    SPOIL(f.dims[1].nsplits = -1, "dim 1 has -1 splits: 0 to 8 are possible")                                     \
    SPOIL(f.dims[1].nsplits = 9, "dim 1 has 9 splits: 0 to 8 are possible")                                       \
    SPOIL(f.dims[1].nsplits = 1, "dims[1].splits[0].axis is NULL")                                                \
    SPOIL(f.dims[0].splits[0].axis = "z", "axis 'z' is not in the mesh")                                          \
    SPOIL(f.dims[0].splits[0].axis = "y", "axis 'y' is used in two places")                                       \
    SPOIL(f.dims[0].splits[0].block = -1, "dim 0: a block has size -1: it must be at least 1")                    \
    SPOIL(f.dims[0].splits[0].block = 3, "dim 0: ghosts need contiguous pieces, and ':3' deals blocks")           \
    SPOIL(f.desc.flags = 6, "flags has 0x6, which is not a flag")                                                 \
    SPOIL(f.dims[0].lo = -1, "dim 0: ghosts are -1 and 1 wide: widths must be at least 0")                        \
    SPOIL(f.dims[0].hi = -7, "dim 0: ghosts are 1 and -7 wide: widths must be at least 0")                        \
    SPOIL(f.dims[0].hi = INT64_MAX, "the tensor with its ghosts has more than 2^62 bytes")                        \
    SPOIL((f.dims[0].wrap = true, f.dims[0].lo = 8193),                                                           \
          "dim 0: ghosts wrap round an extent of 8 more than 1024 times")                                         \
    SPOIL(f.folds[0].op = 0, "folds[0].op is 0, which is not an op")                                              \
    SPOIL(f.folds[0].op = 9, "folds[0].op is 9, which is not an op")                                              \
    SPOIL(f.folds[0].op = WEFT_BXOR, "bxor does not fold f32: bit ops take integers and bool")                    \
    SPOIL(f.folds[0].nover = 0, "sum folds over 1 to 9 axes, not 0")                                              \
    SPOIL(f.folds[0].nover = 10, "sum folds over 1 to 9 axes, not 10")                                            \
    SPOIL(f.folds[0].over[0] = NULL, "folds[0].over[0] is NULL")                                                  \
    SPOIL(f.folds[0].over[0] = "z", "axis 'z' is not in the mesh")                                                \
    SPOIL(f.folds[0].over[0] = "x", "axis 'x' is used in two places")                                             \
    SPOIL(f.ranks[2] = -1, "ranks[2] is -1: a rank is 0 to 2147483646")                                           \
    SPOIL(f.ranks[2] = INT32_MAX, "ranks[2] is 2147483647: a rank is 0 to 2147483646")                            \
    SPOIL(f.ranks[2] = 1, "rank 1 is listed twice")

static void wrong_structs_get_their_message(void **state)
{
    (void)state;
    struct form f;
    weft_layout *l = NULL;
    right(&f);
    assert_int_equal(weft_layout_create(&f.desc, &l), 0);
    weft_layout_free(l);
    l = NULL;
#define SPOIL(change, words)                                        \
    right(&f);                                                      \
    (void)(change);                                                 \
    assert_int_equal(weft_layout_create(&f.desc, &l), WEFT_EINVAL); \
    assert_null(l);                                                 \
    assert_string_equal(weft_errmsg(), "layout: " words);
    CASES
#undef SPOIL
    char message[200];
    right(&f);
    f.desc.size = 4;
    snprintf(message, sizeof message,
             "weft_layout_create: the size in weft_layout_desc is 4: initialise it with WEFT_LAYOUT_DESC_INIT, or set "
             "size to sizeof(weft_layout_desc)");
    assert_int_equal(weft_layout_create(&f.desc, &l), WEFT_EINVAL);
    assert_string_equal(weft_errmsg(), message);
}

/* ---- calls ---- */

static void wrong_calls_get_their_message(void **state)
{
    (void)state;
    weft_layout *l = NULL, *out = NULL;
    weft_layout_desc desc = WEFT_LAYOUT_DESC_INIT;
    weft_local local;
    weft_box box;
    size_t n = 5;
    assert_int_equal(weft_layout_parse("i32[8] @x2 +min(x)", &l), 0);
#define REFUSED(call, message)                       \
    do {                                             \
        assert_int_equal(call, WEFT_EINVAL);         \
        assert_string_equal(weft_errmsg(), message); \
    } while (0)
    REFUSED(weft_layout_parse(NULL, &out), "layout: text is NULL");
    REFUSED(weft_layout_parse("f32[] @x1", NULL), "layout: out is NULL");
    REFUSED(weft_layout_create(NULL, &out), "layout: desc is NULL");
    assert_int_equal(weft_layout_describe(l, &desc), 0);
    REFUSED(weft_layout_create(&desc, NULL), "layout: out is NULL");
    REFUSED(weft_layout_describe(NULL, &desc), "layout: layout is NULL");
    REFUSED(weft_layout_describe(l, NULL), "layout: out is NULL");
    REFUSED(weft_layout_dual(NULL, &out), "dual: layout is NULL");
    REFUSED(weft_layout_dual(l, NULL), "dual: out is NULL");
    REFUSED(weft_layout_dual(l, &out), "dual: only sum has an adjoint, but this layout folds by min");
    REFUSED(weft_layout_format(NULL, NULL, 0, &n), "layout: layout is NULL");
    REFUSED(weft_layout_format(l, NULL, 9, &n), "layout: buf is NULL");
    REFUSED(weft_layout_local(NULL, 0, &local), "layout: layout is NULL");
    REFUSED(weft_layout_local(l, 0, NULL), "layout: out is NULL");
    REFUSED(weft_layout_local(l, -3, &local), "layout: rank -3 is negative");
    REFUSED(weft_layout_boxes(NULL, 0, &box, 1, &n), "layout: layout is NULL");
    REFUSED(weft_layout_boxes(l, 0, NULL, 1, &n), "layout: out is NULL");
    REFUSED(weft_layout_boxes(l, 0, &box, 1, NULL), "layout: n is NULL");
    REFUSED(weft_layout_boxes(l, -3, &box, 1, &n), "layout: rank -3 is negative");
    assert_null(out);
    assert_int_equal(n, 5);
    weft_layout_free(l);
    weft_layout *gate = NULL;
    assert_int_equal(weft_layout_parse("bool[8] @x2", &gate), 0);
    REFUSED(weft_layout_dual(gate, &out), "dual: equal copies become terms of a sum, but sum does not fold bool");
    weft_layout_free(gate);
#undef REFUSED
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_texts_get_their_message_and_caret),
        cmocka_unit_test(odd_bytes_keep_the_caret_in_place),
        cmocka_unit_test(long_texts_are_cut),
        cmocka_unit_test(wrong_structs_get_their_message),
        cmocka_unit_test(wrong_calls_get_their_message),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
