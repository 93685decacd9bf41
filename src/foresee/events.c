#include "foresee/events.h"
#include "base/heap.h"

#include <math.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/defaults.h"
#include "foresee/parts.h"
#include "foresee/together.h"

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

/* What a part has come to. */
struct ending {
    double total, moved;
    uint32_t last;
};

/* What all parts have together. Each of them touches what belongs to its own nodes, channels and ranks. */
struct all {
    const struct graph *g;
    struct events_span *span;
    struct channel_state *channels;
    struct rank_state *ranks;
    uint32_t *waits, *after;
    bool *slack; /* links that are never full, whatever the flows, and need not be looked at */
    struct parts parts;
    struct ending *endings; /* of each part */
    double window;          /* the least, while many flows are under way */
    bool copies;            /* parts that are like another one are looked at, not the others */
    atomic_size_t next;     /* part */
    atomic_bool failed;
};

#define BLOCK 4096 /* bytes, about, of flows that are made together */

/* One part after the other, by one thread. */
struct sim {
    const struct graph *g;
    struct all *all;
    struct fair *fair;
    struct ending out;
    VEC(struct fair_flow *) flows; /* each is a member of a struct flow */
    VEC(double) ends;              /* when each of them ends, if nothing changes before */
    VEC(struct flow *) over;
    VEC(struct flow *) spare[FAIR_USES + 1]; /* by the links that they have room for */
    size_t made[FAIR_USES + 1];              /* of them, so that there is room for all among the spare ones */
    VEC(char *) blocks;                      /* in which the flows are */
    VEC(struct arrival) heap;
    double now;
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

/* A flow with room for `uses` links, or NULL. Most have few, and there can be tens of millions. */
static struct flow *new_flow(struct sim *s, int uses)
{
    if (!s->spare[uses].n) {
        size_t align = _Alignof(struct flow), size = offsetof(struct flow, fair) + offsetof(struct fair_flow, use);
        size = (size + (size_t)uses * sizeof(struct fair_use) + align - 1) / align * align;
        size_t n = BLOCK / size;
        char **block = vec_push(&s->blocks);
        if (!block || !vec_room(&s->spare[uses], s->made[uses] + n) || !(*block = malloc(n * size))) {
            s->blocks.n -= block != NULL;
            return NULL;
        }
        s->made[uses] += n;
        while (n-- > 0)
            s->spare[uses].v[s->spare[uses].n++] = (struct flow *)(void *)(*block + n * size);
    }
    return s->spare[uses].v[--s->spare[uses].n];
}

static void start(struct sim *s, uint32_t node, uint32_t cause)
{
    const struct graph_node *n = &s->g->nodes.v[node];
    struct fair_use use[FAIR_USES];
    int uses = parts_uses(&s->all->parts, node, use);
    struct flow *f = new_flow(s, uses);
    if (!f || !vec_room(&s->flows, 1) || !vec_room(&s->ends, 1)) {
        s->failed = true;
        return;
    }
    f->node = node;
    f->left = n->load.bytes > 0 ? n->load.bytes : 1;
    f->rate = 0;
    f->fair.uses = (int16_t)uses;
    f->fair.turns = (int16_t)links_turns(s->g->links, &n->load, use, uses);
    memcpy(f->fair.use, use, (size_t)uses * sizeof *use);
    s->flows.v[s->flows.n++] = &f->fair;
    s->ends.v[s->ends.n++] = INFINITY;
    struct events_span *x = &s->all->span[node];
    x->start = s->now;
    x->cause = cause;
    s->changed = true;
}

static void start_channel(struct sim *s, uint32_t channel, uint32_t cause)
{
    struct channel_state *c = &s->all->channels[channel];
    if (c->busy || c->next == GRAPH_NONE || s->all->waits[c->next])
        return;
    if (s->g->nodes.v[c->next].slots && c->sent - c->arrived >= DEFAULTS_CHANNEL_BUCKETS)
        return;
    c->busy = true;
    start(s, c->next, cause);
}

static void start_rank(struct sim *s, int rank, uint32_t cause)
{
    struct rank_state *r = &s->all->ranks[rank];
    if (r->busy || r->head == GRAPH_NONE)
        return;
    uint32_t node = r->head;
    r->head = s->all->after[node];
    r->busy = true;
    start(s, node, cause);
}

/* All that the node waits for is there. */
static void ready(struct sim *s, uint32_t node, uint32_t cause)
{
    const struct graph_node *n = &s->g->nodes.v[node];
    s->all->span[node].ready = s->now;
    if (n->channel != GRAPH_NONE) {
        start_channel(s, n->channel, cause);
        return;
    }
    struct rank_state *r = &s->all->ranks[n->load.from];
    s->all->after[node] = GRAPH_NONE;
    if (r->head == GRAPH_NONE)
        r->head = node;
    else
        s->all->after[r->tail] = node;
    r->tail = node;
    start_rank(s, n->load.from, cause);
}

static void end_flow(struct sim *s, struct flow *f, double at)
{
    const struct graph_node *n = &s->g->nodes.v[f->node];
    struct events_span *x = &s->all->span[f->node];
    double there = at + links_latency(s->g->links, n->load.from, n->load.to);
    x->end = at;
    x->narrow = f->fair.narrow;
    x->sharers = x->narrow == FAIR_NONE ? 0 : fair_sharers(s->fair, x->narrow);
    push_arrival(s, there, f->node);
    if (there > s->out.total) {
        s->out.total = there;
        s->out.last = f->node;
    }
    if (n->channel != GRAPH_NONE) {
        struct channel_state *c = &s->all->channels[n->channel];
        s->out.moved += n->load.bytes;
        c->busy = false;
        c->sent++;
        c->next = n->next;
        start_channel(s, n->channel, f->node);
    } else {
        s->all->ranks[n->load.from].busy = false;
        start_rank(s, n->load.from, f->node);
    }
    s->changed = true;
}

static void arrive(struct sim *s, uint32_t node)
{
    const struct graph *g = s->g;
    for (uint32_t i = g->first[node]; i < g->first[node + 1]; i++)
        if (--s->all->waits[g->edges.v[i].to] == 0)
            ready(s, g->edges.v[i].to, node);
    if (g->nodes.v[node].channel != GRAPH_NONE) {
        s->all->channels[g->nodes.v[node].channel].arrived++;
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

static void give_flow(struct sim *s, struct flow *f)
{
    int uses = f->fair.uses;
    s->spare[uses].v[s->spare[uses].n++] = f;
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
    if (!vec_room(&s->over, n)) {
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
        give_flow(s, s->over.v[i]);
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
static bool find_slack(struct all *s)
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

/* ---- parts ---- */

/* Starts what waits for nothing, sender by sender: flows that share a NIC lie side by side then, which is what sharing
 * out the rates goes through. */
static void start_all(struct sim *s, size_t part)
{
    const struct graph *g = s->g;
    const struct parts *p = &s->all->parts;
    size_t ranks = parts_ranks(p, part), n = parts_size(p, part), *at = calloc(ranks + 2, sizeof *at);
    uint32_t *order = malloc((n + 1) * sizeof *order);
    s->failed = !at || !order;
    for (size_t k = 0; k < n && !s->failed; k++)
        at[parts_rank(p, g->nodes.v[parts_node(p, part, k)].load.from) + 2]++;
    for (size_t r = 2; r < ranks + 2 && !s->failed; r++)
        at[r] += at[r - 1];
    for (size_t k = 0; k < n && !s->failed; k++) {
        uint32_t i = parts_node(p, part, k);
        order[at[parts_rank(p, g->nodes.v[i].load.from) + 1]++] = i;
    }
    for (size_t k = 0; k < n && !s->failed; k++) {
        uint32_t i = order[k], channel = g->nodes.v[i].channel;
        if (!s->all->waits[i] && channel == GRAPH_NONE)
            ready(s, i, GRAPH_NONE);
        else if (!s->all->waits[i] && s->all->channels[channel].next == i)
            start_channel(s, channel, GRAPH_NONE);
    }
    free(at);
    free(order);
}

static void run(struct sim *s, size_t part)
{
    s->out = (struct ending){.last = GRAPH_NONE};
    s->now = 0;
    start_all(s, part);
    while ((s->flows.n || s->heap.n) && !s->failed) {
        if (s->changed && s->flows.n) {
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
            reach = fmax(reach, next + fmax(next * EVENTS_GRAIN, s->all->window));
        advance(s, next, reach);
    }
    s->all->endings[part] = s->out;
}

static uint32_t moved_node(const struct parts *p, size_t to, uint32_t node)
{
    return node == GRAPH_NONE ? node : parts_node(p, to, p->local[node]);
}

/* Part `to` takes the course of part `from`, which is equal. */
static void copy_part(struct all *a, size_t from, size_t to)
{
    const struct parts *p = &a->parts;
    for (size_t k = 0; k < parts_size(p, to); k++) {
        struct events_span x = a->span[parts_node(p, from, k)];
        x.cause = moved_node(p, to, x.cause);
        x.narrow = x.narrow == FAIR_NONE ? x.narrow : p->links[p->first_link[to] + p->link[x.narrow]];
        a->span[parts_node(p, to, k)] = x;
    }
    a->endings[to] = a->endings[from];
    a->endings[to].last = moved_node(p, to, a->endings[from].last);
}

static void look_at_parts(void *arg, int worker)
{
    (void)worker;
    struct all *a = arg;
    struct sim s = {.g = a->g, .all = a, .fair = fair_new(links_count(a->g->links))};
    s.failed = !s.fair;
    for (size_t i; !s.failed && (i = atomic_fetch_add_explicit(&a->next, 1, memory_order_relaxed)) < a->parts.n;) {
        size_t like = a->parts.like ? a->parts.like[i] : i;
        if ((like != i) != a->copies)
            continue;
        if (like != i && parts_equal(&a->parts, like, i))
            copy_part(a, like, i);
        else
            run(&s, i);
    }
    if (s.failed)
        atomic_store_explicit(&a->failed, true, memory_order_relaxed);
    for (size_t i = 0; i < s.blocks.n; i++)
        free(s.blocks.v[i]);
    for (int k = 0; k <= FAIR_USES; k++)
        free(s.spare[k].v);
    free(s.blocks.v);
    free(s.flows.v);
    free(s.ends.v);
    free(s.over.v);
    free(s.heap.v);
    fair_free(s.fair);
}

/* ---- the whole ---- */

static int left_over(const struct all *a, struct failure *why)
{
    for (size_t i = 0; i < a->g->nodes.n; i++) {
        const struct graph_node *n = &a->g->nodes.v[i];
        if ((n->channel == GRAPH_NONE || n->ends) && a->span[i].end < 0)
            return failure_set(why, CLI_WRONG, "the plans wait in a circle: a step of rank %d never starts",
                               n->load.from);
    }
    return CLI_OK;
}

static bool open_all(struct all *a, bool whole)
{
    const struct graph *g = a->g;
    size_t ranks = (size_t)g->links->world, n = g->nodes.n;
    a->channels = calloc(g->channels.n + 1, sizeof *a->channels);
    a->ranks = calloc(ranks + 1, sizeof *a->ranks);
    a->waits = calloc(n + 1, sizeof *a->waits);
    a->after = calloc(n + 1, sizeof *a->after);
    a->span = calloc(n + 1, sizeof *a->span);
    if (!a->channels || !a->ranks || !a->waits || !a->after || !a->span || !find_slack(a) ||
        parts_open(&a->parts, g, a->slack, whole))
        return false;
    a->endings = calloc(a->parts.n + 1, sizeof *a->endings);
    uint32_t link;
    a->window = graph_bound(g, &link) * EVENTS_LEAST;
    for (size_t i = 0; i < g->channels.n; i++)
        a->channels[i].next = g->channels.v[i].head;
    for (size_t r = 0; r < ranks; r++)
        a->ranks[r].head = a->ranks[r].tail = GRAPH_NONE;
    for (size_t i = 0; i < n; i++) {
        a->waits[i] = g->nodes.v[i].waits;
        a->span[i] = (struct events_span){.end = -1, .cause = GRAPH_NONE, .narrow = FAIR_NONE};
    }
    return a->endings != NULL;
}

static void run_all(struct all *a, int workers)
{
    int most = (size_t)workers < a->parts.n ? workers : (int)a->parts.n;
    for (int pass = 0; pass < 2; pass++) {
        a->copies = pass == 1;
        atomic_store_explicit(&a->next, 0, memory_order_relaxed);
        if (pass == 0 || a->parts.like)
            together_do(most, look_at_parts, a);
    }
}

/* The first of those that end last is the last one. */
static void sum_up(const struct all *a, struct events *e)
{
    for (size_t i = 0; a->endings && i < a->parts.n; i++) {
        e->moved += a->endings[i].moved;
        if (a->endings[i].total > e->total) {
            e->total = a->endings[i].total;
            e->last = a->endings[i].last;
        }
    }
    e->span = a->span;
}

int events_run(struct events *e, const struct graph *g, const struct events_how *how, struct failure *why)
{
    struct all a = {.g = g};
    int code = CLI_OK;
    *e = (struct events){.last = GRAPH_NONE};
    bool failed = !open_all(&a, how && how->whole);
    if (!failed)
        run_all(&a, how && how->workers ? how->workers : together_here());
    failed |= atomic_load_explicit(&a.failed, memory_order_relaxed); /* all threads have ended */
    if (failed)
        code = failure_set(why, CLI_WRONG, "not enough memory to simulate %d ranks", g->links->world);
    else
        code = left_over(&a, why);
    sum_up(&a, e);
    parts_free(&a.parts);
    free(a.endings);
    free(a.slack);
    free(a.channels);
    free(a.ranks);
    free(a.waits);
    free(a.after);
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
