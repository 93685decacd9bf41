/* Interleaves the copies of several channels: weave.c. */
#ifndef WEFT_ENGINE_ORDER_WEAVE_H
#define WEFT_ENGINE_ORDER_WEAVE_H
#include "engine/way.h"

/* Chooses the pushes, pulls and local copies that are interleaved. Makes program.weave if there are any. */
int weave_make(weft_exec *x, struct program *p);
void weave_start(struct weave *w);        /* a run begins */
bool weave_pass(weft_exec *x, bool idle); /* as driver.pass */
#endif
