/* The traces of all ranks as one file for Perfetto or chrome://tracing. */
#ifndef WEFT_CLI_TRACE_TRACE_MERGE_H
#define WEFT_CLI_TRACE_TRACE_MERGE_H
#include "cli/trace/trace_files.h"

/* Events ascend, and the first one begins at 0. Arrows that lack one end are left out. */
int trace_merge_write(const struct trace_files *t, const char *path, struct failure *f);
#endif
