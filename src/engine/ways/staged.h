/* Staged messages: staged.c. */
#ifndef WEFT_ENGINE_WAYS_STAGED_H
#define WEFT_ENGINE_WAYS_STAGED_H
#include "engine/way.h"

/* Finds the staged SENDs of the same data, which are packed once for several receivers. */
int staged_multicasts(const weft_exec *x, struct program *p);
#endif
