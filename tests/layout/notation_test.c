/* The text form: what is parsed, printed and parsed again is the same; the struct form and the
 * text form make the same layout. The laws hold for thousands of random layouts. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layout/layout.h"
#include "support/layout_random.h"
#include "support/share.h"
#include "support/suite.h"

static const struct sample_options shapes[] = {
    {.dims = 4, .axes = 4, .mesh = 24, .extent = 20, .ghosts = 6},
    {.dims = WEFT_MAX_DIMS, .axes = WEFT_MAX_AXES, .mesh = 250, .extent = 100, .ghosts = 200},
    {.dims = 2, .axes = WEFT_MAX_AXES, .mesh = INT32_MAX, .extent = INT64_C(1) << 59, .ghosts = INT64_C(1) << 40},
};
static struct sample sample;
#define LAW(holds) SAMPLE_LAW(sample, holds)

static weft_layout *parse(const char *text)
{
    weft_layout *l = NULL;
    if (weft_layout_parse(text, &l))
        print_error("%s\n", weft_errmsg());
    assert_non_null(l);
    return l;
}

static bool in_fold(const weft_fold *f, const char *name)
{
    for (int k = 0; k < f->nover; k++)
        if (!strcmp(f->over[k], name))
            return true;
    return false;
}

/* What was meant, field by field. Axes of one fold are a set; without ghosts nothing wraps. */
static void assert_described(const weft_layout *l, const weft_layout_desc *want)
{
    weft_layout_desc d = WEFT_LAYOUT_DESC_INIT;
    LAW(!weft_layout_describe(l, &d));
    LAW(d.size == sizeof d);
    LAW(d.dtype == want->dtype);
    LAW(d.ndim == want->ndim);
    LAW(d.naxes == want->naxes);
    LAW(d.nfolds == want->nfolds);
    int ghosted = 0; /* dims with ghosts: one has no corners */
    for (int i = 0; i < d.ndim; i++)
        ghosted += d.dims[i].lo || d.dims[i].hi;
    LAW(d.flags == (ghosted > 1 ? want->flags : 0));
    for (int i = 0; i < d.ndim; i++) {
        const weft_dim *a = &d.dims[i], *b = &want->dims[i];
        LAW(a->extent == b->extent);
        LAW(a->lo == b->lo);
        LAW(a->hi == b->hi);
        LAW(a->wrap == (b->wrap && (b->lo || b->hi)));
        LAW(a->nsplits == b->nsplits);
        for (int k = 0; k < a->nsplits; k++) {
            LAW(!strcmp(a->splits[k].axis, b->splits[k].axis));
            LAW(a->splits[k].block == b->splits[k].block);
        }
    }
    int64_t mesh = 1;
    for (int a = 0; a < d.naxes; a++) {
        LAW(!strcmp(d.axes[a].name, want->axes[a].name));
        LAW(d.axes[a].size == want->axes[a].size);
        mesh *= d.axes[a].size;
    }
    for (int64_t i = 0; i < mesh; i++)
        LAW(d.ranks[i] == (want->ranks ? want->ranks[i] : i));
    for (int f = 0; f < d.nfolds; f++) {
        LAW(d.folds[f].op == want->folds[f].op);
        LAW(d.folds[f].nover == want->folds[f].nover);
        for (int k = 0; k < d.folds[f].nover; k++)
            LAW(in_fold(&want->folds[f], d.folds[f].over[k]));
    }
}

/* Prints into a buffer of the very size, which must be what every smaller one begins with. */
static char *print(struct random *g, const weft_layout *l)
{
    size_t len = 0, again = 0;
    assert_int_equal(weft_layout_format(l, NULL, 0, &len), 0);
    char *text = malloc(len + 1);
    assert_non_null(text);
    size_t part = (size_t)random_in(g, 1, (int64_t)len);
    assert_int_equal(weft_layout_format(l, text, part, &again), 0);
    assert_int_equal(again, len);
    assert_int_equal(strlen(text), part - 1);
    char *whole = malloc(len + 1);
    assert_non_null(whole);
    assert_int_equal(weft_layout_format(l, whole, len + 1, NULL), 0);
    assert_int_equal(strlen(whole), len);
    assert_memory_equal(whole, text, part - 1);
    free(text);
    return whole;
}

static void check_sample(struct random *g, const struct sample_options *o)
{
    sample_desc(g, &sample, o);
    sample_text(g, &sample, random_once_in(g, 2));
    weft_layout *l = parse(sample.text), *made = NULL, *copy = NULL;
    if (weft_layout_create(&sample.desc, &made))
        print_error("%s\n", weft_errmsg());
    assert_non_null(made);
    LAW(weft_layout_equal(l, made) && weft_layout_equal(made, l));
    if (l->mesh <= 4096) { /* the list of ranks is written out here */
        weft_layout_desc d = WEFT_LAYOUT_DESC_INIT;
        assert_described(l, &sample.desc);
        assert_int_equal(weft_layout_describe(l, &d), 0);
        assert_int_equal(weft_layout_create(&d, &copy), 0);
        LAW(weft_layout_equal(l, copy));
        weft_layout_free(copy);
    }
    char *text = print(g, l);
    weft_layout *again = parse(text);
    char *second = print(g, again);
    LAW(!strcmp(text, second));
    LAW(weft_layout_equal(l, again));
    LAW(again->hash == l->hash && made->hash == l->hash);
    free(text);
    free(second);
    weft_layout_free(l);
    weft_layout_free(made);
    weft_layout_free(again);
}

static void text_and_struct_say_the_same(void **state)
{
    (void)state;
    struct random g = {1};
    for (int64_t cases = test_share(12000, 200000); cases > 0; cases--)
        check_sample(&g, &shapes[cases % 3]);
}

/* Texts that are printed as they were written, and texts with a shorter form. */
static void texts_print_in_their_shortest_form(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"f32[] @x1", "f32[] @x1"},
        {"f32[0] @x1=0", "f32[0] @x1"},
        {" bf16 [ 4096 / dp / tp , 14336 ] @ dp 2 . tp 4 ", "bf16[4096/dp/tp,14336] @dp2.tp4"},
        {"f64[100/p:64,7/q:1]@p2.q2=0..3", "f64[100/p:64,7/q:1] @p2.q2"},
        {"f32[8/x]@x4=4,5,6,7", "f32[8/x] @x4=4..7"},
        {"f32[8/x]@x4=4..5,6..7", "f32[8/x] @x4=4..7"},
        {"f32[8/x]@x4=4,5,0..1", "f32[8/x] @x4=4,5,0,1"},
        {"f32[8/x]@x4=1,2,3,0", "f32[8/x] @x4=1..3,0"},
        {"f32[8/x]@x4=3..3,2..2,1,0", "f32[8/x] @x4=3,2,1,0"},
        {"f32[8/x~1:1]@x4", "f32[8/x~1] @x4"},
        {"f32[8/x~0:2]@x4", "f32[8/x~0:2] @x4"},
        {"f32[8/x~2:0o]@x4", "f32[8/x~2:0o] @x4"},
        {"f32[8/x~0]@x4", "f32[8/x] @x4"},
        {"f32[8/x:2~0:0o]@x4", "f32[8/x:2] @x4"},
        {"f32[8~1,8/x~1o] + @x4", "f32[8~1,8/x~1o]+ @x4"},
        {"f32[8,8/x~1]+@x4", "f32[8,8/x~1] @x4"}, /* no corners where one dim has ghosts */
        {"f32[8~0:1,8/x~1]+@x4+sum(~)", "f32[8~0:1,8/x~1]+ @x4 +sum(~)"},
        {"f32[8~1o] @x2 +sum(x,~)", "f32[8~1o] @x2 +sum(x,~)"},
        {"f32[8~1o] @x2 +sum(~,x)", "f32[8~1o] @x2 +sum(x,~)"},
        {"f32[8] @x2.y2 +max(y,x)", "f32[8] @x2.y2 +max(x,y)"},
        {"f32[8] @x2.y2 +sum(y)+sum(x)", "f32[8] @x2.y2 +sum(y) +sum(x)"},
        {"u8[08/x:01]@x02=00,09", "u8[8/x:1] @x2=0,9"},
        {"u8[8/x_1]@x_1 2", "u8[8/x_1] @x_1 2"},
        {"u8[8/x_]@x_ 2", "u8[8/x_] @x_ 2"},
        {"u8[8/x_1a]@x_1a2", "u8[8/x_1a] @x_1a2"},
        {"bool[1/o~1o]@o2+min(~)", "bool[1/o~1o] @o2 +min(~)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char buf[200];
        weft_layout *l = parse(cases[i][0]);
        assert_int_equal(weft_layout_format(l, buf, sizeof buf, NULL), 0);
        assert_string_equal(buf, cases[i][1]);
        weft_layout_free(l);
    }
}

/* Each of these differs from each other one. */
static void different_layouts_are_not_equal(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "f32[8/x] @x4.y2",
        "bf16[8/x] @x4.y2",
        "f32[9/x] @x4.y2",
        "f32[8/y] @x4.y2",
        "f32[8/x/y] @x4.y2",
        "f32[8/y/x] @x4.y2",
        "f32[8/x:1] @x4.y2",
        "f32[8/x:2] @x4.y2",
        "f32[8/x~1] @x4.y2",
        "f32[8/x~1:0] @x4.y2",
        "f32[8/x~0:1] @x4.y2",
        "f32[8/x~1o] @x4.y2",
        "f32[8/x] @x4.z2",
        "f32[8/x] @x2.y4",
        "f32[8/x] @x4.y2=1..8",
        "f32[8/x] @x4.y2=1..7,0",
        "f32[8/x] @x4.y2 +sum(y)",
        "f32[8/x] @x4.y2 +max(y)",
        "f32[8/x~1] @x4.y2 +sum(~)",
        "f32[8/x~1] @x4.y2 +sum(y)",
        "f32[8/x,1] @x4.y2",
        "f32[8] @x4.y2",
        "f32[] @x4.y2",
        "f32[8/x] @x4",
        "f32[8/x~1] @x4.y2 +sum(y,~)",
        "f32[8/x~1] @x4.y2 +sum(y) +sum(~)",
        "f32[8/x~1] @x4.y2 +sum(~) +sum(y)",
    };
    enum { N = sizeof texts / sizeof *texts };
    weft_layout *l[N];
    for (size_t i = 0; i < N; i++)
        l[i] = parse(texts[i]);
    for (size_t i = 0; i < N; i++)
        for (size_t j = 0; j < N; j++)
            assert_int_equal(weft_layout_equal(l[i], l[j]), i == j);
    assert_false(weft_layout_equal(l[0], NULL));
    assert_false(weft_layout_equal(NULL, l[0]));
    assert_true(weft_layout_equal(NULL, NULL));
    for (size_t i = 0; i < N; i++)
        weft_layout_free(l[i]);
    weft_layout_free(NULL);
}

/* ---- docs/notation.md ---- */

static char *read_docs(void)
{
    FILE *f = fopen(WEFT_SOURCE_DIR "/docs/notation.md", "rb");
    assert_non_null(f);
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 20) - 1, f) > 0);
    fclose(f);
    return text;
}

/* Every `layout` in the reference is one. */
static void layouts_in_the_docs_are_right(void **state)
{
    (void)state;
    char *docs = read_docs();
    int found = 0;
    for (char *p = strtok(docs, "`"); p; p = strtok(NULL, "`"))
        if (strstr(p, "] @") && !strchr(p, '\n')) {
            weft_layout_free(parse(p));
            found++;
        }
    assert_true(found > 30);
    free(docs);
}

/* Every indented error in the reference is what its second line gets. */
static void errors_in_the_docs_are_right(void **state)
{
    (void)state;
    char *docs = read_docs();
    int found = 0;
    for (char *p = strstr(docs, "\n    layout: "); p; p = strstr(p + 1, "\n    layout: ")) {
        char message[500] = "", text[200] = "";
        const char *line = p + 1;
        for (int k = 0; k < 3; k++) {
            size_t n = strcspn(line, "\n");
            assert_in_range(n, 5, 150);
            strncat(message, k ? "\n" : "", 2);
            strncat(message, line + 4, n - 4);
            if (k == 1)
                strncat(text, line + 6, n - 6);
            line += n + 1;
        }
        weft_layout *l = NULL;
        assert_int_equal(weft_layout_parse(text, &l), WEFT_EINVAL);
        assert_string_equal(weft_errmsg(), message);
        found++;
    }
    assert_true(found >= 5);
    free(docs);
}

static int by_hash(const void *a, const void *b)
{
    const weft_layout *x = *(weft_layout *const *)a, *y = *(weft_layout *const *)b;
    return x->hash < y->hash ? -1 : x->hash > y->hash;
}

/* All ways to write a dim of 8 on a mesh of three axes: ghosts in front, splits and blocks. The digest of a plan knows
 * layouts by their hashes alone, so no two of them may have the same. */
static void different_layouts_have_different_hashes(void **state)
{
    (void)state;
    static const char *const splits[] = {"",     "/a",   "/b",   "/c",   "/a:1", "/a:2",   "/b:1",
                                         "/b:2", "/c:1", "/c:2", "/a/b", "/b/c", "/a:1/b", "/a/b:1"};
    static const char *const ghosts[] = {"", "~0:1", "~0:1o", "~1:0", "~1:0o", "~1", "~1o", "~0:2", "~2:0", "~2"};
    enum { SPLITS = sizeof splits / sizeof *splits, GHOSTS = sizeof ghosts / sizeof *ghosts };
    static weft_layout *all[2 * SPLITS * GHOSTS * SPLITS * GHOSTS];
    size_t n = 0;
    char text[100];
    for (int i = 0; i < SPLITS * GHOSTS; i++)
        for (int k = 0; k < 2 * SPLITS * GHOSTS; k++) {
            bool faces = k % 2;
            if (faces && (!(i % GHOSTS) || !(k / 2 % GHOSTS)))
                continue; /* only one dim has ghosts: without corners it is the same layout */
            snprintf(text, sizeof text, "f32[8%s%s,8%s%s]%s @a2.b2.c2", splits[i / GHOSTS], ghosts[i % GHOSTS],
                     splits[k / 2 / GHOSTS], ghosts[k / 2 % GHOSTS], faces ? "+" : "");
            n += weft_layout_parse(text, &all[n]) == 0; /* an axis in two places, ghosts of blocks: refused */
        }
    assert_true(n > 2000);
    qsort(all, n, sizeof *all, by_hash);
    for (size_t i = 1; i < n; i++) {
        assert_false(weft_layout_equal(all[i - 1], all[i]));
        if (all[i - 1]->hash == all[i]->hash) {
            size_t len;
            weft_layout_format(all[i - 1], text, sizeof text, &len);
            print_error("%s has the hash of", text);
            weft_layout_format(all[i], text, sizeof text, &len);
            fail_msg("%s", text);
        }
    }
    for (size_t i = 0; i < n; i++)
        weft_layout_free(all[i]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_and_struct_say_the_same),    cmocka_unit_test(texts_print_in_their_shortest_form),
        cmocka_unit_test(different_layouts_are_not_equal), cmocka_unit_test(layouts_in_the_docs_are_right),
        cmocka_unit_test(errors_in_the_docs_are_right),    cmocka_unit_test(different_layouts_have_different_hashes),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
