/* What a run of the pipeline (drivers/pipeline.c) knows of its channels, and of the steps that wait for each other. */
#ifndef WEFT_ENGINE_CHANNEL_H
#define WEFT_ENGINE_CHANNEL_H
#include "engine/way.h"

/* The steps that wait for this one may go on. */
void channel_release(struct program *p, const struct exec_step *step);

/* Does `ready` say that the channel's next message is there? Relaxed, so that the loads for several peers do not wait
 * for each other. Before a sleep, core_arm's fence comes before these loads. A caller that then reads the message has a
 * fence between this load and that (core_fence_looks). */
static inline bool channel_ready(const struct exec_in *in)
{
    return atomic_load_explicit(in->ready, CORE_LOOK) > in->base + in->taken;
}
/* Is there something to take of the channel's next message? */
bool channel_arrived(const weft_exec *x, const struct exec_in *in);
/* Has it arrived, waits for no other step, and is not copied by the weave? */
bool channel_can_take(const weft_exec *x, const struct exec_in *in);

/* Tells the sender how many messages have been read to the end. */
void channel_settle(weft_exec *x, struct exec_in *in);
void channel_pushed(weft_exec *x, struct exec_out *out); /* the channel's next message has been pushed */
void channel_pulled(weft_exec *x, struct exec_in *in);   /* the channel's next message has been taken */
void channel_copied(weft_exec *x, uint32_t step);        /* a COPY or REDUCE is done */
#endif
