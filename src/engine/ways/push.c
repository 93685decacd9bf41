/* Messages that the sender writes where they belong: where its memory is walked in shorter spans than the receiver's
 * (way_pushes), it goes through that once for all its peers (order/weave.c, which does the copies). The counters change
 * roles: `done` says what may be written, from the start of a run on, and `ready` what has been. */
#include "engine/channel.h"

static bool fits(const struct way_ends *e)
{
    return e->pushes;
}

/* The weave posts it. */
static bool launch(weft_exec *x, struct exec_out *out, const struct exec_step *step)
{
    (void)x, (void)out, (void)step;
    return false;
}

static enum way_state take(weft_exec *x, struct exec_in *in, const struct exec_step *step, int64_t *bytes)
{
    (void)x, (void)in, (void)step;
    *bytes = 0;
    return WAY_OVER;
}

const struct way way_push = {
    .name = "push",
    .what = "the sender copies from its memory to the receiver's",
    .why = "the sender's memory is walked in shorter pieces",
    .pushed = true,
    .send_moves = WAY_MOVES_PLACES,
    .fits = fits,
    .launch = launch,
    .take = take,
};
