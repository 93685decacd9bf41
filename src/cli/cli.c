/* Errors, progress, quoting and sizes, as all verbs print them. */
#define _POSIX_C_SOURCE 200809L
#include "cli/cli.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

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

#define PROGRESS_MS 100

static bool progress_shown;

void progress_text(const char *text)
{
    static int64_t last;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    if (!last)
        last = ms; /* what is done at once shows nothing */
    if (ms - last < PROGRESS_MS || !isatty(STDERR_FILENO))
        return;
    last = ms;
    progress_shown = true;
    fprintf(stderr, "\r\033[K%s", text);
    fflush(stderr);
}

void progress(const char *what, int64_t done, int64_t of)
{
    char text[100];
    snprintf(text, sizeof text, "%s %" PRId64 " of %" PRId64, what, done, of);
    progress_text(text);
}

void progress_end(void)
{
    if (progress_shown)
        fputs("\r\033[K", stderr);
    progress_shown = false;
}

void shell_quote(FILE *to, const char *text)
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
