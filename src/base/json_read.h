/* Reading JSON (RFC 8259), strictly: one value in UTF-8 and nothing else, at most JSON_READ_DEPTH deep. Texts may hold
 * no zero. Numbers that are not whole or do not fit into 64 bits are JSON_REAL: of these only the letters are kept.
 *
 * Prefix of json_read.c: json_. */
#ifndef WEFT_BASE_JSON_READ_H
#define WEFT_BASE_JSON_READ_H
#include <stddef.h>
#include <stdint.h>

#define JSON_READ_DEPTH 16

enum json_kind { JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_INT, JSON_REAL, JSON_TEXT, JSON_ARRAY, JSON_OBJECT };

struct json_value {
    enum json_kind kind;
    const char *key;      /* of a member of an object; otherwise NULL */
    const char *text;     /* JSON_TEXT; JSON_REAL: where it begins, and it ends with the first letter of no number */
    int64_t number;       /* JSON_INT */
    uint32_t first, next; /* the first value inside, and the next one beside it; 0: none */
};

/* A document; values[1] is all of it, values[0] is none. */
struct json_doc {
    char *bytes; /* texts point in here */
    struct json_value *values;
    uint32_t n, cap;
};

/* Reads `len` bytes, which are malloc'd and followed by a zero; it takes them over, also on failure. Returns NULL, or a
 * text in the buffer of JSON_WRONG bytes that says what is wrong and where. The caller frees the document in both
 * cases. */
#define JSON_WRONG 160
const char *json_read(struct json_doc *doc, char *bytes, size_t len, char *wrong);
void json_free(struct json_doc *doc);
/* The first value inside v, or the one beside it; NULL: none. */
const struct json_value *json_first(const struct json_doc *doc, const struct json_value *v);
const struct json_value *json_next(const struct json_doc *doc, const struct json_value *v);
/* The member of an object; NULL if there is none, or if v is NULL or not an object. */
const struct json_value *json_member(const struct json_doc *doc, const struct json_value *v, const char *key);
#endif
