/* BLAKE2s: the example of RFC 7693 (the second row), and results of another implementation (Python's hashlib). */
#include "base/blake2s.h"

#include <stdio.h>
#include <string.h>

#include "support/suite.h"

static void hashes_are_those_of_the_standard(void **state)
{
    (void)state;
    static const struct {
        size_t n, keylen, length;
        const char *hex;
    } rows[] = {
        {0, 0, 32, "69217a3079908094e11121d042354a7c1f55b6482ca1a51e1b250dfd1ed0eef9"},
        {3, 0, 32, "508c5e8c327c14e2e1a72ba34eeb452f37458b209ed63a294d999b4c86675982"},
        {1, 0, 16, "c8814ea06a53a108a02015477d9ea347"},
        {63, 0, 32, "1eb51f779a72302e5fefda03270fda3d9bf02cfdcd0a50d10e52c6e6fafbd4ea"},
        {64, 0, 32, "1aa2abc48784c4b7b509e56540ccde672903c613c7aa32c1396e10d716351dfe"},
        {65, 0, 32, "6abfa13e2982b1bbba3b960049261555c146e4aa817ef504bac543407bdec579"},
        {128, 0, 32, "967fcb84c270978f862307b30b51e082f41ee21bff4088f1b3c399a1da06d61a"},
        {1000, 0, 32, "62b0885ea8f00f68fde2392ba5b0efdbcd38a523b3b23136232b995e0d1c46c3"},
        {0, 32, 32, "dd56ad29f0624bf76ce0bd024487b2606d90060d3e09b4026459fdb6245ba785"},
        {1, 32, 16, "876dbf3572f3089310377597d422b14f"},
        {64, 32, 32, "0bee5c09c81b2fb26f1fb2db6444cc4e2360112bb83f49518d8ca0df695eaee4"},
        {65, 16, 16, "74c1d7a58c06423576c6c55acb859902"},
        {300, 32, 8, "8e54238228b82a6f"},
        {4096, 7, 32, "66139a1bc0f7b6722d4cf5e69bc29e8e915bd39daa02be12171b06177917d189"},
    };
    static const size_t pieces[] = {1, 7, 64, 5000};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
            unsigned char bytes[4096], key[32], out[32];
            char hex[65] = "";
            for (size_t i = 0; i < sizeof bytes; i++)
                bytes[i] = rows[r].n == 3 ? (unsigned char)('a' + i) : (unsigned char)(i * 7 + 1);
            for (size_t i = 0; i < sizeof key; i++)
                key[i] = (unsigned char)(i * 3 + 5);
            struct blake2s b;
            blake2s_begin(&b, rows[r].length, key, rows[r].keylen);
            for (size_t at = 0; at < rows[r].n; at += pieces[p])
                blake2s_add(&b, bytes + at, rows[r].n - at < pieces[p] ? rows[r].n - at : pieces[p]);
            blake2s_end(&b, out);
            for (size_t i = 0; i < rows[r].length; i++)
                snprintf(hex + 2 * i, 3, "%02x", out[i]);
            assert_string_equal(hex, rows[r].hex);
        }
}

static void equal_bytes_are_the_same(void **state)
{
    (void)state;
    unsigned char a[16] = {1, 2, 3}, b[16] = {1, 2, 3};
    assert_true(blake2s_same(a, b, sizeof a));
    for (size_t i = 0; i < sizeof a; i++) {
        b[i] ^= 0x80;
        assert_false(blake2s_same(a, b, sizeof a));
        b[i] ^= 0x80;
    }
    blake2s_wipe(a, sizeof a);
    assert_int_equal(a[0] | a[1] | a[2], 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hashes_are_those_of_the_standard),
        cmocka_unit_test(equal_bytes_are_the_same),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
