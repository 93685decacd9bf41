#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

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
