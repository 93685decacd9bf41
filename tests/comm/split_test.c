/* Comms split from others: who is in them and in which order, what is refused, memory of one used in the other, the end
 * in any order, and failures that stay where they belong. Groups that overlap are in split_overlap_test.c. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "comm/comm.h"
#include "support/clock.h"
#include "support/conformance.h"
#include "support/processes.h"
#include "support/random.h"
#include "support/ranks.h"
#include "support/suite.h"
#include "support/sums.h"
#include "transport/shm/shm.h"

/* ---- who is where ---- */

static void run_odd_and_even(struct ranks_rank *r)
{
    static const int even[] = {0, 2, 4}, odd[] = {5, 3, 1};
    weft_comm *c = NULL;
    struct sum s;
    const int *list = r->rank % 2 ? odd : even;
    RANKS_OK(r, weft_comm_split(r->comm, list, 3, &c));
    RANKS_CHECK(r, c && weft_comm_size(c) == 3 && weft_comm_rank(c) == sums_place(r->rank, list, 3));
    weft_machine m = WEFT_MACHINE_INIT;
    RANKS_OK(r, weft_comm_machine(c, &m));
    RANKS_OK(r, sum_make(&s, c, NULL, NULL));
    for (int i = 0; i < 20; i++)
        RANKS_OK(r, sum_run(&s, i + r->rank % 2));
    RANKS_OK(r, weft_comm_barrier(c, WEFT_DEADLINE));
    sum_free(&s);
    weft_comm_close(c);
    RANKS_OK(r, weft_comm_barrier(r->comm, WEFT_DEADLINE));
}

static void groups_have_the_order_of_their_lists(void **state)
{
    (void)state;
    ranks_run(6, NULL, run_odd_and_even, NULL, NULL);
    ranks_run(6, &(weft_comm_opts){.staged = true}, run_odd_and_even, NULL, NULL);
}

static void run_some(struct ranks_rank *r)
{
    static const int list[] = {3, 1};
    weft_comm *c = r->comm;
    RANKS_OK(r, sums_split(r->comm, list, 2, &c));
    RANKS_CHECK(r, (c != NULL) == (r->rank == 1 || r->rank == 3));
    if (c) {
        RANKS_CHECK(r, c != r->comm && weft_comm_rank(c) == (r->rank == 1));
        RANKS_OK(r, weft_comm_barrier(c, WEFT_DEADLINE));
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

static void ranks_in_no_list_get_no_comm(void **state)
{
    (void)state;
    ranks_run(4, NULL, run_some, NULL, NULL);
}

static void self_comm_can_be_split(void **state)
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
    assert_string_equal(ranks_said(), "rank 0 (opened as rank 0): weft_comm_split: there is no rank 1, the comm has 1");
    sum_free(&s);
    weft_comm_close(kk);
}

/* ---- what is refused ---- */

#define LIST(...)                                                                    \
    {                                                                                \
        (const int[]){__VA_ARGS__}, sizeof((const int[]){__VA_ARGS__}) / sizeof(int) \
    }
#define NONE    \
    {           \
        NULL, 0 \
    }

static const struct {
    struct {
        const int *ranks;
        size_t n;
    } of[3];
    int code;
    const char *text;
} refusals[] = {
    {{LIST(0, 1), LIST(0, 1, 0), NONE}, WEFT_EINVAL, "rank 1: weft_comm_split: rank 0 is listed twice"},
    {{LIST(0), NONE, LIST(2, 3)}, WEFT_EINVAL, "rank 2: weft_comm_split: there is no rank 3, the comm has 3"},
    {{LIST(0), LIST(1, -1), LIST(2)}, WEFT_EINVAL, "rank 1: weft_comm_split: there is no rank -1, the comm has 3"},
    {{LIST(0), LIST(0, 2), LIST(2)},
     WEFT_EINVAL,
     "rank 1: weft_comm_split: its list of 2 ranks leaves out rank 1 itself; a rank that is in no group passes none"},
    {{LIST(0, 1, 2, 0), NONE, NONE}, WEFT_EINVAL, "rank 0: weft_comm_split: 4 ranks, the comm has 3"},
    {{NONE, {NULL, 2}, NONE}, WEFT_EINVAL, "rank 1: weft_comm_split: 2 ranks at NULL"},
    {{NONE, NONE, {NULL, SIZE_MAX}}, WEFT_EINVAL, "rank 2: weft_comm_split: 18446744073709551615 ranks at NULL"},
    {{LIST(0, 1), LIST(0, 1, 2), LIST(2)},
     WEFT_EMISMATCH,
     "rank 0: weft_comm_split: it lists 2 ranks, but rank 1, one of them, lists 3"},
    {{LIST(0, 1, 2), LIST(0, 1, 2), LIST(0, 2, 1)},
     WEFT_EMISMATCH,
     "rank 0: weft_comm_split: entry 1 of its list is rank 1, but in the list of rank 2 it is rank 2"},
    {{LIST(0), LIST(1, 2), NONE}, WEFT_EMISMATCH, "rank 1: weft_comm_split: it lists rank 2, whose own list is empty"},
    {{LIST(0), LIST(1, 2), LIST(2)},
     WEFT_EMISMATCH,
     "rank 1: weft_comm_split: it lists 2 ranks, but rank 2, one of them, lists 1"},
};

static void run_refusals(struct ranks_rank *r)
{
    weft_comm *c = NULL;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        int code = weft_comm_split(r->comm, refusals[i].of[r->rank].ranks, refusals[i].of[r->rank].n, &c);
        if (code != refusals[i].code || strcmp(ranks_said(), refusals[i].text)) {
            ranks_note(r, __FILE__, __LINE__, "refusal %d: %d, %s", (int)i, code, ranks_said());
            return;
        }
        RANKS_CHECK(r, !c);
        RANKS_OK(r, weft_comm_barrier(r->comm, WEFT_DEADLINE)); /* nothing is broken */
    }
    RANKS_CHECK(r, weft_comm_split(NULL, &r->rank, 1, &c) == WEFT_EINVAL);
    RANKS_CHECK(r, weft_comm_split(r->comm, &r->rank, 1, NULL) == WEFT_EINVAL);
    RANKS_OK(r, weft_comm_split(r->comm, (const int[]){2, 0, 1}, 3, &c));
    RANKS_OK(r, weft_comm_barrier(c, WEFT_DEADLINE));
    weft_comm_close(c);
}

static void bad_lists_are_refused_on_all_ranks(void **state)
{
    (void)state;
    ranks_run(3, NULL, run_refusals, NULL, NULL);
}

static int64_t deadline_ms(void)
{
    return conformance_on_hosts()
               ? 4000
               : 1500; /* all but one are there in time, on a busy machine, too; to connect takes its time */
}

static void run_other_call(struct ranks_rank *r)
{
    char text[80];
    weft_comm *c = NULL;
    int err = r->rank == 2 ? weft_comm_barrier(r->comm, WEFT_DEADLINE) : weft_comm_split(r->comm, &r->rank, 1, &c);
    RANKS_CHECK(r, err == WEFT_EMISMATCH && !c);
    RANKS_CHECK(r, !strcmp(ranks_said(), "rank 0 is in weft_comm_split, rank 2 in weft_comm_barrier: all ranks must "
                                         "make the same calls in one order"));
    if (r->rank == 2) {
        ranks_meet(r);
        err = weft_comm_split(r->comm, &r->rank, 1, &c);
    } else {
        err = weft_comm_split(r->comm, (const int[]){0, 1}, 2, &c);
        ranks_meet(r);
    }
    RANKS_CHECK(r, err == WEFT_ETIMEOUT && !c);
    snprintf(text, sizeof text, "weft_comm_split: rank 2 did not take part within %d ms", (int)deadline_ms());
    RANKS_CHECK(r, !strcmp(ranks_said(), text));
}

static void rank_that_misses_a_split_is_named(void **state)
{
    (void)state;
    ranks_run(3, &(weft_comm_opts){.deadline_ns = deadline_ms() * MS}, run_other_call, NULL, NULL);
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
        RANKS_OK(r, weft_comm_alloc(r->comm, SUMS_COUNT * sizeof(int32_t), WEFT_MEMORY_HOST, 0, &parent[i]));
        RANKS_OK(r, weft_comm_alloc(k, SUMS_COUNT * sizeof(int32_t), WEFT_MEMORY_HOST, 0, &child[i]));
    }
    weft_comm *on[] = {r->comm, c, k};
    for (int i = 0; i < 3; i++) {
        RANKS_OK(r, sum_make(&s, on[i], parent[0], child[0]));
        RANKS_OK(r, sum_run(&s, i));
        RANKS_OK(r, sum_run(&s, i + 1));
        RANKS_CHECK(r, staged_bytes(&s) == 0);
        weft_view in = WEFT_VIEW(child[1], SUMS_COUNT * sizeof(int32_t)),
                  out = WEFT_VIEW(parent[1], SUMS_COUNT * sizeof(int32_t));
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
        weft_comm_free(r->comm, parent[i]);
        weft_comm_free(k, child[i]);
    }
    weft_comm_close(c);
    weft_comm_close(k);
}

static void memory_of_one_comm_is_reached_in_its_siblings(void **state)
{
    (void)state;
    sums_count = SUMS_COUNT;
    ranks_run(3, NULL, run_memory, NULL, NULL);
    sums_count = SUMS_SMALL;
}

/* Groups come and go, whoever closes first: the file that the processes share stays as large as it is. */
static void run_many(struct ranks_rank *r)
{
    uint64_t top = 0;
    blkcnt_t blocks = 0;
    int files = 0;
    struct random rng = {(uint64_t)r->rank};
    for (int i = 0; i < (conformance_on_hosts() ? 4 : 120); i++) {
        const int even[] = {0, 2}, odd[] = {3, 1};
        weft_comm *c, *k = NULL;
        struct sum s;
        void *m;
        RANKS_OK(r, weft_comm_split(r->comm, r->rank % 2 ? odd : even, 2, &c));
        if (i % 3 == 0)
            RANKS_OK(r, weft_comm_split(c, (const int[]){1, 0}, 2, &k));
        RANKS_OK(r, sum_make(&s, k ? k : c, NULL, NULL));
        RANKS_OK(r, weft_comm_alloc(c, 3 << 20, WEFT_MEMORY_HOST, 0, &m)); /* not given back */
        RANKS_OK(r, sum_run(&s, i));
        bool first = random_in(&rng, 0, 1);
        weft_comm_close(first ? c : k);
        sum_free(&s);
        weft_comm_close(first ? k : c);
        RANKS_OK(r, weft_comm_barrier(r->comm, WEFT_DEADLINE));
        if (strcmp(ranks_on, "shm"))
            continue;
        const struct shm_home *home = ((const struct shm_link *)(void *)r->comm->link)->home;
        struct stat st;
        RANKS_CHECK(r, !fstat(home->file, &st));
        ranks_meet(r);
        if (i == 20) {
            top = atomic_load(&home->head->top);
            blocks = st.st_blocks;
            files = process_files();
        }
        RANKS_CHECK(r, i <= 20 || (atomic_load(&home->head->top) <= top + 32 * SHM_PAGE));
        RANKS_CHECK(r, i <= 20 || st.st_blocks <= 2 * blocks);
        RANKS_CHECK(r, i <= 20 || !ranks_forked || process_files() <= files + r->size); /* each peer is watched once */
        ranks_meet(r);
    }
}

static void many_groups_leave_no_memory_and_no_files(void **state)
{
    (void)state;
    int files = process_files();
    if (!conformance_on_hosts())
        ranks_run(4, NULL, run_many, NULL, NULL);
    sums_count = SUMS_COUNT;
    ranks_run(4, NULL, run_many, NULL, NULL);
    sums_count = SUMS_SMALL;
    assert_true(conformance_on_hosts() || process_files() == files); /* UCX keeps some of its own */
}

/* ---- the end ---- */

static int close_as(struct ranks_rank *r, weft_comm *c[3], const int *order)
{
    for (int i = 0; i < 3; i++) {
        weft_comm_close(c[order[i]]);
        c[order[i]] = NULL;
        for (int k = 0; k < 3; k++)
            if (c[k] && weft_comm_barrier(c[k], WEFT_DEADLINE))
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
        if (conformance_on_hosts()) /* the one that was opened has to serve for all orders */
            RANKS_OK(r, weft_comm_split(r->comm, (const int[]){0, 1, 2}, 3, &c[0]));
        RANKS_OK(r, weft_comm_split(c[0], (const int[]){1, 0, 2}, 3, &c[1]));
        RANKS_OK(r, weft_comm_split(c[1], (const int[]){1, 2, 0}, 3, &c[2]));
        r->keep = !conformance_on_hosts();
        RANKS_OK(r, close_as(r, c, orders[i]));
        if (conformance_on_hosts())
            continue;
        /* The name is free again, also while groups live that were split from the one that had it. */
        RANKS_OK(r, weft_comm_open(r->url, &r->opts, &r->comm));
        weft_comm *old;
        RANKS_OK(r, weft_comm_split(r->comm, (const int[]){0, 1, 2}, 3, &old));
        weft_comm_close(r->comm);
        RANKS_OK(r, weft_comm_open(r->url, &r->opts, &r->comm));
        RANKS_OK(r, weft_comm_barrier(old, WEFT_DEADLINE));
        RANKS_OK(r, weft_comm_barrier(r->comm, WEFT_DEADLINE));
        weft_comm_close(old);
        r->keep = false;
    }
}

static void parents_and_groups_close_in_any_order(void **state)
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
        RANKS_OK(r, sums_split(r->comm, lists[g], 2, &c[g]));
    for (int g = 0; g < 3; g++)
        if (c[g])
            RANKS_OK(r, sum_make(&s[g], c[g], NULL, NULL));
    if (r->rank == 2) {
        sum_free(&s[1]);
        weft_comm_close(c[1]);
    }
    if (r->rank == 1) {
        char text[200] = "rank 1 (opened as rank 2) closed its comm or freed its exec, rank 0 was waiting for it";
        RANKS_OK(r, sum_start(&s[1], 1));
        RANKS_OK(r, sum_start(&s[0], 1));
        RANKS_OK(r, sum_end(&s[0], 20 * SECOND)); /* not disturbed */
        RANKS_CHECK(r, weft_exec_wait(s[1].x, 20 * SECOND) == WEFT_EPEER);
        if (conformance_on_hosts() && strstr(ranks_said(), " rank 1 (opened as rank 2): ")) /* the wire saw it first */
            snprintf(text, sizeof text, "%.*s", (int)sizeof text - 1, ranks_said());
        RANKS_CHECK(r, !strcmp(ranks_said(), text));
        RANKS_CHECK(r, weft_comm_split(c[1], NULL, 0, &k) == WEFT_EPEER && !strcmp(ranks_said(), text));
        RANKS_CHECK(r, weft_comm_barrier(c[1], WEFT_DEADLINE) == WEFT_EPEER && !strcmp(ranks_said(), text));
        sum_free(&s[1]);
        weft_comm_close(c[1]);
    }
    if (r->rank == 0)
        RANKS_OK(r, sum_run(&s[0], 1));
    for (int i = 0; i < 20; i++)
        for (int g = 0; g < 3; g += 2)
            if (c[g])
                RANKS_OK(r, sum_run(&s[g], i));
    RANKS_OK(r, weft_comm_barrier(r->comm, WEFT_DEADLINE));
    RANKS_OK(r, weft_comm_split(r->comm, (const int[]){3, 2, 1, 0}, 4, &k));
    RANKS_OK(r, weft_comm_barrier(k, WEFT_DEADLINE));
    weft_comm_close(k);
    for (int g = 0; g < 3; g += 2) {
        if (c[g])
            sum_free(&s[g]);
        weft_comm_close(c[g]);
    }
}

static void failure_of_a_group_stays_in_it(void **state)
{
    (void)state;
    ranks_run(4, NULL, run_isolation, NULL, NULL);
    sums_count = SUMS_COUNT;
    ranks_run(4, NULL, run_isolation, NULL, NULL);
    sums_count = SUMS_SMALL;
    ranks_run(4, &(weft_comm_opts){.staged = true}, run_isolation, NULL, NULL);
}

/* The other way round: the parent fails, groups that were split from it go on, and no more can be. */
static void run_failed_parent(struct ranks_rank *r)
{
    weft_comm *c, *k = NULL;
    struct sum s;
    RANKS_OK(r, sums_split(r->comm, (const int[]){2, 0}, 2, &c));
    if (r->rank == 1) {
        weft_comm_close(r->comm);
        r->keep = true;
        return;
    }
    RANKS_OK(r, sum_make(&s, c, NULL, NULL));
    RANKS_CHECK(r, weft_comm_barrier(r->comm, 20 * SECOND) == WEFT_EPEER);
    RANKS_CHECK(r, weft_comm_split(r->comm, &r->rank, 1, &k) == WEFT_EPEER && !k);
    RANKS_CHECK(r, !strcmp(ranks_said(), "rank 1 closed its comm, others are in weft_comm_barrier"));
    RANKS_OK(r, sum_run(&s, 1));
    RANKS_OK(r, weft_comm_split(c, (const int[]){1, 0}, 2, &k));
    RANKS_OK(r, weft_comm_barrier(k, WEFT_DEADLINE));
    sum_free(&s);
    weft_comm_close(k);
    weft_comm_close(c);
}

static void groups_go_on_when_their_parent_fails(void **state)
{
    (void)state;
    ranks_run(3, NULL, run_failed_parent, NULL, NULL);
}

static const struct CMUnitTest on_hosts[] = {
    cmocka_unit_test(groups_have_the_order_of_their_lists),     cmocka_unit_test(ranks_in_no_list_get_no_comm),
    cmocka_unit_test(bad_lists_are_refused_on_all_ranks),       cmocka_unit_test(rank_that_misses_a_split_is_named),
    cmocka_unit_test(many_groups_leave_no_memory_and_no_files), cmocka_unit_test(parents_and_groups_close_in_any_order),
    cmocka_unit_test(failure_of_a_group_stays_in_it),           cmocka_unit_test(groups_go_on_when_their_parent_fails),
};

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_have_the_order_of_their_lists),
        cmocka_unit_test(ranks_in_no_list_get_no_comm),
        cmocka_unit_test(bad_lists_are_refused_on_all_ranks),
        cmocka_unit_test(rank_that_misses_a_split_is_named),
        cmocka_unit_test(memory_of_one_comm_is_reached_in_its_siblings),
        cmocka_unit_test(many_groups_leave_no_memory_and_no_files),
        cmocka_unit_test(parents_and_groups_close_in_any_order),
        cmocka_unit_test(failure_of_a_group_stays_in_it),
        cmocka_unit_test(groups_go_on_when_their_parent_fails),
    };
    const struct CMUnitTest alone[] = {
        cmocka_unit_test(self_comm_can_be_split),
    };
    return SUITE_MAIN(argc, argv, SUITE_AT(&conformance_one_host, tests), SUITE_AT(&conformance_hosts, on_hosts),
                      SUITE_AT(&conformance_alone, alone));
}
