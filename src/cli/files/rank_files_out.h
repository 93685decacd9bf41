/* The files that a reshard writes: each is written beside its place, and they appear together or not at all. */
#ifndef WEFT_CLI_FILES_RANK_FILES_OUT_H
#define WEFT_CLI_FILES_RANK_FILES_OUT_H
#include "cli/files/rank_files.h"
#include "tool/failure.h"

/* A set of outputs. Zeroed, it is empty. While it has files that have not appeared, an interrupt removes them. */
struct rank_files_out {
    char **target, **temp, **backup;
    size_t n, cap;
};
/* Checks that the file can be put there. */
int rank_files_out_check(const struct rank_files_pattern *p, int rank, struct failure *why);
/* Writes one file beside its place and makes sure that it is on disk. */
int rank_files_out_add(struct rank_files_out *o, const struct rank_files_pattern *p,
                       const struct rank_files_piece *piece, const void *data, struct failure *why);
/* Puts all files in their places. If one cannot be put there, none is, and what was there before stays. */
int rank_files_out_commit(struct rank_files_out *o, struct failure *why);
void rank_files_out_free(struct rank_files_out *o); /* removes what has not appeared */
#endif
