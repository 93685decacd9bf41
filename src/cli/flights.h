/* What ranks wrote when a job hung or failed (the flight recorder's files), read and checked for weft diagnose. Nothing
 * in a file is trusted; what it says is shown without control characters. */
#ifndef WEFT_CLI_FLIGHTS_H
#define WEFT_CLI_FLIGHTS_H
#include <stdbool.h>

#include "base/json_read.h"
#include "cli/cli.h"

#define FLIGHTS_RANKS 65536 /* most ranks of a job */

/* One rank waits for another. */
struct flights_wait {
    int rank, on;
    const char *comm;
    const char *peer; /* what the rank knows of it: "here", "left", "died" */
    const char *call; /* the meeting that it is missed in; NULL: a message of a run */
    int64_t meeting;
    /* of a run: */
    int64_t exec, run;
    const char *plan, *kind, *algorithm;
    bool sends, started; /* the message goes to `on`, which has started the run */
    int64_t message, messages, bytes, parts, tensor;
    const char *name; /* of the tensor; may be empty */
};

struct flights_file {
    const char *path;
    struct json_doc doc;
    const char *job, *comm, *host, *why, *timeout, *failure;
    int rank, ranks;
    const char *call, *plan; /* of the meeting that it is in; NULL: none */
    int64_t meeting;
    const struct json_value *execs;
};

struct flights {
    struct flights_file *files;
    int n;
    int ranks;          /* of the job */
    bool *here;         /* of which there are files */
    const char **hosts; /* of each rank, where there are several; NULL: not told */
    struct flights_wait *waits;
    size_t nwaits, cap;
};

/* Reads the files of one job, at least one. On failure nothing is left to free. */
int flights_read(const char *const *paths, int n, struct flights *out, struct failure *f);
void flights_free(struct flights *fl);

/* How the waits end. A set of ranks of which each waits for all others, maybe through others, and none for a rank
 * outside, is an end: one rank that waits for nobody holds up the others, several are in a circle. */
struct flights_ends {
    int *set;     /* of each rank */
    int *size;    /* of each set, in ranks */
    bool *is_end; /* of each set: somebody waits for it or in it, and it does not wait for another */
    int sets;
};
int flights_ends(const struct flights *fl, struct flights_ends *out, struct failure *f);
void flights_ends_free(struct flights_ends *e);
#endif
