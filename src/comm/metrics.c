#define _GNU_SOURCE
#include "comm/metrics.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/openmetrics.h"
#include "comm/environment.h"
#include "comm/lock.h"
#include "comm/task.h"
#include "transport/hosts/hosts.h"

#define EVERY_NS INT64_C(1000000000)
#define HOST 80
#define LABELS (2 * FLIGHT_NAME + 2 * 256 + 128) /* bytes: any letter of a comm's or a host's name may be escaped */

/* ---- counting ---- */

uint32_t metrics_rows_most(const weft_comm *c)
{
    return METRICS_WAYS * (uint32_t)(c->link->hosts ? c->link->hosts->nhosts : 1);
}

bool metrics_reserve(weft_comm *c, uint32_t rows)
{
    struct metrics *m = &c->metrics;
    uint32_t most = metrics_rows_most(c), n = m->nrows + rows < most ? m->nrows + rows : most;
    struct metrics_row *more = realloc(m->rows, (n + 1) * sizeof *more);
    if (more)
        m->rows = more;
    return more;
}

uint32_t metrics_row(weft_comm *c, const char *way, int peer)
{
    struct metrics *m = &c->metrics;
    int host = c->link->hosts ? c->link->hosts->host[peer] : 0;
    for (uint32_t i = 0; i < m->nrows; i++)
        if (m->rows[i].way == way && m->rows[i].host == host)
            return i;
    m->rows[m->nrows] = (struct metrics_row){.way = way, .host = host};
    return m->nrows++;
}

static int64_t bound_ns(int i)
{
    int64_t ns = 1000;
    while (i--)
        ns *= 10;
    return ns;
}

void metrics_time(struct metrics_times *t, int64_t ns)
{
    int i = 0;
    for (int64_t bound = 1000; i < METRICS_BUCKETS && ns > bound; bound *= 10)
        i++;
    if (i < METRICS_BUCKETS)
        t->buckets[i]++;
    t->n++;
    t->ns += (uint64_t)ns;
}

/* ---- telling ---- */

struct telling {
    void (*each)(void *arg, const weft_metric *m);
    void *arg;
    const char *labels[10]; /* names and values */
    size_t nlabels, common; /* common: those of all samples */
    char rank[16], host[HOST];
};

static void label(struct telling *t, const char *name, const char *value)
{
    t->labels[t->nlabels++] = name;
    t->labels[t->nlabels++] = value;
}

static void tell(struct telling *t, weft_metric m)
{
    m.size = sizeof m;
    m.labels = t->labels;
    m.nlabels = t->nlabels / 2;
    t->each(t->arg, &m);
    t->nlabels = t->common;
}

static void tell_times(struct telling *t, const char *name, const char *help, const struct metrics_times *h)
{
    double bounds[METRICS_BUCKETS];
    uint64_t buckets[METRICS_BUCKETS], sum = 0;
    for (int i = 0; i < METRICS_BUCKETS; i++) {
        bounds[i] = (double)bound_ns(i) * 1e-9;
        buckets[i] = sum += h->buckets[i];
    }
    tell(t, (weft_metric){.name = name,
                          .type = WEFT_METRIC_HISTOGRAM,
                          .unit = "seconds",
                          .help = help,
                          .value = (double)h->ns * 1e-9,
                          .count = h->n,
                          .bounds = bounds,
                          .buckets = buckets,
                          .nbuckets = METRICS_BUCKETS});
}

static const char *host_name(const weft_comm *c, int host, char buf[HOST])
{
    if (c->link->hosts && c->link->hosts->names)
        return c->link->hosts->names[host];
    buf[HOST - 1] = 0;
    return gethostname(buf, HOST - 1) ? "" : buf;
}

static void tell_rows(const weft_comm *c, struct telling *t, const char *name, const char *unit, const char *help,
                      size_t offset)
{
    char host[HOST];
    for (uint32_t i = 0; i < c->metrics.nrows; i++) {
        const struct metrics_row *row = &c->metrics.rows[i];
        uint64_t value;
        memcpy(&value, (const char *)row + offset, sizeof value);
        label(t, "way", row->way);
        label(t, "peer_host", host_name(c, row->host, host));
        tell(t, (weft_metric){
                    .name = name, .type = WEFT_METRIC_COUNTER, .unit = unit, .help = help, .value = (double)value});
    }
}

static void tell_staging(const weft_comm *c, struct telling *t)
{
    const struct {
        const char *what;
        int64_t bytes;
    } rows[] = {{"used", c->staging.used}, {"peak", c->staging.peak}, {"limit", c->staging.limit}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        label(t, "what", rows[i].what);
        tell(t, (weft_metric){.name = "weft_staging_bytes",
                              .type = WEFT_METRIC_GAUGE,
                              .unit = "bytes",
                              .help = "Staging memory: that holds messages, most of it so far, and allowed.",
                              .value = (double)rows[i].bytes});
    }
}

static void tell_failures(const weft_comm *c, struct telling *t)
{
    const char *text;
    int code = core_failure(c->group, &text);
    const struct {
        enum event event;
        int code;
        uint64_t n;
    } rows[] = {{EVENT_TIMEOUT, WEFT_ETIMEOUT, c->metrics.timeouts}, {EVENT_FAILED, code, code != 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        label(t, "event", event_name(rows[i].event));
        label(t, "kind", rows[i].n ? weft_strerror(rows[i].code) : "");
        tell(t, (weft_metric){.name = "weft_failures",
                              .type = WEFT_METRIC_COUNTER,
                              .unit = "",
                              .help = "Waits that ran out of time, and the failure of the comm, by kind.",
                              .value = (double)rows[i].n});
    }
}

static void tell_all(weft_comm *c, struct telling *t)
{
    struct metrics *m = &c->metrics;
    for (struct comm_task *x = c->described; x; x = x->described_next)
        if (x->ops->count)
            x->ops->count(x);
    label(t, "comm", c->flight.name);
    snprintf(t->rank, sizeof t->rank, "%d", flight_text_rank(c, c->rank));
    label(t, "rank", t->rank);
    t->common = t->nlabels;
    tell(t, (weft_metric){.name = "weft_runs",
                          .type = WEFT_METRIC_COUNTER,
                          .unit = "",
                          .help = "Runs of execs that have ended well.",
                          .value = (double)m->runs});
    tell(t, (weft_metric){.name = "weft_failed_runs",
                          .type = WEFT_METRIC_COUNTER,
                          .unit = "",
                          .help = "Runs of execs that have failed.",
                          .value = (double)m->failed});
    tell_rows(c, t, "weft_sent_bytes", "bytes", "Bytes of messages that this rank has sent.",
              offsetof(struct metrics_row, sent_bytes));
    tell_rows(c, t, "weft_sent_messages", "", "Messages that this rank has sent.", offsetof(struct metrics_row, sent));
    tell_rows(c, t, "weft_received_bytes", "bytes", "Bytes of messages that this rank has received.",
              offsetof(struct metrics_row, received_bytes));
    tell_rows(c, t, "weft_received_messages", "", "Messages that this rank has received.",
              offsetof(struct metrics_row, received));
    if (m->timed) {
        tell_times(t, "weft_run_seconds", "Time of a run, from its start to its end.", &m->run_times);
        tell_times(t, "weft_wait_seconds", "Time in which a run waited for one rank.", &m->wait_times);
    }
    tell_staging(c, t);
    tell_failures(c, t);
}

int weft_comm_metrics(weft_comm *c, void (*each)(void *arg, const weft_metric *m), void *arg)
{
    if (!c || !each)
        return error_set(WEFT_EINVAL, "weft_comm_metrics: the comm and the function must not be NULL");
    struct comm_family *f = comm_enter(c);
    struct telling t = {.each = each, .arg = arg};
    tell_all(c, &t);
    comm_leave(f);
    return 0;
}

/* ---- the text ---- */

struct writing {
    struct text *t;
    const char *family;
};

static void write_sample(void *arg, const weft_metric *m)
{
    static const char *const types[] = {"gauge", "counter", "histogram"};
    struct writing *w = arg;
    char labels[LABELS];
    struct text l = text_start(labels, sizeof labels);
    if (!w->family || strcmp(w->family, m->name))
        openmetrics_family(w->t, m->name, types[m->type], *m->unit ? m->unit : NULL, m->help);
    w->family = m->name;
    for (size_t i = 0; i < m->nlabels; i++)
        openmetrics_label(&l, m->labels[2 * i], m->labels[2 * i + 1]);
    if (m->type == WEFT_METRIC_HISTOGRAM) {
        uint64_t own[METRICS_BUCKETS];
        for (size_t i = 0; i < m->nbuckets; i++)
            own[i] = m->buckets[i] - (i ? m->buckets[i - 1] : 0);
        openmetrics_times(
            w->t, m->name, labels,
            &(struct openmetrics_times){m->count, (uint64_t)(m->value * 1e9 + 0.5), own, (int)m->nbuckets, bound_ns});
        return;
    }
    labels[strlen(labels) - 1] = 0; /* the comma at the end */
    text_printf(w->t, "%s%s{%s} %.0f\n", m->name, m->type == WEFT_METRIC_COUNTER ? "_total" : "", labels, m->value);
}

int weft_comm_metrics_text(weft_comm *c, char *buf, size_t cap, size_t *len)
{
    if (!c || !len || (cap && !buf))
        return error_set(WEFT_EINVAL, "weft_comm_metrics_text: arguments must not be NULL");
    struct text t = text_start(buf, cap);
    struct writing w = {.t = &t};
    int err = weft_comm_metrics(c, write_sample, &w);
    text_put(&t, "# EOF\n");
    *len = t.len;
    return err;
}

/* ---- the file ---- */

/* A job goes on without it. */
void metrics_write(weft_comm *c)
{
    char *text = NULL;
    struct metrics *m = &c->metrics;
    struct error_text kept;
    if (!m->timed)
        return;
    error_keep(&kept);
    for (size_t cap = 8192;;) {
        char *more = realloc(text, cap);
        if (!more)
            break;
        text = more;
        struct text t = text_start(text, cap);
        struct writing w = {.t = &t};
        struct telling telling = {.each = write_sample, .arg = &w};
        tell_all(c, &telling);
        text_put(&t, "# EOF\n");
        if (t.len < cap) {
            if (openmetrics_replace(m->path, text, t.len))
                flight_log(c, WEFT_LOG_WARNING, EVENT_UNWRITTEN, weft_errmsg());
            break;
        }
        cap = t.len + 1024;
    }
    free(text);
    error_restore(&kept);
    m->written_at = core_now();
}

void metrics_tick(weft_comm *c)
{
    if (c->metrics.timed && core_now() - c->metrics.written_at >= EVERY_NS)
        metrics_write(c);
}

static void set_path(weft_comm *c, const char *folder, const char *file)
{
    struct metrics *m = &c->metrics;
    char name[200];
    m->timed = true;
    strcpy(m->folder, folder);
    flight_file_name(c, "metrics", "prom", name, sizeof name);
    if (*folder)
        snprintf(m->path, sizeof m->path, "%s/%s", folder, name);
    else if (c->flight.opened)
        snprintf(m->path, sizeof m->path, "%.600s.%d", file, c->flight.opened);
    else
        strcpy(m->path, file);
}

int metrics_open(weft_comm *c)
{
    struct environment_output e;
    int err = environment_metrics(&e);
    if (err || !*e.path)
        return err;
    if (!e.folder && c->size > 1)
        return error_set(WEFT_EINVAL,
                         "WEFT_METRICS=%s: the comm has %d ranks, and each writes a file: make a folder of this name, "
                         "or name one that exists",
                         e.path, c->size);
    set_path(c, e.folder ? e.path : "", e.path);
    return 0;
}

void metrics_split(weft_comm *c, const weft_comm *of)
{
    if (of->metrics.timed)
        set_path(c, of->metrics.folder, of->metrics.path);
}

void metrics_close(weft_comm *c)
{
    metrics_write(c);
    free(c->metrics.rows);
}
