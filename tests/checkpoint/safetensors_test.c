/* Headers of safetensors files: what is written reads back to the same; everything that lies is refused, with the
 * file's and the tensor's name. */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/safetensors.h"
#include "support/random.h"
#include "support/suite.h"

static int read_text(const char *header, int64_t data, struct arena *arena, struct safetensors_header *out)
{
    return safetensors_read("a.safetensors", strdup(header), strlen(header), data, arena, out);
}

#define T "{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}"

static void bad_headers_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        int64_t data;
        const char *says;
    } rows[] = {
        {"", 0, "not JSON"},
        {"[]", 0, "not an object"},
        {"{\"a\":" T, 8, "not JSON"},
        {"{\"a\":" T "} x", 8, "something follows"},
        {"{\"a\":" T ",\"a\":" T "}", 8, "'a': it is there twice"},
        {"{\"a\":[]}", 0, "'a': it is not an object"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "'a': it lacks"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
         "'a': one of its members"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"x\":1,\"data_offsets\":[0,8]}}", 8,
         "'a': it has members other than"},
        {"{\"a\":{\"dtype\":\"F31\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "'a': its dtype is 'F31'"},
        {"{\"a\":{\"dtype\":7,\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "'a': its dtype is not a string"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}", 8, "'a': its shape is not an array"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8,
         "'a': its shape has an element that is not an extent"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]}}", 8,
         "'a': its shape has an element that is not an extent"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,8]}}", 8, "not an extent"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,8]}}", 8,
         "'a': its shape has more"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4,0],\"data_offsets\":[0,0]}}", 0,
         "'a': its shape has more"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", 1,
         "'a': it has more than 8 dims"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,16]}}", 16, "'a': its data_offsets do not span"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8, "'a': its data_offsets run backwards"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}", 8, "'a': its data_offsets run backwards"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,8]}}", 8, "'a': its data_offsets are not two"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,9223372036854775808]}}", 8,
         "'a': its data_offsets are not two"},
        {"{\"a\":" T "}", 4, "'a': its data lies beyond the end of the file"},
        {"{\"a\":" T "}", 12, "its tensors have 8 bytes, but its data has 12"},
        {"{\"a\":" T ",\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}", 8, "'b': its data overlaps"},
        {"{\"a\":" T ",\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[9,10]}}", 10, "'b': there is a gap"},
        {"{\"__metadata__\":[]}", 0, "\"__metadata__\" is not an object"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "\"__metadata__\" has a value that is not a string"},
        {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, "\"__metadata__\" has a key twice"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "\"__metadata__\" is there twice"},
        {"{\"a\":[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]}", 0, "nested too deep"},
        {"{\"a\xff\":" T "}", 8, "not UTF-8"},
        {"{\"a\\u0000\":" T "}", 8, "a zero byte in a string"},
        {"{\"\\u001b[2J\\n\":[]}", 0,
         "'\\x1b[2J\\n"
         "': it is not an object"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct arena arena = {0};
        struct safetensors_header h;
        int rc = read_text(rows[i].header, rows[i].data, &arena, &h);
        if (!rc || !strstr(weft_errmsg(), rows[i].says) || strncmp(weft_errmsg(), "a.safetensors: ", 15))
            fail_msg("%s: %d, %s", rows[i].header, rc, rc ? weft_errmsg() : "taken");
        arena_free(&arena);
    }
}

static void bad_lengths_are_refused(void **state)
{
    (void)state;
    static const struct {
        uint64_t n;
        int64_t size;
        const char *says;
    } rows[] = {
        {2, 7, "too short"},
        {2, 9, "its header would have 2 bytes, and 1 follow"},
        {UINT64_MAX, 1000, "its header would have 18446744073709551615 bytes"},
        {(uint64_t)INT64_MAX, INT64_MAX, "its header would have"},
        {100000001, 200000000, "up to 100000000 are read"},
        {2, 10, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        unsigned char b[8];
        int64_t length = -1;
        for (int k = 0; k < 8; k++)
            b[k] = (unsigned char)(rows[i].n >> 8 * k);
        int rc = safetensors_length("b", b, rows[i].size, &length);
        assert_int_equal(rc == 0, rows[i].says == NULL);
        if (rc && !strstr(weft_errmsg(), rows[i].says))
            fail_msg("%s", weft_errmsg());
        assert_int_equal(length, rc ? -1 : (int64_t)rows[i].n);
    }
}

/* Any names, any shapes, any notes: written, read, equal. */
static void written_headers_read_back_equal(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "", "a.b\n\"\\\x01", "\xe2\x82\xac", "__metadata", "x/y/../z", " "};
    enum { NAMES = sizeof names / sizeof *names };
    struct random r = {5};
    for (int round = 0; round < 200; round++) {
        struct safetensors_tensor t[NAMES];
        struct safetensors_note notes[] = {{"a\"", "\t"}, {"b", ""}};
        struct safetensors_header h = {t, (size_t)random_in(&r, 0, NAMES), notes, (size_t)random_in(&r, 0, 2)}, back;
        int64_t at = 0;
        for (size_t i = 0; i < h.ntensors; i++) {
            t[i] = (struct safetensors_tensor){
                .name = names[i], .dtype = (int)random_in(&r, 1, 15), .ndim = (int)random_in(&r, 0, 8)};
            t[i].bytes = (int64_t)weft_dtype_size(t[i].dtype);
            for (int d = 0; d < t[i].ndim; d++)
                t[i].bytes *= t[i].shape[d] = random_in(&r, 0, 9);
            t[i].begin = at;
            at += t[i].bytes;
        }
        char *bytes;
        size_t len;
        struct arena arena = {0};
        int64_t length;
        assert_int_equal(safetensors_write(&h, &bytes, &len), 0);
        assert_int_equal(len % 8, 0);
        assert_int_equal(safetensors_length("c", (unsigned char *)bytes, (int64_t)len + at, &length), 0);
        assert_int_equal(length, len - 8);
        if (safetensors_read("c", strndup(bytes + 8, len - 8), len - 8, at, &arena, &back))
            fail_msg("%s", weft_errmsg());
        assert_int_equal(back.ntensors, h.ntensors);
        for (size_t i = 0; i < h.ntensors; i++) {
            size_t k = 0;
            while (k < back.ntensors && strcmp(back.tensors[k].name, t[i].name))
                k++;
            assert_true(k < back.ntensors);
            assert_int_equal(back.tensors[k].dtype, t[i].dtype);
            assert_int_equal(back.tensors[k].ndim, t[i].ndim);
            assert_memory_equal(back.tensors[k].shape, t[i].shape, (size_t)t[i].ndim * sizeof *t[i].shape);
            assert_int_equal(back.tensors[k].bytes, t[i].bytes);
            if (t[i].bytes)
                assert_int_equal(back.tensors[k].begin, t[i].begin);
        }
        for (size_t i = 0; i < h.nnotes; i++)
            assert_string_equal(safetensors_note(&back, notes[i].key), notes[i].value);
        assert_null(safetensors_note(&back, "c"));
        free(bytes);
        arena_free(&arena);
    }
}

/* \u of one to four bytes of UTF-8, and the short escapes. */
static void escapes_are_understood(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct safetensors_header h;
    const char *name = "\\u0041\\u00e9\\u20ac\\ud83d\\ude00\\n\\\"\\/";
    char *header;
    assert_true(asprintf(&header, "{\"%s\":" T "}", name) > 0);
    if (read_text(header, 8, &arena, &h))
        fail_msg("%s", weft_errmsg());
    assert_string_equal(h.tensors[0].name, "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\n\"/");
    free(header);
    arena_free(&arena);
}

static void long_names_are_cut(void **state)
{
    (void)state;
    char name[500], shown[SAFETENSORS_SHOWN];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    safetensors_show(name, shown);
    assert_int_equal(strlen(shown), SAFETENSORS_SHOWN - 1);
    assert_string_equal(shown + SAFETENSORS_SHOWN - 5, "...'");
    assert_string_equal(safetensors_show("a\n", shown), "'a\\n'");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bad_headers_are_refused),
                                       cmocka_unit_test(bad_lengths_are_refused),
                                       cmocka_unit_test(written_headers_read_back_equal),
                                       cmocka_unit_test(escapes_are_understood), cmocka_unit_test(long_names_are_cut)};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
