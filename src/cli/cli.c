/* Errors, quoting and sizes, as all verbs print them. */
#include "cli/cli.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

int failure_set(struct failure *f, int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(f->text, sizeof f->text, fmt, ap);
    va_end(ap);
    return f->code = code;
}

int failure_print(const struct failure *f, const char *verb)
{
    fflush(stdout);
    fprintf(stderr, "weft %s: %s\n", verb, f->text);
    return f->code;
}

char *shell_quote(const char *text, char *buf, size_t cap)
{
    size_t n = 0;
    if (cap > 1)
        buf[n++] = '\'';
    for (const char *p = text; *p && n + 6 < cap; p++) {
        if (*p == '\'') {
            for (const char *q = "'\\''"; *q; q++)
                buf[n++] = *q;
        } else {
            buf[n++] = *p;
        }
    }
    if (n + 1 < cap)
        buf[n++] = '\'';
    if (n < cap)
        buf[n] = 0;
    return buf;
}

char *bytes_text(int64_t bytes, char *buf, size_t cap)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double v = (double)bytes;
    int u = 0;
    while (v >= 1024 && u < 6) {
        v /= 1024;
        u++;
    }
    if (u)
        snprintf(buf, cap, "%" PRId64 " B (%.1f %s)", bytes, v, units[u]);
    else
        snprintf(buf, cap, "%" PRId64 " B", bytes);
    return buf;
}
