/* The metrics of all ranks of weft run: the files that they write into a folder, as one text. */
#ifndef WEFT_CLI_RUN_RUN_METRICS_H
#define WEFT_CLI_RUN_RUN_METRICS_H
#include <stddef.h>

/* folder: a path. Writes the text with a zero behind it into cap bytes, as far as it fits. Returns its length. */
size_t run_metrics_text(void *folder, char *out, size_t cap);
#endif
