/* Runs of real plans between threads: right values in both modes, many in flight, in any order, within
 * tight limits, without allocating, again and again. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "support/conformance.h"
#include "support/exec_job.h"
#include "support/hosts_meet.h"
#include "support/share.h"
#include "support/suite.h"
#include "support/tensors.h"

/* ---- counting allocations: the linker sends the library's through here ---- */

static atomic_long allocations;
static atomic_bool counting;

static void count_allocation(void)
{
    if (atomic_load_explicit(&counting, memory_order_relaxed))
        atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
void *__real_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset);

void *__wrap_malloc(size_t n)
{
    count_allocation();
    return __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    count_allocation();
    return __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    count_allocation();
    return __real_realloc(p, n);
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
    count_allocation();
    return __real_aligned_alloc(align, n);
}

void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    count_allocation();
    return __real_mmap(at, n, prot, flags, fd, offset);
}

/* ---- right values ---- */

static const struct move moves[] = {
    {.src = "f32[17] @x4", .dst = "f32[17] @x4"},
    {.src = "f32[64/x,6] @x4", .dst = "f32[64,6/x] @x4"},
    {.src = "i32[30/x,7] @x3", .dst = "i32[30,7/x] @x5"},
    {.src = "f64[1001/x] @x4", .dst = "f64[1001] @x4"},
    {.src = "f32[100] @x1=2", .dst = "f32[100] @x5"},
    {.src = "u8[40/x] @x4", .dst = "u8[40/x] @x4=1,2,3,0"},
    {.src = "f32[64/x:4,12/y:2] @x2.y2", .dst = "f32[64/x:8,12/y:3] @x4.y1"},
    {.src = "f32[24/x,16] @x4", .dst = "bf16[24,16/x] @x4"},
    {.src = "bf16[24/x,16] @x4", .dst = "f32[24,16/x] @x4=4..7"},
    {.src = "f16[33/x] @x3", .dst = "f8e4m3[33] @x3"},
    {.src = "f32[50] @x4 +sum(x)", .dst = "f32[50] @x4"},
    {.src = "f32[50] @x4 +sum(x)", .dst = "f32[50/x] @x4"},
    {.src = "i64[50] @x5 +max(x)", .dst = "i64[50] @x1=3"},
    {.src = "bf16[200] @x6 +sum(x)", .dst = "f32[200/x] @x6"},
    {.src = "f16[40,9] @x4 +sum(x)", .dst = "f16[40/x,9] @x4=3,2,1,0"},
    {.src = "f32[2000/x] @x2", .dst = "f32[2000] @x8"},
    {.src = "f32[8/x,8,5] @x8", .dst = "f32[8,8/x,5] @x8"},
    {.src = "f32[] @x2 +sum(x)", .dst = "f32[] @x2"},
    {.src = "f32[0,4] @x2", .dst = "f32[0,4/x] @x2"},
    {.src = "f32[3/x] @x6", .dst = "f32[3/x] @x6=5,4,3,2,1,0"},
};

static void run_some(struct ranks_rank *r)
{
    const struct move *m = r->arg;
    struct job j;
    RANKS_OK(r, job_make(&j, m, r));
    for (int seed = 0; seed < 4; seed++) {
        job_seed(&j, r->rank, seed);
        RANKS_OK(r, weft_exec_run(j.exec));
        if (job_wrong(&j, r->rank, seed))
            ranks_note(r, __FILE__, __LINE__, "%s -> %s, bucket %lld, staged %d, run %d", m->src, m->dst,
                       (long long)m->bucket, r->opts.staged, seed);
    }
    job_free(&j);
}

static void moves_of_all_kinds_are_right(void **state)
{
    (void)state;
    static const int64_t buckets[] = {1, 64, 0};
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) {
        weft_layout *a, *b;
        assert_int_equal(weft_layout_parse(moves[i].src, &a), 0);
        assert_int_equal(weft_layout_parse(moves[i].dst, &b), 0);
        int n = weft_layout_ranks(a) > weft_layout_ranks(b) ? weft_layout_ranks(a) : weft_layout_ranks(b);
        weft_layout_free(a);
        weft_layout_free(b);
        for (size_t k = 0; k < 3; k++) {
            if (!conformance_takes((int)(i + k)))
                continue;
            struct move m = moves[i];
            m.bucket = buckets[k];
            ranks_run(n, NULL, run_some, &m, NULL);
            ranks_run(n, &(weft_comm_opts){.staged = true}, run_some, &m, NULL);
            ranks_run(n + 1, &(weft_comm_opts){.staged = true, .channel_buckets = 1}, run_some, &m,
                      NULL); /* one is idle */
        }
    }
}

static void move_on_one_rank_is_right(void **state)
{
    (void)state;
    struct move m = {.src = "f32[7,5] @x1", .dst = "bf16[7,5] @x1"};
    struct ranks_rank r = {.size = 1};
    struct job j;
    assert_int_equal(weft_comm_open("self:", NULL, &r.comm), 0);
    assert_int_equal(weft_comm_rank(r.comm), 0);
    assert_int_equal(weft_comm_size(r.comm), 1);
    assert_int_equal(job_make(&j, &m, &r), 0);
    job_seed(&j, 0, 9);
    assert_int_equal(weft_exec_run(j.exec), 0);
    assert_int_equal(job_wrong(&j, 0, 9), 0);
    job_free(&j);
    weft_comm_close(r.comm);
}

/* A halo: ghosts are filled from the neighbours, edges left alone; also in place, where the interior stays put. */
static void run_halo(struct ranks_rank *r)
{
    bool in_place = *(bool *)r->arg;
    enum { N = 5 };
    weft_layout *a, *b;
    weft_plan *p;
    weft_exec *x;
    float in[N], out[N + 2];
    char src[64], dst[64];
    snprintf(src, sizeof src, "f32[%d/x] @x%d", N * r->size, r->size);
    snprintf(dst, sizeof dst, "f32[%d/x~1] @x%d", N * r->size, r->size);
    RANKS_OK(r, weft_layout_parse(src, &a));
    RANKS_OK(r, weft_layout_parse(dst, &b));
    RANKS_OK(r, weft_lower(&(weft_move){"h", a, b}, 1, r->rank, NULL, &p));
    weft_view from = WEFT_VIEW(in_place ? out + 1 : in, sizeof in), to = WEFT_VIEW(out, sizeof out);
    RANKS_OK(r, weft_bind(p, r->comm, &from, &to, NULL, &x));
    for (int run = 0; run < 3; run++) {
        for (int i = 0; i < N; i++)
            ((float *)from.data)[i] = (float)(100 * run + r->rank * N + i);
        out[0] = out[N + 1] = -1;
        RANKS_OK(r, weft_exec_run(x));
        values_begin();
        for (int i = 0; i < N + 2; i++) {
            bool edge = (r->rank == 0 && i == 0) || (r->rank == r->size - 1 && i == N + 1);
            VALUES_CHECK(i, out[i], edge ? -1.0f : (float)(100 * run + r->rank * N + i - 1));
        }
        RANKS_VALUES(r);
    }
    weft_exec_close(x);
    weft_plan_free(p);
    weft_layout_free(a);
    weft_layout_free(b);
}

static void halo_in_place_and_not_is_right(void **state)
{
    (void)state;
    for (int mode = 0; mode < 4; mode++) {
        bool in_place = mode & 1;
        ranks_run(4, &(weft_comm_opts){.staged = mode & 2}, run_halo, &in_place, NULL);
    }
}

/* Rows to columns between buffers that are transposed and padded in memory. */
static void run_strided(struct ranks_rank *r)
{
    enum { R = 12, C = 8 };
    weft_layout *a, *b;
    weft_plan *p;
    weft_exec *x;
    RANKS_OK(r, weft_layout_parse("i32[12/x,8] @x4", &a));
    RANKS_OK(r, weft_layout_parse("i32[12,8/x] @x4", &b));
    RANKS_OK(r, weft_lower(&(weft_move){"s", a, b}, 1, r->rank, NULL, &p));
    int32_t in[C][5], out[R][3]; /* in: column-major with room for 5 rows; out: rows of 3, 2 used */
    int64_t in_strides[2] = {4, 20}, out_strides[2] = {12, 4};
    memset(out, 0x11, sizeof out);
    for (int row = 0; row < 3; row++)
        for (int col = 0; col < C; col++)
            in[col][row] = (r->rank * 3 + row) * 100 + col;
    weft_view from = {.data = in, .bytes = sizeof in, .strides = in_strides},
              to = {.data = out, .bytes = sizeof out, .strides = out_strides};
    RANKS_OK(r, weft_bind(p, r->comm, &from, &to, NULL, &x));
    RANKS_OK(r, weft_exec_run(x));
    values_begin();
    for (int row = 0; row < R; row++)
        for (int col = 0; col < 3; col++)
            VALUES_CHECK(row * 3 + col, out[row][col], col == 2 ? 0x11111111 : row * 100 + r->rank * 2 + col);
    RANKS_VALUES(r);
    weft_exec_close(x);
    weft_plan_free(p);
    weft_layout_free(a);
    weft_layout_free(b);
}

static void strided_views_are_right(void **state)
{
    (void)state;
    ranks_run(4, NULL, run_strided, NULL, NULL);
    ranks_run(4, &(weft_comm_opts){.staged = true}, run_strided, NULL, NULL);
}

/* ---- several in flight ---- */

static void run_opposite(struct ranks_rank *r)
{
    /* 20 messages of 100 bytes from one rank to the other. */
    struct move m = {.src = "f32[50/x] @x2", .dst = "f32[50] @x2", .bucket = 1, .tensors = 20};
    struct job a, b;
    RANKS_OK(r, job_make(&a, &m, r));
    RANKS_OK(r, job_make(&b, &m, r));
    for (int seed = 0; seed < (int)test_share(50, 50); seed++) {
        job_seed(&a, r->rank, seed);
        job_seed(&b, r->rank, seed + 1);
        struct job *first = r->rank ? &b : &a, *second = r->rank ? &a : &b;
        RANKS_OK(r, weft_exec_start(first->exec));
        RANKS_OK(r, weft_exec_start(second->exec));
        RANKS_OK(r, weft_exec_wait(first->exec, WEFT_FOREVER));
        RANKS_OK(r, weft_exec_wait(second->exec, WEFT_FOREVER));
        RANKS_CHECK(r, !job_wrong(&a, r->rank, seed) && !job_wrong(&b, r->rank, seed + 1));
    }
    /* Even one after the other: the first is carried on while the second is waited for. */
    for (int seed = 0; seed < (int)test_share(20, 20); seed++) {
        job_seed(&a, r->rank, seed);
        job_seed(&b, r->rank, seed + 1);
        RANKS_OK(r, weft_exec_start(a.exec));
        RANKS_OK(r, weft_exec_start(b.exec));
        RANKS_OK(r, weft_exec_wait(r->rank ? a.exec : b.exec, WEFT_FOREVER));
        RANKS_OK(r, weft_comm_barrier(r->comm, WEFT_DEADLINE)); /* carries on, too */
        RANKS_OK(r, weft_exec_wait(r->rank ? b.exec : a.exec, WEFT_FOREVER));
        RANKS_CHECK(r, !job_wrong(&a, r->rank, seed) && !job_wrong(&b, r->rank, seed + 1));
    }
    job_free(&a);
    job_free(&b);
}

static void execs_started_in_opposite_orders_do_not_block(void **state)
{
    (void)state;
    ranks_run(2, NULL, run_opposite, NULL, NULL);
    ranks_run(2, &(weft_comm_opts){.staged = true}, run_opposite, NULL, NULL);
    /* Each has one bucket of its own, none is left to share. */
    ranks_run(2, &(weft_comm_opts){.staged = true, .inflight_bytes = 200}, run_opposite, NULL, NULL);
    ranks_run(2, &(weft_comm_opts){.staged = true, .inflight_buckets = 2}, run_opposite, NULL, NULL);
}

#define TEN 10
static const struct move kinds[] = {
    {.src = "f32[20/x,4] @x4", .dst = "f32[20,4/x] @x4", .bucket = 1, .tensors = 7},
    {.src = "f32[77] @x4 +sum(x)", .dst = "f32[77] @x4", .bucket = 100},
    {.src = "i32[25] @x1=2", .dst = "i32[25] @x4", .bucket = 200, .tensors = 9},
};

static void run_ten(struct ranks_rank *r)
{
    struct job j[TEN];
    for (int i = 0; i < TEN; i++)
        RANKS_OK(r, job_make(&j[i], &kinds[i % 3], r));
    /* One more of the first one's plan. */
    weft_exec *again;
    struct job two = j[0];
    two.out = calloc((size_t)two.tensors, two.out_bytes);
    RANKS_OK(r, job_bind(&two, r->comm));
    again = two.exec;
    for (int seed = 0; seed < (int)test_share(30, 30); seed++) {
        for (int i = 0; i < TEN; i++) {
            int k = (i * 3 + r->rank * (seed + 1)) % TEN; /* another order on each rank */
            job_seed(&j[k], r->rank, seed + k);
            RANKS_OK(r, weft_exec_start(j[k].exec));
        }
        if (r->rank == 0) /* all need what it sends: before it has started, none of their runs can end */
            ranks_meet(r);
        RANKS_OK(r, weft_exec_start(again));
        if (r->rank != 0) {
            RANKS_CHECK(r, weft_exec_start(again) == WEFT_EBUSY);
            ranks_meet(r);
        }
        for (int i = 0; i < TEN; i++) {
            int k = (i * 7 + r->rank) % TEN;
            RANKS_OK(r, weft_exec_wait(j[k].exec, WEFT_FOREVER));
            RANKS_CHECK(r, !job_wrong(&j[k], r->rank, seed + k));
        }
        RANKS_OK(r, weft_exec_wait(again, WEFT_FOREVER));
        RANKS_CHECK(r, !job_wrong(&two, r->rank, seed));
        RANKS_OK(r, conformance_settle(r));
    }
    weft_exec_close(again);
    free(two.out);
    for (int i = 0; i < TEN; i++)
        job_free(&j[i]);
}

static void ten_execs_in_flight_are_right(void **state)
{
    (void)state;
    ranks_run(4, NULL, run_ten, NULL, NULL);
    ranks_run(4, &(weft_comm_opts){.staged = true}, run_ten, NULL, NULL);
    if (conformance_on_hosts()) /* where channels keep slots beside that: limits_test.c */
        return;
    int64_t least = job_largest(&kinds[0], 4); /* one bucket for each exec */
    for (int i = 0; i < TEN; i++)
        least += job_largest(&kinds[i % 3], 4);
    ranks_run(4, &(weft_comm_opts){.staged = true, .inflight_bytes = least, .channel_buckets = 1}, run_ten, NULL, NULL);
    ranks_run(4, &(weft_comm_opts){.staged = true, .inflight_buckets = TEN + 1}, run_ten, NULL, NULL);
}

/* ---- limits ---- */

static const struct move gather = {.src = "f32[2000/x] @x8", .dst = "f32[2000] @x8", .bucket = 1, .tensors = 10};

static void run_tight(struct ranks_rank *r)
{
    struct job j;
    weft_exec_info info = {.size = sizeof info};
    RANKS_OK(r, job_make(&j, &gather, r));
    for (int seed = 0; seed < 10; seed++) {
        job_seed(&j, r->rank, seed);
        RANKS_OK(r, weft_exec_run(j.exec));
        RANKS_CHECK(r, !job_wrong(&j, r->rank, seed));
    }
    RANKS_OK(r, weft_exec_stats(j.exec, &info));
    RANKS_CHECK(r, info.runs == 10);
    RANKS_CHECK(r, info.staging_limit == r->opts.inflight_bytes);
    RANKS_CHECK(r, info.staging_peak > 0 && info.staging_peak <= info.staging_limit);
    r->code = (int)info.staging_peak;
    job_free(&j);
}

static void run_too_tight(struct ranks_rank *r)
{
    struct job j;
    RANKS_OK(r, job_plan(&j, &gather, r->rank, r->size));
    r->code = job_bind(&j, r->comm);
    snprintf(r->text, sizeof r->text, "%s", weft_errmsg());
    job_free(&j);
}

static void staging_stays_within_the_limits(void **state)
{
    (void)state;
    struct ranks_rank out[8];
    int64_t one = job_largest(&gather, 8);
    ranks_run(8, &(weft_comm_opts){.staged = true, .inflight_bytes = one + 1}, run_tight, NULL, out);
    assert_true(out[0].code <= one);
    ranks_run(8, &(weft_comm_opts){.staged = true, .inflight_bytes = one}, run_tight, NULL, out);
    ranks_run(8, &(weft_comm_opts){.staged = true, .inflight_bytes = 1 << 20, .inflight_buckets = 3}, run_tight, NULL,
              out);
    assert_true(out[0].code <= 3 * one);
    ranks_run(8, &(weft_comm_opts){.staged = true, .inflight_bytes = 1 << 20, .channel_buckets = 1}, run_tight, NULL,
              out);
    assert_true(out[0].code <= 7 * one);
    ranks_run(8, &(weft_comm_opts){.staged = true, .inflight_bytes = one - 1}, run_too_tight, NULL, out);
    char text[200];
    snprintf(text, sizeof text,
             "rank 0: the largest message needs %lld bytes of staging memory, but the comm's limit is %lld: raise "
             "inflight_bytes, or lower with a smaller bucket",
             (long long)one, (long long)one - 1);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(out[i].code, WEFT_ENOMEM);
        assert_string_equal(out[i].text, text);
    }
}

/* ---- no allocation ---- */

static void run_frugal(struct ranks_rank *r)
{
    struct move ms[] = {{.src = "f32[64/x,16] @x4", .dst = "bf16[64,16/x] @x4", .bucket = 64},
                        {.src = "bf16[100] @x4 +sum(x)", .dst = "f32[100] @x4", .bucket = 64}};
    struct job j[2];
    for (int i = 0; i < 2; i++) {
        RANKS_OK(r, job_make(&j[i], &ms[i], r));
        job_seed(&j[i], r->rank, 3);
    }
    ranks_meet(r);
    if (r->rank == 0 || ranks_forked) /* processes have each their own */
        atomic_store(&counting, true);
    ranks_meet(r);
    for (int run = 0; run < (conformance_on_hosts() ? 100 : 1000); run++) {
        bool done = false;
        RANKS_OK(r, weft_exec_start(j[0].exec));
        RANKS_OK(r, weft_exec_start(j[1].exec));
        for (; !done; sched_yield())
            RANKS_OK(r, weft_exec_test(j[0].exec, &done));
        RANKS_OK(r, weft_exec_wait(j[1].exec, WEFT_FOREVER));
    }
    RANKS_OK(r, conformance_settle(r));
    ranks_meet(r);
    if (r->rank == 0 || ranks_forked)
        atomic_store(&counting, false);
    ranks_meet(r);
    bool sockets = conformance_on_hosts() && !strcmp(hosts_wire(), "tcp"); /* these keep what comes early */
    RANKS_CHECK(r, atomic_load(&allocations) == 0 || sockets);
    RANKS_CHECK(r, !job_wrong(&j[0], r->rank, 3) && !job_wrong(&j[1], r->rank, 3));
    job_free(&j[0]);
    job_free(&j[1]);
}

static void runs_allocate_nothing(void **state)
{
    (void)state;
    weft_comm *c;
    atomic_store(&counting, true);
    assert_int_equal(weft_comm_open("self:", NULL, &c), 0);
    atomic_store(&counting, false);
    weft_comm_close(c);
    assert_true(atomic_load(&allocations) > 2); /* the counter counts */
    for (int staged = 0; staged < 2; staged++) {
        atomic_store(&allocations, 0);
        ranks_run(4, &(weft_comm_opts){.staged = staged}, run_frugal, NULL, NULL);
    }
}

/* ---- callbacks ---- */

struct chain {
    struct ranks_rank *r;
    struct job *j;
    int calls, refused;
    atomic_int left; /* counted down last: the callback may be the progress thread's */
};

static void next_in_chain(void *arg, int err)
{
    struct chain *c = arg;
    bool done;
    c->calls += err == 0;
    c->refused += weft_exec_wait(c->j->exec, WEFT_FOREVER) == WEFT_EBUSY;
    c->refused += weft_comm_barrier(c->r->comm, 0) == WEFT_EBUSY;
    c->refused += weft_exec_run(c->j->exec) == WEFT_EBUSY; /* and has started nothing */
    if (atomic_fetch_sub(&c->left, 1) > 1 && (weft_exec_start(c->j->exec) || weft_exec_test(c->j->exec, &done)))
        ranks_note(c->r, __FILE__, __LINE__, "start in a callback: %s", weft_errmsg());
}

static void run_chain(struct ranks_rank *r)
{
    struct move m = {.src = "i32[10/x] @x3", .dst = "i32[10] @x3"};
    struct job j;
    RANKS_OK(r, job_make(&j, &m, r));
    struct chain c = {.r = r, .j = &j, .left = 20};
    job_seed(&j, r->rank, 1);
    RANKS_OK(r, weft_exec_on_done(j.exec, next_in_chain, &c));
    RANKS_OK(r, weft_exec_start(j.exec));
    while (atomic_load(&c.left) > 0)
        RANKS_OK(r, weft_exec_wait(j.exec, WEFT_FOREVER)); /* ends with each run, though the next has been started */
    RANKS_CHECK(r, c.calls == 20 && c.refused == 60);
    RANKS_CHECK(r, !job_wrong(&j, r->rank, 1));
    job_free(&j);
}

static void callbacks_may_start_the_next_run(void **state)
{
    (void)state;
    ranks_run(3, NULL, run_chain, NULL, NULL);
    ranks_run(3, &(weft_comm_opts){.staged = true}, run_chain, NULL, NULL);
}

/* ---- many tensors ---- */

#define TENSORS 40
static void run_model(struct ranks_rank *r)
{
    weft_move mv[TENSORS];
    weft_view in[TENSORS], out[TENSORS];
    char names[TENSORS][16];
    weft_plan *p;
    weft_exec *x;
    for (int i = 0; i < TENSORS; i++) {
        char a[64], b[64];
        weft_layout *la, *lb;
        weft_local at;
        int n = 3 + i * 5;
        snprintf(names[i], sizeof names[i], "t%d", i);
        snprintf(a, sizeof a, i % 3 ? "f32[%d/x,3] @x4" : "f32[%d,3] @x4 +sum(x)", n);
        snprintf(b, sizeof b, i % 2 ? "bf16[%d,3] @x4" : "f32[%d,3/x] @x4=3,2,1,0", n);
        RANKS_OK(r, weft_layout_parse(a, &la));
        RANKS_OK(r, weft_layout_parse(b, &lb));
        mv[i] = (weft_move){names[i], la, lb};
        RANKS_OK(r, weft_layout_local(la, r->rank, &at));
        in[i] = (weft_view){.data = calloc(1, (size_t)at.bytes + 1), .bytes = (size_t)at.bytes};
        RANKS_OK(r, weft_layout_local(lb, r->rank, &at));
        out[i] = (weft_view){.data = calloc(1, (size_t)at.bytes + 1), .bytes = (size_t)at.bytes};
    }
    weft_lower_opts o = {.size = sizeof o, .bucket = *(int64_t *)r->arg};
    RANKS_OK(r, weft_lower(mv, TENSORS, r->rank, &o, &p));
    RANKS_OK(r, weft_bind(p, r->comm, in, out, NULL, &x));
    for (int seed = 0; seed < 3; seed++) {
        for (int i = 0; i < TENSORS; i++)
            tensors_fill(mv[i].src, r->rank, in[i].data, seed + i);
        RANKS_OK(r, weft_exec_run(x));
        for (int i = 0; i < TENSORS; i++)
            RANKS_CHECK(r, !tensors_wrong(mv[i].src, mv[i].dst, r->rank, out[i].data, seed + i));
    }
    weft_exec_close(x);
    weft_plan_free(p);
    for (int i = 0; i < TENSORS; i++) {
        weft_layout_free((weft_layout *)(uintptr_t)mv[i].src);
        weft_layout_free((weft_layout *)(uintptr_t)mv[i].dst);
        free(in[i].data);
        free(out[i].data);
    }
}

static void many_tensors_in_one_exec_are_right(void **state)
{
    (void)state;
    for (int64_t bucket = 1; bucket <= 4096; bucket *= 4096) {
        ranks_run(4, NULL, run_model, &bucket, NULL);
        ranks_run(4, &(weft_comm_opts){.staged = true}, run_model, &bucket, NULL);
    }
}

/* ---- stress ---- */

static void run_stress(struct ranks_rank *r)
{
    struct move m = {.src = "i32[8] @x4 +sum(x)", .dst = "i32[8] @x4", .bucket = 1};
    struct job j;
    int64_t runs = *(int64_t *)r->arg;
    RANKS_OK(r, job_make(&j, &m, r));
    for (int64_t run = 0; run < runs; run++) {
        int32_t *in = (void *)j.in, *out = (void *)j.out;
        for (int i = 0; i < 8; i++)
            in[i] = (int32_t)run * (r->rank + 1) + i;
        RANKS_OK(r, weft_exec_run(j.exec));
        values_begin();
        for (int i = 0; i < 8; i++)
            VALUES_CHECK(i, out[i], (int32_t)run * 10 + 4 * i);
        RANKS_VALUES(r);
    }
    job_free(&j);
}

static void many_small_runs_are_right(void **state)
{
    (void)state;
    int64_t runs = conformance_on_hosts() ? test_share(300, 20000) : test_share(10000, 1000000);
    ranks_run(4, NULL, run_stress, &runs, NULL);
    ranks_run(4, &(weft_comm_opts){.staged = true}, run_stress, &runs, NULL);
}

/* Without self:, which is no wire, and the limits, which mean something else there: limits_test.c. */
static const struct CMUnitTest on_hosts[] = {
    cmocka_unit_test(moves_of_all_kinds_are_right),     cmocka_unit_test(halo_in_place_and_not_is_right),
    cmocka_unit_test(strided_views_are_right),          cmocka_unit_test(execs_started_in_opposite_orders_do_not_block),
    cmocka_unit_test(ten_execs_in_flight_are_right),    cmocka_unit_test(runs_allocate_nothing),
    cmocka_unit_test(callbacks_may_start_the_next_run), cmocka_unit_test(many_tensors_in_one_exec_are_right),
    cmocka_unit_test(many_small_runs_are_right),
};

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moves_of_all_kinds_are_right),
        cmocka_unit_test(move_on_one_rank_is_right),
        cmocka_unit_test(halo_in_place_and_not_is_right),
        cmocka_unit_test(strided_views_are_right),
        cmocka_unit_test(execs_started_in_opposite_orders_do_not_block),
        cmocka_unit_test(ten_execs_in_flight_are_right),
        cmocka_unit_test(staging_stays_within_the_limits),
        cmocka_unit_test(runs_allocate_nothing),
        cmocka_unit_test(callbacks_may_start_the_next_run),
        cmocka_unit_test(many_tensors_in_one_exec_are_right),
        cmocka_unit_test(many_small_runs_are_right),
    };
    return SUITE_MAIN(argc, argv, SUITE_AT(&conformance_one_host, tests), SUITE_AT(&conformance_hosts, on_hosts));
}
