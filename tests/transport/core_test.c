/* The words that ranks meet on, by themselves: one failure of several that threads of one rank find at a time, counters
 * that wrap round while ranks sleep and ring. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_of_several_failures_at_once_is_kept),
        cmocka_unit_test(bells_that_wrap_round_wake_sleepers),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
