/* The calls of an exchange: misuse is told in words, completion is seen by wait, test, a callback and a descriptor, a
 * slow receiver slows its sender, and what an exchange allocates goes with its neighbours. */
#define _GNU_SOURCE
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exchange/pipe.h"
#include "exchange_flow.h"
#include "support/clock.h"
#include "support/conformance.h"
#include "support/suite.h"
#include "weft/halo.h"

static const int sizes[] = {1, 2, 3, 4, 5, 8};
#define SIZES (int)(sizeof sizes / sizeof *sizes)
#define EACH_SIZE(i, first)             \
    for (int i = first; i < SIZES; i++) \
        if (conformance_takes(sizes[i]))

#define RANKS_REFUSED(r, call, error, words)                   \
    do {                                                       \
        RANKS_CHECK(r, (call) == (error));                     \
        RANKS_CHECK(r, strstr(ranks_said(), (words)) != NULL); \
    } while (0)

/* ---- misuse ---- */

static void wrong_lists(struct ranks_rank *r)
{
    weft_exchange *x;
    int next = (r->rank + 1) % r->size, twice[] = {next, next}, beyond = r->size, self = 0;
    char words[80];
    RANKS_REFUSED(r, weft_exchange_open(r->comm, &self, r->rank == 0, NULL, 0, NULL, &x), WEFT_EINVAL,
                  "rank 0: weft_exchange_open: it receives from rank 0, which is itself");
    RANKS_REFUSED(r, weft_exchange_open(r->comm, NULL, 0, &beyond, r->rank == 0, NULL, &x), WEFT_EINVAL,
                  "rank 0: weft_exchange_open: it sends to rank");
    int below = -1;
    RANKS_REFUSED(r, weft_exchange_open(r->comm, NULL, 0, &below, 1, NULL, &x), WEFT_EINVAL, "it sends to rank -1");
    RANKS_REFUSED(r, weft_exchange_open(r->comm, &next, SIZE_MAX, NULL, 0, NULL, &x), WEFT_EINVAL,
                  "it receives from 18446744073709551615 ranks, the comm has");
    weft_exchange_opts tight = {.size = sizeof tight, .budget = 1000};
    RANKS_REFUSED(r, weft_exchange_open(r->comm, NULL, 0, NULL, 0, &tight, &x), WEFT_ENOMEM,
                  "the budget of 1000 bytes");
    if (r->size < 2)
        return;
    RANKS_REFUSED(r, weft_exchange_open(r->comm, NULL, 0, twice, 2, NULL, &x), WEFT_EINVAL, "which is listed twice");
    /* Rank 0 sends to rank 1, which does not know it; and the other way round. */
    int one = 1, zero = 0;
    RANKS_REFUSED(r, weft_exchange_open(r->comm, NULL, 0, &one, r->rank == 0, NULL, &x), WEFT_EMISMATCH,
                  "rank 0: weft_exchange_open: it sends to rank 1, but rank 1 does not receive from rank 0");
    RANKS_REFUSED(r, weft_exchange_open(r->comm, &zero, r->rank == 1, NULL, 0, NULL, &x), WEFT_EMISMATCH,
                  "rank 1: weft_exchange_open: it receives from rank 0, but rank 0 does not send to rank 1");
    weft_exchange_opts vote = {.size = sizeof vote, .vote = r->rank == 1};
    RANKS_REFUSED(r, weft_exchange_open(r->comm, NULL, 0, NULL, 0, &vote, &x), WEFT_EMISMATCH,
                  "rank 1: weft_exchange_open: its rounds end with a vote, those of rank 0 without one");
    snprintf(words, sizeof words, "rank 0 is in weft_exchange_open, rank 1 in weft_comm_barrier");
    int err = r->rank == 1 ? weft_comm_barrier(r->comm, WEFT_DEADLINE)
                           : weft_exchange_open(r->comm, NULL, 0, NULL, 0, NULL, &x);
    RANKS_REFUSED(r, err, WEFT_EMISMATCH, words);
}

static void wrong_calls(struct ranks_rank *r)
{
    weft_exchange *x;
    weft_message *m;
    weft_exchange_info info = {0};
    bool complete = false;
    int next = (r->rank + 1) % r->size, prev = (r->rank + r->size - 1) % r->size, n = r->size > 1, fd;
    char huge[1];
    weft_exchange_opts o = {.size = sizeof o, .budget = 1 << 20};
    RANKS_OK(r, weft_exchange_open(r->comm, &prev, (size_t)n, &next, (size_t)n, &o, &x));
    RANKS_REFUSED(r, weft_exchange_put(x, r->rank, NULL, 0, NULL, 0), WEFT_EINVAL, "is not among the");
    RANKS_REFUSED(r, weft_exchange_put(x, r->size, NULL, 0, NULL, 0), WEFT_EINVAL, "is not among the");
    RANKS_REFUSED(r, weft_exchange_put(x, -1, NULL, 0, NULL, 0), WEFT_EINVAL, "is not among the");
    RANKS_REFUSED(r, weft_exchange_take(x, r->rank, &m), WEFT_EINVAL, "is not among the");
    RANKS_REFUSED(r, weft_exchange_take(x, 0, NULL), WEFT_EINVAL, "must not be NULL");
    RANKS_REFUSED(r, weft_exchange_stats(x, &info), WEFT_EINVAL, "the size in weft_exchange_info is 0");
    RANKS_REFUSED(r, weft_exchange_put(NULL, 0, NULL, 0, NULL, 0), WEFT_EINVAL, "is NULL");
    RANKS_REFUSED(r, weft_exchange_wait(NULL, 0), WEFT_EINVAL, "is NULL");
    RANKS_REFUSED(r, weft_exchange_fd(NULL, &fd), WEFT_EINVAL, "must not be NULL");
    if (n) {
        RANKS_REFUSED(r, weft_exchange_put(x, next, NULL, 1, NULL, 0), WEFT_EINVAL, "1 bytes of metadata at NULL");
        RANKS_REFUSED(r, weft_exchange_put(x, next, NULL, 0, NULL, 9), WEFT_EINVAL, "9 bytes of payload at NULL");
        RANKS_REFUSED(r, weft_exchange_put(x, next, huge, 2 << 20, NULL, 0), WEFT_ENOMEM,
                      "bytes of metadata are more than");
        RANKS_OK(r, weft_exchange_put(x, next, "a", 1, NULL, 0));
    }
    RANKS_OK(r, weft_exchange_test(x, &complete)); /* nothing is in flight */
    RANKS_CHECK(r, complete);
    RANKS_OK(r, weft_exchange_finish(x, false));
    if (n)
        RANKS_REFUSED(r, weft_exchange_put(x, next, "b", 1, NULL, 0), WEFT_EINVAL, "has finished the round");
    RANKS_REFUSED(r, weft_exchange_finish(x, false), WEFT_EINVAL, "has finished the round");
    RANKS_OK(r, weft_exchange_wait(x, WEFT_FOREVER));
    RANKS_OK(r, weft_exchange_wait(x, WEFT_FOREVER));
    RANKS_OK(r, weft_exchange_take(x, -1, &m));
    RANKS_CHECK(r, n ? m && m->meta_bytes == 1 && !memcmp(m->meta, "a", 1) : !m);
    weft_exchange_close(x);
    weft_message_free(m); /* outlives its exchange */
}

static void misuse_is_refused(void **state)
{
    (void)state;
    EACH_SIZE(i, 0)
    {
        ranks_run(sizes[i], NULL, wrong_lists, NULL, NULL);
        ranks_run(sizes[i], NULL, wrong_calls, NULL, NULL);
    }
    weft_exchange_close(NULL);
    weft_halo_close(NULL);
    weft_message_free(NULL);
    assert_false(weft_exchange_over(NULL));
    assert_null(weft_halo_rounds(NULL));
}

static void times_out(struct ranks_rank *r)
{
    weft_exchange *x;
    int next = (r->rank + 1) % r->size, prev = (r->rank + r->size - 1) % r->size;
    RANKS_OK(r, weft_exchange_open(r->comm, &prev, 1, &next, 1, NULL, &x));
    if (r->rank == 0) {
        char words[80];
        RANKS_OK(r, weft_exchange_finish(x, false));
        snprintf(words, sizeof words, "time ran out: waiting for rank %d (has not finished)", prev);
        RANKS_REFUSED(r, weft_exchange_wait(x, 0), WEFT_ETIMEOUT, words);
        RANKS_REFUSED(r, weft_exchange_wait(x, MS), WEFT_ETIMEOUT, words);
    }
    ranks_meet(r);
    if (r->rank != 0)
        RANKS_OK(r, weft_exchange_finish(x, false));
    RANKS_OK(r, weft_exchange_wait(x, WEFT_FOREVER));
    weft_exchange_close(x);
}

static void timeout_names_the_ranks_waited_for(void **state)
{
    (void)state;
    ranks_run(2, NULL, times_out, NULL, NULL);
    ranks_run(5, NULL, times_out, NULL, NULL);
}

/* ---- completion ---- */

struct told {
    weft_exchange *x;
    int next, n, calls, err, rounds;
    weft_message *last;
};

/* Takes what came, sends it on, and begins the next round. */
static void go_on(void *arg, int err)
{
    struct told *t = arg;
    weft_message *m = NULL;
    t->calls++;
    t->err = err ? err : t->err;
    if (err || t->err)
        return;
    t->err = weft_exchange_wait(t->x, WEFT_FOREVER) == WEFT_EBUSY ? 0 : 1; /* a callback cannot wait */
    if (weft_exchange_take(t->x, -1, &m) || (t->n && !m))
        t->err = 2;
    if (t->calls == t->rounds) {
        t->last = m;
        return;
    }
    if (t->n && weft_exchange_put(t->x, t->next, m->meta, m->meta_bytes, NULL, 0))
        t->err = 3;
    weft_message_free(m);
    if (weft_exchange_finish(t->x, false))
        t->err = 4;
}

static void callbacks(struct ranks_rank *r)
{
    struct told t = {.next = (r->rank + 1) % r->size, .n = r->size > 1, .rounds = 3 * r->size};
    int prev = (r->rank + r->size - 1) % r->size, first = r->rank;
    bool complete = false;
    RANKS_OK(r, weft_exchange_open(r->comm, &prev, (size_t)t.n, &t.next, (size_t)t.n, NULL, &t.x));
    RANKS_OK(r, weft_exchange_on_done(t.x, go_on, &t));
    if (t.n)
        RANKS_OK(r, weft_exchange_put(t.x, t.next, &first, sizeof first, NULL, 0));
    RANKS_OK(r, weft_exchange_finish(t.x, false));
    weft_exchange_info info = {.size = sizeof info};
    while (!t.err && info.rounds < (uint64_t)t.rounds) {
        RANKS_OK(r, weft_exchange_test(t.x, &complete));
        RANKS_OK(r, weft_exchange_stats(t.x, &info));
    }
    RANKS_OK(r, weft_exchange_on_done(t.x, NULL, NULL));
    RANKS_OK(r, weft_exchange_wait(t.x, WEFT_FOREVER));
    RANKS_CHECK(r, t.err == 0 && t.calls == t.rounds);
    RANKS_CHECK(r, !t.n || !memcmp(t.last->meta, &first, sizeof first)); /* it went three times round */
    weft_message_free(t.last);
    weft_exchange_close(t.x);
}

static void callbacks_may_begin_the_next_round(void **state)
{
    (void)state;
    EACH_SIZE(i, 0)
    ranks_run(sizes[i], NULL, callbacks, NULL, NULL);
}

static bool readable(int fd, int timeout_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, timeout_ms) == 1;
}

/* With a progress thread nothing but the descriptor is looked at; without one, tests move the round along. */
static void descriptors(struct ranks_rank *r)
{
    weft_exchange *x;
    int next = (r->rank + 1) % r->size, prev = (r->rank + r->size - 1) % r->size, n = r->size > 1, fd, again;
    bool thread = r->opts.progress == WEFT_PROGRESS_THREAD, complete;
    RANKS_OK(r, weft_exchange_open(r->comm, &prev, (size_t)n, &next, (size_t)n, NULL, &x));
    RANKS_OK(r, weft_exchange_fd(x, &fd));
    RANKS_OK(r, weft_exchange_fd(x, &again));
    RANKS_CHECK(r, fd == again);
    for (int round = 0; round < 20; round++) {
        weft_message *m = NULL;
        RANKS_CHECK(r, !readable(fd, 0));
        if (n)
            RANKS_OK(r, weft_exchange_put(x, next, &r->rank, sizeof r->rank, NULL, 0));
        RANKS_OK(r, weft_exchange_finish(x, false));
        for (complete = false; !complete;) {
            if (thread)
                RANKS_CHECK(r, readable(fd, 20000));
            RANKS_OK(r, weft_exchange_test(x, &complete));
        }
        RANKS_OK(r, weft_exchange_take(x, -1, &m));
        RANKS_CHECK(r, n ? m && !memcmp(m->meta, &prev, sizeof prev) : !m);
        weft_message_free(m);
    }
    weft_exchange_close(x);
}

static void descriptor_becomes_readable_when_a_round_ends(void **state)
{
    (void)state;
    EACH_SIZE(i, 0)
    for (int progress = WEFT_PROGRESS_CALLER; progress <= WEFT_PROGRESS_THREAD; progress++)
        ranks_run(sizes[i], &(weft_comm_opts){.progress = (enum weft_progress)progress}, descriptors, NULL, NULL);
}

/* ---- a receiver that takes its time ---- */

#define SLOW 3000 /* messages of 4 KiB, 12 MiB in all */
enum { SLOW_BUDGET = 2 << 20 };

static void slow_receiver(struct ranks_rank *r)
{
    weft_exchange *x;
    weft_exchange_info info = {.size = sizeof info};
    weft_exchange_opts o = {.size = sizeof o, .budget = SLOW_BUDGET};
    int prev = r->rank - 1, next = r->rank + 1, nfrom = r->rank > 0, nto = r->rank < r->size - 1;
    unsigned char payload[4096];
    bool complete = false;
    RANKS_OK(r, weft_exchange_open(r->comm, &prev, (size_t)nfrom, &next, (size_t)nto, &o, &x));
    if (r->rank == r->size - 1) {
        struct timespec half = {.tv_nsec = 500 * MS};
        nanosleep(&half, NULL);
        RANKS_OK(r, weft_exchange_stats(x, &info));
        RANKS_CHECK(r, info.untaken <= SLOW_BUDGET && info.received < SLOW);
    }
    for (int k = 0; k < SLOW && nto; k++) {
        flow_fill(payload, sizeof payload, (uint64_t)k * 7, (uint64_t)k);
        RANKS_OK(r, weft_exchange_put(x, next, &k, sizeof k, payload, sizeof payload));
    }
    RANKS_OK(r, weft_exchange_finish(x, false));
    for (int k = 0; !complete || (nfrom && k < SLOW);) {
        weft_message *m = NULL;
        RANKS_OK(r, weft_exchange_test(x, &complete));
        RANKS_OK(r, weft_exchange_take(x, -1, &m));
        if (!m)
            continue;
        RANKS_CHECK(r, m->meta_bytes == sizeof k && !memcmp(m->meta, &k, sizeof k) && m->bytes == sizeof payload);
        RANKS_CHECK(r, flow_same(m->payload, m->bytes, (uint64_t)k * 7, (uint64_t)k));
        weft_message_free(m);
        k++;
    }
    RANKS_OK(r, weft_comm_barrier(r->comm, WEFT_DEADLINE));
    RANKS_OK(r, weft_exchange_stats(x, &info));
    RANKS_CHECK(r, info.inflight_peak <= info.budget && info.budget == SLOW_BUDGET);
    RANKS_CHECK(r, info.untaken == 0 && info.inflight <= info.inflight_peak && info.sent == (nto ? SLOW : 0));
    weft_exchange_close(x);
}

static void slow_receiver_slows_its_sender(void **state)
{
    (void)state;
    EACH_SIZE(i, 0)
    ranks_run(sizes[i], &(weft_comm_opts){.progress = i % 2 ? WEFT_PROGRESS_THREAD : WEFT_PROGRESS_CALLER},
              slow_receiver, NULL, NULL);
}

/* ---- a rank that goes in the middle of it ---- */

static void one_leaves(struct ranks_rank *r)
{
    weft_exchange *x;
    weft_exchange_opts o = {.size = sizeof o, .vote = true};
    int next = (r->rank + 1) % r->size, prev = (r->rank + r->size - 1) % r->size, err = 0;
    size_t bytes = 300000;
    unsigned char *payload = calloc(1, bytes);
    RANKS_CHECK(r, payload);
    RANKS_OK(r, weft_exchange_open(r->comm, &prev, 1, &next, 1, &o, &x));
    for (int round = 0; round < 5 && !err; round++) {
        if (r->rank == 1 && round == 2)
            break;
        for (int k = 0; k < 10 && !err; k++)
            err = weft_exchange_put(x, next, &k, sizeof k, payload, k % 2 ? bytes : 100);
        if (r->rank == 1 && round == 1 && r->size > 3)
            break;
        if (!err)
            err = weft_exchange_finish(x, false);
        if (!err)
            err = weft_exchange_wait(x, WEFT_FOREVER);
    }
    if (r->rank != 1) {
        RANKS_CHECK(r, err == WEFT_EPEER);
        RANKS_CHECK(r, strstr(ranks_said(), "rank 1 closed its comm or freed its exchange") ||
                           strstr(ranks_said(), "rank 1 freed its exchange in the middle of a round"));
        RANKS_CHECK(r, weft_exchange_put(x, next, NULL, 0, NULL, 0) == WEFT_EPEER);
        RANKS_CHECK(r, weft_exchange_wait(x, WEFT_FOREVER) == WEFT_EPEER);
    }
    weft_exchange_close(x);
    free(payload);
}

static void rank_that_leaves_is_named(void **state)
{
    (void)state;
    EACH_SIZE(i, 1)
    ranks_run(sizes[i], &(weft_comm_opts){.progress = i % 2 ? WEFT_PROGRESS_THREAD : WEFT_PROGRESS_CALLER}, one_leaves,
              NULL, NULL);
}

/* ---- memory ---- */

static void note_memory(struct ranks_rank *r)
{
    weft_exchange *x;
    weft_exchange_info info = {.size = sizeof info};
    weft_exchange_opts o = {.size = sizeof o, .vote = true};
    int list[] = {(r->rank + 1) % r->size, (r->rank + r->size - 1) % r->size};
    RANKS_OK(r, weft_exchange_open(r->comm, list, 2, list, 2, &o, &x));
    RANKS_OK(r, weft_exchange_stats(x, &info));
    r->code = (int)info.memory;
    weft_exchange_close(x);
}

static void memory_grows_with_neighbours_not_with_ranks(void **state)
{
    (void)state;
    struct ranks_rank three[3], sixteen[16];
    ranks_run(3, NULL, note_memory, NULL, three);
    ranks_run(16, NULL, note_memory, NULL, sixteen);
    assert_true(three[0].code > 0);
    for (int r = 0; r < 16; r++)
        if (conformance_on_hosts()) /* both ends of a pipe between hosts have its ring */
            assert_in_range(sixteen[r].code, 2 * PIPE_MOST, 4 * PIPE_MOST + 16384);
        else
            assert_int_equal(sixteen[r].code, three[0].code);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(misuse_is_refused),
        cmocka_unit_test(timeout_names_the_ranks_waited_for),
        cmocka_unit_test(callbacks_may_begin_the_next_round),
        cmocka_unit_test(descriptor_becomes_readable_when_a_round_ends),
        cmocka_unit_test(slow_receiver_slows_its_sender),
        cmocka_unit_test(memory_grows_with_neighbours_not_with_ranks),
        cmocka_unit_test(rank_that_leaves_is_named),
    };
    return SUITE_MAIN(argc, argv, SUITE_AT(&conformance_everywhere, tests));
}
