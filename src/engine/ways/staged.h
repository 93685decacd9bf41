/* Staged messages: packed into a slot of the sender's pool, and unpacked from there. */
#ifndef WEFT_ENGINE_WAYS_STAGED_H
#define WEFT_ENGINE_WAYS_STAGED_H
#include "engine/way.h"

/* Which staged SENDs are packed once for several readers. */
int staged_multicasts(const weft_exec *x, struct program *p);
#endif
