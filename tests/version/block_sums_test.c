/* Digests of blocks that are computed while tiles are copied: whatever the tile, the copy is that of memory_copy, and
 * each byte of the range, or each byte that is copied, is summed once. */
#include <stdlib.h>
#include <string.h>

#include "support/random.h"
#include "support/share.h"
#include "support/suite.h"
#include "version/block_sums.h"

#define ROOM (3 * SCHEMA_BLOCK)

/* A tile of up to three loops whose operand 0 is dense; the loops of operand 1 have gaps, or stand in another order. */
static struct memory_tile random_tile(struct random *r, int64_t in, int64_t out, int64_t *reach)
{
    struct memory_tile t = {.loops = (int)random_in(r, 0, 3)};
    int64_t dense = out, apart = in, gap = random_once_in(r, 2) ? 256 : in; /* whole blocks of sums, or anything */
    *reach = in;
    for (int i = t.loops - 1; i >= 0; i--) {
        int64_t most = ROOM / 2 / apart;
        t.n[i] = random_in(r, 1, most < 1 ? 1 : most > 300 ? 300 : most);
        if (gap > in && i == t.loops - 1 && most > 256)
            t.n[i] = random_in(r, 1, most / 256) % 4 * 256 + 256;
        t.stride[0][i] = dense;
        t.stride[1][i] = apart;
        dense *= t.n[i];
        *reach += (t.n[i] - 1) * apart;
        apart = t.n[i] * apart + (random_once_in(r, 2) ? gap * random_in(r, 1, gap > in ? 9 : 300) : 0);
    }
    if (t.loops > 1 && random_once_in(r, 3)) {
        int64_t n = t.n[0], d = t.stride[0][0], s = t.stride[1][0];
        t.n[0] = t.n[1];
        t.stride[0][0] = t.stride[0][1];
        t.stride[1][0] = t.stride[1][1];
        t.n[1] = n;
        t.stride[0][1] = d;
        t.stride[1][1] = s;
    }
    return t;
}

/* Sums the elements that a tile reads, one by one. */
static void add_elements(const unsigned char *array, const struct memory_tile *t, int loop, int64_t at, int64_t size,
                         uint64_t *sums)
{
    if (loop == t->loops)
        block_sums_add(array + at, at, size, sums);
    for (int64_t i = 0; loop < t->loops && i < t->n[loop]; i++)
        add_elements(array, t, loop + 1, at + i * t->stride[1][loop], size, sums);
}

static void tiles_are_copied_and_summed(void **state)
{
    (void)state;
    static const int dtypes[] = {WEFT_F32, WEFT_BF16, WEFT_I64, WEFT_U8, WEFT_F16, WEFT_BOOL};
    unsigned char *array = malloc(ROOM), *got = malloc(8 * ROOM), *want = malloc(8 * ROOM);
    assert_true(array && got && want);
    for (int64_t number = 0; number < test_share(200, 2000); number++) {
        struct random r = random_of(0xb10c, number);
        int from = dtypes[random_in(&r, 0, 5)], to = random_once_in(&r, 2) ? from : dtypes[random_in(&r, 0, 5)];
        uint64_t sums[ROOM / SCHEMA_BLOCK] = {0}, all[ROOM / SCHEMA_BLOCK] = {0};
        int64_t reach, in = (int64_t)weft_dtype_size(from), out = (int64_t)weft_dtype_size(to);
        struct memory_tile t = random_tile(&r, in, out, &reach);
        assert_true(reach <= ROOM);
        int64_t at = random_in(&r, 0, (ROOM - reach) / in) * in;
        at -= random_once_in(&r, 2) ? at % 256 : 0;
        int64_t first = random_in(&r, 0, at), end = random_in(&r, at + reach, ROOM);
        for (int64_t i = 0; i < ROOM; i += 8) {
            uint64_t x = random_next(&r) & (from == WEFT_BOOL ? UINT64_C(0x0101010101010101) : UINT64_MAX);
            memcpy(array + i, &x, 8);
        }
        struct block_sums_walk w = {array, first, end, random_once_in(&r, 8) ? NULL : sums, random_once_in(&r, 2)};
        memset(got, 1, (size_t)(memory_tile_count(&t) * out));
        memset(want, 2, (size_t)(memory_tile_count(&t) * out));
        block_sums_copy(&w, &t, got, to, at, from);
        block_sums_upto(&w, end);
        memory_copy(&t, want, to, array + at, from);
        assert_memory_equal(got, want, (size_t)(memory_tile_count(&t) * out));
        if (!w.sums)
            continue;
        if (w.copied)
            add_elements(array, &t, 0, at, in, all);
        else
            block_sums_add(array + first, first, end - first, all);
        assert_memory_equal(sums, all, sizeof all);
    }
    free(array);
    free(got);
    free(want);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tiles_are_copied_and_summed)};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
