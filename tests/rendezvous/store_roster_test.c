/* Rosters: one copy for each host of what all ranks have told. One rank gathers and sums up, however many there are; if
 * it ends, or cannot share, the others do so themselves. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "rendezvous/store.h"
#include "stores.h"
#include "support/processes.h"
#include "support/suite.h"

/* What a rank tells: enough that the values of many ranks need several requests. */
struct told {
    int rank;
    unsigned char fill[1020];
};

/* In memory that the ranks share. */
struct shared {
    atomic_int sums;   /* how often was summed up */
    atomic_int deaths; /* how many of the ranks that sum up end there instead */
    int code;          /* with which summing up fails; 0: it does not */
    int odd;           /* the rank that tells fewer bytes; -1: none */
    bool forked;
    bool hold; /* ranks have no file left */
    /* ranks end instead when they take this call of all by which ranks take others from the queue, or one of the next
     */
    int end_at, ends;
    atomic_int takes;
};

struct sum {
    struct shared *shared;
    int size;
};

static struct shared *ranks_have; /* what wrapped calls look at; NULL: they are as always */

int __real_accept4(int fd, struct sockaddr *from, socklen_t *n, int flags);
int __wrap_accept4(int fd, struct sockaddr *from, socklen_t *n, int flags);

int __wrap_accept4(int fd, struct sockaddr *from, socklen_t *n, int flags)
{
    int take = ranks_have && ranks_have->ends ? atomic_fetch_add(&ranks_have->takes, 1) : -1;
    if (take >= 0 && take >= ranks_have->end_at && take < ranks_have->end_at + ranks_have->ends)
        kill(getpid(), SIGKILL);
    return __real_accept4(fd, from, n, flags);
}

static int sum_up(void *arg, void *all, void *more)
{
    const struct sum *s = arg;
    struct told *told = all;
    long sum = 0;
    atomic_fetch_add(&s->shared->sums, 1);
    if (atomic_fetch_sub(&s->shared->deaths, 1) > 0)
        kill(getpid(), SIGKILL);
    for (int i = 0; i < s->size; i++) {
        sum += told[i].rank;
        memset(told[i].fill, 7, sizeof told[i].fill);
    }
    memcpy(more, &sum, sizeof sum);
    return s->shared->code ? error_set(s->shared->code, "what rank 3 says does not fit") : 0;
}

static void tell(struct stores_rank *r)
{
    struct shared *shared = ranks_have = r->arg;
    struct told mine = {.rank = r->rank};
    struct sum s = {shared, r->size};
    struct roster_ask ask = {.mine = &mine, .bytes = sizeof mine, .sum_up = sum_up, .arg = &s, .more = sizeof(long)};
    struct roster out = {.all = NULL};
    ask.bytes -= r->rank == shared->odd;
    if (stores_open(r)) {
        r->broken = true;
        return;
    }
    if (shared->hold)
        setrlimit(RLIMIT_NOFILE, &(struct rlimit){0});
    int files = shared->hold ? 0 : process_files();
    r->code = store_roster(r->s, "told", &ask, LONG, &out);
    if (r->code)
        snprintf(r->text, sizeof r->text, "%s", weft_errmsg());
    if (shared->hold)
        setrlimit(RLIMIT_NOFILE, &(struct rlimit){256, 256});
    else if (shared->forked && r->rank) /* rank 0 may serve the others meanwhile */
        STORES_CHECK(r, process_files() == files);
    store_close(r->s, LONG);
    if (r->code)
        return;
    const struct told *all = out.all;
    long sum;
    memcpy(&sum, out.more, sizeof sum);
    STORES_CHECK(r, sum == (long)r->size * (r->size - 1) / 2);
    for (int i = 0; i < r->size; i++)
        STORES_CHECK(r, all[i].rank == i && all[i].fill[0] == 7 && all[i].fill[sizeof all->fill - 1] == 7);
    roster_drop(&out);
}

static struct stores_rank *run(enum stores_kind kind, int n, bool forked, struct shared *shared)
{
    struct stores_place p;
    stores_begin(&p, kind);
    struct stores_rank *r = stores_crew(&p, n, tell);
    shared->forked = forked;
    for (int i = 0; i < n; i++)
        r[i].arg = shared;
    stores_run(r, n, forked);
    stores_end(&p);
    return r;
}

static struct shared *begin(void)
{
    struct shared *s = ranks_shared(sizeof *s);
    *s = (struct shared){.odd = -1};
    return s;
}

/* ---- one copy ---- */

static void one_rank_sums_up(void **state)
{
    (void)state;
    for (int kind = 0; kind < STORES_KINDS; kind++)
        for (int n = 1; n <= 64; n *= 4) {
            if (kind != STORES_FILE && !stores_sodium())
                continue;
            struct shared *s = begin();
            stores_free(run((enum stores_kind)kind, n, true, s), n);
            if (atomic_load(&s->sums) != 1)
                fail_msg("%d ranks have summed up %d times", n, atomic_load(&s->sums));
            munmap(s, sizeof *s);
        }
}

static void threads_share_one_copy_too(void **state)
{
    (void)state;
    struct shared *s = begin();
    stores_free(run(STORES_FILE, 8, false, s), 8);
    assert_int_equal(atomic_load(&s->sums), 1);
    munmap(s, sizeof *s);
}

/* ---- what goes wrong ---- */

static void error_of_summing_up_is_that_of_all(void **state)
{
    (void)state;
    struct shared *s = begin();
    s->code = WEFT_EMISMATCH;
    struct stores_rank *r = run(STORES_FILE, 8, true, s);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(r[i].code, WEFT_EMISMATCH);
        assert_string_equal(r[i].text, "what rank 3 says does not fit");
    }
    assert_int_equal(atomic_load(&s->sums), 1);
    stores_free(r, 8);
    munmap(s, sizeof *s);
}

static void rank_that_tells_another_length_is_named(void **state)
{
    (void)state;
    struct shared *s = begin();
    s->odd = 5;
    struct stores_rank *r = run(STORES_FILE, 8, true, s);
    for (int i = 0; i < 8; i++)
        assert_int_equal(r[i].code, WEFT_EMISMATCH);
    assert_non_null(strstr(r[0].text, "uses another version of weft"));
    stores_free(r, 8);
    munmap(s, sizeof *s);
}

/* Runs n ranks, of which some end. Returns how many did. */
static int run_with_deaths(int n, struct shared *s)
{
    struct stores_place p;
    stores_begin(&p, STORES_FILE);
    struct stores_rank *r = stores_crew(&p, n, tell);
    for (int i = 0; i < n; i++) {
        r[i].arg = s;
        r[i].code = 1; /* of those that die */
    }
    stores_run(r, n, true);
    int dead = 0;
    for (int i = 0; i < n; i++)
        dead += r[i].code != 0;
    stores_free(r, n);
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'/*", p.dir); /* the dead rank cannot have closed the store */
    assert_int_equal(system(command), 0);
    stores_end(&p);
    return dead;
}

/* The rank that gathers ends before it has handed out anything: the others gather themselves. */
static void others_go_on_when_the_rank_that_gathers_dies(void **state)
{
    (void)state;
    struct shared *s = begin();
    s->deaths = 1;
    assert_true(run_with_deaths(8, s) <= 1); /* the one that died had opened the store */
    assert_int_equal(atomic_load(&s->sums), 8);
    munmap(s, sizeof *s);
}

/* The rank that gathers hands the copy to 8, three of these end before they have handed it on: the rest get it from the
 * other five. */
static void others_go_on_when_ranks_that_hand_out_die(void **state)
{
    (void)state;
    struct shared *s = begin();
    s->end_at = 8;
    s->ends = 3;
    assert_true(run_with_deaths(32, s) <= 3);
    assert_true(atomic_load(&s->takes) >= 11); /* they did end */
    assert_int_equal(atomic_load(&s->sums), 1);
    munmap(s, sizeof *s);
}

/* The rank that gathers ends when it has handed the copy to four: these hand it on. */
static void others_go_on_when_the_rank_that_gathers_dies_while_it_hands_out(void **state)
{
    (void)state;
    struct shared *s = begin();
    s->end_at = 4;
    s->ends = 1;
    assert_true(run_with_deaths(32, s) <= 1);
    assert_true(atomic_load(&s->takes) >= 5);
    assert_true(atomic_load(&s->sums) >= 1);
    munmap(s, sizeof *s);
}

static void ranks_without_files_gather_alone(void **state)
{
    (void)state;
    if (!stores_sodium())
        skip();
    struct shared *s = begin();
    s->hold = true;
    struct stores_rank *r = run(STORES_SERVED, 4, true, s);
    for (int i = 0; i < 4; i++)
        assert_int_equal(r[i].code, 0); /* the store's connection is open: each gathers alone */
    assert_int_equal(atomic_load(&s->sums), 4);
    stores_free(r, 4);
    munmap(s, sizeof *s);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_sums_up),
        cmocka_unit_test(threads_share_one_copy_too),
        cmocka_unit_test(error_of_summing_up_is_that_of_all),
        cmocka_unit_test(rank_that_tells_another_length_is_named),
        cmocka_unit_test(others_go_on_when_the_rank_that_gathers_dies),
        cmocka_unit_test(others_go_on_when_ranks_that_hand_out_die),
        cmocka_unit_test(others_go_on_when_the_rank_that_gathers_dies_while_it_hands_out),
        cmocka_unit_test(ranks_without_files_gather_alone),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
