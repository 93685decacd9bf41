/* The text writer: whatever is written, every capacity keeps the same prefix and counts the same length. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "support/suite.h"

static void write_all(struct text *t)
{
    text_put(t, "ab");
    text_int(t, -42);
    text_printf(t, "%s=%d;", "key", 7);
    text_pad(t, 20);
    text_escaped(t, "q\"\\\n\t\x01\x7f");
    text_json(t, "q\"\\\n\x01\x7f\xc3\xa9\xff");
    text_bytes(t, "end!", 3);
}

static const char expected[] = "ab-42key=7;         q\\\"\\\\\\n\\t\\x01\\x7f"
                               "\"q\\\"\\\\\\u000a\\u0001\\u007f\xc3\xa9\\ufffd\"end";

static void every_capacity_keeps_the_same_prefix(void **state)
{
    (void)state;
    size_t len = strlen(expected);
    for (size_t cap = 0; cap <= len + 2; cap++) {
        char *buf = cap ? malloc(cap) : NULL; /* of the very size, so that a sanitizer sees one byte too many */
        struct text t = text_start(buf, cap);
        write_all(&t);
        assert_int_equal(t.len, len);
        if (cap) {
            size_t kept = cap - 1 < len ? cap - 1 : len;
            assert_int_equal(strlen(buf), kept);
            assert_memory_equal(buf, expected, kept);
        }
        free(buf);
    }
}

static void ints_are_written_like_printf(void **state)
{
    (void)state;
    static const long long values[] = {0, 1, -1, 9, 10, 1234567890123, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char got[32], want[32];
        struct text t = text_start(got, sizeof got);
        text_int(&t, values[i]);
        snprintf(want, sizeof want, "%lld", values[i]);
        assert_string_equal(got, want);
    }
}

static void pad_always_separates(void **state)
{
    (void)state;
    char buf[16];
    struct text t = text_start(buf, sizeof buf);
    text_put(&t, "long");
    text_pad(&t, 2);
    assert_string_equal(buf, "long ");
}

/* UTF-8 at its edges: what is right passes unchanged, each byte that is not becomes U+FFFD. */
static void json_is_always_utf8(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"", "\"\""},
        {"\xc2\x80", "\"\xc2\x80\""},
        {"\xc1\xbf", "\"\\ufffd\\ufffd\""},                       /* overlong */
        {"\xe0\xa0\x80", "\"\xe0\xa0\x80\""},                     /* first of three bytes */
        {"\xe0\x9f\xbf", "\"\\ufffd\\ufffd\\ufffd\""},            /* overlong */
        {"\xed\x9f\xbf", "\"\xed\x9f\xbf\""},                     /* last before the surrogates */
        {"\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\""},            /* surrogate */
        {"\xf0\x90\x80\x80", "\"\xf0\x90\x80\x80\""},             /* first of four bytes */
        {"\xf4\x8f\xbf\xbf", "\"\xf4\x8f\xbf\xbf\""},             /* the last character */
        {"\xf4\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\""}, /* beyond it */
        {"\xe2\x82", "\"\\ufffd\\ufffd\""},                       /* cut short */
        {"a\x80z", "\"a\\ufffdz\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char buf[64];
        struct text t = text_start(buf, sizeof buf);
        text_json(&t, cases[i].in);
        assert_string_equal(buf, cases[i].out);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_capacity_keeps_the_same_prefix),
        cmocka_unit_test(ints_are_written_like_printf),
        cmocka_unit_test(pad_always_separates),
        cmocka_unit_test(json_is_always_utf8),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
