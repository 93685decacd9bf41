/* Readers of other hosts whose holders reuse their memory, lie, or send frames that were changed or cut: what a reader
 * gets is one version, bit by bit. "Another host" is a bus in this process that believes to be there. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bus/directories.h"
#include "rendezvous/address.h"
#include "rendezvous/dial.h"
#include "support/random.h"
#include "support/share.h"
#include "version/bus.h"
#include "version/bus_relay.h"
#include "version/part_blocks.h"
#include "version/publish.h"
#include "version/subscribe.h"
#include "weft/bus.h"

#define COUNT 200000 /* elements: 13 blocks */
static const weft_want latest = {WEFT_WANT_LATEST, 0};

static int32_t element(int64_t step, int64_t i)
{
    return (int32_t)(step * 1000003 + i);
}

struct lab {
    weft_bus *here, *there; /* the publisher's, and the subscriber's, on another host */
    weft_layout *layout;
    weft_publisher *p;
    weft_subscriber *s;
    int32_t *data;
};

static int put(struct lab *l, int64_t step)
{
    for (int64_t i = 0; i < COUNT; i++)
        l->data[i] = element(step, i);
    return weft_put(l->p, step, &(weft_view)WEFT_VIEW(l->data, COUNT * sizeof *l->data));
}

static void commit(struct lab *l, int64_t step)
{
    fine(put(l, step));
    fine(weft_commit(l->p, step, NULL, NULL));
}

static void begin_leased(struct lab *l, const char *set, const weft_subscribe_opts *opts, int64_t lease_ns)
{
    weft_bus_opts o = WEFT_BUS_OPTS_INIT;
    o.lease_ns = lease_ns;
    o.token = PUBLISH_TOKEN;
    o.listen = "127.0.0.1:0";
    o.job = "here";
    fine(weft_bus_open(directories_url(), &o, &l->here));
    o.job = "there";
    fine(weft_bus_open(directories_url(), &o, &l->there));
    l->there->host[0] = 'x';
    fine(weft_layout_parse("i32[200000] @x1", &l->layout));
    weft_bus_tensor t = {.name = "w", .layout = l->layout};
    fine(weft_publish(l->here, set, &t, 1, NULL, &l->p));
    fine(weft_subscribe(l->there, set, &t, 1, opts, &l->s));
    l->data = malloc(COUNT * sizeof *l->data);
}

static void begin(struct lab *l, const char *set, const weft_subscribe_opts *opts)
{
    begin_leased(l, set, opts, 0);
}

static void end(struct lab *l)
{
    weft_subscriber_close(l->s);
    weft_publisher_close(l->p);
    fine(weft_bus_close(l->there));
    fine(weft_bus_close(l->here));
    weft_layout_free(l->layout);
    free(l->data);
}

/* Fetches, swaps, and compares all bits with those of the version that came. */
static int64_t fetch(struct lab *l)
{
    weft_epoch_step v;
    weft_pin *pin;
    const void *at;
    int64_t wrong = 0;
    fine(weft_fetch(l->s, &latest, LONG, &v));
    assert_int_equal(l->s->maps.n, 0); /* a relay that ends takes its memory with it */
    fine(weft_swap(l->s, &v, LONG));
    fine(weft_use(l->s, &pin));
    assert_int_equal(weft_pin_version(pin).step, v.step);
    fine(weft_pin_data(pin, 0, &at, NULL));
    for (int64_t i = 0; i < COUNT; i++)
        wrong += ((const int32_t *)at)[i] != element(v.step, i);
    assert_int_equal(wrong, 0);
    weft_unuse(pin);
    return v.step;
}

/* ---- a relay whose memory changes ---- */

/* One of 64 elements is another one in each step. */
static int32_t rare(int64_t step, int64_t i)
{
    return (int32_t)(i % 64 == 5 ? step * 1000003 : i);
}

static void commit_rare(struct lab *l, int64_t step)
{
    for (int64_t i = 0; i < COUNT; i++)
        l->data[i] = rare(step, i);
    fine(weft_put(l->p, step, &(weft_view)WEFT_VIEW(l->data, COUNT * sizeof *l->data)));
    fine(weft_commit(l->p, step, NULL, NULL));
}

static void fetch_rare(struct lab *l, int64_t step)
{
    weft_epoch_step v;
    weft_pin *pin;
    const void *at;
    fine(weft_fetch(l->s, &latest, LONG, &v));
    assert_int_equal(v.step, step);
    fine(weft_swap(l->s, &v, LONG));
    fine(weft_use(l->s, &pin));
    fine(weft_pin_data(pin, 0, &at, NULL));
    for (int64_t i = 0; i < COUNT; i++)
        if (((const int32_t *)at)[i] != rare(step, i))
            fail_msg("step %lld: element %lld is wrong", (long long)step, (long long)i);
    weft_unuse(pin);
}

/* The reader sums all bytes that it reads, also those that no delta has touched, and the relay pulls wrong blocks
 * again. */
static void relay_memory_changes(void **state)
{
    (void)state;
    struct lab l;
    begin(&l, "changes", NULL);
    commit_rare(&l, 1);
    fetch_rare(&l, 1);
    for (int64_t step = 2; step < 8; step++) {
        int32_t *memory = (int32_t *)(void *)l.s->relay->parts[0]->file.data;
        if (step > 3) { /* the elements 64 * k + 5 will be overwritten, others will not */
            memory[step * 16384 + 64 * 7 + 5] ^= 4;
            memory[step * 16384 + 16384 + 64 * 9 + 6] ^= 4;
        }
        commit_rare(&l, step);
        fetch_rare(&l, step);
        memory[step * 77] ^= 1 << step; /* of a version that is there */
        fetch_rare(&l, step);
    }
    end(&l);
}

/* ---- memory that is reused ---- */

struct churn {
    struct lab *l;
    _Atomic bool stops, failed;
    _Atomic int budget; /* how often a lease may be taken away still */
    int64_t step, taken;
    struct random random;
};

/* Takes the reader's lease away, as if it had been stopped for too long, and puts versions until its memory is reused.
 */
static void *churn(void *arg)
{
    struct churn *c = arg;
    struct directory *d = directories_open("");
    while (!c->stops && !c->failed) {
        struct directory_items items = {0};
        struct directory_outcome o;
        int found = 0;
        usleep((useconds_t)(random_next(&c->random) % 3000)); /* at any moment of its fetch */
        if (!c->budget)
            continue;
        c->failed = directory_get(d, "sets/torn/readers/", LONG, &items) != 0;
        for (size_t i = 0; i < items.n; i++)
            if (strstr((const char *)items.items[i].value, "reads ")) {
                c->failed = c->failed || directory_delete(d, items.items[i].key, -1, LONG, &o);
                found = 1;
            }
        directory_items_free(&items);
        c->taken += found;
        c->budget -= found;
        for (int i = 0; i < 2 && found && !c->failed; i++) {
            int err = put(c->l, c->step + 1);
            if (!err)
                err = weft_commit(c->l->p, ++c->step, NULL, NULL);
            c->failed = err && err != WEFT_EBUSY; /* the reader has a new lease */
        }
    }
    directory_close(d);
    return NULL;
}

static void reuse(bool alone)
{
    struct lab l;
    weft_subscribe_opts o = WEFT_SUBSCRIBE_OPTS_INIT;
    pthread_t thread;
    int64_t last = 0;
    o.alone = alone;
    begin(&l, "torn", &o);
    struct churn c = {.l = &l, .step = 1, .random = random_of(31, alone)};
    commit(&l, 1);
    assert_int_equal(pthread_create(&thread, NULL, churn, &c), 0);
    for (int64_t i = 0, n = test_share(4, 2000); i < n; i++) {
        c.budget = 2;
        int64_t step = fetch(&l);
        assert_true(step >= last);
        last = step;
    }
    c.stops = true;
    pthread_join(thread, NULL);
    assert_false(c.failed);
    print_message("%lld versions, %lld leases taken away\n", (long long)c.step, (long long)c.taken);
    end(&l);
}

static void torn(void **state)
{
    (void)state;
    reuse(true);
}

static void torn_relay(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__ /* a thread of this process reads what the publisher writes, and the reader finds it out */
    print_message("skip: the publisher and those that it serves race on purpose\n");
    skip();
#endif
    reuse(false);
}

/* ---- peers that lie ---- */

enum { WRONG_BYTES, WRONG_BLOCK, BEYOND, SHORT, LONG_BLOCK, NO_HEADS, MANY, UNASKED /* a delta */, DELTA, LIES };

struct liar {
    const struct schema_part *places;
    _Atomic int told, lie;
};

static int lie(void *owner, const struct part_link_message *m, const unsigned char *wanted,
               struct part_server_blocks *out)
{
    struct liar *l = owner;
    size_t b = 0;
    while (b < (size_t)m->count && !part_blocks_bit(wanted, b))
        b++;
    struct part_link_block head = {(uint32_t)((size_t)m->at + b), SCHEMA_BLOCK};
    out->n = 1;
    out->size = sizeof head + SCHEMA_BLOCK;
    switch (atomic_load(&l->lie)) {
    case WRONG_BLOCK: head.block++; break;
    case BEYOND: head.block = UINT32_MAX; break;
    case SHORT: out->size -= 1000; break;
    case LONG_BLOCK: head.bytes = UINT32_MAX; break;
    case NO_HEADS: out->size = 4; break;
    case MANY: out->n = SIZE_MAX / 2; break;
    case UNASKED:
    case DELTA: head.bytes = 4096, out->size = sizeof head + 4096; break;
    default: break;
    }
    out->payload = malloc(sizeof head + SCHEMA_BLOCK);
    memset(out->payload, 0x5a, sizeof head + SCHEMA_BLOCK);
    memcpy(out->payload, &head, sizeof head);
    l->told |= 1 << l->lie;
    return 0;
}

static int no_part(void *owner, const struct part_link_message *m, struct part_server_part *out)
{
    (void)owner, (void)m, (void)out;
    return WEFT_EPEER;
}

static void announce(const char *set, const char *name, const char *socket, const char *address, const char *secret)
{
    char key[200], record[512];
    struct directory *d = directories_open("");
    snprintf(key, sizeof key, "sets/%s/readers/%s/relay", set, name);
    snprintf(record, sizeof record, "job %s\nhost %s\nsocket %s\naddress %s\nsecret %s\n", name, name, socket, address,
             secret);
    directories_put(d, key, record, 0);
    directory_close(d);
}

/* The publisher has given all blocks to a host: others get them from there, until they say that it has lost them. */
static void have_given(struct lab *l, const char *host)
{
    pthread_mutex_lock(&l->p->lock);
    for (int i = 0; i < l->p->keep; i++)
        for (size_t b = 0; b < l->p->part.blocks; b++)
            l->p->ring[i].given.who[b] = (uint32_t)(bus_relay_who(host) >> 32) | 1;
    pthread_mutex_unlock(&l->p->lock);
}

/* Each of these lies, until it was told: a reader finds out that it is one, and does not wait for more. */
static void tell_lies(const char *set, int first, int end_of_lies, bool no_delta)
{
    struct lab l;
    weft_subscribe_opts o = WEFT_SUBSCRIBE_OPTS_INIT;
    struct liar liar = {0};
    struct part_server *server;
    struct part_server_source source = {.relay = true, .owner = &liar, .part = no_part, .take = lie};
    snprintf(source.set, sizeof source.set, "%s", set);
    o.no_delta = no_delta;
    begin(&l, set, &o);
    fine(part_server_start("127.0.0.1:0", &server));
    part_server_add(server, &source);
    announce(set, "liar", "none", part_server_address(server), part_server_secret(server));
    int64_t step = 0, until = clock_now() + LONG;
    for (int k = first; k < end_of_lies; k++) {
        liar.lie = k;
        do {
            commit(&l, ++step);
            have_given(&l, "liar");
            assert_int_equal(fetch(&l), step);
        } while (!(liar.told >> k & 1) && clock_now() < until);
    }
    assert_int_equal(liar.told, (1 << end_of_lies) - (1 << first));
    part_server_remove(server, &source);
    part_server_stop(server);
    end(&l);
}

static void liars(void **state)
{
    (void)state;
    tell_lies("liars", WRONG_BYTES, DELTA, true);
    tell_lies("deltas", DELTA, LIES, false);
}

/* ---- a publisher that says nothing ---- */

struct mute {
    weft_publisher *p;
    int (*part)(void *owner, const struct part_link_message *m, struct part_server_part *out);
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool over;
    _Atomic bool silent;
    _Atomic int asked, helped;
};
static struct mute mute = {.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};

/* The publisher's own part: once it is silent, a reader waits for it until the test is over. */
static int say_nothing(void *owner, const struct part_link_message *m, struct part_server_part *out)
{
    if (!mute.silent)
        return mute.part(owner, m, out);
    mute.asked++;
    pthread_mutex_lock(&mute.lock);
    while (!mute.over)
        pthread_cond_wait(&mute.ended, &mute.lock);
    pthread_mutex_unlock(&mute.lock);
    return WEFT_EPEER;
}

static int help_part(void *owner, const struct part_link_message *m, struct part_server_part *out)
{
    (void)owner;
    mute.helped++;
    return mute.part(mute.p, m, out);
}

static int help_take(void *owner, const struct part_link_message *m, const unsigned char *wanted,
                     struct part_server_blocks *out)
{
    (void)owner;
    return mute.p->source.take(mute.p, m, wanted, out);
}

/* The publisher takes connections and says nothing. A peer has the version: it is asked in time, and the reader gets
 * it. */
static void silent_publisher(void **state)
{
    (void)state;
    struct lab l;
    struct part_server *server;
    struct part_server_source source = {.relay = true, .part = help_part, .take = help_take, .set = "mute"};
    begin_leased(&l, "mute", NULL, 4000 * MS); /* it waits for the publisher for a quarter of that */
    mute.p = l.p;
    mute.part = l.p->source.part;
    mute.over = mute.silent = false;
    mute.asked = mute.helped = 0;
    part_server_remove(l.here->server, &l.p->source); /* its threads see the change: they look for it with the lock */
    l.p->source.part = say_nothing;
    l.p->source.leaves = false;
    part_server_add(l.here->server, &l.p->source);
    fine(part_server_start("127.0.0.1:0", &server));
    part_server_add(server, &source);
    announce("mute", "helper", "none", part_server_address(server), part_server_secret(server));
    commit(&l, 1);
    assert_int_equal(fetch(&l), 1); /* the layouts are known from now on */
    mute.helped = 0;
    mute.silent = true;
    commit(&l, 2);
    assert_int_equal(fetch(&l), 2);
    assert_in_range(mute.asked, 1, 1000);
    assert_in_range(mute.helped, 1, 1000);
    pthread_mutex_lock(&mute.lock);
    mute.over = true;
    pthread_cond_broadcast(&mute.ended);
    pthread_mutex_unlock(&mute.lock);
    part_server_remove(server, &source);
    part_server_stop(server);
    end(&l);
}

/* ---- a peer that turns to another version ---- */

static _Atomic int holds, held;

static bool hold_some(void *owner, int64_t round)
{
    (void)owner, (void)round;
    bool may = holds++ % 3 != 1;
    held += may;
    return may;
}

static void drop_held(void *owner)
{
    (void)owner;
    held--;
}

/* Of its replies some end in the middle, since the memory is for another version: what came of them is not used, and
 * the peer is asked again. */
static void turning_peer(void **state)
{
    (void)state;
    struct lab l;
    struct part_server *server;
    struct part_server_source source = {
        .relay = true, .part = help_part, .take = help_take, .hold = hold_some, .drop = drop_held, .set = "turning"};
    weft_subscribe_opts o = WEFT_SUBSCRIBE_OPTS_INIT;
    o.no_delta = true;
    begin(&l, "turning", &o);
    mute.p = l.p;
    mute.part = l.p->source.part;
    fine(part_server_start("127.0.0.1:0", &server));
    part_server_add(server, &source);
    announce("turning", "turner", "none", part_server_address(server), part_server_secret(server));
    int64_t step = 0, until = clock_now() + LONG;
    do {
        commit(&l, ++step);
        have_given(&l, "turner");
        assert_int_equal(fetch(&l), step);
    } while (holds < 12 && clock_now() < until);
    assert_in_range(holds, 12, 1 << 20);
    part_server_remove(server, &source);
    assert_int_equal(held, 0);
    part_server_stop(server);
    end(&l);
}

/* ---- as many peers as threads that ask them ---- */

#define PEERS 2 /* COUNT elements are blocks of two threads */

/* Peers that give a block to a thread that has waited at the other one in vain, and a publisher that gives none. */
struct busy {
    weft_publisher *p;
    int (*take)(void *owner, const struct part_link_message *m, const unsigned char *wanted,
                struct part_server_blocks *out);
    _Atomic int waited[BUS_RELAY_PEERS]; /* where each thread has waited last, from 1 on; 0: nowhere */
    _Atomic int waits;
};
static struct busy busy;

static int take_at_busy(void *owner, const struct part_link_message *m, const unsigned char *wanted,
                        struct part_server_blocks *out)
{
    size_t b = 0;
    int here = *(const int *)owner;
    while (b < (size_t)m->count && !part_blocks_bit(wanted, b))
        b++;
    _Atomic int *waited = &busy.waited[((size_t)m->at + b) / BUS_RELAY_RUN % BUS_RELAY_PEERS];
    if (!(m->flags & PART_LINK_WAIT))
        return 0;
    if (*waited && *waited != here) {
        *waited = 0;
        return busy.take(busy.p, m, wanted, out);
    }
    *waited = here;
    busy.waits++;
    usleep((useconds_t)(10000 + here * 7000)); /* waits that do not end together */
    return 0;
}

static int give_nothing(void *owner, const struct part_link_message *m, const unsigned char *wanted,
                        struct part_server_blocks *out)
{
    (void)owner, (void)m, (void)wanted, (void)out;
    return 0;
}

/* Each thread waits at a peer. It goes on to the other one, though another thread waits there: what it wants may be
 * there. */
static void busy_peers(void **state)
{
    (void)state;
    struct lab l;
    static const int number[PEERS] = {1, 2};
    struct part_server *servers[PEERS];
    struct part_server_source sources[PEERS];
    begin(&l, "busy", NULL);
    busy = (struct busy){.p = l.p, .take = l.p->source.take};
    part_server_remove(l.here->server, &l.p->source); /* its threads see the change: they look for it with the lock */
    l.p->source.take = give_nothing;
    l.p->source.leaves = false;
    part_server_add(l.here->server, &l.p->source);
    for (int i = 0; i < PEERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "busy%d", i);
        sources[i] = (struct part_server_source){.relay = true,
                                                 .owner = (void *)(uintptr_t)&number[i],
                                                 .part = no_part,
                                                 .take = take_at_busy,
                                                 .set = "busy"};
        fine(part_server_start("127.0.0.1:0", &servers[i]));
        part_server_add(servers[i], &sources[i]);
        announce("busy", name, "none", part_server_address(servers[i]), part_server_secret(servers[i]));
    }
    commit(&l, 1);
    assert_int_equal(fetch(&l), 1);
    int blocks = (int)l.p->part.blocks;
    print_message("%d waits for %d blocks\n", (int)busy.waits, blocks);
    assert_in_range(busy.waits, blocks, 2 * blocks);
    for (int i = 0; i < PEERS; i++) {
        part_server_remove(servers[i], &sources[i]);
        part_server_stop(servers[i]);
    }
    end(&l);
}

/* ---- threads that have nothing to take ---- */

/* A publisher that keeps a reader waiting for the first blocks, until somebody asks for others. */
struct slow {
    int (*take)(void *owner, const struct part_link_message *m, const unsigned char *wanted,
                struct part_server_blocks *out);
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool held, others, late;
};
static struct slow slow = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void await_slow(const bool *what)
{
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_sec += 20;
    pthread_mutex_lock(&slow.lock);
    while (!*what && !slow.late)
        slow.late = pthread_cond_timedwait(&slow.changed, &slow.lock, &at) != 0;
    pthread_mutex_unlock(&slow.lock);
}

static void tell_slow(bool *what)
{
    pthread_mutex_lock(&slow.lock);
    *what = true;
    pthread_cond_broadcast(&slow.changed);
    pthread_mutex_unlock(&slow.lock);
}

static int take_slowly(void *owner, const struct part_link_message *m, const unsigned char *wanted,
                       struct part_server_blocks *out)
{
    if (m->at < BUS_RELAY_RUN) {
        tell_slow(&slow.held);
        await_slow(&slow.others);
    } else
        tell_slow(&slow.others);
    return slow.take(owner, m, wanted, out);
}

/* A peer that is asked, and has nothing. */
static int take_none(void *owner, const struct part_link_message *m, const unsigned char *wanted,
                     struct part_server_blocks *out)
{
    (void)owner, (void)m, (void)wanted, (void)out;
    tell_slow(&slow.others);
    return 0;
}

static void *fetch_first(void *arg)
{
    struct lab *l = arg;
    weft_epoch_step v;
    return (void *)(intptr_t)weft_fetch(l->s, &latest, LONG, &v);
}

/* Threads of a relay that have nothing to take wait for ever here: blocks that are wanted wake them, and a peer. */
static void idle(void **state)
{
    (void)state;
    struct lab l;
    struct part_server *peer;
    struct part_server_source none = {.relay = true, .part = no_part, .take = take_none, .set = "idle"};
    weft_subscribe_opts o = WEFT_SUBSCRIBE_OPTS_INIT;
    weft_subscriber *second;
    weft_layout *halves;
    weft_epoch_step v;
    pthread_t thread;
    void *result;
    begin_leased(&l, "idle", NULL, LONG);
    weft_subscriber_close(l.s);
    fine(weft_layout_parse("i32[200000/x] @x2", &halves));
    weft_bus_tensor t = {.name = "w", .layout = halves};
    o.no_delta = true;
    fine(weft_subscribe(l.there, "idle", &t, 1, &o, &l.s));
    o.rank = 1;
    fine(weft_subscribe(l.there, "idle", &t, 1, &o, &second));
    commit(&l, 1);
    fine(weft_fetch(l.s, &latest, LONG, &v));
    struct bus_relay *r = l.s->relay;
    assert_non_null(r);
    pthread_mutex_lock(&r->lock);
    r->idle_ns = 2 * LONG;
    pthread_mutex_unlock(&r->lock);
    slow.take = l.p->source.take;
    part_server_remove(l.here->server, &l.p->source); /* its threads see the change: they look for it with the lock */
    l.p->source.take = take_slowly;
    l.p->source.leaves = false;
    part_server_add(l.here->server, &l.p->source);
    fine(part_server_start("127.0.0.1:0", &peer));
    part_server_add(peer, &none);
    for (int64_t step = 2; step < 6; step++) {
        pthread_mutex_lock(&slow.lock);
        slow.held = slow.others = slow.late = false;
        pthread_mutex_unlock(&slow.lock);
        commit(&l, step);
        assert_int_equal(pthread_create(&thread, NULL, fetch_first, &l), 0);
        await_slow(&slow.held);
        if (step < 5)
            fine(weft_fetch(second, &latest, LONG, &v));
        else {
            struct catalog c;
            announce("idle", "peer", "none", part_server_address(peer), part_server_secret(peer));
            fine(catalog_get(&l.there->keeper, "idle", clock_now() + LONG, &c));
            fine(bus_relay_view(r, &c));
            catalog_free(&c);
        }
        pthread_join(thread, &result);
        fine((int)(intptr_t)result);
        pthread_mutex_lock(&slow.lock);
        bool late = slow.late;
        pthread_mutex_unlock(&slow.lock);
        assert_false(late);
    }
    part_server_remove(peer, &none);
    part_server_stop(peer);
    weft_subscriber_close(second);
    weft_layout_free(halves);
    end(&l);
}

/* ---- a relay of this host that has one of two parts ---- */

struct half {
    weft_publisher *p; /* rank 0 */
    struct snapshot file;
    uint64_t generation;
    _Atomic int refused;
};

static int half_part(void *owner, const struct part_link_message *m, struct part_server_part *out)
{
    struct half *h = owner;
    if (m->rank) {
        h->refused++;
        return error_set(WEFT_EPEER, "no live process has the part of rank %d", m->rank);
    }
    int err = h->p->source.part(h->p, m, out);
    out->snapshot = h->file;
    out->generation = h->generation;
    return err;
}

static int half_await(void *owner, const struct part_link_message *m, const unsigned char *wanted, int64_t *missing)
{
    (void)owner, (void)wanted;
    *missing = m->count;
    return 0;
}

static void half_release(void *owner)
{
    (void)owner;
}

/* The relay takes the first part, and refuses the second one: both are pulled from the publisher. */
static void half_relay(void **state)
{
    (void)state;
    struct lab l;
    struct half half = {.file.fd = -1};
    struct part_server *server;
    struct part_server_source source = {
        .relay = true, .owner = &half, .part = half_part, .await = half_await, .release = half_release, .set = "half"};
    weft_publish_opts o = WEFT_PUBLISH_OPTS_INIT;
    weft_publisher *other;
    weft_layout *halves;
    begin(&l, "ignored", NULL);
    weft_subscriber_close(l.s);
    weft_publisher_close(l.p);
    fine(weft_layout_parse("i32[200000/x] @x2", &halves));
    weft_bus_tensor t = {.name = "w", .layout = halves};
    o.ranks = 2;
    o.run = "run";
    fine(weft_publish(l.here, "half", &t, 1, &o, &l.p));
    o.rank = 1;
    fine(weft_publish(l.here, "half", &t, 1, &o, &other));
    for (int64_t i = 0; i < COUNT; i++)
        l.data[i] = element(1, i);
    fine(weft_put(l.p, 1, &(weft_view)WEFT_VIEW(l.data, COUNT / 2 * sizeof *l.data)));
    fine(weft_put(other, 1, &(weft_view)WEFT_VIEW(l.data + COUNT / 2, COUNT / 2 * sizeof *l.data)));
    fine(weft_commit(l.p, 1, NULL, NULL));
    fine(weft_commit(other, 1, NULL, NULL));
    half.p = l.p;
    fine(snapshot_create_sparse(l.p->part.bytes, (int64_t)l.p->part.blocks, &half.file));
    half.generation = snapshot_end(&half.file);
    fine(part_server_start(NULL, &server));
    part_server_add(server, &source);
    announce("half", l.there->host, part_server_socket(server), "", "");
    t.layout = l.layout;
    fine(weft_subscribe(l.there, "half", &t, 1, NULL, &l.s));
    assert_int_equal(fetch(&l), 1);
    assert_int_equal(half.refused, 1);
    part_server_remove(server, &source);
    part_server_stop(server);
    snapshot_close(&half.file);
    weft_publisher_close(other);
    weft_layout_free(halves);
    end(&l);
}

/* The record of a relay that has ended, while the directory was away: the process is the relay again. */
static void left_record(void **state)
{
    (void)state;
    struct lab l;
    struct directory_items items;
    struct directory *d = directories_open("");
    begin(&l, "left", NULL);
    commit(&l, 1);
    fetch(&l);
    weft_subscriber_close(l.s);
    announce("left", l.there->host, part_server_socket(l.there->server), part_server_address(l.there->server),
             part_server_secret(l.there->server));
    fine(weft_subscribe(l.there, "left", &(weft_bus_tensor){.name = "w", .layout = l.layout}, 1, NULL, &l.s));
    fetch(&l);
    assert_non_null(l.s->relay);
    end(&l);
    fine(directory_get(d, "sets/left/readers/", LONG, &items));
    assert_int_equal(items.n, 0);
    directory_items_free(&items);
    directory_close(d);
}

/* ---- frames that are changed or cut on the way ---- */

struct proxy {
    int listener, target_port;
    _Atomic bool stops;
    _Atomic int changed;
    struct random random;
};

/* Forwards one connection. Somewhere it changes a bit of what the holder sends, or ends. */
static void forward(struct proxy *p, int client)
{
    struct address to = {.host = "127.0.0.1", .port = p->target_port};
    int server;
    int64_t at = 0, where = (int64_t)(random_next(&p->random) % 120000);
    bool cut = random_next(&p->random) % 2;
    if (address_connect(&to, clock_now() + LONG, &server)) {
        close(client);
        return;
    }
    struct pollfd of[2] = {{.fd = client, .events = POLLIN}, {.fd = server, .events = POLLIN}};
    for (bool goes = true; goes && !p->stops;) {
        unsigned char bytes[4096];
        if (poll(of, 2, 50) < 0)
            break;
        for (int i = 0; i < 2 && goes; i++) {
            if (!of[i].revents)
                continue;
            ssize_t n = recv(of[i].fd, bytes, sizeof bytes, 0);
            if (i && n > 0 && at + n > where && at <= where) {
                p->changed++;
                bytes[where - at] ^= 16;
                n = cut ? (ssize_t)(where - at) : n;
                goes = !cut;
            }
            at += i && n > 0 ? n : 0;
            for (ssize_t sent = 0, k; n > 0 && sent < n; sent += k) {
                poll(&(struct pollfd){.fd = of[!i].fd, .events = POLLOUT}, 1, 1000);
                k = send(of[!i].fd, bytes + sent, (size_t)(n - sent), MSG_NOSIGNAL);
                k = k < 0 ? 0 : k;
                if (p->stops)
                    break;
            }
            goes = goes && n > 0;
        }
    }
    close(server);
    close(client);
}

static void *run_proxy(void *arg)
{
    struct proxy *p = arg;
    while (!p->stops)
        if (poll(&(struct pollfd){.fd = p->listener, .events = POLLIN}, 1, 20) > 0) {
            int fd = accept4(p->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
            if (fd >= 0)
                forward(p, fd);
        }
    return NULL;
}

static void frames(void **state)
{
    (void)state;
    struct lab l;
    struct address a = {.host = "127.0.0.1"}, target;
    struct proxy p = {.random = random_of(77, 0)};
    char where[64];
    pthread_t thread;
    begin(&l, "frames", NULL);
    commit(&l, 1);
    fetch(&l);
    /* A third host, behind the proxy, whose relay has the versions, too. */
    weft_bus_opts o = WEFT_BUS_OPTS_INIT;
    weft_bus *third;
    weft_subscriber *s;
    weft_epoch_step v;
    o.token = PUBLISH_TOKEN;
    o.listen = "127.0.0.1:0";
    o.job = "third";
    fine(weft_bus_open(directories_url(), &o, &third));
    third->host[0] = 'y';
    fine(weft_subscribe(third, "frames", &(weft_bus_tensor){.name = "w", .layout = l.layout}, 1, NULL, &s));
    fine(weft_fetch(s, &latest, LONG, &v));
    fine(address_parse(part_server_address(third->server), &target));
    p.target_port = target.port;
    assert_int_equal(address_listen(&a, &p.listener), 0);
    snprintf(where, sizeof where, "127.0.0.1:%d", a.port);
    announce("frames", "proxy", "none", where, part_server_secret(third->server));
    assert_int_equal(pthread_create(&thread, NULL, run_proxy, &p), 0);
    int64_t step = 1, until = clock_now() + LONG;
    while (p.changed < (int)test_share(2, 500) && clock_now() < until) {
        commit(&l, ++step);
        fine(weft_fetch(s, &latest, LONG, &v));
        assert_int_equal(fetch(&l), step);
    }
    assert_true(p.changed > 0);
    print_message("%d connections changed or cut\n", (int)p.changed);
    p.stops = true;
    pthread_join(thread, NULL);
    close(p.listener);
    weft_subscriber_close(s);
    fine(weft_bus_close(third));
    end(&l);
}

/* Somebody on the way takes the faster cipher out of what the reader has: the publisher refuses the reader. */
static void downgrade(void **state)
{
    (void)state;
    struct part_server *server;
    struct address at;
    int fd;
    fine(part_server_start("127.0.0.1:0", &server));
    fine(address_parse(part_server_address(server), &at));
    for (int meddled = 0; meddled < 2; meddled++) {
        struct frame_end e;
        unsigned char hello[FRAME_HELLO], proof[FRAME_PROOF], decision[FRAME_DECISION], key[SODIUM_KEY];
        frame_token_key(sodium_find(), part_server_secret(server), key);
        frame_begin(&e, sodium_find(), false, key, FRAME_AES, hello);
        hello[FRAME_HELLO - 1] ^= meddled ? FRAME_AES : 0;
        assert_int_equal(address_connect(&at, clock_now() + LONG, &fd), 0);
        assert_int_equal(dial_send(fd, hello, sizeof hello, clock_now() + LONG), 0);
        assert_int_equal(dial_receive(fd, hello, sizeof hello, clock_now() + LONG), 0);
        assert_int_equal(!(hello[FRAME_HELLO - 1] & FRAME_AES), !(frame_ciphers() & FRAME_AES));
        assert_true(frame_meet(&e, hello));
        frame_prove(&e, proof);
        assert_int_equal(dial_send(fd, proof, sizeof proof, clock_now() + LONG), 0);
        assert_int_equal(dial_receive(fd, decision, sizeof decision, clock_now() + LONG), 0);
        assert_int_equal(decision[0], meddled);
        assert_int_equal(frame_believe(&e, decision + 1), !meddled);
        close(fd);
    }
    part_server_stop(server);
}

/* A reader without AES: the publisher seals for it with the other cipher, and it gets the same bytes. */
static void slower_cipher(void **state)
{
    (void)state;
    struct lab l;
    struct catalog found;
    struct address at;
    struct part_client c = {.set = "slower", .silence = LONG};
    int32_t *got = malloc(COUNT * sizeof *got);
    uint64_t full;
    bool torn;
    int fd, why;
    begin(&l, "slower", NULL);
    commit(&l, 1);
    fine(catalog_get(&l.there->keeper, "slower", clock_now() + LONG, &found));
    assert_int_equal(found.nversions, 1);
    const struct catalog_part *part = found.versions[0].parts[0];
    struct part_client_of of = part_client_of(part);
    c.slot = part->slot;
    fine(address_parse(c.slot->address, &at));
    assert_int_equal(address_connect(&at, clock_now() + LONG, &fd), 0);
    fine(part_link_begin(&c.link, fd));
    c.link.sealed = true;
    assert_int_equal(
        dial_prove(fd, sodium_find(), c.slot->secret, FRAME_CHACHA, clock_now() + LONG, &c.link.end, &why, &full),
        DIAL_PROVED);
    assert_false(c.link.end.aes);
    fine(part_client_read(&c, &of, 0, COUNT * sizeof *got, got, clock_now() + LONG, &torn));
    assert_false(torn);
    assert_memory_equal(got, l.data, COUNT * sizeof *got);
    part_client_close(&c);
    catalog_free(&found);
    free(got);
    end(&l);
}

static void *close_one(void *arg)
{
    int fd = -1;
    if (poll(&(struct pollfd){.fd = *(int *)arg, .events = POLLIN}, 1, 60000) > 0)
        fd = accept4(*(int *)arg, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0)
        close(fd);
    return NULL;
}

/* A reader and a publisher of different versions: each is told at once. */
static void other_versions(void **state)
{
    (void)state;
    struct part_server *server;
    struct address at, before = {.host = "127.0.0.1"};
    struct catalog_slot slot = {.job = "old", .host = "elsewhere", .secret = "a secret of a version before"};
    struct part_client c;
    unsigned char hello[FRAME_HELLO], more;
    pthread_t thread;
    int fd;
    fine(part_server_start("127.0.0.1:0", &server));
    fine(address_parse(part_server_address(server), &at));
    int64_t began = clock_now();
    assert_int_equal(address_connect(&at, clock_now() + LONG, &fd), 0);
    assert_int_equal(dial_send(fd, (const unsigned char[40]){"weft-st5"}, 40, clock_now() + LONG), 0);
    assert_int_equal(dial_receive(fd, hello, sizeof hello, clock_now() + LONG), 0);
    assert_int_equal(frame_version(hello), FRAME_SAME);
    assert_int_equal(dial_receive(fd, &more, 1, clock_now() + LONG), ECONNRESET);
    assert_true(clock_now() - began < 5 * SECOND);
    close(fd);
    part_server_stop(server);
    assert_int_equal(address_listen(&before, &fd), 0);
    snprintf(slot.address, sizeof slot.address, "127.0.0.1:%d", before.port);
    assert_int_equal(pthread_create(&thread, NULL, close_one, &fd), 0);
    assert_int_equal(part_client_open("here", "set", &slot, LONG, clock_now() + LONG, &c), WEFT_EPEER);
    assert_non_null(strstr(weft_errmsg(), "another version of weft"));
    pthread_join(thread, NULL);
    close(fd);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest served[] = {cmocka_unit_test(relay_memory_changes),
                                        cmocka_unit_test(torn),
                                        cmocka_unit_test(torn_relay),
                                        cmocka_unit_test(liars),
                                        cmocka_unit_test(silent_publisher),
                                        cmocka_unit_test(turning_peer),
                                        cmocka_unit_test(busy_peers),
                                        cmocka_unit_test(half_relay),
                                        cmocka_unit_test(left_record),
                                        cmocka_unit_test(frames),
                                        cmocka_unit_test(downgrade),
                                        cmocka_unit_test(idle),
                                        cmocka_unit_test(slower_cipher),
                                        cmocka_unit_test(other_versions)};
    return SUITE_MAIN(argc, argv, SUITE_AT(&directories_served, served));
}
