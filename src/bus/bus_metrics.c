#define _GNU_SOURCE
#include "bus/bus_metrics.h"

#include <inttypes.h>

#include "base/openmetrics.h"

/* ---- the text ---- */

static void histogram(struct text *t, const char *name, const char *help, const struct bus_server_times *h)
{
    struct openmetrics_times times = {h->n, (uint64_t)h->ns, h->buckets, BUS_SERVER_BUCKETS, bus_server_bucket_ns};
    openmetrics_family(t, name, "histogram", "seconds", help);
    openmetrics_times(t, name, "", &times);
}

size_t bus_metrics_text(const struct bus_server_counts *c, char *out, size_t cap)
{
    struct text t = text_start(out, cap);
    openmetrics_gauge(&t, "weft_bus_up", "1 if the server answers requests, 0 if it has lost the file with its state.",
                      !c->broken);
    openmetrics_gauge(&t, "weft_bus_connections",
                      "Connections, with those that have not proved yet that they have a token.", c->connections);
    openmetrics_gauge(&t, "weft_bus_watches", "Clients that wait for a change.", c->watches);
    openmetrics_gauge(&t, "weft_bus_leases", "Leases that have not ended.", c->leases);
    openmetrics_gauge(&t, "weft_bus_keys", "Keys in the directory.", c->keys);
    openmetrics_gauge(&t, "weft_bus_key_bytes", "Memory of the keys and their values, in bytes.", c->key_bytes);
    openmetrics_counter(&t, "weft_bus_requests", "Requests of clients.", c->requests);
    openmetrics_counter(&t, "weft_bus_changes", "Transactions that have changed keys.", c->changes);
    openmetrics_counter(&t, "weft_bus_conflicts", "Transactions that changed nothing, since a key was not as expected.",
                        c->conflicts);
    openmetrics_counter(&t, "weft_bus_refusals",
                        "Requests that were refused: no right, no room, or a lease that has ended.", c->refusals);
    openmetrics_counter(&t, "weft_bus_leases_granted", "Leases that were granted.", c->granted);
    openmetrics_counter(&t, "weft_bus_leases_ended",
                        "Leases that ended with their time or with their owner's connection.", c->lapsed);
    openmetrics_family(&t, "weft_bus_bytes", "counter", NULL,
                       "Bytes of the connections, from (received) and to (sent) clients.");
    text_printf(&t, "weft_bus_bytes_total{direction=\"received\"} %" PRIu64 "\n", c->received);
    text_printf(&t, "weft_bus_bytes_total{direction=\"sent\"} %" PRIu64 "\n", c->sent);
    openmetrics_family(&t, "weft_bus_cpu_seconds", "counter", "seconds", "CPU time of the server's thread.");
    text_printf(&t, "weft_bus_cpu_seconds_total %.6f\n", (double)c->cpu_ns * 1e-9);
    histogram(&t, "weft_bus_commit_seconds", "Time of a transaction in the server, with the write to its file.",
              &c->commits);
    histogram(&t, "weft_bus_watch_seconds", "Time from a change to the reply for each client that waits for it.",
              &c->deliveries);
    text_put(&t, "# EOF\n");
    return t.len;
}

static size_t ask(void *server, char *text, size_t cap)
{
    struct bus_server_counts c;
    bus_server_counts(server, &c);
    return bus_metrics_text(&c, text, cap);
}

/* ---- a file ---- */

int bus_metrics_write(struct bus_server *s, const char *path)
{
    char text[BUS_METRICS_TEXT];
    return openmetrics_replace(path, text, ask(s, text, sizeof text));
}

int bus_metrics_start(struct bus_server *s, int port, int *bound, struct metrics_http **out)
{
    return metrics_http_start(ask, s, port, bound, out);
}
