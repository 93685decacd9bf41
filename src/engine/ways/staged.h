/* Staged messages: packed into a slot of the sender's pool, or of its block (eager_large.c), and unpacked from there.
 * stream.c and order/comb.c pack and unpack the same slots in other orders. */
#ifndef WEFT_ENGINE_WAYS_STAGED_H
#define WEFT_ENGINE_WAYS_STAGED_H
#include "engine/way.h"

/* Which staged SENDs are packed once for several readers. */
int staged_multicasts(const weft_exec *x, struct program *p);
/* Takes a slot for a message of this run; false: not now. */
bool staged_slot(weft_exec *x, struct exec_multicast *m);
const char *staged_message(const weft_exec *x, const struct exec_in *in); /* where the channel's next message is */

/* Of both staged ways: */
void staged_describe(weft_exec *x, struct program *p, uint32_t s, struct block_message *m);
int staged_accept(weft_exec *x, struct program *p, const struct exec_in *in, uint32_t k, struct exec_step *step);
void staged_retire(weft_exec *x, struct exec_out *out, const struct exec_step *step);
/* Shows a message that has been packed into its slot. */
void staged_show(weft_exec *x, struct exec_out *out, const struct exec_step *step);
#endif
