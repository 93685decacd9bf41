/* Jobs whose directory is an etcd that loses all its data, and begins again at revision 1, while they live. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bus/etcds.h"
#include "version/version_kit.h"

static struct etcds e;

static int end(void **state)
{
    (void)state;
    etcds_end(&e);
    return 0;
}

static weft_bus *bus_of(const char *job)
{
    weft_bus_opts o = WEFT_BUS_OPTS_INIT;
    weft_bus *b;
    o.job = job;
    o.lease_ns = 2 * SECOND;
    o.deadline_ns = LONG;
    fine(weft_bus_open(e.url, &o, &b));
    return b;
}

static void follow(weft_subscriber *s, const weft_want *w, int64_t epoch, int64_t step)
{
    weft_epoch_step v;
    fine(weft_fetch(s, w, LONG, &v));
    assert_true(v.epoch == epoch && v.step == step);
    fine(weft_swap(s, &v, LONG));
    compare(s, step);
}

/* The latest is step 2 of epoch 1, or will be soon: while the publisher registers again, the record of its newest part
 * may be away for a moment. Until it is back, step 1 is the newest version that can be read. */
static void follow_second(weft_subscriber *s)
{
    weft_epoch_step v = {0, 0};
    const int64_t until = clock_now() + LONG;
    do
        fine(weft_fetch(s, &latest, LONG, &v));
    while (v.epoch == 1 && v.step == 1 && clock_now() < until);
    assert_true(v.epoch == 1 && v.step == 2);
    fine(weft_swap(s, &v, LONG));
    compare(s, 2);
}

/* The reader goes on with what it has; the publisher registers again, with its epoch; what it commits is seen by
 * readers that were there and by new ones; a new publisher takes a higher epoch, and the old one is refused. */
static void data_wiped(void **state)
{
    (void)state;
    const weft_want newer = {WEFT_WANT_NEWER, 0}, first = {WEFT_WANT_STEP, 1};
    struct arrays a;
    if (!etcds_begin(&e, 1))
        skip();
    weft_bus *trainer = bus_of("trainer"), *server = bus_of("server");
    weft_publisher *p = publish(trainer, "wiped", NULL);
    weft_subscriber *s = subscribe(server, "wiped", NULL);
    commit(p, 1);
    follow(s, &latest, 1, 1);
    etcds_kill(&e, 0);
    etcds_wipe(&e, 0);
    compare(s, 1); /* a reader needs no directory */
    fill(&a, 2);
    fine(weft_put(p, 2, a.views)); /* nor does a put into memory that is free */
    etcds_run(&e, 0);
    fine(weft_commit(p, 2, "{\"step\": 2}", NULL));
    weft_bus *late = bus_of("late");
    weft_subscriber *newcomer = subscribe(late, "wiped", NULL);
    follow_second(newcomer);
    follow(newcomer, &first, 1, 1); /* it was put back, too */
    follow(s, &newer, 1, 2);
    weft_publisher *q = publish(late, "wiped", NULL);
    commit(q, 1);
    follow(s, &newer, 2, 1);
    fill(&a, 3);
    int err = weft_put(p, 3, a.views);
    assert_int_not_equal(err ? err : weft_commit(p, 3, NULL, NULL), 0);
    says("epoch");
    follow(newcomer, &latest, 2, 1);
    weft_subscriber_close(s);
    weft_subscriber_close(newcomer);
    weft_publisher_close(p);
    weft_publisher_close(q);
    fine(weft_bus_close(trainer));
    fine(weft_bus_close(server));
    fine(weft_bus_close(late));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(data_wiped, end)};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
