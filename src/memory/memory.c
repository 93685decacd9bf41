/* Kernels over tiles: copy, cast, fold and fill. All except the plain copy walk spans that stay in the first-level
 * cache. A fold takes up to OPS_WAYS terms at a time. It writes the destination in its last step, when the span's
 * elements of all terms have been read, so that the destination may be one of the terms. */
#include "memory/memory.h"

#include <string.h>

#include "base/dtype.h"
#include "base/math.h"
#include "memory/cast.h"
#include "memory/cast_rows.h"
#include "memory/copy.h"
#include "memory/line.h"
#include "memory/ops.h"
#include "memory/span.h"
#include "memory/transpose.h"

#define BLOCK 8192 /* bytes of one buffer */
#define ROW 512    /* bytes of a row from which on it is worth a call */
#define LEAST                                                                                                   \
    128 /* bytes of a row from which on a fold takes it as it is; four times as many if it takes several passes \
         */
#define LINE 64   /* bytes of a cache line */
#define PIECE 512 /* bytes of a row that are folded at a time */
#define GATHERS 4 /* terms at a time if they need buffers: with the other buffers these fill the cache */

struct fold {
    struct span_nest nest;
    struct span span;
    const struct memory_term *terms;
    size_t n;
    int acc;
    int native; /* the dtype in which the terms are folded as they are: acc, or a narrow one that has a loop of its own
                 */
    int first;  /* the same for terms[0], which may be acc when the others are narrow */
    ops_loop *loop;          /* of acc */
    ops_narrow_loop *narrow; /* from native or f32 to `rounds` */
    int rounds;
    float by;  /* what narrow divides or multiplies by */
    bool rows; /* each span is a row that all operands have as a run, or a piece of one; the next row is prefetched */
    /* A span has no more elements than fit a buffer in the widest dtype that is in use. */
    _Alignas(64) unsigned char terms_buf[GATHERS][BLOCK], acc_buf[BLOCK], raw_buf[BLOCK], out_buf[BLOCK];
};

/* Terms that all have one narrow dtype, the first aside, are folded without a pass over f32 buffers. Terms that are all
 * f32 are rounded to a narrow dtype, the goal, without one. */
static void fold_choose(struct fold *f, int op, int goal)
{
    int dtype = f->terms[f->n - 1].dtype;
    f->native = f->first = f->acc;
    f->rounds = dtype != f->acc ? dtype : goal;
    f->loop = f->n > 1 ? ops_find(op, f->acc) : NULL;
    f->narrow = f->n > 1 && f->acc == WEFT_F32 ? ops_find_narrow(op, f->rounds) : NULL;
    for (size_t k = dtype != f->acc; k < f->n && f->narrow; k++)
        if (f->terms[k].dtype != dtype)
            f->narrow = NULL;
    if (f->narrow) {
        f->native = dtype;
        f->first = f->terms[0].dtype == dtype ? dtype : f->acc;
    }
}

/* What the narrow loop scales by; 1: it does not, or there is none. */
static float fold_by(const struct fold *f, int op, int64_t div)
{
    if (!f->narrow || div <= 1 || op == WEFT_MIN || op == WEFT_MAX)
        return 1;
    return div & (div - 1) ? (float)div : 1 / (float)div;
}

/* The span of a term in a dtype: in place if that is possible, otherwise in buf. */
static const void *fold_term(struct fold *f, const struct memory_term *term, int dtype, void *buf)
{
    bool as_is = term->dtype == dtype && dtype != WEFT_BOOL;
    const void *p = span_direct(&f->nest, &f->span, term->data, term->stride, weft_dtype_size(term->dtype));
    if (f->rows) {
        const uintptr_t next = (uintptr_t)p + (uintptr_t)term->stride[f->nest.of[f->nest.loops - 2]];
        const size_t bytes = (size_t)f->span.len * weft_dtype_size(term->dtype);
        for (size_t i = 0; i < bytes; i += LINE)
            __builtin_prefetch((const void *)(next + i), 0, 2);
    } else if (!p) {
        p = as_is ? buf : f->raw_buf;
        span_gather(&f->nest, &f->span, as_is ? buf : f->raw_buf, term->data, term->stride,
                    weft_dtype_size(term->dtype));
    }
    if (as_is)
        return p;
    cast_run(buf, dtype, p, term->dtype, (size_t)f->span.len);
    return buf;
}

/* How many runs the next step takes, the value so far among them, when `left` terms are left. */
static size_t fold_ways(size_t left, bool lies)
{
    size_t most = lies ? OPS_WAYS : GATHERS;
    return left + 1 < most ? left + 1 : most;
}

/* Folds all terms into `out`, of dtype `as`, which is acc or native. If there is only one term the result may be the
 * term in place. */
static const void *fold_terms(struct fold *f, void *out, int as, bool lies)
{
    if (f->n == 1)
        return fold_term(f, f->terms, f->acc, out);
    const void *in[OPS_WAYS] = {fold_term(f, f->terms, f->first, f->terms_buf[0])};
    bool in_acc = f->first == f->acc; /* the value so far is in acc */
    for (size_t t = 1; t < f->n; in_acc = true) {
        size_t ways = fold_ways(f->n - t, lies);
        for (size_t k = 1; k < ways; k++)
            in[k] = fold_term(f, &f->terms[t++], f->native, f->terms_buf[k % GATHERS]);
        void *to = t < f->n ? f->acc_buf : out;
        if (f->narrow)
            f->narrow(to, t < f->n || as == f->acc, in, f->native == f->acc ? (int)ways : in_acc, (int)ways,
                      t < f->n ? 1 : f->by, (size_t)f->span.len);
        else
            f->loop(to, in, (int)ways, (size_t)f->span.len);
        in[0] = to;
    }
    return out;
}

/* Are the terms' rows, or all of a term if there is one row, runs in a dtype that is folded as it is? A span has no
 * more than `most` elements, and is within a row or one row. */
static bool fold_lies(const struct fold *f, int64_t most)
{
    int last = f->nest.loops - 1;
    if ((last > 0 && !f->rows && f->nest.n[last] <= most / 2) || f->acc == WEFT_BOOL)
        return false;
    for (size_t k = 0; k < f->n; k++) {
        const struct memory_term *term = &f->terms[k];
        if (term->dtype != (k ? f->native : f->first))
            return false;
        if (f->nest.n[last] > 1 && term->stride[f->nest.of[last]] != (int64_t)weft_dtype_size(term->dtype))
            return false;
    }
    return true;
}

/* Are there rows that are runs in all operands, of `least` bytes or more? Shorter ones are gathered: a call for each
 * would cost more. */
static bool fold_rows(const struct fold *f, const struct memory_tile *t, int to, int64_t least)
{
    int last = f->nest.loops - 1, unit = f->nest.of[last];
    bool rows = last > 0 && f->n > 1 && f->n <= OPS_WAYS &&
                f->nest.n[last] * (int64_t)weft_dtype_size(f->native) >= least &&
                t->stride[0][unit] == (int64_t)weft_dtype_size(to);
    for (size_t k = 0; k < f->n && rows; k++)
        rows = f->terms[k].stride[unit] == (int64_t)weft_dtype_size(f->terms[k].dtype);
    return rows;
}

/* Can one loop do the fold in one pass, if its operands are runs as they are? */
static bool fold_once(const struct fold *f, int to, int stop, int goal, int op, int64_t div, struct memory_runs *out)
{
    *out =
        (struct memory_runs){.loop = div <= 1 && stop == f->acc && to == f->acc && f->native == f->acc ? f->loop : NULL,
                             .narrow = f->narrow,
                             .wide_out = to == f->acc,
                             .ends = op == WEFT_MIN || op == WEFT_MAX,
                             .wide = f->native == f->acc ? (int)f->n : f->first == f->acc,
                             .by = fold_by(f, op, div)};
    bool scales = div <= 1 || out->by != 1, rounds = goal == f->rounds;
    return out->loop || (f->narrow && scales && to == (rounds ? goal : f->acc) && (rounds || stop == f->acc));
}

/* Rows that are folded as they are, in pieces, to the dtype `as`, which is that of dst. A row further on is prefetched:
 * there may be no memory at that address. */
static void fold_each(struct fold *f, const struct memory_tile *t, void *dst, int as)
{
    const int last = f->nest.loops - 1, row = f->nest.of[last - 1], ways = (int)f->n;
    const size_t size = weft_dtype_size(f->native), dsize = weft_dtype_size(as);
    const size_t n = (size_t)f->nest.n[last], most = PIECE / size;
    const uintptr_t ahead = 1 + MEMORY_AHEAD / (n * size);
    struct span rows = {.cut = last - 1, .inner = f->nest.n[last], .fit = INT64_MAX};
    while (span_next(&f->nest, &rows)) {
        struct span first = rows;
        const unsigned char *from[OPS_WAYS];
        first.turns = 1;
        unsigned char *to = span_direct(&f->nest, &first, dst, t->stride[0], dsize);
        for (int k = 0; k < ways; k++)
            from[k] = span_direct(&f->nest, &first, f->terms[k].data, f->terms[k].stride, size);
        for (int64_t i = 0; i < rows.turns; i++)
            for (size_t at = 0, take; at < n; at += take) {
                const void *in[OPS_WAYS];
                take = n - at < 2 * most ? n - at : most;
                for (int k = 0; k < ways; k++) {
                    const int64_t step = f->terms[k].stride[row];
                    in[k] = from[k] + i * step + at * size;
                    const uintptr_t next = (uintptr_t)in[k] + ahead * (uintptr_t)step;
                    for (size_t b = 0; b < take * size; b += LINE)
                        __builtin_prefetch((const void *)(next + b), 0, 3);
                }
                unsigned char *d = to + i * t->stride[0][row] + at * dsize;
                if (f->narrow)
                    f->narrow(d, as == f->acc, in, f->native == f->acc ? ways : 0, ways, f->by, take);
                else
                    f->loop(d, in, ways, take);
            }
    }
}

static int64_t span_most(const struct memory_term *terms, size_t n, int to, int via, int acc)
{
    size_t widest = weft_dtype_size(acc), size;
    if ((size = weft_dtype_size(to)) > widest)
        widest = size;
    if ((size = weft_dtype_size(via)) > widest)
        widest = size;
    for (size_t i = 0; i < n; i++)
        if ((size = weft_dtype_size(terms[i].dtype)) > widest)
            widest = size;
    return (int64_t)(BLOCK / widest);
}

void memory_fold(const struct memory_tile *t, void *dst, int to, int via, int acc, int op, int64_t div,
                 const struct memory_term *terms, size_t n)
{
    struct fold f; /* not zeroed: most of it is buffers */
    if (!span_nest_make(&f.nest, t, terms, n))
        return;
    f.terms = terms;
    f.n = n;
    f.acc = acc;
    int stop = via ? via : acc, as = acc, goal = stop != acc ? stop : to;
    fold_choose(&f, op, goal);
    size_t size = weft_dtype_size(to);
    const struct span all = {.turns = f.nest.n[0]};
    const bool dense = span_direct(&f.nest, &all, dst, t->stride[0], size), contiguous = dense && f.nest.loops == 1;
    struct memory_runs runs;
    f.rows = fold_rows(&f, t, to, fold_once(&f, to, stop, goal, op, div, &runs) ? LEAST : 4 * LEAST);
    const int held = dense || f.rows ? 0 : to; /* what is written at its place needs no buffer */
    int64_t fit = span_most(terms, n, held, via, acc);
    const bool ends = op == WEFT_MIN || op == WEFT_MAX;
    f.by = fold_by(&f, op, div);
    bool divides = div > 1 && f.by == 1, stops = stop != acc, casts = to != stop, lies = fold_lies(&f, fit);
    if (!divides && f.narrow && goal == f.rounds) { /* the fold's own step rounds */
        as = f.rounds;
        casts = to != as;
        stops = false;
        const int64_t most = span_most(terms, n, held, via, as), first = (int64_t)(BLOCK / weft_dtype_size(f.first));
        const bool lie = fold_lies(&f, min64(most, first));
        if (fold_ways(n - 1, lie) == n) { /* no value lies in acc between two steps */
            fit = min64(most, first);
            lies = lie;
        }
    }
    /* If no buffer is needed, one call of a loop does everything, whatever its length. */
    bool at_once = contiguous && lies && !divides && !(stops && casts) &&
                   (n == 1 || (!stops && !casts && fold_ways(n - 1, true) == n));
    f.span = span_before(&f.nest, at_once ? INT64_MAX : f.rows ? min64(f.nest.n[f.nest.loops - 1], fit / 4) : fit);
    const uint64_t mode = f.narrow && !ends ? ops_nan_begin() : OPS_NAN;
    if (f.rows && lies && !divides && !stops && !casts && as == to && f.first == f.native) {
        fold_each(&f, t, dst, as);
        ops_nan_end(mode);
        return;
    }
    while (span_next(&f.nest, &f.span)) {
        size_t len = (size_t)f.span.len;
        void *direct = span_direct(&f.nest, &f.span, dst, t->stride[0], size);
        void *out = direct ? direct : f.out_buf, *into;
        const void *value = fold_terms(&f, divides || stops || casts ? f.acc_buf : out, as, lies);
        if (divides) {
            into = stops || casts ? f.acc_buf : out;
            ops_divide(into, value, acc, div, len);
            value = into;
        }
        if (stops) {
            into = casts ? f.terms_buf[0] : out;
            cast_run(into, stop, value, acc, len);
            value = into;
        }
        if (casts) {
            cast_run(out, to, value, as == acc ? stop : as, len);
            value = out;
        }
        if (!direct)
            span_scatter(&f.nest, &f.span, dst, t->stride[0], value, size);
        else if (value != direct)
            memcpy(direct, value, len * size);
    }
    ops_nan_end(mode);
}

/* Are all operands runs that are folded as they are? */
static bool are_runs(const struct memory_tile *t, int to, const struct fold *f)
{
    if (t->loops > 1 || (t->loops && t->stride[0][0] != (int64_t)weft_dtype_size(to)))
        return false;
    for (size_t k = 0; k < f->n; k++) {
        const struct memory_term *term = &f->terms[k];
        if (term->dtype != (k ? f->native : f->first) ||
            (t->loops && term->stride[0] != (int64_t)weft_dtype_size(term->dtype)))
            return false;
    }
    return true;
}

bool memory_fold_runs(const struct memory_tile *t, int to, int via, int acc, int op, int64_t div,
                      const struct memory_term *terms, size_t n, struct memory_runs *out)
{
    struct fold f; /* for the choice alone */
    const int stop = via ? via : acc, goal = stop != acc ? stop : to;
    if (n < 2 || n > OPS_WAYS || to == WEFT_BOOL || acc == WEFT_BOOL)
        return false;
    f.terms = terms;
    f.n = n;
    f.acc = acc;
    fold_choose(&f, op, goal);
    return fold_once(&f, to, stop, goal, op, div, out) && are_runs(t, to, &f);
}

void memory_runs_fold(const struct memory_runs *r, void *dst, const void *const *in, int ways, size_t n)
{
    if (r->loop) {
        r->loop(dst, in, ways, n);
        return;
    }
    const uint64_t mode = r->ends ? OPS_NAN : ops_nan_begin();
    r->narrow(dst, r->wide_out, in, r->wide, ways, r->by, n);
    ops_nan_end(mode);
}

/* The loop along which an operand is contiguous, or -1. */
static int unit_loop(const struct memory_tile *t, int operand, size_t size)
{
    for (int i = t->loops - 1; i >= 0; i--)
        if (t->n[i] > 1 && t->stride[operand][i] == (int64_t)size)
            return i;
    return -1;
}

/* The next turn of the loops that are not in `skip`, which has a bit for each loop. False: there is none. */
static bool next_turn(const struct memory_tile *t, unsigned skip, int64_t *at, int64_t *doff, int64_t *soff)
{
    for (int i = t->loops - 1; i >= 0; i--) {
        if (skip >> i & 1)
            continue;
        *doff += t->stride[0][i];
        *soff += t->stride[1][i];
        if (++at[i] < t->n[i])
            return true;
        *doff -= t->stride[0][i] * t->n[i];
        *soff -= t->stride[1][i] * t->n[i];
        at[i] = 0;
    }
    return false;
}

/* A cast of rows that are contiguous on both sides. Several short ones must have as many
 * elements as cast_rows_shortest says. */
static bool cast_tile_rows(const struct memory_tile *t, unsigned char *dst, int to, const unsigned char *src, int from)
{
    int last = t->loops - 1, row = last - 1;
    int64_t dsize = (int64_t)weft_dtype_size(to), ssize = (int64_t)weft_dtype_size(from);
    if (last >= 0 && (t->stride[0][last] != dsize || t->stride[1][last] != ssize))
        return false;
    int64_t at[MEMORY_LOOPS] = {0}, doff = 0, soff = 0, n = last < 0 ? 1 : t->n[last];
    if (row >= 0 && n * ssize < ROW &&
        (n < (int64_t)cast_rows_shortest(to, from) || unit_loop(t, 0, weft_dtype_size(to)) != last))
        return false;
    if (row < 0)
        cast_run(dst, to, src, from, (size_t)n);
    else
        do
            cast_rows(dst + doff, t->stride[0][row], to, src + soff, t->stride[1][row], from, (size_t)n,
                      (size_t)t->n[row]);
        while (next_turn(t, 3u << row, at, &doff, &soff));
    return true;
}

/* A cast between operands that are contiguous along different loops, both long enough to gain by it. */
static bool cast_turned(const struct memory_tile *t, unsigned char *dst, int to, const unsigned char *src, int from)
{
    int a = unit_loop(t, 0, weft_dtype_size(to)), b = unit_loop(t, 1, weft_dtype_size(from));
    if (a < 0 || b < 0 || a == b || t->n[a] < 8 || t->n[b] < 8)
        return false;
    const struct transpose turn = {t->n[a], t->n[b], t->stride[0][b], t->stride[1][a], t->stride[1][b], to, from};
    int64_t at[MEMORY_LOOPS] = {0}, doff = 0, soff = 0;
    do
        transpose(&turn, dst + doff, src + soff, weft_dtype_size(to));
    while (next_turn(t, 1u << a | 1u << b, at, &doff, &soff));
    return true;
}

void memory_copy(const struct memory_tile *t, void *dst, int to, const void *src, int from)
{
    if (to == from || cast_is_move(to, from)) {
        if (dst != src)
            copy_nest(t->loops, t->n, t->stride[0], t->stride[1], dst, src, weft_dtype_size(to));
    } else if (memory_tile_count(t) && !cast_tile_rows(t, dst, to, src, from) && !cast_turned(t, dst, to, src, from)) {
        struct memory_term term = {src, from, t->stride[1]};
        memory_fold(t, dst, to, 0, from, 0, 0, &term, 1);
    }
}

void memory_fill_identity(const struct memory_tile *t, void *dst, int dtype, int op)
{
    unsigned char block[BLOCK];
    struct span_nest nest;
    if (!span_nest_make(&nest, t, NULL, 0))
        return;
    size_t size = weft_dtype_size(dtype);
    int64_t room = (int64_t)(BLOCK / size), count = memory_tile_count(t);
    ops_identity(block, dtype, op);
    for (int64_t i = 1; i < room && i < count; i++)
        memcpy(block + (size_t)i * size, block, size);
    /* Zeros are most often asked for, and memset writes them without reading the lines. */
    bool even = size == 1 || !memcmp(block, block + 1, size - 1);
    bool run = nest.loops == 1 && (nest.n[0] == 1 || t->stride[0][nest.of[0]] == (int64_t)size);
    struct span span = span_before(&nest, even && run ? INT64_MAX : room);
    while (span_next(&nest, &span)) {
        void *direct = span_direct(&nest, &span, dst, t->stride[0], size);
        if (direct && even)
            memset(direct, block[0], (size_t)span.len * size);
        else if (direct)
            memcpy(direct, block, (size_t)span.len * size);
        else
            span_scatter(&nest, &span, dst, t->stride[0], block, size);
    }
}
