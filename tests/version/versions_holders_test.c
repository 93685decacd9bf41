/* Readers of other hosts whose holders are slow, gone, or at another version: a reader waits for nobody in vain, and
 * gets what the others have. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "version/other_host.h"
#include "version/part_blocks.h"

/* The publisher answers by other functions. Its server's threads see the change: they look for the source with the
 * lock. */
static void change_source(const struct lab *l,
                          int (*part)(void *owner, const struct part_link_message *m, struct part_server_part *out),
                          int (*take)(void *owner, const struct part_link_message *m, const unsigned char *wanted,
                                      struct part_server_blocks *out))
{
    part_server_remove(l->here->server, &l->p->source);
    l->p->source.part = part;
    l->p->source.take = take;
    l->p->source.leaves = false;
    part_server_add(l->here->server, &l->p->source);
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
    change_source(&l, say_nothing, l.p->source.take);
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
    change_source(&l, l.p->source.part, give_nothing);
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
    change_source(&l, l.p->source.part, take_slowly);
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

int main(int argc, char **argv)
{
    const struct CMUnitTest served[] = {cmocka_unit_test(silent_publisher), cmocka_unit_test(turning_peer),
                                        cmocka_unit_test(busy_peers),       cmocka_unit_test(half_relay),
                                        cmocka_unit_test(left_record),      cmocka_unit_test(idle)};
    return SUITE_MAIN(argc, argv, SUITE_AT(&directories_served, served));
}
