#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char text[ERROR_TEXT];

int error_set(int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return code;
}

int error_nomem(void)
{
    return error_set(WEFT_ENOMEM, "out of memory");
}

void error_keep(struct error_text *kept)
{
    strcpy(kept->text, text);
}

void error_restore(const struct error_text *kept)
{
    strcpy(text, kept->text);
}

const char *weft_errmsg(void)
{
    return text;
}

const char *weft_strerror(int err)
{
    static const char *const words[] = {
        "success",          "invalid argument", "out of memory",       "not supported",    "ranks do not agree",
        "object is in use", "time ran out",     "another rank failed", "transport failed", "input or output failed",
    };
    return err <= 0 && err > -(int)(sizeof words / sizeof *words) ? words[-err] : "unknown error";
}

uint32_t weft_version(void)
{
    return WEFT_VERSION;
}

#define DIGITS(x) #x
#define TEXT(x) DIGITS(x)

const char *weft_version_string(void)
{
    return TEXT(WEFT_VERSION_MAJOR) "." TEXT(WEFT_VERSION_MINOR) "." TEXT(WEFT_VERSION_PATCH);
}
