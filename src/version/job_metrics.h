/* What a process on the bus has done, as OpenMetrics text: for weft_bus_metrics, and for a file. */
#ifndef WEFT_VERSION_JOB_METRICS_H
#define WEFT_VERSION_JOB_METRICS_H
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/text.h"
#include "weft/bus.h"

#define JOB_METRICS_BUCKETS 8 /* 10 us to 100 s, each ten times the one before */
#define JOB_METRICS_SEEN 64   /* versions that a reader is behind, at most */

struct job_metrics_times {
    uint64_t buckets[JOB_METRICS_BUCKETS], n;
    int64_t ns;
};
enum job_metrics_call { JOB_METRICS_PUT, JOB_METRICS_FETCH, JOB_METRICS_CHECK, JOB_METRICS_SWAP, JOB_METRICS_CALLS };
enum job_metrics_path { JOB_METRICS_SNAPSHOT, JOB_METRICS_MAPPED, JOB_METRICS_TCP, JOB_METRICS_PATHS };

/* How far a subscriber is behind: the versions newer than the live one that it has seen in the directory, oldest first,
 * and when it saw them first. */
struct job_metrics_lag {
    struct list node;
    const char *set;
    weft_epoch_step last; /* versions up to this one are live, older, or among `seen` */
    struct job_metrics_seen {
        weft_epoch_step version;
        int64_t at;
    } seen[JOB_METRICS_SEEN];
    int n;
};

struct job_metrics {
    pthread_mutex_t lock;
    char *path; /* NULL: no file */
    int64_t written;
    struct job_metrics_times times[JOB_METRICS_CALLS]; /* of calls that have succeeded */
    uint64_t failed[JOB_METRICS_CALLS], bytes[JOB_METRICS_PATHS], committed;
    int64_t published, live; /* steps; -1: none yet */
    struct list lags;        /* of subscribers; several may read one set */
};

int job_metrics_begin(struct job_metrics *m, const char *path); /* path: may be NULL */
void job_metrics_end(struct job_metrics *m);
void job_metrics_call(struct job_metrics *m, enum job_metrics_call call, int err, int64_t ns);
void job_metrics_bytes(struct job_metrics *m, enum job_metrics_path path, int64_t bytes);
void job_metrics_commit(struct job_metrics *m, int64_t step);
void job_metrics_lag_begin(struct job_metrics *m, struct job_metrics_lag *l, const char *set); /* keeps the name */
void job_metrics_lag_end(struct job_metrics *m, struct job_metrics_lag *l);                    /* begun or not */
/* A version is in the directory. They come in ascending order; one that was seen before is passed over. */
void job_metrics_saw(struct job_metrics *m, struct job_metrics_lag *l, const weft_epoch_step *v);
void job_metrics_live(struct job_metrics *m, struct job_metrics_lag *l, const weft_epoch_step *v);
void job_metrics_text(struct job_metrics *m, struct text *out);
#endif
