/* What a run that has not ended waits for: watch.c blames those peers, and who sleeps is woken by so many signals. */
#include "engine/block.h"

bool lack_in_waits(const weft_exec *x, const struct exec_in *in)
{
    if (x->program->chores.on)
        return chore_waits(x, in->peer);
    if (x->program->swaps.on)
        return swap_waits(x, in->peer);
    if (x->program->post.on)
        return post_in_waits(x, in);
    return in->taken < in->n && !x->program->open[in->steps[in->taken]] && !engine_arrived(x, in);
}

bool lack_out_waits(const weft_exec *x, const struct exec_out *out)
{
    const struct program *p = x->program;
    if (p->chores.on)
        return chore_waits(x, out->peer);
    if (p->swaps.on)
        return swap_waits(x, out->peer);
    if (p->post.on)
        return post_out_waits(x, out);
    uint64_t done = atomic_load_explicit(out->done, memory_order_seq_cst);
    if (out->retired < out->posted && out->base + out->retired >= done)
        return true;
    if (out->posted == out->n)
        return false;
    if (out->letters && x->run > LETTERS &&
        done < (x->run - LETTERS) * out->n) /* so far ahead one gets by letters alone */
        return true;
    uint32_t s = out->steps[out->posted];
    return !p->open[s] && p->steps[s].way == WAY_PUSH && out->base + out->posted >= done;
}

/* A rank that waits for arrivals and has read all that has come needs all of them to end its run; the same holds for
 * the peers that have yet to read or to open what they are sent. Which of the two comes last is not known. */
int lack_signals(const weft_exec *x)
{
    const struct program *p = x->program;
    int ins = 0, outs = 0, opens = 0;
    if (p->chores.on)
        return chore_lacking(x);
    if (p->swaps.on)
        return swap_lacking(x);
    if (p->far.n)
        return 1;
    for (uint32_t i = 0; i < p->nins; i++)
        ins += lack_in_waits(x, &p->ins[i]);
    for (uint32_t i = 0; i < p->nouts; i++) {
        bool waits = lack_out_waits(x, &p->outs[i]);
        outs += waits;
        opens += waits && (p->post.on ? !p->post.written : p->outs[i].posted < p->outs[i].n);
    }
    return opens ? opens : ins ? ins : outs ? outs : 1;
}
