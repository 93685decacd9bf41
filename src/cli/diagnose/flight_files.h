/* The flight recorder's files, which ranks wrote when a job hung or failed, read and checked for weft diagnose. Nothing
 * in a file is trusted; its texts are shown without control characters. */
#ifndef WEFT_CLI_DIAGNOSE_FLIGHT_FILES_H
#define WEFT_CLI_DIAGNOSE_FLIGHT_FILES_H
#include <stdbool.h>

#include "base/json_read.h"
#include "tool/failure.h"

#define FLIGHT_FILES_RANKS 65536 /* most ranks of a job */

/* One rank waits for another. */
struct flight_wait {
    int rank, on;
    const char *comm;
    const char *peer; /* what the rank knows of it: "here", "left", "died", "lost" */
    const char *call; /* the meeting in which it is missing; NULL: a message of a run */
    int64_t meeting;
    /* of a run: */
    int64_t exec, run;
    const char *plan, *kind, *algorithm;
    bool sends, started; /* the message goes to `on`, which has started the run */
    int64_t message, messages, bytes, parts, tensor;
    const char *name; /* of the tensor; may be empty */
};

struct flight_file {
    const char *path;
    struct json_doc doc;
    const char *job, *comm, *host, *why, *timeout, *failure;
    int rank, ranks;
    const char *call, *plan; /* of the meeting that it is in; NULL: none */
    int64_t meeting;
    const struct json_value *execs;
};

struct flight_files {
    struct flight_file *files;
    int n;
    int ranks;          /* of the job */
    bool *here;         /* ranks that have files */
    const char **hosts; /* of each rank, if there are several; NULL: not known */
    struct flight_wait *waits;
    size_t nwaits, cap;
};

/* Reads the files of one job, at least one. On failure nothing is left to free. */
int flight_files_read(const char *const *paths, int n, struct flight_files *out, struct failure *f);
void flight_files_free(struct flight_files *fl);
#endif
