/* What a run knows of its channels, and of the steps that wait for each other (drivers/pipeline.c says how they go on).
 */
#ifndef WEFT_ENGINE_CHANNEL_H
#define WEFT_ENGINE_CHANNEL_H
#include "engine/way.h"

/* A step is done as far as those that wait for it are concerned. */
void channel_release(struct program *p, const struct exec_step *step);

/* `ready` has been told for the channel's next message. Relaxed, so that looks at several peers do not wait for each
 * other: core_arm's fence comes before them where they are to be the last before a sleep, and whoever reads the message
 * then fences it from the look. */
static inline bool channel_ready(const struct exec_in *in)
{
    return atomic_load_explicit(in->ready, CORE_LOOK) > in->base + in->taken;
}
/* Is there something to take of the channel's next message? */
bool channel_arrived(const weft_exec *x, const struct exec_in *in);
bool channel_can_take(const weft_exec *x, const struct exec_in *in); /* and does it wait for nothing, in no weave? */

/* Tells the sender of the messages that have been read to the end. */
void channel_settle(weft_exec *x, struct exec_in *in);
void channel_pushed(weft_exec *x, struct exec_out *out); /* the first that was not posted has been */
void channel_pulled(weft_exec *x, struct exec_in *in);   /* the first that was not taken has been */
void channel_copied(weft_exec *x, uint32_t step);        /* a COPY or REDUCE is done */
#endif
