#define _GNU_SOURCE
#include "version/job_metrics.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "bus/bus_metrics.h"
#include "rendezvous/deadline.h"

#define EVERY_NS INT64_C(1000000000) /* the file is written at most that often, and at the end */
#define TEXT 8192

int job_metrics_begin(struct job_metrics *m, const char *path)
{
    *m = (struct job_metrics){.published = -1, .live = -1, .written = -EVERY_NS};
    pthread_mutex_init(&m->lock, NULL);
    m->path = path ? strdup(path) : NULL;
    return path && !m->path ? error_nomem() : 0;
}

/* ---- the text ---- */

static void family(struct text *t, const char *name, const char *type, const char *help)
{
    text_printf(t, "# TYPE weft_bus_%s %s\n# HELP weft_bus_%s %s\n", name, type, name, help);
}

static void histogram(struct text *t, const char *name, const char *help, const struct job_metrics_times *h)
{
    static const char *const le[JOB_METRICS_BUCKETS] = {"1e-05", "0.0001", "0.001", "0.01",
                                                        "0.1",   "1.0",    "10.0",  "100.0"};
    uint64_t sum = 0;
    text_printf(t, "# TYPE weft_bus_%s histogram\n# UNIT weft_bus_%s seconds\n# HELP weft_bus_%s %s\n", name, name,
                name, help);
    for (int i = 0; i < JOB_METRICS_BUCKETS; i++) {
        sum += h->buckets[i];
        text_printf(t, "weft_bus_%s_bucket{le=\"%s\"} %" PRIu64 "\n", name, le[i], sum);
    }
    text_printf(t, "weft_bus_%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, h->n);
    text_printf(t, "weft_bus_%s_sum %.9f\nweft_bus_%s_count %" PRIu64 "\n", name, (double)h->ns * 1e-9, name, h->n);
}

static void write_text(const struct job_metrics *m, struct text *t)
{
    static const char *const calls[] = {"put", "fetch", "swap"}, *const paths[] = {"snapshot", "mapped", "tcp"};
    histogram(t, "put_seconds", "Time of a put: copy, cast and digests.", &m->times[JOB_METRICS_PUT]);
    histogram(t, "fetch_seconds", "Time from the choice of a version to staged and checked.",
              &m->times[JOB_METRICS_FETCH]);
    histogram(t, "swap_seconds", "Time of a swap.", &m->times[JOB_METRICS_SWAP]);
    family(t, "failed", "counter", "Calls that have failed.");
    for (int i = 0; i < JOB_METRICS_CALLS; i++)
        text_printf(t, "weft_bus_failed_total{call=\"%s\"} %" PRIu64 "\n", calls[i], m->failed[i]);
    text_put(t, "# TYPE weft_bus_data_bytes counter\n# UNIT weft_bus_data_bytes bytes\n");
    text_put(
        t, "# HELP weft_bus_data_bytes Bytes of tensors: put into snapshots, read from mapped ones, pulled by tcp.\n");
    for (int i = 0; i < JOB_METRICS_PATHS; i++)
        text_printf(t, "weft_bus_data_bytes_total{path=\"%s\"} %" PRIu64 "\n", paths[i], m->bytes[i]);
    family(t, "versions_committed", "counter", "Versions that this process has committed its part of.");
    text_printf(t, "weft_bus_versions_committed_total %" PRIu64 "\n", m->committed);
    family(t, "step", "gauge", "The step that was committed last, and the one that is live here; -1: none yet.");
    text_printf(t, "weft_bus_step{role=\"published\"} %" PRId64 "\nweft_bus_step{role=\"live\"} %" PRId64 "\n# EOF\n",
                m->published, m->live);
}

void job_metrics_text(struct job_metrics *m, struct text *out)
{
    pthread_mutex_lock(&m->lock);
    write_text(m, out);
    pthread_mutex_unlock(&m->lock);
}

/* With the lock. A job goes on without the file. */
static void write_file(struct job_metrics *m, bool now)
{
    char text[TEXT];
    struct error_text kept;
    if (!m->path || (!now && deadline_now() - m->written < EVERY_NS))
        return;
    struct text t = text_start(text, sizeof text);
    write_text(m, &t);
    error_keep(&kept);
    bus_metrics_replace(m->path, text, t.len);
    error_restore(&kept);
    m->written = deadline_now();
}

void job_metrics_end(struct job_metrics *m)
{
    pthread_mutex_lock(&m->lock);
    write_file(m, true);
    pthread_mutex_unlock(&m->lock);
    free(m->path);
    pthread_mutex_destroy(&m->lock);
}

/* ---- what happens ---- */

void job_metrics_call(struct job_metrics *m, enum job_metrics_call call, int err, int64_t ns)
{
    struct job_metrics_times *t = &m->times[call];
    int64_t bucket = 10000;
    int i = 0;
    for (; i < JOB_METRICS_BUCKETS && ns > bucket; i++)
        bucket *= 10;
    pthread_mutex_lock(&m->lock);
    if (err)
        m->failed[call]++;
    else {
        t->n++;
        t->ns += ns;
        if (i < JOB_METRICS_BUCKETS)
            t->buckets[i]++;
    }
    if (err) /* a put or fetch that succeeds is followed by a commit or swap, whose step the file has to show */
        write_file(m, false);
    pthread_mutex_unlock(&m->lock);
}

void job_metrics_bytes(struct job_metrics *m, enum job_metrics_path path, int64_t bytes)
{
    pthread_mutex_lock(&m->lock);
    m->bytes[path] += (uint64_t)bytes;
    pthread_mutex_unlock(&m->lock);
}

void job_metrics_commit(struct job_metrics *m, int64_t step)
{
    pthread_mutex_lock(&m->lock);
    m->committed++;
    m->published = step;
    write_file(m, false);
    pthread_mutex_unlock(&m->lock);
}

void job_metrics_live(struct job_metrics *m, int64_t step)
{
    pthread_mutex_lock(&m->lock);
    m->live = step;
    write_file(m, false);
    pthread_mutex_unlock(&m->lock);
}
