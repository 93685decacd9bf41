#include "layout/runs.h"

#include <string.h>

#include "base/error.h"
#include "base/math.h"

/* Makes room for one more; *v may move. Block sizes that share no factor could make lists that fill all memory, so long
 * lists are refused. */
static int grow(struct arena *arena, void **v, size_t n, size_t *cap, size_t size)
{
    if (n < *cap)
        return 0;
    if (n >= RUNS_MOST)
        return error_set(
            WEFT_EUNSUPPORTED,
            "layout: blocks meet in more than %d ways along a dim: block sizes with a common factor meet in fewer",
            RUNS_MOST);
    size_t c = *cap ? *cap * 2 : 4;
    void *p = arena_alloc(arena, c * size);
    if (!p)
        return error_nomem();
    if (n)
        memcpy(p, *v, n * size);
    *cap = c;
    *v = p;
    return 0;
}

int runs_add(struct runs *l, struct run r)
{
    if (r.n < 1 || r.len < 1)
        return 0;
    if (r.n > 1 && r.step == r.len && r.tostep == r.len) {
        r.len *= r.n;
        r.n = 1;
    }
    if (r.n == 1)
        r.step = r.tostep = 0;
    void *v = l->v;
    int rc = grow(l->arena, &v, l->n, &l->cap, sizeof *l->v);
    if (rc)
        return rc;
    l->v = v;
    l->v[l->n++] = r;
    return 0;
}

int64_t runs_count(const struct runs *l)
{
    int64_t c = 0;
    for (size_t i = 0; i < l->n; i++)
        c += l->v[i].n * l->v[i].len;
    return c;
}

static int pair_add(struct pair_runs *l, struct pair_run r)
{
    if (r.n < 1 || r.len < 1)
        return 0;
    if (r.n > 1 && r.step == r.len && r.astep == r.len && r.bstep == r.len) {
        r.len *= r.n;
        r.n = 1;
    }
    if (r.n == 1)
        r.step = r.astep = r.bstep = 0;
    void *v = l->v;
    int rc = grow(l->arena, &v, l->n, &l->cap, sizeof *l->v);
    if (rc)
        return rc;
    l->v = v;
    l->v[l->n++] = r;
    return 0;
}

int64_t runs_pair_count(const struct pair_runs *l)
{
    int64_t c = 0;
    for (size_t i = 0; i < l->n; i++)
        c += l->v[i].n * l->v[i].len;
    return c;
}

static int64_t run_end(const struct run *r)
{
    return r->at + (r->n - 1) * r->step + r->len;
}

/* Adds the overlap of repetition i of a with j of b, repeated n times: every da-th of a, every db-th of b. */
static int add_overlap(const struct run *a, int64_t i, int64_t da, const struct run *b, int64_t j, int64_t db,
                       int64_t n, int64_t step, struct pair_runs *out)
{
    int64_t x = a->at + i * a->step, y = b->at + j * b->step;
    int64_t lo = max64(x, y), hi = min64(x + a->len, y + b->len);
    return pair_add(out, (struct pair_run){.at = lo,
                                           .len = hi - lo,
                                           .n = n,
                                           .step = step,
                                           .a = a->to + i * a->tostep + (lo - x),
                                           .astep = n > 1 ? da * a->tostep : 0,
                                           .b = b->to + j * b->tostep + (lo - y),
                                           .bstep = n > 1 ? db * b->tostep : 0});
}

static int emit(const struct run *a, int64_t i, int64_t da, const struct run *b, int64_t j, int64_t db, int64_t n,
                int64_t step, struct pair_runs *out, int swap)
{
    return swap ? add_overlap(b, j, db, a, i, da, n, step, out) : add_overlap(a, i, da, b, j, db, n, step, out);
}

/* a is one interval; b may repeat. The repetitions of b that lie completely inside a stay one run. */
static int join_one(const struct run *a, const struct run *b, struct pair_runs *out, int swap)
{
    int64_t s = b->n > 1 ? b->step : b->len;
    int64_t first = max64(0, floor_div(a->at - b->at - b->len, s) + 1); /* b->at + j*s + len > a->at */
    int64_t last = min64(b->n - 1, ceil_div(a->at + a->len - b->at, s) - 1);
    if (first > last)
        return 0;
    int rc = 0;
    if (b->at + first * b->step < a->at || first == last) { /* cut at the front, or the only one */
        rc = emit(a, 0, 0, b, first, 0, 1, 0, out, swap);
        first++;
    }
    int64_t whole = last;
    if (first <= last && b->at + last * b->step + b->len > a->at + a->len)
        whole--;
    if (!rc && first <= whole) {
        /* In a the repetitions are b->step apart, since a is one interval. */
        struct run r = *a;
        r.tostep = r.step = b->step;
        rc = emit(&r, 0, 1, b, first, 1, whole - first + 1, b->step, out, swap);
    }
    if (!rc && whole < last && first <= last)
        rc = emit(a, 0, 0, b, last, 0, 1, 0, out, swap);
    return rc;
}

/* The repetitions of a that may overlap b: *from .. *to - 1. Returns how many. */
static int64_t near_reps(const struct run *a, const struct run *b, int64_t *from, int64_t *to)
{
    *from = max64(0, floor_div(b->at - a->at - a->len, a->step) + 1);
    *to = min64(a->n, ceil_div(run_end(b) - a->at, a->step));
    return max64(0, *to - *from);
}

/* Both repeat, but only a few times: joins one repetition of a after the other. */
static int join_each(const struct run *a, const struct run *b, struct pair_runs *out, int swap)
{
    int64_t from, to;
    near_reps(a, b, &from, &to);
    for (int64_t i = from; i < to; i++) {
        struct run one = {.at = a->at + i * a->step, .len = a->len, .n = 1, .to = a->to + i * a->tostep};
        int rc = join_one(&one, b, out, swap);
        if (rc)
            return rc;
    }
    return 0;
}

/* Both repeat. The overlaps of repetition i of a and j of b come again after one common period: da repetitions of a, db
 * of b. So for each of the first da repetitions of a, this looks which repetitions of b it overlaps. */
static int join_many(const struct run *a, const struct run *b, struct pair_runs *out, int swap)
{
    int64_t g = gcd64(a->step, b->step), da = b->step / g, db = a->step / g, from, to;
    if (near_reps(a, b, &from, &to) > da) { /* otherwise there is no second period */
        from = 0;
        to = da;
    }
    for (int64_t i = from; i < to; i++) {
        int64_t x = a->at + i * a->step;
        int64_t j0 = floor_div(x - b->at - b->len, b->step) + 1, j1 = ceil_div(x + a->len - b->at, b->step) - 1;
        for (int64_t j = j0; j <= j1; j++) {
            int64_t t0 = j < 0 ? ceil_div(-j, db) : 0;
            int64_t t1 = min64((a->n - 1 - i) / da, floor_div(b->n - 1 - j, db));
            if (t0 > t1)
                continue;
            int rc = emit(a, i + t0 * da, da, b, j + t0 * db, db, t1 - t0 + 1, t1 > t0 ? da * a->step : 0, out, swap);
            if (rc)
                return rc;
        }
    }
    return 0;
}

static int64_t times(int64_t a, int64_t b)
{
    int64_t c;
    return __builtin_mul_overflow(a, b, &c) ? INT64_MAX : c;
}

/* Both repeat: joins by period or by repetition, from either side, whichever is the least work. */
static int join_strided(const struct run *x, const struct run *y, struct pair_runs *out)
{
    int64_t g = gcd64(x->step, y->step), from, to;
    int64_t xs = near_reps(x, y, &from, &to), ys = near_reps(y, x, &from, &to);
    int64_t ymeets = (x->len + y->len - 2) / y->step + 1; /* repetitions of y that one of x can overlap */
    int64_t xmeets = (x->len + y->len - 2) / x->step + 1;
    int64_t by_x = times(min64(xs, y->step / g), ymeets), by_y = times(min64(ys, x->step / g), xmeets);
    int64_t each_x = times(xs, min64(ymeets, 3)), each_y = times(ys, min64(xmeets, 3));
    if (min64(by_x, by_y) <= min64(each_x, each_y))
        return by_x <= by_y ? join_many(x, y, out, 0) : join_many(y, x, out, 1);
    return each_x <= each_y ? join_each(x, y, out, 0) : join_each(y, x, out, 1);
}

int runs_join(const struct runs *a, const struct runs *b, struct pair_runs *out)
{
    for (size_t i = 0; i < a->n; i++) {
        const struct run *x = &a->v[i];
        int64_t end = run_end(x);
        for (size_t j = 0; j < b->n; j++) {
            const struct run *y = &b->v[j];
            if (y->at >= end || run_end(y) <= x->at)
                continue;
            int rc;
            if (x->n == 1)
                rc = join_one(x, y, out, 0);
            else if (y->n == 1)
                rc = join_one(y, x, out, 1);
            else
                rc = join_strided(x, y, out);
            if (rc)
                return rc;
        }
    }
    return 0;
}

int runs_pair_cut(const struct pair_runs *l, int64_t lo, int64_t hi, struct pair_runs *out)
{
    int64_t base = 0;
    for (size_t k = 0; k < l->n && base < hi; k++) {
        const struct pair_run *r = &l->v[k];
        int64_t size = r->n * r->len, p = max64(lo - base, 0), q = min64(hi - base, size);
        base += size;
        while (p < q) {
            int64_t i = p / r->len, o = p % r->len;
            int64_t len = min64(r->len - o, q - p), n = 1;
            if (o == 0 && len == r->len)
                n = (q - p) / r->len;
            int rc = pair_add(out, (struct pair_run){.at = r->at + i * r->step + o,
                                                     .len = len,
                                                     .n = n,
                                                     .step = r->step,
                                                     .a = r->a + i * r->astep + o,
                                                     .astep = r->astep,
                                                     .b = r->b + i * r->bstep + o,
                                                     .bstep = r->bstep});
            if (rc)
                return rc;
            p += n * len;
        }
    }
    return 0;
}
