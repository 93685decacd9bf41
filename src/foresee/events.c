#include "foresee/events.h"
#include "base/heap.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/defaults.h"

/* A node that is under way. */
struct flow {
    double left; /* bytes, when the rate was set */
    double rate; /* that it has had since then; 0: none yet */
    uint32_t node;
    struct fair_flow fair;
};

/* Something that will be there at a time: a message, or local work that is done. */
struct arrival {
    double at;
    uint32_t node;
};

struct channel_state {
    uint32_t next; /* node, or GRAPH_NONE */
    uint32_t sent, arrived;
    bool busy;
};

/* The work inside a rank: nodes that can begin, in order, linked by `after`. */
struct rank_state {
    uint32_t head, tail;
    bool busy;
};

struct sim {
    const struct graph *g;
    struct events *out;
    struct fair *fair;
    struct channel_state *channels;
    struct rank_state *ranks;
    uint32_t *waits, *after;
    VEC(struct fair_flow *) flows; /* each is a member of a struct flow */
    VEC(double) ends;              /* when each of them ends, if nothing changes before */
    VEC(struct flow *) spare, over;
    bool *slack; /* links that are never full, whatever the flows, and need not be looked at */
    VEC(struct arrival) heap;
    double now, window; /* window: the least, while many flows are under way */
    bool changed, failed;
};

/* ---- arrivals, the earliest first ---- */

static bool earlier(const struct arrival *a, const struct arrival *b)
{
    return a->at < b->at || (a->at == b->at && a->node < b->node);
}

static void push_arrival(struct sim *s, double at, uint32_t node)
{
    if (!vec_room(&s->heap, 1)) {
        s->failed = true;
        return;
    }
    struct arrival x = {at, node};
    HEAP_PUSH(&s->heap, x, earlier);
}

static struct arrival pop_arrival(struct sim *s)
{
    struct arrival first;
    HEAP_POP(&s->heap, first, earlier);
    return first;
}

/* ---- starting and ending ---- */

static void start(struct sim *s, uint32_t node, uint32_t cause)
{
    struct flow *f = s->spare.n ? s->spare.v[--s->spare.n] : malloc(sizeof *f);
    if (!f || !vec_room(&s->flows, 1) || !vec_room(&s->ends, 1)) {
        free(f);
        s->failed = true;
        return;
    }
    const struct graph_node *n = &s->g->nodes.v[node];
    f->node = node;
    f->left = n->load.bytes > 0 ? n->load.bytes : 1;
    f->rate = 0;
    int uses = links_uses(s->g->links, &n->load, f->fair.use);
    f->fair.uses = 0;
    for (int k = 0; k < uses; k++)
        if (!s->slack[f->fair.use[k].link])
            f->fair.use[f->fair.uses++] = f->fair.use[k];
    s->flows.v[s->flows.n++] = &f->fair;
    s->ends.v[s->ends.n++] = INFINITY;
    struct events_span *x = &s->out->span[node];
    x->start = s->now;
    x->cause = cause;
    s->changed = true;
}

static void start_channel(struct sim *s, uint32_t channel, uint32_t cause)
{
    struct channel_state *c = &s->channels[channel];
    if (c->busy || c->next == GRAPH_NONE || s->waits[c->next])
        return;
    if (s->g->nodes.v[c->next].slots && c->sent - c->arrived >= DEFAULTS_CHANNEL_BUCKETS)
        return;
    c->busy = true;
    start(s, c->next, cause);
}

static void start_rank(struct sim *s, int rank, uint32_t cause)
{
    struct rank_state *r = &s->ranks[rank];
    if (r->busy || r->head == GRAPH_NONE)
        return;
    uint32_t node = r->head;
    r->head = s->after[node];
    r->busy = true;
    start(s, node, cause);
}

/* All that the node waits for is there. */
static void ready(struct sim *s, uint32_t node, uint32_t cause)
{
    const struct graph_node *n = &s->g->nodes.v[node];
    s->out->span[node].ready = s->now;
    if (n->channel != GRAPH_NONE) {
        start_channel(s, n->channel, cause);
        return;
    }
    struct rank_state *r = &s->ranks[n->load.from];
    s->after[node] = GRAPH_NONE;
    if (r->head == GRAPH_NONE)
        r->head = node;
    else
        s->after[r->tail] = node;
    r->tail = node;
    start_rank(s, n->load.from, cause);
}

static void end_flow(struct sim *s, struct flow *f, double at)
{
    const struct graph_node *n = &s->g->nodes.v[f->node];
    struct events_span *x = &s->out->span[f->node];
    double there = at + links_latency(s->g->links, n->load.from, n->load.to);
    x->end = at;
    x->narrow = f->fair.narrow;
    x->sharers = x->narrow == FAIR_NONE ? 0 : fair_sharers(s->fair, x->narrow);
    push_arrival(s, there, f->node);
    if (there > s->out->total) {
        s->out->total = there;
        s->out->last = f->node;
    }
    if (n->channel != GRAPH_NONE) {
        struct channel_state *c = &s->channels[n->channel];
        s->out->moved += n->load.bytes;
        c->busy = false;
        c->sent++;
        c->next = n->next;
        start_channel(s, n->channel, f->node);
    } else {
        s->ranks[n->load.from].busy = false;
        start_rank(s, n->load.from, f->node);
    }
    s->changed = true;
}

static void arrive(struct sim *s, uint32_t node)
{
    const struct graph *g = s->g;
    for (uint32_t i = g->first[node]; i < g->first[node + 1]; i++)
        if (--s->waits[g->edges.v[i].to] == 0)
            ready(s, g->edges.v[i].to, node);
    if (g->nodes.v[node].channel != GRAPH_NONE) {
        s->channels[g->nodes.v[node].channel].arrived++;
        start_channel(s, g->nodes.v[node].channel, node);
    }
}

/* ---- time ---- */

static struct flow *flow_of(struct fair_flow *f)
{
    return (struct flow *)(void *)((char *)f - offsetof(struct flow, fair));
}

/* When flows end whose rates have changed. */
static void take_rates(struct sim *s)
{
    for (size_t i = 0; i < s->flows.n; i++) {
        fair_ahead(s->flows.v, i, s->flows.n);
        struct flow *f = flow_of(s->flows.v[i]);
        if (f->fair.rate == f->rate)
            continue;
        if (f->rate > 0)
            f->left = isinf(f->rate) ? 0 : fmax(0, (s->ends.v[i] - s->now) * f->rate);
        f->rate = f->fair.rate;
        s->ends.v[i] = isinf(f->rate) ? s->now : s->now + f->left / f->rate;
    }
}

/* The first time at which a flow ends, or something arrives. */
static double next_time(const struct sim *s)
{
    double next = s->heap.n ? s->heap.v[0].at : INFINITY;
    for (size_t i = 0; i < s->ends.n; i++)
        next = s->ends.v[i] < next ? s->ends.v[i] : next;
    return next;
}

/* Lets all flows run until `to`, and ends those that are over within `reach` of the next event. */
static void advance(struct sim *s, double next, double reach)
{
    double to = next;
    for (size_t i = 0; i < s->ends.n; i++)
        if (s->ends.v[i] <= reach && s->ends.v[i] > to)
            to = s->ends.v[i];
    size_t kept = 0, n = s->flows.n;
    bool window = reach > next * (1 + 1e-8) + 1e-3;
    s->over.n = 0;
    if (!vec_room(&s->over, n) || !vec_room(&s->spare, n)) {
        s->failed = true;
        return;
    }
    /* Those that are over go behind the others, in the order in which they started. */
    for (size_t i = 0; i < n; i++) {
        if (s->ends.v[i] > to) {
            s->flows.v[kept] = s->flows.v[i];
            s->ends.v[kept++] = s->ends.v[i];
            continue;
        }
        struct flow *f = flow_of(s->flows.v[i]);
        f->left = window ? s->ends.v[i] : to; /* from here on: when it ended */
        s->over.v[s->over.n++] = f;
    }
    s->flows.n = s->ends.n = kept;
    s->now = to;
    for (size_t i = 0; i < s->over.n; i++) {
        end_flow(s, s->over.v[i], s->over.v[i]->left);
        s->spare.v[s->spare.n++] = s->over.v[i];
    }
    while (s->heap.n && s->heap.v[0].at <= s->now)
        arrive(s, pop_arrival(s).node);
}

/* ---- links that are never full ---- */

/* What a byte of a load takes of a link; 0: nothing. */
static double taken(const struct fair_use *use, int uses, uint32_t link)
{
    for (int k = 0; k < uses; k++)
        if (use[k].link == link)
            return (double)use[k].each;
    return 0;
}

/* A rank's core, or its device's memory, is never full if its ports and NICs cannot carry enough messages for that.
 * Most cores are such links where NICs move data by themselves: rates are computed in half the time without them. */
static bool find_slack(struct sim *s)
{
    enum { OWN = 2, CARRIERS = 4 };
    static const enum links_kind own[OWN] = {LINKS_CORE, LINKS_MEMORY};
    static const enum links_kind carries[CARRIERS] = {LINKS_OUT, LINKS_IN, LINKS_NIC_OUT, LINKS_NIC_IN};
    const struct links *l = s->g->links;
    size_t ranks = (size_t)l->world;
    double(*most)[OWN][CARRIERS] = calloc(ranks + 1, sizeof *most), cap[CARRIERS];
    s->slack = calloc(links_count(l) + 1, sizeof *s->slack);
    if (!most || !s->slack) {
        free(most);
        return false;
    }
    for (int c = 0; c < CARRIERS; c++)
        cap[c] = l->cap[l->first[carries[c]]];
    for (size_t i = 0; i < s->g->nodes.n; i++) {
        const struct links_load *x = &s->g->nodes.v[i].load;
        struct fair_use use[FAIR_USES];
        int uses = links_uses(l, x, use);
        for (int end = 0; end < 2; end++) {
            int rank = end ? x->to : x->from, by = (l->host[x->from] == l->host[x->to] ? 0 : 2) + end;
            for (int k = 0; k < OWN; k++) {
                double each = taken(use, uses, l->first[own[k]] + (uint32_t)rank);
                if (x->from == x->to || cap[by] <= 0)
                    each = each > 0 ? INFINITY : 0;
                most[rank][k][by] = fmax(most[rank][k][by], each);
            }
        }
    }
    for (size_t r = 0; r < ranks; r++)
        for (int k = 0; k < OWN; k++) {
            double full = 0;
            for (int c = 0; c < CARRIERS; c++)
                full += most[r][k][c] > 0 ? most[r][k][c] * fmax(cap[c], 1) : 0;
            s->slack[l->first[own[k]] + r] = full < 0.999 * l->cap[l->first[own[k]] + r];
        }
    free(most);
    return true;
}

/* Starts what waits for nothing, sender by sender: flows that share a NIC lie side by side then, which is what sharing
 * out the rates goes through. */
static void start_all(struct sim *s)
{
    const struct graph *g = s->g;
    size_t ranks = (size_t)g->links->world, *at = calloc(ranks + 2, sizeof *at);
    uint32_t *order = malloc((g->nodes.n + 1) * sizeof *order);
    s->failed = !at || !order;
    for (size_t i = 0; i < g->nodes.n && !s->failed; i++)
        at[g->nodes.v[i].load.from + 2]++;
    for (size_t r = 2; r < ranks + 2 && !s->failed; r++)
        at[r] += at[r - 1];
    for (size_t i = 0; i < g->nodes.n && !s->failed; i++)
        order[at[g->nodes.v[i].load.from + 1]++] = (uint32_t)i;
    for (size_t k = 0; k < g->nodes.n && !s->failed; k++) {
        uint32_t i = order[k], channel = g->nodes.v[i].channel;
        if (!s->waits[i] && channel == GRAPH_NONE)
            ready(s, i, GRAPH_NONE);
        else if (!s->waits[i] && s->channels[channel].next == i)
            start_channel(s, channel, GRAPH_NONE);
    }
    free(at);
    free(order);
}

static void run(struct sim *s)
{
    start_all(s);
    while ((s->flows.n || s->heap.n) && !s->failed) {
        if (s->changed && s->flows.n) {
            s->out->solved++;
            if (fair_solve(s->fair, s->g->links->cap, s->flows.v, s->flows.n)) {
                s->failed = true;
                return;
            }
            take_rates(s);
        }
        s->changed = false;
        double next = next_time(s);
        /* What ends at nearly the same time ends together. */
        double reach = next * (1 + 1e-9) + 1e-4;
        if (s->flows.n > EVENTS_EXACT)
            reach = fmax(reach, next + fmax(next * EVENTS_GRAIN, s->window));
        advance(s, next, reach);
    }
}

static int left_over(const struct sim *s, struct failure *why)
{
    for (size_t i = 0; i < s->g->nodes.n; i++) {
        const struct graph_node *n = &s->g->nodes.v[i];
        if ((n->channel == GRAPH_NONE || n->ends) && s->out->span[i].end < 0)
            return failure_set(why, CLI_WRONG, "the plans wait in a circle: a step of rank %d never starts",
                               n->load.from);
    }
    return CLI_OK;
}

static bool open_sim(struct sim *s)
{
    const struct graph *g = s->g;
    size_t ranks = (size_t)g->links->world, n = g->nodes.n;
    s->fair = fair_new(links_count(g->links));
    s->channels = calloc(g->channels.n + 1, sizeof *s->channels);
    s->ranks = calloc(ranks + 1, sizeof *s->ranks);
    s->waits = calloc(n + 1, sizeof *s->waits);
    s->after = calloc(n + 1, sizeof *s->after);
    s->out->span = calloc(n + 1, sizeof *s->out->span);
    if (!s->fair || !s->channels || !s->ranks || !s->waits || !s->after || !s->out->span)
        return false;
    if (!find_slack(s))
        return false;
    uint32_t link;
    s->window = graph_bound(g, &link) * EVENTS_LEAST;
    for (size_t i = 0; i < g->channels.n; i++)
        s->channels[i].next = g->channels.v[i].head;
    for (size_t r = 0; r < ranks; r++)
        s->ranks[r].head = s->ranks[r].tail = GRAPH_NONE;
    for (size_t i = 0; i < n; i++) {
        s->waits[i] = g->nodes.v[i].waits;
        s->out->span[i] = (struct events_span){.end = -1, .cause = GRAPH_NONE, .narrow = FAIR_NONE};
    }
    return true;
}

int events_run(struct events *e, const struct graph *g, struct failure *why)
{
    *e = (struct events){.last = GRAPH_NONE};
    struct sim s = {.g = g, .out = e};
    int code = CLI_OK;
    if (open_sim(&s))
        run(&s);
    else
        s.failed = true;
    if (s.failed)
        code = failure_set(why, CLI_WRONG, "not enough memory to simulate %d ranks", g->links->world);
    else
        code = left_over(&s, why);
    for (size_t i = 0; i < s.flows.n; i++)
        free(flow_of(s.flows.v[i]));
    for (size_t i = 0; i < s.spare.n; i++)
        free(s.spare.v[i]);
    free(s.flows.v);
    free(s.ends.v);
    free(s.over.v);
    free(s.slack);
    free(s.spare.v);
    free(s.heap.v);
    free(s.channels);
    free(s.ranks);
    free(s.waits);
    free(s.after);
    fair_free(s.fair);
    if (code)
        events_free(e);
    return code;
}

void events_free(struct events *e)
{
    free(e->span);
    e->span = NULL;
}

size_t events_path(const struct events *e, uint32_t *out, size_t cap)
{
    size_t n = 0;
    for (uint32_t i = e->last; i != GRAPH_NONE; i = e->span[i].cause)
        n++;
    size_t at = n;
    for (uint32_t i = e->last; i != GRAPH_NONE; i = e->span[i].cause) {
        at--;
        size_t skip = n > cap ? n - cap : 0;
        if (at >= skip)
            out[at - skip] = i;
    }
    return n < cap ? n : cap;
}
