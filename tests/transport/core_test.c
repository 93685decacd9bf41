/* The words that ranks meet on, by themselves: one failure of several that threads of one rank find at a time, counters
 * that wrap round while ranks sleep and ring, meetings of few and of many ranks. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "support/suite.h"
#include "transport/core/core.h"

static struct core_group *group_new(int size)
{
    struct core_group *g = aligned_alloc(CORE_LINE, core_bytes(size));
    assert_non_null(g);
    memset(g, 0, core_bytes(size));
    core_init(g, size, false);
    return g;
}

/* ---- failures ---- */

enum { FINDERS = 4, TIMES = 5000 };

struct finder {
    struct core_group *group;
    pthread_barrier_t *all;
    int number;
    bool wrong;
};

static void text_of(int number, char *text)
{
    memset(text, 'a' + number, CORE_TEXT - 1);
    text[CORE_TEXT - 1 - 100 * number] = 0;
}

/* What any of them sees of the failure is all of one. */
static void *find(void *arg)
{
    struct finder *f = arg;
    char text[CORE_TEXT];
    const char *is = NULL;
    text_of(f->number, text);
    pthread_barrier_wait(f->all);
    core_fail(f->group, 0, -100 - f->number, text);
    int code = core_failure(f->group, &is);
    f->wrong = code > -100 || code <= -100 - FINDERS;
    if (!f->wrong) {
        text_of(-100 - code, text);
        f->wrong = strcmp(text, is) != 0;
    }
    return NULL;
}

static void one_of_several_failures_at_once_is_kept(void **state)
{
    (void)state;
    pthread_barrier_t all;
    pthread_barrier_init(&all, NULL, FINDERS);
    for (int i = 0; i < TIMES; i++) {
        struct core_group *g = group_new(1);
        struct finder f[FINDERS];
        pthread_t t[FINDERS];
        for (int k = 0; k < FINDERS; k++) {
            f[k] = (struct finder){g, &all, k, false};
            assert_int_equal(pthread_create(&t[k], NULL, find, &f[k]), 0);
        }
        for (int k = 0; k < FINDERS; k++)
            pthread_join(t[k], NULL);
        for (int k = 0; k < FINDERS; k++)
            assert_false(f[k].wrong);
        free(g);
    }
    pthread_barrier_destroy(&all);
}

/* ---- sleep, with a bell that wraps round ---- */

enum { ROUNDS = 20000 };

struct sleeper {
    struct core_group *group;
    int rank;
    _Atomic uint64_t counter[2];
    bool late;
};

/* Two ranks that wait for each other in turn. A signal that were lost would cost the whole of the sleep. */
static void *take_turns(void *arg)
{
    struct sleeper *s = arg;
    struct core_group *g = s->group;
    int other = 1 - s->rank;
    for (uint64_t i = 1; i <= ROUNDS && !s->late; i++) {
        core_signal(g, other, (_Atomic uint64_t *)&s[other - s->rank].counter[s->rank], i);
        while (atomic_load_explicit(&s->counter[other], memory_order_seq_cst) < i && !s->late) {
            uint32_t bell = core_arm(g, s->rank);
            int64_t begin = core_now();
            if (atomic_load_explicit(&s->counter[other], memory_order_seq_cst) < i)
                core_doze(g, s->rank, bell, 1, INT64_C(60000000000));
            else
                core_disarm(g, s->rank);
            s->late = core_now() - begin >= INT64_C(59000000000);
        }
    }
    return NULL;
}

static void bells_that_wrap_round_wake_sleepers(void **state)
{
    (void)state;
    struct core_group *g = group_new(2);
    struct sleeper s[2] = {{.group = g, .rank = 0}, {.group = g, .rank = 1}};
    pthread_t t[2];
    for (int r = 0; r < 2; r++)
        atomic_store(&g->ranks[r].bell, UINT32_MAX - 20);
    for (int r = 0; r < 2; r++)
        assert_int_equal(pthread_create(&t[r], NULL, take_turns, &s[r]), 0);
    for (int r = 0; r < 2; r++)
        pthread_join(t[r], NULL);
    assert_false(s[0].late || s[1].late);
    free(g);
}

/* ---- meetings, by a tree if there are many ranks ---- */

enum { MEETINGS = 40, THREADS = 4 };

static struct core_vote vote_of(int rank, int meeting)
{
    uint64_t lot = hash_u64(hash_u64(7, (uint64_t)rank), (uint64_t)meeting);
    struct core_vote v = {.call = 1, .object = (uint64_t)meeting, .digest = 5, .place = lot, .note = ~(lot & lot >> 8)};
    bool odd = meeting % 4 == 3 && lot % 29 == 0; /* in some meetings some ranks differ */
    v.call += odd && lot >> 20 & 1;
    v.object += odd && lot >> 21 & 1;
    v.digest += odd && lot >> 22 & 1;
    v.code = odd && lot >> 23 & 1 ? -3 : 0;
    return v;
}

/* By the definition: each vote is compared with that of rank 0. */
static struct core_tally tally_of(int size, int meeting)
{
    struct core_vote zero = vote_of(0, meeting);
    struct core_tally t = {.note = UINT64_MAX};
    for (int r = 0; r < size; r++) {
        struct core_vote v = vote_of(r, meeting);
        t.differ |= v.code || v.call != zero.call || v.object != zero.object || v.digest != zero.digest;
        t.note &= v.note;
    }
    return t;
}

struct attendant {
    struct core_group *group;
    int first; /* this thread plays every THREADS-th rank from here on */
    const char *wrong;
};

static void sleep_until_met(struct core_group *g, int rank, int meeting)
{
    for (int next = 0; !core_met(g, (uint64_t)meeting, &next); next = 0) {
        uint32_t bell = core_arm(g, rank);
        if (!core_met(g, (uint64_t)meeting, &next))
            core_doze(g, rank, bell, 1, INT64_C(20000000));
        else
            core_disarm(g, rank);
    }
    core_met_wake(g, rank);
}

static void *attend(void *arg)
{
    struct attendant *a = arg;
    struct core_group *g = a->group;
    for (int m = 0; m < MEETINGS && !a->wrong; m++) {
        struct core_tally right = tally_of(g->size, m);
        for (int r = a->first; r < g->size; r += THREADS) {
            struct core_vote v = vote_of(r, m);
            if (core_enter(g, r, &v) != (uint64_t)m)
                a->wrong = "the number of the meeting";
        }
        for (int r = a->first; r < g->size; r += THREADS) {
            sleep_until_met(g, r, m);
            struct core_tally t = core_tally(g, (uint64_t)m);
            if (t.differ != right.differ || t.note != right.note)
                a->wrong = "the tally";
            for (int k = 0; k < g->size; k++)
                if (core_vote_of(g, k, (uint64_t)m)->place != vote_of(k, m).place)
                    a->wrong = "a vote";
        }
    }
    return NULL;
}

static void meetings_of_any_size_sum_up_all_votes(void **state)
{
    (void)state;
    const int sizes[] = {4, 15, 16, 17, 31, 64, 256, 257, 300};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct core_group *g = group_new(sizes[i]);
        struct attendant a[THREADS];
        pthread_t t[THREADS];
        assert_int_equal(g->tree, sizes[i] > CORE_FLAT);
        for (int k = 0; k < THREADS; k++) {
            a[k] = (struct attendant){g, k, NULL};
            assert_int_equal(pthread_create(&t[k], NULL, attend, &a[k]), 0);
        }
        for (int k = 0; k < THREADS; k++)
            pthread_join(t[k], NULL);
        for (int k = 0; k < THREADS; k++)
            if (a[k].wrong)
                fail_msg("%d ranks: %s is wrong", sizes[i], a[k].wrong);
        free(g);
    }
}

/* Two ranks that note themselves on one core know it of each other, and not of a third that has noted nothing. A rank
 * that is alone on another core shares none. */
static void ranks_on_one_core_know_it(void **state)
{
    (void)state;
    enum { RANKS = 3 };
    struct core_group *g = group_new(RANKS);
    cpu_set_t all, one;
    size_t cores[2], n = 0;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    for (size_t i = 0; i < CPU_SETSIZE && n < 2; i++)
        if (CPU_ISSET(i, &all))
            cores[n++] = i;
    CPU_ZERO(&one);
    CPU_SET(cores[0], &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_false(core_shares_cpu(g, 0)); /* notes rank 0, too */
    assert_true(core_shares_cpu(g, 1));
    assert_true(core_shares_cpu(g, 0));
    if (n == 2) { /* rank 0 moves */
        CPU_ZERO(&one);
        CPU_SET(cores[1], &one);
        assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
        core_note_cpu(g, 0);
        assert_false(core_shares_cpu(g, 0));
        assert_true(core_shares_cpu(g, 2));
        assert_true(core_shares_cpu(g, 0));
    }
    sched_setaffinity(0, sizeof all, &all);
    free(g);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_of_several_failures_at_once_is_kept),
        cmocka_unit_test(bells_that_wrap_round_wake_sleepers),
        cmocka_unit_test(meetings_of_any_size_sum_up_all_votes),
        cmocka_unit_test(ranks_on_one_core_know_it),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
