/* Temporary folders for the files of a job. The owner of a folder removes it. If the owner was killed, the next owner
 * of the same kind and user removes it. A folder is locked as long as its owner lives. */
#ifndef WEFT_TOOL_TEMP_FOLDER_H
#define WEFT_TOOL_TEMP_FOLDER_H
#include <stdbool.h>
#include <stddef.h>

struct temp_folder {
    char path[256]; /* empty: there is none */
    int lock;
};

/* Makes PLACE/weft-KIND-UID- and six letters at random, with mode 0700, after removing those whose owners are dead.
 * Place NULL: TMPDIR if it is set, otherwise /tmp. False: `why` says what is wrong. Children that do not exec share the
 * lock. */
bool temp_folder_make(const char *place, const char *kind, struct temp_folder *out, char *why, size_t cap);
void temp_folder_remove(struct temp_folder *f); /* with all that is in it */
#endif
