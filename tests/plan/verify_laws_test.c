/* The laws that verify stands on: exact covers, overlaps and joins against brute force on small
 * grids, casts against the kernels, folds as sets of terms. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/dtype.h"
#include "base/hash.h"
#include "memory/memory.h"
#include "plan/verify/verify.h"
#include "support/random.h"
#include "support/suite.h"

/* ---- boxes ---- */

enum { SIDE = 12, CELLS = SIDE * SIDE };

static struct run random_run(struct random *g)
{
    struct run r = {.len = random_in(g, 1, 4), .n = random_in(g, 1, 3)};
    r.tostep = r.n > 1 ? random_in(g, r.len, 5) : 0;
    int64_t size = (r.n - 1) * r.tostep + r.len;
    while (size > SIDE) {
        r.n--;
        r.tostep = r.n > 1 ? r.tostep : 0;
        size = (r.n - 1) * r.tostep + r.len;
    }
    r.to = random_in(g, 0, SIDE - size);
    return r;
}

static bool in_run(const struct run *r, int64_t x)
{
    for (int64_t i = 0; i < r->n; i++)
        if (x >= r->to + i * r->tostep && x < r->to + i * r->tostep + r->len)
            return true;
    return false;
}

static void paint(const struct run *box, int ndim, int *cells)
{
    for (int64_t y = 0; y < (ndim > 1 ? SIDE : 1); y++)
        for (int64_t x = 0; x < SIDE; x++)
            cells[y * SIDE + x] += in_run(&box[0], x) && (ndim < 2 || in_run(&box[1], y));
}

static void counts_below_a_position_match_brute_force(void **state)
{
    (void)state;
    struct random g = {1};
    for (int i = 0; i < 2000; i++) {
        struct run r = random_run(&g);
        int64_t n = 0;
        for (int64_t x = 0; x <= SIDE; n += in_run(&r, x++))
            assert_int_equal(verify_cover_below(&r, x), n);
    }
}

/* Boxes that tile a square, cut by chance. */
static size_t tile(struct random *g, struct run *box, int64_t x, int64_t y, int64_t w, int64_t h)
{
    if (w * h > 1 && !random_once_in(g, 3)) {
        bool along = w > 1 && (h == 1 || random_once_in(g, 2));
        int64_t at = random_in(g, 1, (along ? w : h) - 1);
        size_t n = along ? tile(g, box, x, y, at, h) : tile(g, box, x, y, w, at);
        return n + (along ? tile(g, box + 2 * n, x + at, y, w - at, h) : tile(g, box + 2 * n, x, y + at, w, h - at));
    }
    box[0] = (struct run){.to = x, .len = w, .n = 1};
    box[1] = (struct run){.to = y, .len = h, .n = 1};
    return 1;
}

static void exact_covers_are_told_from_others(void **state)
{
    (void)state;
    struct random g = {2};
    struct run whole = {.len = SIDE, .n = 1};
    struct runs maps[2] = {{.v = &whole, .n = 1}, {.v = &whole, .n = 1}};
    int exact = 0, wrong = 0;
    for (int i = 0; i < 3000; i++) {
        struct run box[2 * CELLS + 2];
        size_t n = tile(&g, box, 0, 0, SIDE, SIDE);
        switch (random_in(&g, 0, 3)) {
        case 0: /* one moves */ box[2 * (size_t)random_in(&g, 0, (int64_t)n - 1)] = random_run(&g); break;
        case 1: /* one is missing */ memmove(box, box + 2, (--n) * 2 * sizeof *box); break;
        case 2: /* one more */
            box[2 * n] = random_run(&g);
            box[2 * n++ + 1] = random_run(&g);
            break;
        default: break;
        }
        int cells[CELLS] = {0};
        bool once = true;
        for (size_t k = 0; k < n; k++)
            paint(box + 2 * k, 2, cells);
        for (int c = 0; c < CELLS; c++)
            once = once && cells[c] == 1;
        int64_t cell[2] = {-1, -1};
        assert_int_equal(verify_cover(&(struct verify_boxes){2, n, box}, maps, NULL, cell), once);
        if (!once)
            assert_int_not_equal(cells[cell[1] * SIDE + cell[0]], 1);
        exact += once;
        wrong += !once;
    }
    assert_true(exact > 500 && wrong > 500);
}

/* Without corners: the inner square and a strip along each of its sides, one of which is cut or moved by chance. */
static void covers_without_corners_are_told_from_others(void **state)
{
    (void)state;
    struct random g = {3};
    struct run whole = {.len = SIDE, .n = 1};
    struct runs maps[2] = {{.v = &whole, .n = 1}, {.v = &whole, .n = 1}};
    for (int i = 0; i < 3000; i++) {
        struct run in[2], box[2 * CELLS + 10];
        for (int d = 0; d < 2; d++) {
            int64_t from = random_in(&g, 0, SIDE - 1);
            in[d] = (struct run){.to = from, .len = random_in(&g, 1, SIDE - from), .n = 1};
        }
        struct runs inner[2] = {{.v = &in[0], .n = 1}, {.v = &in[1], .n = 1}};
        size_t n = tile(&g, box, in[0].to, in[1].to, in[0].len, in[1].len);
        for (int d = 0; d < 2; d++)
            for (int side = 0; side < 2; side++) {
                int64_t at = side ? in[d].to + in[d].len : 0, len = side ? SIDE - at : in[d].to;
                if (!len)
                    continue;
                box[2 * n + (size_t)d] = (struct run){.to = at, .len = len, .n = 1};
                box[2 * n++ + (size_t)!d] = in[!d];
            }
        size_t changed = (size_t)random_in(&g, 0, 2 * (int64_t)n - 1);
        if (random_once_in(&g, 2)) /* no box has a corner: it moves along the inner square alone */
            box[changed] = (struct run){.to = in[changed % 2].to, .len = random_in(&g, 1, in[changed % 2].len), .n = 1};
        int cells[CELLS] = {0};
        bool once = true;
        for (size_t k = 0; k < n; k++)
            paint(box + 2 * k, 2, cells);
        for (int64_t c = 0; c < CELLS; c++) {
            bool corner = !in_run(&in[0], c % SIDE) && !in_run(&in[1], c / SIDE);
            once = once && cells[c] == !corner;
        }
        int64_t cell[2] = {-1, -1};
        assert_int_equal(verify_cover(&(struct verify_boxes){2, n, box}, maps, inner, cell), once);
        if (!once)
            assert_int_not_equal(cells[cell[1] * SIDE + cell[0]], 1);
    }
}

static void covers_of_strided_maps_are_found(void **state)
{
    (void)state;
    struct run odd = {.to = 1, .len = 1, .n = 3, .tostep = 2}, even = {.to = 0, .len = 1, .n = 3, .tostep = 2};
    struct run all = {.to = 0, .len = 6, .n = 1};
    struct run both[] = {even, odd};
    struct runs whole = {.v = &all, .n = 1}, odds = {.v = &odd, .n = 1};
    int64_t cell = -1;
    assert_int_equal(verify_cover(&(struct verify_boxes){1, 2, both}, &whole, NULL, &cell), 1);
    assert_int_equal(verify_cover(&(struct verify_boxes){1, 1, &odd}, &odds, NULL, &cell), 1);
    assert_int_equal(verify_cover(&(struct verify_boxes){1, 1, &odd}, &whole, NULL, &cell), 0);
    assert_int_equal(cell % 2, 0);
    /* Beyond 2^40 places, one of them missing. */
    struct run big = {.len = (int64_t)1 << 41, .n = 1};
    struct run parts[] = {{.len = (int64_t)1 << 40, .n = 1},
                          {.to = ((int64_t)1 << 40) + 1, .len = ((int64_t)1 << 40) - 1, .n = 1}};
    struct runs map = {.v = &big, .n = 1};
    assert_int_equal(verify_cover(&(struct verify_boxes){1, 2, parts}, &map, NULL, &cell), 0);
    assert_true(cell == (int64_t)1 << 40);
    parts[1] = (struct run){.to = (int64_t)1 << 40, .len = (int64_t)1 << 40, .n = 1};
    assert_int_equal(verify_cover(&(struct verify_boxes){1, 2, parts}, &map, NULL, &cell), 1);
}

struct hits {
    size_t n;
    const struct run *box;
};

static int count_hit(void *arg, size_t i, size_t j)
{
    struct hits *h = arg;
    int cells[CELLS] = {0}, most = 0;
    paint(h->box + 2 * i, 2, cells);
    paint(h->box + 2 * j, 2, cells);
    for (int c = 0; c < CELLS; c++)
        most = cells[c] > most ? cells[c] : most;
    assert_int_equal(most, 2);
    h->n++;
    return 0;
}

static void all_overlaps_are_found(void **state)
{
    (void)state;
    struct random g = {3};
    struct arena work = {0};
    for (int i = 0; i < 1000; i++) {
        struct run box[2 * 12];
        size_t n = (size_t)random_in(&g, 0, 12), pairs_met = 0;
        for (size_t k = 0; k < 2 * n; k++)
            box[k] = random_run(&g);
        for (size_t a = 0; a < n; a++)
            for (size_t b = 0; b < a; b++) {
                int cells[CELLS] = {0};
                bool meet = false;
                paint(box + 2 * a, 2, cells);
                paint(box + 2 * b, 2, cells);
                for (int c = 0; c < CELLS; c++)
                    meet = meet || cells[c] == 2;
                pairs_met += meet;
            }
        struct hits h = {.box = box};
        assert_int_equal(verify_cover_overlaps(&(struct verify_boxes){2, n, box}, &work, count_hit, &h), 0);
        assert_int_equal(h.n, pairs_met);
    }
    arena_free(&work);
}

/* Positions to places, the same in both? */
static void runs_within_maps_match_brute_force(void **state)
{
    (void)state;
    struct random g = {4};
    struct arena work = {0};
    int inside = 0;
    for (int i = 0; i < 20000; i++) {
        struct run list[2], r;
        size_t n = (size_t)random_in(&g, 1, 2);
        int64_t place[SIDE + 1];
        for (int x = 0; x < SIDE; x++)
            place[x] = -1;
        bool usable = true;
        for (size_t k = 0; k < n; k++) { /* a map: positions along `to`, places along `at`, the other way about */
            struct run x = random_run(&g);
            list[k] =
                (struct run){x.to, x.len, x.n, x.tostep, random_in(&g, 0, 3), x.n > 1 ? random_in(&g, x.len, 6) : 0};
            for (int64_t b = 0; b < x.n; b++)
                for (int64_t o = 0; o < x.len; o++) {
                    int64_t at = list[k].at + b * list[k].step + o;
                    usable = usable && place[at] < 0;
                    place[at] = list[k].to + b * list[k].tostep + o;
                }
        }
        struct run x = random_run(&g);
        r = (struct run){x.to, x.len, x.n, x.tostep, 0, 0};
        if (random_once_in(&g, 4)) {
            r = list[random_in(&g, 0, (int64_t)n - 1)];
            if (r.n > 1 && random_once_in(&g, 2))
                r = (struct run){.at = r.at + r.step, .len = r.len, .n = 1, .to = r.to + r.tostep};
        } else {
            r.to = place[r.at] < 0 ? 0 : place[r.at];
            r.tostep = r.n > 1 ? place[r.at + r.step] - r.to : 0;
            if (r.n > 1 && r.tostep < r.len)
                continue;
        }
        if (!usable)
            continue;
        bool all = true;
        for (int64_t b = 0; b < r.n; b++)
            for (int64_t o = 0; o < r.len; o++)
                all = all && place[r.at + b * r.step + o] == r.to + b * r.tostep + o;
        assert_int_equal(verify_place_within(&r, list, n, &work), all);
        inside += all;
    }
    assert_true(inside > 1000);
    arena_free(&work);
}

/* ---- casts ---- */

/* Bits of a source; f8e5m2sat has no infinity to begin with. */
static void any_value(struct random *g, int dtype, uint64_t *out)
{
    int part = dtype == WEFT_C64 ? WEFT_F32 : dtype == WEFT_C128 ? WEFT_F64 : dtype;
    size_t size = weft_dtype_size(part);
    bool whole = random_once_in(g, 2);
    out[0] = out[1] = 0;
    for (size_t i = 0; i < weft_dtype_size(dtype); i += size) {
        uint64_t bits = random_next(g), raw = 0;
        if (whole) { /* a number with few digits, whole or not */
            double few = (double)random_in(g, -300, 300) / (random_once_in(g, 2) ? 1 : 8);
            memory_cast_one(&raw, part, &few, WEFT_F64);
        } else {
            memcpy(&raw, &bits, size);
            raw = part == WEFT_BOOL ? raw & 1 : part == WEFT_F8E5M2SAT && (raw & 0x7f) == 0x7c ? raw - 1 : raw;
        }
        memcpy((char *)out + i, &raw, size);
    }
}

/* NaN may lose its payload on a longer way. */
static bool same_value(int dtype, const uint64_t *a, const uint64_t *b)
{
    int part = dtype == WEFT_C64 ? WEFT_F32 : dtype == WEFT_C128 ? WEFT_F64 : dtype;
    size_t size = weft_dtype_size(part);
    bool same = true;
    for (size_t i = 0; i < weft_dtype_size(dtype); i += size) {
        double x, y;
        memory_cast_one(&x, WEFT_F64, (const char *)a + i, part);
        memory_cast_one(&y, WEFT_F64, (const char *)b + i, part);
        same = same && ((dtype_is_float(part) && x != x && y != y) ||
                        memcmp((const char *)a + i, (const char *)b + i, size) == 0);
    }
    return same;
}

/* Whatever way verify lets a value take, the kernels must bring it out as the straight way does. */
static void casts_agree_with_kernels(void **state)
{
    (void)state;
    struct random g = {5};
    long taken = 0;
    for (int i = 0; i < 200000; i++) {
        struct weft_layout src = {.dtype = (int)random_in(&g, 1, DTYPE_COUNT)},
                           dst = {.dtype = (int)random_in(&g, 1, DTYPE_COUNT)};
        bool fold = random_once_in(&g, 2);
        struct verify_tensor t = {.src = &src, .dst = &dst, .acc = dtype_acc(src.dtype)};
        t.fin = weft_dtype_size(dst.dtype) < weft_dtype_size(src.dtype) ? dst.dtype : src.dtype;
        if (!dtype_castable(src.dtype, dst.dtype))
            continue;
        uint64_t id[2] = {1, 2}, value[2], want[2] = {0}, mid[2] = {0};
        struct verify_value x = verify_value_term(id, src.dtype);
        int at = src.dtype, steps = (int)random_in(&g, 1, 4);
        any_value(&g, at, value);
        if (fold) {
            struct verify_fold f;
            verify_value_fold_start(&f, WEFT_MAX);
            verify_value_fold_add(&f, &x);
            verify_value_fold_add(&f, &x);
            x = verify_value_fold_end(&f, 0, t.acc);
            memory_cast_one(mid, t.acc, value, at);
            memcpy(value, mid, sizeof value);
            at = t.acc;
            if (at == WEFT_F32) /* a fold has more digits than its terms */
                any_value(&g, at, value);
        }
        memory_cast_one(mid, t.fin, value, at);
        memory_cast_one(want, dst.dtype, mid, t.fin);
        struct verify_value expected = x;
        bool ok = true;
        for (int k = 0; k < steps && ok; k++) {
            int choice[] = {src.dtype, dst.dtype, t.acc, t.fin, (int)random_in(&g, 1, DTYPE_COUNT)};
            int to = k + 1 == steps ? dst.dtype : choice[random_in(&g, 0, 4)];
            uint64_t out[2] = {0};
            ok = verify_value_cast(&x, &t, to);
            if (!dtype_castable(at, to)) {
                assert_false(ok);
                break;
            }
            memory_cast_one(out, to, value, at);
            memcpy(value, out, sizeof value);
            at = to;
        }
        if (!ok || !verify_value_delivered(&x, &t, &expected))
            continue;
        taken++;
        if (!same_value(dst.dtype, value, want))
            fail_msg("%s to %s%s in %d casts, at last from %s: %016llx, not %016llx", weft_dtype_name(src.dtype),
                     weft_dtype_name(dst.dtype), fold ? " folded" : "", steps, weft_dtype_name(at),
                     (unsigned long long)value[0], (unsigned long long)want[0]);
    }
    assert_true(taken > 20000);
}

/* ---- folds ---- */

static struct verify_value term(uint64_t i)
{
    uint64_t id[2] = {hash_u64(1, i), hash_u64(2, i)};
    return verify_value_term(id, WEFT_F32);
}

static struct verify_value fold2(int op, struct verify_value a, struct verify_value b, int64_t div)
{
    struct verify_fold f;
    verify_value_fold_start(&f, op);
    verify_value_fold_add(&f, &a);
    verify_value_fold_add(&f, &b);
    return verify_value_fold_end(&f, div, WEFT_F32);
}

static void folds_compare_as_sets_of_terms(void **state)
{
    (void)state;
    struct verify_value a = term(1), b = term(2), c = term(3);
    struct verify_value ab_c = fold2(WEFT_SUM, fold2(WEFT_SUM, a, b, 0), c, 0);
    struct verify_value a_bc = fold2(WEFT_SUM, a, fold2(WEFT_SUM, b, c, 0), 0);
    struct verify_value cb_a = fold2(WEFT_SUM, fold2(WEFT_SUM, c, b, 0), a, 0);
    assert_true(verify_value_same_terms(&ab_c, &a_bc) && verify_value_same_terms(&ab_c, &cb_a));
    assert_true(ab_c.order != a_bc.order && ab_c.order != cb_a.order); /* the same terms, other bits */
    struct verify_fold f;
    verify_value_fold_start(&f, WEFT_SUM);
    verify_value_fold_add(&f, &a);
    verify_value_fold_add(&f, &b);
    verify_value_fold_add(&f, &c);
    struct verify_value abc = verify_value_fold_end(&f, 0, WEFT_F32);
    assert_true(verify_value_same_terms(&abc, &ab_c) &&
                abc.order == ab_c.order); /* folded from the left: the same bits */

    struct verify_value twice = fold2(WEFT_SUM, fold2(WEFT_SUM, a, b, 0), b, 0), two = fold2(WEFT_SUM, a, b, 0);
    assert_false(verify_value_same_terms(&abc, &twice) || verify_value_same_terms(&twice, &two));
    struct verify_value max = fold2(WEFT_MAX, a, b, 0), mixed = fold2(WEFT_SUM, max, c, 0);
    struct verify_value other = fold2(WEFT_MAX, two, c, 0);
    assert_false(verify_value_same_terms(&max, &two) || verify_value_same_terms(&mixed, &abc) ||
                 verify_value_same_terms(&other, &mixed));
    struct verify_value half = fold2(WEFT_SUM, a, b, 2), third = fold2(WEFT_SUM, a, b, 3);
    struct verify_value closed = fold2(WEFT_SUM, half, c, 0);
    assert_false(verify_value_same_terms(&half, &two) || verify_value_same_terms(&half, &third) ||
                 verify_value_same_terms(&closed, &abc));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_below_a_position_match_brute_force),
        cmocka_unit_test(exact_covers_are_told_from_others),
        cmocka_unit_test(covers_without_corners_are_told_from_others),
        cmocka_unit_test(covers_of_strided_maps_are_found),
        cmocka_unit_test(all_overlaps_are_found),
        cmocka_unit_test(runs_within_maps_match_brute_force),
        cmocka_unit_test(casts_agree_with_kernels),
        cmocka_unit_test(folds_compare_as_sets_of_terms),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
