/* Writing JSON; see json.h. */
#include "cli/json.h"

#include <inttypes.h>
#include <math.h>

static void put_string(FILE *to, const char *s)
{
    putc('"', to);
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            fprintf(to, "\\%c", c);
        else if (c == '\n')
            fputs("\\n", to);
        else if (c < 0x20 || c == 0x7f)
            fprintf(to, "\\u%04x", c);
        else
            putc(c, to);
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

void json_open(struct json *j, const char *key, char bracket, bool flat)
{
    start(j, key);
    putc(bracket, j->to);
    j->some[j->depth] = false;
    j->inline_[j->depth] = flat || (j->depth && j->inline_[j->depth - 1]);
    j->depth++;
}

void json_close(struct json *j, char bracket)
{
    j->depth--;
    if (j->some[j->depth] && !j->inline_[j->depth])
        fprintf(j->to, "\n%*s", 2 * j->depth, "");
    putc(bracket, j->to);
    if (!j->depth)
        putc('\n', j->to);
}

void json_text(struct json *j, const char *key, const char *value)
{
    start(j, key);
    if (value)
        put_string(j->to, value);
    else
        fputs("null", j->to);
}

void json_int(struct json *j, const char *key, int64_t value)
{
    start(j, key);
    fprintf(j->to, "%" PRId64, value);
}

void json_real(struct json *j, const char *key, double value)
{
    start(j, key);
    if (isfinite(value))
        fprintf(j->to, "%.6g", value);
    else
        fputs("null", j->to);
}

void json_bool(struct json *j, const char *key, bool value)
{
    start(j, key);
    fputs(value ? "true" : "false", j->to);
}

void json_raw(struct json *j, const char *key, const char *value)
{
    start(j, key);
    fputs(value, j->to);
}
