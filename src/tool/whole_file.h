/* A file that is read as a whole, at most 256 MiB, and whose texts are shown on a terminal. */
#ifndef WEFT_TOOL_WHOLE_FILE_H
#define WEFT_TOOL_WHOLE_FILE_H
#include "tool/failure.h"

/* *out is malloc'd, and a zero follows the bytes. On failure there is nothing to free. */
int whole_file_read(const char *path, char **out, size_t *len, struct failure *f);
/* Terminals must not obey the contents of a file: removes control characters, those of ASCII and U+0080 to U+009F. */
void whole_file_tame(char *bytes, size_t len);
#endif
