/* Helpers for making a program. */
#include "engine/program.h"

#include <string.h>

#include "engine/exec.h"
#include "transport/hosts/hosts.h"

void *program_take(struct program *p, size_t n, size_t size)
{
    void *v = arena_alloc(&p->arena, n ? n * size : 1);
    if (v)
        memset(v, 0, n ? n * size : 1);
    return v;
}

bool program_hears(const struct program *p, int peer)
{
    for (uint32_t i = 0; i < p->nins; i++)
        if (p->ins[i].peer == peer)
            return true;
    return false;
}

bool program_same_data(const weft_plan *plan, const struct plan_step *a, const struct plan_step *b)
{
    if (a->nparts != b->nparts || a->bytes != b->bytes)
        return false;
    for (uint32_t k = 0; k < a->nparts; k++) {
        const struct plan_part *pa = &plan->parts[a->part + k], *pb = &plan->parts[b->part + k];
        if (pa->buf != pb->buf || pa->wire != pb->wire || pa->offset != pb->offset || pa->count != pb->count)
            return false;
        size_t ndim = (size_t)plan_ndim(plan, pa);
        if (ndim && (memcmp(plan->runs + pa->runs, plan->runs + pb->runs, ndim * sizeof *plan->runs) ||
                     memcmp(plan->spots + pa->spots, plan->spots + pb->spots, ndim * sizeof *plan->spots)))
            return false;
    }
    return true;
}

/* Peers begin with the next higher rank, so that ranks do not all turn to the same peer first. */
static int turn_of(const weft_comm *c, int peer)
{
    return peer > c->rank ? peer - c->rank : peer - c->rank + c->size;
}

/* Merge sort: stable, and linear if the steps are in order already, as those of one stage of a plan are. */
static void sort_by_turn(const weft_exec *x, uint32_t *v, uint32_t *spare, uint32_t n)
{
    const struct plan_step *steps = x->plan->steps;
    if (n < 2)
        return;
    uint32_t h = n / 2, i = 0, j = h, k = 0;
    sort_by_turn(x, v, spare, h);
    sort_by_turn(x, v + h, spare, n - h);
    if (turn_of(x->comm, steps[v[h - 1]].peer) <= turn_of(x->comm, steps[v[h]].peer))
        return;
    memcpy(spare, v, h * sizeof *v);
    while (i < h)
        v[k++] =
            j < n && turn_of(x->comm, steps[v[j]].peer) < turn_of(x->comm, steps[spare[i]].peer) ? v[j++] : spare[i++];
}

static bool has_peer(const weft_exec *x, enum program_peers which, int peer)
{
    return which == PEERS_ALL || transport_elsewhere(x->comm->link, peer) == (which == PEERS_ELSEWHERE);
}

uint32_t program_messages(const weft_exec *x, int kind, enum program_peers which, uint32_t *steps, uint32_t *spare,
                          uint32_t *peers)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < x->plan->nsteps; s++) {
        const struct plan_step *st = &x->plan->steps[s];
        if (st->kind == kind && has_peer(x, which, st->peer))
            steps[n++] = s;
    }
    sort_by_turn(x, steps, spare, n);
    *peers = 0;
    for (uint32_t i = 0; i < n; i++)
        *peers += !i || x->plan->steps[steps[i]].peer != x->plan->steps[steps[i - 1]].peer;
    return n;
}

uint32_t program_run(const weft_exec *x, const uint32_t *steps, uint32_t n)
{
    uint32_t k = 1;
    while (k < n && x->plan->steps[steps[k]].peer == x->plan->steps[steps[0]].peer)
        k++;
    return k;
}
