/* What a server of a directory has done and has, as OpenMetrics text: for a monitoring system that asks by HTTP, or as
 * a file. */
#ifndef WEFT_BUS_BUS_METRICS_H
#define WEFT_BUS_BUS_METRICS_H
#include <stddef.h>
#include <stdint.h>

#include "bus/bus_server.h"
#include "rendezvous/metrics_http.h"

/* Writes the text with a zero behind it into cap bytes, as far as it fits. Returns its length. */
size_t bus_metrics_text(const struct bus_server_counts *c, char *out, size_t cap);
#define BUS_METRICS_TEXT 8192 /* bytes that are enough for it */

/* Writes what the server says into a file (openmetrics_replace). */
int bus_metrics_write(struct bus_server *s, const char *path);
/* Answers GET /metrics (metrics_http_start) until metrics_http_stop, which comes before the server is stopped. */
int bus_metrics_start(struct bus_server *s, int port, int *bound, struct metrics_http **out);
#endif
