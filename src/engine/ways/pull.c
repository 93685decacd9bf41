/* Messages that the receiver reads where they are and writes where they belong: one copy, and the fewest signals.
 *
 * A message is cut into buckets along a dim of the tensor. Where the receiver has that dim nearest in memory and the
 * sender has not, a pull transposes, and each bucket breaks off the spans that it writes before the page ends that they
 * are in. So buckets of a channel that continue where the one before ends, and that are there by the time it is taken,
 * are pulled as one. */
#include "engine/channel.h"
#include "engine/work.h"

#define MOST (16 << 20) /* bytes that are pulled together: a millisecond in which the rank does nothing else */

static bool plain(const struct exec_step *s)
{
    return s->way == &way_pull && s->nwork == 1 && s->order == ORDER_NONE;
}

/* Is b what comes behind a in dst's nearest loop, which is not src's? */
static bool continues(const struct exec_move *a, const struct exec_move *b)
{
    const struct memory_tile *t = a->tile, *u = b->tile;
    if (!t || !u || t->loops < 2 || t->loops != u->loops || a->to != b->to || a->from != b->from)
        return false;
    int last = t->loops - 1;
    for (int i = 0; i <= last; i++)
        if ((i < last && t->n[i] != u->n[i]) || t->stride[0][i] != u->stride[0][i] ||
            t->stride[1][i] != u->stride[1][i])
            return false;
    return t->stride[0][last] == (int64_t)weft_dtype_size(a->to) &&
           t->stride[1][last] != (int64_t)weft_dtype_size(a->from) &&
           (uintptr_t)b->dst - (uintptr_t)a->dst == (uintptr_t)(t->n[last] * t->stride[0][last]) &&
           (uintptr_t)b->src - (uintptr_t)a->src == (uintptr_t)(t->n[last] * t->stride[1][last]);
}

static void complete(weft_exec *x, struct program *p)
{
    for (uint32_t i = 0; i < p->nins && !(x->off & toggle_extra(TOGGLE_CONTINUED)); i++)
        for (uint32_t k = 1; k < p->ins[i].n; k++) {
            struct exec_step *a = &p->steps[p->ins[i].steps[k - 1]], *b = &p->steps[p->ins[i].steps[k]];
            a->continues = plain(a) && plain(b) && continues(&p->moves[a->work], &p->moves[b->work]);
        }
}

/* Takes the message, and those that continue it and have come, too. */
static int64_t take_continued(weft_exec *x, struct exec_in *in, const struct exec_step *step)
{
    const struct program *p = x->program;
    const struct exec_move *m = &p->moves[step->work];
    struct memory_tile all = *m->tile;
    uint64_t there = atomic_load_explicit(in->ready, CORE_LOOK) - in->base;
    int64_t bytes = step->bytes;
    uint32_t n = 1;
    for (; step->continues && in->taken + n < there && bytes < MOST; n++) {
        uint32_t next = in->steps[in->taken + n];
        if (p->open[next])
            break;
        step = &p->steps[next];
        all.n[all.loops - 1] += p->moves[step->work].tile->n[all.loops - 1];
        bytes += step->bytes;
    }
    core_fence_looks(); /* pairs with the store that has been seen */
    memory_copy(&all, m->dst, m->to, m->src, m->from);
    for (; n > 1; n--)
        channel_pulled(x, in);
    return bytes;
}

static enum way_state take(weft_exec *x, struct exec_in *in, const struct exec_step *step, int64_t *bytes)
{
    if (step->continues) {
        *bytes = take_continued(x, in, step);
        return WAY_OVER;
    }
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
    .complete = complete,
    .take = take,
};
