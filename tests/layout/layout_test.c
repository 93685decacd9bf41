/* Layouts against the element-by-element oracle: who holds what, where it stands, in which boxes;
 * meshes of any ranks; the adjoint; splits worked out by hand; the limits. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/dtype.h"
#include "layout/layout.h"
#include "support/layout_oracle.h"
#include "support/share.h"
#include "support/suite.h"

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

/* ---- who holds what, and where ---- */

static void check_interior(const struct runs *got, const struct oracle *o)
{
    static bool seen[ORACLE_MOST];
    memset(seen, 0, sizeof seen);
    int64_t count = 0;
    for (size_t r = 0; r < got->n; r++)
        for (int64_t i = 0; i < got->v[r].n; i++)
            for (int64_t k = 0; k < got->v[r].len; k++, count++) {
                int64_t at = got->v[r].at + i * got->v[r].step + k, to = got->v[r].to + i * got->v[r].tostep + k;
                LAW(to >= o->first && to < o->first + o->n);
                LAW(o->at[to - o->first] == at);
                LAW(!seen[to]);
                seen[to] = true;
            }
    LAW(count == o->n);
    LAW(count == runs_count(got));
}

/* Slots come in order of place and name each place that stands for an element. */
static void check_slots(const struct runs *got, size_t first, size_t ninner, const struct oracle *o)
{
    struct runs inner = {ninner ? got->v + first : NULL, ninner, ninner, NULL};
    LAW(first + ninner <= got->n);
    check_interior(&inner, o);
    int64_t place = 0;
    for (size_t r = 0; r < got->n; r++) {
        if (r >= first && r < first + ninner) {
            place = o->first + o->n; /* the interior was checked above */
            continue;
        }
        LAW(got->v[r].n == 1);
        if (r && r != first + ninner) /* as long as it can be */
            LAW(got->v[r].at != got->v[r - 1].at + got->v[r - 1].len ||
                got->v[r].to != got->v[r - 1].to + got->v[r - 1].len);
        for (; place < got->v[r].to; place++)
            LAW(o->slot[place] < 0);
        LAW(place == got->v[r].to);
        for (int64_t k = 0; k < got->v[r].len; k++, place++)
            LAW(place < o->room && o->slot[place] == got->v[r].at + k);
    }
    for (; place < o->room; place++)
        LAW(o->slot[place] < 0);
}

/* The intervals of the interior, as long as they can be. */
static size_t intervals(const struct oracle *o, size_t which, int64_t *at, int64_t *len, int64_t *place)
{
    size_t n = 0;
    for (int64_t k = 0; k < o->n; k++) {
        if (k && o->at[k] == o->at[k - 1] + 1) {
            *len += n == which + 1;
            continue;
        }
        if (n++ == which) {
            *at = o->at[k];
            *len = 1;
            *place = o->first + k;
        }
    }
    return n;
}

static void check_boxes(const weft_layout *l, int rank, bool holds, const struct oracle *o)
{
    enum { CAP = 3000 };
    static weft_box boxes[CAP + 1];
    size_t n = 77, want = holds, sides[WEFT_MAX_DIMS];
    int64_t at = 0, len = 0, place = 0;
    for (int d = 0; d < l->ndim && holds; d++)
        want *= sides[d] = intervals(&o[d], SIZE_MAX, &at, &len, &place);
    LAW(!weft_layout_boxes(l, rank, NULL, 0, &n));
    LAW(n == want);
    size_t cap = want > CAP ? CAP : want / 2 + 1;
    memset(boxes, 0x55, sizeof boxes);
    LAW(!weft_layout_boxes(l, rank, boxes, cap, &n));
    LAW(n == want);
    LAW(boxes[cap].at[0] == 0x5555555555555555);
    cap = cap < want ? cap : want;
    for (size_t k = 0; k < cap; k++) {
        size_t rest = k;
        for (int d = l->ndim - 1; d >= 0; d--) {
            intervals(&o[d], rest % sides[d], &at, &len, &place);
            rest /= sides[d];
            LAW(boxes[k].at[d] == at && boxes[k].len[d] == len && boxes[k].local[d] == place);
        }
    }
}

static void check_rank(const weft_layout *l, int rank, struct arena *arena)
{
    static struct oracle o[WEFT_MAX_DIMS];
    int64_t index = oracle_index(&sample, rank), count = index >= 0;
    LAW(mesh_index(l, rank) == index);
    weft_local local;
    memset(&local, 0x55, sizeof local);
    LAW(!weft_layout_local(l, rank, &local));
    LAW(local.holds == (index >= 0) && local.ndim == l->ndim);
    if (index >= 0)
        LAW(mesh_rank(l, index) == rank);
    int64_t offset = 0;
    for (int d = 0; d < l->ndim && index >= 0; d++) {
        struct runs inner = {.arena = arena}, slots = {.arena = arena};
        size_t first, ninner;
        int64_t piece = 0, extent;
        for (int k = 0; k < sample.dims[d].nsplits; k++) {
            int a = oracle_axis(&sample, sample.dims[d].splits[k].axis);
            piece = piece * sample.axes[a].size + oracle_coord(&sample, index, a);
        }
        LAW(layout_piece(l, index, d) == piece && piece < l->dim[d].pieces);
        offset += layout_piece_offset(l, d, piece);
        oracle_dim(&sample, d, index, &o[d]);
        LAW(layout_piece_extent(l, d, piece, &extent) == o[d].room && extent == o[d].n);
        LAW(layout_piece_extent(l, d, piece, NULL) == o[d].room);
        LAW(!layout_piece_interior(l, d, piece, &inner));
        check_interior(&inner, &o[d]);
        LAW(!layout_piece_slots(l, d, piece, &slots, &first, &ninner));
        check_slots(&slots, first, ninner, &o[d]);
        LAW(local.shape[d] == o[d].room && local.inner[d] == o[d].n && local.interior[d] == o[d].first);
        count *= o[d].room;
    }
    LAW(local.count == count && local.bytes == count * (int64_t)weft_dtype_size(l->dtype));
    for (int a = 0; a < l->naxes && index >= 0; a++)
        if (l->axis[a].role < 0)
            offset += layout_coord(l, index, a) * l->axis[a].stride;
    LAW(index < 0 || offset == index);
    check_boxes(l, rank, index >= 0, o);
}

static void check_sample(struct random *g, const struct sample_options *o)
{
    struct arena arena = {0};
    weft_layout *l = NULL;
    sample_desc(g, &sample, o);
    sample_text(g, &sample, false);
    LAW(!weft_layout_create(&sample.desc, &l));
    int64_t mesh = sample_mesh_size(&sample);
    int top = 0;
    for (int64_t i = 0; i < mesh; i++) {
        int rank = sample.desc.ranks ? sample.ranks[i] : (int)i;
        top = rank >= top ? rank + 1 : top;
        check_rank(l, rank, &arena);
        if (random_once_in(g, 4)) /* may be in the mesh or not */
            check_rank(l, (int)random_in(g, 0, 2 * mesh + 100), &arena);
        arena_reset(&arena);
    }
    LAW(weft_layout_ranks(l) == top);
    check_rank(l, top, &arena);
    check_rank(l, INT32_MAX, &arena);
    arena_free(&arena);
    weft_layout_free(l);
}

static void every_rank_holds_what_the_definitions_say(void **state)
{
    (void)state;
    static const struct sample_options shapes[] = {
        {.dims = 3, .axes = 4, .mesh = 24, .extent = 24, .ghosts = 8},
        {.dims = 1, .axes = 3, .mesh = 60, .extent = 90, .ghosts = 0},
        {.dims = 1, .axes = 2, .mesh = 3, .extent = 4, .ghosts = 40},
        {.dims = WEFT_MAX_DIMS, .axes = WEFT_MAX_AXES, .mesh = 48, .extent = 6, .ghosts = 3},
    };
    struct random g = {1};
    for (int64_t cases = test_share(6000, 100000); cases > 0; cases--)
        check_sample(&g, &shapes[cases % 4]);
}

/* ---- meshes ---- */

static void meshes_of_any_ranks_find_their_index(void **state)
{
    (void)state;
    struct random g = {2};
    for (int64_t cases = test_share(300, 3000); cases > 0; cases--) {
        enum { MOST = 2000 };
        static int ranks[MOST];
        static int64_t index[3 * MOST];
        int64_t n = random_in(&g, 1, MOST);
        int shift = (int)random_in(&g, 0, n), stretch = (int)random_in(&g, 1, 2);
        for (int64_t i = 0; i < n; i++)
            ranks[i] = shift + (int)i * stretch;
        for (int64_t swaps = random_once_in(&g, 2) ? random_in(&g, 0, 5) : n; swaps > 0; swaps--) {
            int64_t i = random_in(&g, 0, n - 1), j = random_in(&g, 0, n - 1);
            int t = ranks[i];
            ranks[i] = ranks[j];
            ranks[j] = t;
        }
        memset(index, -1, sizeof index);
        for (int64_t i = 0; i < n; i++)
            index[ranks[i]] = i;
        weft_axis axis = {"x", n};
        weft_layout_desc d = {.size = sizeof d, .dtype = WEFT_U8, .axes = &axis, .naxes = 1, .ranks = ranks};
        weft_layout *l = NULL;
        assert_int_equal(weft_layout_create(&d, &l), 0);
        for (int r = 0; r < 3 * MOST; r++)
            assert_int_equal(mesh_index(l, r), index[r]);
        for (int64_t i = 0; i < n; i++)
            assert_int_equal(mesh_rank(l, i), ranks[i]);
        assert_int_equal(mesh_index(l, -1), -1);
        weft_layout_free(l);
    }
}

/* ---- the adjoint ---- */

static bool sums_only(void)
{
    for (int f = 0; f < sample.desc.nfolds; f++)
        if (sample.folds[f].op != WEFT_SUM)
            return false;
    return true;
}

/* The sample with its folds as one: what the dual of the dual is. */
static weft_layout *merged(void)
{
    weft_fold one = {.op = WEFT_SUM};
    for (int f = 0; f < sample.desc.nfolds; f++)
        for (int k = 0; k < sample.folds[f].nover; k++)
            one.over[one.nover++] = sample.folds[f].over[k];
    weft_layout_desc d = sample.desc;
    d.folds = &one;
    d.nfolds = one.nover > 0;
    weft_layout *l = NULL;
    assert_int_equal(weft_layout_create(&d, &l), 0);
    return l;
}

static void dual_of_dual_merges_sums(void **state)
{
    (void)state;
    static const struct sample_options shape = {.dims = 3, .axes = 5, .mesh = 24, .extent = 9, .ghosts = 3};
    struct random g = {3};
    int64_t tried = 0, refused = 0;
    for (int64_t cases = test_share(6000, 60000); cases > 0; cases--) {
        sample_desc(&g, &sample, &shape);
        for (int f = 0; f < sample.desc.nfolds && dtype_foldable(WEFT_SUM, (int)sample.desc.dtype); f++)
            if (!random_once_in(&g, 8)) /* most of them sums */
                sample.folds[f].op = WEFT_SUM;
        sample_text(&g, &sample, false);
        weft_layout *l = NULL, *dual = NULL, *again = NULL;
        LAW(!weft_layout_create(&sample.desc, &l));
        bool free_axis = false, ghosts = false;
        for (int a = 0; a < l->naxes; a++)
            free_axis = free_axis || l->axis[a].role == LAYOUT_FREE;
        for (int i = 0; i < l->ndim; i++)
            ghosts = ghosts || l->dim[i].lo || l->dim[i].hi;
        bool swaps = free_axis || (ghosts && !l->ghost_terms);
        if (!sums_only() || (!dtype_foldable(WEFT_SUM, (int)sample.desc.dtype) && swaps)) {
            LAW(weft_layout_dual(l, &dual) == WEFT_EINVAL && !dual);
            LAW(!strncmp(weft_errmsg(), "dual: ", 6));
            refused++;
            weft_layout_free(l);
            continue;
        }
        LAW(!weft_layout_dual(l, &dual));
        for (int a = 0; a < l->naxes; a++) {
            LAW((l->axis[a].role == LAYOUT_FREE) == (dual->axis[a].role <= LAYOUT_FOLD));
            LAW((l->axis[a].role <= LAYOUT_FOLD) == (dual->axis[a].role == LAYOUT_FREE));
        }
        LAW(dual->ghost_terms == (ghosts && !l->ghost_terms));
        LAW(dual->nfolds == swaps && dual->dtype == l->dtype);
        for (int i = 0; i < l->ndim; i++)
            LAW(!memcmp(&dual->dim[i], &l->dim[i], sizeof l->dim[i]));
        LAW(layout_same_mesh(l, dual) && dual->faces == l->faces);
        if (sample.desc.dtype != WEFT_BOOL) {
            weft_layout *one = merged();
            LAW(!weft_layout_dual(dual, &again));
            LAW(weft_layout_equal(again, one));
            weft_layout_free(again);
            weft_layout_free(one);
        }
        tried++;
        weft_layout_free(dual);
        weft_layout_free(l);
    }
    assert_true(tried > 4 * refused && refused > 0);
}

static void duals_match_examples(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"f32[8] @x2", "f32[8] @x2 +sum(x)"},
        {"f32[8/x] @x2", "f32[8/x] @x2"},
        {"f32[8] @x2 +sum(x)", "f32[8] @x2"},
        {"f32[8/x~1] @x2", "f32[8/x~1] @x2 +sum(~)"},
        {"f32[8/x~1o] @x2.y3=5..10", "f32[8/x~1o] @x2.y3=5..10 +sum(y,~)"},
        {"f32[8/x~1] @x2.y3 +sum(~)", "f32[8/x~1] @x2.y3 +sum(y)"},
        {"bool[8/x] @x2", "bool[8/x] @x2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_layout *l = parse(cases[i][0]), *want = parse(cases[i][1]), *dual = NULL;
        assert_int_equal(weft_layout_dual(l, &dual), 0);
        assert_true(weft_layout_equal(dual, want));
        weft_layout_free(l);
        weft_layout_free(want);
        weft_layout_free(dual);
    }
}

/* ---- splits worked out by hand ---- */

/* Lengths of the interior of the one dim on ranks 0, 1, 2, ... and the first position of each, or -1. */
struct by_hand {
    const char *text;
    int64_t len[8], at[8];
};

static void splits_match_results_by_hand(void **state)
{
    (void)state;
    static const struct by_hand cases[] = {
        {"u8[7/x] @x4", {2, 2, 2, 1}, {0, 2, 4, 6}},
        {"u8[3/x] @x8", {1, 1, 1, 0, 0, 0, 0, 0}, {0, 1, 2, -1, -1, -1, -1, -1}},
        {"u8[9/x] @x8", {2, 2, 2, 2, 1, 0, 0, 0}, {0, 2, 4, 6, 8, -1, -1, -1}},
        {"u8[8/x] @x3", {3, 3, 2}, {0, 3, 6}},
        {"u8[0/x] @x2", {0, 0}, {-1, -1}},
        {"u8[5] @x2", {5, 5}, {0, 0}},
        /* 10 by a: 5, 5; each 5 by b: 2, 2, 1, 0 -> ceil(5/4) = 2 */
        {"u8[10/a/b] @a2.b4", {2, 2, 1, 0, 2, 2, 1, 0}, {0, 2, 4, -1, 5, 7, 9, -1}},
        /* 10 by b: 3, 3, 3, 1; each by a: 2, 1 and 1, 0. Ranks are (a, b). */
        {"u8[10/b/a] @a2.b4", {2, 2, 2, 1, 1, 1, 1, 0}, {0, 3, 6, 9, 2, 5, 8, -1}},
        /* PartitionSpec(('a', 'b')) on a mesh written b first: ranks are (b, a), pieces go by a, then b. */
        {"u8[8/a/b] @b2.a4", {1, 1, 1, 1, 1, 1, 1, 1}, {0, 2, 4, 6, 1, 3, 5, 7}},
        {"u8[8/a/b] @a4.b2", {1, 1, 1, 1, 1, 1, 1, 1}, {0, 1, 2, 3, 4, 5, 6, 7}},
        /* Blocks of 2 in turn: 0 1 | 2 3 | 4 5 | 6 */
        {"u8[7/x:2] @x2", {4, 3}, {0, 2}},
        {"u8[7/x:3] @x3", {3, 3, 1}, {0, 3, 6}},
        {"u8[7/x:9] @x3", {7, 0, 0}, {0, -1, -1}},
        /* Blocks of 3 over a (0 1 2, 6 7 8 | 3 4 5, 9 10), then blocks of 2 of those over b. */
        {"u8[11/a:3/b:2] @a2.b2", {4, 2, 3, 2}, {0, 2, 3, 5}},
        {"u8[7/x~2] @x4", {2, 2, 2, 1}, {0, 2, 4, 6}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_layout *l = parse(cases[i].text);
        for (int r = 0; r < weft_layout_ranks(l); r++) {
            weft_local local;
            weft_box box;
            size_t n;
            assert_int_equal(weft_layout_local(l, r, &local), 0);
            assert_int_equal(local.inner[0], cases[i].len[r]);
            assert_int_equal(weft_layout_boxes(l, r, &box, 1, &n), 0);
            assert_int_equal(n > 0 ? box.at[0] : -1, cases[i].at[r]);
        }
        weft_layout_free(l);
    }
}

/* ---- sizes ---- */

static void sizes_beyond_32_bits_are_right(void **state)
{
    (void)state;
    weft_layout *l = parse("f64[6000000000/x,3/y:1~0] @x2.y3=2..7");
    weft_local local;
    assert_int_equal(weft_layout_local(l, 7, &local), 0);
    assert_int_equal(local.count, 3000000000);
    assert_int_equal(local.bytes, 24000000000);
    weft_box box;
    size_t n;
    assert_int_equal(weft_layout_boxes(l, 7, &box, 1, &n), 0);
    assert_int_equal(n, 1);
    assert_int_equal(box.at[0], 3000000000);
    assert_int_equal(box.len[0], 3000000000);
    assert_int_equal(box.at[1], 2);
    weft_layout_free(l);

    l = parse("u8[4611686018427387904/x~0:0] @x2147483647");
    assert_int_equal(weft_layout_ranks(l), INT32_MAX);
    assert_int_equal(weft_layout_local(l, 0, &local), 0);
    assert_int_equal(local.count, 2147483650); /* ceil(2^62 / (2^31 - 1)) */
    assert_int_equal(weft_layout_local(l, INT32_MAX - 1, &local), 0);
    assert_int_equal(local.count, 4); /* what is left: 2^62 - (2^31 - 2) * (2^31 + 2) */
    assert_int_equal(weft_layout_local(l, INT32_MAX, &local), 0);
    assert_false(local.holds);
    weft_layout_free(l);
}

/* A rank with more boxes than memory has room for can still be counted, and its first boxes read. */
static void more_boxes_than_memory_can_be_counted(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t n;
    } cases[] = {
        {"u8[4611686018427387904/x:1] @x2", (size_t)1 << 61},
        {"u8[4611686018427387904/x:1] @x4", (size_t)1 << 60},
        {"u8[2147483648/x:1,2147483648/y:1] @x2.y2", (size_t)1 << 60},
        {"u8[1099511627776/x:2/y:1] @x2.y2", (size_t)1 << 38},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_layout *l = parse(cases[i].text);
        weft_box boxes[5];
        size_t n;
        assert_int_equal(weft_layout_boxes(l, 0, NULL, 0, &n), 0);
        assert_int_equal(n, cases[i].n);
        assert_int_equal(weft_layout_boxes(l, 0, boxes, 5, &n), 0);
        assert_int_equal(n, cases[i].n);
        int last = l->ndim - 1;
        for (int k = 0; k < 5; k++)
            assert_int_equal(boxes[k].local[last], k);
        weft_layout_free(l);
    }
}

static void sizes_beyond_the_limits_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool fits;
    } cases[] = {
        {"u8[4611686018427387904] @x1", true},
        {"u8[4611686018427387905] @x1", false},
        {"f32[1152921504606846976] @x1", true},
        {"f32[1152921504606846977] @x1", false},
        {"f64[576460752303423488,0] @x1", true},
        {"f64[576460752303423489,0] @x1", false},
        {"u8[4611686018427387903~1:0] @x1", true},
        {"u8[4611686018427387903~1] @x1", false},
        {"u8[0~4611686018427387904:0] @x1", true},
        {"u8[0~9223372036854775807] @x1", false},
        {"u8[2147483648,2147483648] @x1", true},
        {"u8[2147483648,2147483649] @x1", false},
        {"u8[9223372036854775807] @x1", false},
        {"u8[1] @x2147483647", true},
        {"u8[1] @x2147483648", false},
        {"u8[1] @x46341.y46340", true},
        {"u8[1] @x46341.y46341", false},
        {"u8[1] @x4294967296.y4294967296", false},
        {"u8[1] @x1=2147483646", true},
        {"u8[1] @x1=2147483647", false},
        {"u8[1] @x2147483647=0..2147483646", true},
        {"u8[1] @x2147483646=1..2147483646", true},
        {"u8[9/x:9223372036854775807] @x3", true},
        {"u8[3~3072o] @x1", true},
        {"u8[3~3073o] @x1", false},
        {"u8[3~0:3073o] @x1", false},
        {"u8[3~3073] @x1", true},
        {"u8[0~3073o] @x1", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_layout *l = NULL;
        int rc = weft_layout_parse(cases[i].text, &l);
        if (rc != (cases[i].fits ? 0 : WEFT_EINVAL))
            print_error("%s: %s\n", cases[i].text, rc ? weft_errmsg() : "was taken");
        assert_int_equal(rc, cases[i].fits ? 0 : WEFT_EINVAL);
        weft_layout_free(l);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_holds_what_the_definitions_say),
        cmocka_unit_test(meshes_of_any_ranks_find_their_index),
        cmocka_unit_test(dual_of_dual_merges_sums),
        cmocka_unit_test(duals_match_examples),
        cmocka_unit_test(splits_match_results_by_hand),
        cmocka_unit_test(sizes_beyond_32_bits_are_right),
        cmocka_unit_test(more_boxes_than_memory_can_be_counted),
        cmocka_unit_test(sizes_beyond_the_limits_are_refused),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
