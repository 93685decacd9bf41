/* Pulls of the driver onepass: messages that their receiver reads in place, in programs in which no message waits for
 * another one. At the start of a run a rank says that its messages may be read, and then reads those of its peers as
 * they say so. The run is over when the peers have read this rank's messages. What the pipeline keeps of a channel is
 * many cache lines, and the copies of a run drive them out of the cache before the next one. What is kept here is one
 * line for each message.
 *
 * A channel that is pulled has one message, so `ready` and `done` are numbers of runs. Signals are stored together. The
 * fence before them releases what this rank wrote for its peers, or has read of theirs. The fence behind them stands
 * between the stores and the looks at which ranks sleep, as in core_signal. Between two copies there is no store that
 * would wait for the first copy. */
#include <string.h>

#include "base/error.h"
#include "engine/drivers/onepass.h"
#include "engine/work.h"

#define PULLS (512 << 10) /* bytes of all pulls at most, since a pass copies all that may be read */

static bool fits_send(const struct program *p, const struct exec_step *step)
{
    return step->way == &way_pull && !step->nnext && p->outs[step->channel].n == 1;
}

static bool fits_recv(const struct program *p, const struct exec_step *step)
{
    return step->way == &way_pull && step->order != ORDER_WEAVE && p->ins[step->channel].n == 1;
}

bool onepass_pull_fits(const struct program *p, const struct exec_step *step, int64_t *bytes)
{
    if (step->kind == PLAN_SEND)
        return fits_send(p, step);
    *bytes += step->bytes;
    return fits_recv(p, step) && *bytes <= PULLS;
}

int onepass_pull_make(struct program *p, struct pulls *q)
{
    q->in = program_take(p, p->nins, sizeof *q->in);
    q->out = program_take(p, p->nouts, sizeof *q->out);
    if (!q->in || !q->out)
        return error_nomem();
    for (uint32_t i = 0; i < p->nins; i++) {
        const struct exec_in *in = &p->ins[i];
        const struct exec_step *step = &p->steps[in->steps[0]];
        const struct exec_move *m = &p->moves[step->work];
        bool plain = step->nwork == 1 && !m->tile;
        if (step->way != &way_pull)
            continue;
        q->in[q->nins++] = (struct pull_in){.ready = in->ready,
                                            .done = in->done,
                                            .dst = plain ? m->dst : NULL,
                                            .src = plain ? m->src : NULL,
                                            .bytes = plain ? m->bytes : 0,
                                            .step = in->steps[0],
                                            .peer = in->peer,
                                            .stays = p->readers0[in->steps[0]] > 0};
    }
    for (uint32_t i = 0; i < p->nouts; i++)
        if (p->steps[p->outs[i].steps[0]].way == &way_pull)
            q->out[q->nouts++] = (struct pull_out){p->outs[i].ready, p->outs[i].done, p->outs[i].peer};
    return 0;
}

/* ---- the run ---- */

static struct pulls *pulls_of(const weft_exec *x)
{
    return &((struct onepass *)driver_state(x))->pulls;
}

void onepass_pull_start(weft_exec *x)
{
    struct pulls *q = pulls_of(x);
    q->got = q->read = 0;
    for (uint32_t i = 0; i < q->nins; i++)
        q->in[i].state = PULL_DUE;
}

void onepass_pull_show(weft_exec *x)
{
    struct pulls *q = pulls_of(x);
    core_fence_tells();
    for (uint32_t i = 0; i < q->nouts; i++)
        core_tell(q->out[i].ready, x->run);
}

static void take(weft_exec *x, struct pull_in *in)
{
    if (in->dst)
        memcpy(in->dst, in->src, (size_t)in->bytes);
    else
        work_unpack(x->program, &x->program->steps[in->step], NULL);
    if (x->arrivals)
        arrivals_step(x, in->step);
}

bool onepass_pull_take(weft_exec *x)
{
    struct pulls *q = pulls_of(x);
    uint32_t before = q->got;
    for (uint32_t i = 0; i < q->nins; i++)
        if (q->in[i].state == PULL_DUE && atomic_load_explicit(q->in[i].ready, CORE_LOOK) >= x->run) {
            q->in[i].state = PULL_SHOWN;
            q->got++;
        }
    if (q->got == before)
        return false;
    core_fence_looks(); /* pairs with the stores of onepass_pull_show */
    for (uint32_t i = 0; i < q->nins; i++)
        if (q->in[i].state == PULL_SHOWN) {
            take(x, &q->in[i]);
            q->in[i].state = PULL_TAKEN;
        }
    return true;
}

bool onepass_pull_tell(weft_exec *x, bool all)
{
    struct pulls *q = pulls_of(x);
    bool any = false;
    for (uint32_t i = 0; i < q->nins; i++) {
        struct pull_in *in = &q->in[i];
        if (in->state != PULL_TAKEN || (in->stays && !all))
            continue;
        if (!any)
            core_fence_tells();
        any = true;
        core_tell(in->done, x->run);
        in->state = PULL_TOLD;
    }
    return any;
}

void onepass_pull_call(weft_exec *x)
{
    struct pulls *q = pulls_of(x);
    for (uint32_t i = 0; i < q->nins; i++)
        if (q->in[i].state == PULL_TOLD) {
            core_call_fenced(x->comm->group, q->in[i].peer);
            q->in[i].state = PULL_OVER;
        }
}

bool onepass_pull_read(weft_exec *x)
{
    struct pulls *q = pulls_of(x);
    while (q->read < q->nouts && atomic_load_explicit(q->out[q->read].done, CORE_LOOK) >= x->run)
        q->read++;
    if (q->read < q->nouts)
        return false;
    core_fence_looks(); /* pairs with the stores of onepass_pull_tell: the caller may write again */
    return true;
}
