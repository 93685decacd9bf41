/* Is a text one JSON value (RFC 8259), UTF-8 included? A strict reader for tests; it keeps nothing. */
#ifndef WEFT_TESTS_JSON_SYNTAX_H
#define WEFT_TESTS_JSON_SYNTAX_H
#include <stdbool.h>

bool json_is_valid(const char *s);
#endif
