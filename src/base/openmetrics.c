#define _GNU_SOURCE
#include "base/openmetrics.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

void openmetrics_family(struct text *t, const char *name, const char *type, const char *unit, const char *help)
{
    text_printf(t, "# TYPE %s %s\n", name, type);
    if (unit)
        text_printf(t, "# UNIT %s %s\n", name, unit);
    text_printf(t, "# HELP %s %s\n", name, help);
}

void openmetrics_gauge(struct text *t, const char *name, const char *help, uint64_t value)
{
    openmetrics_family(t, name, "gauge", NULL, help);
    text_printf(t, "%s %" PRIu64 "\n", name, value);
}

void openmetrics_counter(struct text *t, const char *name, const char *help, uint64_t value)
{
    openmetrics_family(t, name, "counter", NULL, help);
    text_printf(t, "%s_total %" PRIu64 "\n", name, value);
}

void openmetrics_times(struct text *t, const char *name, const char *labels, const struct openmetrics_times *h)
{
    uint64_t sum = 0;
    int n = (int)strlen(labels), own = n ? n - 1 : 0; /* own: without the comma at their end */
    const char *open = n ? "{" : "", *close = n ? "}" : "";
    for (int i = 0; i < h->nbuckets; i++) {
        char le[32];
        snprintf(le, sizeof le, "%g", (double)h->bound_ns(i) * 1e-9);
        const char *whole = le[strspn(le, "0123456789")] ? "" : ".0"; /* as OpenMetrics wants it: 1.0, 10.0 */
        sum += h->buckets[i];
        text_printf(t, "%s_bucket{%sle=\"%s%s\"} %" PRIu64 "\n", name, labels, le, whole, sum);
    }
    text_printf(t, "%s_bucket{%sle=\"+Inf\"} %" PRIu64 "\n", name, labels, h->n);
    text_printf(t, "%s_sum%s%.*s%s %.9f\n", name, open, own, labels, close, (double)h->ns * 1e-9);
    text_printf(t, "%s_count%s%.*s%s %" PRIu64 "\n", name, open, own, labels, close, h->n);
}

void openmetrics_label(struct text *t, const char *name, const char *value)
{
    text_printf(t, "%s=\"", name);
    for (; *value; value++) {
        if (*value == '\\' || *value == '"')
            text_put(t, "\\");
        if (*value == '\n')
            text_put(t, "\\n");
        else
            text_bytes(t, value, 1);
    }
    text_put(t, "\",");
}

int openmetrics_replace(const char *path, const char *text, size_t n)
{
    char *part;
    if (asprintf(&part, "%s.%d", path, (int)getpid()) < 0)
        return error_nomem();
    FILE *f = fopen(part, "we");
    bool written = f && fwrite(text, 1, n, f) == n;
    if (f && fclose(f))
        written = false;
    int why = errno;
    if (!written || rename(part, path)) {
        why = written ? errno : why;
        unlink(part);
        free(part);
        return error_set(WEFT_EIO, "%s: the metrics cannot be written: %s", path, strerror(why));
    }
    free(part);
    return 0;
}
