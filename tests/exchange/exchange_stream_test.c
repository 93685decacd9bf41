/* Many small messages through one exchange: none is lost, all are in order, memory stays bounded; so do many rounds,
 * most of them empty. And what a round costs goes with the neighbours of a rank, not with the number of ranks. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "exchange_flow.h"
#include "support/conformance.h"
#include "support/share.h"
#include "support/suite.h"

/* ---- many messages ---- */

#define A_ROUND 100000
enum { STREAM_BUDGET = 1 << 20, GROWTH = 64 << 20 };

static int64_t resident(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%*d %ld", &pages) != 1)
        pages = 0;
    if (f)
        fclose(f);
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

static int64_t take_all(struct ranks_rank *r, weft_exchange *x, int64_t next)
{
    for (weft_message *m = NULL; !weft_exchange_take(x, -1, &m) && m; next++) {
        int64_t number[2] = {-1, -1};
        if (m->meta_bytes != sizeof number[0] || m->bytes != sizeof number[1])
            ranks_note(r, __FILE__, __LINE__, "%zu and %zu bytes came", m->meta_bytes, m->bytes);
        else
            memcpy(&number[0], m->meta, 8), memcpy(&number[1], m->payload, 8);
        if (r->failed[0] || number[0] != next || number[1] != ~next)
            ranks_note(r, __FILE__, __LINE__, "message %lld is not the next one, %lld", (long long)number[0],
                       (long long)next);
        weft_message_free(m);
    }
    return next;
}

static void stream(struct ranks_rank *r)
{
    int64_t total = *(int64_t *)r->arg, next = 0, before = 0;
    int to = (r->rank + 1) % r->size, from = (r->rank + r->size - 1) % r->size;
    weft_exchange *x;
    weft_exchange_info info = {.size = sizeof info};
    weft_exchange_opts o = {.size = sizeof o, .budget = STREAM_BUDGET};
    RANKS_OK(r, weft_exchange_open(r->comm, &from, 1, &to, 1, &o, &x));
    for (int64_t i = 0; i < total;) {
        bool complete = false;
        for (int64_t end = i + A_ROUND < total ? i + A_ROUND : total; i < end; i++) {
            int64_t number[2] = {i, ~i};
            RANKS_OK(r, weft_exchange_put(x, to, &number[0], 8, &number[1], 8));
            if (i % 64 == 0) {
                RANKS_OK(r, weft_exchange_test(x, &complete));
                next = take_all(r, x, next);
            }
        }
        RANKS_OK(r, weft_exchange_finish(x, i == total));
        for (complete = false; !complete;) {
            RANKS_OK(r, weft_exchange_test(x, &complete));
            next = take_all(r, x, next);
        }
        next = take_all(r, x, next);
        RANKS_CHECK(r, next == i);
        before = before ? before : resident();
    }
    RANKS_OK(r, weft_exchange_stats(x, &info));
    RANKS_CHECK(r, info.inflight_peak <= STREAM_BUDGET && info.received == (uint64_t)total);
    RANKS_CHECK(r, resident() - before < GROWTH);
    weft_exchange_close(x);
}

static void many_small_messages_arrive_in_order(void **state)
{
    (void)state;
    int64_t *total = ranks_shared(sizeof *total);
    *total = conformance_on_mpi() ? test_share(20000, 500000) : test_share(100000, 10000000);
    ranks_run(2, NULL, stream, total, NULL);
    *total = conformance_on_mpi() ? test_share(5000, 100000) : test_share(20000, 1000000);
    ranks_run(3, &(weft_comm_opts){.progress = WEFT_PROGRESS_THREAD}, stream, total, NULL);
    munmap(total, sizeof *total);
}

/* ---- many rounds ---- */

#define ROUNDS 5000 /* their ends alone fill the smallest pipe several times */

/* None, one or two messages of any small size, so that rounds end everywhere in the pipe. */
static int messages_of(int rank, int round)
{
    return round < ROUNDS / 2 ? 0 : (round + rank) % 3;
}

static size_t bytes_of(int rank, int round, int i)
{
    return ((size_t)round * 37 + (size_t)rank * 11 + (size_t)i * 5) % 301;
}

static void many_rounds(struct ranks_rank *r)
{
    char data[512];
    int to = (r->rank + 1) % r->size, from = (r->rank + r->size - 1) % r->size;
    weft_exchange *x;
    weft_exchange_opts o = {.size = sizeof o, .budget = 1 << 16};
    RANKS_OK(r, weft_exchange_open(r->comm, &from, 1, &to, 1, &o, &x));
    for (int round = 0; round < ROUNDS; round++) {
        memset(data, round, sizeof data);
        for (int i = 0; i < messages_of(r->rank, round); i++)
            RANKS_OK(r, weft_exchange_put(x, to, &i, sizeof i, data, bytes_of(r->rank, round, i)));
        RANKS_OK(r, weft_exchange_finish(x, false));
        RANKS_OK(r, weft_exchange_wait(x, WEFT_FOREVER));
        weft_message *m = NULL;
        for (int i = 0; i < messages_of(from, round); i++) {
            RANKS_OK(r, weft_exchange_take(x, from, &m));
            RANKS_CHECK(r, m && m->bytes == bytes_of(from, round, i) && m->round == (uint64_t)round);
            RANKS_CHECK(r, !m->bytes || !memcmp(m->payload, data, m->bytes));
            weft_message_free(m);
        }
        RANKS_OK(r, weft_exchange_take(x, from, &m));
        RANKS_CHECK(r, !m);
    }
    weft_exchange_close(x);
}

#define FULL_ROUNDS 2000

/* The peer reads nothing before it has put all of its own, and rounds are about as long as the pipe: some end in the
 * last bytes that are free. */
static void full_rounds(struct ranks_rank *r)
{
    static const char data[256];
    int other = 1 - r->rank;
    weft_exchange *x;
    weft_exchange_opts o = {.size = sizeof o, .budget = 1 << 16};
    RANKS_OK(r, weft_exchange_open(r->comm, &other, 1, &other, 1, &o, &x));
    for (int round = 0; round < FULL_ROUNDS; round++) {
        size_t left = 18000 + (size_t)round * 16 % 12000, n = 0, came = 0;
        for (; left; n++) {
            size_t bytes = left < 200 ? left : 200;
            RANKS_OK(r, weft_exchange_put(x, other, NULL, 0, data, bytes));
            left -= bytes;
        }
        RANKS_OK(r, weft_exchange_finish(x, false));
        RANKS_OK(r, weft_exchange_wait(x, 20 * INT64_C(1000000000)));
        for (weft_message *m; !weft_exchange_take(x, other, &m) && m; came++)
            weft_message_free(m);
        RANKS_CHECK(r, came == n);
    }
    weft_exchange_close(x);
}

static void many_rounds_end_on_all_ranks(void **state)
{
    (void)state;
    ranks_run(2, NULL, full_rounds, NULL, NULL);
    ranks_run(2, NULL, many_rounds, NULL, NULL);
    ranks_run(3, &(weft_comm_opts){.progress = WEFT_PROGRESS_THREAD}, many_rounds, NULL, NULL);
}

/* ---- what a round costs ---- */

#define COST_ROUNDS 200

struct cost {
    char url[64];
    int ranks, rank;
    int64_t ns; /* of a core, for all rounds; 0: it failed */
};

/* What this thread has had of a core. */
static int64_t used(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void *cost_rank(void *arg)
{
    struct cost *c = arg;
    weft_comm *comm;
    weft_exchange *x = NULL;
    int list[] = {(c->rank + 1) % c->ranks, (c->rank + c->ranks - 1) % c->ranks};
    weft_comm_opts o = {.size = sizeof o, .rank = c->rank};
    if (weft_comm_open(c->url, &o, &comm))
        return NULL;
    int err = weft_exchange_open(comm, list, 2, list, 2, NULL, &x);
    int64_t began = used();
    for (int round = 0; round < COST_ROUNDS && !err; round++) {
        weft_message *m = NULL;
        for (int i = 0; i < 2 && !err; i++)
            err = weft_exchange_put(x, list[i], &round, sizeof round, NULL, 0);
        if (!err)
            err = weft_exchange_finish(x, false);
        if (!err)
            err = weft_exchange_wait(x, WEFT_FOREVER);
        while (!err && !weft_exchange_take(x, -1, &m) && m)
            weft_message_free(m);
    }
    c->ns = err ? 0 : used() - began;
    weft_exchange_close(x);
    weft_comm_close(comm);
    return NULL;
}

/* What a round costs a rank, in microseconds. */
static double cost_of(int ranks, int number)
{
    static struct cost all[64];
    pthread_t threads[64];
    int64_t sum = 0;
    for (int r = 0; r < ranks; r++) {
        all[r] = (struct cost){.ranks = ranks, .rank = r};
        snprintf(all[r].url, sizeof all[r].url, "threads:%d/cost-%d", ranks, number);
        assert_int_equal(pthread_create(&threads[r], NULL, cost_rank, &all[r]), 0);
    }
    for (int r = 0; r < ranks; r++)
        pthread_join(threads[r], NULL);
    for (int r = 0; r < ranks; r++) {
        assert_true(all[r].ns > 0);
        sum += all[r].ns;
    }
    return (double)sum / ranks / COST_ROUNDS / 1000;
}

/* Of a core's time, of which what others do meanwhile takes nothing. It does cost cold caches, and waits, of which only
 * ranks that happen to run one after the other have few. So the best of several counts, and of many on a machine where
 * that is rare. */
static void cost_grows_with_neighbours_not_with_ranks(void **state)
{
    (void)state;
    if (CONFORMANCE_ON < CONFORMANCE_ALL)
        return; /* sanitizers have costs of their own */
    double eight = 1e9, sixty_four = 1e9;
    for (int i = 0; i < 10 || (i < 80 && sixty_four > 3 * eight); i++) {
        double a = cost_of(8, 2 * i), b = cost_of(64, 2 * i + 1);
        eight = a < eight ? a : eight;
        sixty_four = b < sixty_four ? b : sixty_four;
        print_message("a round costs a rank %.2f us among 8, %.2f us among 64\n", a, b);
    }
    if (sixty_four > 3 * eight) /* eight times as many ranks */
        fail_msg("among 64 ranks a round costs each of them %.2f times what it costs among 8", sixty_four / eight);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(many_small_messages_arrive_in_order),
                                       cmocka_unit_test(many_rounds_end_on_all_ranks)};
    const struct CMUnitTest alone[] = {cmocka_unit_test(cost_grows_with_neighbours_not_with_ranks)};
    return SUITE_MAIN(argc, argv, SUITE_AT(&conformance_everywhere, tests), SUITE_AT(&conformance_alone, alone));
}
