#define _GNU_SOURCE
#include "json_syntax.h"

#include <string.h>

static const char *json_value(const char *s);

static const char *json_space(const char *s)
{
    return s ? s + strspn(s, " \t\r\n") : NULL;
}

static const char *json_char(const char *s, char c)
{
    s = json_space(s);
    return s && *s == c ? s + 1 : NULL;
}

static const char *json_utf8(const char *s)
{
    unsigned char c = (unsigned char)*s;
    int more = c < 0x80 ? 0 : c >= 0xc2 && c < 0xe0 ? 1 : c >= 0xe0 && c < 0xf0 ? 2 : c >= 0xf0 && c < 0xf5 ? 3 : -1;
    for (s++; more > 0; more--, s++)
        if (((unsigned char)*s & 0xc0) != 0x80)
            return NULL;
    return more < 0 ? NULL : s;
}

static const char *json_string(const char *s)
{
    s = json_char(s, '"');
    while (s && *s != '"') {
        if ((unsigned char)*s < 0x20)
            return NULL; /* the end of the text is one of these */
        if (*s != '\\')
            s = json_utf8(s);
        else if (s[1] == 'u')
            s = strspn(s + 2, "0123456789abcdefABCDEF") >= 4 ? s + 6 : NULL;
        else
            s = s[1] && strchr("\"\\/bfnrt", s[1]) ? s + 2 : NULL;
    }
    return s ? s + 1 : NULL;
}

static const char *json_number(const char *s)
{
    s += *s == '-';
    size_t n = strspn(s, "0123456789");
    return n == 0 || (n > 1 && *s == '0') ? NULL : s + n; /* integers alone: there is nothing else in weft's output */
}

static const char *json_list(const char *s, char end, bool keys)
{
    s = json_space(s + 1);
    if (*s == end)
        return s + 1;
    for (;;) {
        if (keys)
            s = json_char(json_string(s), ':');
        s = json_space(s ? json_value(s) : NULL);
        if (!s || *s == end)
            return s ? s + 1 : NULL;
        s = json_char(s, ',');
        if (!s)
            return NULL;
    }
}

static const char *json_value(const char *s)
{
    s = json_space(s);
    static const char *const words[] = {"null", "true", "false"};
    for (int i = 0; i < 3; i++)
        if (!strncmp(s, words[i], strlen(words[i])))
            return s + strlen(words[i]);
    return *s == '{'   ? json_list(s, '}', true)
           : *s == '[' ? json_list(s, ']', false)
           : *s == '"' ? json_string(s)
                       : json_number(s);
}

bool json_is_valid(const char *s)
{
    s = json_space(json_value(s));
    return s && *s == 0;
}
