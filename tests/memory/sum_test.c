/* Sums of messages: against their definition, byte by byte; in pieces of any order; of elements that lie apart and are
 * cast; and what they must see. */
#include "memory/sum.h"

#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "memory_levels.h"
#include "memory_nests.h"
#include "support/suite.h"

/* The definition. */
static uint64_t defined(const unsigned char *message, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += ((uint64_t)message[i] << 8 * (i % 4)) * sum_keys[i / 4 % SUM_WORDS] * sum_factor(i / SUM_BLOCK);
    return sum;
}

static unsigned char *noise(size_t n)
{
    unsigned char *p = malloc(n + 1);
    assert_non_null(p);
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)nests_below(256);
    return p;
}

static void sums_are_as_defined(void **state)
{
    (void)state;
    for (int round = 0; round < 500; round++) {
        size_t n = (size_t)nests_below(round % 10 ? 700 : 9000), skip = (size_t)nests_below(9);
        unsigned char *p = noise(n + skip);
        assert_int_equal(sum_bytes(0, p + skip, n), defined(p + skip, n));
        free(p);
    }
}

/* The sums of disjoint pieces add up, whatever their order is. */
static void pieces_add_up(void **state)
{
    (void)state;
    for (int round = 0; round < 300; round++) {
        size_t n = (size_t)nests_below(5000), at[20], cuts = (size_t)nests_below(19), k = 0;
        unsigned char *p = noise(n);
        at[k++] = 0;
        while (k <= cuts)
            at[k++] = (size_t)nests_below((int64_t)n + 1);
        uint64_t sum = 0;
        for (size_t i = 0; i < k; i++) { /* each piece begins at its cut and ends at the next higher one */
            size_t end = n;
            bool same = false;
            for (size_t j = 0; j < k; j++) {
                end = at[j] > at[i] && at[j] < end ? at[j] : end;
                same |= j < i && at[j] == at[i];
            }
            sum += same ? 0 : sum_bytes(at[i], p + at[i], end - at[i]);
        }
        assert_int_equal(sum, defined(p, n));
        free(p);
    }
}

/* The dense message of a tile, element by element. */
static unsigned char *dense_of(const struct memory_tile *t, const struct operand *o, int from, int via, int to)
{
    size_t size = weft_dtype_size(to);
    int64_t n = memory_tile_count(t);
    unsigned char *out = calloc((size_t)n + 1, size), mid[DTYPE_MAX_SIZE];
    assert_non_null(out);
    for (int64_t i = 0; i < n; i++) {
        const unsigned char *at = o->data + o->first + nests_offset(t, o->stride, i);
        if (from == to && !via) {
            memcpy(out + (size_t)i * size, at, size);
            continue;
        }
        memory_cast_one(mid, via ? via : from, at, from);
        memory_cast_one(out + (size_t)i * size, to, mid, via ? via : from);
    }
    return out;
}

static void check_tile(struct memory_tile *t, int from, int via, int to)
{
    struct operand o;
    nests_operand(t, &o, (int64_t)weft_dtype_size(from), true);
    nests_values(t, &o, from);
    unsigned char *message = dense_of(t, &o, from, via, to);
    memcpy(t->stride[1], o.stride, sizeof o.stride);
    size_t bytes = (size_t)memory_tile_count(t) * weft_dtype_size(to);
    assert_int_equal(sum_tile(0, t, o.data + o.first, from, via, to), defined(message, bytes));
    if (t->loops && bytes) { /* two parts of the first loop */
        struct memory_tile low = *t, high = *t;
        low.n[0] = nests_below(t->n[0] + 1);
        high.n[0] -= low.n[0];
        uint64_t sum = sum_tile(0, &low, o.data + o.first, from, via, to);
        sum += sum_tile(bytes / (size_t)t->n[0] * (size_t)low.n[0], &high, o.data + o.first + low.n[0] * o.stride[0],
                        from, via, to);
        assert_int_equal(sum, defined(message, bytes));
    }
    free(message);
    free(o.data);
}

static void tiles_sum_as_their_messages(void **state)
{
    (void)state;
    for (int round = 0; round < 3000; round++) {
        struct memory_tile t;
        nests_loops(&t);
        int from = 1 + (int)nests_below(DTYPE_COUNT), to = nests_below(2) ? from : 1 + (int)nests_below(DTYPE_COUNT);
        int via = from == to || nests_below(2) ? 0 : 1 + (int)nests_below(DTYPE_COUNT);
        if (from == WEFT_BOOL || to == WEFT_BOOL || via == WEFT_BOOL) /* a cast of other bytes than 0 and 1 */
            from = to = WEFT_U8, via = 0;
        if (dtype_castable(from, via ? via : to) && dtype_castable(via ? via : from, to))
            check_tile(&t, from, via, to);
    }
}

/* Tiles that do not fit into the buffers: rows, columns, and elements that lie apart. */
static void large_tiles_sum_as_their_messages(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{3, 700, 90}, {200, 8, 33}, {1, 9000, 2}, {40, 40, 40}, {2, 3, 5000}};
    static const int dtypes[] = {WEFT_U8, WEFT_BF16, WEFT_F32, WEFT_F64, WEFT_C128};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t k = 0; k < sizeof dtypes / sizeof *dtypes; k++)
            for (int perm = 0; perm < 6; perm++) {
                int from = dtypes[k], a = perm % 3, b = (a + 1 + perm / 3) % 3, c = 3 - a - b;
                int64_t size = (int64_t)weft_dtype_size(from);
                struct memory_tile t = {.loops = 3, .n = {shapes[i][0], shapes[i][1], shapes[i][2]}};
                struct operand o = {.first = 0};
                o.stride[a] = size; /* loop a is contiguous, and one row of it ends in a gap */
                o.stride[b] = size * t.n[a] + (perm % 2 ? size : 0);
                o.stride[c] = o.stride[b] * t.n[b];
                o.bytes = o.stride[c] * t.n[c];
                o.data = noise((size_t)o.bytes);
                memcpy(t.stride[1], o.stride, sizeof o.stride);
                unsigned char *message = dense_of(&t, &o, from, 0, from);
                assert_int_equal(sum_tile(0, &t, o.data, from, 0, from),
                                 defined(message, (size_t)(memory_tile_count(&t) * size)));
                free(message);
                free(o.data);
            }
}

/* Rows that are copied and summed at once: the sums are those of their bytes, message by message; or, if what is made
 * is summed, of the bytes that are written. */
static void rows_are_copied_and_summed(void **state)
{
    (void)state;
    enum { SHIFT = 11, ARRAY = 64 * SUM_BLOCK };
    for (int round = 0; round < 300; round++) {
        unsigned char *from = noise(2 * ARRAY + 1), *to = aligned_alloc(64, 2 * ARRAY);
        uint64_t sums[(ARRAY >> SHIFT) + 1] = {0}, want[(ARRAY >> SHIFT) + 1] = {0};
        const bool casts = round % 3, made = round % 3 == 2;
        const int from_dtype = casts ? WEFT_F32 : WEFT_U8, to_dtype = casts ? WEFT_BF16 : WEFT_U8;
        int64_t unit = (1 + nests_below(4)) * SUM_BLOCK, sumstep = unit + nests_below(3) * SUM_BLOCK,
                first = nests_below(4) * SUM_BLOCK, most = (ARRAY - first - unit) / sumstep + 1,
                n = 1 + nests_below(most), in = made ? 2 * unit : unit, out = casts && !made ? unit / 2 : unit;
        int64_t sstep = made ? in + 2 * nests_below(3) : sumstep, dstep = made ? sumstep : out + 32 * nests_below(3);
        const unsigned char *src = from + (made ? nests_below(2) : first); /* any address, if it is not the array */
        unsigned char *dst = to + 2 * nests_below(2);                      /* of a line or not */
        assert_non_null(to);
        assert_true(
            sum_rows_copy(&(struct sum_rows){dst, src, dstep, sstep, n, (size_t)unit, (uint64_t)first, SHIFT, sums},
                          to_dtype, from_dtype, made));
        for (int64_t i = 0; i < n; i++) {
            unsigned char row[8 * SUM_BLOCK];
            memory_cast(row, to_dtype, src + i * sstep, from_dtype, (size_t)in / weft_dtype_size(from_dtype));
            assert_memory_equal(dst + i * dstep, row, (size_t)out);
            const unsigned char *summed = made ? row : src + i * sstep;
            for (int64_t k = 0; k < unit; k += SUM_BLOCK) {
                int64_t p = first + i * sumstep + k;
                want[p >> SHIFT] += sum_bytes((uint64_t)p % (1 << SHIFT), summed + k, SUM_BLOCK);
            }
        }
        assert_memory_equal(sums, want, sizeof want);
        free(from);
        free(to);
    }
}

/* ---- what sums must see ---- */

static void each_flipped_bit_is_seen(void **state)
{
    (void)state;
    enum { BYTES = 2000 };
    unsigned char *p = noise(BYTES);
    uint64_t sum = sum_bytes(0, p, BYTES);
    for (size_t i = 0; i < 8 * (size_t)BYTES; i++) {
        p[i / 8] ^= (unsigned char)(1u << i % 8);
        assert_int_not_equal(sum_bytes(0, p, BYTES), sum);
        p[i / 8] ^= (unsigned char)(1u << i % 8);
    }
    free(p);
}

/* Elements of any size that change places; in one pair of rounds only their sign bits differ. */
static void swapped_elements_are_seen(void **state)
{
    (void)state;
    static unsigned char p[4096], was[4096], mid[16];
    for (size_t size = 1; size <= 16; size *= 2)
        for (int round = 0; round < 4000; round++) {
            size_t n = sizeof p / size, a = (size_t)nests_below((int64_t)n), b = (size_t)nests_below((int64_t)n);
            for (size_t i = 0; i < sizeof p && round % 40 == 0; i++)
                p[i] = (unsigned char)nests_below(256);
            memcpy(was, p, sizeof p);
            if (round % 2) {
                memcpy(p + a * size, p + b * size, size);
                p[a * size + size - 1] ^= 0x80;
                memcpy(was, p, sizeof p);
            }
            memcpy(mid, p + a * size, size);
            memcpy(p + a * size, p + b * size, size);
            memcpy(p + b * size, mid, size);
            if (memcmp(p, was, sizeof p) != 0)
                assert_int_not_equal(sum_bytes(0, p, sizeof p), sum_bytes(0, was, sizeof was));
            memcpy(p, was, sizeof p);
        }
}

/* Rows that have the same values in another order, such as rows of a mask: all pairs of rows that change places. */
static void swapped_rows_of_masks_are_seen(void **state)
{
    (void)state;
    enum { ROWS = 24, ROW = SUM_BLOCK };
    static unsigned char mask[ROWS][ROW], other[ROWS][ROW];
    for (int r = 0; r < ROWS; r++)
        mask[r][7 * r] = 1;
    uint64_t sum = sum_bytes(0, mask, sizeof mask);
    for (int a = 0; a < ROWS; a++)
        for (int b = 0; b < a; b++) {
            memcpy(other, mask, sizeof mask);
            memcpy(other[a], mask[b], ROW);
            memcpy(other[b], mask[a], ROW);
            assert_int_not_equal(sum_bytes(0, other, sizeof other), sum);
        }
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* What sum.h says about the keys: odd, below 2^32, and all keys of a message differ in their low 33 bits. */
static void keys_are_different(void **state)
{
    (void)state;
    enum { WORDS = 1 << 20 };
    uint64_t *low = malloc(WORDS * sizeof *low);
    assert_non_null(low);
    for (uint64_t w = 0; w < WORDS; w++) { /* blocks from all over 16 GiB */
        uint64_t block = w / SUM_WORDS * 4096 + w / SUM_WORDS % 4096;
        assert_int_equal(sum_keys[w % SUM_WORDS] & sum_factor(block) & 1, 1);
        low[w] = sum_keys[w % SUM_WORDS] * sum_factor(block) & UINT64_C(0x1ffffffff);
    }
    qsort(low, WORDS, sizeof *low, compare);
    for (size_t w = 1; w < WORDS; w++)
        assert_int_not_equal(low[w - 1], low[w]);
    free(low);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_as_defined),         cmocka_unit_test(pieces_add_up),
        cmocka_unit_test(tiles_sum_as_their_messages), cmocka_unit_test(large_tiles_sum_as_their_messages),
        cmocka_unit_test(rows_are_copied_and_summed),  cmocka_unit_test(each_flipped_bit_is_seen),
        cmocka_unit_test(swapped_elements_are_seen),   cmocka_unit_test(swapped_rows_of_masks_are_seen),
        cmocka_unit_test(keys_are_different),
    };
    return SUITE_MAIN(argc, argv, SUITE_AT(&memory_levels, tests));
}
