/* What a server of a directory has done and has, as OpenMetrics text: for a monitoring system that asks by HTTP, or as
 * a file. */
#ifndef WEFT_BUS_BUS_METRICS_H
#define WEFT_BUS_BUS_METRICS_H
#include <stddef.h>
#include <stdint.h>

#include "bus/bus_server.h"

/* Writes the text with a zero behind it into cap bytes, as far as it fits. Returns its length. */
size_t bus_metrics_text(const struct bus_server_counts *c, char *out, size_t cap);
#define BUS_METRICS_TEXT 8192 /* bytes that are enough for it */

/* Writes a text of metrics into a file: a new one that takes the old one's place, so that a reader sees one of them
 * whole. 0, or an error of weft. */
int bus_metrics_replace(const char *path, const char *text, size_t n);
/* The same for what the server says. */
int bus_metrics_write(struct bus_server *s, const char *path);

/* A thread that answers GET /metrics at 127.0.0.1, one request at a time. A client has two seconds for its request. */
struct bus_metrics;
/* Port 0: the system chooses. *bound is the port. */
int bus_metrics_start(struct bus_server *s, int port, int *bound, struct bus_metrics **out);
void bus_metrics_stop(struct bus_metrics *m); /* before the server is stopped; NULL is allowed */
#endif
