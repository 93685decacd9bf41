#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct text text_start(char *buf, size_t cap)
{
    if (cap)
        buf[0] = 0;
    return (struct text){.buf = buf, .cap = cap};
}

void text_bytes(struct text *t, const char *s, size_t n)
{
    if (t->len < t->cap) {
        size_t room = t->cap - t->len - 1, k = n < room ? n : room;
        memcpy(t->buf + t->len, s, k);
        t->buf[t->len + k] = 0;
    }
    t->len += n;
}

void text_put(struct text *t, const char *s)
{
    text_bytes(t, s, strlen(s));
}

void text_int(struct text *t, long long value)
{
    char digits[24], *p = digits + sizeof digits;
    unsigned long long v = value < 0 ? 0 - (unsigned long long)value : (unsigned long long)value;
    do
        *--p = (char)('0' + v % 10);
    while (v /= 10);
    if (value < 0)
        *--p = '-';
    text_bytes(t, p, (size_t)(digits + sizeof digits - p));
}

void text_printf(struct text *t, const char *fmt, ...)
{
    size_t room = t->len < t->cap ? t->cap - t->len : 0;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(room ? t->buf + t->len : NULL, room, fmt, ap);
    va_end(ap);
    if (n > 0)
        t->len += (size_t)n;
}

void text_pad(struct text *t, size_t len)
{
    do
        text_bytes(t, " ", 1);
    while (t->len < len);
}

void text_escaped(struct text *t, const char *s)
{
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '\n')
            text_put(t, "\\n");
        else if (c == '\t')
            text_put(t, "\\t");
        else if (c == '"' || c == '\\')
            text_bytes(t, (const char[]){'\\', *s}, 2);
        else if (c < 0x20 || c == 0x7f)
            text_printf(t, "\\x%02x", c);
        else
            text_bytes(t, s, 1);
    }
}

/* Bytes of the UTF-8 character at s, or 0 where there is none: overlong forms, surrogates and
 * numbers beyond U+10FFFF are none (RFC 3629, section 4). */
static size_t utf8_length(const unsigned char *s)
{
    unsigned lo = 0x80, hi = 0xbf;
    size_t n;
    if (s[0] < 0x80)
        return 1;
    if (s[0] >= 0xc2 && s[0] <= 0xdf) {
        n = 2;
    } else if (s[0] >= 0xe0 && s[0] <= 0xef) {
        n = 3;
        lo = s[0] == 0xe0 ? 0xa0 : lo;
        hi = s[0] == 0xed ? 0x9f : hi;
    } else if (s[0] >= 0xf0 && s[0] <= 0xf4) {
        n = 4;
        lo = s[0] == 0xf0 ? 0x90 : lo;
        hi = s[0] == 0xf4 ? 0x8f : hi;
    } else {
        return 0;
    }
    if (s[1] < lo || s[1] > hi)
        return 0;
    for (size_t i = 2; i < n; i++)
        if (s[i] < 0x80 || s[i] > 0xbf)
            return 0;
    return n;
}

void text_json(struct text *t, const char *s)
{
    text_bytes(t, "\"", 1);
    while (*s) {
        unsigned char c = (unsigned char)*s;
        size_t n = utf8_length((const unsigned char *)s);
        if (n == 0)
            text_put(t, "\\ufffd");
        else if (c == '"' || c == '\\')
            text_bytes(t, (const char[]){'\\', *s}, 2);
        else if (c < 0x20 || c == 0x7f)
            text_printf(t, "\\u%04x", c);
        else
            text_bytes(t, s, n);
        s += n ? n : 1;
    }
    text_bytes(t, "\"", 1);
}
