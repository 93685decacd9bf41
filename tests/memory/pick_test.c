/* Short pieces that are picked by table look-up, against a copy byte by byte. Each buffer is as large as what its
 * pieces need, and lies between pages that cannot be touched, at the beginning or the end of its own. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "guarded.h"
#include "memory/memory.h"
#include "memory/pick.h"
#include "memory_levels.h"
#include "memory_ref.h"
#include "support/share.h"
#include "support/suite.h"

static uint64_t seed;

static int64_t from_to(int64_t low, int64_t high)
{
    return low + (int64_t)(ref_random(&seed) % (uint64_t)(high - low + 1));
}

enum { PIECES = 40 };

/* Pieces of 1 to 15 bytes, often all of one length: dense or with gaps in src, with or without a gap after each turn in
 * dst. Returns how many turns were picked. */
static int64_t check(int n, int64_t turns, bool upwards)
{
    struct pick_piece pieces[PIECES];
    struct guarded src[PIECES], dst;
    int64_t all = 0, length = from_to(1, 15);
    const bool even = from_to(0, 2) > 0, dense = from_to(0, 1), far = from_to(0, 9) == 0;
    for (int i = 0; i < n; i++) {
        const int64_t bytes = even ? length : from_to(1, 15);
        const int64_t step = dense ? bytes : bytes + from_to(0, far ? 300 : 16);
        const int64_t room = bytes + (turns - 1) * step;
        const unsigned char *at = guarded_make(&src[i], room, &seed);
        pieces[i] = (struct pick_piece){upwards ? at : at + room - bytes, upwards ? step : -step, bytes};
        all += bytes;
    }
    const int64_t dstep = all + (from_to(0, 1) ? 0 : from_to(1, 40)), room = turns * dstep;
    unsigned char *got = guarded_make(&dst, room, &seed), *want = malloc((size_t)room);
    assert_non_null(want);
    memcpy(want, got, (size_t)room);
    const int64_t done = pick_turns(got, dstep, pieces, n, turns);
    assert_true(done >= 0 && done <= turns);
    for (int64_t t = 0; t < done; t++)
        for (int64_t i = 0, at = t * dstep; i < n; at += pieces[i++].bytes)
            memcpy(want + at, pieces[i].src + t * pieces[i].step, (size_t)pieces[i].bytes);
    assert_memory_equal(got, want, (size_t)room);
    for (int i = 0; i < n; i++)
        guarded_free(&src[i]);
    guarded_free(&dst);
    free(want);
    return done;
}

static void picked_turns_match_a_copy_of_each_piece(void **state)
{
    (void)state;
    seed = 51;
    int64_t picked = 0;
    for (int round = 0; round < test_rounds(1500); round++)
        picked += check((int)from_to(1, from_to(0, 3) ? 8 : PIECES), from_to(1, from_to(0, 1) ? 600 : 5000), true);
    for (int round = 0; round < 20; round++) /* downwards none is picked */
        assert_true(check(2, 2000, false) == 0);
    assert_true((picked > 0) == pick_here());
}

/* Units of a copy, dense in dst: one loop, and rows of a few units each, with or without gaps between rows. */
static void copies_of_short_units_match_a_copy_of_each(void **state)
{
    (void)state;
    seed = 52;
    for (int round = 0; round < test_rounds(600); round++) {
        const int64_t unit = from_to(1, 15), turns = from_to(1, from_to(0, 1) ? 40 : 3000), rows = from_to(1, 60);
        const int64_t sturn = unit + from_to(1, 20), srow = turns * sturn + from_to(0, 9);
        const int64_t drow = turns * unit + (from_to(0, 1) ? 0 : from_to(1, 30));
        const bool across = from_to(0, 3) == 0; /* the loop that is dense in dst is the outer one */
        const int64_t sbytes = (rows - 1) * srow + (turns - 1) * sturn + unit, dbytes = rows * drow;
        struct guarded from, to;
        unsigned char *src = guarded_make(&from, sbytes, &seed), *dst = guarded_make(&to, dbytes, &seed),
                      *want = malloc((size_t)dbytes);
        assert_non_null(want);
        memcpy(want, dst, (size_t)dbytes);
        const struct memory_tile t =
            across ? (struct memory_tile){3, {turns, rows, unit}, {{unit, drow, 1}, {sturn, srow, 1}}}
                   : (struct memory_tile){3, {rows, turns, unit}, {{drow, unit, 1}, {srow, sturn, 1}}};
        for (int64_t r = 0; r < rows; r++)
            for (int64_t i = 0; i < turns; i++)
                memcpy(want + r * drow + i * unit, src + r * srow + i * sturn, (size_t)unit);
        memory_copy(&t, dst, WEFT_U8, src, WEFT_U8);
        if (memcmp(dst, want, (size_t)dbytes) != 0)
            fail_msg("round %d: units of %d bytes, %d apart, %d by %d", round, (int)unit, (int)sturn, (int)rows,
                     (int)turns);
        guarded_free(&from);
        guarded_free(&to);
        free(want);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(picked_turns_match_a_copy_of_each_piece),
        cmocka_unit_test(copies_of_short_units_match_a_copy_of_each),
    };
    return SUITE_MAIN(argc, argv, SUITE_AT(&memory_levels, tests));
}
