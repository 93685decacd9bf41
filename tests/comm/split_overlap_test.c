/* Groups that overlap and work at the same time: whoever waits in one makes progress in all that it is in, whatever the
 * order. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "support/clock.h"
#include "support/conformance.h"
#include "support/random.h"
#include "support/ranks.h"
#include "support/share.h"
#include "support/suite.h"
#include "support/sums.h"

/* Each rank is in a group with its left and in one with its right neighbour, and in that of all; what is in flight on
 * all of them is waited for in any order. */
static void run_ring(struct ranks_rank *r)
{
    weft_comm *c[2] = {NULL, NULL};
    struct sum s[3];
    for (int g = 0; g < r->size; g++) {
        const int list[] = {g, (g + 1) % r->size};
        weft_comm *got;
        RANKS_OK(r, sums_split(r->comm, list, 2, &got));
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
    for (int i = 0; i < 100; i++) {
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

static void sums_in_overlapping_groups_complete_in_any_order(void **state)
{
    (void)state;
    ranks_run(4, NULL, run_ring, NULL, NULL);
    sums_count = SUMS_COUNT;
    ranks_run(3, NULL, run_ring, NULL, NULL);
    sums_count = SUMS_SMALL;
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
            RANKS_OK(r, sums_split(c[of], list, size[n], &c[n]));
        RANKS_CHECK(r, (c[n] != NULL) == (sums_place(r->rank, lists[n], size[n]) >= 0));
        RANKS_CHECK(r, !c[n] || weft_comm_rank(c[n]) == sums_place(r->rank, lists[n], size[n]));
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

static void sums_in_random_groups_are_right(void **state)
{
    (void)state;
    int64_t n = conformance_on_hosts() ? test_share(1, 60) : CONFORMANCE_ON < 3 ? 8 : 24;
    for (int64_t i = 1; suite_seed(&i, 1, n); i++) {
        uint64_t seed = (uint64_t)i;
        sums_count = seed % 2 ? SUMS_SMALL : SUMS_COUNT;
        ranks_run(2 + (int)(seed % 5), &(weft_comm_opts){.staged = seed % 3 == 0}, run_random, &seed, NULL);
    }
    sums_count = SUMS_SMALL;
}

/* Rank 0 waits in A for rank 1, which waits in C for rank 2, which waits in B for rank 0: that one must move what is in
 * flight in B while it waits in A, and must hear it if it sleeps. */
static void run_chain(struct ranks_rank *r)
{
    static const int in_a[] = {0, 1}, in_b[] = {0, 2}, in_c[] = {1, 2};
    weft_comm *a, *b, *c;
    struct sum s, t;
    RANKS_OK(r, sums_split(r->comm, in_a, 2, &a));
    if (a) { /* not from the one that was opened */
        RANKS_OK(r, sums_split(a, in_a, 2, &c));
        weft_comm_close(a);
        a = c;
    }
    RANKS_OK(r, sums_split(r->comm, in_b, 2, &b));
    RANKS_OK(r, sums_split(r->comm, in_c, 2, &c));
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
            int64_t until = clock_now() + 20 * SECOND;
            while (atomic_load(&zero->awaits) != 1 && clock_now() < until)
                sched_yield();
            RANKS_CHECK(r, clock_now() < until);
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

static void wait_in_one_group_progresses_the_others(void **state)
{
    (void)state;
    ranks_run(3, NULL, run_chain, NULL, NULL);
    sums_count = SUMS_COUNT;
    ranks_run(3, NULL, run_chain, NULL, NULL);
    sums_count = SUMS_SMALL;
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
    RANKS_OK(r, sums_split(r->comm, in_b, 2, &b));
    RANKS_OK(r, weft_window_open(a, &(weft_buffer)WEFT_BUFFER("n", WEFT_I64, 1), 1, 1, &w));
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
    weft_window_close(w);
    weft_comm_close(b);
    weft_comm_close(a);
}

static void window_barrier_and_split_waits_progress_other_groups(void **state)
{
    (void)state;
    ranks_run(3, NULL, run_deaf, NULL, NULL);
}

/* Rank 0 is in a run with all and waits, beyond the deadline, in a group with rank 2, which has started neither: that
 * is no stall. */
static void run_patient(struct ranks_rank *r)
{
    static const int in_a[] = {2, 0};
    weft_comm *a, *b;
    struct sum s, t;
    RANKS_OK(r, sums_split(r->comm, in_a, 2, &a));
    RANKS_OK(r, weft_comm_split(r->comm, (const int[]){1, 2, 0}, 3, &b));
    if (a)
        RANKS_OK(r, sum_make(&s, a, NULL, NULL));
    RANKS_OK(r, sum_make(&t, b, NULL, NULL));
    if (r->rank == 2)
        ranks_meet(r);
    RANKS_OK(r, sum_start(&t, 1));
    if (a)
        RANKS_OK(r, sum_start(&s, 2));
    if (r->rank != 2) {
        RANKS_CHECK(r, weft_exec_wait(a ? s.x : t.x, (*(int64_t *)r->arg + 600) * MS) == WEFT_ETIMEOUT);
        RANKS_CHECK(r, strstr(weft_errmsg(), " (has not started)"));
        ranks_meet(r);
    }
    if (a)
        RANKS_OK(r, sum_end(&s, 20 * SECOND));
    RANKS_OK(r, sum_end(&t, 20 * SECOND));
    if (a)
        sum_free(&s);
    sum_free(&t);
    weft_comm_close(a);
    weft_comm_close(b);
}

static void wait_in_another_group_is_no_stall(void **state)
{
    (void)state;
    if (conformance_on_mpi()) { /* docs/limits.md */
        print_message("mpi: has the deadline for a rank that has not started, too\n");
        skip();
    }
    sums_count = SUMS_COUNT;
    int64_t deadline = conformance_on_hosts() ? 4000 : 1500; /* they open within it, and may have to wait for a core */
    ranks_run(3, &(weft_comm_opts){.deadline_ns = deadline * MS}, run_patient, &deadline, NULL);
    sums_count = SUMS_SMALL;
}

/* ---- callbacks ---- */

struct called {
    struct sum *mine, *other;
    weft_comm *close;
    int times, wait, barrier, sums_split;
};

static void on_done(void *arg, int err)
{
    struct called *d = arg;
    weft_comm *c;
    d->times += !err;
    d->wait = weft_exec_wait(d->other->x, WEFT_FOREVER);
    d->barrier = weft_comm_barrier(d->other->comm, 0);
    d->sums_split = weft_comm_split(d->other->comm, NULL, 0, &c);
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
    RANKS_OK(r, weft_window_open(r->comm, NULL, 0, 1, &w));
    RANKS_OK(r, sum_make(&s, a, NULL, NULL));
    RANKS_OK(r, sum_make(&t, b, NULL, NULL));
    struct called d = {.mine = &t, .other = &s, .close = b};
    RANKS_OK(r, weft_exec_on_done(t.x, on_done, &d));
    RANKS_OK(r, sum_start(&s, 1));
    RANKS_OK(r, sum_start(&t, 2));
    RANKS_OK(r, sum_end(&s, -1));
    int64_t until = clock_now() + 20 * SECOND;
    while (!d.times && clock_now() < until) /* nobody notifies */
        RANKS_CHECK(r, weft_window_wait(w, 0, WEFT_EQ, 1, MS) == WEFT_ETIMEOUT);
    RANKS_CHECK(r, d.times == 1);
    RANKS_CHECK(r, d.wait == WEFT_EBUSY && d.barrier == WEFT_EBUSY && d.sums_split == WEFT_EBUSY);
    RANKS_OK(r, weft_comm_barrier(r->comm, WEFT_DEADLINE));
    weft_window_close(w);
    sum_free(&s);
    weft_comm_close(a);
}

static void callback_may_close_its_group_while_another_is_waited_for(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++)
        ranks_run(2, NULL, run_callback, NULL, NULL);
}

static const struct CMUnitTest on_hosts[] = {
    cmocka_unit_test(sums_in_overlapping_groups_complete_in_any_order),
    cmocka_unit_test(sums_in_random_groups_are_right),
    cmocka_unit_test(wait_in_another_group_is_no_stall),
};

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_in_overlapping_groups_complete_in_any_order),
        cmocka_unit_test(sums_in_random_groups_are_right),
        cmocka_unit_test(wait_in_one_group_progresses_the_others),
        cmocka_unit_test(window_barrier_and_split_waits_progress_other_groups),
        cmocka_unit_test(wait_in_another_group_is_no_stall),
        cmocka_unit_test(callback_may_close_its_group_while_another_is_waited_for),
    };
    return SUITE_MAIN(argc, argv, SUITE_AT(&conformance_one_host, tests), SUITE_AT(&conformance_hosts, on_hosts));
}
