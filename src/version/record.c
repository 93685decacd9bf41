#include "version/record.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

void record_version(const weft_epoch_step *v, char text[RECORD_VERSION])
{
    snprintf(text, RECORD_VERSION, "%010lld.%019lld", (long long)v->epoch, (long long)v->step);
}

bool record_version_take(const char *text, size_t len, weft_epoch_step *out)
{
    if (len != 30 || text[10] != '.')
        return false;
    int64_t number[2] = {0, 0};
    for (size_t i = 0; i < len; i++) {
        if (i == 10)
            continue;
        if (text[i] < '0' || text[i] > '9')
            return false;
        int64_t *n = &number[i > 10];
        if (__builtin_mul_overflow(*n, 10, n) || __builtin_add_overflow(*n, text[i] - '0', n))
            return false;
    }
    *out = (weft_epoch_step){number[0], number[1]};
    return true;
}

int record_version_compare(const weft_epoch_step *a, const weft_epoch_step *b)
{
    if (a->epoch != b->epoch)
        return a->epoch < b->epoch ? -1 : 1;
    return a->step < b->step ? -1 : a->step > b->step;
}

void record_hex(struct text *t, const char *name, const unsigned char *bytes, size_t n)
{
    text_put(t, name);
    text_put(t, " ");
    for (size_t i = 0; i < n; i++)
        text_printf(t, "%02x", bytes[i]);
    text_put(t, "\n");
}

bool record_find(const char *record, const char *name, const char **at, size_t *len)
{
    size_t n = strlen(name);
    for (const char *line = record; *line;) {
        const char *end = strchr(line, '\n');
        bool last = !strncmp(line, "meta ", 5);
        if (!end || last)
            end = line + strlen(line);
        if (!strncmp(line, name, n) && line[n] == ' ') {
            *at = line + n + 1;
            *len = (size_t)(end - *at);
            return true;
        }
        if (!*end)
            return false;
        line = end + 1;
    }
    return false;
}

bool record_text(const char *record, const char *name, char *out, size_t cap)
{
    const char *at;
    size_t len;
    if (!record_find(record, name, &at, &len) || len >= cap)
        return false;
    memcpy(out, at, len);
    out[len] = 0;
    return true;
}

bool record_int(const char *record, const char *name, int64_t *out)
{
    char text[24], *end;
    if (!record_text(record, name, text, sizeof text) || !text[0] || isspace((unsigned char)text[0]))
        return false;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (errno || *end)
        return false;
    *out = n;
    return true;
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool record_bytes(const char *record, const char *name, unsigned char *out, size_t n)
{
    const char *at;
    size_t len;
    if (!record_find(record, name, &at, &len) || len != 2 * n)
        return false;
    for (size_t i = 0; i < n; i++) {
        int high = digit(at[2 * i]), low = digit(at[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        out[i] = (unsigned char)(high * 16 + low);
    }
    return true;
}

int record_name(const char *call, const char *what, const char *name)
{
    size_t n = name ? strlen(name) : 0;
    bool fits = n > 0 && n <= WEFT_BUS_NAME;
    for (size_t i = 0; i < n && fits; i++)
        fits = isalnum((unsigned char)name[i]) || strchr("._-", name[i]);
    if (fits)
        return 0;
    return error_set(WEFT_EINVAL, "%s: the name of the %s must be 1 to %d letters, digits and . _ -%s%.80s%s", call,
                     what, WEFT_BUS_NAME, n ? ": it is '" : "", n ? name : "", n ? "'" : "");
}

void record_key(char key[RECORD_KEY], const char *set, const char *fmt, ...)
{
    va_list args;
    int n = snprintf(key, RECORD_KEY, "sets/%s/", set);
    va_start(args, fmt);
    vsnprintf(key + n, RECORD_KEY - (size_t)n, fmt, args);
    va_end(args);
}
