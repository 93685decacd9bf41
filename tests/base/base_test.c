/* The small things everything stands on: arena, growing array, hash, integer arithmetic, error text. */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/math.h"
#include "base/vec.h"
#include "support/suite.h"

/* A small generator, so that sizes are mixed and the same each time. */
static uint64_t next(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    return hash_mix(*state);
}

struct piece {
    unsigned char *p;
    size_t n;
    unsigned char fill;
};

/* Pieces are aligned, do not overlap (each keeps its filling) and are counted. */
static void arena_gives_separate_pieces(void **state)
{
    (void)state;
    enum { PIECES = 2000 };
    static struct piece pieces[PIECES];
    struct arena a = {0};
    uint64_t rng = 1;
    size_t sum = 0;
    for (size_t i = 0; i < PIECES; i++) {
        size_t n = next(&rng) % 10 ? next(&rng) % 200 : next(&rng) % 40000;
        pieces[i] = (struct piece){arena_alloc(&a, n), n, (unsigned char)i};
        assert_non_null(pieces[i].p);
        assert_int_equal((uintptr_t)pieces[i].p % _Alignof(max_align_t), 0);
        memset(pieces[i].p, pieces[i].fill, n);
        sum += n;
    }
    for (size_t i = 0; i < PIECES; i++) {
        size_t same = 0;
        while (same < pieces[i].n && pieces[i].p[same] == pieces[i].fill)
            same++;
        assert_int_equal(same, pieces[i].n);
    }
    assert_true(a.total >= sum);
    arena_free(&a);
    assert_null(a.head);
    assert_int_equal(a.total, 0);
}

/* After a reset the kept block serves again without new memory. */
static void arena_reset_keeps_a_block(void **state)
{
    (void)state;
    struct arena a = {0};
    arena_reset(&a);
    assert_null(a.head);
    for (int i = 0; i < 1000; i++)
        assert_non_null(arena_alloc(&a, 1000));
    size_t before = a.total;
    arena_reset(&a);
    size_t kept = a.total;
    assert_true(kept > 0 && kept < before);
    for (size_t used = 0; used + 16 <= kept; used += 16)
        memset(arena_alloc(&a, 16), 7, 16);
    assert_int_equal(a.total, kept);
    assert_non_null(arena_alloc(&a, 16));
    assert_true(a.total > kept);
    arena_free(&a);
}

/* Sizes that no memory can have are refused, and the arena works on. */
static void arena_refuses_impossible_sizes(void **state)
{
    (void)state;
    struct arena a = {0};
    void *small = arena_alloc(&a, 10);
    assert_non_null(small);
    for (size_t d = 0; d < 64; d++)
        assert_null(arena_alloc(&a, SIZE_MAX - d));
    assert_null(arena_alloc(&a, SIZE_MAX / 2));
    assert_non_null(arena_alloc(&a, 10));
    arena_free(&a);
}

static void vec_keeps_what_was_pushed(void **state)
{
    (void)state;
    VEC(uint64_t) a = {0};
    uint64_t rng = 2;
    for (size_t i = 0; i < 10000; i++) {
        uint64_t *slot = vec_push(&a);
        assert_non_null(slot);
        *slot = next(&rng);
        assert_int_equal(a.n, i + 1);
        assert_true(a.n <= a.cap);
    }
    rng = 2;
    for (size_t i = 0; i < a.n; i++)
        assert_true(a.v[i] == next(&rng));
    free(a.v);
}

static void vec_room_is_used_without_moving(void **state)
{
    (void)state;
    VEC(int) a = {0};
    assert_true(vec_room(&a, 0));
    assert_null(a.v);
    assert_true(vec_room(&a, 1000));
    assert_int_equal(a.n, 0);
    int *v = a.v;
    for (int i = 0; i < 1000; i++)
        *vec_push(&a) = i;
    assert_ptr_equal(a.v, v);
    free(a.v);
}

static void vec_refuses_impossible_sizes(void **state)
{
    (void)state;
    VEC(uint64_t) a = {0};
    *vec_push(&a) = 42;
    size_t cap = a.cap;
    assert_false(vec_room(&a, SIZE_MAX / 8));
    assert_false(vec_room(&a, SIZE_MAX - 1));
    assert_int_equal(a.n, 1);
    assert_int_equal(a.cap, cap);
    assert_true(a.v[0] == 42);
    free(a.v);
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Every single-bit change and every length of zeros gives a hash of its own. */
static void hash_tells_inputs_apart(void **state)
{
    (void)state;
    enum { BYTES = 40, COUNT = BYTES * 8 + 2 * BYTES };
    uint64_t seen[COUNT];
    size_t n = 0;
    unsigned char data[BYTES] = {0};
    for (size_t bit = 0; bit < BYTES * 8; bit++) {
        data[bit / 8] ^= (unsigned char)(1u << bit % 8);
        seen[n++] = hash_bytes(0, data, BYTES);
        data[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    for (size_t len = 0; len < BYTES; len++) {
        seen[n++] = hash_bytes(0, data, len);
        seen[n++] = hash_bytes(1, data, len);
    }
    assert_int_equal(n, COUNT);
    qsort(seen, n, sizeof *seen, compare);
    for (size_t i = 1; i < n; i++)
        assert_true(seen[i - 1] != seen[i]);
}

static void hash_ignores_alignment(void **state)
{
    (void)state;
    unsigned char data[64 + 8];
    for (size_t len = 0; len <= 64; len++) {
        for (size_t i = 0; i < len; i++)
            data[i] = (unsigned char)(i * 37 + len);
        uint64_t h = hash_bytes(5, data, len);
        for (size_t shift = 1; shift < 8; shift++) {
            memmove(data + shift, data + shift - 1, len);
            assert_true(hash_bytes(5, data + shift, len) == h);
        }
    }
}

/* Digests are compared between builds, so the values themselves are part of the contract. */
static void hash_is_stable(void **state)
{
    (void)state;
    assert_true(hash_mix(1) == UINT64_C(0x4179b061e0c0e0d0));
    assert_true(hash_u64(1, 2) == UINT64_C(0x5ee0d6f36d81f669));
    assert_true(hash_bytes(0, "", 0) == UINT64_C(0xa1f9d4017d939a21));
    assert_true(hash_bytes(7, "weft, warp", 10) == UINT64_C(0x0025e6449ceb5db1));
}

/* Quotients of numbers with any number of bits, on both sides of the limit of 64: q is the quotient of a and b if the
 * rest a - q b has the sign of a and is smaller than b. */
static void wide_div_is_the_quotient(void **state)
{
    (void)state;
    uint64_t seed = 5;
    for (int i = 0; i < 100000; i++) {
        wide a = (wide)(((wide_bits)next(&seed) << 64 | next(&seed)) >> (next(&seed) % 127 + 1));
        wide b = (wide)(((wide_bits)next(&seed) << 64 | next(&seed)) >> (next(&seed) % 127 + 1));
        b = b ? b : 1;
        a = next(&seed) % 2 ? a : -a;
        wide rest = a - wide_mul(wide_div(a, b), b);
        assert_true(a < 0 ? rest <= 0 && rest > -b : rest >= 0 && rest < b);
        int64_t x = (int64_t)(next(&seed) >> 1), y = (int64_t)(next(&seed) >> (next(&seed) % 63 + 1)), z = x | 1;
        wide left = (wide)x * y - (wide)mul_div(x, y, z) * z;
        assert_true(left >= 0 && left < z);
    }
}

static void error_returns_code_and_keeps_text(void **state)
{
    (void)state;
    assert_int_equal(error_set(WEFT_EPEER, "rank %d of %s", 3, "job"), WEFT_EPEER);
    assert_string_equal(weft_errmsg(), "rank 3 of job");
    assert_int_equal(error_nomem(), WEFT_ENOMEM);
    assert_string_equal(weft_errmsg(), "out of memory");
}

static void error_text_is_cut_not_overrun(void **state)
{
    (void)state;
    char longer[4000];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    assert_int_equal(error_set(WEFT_EINVAL, "%s", longer), WEFT_EINVAL);
    size_t n = strlen(weft_errmsg());
    assert_true(n >= 500 && n < sizeof longer - 1);
    assert_int_equal(strspn(weft_errmsg(), "x"), n);
}

static void *set_in_thread(void *arg)
{
    (void)arg;
    error_set(WEFT_EIO, "theirs");
    return NULL;
}

static void error_text_belongs_to_the_thread(void **state)
{
    (void)state;
    error_set(WEFT_EINVAL, "mine");
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, set_in_thread, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_string_equal(weft_errmsg(), "mine");
}

static void error_codes_have_words_of_their_own(void **state)
{
    (void)state;
    for (int i = 0; i >= WEFT_EIO; i--) {
        assert_true(strlen(weft_strerror(i)) > 0);
        for (int k = 1; k >= WEFT_EIO; k--)
            if (k != i)
                assert_string_not_equal(weft_strerror(i), weft_strerror(k));
    }
    static const int unknown[] = {1, WEFT_EIO - 1, 1000, -1000, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        assert_string_equal(weft_strerror(unknown[i]), "unknown error");
}

static void version_is_the_headers(void **state)
{
    (void)state;
    assert_int_equal(weft_version(), WEFT_VERSION);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arena_gives_separate_pieces),
        cmocka_unit_test(arena_reset_keeps_a_block),
        cmocka_unit_test(arena_refuses_impossible_sizes),
        cmocka_unit_test(vec_keeps_what_was_pushed),
        cmocka_unit_test(vec_room_is_used_without_moving),
        cmocka_unit_test(vec_refuses_impossible_sizes),
        cmocka_unit_test(hash_tells_inputs_apart),
        cmocka_unit_test(hash_ignores_alignment),
        cmocka_unit_test(hash_is_stable),
        cmocka_unit_test(wide_div_is_the_quotient),
        cmocka_unit_test(error_returns_code_and_keeps_text),
        cmocka_unit_test(error_text_is_cut_not_overrun),
        cmocka_unit_test(error_text_belongs_to_the_thread),
        cmocka_unit_test(error_codes_have_words_of_their_own),
        cmocka_unit_test(version_is_the_headers),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
