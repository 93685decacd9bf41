/* What is put into windows on other hosts: all of window_puts.h; targets that make no calls; ranks that are killed. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "support/hosts_meet.h"
#include "support/ranks.h"
#include "support/share.h"
#include "support/soon.h"
#include "support/suite.h"
#include "support/window_cases.h"
#include "support/window_puts.h"

/* Where bodies of ranks.h run on several hosts: on ucx:, where every rank is a host, and on auto: with two and three
 * hosts whose ranks take turns. Sanitizers look at one process: there ranks are threads, on ucx: alone. */

static const struct place {
    const char *transport, *hosts;
    int ranks[3]; /* how many of them, 0 after the last */
} places[] = {
    {"ucx", "abcd", {2, 3}},
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
    {"auto", "abab", {3, 4}}, {"auto", "abcab", {3, 5}}, {"auto", "ababab", {6}},
#endif
    {"ucx", "abcd", {4}},
};

/* The body on each place that has from `least` to `most` ranks. */
static void everywhere(void (*body)(struct ranks_rank *), int least, int most, void *arg, const weft_comm_opts *o)
{
    hosts_need_wire();
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
    ranks_forked = true;
#endif
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        for (int k = 0; k < 3 && places[i].ranks[k]; k++) {
            int n = places[i].ranks[k];
            if (n < least || n > most)
                continue;
            ranks_on = hosts_scheme(places[i].transport);
            ranks_hosts = places[i].hosts;
            ranks_run(n, o, body, arg, NULL);
        }
}

static void random_puts_and_adds_are_right(void **state)
{
    (void)state;
    int rounds = (int)test_share(3, 60), tight = rounds < 20 ? 20 : rounds; /* some sizes meet after 17 rounds only */
    everywhere(puts_random_body, 2, 6, &rounds, NULL);
    everywhere(puts_random_body, 3, 3, &rounds, &(weft_comm_opts){.progress = WEFT_PROGRESS_THREAD});
    everywhere(puts_random_body, 3, 3, &tight, &(weft_comm_opts){.inflight_bytes = 1 << 20});
}

static void puts_are_seen_through_a_third_ranks_signal(void **state)
{
    (void)state;
    int turns = (int)test_share(60, 3000);
    everywhere(puts_third_body, 3, 6, &turns, NULL);
}

static void puts_are_seen_after_a_comm_barrier(void **state)
{
    (void)state;
    everywhere(puts_barrier_body, 2, 4, NULL, NULL);
}

static void large_puts_in_both_directions_complete(void **state)
{
    (void)state;
    int64_t bytes = INT64_C(100) << 20, fewer = INT64_C(9000008);
#if !defined(__SANITIZE_THREAD__)
    everywhere(puts_large_body, 2, 2, &bytes, NULL);
#else
    (void)bytes;
#endif
    everywhere(puts_large_body, 2, 4, &fewer, NULL);
}

static void callbacks_may_put(void **state)
{
    (void)state;
    everywhere(puts_callback_body, 2, 4, NULL, NULL);
}

/* ---- targets that make no calls ---- */

/* Rank 1 does nothing but wait outside weft; its thread takes what is put. */
static void idle_body(struct ranks_rank *r)
{
    enum { N = 2000000 };
    const weft_buffer b = WEFT_BUFFER("words", WEFT_I32, N);
    weft_window *w;
    int32_t *work = calloc(N, sizeof *work);
    RANKS_OK(r, weft_window_open(r->comm, &b, 1, 2, &w));
    if (r->rank == 0) {
        work[N - 1] = 7;
        RANKS_OK(r, weft_window_put(w, 0, 1, 0, work, N));
        RANKS_OK(r, weft_window_notify(w, 1, 0, WEFT_NOTIFY_SET, 1));
        RANKS_OK(r, weft_window_put(w, 0, 1, 0, work + N - 1, 1));
        RANKS_OK(r, weft_window_barrier_with(w, (const int[]){0}, 1, PUTS_LONG_NS)); /* with nobody */
    }
    ranks_meet(r);
    if (r->rank == 1) {
        RANKS_OK(r, weft_window_wait(w, 0, WEFT_EQ, 1, PUTS_LONG_NS));
        RANKS_CHECK(r, ((const int32_t *)weft_window_pointer(w, 0, 1))[N - 1] == 7);
    }
    RANKS_OK(r, weft_window_barrier(w, PUTS_LONG_NS));
    weft_window_close(w);
    free(work);
}

static void progress_thread_takes_puts_for_an_idle_rank(void **state)
{
    (void)state;
    everywhere(idle_body, 2, 3, NULL, &(weft_comm_opts){.progress = WEFT_PROGRESS_THREAD});
}

/* Rank 1 makes no calls for longer than the deadline. */
static void silent_body(struct ranks_rank *r)
{
    enum { N = 4000000 };
    const weft_buffer b = WEFT_BUFFER("words", WEFT_I32, N);
    weft_window *w;
    int32_t *work = calloc(N, sizeof *work);
    RANKS_OK(r, weft_window_open(r->comm, &b, 1, 2, &w));
    ranks_meet(r); /* rank 1 makes no calls from here on */
    if (r->rank == 0) {
        int err = weft_window_put(w, 0, 1, 0, work, N);
        RANKS_CHECK(r, err == WEFT_EPEER);
        RANKS_CHECK(r, strstr(ranks_said(), "rank 1 has taken no put or signal of rank 0 for 4000 ms"));
    }
    ranks_meet(r);
    weft_window_close(w);
    free(work);
}

static void target_silent_beyond_the_deadline_is_named(void **state)
{
    (void)state;
    everywhere(silent_body, 2, 2, NULL, &(weft_comm_opts){.deadline_ns = 4 * SECOND});
}

/* Rank 1 makes no calls for a while: barriers say whom they wait for, and go on when it has. */
static void late_body(struct ranks_rank *r)
{
    enum { N = 15000 };
    const weft_buffer b = WEFT_BUFFER("words", WEFT_I32, N);
    weft_window *w;
    static _Thread_local int32_t work[N];
    int other = (r->rank + 1) % 2;
    RANKS_OK(r, weft_window_open(r->comm, &b, 1, 2, &w));
    ranks_meet(r);
    if (r->rank == 0) {
        work[N - 1] = 5;
        RANKS_OK(r, weft_window_put(w, 0, 1, 0, work, N));
        RANKS_CHECK(r, weft_window_barrier(w, 5 * MS) == WEFT_ETIMEOUT);
        RANKS_CHECK(r, !strcmp(ranks_said(), "weft_window_barrier: time ran out, rank 1 yet to take what was put"));
        RANKS_CHECK(r, weft_comm_barrier(r->comm, 5 * MS) == WEFT_ETIMEOUT);
        RANKS_CHECK(r, !strcmp(ranks_said(), "weft_comm_barrier: time ran out, rank 1 yet to take what was put"));
    }
    ranks_meet(r);
    RANKS_OK(r, weft_window_barrier(w, PUTS_LONG_NS));
    RANKS_CHECK(r, r->rank != 1 || ((const int32_t *)weft_window_pointer(w, 0, 1))[N - 1] == 5);
    if (r->rank < 2)
        RANKS_OK(r, weft_window_barrier_with(w, &other, 1, PUTS_LONG_NS));
    RANKS_OK(r, weft_comm_barrier(r->comm, PUTS_LONG_NS));
    weft_window_close(w);
}

static void barrier_names_the_late_rank_and_goes_on(void **state)
{
    (void)state;
    everywhere(late_body, 2, 3, NULL, NULL);
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
            atomic_store(&((struct killing *)(uintptr_t)k)->died, clock_now());
            raise(SIGKILL);
        }
        for (int q = 0; q < ranks && !err; q++)
            err = weft_window_put(w, 0, q, 0, words, turn % 3 ? 50 : 6000);
        if (!err)
            err = weft_window_put_add(w, 0, left, 0, words, turn % 5 ? 50 : 6000);
        if (!err)
            err =
                turn % 4 ? weft_window_notify(w, right, 0, WEFT_NOTIFY_ADD, 1) : weft_window_barrier(w, WEFT_DEADLINE);
        if (!err && turn % 4)
            err = weft_window_wait(w, 0, WEFT_GE, turn - turn / 4, WEFT_FOREVER);
        if (!err && turn % 7 == 0)
            err = weft_window_barrier_with(w, (const int[]){left, right}, left == right ? 1 : 2, WEFT_DEADLINE);
    }
    return err;
}

static void killed_body(struct ranks_rank *r)
{
    struct killing *k = r->arg;
    const weft_buffer b = WEFT_BUFFER("words", WEFT_I64, 6000);
    weft_window *w;
    RANKS_OK(r, weft_window_open(r->comm, &b, 1, 1, &w));
    k->end[r->rank].code = work_until_failure(w, k, r->rank, r->size);
    k->end[r->rank].knew = clock_now();
    snprintf(k->end[r->rank].text, sizeof k->end[r->rank].text, "%s", weft_errmsg());
    weft_window_close(w);
}

static void one_death(struct random *rnd, int number)
{
    struct killing *k = ranks_shared(sizeof *k);
    int n = (int)random_in(rnd, 2, 5);
    char name[32];
    k->victim = (int)random_in(rnd, 0, n - 1);
    k->at = random_in(rnd, 1, 60);
    ranks_hosts = number % 3 == 0 ? "abcde" : random_once_in(rnd, 2) ? "ababa" : "aabcc";
    ranks_on = number % 3 ? "auto" : hosts_wire();
    snprintf(name, sizeof name, "rank %d", k->victim);
    ranks_run_but(n, &(weft_comm_opts){.deadline_ns = 20 * SECOND}, killed_body, k, k->victim);
    for (int r = 0; r < n; r++) {
        int64_t after = k->end[r].knew - atomic_load(&k->died);
        if (r != k->victim && (k->end[r].code != WEFT_EPEER || !strstr(k->end[r].text, name) || !soon_enough(after)))
            fail_msg("death %d, %s on hosts %s: rank %d of %d at turn %lld, rank %d ended with %d after %lld ms: %s",
                     number, ranks_on, ranks_hosts, k->victim, n, (long long)k->at, r, k->end[r].code,
                     (long long)(after / MS), k->end[r].text);
    }
    munmap(k, sizeof *k);
}

static void rank_killed_during_puts_is_named(void **state)
{
    (void)state;
    hosts_need_wire();
    if (!ranks_forked) {
        print_message("skip: under sanitizers ranks are threads, and only processes can be killed\n");
        skip();
    }
    for (int64_t i = 0; suite_seed(&i, 0, test_share(12, 200)); i++) {
        struct random rnd = random_of(20261115, i);
        one_death(&rnd, (int)i);
    }
    soon_judge();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_puts_and_adds_are_right),
        cmocka_unit_test(puts_are_seen_through_a_third_ranks_signal),
        cmocka_unit_test(puts_are_seen_after_a_comm_barrier),
        cmocka_unit_test(large_puts_in_both_directions_complete),
        cmocka_unit_test(progress_thread_takes_puts_for_an_idle_rank),
        cmocka_unit_test(target_silent_beyond_the_deadline_is_named),
        cmocka_unit_test(barrier_names_the_late_rank_and_goes_on),
        cmocka_unit_test(callbacks_may_put),
        cmocka_unit_test(rank_killed_during_puts_is_named),
    };
    return SUITE_MAIN(argc, argv, SUITE_FIXTURE(tests, hosts_setup, hosts_teardown));
}
