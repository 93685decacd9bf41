/* Readers of other hosts whose holders reuse their memory, or lie: what a reader gets is one version, bit by bit. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/random.h"
#include "support/share.h"
#include "version/other_host.h"
#include "version/part_blocks.h"

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

int main(int argc, char **argv)
{
    const struct CMUnitTest served[] = {cmocka_unit_test(relay_memory_changes), cmocka_unit_test(torn),
                                        cmocka_unit_test(torn_relay), cmocka_unit_test(liars)};
    return SUITE_MAIN(argc, argv, SUITE_AT(&directories_served, served));
}
