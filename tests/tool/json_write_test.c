/* The writer of JSON: what it writes is JSON, however values nest and whatever stands in texts. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/json_syntax.h"
#include "support/suite.h"
#include "tool/json_write.h"

static void writer_writes_valid_json(void **state)
{
    (void)state;
    char *text = NULL;
    size_t n = 0;
    struct json j = {.to = open_memstream(&text, &n)};
    assert_non_null(j.to);
    json_write_open(&j, NULL, '{', false);
    json_write_open(&j, "none", '[', false);
    json_write_close(&j, ']');
    json_write_open(&j, "flat", '{', true);
    json_write_open(&j, "inner", '[', false);
    json_write_int(&j, NULL, INT64_MIN);
    json_write_text(&j, NULL, NULL);
    json_write_close(&j, ']');
    json_write_bool(&j, "no", false);
    json_write_real(&j, "none", 1 / 0.0);
    json_write_close(&j, '}');
    json_write_text(&j, "te\"xt", "a\\b\n\x7f\xc0\xaf\xf0\x9f\x98\x80\xf4\x90\x80\x80\xe2\x82");
    json_write_raw(&j, "raw", "{\"x\": 1}");
    json_write_close(&j, '}');
    fclose(j.to);
    assert_true(json_is_valid(text));
    assert_string_equal(text, "{\n"
                              "  \"none\": [],\n"
                              "  \"flat\": {\"inner\": [-9223372036854775808, null], \"no\": false, \"none\": null},\n"
                              "  \"te\\\"xt\": \"a\\\\b\\n\\u007f\\ufffd\\ufffd\xf0\x9f\x98\x80"
                              "\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd\",\n"
                              "  \"raw\": {\"x\": 1}\n"
                              "}\n");
    free(text);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(writer_writes_valid_json)};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
