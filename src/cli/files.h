/* The files of a reshard: one for each rank on either side, .npy or raw .bin. Inputs are checked against what the
 * layout says a rank holds. Outputs are written beside their places and appear together, or not at all. */
#ifndef WEFT_CLI_FILES_H
#define WEFT_CLI_FILES_H
#include <stdbool.h>
#include <stdint.h>

#include "cli/cli.h"
#include "weft.h"

enum files_format { FILES_NPY = 1, FILES_BIN };

/* The names of all files of one side, e.g. "a/src.%r.npy": %r is the rank, %% a percent sign. */
struct files_pattern {
    const char *option; /* for messages: "--in" */
    const char *text;
    enum files_format format;
};
/* Exit code. Several files (ranks > 1) need a %r; the format is the end of the name and must be able to hold dtype. */
int files_pattern(struct files_pattern *out, const char *option, const char *text, int64_t ranks, int dtype,
                  struct failure *why);
char *files_name(const struct files_pattern *p, int rank); /* malloc'ed; NULL when memory is out */

/* What stands in one file: the dense local buffer of a rank. */
struct files_piece {
    int rank, dtype;
    const weft_local *local;
};
/* Is the file what the layout says? Reads its header only. */
int files_check(const struct files_pattern *p, const struct files_piece *piece, struct failure *why);
/* Reads it into data (local->bytes); checks it again. */
int files_read(const struct files_pattern *p, const struct files_piece *piece, void *data, struct failure *why);

/* A set of outputs. Zeroed, it is empty. While it has files that have not appeared, an interrupt removes them. */
struct files_out {
    char **target, **temp, **backup;
    size_t n, cap;
};
/* Could the file be put there? */
int files_out_check(const struct files_pattern *p, int rank, struct failure *why);
/* Writes one file beside its place and makes sure that it is on disk. */
int files_out_add(struct files_out *o, const struct files_pattern *p, const struct files_piece *piece, const void *data,
                  struct failure *why);
/* Puts all files in their places; if one cannot be, none is, and what stood there before stays. */
int files_out_commit(struct files_out *o, struct failure *why);
void files_out_free(struct files_out *o); /* removes what has not appeared */
#endif
