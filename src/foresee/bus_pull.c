/* A worker is a thread of a relay. It asks, gets a reply and stores it, and asks again. An answer without blocks is as
 * quick as the link. Then a worker of the publisher pauses, and a worker of peers asks the next peer; when it has been
 * to all of them in vain, the peer that it asks waits a moment for something to give. */
#include "foresee/bus_pull.h"
#include "base/heap.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/math.h"
#include "version/bus_relay.h"

#define PATIENCE 500e6 /* as in version/bus_relay_pull.c: ns without a new block, until a relay insists */
#define PAUSE 10e6
#define TURN 2000.0 /* ns in which a relay or publisher answers, at least, so that asking in vain takes time */
#define NOBODY (-1)

enum state { STATE_ASKS, STATE_PAUSES, STATE_WAITS, STATE_GETS, STATE_STORES, STATE_OVER };

struct worker {
    int host, index;
    enum state state;
    size_t turn, dry;
    int part, peer;   /* what it asks for, and whom: NOBODY is the publisher */
    uint64_t timer;   /* the number of the timer that counts */
    int next_waiting; /* at the same peer, or NOBODY */
    size_t n;         /* blocks of the reply */
    uint32_t *list;
    double bytes;
};

struct host {
    const struct bus_pull_need *need;
    int rank;  /* of its relay */
    int first; /* of its readers */
    struct part_blocks_given *given;
    _Atomic uint8_t **have; /* for each part and block */
    size_t missing;
    double progress, slowest;
    int waiting; /* the first worker of others that waits here, or NOBODY */
};

/* A reader copies what its relay has got. */
struct reader {
    double pending;
    bool busy;
};

struct flow {
    struct fair_flow fair;
    double left;
    int worker, reader; /* one of them; the other is NOBODY */
};

struct timer {
    double at;
    uint64_t number;
    int worker;
};

struct sim {
    const struct bus_pull *p;
    const struct links *links;
    struct bus_scene_run *out;
    struct fair *fair;
    struct host *hosts;
    struct worker *workers;
    struct reader *readers;
    struct part_blocks_given *given; /* by the publisher's ranks */
    int nworkers, nreaders, pullers;
    VEC(struct fair_flow *) flows; /* each is the first member of a struct flow */
    VEC(struct timer) heap;
    double now;
    uint64_t timers;
    int left; /* hosts that lack blocks */
    bool changed, failed;
};

/* ---- timers, the earliest first ---- */

static bool earlier(const struct timer *a, const struct timer *b)
{
    return a->at < b->at || (a->at == b->at && a->number < b->number);
}

static void set_timer(struct sim *s, struct worker *w, enum state state, double after)
{
    struct timer x = {s->now + after, ++s->timers, (int)(w - s->workers)};
    w->state = state;
    w->timer = x.number;
    if (!vec_room(&s->heap, 1)) {
        s->failed = true;
        return;
    }
    HEAP_PUSH(&s->heap, x, earlier);
}

static struct timer pop_timer(struct sim *s)
{
    struct timer first;
    HEAP_POP(&s->heap, first, earlier);
    return first;
}

/* ---- loads ---- */

static void start(struct sim *s, const struct links_load *x, int worker, int reader)
{
    struct flow *f = malloc(sizeof *f);
    if (!f || !vec_room(&s->flows, 1)) {
        free(f);
        s->failed = true;
        return;
    }
    *f = (struct flow){.left = x->bytes > 0 ? x->bytes : 1, .worker = worker, .reader = reader};
    f->fair.uses = (int16_t)links_uses(s->links, x, f->fair.use);
    f->fair.turns = (int16_t)links_turns(s->links, x, f->fair.use, f->fair.uses);
    for (int i = 0; i < f->fair.uses; i++) {
        const struct fair_use *u = &f->fair.use[i];
        enum links_kind kind = links_kind(s->links, u->link);
        s->out->busy[u->link] += (double)u->each * f->left / s->links->cap[u->link];
        s->out->bytes[u->link] +=
            kind == LINKS_CORE || kind == LINKS_CORES || kind == LINKS_TURNS ? 0 : (double)u->each * f->left;
    }
    s->flows.v[s->flows.n++] = &f->fair;
    s->changed = true;
}

static void copy(struct sim *s, int reader)
{
    struct reader *r = &s->readers[reader];
    if (r->busy || r->pending <= 0)
        return;
    int rank = s->out->publishers + reader;
    start(s, &(struct links_load){.from = rank, .to = rank, .bytes = r->pending}, NOBODY, reader);
    r->pending = 0;
    r->busy = true;
}

/* ---- asking ---- */

static bool is_peer_worker(const struct worker *w)
{
    return w->index >= BUS_RELAY_PUBLISHERS;
}

static bool is_mine(const struct sim *s, const struct worker *w, int rank, size_t block)
{
    return is_peer_worker(w) ? (int)(block / BUS_RELAY_RUN % BUS_RELAY_PEERS) == w->index - BUS_RELAY_PUBLISHERS
                             : bus_relay_puller(s->pullers, s->out->publishers, rank, block) == w->index;
}

/* May the worker want this block, from the peer? One that stands for several is the same at both ends only if both need
 * the same of it. */
static bool wants(const struct sim *s, const struct worker *w, int part, size_t b, const struct host *peer)
{
    const struct host *h = &s->hosts[w->host];
    if (h->need->bytes[part][b] <= 0 || atomic_load_explicit(&h->have[part][b], memory_order_relaxed) ||
        !is_mine(s, w, part, b))
        return false;
    return !peer || peer->need == h->need || s->p->parts[part].grain == 1 ||
           peer->need->bytes[part][b] == h->need->bytes[part][b];
}

/* The first blocks of a part that the worker may take, as bits from m->at on; NULL: there are none, or no memory. */
static unsigned char *list_blocks(struct sim *s, const struct worker *w, int part, const struct host *peer,
                                  struct part_link_message *m)
{
    const struct schema_part *places = &s->p->parts[part].places;
    unsigned char *bits = NULL;
    size_t first = places->blocks, end = 0;
    for (size_t b = 0; b < places->blocks && (first == places->blocks || b < first + PART_LINK_BLOCKS); b++) {
        if (!wants(s, w, part, b, peer))
            continue;
        if (!bits) {
            first = b;
            bits = calloc((places->blocks - b) / 8 + 1, 1);
            s->failed |= !bits;
            if (!bits)
                return NULL;
        }
        part_blocks_set(bits, b - first);
        end = b + 1;
    }
    *m = (struct part_link_message){
        .at = (int64_t)first,
        .count = (int64_t)(end - first),
        .who = ((uint64_t)w->host + 1) << 33,
        .flags = s->p->how->changed >= 0 ? PART_LINK_BASE : 0,
        .most = (uint32_t)max64(SCHEMA_BLOCK, min64(PART_LINK_MOST, places->bytes / BUS_RELAY_SHARE))};
    return bits;
}

static int peers_of(const struct sim *s)
{
    return s->p->how->peers ? s->out->hosts - 1 : 0;
}

/* The peer to ask: the next one in turn that this relay takes nothing from now. */
static int choose_peer(struct sim *s, struct worker *w)
{
    const struct worker *mine = &s->workers[w->host * (BUS_RELAY_PUBLISHERS + BUS_RELAY_PEERS)];
    int n = s->out->hosts, at = (int)(w->turn++ % (size_t)(n - 1));
    for (int tries = 0; tries < n - 1; tries++, at = (at + 1) % (n - 1)) {
        int peer = at < w->host ? at : at + 1;
        bool busy = false;
        for (int i = BUS_RELAY_PUBLISHERS; i < BUS_RELAY_PUBLISHERS + BUS_RELAY_PEERS; i++)
            busy |= mine[i].state != STATE_OVER && mine[i].peer == peer;
        if (!busy)
            return peer;
    }
    return at < w->host ? at : at + 1;
}

/* What the worker does next. */
static void ask(struct sim *s, struct worker *w)
{
    const struct host *h = &s->hosts[w->host];
    int n = s->out->publishers;
    w->peer = NOBODY;
    w->state = STATE_OVER;
    if (!h->missing)
        return;
    if (is_peer_worker(w)) {
        if (!peers_of(s))
            return;
        w->peer = choose_peer(s, w);
    } else if (w->index >= s->pullers)
        return;
    const struct host *peer = w->peer == NOBODY ? NULL : &s->hosts[w->peer];
    for (int i = 0; i < n; i++) {
        int part = (int)(((size_t)i + w->turn) % (size_t)n);
        bool some = false;
        for (size_t b = 0; b < s->p->parts[part].places.blocks && !some; b++)
            some = wants(s, w, part, b, peer);
        if (!some)
            continue;
        w->part = part;
        double there = links_latency(s->links, h->rank, peer ? peer->rank : part);
        set_timer(s, w, STATE_ASKS, there + fmax(TURN, 2 * s->links->m.message));
        return;
    }
    w->peer = NOBODY;
    set_timer(s, w, STATE_PAUSES, PAUSE);
}

/* Which blocks the reply has: as many as fit into it. */
static size_t fill(struct sim *s, struct worker *w)
{
    struct host *h = &s->hosts[w->host], *peer = w->peer == NOBODY ? NULL : &s->hosts[w->peer];
    struct part_link_message m;
    unsigned char *bits = list_blocks(s, w, w->part, peer, &m);
    if (!bits)
        return 0;
    if (!peer && s->now - h->progress > fmax(PATIENCE, 4 * h->slowest))
        m.flags |= PART_LINK_INSIST;
    size_t n = part_blocks_choose(peer ? &peer->given[w->part] : &s->given[w->part], &s->p->parts[w->part].places,
                                  peer ? peer->have[w->part] : NULL, &m, bits, !peer && peers_of(s), w->list);
    free(bits);
    size_t fits = 0;
    double room = (double)m.most * (double)s->p->parts[w->part].grain;
    for (w->bytes = 0; fits < n && w->bytes < room; fits++)
        w->bytes += h->need->sent[w->part][w->list[fits]];
    return fits;
}

static void wait_at(struct sim *s, struct worker *w)
{
    struct host *peer = &s->hosts[w->peer];
    w->next_waiting = peer->waiting;
    peer->waiting = (int)(w - s->workers);
    set_timer(s, w, STATE_WAITS, (double)PART_LINK_WAIT_NS);
}

/* The question has come to the publisher or the peer. */
static void answer(struct sim *s, struct worker *w)
{
    const struct host *h = &s->hosts[w->host];
    int from = w->peer == NOBODY ? w->part : s->hosts[w->peer].rank;
    w->n = fill(s, w);
    if (w->n) {
        w->state = STATE_GETS;
        s->out->replies++;
        *(w->peer == NOBODY ? &s->out->from_publisher : &s->out->from_peers) += w->bytes;
        start(s,
              &(struct links_load){.from = from,
                                   .to = h->rank,
                                   .bytes = w->bytes,
                                   .copied_from = w->bytes,
                                   .copied_to = w->bytes,
                                   .messages = 1},
              (int)(w - s->workers), NOBODY);
        return;
    }
    w->dry++;
    if (w->peer != NOBODY && w->dry > (size_t)peers_of(s))
        wait_at(s, w);
    else
        set_timer(s, w, STATE_PAUSES, links_latency(s->links, from, h->rank) + (w->peer == NOBODY ? PAUSE : 0));
}

static void leave_waiting(struct sim *s, const struct worker *w)
{
    int *at = &s->hosts[w->peer].waiting, me = (int)(w - s->workers);
    while (*at != me)
        at = &s->workers[*at].next_waiting;
    *at = w->next_waiting;
}

/* The blocks of a reply are there. */
static void store(struct sim *s, struct worker *w)
{
    struct host *h = &s->hosts[w->host];
    double whole = 0;
    for (size_t i = 0; i < w->n; i++) {
        uint32_t b = w->list[i];
        if (atomic_load_explicit(&h->have[w->part][b], memory_order_relaxed))
            continue;
        atomic_store_explicit(&h->have[w->part][b], 1, memory_order_relaxed);
        whole += h->need->bytes[w->part][b];
        h->missing--;
    }
    h->progress = s->now;
    w->dry = 0;
    for (int i = 0; i < h->need->n; i++) {
        int reader = h->first + i;
        s->readers[reader].pending += whole / h->need->all * s->p->readers[h->need->first + i];
        copy(s, reader);
    }
    if (!h->missing) {
        s->left--;
        s->out->first = s->out->first > 0 ? s->out->first : s->now;
    }
    for (int i = h->waiting; i != NOBODY;) {
        struct worker *other = &s->workers[i];
        i = other->next_waiting;
        set_timer(s, other, STATE_ASKS, 0);
        other->dry = 0;
    }
    h->waiting = NOBODY;
    ask(s, w);
}

static void fire(struct sim *s, struct worker *w)
{
    switch (w->state) {
    case STATE_ASKS: answer(s, w); break;
    case STATE_WAITS:
        leave_waiting(s, w);
        ask(s, w);
        break;
    case STATE_STORES: store(s, w); break;
    default: ask(s, w); break;
    }
}

/* ---- time ---- */

static void end_flow(struct sim *s, const struct flow *f)
{
    s->out->total = fmax(s->out->total, s->now);
    if (f->reader != NOBODY) {
        s->readers[f->reader].busy = false;
        copy(s, f->reader);
        return;
    }
    struct worker *w = &s->workers[f->worker];
    int from = w->peer == NOBODY ? w->part : s->hosts[w->peer].rank;
    set_timer(s, w, STATE_STORES, links_latency(s->links, from, s->hosts[w->host].rank));
}

static double end_time(const struct sim *s, const struct fair_flow *f)
{
    return isinf(f->rate) ? s->now : s->now + ((const struct flow *)(const void *)f)->left / f->rate;
}

static void advance(struct sim *s, double to)
{
    VEC(struct flow *) over = {0};
    size_t kept = 0;
    double reach = to * (1 + 1e-9) + 1e-4;
    for (size_t i = 0; i < s->flows.n; i++) {
        struct flow *f = (struct flow *)(void *)s->flows.v[i];
        bool ends = end_time(s, &f->fair) <= reach;
        struct flow **at = ends ? vec_push(&over) : NULL;
        s->failed |= ends && !at;
        if (at)
            *at = f;
        else {
            f->left -= isinf(f->fair.rate) ? 0 : f->fair.rate * (to - s->now);
            s->flows.v[kept++] = &f->fair;
        }
    }
    s->flows.n = kept;
    s->changed |= over.n > 0;
    s->now = to;
    for (size_t i = 0; i < over.n; i++) {
        end_flow(s, over.v[i]);
        free(over.v[i]);
    }
    free(over.v);
    while (s->heap.n && s->heap.v[0].at <= s->now) {
        struct timer t = pop_timer(s);
        if (s->workers[t.worker].timer == t.number && s->workers[t.worker].state != STATE_GETS)
            fire(s, &s->workers[t.worker]);
    }
}

static void run(struct sim *s)
{
    for (int i = 0; i < s->nworkers; i++)
        ask(s, &s->workers[i]);
    while ((s->left || s->flows.n) && !s->failed) {
        if (s->changed && s->flows.n && fair_solve(s->fair, s->links->cap, s->flows.v, s->flows.n))
            s->failed = true;
        s->changed = false;
        double next = s->heap.n ? s->heap.v[0].at : INFINITY;
        for (size_t i = 0; i < s->flows.n; i++)
            next = fmin(next, end_time(s, s->flows.v[i]));
        if (isinf(next)) /* it would be a fault of this file: relays insist in the end */
            return;
        advance(s, next);
    }
}

/* ---- the beginning and the end ---- */

static bool open_given(const struct bus_pull *p, struct part_blocks_given **out)
{
    int n = p->run->publishers;
    *out = calloc((size_t)n + 1, sizeof **out);
    for (int i = 0; i < n && *out; i++)
        if (!((*out)[i].who = calloc(p->parts[i].places.blocks + 1, sizeof *(*out)[i].who)))
            return false;
    return *out != NULL;
}

static void close_given(const struct bus_pull *p, struct part_blocks_given *given)
{
    for (int i = 0; i < p->run->publishers && given; i++)
        free(given[i].who);
    free(given);
}

static bool open_host(struct sim *s, int number)
{
    const struct bus_pull *p = s->p;
    struct host *h = &s->hosts[number];
    int subscriber = number / p->kinds;
    h->need = &p->needs[number % p->kinds];
    h->first = subscriber * p->run->readers + h->need->first;
    h->rank = p->run->publishers + h->first;
    h->waiting = NOBODY;
    h->have = calloc((size_t)p->run->publishers + 1, sizeof *h->have);
    if (!h->have || !open_given(p, &h->given))
        return false;
    for (int i = 0; i < p->run->publishers; i++) {
        if (!(h->have[i] = calloc(p->parts[i].places.blocks + 1, 1)))
            return false;
        for (size_t b = 0; b < p->parts[i].places.blocks; b++)
            h->missing += h->need->bytes[i][b] > 0;
    }
    s->left += h->missing > 0;
    return true;
}

static bool open_sim(struct sim *s)
{
    int each = BUS_RELAY_PUBLISHERS + BUS_RELAY_PEERS;
    s->nworkers = s->out->hosts * each;
    s->pullers = bus_relay_pullers(s->links->m.cores ? s->links->m.cores : BUS_RELAY_PUBLISHERS);
    s->nreaders = s->p->how->subscribers * s->out->readers;
    s->fair = fair_new(links_count(s->links));
    s->hosts = calloc((size_t)s->out->hosts + 1, sizeof *s->hosts);
    s->workers = calloc((size_t)s->nworkers + 1, sizeof *s->workers);
    s->readers = calloc((size_t)s->nreaders + 1, sizeof *s->readers);
    bool good = s->fair && s->hosts && s->workers && s->readers && open_given(s->p, &s->given);
    size_t most = 1;
    for (int i = 0; i < s->out->publishers; i++)
        most = s->p->parts[i].places.blocks > most ? s->p->parts[i].places.blocks : most;
    for (int i = 0; i < s->out->hosts && good; i++)
        good = open_host(s, i);
    for (int i = 0; i < s->nworkers && good; i++) {
        struct worker *w = &s->workers[i];
        /* Relays begin with different peers and ranks, as the hash of a host's name lets them. */
        *w = (struct worker){.host = i / each, .index = i % each, .peer = NOBODY, .next_waiting = NOBODY};
        w->turn = (size_t)(i / each) + (size_t)w->index;
        w->state = STATE_OVER;
        good = (w->list = malloc((most < PART_BLOCKS_LIST ? most : PART_BLOCKS_LIST) * sizeof *w->list)) != NULL;
    }
    return good;
}

static void close_sim(struct sim *s)
{
    for (int i = 0; i < s->out->hosts && s->hosts; i++) {
        for (int k = 0; k < s->out->publishers && s->hosts[i].have; k++)
            free((void *)s->hosts[i].have[k]);
        free((void *)s->hosts[i].have);
        close_given(s->p, s->hosts[i].given);
    }
    for (int i = 0; i < s->nworkers && s->workers; i++)
        free(s->workers[i].list);
    for (size_t i = 0; i < s->flows.n; i++)
        free(s->flows.v[i]);
    close_given(s->p, s->given);
    fair_free(s->fair);
    free(s->flows.v);
    free(s->heap.v);
    free(s->hosts);
    free(s->workers);
    free(s->readers);
}

int bus_pull_run(const struct bus_pull *p, struct failure *why)
{
    struct sim s = {.p = p, .links = &p->run->links, .out = p->run};
    int code = CLI_OK;
    if (open_sim(&s))
        run(&s);
    else
        s.failed = true;
    if (s.failed)
        code = failure_set(why, CLI_WRONG, "not enough memory to simulate %d hosts", p->run->hosts);
    else if (s.left)
        code = failure_set(why, CLI_WRONG, "%d hosts never get what they need", s.left);
    close_sim(&s);
    return code;
}
