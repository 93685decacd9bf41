/* Counters of channels, and queues of steps that can go. */
#include "engine/channel.h"

void channel_release(struct program *p, const struct exec_step *step)
{
    for (uint32_t k = 0; k < step->nnext; k++) {
        uint32_t s = p->next[step->next + k];
        if (--p->open[s])
            continue;
        switch (p->steps[s].kind) {
        case PLAN_SEND: p->launchable = true; break;
        case PLAN_RECV: break; /* receive looks at the first of each channel */
        default:
            if (p->steps[s].urgent)
                p->urgent[p->urgent_tail++] = s;
            else
                p->lazy[p->lazy_tail++] = s;
        }
    }
}

bool channel_arrived(const weft_exec *x, const struct exec_in *in)
{
    const struct exec_step *step = &x->program->steps[in->steps[in->taken]];
    return step->way->arrived ? step->way->arrived(x, in, step) : channel_ready(in);
}

bool channel_can_take(const weft_exec *x, const struct exec_in *in)
{
    const struct program *p = x->program;
    return in->taken < in->n && !p->open[in->steps[in->taken]] && p->steps[in->steps[in->taken]].order != ORDER_WEAVE &&
           channel_arrived(x, in);
}

/* Messages of slots that nobody tells of do not count: a fold may read one when others have come that need what is
 * behind it. That eager slots are free is told by the pipeline at the end of some runs; here it is told too early, but
 * where there is something else to tell, the sender cannot get more than a run ahead. */
void channel_settle(weft_exec *x, struct exec_in *in)
{
    struct program *p = x->program;
    bool tell = false;
    for (; in->settled < in->taken; in->settled++) {
        uint32_t s = in->steps[in->settled];
        const struct way *way = p->steps[s].way;
        if (!way->own_signal && p->readers[s])
            break;
        tell |= way->told;
    }
    if (tell)
        core_signal(x->comm->group, in->peer, in->done, in->base + in->settled);
}

void channel_pushed(weft_exec *x, struct exec_out *out)
{
    struct program *p = x->program;
    const struct exec_step *step = &p->steps[out->steps[out->posted]];
    if (out->retired == out->posted++)
        out->retired++;
    p->unposted--;
    p->left--;
    core_signal(x->comm->group, out->peer, out->ready, out->base + out->posted);
    channel_release(p, step);
    p->launchable |= out->posted < out->n; /* an eager message may be next */
}

void channel_pulled(weft_exec *x, struct exec_in *in)
{
    struct program *p = x->program;
    const struct exec_step *step = &p->steps[in->steps[in->taken++]];
    p->left--;
    channel_settle(x, in);
    channel_release(p, step);
    if (x->arrivals)
        arrivals_step(x, (uint32_t)(step - p->steps));
}

void channel_copied(weft_exec *x, uint32_t step)
{
    struct program *p = x->program;
    p->left--;
    channel_release(p, &p->steps[step]);
    if (x->arrivals)
        arrivals_step(x, step);
}
