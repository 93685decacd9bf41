/* Comparing what has come with what was sent. */
#include <inttypes.h>

#include "base/text.h"
#include "engine/proof.h"

static void put_box(const weft_plan *p, const struct plan_part *part, struct text *t)
{
    text_put(t, "[");
    for (int d = 0; d < plan_ndim(p, part); d++) {
        const struct plan_run *r = &p->runs[part->runs + (uint32_t)d];
        text_printf(t, "%s%" PRId64 ":%" PRId64, d ? ", " : "", r->at, r->at + r->len);
        if (r->n > 1)
            text_printf(t, "+%" PRId64 "*%" PRId64, r->step, r->n);
    }
    text_put(t, "]");
}

bool proof_came_fails(weft_exec *x, int peer, uint32_t part, uint64_t sent, uint64_t got)
{
    const weft_plan *p = x->plan;
    const struct plan_part *pp = &p->parts[part];
    char who[NAMES_RANK], name[VIEW_NAME], box[CORE_TEXT / 2];
    struct text t = text_start(box, sizeof box);
    put_box(p, pp, &t);
    comm_fail(x->comm, WEFT_ETRANSPORT,
              "rank %d got a message of %s that is not what was sent: %s, box %s, run %" PRIu64 ": the sender summed "
              "%016" PRIx64 ", the receiver %016" PRIx64,
              x->comm->rank, names_rank(x->comm, peer, who), view_tensor(p, p->bufs[pp->buf].tensor, name), box, x->run,
              sent, got);
    return false;
}

void proof_came_sum(weft_exec *x, const struct exec_in *in)
{
    const struct plan_step *st = &x->plan->steps[in->steps[in->taken]];
    for (uint32_t q = 0; q < st->nparts; q++) {
        struct proof_part *c = &x->program->proof->parts[2 * (st->part + q)];
        c->sum = proof_sum(c);
    }
}

bool proof_came(weft_exec *x, const struct exec_in *in)
{
    const struct plan_step *st = &x->plan->steps[in->steps[in->taken]];
    const uint64_t *sent = proof_sums(x, in->block) + in->sends[in->taken].part;
    for (uint32_t q = 0; q < st->nparts; q++) {
        uint64_t got = x->program->proof->parts[2 * (st->part + q)].sum;
        if (got != sent[q])
            return proof_came_fails(x, in->peer, st->part + q, sent[q], got);
    }
    x->checked++;
    return true;
}
