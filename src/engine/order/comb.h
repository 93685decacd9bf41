/* Staged messages of several channels, packed and unpacked side by side (comb.c). */
#ifndef WEFT_ENGINE_ORDER_COMB_H
#define WEFT_ENGINE_ORDER_COMB_H
#include "engine/way.h"

/* Which staged messages are combed. */
int comb_make(const weft_exec *x, struct program *p);
/* Launches the channel's message: packs it together with those of later channels that can go and get a slot. */
bool comb_launch(weft_exec *x, struct exec_out *out, const struct exec_step *step);
/* Is it better to wait until what is unpacked together with the channel's next message has come, too? */
bool comb_waits(const weft_exec *x, const struct exec_in *in);
/* Unpacks the channel's message, which is there, together with those of later channels; returns their bytes. */
int64_t comb_take(weft_exec *x, const struct exec_in *first);
#endif
