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
        case PLAN_RECV: break; /* the pipeline looks at the next one of each channel */
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

/* An eager message (own_signal) counts as settled even if a fold has yet to read it: that fold may wait for other
 * messages that are sent only when those behind this one are settled. The pipeline says at the end of some runs that
 * eager slots are free. Here that is said too early, which does no harm: on a channel with other messages to settle,
 * the sender cannot get more than one run ahead. */
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
    p->launchable |= out->posted < out->n; /* the next one may be eager */
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
