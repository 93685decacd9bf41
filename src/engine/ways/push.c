/* Zero-copy by the sender: it writes the message into the receiver's memory. It is chosen if many ranks send to
 * few, which would copy for them all otherwise, or if the spans of the sender's memory are shorter than the receiver's
 * (way.c): the sender then walks through its own memory once, for all its peers.
 * order/weave.c does the copies. The counters change their roles: `done` says which messages may be written, from the
 * start of a run on, and `ready` which have been written. */
#include "engine/channel.h"

static bool fits(const struct way_ends *e)
{
    return e->pushes;
}

/* order/weave.c does it. */
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
    .why = "the sender's memory is walked in shorter pieces, or many ranks send to few",
    .pushed = true,
    .send_moves = WAY_MOVES_PLACES,
    .fits = fits,
    .launch = launch,
    .take = take,
};
