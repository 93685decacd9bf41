/* The windows and exchanges of a job, from its traces: what was put, notified and waited for in each window, and the
 * rounds and messages of each exchange, on all ranks together. */
#ifndef WEFT_CLI_TRACE_TRACE_CALLS_H
#define WEFT_CLI_TRACE_TRACE_CALLS_H
#include "cli/trace/trace_files.h"

struct trace_calls {
    const char *comm;
    int64_t number; /* of the window or exchange */
    bool exchange;
    int64_t waits, waited; /* nanoseconds of all ranks together */
    int64_t bytes;         /* that were put, or of messages that were sent */
    /* of a window */
    int64_t puts, notifies, barriers;
    int64_t arrived; /* operations from other hosts */
    /* of an exchange */
    int64_t messages;
    int rounds, members; /* rounds that all ranks of the comm have in their files */
    int64_t median;      /* of a round, from the first rank's begin to the last one's end */
};

struct trace_calls_list {
    struct trace_calls *of; /* by comm and number */
    size_t n;
};

int trace_calls_find(const struct trace_files *t, struct trace_calls_list *out, struct failure *f);
void trace_calls_free(struct trace_calls_list *l);
#endif
