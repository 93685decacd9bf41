/* What others do at odd moments of an exchange: they pause between rounds, free theirs instead of voting, die while
 * this rank only polls; and calls that come to nothing leave an exchange as it was. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "exchange/exchange.h"
#include "exchange_flow.h"
#include "support/clock.h"
#include "support/conformance.h"
#include "support/processes.h"
#include "support/suite.h"

#define DEADLINE_MS 2000

/* ---- a pause between rounds ---- */

enum { LARGE = 100000 };

struct looker {
    struct ranks_rank *r;
    bool first;
    unsigned char room[LARGE];
};

/* Rank 1 does all of its first round in one pass, in which rank 0 looks at it. */
static void *look_on(void *arg, int from, const void *meta, size_t meta_bytes, size_t bytes)
{
    struct looker *l = arg;
    (void)from, (void)meta, (void)meta_bytes, (void)bytes;
    if (l->first) {
        ranks_meet(l->r);
        ranks_meet(l->r);
    }
    l->first = false;
    return l->room;
}

static void pause_between(struct ranks_rank *r)
{
    struct looker l = {.r = r, .first = true};
    weft_exchange_opts o = {.size = sizeof o, .buffer = look_on, .arg = &l};
    int other = 1 - r->rank;
    weft_exchange *x;
    void *payload;
    RANKS_OK(r, weft_comm_alloc(r->comm, LARGE, WEFT_MEMORY_HOST, 0, &payload));
    RANKS_OK(r, weft_exchange_open(r->comm, &other, r->rank == 1, &other, r->rank == 0, &o, &x));
    for (int round = 0; round < 2; round++) {
        weft_message *m = NULL;
        if (r->rank == 0)
            RANKS_OK(r, weft_exchange_put(x, 1, NULL, 0, payload, LARGE));
        RANKS_OK(r, weft_exchange_finish(x, false));
        if (round || r->rank == 0)
            ranks_meet(r);
        if (r->rank == 0)
            RANKS_CHECK(r, weft_exchange_wait(x, 20 * MS) == WEFT_ETIMEOUT);
        if (round || r->rank == 0)
            ranks_meet(r);
        RANKS_OK(r, weft_exchange_wait(x, WEFT_FOREVER));
        RANKS_OK(r, weft_exchange_take(x, -1, &m));
        RANKS_CHECK(r, (m != NULL) == (r->rank == 1));
        weft_message_free(m);
        if (!round)
            nanosleep(&(struct timespec){.tv_sec = DEADLINE_MS / 1000, .tv_nsec = 50 * MS}, NULL);
    }
    weft_exchange_close(x);
}

/* What rank 0 saw of rank 1 in the first round says nothing of the next. */
static void pause_between_rounds_is_no_stall(void **state)
{
    (void)state;
    if (conformance_on_hosts()) {
        print_message("skip: between hosts nobody waits until a payload was loaded\n");
        skip();
    }
    ranks_run(2, &(weft_comm_opts){.deadline_ns = DEADLINE_MS * MS}, pause_between, NULL, NULL);
}

/* ---- votes that will not come ---- */

/* Nobody has a pipe to anyone: all that ranks wait for is the vote. */
static void desert_the_vote(struct ranks_rank *r)
{
    weft_exchange_opts o = {.size = sizeof o, .vote = true};
    weft_exchange *x;
    int deserter = *(const int *)r->arg;
    char words[80];
    RANKS_OK(r, weft_exchange_open(r->comm, NULL, 0, NULL, 0, &o, &x));
    for (int round = 0; round < 2; round++) {
        RANKS_OK(r, weft_exchange_finish(x, false));
        RANKS_OK(r, weft_exchange_wait(x, WEFT_FOREVER));
    }
    ranks_meet(r); /* a comm that has failed fails whoever is not yet through */
    if (r->rank != deserter) {
        int err = weft_exchange_finish(x, true); /* others may have found it out already */
        RANKS_CHECK(r, (err ? err : weft_exchange_wait(x, 20 * SECOND)) == WEFT_EPEER);
        snprintf(words, sizeof words, "rank %d closed its comm or freed its exchange", deserter);
        RANKS_CHECK(r, strstr(ranks_said(), words) != NULL);
    }
    weft_exchange_close(x);
    ranks_meet(r); /* its comm stays open */
}

static void rank_that_closes_instead_of_voting_is_named(void **state)
{
    (void)state;
    for (int n = 2; n <= 6; n++)
        for (int deserter = 0; deserter<n; deserter += n> 3 ? 2 : 1)
            if (conformance_takes(n + deserter))
                ranks_run(n, NULL, desert_the_vote, &deserter, NULL);
}

/* A rank that has voted, as far as it is concerned, and then does not make a call, so that its vote goes nowhere. */
static void stall_in_the_vote(struct ranks_rank *r)
{
    weft_exchange_opts o = {.size = sizeof o, .vote = true};
    weft_exchange *x;
    int sleeper = *(const int *)r->arg;
    char words[80];
    RANKS_OK(r, weft_exchange_open(r->comm, NULL, 0, NULL, 0, &o, &x));
    RANKS_OK(r, weft_exchange_finish(x, true));
    if (r->rank != sleeper) {
        RANKS_CHECK(r, weft_exchange_wait(x, 20 * SECOND) == WEFT_EPEER);
        snprintf(words, sizeof words, "rank %d finished a round and made no progress for %d ms", sleeper, DEADLINE_MS);
        RANKS_CHECK(r, strstr(ranks_said(), words) != NULL);
    }
    ranks_meet(r);
    weft_exchange_close(x);
}

static void rank_that_stalls_in_the_vote_is_named(void **state)
{
    (void)state;
    static const struct {
        int n, sleeper;
    } who[] = {{2, 0}, {2, 1}, {5, 4}};
    for (int i = 0; i < 3; i++) {
        int sleeper = who[i].sleeper;
        if (conformance_takes(i))
            ranks_run(who[i].n, &(weft_comm_opts){.deadline_ns = DEADLINE_MS * MS}, stall_in_the_vote, &sleeper, NULL);
    }
}

/* ---- a peer that is stopped while it loads ---- */

/* Rank 1 leaves its words as if it were; and then is gone, so that the comm fails. */
static void stop_while_loading(struct ranks_rank *r)
{
    weft_exchange *x;
    int other = 1 - r->rank;
    RANKS_OK(r, weft_exchange_open(r->comm, &other, 1, &other, 1, NULL, &x));
    if (r->rank == 1) {
        atomic_store(&x->pipes.ins[0].ring->loading, 1);
        weft_exchange_close(x);
        ranks_meet(r);
        return;
    }
    int64_t begin = clock_now();
    RANKS_OK(r, weft_exchange_finish(x, false));
    for (int i = 0; i < 3; i++)
        RANKS_CHECK(r, weft_exchange_wait(x, WEFT_FOREVER) == WEFT_EPEER);
    int64_t took = clock_now() - begin;
    RANKS_CHECK(r, took >= DEADLINE_MS * MS && took < 10 * SECOND);
    weft_exchange_close(x);
    ranks_meet(r);
}

static void peer_stopped_while_loading_is_not_waited_for_for_ever(void **state)
{
    (void)state;
    if (!ranks_forked || conformance_on_hosts()) {
        print_message("skip: for processes of one host\n");
        skip();
    }
    ranks_run(2, &(weft_comm_opts){.deadline_ns = DEADLINE_MS * MS}, stop_while_loading, NULL, NULL);
}

/* ---- no room inside a callback ---- */

struct filler {
    weft_exchange *x;
    int puts, err;
};

static void fill(void *arg, int err)
{
    static const char payload[4096];
    struct filler *f = arg;
    f->err = err;
    for (; !f->err && f->puts < 1000; f->puts++)
        f->err = weft_exchange_put(f->x, 1, NULL, 0, payload, sizeof payload);
}

/* Rank 1 receives nothing before rank 0 has come out of the callback of an exec. */
static void fill_in_a_callback(struct ranks_rank *r)
{
    weft_exchange_opts o = {.size = sizeof o, .budget = 256 << 10};
    struct filler f = {0};
    struct pair p;
    int other = 1 - r->rank;
    uint64_t came = 0;
    RANKS_OK(r, pair_bind(&p, "f32[16/x] @x2", "f32[16] @x2", false, r->comm));
    RANKS_OK(r, weft_exchange_open(r->comm, &other, r->rank == 1, &other, r->rank == 0, &o, &f.x));
    if (r->rank == 0)
        RANKS_OK(r, weft_exec_on_done(p.x, fill, &f));
    RANKS_OK(r, weft_exec_run(p.x));
    ranks_meet(r);
    RANKS_CHECK(r, r->rank ? !f.puts : f.err == WEFT_EBUSY && f.puts > 10 && f.puts <= 64);
    RANKS_OK(r, weft_exchange_finish(f.x, false));
    RANKS_OK(r, weft_exchange_wait(f.x, WEFT_FOREVER));
    for (weft_message *m = NULL; !weft_exchange_take(f.x, -1, &m) && m; came++)
        weft_message_free(m);
    RANKS_CHECK(r, r->rank ? came > 10 : !came);
    weft_exchange_close(f.x);
    pair_release(&p);
}

static void put_in_a_callback_without_room_is_busy(void **state)
{
    (void)state;
    ranks_run(2, NULL, fill_in_a_callback, NULL, NULL);
    ranks_run(2, &(weft_comm_opts){.progress = WEFT_PROGRESS_THREAD}, fill_in_a_callback, NULL, NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pause_between_rounds_is_no_stall),
        cmocka_unit_test(rank_that_closes_instead_of_voting_is_named),
        cmocka_unit_test(rank_that_stalls_in_the_vote_is_named),
        cmocka_unit_test(peer_stopped_while_loading_is_not_waited_for_for_ever),
        cmocka_unit_test(put_in_a_callback_without_room_is_busy),
    };
    return SUITE_MAIN(argc, argv, SUITE_AT(&conformance_everywhere, tests));
}
