/* What is put into windows on other hosts: random operations against an oracle; the order of puts and signals, also through
 * third ranks; large puts against each other; targets that make no calls; callbacks; ranks that are killed. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/hash.h"
#include "hosts_places.h"
#include "processes.h"
#include "share.h"

#define LONG_NS (60 * SECOND)

/* ---- random operations ---- */

enum { REGION = 100000, SUMS = 20000, OPS = 12 }; /* elements; operations of a rank on a rank in a round */
enum { WORDS, TOTALS }; /* buffers */

struct op {
    bool add;
    int64_t at, count;
    uint64_t seed;
};

/* The same on all ranks: operation k of rank `from` on rank `to`. Sizes from one element to all, small ones most often. */
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

static void random_body(struct ranks_rank *r)
{
    const weft_buffer b[] = {{"words", WEFT_I32, r->size * REGION, 0}, {"totals", WEFT_I32, SUMS, 0}};
    weft_window *w;
    struct random own = {(uint64_t)r->rank + 1};
    int32_t *work = malloc(REGION * sizeof *work), *totals = calloc(SUMS, sizeof *totals);
    int32_t *words = calloc((size_t)(r->size * REGION), sizeof *words);
    RANKS_OK(r, weft_window_create(r->comm, b, 2, r->size, &w));
    int rounds = *(const int *)r->arg;
    for (int round = 0; round < rounds; round++) {
        for (int k = 0; k < r->size; k++)
            RANKS_OK(r, operate(w, round, r->rank, (r->rank + k) % r->size, work, &own));
        foresee(round, r->rank, r->size, words, totals);
        for (int q = 0; q < r->size; q++) { /* signal, then all that it put */
            RANKS_OK(r, weft_window_wait(w, q, WEFT_EQ, (uint64_t)round + 1, LONG_NS));
            const int32_t *got = (const int32_t *)weft_window_pointer(w, WORDS, r->rank) + q * REGION;
            RANKS_CHECK(r, !memcmp(got, words + q * REGION, REGION * sizeof *got));
        }
        RANKS_CHECK(r, !memcmp(weft_window_pointer(w, TOTALS, r->rank), totals, SUMS * sizeof *totals));
        RANKS_OK(r, weft_window_barrier(w, LONG_NS));
    }
    weft_window_free(w);
    free(work);
    free(words);
    free(totals);
}

static void random_operations(void **state)
{
    (void)state;
    int rounds = (int)test_share(3, 60);
    everywhere(random_body, 2, 6, &rounds, NULL);
    everywhere(random_body, 3, 3, &rounds, &(weft_comm_opts){.progress = WEFT_PROGRESS_THREAD});
    everywhere(random_body, 3, 3, &rounds, &(weft_comm_opts){.inflight_bytes = 1 << 20});
}

/* ---- order ---- */

/* Rank a puts to rank b and notifies rank c; c notifies b, which must have what a has put; for all a, b and c. */
static void third_body(struct ranks_rank *r)
{
    enum { N = 12000 };
    const weft_buffer b = {"words", WEFT_I64, N, 0};
    weft_window *w;
    static _Thread_local int64_t work[N];
    uint64_t turn = 0;
    int turns = *(const int *)r->arg;
    struct random common = {77};
    RANKS_OK(r, weft_window_create(r->comm, &b, 1, 2, &w));
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
                RANKS_OK(r, weft_window_barrier_with(w, &third, 1, LONG_NS));
            else
                RANKS_OK(r, weft_window_notify(w, third, 0, WEFT_NOTIFY_SET, turn));
        }
        if (r->rank == third) {
            if (by_barrier)
                RANKS_OK(r, weft_window_barrier_with(w, &from, 1, LONG_NS));
            else
                RANKS_OK(r, weft_window_wait(w, 0, WEFT_EQ, turn, LONG_NS));
            RANKS_OK(r, weft_window_notify(w, to, 1, WEFT_NOTIFY_SET, turn));
        }
        if (r->rank == to) {
            RANKS_OK(r, weft_window_wait(w, 1, WEFT_EQ, turn, LONG_NS));
            for (int64_t i = n; i-- > 0;)
                RANKS_CHECK(r, mine[i] == (int64_t)turn * N + i);
        }
        if (random_once_in(&common, 2))
            RANKS_OK(r, weft_comm_barrier(r->comm, LONG_NS));
        else
            RANKS_OK(r, weft_window_barrier(w, LONG_NS));
    }
    weft_window_free(w);
}

static void order_through_others(void **state)
{
    (void)state;
    int turns = (int)test_share(60, 3000);
    everywhere(third_body, 3, 6, &turns, NULL);
}

/* A barrier of the comm and not of the window: what was put before it is there behind it. */
static void barrier_body(struct ranks_rank *r)
{
    const weft_buffer b = {"words", WEFT_I32, 20000 * r->size, 0};
    static _Thread_local int32_t work[20000];
    weft_window *w;
    RANKS_OK(r, weft_window_create(r->comm, &b, 1, 0, &w));
    const int32_t *mine = weft_window_pointer(w, 0, r->rank);
    for (int turn = 1; turn < 20; turn++) {
        for (int i = 0; i < 20000; i++)
            work[i] = turn * 100 + r->rank;
        for (int q = 0; q < r->size; q++)
            RANKS_OK(r, weft_window_put(w, 0, q, 20000 * r->rank, work, turn % 2 ? 100 : 20000));
        RANKS_OK(r, weft_comm_barrier(r->comm, LONG_NS));
        for (int i = 0; i < 20000 * r->size; i++)
            RANKS_CHECK(r, i % 20000 >= (turn % 2 ? 100 : 20000) || mine[i] == turn * 100 + i / 20000);
        RANKS_OK(r, weft_comm_barrier(r->comm, LONG_NS));
    }
    weft_window_free(w);
}

static void barriers_of_the_comm(void **state)
{
    (void)state;
    everywhere(barrier_body, 2, 4, NULL, NULL);
}

/* ---- large ones ---- */

/* All put *(int64_t *)arg bytes to all others at the same time, and then add as much. */
static void large_body(struct ranks_rank *r)
{
    int64_t n = *(const int64_t *)r->arg / 8;
    const weft_buffer b[] = {{"words", WEFT_I64, n * r->size, 0}, {"sums", WEFT_I64, n, 0}};
    weft_window *w;
    int64_t *work = malloc((size_t)n * 8);
    RANKS_OK(r, weft_window_create(r->comm, b, 2, 1, &w));
    for (int64_t i = 0; i < n; i++)
        work[i] = i * 3 + r->rank;
    for (int k = 1; k < r->size; k++) {
        int to = (r->rank + k) % r->size;
        RANKS_OK(r, weft_window_put(w, 0, to, n * r->rank, work, n));
        RANKS_OK(r, weft_window_put_add(w, 1, to, 0, work, n));
        RANKS_OK(r, weft_window_notify(w, to, 0, WEFT_NOTIFY_ADD, 1));
    }
    RANKS_OK(r, weft_window_wait(w, 0, WEFT_EQ, (uint64_t)r->size - 1, LONG_NS));
    const int64_t *words = weft_window_pointer(w, 0, r->rank), *sums = weft_window_pointer(w, 1, r->rank);
    int64_t others = r->size * (r->size - 1) / 2 - r->rank;
    for (int q = 0; q < r->size; q++)
        for (int64_t i = 0; i < n && q != r->rank; i++)
            RANKS_CHECK(r, words[q * n + i] == i * 3 + q);
    for (int64_t i = 0; i < n; i++)
        RANKS_CHECK(r, sums[i] == (r->size - 1) * i * 3 + others);
    weft_window_free(w);
    free(work);
}

static void large_against_each_other(void **state)
{
    (void)state;
    int64_t bytes = INT64_C(100) << 20, fewer = INT64_C(9000008);
#if !defined(__SANITIZE_THREAD__)
    everywhere(large_body, 2, 2, &bytes, NULL);
#else
    (void)bytes;
#endif
    everywhere(large_body, 2, 4, &fewer, NULL);
}

/* ---- targets that make no calls ---- */

/* Rank 1 does nothing but wait outside weft; its thread takes what is put. */
static void idle_body(struct ranks_rank *r)
{
    enum { N = 2000000 };
    const weft_buffer b = {"words", WEFT_I32, N, 0};
    weft_window *w;
    int32_t *work = calloc(N, sizeof *work);
    RANKS_OK(r, weft_window_create(r->comm, &b, 1, 2, &w));
    if (r->rank == 0) {
        work[N - 1] = 7;
        RANKS_OK(r, weft_window_put(w, 0, 1, 0, work, N));
        RANKS_OK(r, weft_window_notify(w, 1, 0, WEFT_NOTIFY_SET, 1));
        RANKS_OK(r, weft_window_put(w, 0, 1, 0, work + N - 1, 1));
        RANKS_OK(r, weft_window_barrier_with(w, (const int[]){0}, 1, LONG_NS)); /* with nobody */
    }
    ranks_meet(r);
    if (r->rank == 1) {
        RANKS_OK(r, weft_window_wait(w, 0, WEFT_EQ, 1, LONG_NS));
        RANKS_CHECK(r, ((const int32_t *)weft_window_pointer(w, 0, 1))[N - 1] == 7);
    }
    RANKS_OK(r, weft_window_barrier(w, LONG_NS));
    weft_window_free(w);
    free(work);
}

static void a_thread_takes_it(void **state)
{
    (void)state;
    everywhere(idle_body, 2, 3, NULL, &(weft_comm_opts){.progress = WEFT_PROGRESS_THREAD});
}

/* Rank 1 makes no calls for longer than the deadline. */
static void silent_body(struct ranks_rank *r)
{
    enum { N = 4000000 };
    const weft_buffer b = {"words", WEFT_I32, N, 0};
    weft_window *w;
    int32_t *work = calloc(N, sizeof *work);
    RANKS_OK(r, weft_window_create(r->comm, &b, 1, 2, &w));
    if (r->rank == 0) {
        int err = weft_window_put(w, 0, 1, 0, work, N);
        RANKS_CHECK(r, err == WEFT_EPEER);
        RANKS_CHECK(r, strstr(weft_errmsg(), "rank 1 took nothing of what rank 0 puts and notifies for 1500 ms"));
    }
    ranks_meet(r);
    weft_window_free(w);
    free(work);
}

static void a_silent_target_is_named(void **state)
{
    (void)state;
    everywhere(silent_body, 2, 2, NULL, &(weft_comm_opts){.deadline_ns = 1500 * MS});
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

/* Each puts to the next from a callback of an exec that ends, all at the same time. */
static void callback_body(struct ranks_rank *r)
{
    enum { N = 300000 };
    const weft_buffer b = {"words", WEFT_I32, N, 0};
    struct from_callback f = {.work = malloc(N * sizeof *f.work), .to = (r->rank + 1) % r->size, .err = 1};
    struct pair p;
    char src[40], dst[40];
    for (int i = 0; i < N; i++)
        f.work[i] = i + r->rank;
    snprintf(src, sizeof src, "i32[60/x] @x%d", r->size);
    snprintf(dst, sizeof dst, "i32[60] @x%d", r->size);
    RANKS_OK(r, pair_make(&p, src, dst, false, r->comm));
    RANKS_OK(r, weft_window_create(r->comm, &b, 1, 1, &f.w));
    RANKS_OK(r, weft_exec_notify(p.x, callback, &f));
    RANKS_OK(r, weft_exec_run(p.x));
    RANKS_CHECK(r, f.err == 0);
    RANKS_OK(r, weft_window_wait(f.w, 0, WEFT_EQ, 1, LONG_NS));
    const int32_t *got = weft_window_pointer(f.w, 0, r->rank);
    for (int i = 0; i < N; i++)
        RANKS_CHECK(r, got[i] == i + (r->rank + r->size - 1) % r->size);
    weft_window_free(f.w);
    pair_free(&p);
    free(f.work);
}

static void puts_in_callbacks(void **state)
{
    (void)state;
    everywhere(callback_body, 2, 4, NULL, NULL);
}

/* ---- ranks that are killed ---- */

struct killing {
    int victim;
    int64_t at; /* turn */
    _Atomic int64_t died;
    struct {
        int code;
        int64_t knew;
        char text[400];
    } end[RANKS_MAX];
};

static int work_until_failure(weft_window *w, const struct killing *k, int rank, int ranks)
{
    static int64_t words[6000];
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    int err = 0;
    for (uint64_t turn = 1; !err; turn++) {
        if (rank == k->victim && (int64_t)turn == k->at) {
            atomic_store(&((struct killing *)(uintptr_t)k)->died, process_now());
            raise(SIGKILL);
        }
        for (int q = 0; q < ranks && !err; q++)
            err = weft_window_put(w, 0, q, 0, words, turn % 3 ? 50 : 6000);
        if (!err)
            err = weft_window_put_add(w, 0, left, 0, words, turn % 5 ? 50 : 6000);
        if (!err)
            err = turn % 4 ? weft_window_notify(w, right, 0, WEFT_NOTIFY_ADD, 1) : weft_window_barrier(w, -1);
        if (!err && turn % 4)
            err = weft_window_wait(w, 0, WEFT_GE, turn - turn / 4, -1);
        if (!err && turn % 7 == 0)
            err = weft_window_barrier_with(w, (const int[]){left, right}, left == right ? 1 : 2, -1);
    }
    return err;
}

static void killed_body(struct ranks_rank *r)
{
    struct killing *k = r->arg;
    const weft_buffer b = {"words", WEFT_I64, 6000, 0};
    weft_window *w;
    RANKS_OK(r, weft_window_create(r->comm, &b, 1, 1, &w));
    k->end[r->rank].code = work_until_failure(w, k, r->rank, r->size);
    k->end[r->rank].knew = process_now();
    snprintf(k->end[r->rank].text, sizeof k->end[r->rank].text, "%s", weft_errmsg());
    weft_window_free(w);
}

static void one_death(struct random *rnd, int number)
{
    struct killing *k = ranks_shared(sizeof *k);
    int n = (int)random_in(rnd, 2, 5);
    char name[32];
    k->victim = (int)random_in(rnd, 0, n - 1);
    k->at = random_in(rnd, 1, 60);
    ranks_hosts = number % 3 ? (int)random_in(rnd, 2, 3) : 9;
    ranks_on = number % 3 ? "auto" : "ucx";
    snprintf(name, sizeof name, "rank %d", k->victim);
    ranks_run_but(n, &(weft_comm_opts){.deadline_ns = 20 * SECOND}, killed_body, k, k->victim);
    for (int r = 0; r < n; r++) {
        int64_t after = k->end[r].knew - atomic_load(&k->died);
        if (r != k->victim && (k->end[r].code != WEFT_EPEER || !strstr(k->end[r].text, name) || after > 2 * SECOND))
            fail_msg("death %d, %s on %d hosts: rank %d of %d at turn %lld, rank %d ended with %d after %lld ms: %s",
                     number, ranks_on, ranks_hosts, k->victim, n, (long long)k->at, r, k->end[r].code,
                     (long long)(after / MS), k->end[r].text);
    }
    munmap(k, sizeof *k);
}

static void deaths_are_seen(void **state)
{
    (void)state;
    hosts_need_ucx();
    if (!ranks_forked) /* processes alone can be killed */
        skip();
    struct random rnd = {20261115};
    int64_t n = test_share(12, 200);
    for (int i = 0; i < n; i++)
        one_death(&rnd, i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_operations),        cmocka_unit_test(order_through_others),
        cmocka_unit_test(barriers_of_the_comm),     cmocka_unit_test(large_against_each_other),
        cmocka_unit_test(a_thread_takes_it),        cmocka_unit_test(a_silent_target_is_named),
        cmocka_unit_test(puts_in_callbacks),        cmocka_unit_test(deaths_are_seen),
    };
    return cmocka_run_group_tests(tests, hosts_setup, hosts_teardown);
}
