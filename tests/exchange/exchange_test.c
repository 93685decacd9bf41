/* Messages of unknown size between neighbours: what arrives is what was put, in order, for every kind of neighbourhood
 * and of size, on every transport. Halos are in halo_rounds_test.c, misuse and completion in exchange_calls_test.c. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "exchange_flow.h"
#include "support/conformance.h"
#include "support/share.h"
#include "support/suite.h"

static const int sizes[] = {1, 2, 3, 4, 5, 8};
#define SIZES (int)(sizeof sizes / sizeof *sizes)
#define EACH_SIZE(i, first)             \
    for (int i = first; i < SIZES; i++) \
        if (conformance_takes(sizes[i]))

static void on_all_sizes(struct flow *f)
{
    EACH_SIZE(i, 0)
    ranks_run(sizes[i], NULL, flow_body, f, NULL);
}

static int three(const struct flow *f, int from, int to, int round)
{
    (void)f, (void)from, (void)to, (void)round;
    return 3;
}

static int zero(const struct flow *f, int from, int to, int round)
{
    (void)f, (void)from, (void)to, (void)round;
    return 0;
}

static void three_messages_round_a_ring_arrive(void **state)
{
    (void)state;
    struct flow f = {.seed = 1, .rounds = 3, .edge = flow_ring, .count = three, .bytes = flow_small, .meta = flow_word};
    on_all_sizes(&f);
    f.vote = true;
    on_all_sizes(&f);
}

static void rounds_without_messages_end(void **state)
{
    (void)state;
    struct flow f = {.seed = 2, .rounds = 5, .edge = flow_all, .count = zero, .bytes = flow_small, .meta = flow_word};
    on_all_sizes(&f);
    f.vote = true;
    on_all_sizes(&f);
}

static bool triangle(const struct flow *f, int n, int from, int to)
{
    (void)f, (void)n;
    return (from == 0 && (to == 1 || to == 2)) || (from == 1 && to == 2) || (from == 2 && to == 0);
}

static int pair_number(const struct flow *f, int from, int to, int round)
{
    (void)f;
    return from + 2 * to + round;
}

static void asymmetric_neighbourhoods_arrive(void **state)
{
    (void)state;
    struct flow f = {
        .seed = 3, .rounds = 4, .edge = triangle, .count = pair_number, .bytes = flow_small, .meta = flow_small};
    on_all_sizes(&f);
}

static int none_one_or_three(const struct flow *f, int from, int to, int round)
{
    static const int counts[] = {0, 1, 3};
    return counts[flow_hash(f->seed, from, to, round, 0) % 3];
}

/* Metadata only, payload only, both, neither. */
static size_t bytes_of_kind(const struct flow *f, int from, int to, int round, int k)
{
    uint64_t h = flow_hash(f->seed + 1, from, to, round, k);
    return h & 1 ? h / 4 % 3000 + 1 : 0;
}

static size_t meta_of_kind(const struct flow *f, int from, int to, int round, int k)
{
    uint64_t h = flow_hash(f->seed + 1, from, to, round, k);
    return h & 2 ? h / 4 % 300 + 1 : 0;
}

static void messages_of_all_kinds_along_a_line_arrive(void **state)
{
    (void)state;
    struct flow f = {.seed = 4,
                     .rounds = 40,
                     .edge = flow_line,
                     .count = none_one_or_three,
                     .bytes = bytes_of_kind,
                     .meta = meta_of_kind};
    on_all_sizes(&f);
}

/* 0, 1 byte, 4 KiB and 5 MiB, and what is just below and above the sizes at which ways change. */
static size_t of_any_size(const struct flow *f, int from, int to, int round, int k)
{
    static const size_t all[] = {0, 1, 4096, 5 << 20, WEFT_EXCHANGE_SMALL, WEFT_EXCHANGE_SMALL + 1, 65536, 65537};
    return all[flow_hash(f->seed, from, to, round, k) % (round < 3 ? 4 : 8)];
}

static void sizes_that_vary_by_rank_and_round_arrive(void **state)
{
    (void)state;
    struct flow f = {
        .seed = 5, .rounds = 5, .edge = flow_line, .count = three, .bytes = of_any_size, .meta = flow_word};
    for (int window = 0; window < 2; window++)
        EACH_SIZE(i, 0)
        {
            f.window = window;
            f.hook = i % 2;
            f.early = i % 3 == 0;
            ranks_run(sizes[i], &(weft_comm_opts){.staged = i == 2}, flow_body, &f, NULL);
        }
}

static int sixty_four(const struct flow *f, int from, int to, int round)
{
    (void)f, (void)from, (void)to, (void)round;
    return 64;
}

static void messages_of_four_threads_arrive_in_order(void **state)
{
    (void)state;
    struct flow f = {.seed = 6,
                     .rounds = 3,
                     .threads = 4,
                     .edge = flow_ring,
                     .count = sixty_four,
                     .bytes = flow_small,
                     .meta = flow_word};
    on_all_sizes(&f);
}

static int one(const struct flow *f, int from, int to, int round)
{
    (void)f, (void)from, (void)to, (void)round;
    return 1;
}

static void a_thousand_rounds_complete(void **state)
{
    (void)state;
    int rounds = CONFORMANCE_ON == 1 || conformance_on_hosts() ? 100 : 1000; /* TSan is slow */
    struct flow f = {
        .seed = 7, .rounds = rounds, .edge = flow_line, .count = one, .bytes = flow_small, .meta = flow_none};
    on_all_sizes(&f);
}

/* Everybody sends more than the budget to everybody before anybody takes. */
static size_t meta_large(const struct flow *f, int from, int to, int round, int k)
{
    return flow_hash(f->seed, from, to, round, k) % 40000;
}

static size_t nearly_small(const struct flow *f, int from, int to, int round, int k)
{
    (void)f, (void)from, (void)to, (void)round, (void)k;
    return WEFT_EXCHANGE_SMALL;
}

static int a_hundred(const struct flow *f, int from, int to, int round)
{
    (void)f, (void)from, (void)to, (void)round;
    return 100;
}

static void more_bytes_than_the_budget_arrive(void **state)
{
    (void)state;
    struct flow f = {.seed = 8,
                     .rounds = 1,
                     .budget = 512 << 10,
                     .edge = flow_all,
                     .count = a_hundred,
                     .bytes = nearly_small,
                     .meta = meta_large};
    on_all_sizes(&f);
    f.threads = 4;
    f.meta = flow_word;
    on_all_sizes(&f);
}

/* ---- two at once ---- */

static void two_exchanges(struct ranks_rank *r)
{
    weft_exchange *x[2] = {NULL, NULL};
    int next = (r->rank + 1) % r->size, prev = (r->rank + r->size - 1) % r->size, n = r->size > 1;
    for (int i = 0; i < 2; i++)
        RANKS_OK(r, weft_exchange_open(r->comm, &prev, (size_t)n, &next, (size_t)n, NULL, &x[i]));
    for (int round = 0; round < 50; round++) {
        weft_message *m;
        for (int k = 0; k < 6 && n; k++) {
            int what[3] = {r->rank, round, k};
            RANKS_OK(r, weft_exchange_put(x[k % 2], next, what, sizeof what, NULL, 0));
        }
        for (int i = 0; i < 2; i++) /* ranks finish and wait for them in different orders */
            RANKS_OK(r, weft_exchange_finish(x[(i + r->rank) % 2], false));
        for (int i = 0; i < 2; i++)
            RANKS_OK(r, weft_exchange_wait(x[(i + round) % 2], WEFT_FOREVER));
        for (int k = 0; k < 6 && n; k++) {
            int what[3] = {prev, round, k};
            RANKS_OK(r, weft_exchange_take(x[k % 2], prev, &m));
            RANKS_CHECK(r, m && m->meta_bytes == sizeof what && !memcmp(m->meta, what, sizeof what));
            weft_message_free(m);
        }
        for (int i = 0; i < 2; i++) {
            RANKS_OK(r, weft_exchange_take(x[i], -1, &m));
            RANKS_CHECK(r, !m);
        }
    }
    for (int i = 0; i < 2; i++)
        weft_exchange_close(x[i]);
}

static void two_exchanges_at_once_are_right(void **state)
{
    (void)state;
    EACH_SIZE(i, 0)
    ranks_run(sizes[i], NULL, two_exchanges, NULL, NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_messages_round_a_ring_arrive),
        cmocka_unit_test(rounds_without_messages_end),
        cmocka_unit_test(asymmetric_neighbourhoods_arrive),
        cmocka_unit_test(messages_of_all_kinds_along_a_line_arrive),
        cmocka_unit_test(sizes_that_vary_by_rank_and_round_arrive),
        cmocka_unit_test(messages_of_four_threads_arrive_in_order),
        cmocka_unit_test(a_thousand_rounds_complete),
        cmocka_unit_test(more_bytes_than_the_budget_arrive),
        cmocka_unit_test(two_exchanges_at_once_are_right),
    };
    return SUITE_MAIN(argc, argv, SUITE_AT(&conformance_everywhere, tests));
}
