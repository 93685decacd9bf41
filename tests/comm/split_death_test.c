/* A process that is killed while it is in several groups: each of them fails and names it by its rank there, the others
 * go on. One that is killed while ranks split: all are told, and what was half made is left alone. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "support/clock.h"
#include "support/hosts_meet.h"
#include "support/processes.h"
#include "support/random.h"
#include "support/ranks.h"
#include "support/share.h"
#include "support/suite.h"
#include "support/sums.h"

#define MOST 6

static const char *on_hosts; /* a letter a rank; NULL: on this one, by shm: */

static void set_host(int rank)
{
    if (on_hosts)
        setenv("WEFT_HOST", (char[]){on_hosts[rank], 0}, 1);
}

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

/* On several hosts it is named with its host, and the wire may see it first and say so in other words. */
static bool says_died(const char *who)
{
    return strstr(weft_errmsg(), who) && (on_hosts || strstr(weft_errmsg(), " has died"));
}

/* In a group with the victim: works until it fails, in time, with its rank here and where it was opened. */
static void expect_death(struct killing *k, int rank, struct sum *s, const int *list)
{
    char who[64];
    snprintf(who, sizeof who, "rank %d (opened as rank %d)", sums_place(k->victim, list, 2), k->victim);
    int err = 0;
    int64_t until = clock_now() + 20 * SECOND;
    for (int i = 0; !err && clock_now() < until; i++)
        err = i % 5 == 4 ? weft_comm_barrier(s->comm, WEFT_DEADLINE) : sum_run(s, i);
    if (err != WEFT_EPEER || !says_died(who))
        complain(k, rank, who, err);
}

/* What is left of the parent opens it again, and that can be split, too. */
static void go_on(struct killing *k, int rank, weft_comm *world)
{
    int list[MOST], back[MOST];
    size_t n = 0;
    weft_comm *again = NULL, *c = NULL;
    struct sum s = {0};
    int err = weft_comm_survivors(world, list, MOST, &n);
    if (!err)
        err = weft_comm_reopen(world, list, n, &again);
    for (size_t i = 0; i < n; i++)
        back[i] = (int)(n - 1 - i);
    if (!err)
        err = weft_comm_split(again, back, n, &c);
    if (!err)
        err = sum_make(&s, c, NULL, NULL);
    if (!err)
        err = sum_run(&s, 1);
    if (err || n != (size_t)k->ranks - 1)
        complain(k, rank, "the survivors", err);
    sum_free(&s);
    weft_comm_close(c);
    weft_comm_close(again);
}

static int rank_of_killing(struct killing *k, int rank)
{
    weft_comm *world, *c[2] = {NULL, NULL}, *got;
    struct sum s[2];
    int lists[2][2];
    set_host(rank);
    weft_comm_opts o = {.size = sizeof o, .rank = rank, .ranks = k->ranks};
    int err = weft_comm_open(k->url, &o, &world);
    for (int g = 0; g < k->ranks && !err; g++) {
        const int list[] = {g, (g + 1) % k->ranks};
        err = sums_split(world, list, 2, &got);
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
    bool with[2] = {sums_place(k->victim, lists[0], 2) >= 0, sums_place(k->victim, lists[1], 2) >= 0};
    if (rank == k->victim) {
        for (int i = 0; i < k->delay && !err; i++) { /* moves until it is to go, and then not a step more */
            err = i % 5 == 4 ? weft_comm_barrier(c[0], WEFT_DEADLINE) : sum_run(&s[0], i);
            err = err ? err : i % 5 == 4 ? weft_comm_barrier(c[1], WEFT_DEADLINE) : sum_run(&s[1], i);
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
    int64_t began = clock_now();
    err = weft_comm_barrier(world, WEFT_DEADLINE);
    char who[64];
    snprintf(who, sizeof who, "rank %d", k->victim);
    if (err != WEFT_EPEER || !says_died(who) || clock_now() - began > 10 * SECOND)
        complain(k, rank, who, err);
    if (on_hosts)
        go_on(k, rank, world);
    for (int g = 0; g < 2; g++) {
        sum_free(&s[g]);
        weft_comm_close(c[g]);
    }
    weft_comm_close(world);
    return 0;
}

static void see_deaths(int n)
{
    for (int64_t seed = 0; suite_seed(&seed, 0, n); seed++) {
        int i = (int)seed;
        struct killing *k = ranks_shared(sizeof *k);
        pid_t pids[MOST];
        k->ranks = 3 + i % (MOST - 2);
        k->victim = i * 5 % k->ranks;
        k->delay = i * 7 % 20;
        snprintf(k->url, sizeof k->url, "%s:split-%ld-%d", on_hosts ? "auto" : "shm", (long)getpid(), i);
        for (int r = 0; r < k->ranks; r++) {
            pids[r] = process_fork(0);
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

static void death_is_seen_in_all_groups_of_the_rank(void **state)
{
    (void)state;
    see_deaths(12);
}

/* All who are left get the same list from the parent, also those of which only a group has failed. */
static void expect_survivors(struct killing *k, int rank, weft_comm *world)
{
    int list[MOST];
    size_t n = 0;
    int err = weft_comm_survivors(world, list, MOST, &n);
    if (err == WEFT_EINVAL) { /* a group has failed, and this rank has not heard yet that the parent has */
        weft_comm_barrier(world, WEFT_DEADLINE);
        err = weft_comm_survivors(world, list, MOST, &n);
    }
    for (int i = 0; i < (int)n && !err; i++)
        if (list[i] != i + (i >= k->victim))
            n = 0;
    if (err || (int)n != k->ranks - 1)
        complain(k, rank, "the survivors of the parent", err);
}

/* Splits, moves and closes in random groups until something fails: a group, or the parent. */
static void rank_of_splitting(struct killing *k, int rank)
{
    weft_comm *world, *c;
    struct random all = {(uint64_t)k->delay};
    set_host(rank);
    weft_comm_opts o = {.size = sizeof o, .rank = rank, .ranks = k->ranks};
    int err = weft_comm_open(k->url, &o, &world), in_group = 0;
    for (bool first = true; !err && !in_group; first = false) {
        int list[MOST], n = 0;
        for (int r = 0; r < k->ranks; r++) { /* those in it, each before a random one */
            int at = random_once_in(&all, 4) ? -1 : (int)random_in(&all, 0, n);
            if (at < 0)
                continue;
            memmove(list + at + 1, list + at, (size_t)(n++ - at) * sizeof *list);
            list[at] = r;
        }
        err = sums_split(world, list, n, &c);
        if (!err && c) {
            struct sum s;
            in_group = sum_make(&s, c, NULL, NULL);
            if (!in_group)
                in_group = sum_run(&s, k->delay);
            sum_free(&s);
            weft_comm_close(c);
        }
        if (first)
            atomic_fetch_add(&k->ready, 1);
    }
    char who[64];
    snprintf(who, sizeof who, "rank %d", k->victim);
    if (in_group ? in_group != WEFT_EPEER : err != WEFT_EPEER || !says_died(who))
        complain(k, rank, who, in_group ? in_group : err);
    expect_survivors(k, rank, world);
    weft_comm_close(world);
}

static void kill_some(int64_t n)
{
    for (int64_t seed = 0; suite_seed(&seed, 0, n); seed++) {
        struct random rng = random_of(3, seed);
        int i = (int)seed;
        struct killing *k = ranks_shared(sizeof *k);
        pid_t pids[MOST];
        k->ranks = (int)random_in(&rng, 2, MOST);
        k->victim = (int)random_in(&rng, 0, k->ranks - 1);
        k->delay = i;
        snprintf(k->url, sizeof k->url, "%s:splitting-%ld-%d", on_hosts ? "auto" : "shm", (long)getpid(), i);
        for (int r = 0; r < k->ranks; r++) {
            pids[r] = process_fork(0);
            if (pids[r] == 0) {
                rank_of_splitting(k, r);
                _exit(0);
            }
        }
        while (atomic_load(&k->ready) < k->ranks)
            sched_yield();
        struct timespec t = {.tv_nsec = (long)random_in(&rng, 0, 5 * MS)};
        nanosleep(&t, NULL); /* the moment is the test's input, it waits for nothing */
        kill(pids[k->victim], SIGKILL);
        for (int r = 0; r < k->ranks; r++) {
            int status;
            assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
            if (r != k->victim && status)
                complain(k, r, "its process ended otherwise", status);
        }
        for (int r = 0; r < k->ranks; r++)
            if (k->end[r].wrong[0])
                fail_msg("kill %d, of rank %d, rank %d of %d: %s", i, k->victim, r, k->ranks, k->end[r].wrong);
        munmap(k, sizeof *k);
    }
}

static void kill_during_splits_reaches_all_ranks(void **state)
{
    (void)state;
    kill_some(test_share(12, 1000));
}

static void deaths_in_groups_on_several_hosts_are_seen(void **state)
{
    static const char *const hosts[] = {"abcdef", "aabbcc", "ababab"};
    (void)state;
    hosts_need_wire();
    for (int i = 0; i < 3; i++) {
        on_hosts = hosts[i];
        see_deaths((int)test_share(2, 12));
        kill_some(test_share(2, 40));
    }
    on_hosts = NULL;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(death_is_seen_in_all_groups_of_the_rank),
        cmocka_unit_test(kill_during_splits_reaches_all_ranks),
        cmocka_unit_test_setup_teardown(deaths_in_groups_on_several_hosts_are_seen, hosts_setup, hosts_teardown),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
