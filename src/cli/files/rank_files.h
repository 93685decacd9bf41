/* The files of a reshard: one for each rank on either side, .npy or raw .bin. Inputs are checked against what the
 * layout says a rank holds. */
#ifndef WEFT_CLI_FILES_RANK_FILES_H
#define WEFT_CLI_FILES_RANK_FILES_H
#include <stdbool.h>
#include <stdint.h>

#include "tool/failure.h"
#include "weft.h"

enum rank_files_format { RANK_FILES_NPY = 1, RANK_FILES_BIN };

/* The names of all files of one side, e.g. "a/src.%r.npy": %r is the rank, %% a percent sign. */
struct rank_files_pattern {
    const char *option; /* for messages: "--in" */
    const char *text;
    enum rank_files_format format;
};
/* Returns an exit code. Several files (ranks > 1) need a %r. The end of the name is the format, which must be able to
 * hold dtype. */
int rank_files_pattern(struct rank_files_pattern *out, const char *option, const char *text, int64_t ranks, int dtype,
                       struct failure *why);
char *rank_files_name(const struct rank_files_pattern *p, int rank); /* malloc'ed; NULL when memory is out */

/* The contents of one file: the dense local buffer of a rank. */
struct rank_files_piece {
    int rank, dtype;
    const weft_local *local;
};
/* Checks the file against the layout. Reads only its header. */
int rank_files_check(const struct rank_files_pattern *p, const struct rank_files_piece *piece, struct failure *why);
/* Reads the file into data (local->bytes) and checks it again. */
int rank_files_read(const struct rank_files_pattern *p, const struct rank_files_piece *piece, void *data,
                    struct failure *why);
#endif
