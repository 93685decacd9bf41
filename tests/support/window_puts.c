#define _GNU_SOURCE
#include "window_puts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "processes.h"

/* ---- random operations ---- */

enum { REGION = 100000, SUMS = 20000, OPS = 12 }; /* elements; operations of a rank on a rank in a round */

enum { WORDS, TOTALS }; /* buffers */

struct op {
    bool add;
    int64_t at, count;
    uint64_t seed;
};

/* The same on all ranks: operation k of rank `from` on rank `to`. Sizes from one element to all, small ones most often.
 */
static struct op op_of(int round, int from, int to, int k)
{
    struct random rnd = {hash_u64((uint64_t)(round * 16 + from), (uint64_t)(to * 1000 + k))};
    struct op o = {.add = random_once_in(&rnd, 3), .seed = (uint64_t)random_in(&rnd, 0, INT64_MAX / 2)};
    int64_t all = o.add ? SUMS : REGION, most = random_once_in(&rnd, 3) ? all : random_once_in(&rnd, 2) ? 3000 : 40;
    o.count = random_in(&rnd, 1, most);
    o.at = random_in(&rnd, 0, all - o.count);
    return o;
}

static int32_t value_of(const struct op *o, int64_t i)
{
    return (int32_t)hash_mix(o->seed + (uint64_t)i);
}

/* One rank's operations on another, and a signal of how many there were; some of the waits between are for others. */
static int operate(weft_window *w, int round, int from, int to, int32_t *work, struct random *own)
{
    int err = 0;
    for (int k = 0; k < OPS && !err; k++) {
        struct op o = op_of(round, from, to, k);
        for (int64_t i = 0; i < o.count; i++)
            work[i] = value_of(&o, i);
        if (o.add)
            err = weft_window_put_add(w, TOTALS, to, o.at, work, o.count);
        else
            err = weft_window_put(w, WORDS, to, from * REGION + o.at, work, o.count);
        memset(work, 0xff, (size_t)o.count * sizeof *work); /* src may be used again */
        if (!err && random_once_in(own, 4))
            err = weft_window_notify(w, to, from, WEFT_NOTIFY_ADD, 1000);
    }
    return err ? err : weft_window_notify(w, to, from, WEFT_NOTIFY_SET, (uint64_t)round + 1);
}

/* What all of them come to here. */
static void foresee(int round, int me, int ranks, int32_t *words, int32_t *totals)
{
    for (int from = 0; from < ranks; from++)
        for (int k = 0; k < OPS; k++) {
            struct op o = op_of(round, from, me, k);
            for (int64_t i = 0; i < o.count; i++) {
                if (o.add)
                    totals[o.at + i] = (int32_t)((uint32_t)totals[o.at + i] + (uint32_t)value_of(&o, i));
                else
                    words[from * REGION + o.at + i] = value_of(&o, i);
            }
        }
}

void puts_random_body(struct ranks_rank *r)
{
    const weft_buffer b[] = {WEFT_BUFFER("words", WEFT_I32, r->size * REGION), WEFT_BUFFER("totals", WEFT_I32, SUMS)};
    weft_window *w;
    struct random own = {(uint64_t)r->rank + 1};
    int32_t *work = malloc(REGION * sizeof *work), *totals = calloc(SUMS, sizeof *totals);
    int32_t *words = calloc((size_t)(r->size * REGION), sizeof *words);
    RANKS_OK(r, weft_window_open(r->comm, b, 2, r->size, &w));
    int rounds = *(const int *)r->arg;
    for (int round = 0; round < rounds; round++) {
        for (int k = 0; k < r->size; k++)
            RANKS_OK(r, operate(w, round, r->rank, (r->rank + k) % r->size, work, &own));
        foresee(round, r->rank, r->size, words, totals);
        for (int q = 0; q < r->size; q++) { /* signal, then all that it put */
            RANKS_OK(r, weft_window_wait(w, q, WEFT_EQ, (uint64_t)round + 1, PUTS_LONG_NS));
            const int32_t *got = (const int32_t *)weft_window_pointer(w, WORDS, r->rank) + q * REGION;
            values_begin();
            for (int i = 0; i < REGION; i++)
                VALUES_CHECK(q * REGION + i, got[i], words[q * REGION + i]);
            RANKS_VALUES(r);
        }
        const int32_t *sums = weft_window_pointer(w, TOTALS, r->rank);
        values_begin();
        for (int i = 0; i < SUMS; i++)
            VALUES_CHECK(i, sums[i], totals[i]);
        RANKS_VALUES(r);
        RANKS_OK(r, weft_window_barrier(w, PUTS_LONG_NS));
    }
    weft_window_close(w);
    free(work);
    free(words);
    free(totals);
}

/* ---- order ---- */

void puts_third_body(struct ranks_rank *r)
{
    enum { N = 12000 };
    const weft_buffer b = WEFT_BUFFER("words", WEFT_I64, N);
    weft_window *w;
    static _Thread_local int64_t work[N];
    uint64_t turn = 0;
    int turns = *(const int *)r->arg;
    struct random common = {77};
    RANKS_OK(r, weft_window_open(r->comm, &b, 1, 2, &w));
    const int64_t *mine = weft_window_pointer(w, 0, r->rank);
    for (int k = 0; k < turns; k++) {
        int from = (int)random_in(&common, 0, r->size - 1);
        int to = (from + (int)random_in(&common, 1, r->size - 1)) % r->size, third = to;
        while (third == from || third == to)
            third = (int)random_in(&common, 0, r->size - 1);
        int64_t n = random_in(&common, 1, random_once_in(&common, 2) ? N : 100);
        bool by_barrier = random_once_in(&common, 3);
        turn++;
        if (r->rank == from) {
            for (int64_t i = 0; i < n; i++)
                work[i] = (int64_t)turn * N + i;
            RANKS_OK(r, weft_window_put(w, 0, to, 0, work, n));
            if (by_barrier)
                RANKS_OK(r, weft_window_barrier_with(w, &third, 1, PUTS_LONG_NS));
            else
                RANKS_OK(r, weft_window_notify(w, third, 0, WEFT_NOTIFY_SET, turn));
        }
        if (r->rank == third) {
            if (by_barrier)
                RANKS_OK(r, weft_window_barrier_with(w, &from, 1, PUTS_LONG_NS));
            else
                RANKS_OK(r, weft_window_wait(w, 0, WEFT_EQ, turn, PUTS_LONG_NS));
            RANKS_OK(r, weft_window_notify(w, to, 1, WEFT_NOTIFY_SET, turn));
        }
        if (r->rank == to) {
            RANKS_OK(r, weft_window_wait(w, 1, WEFT_EQ, turn, PUTS_LONG_NS));
            values_begin();
            for (int64_t i = n; i-- > 0;)
                VALUES_CHECK(i, mine[i], (int64_t)turn * N + i);
            RANKS_VALUES(r);
        }
        if (random_once_in(&common, 2))
            RANKS_OK(r, weft_comm_barrier(r->comm, PUTS_LONG_NS));
        else
            RANKS_OK(r, weft_window_barrier(w, PUTS_LONG_NS));
    }
    weft_window_close(w);
}

void puts_barrier_body(struct ranks_rank *r)
{
    const weft_buffer b = WEFT_BUFFER("words", WEFT_I32, 20000 * r->size);
    static _Thread_local int32_t work[20000];
    weft_window *w;
    RANKS_OK(r, weft_window_open(r->comm, &b, 1, 0, &w));
    const int32_t *mine = weft_window_pointer(w, 0, r->rank);
    for (int turn = 1; turn < 20; turn++) {
        for (int i = 0; i < 20000; i++)
            work[i] = turn * 100 + r->rank;
        for (int q = 0; q < r->size; q++)
            RANKS_OK(r, weft_window_put(w, 0, q, 20000 * r->rank, work, turn % 2 ? 100 : 20000));
        RANKS_OK(r, weft_comm_barrier(r->comm, PUTS_LONG_NS));
        values_begin();
        for (int i = 0; i < 20000 * r->size; i++)
            if (i % 20000 < (turn % 2 ? 100 : 20000))
                VALUES_CHECK(i, mine[i], turn * 100 + i / 20000);
        RANKS_VALUES(r);
        RANKS_OK(r, weft_comm_barrier(r->comm, PUTS_LONG_NS));
    }
    weft_window_close(w);
}

/* ---- large ones ---- */

void puts_large_body(struct ranks_rank *r)
{
    int64_t n = *(const int64_t *)r->arg / 8;
    const weft_buffer b[] = {WEFT_BUFFER("words", WEFT_I64, n * r->size), WEFT_BUFFER("sums", WEFT_I64, n)};
    weft_window *w;
    int64_t *work = malloc((size_t)n * 8);
    RANKS_OK(r, weft_window_open(r->comm, b, 2, 1, &w));
    for (int64_t i = 0; i < n; i++)
        work[i] = i * 3 + r->rank;
    for (int k = 1; k < r->size; k++) {
        int to = (r->rank + k) % r->size;
        RANKS_OK(r, weft_window_put(w, 0, to, n * r->rank, work, n));
        RANKS_OK(r, weft_window_put_add(w, 1, to, 0, work, n));
        RANKS_OK(r, weft_window_notify(w, to, 0, WEFT_NOTIFY_ADD, 1));
    }
    RANKS_OK(r, weft_window_wait(w, 0, WEFT_EQ, (uint64_t)r->size - 1, PUTS_LONG_NS));
    const int64_t *words = weft_window_pointer(w, 0, r->rank), *sums = weft_window_pointer(w, 1, r->rank);
    int64_t others = r->size * (r->size - 1) / 2 - r->rank;
    values_begin();
    for (int q = 0; q < r->size; q++)
        for (int64_t i = 0; i < n && q != r->rank; i++)
            VALUES_CHECK(q * n + i, words[q * n + i], i * 3 + q);
    RANKS_VALUES(r);
    for (int64_t i = 0; i < n; i++)
        VALUES_CHECK(i, sums[i], (r->size - 1) * i * 3 + others);
    RANKS_VALUES(r);
    weft_window_close(w);
    free(work);
}

/* ---- callbacks ---- */

struct from_callback {
    weft_window *w;
    int32_t *work;
    int to, err;
};

static void callback(void *arg, int err)
{
    struct from_callback *f = arg;
    f->err = err;
    for (int k = 0; k < 200 && !f->err; k++) /* more than may be on the way */
        f->err = weft_window_put(f->w, 0, f->to, k, f->work + k, 1);
    if (!f->err)
        f->err = weft_window_put(f->w, 0, f->to, 200, f->work + 200, 299800);
    if (!f->err)
        f->err = weft_window_notify(f->w, f->to, 0, WEFT_NOTIFY_ADD, 1);
}

void puts_callback_body(struct ranks_rank *r)
{
    enum { N = 300000 };
    const weft_buffer b = WEFT_BUFFER("words", WEFT_I32, N);
    struct from_callback f = {.work = malloc(N * sizeof *f.work), .to = (r->rank + 1) % r->size, .err = 1};
    struct pair p;
    char src[40], dst[40];
    for (int i = 0; i < N; i++)
        f.work[i] = i + r->rank;
    snprintf(src, sizeof src, "i32[60/x] @x%d", r->size);
    snprintf(dst, sizeof dst, "i32[60] @x%d", r->size);
    RANKS_OK(r, pair_bind(&p, src, dst, false, r->comm));
    RANKS_OK(r, weft_window_open(r->comm, &b, 1, 1, &f.w));
    RANKS_OK(r, weft_exec_on_done(p.x, callback, &f));
    RANKS_OK(r, weft_exec_run(p.x));
    RANKS_CHECK(r, f.err == 0);
    RANKS_OK(r, weft_window_wait(f.w, 0, WEFT_EQ, 1, PUTS_LONG_NS));
    const int32_t *got = weft_window_pointer(f.w, 0, r->rank);
    values_begin();
    for (int i = 0; i < N; i++)
        VALUES_CHECK(i, got[i], i + (r->rank + r->size - 1) % r->size);
    RANKS_VALUES(r);
    weft_window_close(f.w);
    pair_release(&p);
    free(f.work);
}
