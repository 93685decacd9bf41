/* A rank of a job, as any launcher starts it: splits what the environment says in random ways, and in each group
 * reduces and exchanges, while what was split before is still there. hosts_groups [SEEDS] */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "support/random.h"
#include "support/suite.h"
#include "support/sums.h"

#define MOST 64
#define GROUPS 4
#define LARGE 300000

static int rank_of_job;

static void must(int err, const char *what)
{
    if (!err)
        return;
    fprintf(stderr, "rank %d: %s: %d, %s\n", rank_of_job, what, err, weft_errmsg());
    exit(1);
}

static void check(bool is, const char *what)
{
    if (is)
        return;
    fprintf(stderr, "rank %d: %s\n", rank_of_job, what);
    exit(1);
}

static size_t bytes_of(uint64_t seed, int from, int to, int round)
{
    uint64_t h = hash_u64(hash_u64(seed, (uint64_t)from << 32 | (uint32_t)to), (uint64_t)round);
    return h % 5 == 0 ? h / 5 % LARGE : h / 5 % 2000;
}

static void fill(unsigned char *p, size_t n, uint64_t key)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)(key + i * 7 + i / 251);
}

/* Each to the next and to the one after it, in rounds that end with a vote. */
static void exchange(weft_comm *c, uint64_t seed)
{
    int n = weft_comm_size(c), me = weft_comm_rank(c), to[2] = {(me + 1) % n, (me + 2) % n};
    int from[2] = {(me + n - 1) % n, (me + n - 2) % n}, k = n > 2 ? 2 : n - 1;
    static unsigned char payload[2][LARGE], wanted[LARGE];
    weft_exchange *x;
    must(weft_exchange_open(c, from, (size_t)k, to, (size_t)k,
                            &(weft_exchange_opts){.size = sizeof(weft_exchange_opts), .vote = true}, &x),
         "weft_exchange_open");
    for (int round = 0; !weft_exchange_over(x); round++) {
        for (int i = 0; i < k; i++) {
            size_t bytes = bytes_of(seed, me, to[i], round);
            fill(payload[i], bytes, seed + (uint64_t)round + (uint64_t)me);
            must(weft_exchange_put(x, to[i], &round, sizeof round, payload[i], bytes), "weft_exchange_put");
        }
        must(weft_exchange_finish(x, round >= 3 + me % 3), "weft_exchange_finish");
        must(weft_exchange_wait(x, WEFT_FOREVER), "weft_exchange_wait");
        for (int i = 0; i < k; i++) {
            weft_message *m;
            size_t bytes = bytes_of(seed, from[i], me, round);
            must(weft_exchange_take(x, from[i], &m), "weft_exchange_take");
            fill(wanted, bytes, seed + (uint64_t)round + (uint64_t)from[i]);
            check(m && m->bytes == bytes && m->meta_bytes == sizeof round && !memcmp(m->meta, &round, sizeof round) &&
                      (!bytes || !memcmp(m->payload, wanted, bytes)),
                  "not what was sent");
            weft_message_free(m);
        }
        check(round < 100, "a vote that does not end");
    }
    weft_exchange_close(x);
}

static void groups(weft_comm *world, uint64_t seed)
{
    struct random all = {seed};
    weft_comm *c[GROUPS] = {world};
    struct sum *s = calloc(GROUPS, sizeof *s);
    check(s, "no memory");
    for (int g = 1; g < GROUPS;
         g++) { /* some in the order of their ranks, some back to front, each from any before it */
        weft_comm *of = c[random_in(&all, 0, g - 1)];
        bool back = random_once_in(&all, 2);
        uint64_t key = random_next(&all), parts = (uint64_t)random_in(&all, 1, 3);
        int n = of ? weft_comm_size(of) : 0, list[MOST], k = 0;
        check(n <= MOST, "too many ranks");
        uint64_t mine = of ? hash_u64(key, (uint64_t)weft_comm_rank(of)) % parts : 0;
        for (int i = 0; i < n; i++) {
            int r = back ? n - 1 - i : i;
            if (hash_u64(key, (uint64_t)r) % parts == mine)
                list[k++] = r;
        }
        if (of)
            must(weft_comm_split(of, list, (size_t)k, &c[g]), "weft_comm_split");
        if (c[g]) {
            must(sum_make(&s[g], c[g], NULL, NULL), "weft_bind");
            must(sum_run(&s[g], g), "a sum");
            exchange(c[g], seed);
        }
    }
    for (int g = 1; g < GROUPS; g++) {
        must(sum_run(&s[g], g + 10), "a sum in the end");
        sum_free(&s[g]);
        weft_comm_close(c[g]);
    }
    free(s);
}

int main(int argc, char **argv)
{
    weft_comm *world;
    int seeds = argc > 1 ? atoi(argv[1]) : 3;
    must(weft_comm_open(NULL, NULL, &world), "weft_comm_open");
    rank_of_job = weft_comm_rank(world);
    for (int seed = 1; seed <= seeds; seed++)
        groups(world, (uint64_t)seed);
    exchange(world, 99);
    must(weft_comm_barrier(world, WEFT_DEADLINE), "weft_comm_barrier");
    if (!rank_of_job)
        printf("%d ranks: right\n", weft_comm_size(world));
    weft_comm_close(world);
    return 0;
}
