/* Stores of every kind: the laws of keys, counters and gathers among threads and processes, opens that fail and are
 * tried again, ranks that die, jobs beside each other and after each other in one place. */
#define _GNU_SOURCE
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "rendezvous/store.h"
#include "stores.h"
#include "support/share.h"
#include "support/suite.h"

#if defined(__SANITIZE_THREAD__)
enum { FORKS = 1 }; /* TSan looks at one process */
#else
enum { FORKS = 2 };
#endif

/* Every kind, with threads and with processes. */
static void each(void (*test)(enum stores_kind kind, bool forked))
{
    for (int kind = 0; kind < STORES_KINDS; kind++)
        for (int forked = 0; forked < FORKS; forked++)
            if (kind == STORES_FILE || stores_sodium())
                test((enum stores_kind)kind, forked);
}

/* ---- laws ---- */

static void key_of(char *key, const char *what, int rank)
{
    snprintf(key, 64, "%s/%d", what, rank);
}

/* What is set is what all get, to the byte, at every length. */
static void check_values(struct stores_rank *r)
{
    static const size_t lengths[] = {0, 1, 31, 4096, STORE_VALUE_MAX};
    unsigned char *mine = malloc(STORE_VALUE_MAX), *got = malloc(STORE_VALUE_MAX);
    char key[64];
    size_t n = 0;
    STORES_CHECK(r, mine && got);
    STORES_CHECK(r, store_get(r->s, "nobody/sets/this", got, 8, &n, 0) == WEFT_ETIMEOUT);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        memset(mine, r->rank * 16 + (int)i, lengths[i]);
        snprintf(key, sizeof key, "value-%zu/%d", i, r->rank);
        STORES_CHECK(r, !store_set(r->s, key, mine, lengths[i], LONG));
    }
    for (int peer = 0; peer < r->size; peer++) {
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            snprintf(key, sizeof key, "value-%zu/%d", i, peer);
            STORES_CHECK(r, !store_get(r->s, key, got, STORE_VALUE_MAX, &n, LONG) && n == lengths[i]);
            memset(mine, peer * 16 + (int)i, n);
            STORES_CHECK(r, !memcmp(mine, got, n));
        }
    }
    free(mine);
    free(got);
}

/* Values of any length, by rank; of two the last counts. */
static void check_gather(struct stores_rank *r)
{
    char key[64];
    unsigned char mine[64];
    struct store_parts all;
    size_t n;
    memset(mine, r->rank, sizeof mine);
    key_of(key, "twice", r->rank);
    STORES_CHECK(r, !store_set(r->s, key, "x", 1, LONG) && !store_set(r->s, key, "longer", 6, LONG));
    STORES_CHECK(r, !store_gather(r->s, "all", mine, (size_t)r->rank * 3, LONG, &all));
    for (int peer = 0; peer < r->size && !r->broken; peer++) {
        STORES_CHECK(r, all.at[peer + 1] - all.at[peer] == (size_t)peer * 3);
        for (size_t i = all.at[peer]; i < all.at[peer + 1]; i++)
            STORES_CHECK(r, all.bytes[i] == peer);
        key_of(key, "twice", peer);
        STORES_CHECK(r, !store_get(r->s, key, mine, sizeof mine, &n, 0) && n == 6 && !memcmp(mine, "longer", n));
    }
    if (!r->broken)
        store_parts_free(&all);
}

/* A rank gets the values that it needs, one by one, and waits for those that are not there yet: rank 0 offers its own
 * last, when it has those of all others. */
static void check_parts(struct stores_rank *r)
{
    char mine[64], got[64], text[128];
    size_t n = 0;
    snprintf(mine, sizeof mine, "the card of rank %d", r->rank);
    if (r->rank)
        STORES_CHECK(r, !store_offer(r->s, "card", mine, strlen(mine) + 1, LONG));
    for (int i = 1; i <= r->size; i++) {
        int peer = (r->rank + i) % r->size;
        if (peer == r->rank && !r->rank)
            STORES_CHECK(r, !store_offer(r->s, "card", mine, strlen(mine) + 1, LONG));
        snprintf(text, sizeof text, "the card of rank %d", peer);
        STORES_CHECK(r, !store_part(r->s, "card", peer, got, sizeof got, &n, LONG));
        STORES_CHECK(r, n == strlen(text) + 1 && !memcmp(got, text, n));
    }
    STORES_CHECK(r, store_part(r->s, "card", r->rank, got, 4, &n, LONG) == WEFT_EINVAL && n == strlen(mine) + 1);
    STORES_CHECK(r, store_part(r->s, "card", r->size, got, sizeof got, &n, 0) == WEFT_EINVAL);
    STORES_CHECK(r, store_part(r->s, "card", -1, got, sizeof got, &n, 0) == WEFT_EINVAL);
    STORES_CHECK(r, store_part(r->s, "none", 0, got, sizeof got, &n, 10 * MS) == WEFT_ETIMEOUT);
    STORES_CHECK(r, strstr(weft_errmsg(), "'none' of rank 0 did not come in time"));
}

/* So large that a reply has one value; and one that never becomes whole, which says who is missing. */
static void check_large_gather(struct stores_rank *r)
{
    unsigned char *mine = malloc(STORE_VALUE_MAX);
    struct store_parts all;
    STORES_CHECK(r, mine);
    memset(mine, r->rank + 1, STORE_VALUE_MAX);
    STORES_CHECK(r, !store_gather(r->s, "large", mine, STORE_VALUE_MAX, LONG, &all));
    for (int peer = 0; peer < r->size && !r->broken; peer++) {
        memset(mine, peer + 1, STORE_VALUE_MAX);
        STORES_CHECK(r, all.at[peer + 1] - all.at[peer] == STORE_VALUE_MAX);
        STORES_CHECK(r, !memcmp(all.bytes + all.at[peer], mine, STORE_VALUE_MAX));
    }
    if (!r->broken)
        store_parts_free(&all);
    free(mine);
    if (r->rank || r->size == 1)
        return;
    STORES_CHECK(r, store_gather(r->s, "alone", "x", 1, 20 * MS, &all) == WEFT_ETIMEOUT);
    STORES_CHECK(
        r, strstr(weft_errmsg(), r->size == 2 ? "'alone' of rank 1 did not come in time" : "'alone' of ranks 1, 2, "));
}

static void laws_body(struct stores_rank *r)
{
    STORES_CHECK(r, !stores_open(r));
    if (r->broken)
        return;
    STORES_CHECK(r, r->s->rank == r->rank && r->s->size == r->size);
    check_values(r);
    check_gather(r);
    check_parts(r);
    check_large_gather(r);
    STORES_CHECK(r, store_wait(r->s, "never", 20 * MS) == WEFT_ETIMEOUT && strstr(weft_errmsg(), "'never'"));
    STORES_CHECK(r, !store_wait(r->s, "value-0/0", 0));
    store_close(r->s, LONG);
}

static void laws(enum stores_kind kind, bool forked)
{
    static const int sizes[] = {1, 2, 8};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct stores_place p;
        int n = sizes[i];
        stores_begin(&p, kind);
        struct stores_rank *ranks = stores_crew(&p, n, laws_body);
        stores_run(ranks, n, forked);
        stores_free(ranks, n);
        stores_end(&p);
    }
}

static void keys_counters_and_gathers_keep_their_laws(void **state)
{
    (void)state;
    each(laws);
}

/* ---- what is refused ---- */

static void refused_body(struct stores_rank *r)
{
    char longest[STORE_KEY_MAX + 2], small[4];
    size_t n = 0;
    memset(longest, 'k', sizeof longest);
    longest[STORE_KEY_MAX + 1] = 0;
    STORES_CHECK(r, !stores_open(r));
    if (r->broken)
        return;
    unsigned char *big = calloc(1, STORE_VALUE_MAX + 1);
    STORES_CHECK(r, store_set(r->s, longest, "x", 1, LONG) == WEFT_EINVAL);
    longest[STORE_KEY_MAX] = 0;
    STORES_CHECK(r, !store_set(r->s, longest, "12345", 5, LONG));
    STORES_CHECK(r, store_set(r->s, "k", big, STORE_VALUE_MAX + 1, LONG) == WEFT_EINVAL);
    STORES_CHECK(r, store_set(r->s, "", "x", 1, LONG) == WEFT_EINVAL);
    STORES_CHECK(r, store_set(r->s, "a b", "x", 1, LONG) == WEFT_EINVAL);
    STORES_CHECK(r, store_set(r->s, "a,b", "x", 1, LONG) == WEFT_EINVAL);
    STORES_CHECK(r, store_wait(r->s, "k", -1) == WEFT_EINVAL);
    STORES_CHECK(r, store_get(r->s, longest, small, sizeof small, &n, 0) == WEFT_EINVAL && n == 5);
    STORES_CHECK(r, !store_set(r->s, "../../etc/passwd", "x", 1, LONG) && !store_wait(r->s, "../../etc/passwd", 0));
    free(big);
    store_close(r->s, LONG);
}

static void refused(enum stores_kind kind, bool forked)
{
    struct stores_place p;
    stores_begin(&p, kind);
    struct stores_rank *r = stores_crew(&p, 1, refused_body);
    stores_run(r, 1, forked);
    stores_free(r, 1);
    stores_end(&p);
}

static void bad_calls_are_refused(void **state)
{
    (void)state;
    struct store *s;
    struct store_opts o = {.size = 2, .token = TOKEN};
    each(refused);
    assert_int_equal(store_open("what:ever", &o, &s), WEFT_EINVAL);
    assert_non_null(strstr(weft_errmsg(), "file:DIR, tcp:HOST:PORT and pmix:"));
    assert_int_equal(store_open("file:", &o, &s), WEFT_EINVAL);
    assert_int_equal(store_open("file:/no/such/folder", &o, &s), WEFT_ETRANSPORT);
    assert_int_equal(store_open("tcp:localhost", &o, &s), WEFT_EINVAL);
    assert_int_equal(store_open("tcp:::1:5", &o, &s), WEFT_EINVAL);
    assert_int_equal(store_open("tcp:localhost:65536", &o, &s), WEFT_EINVAL);
    o.rank = 2;
    assert_int_equal(store_open("file:/tmp", &o, &s), WEFT_EINVAL);
    o = (struct store_opts){.size = STORE_RANKS_MAX + 1};
    assert_int_equal(store_open("file:/tmp", &o, &s), WEFT_EINVAL);
    o = (struct store_opts){.size = 1, .name = "no blanks"};
    assert_int_equal(store_open("file:/tmp", &o, &s), WEFT_EINVAL);
}

/* ---- opens ---- */

static void open_body(struct stores_rank *r)
{
    if (!stores_open(r))
        store_close(r->s, LONG);
}

/* Tests of ranks that should meet and then fail take longer and longer: on a machine that stalls they miss each other.
 */
static void set_timeout(struct stores_rank *ranks, int n, int64_t timeout_ns)
{
    for (int i = 0; i < n; i++)
        ranks[i].timeout_ns = timeout_ns;
}

/* Rank 2 does not come: those who do are told so, and when it comes later, all is well. */
static void missing(enum stores_kind kind, bool forked)
{
    struct stores_place p;
    stores_begin(&p, kind);
    struct stores_rank *ranks = stores_crew(&p, 3, open_body);
    bool named = false;
    for (int64_t timeout = 300 * MS; !named && timeout < LONG; timeout *= 4) {
        set_timeout(ranks, 3, timeout);
        stores_run(ranks, 2, forked);
        for (int i = 0; i < 2; i++) {
            assert_true(ranks[i].code == WEFT_ETIMEOUT || ranks[i].code == WEFT_EPEER);
            named |= strstr(ranks[i].text, "rank 2 did not come") != NULL;
        }
    }
    assert_true(named);
    set_timeout(ranks, 3, LONG);
    stores_run(ranks, 3, forked);
    for (int i = 0; i < 3; i++)
        assert_int_equal(ranks[i].code, 0);
    stores_free(ranks, 3);
    stores_end(&p);
}

static void missing_rank_is_named_and_may_come_later(void **state)
{
    (void)state;
    each(missing);
}

/* In a folder all are told. Who comes to a server after the others were told so waits in vain. */
static void mismatch(enum stores_kind kind, bool forked)
{
    struct stores_place p;
    stores_begin(&p, kind);
    struct stores_rank *ranks = stores_crew(&p, 3, open_body);
    int told = 0, want = kind == STORES_FILE ? 3 : 2;
    ranks[2].size = 4;
    for (int64_t timeout = SECOND; told < want && timeout < LONG; timeout *= 4) {
        set_timeout(ranks, 3, timeout);
        stores_run(ranks, 3, forked);
        told = 0;
        for (int i = 0; i < 3; i++) {
            assert_int_not_equal(ranks[i].code, 0);
            told += ranks[i].code == WEFT_EMISMATCH;
        }
    }
    assert_true(told >= want);
    stores_free(ranks, 3);
    stores_end(&p);
}

static void ranks_with_different_sizes_are_told(void **state)
{
    (void)state;
    each(mismatch);
}

/* Rank 0 is gone when it has told its part, before it has passed on those of the others. Rank 1 knows that, and rank 2
 * does not. Both get all parts: a rank that did not would be left alone, since the other one goes on. */
static int first_is_gone(void *arg, int rank)
{
    (void)arg;
    return rank > 0 ? 0 : error_set(WEFT_EPEER, "rank 0 is gone");
}

static int nobody_is_gone(void *arg, int rank)
{
    (void)arg;
    (void)rank;
    return 0;
}

static void parted_body(struct stores_rank *r)
{
    struct store_watch watch = {.vain = r->rank == 1 ? first_is_gone : nobody_is_gone};
    struct store_parts all = {.bytes = NULL};
    int mine = 7 * r->rank, got = -1;
    STORES_CHECK(r, !stores_open(r));
    if (r->broken)
        return;
    store_set_watch(r->s, &watch);
    if (r->rank == 0) {
        STORES_CHECK(r, !store_offer(r->s, "part", &mine, sizeof mine, LONG));
    } else {
        STORES_CHECK(r, !store_gather(r->s, "part", &mine, sizeof mine, 10 * SECOND, &all));
        for (int peer = 0; peer < r->size && !r->broken; peer++) {
            memcpy(&got, all.bytes + all.at[peer], sizeof got);
            STORES_CHECK(r, got == 7 * peer);
        }
        store_parts_free(&all);
    }
    store_close(r->s, LONG);
}

static void parted(enum stores_kind kind, bool forked)
{
    struct stores_place p;
    stores_begin(&p, kind);
    struct stores_rank *ranks = stores_crew(&p, 3, parted_body);
    stores_run(ranks, 3, forked);
    stores_free(ranks, 3);
    stores_end(&p);
}

static void gather_without_the_first_rank_ends_for_all(void **state)
{
    (void)state;
    each(parted);
}

/* Again and again at the same place under the same name: nothing of before is seen. */
static void repeat_body(struct stores_rank *r)
{
    int rounds = *(int *)r->arg;
    for (int round = 0; round < rounds && !r->broken; round++) {
        struct store_parts all;
        int mine = round * 100 + r->rank, got;
        STORES_CHECK(r, !stores_open(r));
        if (r->broken)
            return;
        STORES_CHECK(r, !store_gather(r->s, "same", &mine, sizeof mine, LONG, &all));
        for (int peer = 0; peer < r->size && !r->broken; peer++) {
            memcpy(&got, all.bytes + all.at[peer], sizeof got);
            STORES_CHECK(r, got == round * 100 + peer);
        }
        if (!r->broken)
            store_parts_free(&all);
        store_close(r->s, LONG);
    }
}

static void repeat(enum stores_kind kind, bool forked)
{
    struct stores_place p;
    stores_begin(&p, kind);
    struct stores_rank *ranks = stores_crew(&p, 3, repeat_body);
    int *rounds = ranks_shared(sizeof *rounds);
    *rounds = (int)test_share(10, 200);
    for (int i = 0; i < 3; i++)
        ranks[i].arg = rounds;
    stores_run(ranks, 3, forked);
    munmap(rounds, sizeof *rounds);
    stores_free(ranks, 3);
    stores_end(&p);
}

static void reopened_store_has_nothing_of_before(void **state)
{
    (void)state;
    each(repeat);
}

/* Two jobs at one place, under names of their own, at the same time. */
static void two_jobs(enum stores_kind kind, bool forked)
{
    struct stores_place p;
    stores_begin(&p, kind);
    struct stores_rank *ranks = stores_crew(&p, 8, laws_body);
    for (int i = 0; i < 8; i++) {
        ranks[i].rank = i % 4;
        ranks[i].size = 4;
        ranks[i].name = i < 4 ? "one" : "one.two/three";
    }
    stores_run(ranks, 8, forked);
    stores_free(ranks, 8);
    stores_end(&p);
}

static void two_jobs_at_one_place_do_not_meet(void **state)
{
    (void)state;
    each(two_jobs);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_counters_and_gathers_keep_their_laws),
        cmocka_unit_test(bad_calls_are_refused),
        cmocka_unit_test(missing_rank_is_named_and_may_come_later),
        cmocka_unit_test(ranks_with_different_sizes_are_told),
        cmocka_unit_test(gather_without_the_first_rank_ends_for_all),
        cmocka_unit_test(reopened_store_has_nothing_of_before),
        cmocka_unit_test(two_jobs_at_one_place_do_not_meet),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
