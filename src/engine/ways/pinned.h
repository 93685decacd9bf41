/* Messages through slots of pinned memory: pinned.c. */
#ifndef WEFT_ENGINE_WAYS_PINNED_H
#define WEFT_ENGINE_WAYS_PINNED_H
#include "engine/exec.h"

/* Gives the SENDs of a carried exec their slots in the control block, from the plan alone. */
int pinned_outline(weft_exec *x, struct program *p);
/* The slots count against the comm's staging memory as long as the exec lives. */
void pinned_free(weft_exec *x);
#endif
