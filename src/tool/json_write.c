/* Writing JSON; see json_write.h. */
#include "tool/json_write.h"

#include <inttypes.h>
#include <math.h>

#include "base/utf8.h"

static void put_string(FILE *to, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    putc('"', to);
    while (*s) {
        size_t n = utf8_length(s);
        if (!n)
            fputs("\\ufffd", to);
        else if (*s == '"' || *s == '\\')
            fprintf(to, "\\%c", *s);
        else if (*s == '\n')
            fputs("\\n", to);
        else if (*s < 0x20 || *s == 0x7f)
            fprintf(to, "\\u%04x", *s);
        else
            fwrite(s, 1, n, to);
        s += n ? n : 1;
    }
    putc('"', to);
}

static void start(struct json *j, const char *key)
{
    if (j->depth) {
        bool flat = j->inline_[j->depth - 1];
        if (j->some[j->depth - 1])
            fputs(flat ? ", " : ",", j->to);
        j->some[j->depth - 1] = true;
        if (!flat)
            fprintf(j->to, "\n%*s", 2 * j->depth, "");
    }
    if (key) {
        put_string(j->to, key);
        fputs(": ", j->to);
    }
}

void json_write_open(struct json *j, const char *key, char bracket, bool flat)
{
    start(j, key);
    putc(bracket, j->to);
    j->some[j->depth] = false;
    j->inline_[j->depth] = flat || (j->depth && j->inline_[j->depth - 1]);
    j->depth++;
}

void json_write_close(struct json *j, char bracket)
{
    j->depth--;
    if (j->some[j->depth] && !j->inline_[j->depth])
        fprintf(j->to, "\n%*s", 2 * j->depth, "");
    putc(bracket, j->to);
    if (!j->depth)
        putc('\n', j->to);
}

void json_write_text(struct json *j, const char *key, const char *value)
{
    start(j, key);
    if (value)
        put_string(j->to, value);
    else
        fputs("null", j->to);
}

void json_write_int(struct json *j, const char *key, int64_t value)
{
    start(j, key);
    fprintf(j->to, "%" PRId64, value);
}

void json_write_real(struct json *j, const char *key, double value)
{
    start(j, key);
    if (isfinite(value))
        fprintf(j->to, "%.6g", value);
    else
        fputs("null", j->to);
}

void json_write_bool(struct json *j, const char *key, bool value)
{
    start(j, key);
    fputs(value ? "true" : "false", j->to);
}

void json_write_raw(struct json *j, const char *key, const char *value)
{
    start(j, key);
    fputs(value, j->to);
}
