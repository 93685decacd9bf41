/* See failure.h. */
#include "tool/failure.h"

#include <stdarg.h>

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
