/* The sums of channels with other hosts. */
#include "base/error.h"
#include "engine/proof.h"

static int dtype_of(const weft_exec *x, uint32_t part)
{
    return x->plan->bufs[x->plan->parts[part].buf].dtype;
}

/* The dtype of the part's tensor at the destination. */
static int dst_dtype(const weft_exec *x, uint32_t part)
{
    return plan_dst_dtype(x->plan, x->plan->bufs[x->plan->parts[part].buf].tensor);
}

/* A sender does not know the receiver's dtype. It sums the part as the message has it and, if that is another dtype, as
 * the destination has it. */
int proof_wire_parts(weft_exec *x, struct program *p, const struct wire_channel *ch, struct proof_part *parts)
{
    int err = 0;
    for (uint32_t k = 0; k < ch->n && !err; k++) {
        const struct plan_step *st = &x->plan->steps[ch->messages[k].step];
        if (!ch->sends)
            err = proof_fill_recv(x, p, ch->messages[k].step, parts);
        for (uint32_t part = st->part; part < st->part + st->nparts && !err; part++) {
            int wire = x->plan->parts[part].wire, dst = dst_dtype(x, part), here = dtype_of(x, part);
            if (ch->sends)
                err = proof_fill_part(x, p, part, wire, &parts[2 * part]);
            if (ch->sends && wire != dst && !err)
                err = proof_fill_part(x, p, part, dst, &parts[2 * part + 1]);
            if (!ch->sends && here != wire && here != dst)
                err = error_set(WEFT_EUNSUPPORTED,
                                "messages cannot be checked: a part of this plan is received as %s, neither as it is "
                                "sent (%s) nor as its tensor's destination (%s)",
                                weft_dtype_name(here), weft_dtype_name(wire), weft_dtype_name(dst));
        }
    }
    return err;
}

static uint32_t sums_of_part(const weft_exec *x, uint32_t part)
{
    return 1 + (x->plan->parts[part].wire != dst_dtype(x, part));
}

int proof_wire_make(weft_exec *x, struct program *p, struct wire_channel *ch)
{
    struct wire *wire = x->comm->link->hosts->wire;
    struct proof_channel *c = ch->proof = program_take(p, 1, sizeof *c);
    if (!c || !(c->first = program_take(p, ch->n, sizeof *c->first)))
        return error_nomem();
    for (uint32_t k = 0; k < ch->n; k++) {
        const struct plan_step *st = &x->plan->steps[ch->messages[k].step];
        c->first[k] = c->n;
        for (uint32_t q = 0; q < st->nparts; q++)
            c->n += sums_of_part(x, st->part + q);
    }
    c->sums = program_take(p, c->n, sizeof *c->sums);
    c->got = program_take(p, c->n, sizeof *c->got);
    if (!c->sums || !c->got)
        return error_nomem();
    return wire->ops->make(wire, ch->peer, ch->tag + ch->n, c->sums, c->n * sizeof *c->sums, ch->sends, &c->wire);
}

int proof_wire_began(weft_exec *x, struct wire_channel *ch)
{
    struct proof_channel *c = ch->proof;
    const struct plan_step *st = &x->plan->steps[ch->messages[ch->begun].step];
    uint32_t at = c->first[ch->begun];
    for (uint32_t part = st->part; ch->sends && part < st->part + st->nparts; part++)
        for (uint32_t i = 0; i < sums_of_part(x, part); i++)
            c->sums[at++] = proof_sent(x, NULL, 2 * part + i);
    return ch->begun + 1 == ch->n ? c->wire->wire->ops->start(c->wire) : 0;
}

int proof_wire_test(const struct wire_channel *ch)
{
    return ch->ended + 1 == ch->n ? ch->proof->wire->wire->ops->test(ch->proof->wire) : 1;
}

/* Compares what has come in message k. */
static bool compare(weft_exec *x, const struct wire_channel *ch, uint32_t k)
{
    const struct proof_channel *c = ch->proof;
    const struct plan_step *st = &x->plan->steps[ch->messages[k].step];
    uint32_t at = c->first[k];
    for (uint32_t part = st->part; part < st->part + st->nparts; part++) {
        bool cast = dtype_of(x, part) != x->plan->parts[part].wire; /* then it has the dtype of the destination */
        if (c->sums[at + cast] != c->got[at])
            return proof_came_fails(x, ch->peer, part, c->sums[at + cast], c->got[at]);
        at += sums_of_part(x, part);
    }
    x->checked++;
    return true;
}

bool proof_wire_came(weft_exec *x, struct wire_channel *ch)
{
    struct proof_channel *c = ch->proof;
    const struct plan_step *st = &x->plan->steps[ch->messages[ch->ended].step];
    uint32_t at = c->first[ch->ended];
    for (uint32_t part = st->part; part < st->part + st->nparts; part++) {
        c->got[at] = proof_sum(&x->program->proof->parts[2 * part]);
        at += sums_of_part(x, part);
    }
    bool good = true;
    for (uint32_t k = 0; ch->ended + 1 == ch->n && k < ch->n && good; k++)
        good = compare(x, ch, k);
    return good;
}
