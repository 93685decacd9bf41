/* Which pieces hold a position: against the oracle piece by piece, against a formula for sizes
 * that no list has room for, and how few pieces are looked at in a large world. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "layout/layout.h"
#include "support/layout_oracle.h"
#include "support/share.h"
#include "support/suite.h"

static struct sample sample;
#define LAW(holds) SAMPLE_LAW(sample, holds)

/* ---- visits ---- */

enum { VISITS = 70000 };
struct visits {
    size_t n, stop; /* stop: answer 7 at this visit, 0 for never */
    int64_t piece[VISITS];
};
static struct visits visits;

static int note(void *arg, int64_t piece)
{
    struct visits *v = arg;
    assert_true(v->n < VISITS);
    v->piece[v->n++] = piece;
    return v->n == v->stop ? 7 : 0;
}

static void look(const weft_layout *l, int dim, const struct runs *q, bool ghosts)
{
    struct arena arena = {0};
    visits.n = visits.stop = 0;
    int rc = layout_pieces_at(l, dim, q, ghosts, &arena, note, &visits);
    arena_free(&arena);
    assert_int_equal(rc, 0);
    for (size_t i = 0; i < visits.n; i++) {
        assert_in_range(visits.piece[i], 0, l->dim[dim].pieces - 1);
        if (i)
            assert_true(visits.piece[i] > visits.piece[i - 1]);
    }
}

/* ---- small: every piece against the oracle ---- */

/* Positions of the query as a set; the runs may overlap and come in any order. */
static void random_query(struct random *g, int64_t extent, struct runs *q, bool *asked)
{
    for (int64_t k = extent ? random_in(g, 0, 4) : 0; k > 0; k--) {
        struct run r = {.at = random_in(g, 0, extent - 1), .n = 1};
        r.len = random_in(g, 1, random_once_in(g, 2) ? extent - r.at : 1);
        if (random_once_in(g, 2)) {
            r.step = r.len + random_in(g, 0, random_once_in(g, 2) ? extent : 4);
            r.n = random_in(g, 1, (extent - r.at - r.len) / r.step + 1);
            r.tostep = r.len;
        }
        assert_int_equal(runs_add(q, r), 0);
        for (int64_t i = 0; i < r.n; i++)
            for (int64_t o = 0; o < r.len; o++)
                asked[r.at + i * r.step + o] = true;
    }
}

/* A mesh position whose coordinate along the dim is the piece. */
static void piece_by_oracle(const weft_layout *l, int dim, int64_t piece, struct oracle *o)
{
    int64_t index = 0, stride = 1;
    for (int a = sample.desc.naxes - 1; a >= 0; a--) {
        int64_t rest = piece;
        for (int k = sample.dims[dim].nsplits - 1; k >= 0; k--) {
            int b = oracle_axis(&sample, sample.dims[dim].splits[k].axis);
            if (a == b)
                index += rest % sample.axes[b].size * stride;
            rest /= sample.axes[b].size;
        }
        stride *= sample.axes[a].size;
    }
    assert_int_equal(layout_piece_offset(l, dim, piece), index);
    oracle_dim(&sample, dim, index, o);
}

struct tally {
    int64_t held, extra;
};

static void check_query(const weft_layout *l, int dim, const struct runs *q, const bool *asked, bool ghosts,
                        struct tally *t)
{
    static struct oracle o;
    look(l, dim, q, ghosts);
    size_t next = 0;
    int64_t held = 0, extra = 0;
    for (int64_t piece = 0; piece < l->dim[dim].pieces; piece++) {
        piece_by_oracle(l, dim, piece, &o);
        bool holds = false;
        for (int64_t k = ghosts ? 0 : o.first; k < (ghosts ? o.room : o.first + o.n); k++)
            holds = holds || (o.slot[k] >= 0 && asked[o.slot[k]]);
        bool visited = next < visits.n && visits.piece[next] == piece;
        next += visited;
        LAW(visited || !holds);
        held += holds;
        extra += visited && !holds;
    }
    LAW(next == visits.n);
    LAW(extra <= 2 * held + 2);
    t->held += held;
    t->extra += extra;
}

static void every_piece_that_holds_is_visited(void **state)
{
    (void)state;
    static const struct sample_options shapes[] = {
        {.dims = 1, .axes = 3, .mesh = 40, .extent = 60, .split = true},
        {.dims = 1, .axes = 3, .mesh = 40, .extent = 60, .ghosts = 9, .split = true},
        {.dims = 2, .axes = 5, .mesh = 60, .extent = 200, .ghosts = 3},
        {.dims = 1, .axes = 2, .mesh = 4, .extent = 6, .ghosts = 20, .split = true},
    };
    struct random g = {1};
    struct arena arena = {0};
    struct tally t = {0};
    for (int64_t cases = test_share(20000, 200000); cases > 0; cases--) {
        sample_desc(&g, &sample, &shapes[cases % 4]);
        sample_text(&g, &sample, false);
        weft_layout *l = NULL;
        LAW(!weft_layout_create(&sample.desc, &l));
        for (int d = 0; d < l->ndim; d++) {
            bool asked[ORACLE_MOST] = {false};
            struct runs q = {.arena = &arena};
            random_query(&g, l->dim[d].extent, &q, asked);
            check_query(l, d, &q, asked, false, &t);
            check_query(l, d, &q, asked, true, &t);
        }
        weft_layout_free(l);
        arena_reset(&arena);
    }
    arena_free(&arena);
    /* Pieces that hold nothing are visited now and then, where that saves looking. */
    assert_true(t.extra * 50 <= t.held);
}

static void visit_stops_when_told(void **state)
{
    (void)state;
    static const char *const texts[] = {"u8[64/x] @x16", "u8[64/x/y] @x4.y4", "u8[64/x:2] @x16",
                                        "u8[64/x:8/y:2] @x4.y4", "u8[64/x~3o] @x16"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        for (size_t stop = 1; stop <= 16; stop++) {
            weft_layout *l = NULL;
            assert_int_equal(weft_layout_parse(texts[i], &l), 0);
            struct arena arena = {0};
            struct run all = {.at = 0, .len = 64, .n = 1};
            struct runs q = {&all, 1, 1, NULL};
            visits.n = 0;
            visits.stop = stop;
            assert_int_equal(layout_pieces_at(l, 0, &q, true, &arena, note, &visits), 7);
            assert_int_equal(visits.n, stop);
            arena_free(&arena);
            weft_layout_free(l);
        }
}

/* ---- large: the owner of one position by formula ---- */

/* The piece that holds position x of a dim, and its place there. Numbers may need more than 64 bits on the way. */
static int64_t owner(const struct sample *s, int dim, int64_t x, int64_t *place)
{
    const weft_dim *d = &s->dims[dim];
    int64_t n = d->extent, piece = 0;
    for (int k = 0; k < d->nsplits; k++) {
        int64_t p = s->axes[oracle_axis(s, d->splits[k].axis)].size, block = d->splits[k].block, c, left;
        if (!block) {
            int64_t size = n / p + (n % p > 0);
            c = x / size;
            x %= size;
            left = n - c * size;
            n = left < size ? left : size;
        } else {
            int64_t b = x / block, whole = n / block; /* whole blocks are dealt first, the rest goes to the next */
            c = b % p;
            x = b / p * block + x % block;
            n = (whole / p + (c < whole % p)) * block + (c == whole % p ? n % block : 0);
        }
        piece = piece * p + c;
    }
    *place = d->lo + x;
    return piece;
}

/* Blocks inside blocks make a run for each way in which they meet: those with a long period are left out here. */
static bool few_runs(const struct sample *s, const weft_dim *d)
{
    int blocks = 0;
    int64_t period = 1;
    for (int k = 0; k < d->nsplits; k++)
        if (d->splits[k].block && blocks++)
            period *=
                s->axes[oracle_axis(s, d->splits[k].axis)].size * (d->splits[k].block < 9 ? d->splits[k].block : 9999);
    return period < 5000;
}

static void check_owner(const weft_layout *l, int dim, int64_t x)
{
    struct arena arena = {0};
    struct runs inner = {.arena = &arena};
    struct pair_runs both = {.arena = &arena};
    struct run one = {.at = x, .len = 1, .n = 1};
    struct runs q = {&one, 1, 1, NULL};
    int64_t place, extent, piece = owner(&sample, dim, x, &place);
    look(l, dim, &q, false);
    LAW(visits.n == 1 && visits.piece[0] == piece);
    LAW(!layout_piece_interior(l, dim, piece, &inner));
    LAW(!runs_join(&inner, &q, &both));
    LAW(both.n == 1 && both.v[0].at == x && both.v[0].a == place && both.v[0].len == 1 && both.v[0].n == 1);
    int64_t room = layout_piece_extent(l, dim, piece, &extent);
    LAW(runs_count(&inner) == extent && place < room - sample.dims[dim].hi);
    arena_free(&arena);
}

static void owners_in_large_tensors_match_the_formula(void **state)
{
    (void)state;
    static const struct sample_options shapes[] = {
        {.dims = 1, .axes = 3, .mesh = 60000, .extent = INT64_C(1) << 59, .ghosts = INT64_C(1) << 50, .split = true},
        {.dims = 2, .axes = 4, .mesh = INT32_MAX, .extent = INT64_C(1) << 59, .split = true},
        {.dims = 2, .axes = 4, .mesh = 5000, .extent = INT64_C(1) << 33, .ghosts = 5, .split = true},
    };
    struct random g = {2};
    int64_t checked = 0;
    for (int64_t cases = test_share(20000, 200000); cases > 0; cases--) {
        sample_desc(&g, &sample, &shapes[cases % 3]);
        sample.desc.dtype = WEFT_U8;
        sample.desc.nfolds = 0;
        if (sample.desc.ndim && !sample.dims[0].lo && !sample.dims[0].hi && random_once_in(&g, 4))
            sample.dims[0].extent <<= 3; /* up to 2^62 */
        sample_text(&g, &sample, false);
        weft_layout *l = NULL;
        if (weft_layout_create(&sample.desc, &l))
            continue; /* two dims beyond 2^62 */
        for (int d = 0; d < l->ndim; d++) {
            int64_t n = l->dim[d].extent;
            if (!n || !few_runs(&sample, &sample.dims[d]))
                continue;
            check_owner(l, d, 0);
            check_owner(l, d, n - 1);
            for (int k = 0; k < 4; k++)
                check_owner(l, d, random_in(&g, 0, n - 1));
            checked++;
        }
        weft_layout_free(l);
    }
    assert_true(checked > test_share(20000, 200000) / 4);
}

/* ---- how much is looked at ---- */

struct cost {
    const char *text;
    struct run q;
    bool ghosts;
    size_t most; /* visits */
};

/* 65,536 pieces and a small question: few are visited, and little memory is used to find them. */
static void small_questions_visit_few_pieces(void **state)
{
    (void)state;
    static const struct cost cases[] = {
        {"u8[1048576/x] @x65536", {.at = 5000, .len = 40, .n = 1}, false, 4},
        {"u8[1048576/x~1] @x65536", {.at = 5000, .len = 40, .n = 1}, true, 6},
        {"u8[1048576/x~8o] @x65536", {.at = 0, .len = 1, .n = 1}, true, 3},
        {"u8[1048576/x/y] @x256.y256", {.at = 5000, .len = 40, .n = 1}, false, 4},
        {"u8[1048576/x/y] @y256.x256", {.at = 5000, .len = 2, .n = 9, .step = 100000}, false, 18},
        {"u8[1048576/x:4] @x65536", {.at = 5000, .len = 40, .n = 1}, false, 11},
        {"u8[1048576/x:4] @x65536", {.at = 5000, .len = 40, .n = 2, .step = 262144}, false, 11},
        {"u8[1048576/x:4] @x65536", {.at = 5000, .len = 40, .n = 2, .step = 262144}, true, 11},
        {"u8[1048576/x:64/y:4] @x256.y256", {.at = 5000, .len = 40, .n = 1}, false, 11},
        {"u8[1048576/x/y:4] @x256.y256", {.at = 5000, .len = 40, .n = 1}, false, 11},
        {"u8[1048576/x:64/y] @x256.y256", {.at = 5000, .len = 40, .n = 1}, false, 11},
        {"u8[4398046511104/x:64] @x65536", {.at = 7, .len = 1, .n = 1 << 20, .step = 4194304}, false, 1},
        {"u8[4398046511104/x] @x65536", {.at = 7, .len = 1, .n = 1 << 20, .step = 64}, false, 3},
        {"u8[4398046511104/x:4194304] @x65536", {.at = 7, .len = 1, .n = 1 << 20, .step = 4}, false, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_layout *l = NULL;
        struct arena arena = {0};
        struct run r = cases[i].q;
        struct runs q = {&r, 1, 1, NULL};
        assert_int_equal(weft_layout_parse(cases[i].text, &l), 0);
        visits.n = visits.stop = 0;
        assert_int_equal(layout_pieces_at(l, 0, &q, cases[i].ghosts, &arena, note, &visits), 0);
        if (visits.n < 1 || visits.n > cases[i].most || arena.total > 65536)
            print_error("%s: %zu visits, %zu bytes\n", cases[i].text, visits.n, arena.total);
        assert_in_range(visits.n, 1, cases[i].most);
        assert_in_range(arena.total, 0, 65536);
        arena_free(&arena);
        weft_layout_free(l);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_piece_that_holds_is_visited),
        cmocka_unit_test(visit_stops_when_told),
        cmocka_unit_test(owners_in_large_tensors_match_the_formula),
        cmocka_unit_test(small_questions_visit_few_pieces),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
