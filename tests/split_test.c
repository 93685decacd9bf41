/* Comms split from others: who is in them and in which order, what is refused, groups that overlap and work at the same
 * time, memory of one used in the other, failures that stay where they belong, and the end in any order. */
#define _GNU_SOURCE
#include <dirent.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

#include <cmocka.h>

#include "conformance.h"
#include "exec/comm.h"
#include "random.h"
#include "ranks.h"
#include "tensors.h"
#include "transport/shm.h"

#define MS INT64_C(1000000)
#define SECOND (1000 * MS)
#define COUNT 96

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * SECOND + t.tv_nsec;
}

/* ---- a sum over all ranks of a comm ---- */

struct sum {
    weft_layout *src, *dst;
    weft_plan *plan;
    weft_comm *comm;
    int32_t in[COUNT], out[COUNT], *from, *to;
    weft_exec *x;
    int seed;
};

/* Of the ranks of c; from and to are the caller's, or NULL for private memory. */
static int sum_make(struct sum *s, weft_comm *c, int32_t *from, int32_t *to)
{
    char src[64], dst[64];
    int n = weft_comm_size(c);
    memset(s, 0, sizeof *s);
    s->comm = c;
    s->from = from ? from : s->in;
    s->to = to ? to : s->out;
    snprintf(src, sizeof src, "i32[%d] @x%d +sum(x)", COUNT, n);
    snprintf(dst, sizeof dst, "i32[%d] @x%d", COUNT, n);
    int err = weft_layout_parse(src, &s->src);
    if (!err)
        err = weft_layout_parse(dst, &s->dst);
    if (!err)
        err = weft_lower(&(weft_move){"w", s->src, s->dst}, 1, weft_comm_rank(c), NULL, &s->plan);
    weft_view in = {s->from, sizeof s->in, NULL}, out = {s->to, sizeof s->out, NULL};
    return err ? err : weft_bind(s->plan, c, &in, &out, NULL, &s->x);
}

static int sum_start(struct sum *s, int seed)
{
    s->seed = seed;
    tensors_fill(s->src, weft_comm_rank(s->comm), s->from, seed);
    return weft_exec_start(s->x);
}

/* WEFT_EIO for a result that is wrong. */
static int sum_end(struct sum *s, int64_t timeout_ns)
{
    int err = weft_exec_wait(s->x, timeout_ns);
    if (!err && tensors_wrong(s->src, s->dst, weft_comm_rank(s->comm), s->to, s->seed))
        err = WEFT_EIO;
    return err;
}

static int sum_run(struct sum *s, int seed)
{
    int err = sum_start(s, seed);
    return err ? err : sum_end(s, -1);
}

static void sum_free(struct sum *s)
{
    weft_exec_free(s->x);
    weft_plan_free(s->plan);
    weft_layout_free(s->src);
    weft_layout_free(s->dst);
    s->x = NULL;
    s->plan = NULL;
    s->src = s->dst = NULL;
}

/* The place of a rank in a list; -1: none. */
static int place_of(int rank, const int *list, int n)
{
    for (int i = 0; i < n; i++)
        if (list[i] == rank)
            return i;
    return -1;
}

/* Splits off the ranks of the list; those who are not in it pass none. */
static int split(weft_comm *c, const int *list, int n, weft_comm **out)
{
    bool in = place_of(weft_comm_rank(c), list, n) >= 0;
    return weft_comm_split(c, in ? list : NULL, in ? n : 0, out);
}

/* ---- who is where ---- */

static void run_odd_and_even(struct ranks_rank *r)
{
    static const int even[] = {0, 2, 4}, odd[] = {5, 3, 1};
    weft_comm *c = NULL;
    struct sum s;
    const int *list = r->rank % 2 ? odd : even;
    RANKS_OK(r, weft_comm_split(r->comm, list, 3, &c));
    RANKS_CHECK(r, c && weft_comm_size(c) == 3 && weft_comm_rank(c) == place_of(r->rank, list, 3));
    weft_machine m;
    RANKS_OK(r, weft_comm_machine(c, &m));
    RANKS_OK(r, sum_make(&s, c, NULL, NULL));
    for (int i = 0; i < 20; i++)
        RANKS_OK(r, sum_run(&s, i + r->rank % 2));
    RANKS_OK(r, weft_comm_barrier(c, -1));
    sum_free(&s);
    weft_comm_close(c);
    RANKS_OK(r, weft_comm_barrier(r->comm, -1));
}

static void odd_and_even(void **state)
{
    (void)state;
    ranks_run(6, NULL, run_odd_and_even, NULL, NULL);
    ranks_run(6, &(weft_comm_opts){.staged = true}, run_odd_and_even, NULL, NULL);
}

static void run_some(struct ranks_rank *r)
{
    static const int list[] = {3, 1};
    weft_comm *c = r->comm;
    RANKS_OK(r, split(r->comm, list, 2, &c));
    RANKS_CHECK(r, (c != NULL) == (r->rank == 1 || r->rank == 3));
    if (c) {
        RANKS_CHECK(r, c != r->comm && weft_comm_rank(c) == (r->rank == 1));
        RANKS_OK(r, weft_comm_barrier(c, -1));
    }
    weft_comm_close(c);
    c = r->comm;
    RANKS_OK(r, weft_comm_split(r->comm, NULL, 0, &c)); /* nobody at all */
    RANKS_CHECK(r, !c);
    RANKS_OK(r, weft_comm_split(r->comm, &r->rank, 1, &c)); /* each alone */
    RANKS_CHECK(r, weft_comm_size(c) == 1 && weft_comm_rank(c) == 0);
    struct sum s;
    RANKS_OK(r, sum_make(&s, c, NULL, NULL));
    RANKS_OK(r, sum_run(&s, 3));
    sum_free(&s);
    weft_comm_close(c);
}

static void some_are_in_none(void **state)
{
    (void)state;
    ranks_run(4, NULL, run_some, NULL, NULL);
}

static void self_can_be_split(void **state)
{
    (void)state;
    weft_comm *c, *k, *kk;
    struct sum s;
    assert_int_equal(weft_comm_open("self:", NULL, &c), 0);
    assert_int_equal(weft_comm_split(c, &(int){0}, 1, &k), 0);
    weft_comm_close(c);
    assert_int_equal(weft_comm_split(k, &(int){0}, 1, &kk), 0);
    weft_comm_close(k);
    assert_int_equal(sum_make(&s, kk, NULL, NULL), 0);
    assert_int_equal(sum_run(&s, 1), 0);
    assert_int_equal(weft_comm_split(kk, &(int){1}, 1, &c), WEFT_EINVAL);
    assert_string_equal(weft_errmsg(), "rank 0: weft_comm_split: there is no rank 1, the comm has 1");
    sum_free(&s);
    weft_comm_close(kk);
}

/* ---- what is refused ---- */

#define LIST(...) {(const int[]){__VA_ARGS__}, sizeof((const int[]){__VA_ARGS__}) / sizeof(int)}
#define NONE {NULL, 0}

static const struct {
    struct {
        const int *ranks;
        int n;
    } of[3];
    int code;
    const char *text;
} refusals[] = {
    {{LIST(0, 1), LIST(0, 1, 0), NONE}, WEFT_EINVAL, "rank 1: weft_comm_split: rank 0 is listed twice"},
    {{LIST(0), NONE, LIST(2, 3)}, WEFT_EINVAL, "rank 2: weft_comm_split: there is no rank 3, the comm has 3"},
    {{LIST(0), LIST(1, -1), LIST(2)}, WEFT_EINVAL, "rank 1: weft_comm_split: there is no rank -1, the comm has 3"},
    {{LIST(0), LIST(0, 2), LIST(2)},
     WEFT_EINVAL,
     "rank 1: weft_comm_split: its list of 2 ranks leaves out rank 1 itself; who is in no group passes none"},
    {{LIST(0, 1, 2, 0), NONE, NONE}, WEFT_EINVAL, "rank 0: weft_comm_split: 4 ranks, the comm has 3"},
    {{NONE, {NULL, 2}, NONE}, WEFT_EINVAL, "rank 1: weft_comm_split: 2 ranks at NULL"},
    {{NONE, NONE, {NULL, -2}}, WEFT_EINVAL, "rank 2: weft_comm_split: -2 ranks"},
    {{LIST(0, 1), LIST(0, 1, 2), LIST(2)},
     WEFT_EMISMATCH,
     "rank 0: weft_comm_split: it lists 2 ranks, rank 1, one of them, lists 3"},
    {{LIST(0, 1, 2), LIST(0, 1, 2), LIST(0, 2, 1)},
     WEFT_EMISMATCH,
     "rank 0: weft_comm_split: number 1 of its list is rank 1, of the list of rank 2 it is rank 2"},
    {{LIST(0), LIST(1, 2), NONE},
     WEFT_EMISMATCH,
     "rank 1: weft_comm_split: it lists rank 2, whose own list is empty"},
    {{LIST(0), LIST(1, 2), LIST(2)},
     WEFT_EMISMATCH,
     "rank 1: weft_comm_split: it lists 2 ranks, rank 2, one of them, lists 1"},
};

static void run_refusals(struct ranks_rank *r)
{
    weft_comm *c = NULL;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        int code = weft_comm_split(r->comm, refusals[i].of[r->rank].ranks, refusals[i].of[r->rank].n, &c);
        if (code != refusals[i].code || strcmp(weft_errmsg(), refusals[i].text)) {
            ranks_note(r, __FILE__, __LINE__, "refusal %d: %d, %s", (int)i, code, weft_errmsg());
            return;
        }
        RANKS_CHECK(r, !c);
        RANKS_OK(r, weft_comm_barrier(r->comm, -1)); /* nothing is broken */
    }
    RANKS_CHECK(r, weft_comm_split(NULL, &r->rank, 1, &c) == WEFT_EINVAL);
    RANKS_CHECK(r, weft_comm_split(r->comm, &r->rank, 1, NULL) == WEFT_EINVAL);
    RANKS_OK(r, weft_comm_split(r->comm, (const int[]){2, 0, 1}, 3, &c));
    RANKS_OK(r, weft_comm_barrier(c, -1));
    weft_comm_close(c);
}

static void lists_are_refused_on_all_ranks(void **state)
{
    (void)state;
    ranks_run(3, NULL, run_refusals, NULL, NULL);
}

static void run_other_call(struct ranks_rank *r)
{
    weft_comm *c = NULL;
    int err = r->rank == 2 ? weft_comm_barrier(r->comm, -1) : weft_comm_split(r->comm, &r->rank, 1, &c);
    RANKS_CHECK(r, err == WEFT_EMISMATCH && !c);
    RANKS_CHECK(r, !strcmp(weft_errmsg(), "rank 0 is in weft_comm_split, rank 2 in weft_comm_barrier: all ranks must "
                                          "make the same calls in one order"));
    if (r->rank == 2) {
        ranks_meet(r);
        err = weft_comm_split(r->comm, &r->rank, 1, &c);
    } else {
        err = weft_comm_split(r->comm, (const int[]){0, 1}, 2, &c);
        ranks_meet(r);
    }
    RANKS_CHECK(r, err == WEFT_ETIMEOUT && !c);
    RANKS_CHECK(r, !strcmp(weft_errmsg(), "weft_comm_split: rank 2 did not take part within 100 ms"));
}

static void who_does_not_come_is_named(void **state)
{
    (void)state;
    ranks_run(3, &(weft_comm_opts){.deadline_ns = 100 * MS}, run_other_call, NULL, NULL);
}

/* ---- groups that overlap ---- */

/* Each rank is in a group with its left and in one with its right neighbour, and in that of all; what is in flight on
 * all of them is waited for in any order. */
static void run_ring(struct ranks_rank *r)
{
    weft_comm *c[2] = {NULL, NULL};
    struct sum s[3];
    for (int g = 0; g < r->size; g++) {
        const int list[] = {g, (g + 1) % r->size};
        weft_comm *got;
        RANKS_OK(r, split(r->comm, list, 2, &got));
        if (got)
            c[r->rank != g] = got;
    }
    for (int k = 0; k < 2; k++)
        for (int g = 0; g < r->size; g++) { /* even groups, then odd ones: in one order for all */
            if (g % 2 != k || (r->rank != g && r->rank != (g + 1) % r->size))
                continue;
            int side = r->rank != g;
            RANKS_OK(r, sum_make(&s[side], c[side], NULL, NULL));
        }
    RANKS_OK(r, sum_make(&s[2], r->comm, NULL, NULL));
    struct random rng = {(uint64_t)r->rank + 1};
    for (int i = 0; i < 200; i++) {
        int start = (int)random_in(&rng, 0, 2), end = (int)random_in(&rng, 0, 2);
        for (int k = 0; k < 3; k++)
            RANKS_OK(r, sum_start(&s[(start + k) % 3], i));
        for (int k = 0; k < 3; k++)
            RANKS_OK(r, sum_end(&s[(end + 2 * k) % 3], 20 * SECOND));
    }
    for (int k = 0; k < 3; k++)
        sum_free(&s[k]);
    weft_comm_close(c[0]);
    weft_comm_close(c[1]);
}

static void overlapping_groups_work_at_once(void **state)
{
    (void)state;
    ranks_run(4, NULL, run_ring, NULL, NULL);
    ranks_run(5, &(weft_comm_opts){.staged = true, .channel_buckets = 1}, run_ring, NULL, NULL);
}

#define GROUPS 7

/* Random groups in random orders, some split from others, all with a sum in flight. */
static void run_random(struct ranks_rank *r)
{
    struct random all = {*(uint64_t *)r->arg}, mine = {*(uint64_t *)r->arg * 77 + (uint64_t)r->rank};
    weft_comm *c[GROUPS] = {r->comm};
    struct sum *s = calloc(GROUPS, sizeof *s);
    int lists[GROUPS][RANKS_MAX], size[GROUPS] = {r->size}, order[GROUPS], n = 1;
    RANKS_CHECK(r, s);
    for (int i = 0; i < r->size; i++)
        lists[0][i] = i;
    for (; n < GROUPS; n++) { /* lists have ranks of r->comm, so that all know who is where */
        int of = (int)random_in(&all, 0, n - 1), list[RANKS_MAX];
        size[n] = (int)random_in(&all, 1, size[of]);
        for (int i = 0; i < size[of]; i++)
            list[i] = i;
        for (int i = 0; i < size[n]; i++) {
            int k = (int)random_in(&all, i, size[of] - 1), swap = list[i];
            list[i] = list[k];
            list[k] = swap;
            lists[n][i] = lists[of][list[i]];
        }
        if (c[of])
            RANKS_OK(r, split(c[of], list, size[n], &c[n]));
        RANKS_CHECK(r, (c[n] != NULL) == (place_of(r->rank, lists[n], size[n]) >= 0));
        RANKS_CHECK(r, !c[n] || weft_comm_rank(c[n]) == place_of(r->rank, lists[n], size[n]));
    }
    for (int g = 0; g < n; g++)
        if (c[g])
            RANKS_OK(r, sum_make(&s[g], c[g], NULL, NULL));
    for (int round = 0; round < 20; round++) {
        for (int pass = 0; pass < 2; pass++) {
            for (int g = 0; g < n; g++) {
                int k = (int)random_in(&mine, 0, g);
                order[g] = order[k];
                order[k] = g;
            }
            for (int g = 0; g < n; g++) {
                int k = order[g];
                if (c[k] && pass == 0)
                    RANKS_OK(r, sum_start(&s[k], round + k));
                else if (c[k])
                    RANKS_OK(r, sum_end(&s[k], 20 * SECOND));
            }
        }
    }
    for (int g = 0; g < n; g++) { /* in the last order, the parent somewhere among them */
        int k = order[g];
        if (c[k])
            sum_free(&s[k]);
        weft_comm_close(c[k]);
    }
    r->keep = true;
    free(s);
}

static void random_groups(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++)
        ranks_run(2 + (int)(seed % 5), &(weft_comm_opts){.staged = seed % 3 == 0}, run_random, &seed, NULL);
}

/* Rank 0 waits in A for rank 1, which waits in C for rank 2, which waits in B for rank 0: that one must move what is in
 * flight in B while it waits in A, and must hear it if it sleeps. */
static void run_chain(struct ranks_rank *r)
{
    static const int in_a[] = {0, 1}, in_b[] = {0, 2}, in_c[] = {1, 2};
    weft_comm *a, *b, *c;
    struct sum s, t;
    RANKS_OK(r, split(r->comm, in_a, 2, &a));
    if (a) { /* not from the one that was opened */
        RANKS_OK(r, split(a, in_a, 2, &c));
        weft_comm_close(a);
        a = c;
    }
    RANKS_OK(r, split(r->comm, in_b, 2, &b));
    RANKS_OK(r, split(r->comm, in_c, 2, &c));
    RANKS_OK(r, sum_make(&s, r->rank == 2 ? b : a, NULL, NULL));
    RANKS_OK(r, sum_make(&t, r->rank == 0 ? b : c, NULL, NULL));
    int woken = 0;
    for (int i = 0; i < 50; i++) {
        if (r->rank == 0) {
            RANKS_OK(r, sum_start(&t, i));
            RANKS_OK(r, sum_start(&s, i));
            RANKS_OK(r, sum_end(&s, 20 * SECOND));
            RANKS_OK(r, sum_end(&t, 20 * SECOND));
        } else if (r->rank == 1) {
            RANKS_OK(r, sum_start(&t, i));
            RANKS_OK(r, sum_end(&t, 20 * SECOND));
            RANKS_OK(r, sum_run(&s, i));
        } else {
            struct core_rank *zero = &r->comm->group->ranks[0];
            int64_t until = now_ns() + 20 * SECOND;
            while (!atomic_load(&zero->sleeping) && now_ns() < until)
                sched_yield();
            RANKS_CHECK(r, now_ns() < until);
            uint32_t bell = atomic_load(&zero->bell);
            RANKS_OK(r, sum_start(&s, i));
            woken += atomic_load(&zero->bell) != bell;
            RANKS_OK(r, sum_end(&s, 20 * SECOND));
            RANKS_OK(r, sum_run(&t, i));
        }
    }
    RANKS_CHECK(r, r->rank != 2 || woken > 0); /* it may have woken by itself in between, but not each time */
    sum_free(&s);
    sum_free(&t);
    weft_comm_close(a);
    weft_comm_close(b);
    weft_comm_close(c);
}

static void whoever_waits_in_one_moves_all(void **state)
{
    (void)state;
    ranks_run(3, NULL, run_chain, NULL, NULL);
    ranks_run(3, &(weft_comm_opts){.staged = true}, run_chain, NULL, NULL);
}

/* The same with a rank that waits for a signal in a window, in a barrier, and in split itself. */
static void run_deaf(struct ranks_rank *r)
{
    static const int in_b[] = {0, 2};
    weft_comm *a, *b;
    weft_window *w = NULL;
    struct sum s;
    RANKS_OK(r, weft_comm_split(r->comm, (const int[]){0, 1, 2}, 3, &a));
    RANKS_OK(r, split(r->comm, in_b, 2, &b));
    RANKS_OK(r, weft_window_create(a, &(weft_buffer){"n", WEFT_I64, 1, 0}, 1, 1, &w));
    if (b)
        RANKS_OK(r, sum_make(&s, b, NULL, NULL));
    for (int i = 0; i < 60; i++) {
        if (r->rank == 0)
            RANKS_OK(r, sum_start(&s, i));
        if (r->rank == 2) {
            RANKS_OK(r, sum_start(&s, i));
            RANKS_OK(r, sum_end(&s, 20 * SECOND));
            if (i % 3 == 0)
                RANKS_OK(r, weft_window_notify(w, 0, 0, WEFT_NOTIFY_ADD, 1));
        }
        weft_comm *none;
        if (r->rank == 0 && i % 3 == 0)
            RANKS_OK(r, weft_window_wait(w, 0, WEFT_GE, (uint64_t)i / 3 + 1, 20 * SECOND));
        else if (i % 3 == 1)
            RANKS_OK(r, weft_comm_barrier(a, 20 * SECOND));
        else if (i % 3 == 2)
            RANKS_OK(r, weft_comm_split(r->comm, NULL, 0, &none));
        if (r->rank == 0)
            RANKS_OK(r, sum_end(&s, 20 * SECOND));
    }
    if (b)
        sum_free(&s);
    weft_window_free(w);
    weft_comm_close(b);
    weft_comm_close(a);
}

static void all_waits_move_all(void **state)
{
    (void)state;
    ranks_run(3, NULL, run_deaf, NULL, NULL);
}

/* ---- callbacks ---- */

struct called {
    struct sum *mine, *other;
    weft_comm *close;
    int times, wait, barrier, split;
};

static void on_done(void *arg, int err)
{
    struct called *d = arg;
    weft_comm *c;
    d->times += !err;
    d->wait = weft_exec_wait(d->other->x, -1);
    d->barrier = weft_comm_barrier(d->other->comm, 0);
    d->split = weft_comm_split(d->other->comm, NULL, 0, &c);
    sum_free(d->mine);
    weft_comm_close(d->close);
}

/* One in B ends while A is waited for; its callback frees it and closes B. */
static void run_callback(struct ranks_rank *r)
{
    weft_comm *a, *b;
    weft_window *w;
    struct sum s, t;
    RANKS_OK(r, weft_comm_split(r->comm, (const int[]){0, 1}, 2, &a));
    RANKS_OK(r, weft_comm_split(r->comm, (const int[]){1, 0}, 2, &b));
    RANKS_OK(r, weft_window_create(r->comm, NULL, 0, 1, &w));
    RANKS_OK(r, sum_make(&s, a, NULL, NULL));
    RANKS_OK(r, sum_make(&t, b, NULL, NULL));
    struct called d = {.mine = &t, .other = &s, .close = b};
    RANKS_OK(r, weft_exec_notify(t.x, on_done, &d));
    RANKS_OK(r, sum_start(&s, 1));
    RANKS_OK(r, sum_start(&t, 2));
    RANKS_OK(r, sum_end(&s, -1));
    int64_t until = now_ns() + 20 * SECOND;
    while (!d.times && now_ns() < until) /* nobody notifies */
        RANKS_CHECK(r, weft_window_wait(w, 0, WEFT_EQ, 1, MS) == WEFT_ETIMEOUT);
    RANKS_CHECK(r, d.times == 1);
    RANKS_CHECK(r, d.wait == WEFT_EBUSY && d.barrier == WEFT_EBUSY && d.split == WEFT_EBUSY);
    RANKS_OK(r, weft_comm_barrier(r->comm, -1));
    weft_window_free(w);
    sum_free(&s);
    weft_comm_close(a);
}

static void callbacks_of_kin(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++)
        ranks_run(2, NULL, run_callback, NULL, NULL);
}

/* ---- memory ---- */

static int64_t staged_bytes(const struct sum *s)
{
    weft_exec_info info = {.size = sizeof info};
    return weft_exec_stats(s->x, &info) ? -1 : info.staging_peak;
}

/* What one comm allocated is reached in the others of the family without staging. */
static void run_memory(struct ranks_rank *r)
{
    weft_comm *c, *k;
    void *parent[2], *child[2];
    struct sum s;
    RANKS_OK(r, weft_comm_split(r->comm, (const int[]){2, 1, 0}, 3, &c));
    RANKS_OK(r, weft_comm_split(c, (const int[]){1, 2, 0}, 3, &k));
    for (int i = 0; i < 2; i++) {
        RANKS_OK(r, weft_comm_alloc(r->comm, COUNT * sizeof(int32_t), &parent[i]));
        RANKS_OK(r, weft_comm_alloc(k, COUNT * sizeof(int32_t), &child[i]));
    }
    weft_comm *on[] = {r->comm, c, k};
    for (int i = 0; i < 3; i++) {
        RANKS_OK(r, sum_make(&s, on[i], parent[0], child[0]));
        RANKS_OK(r, sum_run(&s, i));
        RANKS_OK(r, sum_run(&s, i + 1));
        RANKS_CHECK(r, staged_bytes(&s) == 0);
        weft_view in = {child[1], COUNT * sizeof(int32_t), NULL}, out = {parent[1], COUNT * sizeof(int32_t), NULL};
        RANKS_OK(r, weft_exec_rebind(s.x, &in, &out));
        s.from = child[1];
        s.to = parent[1];
        RANKS_OK(r, sum_run(&s, i + 2));
        RANKS_CHECK(r, staged_bytes(&s) == 0);
        sum_free(&s);
        RANKS_OK(r, sum_make(&s, on[i], NULL, NULL)); /* private memory, and staging of the comm's own */
        RANKS_OK(r, sum_run(&s, i));
        RANKS_CHECK(r, (staged_bytes(&s) > 0) == !strcmp(ranks_on, "shm"));
        sum_free(&s);
    }
    for (int i = 0; i < 2; i++) {
        weft_comm_dealloc(r->comm, parent[i]);
        weft_comm_dealloc(k, child[i]);
    }
    weft_comm_close(c);
    weft_comm_close(k);
}

static void memory_is_for_all_of_the_family(void **state)
{
    (void)state;
    ranks_run(3, NULL, run_memory, NULL, NULL);
}

static int open_files(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d))
        n++;
    closedir(d);
    return n;
}

/* Groups come and go, whoever closes first: the file that the processes share stays as large as it is. */
static void run_many(struct ranks_rank *r)
{
    uint64_t top = 0;
    blkcnt_t blocks = 0;
    int files = 0;
    struct random rng = {(uint64_t)r->rank};
    for (int i = 0; i < 120; i++) {
        const int even[] = {0, 2}, odd[] = {3, 1};
        weft_comm *c, *k = NULL;
        struct sum s;
        void *m;
        RANKS_OK(r, weft_comm_split(r->comm, r->rank % 2 ? odd : even, 2, &c));
        if (i % 3 == 0)
            RANKS_OK(r, weft_comm_split(c, (const int[]){1, 0}, 2, &k));
        RANKS_OK(r, sum_make(&s, k ? k : c, NULL, NULL));
        RANKS_OK(r, weft_comm_alloc(c, 3 << 20, &m)); /* not given back */
        RANKS_OK(r, sum_run(&s, i));
        bool first = random_in(&rng, 0, 1);
        weft_comm_close(first ? c : k);
        sum_free(&s);
        weft_comm_close(first ? k : c);
        RANKS_OK(r, weft_comm_barrier(r->comm, -1));
        if (strcmp(ranks_on, "shm"))
            continue;
        const struct shm_home *home = ((const struct shm_link *)(void *)r->comm->link)->home;
        struct stat st;
        RANKS_CHECK(r, !fstat(home->file, &st));
        ranks_meet(r);
        if (i == 20) {
            top = atomic_load(&home->head->top);
            blocks = st.st_blocks;
            files = open_files();
        }
        RANKS_CHECK(r, i <= 20 || (atomic_load(&home->head->top) <= top + 32 * SHM_PAGE));
        RANKS_CHECK(r, i <= 20 || st.st_blocks <= 2 * blocks);
        RANKS_CHECK(r, i <= 20 || !ranks_forked || open_files() <= files + r->size); /* each peer is watched once */
        ranks_meet(r);
    }
}

static void groups_come_and_go(void **state)
{
    (void)state;
    int files = open_files();
    ranks_run(4, NULL, run_many, NULL, NULL);
    assert_int_equal(open_files(), files);
}

/* ---- the end ---- */

static int close_as(struct ranks_rank *r, weft_comm *c[3], const int *order)
{
    for (int i = 0; i < 3; i++) {
        weft_comm_close(c[order[i]]);
        c[order[i]] = NULL;
        for (int k = 0; k < 3; k++)
            if (c[k] && weft_comm_barrier(c[k], -1))
                return -1;
    }
    (void)r;
    return 0;
}

static void run_orders(struct ranks_rank *r)
{
    static const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (int i = 0; i < 6; i++) {
        weft_comm *c[3] = {r->comm};
        RANKS_OK(r, weft_comm_split(c[0], (const int[]){1, 0, 2}, 3, &c[1]));
        RANKS_OK(r, weft_comm_split(c[1], (const int[]){1, 2, 0}, 3, &c[2]));
        r->keep = true;
        RANKS_OK(r, close_as(r, c, orders[i]));
        /* The name is free again, also while groups live that were split from the one that had it. */
        RANKS_OK(r, weft_comm_open(r->url, &r->opts, &r->comm));
        weft_comm *old;
        RANKS_OK(r, weft_comm_split(r->comm, (const int[]){0, 1, 2}, 3, &old));
        weft_comm_close(r->comm);
        RANKS_OK(r, weft_comm_open(r->url, &r->opts, &r->comm));
        RANKS_OK(r, weft_comm_barrier(old, -1));
        RANKS_OK(r, weft_comm_barrier(r->comm, -1));
        weft_comm_close(old);
        r->keep = false;
    }
}

static void closed_in_any_order(void **state)
{
    (void)state;
    ranks_run(3, NULL, run_orders, NULL, NULL);
}

/* ---- failures ---- */

/* Rank 2 closes its end of a group while rank 1 waits there: that group fails and no other. */
static void run_isolation(struct ranks_rank *r)
{
    static const int lists[3][2] = {{0, 1}, {1, 2}, {2, 3}};
    weft_comm *c[3], *k = NULL;
    struct sum s[3];
    for (int g = 0; g < 3; g++)
        RANKS_OK(r, split(r->comm, lists[g], 2, &c[g]));
    for (int g = 0; g < 3; g++)
        if (c[g])
            RANKS_OK(r, sum_make(&s[g], c[g], NULL, NULL));
    if (r->rank == 2) {
        sum_free(&s[1]);
        weft_comm_close(c[1]);
    }
    if (r->rank == 1) {
        const char *text = "rank 1 (opened as rank 2) closed its comm or freed its exec, rank 0 was waiting for it";
        RANKS_OK(r, sum_start(&s[1], 1));
        RANKS_OK(r, sum_start(&s[0], 1));
        RANKS_OK(r, sum_end(&s[0], 20 * SECOND)); /* not disturbed */
        RANKS_CHECK(r, weft_exec_wait(s[1].x, 20 * SECOND) == WEFT_EPEER);
        RANKS_CHECK(r, !strcmp(weft_errmsg(), text));
        RANKS_CHECK(r, weft_comm_split(c[1], NULL, 0, &k) == WEFT_EPEER && !strcmp(weft_errmsg(), text));
        RANKS_CHECK(r, weft_comm_barrier(c[1], -1) == WEFT_EPEER && !strcmp(weft_errmsg(), text));
        sum_free(&s[1]);
        weft_comm_close(c[1]);
    }
    if (r->rank == 0)
        RANKS_OK(r, sum_run(&s[0], 1));
    for (int i = 0; i < 20; i++)
        for (int g = 0; g < 3; g += 2)
            if (c[g])
                RANKS_OK(r, sum_run(&s[g], i));
    RANKS_OK(r, weft_comm_barrier(r->comm, -1));
    RANKS_OK(r, weft_comm_split(r->comm, (const int[]){3, 2, 1, 0}, 4, &k));
    RANKS_OK(r, weft_comm_barrier(k, -1));
    weft_comm_close(k);
    for (int g = 0; g < 3; g += 2) {
        if (c[g])
            sum_free(&s[g]);
        weft_comm_close(c[g]);
    }
}

static void a_failure_stays_in_its_group(void **state)
{
    (void)state;
    ranks_run(4, NULL, run_isolation, NULL, NULL);
    ranks_run(4, &(weft_comm_opts){.staged = true}, run_isolation, NULL, NULL);
}

/* The other way round: the parent fails, groups that were split from it go on, and no more can be. */
static void run_failed_parent(struct ranks_rank *r)
{
    weft_comm *c, *k = NULL;
    struct sum s;
    RANKS_OK(r, split(r->comm, (const int[]){2, 0}, 2, &c));
    if (r->rank == 1) {
        weft_comm_close(r->comm);
        r->keep = true;
        return;
    }
    RANKS_OK(r, sum_make(&s, c, NULL, NULL));
    RANKS_CHECK(r, weft_comm_barrier(r->comm, 20 * SECOND) == WEFT_EPEER);
    RANKS_CHECK(r, weft_comm_split(r->comm, &r->rank, 1, &k) == WEFT_EPEER && !k);
    RANKS_CHECK(r, !strcmp(weft_errmsg(), "rank 1 closed its comm, others are in weft_comm_barrier"));
    RANKS_OK(r, sum_run(&s, 1));
    RANKS_OK(r, weft_comm_split(c, (const int[]){1, 0}, 2, &k));
    RANKS_OK(r, weft_comm_barrier(k, -1));
    sum_free(&s);
    weft_comm_close(k);
    weft_comm_close(c);
}

static void groups_outlive_a_failed_parent(void **state)
{
    (void)state;
    ranks_run(3, NULL, run_failed_parent, NULL, NULL);
}

/* ---- ranks that are killed ---- */

#define MOST 6

struct killing {
    char url[64];
    int ranks, victim, delay;
    atomic_int ready;
    struct {
        char wrong[256];
    } end[MOST];
};

static void complain(struct killing *k, int rank, const char *what, int code)
{
    char *text = k->end[rank].wrong;
    if (!text[0])
        snprintf(text, sizeof k->end[rank].wrong, "%s: %d, %s", what, code, weft_errmsg());
}

/* In a group with the victim: works until it fails, in time, with its rank here and where it was opened. */
static void expect_death(struct killing *k, int rank, struct sum *s, const int *list)
{
    char who[64];
    snprintf(who, sizeof who, "rank %d (opened as rank %d) has died", place_of(k->victim, list, 2), k->victim);
    int err = 0;
    int64_t until = now_ns() + 20 * SECOND;
    for (int i = 0; !err && now_ns() < until; i++)
        err = i % 5 == 4 ? weft_comm_barrier(s->comm, -1) : sum_run(s, i);
    if (err != WEFT_EPEER || !strstr(weft_errmsg(), who))
        complain(k, rank, who, err);
}

static int rank_of_killing(struct killing *k, int rank)
{
    weft_comm *world, *c[2] = {NULL, NULL}, *got;
    struct sum s[2];
    int lists[2][2];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    weft_comm_opts o = {.size = sizeof o, .rank = rank, .ranks = k->ranks};
    int err = weft_comm_open(k->url, &o, &world);
    for (int g = 0; g < k->ranks && !err; g++) {
        const int list[] = {g, (g + 1) % k->ranks};
        err = split(world, list, 2, &got);
        if (!err && got) {
            memcpy(lists[rank != g], list, sizeof list);
            c[rank != g] = got;
            err = sum_make(&s[rank != g], got, NULL, NULL);
        }
    }
    if (err) {
        complain(k, rank, "the set-up", err);
        return 1;
    }
    atomic_fetch_add(&k->ready, 1);
    bool with[2] = {place_of(k->victim, lists[0], 2) >= 0, place_of(k->victim, lists[1], 2) >= 0};
    if (rank == k->victim) {
        for (int i = 0; i < k->delay && !err; i++) { /* moves until it is to go, and then not a step more */
            err = i % 5 == 4 ? weft_comm_barrier(c[0], -1) : sum_run(&s[0], i);
            err = err ? err : i % 5 == 4 ? weft_comm_barrier(c[1], -1) : sum_run(&s[1], i);
        }
        raise(SIGKILL);
    }
    for (int g = 0; g < 2; g++)
        if (with[g])
            expect_death(k, rank, &s[g], lists[g]);
    for (int i = 0; i < 50; i++) /* the others go on as if nothing had happened */
        for (int g = 0; g < 2; g++)
            if (!with[g] && !err && (err = sum_run(&s[g], i)))
                complain(k, rank, "a group without the victim", err);
    int64_t began = now_ns();
    err = weft_comm_barrier(world, -1);
    char who[64];
    snprintf(who, sizeof who, "rank %d has died", k->victim);
    if (err != WEFT_EPEER || !strstr(weft_errmsg(), who) || now_ns() - began > 10 * SECOND)
        complain(k, rank, who, err);
    for (int g = 0; g < 2; g++) {
        sum_free(&s[g]);
        weft_comm_close(c[g]);
    }
    weft_comm_close(world);
    return 0;
}

static void a_death_is_seen_in_all_groups(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        struct killing *k = ranks_shared(sizeof *k);
        pid_t pids[MOST];
        k->ranks = 3 + i % (MOST - 2);
        k->victim = i * 5 % k->ranks;
        k->delay = i * 7 % 20;
        snprintf(k->url, sizeof k->url, "shm:split-%ld-%d", (long)getpid(), i);
        fflush(NULL);
        for (int r = 0; r < k->ranks; r++) {
            pids[r] = fork();
            assert_true(pids[r] >= 0);
            if (pids[r] == 0)
                _exit(rank_of_killing(k, r));
        }
        for (int r = 0; r < k->ranks; r++)
            assert_int_equal(waitpid(pids[r], NULL, 0), pids[r]);
        for (int r = 0; r < k->ranks; r++)
            if (k->end[r].wrong[0])
                fail_msg("case %d, rank %d of %d: %s", i, r, k->ranks, k->end[r].wrong);
        assert_int_equal(atomic_load(&k->ready), k->ranks);
        munmap(k, sizeof *k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odd_and_even),
        cmocka_unit_test(some_are_in_none),
        cmocka_unit_test(lists_are_refused_on_all_ranks),
        cmocka_unit_test(who_does_not_come_is_named),
        cmocka_unit_test(overlapping_groups_work_at_once),
        cmocka_unit_test(random_groups),
        cmocka_unit_test(whoever_waits_in_one_moves_all),
        cmocka_unit_test(all_waits_move_all),
        cmocka_unit_test(callbacks_of_kin),
        cmocka_unit_test(memory_is_for_all_of_the_family),
        cmocka_unit_test(groups_come_and_go),
        cmocka_unit_test(closed_in_any_order),
        cmocka_unit_test(a_failure_stays_in_its_group),
        cmocka_unit_test(groups_outlive_a_failed_parent),
    };
    const struct CMUnitTest alone[] = {
        cmocka_unit_test(self_can_be_split),
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
        cmocka_unit_test(a_death_is_seen_in_all_groups),
#endif
    };
    int failed = CONFORMANCE_RUN(tests);
    return failed + cmocka_run_group_tests(alone, NULL, NULL);
}
