/* Memory that runs out: the n-th allocation fails, for every n until the call succeeds. Each time
 * the call says so, gives back all it took and leaves its output alone. The linker sends the
 * library's allocations here (--wrap). */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layout/layout.h"
#include "support/suite.h"

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void __wrap_free(void *p);

static long calls, fail_at; /* 0: never */
static int fail_on;         /* and all after it */
static long live;           /* blocks that were not freed */

static int fails(void)
{
    calls++;
    return fail_at && (fail_on ? calls >= fail_at : calls == fail_at);
}

static void *taken(void *p)
{
    live += p != NULL;
    return p;
}

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : taken(__real_malloc(n));
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : taken(__real_calloc(n, size));
}

void *__wrap_realloc(void *p, size_t n)
{
    if (fails())
        return NULL;
    void *q = __real_realloc(p, n);
    live += !p && q;
    return q;
}

void __wrap_free(void *p)
{
    live -= p != NULL;
    __real_free(p);
}

/* ---- the calls ---- */

static weft_layout *sample(void)
{
    weft_layout *l = NULL;
    assert_int_equal(weft_layout_parse("f32[1000/x:7/y:3,40/z~9:11o,5] @x2.y3.z2.w2=12..23,0..11 +sum(w)", &l), 0);
    return l;
}

static int parse_short(void)
{
    weft_layout *l = NULL;
    int rc = weft_layout_parse("f32[8/x~1o] @x4 +sum(~)", &l);
    assert_true(rc ? !l : l != NULL);
    weft_layout_free(l);
    return rc;
}

/* The list of ranks grows several times. */
static int parse_long(void)
{
    char text[4000] = "f32[8/x] @x200=0", *at = text + strlen(text);
    for (int r = 1; r < 200; r++)
        at += sprintf(at, ",%d", 2 * r);
    weft_layout *l = NULL;
    int rc = weft_layout_parse(text, &l);
    assert_true(rc ? !l : l != NULL);
    weft_layout_free(l);
    return rc;
}

static int create(void)
{
    static const int ranks[] = {3, 1, 2, 0};
    static const weft_axis axes[] = {{"x", 4}};
    weft_layout_desc d = {.size = sizeof d, .dtype = WEFT_F32, .axes = axes, .naxes = 1, .ranks = ranks};
    weft_layout *l = NULL;
    int rc = weft_layout_create(&d, &l);
    assert_true(rc ? !l : l != NULL);
    weft_layout_free(l);
    return rc;
}

static weft_layout *given; /* made before the allocations are counted */

static int describe(void)
{
    weft_layout_desc d = {.size = sizeof d, .ndim = 77};
    int rc = weft_layout_describe(given, &d);
    assert_true(d.size == sizeof d && (rc ? d.ndim == 77 : d.ranks[0] == 12));
    return rc;
}

static int dual(void)
{
    weft_layout *l = NULL;
    int rc = weft_layout_dual(given, &l);
    assert_true(rc ? !l : l != NULL);
    weft_layout_free(l);
    return rc;
}

static int boxes(void)
{
    static weft_box out[1000];
    size_t n = 4321;
    int rc = weft_layout_boxes(given, 13, out, 1000, &n);
    assert_true(rc ? n == 4321 : n > 0 && n < 1000);
    return rc;
}

static int parts(void)
{
    static weft_box out[1000];
    size_t n = 4321;
    int rc = weft_layout_halo(given, 13, WEFT_HALO_GHOSTS, out, 1000, &n);
    assert_true(rc ? n == 4321 : n > 0 && n < 1000);
    return rc;
}

static int go_on(void *arg, int64_t piece)
{
    *(int64_t *)arg += piece;
    return 0;
}

static int pieces(void)
{
    struct arena arena = {0};
    int64_t sum = 0;
    struct run r[] = {{.at = 1, .len = 2, .n = 90, .step = 11, .tostep = 2}, {.at = 3, .len = 1, .n = 1}};
    struct runs q = {r, 2, 2, NULL};
    int rc = layout_pieces_at(given, 0, &q, false, &arena, go_on, &sum);
    if (!rc) {
        struct run w[] = {{.at = 1, .len = 2, .n = 1}, {.at = 30, .len = 1, .n = 1}};
        q = (struct runs){w, 2, 2, NULL};
        rc = layout_pieces_at(given, 1, &q, true, &arena, go_on, &sum);
    }
    arena_free(&arena);
    return rc;
}

static int slots(void)
{
    weft_layout *l = NULL;
    int rc = weft_layout_parse("u8[2~900o] @x1", &l);
    struct arena arena = {0};
    struct runs r = {.arena = &arena};
    size_t first, ninner;
    if (!rc)
        rc = layout_piece_slots(l, 0, 0, &r, &first, &ninner);
    arena_free(&arena);
    weft_layout_free(l);
    return rc;
}

/* ---- each call with each allocation failing ---- */

static const struct {
    const char *name;
    int (*call)(void);
    long least; /* allocations it makes, or the test would show nothing */
} cases[] = {
    {"parse, short", parse_short, 4},
    {"parse, long", parse_long, 8},
    {"create", create, 4},
    {"describe", describe, 1},
    {"dual", dual, 3},
    {"boxes", boxes, 1},
    {"parts", parts, 1},
    {"pieces", pieces, 4},
    {"slots", slots, 8},
};

static void every_failed_allocation_is_reported(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (fail_on = 0; fail_on < 2; fail_on++)
            for (long n = 1;; n++) {
                fail_at = 0;
                given = sample();
                long before = live;
                calls = 0;
                fail_at = n;
                int rc = cases[i].call();
                long made = calls;
                fail_at = 0;
                weft_layout *l = given; /* describe keeps what it took in the layout */
                if (cases[i].call != describe)
                    assert_int_equal(live, before);
                weft_layout_free(l);
                assert_int_equal(live, 0);
                if (!rc) {
                    assert_int_equal(made, n - 1);
                    if (made < cases[i].least)
                        print_error("%s makes %ld allocations\n", cases[i].name, made);
                    assert_true(made >= cases[i].least);
                    break;
                }
                assert_int_equal(rc, WEFT_ENOMEM);
                assert_string_equal(weft_errmsg(), "out of memory");
            }
}

/* Printing, asking for a local buffer and comparing take no memory at all. */
static void format_local_and_equal_take_no_memory(void **state)
{
    (void)state;
    weft_layout *l = sample(), *other = sample();
    char text[200];
    size_t n;
    weft_local local;
    calls = 0;
    fail_at = 1;
    fail_on = 1;
    assert_int_equal(weft_layout_format(l, text, sizeof text, &n), 0);
    assert_int_equal(weft_layout_local(l, 5, &local), 0);
    assert_true(weft_layout_equal(l, other));
    assert_int_equal(calls, 0);
    fail_at = 0;
    weft_layout_free(l);
    weft_layout_free(other);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_failed_allocation_is_reported),
        cmocka_unit_test(format_local_and_equal_take_no_memory),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
