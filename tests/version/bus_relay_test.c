/* Threads that meet at the memory of a relay: readers of its host, peers, and the turn to another version. Peers and
 * readers are calls of what the server calls, and each stops where the test says. */
#define _GNU_SOURCE
#include "version/bus_relay.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "bus/directories.h"
#include "memory/sum.h"
#include "version/publish.h"
#include "version/subscribe.h"

#define COUNT 200000 /* elements: 13 blocks */
#define BLOCKS 13
static const weft_want latest = {WEFT_WANT_LATEST, 0};
static const unsigned char all[2] = {0xff, 0x1f};

static struct {
    weft_bus *here, *there; /* the publisher's, and the subscriber's, on another host */
    weft_layout *layout;
    weft_publisher *p;
    weft_subscriber *s;
} lab;
static int32_t data[COUNT];

static void begin(const weft_subscribe_opts *opts)
{
    weft_bus_opts o = WEFT_BUS_OPTS_INIT;
    o.lease_ns = LONG;
    o.token = PUBLISH_TOKEN;
    o.listen = "127.0.0.1:0";
    o.job = "here";
    fine(weft_bus_open(directories_url(), &o, &lab.here));
    o.job = "there";
    fine(weft_bus_open(directories_url(), &o, &lab.there));
    lab.there->host[0] = 'x';
    fine(weft_layout_parse("i32[200000] @x1", &lab.layout));
    weft_bus_tensor t = {.name = "w", .layout = lab.layout};
    fine(weft_publish(lab.here, "relay", &t, 1, NULL, &lab.p));
    fine(weft_subscribe(lab.there, "relay", &t, 1, opts, &lab.s));
}

static void end(void)
{
    weft_subscriber_close(lab.s);
    weft_publisher_close(lab.p);
    fine(weft_bus_close(lab.there));
    fine(weft_bus_close(lab.here));
    weft_layout_free(lab.layout);
}

/* One of 64 elements is another one in each step. */
static void commit(int64_t step)
{
    for (int32_t i = 0; i < COUNT; i++)
        data[i] = i % 64 == 5 ? (int32_t)step * 1000003 : i;
    fine(weft_put(lab.p, step, &(weft_view)WEFT_VIEW(data, sizeof data)));
    fine(weft_commit(lab.p, step, NULL, NULL));
}

static void *fetch(void *arg)
{
    weft_epoch_step v;
    (void)arg;
    return (void *)(intptr_t)weft_fetch(lab.s, &latest, LONG, &v);
}

/* Fetches, and compares with what was committed last. */
static void read_latest(void)
{
    weft_epoch_step v;
    weft_pin *pin;
    const void *at;
    fine(weft_fetch(lab.s, &latest, LONG, &v));
    fine(weft_swap(lab.s, &v, LONG));
    fine(weft_use(lab.s, &pin));
    fine(weft_pin_data(pin, 0, &at, NULL));
    assert_memory_equal(at, data, sizeof data);
    weft_unuse(pin);
}

/* Until the server has seen that readers have left. */
static void await_users(struct bus_relay *r)
{
    pthread_mutex_lock(&r->lock);
    while (r->users)
        pthread_cond_wait(&r->changed, &r->lock);
    pthread_mutex_unlock(&r->lock);
}

/* A request for all blocks of a version. */
static struct part_link_message ask(const struct bus_relay *r, int64_t step, uint32_t flags)
{
    return (struct part_link_message){.epoch = r->version.epoch,
                                      .step = step,
                                      .count = BLOCKS,
                                      .who = UINT64_C(77) << 32,
                                      .flags = flags,
                                      .most = PART_LINK_MOST};
}

/* How many blocks a peer gets. */
static size_t take(struct bus_relay *r, int64_t step)
{
    struct part_link_message m = ask(r, step, 0);
    struct part_server_blocks out = {0};
    assert_int_equal(r->source.take(r, &m, all, &out), 0);
    free(out.payload);
    return out.n;
}

/* ---- a place where a thread stops ---- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool there, goes;
} gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false};
static _Thread_local bool stops; /* this thread does, once */

static void say(bool *what)
{
    pthread_mutex_lock(&gate.lock);
    *what = true;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

static void hear(const bool *what)
{
    pthread_mutex_lock(&gate.lock);
    while (!*what)
        pthread_cond_wait(&gate.changed, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
}

static void stop_once(void)
{
    if (!stops)
        return;
    stops = false;
    say(&gate.there);
    hear(&gate.goes);
}

unsigned char *__real_part_blocks_pack(const struct part_blocks_from *f, const struct part_link_message *m,
                                       const uint32_t *list, size_t *n, size_t *size, struct part_blocks_runs *runs);
unsigned char *__wrap_part_blocks_pack(const struct part_blocks_from *f, const struct part_link_message *m,
                                       const uint32_t *list, size_t *n, size_t *size, struct part_blocks_runs *runs);
unsigned char *__wrap_part_blocks_pack(const struct part_blocks_from *f, const struct part_link_message *m,
                                       const uint32_t *list, size_t *n, size_t *size, struct part_blocks_runs *runs)
{
    stop_once();
    return __real_part_blocks_pack(f, m, list, n, size, runs);
}

uint64_t __real_sum_bytes(uint64_t at, const void *bytes, size_t n);
uint64_t __wrap_sum_bytes(uint64_t at, const void *bytes, size_t n);
uint64_t __wrap_sum_bytes(uint64_t at, const void *bytes, size_t n)
{
    stop_once();
    return __real_sum_bytes(at, bytes, n);
}

/* ---- a turn ---- */

static void *slow_peer(void *arg)
{
    stops = true;
    return (void *)(intptr_t)take(arg, 1);
}

/* A peer is at the memory, a turn waits for it, and another peer asks. */
static void a_turn_waits_for_those_that_were_there(void **state)
{
    (void)state;
    pthread_t peer, reader;
    void *taken, *result;
    gate.there = gate.goes = false;
    begin(NULL);
    commit(1);
    read_latest();
    struct bus_relay *r = lab.s->relay;
    assert_non_null(r);
    await_users(r);
    int64_t round = r->round;
    assert_int_equal(pthread_create(&peer, NULL, slow_peer, r), 0);
    hear(&gate.there);
    commit(2);
    assert_int_equal(pthread_create(&reader, NULL, fetch, NULL), 0);
    pthread_mutex_lock(&r->lock);
    while (r->round == round)
        pthread_cond_wait(&r->changed, &r->lock);
    assert_int_equal(r->busy, 1);
    pthread_mutex_unlock(&r->lock);
    assert_int_equal(take(r, 1), 0);
    say(&gate.goes);
    pthread_join(peer, &taken);
    assert_int_equal((intptr_t)taken, BLOCKS);
    pthread_join(reader, &result);
    fine((int)(intptr_t)result);
    assert_int_equal(r->version.step, 2);
    assert_int_equal(take(r, 2), BLOCKS);
    read_latest();
    end();
}

/* A thread that seals blocks where they are holds the memory for each frame: a turn waits for that, and not for the
 * others. */
static void memory_is_held_for_a_frame(void **state)
{
    (void)state;
    pthread_t reader;
    void *result;
    struct part_server_blocks out = {0};
    begin(NULL);
    commit(1);
    read_latest();
    struct bus_relay *r = lab.s->relay;
    await_users(r);
    struct part_link_message m = ask(r, 1, 0);
    assert_int_equal(r->source.take(r, &m, all, &out), 0);
    assert_int_equal(out.n, BLOCKS);
    assert_int_equal(out.runs.n, 1);
    assert_int_equal(out.runs.bytes, sizeof data);
    assert_memory_equal(out.runs.v[0].at, data, sizeof data);
    assert_true(r->source.hold(r, out.round));
    assert_false(r->source.hold(r, out.round - 1));
    commit(2);
    assert_int_equal(pthread_create(&reader, NULL, fetch, NULL), 0);
    pthread_mutex_lock(&r->lock);
    while (r->round == out.round)
        pthread_cond_wait(&r->changed, &r->lock);
    assert_int_equal(r->version.step, 1);
    pthread_mutex_unlock(&r->lock);
    assert_false(r->source.hold(r, out.round));
    r->source.drop(r);
    pthread_join(reader, &result);
    fine((int)(intptr_t)result);
    assert_int_equal(r->version.step, 2);
    assert_false(r->source.hold(r, out.round));
    free(out.payload);
    read_latest();
    end();
}

/* ---- blocks that are looked at again ---- */

/* Peers may read the delta of a block while the block comes again. */
static void a_delta_stays_where_it_is(void **state)
{
    (void)state;
    begin(NULL);
    for (int64_t step = 1; step < 3; step++) {
        commit(step);
        read_latest();
        await_users(lab.s->relay);
    }
    struct bus_relay_part *p = lab.s->relay->parts[0];
    struct part_blocks_delta before = p->deltas[0];
    assert_non_null(before.data);
    p->file.data[100] ^= 1;
    read_latest();
    assert_memory_equal(p->file.data, data, 1000); /* it came again */
    assert_ptr_equal(p->deltas[0].data, before.data);
    assert_int_equal(p->deltas[0].bytes, before.bytes);
    end();
}

static int64_t await(struct bus_relay *r, uint32_t flags)
{
    int64_t missing = -1;
    struct part_link_message m = ask(r, 1, flags);
    assert_int_equal(r->source.await(r, &m, all, &missing), 0);
    return missing;
}

static void *doubt(void *arg)
{
    stops = true; /* as the first block is summed */
    return (void *)(intptr_t)await(arg, PART_LINK_WRONG);
}

/* A thread that waits for blocks waits for long here, so that only others wake it. */
static _Thread_local bool patient;
static bool waits;
static _Atomic bool woken;
int __real_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *at);
int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *at);
int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *at)
{
    if (!patient)
        return __real_pthread_cond_timedwait(c, m, at);
    say(&waits); /* with the relay's lock, which is free again when the thread waits */
    struct timespec later = {at->tv_sec + 20, at->tv_nsec};
    int err = __real_pthread_cond_timedwait(c, m, &later);
    woken = !err;
    return err;
}

static void *wait_for_all(void *arg)
{
    patient = true;
    return (void *)(intptr_t)await(arg, PART_LINK_WAIT);
}

/* The first block is right, but is not there while the relay sums it. */
static void blocks_that_were_right_are_told(void **state)
{
    (void)state;
    pthread_t doubts, reader;
    void *missing;
    gate.there = gate.goes = waits = false;
    begin(NULL);
    commit(1);
    read_latest();
    struct bus_relay *r = lab.s->relay;
    assert_int_equal(pthread_create(&doubts, NULL, doubt, r), 0);
    hear(&gate.there);
    assert_int_equal(pthread_create(&reader, NULL, wait_for_all, r), 0);
    hear(&waits);
    pthread_mutex_lock(&r->lock);
    pthread_mutex_unlock(&r->lock);
    say(&gate.goes);
    pthread_join(doubts, &missing);
    assert_int_equal((intptr_t)missing, 0);
    pthread_join(reader, &missing);
    assert_int_equal((intptr_t)missing, 0);
    assert_true(woken);
    end();
}

/* ---- a reader in the relay's process ---- */

static int asked;

/* The reader copies, and the server ends its connection, as it does with one that asks for nothing for long. */
static int lose_connection(void *arg, int64_t done, int64_t total)
{
    struct bus_relay *r = lab.s->relay;
    struct part_server_part out;
    (void)arg, (void)done, (void)total;
    struct part_link_message m = ask(r, 99, PART_LINK_FILE);
    m.op = PART_LINK_PART;
    r->source.release(r);
    asked = r->source.part(r, &m, &out);
    pthread_mutex_lock(&r->lock);
    r->users++; /* the connection's end will take it */
    pthread_mutex_unlock(&r->lock);
    return 0;
}

static void borrowed_memory_stays(void **state)
{
    (void)state;
    weft_subscribe_opts o = WEFT_SUBSCRIBE_OPTS_INIT;
    o.progress = lose_connection;
    begin(&o);
    commit(1);
    read_latest();
    assert_int_equal(asked, WEFT_EBUSY); /* not another version */
    await_users(lab.s->relay);
    end();
}

/* ---- a snapshot that is reused while a frame of it is sealed ---- */

static struct snapshot *_Atomic reused; /* by the next frame that has blocks */

size_t __real_part_link_seal(struct part_link *l, bool torn, const unsigned char *bytes, size_t n);
size_t __wrap_part_link_seal(struct part_link *l, bool torn, const unsigned char *bytes, size_t n);
size_t __wrap_part_link_seal(struct part_link *l, bool torn, const unsigned char *bytes, size_t n)
{
    struct snapshot *s = n >= SCHEMA_BLOCK ? atomic_exchange(&reused, NULL) : NULL;
    size_t size = __real_part_link_seal(l, torn, bytes, n);
    if (s)
        snapshot_begin(s);
    return size;
}

/* No digest is looked at here: the publisher itself does not send the frame, and the reader hears of it. */
static void torn_frames_are_not_sent(void **state)
{
    (void)state;
    struct part_client c;
    struct part_client_blocks got = {0};
    begin(NULL);
    commit(1);
    read_latest();
    struct bus_relay *r = lab.s->relay;
    struct part_link_message m = ask(r, 1, PART_LINK_INSIST);
    struct catalog_slot slot = r->parts[0]->slot;
    fine(part_client_open("elsewhere", "relay", &slot, LONG, clock_now() + LONG, &c));
    fine(part_client_take(&c, &r->parts[0]->of, &m, all, clock_now() + LONG, &got));
    assert_int_equal(got.n, BLOCKS);
    for (int i = 0; i < lab.p->keep; i++)
        if (lab.p->ring[i].state == PUBLISH_SHOWN)
            reused = &lab.p->ring[i].snapshot;
    assert_int_equal(part_client_take(&c, &r->parts[0]->of, &m, all, clock_now() + LONG, &got), WEFT_EPEER);
    assert_null(reused);
    assert_int_equal(got.n, 0);
    part_client_close(&c);
    free(got.payload);
    end();
}

/* ---- tensors of few bytes ---- */

#define TENSORS 400
static _Atomic int frames;

int __real_part_link_send_sealed(struct part_link *l, size_t size, int64_t until);
int __wrap_part_link_send_sealed(struct part_link *l, size_t size, int64_t until);
int __wrap_part_link_send_sealed(struct part_link *l, size_t size, int64_t until)
{
    frames++;
    return __real_part_link_send_sealed(l, size, until);
}

/* There are gaps between them, since tensors are aligned, and yet they do not have a frame each. */
static void short_blocks_share_frames(void **state)
{
    (void)state;
    char names[TENSORS][8];
    weft_bus_tensor t[TENSORS];
    weft_view views[TENSORS];
    weft_epoch_step v;
    weft_pin *pin;
    begin(NULL);
    weft_subscriber_close(lab.s);
    weft_publisher_close(lab.p);
    weft_layout_free(lab.layout);
    fine(weft_layout_parse("i32[250] @x1", &lab.layout));
    for (int i = 0; i < TENSORS; i++) {
        snprintf(names[i], sizeof names[i], "w%d", i);
        t[i] = (weft_bus_tensor){.name = names[i], .layout = lab.layout};
        views[i] = (weft_view)WEFT_VIEW(data + 250 * i, 1000);
    }
    for (int i = 0; i < 250 * TENSORS; i++)
        data[i] = i;
    fine(weft_publish(lab.here, "short", t, TENSORS, NULL, &lab.p));
    fine(weft_subscribe(lab.there, "short", t, TENSORS, NULL, &lab.s));
    fine(weft_put(lab.p, 1, views));
    fine(weft_commit(lab.p, 1, NULL, NULL));
    frames = 0;
    fine(weft_fetch(lab.s, &latest, LONG, &v));
    print_message("%d frames\n", (int)frames);
    assert_in_range(frames, 2, TENSORS / 8);
    fine(weft_swap(lab.s, &v, LONG));
    fine(weft_use(lab.s, &pin));
    for (int i = 0; i < TENSORS; i++) {
        const void *at;
        fine(weft_pin_data(pin, (size_t)i, &at, NULL));
        assert_memory_equal(at, data + 250 * i, 1000);
    }
    weft_unuse(pin);
    end();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_turn_waits_for_those_that_were_there),
                                       cmocka_unit_test(memory_is_held_for_a_frame),
                                       cmocka_unit_test(a_delta_stays_where_it_is),
                                       cmocka_unit_test(blocks_that_were_right_are_told),
                                       cmocka_unit_test(borrowed_memory_stays),
                                       cmocka_unit_test(short_blocks_share_frames),
                                       cmocka_unit_test(torn_frames_are_not_sent)};
    return SUITE_MAIN(argc, argv, SUITE_AT(&directories_served, tests));
}
