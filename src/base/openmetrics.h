/* Writing OpenMetrics text, and files of it. */
#ifndef WEFT_BASE_OPENMETRICS_H
#define WEFT_BASE_OPENMETRICS_H
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

/* type: gauge, counter or histogram; unit: NULL if it has none, otherwise the end of the name. */
void openmetrics_family(struct text *t, const char *name, const char *type, const char *unit, const char *help);
/* Families of one sample without labels. */
void openmetrics_gauge(struct text *t, const char *name, const char *help, uint64_t value);
void openmetrics_counter(struct text *t, const char *name, const char *help, uint64_t value);

/* How often something took how long. buckets[i] counts times of at most bound_ns(i) that no bucket before has. */
struct openmetrics_times {
    uint64_t n, ns; /* all, and how long they took together */
    const uint64_t *buckets;
    int nbuckets;
    int64_t (*bound_ns)(int i);
};
/* The samples of a histogram in seconds. labels: `a="b",` and so on with a comma at the end, or empty. */
void openmetrics_times(struct text *t, const char *name, const char *labels, const struct openmetrics_times *h);

/* `name="value",` with the value escaped. */
void openmetrics_label(struct text *t, const char *name, const char *value);

/* Writes a text of metrics into a file: a new one that takes the old one's place, so that a reader sees one of them
 * whole. 0, or an error of weft. */
int openmetrics_replace(const char *path, const char *text, size_t n);
#endif
