/* The threads of a relay that pull blocks from other hosts. Some take from publishers, each of them from other
 * ranks. A publisher of one rank is asked by all of these, each of them for other blocks. The others take from peers,
 * each of them other blocks, so that no block comes twice. They run while readers of the host wait for blocks.
 *
 * A publisher gives each block to one host. If it has none to give that this host lacks, they come from peers. If for a
 * while nothing comes, because a peer has died with its blocks, this relay insists, and the publisher gives again. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/math.h"
#include "base/thread.h"
#include "rendezvous/deadline.h"
#include "version/bus_relay.h"

#define MS INT64_C(1000000)
#define PATIENCE_NS (500 * MS) /* without a new block; longer where replies take long */
#define VIEW_NS (300 * MS)     /* after which the directory is asked for new peers */

/* A connection that a thread keeps. */
struct line {
    struct catalog_slot slot;
    struct part_client client;
};
struct worker {
    struct bus_relay *relay;
    int index;
    int64_t round;
    VEC(struct line *) lines;
    size_t turn, lost; /* which peer is asked next; which bad one is told next */
    size_t dry;        /* replies without blocks, one after the other */
    struct part_client_blocks blocks;
};

/* One TAKE: what is asked, copied from the relay, which may change meanwhile. */
struct order {
    struct bus_relay_part *part;
    struct part_client_of of;
    struct catalog_slot slot;
    struct bus_relay_peer *peer; /* NULL: the publisher */
    struct part_link_message m;
    unsigned char *wanted;
};

/* ---- what to take; with the lock ---- */

static bool is_peer_worker(const struct worker *w)
{
    return w->index >= BUS_RELAY_PUBLISHERS;
}

static bool is_mine(const struct worker *w, int rank, size_t block)
{
    if (is_peer_worker(w))
        return (int)(block / BUS_RELAY_RUN % BUS_RELAY_PEERS) == w->index - BUS_RELAY_PUBLISHERS;
    return bus_relay_puller(w->relay->pullers, w->relay->ranks, rank, block) == w->index;
}

/* The first window of blocks that the worker may take; false: there are none. Blocks with a base come first. */
static bool list_blocks(const struct worker *w, const struct bus_relay_part *p, struct order *o)
{
    bool based = p->nbased > 0;
    for (int pass = based ? 0 : 1; pass < 2; pass++) {
        size_t n = p->places.blocks, first = n, end = 0, count = 0;
        for (size_t b = 0; b < n && (first == n || b < first + PART_LINK_BLOCKS); b++) {
            if (p->state[b] != BUS_RELAY_WANTED || p->based[b] != !pass || !is_mine(w, p->of.rank, b))
                continue;
            if (first == n) {
                first = b;
                o->wanted = calloc((size_t)min64((int64_t)(n - b), PART_LINK_BLOCKS) / 8 + 1, 1);
                if (!o->wanted)
                    return false;
            }
            part_blocks_set(o->wanted, b - first);
            end = b + 1;
            count++;
        }
        if (!count)
            continue;
        o->m = (struct part_link_message){.at = (int64_t)first, .count = (int64_t)(end - first)};
        o->m.flags = pass ? 0 : PART_LINK_BASE;
        o->m.base = w->relay->base.step;
        o->m.who = w->relay->who;
        o->m.most = (uint32_t)max64(SCHEMA_BLOCK, min64(PART_LINK_MOST, p->places.bytes / BUS_RELAY_SHARE));
        return true;
    }
    return false;
}

/* A peer from which nothing can be taken, another one each time; 0: there is none. */
static uint64_t choose_lost(struct worker *w)
{
    struct bus_relay *r = w->relay;
    for (size_t i = 0; i < r->peers.n; i++) {
        const struct bus_relay_peer *p = r->peers.v[w->lost++ % r->peers.n];
        if (p->bad)
            return bus_relay_who(p->slot.host);
    }
    return 0;
}

/* The peer to ask: one from which this relay takes nothing now, in turn. After a reply without blocks it is the next
 * one, whatever is taken from it: where there are as many peers as threads, and each thread waits at one, the peer that
 * a thread has just asked would otherwise always be the only one that is free. */
static struct bus_relay_peer *choose_peer(struct worker *w)
{
    struct bus_relay *r = w->relay;
    struct bus_relay_peer *best = NULL;
    for (size_t i = 0; i < r->peers.n; i++) {
        struct bus_relay_peer *p = r->peers.v[(w->turn + i) % r->peers.n];
        if (!p->bad && (!best || (!w->dry && p->busy < best->busy)))
            best = p;
    }
    w->turn++;
    return best;
}

static int64_t patience(const struct bus_relay *r)
{
    return max64(PATIENCE_NS, 4 * r->slowest);
}

static bool is_over(const struct worker *w)
{
    const struct bus_relay *r = w->relay;
    return r->stops || r->error || !r->users || r->round != w->round;
}

/* What the worker does next: 1: an order; 0: it waits; -1: it ends. */
static int next_order(struct worker *w, struct order *o)
{
    struct bus_relay *r = w->relay;
    bool missing = false;
    *o = (struct order){0};
    if (is_over(w))
        return -1;
    struct bus_relay_peer *peer = is_peer_worker(w) ? choose_peer(w) : NULL;
    for (int i = 0; i < r->ranks && !o->part; i++) {
        struct bus_relay_part *p = r->parts[(i + (int)w->turn) % r->ranks];
        missing = missing || (p && p->missing);
        if (!p || (is_peer_worker(w) && !peer) || !p->missing ||
            (!is_peer_worker(w) && (p->slot_dead || !p->slot.job[0])) || !list_blocks(w, p, o))
            continue;
        o->part = p;
        o->of = p->of;
        o->slot = p->slot;
    }
    if (!missing)
        return -1;
    if (!o->part)
        return 0;
    if (peer) {
        o->peer = peer;
        o->slot = peer->slot;
        peer->busy++;
    } else {
        o->m.lost = choose_lost(w);
        if (deadline_now() - r->progress > patience(r))
            o->m.flags |= PART_LINK_INSIST;
    }
    return 1;
}

/* ---- taking ---- */

/* The connection to a slot, made if need be. */
static int connect_line(struct worker *w, const struct catalog_slot *slot, int64_t until, struct line **out)
{
    struct bus_relay *r = w->relay;
    for (size_t i = 0; i < w->lines.n; i++)
        if (!strcmp(w->lines.v[i]->slot.secret, slot->secret) && w->lines.v[i]->slot.rank == slot->rank &&
            w->lines.v[i]->slot.epoch == slot->epoch) {
            *out = w->lines.v[i];
            return 0;
        }
    struct line **at = vec_push(&w->lines), *line = at ? calloc(1, sizeof *line) : NULL;
    if (!line) {
        w->lines.n -= at != NULL;
        return error_nomem();
    }
    *at = line;
    line->slot = *slot;
    int err = part_client_open(r->bus->host, r->source.set, &line->slot, r->bus->keeper.lease_ns, until, &line->client);
    if (err) {
        w->lines.n--;
        free(line);
    } else
        *out = line;
    return err;
}

static void drop_line(struct worker *w, struct line *line)
{
    for (size_t i = 0; i < w->lines.n; i++)
        if (w->lines.v[i] == line) {
            w->lines.v[i] = w->lines.v[--w->lines.n];
            break;
        }
    part_client_close(&line->client);
    free(line);
}

/* Registers the socket, so that the relay's end can interrupt a wait. */
static bool watch_line(struct worker *w, int fd)
{
    struct bus_relay *r = w->relay;
    pthread_mutex_lock(&r->lock);
    r->fds[w->index] = fd;
    bool goes = !r->stops;
    pthread_mutex_unlock(&r->lock);
    return goes;
}

static int wrong_block(const struct worker *w, const struct order *o, const struct line *line, size_t block)
{
    struct bus_relay *r = w->relay;
    int err = error_set(WEFT_EPEER, "the relay has gone to another version");
    pthread_mutex_lock(&r->lock);
    if (r->round == w->round) {
        int64_t at, bytes;
        size_t t = schema_block(&o->part->places, block, &at, &bytes);
        err =
            error_set(WEFT_EMISMATCH, "set '%s', version %lld.%lld: tensor '%s', block %zu of %s: the digest is wrong",
                      r->source.set, (long long)o->of.version.epoch, (long long)o->of.version.step,
                      r->schema->v[t].name, block - o->part->places.v[t].block, line->client.name);
    }
    pthread_mutex_unlock(&r->lock);
    return err;
}

/* Stores the blocks of a reply. */
static int store(struct worker *w, const struct order *o, const struct line *line)
{
    const unsigned char *payload = w->blocks.payload;
    size_t size = w->blocks.size, n = w->blocks.n, at = n * sizeof(struct part_link_block);
    for (size_t i = 0; i < n; i++) {
        struct part_link_block head;
        memcpy(&head, payload + i * sizeof head, sizeof head);
        if (head.block < (uint64_t)o->m.at || head.block >= (uint64_t)(o->m.at + o->m.count) ||
            !part_blocks_bit(o->wanted, head.block - (size_t)o->m.at) || head.bytes > size - at)
            return error_set(WEFT_EMISMATCH, "%s sent bytes that do not fit the protocol", line->client.name);
        if (!bus_relay_store(w->relay, o->part, w->round, head.block, payload + at, head.bytes,
                             o->m.flags & PART_LINK_BASE))
            return wrong_block(w, o, line, head.block);
        at += head.bytes;
    }
    return at == size ? 0 : error_set(WEFT_EMISMATCH, "%s sent bytes that do not fit the protocol", line->client.name);
}

/* *n: blocks that came. */
static int take(struct worker *w, struct order *o, size_t *n)
{
    struct bus_relay *r = w->relay;
    struct line *line = NULL;
    int64_t began = deadline_now(), until = deadline_in(r->bus->keeper.lease_ns);
    int err = connect_line(w, &o->slot, until, &line);
    if (err)
        return err;
    if (!watch_line(w, line->client.link.fd))
        err = error_set(WEFT_EPEER, "the relay ends");
    if (!err)
        err = part_client_take(&line->client, &o->of, &o->m, o->wanted, until, &w->blocks);
    watch_line(w, -1);
    if (!err) {
        *n = w->blocks.n;
        err = store(w, o, line);
        pthread_mutex_lock(&r->lock);
        r->slowest = max64(r->slowest, *n ? deadline_now() - began : 0);
        if (*n && !(o->m.flags & PART_LINK_INSIST))
            r->progress = deadline_now();
        pthread_cond_broadcast(&r->changed); /* once a reply: several threads wait, and each looks at many blocks */
        pthread_mutex_unlock(&r->lock);
    }
    if (err)
        drop_line(w, line);
    return err;
}

/* Looks for new peers, from time to time. */
static void look(struct worker *w)
{
    struct bus_relay *r = w->relay;
    struct catalog c;
    pthread_mutex_lock(&r->lock);
    bool old = deadline_now() - r->viewed > VIEW_NS && !r->stops;
    if (old)
        r->viewed = deadline_now(); /* one thread does it */
    pthread_mutex_unlock(&r->lock);
    if (old && !catalog_get(&r->bus->keeper, r->source.set, deadline_in(r->bus->keeper.lease_ns / 3), &c)) {
        bus_relay_view(r, &c);
        catalog_free(&c);
    }
}

/* The publisher of a part cannot be reached, or does not have it any more: peers may have what is missing. */
static void lost_publisher(struct worker *w, const struct order *o, int err)
{
    struct bus_relay *r = w->relay;
    pthread_mutex_lock(&r->lock);
    bool peers = false;
    for (size_t i = 0; i < r->peers.n; i++)
        peers = peers || !r->peers.v[i]->bad;
    if (r->round == w->round)
        o->part->slot_dead = true;
    pthread_mutex_unlock(&r->lock);
    if (!peers || err != WEFT_EPEER)
        bus_relay_fail(r, w->round, err);
}

/* Nothing comes, and no publisher is left that could be asked again. */
static void give_up(struct worker *w)
{
    struct bus_relay *r = w->relay;
    bool dead = false;
    pthread_mutex_lock(&r->lock);
    if (r->round == w->round && deadline_now() - r->progress > max64(patience(r), r->bus->keeper.lease_ns / 2))
        for (int i = 0; i < r->ranks; i++)
            dead =
                dead || (r->parts[i] && r->parts[i]->missing && (r->parts[i]->slot_dead || !r->parts[i]->slot.job[0]));
    pthread_mutex_unlock(&r->lock);
    if (dead)
        bus_relay_fail(r, w->round, error_set(WEFT_EPEER, "the publisher has gone, and no peer has what is missing"));
}

static void work(struct worker *w)
{
    struct bus_relay *r = w->relay;
    for (;;) {
        struct order o;
        size_t n = 0;
        pthread_mutex_lock(&r->lock);
        int next = next_order(w, &o);
        if (next > 0 && w->dry > r->peers.n)
            o.m.flags |= PART_LINK_WAIT;
        if (next < 0) /* with the lock still held, so that a reader that wants more sees that it must start another */
            return;
        if (!next) {
            int64_t until = deadline_in(r->idle_ns), news = r->news;
            struct timespec at = {until / 1000000000, until % 1000000000};
            while (!is_over(w) && r->news == news && !pthread_cond_timedwait(&r->changed, &r->lock, &at))
                ; /* every reply that comes wakes it, and a look at all blocks for each of them takes long */
        }
        pthread_mutex_unlock(&r->lock);
        int err = next ? take(w, &o, &n) : 0;
        w->dry = n ? 0 : w->dry + 1;
        if (o.peer) {
            pthread_mutex_lock(&r->lock);
            o.peer->busy--;
            o.peer->bad = o.peer->bad || err;
            pthread_mutex_unlock(&r->lock);
        } else if (err)
            lost_publisher(w, &o, err);
        free(o.wanted);
        if (!n) {
            look(w);
            give_up(w);
        }
        if (next && !n && !o.peer && !err) { /* the publisher has given all to others: they will have it soon */
            int64_t pause = BUS_RELAY_PAUSE_NS;
            deadline_pause(&pause, BUS_RELAY_PAUSE_NS, INT64_MAX / 2);
        }
    }
}

static void *run(void *arg)
{
    struct worker *w = arg;
    struct bus_relay *r = w->relay;
    work(w); /* returns with the lock */
    r->running &= ~(1u << w->index);
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    while (w->lines.n)
        drop_line(w, w->lines.v[w->lines.n - 1]);
    free(w->lines.v);
    free(w->blocks.payload);
    free(w);
    pthread_mutex_lock(&r->lock); /* the relay's end waits until the connections are closed */
    r->workers--;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

void bus_relay_pull_start(struct bus_relay *r)
{
    for (int i = 0; i < BUS_RELAY_PUBLISHERS + BUS_RELAY_PEERS; i++) {
        bool spare = i >= r->pullers && i < BUS_RELAY_PUBLISHERS;
        if (spare || r->running & 1u << i)
            continue;
        struct worker *w = calloc(1, sizeof *w);
        if (!w)
            break;
        *w = (struct worker){.relay = r, .index = i, .round = r->round, .turn = (size_t)(r->who >> 40) + (size_t)i};
        if (thread_start_detached(run, w))
            free(w);
        else {
            r->running |= 1u << i;
            r->workers++;
        }
    }
}
