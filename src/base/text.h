/* A text that is written piece by piece into a buffer of the caller, which may be too small. What fits is kept and ends
 * with a zero; the length counts all of it. This is the rule that weft.h states for functions that fill a text. */
#ifndef WEFT_BASE_TEXT_H
#define WEFT_BASE_TEXT_H
#include <stddef.h>

struct text {
    char *buf;  /* NULL when cap is 0 */
    size_t cap; /* bytes of buf, the closing zero included */
    size_t len; /* of the whole text, without the closing zero */
};

struct text text_start(char *buf, size_t cap); /* an empty text */
void text_bytes(struct text *t, const char *s, size_t n);
void text_put(struct text *t, const char *s);
void text_int(struct text *t, long long value);
void text_printf(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Adds spaces until the text has len characters; one space if it has that many already. */
void text_pad(struct text *t, size_t len);

/* Appends s. Bytes that would break a line or a quote become \n, \t, \", \\ or \xNN. */
void text_escaped(struct text *t, const char *s);
/* Appends s as a JSON string with its quotes. Bytes of s that are not UTF-8 become U+FFFD, so that the result is always
 * UTF-8. */
void text_json(struct text *t, const char *s);
#endif
