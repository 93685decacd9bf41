#include "foresee/fair.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

struct level {
    double at; /* the rate at which the link was full when this was computed; it can only grow */
    uint32_t link;
};

struct fair {
    double *load, *left;    /* of the flows that are not settled; what the settled ones leave */
    uint32_t *live, *all;   /* flows that are not settled, and all */
    size_t *first;          /* of a link's flows in `on` */
    uint32_t *touched, *on; /* touched: the links that the flows of the last call use */
    struct level *heap;
    size_t on_cap, ntouched;
};

struct fair *fair_new(size_t links)
{
    struct fair *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    size_t n = links + 1;
    f->load = malloc(n * sizeof *f->load);
    f->left = malloc(n * sizeof *f->left);
    f->live = malloc(n * sizeof *f->live);
    f->all = calloc(n, sizeof *f->all);
    f->first = malloc(n * sizeof *f->first);
    f->touched = malloc(n * sizeof *f->touched);
    f->heap = malloc(n * sizeof *f->heap);
    if (f->load && f->left && f->live && f->all && f->first && f->touched && f->heap)
        return f;
    fair_free(f);
    return NULL;
}

void fair_free(struct fair *f)
{
    if (!f)
        return;
    free(f->load);
    free(f->left);
    free(f->live);
    free(f->all);
    free(f->first);
    free(f->touched);
    free(f->heap);
    free(f->on);
    free(f);
}

uint32_t fair_sharers(const struct fair *f, uint32_t link)
{
    return f->all[link];
}

static bool before(const struct level *a, const struct level *b)
{
    return a->at < b->at || (a->at == b->at && a->link < b->link);
}

static void sink(struct level *heap, size_t n, size_t i)
{
    struct level x = heap[i];
    for (size_t k; (k = 2 * i + 1) < n; i = k) {
        if (k + 1 < n && before(&heap[k + 1], &heap[k]))
            k++;
        if (!before(&heap[k], &x))
            break;
        heap[i] = heap[k];
    }
    heap[i] = x;
}

/* Lists the flows of each link. Returns how many links have flows. */
static size_t gather(struct fair *f, const double *cap, struct fair_flow *const *flows, size_t n, size_t *entries)
{
    size_t touched = 0, at = 0;
    for (size_t i = 0; i < f->ntouched; i++)
        f->all[f->touched[i]] = 0;
    for (size_t i = 0; i < n; i++) {
        fair_ahead(flows, i, n);
        for (int k = 0; k < flows[i]->uses; k++) {
            uint32_t link = flows[i]->use[k].link;
            if (!f->all[link]++) {
                f->touched[touched++] = link;
                f->load[link] = 0;
                f->left[link] = cap[link];
            }
        }
    }
    for (size_t i = 0; i < touched; i++) {
        f->first[f->touched[i]] = at;
        at += f->all[f->touched[i]];
        f->live[f->touched[i]] = 0;
    }
    *entries = at;
    return f->ntouched = touched;
}

/* How fast the flow grows. */
static double weight(const struct fair *f, const struct fair_flow *flow)
{
    return flow->turns < 0 ? 1 : 1.0 / f->all[flow->use[flow->turns].link];
}

static void settle(struct fair *f, struct fair_flow *flow, double level, uint32_t link)
{
    double own = weight(f, flow), rate = own * level;
    flow->rate = rate;
    flow->narrow = link;
    for (int k = 0; k < flow->uses; k++) {
        uint32_t u = flow->use[k].link;
        f->left[u] -= (double)flow->use[k].each * rate;
        f->load[u] -= own * (double)flow->use[k].each;
        f->live[u]--;
    }
}

int fair_solve(struct fair *f, const double *cap, struct fair_flow *const *flows, size_t n)
{
    size_t entries;
    size_t heaped = gather(f, cap, flows, n, &entries);
    if (entries > f->on_cap) {
        uint32_t *on = realloc(f->on, 2 * entries * sizeof *on);
        if (!on)
            return -1;
        f->on = on;
        f->on_cap = 2 * entries;
    }
    for (size_t i = 0; i < n; i++) {
        fair_ahead(flows, i, n);
        double own = weight(f, flows[i]);
        flows[i]->rate = flows[i]->uses ? -1 : INFINITY;
        flows[i]->narrow = FAIR_NONE;
        for (int k = 0; k < flows[i]->uses; k++) {
            uint32_t link = flows[i]->use[k].link;
            f->load[link] += own * (double)flows[i]->use[k].each;
            f->on[f->first[link] + f->live[link]++] = (uint32_t)i;
        }
    }
    for (size_t i = 0; i < heaped; i++)
        f->heap[i] = (struct level){f->left[f->touched[i]] / f->load[f->touched[i]], f->touched[i]};
    for (size_t i = heaped; i-- > 0;)
        sink(f->heap, heaped, i);
    /* Full links come in order of their levels. A level that has grown since it was computed goes back into the heap.
     */
    while (heaped) {
        uint32_t link = f->heap[0].link;
        double now = f->live[link] ? fmax(f->left[link], 0) / f->load[link] : -1;
        if (f->live[link] && now > f->heap[0].at * (1 + 1e-12)) {
            f->heap[0].at = now;
        } else {
            for (uint32_t i = 0; i < f->all[link] && f->live[link]; i++) {
                struct fair_flow *flow = flows[f->on[f->first[link] + i]];
                if (flow->rate < 0)
                    settle(f, flow, f->heap[0].at, link);
            }
            f->heap[0] = f->heap[--heaped];
        }
        if (heaped)
            sink(f->heap, heaped, 0);
    }
    return 0;
}
