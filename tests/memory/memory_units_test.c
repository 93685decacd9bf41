/* Copies of units in one loop, in three ways, of two such at once, and copies past the caches, against memcpy of each:
 * as on processors that write several rows past the caches at once, and as on others. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory/line.h"
#include "memory/memory.h"
#include "memory/past.h"
#include "memory_ref.h"
#include "support/suite.h"

static uint64_t seed = 35;

static int64_t upto(int64_t n) /* 0 .. n - 1 */
{
    return (int64_t)(ref_random(&seed) % (uint64_t)n);
}

/* Units in one loop, up or down on either side, dense or not. */
static void copied_units_match_memcpy(void **state)
{
    (void)state;
    static const int64_t units[] = {1, 2, 4, 8, 16, 24, 32, 100, 128, 129, 200, 255, 256, 300, 400};
    enum { ROOM = 40 * 420 };
    static unsigned char src[ROOM], dst[ROOM], want[ROOM];
    for (int round = 0; round < 2000; round++) {
        past_assume(round / 3 % 2);
        int64_t unit = upto(2) ? 1 + upto(70) : units[upto(sizeof units / sizeof *units)], n = upto(40), step[2];
        unsigned char *to[2] = {dst, want};
        for (int k = 0; k < 2; k++)
            step[k] = upto(2) ? unit : unit + upto(421 - unit);
        bool down[2] = {upto(2), upto(2)};
        for (int i = 0; i < ROOM; i++) {
            src[i] = (unsigned char)ref_random(&seed);
            dst[i] = want[i] = 0;
        }
        const unsigned char *from = down[1] && n ? src + (n - 1) * step[1] : src;
        for (int k = 0; k < 2; k++)
            to[k] += down[0] && n ? (n - 1) * step[0] : 0;
        for (int k = 0; k < 2; k++)
            step[k] = down[k] ? -step[k] : step[k];
        const int way = round % 3;
        if (way)
            memory_copy_out(to[0], step[0], from, step[1], n, (size_t)unit, way == 1);
        else
            memory_copy_units(to[0], step[0], from, step[1], n, (size_t)unit);
        for (int64_t i = 0; i < n; i++)
            memcpy(to[1] + i * step[0], from + i * step[1], (size_t)unit);
        assert_memory_equal(dst, want, ROOM);
    }
}

/* Units with gaps in src, up or down, in two rows. In dst they are dense or have gaps. There are more of them than the
 * caches keep, or fewer. */
static void units_with_gaps_match_memcpy(void **state)
{
    (void)state;
    static const int64_t units[] = {17, 63, 100, 128, 255, 257, 320, 700, 2047, 2048, 2049, 5000, 32767};
    for (size_t i = 0; i < 8 * (sizeof units / sizeof *units); i++) {
        const bool down = i % 2, gaps = i / 2 % 2, few = i / 4 % 2;
        const int64_t unit = units[i / 8], step = unit + upto(700), to = unit + (gaps ? 1 + upto(300) : 0);
        const int64_t n = (few ? 1 << 15 : 1 << 20) / unit + 1, row[2] = {n * to + upto(70), n * step};
        struct memory_tile t = {3, {2, n, unit}, {{row[0], to, 1}, {row[1], down ? -step : step, 1}}};
        const size_t bytes = (size_t)(row[0] + n * to);
        unsigned char *src = malloc((size_t)(2 * row[1])), *dst = malloc(bytes), *want = malloc(bytes);
        assert_true(src && dst && want);
        for (int64_t k = 0; k < 2 * row[1]; k++)
            src[k] = (unsigned char)(k ^ k >> 8 ^ k >> 16);
        memset(dst, 0x5a, bytes);
        memset(want, 0x5a, bytes);
        const unsigned char *from = down ? src + (n - 1) * step : src;
        for (int64_t k = 0; k < 2 * n; k++)
            memcpy(want + k / n * row[0] + k % n * to, from + k / n * row[1] + k % n * t.stride[1][1], (size_t)unit);
        memory_copy(&t, dst, WEFT_U8, from, WEFT_U8);
        if (memcmp(dst, want, bytes) != 0)
            fail_msg("units of %d bytes, %d apart", (int)unit, (int)t.stride[1][1]);
        free(src);
        free(dst);
        free(want);
    }
}

/* Moves and casts of tiles whose rows begin anywhere, are whole lines or not, and lie apart on either side, in one or
 * two loops. What memory_past_tile leaves out is not written. Each kind of row that it does not leave out occurs. */
static void tiles_past_the_caches_match_copies(void **state)
{
    (void)state;
    enum { ROOM = 200 << 10 };
    static unsigned char src[ROOM], dst[ROOM], want[ROOM];
    static const int dtypes[] = {WEFT_U8, WEFT_BF16, WEFT_F32, WEFT_F64, WEFT_I64, WEFT_C128};
    int whole = 0, ends = 0, casts = 0;
    for (int i = 0; i < ROOM; i++)
        src[i] = (unsigned char)(ref_random(&seed) % 60);
    for (int round = 0; round < 3000; round++) {
        past_assume(round % 16 != 0);
        const int from = dtypes[upto(6)], to = upto(3) ? from : dtypes[upto(6)];
        if (from == WEFT_C128 && to != from)
            continue;
        const int64_t size[2] = {(int64_t)weft_dtype_size(to), (int64_t)weft_dtype_size(from)};
        const int64_t n = upto(2) ? 1 + upto(9000 / (size[0] + size[1])) : 64 * (1 + upto(8));
        struct memory_tile t = {3, {1 + upto(2), 1 + upto(upto(3) ? 3 : 18), n}, {{0}}};
        int64_t end[2], first[2];
        for (int k = 0; k < 2; k++) {
            int64_t room = upto(2) ? 64 * upto(5) : upto(40) * size[k], row = n * size[k];
            room = upto(3) ? room : (row + 63) / 64 * 64 - row;
            t.stride[k][2] = size[k];
            t.stride[k][1] = row + room;
            t.stride[k][0] = t.n[1] * t.stride[k][1] + (upto(2) ? 0 : 64 * upto(3));
            first[k] = upto(2) ? 0 : upto(2) ? size[k] * upto(64) : upto(130);
            end[k] = first[k] + t.n[0] * t.stride[k][0];
        }
        if (end[0] > ROOM || end[1] > ROOM || (to != from && (first[0] % size[0] || first[1] % size[1])))
            continue;
        memset(dst, 0x5a, ROOM);
        memset(want, 0x5a, ROOM);
        const bool done = memory_past_tile(&t, dst + first[0], to, src + first[1], from);
        assert_true(past_many() || !done);
        if (done) {
            memory_copy(&t, want + first[0], to, src + first[1], from);
            const bool lines = (first[0] | t.stride[0][1] | t.stride[0][0] | n * size[0]) % 64 == 0;
            *(to != from ? &casts : lines ? &whole : &ends) += 1;
        }
        assert_memory_equal(dst, want, ROOM);
    }
    past_assume(-1);
    if (MEMORY_STREAMS)
        assert_true(whole > 20 && ends > 20 && casts > 20);
    else
        assert_int_equal(whole + ends + casts, 0);
}

/* Any begins and lengths, of some pages, too; nothing beside them is written. */
static void nontemporal_copies_match_memcpy(void **state)
{
    (void)state;
    enum { ROOM = 20000 };
    static unsigned char src[ROOM], dst[ROOM], want[ROOM];
    for (int round = 0; round < 3000; round++) {
        past_assume(round / 8 % 2);
        int64_t to = upto(130), from = upto(130), n = upto(round % 4 ? 200 : round % 8 ? 1001 : ROOM - 130);
        for (int i = 0; i < ROOM; i++) {
            src[i] = (unsigned char)ref_random(&seed);
            dst[i] = want[i] = (unsigned char)i;
        }
        memory_past_copy(dst + to, src + from, (size_t)n);
        memcpy(want + to, src + from, (size_t)n);
        assert_memory_equal(dst, want, ROOM);
    }
}

/* Lines of one run and of many, upwards and downwards, with addresses behind a base and without one. */
static void copied_lines_match_memcpy(void **state)
{
    (void)state;
    enum { ROOM = 40 * 300 + 400 };
    static unsigned char src[ROOM], dst[ROOM], want[ROOM];
    static const uint32_t runs[] = {1, 2, 4, 8, 12, 16, 24, 32, 64, 100, 128};
    for (int round = 0; round < 1000; round++) {
        uint32_t bytes = runs[upto(sizeof runs / sizeof *runs)], n = (uint32_t)upto(40);
        int64_t step[2] = {bytes + upto(301 - bytes), upto(301)};
        bool down[2] = {upto(2), upto(2)};
        for (int i = 0; i < ROOM; i++) {
            src[i] = (unsigned char)ref_random(&seed);
            dst[i] = want[i] = 0;
        }
        int64_t to = down[0] && n ? (n - 1) * step[0] : 0, from = down[1] && n ? (n - 1) * step[1] : 0;
        for (int k = 0; k < 2; k++)
            step[k] = down[k] ? -step[k] : step[k];
        uintptr_t base = upto(2) ? (uintptr_t)dst : 0;
        struct memory_line line = {
            (uintptr_t)(dst + to) - base, (uintptr_t)(src + from) - base, step[0], step[1], n, bytes};
        memory_copy_line(base, &line);
        for (int64_t i = 0; i < n; i++)
            memcpy(want + to + i * step[0], src + from + i * step[1], bytes);
        assert_memory_equal(dst, want, ROOM);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copied_units_match_memcpy),          cmocka_unit_test(units_with_gaps_match_memcpy),
        cmocka_unit_test(tiles_past_the_caches_match_copies), cmocka_unit_test(nontemporal_copies_match_memcpy),
        cmocka_unit_test(copied_lines_match_memcpy),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
