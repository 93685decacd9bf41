/* The traces of the ranks of one job, read and checked, with the clocks of all hosts put on that of one. Nothing in a
 * file is trusted; texts are shown without control characters. */
#ifndef WEFT_CLI_TRACE_TRACE_FILES_H
#define WEFT_CLI_TRACE_TRACE_FILES_H
#include <stdbool.h>

#include "base/json_read.h"
#include "tool/failure.h"

#define TRACE_FILES_RANKS 65536 /* most ranks of a job */

/* One look at how far two clocks are apart. */
struct trace_look {
    int64_t at, offset, error; /* nanoseconds */
};

struct trace_file {
    char *path;
    struct json_doc doc;
    const char *job, *comm, *host, *clock_of;
    int rank, ranks, members;
    int64_t recorded, dropped;
    const struct json_value *events;
    int host_number;
};

/* A clock: that of a host. */
struct trace_host {
    const char *name;
    int to; /* the host whose clock it was compared with; -1: none, or it is the first host */
    struct trace_look *looks;
    size_t nlooks;
    int hops;      /* comparisons to the clock of the first host; -1: there is no way there */
    int64_t error; /* how far it may be wrong, in all */
};

/* A slice of a track, with its times on the clock of the first host. */
struct trace_slice {
    int file;
    const struct json_value *event, *args;
    int64_t at, ns;
    int64_t exec, run; /* -1: it has none */
};

struct trace_arrow {
    const char *id;
    int file;
    const struct json_value *event;
    int64_t at;
    bool ends;
    bool signal; /* from a notify to the wait that it ended; otherwise from a send to its receive */
    bool paired; /* its other end is there, too; those without are dropped */
    int other;   /* the file with the other end */
};

struct trace_files {
    struct trace_file *files;
    int n, ranks;
    struct trace_host *hosts;
    int nhosts, unaligned;      /* unaligned: hosts whose clocks were not compared with that of the first */
    struct trace_slice *slices; /* by begin; those that contain others first */
    size_t nslices;
    struct trace_arrow *arrows;
    size_t narrows;             /* ends */
    size_t signals;             /* arrows that are of signals */
    size_t unpaired, backwards; /* of messages; backwards: arrows that end before they begin, because of the clocks */
    int64_t begin;              /* of all */
};

/* Reads files, and of folders all weft-trace-*.json. They are of one job; refused otherwise. On failure nothing is left
 * to free. */
int trace_files_read(const char *const *paths, int n, struct trace_files *out, struct failure *f);
void trace_files_free(struct trace_files *t);

/* Of a slice's arguments; fallback: there is none. */
int64_t trace_files_int(const struct trace_files *t, const struct trace_slice *s, const char *key, int64_t fallback);
const char *trace_files_text(const struct trace_files *t, const struct trace_slice *s, const char *key);
bool trace_files_is(const struct trace_files *t, const struct trace_slice *s, const char *name);
#endif
