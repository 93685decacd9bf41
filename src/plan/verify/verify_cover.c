/* Are slots written exactly once? Boxes may be strided and numerous, so a grid of cells would cost too much. Instead
 * each cell (t0, t1, ...) has the value g0^t0 * g1^t1 * ... in the field of 2^61 - 1. The sum over a box is a product
 * of geometric sums, and boxes that cover every cell once have the sum of the whole. (Two different sets of cells are
 * two different polynomials in g0, g1, ...; they agree at few points, and plans are made without knowledge of g.) If
 * the sums differ, halving the region finds a cell that is wrong, which costs no more than the sum. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "plan/verify/verify.h"

__extension__ typedef unsigned __int128 wide;
#define PRIME ((UINT64_C(1) << 61) - 1)

static uint64_t reduce(uint64_t x)
{
    x = (x & PRIME) + (x >> 61);
    return x >= PRIME ? x - PRIME : x;
}

static uint64_t mul(uint64_t a, uint64_t b)
{
    wide x = (wide)a * b;
    return reduce((uint64_t)(x & PRIME) + (uint64_t)(x >> 61));
}

static uint64_t add(uint64_t a, uint64_t b)
{
    return reduce(a + b);
}

static uint64_t power(uint64_t g, int64_t e)
{
    uint64_t x = 1;
    for (; e; e >>= 1, g = mul(g, g))
        if (e & 1)
            x = mul(x, g);
    return x;
}

/* 1 + g + ... + g^(n-1), from the top bit of n down: the sum of 2k terms is that of k, times 1 + g^k. */
static uint64_t geometric(uint64_t g, int64_t n)
{
    uint64_t sum = 0, pow = 1;
    if (n <= 0)
        return 0;
    for (int bit = 63 - __builtin_clzll((unsigned long long)n); bit >= 0; bit--) {
        sum = mul(sum, add(1, pow));
        pow = mul(pow, pow);
        if (n >> bit & 1) {
            sum = add(sum, pow);
            pow = mul(pow, g);
        }
    }
    return sum;
}

static int64_t blocks_below(const struct run *r, int64_t x)
{
    if (x < r->to + r->len)
        return 0;
    if (r->n == 1)
        return 1;
    int64_t m = (x - r->to - r->len) / r->tostep + 1;
    return m < r->n ? m : r->n;
}

/* How much of the block after m whole blocks lies below x. */
static int64_t rest_below(const struct run *r, int64_t m, int64_t x)
{
    int64_t rest = m < r->n ? x - (r->to + m * r->tostep) : 0;
    return rest < 0 ? 0 : rest < r->len ? rest : r->len;
}

int64_t verify_cover_below(const struct run *r, int64_t x)
{
    int64_t m = blocks_below(r, x);
    return m * r->len + rest_below(r, m, x);
}

static uint64_t sum_below(uint64_t g, const struct run *r, int64_t x)
{
    int64_t m = blocks_below(r, x), rest = rest_below(r, m, x);
    uint64_t sum = m ? geometric(g, r->len) : 0;
    if (m > 1)
        sum = mul(sum, geometric(power(g, r->tostep), m));
    if (sum)
        sum = mul(sum, power(g, r->to));
    if (rest)
        sum = add(sum, mul(power(g, r->to + m * r->tostep), geometric(g, rest)));
    return sum;
}

static uint64_t generator(int dim)
{
    return hash_u64(0x77656674, (uint64_t)dim) % (PRIME - 2) + 2;
}

/* The sum of g^place over the places of the runs that lie in [lo, hi). */
static uint64_t sum_in(int dim, const struct run *r, size_t n, int64_t lo, int64_t hi)
{
    uint64_t g = generator(dim), sum = 0;
    for (size_t i = 0; i < n; i++)
        sum = add(sum, add(sum_below(g, &r[i], hi), PRIME - sum_below(g, &r[i], lo)));
    return sum;
}

struct region {
    int64_t lo[WEFT_MAX_DIMS], hi[WEFT_MAX_DIMS];
};

/* The sum of the cells that must be covered in this region. `beside` has those that are outside of `inner` in one of
 * the dims so far, `whole` those that are outside of it in none. */
static uint64_t sum_of_maps(int ndim, const struct runs *maps, const struct runs *inner, const struct region *g)
{
    uint64_t whole = 1, beside = 0;
    for (int d = 0; d < ndim; d++) {
        uint64_t all = sum_in(d, maps[d].v, maps[d].n, g->lo[d], g->hi[d]), in = all;
        if (inner)
            in = sum_in(d, inner[d].v, inner[d].n, g->lo[d], g->hi[d]);
        beside = add(mul(beside, in), mul(whole, add(all, PRIME - in)));
        whole = mul(whole, in);
    }
    return add(whole, beside);
}

/* Does the sum of the boxes differ from the sum of the maps in this region? */
static bool differs(const struct verify_boxes *b, const size_t *pick, size_t n, const struct runs *maps,
                    const struct runs *inner, const struct region *g)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t x = 1;
        for (int d = 0; d < b->ndim && x; d++)
            x = mul(x, sum_in(d, &b->run[pick[i] * (size_t)b->ndim + (size_t)d], 1, g->lo[d], g->hi[d]));
        sum = add(sum, x);
    }
    return sum_of_maps(b->ndim, maps, inner, g) != sum;
}

/* Keeps of the picked boxes those that reach into the region. */
static size_t narrow(const struct verify_boxes *b, size_t *pick, size_t n, const struct region *g)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        bool in = true;
        for (int d = 0; d < b->ndim && in; d++) {
            const struct run *r = &b->run[pick[i] * (size_t)b->ndim + (size_t)d];
            in = verify_cover_below(r, g->hi[d]) > verify_cover_below(r, g->lo[d]);
        }
        if (in)
            pick[k++] = pick[i];
    }
    return k;
}

static int64_t run_end(const struct run *r)
{
    return r->to + (r->n - 1) * r->tostep + r->len;
}

int verify_cover(const struct verify_boxes *b, const struct runs *maps, const struct runs *inner, int64_t *cell)
{
    struct region g;
    for (int d = 0; d < b->ndim; d++) {
        g.lo[d] = 0;
        g.hi[d] = 0;
        for (size_t i = 0; i < maps[d].n; i++)
            g.hi[d] = run_end(&maps[d].v[i]) > g.hi[d] ? run_end(&maps[d].v[i]) : g.hi[d];
    }
    size_t *pick = malloc((b->n + 1) * sizeof *pick), n = b->n;
    if (!pick)
        return error_nomem();
    for (size_t i = 0; i < n; i++)
        pick[i] = i;
    int whole = !differs(b, pick, n, maps, inner, &g);
    for (int d = 0; d < b->ndim && !whole; d++) {
        while (g.hi[d] - g.lo[d] > 1) {
            struct region half = g;
            half.hi[d] = g.lo[d] + (g.hi[d] - g.lo[d]) / 2;
            if (differs(b, pick, n, maps, inner, &half))
                g.hi[d] = half.hi[d];
            else
                g.lo[d] = half.hi[d];
            n = narrow(b, pick, n, &g);
        }
        cell[d] = g.lo[d];
    }
    free(pick);
    return whole;
}

bool verify_cover_holds(const struct run *box, int ndim, const int64_t *cell)
{
    for (int d = 0; d < ndim; d++)
        if (verify_cover_below(&box[d], cell[d] + 1) == verify_cover_below(&box[d], cell[d]))
            return false;
    return true;
}

/* ---- overlaps ---- */

/* Do two runs share a place? */
static int runs_meet(const struct run *a, const struct run *b, struct arena *work)
{
    if (a->to >= run_end(b) || b->to >= run_end(a))
        return 0;
    if (a->n == 1)
        return verify_cover_below(b, a->to + a->len) > verify_cover_below(b, a->to);
    if (b->n == 1)
        return verify_cover_below(a, b->to + b->len) > verify_cover_below(a, b->to);
    struct run x = {a->to, a->len, a->n, a->tostep, 0, a->len}, y = {b->to, b->len, b->n, b->tostep, 0, b->len};
    struct runs p = {.v = &x, .n = 1}, q = {.v = &y, .n = 1};
    struct pair_runs both = {.arena = work};
    int rc = runs_join(&p, &q, &both);
    return rc ? rc : both.n > 0;
}

static int boxes_meet(const struct verify_boxes *b, size_t i, size_t j, struct arena *work)
{
    for (int d = 0; d < b->ndim; d++) {
        size_t n = (size_t)b->ndim;
        int rc = runs_meet(&b->run[i * n + (size_t)d], &b->run[j * n + (size_t)d], work);
        if (rc <= 0)
            return rc;
    }
    return 1;
}

struct entry {
    int64_t lo, hi;
    size_t box;
};

static int by_lo(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return x->lo != y->lo ? (x->lo > y->lo) - (x->lo < y->lo) : (x->box > y->box) - (x->box < y->box);
}

static void sort_by_dim(const struct verify_boxes *b, int d, struct entry *e)
{
    for (size_t i = 0; i < b->n; i++) {
        const struct run *r = &b->run[i * (size_t)b->ndim + (size_t)d];
        e[i] = (struct entry){r->to, run_end(r), i};
    }
    qsort(e, b->n, sizeof *e, by_lo);
}

/* The dim in which the boxes overlap least: the one with the most different starts. */
static int best_dim(const struct verify_boxes *b, struct entry *e)
{
    int best = 0;
    size_t most = 0;
    for (int d = 0; d < b->ndim; d++) {
        size_t starts = 1;
        sort_by_dim(b, d, e);
        for (size_t i = 1; i < b->n; i++)
            starts += e[i].lo != e[i - 1].lo;
        if (starts > most) {
            most = starts;
            best = d;
        }
    }
    return best;
}

/* A sweep along one dim; `live` has the boxes that contain the current position. */
int verify_cover_overlaps(const struct verify_boxes *b, struct arena *work, int (*hit)(void *arg, size_t i, size_t j),
                          void *arg)
{
    if (b->n < 2)
        return 0;
    struct entry *e = malloc(2 * b->n * sizeof *e), *live = e + b->n;
    if (!e)
        return error_nomem();
    if (b->ndim)
        sort_by_dim(b, best_dim(b, e), e);
    else
        for (size_t i = 0; i < b->n; i++)
            e[i] = (struct entry){0, 1, i};
    size_t n = 0;
    int rc = 0;
    for (size_t i = 0; i < b->n && !rc; i++) {
        size_t k = 0;
        for (size_t j = 0; j < n && !rc; j++) {
            if (live[j].hi <= e[i].lo)
                continue;
            live[k++] = live[j];
            rc = boxes_meet(b, live[j].box, e[i].box, work);
            if (rc > 0)
                rc = hit(arg, live[j].box, e[i].box);
        }
        n = k;
        live[n++] = e[i];
        arena_reset(work);
    }
    free(e);
    return rc;
}
