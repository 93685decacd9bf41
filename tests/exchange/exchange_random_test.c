/* Random flows: any neighbourhood, any number of messages of any size, from any number of threads, in any memory, with
 * any budget, taken early or late, with and without votes, hooks, staging and a progress thread. The functions of the
 * flow are the oracle. A failure prints the seed: WEFT_TEST_SEED repeats it. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "exchange_flow.h"
#include "support/conformance.h"
#include "support/random.h"
#include "support/share.h"
#include "support/suite.h"

static bool edge(const struct flow *f, int n, int from, int to)
{
    uint64_t dense = f->seed % 5;
    return flow_hash(f->seed, from, to, n, -1) % 4 < dense;
}

static int count(const struct flow *f, int from, int to, int round)
{
    uint64_t h = flow_hash(f->seed, from, to, round, -2);
    return h % 7 == 0 ? (int)(h / 7 % 60) : (int)(h / 7 % 4);
}

/* Mostly small; now and then up to 5 MiB. */
static size_t bytes(const struct flow *f, int from, int to, int round, int k)
{
    uint64_t h = flow_hash(f->seed + 3, from, to, round, k);
    switch (h % 32) {
    case 0: return h / 32 % (5 << 20);
    case 1:
    case 2:
    case 3: return h / 32 % 200000;
    case 4:
    case 5: return WEFT_EXCHANGE_SMALL - 2 + h / 32 % 5;
    case 6:
    case 7:
    case 8: return 0;
    default: return h / 32 % 3000;
    }
}

static size_t meta(const struct flow *f, int from, int to, int round, int k)
{
    uint64_t h = flow_hash(f->seed + 4, from, to, round, k);
    size_t n = h % 16 == 0 ? h / 16 % 60000 : h % 4 == 0 ? 0 : h / 16 % 64;
    return f->threads && n < 8 ? 8 : n;
}

static void one_flow(uint64_t seed)
{
    struct random rng = {seed};
    struct flow f = {.seed = random_next(&rng),
                     .rounds = (int)random_in(&rng, 1, 6),
                     .threads = random_once_in(&rng, 3) ? (int)random_in(&rng, 2, 4) : 0,
                     .window = random_once_in(&rng, 3),
                     .hook = random_once_in(&rng, 4),
                     .vote = random_once_in(&rng, 2),
                     .early = random_once_in(&rng, 2),
                     .edge = edge,
                     .count = count,
                     .bytes = bytes,
                     .meta = meta};
    int n = (int)random_in(&rng, 1, 8);
    f.budget = random_once_in(&rng, 2) ? 0 : random_in(&rng, 1 << 19, 1 << 22);
    if (f.threads)
        f.window = false; /* a comm's memory is for the thread that has the comm */
    weft_comm_opts o = {.staged = random_once_in(&rng, 4),
                        .progress = random_once_in(&rng, 3) ? WEFT_PROGRESS_THREAD : WEFT_PROGRESS_CALLER};
    print_message("seed %llu: %d ranks, %d rounds, %d threads\n", (unsigned long long)seed, n, f.rounds, f.threads);
    ranks_run(n, &o, flow_body, &f, NULL);
}

static void random_flows_arrive_in_order(void **state)
{
    (void)state;
    for (int64_t seed = 1; suite_seed(&seed, 1, test_share(12, 1000)); seed++)
        one_flow((uint64_t)seed);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_flows_arrive_in_order)};
    return SUITE_MAIN(argc, argv, SUITE_AT(&conformance_everywhere, tests));
}
