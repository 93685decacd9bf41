#define _GNU_SOURCE
#include "version/job_metrics.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/openmetrics.h"
#include "rendezvous/deadline.h"
#include "version/record.h"

#define EVERY_NS INT64_C(1000000000) /* the file is written at most that often, and at the end */

int job_metrics_begin(struct job_metrics *m, const char *path)
{
    *m = (struct job_metrics){.published = -1, .live = -1, .written = -EVERY_NS};
    pthread_mutex_init(&m->lock, NULL);
    list_begin(&m->lags);
    m->path = path ? strdup(path) : NULL;
    return path && !m->path ? error_nomem() : 0;
}

/* ---- the text ---- */

static int64_t bound_ns(int i)
{
    int64_t ns = 10000;
    while (i--)
        ns *= 10;
    return ns;
}

static void histogram(struct text *t, const char *name, const char *help, const struct job_metrics_times *h)
{
    openmetrics_family(t, name, "histogram", "seconds", help);
    openmetrics_times(t, name, "",
                      &(struct openmetrics_times){h->n, (uint64_t)h->ns, h->buckets, JOB_METRICS_BUCKETS, bound_ns});
}

static const struct job_metrics_lag *lag_at(const struct list *node)
{
    return LIST_OF(node, struct job_metrics_lag, node);
}

/* The subscriber that is the farthest behind of those that read the same set. NULL: the list has it already. */
static const struct job_metrics_lag *slowest(const struct job_metrics *m, const struct list *first)
{
    const struct job_metrics_lag *found = lag_at(first);
    bool before = true;
    for (const struct list *at = list_first(&m->lags); at; at = list_after(&m->lags, at)) {
        const struct job_metrics_lag *l = lag_at(at);
        before = before && at != first;
        if (at == first || strcmp(l->set, lag_at(first)->set))
            continue;
        if (before)
            return NULL;
        if (l->n > found->n || (l->n && l->n == found->n && l->seen[0].at < found->seen[0].at))
            found = l;
    }
    return found;
}

static void write_lags(const struct job_metrics *m, int64_t now, struct text *t)
{
    const struct job_metrics_lag *l;
    if (list_empty(&m->lags))
        return;
    openmetrics_family(t, "weft_bus_lag_versions", "gauge", NULL,
                       "Versions newer than the live one that this reader has seen in the directory.");
    for (const struct list *at = list_first(&m->lags); at; at = list_after(&m->lags, at))
        if ((l = slowest(m, at)))
            text_printf(t, "weft_bus_lag_versions{set=\"%s\"} %d\n", l->set, l->n);
    openmetrics_family(t, "weft_bus_lag_seconds", "gauge", "seconds",
                       "Time since it saw the oldest of them; 0: there is none.");
    for (const struct list *at = list_first(&m->lags); at; at = list_after(&m->lags, at))
        if ((l = slowest(m, at)))
            text_printf(t, "weft_bus_lag_seconds{set=\"%s\"} %.3f\n", l->set,
                        l->n ? (double)(now - l->seen[0].at) * 1e-9 : 0.0);
}

/* With the lock. The same length for the same time. */
static void write_text(const struct job_metrics *m, int64_t now, struct text *t)
{
    static const char *const calls[] = {"put", "fetch", "check", "swap"};
    static const char *const paths[] = {"snapshot", "mapped", "tcp"};
    histogram(t, "weft_bus_put_seconds", "Time of a put: copy, cast and digests.", &m->times[JOB_METRICS_PUT]);
    histogram(t, "weft_bus_fetch_seconds", "Time from the choice of a version to staged and checked.",
              &m->times[JOB_METRICS_FETCH]);
    histogram(t, "weft_bus_check_seconds",
              "Time of a fetch that compares digests, which are summed while data is copied.",
              &m->times[JOB_METRICS_CHECK]);
    histogram(t, "weft_bus_swap_seconds", "Time of a swap.", &m->times[JOB_METRICS_SWAP]);
    openmetrics_family(t, "weft_bus_failed", "counter", NULL,
                       "Calls that have failed; check: reads of a version that found a wrong digest.");
    for (int i = 0; i < JOB_METRICS_CALLS; i++)
        text_printf(t, "weft_bus_failed_total{call=\"%s\"} %" PRIu64 "\n", calls[i], m->failed[i]);
    openmetrics_family(t, "weft_bus_data_bytes", "counter", "bytes",
                       "Bytes of tensors: put into snapshots, read from mapped ones, pulled by tcp.");
    for (int i = 0; i < JOB_METRICS_PATHS; i++)
        text_printf(t, "weft_bus_data_bytes_total{path=\"%s\"} %" PRIu64 "\n", paths[i], m->bytes[i]);
    openmetrics_counter(t, "weft_bus_versions_committed", "Versions that this process has committed its part of.",
                        m->committed);
    openmetrics_family(t, "weft_bus_step", "gauge", NULL,
                       "The step that was committed last, and the one that is live here; -1: none yet.");
    text_printf(t, "weft_bus_step{role=\"published\"} %" PRId64 "\nweft_bus_step{role=\"live\"} %" PRId64 "\n",
                m->published, m->live);
    write_lags(m, now, t);
    text_put(t, "# EOF\n");
}

void job_metrics_text(struct job_metrics *m, struct text *out)
{
    pthread_mutex_lock(&m->lock);
    write_text(m, deadline_now(), out);
    pthread_mutex_unlock(&m->lock);
}

/* With the lock. A job goes on without the file. */
static void write_file(struct job_metrics *m, bool now)
{
    int64_t time = deadline_now();
    struct error_text kept;
    if (!m->path || (!now && time - m->written < EVERY_NS))
        return;
    struct text t = text_start(NULL, 0);
    write_text(m, time, &t);
    char *text = malloc(t.len + 1);
    if (!text)
        return;
    t = text_start(text, t.len + 1);
    write_text(m, time, &t);
    error_keep(&kept);
    openmetrics_replace(m->path, text, t.len);
    error_restore(&kept);
    free(text);
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
    /* A put or fetch that succeeds is followed by a commit or swap, whose step the file has to show, and a check that
     * fails by the end of its fetch. */
    if (err && call != JOB_METRICS_CHECK)
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

void job_metrics_lag_begin(struct job_metrics *m, struct job_metrics_lag *l, const char *set)
{
    pthread_mutex_lock(&m->lock);
    *l = (struct job_metrics_lag){.set = set};
    list_append(&m->lags, &l->node);
    pthread_mutex_unlock(&m->lock);
}

void job_metrics_lag_end(struct job_metrics *m, struct job_metrics_lag *l)
{
    pthread_mutex_lock(&m->lock);
    list_remove(&l->node);
    pthread_mutex_unlock(&m->lock);
}

void job_metrics_saw(struct job_metrics *m, struct job_metrics_lag *l, const weft_epoch_step *v)
{
    pthread_mutex_lock(&m->lock);
    if (l->n < JOB_METRICS_SEEN && record_version_compare(v, &l->last) > 0) {
        l->seen[l->n++] = (struct job_metrics_seen){*v, deadline_now()};
        l->last = *v;
    }
    pthread_mutex_unlock(&m->lock);
}

void job_metrics_live(struct job_metrics *m, struct job_metrics_lag *l, const weft_epoch_step *v)
{
    int kept = 0;
    pthread_mutex_lock(&m->lock);
    m->live = v->step;
    for (int i = 0; i < l->n; i++)
        if (record_version_compare(&l->seen[i].version, v) > 0)
            l->seen[kept++] = l->seen[i];
    l->n = kept;
    l->last = kept ? l->seen[kept - 1].version : *v; /* a step back: newer ones are seen again */
    write_file(m, false);
    pthread_mutex_unlock(&m->lock);
}
