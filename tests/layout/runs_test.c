/* Strided runs against explicit sets: what a join, a cut and an addition give is written out
 * element by element and compared. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layout/runs.h"
#include "support/random.h"
#include "support/share.h"
#include "support/suite.h"
#include "weft.h"

/* One element of a join; of a list of runs, b is 0. */
struct element {
    int64_t at, a, b;
};
enum { MOST = 1 << 16 };
struct elements {
    size_t n;
    struct element v[MOST];
};
static struct elements got, want; /* large, so not on the stack */

static void put(struct elements *e, int64_t at, int64_t a, int64_t b)
{
    assert_true(e->n < MOST);
    e->v[e->n++] = (struct element){at, a, b};
}

static int order(const void *x, const void *y)
{
    const struct element *p = x, *q = y;
    if (p->at != q->at)
        return p->at < q->at ? -1 : 1;
    if (p->a != q->a)
        return p->a < q->a ? -1 : 1;
    return p->b < q->b ? -1 : p->b > q->b;
}

static bool same(const struct elements *x, const struct elements *y)
{
    return x->n == y->n && (!x->n || !memcmp(x->v, y->v, x->n * sizeof *x->v));
}

/* Elements of a join in the order of its list, in units of `unit` positions that lie together. */
static void write_pairs(const struct pair_run *v, size_t n, int64_t unit, struct elements *out)
{
    for (size_t k = 0; k < n; k++)
        for (int64_t i = 0; i < v[k].n; i++)
            for (int64_t o = 0; o < v[k].len; o += unit)
                put(out, v[k].at + i * v[k].step + o, v[k].a + i * v[k].astep + o, v[k].b + i * v[k].bstep + o);
}

static void write_runs(const struct runs *l, struct elements *out)
{
    for (size_t k = 0; k < l->n; k++)
        for (int64_t i = 0; i < l->v[k].n; i++)
            for (int64_t o = 0; o < l->v[k].len; o++)
                put(out, l->v[k].at + i * l->v[k].step + o, l->v[k].to + i * l->v[k].tostep + o, 0);
}

static bool well_formed(const struct pair_runs *l)
{
    for (size_t k = 0; k < l->n; k++) {
        const struct pair_run *r = &l->v[k];
        if (r->n < 1 || r->len < 1)
            return false;
        if (r->n == 1 ? r->step || r->astep || r->bstep : r->step < r->len)
            return false;
    }
    return true;
}

/* ---- random lists ---- */

/* A run of positions below `room`. Each position of one run has a place of its own. */
static struct run random_run(struct random *g, int64_t room)
{
    struct run r = {0};
    r.len = random_once_in(g, 2) ? 1 : random_in(g, 1, room / 3 + 1);
    r.n = random_once_in(g, 3) ? 1 : random_in(g, 1, room);
    r.step = r.len + (random_once_in(g, 4) ? 0 : random_in(g, 0, 9));
    r.at = random_in(g, 0, room - 1);
    r.len = r.at + r.len > room ? room - r.at : r.len;
    while (r.at + (r.n - 1) * r.step + r.len > room)
        r.n--;
    r.to = random_in(g, 0, 100);
    r.tostep = r.len + (random_once_in(g, 2) ? 0 : random_in(g, 0, 5));
    if (r.n == 1)
        r.step = r.tostep = 0;
    return r;
}

static void random_runs(struct random *g, int64_t room, struct runs *out)
{
    for (int64_t k = random_in(g, 0, 4); k > 0; k--)
        assert_int_equal(runs_add(out, random_run(g, room)), 0);
}

static void print_runs(const char *name, const struct runs *l)
{
    for (size_t i = 0; i < l->n; i++) {
        const struct run *r = &l->v[i];
        print_error("%s: {.at = %lld, .len = %lld, .n = %lld, .step = %lld, .to = %lld, .tostep = %lld}\n", name,
                    (long long)r->at, (long long)r->len, (long long)r->n, (long long)r->step, (long long)r->to,
                    (long long)r->tostep);
    }
}

/* ---- joins ---- */

/* All elements that stand in run x and in run y, in sorted order. */
static void join_by_hand(const struct run *x, const struct run *y, struct elements *out)
{
    for (int64_t i = 0; i < x->n; i++)
        for (int64_t o = 0; o < x->len; o++)
            for (int64_t j = 0; j < y->n; j++) {
                int64_t at = x->at + i * x->step + o, p = at - (y->at + j * y->step);
                if (p >= 0 && p < y->len)
                    put(out, at, x->to + i * x->tostep + o, y->to + j * y->tostep + p);
            }
    if (out->n)
        qsort(out->v, out->n, sizeof *out->v, order);
}

/* Reads the list run pair by run pair: by a's runs, then b's, each element once. */
static bool join_is_right(const struct runs *a, const struct runs *b, const struct pair_runs *out)
{
    if (!well_formed(out))
        return false;
    size_t k = 0;
    for (size_t i = 0; i < a->n; i++)
        for (size_t j = 0; j < b->n; j++) {
            want.n = got.n = 0;
            join_by_hand(&a->v[i], &b->v[j], &want);
            while (got.n < want.n && k < out->n)
                write_pairs(&out->v[k++], 1, 1, &got);
            if (got.n)
                qsort(got.v, got.n, sizeof *got.v, order);
            if (!same(&got, &want))
                return false;
        }
    return k == out->n;
}

static void join_of_random_lists_matches_sets(void **state)
{
    (void)state;
    struct random g = {1};
    struct arena arena = {0};
    for (int64_t cases = test_share(40000, 400000); cases > 0; cases--) {
        int64_t room = random_in(&g, 1, 70);
        struct runs a = {.arena = &arena}, b = {.arena = &arena};
        struct pair_runs out = {.arena = &arena};
        random_runs(&g, room, &a);
        random_runs(&g, room, &b);
        assert_int_equal(runs_join(&a, &b, &out), 0);
        if (!join_is_right(&a, &b, &out)) {
            print_runs("a", &a);
            print_runs("b", &b);
            fail();
        }
        arena_reset(&arena);
    }
    arena_free(&arena);
}

/* Every pair of two strides and lengths, so that all the ways to meet occur. */
static void join_of_all_small_strides_matches_sets(void **state)
{
    (void)state;
    struct arena arena = {0};
    for (int64_t s = 1; s <= 7; s++)
        for (int64_t t = 1; t <= 7; t++)
            for (int64_t x = 1; x <= s; x += 2)
                for (int64_t y = 1; y <= t; y++)
                    for (int64_t shift = -6; shift <= 6; shift += 3) {
                        struct runs a = {.arena = &arena}, b = {.arena = &arena};
                        struct pair_runs out = {.arena = &arena};
                        runs_add(&a, (struct run){.at = 20, .len = x, .n = 6, .step = s, .to = 5, .tostep = x});
                        runs_add(&b,
                                 (struct run){.at = 20 + shift, .len = y, .n = 5, .step = t, .to = 3, .tostep = y + 1});
                        assert_int_equal(runs_join(&a, &b, &out), 0);
                        if (!join_is_right(&a, &b, &out)) {
                            print_runs("a", &a);
                            print_runs("b", &b);
                            fail();
                        }
                        arena_reset(&arena);
                    }
    arena_free(&arena);
}

static void add_stretched(struct runs *l, struct run r, int64_t unit, int64_t offset)
{
    r.at = r.at * unit + offset;
    r.len *= unit;
    r.step *= unit;
    r.to = r.to * unit + offset;
    r.tostep *= unit;
    assert_int_equal(runs_add(l, r), 0);
}

/* Positions stretched by a large unit and moved far out meet as the small ones do. */
static void join_of_large_numbers_matches_small_ones(void **state)
{
    (void)state;
    struct random g = {2};
    struct arena arena = {0};
    for (int64_t cases = test_share(10000, 100000); cases > 0; cases--) {
        struct runs a = {.arena = &arena}, b = {.arena = &arena}, c = {.arena = &arena}, d = {.arena = &arena};
        struct pair_runs small = {.arena = &arena}, large = {.arena = &arena};
        random_runs(&g, 60, &a);
        random_runs(&g, 60, &b);
        int64_t unit = ((int64_t)1 << random_in(&g, 0, 52)) + random_in(&g, 0, 1000);
        int64_t offset = (int64_t)1 << random_in(&g, 40, 59);
        for (size_t i = 0; i < a.n; i++)
            add_stretched(&c, a.v[i], unit, offset);
        for (size_t i = 0; i < b.n; i++)
            add_stretched(&d, b.v[i], unit, offset);
        assert_int_equal(runs_join(&a, &b, &small), 0);
        assert_int_equal(runs_join(&c, &d, &large), 0);
        assert_true(well_formed(&large));
        assert_int_equal(runs_pair_count(&large), runs_pair_count(&small) * unit);
        want.n = got.n = 0;
        write_pairs(small.v, small.n, 1, &want);
        write_pairs(large.v, large.n, unit, &got);
        for (size_t i = 0; i < got.n; i++) {
            assert_true((got.v[i].at - offset) % unit == 0);
            got.v[i] = (struct element){(got.v[i].at - offset) / unit, (got.v[i].a - offset) / unit,
                                        (got.v[i].b - offset) / unit};
        }
        if (got.n)
            qsort(got.v, got.n, sizeof *got.v, order);
        if (want.n)
            qsort(want.v, want.n, sizeof *want.v, order);
        assert_true(same(&got, &want));
        arena_reset(&arena);
    }
    arena_free(&arena);
}

/* Two runs that repeat very often, looked at through a small window: only what lies there counts. */
static void join_of_many_repeats_in_a_window_matches_sets(void **state)
{
    (void)state;
    struct random g = {3};
    struct arena arena = {0};
    int64_t far = (int64_t)1 << 40;
    for (int64_t cases = test_share(10000, 100000); cases > 0; cases--) {
        struct runs a = {.arena = &arena}, w = {.arena = &arena};
        struct pair_runs out = {.arena = &arena};
        struct run r = {.at = random_in(&g, 0, 99), .len = random_in(&g, 1, 9), .to = 7};
        r.step = r.len + random_in(&g, 1, 9);
        r.n = far / random_in(&g, 1, 50);
        r.tostep = r.len;
        runs_add(&a, r);
        struct run s = {.at = r.at + random_in(&g, 0, r.n) * r.step + random_in(&g, -20, 20), .n = 1};
        s.len = random_in(&g, 1, 60);
        if (random_once_in(&g, 2)) {
            s.n = random_in(&g, 2, 9);
            s.step = s.len + random_in(&g, 0, 30);
            s.tostep = s.len + 1;
        }
        runs_add(&w, s);
        bool swap = random_once_in(&g, 2);
        assert_int_equal(swap ? runs_join(&w, &a, &out) : runs_join(&a, &w, &out), 0);
        assert_true(well_formed(&out));
        want.n = got.n = 0;
        for (int64_t j = 0; j < s.n; j++)
            for (int64_t o = 0; o < s.len; o++) {
                int64_t at = s.at + j * s.step + o, i = (at - r.at) / r.step, p = (at - r.at) % r.step;
                if (at < r.at || i >= r.n || p >= r.len)
                    continue;
                int64_t x = r.to + i * r.tostep + p, y = s.to + j * s.tostep + o;
                put(&want, at, swap ? y : x, swap ? x : y);
            }
        write_pairs(out.v, out.n, 1, &got);
        if (got.n)
            qsort(got.v, got.n, sizeof *got.v, order);
        assert_true(same(&got, &want));
        assert_in_range(out.n, 0, 3 * (size_t)s.n);
        arena_reset(&arena);
    }
    arena_free(&arena);
}

/* Two runs over the same 2^40 positions and more: every period holds what the first holds. */
static void join_of_two_endless_runs_repeats_its_first_period(void **state)
{
    (void)state;
    struct random g = {4};
    struct arena arena = {0};
    for (int64_t cases = test_share(3000, 30000); cases > 0; cases--) {
        int64_t s = random_in(&g, 2, 24), t = random_in(&g, 2, 24), times = (int64_t)1 << random_in(&g, 1, 36);
        struct run x = {.len = random_in(&g, 1, s - 1), .n = t * times, .step = s};
        struct run y = {.len = random_in(&g, 1, t - 1), .n = s * times, .step = t};
        x.at = random_in(&g, 0, s - x.len); /* within its stride: both fill [0, s * t * times) */
        y.at = random_in(&g, 0, t - y.len);
        x.tostep = x.len;
        y.tostep = y.len;
        struct runs a = {.arena = &arena}, b = {.arena = &arena};
        struct pair_runs out = {.arena = &arena};
        runs_add(&a, x);
        runs_add(&b, y);
        assert_int_equal(runs_join(&a, &b, &out), 0);
        assert_true(well_formed(&out));
        int64_t in_period = 0;
        for (int64_t p = 0; p < s * t; p++)
            in_period += p % s >= x.at && p % s < x.at + x.len && p % t >= y.at && p % t < y.at + y.len;
        assert_int_equal(runs_pair_count(&out), in_period * times);
        for (size_t k = 0; k < out.n; k++) { /* any element of any run */
            const struct pair_run *r = &out.v[k];
            int64_t i = random_in(&g, 0, r->n - 1), o = random_in(&g, 0, r->len - 1), at = r->at + i * r->step + o;
            assert_in_range(at % s, x.at, x.at + x.len - 1);
            assert_in_range(at % t, y.at, y.at + y.len - 1);
            assert_int_equal(r->a + i * r->astep + o, at / s * x.len + at % s - x.at);
            assert_int_equal(r->b + i * r->bstep + o, at / t * y.len + at % t - y.at);
        }
        assert_in_range(out.n, 0, (size_t)(s + t)); /* at most one period of runs */
        arena_reset(&arena);
    }
    arena_free(&arena);
}

/* A few long blocks against many short ones make a few runs, not one for each short block of a long one. */
static void join_of_long_and_short_blocks_is_small(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct run few = {.at = 0, .len = 1 << 20, .n = 16, .step = 2 << 20, .tostep = 1 << 20};
    struct run many = {.at = 1, .len = 1, .n = 16 << 20, .step = 2, .tostep = 1};
    for (int swap = 0; swap < 2; swap++) {
        struct runs a = {.arena = &arena}, b = {.arena = &arena};
        struct pair_runs out = {.arena = &arena};
        runs_add(&a, swap ? many : few);
        runs_add(&b, swap ? few : many);
        assert_int_equal(runs_join(&a, &b, &out), 0);
        assert_int_equal(runs_pair_count(&out), 8 << 20);
        assert_in_range(out.n, 1, 48);
    }
    arena_free(&arena);
}

/* Blocks of odd sizes that go round a billion times: refused before memory is full. */
static void join_beyond_the_limit_is_refused(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct runs a = {.arena = &arena}, b = {.arena = &arena};
    struct pair_runs out = {.arena = &arena};
    runs_add(&a, (struct run){.len = 1000000007, .n = 1 << 30, .step = 2000000014, .tostep = 1000000007});
    runs_add(&b, (struct run){.len = 1000000009, .n = 1 << 30, .step = 2000000018, .tostep = 1000000009});
    assert_int_equal(runs_join(&a, &b, &out), WEFT_EUNSUPPORTED);
    assert_string_equal(
        weft_errmsg(),
        "layout: blocks meet in more than 4194304 ways along a dim: block sizes with a common factor meet in fewer");
    arena_free(&arena);
}

/* ---- cuts ---- */

static void cuts_of_random_joins_match_sets(void **state)
{
    (void)state;
    struct random g = {5};
    struct arena arena = {0};
    for (int64_t cases = test_share(20000, 200000); cases > 0; cases--) {
        struct runs a = {.arena = &arena}, b = {.arena = &arena};
        struct pair_runs all = {.arena = &arena}, out = {.arena = &arena};
        random_runs(&g, 50, &a);
        random_runs(&g, 50, &b);
        assert_int_equal(runs_join(&a, &b, &all), 0);
        int64_t count = runs_pair_count(&all), lo = random_in(&g, 0, count + 1), hi = random_in(&g, 0, count + 2);
        assert_int_equal(runs_pair_cut(&all, lo, hi, &out), 0);
        assert_true(well_formed(&out));
        want.n = got.n = 0;
        write_pairs(all.v, all.n, 1, &want);
        write_pairs(out.v, out.n, 1, &got); /* in the order of the list, not sorted */
        hi = hi < count ? hi : count;
        assert_int_equal(got.n, hi > lo ? hi - lo : 0);
        if (hi > lo)
            assert_memory_equal(got.v, want.v + lo, got.n * sizeof *got.v);
        arena_reset(&arena);
    }
    arena_free(&arena);
}

/* Cuts of a run with 2^40 repeats: neighbours end and start next to each other and lose nothing. */
static void cuts_of_many_repeats_lose_nothing(void **state)
{
    (void)state;
    struct random g = {6};
    struct arena arena = {0};
    struct pair_run r = {.at = 3, .len = 5, .n = (int64_t)1 << 40, .step = 11, .a = 2, .astep = 5, .b = 9, .bstep = 7};
    struct pair_runs all = {.v = &r, .n = 1, .cap = 1, .arena = &arena};
    for (int64_t cases = test_share(3000, 30000); cases > 0; cases--) {
        struct pair_runs out = {.arena = &arena};
        int64_t total = r.n * r.len, lo = random_in(&g, 0, total), hi = random_in(&g, lo, total);
        if (random_once_in(&g, 2))
            hi = lo + random_in(&g, 0, 30) < total ? lo + random_in(&g, 0, 30) : total;
        hi = hi < total ? hi : total;
        assert_int_equal(runs_pair_cut(&all, lo, hi, &out), 0);
        assert_true(well_formed(&out));
        assert_int_equal(runs_pair_count(&out), hi - lo);
        assert_in_range(out.n, hi > lo, 3); /* a tail, whole repeats, a head */
        for (int64_t at = lo, k = 0; at < hi; at += out.v[k].n * out.v[k].len, k++) {
            assert_int_equal(out.v[k].at, r.at + at / r.len * r.step + at % r.len);
            assert_int_equal(out.v[k].a, r.a + at / r.len * r.astep + at % r.len);
            assert_int_equal(out.v[k].b, r.b + at / r.len * r.bstep + at % r.len);
        }
        arena_reset(&arena);
    }
    arena_free(&arena);
}

/* ---- additions ---- */

static void add_keeps_elements(void **state)
{
    (void)state;
    struct random g = {7};
    struct arena arena = {0};
    for (int64_t cases = test_share(10000, 100000); cases > 0; cases--) {
        struct runs l = {.arena = &arena};
        want.n = got.n = 0;
        for (int64_t k = random_in(&g, 0, 12); k > 0; k--) {
            struct run r = random_run(&g, 40);
            if (random_once_in(&g, 3)) /* touches: may become one interval */
                r.step = r.len, r.tostep = r.len;
            if (random_once_in(&g, 6))
                r.n = random_in(&g, -3, 0);
            if (random_once_in(&g, 6))
                r.len = random_in(&g, -3, 0);
            struct runs one = {&r, 1, 1, NULL};
            write_runs(&one, &want);
            assert_int_equal(runs_add(&l, r), 0);
        }
        write_runs(&l, &got);
        assert_true(same(&got, &want));
        assert_int_equal(runs_count(&l), want.n);
        for (size_t i = 0; i < l.n; i++) {
            const struct run *r = &l.v[i];
            assert_true(r->n >= 1 && r->len >= 1);
            assert_true(r->n > 1 ? r->step >= r->len && (r->step > r->len || r->tostep != r->len)
                                 : !r->step && !r->tostep);
        }
        arena_reset(&arena);
    }
    arena_free(&arena);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(join_of_random_lists_matches_sets),
        cmocka_unit_test(join_of_all_small_strides_matches_sets),
        cmocka_unit_test(join_of_large_numbers_matches_small_ones),
        cmocka_unit_test(join_of_many_repeats_in_a_window_matches_sets),
        cmocka_unit_test(join_of_two_endless_runs_repeats_its_first_period),
        cmocka_unit_test(join_of_long_and_short_blocks_is_small),
        cmocka_unit_test(join_beyond_the_limit_is_refused),
        cmocka_unit_test(cuts_of_random_joins_match_sets),
        cmocka_unit_test(cuts_of_many_repeats_lose_nothing),
        cmocka_unit_test(add_keeps_elements),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
