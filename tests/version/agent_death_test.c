/* The agent of a host among processes that are killed and stopped: what was committed is there, bit by bit, for readers
 * that come after the publisher's death; an agent that dies costs nobody anything; and nothing stays behind. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bus/directories.h"
#include "rendezvous/deadline.h"
#include "support/processes.h"
#include "support/random.h"
#include "support/ranks.h"
#include "support/share.h"
#include "version/bus_agent.h"
#include "version/catalog.h"
#include "version/death_kit.h"
#include "version/part_client.h"
#include "version/publish.h"

#define COUNT 50000 /* elements of the one tensor */
#define WHOLE "i32[50000] @x1"
static const weft_want latest = {WEFT_WANT_LATEST, 0};

/* What the processes of a test tell each other. */
struct shared {
    _Atomic int64_t epoch, commits, held, slowest, files; /* held: the last step that the agent had before the commit */
    _Atomic int ready, stop, code;
    char text[512];
    int64_t lease; /* of the agent; 0: a long one */
};

static weft_bus *open_bus(const char *job, int64_t lease)
{
    weft_bus_opts o = WEFT_BUS_OPTS_INIT;
    weft_bus *b = NULL;
    o.token = PUBLISH_TOKEN;
    o.job = job;
    o.lease_ns = directories_ttl(lease);
    o.deadline_ns = LONG;
    if (weft_bus_open(directories_url(), &o, &b)) {
        printf("%s\n", weft_errmsg());
        _exit(3);
    }
    return b;
}

static weft_publisher *publish(weft_bus *b, const char *set)
{
    weft_publisher *p = NULL;
    weft_layout *l;
    if (weft_layout_parse(WHOLE, &l) ||
        weft_publish(b, set, &(weft_bus_tensor){.name = "w", .layout = l}, 1, NULL, &p)) {
        printf("%s\n", weft_errmsg());
        _exit(4);
    }
    weft_layout_free(l);
    return p;
}

static int put(weft_publisher *p, int64_t step)
{
    static int32_t data[COUNT];
    for (int i = 0; i < COUNT; i++)
        data[i] = element(weft_publisher_epoch(p), step, i);
    return weft_put(p, step, &(weft_view)WEFT_VIEW(data, sizeof data));
}

/* A subscriber that starts now, and what it finds. Its version is bit by bit that of its epoch and step. */
static weft_epoch_step late_reader(const char *set)
{
    weft_bus *b = open_bus("late", LONG);
    weft_subscriber *s;
    weft_layout *l;
    weft_epoch_step v;
    weft_pin *pin;
    const void *data;
    fine(weft_layout_parse(WHOLE, &l));
    fine(weft_subscribe(b, set, &(weft_bus_tensor){.name = "w", .layout = l}, 1, NULL, &s));
    weft_layout_free(l);
    fine(weft_fetch(s, &latest, LONG, &v));
    fine(weft_swap(s, &v, LONG));
    fine(weft_use(s, &pin));
    fine(weft_pin_data(pin, 0, &data, NULL));
    for (int64_t i = 0; i < COUNT; i++)
        if (((const int32_t *)data)[i] != element(v.epoch, v.step, i))
            fail_msg("version %d.%d: element %d is another one's", (int)v.epoch, (int)v.step, (int)i);
    weft_unuse(pin);
    weft_subscriber_close(s);
    fine(weft_bus_close(b));
    return v;
}

static void await_ready(const struct shared *x)
{
    for (int64_t until = clock_now() + LONG; !x->ready; clock_pause(MS))
        if (clock_now() > until)
            fail_msg("a process does not begin");
}

static void await_keys(const char *prefix, size_t n)
{
    for (int64_t until = clock_now() + LONG; directories_keys(prefix) != n; clock_pause(5 * MS))
        if (clock_now() > until)
            fail_msg("%zu keys are below %s", directories_keys(prefix), prefix);
}

static void agent_body(struct shared *x)
{
    struct bus_agent *a;
    weft_bus *b = open_bus("agent", x->lease ? x->lease : LONG);
    if (bus_agent_start(b, &(struct bus_agent_opts){0}, &a)) {
        printf("%s\n", weft_errmsg());
        _exit(5);
    }
    x->ready = 1;
    while (!x->stop) {
        x->files = process_lines("/proc/self/maps", "memfd:weft-bus");
        clock_pause(MS);
    }
    bus_agent_stop(a);
    if (process_lines("/proc/self/maps", "memfd:weft-bus"))
        _exit(6);
    if (weft_bus_close(b))
        _exit(7);
}

static void end_agent(pid_t pid, struct shared *x)
{
    x->stop = 1;
    finish(pid, 0);
    await_keys("agents/", 0);
}

/* ---- the publisher is killed ---- */

static void publisher_body(struct shared *x)
{
    weft_bus *b = open_bus("trainer", 300 * MS);
    weft_publisher *p = publish(b, "kills");
    x->epoch = weft_publisher_epoch(p);
    for (int64_t step = 1; !x->stop; step++) {
        int64_t before = clock_now();
        if (put(p, step) || weft_commit(p, step, NULL, NULL)) {
            if (strstr(weft_errmsg(), "are being read"))
                continue;
            printf("%s\n", weft_errmsg());
            _exit(8);
        }
        int64_t took = clock_now() - before;
        x->slowest = took > x->slowest ? took : x->slowest;
        x->commits = step;
        for (int i = 0; i < p->keep; i++) /* on a busy machine the agent may not have answered in time */
            if (p->ring[i].step == step && p->ring[i].held)
                x->held = step;
    }
    weft_publisher_close(p);
    weft_bus_close(b);
}

static void publisher_killed(void **state)
{
    (void)state;
    directories_forks();
    if (!directories_sees_death())
        skip();
    struct shared *x = ranks_shared(sizeof *x), *y = ranks_shared(sizeof *y);
    struct random g = random_of(19, 7);
    pid_t agent = child(agent_body, x);
    await_ready(x);
    for (int64_t i = 0; suite_seed(&i, 0, test_share(6, 200)); i++) {
        y->epoch = y->held = 0;
        pid_t publisher = child(publisher_body, y);
        await(&y->held, 1);
        clock_pause(random_in(&g, 0, 20) * MS);
        finish(publisher, SIGKILL);
        int64_t committed = y->held, until = clock_now() + LONG;
        weft_epoch_step v = late_reader("kills"); /* until the agent knows, it may be what it has of the life before */
        while ((v.epoch != y->epoch || v.step < committed) && clock_now() < until)
            v = late_reader("kills");
        if (v.epoch != y->epoch || v.step < committed)
            fail_msg("%d.%d was committed, and %d.%d is the newest one", (int)y->epoch, (int)committed, (int)v.epoch,
                     (int)v.step);
    }
    await(&x->files, 1);
    for (int64_t until = clock_now() + LONG; x->files > 1; clock_pause(MS)) /* one version is kept */
        if (clock_now() > until)
            fail_msg("the agent has %d files", (int)x->files);
    end_agent(agent, x);
    await_keys("sets/kills/slots/", 0);
    await_keys("sets/kills/parts/", 0);
    assert_int_equal(directories_keys("sets/kills/versions/"), 0);
    munmap(x, sizeof *x);
    munmap(y, sizeof *y);
}

/* ---- the agent is killed, or says nothing ---- */

static void agent_killed(void **state)
{
    (void)state;
    directories_forks();
    if (!directories_sees_death())
        skip();
    struct shared *x = ranks_shared(sizeof *x), *y = ranks_shared(sizeof *y);
    pid_t agent = child(agent_body, x);
    await_ready(x);
    pid_t publisher = child(publisher_body, y);
    await(&y->commits, 1);
    kill(agent, SIGSTOP); /* the publisher waits for it for its lease, at most, and then goes on without it */
    await(&y->commits, y->commits + 3);
    finish(agent, SIGKILL);
    await(&y->commits, y->commits + 3);
    if (y->slowest > 10 * SECOND)
        fail_msg("a commit took %d ms", (int)(y->slowest / MS));
    x->ready = 0;
    agent = child(agent_body, x); /* the next one is found */
    await_ready(x);
    y->held = 0;
    await(&y->held, 1);
    finish(publisher, SIGKILL);
    weft_epoch_step v = late_reader("kills");
    assert_int_equal(v.epoch, y->epoch);
    end_agent(agent, x);
    munmap(x, sizeof *x);
    munmap(y, sizeof *y);
}

/* ---- the publisher is stopped for longer than its lease ---- */

static void stopped_body(struct shared *x)
{
    weft_bus *b = open_bus("stopped", 300 * MS);
    weft_publisher *p = publish(b, "stops");
    if (put(p, 1) || weft_commit(p, 1, NULL, NULL) || put(p, 2))
        _exit(9);
    raise(SIGSTOP);
    x->code = weft_commit(p, 2, NULL, NULL);
    snprintf(x->text, sizeof x->text, "%s", weft_errmsg());
    for (int64_t step = 3; !x->code && step < 6; step++) /* what the agent holds is reused now */
        x->code = put(p, step) || weft_commit(p, step, NULL, NULL);
    x->commits = 5;
    while (!x->stop)
        clock_pause(MS);
    weft_publisher_close(p);
    weft_bus_close(b);
}

static void publisher_stopped(void **state)
{
    (void)state;
    directories_forks();
    struct shared *x = ranks_shared(sizeof *x), *y = ranks_shared(sizeof *y);
    pid_t agent = child(agent_body, x);
    await_ready(x);
    int status;
    pid_t publisher = child(stopped_body, y);
    if (waitpid(publisher, &status, WUNTRACED) != publisher || !WIFSTOPPED(status))
        fail_msg("the process was not stopped: %x", status);
    struct directory *d = directories_open("");
    for (bool mine = false; !mine; clock_pause(5 * MS)) { /* the agent has its slot */
        struct directory_items items;
        fine(directory_get(d, "sets/stops/slots/", LONG, &items));
        mine = items.n == 1 && strstr((const char *)items.items[0].value, "agent 1");
        directory_items_free(&items);
    }
    directory_close(d);
    weft_epoch_step v = late_reader("stops");
    assert_int_equal(v.step, 1); /* step 2 was put, and not committed */
    kill(publisher, SIGCONT);
    await(&y->commits, 5);
    if (y->code)
        fail_msg("%s", y->text);
    v = late_reader("stops");
    assert_int_equal(v.epoch, 1);
    assert_int_equal(v.step, 5);
    y->stop = 1;
    finish(publisher, 0);
    v = late_reader("stops"); /* it was closed, and the agent has it */
    assert_int_equal(v.step, 5);
    end_agent(agent, x);
    munmap(x, sizeof *x);
    munmap(y, sizeof *y);
}

/* ---- another user ---- */

static void other_user(struct shared *x)
{
    struct catalog_slot slot = {.agent = true};
    struct part_client c;
    struct part_client_of of = {.version = {1, 1}, .generation = 2};
    unsigned char *bytes;
    size_t size;
    memcpy(slot.socket, x->text, sizeof slot.socket);
    if (setuid(65534))
        _exit(10);
    int err = part_client_open("", "kills", &slot, LONG, deadline_in(LONG), &c);
    if (err) /* it is told by the end of the connection, which may come before its first byte */
        _exit(11);
    if (part_client_layouts(&c, deadline_in(LONG), &bytes, &size) != WEFT_EPEER)
        _exit(12);
    part_client_close(&c);
    err = part_client_open("", "kills", &slot, LONG, deadline_in(LONG), &c);
    if (!err)
        err = part_client_keep(&c, &of, deadline_in(LONG));
    part_client_close(&c);
    _exit(err == WEFT_EPEER ? 0 : 13);
}

static void stranger(void **state)
{
    (void)state;
    directories_forks();
    if (geteuid())
        skip();
    struct shared *x = ranks_shared(sizeof *x), *y = ranks_shared(sizeof *y);
    pid_t agent = child(agent_body, x);
    await_ready(x);
    weft_bus *b = open_bus("reader", LONG);
    struct catalog_slot slot;
    fine(catalog_agent(&b->keeper, b->host, deadline_in(LONG), &slot));
    memcpy(y->text, slot.socket, sizeof slot.socket);
    fine(weft_bus_close(b));
    finish(child(other_user, y), 0);
    end_agent(agent, x);
    munmap(x, sizeof *x);
    munmap(y, sizeof *y);
}

/* An agent that was stopped for longer than its lease, and goes on, serves what it holds again. */
static void agent_stopped(void **state)
{
    (void)state;
    directories_forks();
    struct shared *x = ranks_shared(sizeof *x), *y = ranks_shared(sizeof *y);
    x->lease = 300 * MS;
    pid_t agent = child(agent_body, x);
    await_ready(x);
    pid_t publisher = child(publisher_body, y);
    await(&y->held, 2);
    finish(publisher, SIGKILL);
    weft_epoch_step before = late_reader("kills"), after;
    await_keys("sets/kills/slots/", 1);
    kill(agent, SIGSTOP);
    await_keys("sets/kills/slots/", 0); /* its lease has ended, and so have its records */
    await_keys("agents/", 0);
    kill(agent, SIGCONT);
    after = late_reader("kills");
    assert_true(after.epoch == before.epoch && after.step >= before.step);
    await_keys("agents/", 1);
    end_agent(agent, x);
    munmap(x, sizeof *x);
    munmap(y, sizeof *y);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(publisher_killed)};
    const struct CMUnitTest served[] = {cmocka_unit_test(agent_killed), cmocka_unit_test(publisher_stopped),
                                        cmocka_unit_test(agent_stopped), cmocka_unit_test(stranger)};
    return SUITE_MAIN(argc, argv, SUITE_AT(&directories_places, tests), SUITE_AT(&directories_served, served));
}
