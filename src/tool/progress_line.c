/* See progress_line.h. */
#define _POSIX_C_SOURCE 200809L
#include "tool/progress_line.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define PROGRESS_MS 100

static bool progress_shown;

void progress_line_text(const char *text)
{
    static int64_t last;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    if (!last)
        last = ms; /* work that ends at once shows nothing */
    if (ms - last < PROGRESS_MS || !isatty(STDERR_FILENO))
        return;
    last = ms;
    progress_shown = true;
    fprintf(stderr, "\r\033[K%s", text);
    fflush(stderr);
}

void progress_line(const char *what, int64_t done, int64_t of)
{
    char text[100];
    snprintf(text, sizeof text, "%s %" PRId64 " of %" PRId64, what, done, of);
    progress_line_text(text);
}

void progress_line_end(void)
{
    if (progress_shown)
        fputs("\r\033[K", stderr);
    progress_shown = false;
}
