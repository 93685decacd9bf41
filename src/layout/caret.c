#include "layout/caret.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "weft.h"

int caret_fail(const struct caret *w, int at, const char *fmt, ...)
{
    char words[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(words, sizeof words, fmt, ap);
    va_end(ap);
    if (!w || at < 0)
        return error_set(WEFT_EINVAL, "layout: %s", words);
    /* Of a long text only the part around the caret is shown. */
    int len = (int)strlen(w->text), from = at > 90 ? at - 60 : 0, to = len - from > 120 ? from + 120 : len;
    const char *head = from ? "..." : "", *tail = to < len ? "..." : "";
    char shown[130];
    int n = to - from;
    for (int i = 0; i < n; i++) { /* one column a byte: a tab, a control or a wide character would shift the caret */
        unsigned char c = (unsigned char)w->text[from + i];
        shown[i] = (char)(c < ' ' ? ' ' : c < 127 ? c : '?');
    }
    shown[n] = 0;
    return error_set(WEFT_EINVAL, "layout: %s\n  %s%s%s\n  %*s^", words, head, shown, tail,
                     at - from + (int)strlen(head), "");
}
