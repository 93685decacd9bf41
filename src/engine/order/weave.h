/* Copies of several channels at once (weave.c). */
#ifndef WEFT_ENGINE_ORDER_WEAVE_H
#define WEFT_ENGINE_ORDER_WEAVE_H
#include "engine/way.h"

/* Which pushes, pulls and local copies are woven; makes program.weave if there are any. */
int weave_make(weft_exec *x, struct program *p);
void weave_start(struct weave *w); /* a run begins */
bool weave_pass(weft_exec *x, bool eager);
#endif
