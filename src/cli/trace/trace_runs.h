/* The runs of a job, from its traces: how long each plan took on all ranks and on each, and how long ranks waited. */
#ifndef WEFT_CLI_TRACE_TRACE_RUNS_H
#define WEFT_CLI_TRACE_TRACE_RUNS_H
#include "cli/trace/trace_files.h"

struct trace_rank_runs {
    int runs;
    int64_t median, waited; /* nanoseconds of a run; waited: on average */
};

/* The runs of one exec of one comm on all its ranks. */
struct trace_runs {
    const char *comm, *plan, *kind, *algorithm, *driver;
    int64_t exec;
    int members, runs;             /* runs that all its ranks have in their files */
    int64_t median;                /* from the first rank's begin to the last one's end */
    struct trace_rank_runs *ranks; /* of the job; runs is 0 for those that have no file */
};

struct trace_runs_list {
    struct trace_runs *of;
    int n;
};

int trace_runs_find(const struct trace_files *t, struct trace_runs_list *out, struct failure *f);
void trace_runs_free(struct trace_runs_list *l);
#endif
