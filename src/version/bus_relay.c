#define _GNU_SOURCE
#include "version/bus_relay.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/blake2s.h"
#include "base/hash.h"
#include "base/math.h"
#include "bus/delta.h"
#include "layout/layout.h"
#include "memory/sum.h"
#include "rendezvous/deadline.h"
#include "version/copy_threads.h"
#include "version/layouts.h"

#define LEAVE_NS INT64_C(2000000000)
#define READER_NS INT64_C(100000000) /* a reader that has left counts until a thread here has seen it */

uint64_t bus_relay_who(const char *host)
{
    return hash_bytes(1, host, strlen(host));
}

/* With the lock. */
static void wait_change(struct bus_relay *r, int64_t until)
{
    struct timespec at = {until / 1000000000, until % 1000000000}; /* deadline_now() is this clock's time */
    pthread_cond_timedwait(&r->changed, &r->lock, &at);
}

/* With the lock. */
static void tell_news(struct bus_relay *r)
{
    r->news++;
    pthread_cond_broadcast(&r->changed);
}

/* ---- parts ---- */

static void free_part(struct bus_relay_part *p)
{
    if (!p)
        return;
    for (size_t b = 0; p->deltas && b < p->places.blocks; b++)
        free(p->deltas[b].data);
    snapshot_close(&p->file);
    free(p->digests);
    free(p->was);
    free(p->state);
    free(p->taken);
    free(p->based);
    free(p->deltas);
    free(p->given.who);
    schema_part_free(&p->places);
    free(p);
}

static void free_parts(struct bus_relay *r)
{
    for (int i = 0; i < r->ranks; i++)
        free_part(r->parts[i]);
    free(r->parts);
    schema_free(r->schema);
    r->parts = NULL;
    r->schema = NULL;
    r->ranks = 0;
}

static int make_part(struct bus_relay *r, int rank, struct bus_relay_part **out)
{
    struct bus_relay_part *p = calloc(1, sizeof *p);
    if (!p)
        return error_nomem();
    p->file.fd = -1;
    int err = schema_part(r->schema, rank, false, &p->places);
    size_t n = p->places.blocks;
    if (!err) {
        p->digests = calloc(n + 1, sizeof *p->digests);
        p->was = calloc(n + 1, sizeof *p->was);
        p->state = calloc(n + 1, sizeof *p->state);
        p->taken = calloc(n + 1, sizeof *p->taken);
        p->based = calloc(n + 1, sizeof *p->based);
        p->deltas = calloc(n + 1, sizeof *p->deltas);
        p->given.who = calloc(n + 1, sizeof *p->given.who);
        if (!p->digests || !p->was || !p->state || !p->taken || !p->based || !p->deltas || !p->given.who)
            err = error_nomem();
    }
    if (!err)
        err = snapshot_create_sparse(p->places.bytes, (int64_t)n, &p->file);
    if (err) {
        free_part(p);
        return err;
    }
    p->present = (_Atomic uint8_t *)(p->file.data + p->places.bytes);
    snapshot_begin(&p->file);
    p->generation = snapshot_end(&p->file);
    *out = p;
    return 0;
}

/* The memory is for another version from now on: what it has is the base. */
static void turn_part(struct bus_relay_part *p, bool based)
{
    size_t n = p->places.blocks;
    uint64_t *digests = p->was; /* for the new ones */
    p->was = p->digests;
    p->digests = digests;
    snapshot_begin(&p->file);
    for (size_t b = 0; b < n; b++) {
        p->based[b] = based && p->state[b] == BUS_RELAY_PRESENT;
        p->state[b] = BUS_RELAY_NONE;
        atomic_store_explicit(&p->present[b], 0, memory_order_relaxed); /* before the new generation */
        free(p->deltas[b].data);
        p->deltas[b] = (struct part_blocks_delta){0};
    }
    p->generation = snapshot_end(&p->file);
    part_blocks_forget(&p->given, n);
    p->missing = p->nbased = 0;
    p->begun = p->slot_dead = false;
}

/* ---- versions ---- */

int bus_relay_view(struct bus_relay *r, const struct catalog *c)
{
    int err = 0;
    pthread_mutex_lock(&r->lock);
    const struct catalog_version *v = catalog_find(c, &r->version);
    r->viewed = deadline_now();
    for (int i = 0; i < r->ranks && v && i < v->ranks; i++)
        if (r->parts[i] && v->parts[i]) {
            struct bus_relay_part *p = r->parts[i];
            bool other = strcmp(p->slot.socket, v->parts[i]->slot->socket) != 0; /* an agent follows */
            p->slot_dead = p->slot_dead && !other;
            p->slot = *v->parts[i]->slot;
            if (other)
                tell_news(r);
        }
    for (size_t i = 0; i < c->nrelays && !err; i++) {
        bool known = !strcmp(c->relays[i].host, r->bus->host) || !c->relays[i].address[0];
        for (size_t k = 0; k < r->peers.n && !known; k++)
            known = !strcmp(r->peers.v[k]->slot.secret, c->relays[i].secret);
        if (known)
            continue;
        struct bus_relay_peer **at = vec_push(&r->peers), *peer = at ? calloc(1, sizeof *peer) : NULL;
        if (!peer) {
            r->peers.n -= at != NULL;
            err = error_nomem();
        } else {
            peer->slot = c->relays[i];
            *at = peer;
            tell_news(r);
        }
    }
    pthread_mutex_unlock(&r->lock);
    return err;
}

/* With the lock: peers get a new chance, those that have left the directory are forgotten. */
static void drop_peers(struct bus_relay *r, const struct catalog *c)
{
    size_t kept = 0;
    for (size_t i = 0; i < r->peers.n; i++) {
        struct bus_relay_peer *p = r->peers.v[i];
        bool known = p->busy > 0;
        for (size_t k = 0; k < c->nrelays && !known; k++)
            known = !strcmp(p->slot.secret, c->relays[k].secret);
        p->bad = false;
        if (known)
            r->peers.v[kept++] = p;
        else
            free(p);
    }
    r->peers.n = kept;
}

/* With `setup`, when nobody holds the version: waits for threads at the memory, and goes to another version. */
static int turn(struct bus_relay *r, const struct catalog *c, const struct catalog_version *v, int64_t until)
{
    struct schema *fresh = NULL;
    bool same = r->schema && !memcmp(r->schema->layouts, v->layouts, SCHEMA_HASH) && r->ranks == v->ranks;
    int err = same ? 0 : layouts_read(r->bus, r->source.set, v, NULL, until, &fresh);
    struct bus_relay_part **parts = err || same ? NULL : calloc((size_t)v->ranks, sizeof *parts);
    if (!err && !same && !parts)
        err = error_nomem();
    if (err) {
        schema_free(fresh);
        return err;
    }
    pthread_mutex_lock(&r->lock);
    r->round++; /* threads that pull for the version before end */
    r->turning = true;
    pthread_cond_broadcast(&r->changed);
    while (r->busy)
        pthread_cond_wait(&r->changed, &r->lock);
    r->turning = false;
    r->base = r->version;
    r->version = v->version;
    r->error = 0;
    r->progress = deadline_now();
    r->slowest = 0;
    drop_peers(r, c);
    if (same)
        for (int i = 0; i < r->ranks; i++) {
            if (r->parts[i])
                turn_part(r->parts[i], r->delta && r->base.epoch == v->version.epoch);
        }
    else {
        free_parts(r);
        r->schema = fresh;
        r->parts = parts;
        r->ranks = v->ranks;
    }
    pthread_mutex_unlock(&r->lock);
    return bus_relay_view(r, c);
}

/* The digests of a part from one holder. */
static int ask_digests(struct bus_relay *r, struct bus_relay_part *p, const struct catalog_slot *slot, int64_t until)
{
    struct part_client c;
    int file;
    uint64_t generation;
    int err = part_client_open(r->bus->host, r->source.set, slot, r->bus->keeper.lease_ns, until, &c);
    if (err)
        return err;
    err = part_client_part(&c, &p->of, (unsigned char *)p->digests, p->places.blocks * sizeof *p->digests, until, &file,
                           &generation);
    if (!err && file >= 0)
        close(file);
    part_client_close(&c);
    return err;
}

/* The digests of a part, from its publisher or from a peer. One that says nothing leaves time for the others: the
 * publisher has half of it, each of the others half of what is left, and last the publisher the rest. */
static int read_digests(struct bus_relay *r, const struct catalog_version *v, struct bus_relay_part *p, int64_t until)
{
    const struct catalog_part *part = v->parts[p->of.rank];
    int err = error_set(WEFT_EPEER, "no live process has the part of rank %d", p->of.rank);
    bool more = true;
    for (size_t k = 0; err && more; k++) {
        pthread_mutex_lock(&r->lock);
        more = k <= r->peers.n;
        bool others = r->peers.n > 0;
        const struct catalog_slot *slot = k && more ? &r->peers.v[k - 1]->slot : part ? part->slot : NULL;
        pthread_mutex_unlock(&r->lock);
        int64_t now = deadline_now();
        if (slot && (more || others)) /* without peers the publisher is asked once */
            err = ask_digests(r, p, slot, more && others ? now + (until - now) / 2 : until);
    }
    return err;
}

/* With `setup`: the version is r's, and has this part. */
static int need_version(struct bus_relay *r, const struct part_link_message *m, int64_t until)
{
    weft_epoch_step want = {m->epoch, m->step};
    struct catalog c;
    bool same = !record_version_compare(&want, &r->version);
    if (same && m->rank >= 0 && m->rank < r->ranks && r->parts[m->rank] && r->parts[m->rank]->begun)
        return 0;
    int64_t leave = min64(until, deadline_in(READER_NS));
    pthread_mutex_lock(&r->lock);
    while (!same && r->users && deadline_now() < leave)
        wait_change(r, leave);
    int users = r->users;
    pthread_mutex_unlock(&r->lock);
    if (!same && users)
        return error_set(WEFT_EBUSY, "the relay of this host has version %lld.%lld, which is being read",
                         (long long)r->version.epoch, (long long)r->version.step);
    int err = catalog_get(&r->bus->keeper, r->source.set, until, &c);
    if (err)
        return err;
    const struct catalog_version *v = catalog_find(&c, &want);
    if (!v || m->rank < 0 || m->rank >= v->ranks)
        err = error_set(WEFT_EPEER, "version %lld.%lld has gone", (long long)want.epoch, (long long)want.step);
    if (!err && !same)
        err = turn(r, &c, v, until);
    struct bus_relay_part *p = err ? NULL : r->parts[m->rank];
    if (!err && !p) {
        err = make_part(r, m->rank, &p);
        pthread_mutex_lock(&r->lock);
        r->parts[m->rank] = p;
        pthread_mutex_unlock(&r->lock);
    }
    if (!err) {
        const struct catalog_part *part = v->parts[m->rank];
        p->of = (struct part_client_of){
            .version = want, .rank = m->rank, .generation = m->generation, .digests = part ? part->digests : true};
        memcpy(p->of.hash, v->hashes + (size_t)m->rank * CATALOG_PART, CATALOG_PART);
        err = bus_relay_view(r, &c);
    }
    if (!err)
        err = read_digests(r, v, p, until);
    if (!err) {
        pthread_mutex_lock(&r->lock);
        p->begun = true;
        pthread_mutex_unlock(&r->lock);
    }
    catalog_free(&c);
    return err;
}

/* ---- what the server asks ---- */

/* With the lock: the part that a message means; NULL: it is not of this version, or that one is about to go. Peers that
 * ask again and again so cannot keep a turn waiting. */
static struct bus_relay_part *part_of(const struct bus_relay *r, const struct part_link_message *m)
{
    weft_epoch_step v = {m->epoch, m->step};
    struct bus_relay_part *p = m->rank >= 0 && m->rank < r->ranks ? r->parts[m->rank] : NULL;
    return p && p->begun && !r->turning && !record_version_compare(&v, &r->version) ? p : NULL;
}

/* A reader of this host holds the version from now on; a peer gets the digests. */
static int give_part(void *owner, const struct part_link_message *m, struct part_server_part *out)
{
    struct bus_relay *r = owner;
    bool here = m->flags & PART_LINK_FILE;
    int err = 0;
    if (m->op != PART_LINK_PART)
        return error_set(WEFT_EINVAL, "a relay gives blocks only");
    if (here) {
        pthread_mutex_lock(&r->setup);
        err = need_version(r, m, deadline_in(r->bus->keeper.lease_ns / 2));
    }
    pthread_mutex_lock(&r->lock);
    const struct bus_relay_part *p = err ? NULL : part_of(r, m);
    if (!err && !p)
        err = error_set(WEFT_EPEER, "the relay does not have this version");
    out->size = p && p->of.digests ? p->places.blocks * sizeof *p->digests : 0;
    out->digests = err ? NULL : malloc(out->size + 1);
    if (!err && !out->digests)
        err = error_nomem();
    if (!err) {
        memcpy(out->digests, p->digests, out->size);
        out->snapshot = p->file;
        out->generation = p->generation;
        out->bytes = 0;
        if (here && !r->users) { /* a new beginning */
            r->error = 0;
            for (int i = 0; i < r->ranks; i++)
                if (r->parts[i])
                    r->parts[i]->slot_dead = false;
            tell_news(r);
        }
        r->users += here;
    }
    pthread_mutex_unlock(&r->lock);
    if (here)
        pthread_mutex_unlock(&r->setup);
    return err;
}

static void release(void *owner)
{
    struct bus_relay *r = owner;
    pthread_mutex_lock(&r->lock);
    r->users--;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

int bus_relay_borrow(struct bus_relay *r, const struct part_client_of *of, uint64_t generation, struct snapshot *out)
{
    pthread_mutex_lock(&r->lock);
    const struct bus_relay_part *p = of->rank < r->ranks ? r->parts[of->rank] : NULL;
    bool there = p && p->generation == generation && !r->turning && !record_version_compare(&of->version, &r->version);
    if (there) {
        *out = p->file;
        r->users++;
    }
    pthread_mutex_unlock(&r->lock);
    return there ? 0 : error_set(WEFT_EPEER, "the relay has gone to another version");
}

void bus_relay_return(struct bus_relay *r)
{
    release(r);
}

/* Memory for the blocks that are wanted. With `setup`. */
static int take_memory(struct bus_relay_part *p, const struct part_link_message *m, const unsigned char *wanted)
{
    for (size_t i = 0; i < (size_t)m->count;) {
        int64_t at, bytes, end;
        size_t b = (size_t)m->at + i++, first = b;
        if (!part_blocks_bit(wanted, i - 1) || p->taken[b])
            continue;
        schema_block(&p->places, b, &at, &bytes);
        end = at + bytes;
        for (p->taken[b] = true; i < (size_t)m->count && part_blocks_bit(wanted, i) && !p->taken[b + 1]; i++) {
            int64_t next;
            p->taken[++b] = true;
            schema_block(&p->places, b, &next, &bytes);
            end = next + bytes;
        }
        int err = snapshot_take(&p->file, at, end - at);
        if (err) {
            memset(p->taken + first, 0, (b + 1 - first) * sizeof *p->taken); /* a store there would be a SIGBUS */
            return err;
        }
    }
    return 0;
}

/* With the lock: a thread that has counted itself in `busy` is done. Only a turn to another version waits for that. */
static void leave_memory(struct bus_relay *r)
{
    if (!--r->busy && r->turning)
        pthread_cond_broadcast(&r->changed);
}

static bool check(const struct bus_relay_part *p, size_t block, const unsigned char *bytes, size_t n)
{
    return !p->of.digests || sum_bytes(0, bytes, n) == p->digests[block];
}

/* With the lock. A reader says that these blocks are wrong: those that are, by all of their bytes, are not there any
 * more. Readers that copy such a block meanwhile find that its digest is wrong. */
static void look_again(struct bus_relay *r, struct bus_relay_part *p, const struct part_link_message *m,
                       const unsigned char *wanted)
{
    for (size_t i = 0; i < (size_t)m->count; i++) {
        size_t b = (size_t)m->at + i;
        int64_t at, bytes;
        if (!part_blocks_bit(wanted, i) || p->state[b] != BUS_RELAY_PRESENT)
            continue;
        p->state[b] = BUS_RELAY_STORING;
        r->busy++;
        pthread_mutex_unlock(&r->lock);
        schema_block(&p->places, b, &at, &bytes);
        bool right = check(p, b, p->file.data + at, (size_t)bytes);
        if (!right)
            atomic_store_explicit(&p->present[b], 0, memory_order_relaxed); /* the reader hears of it by the reply */
        pthread_mutex_lock(&r->lock);
        p->state[b] = right ? BUS_RELAY_PRESENT : BUS_RELAY_NONE;
        leave_memory(r);
    }
    pthread_cond_broadcast(&r->changed); /* others have counted as missing what was looked at */
}

static int await_blocks(void *owner, const struct part_link_message *m, const unsigned char *wanted, int64_t *missing)
{
    struct bus_relay *r = owner;
    int64_t until = deadline_in(PART_LINK_WAIT_NS);
    bool fresh = false;
    pthread_mutex_lock(&r->setup);
    pthread_mutex_lock(&r->lock);
    struct bus_relay_part *p = part_of(r, m);
    pthread_mutex_unlock(&r->lock);
    int err = p && (uint64_t)m->at + (uint64_t)m->count <= p->places.blocks
                  ? take_memory(p, m, wanted)
                  : error_set(WEFT_EPEER, "the relay does not have this version");
    pthread_mutex_unlock(&r->setup);
    if (err)
        return err;
    pthread_mutex_lock(&r->lock);
    if (m->flags & PART_LINK_WRONG)
        look_again(r, p, m, wanted);
    for (size_t i = 0; i < (size_t)m->count; i++) {
        size_t b = (size_t)m->at + i;
        if (!part_blocks_bit(wanted, i) || p->state[b] != BUS_RELAY_NONE)
            continue;
        p->state[b] = BUS_RELAY_WANTED;
        p->missing++;
        p->nbased += p->based[b];
        fresh = true;
    }
    if (fresh)
        tell_news(r);
    if (p->missing && !r->error) {
        if (!r->running)
            r->progress = deadline_now();
        bus_relay_pull_start(r);
    }
    for (;;) {
        int64_t n = 0;
        for (size_t i = 0; i < (size_t)m->count; i++)
            n += part_blocks_bit(wanted, i) && p->state[(size_t)m->at + i] != BUS_RELAY_PRESENT;
        *missing = n;
        if (!n || r->error || r->stops || !(m->flags & PART_LINK_WAIT) || deadline_now() >= until)
            break;
        wait_change(r, until);
    }
    if (*missing && (r->error || r->stops))
        err = r->stops ? error_set(WEFT_EPEER, "the relay ends") : error_set(r->error, "%s", r->text);
    pthread_mutex_unlock(&r->lock);
    return err;
}

static int take_blocks(void *owner, const struct part_link_message *m, const unsigned char *wanted,
                       struct part_server_blocks *out)
{
    struct bus_relay *r = owner;
    int64_t until = deadline_in(PART_LINK_WAIT_NS);
    uint32_t *list = malloc(PART_BLOCKS_LIST * sizeof *list);
    size_t n = 0;
    if (!list)
        return WEFT_ENOMEM;
    pthread_mutex_lock(&r->lock);
    for (;;) {
        struct bus_relay_part *p = r->stops ? NULL : part_of(r, m);
        if (p && (uint64_t)m->at + (uint64_t)m->count <= p->places.blocks)
            n = part_blocks_choose(&p->given, &p->places, p->present, m, wanted, false, list);
        if (n) {
            bool based = m->flags & PART_LINK_BASE && r->base.epoch == m->epoch && r->base.step == m->base;
            struct part_blocks_from from = {r->schema, &p->places, .data = p->file.data,
                                            .deltas = based ? p->deltas : NULL};
            int64_t round = r->round;
            r->busy++; /* the memory stays as it is */
            pthread_mutex_unlock(&r->lock);
            out->payload = part_blocks_pack(&from, m, list, &n, &out->size, &out->runs);
            out->n = n;
            out->round = round;
            pthread_mutex_lock(&r->lock);
            leave_memory(r);
        }
        if (n || r->stops || !(m->flags & PART_LINK_WAIT) || deadline_now() >= until)
            break;
        wait_change(r, until);
    }
    pthread_mutex_unlock(&r->lock);
    free(list);
    return n && !out->payload ? WEFT_ENOMEM : 0;
}

static bool hold_memory(void *owner, int64_t round)
{
    struct bus_relay *r = owner;
    pthread_mutex_lock(&r->lock);
    bool same = r->round == round && !r->stops;
    r->busy += same;
    pthread_mutex_unlock(&r->lock);
    return same;
}

static void drop_memory(void *owner)
{
    struct bus_relay *r = owner;
    pthread_mutex_lock(&r->lock);
    leave_memory(r);
    pthread_mutex_unlock(&r->lock);
}

/* ---- blocks that come ---- */

bool bus_relay_store(struct bus_relay *r, struct bus_relay_part *p, int64_t round, size_t block,
                     const unsigned char *bytes, size_t n, bool based)
{
    int64_t at, whole;
    pthread_mutex_lock(&r->lock);
    if (r->round != round || p->state[block] != BUS_RELAY_WANTED) {
        pthread_mutex_unlock(&r->lock);
        return true; /* another one was faster */
    }
    p->state[block] = BUS_RELAY_STORING;
    r->busy++;
    pthread_mutex_unlock(&r->lock);
    const struct schema_tensor *t = &r->schema->v[schema_block(&p->places, block, &at, &whole)];
    size_t size = weft_dtype_size(t->layout->dtype);
    bool delta = n < (size_t)whole, right;
    unsigned char *copy = NULL;
    if (delta) {
        uint64_t added;
        right = p->based[block] && delta_takes(size) &&
                delta_apply(p->file.data + at, bytes, n, (size_t)whole / size, size, &added) &&
                (!p->of.digests || p->was[block] + added == p->digests[block]);
        copy = right && r->bus->listen ? malloc(n + 1) : NULL;
        if (copy)
            memcpy(copy, bytes, n);
    } else {
        right = n == (size_t)whole && check(p, block, bytes, n);
        if (right)
            memcpy(p->file.data + at, bytes, n);
    }
    pthread_mutex_lock(&r->lock);
    p->state[block] = right ? BUS_RELAY_PRESENT : BUS_RELAY_WANTED;
    if (right || delta) {
        p->nbased -= p->based[block];
        p->based[block] = false;
    }
    if (right) {
        if (copy) /* there is none yet. A block that comes again is whole, and peers may read the delta now */
            p->deltas[block] = (struct part_blocks_delta){copy, (uint32_t)n};
        p->missing--;
        atomic_store_explicit(&p->present[block], 1, memory_order_release); /* pairs with readers of the byte */
    } else
        tell_news(r); /* it is wanted again */
    leave_memory(r);
    pthread_mutex_unlock(&r->lock);
    return right || (delta && based); /* after a delta the block is asked for whole */
}

void bus_relay_fail(struct bus_relay *r, int64_t round, int err)
{
    pthread_mutex_lock(&r->lock);
    if (r->round == round && !r->error) {
        r->error = err;
        snprintf(r->text, sizeof r->text, "%s", weft_errmsg());
    }
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

/* ---- one relay for a host ---- */

static void relay_key(const weft_bus *b, const char *set, char key[RECORD_KEY])
{
    record_key(key, set, "readers/%s/relay", b->host);
}

static void describe(const weft_bus *b, struct catalog_slot *out)
{
    *out = (struct catalog_slot){.relay = true};
    snprintf(out->job, sizeof out->job, "%s", b->job);
    snprintf(out->host, sizeof out->host, "%s", b->host);
    snprintf(out->socket, sizeof out->socket, "%s", part_server_socket(b->server));
    snprintf(out->address, sizeof out->address, "%s", part_server_address(b->server));
    snprintf(out->secret, sizeof out->secret, "%s", part_server_secret(b->server));
}

static int start(weft_bus *b, const char *set, bool delta, struct bus_relay **out)
{
    pthread_condattr_t attr;
    int err = bus_serve(b);
    struct bus_relay *r = err ? NULL : calloc(1, sizeof *r);
    if (!r)
        return err ? err : error_nomem();
    r->bus = b;
    r->delta = delta;
    r->pullers = bus_relay_pullers(copy_threads_usual(1));
    r->idle_ns = BUS_RELAY_PAUSE_NS;
    r->who = bus_relay_who(b->host);
    for (size_t i = 0; i < sizeof r->fds / sizeof *r->fds; i++)
        r->fds[i] = -1;
    pthread_mutex_init(&r->setup, NULL);
    pthread_mutex_init(&r->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&r->changed, &attr);
    pthread_condattr_destroy(&attr);
    snprintf(r->source.set, sizeof r->source.set, "%s", set);
    r->source.relay = true;
    r->source.owner = r;
    r->source.part = give_part;
    r->source.take = take_blocks;
    r->source.hold = hold_memory;
    r->source.drop = drop_memory;
    r->source.await = await_blocks;
    r->source.release = release;
    part_server_add(b->server, &r->source);
    *out = r;
    return 0;
}

static void stop(struct bus_relay *r)
{
    pthread_mutex_lock(&r->lock);
    r->stops = true;
    pthread_cond_broadcast(&r->changed);
    for (size_t i = 0; i < sizeof r->fds / sizeof *r->fds; i++)
        if (r->fds[i] >= 0)
            shutdown(r->fds[i], SHUT_RDWR);
    pthread_mutex_unlock(&r->lock);
    part_server_remove(r->bus->server, &r->source);
    pthread_mutex_lock(&r->lock);
    while (r->workers)
        pthread_cond_wait(&r->changed, &r->lock);
    pthread_mutex_unlock(&r->lock);
    free_parts(r);
    for (size_t i = 0; i < r->peers.n; i++)
        free(r->peers.v[i]);
    free(r->peers.v);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    pthread_mutex_destroy(&r->setup);
    free(r);
}

/* Puts the record, if the host has none. */
static int announce(struct bus_relay *r, int64_t until, bool *done)
{
    char key[RECORD_KEY], record[1024];
    struct directory_outcome o;
    struct text t = text_start(record, sizeof record);
    relay_key(r->bus, r->source.set, key);
    bus_way(r->bus, &t);
    struct directory_change x = {.key = key, .value = record, .bytes = t.len, .lease = KEEPER_LEASE};
    int err = keeper_transact(&r->bus->keeper, &(struct directory_compare){key, 0}, 1, &x, 1, until, &o);
    *done = !err && o.done;
    if (*done)
        r->revision = o.revision;
    return err;
}

static const struct catalog_slot *find_relay(const weft_bus *b, const struct catalog *c)
{
    for (size_t i = 0; i < c->nrelays; i++)
        if (!strcmp(c->relays[i].host, b->host))
            return &c->relays[i];
    return NULL;
}

/* Is it a record of this process? Also of a relay that has ended, if the directory was away then. */
static bool is_mine(weft_bus *b, const struct catalog_slot *s)
{
    pthread_mutex_lock(&b->lock);
    bool mine = s && b->server && !strcmp(s->socket, part_server_socket(b->server));
    pthread_mutex_unlock(&b->lock);
    return mine;
}

static struct bus_relay *find_mine(weft_bus *b, const char *set)
{
    for (struct list *n = list_first(&b->relays); n; n = list_after(&b->relays, n))
        if (!strcmp(LIST_OF(n, struct bus_relay, node)->source.set, set))
            return LIST_OF(n, struct bus_relay, node);
    return NULL;
}

int bus_relay_find(weft_bus *b, const char *set, const struct catalog *c, bool delta, int64_t until,
                   struct bus_relay **mine, struct catalog_slot *slot)
{
    const struct catalog_slot *there = find_relay(b, c);
    bool done = false, ours = is_mine(b, there);
    int err = 0;
    pthread_mutex_lock(&b->relaying);
    struct bus_relay *r = find_mine(b, set);
    if (there && !ours) {
        *slot = *there;
        pthread_mutex_unlock(&b->relaying);
        return 0;
    }
    if (!r) {
        err = start(b, set, delta, &r);
        if (!err) {
            r->revision = ours ? there->revision : 0;
            list_append(&b->relays, &r->node);
        }
    }
    if (!err && !ours)
        err = announce(r, min64(until, deadline_in(b->keeper.lease_ns / 2)), &done); /* others wait for the lock */
    if (!err && (ours || done)) {
        describe(b, slot);
        r->subscribers += *mine != r;
        *mine = r;
    } else if (r && !r->subscribers) {
        list_remove(&r->node);
        stop(r);
    }
    pthread_mutex_unlock(&b->relaying);
    if (err || ours || done)
        return err;
    struct catalog now; /* another process was faster */
    err = catalog_get(&b->keeper, set, until, &now);
    if (err)
        return err;
    there = find_relay(b, &now);
    if (there)
        *slot = *there;
    else
        err = error_set(WEFT_EPEER, "the relay of this host has gone");
    catalog_free(&now);
    return err;
}

void bus_relay_leave(struct bus_relay *r)
{
    char key[RECORD_KEY];
    struct directory_outcome o;
    if (!r)
        return;
    weft_bus *b = r->bus;
    pthread_mutex_lock(&b->relaying);
    bool last = !--r->subscribers;
    if (last)
        list_remove(&r->node);
    pthread_mutex_unlock(&b->relaying);
    if (!last)
        return;
    relay_key(b, r->source.set, key);
    struct directory_change x = {.key = key, .erase = true};
    keeper_transact(&b->keeper, &(struct directory_compare){key, r->revision}, 1, &x, 1, deadline_in(LEAVE_NS), &o);
    stop(r);
}
