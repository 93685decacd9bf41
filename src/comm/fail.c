/* The failure of a comm: all its ranks hear of it, and it is the same for all of them. */
#include <stdarg.h>
#include <stdio.h>

#include "base/error.h"
#include "comm/mail.h"

int comm_fail_error(weft_comm *c)
{
    const char *text;
    int code = core_failure(c->group, &text);
    if (code)
        flight_failed(c);
    return code ? error_set(code, "%s", text) : 0;
}

bool comm_fail_tainted(const weft_comm *c)
{
    const char *text;
    bool tainted = c->tainted;
    const weft_comm *k = c;
    do
        tainted |= core_failure(k->group, &text) != 0;
    while ((k = k->sibling) != c);
    return tainted;
}

int comm_fail(weft_comm *c, int code, const char *fmt, ...)
{
    char text[CORE_TEXT];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (!core_failed(c->group))
        mail_failure(c, code, text);
    core_fail(c->group, c->rank, code, text);
    return comm_failure(c);
}
