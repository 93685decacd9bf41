/* Ballots: however the votes of ranks are put together, the judgement is that of a rank which goes through all votes in
 * the order of ranks. */
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "comm/ballot.h"
#include "support/random.h"
#include "support/share.h"
#include "support/suite.h"

enum { RANKS = 12 };

static int64_t below(struct random *rng, int64_t n)
{
    return random_in(rng, 0, n - 1);
}

/* By the definition. */
static int judge_all(const struct core_vote *v, int n, char *text, size_t cap)
{
    *text = 0;
    for (int r = 1; r < n; r++) {
        if (v[r].call != v[0].call) {
            snprintf(text, cap, "rank 0 is in %s, rank %d in %s: all ranks must make the same calls in one order",
                     names_call(v[0].call), r, names_call(v[r].call));
            return WEFT_EMISMATCH;
        }
        if (v[r].object != v[0].object) {
            snprintf(text, cap, "%s: rank 0 means exec %" PRIu64 ", rank %d exec %" PRIu64, names_call(v[0].call),
                     v[0].object, r, v[r].object);
            return WEFT_EMISMATCH;
        }
    }
    for (int r = 0; r < n; r++)
        if (v[r].code) {
            snprintf(text, cap, "rank %d: %s", r, v[r].text);
            return v[r].code;
        }
    for (int r = 1; r < n; r++)
        if (v[r].digest != v[0].digest) {
            if (v[r].call == COMM_WINDOW)
                snprintf(text, cap, "rank %d: its window has other buffers or signals than rank 0's", r);
            else
                snprintf(text, cap,
                         "rank %d: its plan differs from rank 0's (digests %016" PRIx64 " and %016" PRIx64
                         "): all ranks must give the same layouts, names and options",
                         r, v[r].digest, v[0].digest);
            return WEFT_EMISMATCH;
        }
    return 0;
}

static struct core_vote draw(struct random *rng, bool odd)
{
    struct core_vote v = {.call = COMM_BIND, .object = 7, .digest = 9, .note = random_next(rng)};
    if (odd && !below(rng, 3))
        v.call = below(rng, 2) ? COMM_WINDOW : COMM_BARRIER;
    if (odd && !below(rng, 3))
        v.object = 7 + (uint64_t)below(rng, 2);
    if (odd && !below(rng, 3))
        v.digest = 9 + (uint64_t)below(rng, 3);
    if (odd && !below(rng, 4)) {
        v.code = below(rng, 2) ? WEFT_ENOMEM : WEFT_EINVAL;
        snprintf(v.text, sizeof v.text, "text %d", (int)below(rng, 100));
    }
    return v;
}

static void one_case(uint64_t seed)
{
    struct random rng = {seed};
    struct transport_link link = {.rank = 0};
    weft_comm comm = {.link = &link};
    struct core_vote v[RANKS];
    struct ballot b[RANKS];
    char text[1000];
    int n = 1 + (int)below(&rng, RANKS), left = n;
    uint64_t note = UINT64_MAX, often = (uint64_t)below(&rng, 6);
    for (int r = 0; r < n; r++) {
        v[r] = draw(&rng, often && (uint64_t)below(&rng, 6) < often);
        note &= v[r].note;
        ballot_begin(&b[r]);
        ballot_add(&b[r], r, &v[r]);
    }
    while (left > 1) { /* any two of those that are left become one */
        int i = (int)below(&rng, left), k = (int)below(&rng, left - 1);
        k += k >= i;
        ballot_merge(&b[i], &b[k]);
        b[k] = b[left - 1];
        if (i == left - 1)
            b[i] = b[k];
        left--;
    }
    int right = judge_all(v, n, text, sizeof text), code = ballot_judge(&comm, &b[0]);
    if (code != right || (code && strcmp(text, weft_errmsg())) || b[0].note != note || b[0].first != v[0].note)
        fail_msg("seed %llu, %d ranks: code %d instead of %d, \"%s\" instead of \"%s\"", (unsigned long long)seed, n,
                 code, right, code ? weft_errmsg() : "", text);
}

static void judgement_does_not_depend_on_how_ballots_are_merged(void **state)
{
    (void)state;
    int64_t n = test_share(20000, 200000);
    for (int64_t i = 0; i < n; i++)
        one_case((uint64_t)i);
}

static void empty_ballots_change_nothing(void **state)
{
    (void)state;
    struct ballot a, none;
    struct core_vote v = {.call = COMM_BIND, .note = 5};
    ballot_begin(&a);
    ballot_begin(&none);
    ballot_merge(&a, &none);
    assert_int_equal(a.lowest.rank, -1);
    ballot_add(&a, 3, &v);
    ballot_merge(&a, &none);
    assert_int_equal(a.lowest.rank, 3);
    ballot_merge(&none, &a);
    assert_int_equal(none.lowest.rank, 3);
    assert_int_equal(none.note, 5);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(judgement_does_not_depend_on_how_ballots_are_merged),
        cmocka_unit_test(empty_ballots_change_nothing),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
