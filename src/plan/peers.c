/* Which ranks a rank talks to, and how many bytes it sends and receives. */
#include <stdlib.h>

#include "base/error.h"
#include "plan/plan.h"

static int by_rank(const void *a, const void *b)
{
    const weft_peer *x = a, *y = b;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

int weft_plan_peers(const weft_plan *p, weft_peer *out, size_t cap, size_t *n)
{
    if (!p || !n || (cap && !out))
        return error_set(WEFT_EINVAL, "plan: a NULL argument");
    weft_peer *all = malloc((p->nsteps + (plan_fold(p) ? plan_fold(p)->nsteps : 0) + 1) * sizeof *all);
    size_t messages = 0, peers = 0;
    if (!all)
        return error_nomem();
    for (const weft_plan *q = p; q; q = q == p ? plan_fold(p) : NULL)
        for (size_t i = 0; i < q->nsteps; i++) {
            const struct plan_step *s = &q->steps[i];
            if (s->kind == PLAN_SEND)
                all[messages++] = (weft_peer){.rank = s->peer, .sent = s->bytes, .sends = 1};
            else if (s->kind == PLAN_RECV)
                all[messages++] = (weft_peer){.rank = s->peer, .received = s->bytes, .recvs = 1};
        }
    qsort(all, messages, sizeof *all, by_rank);
    for (size_t i = 0; i < messages; i++) {
        if (!peers || all[peers - 1].rank != all[i].rank) {
            all[peers++] = all[i];
            continue;
        }
        all[peers - 1].sent += all[i].sent;
        all[peers - 1].received += all[i].received;
        all[peers - 1].sends += all[i].sends;
        all[peers - 1].recvs += all[i].recvs;
    }
    for (size_t i = 0; i < peers && i < cap; i++)
        out[i] = all[i];
    free(all);
    *n = peers;
    return 0;
}
