/* Casts of short rows, and of pieces that are gathered before, against one cast of all their elements in a run: with
 * gaps or without on either side, in buffers that are as large as what their rows need. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "guarded.h"
#include "memory/cast.h"
#include "memory/cast_rows.h"
#include "memory/memory.h"
#include "memory_levels.h"
#include "memory_ref.h"
#include "support/share.h"
#include "support/suite.h"

enum { PIECES = 24 };

static uint64_t seed;

static int64_t from_to(int64_t low, int64_t high)
{
    return low + (int64_t)(ref_random(&seed) % (uint64_t)(high - low + 1));
}

/* Two dtypes with a cast between them that changes bits. */
static void draw(int *to, int *from)
{
    do {
        *to = (int)from_to(1, DTYPE_COUNT);
        *from = (int)from_to(1, DTYPE_COUNT);
    } while (!dtype_castable(*from, *to) || *to == *from || cast_is_move(*to, *from));
}

/* A gap between rows of `bytes` bytes: none, a few bytes, or many. */
static int64_t gap(void)
{
    return from_to(0, 1) ? 0 : from_to(1, from_to(0, 1) ? 20 : 300);
}

/* Copies `rows` rows of the run `from`, which has them without gaps. */
static void spread(unsigned char *to, int64_t step, const unsigned char *from, int64_t bytes, int64_t rows)
{
    for (int64_t r = 0; r < rows; r++)
        memcpy(to + r * step, from + r * bytes, (size_t)bytes);
}

/* Rows of n elements to be cast, and what must be there afterwards, gaps included. */
struct expected {
    unsigned char *dense; /* the elements, without gaps, for the test to fill in */
    unsigned char *want;
    size_t bytes;
};

static struct expected expect(const unsigned char *d, int64_t dstep, int to, int from, int64_t n, int64_t rows)
{
    const int64_t dsize = (int64_t)weft_dtype_size(to), ssize = (int64_t)weft_dtype_size(from);
    struct expected e = {.bytes = (size_t)((rows - 1) * dstep + n * dsize)};
    e.dense = malloc((size_t)(rows * n * ssize));
    e.want = malloc(e.bytes);
    assert_non_null(e.dense);
    assert_non_null(e.want);
    memcpy(e.want, d, e.bytes);
    return e;
}

/* Casts all elements at once, and lays them out in rows. */
static void settle(struct expected *e, int64_t dstep, int to, int from, int64_t n, int64_t rows)
{
    unsigned char *out = malloc((size_t)(rows * n) * weft_dtype_size(to));
    assert_non_null(out);
    memory_cast(out, to, e->dense, from, (size_t)(rows * n));
    spread(e->want, dstep, out, n * (int64_t)weft_dtype_size(to), rows);
    free(out);
}

static void compare(struct expected *e, const unsigned char *d, int round, const char *what, int to, int from)
{
    if (memcmp(d, e->want, e->bytes) != 0)
        fail_msg("round %d: %s, %s to %s", round, what, weft_dtype_name(from), weft_dtype_name(to));
    free(e->dense);
    free(e->want);
}

static void rows_match_a_cast_of_all_elements(void **state)
{
    (void)state;
    seed = 61;
    for (int round = 0; round < test_rounds(4000); round++) {
        int to, from;
        draw(&to, &from);
        const int64_t n = from_to(1, from_to(0, 2) ? 16 : 200), rows = from_to(1, from_to(0, 3) ? 60 : 700);
        const int64_t dsize = (int64_t)weft_dtype_size(to), ssize = (int64_t)weft_dtype_size(from);
        const int64_t dstep = n * dsize + gap(), sstep = n * ssize + gap();
        struct guarded src, dst;
        const unsigned char *s = guarded_make(&src, (rows - 1) * sstep + n * ssize, &seed);
        unsigned char *d = guarded_make(&dst, (rows - 1) * dstep + n * dsize, &seed);
        struct expected e = expect(d, dstep, to, from, n, rows);
        for (int64_t r = 0; r < rows; r++)
            memcpy(e.dense + r * n * ssize, s + r * sstep, (size_t)(n * ssize));
        settle(&e, dstep, to, from, n, rows);
        const struct memory_tile t = {2, {rows, n}, {{dstep, dsize}, {sstep, ssize}}};
        memory_copy(&t, d, to, s, from);
        compare(&e, d, round, "rows", to, from);
        guarded_free(&src);
        guarded_free(&dst);
    }
}

static void pieces_match_a_cast_of_all_elements(void **state)
{
    (void)state;
    seed = 62;
    for (int round = 0; round < test_rounds(1500); round++) {
        int to, from;
        draw(&to, &from);
        const int n = (int)from_to(1, from_to(0, 2) ? 6 : PIECES);
        const int64_t dsize = (int64_t)weft_dtype_size(to), ssize = (int64_t)weft_dtype_size(from);
        const int64_t turns = from_to(1, from_to(0, 2) ? 100 : 3000), even = from_to(0, 1) ? from_to(1, 12) : 0;
        struct pick_piece pieces[PIECES];
        struct guarded src[PIECES], dst;
        int64_t count = 0;
        for (int i = 0; i < n; i++) {
            const int64_t k = even ? even : from_to(1, 20), step = k * ssize + gap();
            pieces[i] =
                (struct pick_piece){guarded_make(&src[i], (turns - 1) * step + k * ssize, &seed), step, k * ssize};
            count += k;
        }
        const int64_t dstep = count * dsize + gap();
        unsigned char *d = guarded_make(&dst, (turns - 1) * dstep + count * dsize, &seed);
        struct expected e = expect(d, dstep, to, from, count, turns);
        unsigned char *at = e.dense;
        for (int64_t t = 0; t < turns; t++)
            for (int i = 0; i < n; at += pieces[i++].bytes)
                memcpy(at, pieces[i].src + t * pieces[i].step, (size_t)pieces[i].bytes);
        settle(&e, dstep, to, from, count, turns);
        cast_rows_pieces(d, dstep, to, pieces, n, from, turns);
        compare(&e, d, round, "turns of pieces", to, from);
        for (int i = 0; i < n; i++)
            guarded_free(&src[i]);
        guarded_free(&dst);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_match_a_cast_of_all_elements),
        cmocka_unit_test(pieces_match_a_cast_of_all_elements),
    };
    return SUITE_MAIN(argc, argv, SUITE_AT(&memory_levels, tests));
}
