/* Deltas: random arrays against brute force. A delta applied to its base gives the new array; each block has the
 * shortest form; bytes that are no delta are refused, and nothing is written then. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bus/delta.h"
#include "memory/sum.h"
#include "support/random.h"
#include "support/share.h"
#include "support/suite.h"

#define CAMPAIGN UINT64_C(0xde17a)
#define COUNT_MAX (3 * DELTA_BLOCK + 9)
#define BYTES_MAX (COUNT_MAX * 16)

static unsigned char base_memory[BYTES_MAX + 16], now_memory[BYTES_MAX + 16], applied[BYTES_MAX], before[BYTES_MAX];
static unsigned char *base, *now; /* may be unaligned */
static size_t count, size;

/* A count near the ends of groups, bytes and blocks, or any. */
static size_t random_count(struct random *r)
{
    static const size_t near[] = {1, 8, 64, 255, 512, DELTA_BLOCK, 2 * DELTA_BLOCK, 3 * DELTA_BLOCK};
    if (random_once_in(r, 3))
        return (size_t)random_in(r, 0, COUNT_MAX);
    size_t n = near[random_in(r, 0, 7)] + (size_t)random_in(r, 0, 4);
    return n < 2 ? n : n - 2;
}

static void change(struct random *r, size_t i)
{
    now[i * size + (size_t)random_in(r, 0, (int64_t)size - 1)] ^= (unsigned char)(1 << random_in(r, 0, 7));
}

static void make(struct random *r)
{
    static const int64_t per_million[] = {0, 100, 3000, 20000, 110000, 125000, 140000, 500000, 1000000};
    static const size_t sizes[] = {1, 2, 4, 8, 16};
    size = sizes[random_in(r, 0, 4)];
    count = random_count(r);
    base = base_memory + random_in(r, 0, 15);
    now = now_memory + random_in(r, 0, 15);
    for (size_t i = 0; i < count * size; i++)
        base[i] = (unsigned char)random_next(r);
    memcpy(now, base, count * size);
    int64_t part = per_million[random_in(r, 0, 8)];
    bool in_runs = random_once_in(r, 3);
    for (size_t i = 0; i < count; i++) {
        if (in_runs && random_once_in(r, 500)) /* each run of elements has a part of its own */
            part = per_million[random_in(r, 0, 8)];
        if (random_in(r, 0, 999999) < part)
            change(r, i);
    }
}

static bool is_changed(size_t i)
{
    return memcmp(now + i * size, base + i * size, size) != 0;
}

/* The length of the shortest form of a block, counted as delta.h describes the forms. */
static size_t shortest(size_t first, size_t n)
{
    size_t changed = 0, gaps = 0, gap = 0;
    for (size_t i = first; i < first + n; i++) {
        if (!is_changed(i)) {
            gap++;
            continue;
        }
        gaps += 1 + gap / 255;
        changed++;
        gap = 0;
    }
    if (!changed)
        return 1;
    size_t index = 5 + gaps + changed * size, bitmap = 1 + (n + 7) / 8 + changed * size, whole = 1 + n * size;
    size_t best = index < bitmap ? index : bitmap;
    return best < whole ? best : whole;
}

static void against_brute_force(void **state)
{
    (void)state;
    int64_t cases = test_share(600, 60000);
    for (int64_t k = 0; k < cases; k++) {
        struct random r = random_of(CAMPAIGN, k);
        make(&r);
        size_t most = delta_most(count, size), expected = 0, changed, all = 0;
        unsigned char *delta = malloc(most + 1); /* as long as it says, so that ASan sees more */
        assert_non_null(delta);
        size_t n = delta_find(now, base, count, size, delta);
        for (size_t i = 0; i < count; i += DELTA_BLOCK)
            expected += shortest(i, count - i < DELTA_BLOCK ? count - i : DELTA_BLOCK);
        assert_true(n <= most);
        assert_int_equal(n, expected);
        assert_true(delta_check(delta, n, count, size, &changed));
        for (size_t i = 0; i < count; i++)
            all += is_changed(i);
        assert_true(changed >= all && changed <= count);
        memcpy(applied, base, count * size);
        for (int twice = 0; twice < 2; twice++) {
            uint64_t added, sum = sum_bytes(0, applied, count * size);
            assert_true(delta_apply(applied, delta, n, count, size, &added));
            assert_memory_equal(applied, now, count * size);
            assert_int_equal(sum + added, sum_bytes(0, now, count * size));
        }
        unsigned char *other = malloc(most + 1);
        assert_non_null(other);
        if (count > DELTA_BLOCK) { /* in two parts */
            size_t first = delta_find(now, base, DELTA_BLOCK, size, other), skip = DELTA_BLOCK * size;
            first += delta_find(now + skip, base + skip, count - DELTA_BLOCK, size, other + first);
            assert_int_equal(first, n);
            assert_memory_equal(other, delta, n);
        }
        free(other);
        free(delta);
    }
}

/* The array as it is now is right if the bytes are a delta, and as it was if they are not. */
static bool try_apply(const unsigned char *bytes, size_t n)
{
    unsigned char *exact = malloc(n + !n); /* ASan sees a load behind it */
    assert_non_null(exact);
    memcpy(exact, bytes, n);
    memcpy(applied, before, count * size);
    size_t changed = 0, written = 0;
    uint64_t added;
    bool good = delta_check(exact, n, count, size, &changed);
    assert_int_equal(delta_apply(applied, exact, n, count, size, &added), good);
    assert_int_equal(sum_bytes(0, before, count * size) + added, sum_bytes(0, applied, count * size));
    for (size_t i = 0; i < count; i++)
        written += memcmp(applied + i * size, before + i * size, size) != 0;
    assert_true(written <= (good ? changed : 0));
    free(exact);
    return good;
}

static void hostile(void **state)
{
    (void)state;
    int64_t cases = test_share(40, 2000);
    for (int64_t k = 0; k < cases; k++) {
        struct random r = random_of(CAMPAIGN + 1, k);
        make(&r);
        if (!count)
            continue;
        memcpy(before, base, count * size);
        unsigned char *delta = malloc(delta_most(count, size) + 1);
        assert_non_null(delta);
        size_t n = delta_find(now, base, count, size, delta);
        assert_true(try_apply(delta, n));
        for (int i = 0; i < 20; i++) /* cut off, or with a byte too many */
            assert_false(try_apply(delta, (size_t)random_in(&r, 0, (int64_t)n - 1)));
        delta[n] = 0;
        assert_false(try_apply(delta, n + 1));
        for (int i = 0; i < 60; i++) {
            size_t at = (size_t)random_in(&r, 0, (int64_t)(random_once_in(&r, 2) ? n - 1 : (n < 8 ? n - 1 : 7)));
            unsigned char was = delta[at];
            delta[at] = (unsigned char)(random_once_in(&r, 2) ? random_next(&r) : was ^ (1u << random_in(&r, 0, 7)));
            (void)try_apply(delta, n);
            delta[at] = was;
        }
        free(delta);
    }
}

/* One array for each rule that a form has. */
static void forged(void **state)
{
    (void)state;
    count = 10;
    size = 2;
    memset(before, 7, count * size);
#define REFUSED(...)                                  \
    do {                                              \
        const unsigned char bytes[] = {__VA_ARGS__};  \
        assert_false(try_apply(bytes, sizeof bytes)); \
    } while (0)
    REFUSED(DELTA_WHOLE + 1);
    REFUSED(DELTA_SAME, DELTA_SAME);                 /* a block too many */
    REFUSED(DELTA_INDEX, 1, 0, 1, 0, 10, 1, 1);      /* beyond the end */
    REFUSED(DELTA_INDEX, 1, 0, 2, 0, 255, 0, 1, 1);  /* far beyond it */
    REFUSED(DELTA_INDEX, 2, 0, 1, 0, 1, 1, 1, 2, 2); /* fewer gaps than values */
    REFUSED(DELTA_INDEX, 1, 0, 2, 0, 1, 1, 1, 1);    /* more gaps than values */
    REFUSED(DELTA_INDEX, 0, 0, 0, 0);                /* none */
    REFUSED(DELTA_INDEX, 255, 255, 255, 255);        /* more than there are bytes */
    REFUSED(DELTA_INDEX, 1, 0);
    REFUSED(DELTA_BITMAP, 0, 4, 1, 1); /* the eleventh of ten elements */
    REFUSED(DELTA_BITMAP, 3, 0, 1, 1); /* two elements, one value */
    REFUSED(DELTA_BITMAP, 0);
    REFUSED(DELTA_WHOLE, 1, 2, 3);
    const unsigned char right[] = {DELTA_INDEX, 2, 0, 2, 0, 0, 8, 1, 2, 3, 4};
    assert_true(try_apply(right, sizeof right));
    assert_int_equal(applied[0], 1);
    assert_int_equal(applied[19], 4);
    for (size_t s = 0; s < 40; s++)
        assert_int_equal(delta_takes(s), s == 1 || s == 2 || s == 4 || s == 8 || s == 16);
    assert_true(delta_check(right, 0, 0, 2, NULL));
}

/* 2 % of bf16 elements: at least 8 times smaller, for which deltas are there. */
static void small(void **state)
{
    (void)state;
    struct random r = random_of(CAMPAIGN, 0);
    count = 3 * DELTA_BLOCK;
    size = 2;
    base = base_memory;
    now = now_memory;
    memset(base, 1, count * size);
    memcpy(now, base, count * size);
    for (size_t i = 0; i < count; i++)
        if (random_once_in(&r, 50))
            change(&r, i);
    unsigned char *delta = malloc(delta_most(count, size));
    assert_non_null(delta);
    size_t n = delta_find(now, base, count, size, delta);
    assert_true(n * 25 < count * size);
    free(delta);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(against_brute_force), cmocka_unit_test(hostile),
                                       cmocka_unit_test(forged), cmocka_unit_test(small)};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
