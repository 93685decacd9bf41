#include "foresee/graph.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/defaults.h"
#include "plan/plan.h"

static int no_memory(struct failure *why)
{
    return failure_set(why, CLI_WRONG, "not enough memory for the work of all ranks");
}

int graph_open(struct graph *g, struct links *l, struct failure *why)
{
    *g = (struct graph){.links = l, .table_size = 1024};
    g->table = malloc(g->table_size * sizeof *g->table);
    g->aside = malloc(((size_t)l->world + 1) * sizeof *g->aside);
    g->only_sends = calloc((size_t)l->world + 1, sizeof *g->only_sends);
    g->feeds = calloc((size_t)l->world + 1, sizeof *g->feeds);
    g->sources = calloc((size_t)l->world + 1, sizeof *g->sources);
    if (!g->sources || !g->table || !g->aside || !g->only_sends || !g->feeds) {
        graph_free(g);
        return no_memory(why);
    }
    memset(g->table, 0xff, g->table_size * sizeof *g->table);
    memset(g->aside, 0xff, (size_t)l->world * sizeof *g->aside);
    return CLI_OK;
}

void graph_free(struct graph *g)
{
    free(g->nodes.v);
    free(g->channels.v);
    free(g->edges.v);
    free(g->first);
    free(g->table);
    free(g->aside);
    free(g->only_sends);
    free(g->feeds);
    free(g->sources);
    free(g->busy);
    *g = (struct graph){0};
}

/* ---- channels ---- */

static size_t home_of(const struct graph *g, int from, int to)
{
    uint64_t h = ((uint64_t)(uint32_t)from << 32 | (uint32_t)to) * 0x9e3779b97f4a7c15u;
    return (size_t)(h >> 20) & (g->table_size - 1);
}

static size_t slot_of(const struct graph *g, int from, int to)
{
    size_t i = home_of(g, from, to);
    while (g->table[i] != GRAPH_NONE &&
           (g->channels.v[g->table[i]].from != from || g->channels.v[g->table[i]].to != to))
        i = (i + 1) & (g->table_size - 1);
    return i;
}

static bool grow(struct graph *g)
{
    uint32_t *bigger = malloc(2 * g->table_size * sizeof *bigger);
    if (!bigger)
        return false;
    free(g->table);
    g->table = bigger;
    g->table_size *= 2;
    memset(g->table, 0xff, g->table_size * sizeof *g->table);
    for (size_t i = 0; i < g->channels.n; i++)
        g->table[slot_of(g, g->channels.v[i].from, g->channels.v[i].to)] = (uint32_t)i;
    return true;
}

static uint32_t channel_of(struct graph *g, int from, int to)
{
    size_t i = slot_of(g, from, to);
    if (g->table[i] != GRAPH_NONE)
        return g->table[i];
    if (2 * g->channels.n >= g->table_size) {
        if (!grow(g))
            return GRAPH_NONE;
        i = slot_of(g, from, to);
    }
    struct graph_channel *c = vec_push(&g->channels);
    if (!c)
        return GRAPH_NONE;
    *c = (struct graph_channel){
        .from = from, .to = to, .head = GRAPH_NONE, .tail = GRAPH_NONE, .sent = GRAPH_NONE, .received = GRAPH_NONE};
    return g->table[i] = (uint32_t)(g->channels.n - 1);
}

static uint32_t new_node(struct graph *g, int from, int to)
{
    struct graph_node *n = g->nodes.n < GRAPH_NONE ? vec_push(&g->nodes) : NULL;
    if (!n)
        return GRAPH_NONE;
    *n = (struct graph_node){.load = {.from = from, .to = to}, .next = GRAPH_NONE, .channel = GRAPH_NONE};
    return (uint32_t)(g->nodes.n - 1);
}

/* The next message of channel `ch`, as one of its ends sees it. feeds: something may wait for it there. */
static uint32_t message_of(struct graph *g, uint32_t ch, bool sends, bool feeds)
{
    struct graph_channel *c = &g->channels.v[ch];
    uint32_t *mine = sends ? &c->sent : &c->received;
    if (sends && c->sent != GRAPH_NONE && c->sent_in <= g->nodes.v[c->sent].joined) {
        c->sent_in++;
        return c->sent;
    }
    if (sends) {
        c->sent_in = 1;
        c->sent_bytes = 0;
    } else if (g->only_sends[c->from] && !feeds && c->received != GRAPH_NONE && c->received == c->tail &&
               g->nodes.v[c->tail].flat) {
        g->nodes.v[c->tail].joined++;
        return c->tail;
    }
    uint32_t node = *mine == GRAPH_NONE ? c->head : g->nodes.v[*mine].next;
    if (node == GRAPH_NONE) {
        node = new_node(g, c->from, c->to);
        if (node == GRAPH_NONE)
            return node;
        g->nodes.v[node].channel = ch;
        g->nodes.v[node].flat = !sends && !feeds;
        if (c->tail == GRAPH_NONE)
            c->head = node;
        else
            g->nodes.v[c->tail].next = node;
        c->tail = node;
    }
    return *mine = node;
}

/* ---- steps ---- */

/* What one end of a message, or the input or output of local work, is like. */
struct end {
    double bytes;    /* on the wire, or in memory for local work */
    double copied;   /* by who copies it: the mean of what is read and written, which differ in a cast */
    double pieces;   /* contiguous ones, in its buffers */
    double strided;  /* bytes of parts in several pieces */
    double in_short; /* bytes of parts in short ones, or that are cast, */
    double cast;     /* of those alone, */
    double in_rows;  /* and of those in several short ones that are not cast */
    bool held;       /* some are in a buffer of the plan, and not in a tensor */
    int parts;
    double all;   /* parts, each as often as it counts */
    double times; /* how often it counts */
    bool casts;
};

/* Elements that lie one after the other in the part's buffer. */
static int64_t span_of(const weft_plan *p, const struct plan_part *part)
{
    int64_t span = 1;
    for (int d = plan_ndim(p, part) - 1; d >= 0; d--) {
        const struct plan_run *r = &p->runs[part->runs + (uint32_t)d];
        const struct plan_spot *s = &p->spots[part->spots + (uint32_t)d];
        bool joined = r->n == 1 || s->tostep == r->len;
        span *= joined ? r->n * r->len : r->len;
        if (!joined || r->n * r->len != p->shapes[p->bufs[part->buf].shape + (uint32_t)d])
            break;
    }
    return span;
}

/* What a part is like if it counts once. */
struct piece {
    double bytes, copied, pieces;
    uint32_t tensor;
    bool casts, held;
};

/* A plan that is being added, and what is computed once for all rounds. */
struct adding {
    const weft_plan *p;
    const int *times;     /* of this round */
    const int *all;       /* of all rounds */
    struct piece *pieces; /* of each part */
    uint32_t *node;       /* of each step, in this round */
    uint8_t *use;         /* of each step: the kinds of steps that wait for it, as bits */
    uint32_t *again;      /* the steps that are added in each round, in order: all but those of whole channels */
    size_t nagain;
};

static void look_at_part(const weft_plan *p, const struct plan_part *part, struct piece *out)
{
    const struct plan_buf *b = &p->bufs[part->buf];
    int dtype = part->wire ? part->wire : b->dtype;
    out->bytes = (double)(part->count * (int64_t)weft_dtype_size(dtype));
    out->copied = (out->bytes + (double)(part->count * (int64_t)weft_dtype_size(b->dtype))) / 2;
    int64_t pieces = part->count / span_of(p, part);
    out->pieces = (double)pieces;
    out->tensor = b->tensor;
    out->casts = dtype != b->dtype;
    out->held = b->space != PLAN_SRC && b->space != PLAN_DST;
}

static bool is_long(const struct piece *x)
{
    return x->bytes >= LINKS_LONG * x->pieces;
}

static struct end end_of(const struct adding *a, const int *times, const struct plan_step *st, uint32_t from,
                         uint32_t to)
{
    struct end e = {0};
    for (uint32_t i = from; i < to; i++) {
        const struct piece *x = &a->pieces[st->part + i];
        double k = times ? times[x->tensor] : 1;
        e.bytes += k * x->bytes;
        e.copied += k * x->copied;
        e.pieces += k * x->pieces;
        e.strided += x->pieces > 1 ? k * x->bytes : 0;
        e.in_short += x->casts || !is_long(x) ? k * x->bytes : 0;
        e.in_rows += !x->casts && !is_long(x) && x->pieces > 1 ? k * x->bytes : 0;
        e.cast += x->casts ? k * x->bytes : 0;
        e.casts |= x->casts;
        e.held |= x->held;
        e.parts++;
        e.all += k;
        e.times = fmax(e.times, k);
    }
    return e;
}

/* Does a fold read the message where it is? It does if nothing but folds waits for it. */
static bool only_folds(uint8_t use)
{
    return use == 1 << PLAN_REDUCE;
}

/* Adds what one end does for a message, which counts `messages` times. use: the kinds of steps that wait for it on this
 * rank. */
static void add_end(const struct graph *g, struct graph_node *n, const struct end *e, double messages, bool sends,
                    uint8_t use)
{
    struct links_load *x = &n->load;
    *(sends ? &n->pieces_from : &n->pieces_to) += (float)e->pieces;
    *(sends ? &n->short_from : &n->short_to) += (float)e->in_short;
    *(sends ? &n->rows_from : &n->rows_to) += (float)e->in_rows;
    n->strided += sends ? (float)e->strided : 0;
    n->held |= !sends && e->held;
    double *copied = sends ? &x->copied_from : &x->copied_to;
    *(sends ? &x->cast_from : &x->cast_to) += (float)e->cast;
    float *launches = sends ? &x->launches_from : &x->launches_to;
    bool device = g->links->m.inside == MACHINE_FILE_LINK;
    if (g->links->host[x->from] != g->links->host[x->to]) {
        bool straight = e->parts == 1 && e->pieces <= 1, list = e->bytes / e->pieces >= DEFAULTS_PIECE;
        if (e->casts || !(straight || list)) { /* through a slot */
            *copied += e->copied;
            *(sends ? &x->parts_from : &x->parts_to) += (float)e->all;
            *launches += device ? (float)messages : 0;
            n->slots = true;
        }
    } else if (device) {
        *launches += sends ? 0 : (float)messages; /* the receiver's kernel reads through the port */
    } else if (e->bytes <= DEFAULTS_EAGER * messages || (!sends && !only_folds(use))) {
        /* both copy an eager one; others one of the two, which share_copies may change */
        *copied += e->copied;
        *(sends ? &x->parts_from : &x->parts_to) += (float)e->all;
    } else if (sends) {
        x->copied_to += e->copied - e->bytes; /* in a cast the receiver reads what is in memory here */
        x->cast_to += (float)e->cast;
    }
}

/* Do both ends have the same messages? Those that were joined are compared when the sender has had the last of them. */
static bool ends_fit(struct graph_channel *c, const struct graph_node *n, double bytes, bool sends)
{
    if (!sends)
        return n->load.bytes == bytes;
    c->sent_bytes += bytes;
    return c->sent_in <= n->joined || fabs(c->sent_bytes - n->load.bytes) <= 1e-9 * n->load.bytes;
}

/* Tensors that count several times fill buckets. With a bucket of 1 each chunk is one message. */
static double messages_of(const struct adding *a, const struct end *e)
{
    return !a->times ? 1 : a->p->bucket == 1 ? e->times : e->bytes / (double)a->p->bucket;
}

/* *whole: it was added for all rounds. */
static int add_message(struct graph *g, const struct adding *a, const struct plan_step *st, uint8_t use, uint32_t *out,
                       bool *whole, struct failure *why)
{
    const weft_plan *p = a->p;
    bool sends = st->kind == PLAN_SEND;
    int from = sends ? p->rank : st->peer, to = sends ? st->peer : p->rank;
    uint32_t ch = channel_of(g, from, to);
    if (ch == GRAPH_NONE)
        return no_memory(why);
    struct graph_channel *c = &g->channels.v[ch];
    if (!sends && c->head == GRAPH_NONE)
        c->whole = g->only_sends[from] && !g->feeds[from];
    *whole = c->whole;
    struct end e = end_of(a, c->whole ? a->all : a->times, st, 0, st->nparts);
    *out = GRAPH_NONE;
    if (a->times && e.bytes <= 0) /* none of its tensors count: the other end leaves it out, too */
        return CLI_OK;
    uint32_t i = *out = message_of(g, ch, sends, use);
    if (i == GRAPH_NONE)
        return no_memory(why);
    struct graph_node *n = &g->nodes.v[i];
    double messages = messages_of(a, &e);
    if (n->ends & (sends ? GRAPH_RECEIVED : GRAPH_SENT)) {
        if (!ends_fit(c, n, e.bytes, sends))
            return failure_set(why, CLI_WRONG, "ranks %d and %d have different plans: a message has %.0f or %.0f bytes",
                               from, to, n->load.bytes, sends ? c->sent_bytes : e.bytes);
    } else {
        n->load.bytes += e.bytes;
        n->load.messages += messages;
    }
    n->ends |= sends ? GRAPH_SENT : GRAPH_RECEIVED;
    add_end(g, n, &e, messages, sends, use);
    if (sends) {
        c->bytes += (int64_t)e.bytes;
        g->bytes += (int64_t)e.bytes;
        g->clash |= (c->whole || n->joined) && st->ndeps;
    }
    return CLI_OK;
}

/* Does a copy have another dtype behind it than before? */
static bool casts_here(const weft_plan *p, const struct plan_step *st)
{
    const struct plan_part *part = &p->parts[st->part];
    return st->nparts > 1 && p->bufs[part[0].buf].dtype != p->bufs[part[1].buf].dtype;
}

/* alone: it waits for nothing, and nothing waits for it. */
static int add_local(struct graph *g, const struct adding *a, const struct plan_step *st, bool alone, uint32_t *out,
                     struct failure *why)
{
    int rank = a->p->rank;
    bool copies = st->kind == PLAN_COPY, casts = copies && casts_here(a->p, st);
    struct end e = end_of(a, a->times, st, 0, 1);
    double read = e.bytes, in_short = e.in_short, in_rows = e.in_rows, written = e.bytes;
    if (st->nparts > 1) {
        struct end from = end_of(a, a->times, st, 1, st->nparts);
        read = from.bytes;
        in_short = fmax(in_short, from.in_short);
        in_rows = fmax(in_rows, from.in_rows);
        from.bytes =
            (e.bytes + from.bytes) / 2; /* a copy may cast, and a fold reads several bytes for one that it writes */
        e = from;
    }
    *out = GRAPH_NONE;
    if (a->times && e.bytes <= 0)
        return CLI_OK;
    *out = alone ? g->aside[rank] : GRAPH_NONE;
    if (*out == GRAPH_NONE)
        *out = new_node(g, rank, rank);
    if (*out == GRAPH_NONE)
        return no_memory(why);
    if (alone)
        g->aside[rank] = *out;
    struct graph_node *n = &g->nodes.v[*out];
    n->load.bytes += e.bytes;
    n->load.copied_to += written;
    n->load.folded += copies ? 0 : (float)e.bytes;
    n->load.cast_from += casts ? (float)e.bytes : 0;
    n->short_from += (float)(copies && !casts ? in_short : e.bytes);
    n->rows_from += copies && !casts ? (float)in_rows : 0;
    n->load.parts_from += (float)e.all;
    n->load.launches_from += g->links->m.inside == MACHINE_FILE_LINK ? (float)e.times : 0;
    *(copies ? &g->copied : &g->folded) += (int64_t)(copies ? e.bytes : read);
    return CLI_OK;
}

#define AHEAD 8 /* steps */

/* At the i-th of n steps: fetches the channel of a message that comes soon. Large worlds have more of them than caches
 * hold. */
static void fetch_ahead(const struct graph *g, const weft_plan *p, const uint32_t *steps, size_t i, size_t n)
{
    for (int second = 0; second < 2; second++) {
        size_t k = i + (second ? AHEAD : 2 * AHEAD);
        const struct plan_step *st = k < n ? &p->steps[steps ? steps[k] : k] : NULL;
        if (!st || (st->kind != PLAN_SEND && st->kind != PLAN_RECV))
            continue;
        bool sends = st->kind == PLAN_SEND;
        const uint32_t *slot = &g->table[home_of(g, sends ? p->rank : st->peer, sends ? st->peer : p->rank)];
        if (!second)
            __builtin_prefetch(slot);
        else if (*slot != GRAPH_NONE)
            __builtin_prefetch(&g->channels.v[*slot]);
    }
}

static int add_step(struct graph *g, const struct adding *a, size_t i, bool *whole, struct failure *why)
{
    const weft_plan *p = a->p;
    const struct plan_step *st = &p->steps[i];
    int code;
    *whole = false;
    if (st->kind == PLAN_SEND || st->kind == PLAN_RECV)
        code = add_message(g, a, st, a->use[i], &a->node[i], whole, why);
    else
        code = add_local(g, a, st, !st->ndeps && !a->use[i], &a->node[i], why);
    for (uint32_t k = 0; k < st->ndeps && !code && a->node[i] != GRAPH_NONE; k++) {
        uint32_t before = a->node[p->deps[st->dep + k]];
        if (before == GRAPH_NONE)
            continue;
        struct graph_edge *e = vec_push(&g->edges);
        if (!e)
            return no_memory(why);
        *e = (struct graph_edge){before, a->node[i]};
        g->nodes.v[e->from].feeds = true;
        g->nodes.v[e->to].waits++;
    }
    return code;
}

/* All steps come in the first round, which finds those that come again. */
static int add_rounds(struct graph *g, struct adding *a, const int *times, int rounds, struct failure *why)
{
    size_t tensors = a->p->ntensors;
    int code = CLI_OK;
    bool whole;
    a->all = times ? times + (size_t)rounds * tensors : NULL;
    a->times = times;
    for (size_t i = 0; i < a->p->nsteps && !code; i++) {
        fetch_ahead(g, a->p, NULL, i, a->p->nsteps);
        code = add_step(g, a, i, &whole, why);
        if (!whole)
            a->again[a->nagain++] = (uint32_t)i;
    }
    for (int k = 1; k < rounds && !code; k++) {
        a->times = times ? times + (size_t)k * tensors : NULL;
        for (size_t i = 0; i < a->nagain && !code; i++) {
            fetch_ahead(g, a->p, a->again, i, a->nagain);
            code = add_step(g, a, a->again[i], &whole, why);
        }
    }
    return code;
}

/* Which steps wait for each step, and from which ranks come messages that something waits for. */
static void find_uses(struct graph *g, struct adding *a)
{
    const weft_plan *p = a->p;
    for (size_t i = 0; i < p->nsteps; i++)
        for (uint32_t k = 0; k < p->steps[i].ndeps; k++)
            a->use[p->deps[p->steps[i].dep + k]] |= (uint8_t)(1 << p->steps[i].kind);
    for (size_t i = 0; i < p->nsteps; i++)
        if (p->steps[i].kind == PLAN_RECV)
            g->feeds[p->steps[i].peer] = false;
    for (size_t i = 0; i < p->nsteps; i++)
        if (p->steps[i].kind == PLAN_RECV && a->use[i])
            g->feeds[p->steps[i].peer] = true;
}

/* all: how often each tensor counts, or NULL. */
static void add_sources(struct graph *g, const weft_plan *p, const int *all)
{
    for (size_t i = 0; i < p->nbufs; i++) {
        const struct plan_buf *b = &p->bufs[i];
        double bytes = (double)weft_dtype_size(b->dtype) * (all ? all[b->tensor] : 1);
        for (int d = 0; d < p->tensors[b->tensor].ndim; d++)
            bytes *= (double)p->shapes[b->shape + (uint32_t)d];
        g->sources[p->rank] += b->space == PLAN_SRC ? bytes : 0;
    }
}

int graph_add(struct graph *g, const weft_plan *p, const int *times, int rounds, struct failure *why)
{
    struct adding a = {.p = p,
                       .pieces = malloc((p->nparts + 1) * sizeof *a.pieces),
                       .node = malloc((p->nsteps + 1) * sizeof *a.node),
                       .use = calloc(p->nsteps + 1, 1),
                       .again = malloc((p->nsteps + 1) * sizeof *a.again)};
    int code = a.pieces && a.node && a.use && a.again ? CLI_OK : no_memory(why);
    for (size_t i = 0; i < p->nparts && !code; i++)
        look_at_part(p, &p->parts[i], &a.pieces[i]);
    if (!code) {
        find_uses(g, &a);
        code = add_rounds(g, &a, times, rounds, why);
        add_sources(g, p, a.all);
    }
    if (!g->kind) {
        g->kind = plan_kind_text(p->kind, strlen(p->kind));
        g->algorithm = p->algorithm;
    }
    free(a.pieces);
    free(a.node);
    free(a.use);
    free(a.again);
    return code;
}

/* ---- the whole ---- */

static void join(struct graph *g, struct graph_channel *c)
{
    double messages = 0;
    for (uint32_t i = c->head; i != GRAPH_NONE; i = g->nodes.v[i].next)
        messages += g->nodes.v[i].load.messages;
    c->messages = (int64_t)ceil(messages - 1e-6);
    g->messages += c->messages;
    for (uint32_t i = c->head; i != GRAPH_NONE;) {
        struct graph_node *a = &g->nodes.v[i], *b = a->next != GRAPH_NONE ? &g->nodes.v[a->next] : NULL;
        if (!b || a->waits || a->feeds || b->waits || b->feeds) {
            c->tail = i;
            i = a->next;
            continue;
        }
        a->load.bytes += b->load.bytes;
        a->load.copied_from += b->load.copied_from;
        a->load.copied_to += b->load.copied_to;
        a->load.messages += b->load.messages;
        a->load.parts_from += b->load.parts_from;
        a->load.parts_to += b->load.parts_to;
        a->load.launches_from += b->load.launches_from;
        a->load.launches_to += b->load.launches_to;
        a->pieces_from += b->pieces_from;
        a->pieces_to += b->pieces_to;
        a->short_from += b->short_from;
        a->short_to += b->short_to;
        a->rows_from += b->rows_from;
        a->rows_to += b->rows_to;
        a->load.cast_from += b->load.cast_from;
        a->load.cast_to += b->load.cast_to;
        a->strided += b->strided;
        a->held |= b->held;
        a->slots |= b->slots;
        a->next = b->next;
        b->ends = 0; /* it is part of another node */
    }
}

/* ---- who copies a message inside a host (engine/way.c) ---- */

/* What ranks copy, and messages that both ends copy. */
struct sharing {
    bool *one_way;             /* has a core, and receives less than half of what it sends */
    double *own, *out, *in;    /* bytes that it copies alone; of shared messages that it sends, and receives (in
                                  find_sides: of all messages) */
    uint32_t *senders;         /* of shared messages that it receives */
    double *others, *partners; /* what the receivers of a sender copy, and how many they are: those with several senders
                                  count in part for each */
};

static bool received_by_copy(const struct graph *g, const struct graph_node *n)
{
    return n->channel != GRAPH_NONE && n->ends && g->links->host[n->load.from] == g->links->host[n->load.to] &&
           n->load.copied_to > 0 && n->load.copied_from <= 0;
}

static bool shared(const struct graph *g, const struct sharing *s, const struct graph_node *n)
{
    return received_by_copy(g, n) && s->one_way[n->load.from] && !n->waits && !g->channels.v[n->channel].gathers &&
           n->load.bytes >= DEFAULTS_ASSIST * n->load.messages;
}

/* Do so few ranks share the cores that each of them has one? */
static bool has_core(const struct graph *g, const uint32_t *crowd, int rank)
{
    const struct machine_file *m = &g->links->m;
    return !m->cores || crowd[g->links->host[rank] / m->hosts_on_cores] <= m->cores;
}

/* Does the sender copy the messages of the channel? It does if its receiver has much more to copy than it has itself,
 * or if most bytes are in shorter pieces there than at the receiver. s->out and s->in: all that ranks send and receive.
 * Of a message that waits a node does not say at which end, so that its receiver copies it (find_own). */
static void find_pushes(const struct graph *g, const struct sharing *s, struct graph_channel *c)
{
    double bytes = 0, strided = 0, from = 0, to = 0;
    bool held = false;
    for (uint32_t k = c->head; k != GRAPH_NONE; k = g->nodes.v[k].next) {
        const struct graph_node *n = &g->nodes.v[k];
        if (!received_by_copy(g, n))
            continue;
        bytes += n->load.bytes;
        strided += n->strided;
        from += n->pieces_from;
        to += n->pieces_to;
        held |= n->held;
    }
    c->gathers = !held && bytes > 0 && s->in[c->to] > DEFAULTS_CROWDED * s->out[c->from];
    c->pushes =
        c->gathers || (!held && from > to && strided > bytes / 2 && s->out[c->from] <= DEFAULTS_CROWDED * s->in[c->to]);
}

static void find_sides(const struct graph *g, struct sharing *s, uint32_t *crowd)
{
    int world = g->links->world;
    for (int r = 0; r < world; r++)
        crowd[g->links->host[r] / g->links->m.hosts_on_cores]++;
    for (size_t i = 0; i < g->channels.n; i++) { /* for now: all that ranks send and receive */
        s->out[g->channels.v[i].from] += (double)g->channels.v[i].bytes;
        s->in[g->channels.v[i].to] += (double)g->channels.v[i].bytes;
    }
    for (size_t i = 0; i < g->channels.n; i++)
        find_pushes(g, s, &g->channels.v[i]);
    for (int r = 0; r < world; r++) {
        s->one_way[r] = has_core(g, crowd, r) && s->in[r] < s->out[r] / 2;
        s->out[r] = s->in[r] = 0;
    }
}

/* What each rank copies alone. */
static void find_own(struct graph *g, struct sharing *s)
{
    for (size_t i = 0; i < g->nodes.n; i++) {
        struct graph_node *n = &g->nodes.v[i];
        struct links_load *x = &n->load;
        if (n->channel != GRAPH_NONE && !n->ends)
            continue;
        if (shared(g, s, n)) {
            s->out[x->from] += x->copied_to;
            s->in[x->to] += x->copied_to;
            continue;
        }
        if (received_by_copy(g, n) && g->channels.v[n->channel].pushes && !n->waits) {
            x->copied_from = x->copied_to;
            x->cast_from = x->cast_to;
            x->parts_from = x->parts_to;
            x->copied_to = x->parts_to = 0;
        }
        s->own[x->from] += x->from == x->to ? x->bytes : x->copied_from;
        s->own[x->to] += x->from == x->to ? 0 : x->copied_to;
    }
}

/* Both ends claim pieces of a shared message until none is left. So a sender takes as much as makes it copy as much as
 * its receivers do. */
static void share_out(struct graph *g, struct sharing *s)
{
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < g->channels.n; i++) {
            const struct graph_channel *c = &g->channels.v[i];
            bool any = false;
            for (uint32_t k = c->head; k != GRAPH_NONE && !any; k = g->nodes.v[k].next)
                any = shared(g, s, &g->nodes.v[k]);
            if (any && !pass) {
                s->senders[c->to]++;
            } else if (any) {
                s->others[c->from] += (s->own[c->to] + s->in[c->to]) / s->senders[c->to];
                s->partners[c->from] += 1.0 / s->senders[c->to];
            }
        }
    for (size_t i = 0; i < g->nodes.n; i++) {
        struct links_load *x = &g->nodes.v[i].load;
        if (!shared(g, s, &g->nodes.v[i]))
            continue;
        double even = (s->own[x->from] + s->others[x->from]) / (1 + s->partners[x->from]);
        double part = fmax(0, fmin(1, (even - s->own[x->from]) / s->out[x->from]));
        x->copied_from = part * x->copied_to;
        x->cast_from = x->cast_to;
        x->parts_from = (float)part * x->parts_to;
        x->copied_to -= x->copied_from;
        x->parts_to -= x->parts_from;
    }
}

static int share_copies(struct graph *g, struct failure *why)
{
    size_t n = (size_t)g->links->world + 1;
    struct sharing s = {.one_way = calloc(n, sizeof *s.one_way),
                        .own = calloc(n, sizeof *s.own),
                        .out = calloc(n, sizeof *s.out),
                        .in = calloc(n, sizeof *s.in),
                        .senders = calloc(n, sizeof *s.senders),
                        .others = calloc(n, sizeof *s.others),
                        .partners = calloc(n, sizeof *s.partners)};
    uint32_t *crowd = calloc((size_t)g->links->hosts + 1, sizeof *crowd);
    bool fits = s.one_way && s.own && s.out && s.in && s.senders && s.others && s.partners && crowd;
    if (fits) {
        find_sides(g, &s, crowd);
        find_own(g, &s);
        share_out(g, &s);
    }
    free(s.one_way);
    free(s.own);
    free(s.out);
    free(s.in);
    free(s.senders);
    free(s.others);
    free(s.partners);
    free(crowd);
    return fits ? CLI_OK : no_memory(why);
}

/* ---- what is in caches ---- */

/* A copy reads as much as it writes. What a rank has at first counts once, however often it is read. So a message that
 * a fold reads where it is counts at its sender alone. A message that both ends copy counts as a whole for what each of
 * them may write: it decides by that how to copy. */
static int find_caches(struct graph *g, struct failure *why)
{
    struct links_work *of = calloc((size_t)g->links->world + 1, sizeof *of);
    bool fits = of;
    for (size_t i = 0; fits && i < g->nodes.n; i++) {
        struct graph_node *x = &g->nodes.v[i];
        struct links_load *l = &x->load;
        float bytes = (float)fmax(1, l->bytes);
        l->in_long = 1 - fminf(1, fmaxf(x->short_from, x->short_to) / bytes);
        l->folded /= bytes; /* from here on shares */
        l->cast_from = fminf(1, l->cast_from / bytes);
        l->cast_to = fminf(1, l->cast_to / bytes);
        float others = l->in_long + l->folded + fmaxf(l->cast_from, l->cast_to);
        l->in_rows = fmaxf(0, fminf(1 - others, fmaxf(x->rows_from, x->rows_to) / bytes));
        if (x->channel != GRAPH_NONE && !x->ends)
            continue;
        double both = l->copied_from + l->copied_to;
        bool here = g->links->host[l->from] == g->links->host[l->to];
        double lands = l->from == l->to ? l->copied_to : here && both <= 0 ? 0 : l->bytes;
        of[l->from].writes += l->from == l->to ? l->copied_to : l->copied_from > 0 ? both : 0;
        of[l->to].writes += l->from != l->to && l->copied_to > 0 ? both : 0;
        of[l->from].read += l->from == l->to ? l->copied_to : l->bytes; /* a fold reads one of its inputs there */
        of[l->to].kept += lands;
        of[l->from].worked += 2 * (l->from == l->to ? l->bytes : l->copied_from);
        of[l->to].worked += l->from == l->to ? 0 : 2 * l->copied_to;
    }
    for (int r = 0; fits && r < g->links->world; r++) {
        of[r].source = fmin(of[r].read, g->sources[r]);
        of[r].kept += of[r].source;
    }
    fits = fits && !links_cache(g->links, of);
    free(of);
    return fits ? CLI_OK : no_memory(why);
}

static int find_crowd(struct graph *g, struct failure *why)
{
    struct links_flow *flows = malloc((g->channels.n + 1) * sizeof *flows);
    for (size_t i = 0; flows && i < g->channels.n; i++) {
        const struct graph_channel *c = &g->channels.v[i];
        flows[i] = (struct links_flow){c->from, c->to, (double)c->bytes};
    }
    bool fits = flows && !links_crowd(g->links, flows, g->channels.n);
    free(flows);
    return fits ? CLI_OK : no_memory(why);
}

static void add_busy(struct graph *g)
{
    struct fair_use use[FAIR_USES];
    for (size_t i = 0; i < g->nodes.n; i++) {
        const struct graph_node *n = &g->nodes.v[i];
        if (n->channel != GRAPH_NONE && !n->ends)
            continue;
        int uses = links_uses(g->links, &n->load, use);
        double bytes = n->load.bytes > 0 ? n->load.bytes : 1;
        for (int k = 0; k < uses; k++)
            g->busy[use[k].link] += (double)use[k].each * bytes / g->links->cap[use[k].link];
    }
}

int graph_close(struct graph *g, struct failure *why)
{
    for (size_t i = 0; i < g->nodes.n; i++)
        if (g->nodes.v[i].channel != GRAPH_NONE && g->nodes.v[i].ends != (GRAPH_SENT | GRAPH_RECEIVED))
            return failure_set(why, CLI_WRONG,
                               "the plans do not fit together: rank %d %s a message %s rank %d does not",
                               g->nodes.v[i].ends == GRAPH_SENT ? g->nodes.v[i].load.from : g->nodes.v[i].load.to,
                               g->nodes.v[i].ends == GRAPH_SENT ? "sends" : "receives",
                               g->nodes.v[i].ends == GRAPH_SENT ? "that" : "which",
                               g->nodes.v[i].ends == GRAPH_SENT ? g->nodes.v[i].load.to : g->nodes.v[i].load.from);
    for (size_t i = 0; i < g->channels.n; i++) {
        const struct graph_channel *c = &g->channels.v[i];
        if (c->sent != GRAPH_NONE && c->sent_in != g->nodes.v[c->sent].joined + 1)
            return failure_set(why, CLI_WRONG,
                               "the plans do not fit together: rank %d receives a message which rank %d does not",
                               c->to, c->from);
        join(g, &g->channels.v[i]);
    }
    free(g->table);
    g->table = NULL;
    g->first = calloc(g->nodes.n + 2, sizeof *g->first);
    g->busy = calloc(links_count(g->links) + 1, sizeof *g->busy);
    struct graph_edge *sorted = malloc((g->edges.n + 1) * sizeof *sorted);
    if (!g->first || !g->busy || !sorted) {
        free(sorted);
        return no_memory(why);
    }
    for (size_t i = 0; i < g->edges.n; i++)
        g->first[g->edges.v[i].from + 2]++;
    for (size_t i = 2; i < g->nodes.n + 2; i++)
        g->first[i] += g->first[i - 1];
    for (size_t i = 0; i < g->edges.n; i++)
        sorted[g->first[g->edges.v[i].from + 1]++] = g->edges.v[i];
    free(g->edges.v);
    g->edges.v = sorted;
    g->edges.cap = g->edges.n + 1;
    int code = g->links->m.inside == MACHINE_FILE_MEMORY ? share_copies(g, why) : CLI_OK;
    if (!code)
        code = find_caches(g, why);
    if (!code)
        add_busy(g); /* a bound, which does not know of crowds */
    if (!code && g->links->m.nic_crowd > 0)
        code = find_crowd(g, why);
    return code;
}

double graph_bound(const struct graph *g, uint32_t *link)
{
    double most = 0;
    *link = FAIR_NONE;
    for (uint32_t i = 0; i < links_count(g->links); i++)
        if (g->busy[i] > most * (1 + 1e-9)) { /* the first of those that are equal but for how they were summed up */
            most = g->busy[i];
            *link = i;
        }
    return most;
}
