/* See readable.h. */
#include "tool/readable.h"

#include <inttypes.h>

void readable_shell_word(FILE *to, const char *text)
{
    putc('\'', to);
    for (const char *p = text; *p; p++) {
        if (*p == '\'')
            fputs("'\\''", to);
        else
            putc(*p, to);
    }
    putc('\'', to);
}

char *readable_bytes(int64_t bytes, char *buf, size_t cap)
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
