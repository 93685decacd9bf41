/* Metrics of a comm: what its execs have moved, by way and host of the peer, how long runs and waits took, staging
 * memory and failures. weft_comm_metrics tells them, and WEFT_METRICS names a file of OpenMetrics text.
 *
 * What a run moves is known at bind, so that runs need not be counted one by one: a task adds what it has done since it
 * was last asked (comm_task_ops.count). Times need the clock twice for each run and each wait: only if WEFT_METRICS is
 * set, by engine/tracer.c.
 *
 * The file is written when an exec is closed, when the comm has failed or is closed, and at most once a second when a
 * wait of an exec ends: never in start or test. The thread that holds the progress lock uses all of this. */
#ifndef WEFT_COMM_METRICS_H
#define WEFT_COMM_METRICS_H
#include <stdbool.h>
#include <stdint.h>

#include "comm/trace.h"
#include "weft.h"

#define METRICS_BUCKETS 8 /* 1 us, 10 us and so on to 10 s */
#define METRICS_WAYS 24   /* more than there are ways and drivers */

struct metrics_times {
    uint64_t n, ns, buckets[METRICS_BUCKETS];
};

/* What has gone by one way between this rank and the ranks of one host. */
struct metrics_row {
    const char *way;                                     /* of way_table.c, or a driver that copies by itself */
    int host;                                            /* its number in the comm */
    uint64_t sent_bytes, sent, received_bytes, received; /* messages */
};

struct metrics {
    bool timed;                  /* WEFT_METRICS is set */
    char path[TRACE_PATH + 208]; /* of the file */
    char folder[TRACE_PATH];     /* for splits; empty: it is a file */
    int64_t written_at;
    uint64_t runs, failed, timeouts;
    struct metrics_times run_times, wait_times;
    struct metrics_row *rows;
    uint32_t nrows;
};

int metrics_open(weft_comm *c);                        /* after flight_open */
void metrics_split(weft_comm *c, const weft_comm *of); /* after flight_split */
void metrics_close(weft_comm *c);                      /* writes the file, and frees the rows */

/* At bind: how many rows there can be in all; makes room for `rows` more, false: no memory; then the index of the row
 * for messages with a peer, which takes one of these. */
uint32_t metrics_rows_most(const weft_comm *c);
bool metrics_reserve(weft_comm *c, uint32_t rows);
uint32_t metrics_row(weft_comm *c, const char *way, int peer);
void metrics_time(struct metrics_times *t, int64_t ns);
void metrics_write(weft_comm *c); /* now; does nothing if there is no file */
void metrics_tick(weft_comm *c);  /* if the file is older than a second */
#endif
