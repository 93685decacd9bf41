/* Metrics for a monitoring system that asks by HTTP. */
#ifndef WEFT_RENDEZVOUS_METRICS_HTTP_H
#define WEFT_RENDEZVOUS_METRICS_HTTP_H
#include <stddef.h>

/* Writes the text with a zero behind it into cap bytes, as far as it fits. Returns its length. */
typedef size_t metrics_http_ask(void *arg, char *out, size_t cap);

/* A thread that answers GET /metrics at 127.0.0.1, one request at a time. A client has two seconds for its request. */
struct metrics_http;
/* Port 0: the system chooses. *bound is the port. */
int metrics_http_start(metrics_http_ask *ask, void *arg, int port, int *bound, struct metrics_http **out);
void metrics_http_stop(struct metrics_http *m); /* NULL is allowed */
#endif
