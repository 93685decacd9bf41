/* Writing JSON to a stream, with commas and indentation. Values nest at most JSON_DEPTH deep. Bytes of a text that are
 * not UTF-8 are replaced by U+FFFD. */
#ifndef WEFT_TOOL_JSON_WRITE_H
#define WEFT_TOOL_JSON_WRITE_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define JSON_DEPTH 16

struct json {
    FILE *to;
    int depth;
    bool some[JSON_DEPTH];    /* has the value at this depth members already? */
    bool inline_[JSON_DEPTH]; /* on one line */
};

/* key is NULL inside an array and at the top. `flat` keeps a value on one line. */
void json_write_open(struct json *j, const char *key, char bracket, bool flat);
void json_write_close(struct json *j, char bracket);
void json_write_text(struct json *j, const char *key, const char *value); /* NULL: null */
void json_write_int(struct json *j, const char *key, int64_t value);
void json_write_real(struct json *j, const char *key, double value); /* null if it is not finite */
void json_write_bool(struct json *j, const char *key, bool value);
void json_write_raw(struct json *j, const char *key, const char *value); /* JSON already */
#endif
