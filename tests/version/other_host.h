/* What tests of readers on other hosts share: a publisher here, and a subscriber of a bus in this process that believes
 * to be on another host. */
#ifndef WEFT_TESTS_OTHER_HOST_H
#define WEFT_TESTS_OTHER_HOST_H
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "bus/directories.h"
#include "version/bus.h"
#include "version/bus_relay.h"
#include "version/publish.h"
#include "version/subscribe.h"
#include "weft/bus.h"

/* As many threads pull as on a host with four cores, however few there are. */
int __wrap_copy_threads_usual(int ranks);
int __wrap_copy_threads_usual(int ranks)
{
    (void)ranks;
    return 4;
}

#define COUNT 200000 /* elements: 13 blocks */
static const weft_want latest = {WEFT_WANT_LATEST, 0};

static inline int32_t element(int64_t step, int64_t i)
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

static inline int put(struct lab *l, int64_t step)
{
    for (int64_t i = 0; i < COUNT; i++)
        l->data[i] = element(step, i);
    return weft_put(l->p, step, &(weft_view)WEFT_VIEW(l->data, COUNT * sizeof *l->data));
}

static inline void commit(struct lab *l, int64_t step)
{
    fine(put(l, step));
    fine(weft_commit(l->p, step, NULL, NULL));
}

static inline void begin_leased(struct lab *l, const char *set, const weft_subscribe_opts *opts, int64_t lease_ns)
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

static inline void begin(struct lab *l, const char *set, const weft_subscribe_opts *opts)
{
    begin_leased(l, set, opts, 0);
}

static inline void end(struct lab *l)
{
    weft_subscriber_close(l->s);
    weft_publisher_close(l->p);
    fine(weft_bus_close(l->there));
    fine(weft_bus_close(l->here));
    weft_layout_free(l->layout);
    free(l->data);
}

/* Fetches, swaps, and compares all bits with those of the version that came. */
static inline int64_t fetch(struct lab *l)
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

static inline int no_part(void *owner, const struct part_link_message *m, struct part_server_part *out)
{
    (void)owner, (void)m, (void)out;
    return WEFT_EPEER;
}

static inline void announce(const char *set, const char *name, const char *socket, const char *address,
                            const char *secret)
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
static inline void have_given(struct lab *l, const char *host)
{
    pthread_mutex_lock(&l->p->lock);
    for (int i = 0; i < l->p->keep; i++)
        for (size_t b = 0; b < l->p->part.blocks; b++)
            l->p->ring[i].given.who[b] = (uint32_t)(bus_relay_who(host) >> 32) | 1;
    pthread_mutex_unlock(&l->p->lock);
}
#endif
