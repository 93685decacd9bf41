/* Zero-copy by the receiver: it reads the message in the sender's memory and writes it to its own. This takes one copy
 * and the fewest signals. A message that only a fold needs is not copied at all: the fold reads it in the sender's
 * memory (fill.c). It is what is left for messages that have no better way (way.c). */
#include "engine/way.h"
#include "engine/work.h"

static enum way_state take(weft_exec *x, struct exec_in *in, const struct exec_step *step, int64_t *bytes)
{
    (void)in;
    work_unpack(x->program, step, NULL);
    *bytes = step->nwork ? step->bytes : 0;
    return WAY_OVER;
}

static bool fits(const struct way_ends *e)
{
    (void)e;
    return true;
}

const struct way way_pull = {
    .name = "pull",
    .what = "the receiver copies from the sender's memory to its own",
    .why = "the receiver can reach the memory",
    .basic = true,
    .told = true,
    .recv_moves = WAY_MOVES_PLACES,
    .folds = WAY_FOLDS_PLACE,
    .fits = fits,
    .take = take,
};
