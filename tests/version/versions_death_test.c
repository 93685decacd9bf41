/* Versions on the bus among processes that are killed, stopped and started again, and without the directory for a
 * while. Nobody sees a mixture of versions or waits beyond its deadline, and nothing stays behind. */
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

#include "bus/bus_server.h"
#include "bus/directories.h"
#include "rendezvous/address.h"
#include "support/processes.h"
#include "support/random.h"
#include "support/ranks.h"
#include "support/share.h"
#include "version/death_kit.h"
#include "version/fetch_share.h"
#include "weft/bus.h"

#define COUNT 20000 /* elements of the one tensor */
static const weft_want newer = {WEFT_WANT_NEWER, 0};
static const weft_want latest = {WEFT_WANT_LATEST, 0};

/* What the processes of a test tell each other. */
struct shared {
    _Atomic int64_t swaps, commits, wrong, epoch, step, ready;
    _Atomic int code, stop;
    char text[512];
    _Atomic int64_t live[8]; /* of each rank: epoch * 1000000 + step; -1: it does not know */
    _Atomic int done[8];
};

static weft_bus *open_bus(const char *job, int64_t lease)
{
    weft_bus_opts o = WEFT_BUS_OPTS_INIT;
    weft_bus *b = NULL;
    o.token = PUBLISH_TOKEN;
    o.job = job;
    o.lease_ns = lease;
    o.deadline_ns = LONG;
    if (weft_bus_open(directories_url(), &o, &b))
        printf("%s\n", weft_errmsg());
    return b;
}

static weft_publisher *publish(weft_bus *b, const char *set, const char *layout, weft_comm *comm)
{
    weft_publish_opts o = WEFT_PUBLISH_OPTS_INIT;
    weft_publisher *p = NULL;
    weft_layout *l;
    o.comm = comm;
    if (weft_layout_parse(layout, &l) || weft_publish(b, set, &(weft_bus_tensor){.name = "w", .layout = l}, 1, &o, &p))
        printf("%s\n", weft_errmsg());
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

static weft_subscriber *subscribe(weft_bus *b, const char *set, const char *layout, const weft_subscribe_opts *o)
{
    weft_subscriber *s = NULL;
    weft_layout *l;
    if (weft_layout_parse(layout, &l) || weft_subscribe(b, set, &(weft_bus_tensor){.name = "w", .layout = l}, 1, o, &s))
        printf("%s\n", weft_errmsg());
    weft_layout_free(l);
    return s;
}

/* Elements of the live version that are not its own; -1: none is live. */
static int64_t wrong(weft_subscriber *s, weft_epoch_step *v, int64_t first, int64_t n)
{
    weft_pin *pin;
    const void *data;
    int64_t bad = 0;
    if (weft_use(s, &pin))
        return -1;
    *v = weft_pin_version(pin);
    weft_pin_data(pin, 0, &data, NULL);
    for (int64_t i = 0; i < n; i++)
        bad += ((const int32_t *)data)[i] != element(v->epoch, v->step, first + i);
    weft_unuse(pin);
    return bad;
}

#define WHOLE "i32[20000] @x1"

/* ---- SIGKILL ---- */

static void publisher_body(struct shared *x)
{
    weft_bus *b = open_bus("trainer", SECOND);
    weft_publisher *p = b ? publish(b, "kills", WHOLE, NULL) : NULL;
    if (!p)
        _exit(3);
    x->epoch = weft_publisher_epoch(p);
    for (int64_t step = 0;; step++) {
        if (put(p, step) || weft_commit(p, step, NULL, NULL)) {
            if (strstr(weft_errmsg(), "are being read"))
                continue;
            printf("%s\n", weft_errmsg());
            _exit(4);
        }
        x->commits++;
    }
}

static void subscriber_body(struct shared *x)
{
    weft_bus *b = open_bus("server", SECOND);
    weft_subscriber *s = b ? subscribe(b, "kills", WHOLE, NULL) : NULL;
    if (!s)
        _exit(3);
    int files = 0;
    for (int64_t n = 0; !x->stop; n++) {
        weft_epoch_step v, live;
        int64_t before = clock_now();
        int err = weft_fetch(s, &newer, 200 * MS, &v);
        if (clock_now() - before > 20 * SECOND)
            x->wrong += 1000; /* a hang */
        if (err && err != WEFT_ETIMEOUT) {
            printf("fetch: %s\n", weft_errmsg());
            x->wrong += 100;
        }
        if (!err && weft_swap(s, &v, LONG))
            x->wrong += 10;
        int64_t bad = wrong(s, &live, 0, COUNT);
        if (bad > 0)
            x->wrong++;
        if (!err && bad == 0) {
            x->swaps++;
            x->ready = live.epoch;
        }
        if (n == 5)
            files = process_files();
        if (n > 5 && process_files() > files + 2)
            x->wrong += 100000;
    }
    weft_subscriber_close(s);
    weft_bus_close(b);
}

static void kills(void **state)
{
    (void)state;
    directories_forks();
    if (!directories_sees_death())
        skip();
    struct shared *x = ranks_shared(sizeof *x);
    struct random g = random_of(19, 1);
    pid_t reader = child(subscriber_body, x);
    for (int64_t i = 0; suite_seed(&i, 0, test_share(8, 200)); i++) {
        x->epoch = 0;
        pid_t publisher = child(publisher_body, x);
        if (i % 4 == 3) { /* the reader dies, and another one joins */
            await(&x->commits, x->commits + 1);
            finish(reader, SIGKILL);
            reader = child(subscriber_body, x);
        }
        if (i % 2) { /* a version of this life is live */
            await(&x->epoch, 1);
            await(&x->ready, x->epoch);
        }
        clock_pause(random_in(&g, 0, 20) * MS);
        finish(publisher, SIGKILL);
        assert_int_equal(x->wrong, 0);
    }
    pid_t last = child(publisher_body, x);
    int64_t swaps = x->swaps;
    await(&x->swaps, swaps + 3);
    x->stop = 1;
    finish(reader, 0);
    finish(last, SIGKILL);
    assert_int_equal(x->wrong, 0);
    /* Leased records go with their owners. */
    struct directory *d = directories_open("");
    for (int64_t until = clock_now() + LONG;; clock_pause(5 * MS)) {
        struct directory_items items;
        size_t left = 0;
        fine(directory_get(d, "sets/kills/", LONG, &items));
        for (size_t i = 0; i < items.n; i++)
            left += items.items[i].lease != 0;
        directory_items_free(&items);
        if (!left)
            break;
        if (clock_now() > until)
            fail_msg("%zu leased keys are left", left);
    }
    directory_close(d);
    munmap(x, sizeof *x);
}

/* ---- SIGSTOP for longer than a lease ---- */

static void stopped_publisher(struct shared *x)
{
    weft_bus *b = open_bus("stopped", 300 * MS);
    weft_publisher *p = b ? publish(b, "stops", WHOLE, NULL) : NULL;
    if (!p || put(p, 1) || weft_commit(p, 1, NULL, NULL) || put(p, 2))
        _exit(3);
    x->ready = 1;
    raise(SIGSTOP);
    x->code = weft_commit(p, 2, NULL, NULL);
    snprintf(x->text, sizeof x->text, "%s", weft_errmsg());
    x->ready = 2;
    while (!x->stop)
        clock_pause(MS);
    weft_publisher_close(p);
    weft_bus_close(b);
}

static void await_stop(pid_t pid)
{
    int status;
    if (waitpid(pid, &status, WUNTRACED) != pid || !WIFSTOPPED(status))
        fail_msg("the process was not stopped: %x", status);
}

static void await_no_slot(const char *key)
{
    struct directory *d = directories_open("");
    directories_await(d, key, NULL);
    directory_close(d);
}

static void stops(void **state)
{
    (void)state;
    directories_forks();
    if (!directories_sees_death())
        skip();
    for (int newcomer = 0; newcomer < 2; newcomer++) {
        struct shared *x = ranks_shared(sizeof *x);
        pid_t old = child(stopped_publisher, x);
        char slot[64];
        await_stop(old);
        snprintf(slot, sizeof slot, "sets/stops/slots/%010d/0000", newcomer ? 2 : 1);
        await_no_slot(slot); /* its lease has ended */
        weft_bus *b = open_bus("watcher", SECOND);
        weft_subscriber *s = subscribe(b, "stops", WHOLE, NULL);
        weft_epoch_step v;
        assert_int_equal(weft_fetch(s, &latest, 50 * MS, &v), WEFT_ETIMEOUT);
        weft_publisher *p = newcomer ? publish(b, "stops", WHOLE, NULL) : NULL;
        kill(old, SIGCONT);
        await(&x->ready, 2);
        if (newcomer) { /* it is fenced off */
            assert_int_equal(x->code, WEFT_EPEER);
            assert_non_null(strstr(x->text, "newer publisher"));
            assert_int_equal(weft_fetch(s, &latest, 50 * MS, &v), WEFT_ETIMEOUT);
            fine(put(p, 1));
            fine(weft_commit(p, 1, NULL, NULL));
        } else /* nobody has taken the set: it registers again and goes on */
            assert_int_equal(x->code, 0);
        fine(weft_fetch(s, &latest, LONG, &v));
        assert_int_equal(v.epoch, newcomer ? 3 : 1);
        assert_int_equal(v.step, newcomer ? 1 : 2);
        fine(weft_swap(s, &v, LONG));
        assert_int_equal(wrong(s, &v, 0, COUNT), 0);
        x->stop = 1;
        finish(old, 0);
        weft_publisher_close(p);
        weft_subscriber_close(s);
        fine(weft_bus_close(b));
        munmap(x, sizeof *x);
    }
}

/* ---- a holder that says nothing ---- */

static int replica_rank;

static void replica_body(struct shared *x)
{
    weft_publish_opts o = WEFT_PUBLISH_OPTS_INIT;
    weft_publisher *p;
    weft_layout *l;
    weft_bus *b = open_bus(replica_rank ? "second" : "first", LONG);
    o.rank = replica_rank;
    o.ranks = 2;
    o.run = "run";
    if (!b || weft_layout_parse("i32[20000] @x2", &l) ||
        weft_publish(b, "silent", &(weft_bus_tensor){.name = "w", .layout = l}, 1, &o, &p) || put(p, 1) ||
        weft_commit(p, 1, NULL, NULL)) {
        printf("%s\n", weft_errmsg());
        _exit(3);
    }
    x->commits++;
    while (!x->stop)
        clock_pause(MS);
    weft_publisher_close(p);
    weft_bus_close(b);
    weft_layout_free(l);
}

/* One of two replicas is stopped, and its lease is long: the other one is read. */
static void silent(void **state)
{
    (void)state;
    directories_forks();
    struct shared *x = ranks_shared(sizeof *x);
    pid_t pid[2];
    for (replica_rank = 0; replica_rank < 2; replica_rank++)
        pid[replica_rank] = child(replica_body, x);
    await(&x->commits, 2);
    weft_bus *b = open_bus("reader", directories_ttl(200 * MS));
    for (int r = 0; r < 2; r++) {
        weft_subscriber *s = subscribe(b, "silent", WHOLE, NULL);
        weft_epoch_step v;
        kill(pid[r], SIGSTOP);
        await_stop(pid[r]);
        int64_t before = clock_now();
        fine(weft_fetch(s, &latest, LONG, &v));
        assert_true(clock_now() - before < 2 * LONG / 3); /* the lease of the stopped one is LONG */
        fine(weft_swap(s, &v, LONG));
        assert_int_equal(wrong(s, &v, 0, COUNT), 0);
        kill(pid[r], SIGCONT);
        weft_subscriber_close(s);
    }
    x->stop = 1;
    finish(pid[0], 0);
    finish(pid[1], 0);
    fine(weft_bus_close(b));
    munmap(x, sizeof *x);
}

static int stop_once(void *arg, int64_t done, int64_t total)
{
    struct shared *x = arg;
    (void)done, (void)total;
    if (!x->ready++)
        raise(SIGSTOP);
    return 0;
}

static void stopped_reader(struct shared *x)
{
    weft_subscribe_opts o = WEFT_SUBSCRIBE_OPTS_INIT;
    weft_epoch_step v;
    o.progress = stop_once;
    o.arg = x;
    weft_bus *b = open_bus("reader", 300 * MS);
    weft_subscriber *s = b ? subscribe(b, "torn", WHOLE, &o) : NULL;
    if (!s || weft_fetch(s, &latest, LONG, &v) || weft_swap(s, &v, LONG)) {
        printf("%s\n", weft_errmsg());
        _exit(3);
    }
    x->wrong = wrong(s, &v, 0, COUNT);
    x->step = v.step;
    weft_subscriber_close(s);
    weft_bus_close(b);
}

/* A reader is stopped after it has copied and before it has checked. Its lease ends, and the memory is reused. */
static void torn(void **state)
{
    (void)state;
    directories_forks();
    if (!directories_sees_death())
        skip();
    struct shared *x = ranks_shared(sizeof *x);
    weft_bus *b = open_bus("writer", SECOND);
    weft_publisher *p = publish(b, "torn", WHOLE, NULL);
    fine(put(p, 1));
    fine(weft_commit(p, 1, NULL, NULL));
    pid_t reader = child(stopped_reader, x);
    await_stop(reader);
    fine(put(p, 2));
    fine(weft_commit(p, 2, NULL, NULL));
    int err;
    for (int64_t until = clock_now() + LONG; (err = put(p, 3)) == WEFT_EBUSY && clock_now() < until;)
        clock_pause(5 * MS); /* version 2 goes if version 1 has its lease still */
    fine(err);
    fine(weft_commit(p, 3, NULL, NULL));
    while ((err = put(p, 4)) == WEFT_EBUSY)
        clock_pause(5 * MS);
    fine(err);
    fine(weft_commit(p, 4, NULL, NULL));
    kill(reader, SIGCONT);
    finish(reader, 0);
    assert_int_equal(x->wrong, 0);
    assert_true(x->step == 4 || x->step == 1);
    weft_publisher_close(p);
    fine(weft_bus_close(b));
    munmap(x, sizeof *x);
}

/* ---- ranks that die around a swap ---- */

#define SWAPPERS 3
static const char *swap_url;
static int swap_rank;

/* A rank of the job subscribes. Rank 2 holds nothing, and votes. */
static weft_subscriber *open_swapper(const char *set, weft_comm **c, weft_bus **b)
{
    weft_subscribe_opts o = WEFT_SUBSCRIBE_OPTS_INIT;
    if (process_open(swap_url, swap_rank, SWAPPERS, LONG, c))
        _exit(3);
    o.comm = *c;
    *b = open_bus(set, SECOND);
    weft_subscriber *s = *b ? subscribe(*b, set, "i32[20000/x] @x2", &o) : NULL;
    if (!s)
        _exit(3);
    return s;
}

/* Starts the ranks of a job. url: of their comm. */
static void start_swappers(const char *url, void (*body)(struct shared *), struct shared *x, pid_t *pid)
{
    swap_url = url;
    for (swap_rank = 0; swap_rank < SWAPPERS; swap_rank++)
        pid[swap_rank] = child(body, x);
}

static void swapper(struct shared *x)
{
    weft_comm *c;
    weft_bus *b;
    weft_epoch_step v, live = {0, 0};
    int rank = swap_rank, share = COUNT / 2, err = 0;
    weft_subscriber *s = open_swapper("swaps", &c, &b);
    while (!err && !x->stop) {
        err = weft_fetch(s, &newer, LONG, &v);
        if (!err)
            err = weft_swap(s, &v, 5 * SECOND);
        if (!err)
            x->swaps++;
    }
    int64_t bad = wrong(s, &live, rank * share, rank < 2 ? share : 0);
    x->wrong += bad > 0;
    x->live[rank] = bad < 0 ? -1 : live.epoch * 1000000 + live.step;
    x->done[rank] = 1;
    weft_subscriber_close(s);
    weft_bus_close(b);
    weft_comm_close(c);
}

static void swap_publisher(struct shared *x)
{
    weft_bus *b = open_bus("trainer", SECOND);
    weft_publisher *p = b ? publish(b, "swaps", WHOLE, NULL) : NULL;
    if (!p)
        _exit(3);
    for (int64_t step = 0; x->stop < 2; step++) {
        int err = put(p, step);
        if (!err)
            err = weft_commit(p, step, NULL, NULL);
        if (err && !strstr(weft_errmsg(), "are being read")) {
            printf("%s\n", weft_errmsg());
            _exit(4);
        }
        clock_pause(MS);
    }
    weft_publisher_close(p);
    weft_bus_close(b);
}

static void swaps(void **state)
{
    (void)state;
    directories_forks();
    if (!directories_sees_death())
        skip();
    int64_t unknown = 0;
    for (int64_t i = 0; suite_seed(&i, 0, test_share(5, 100)); i++) {
        struct random g = random_of(77, i);
        struct shared *x = ranks_shared(sizeof *x);
        char url[64];
        pid_t pid[SWAPPERS], publisher = child(swap_publisher, x);
        snprintf(url, sizeof url, "shm:weft-swaps-%d-%d", (int)getpid(), (int)i);
        start_swappers(url, swapper, x, pid);
        await(&x->swaps, random_in(&g, 2, 30));
        clock_pause(random_in(&g, 0, 3000) * 1000);
        int dead = (int)(i % SWAPPERS);
        finish(pid[dead], SIGKILL);
        int64_t seen = -1;
        for (int r = 0; r < SWAPPERS; r++) {
            if (r == dead)
                continue;
            finish(pid[r], 0);
            assert_int_equal(x->done[r], 1);
            if (x->live[r] < 0)
                unknown++;
            else if (seen < 0)
                seen = x->live[r];
            else
                assert_int_equal(x->live[r], seen); /* all survivors have one version */
        }
        x->stop = 2;
        finish(publisher, 0);
        assert_int_equal(x->wrong, 0);
        munmap(x, sizeof *x);
    }
    print_message("%d ranks could not learn a decision\n", (int)unknown);
}

/* ---- a rank that dies before the ranks compare digests ---- */

static bool dies;

int __wrap_fetch_share_join(weft_subscriber *s, bool *fit);
int __real_fetch_share_join(weft_subscriber *s, bool *fit);
int __wrap_fetch_share_join(weft_subscriber *s, bool *fit)
{
    if (dies)
        raise(SIGKILL);
    return __real_fetch_share_join(s, fit);
}

static void joiner(struct shared *x)
{
    weft_comm *c;
    weft_bus *b;
    weft_epoch_step v, live = {0, 0};
    int rank = swap_rank, share = COUNT / 2;
    weft_subscriber *s = open_swapper("joins", &c, &b);
    if (weft_fetch(s, &latest, LONG, &v) || weft_swap(s, &v, LONG) || weft_comm_barrier(c, LONG)) {
        printf("%s\n", weft_errmsg());
        _exit(4);
    }
    x->ready++;
    dies = rank == 1;
    int64_t before = clock_now();
    int err = weft_fetch(s, &(weft_want){WEFT_WANT_STEP, 2}, LONG, &v);
    if (rank == 0) {
        x->code = err;
        snprintf(x->text, sizeof x->text, "%s", weft_errmsg());
    }
    x->wrong += err != WEFT_EPEER;
    x->wrong += clock_now() - before > LONG;
    x->wrong += weft_swap(s, &(weft_epoch_step){v.epoch, 2}, SECOND) == 0;
    x->wrong += wrong(s, &live, rank * share, rank < 2 ? share : 0) != 0;
    x->live[rank] = live.step;
    weft_subscriber_close(s);
    weft_bus_close(b);
    weft_comm_close(c);
}

/* All ranks have staged the version and said so. The others are told who has gone, and keep the version before. */
static void joins(void **state)
{
    (void)state;
    directories_forks();
    if (!directories_sees_death())
        skip();
    struct shared *x = ranks_shared(sizeof *x);
    char url[64];
    pid_t pid[SWAPPERS];
    weft_bus *b = open_bus("trainer", SECOND);
    weft_publisher *p = publish(b, "joins", WHOLE, NULL);
    fine(put(p, 1));
    fine(weft_commit(p, 1, NULL, NULL));
    snprintf(url, sizeof url, "shm:weft-joins-%d", (int)getpid());
    start_swappers(url, joiner, x, pid);
    await(&x->ready, SWAPPERS);
    fine(put(p, 2));
    fine(weft_commit(p, 2, NULL, NULL));
    int status;
    assert_int_equal(waitpid(pid[1], &status, 0), pid[1]);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    finish(pid[0], 0);
    finish(pid[2], 0);
    assert_int_equal(x->code, WEFT_EPEER);
    assert_non_null(strstr(x->text, "rank 1"));
    assert_int_equal(x->wrong, 0);
    assert_int_equal(x->live[0], 1);
    assert_int_equal(x->live[2], 1);
    weft_publisher_close(p);
    fine(weft_bus_close(b));
    munmap(x, sizeof *x);
}

/* ---- the directory goes away ---- */

static void directory_away(void **state)
{
    (void)state;
    struct address at = {.host = "127.0.0.1"};
    struct bus_server_opts so = {.publish_token = PUBLISH_TOKEN};
    struct bus_server *server;
    int fd;
    char url[64];
    fine(address_listen(&at, &fd));
    fine(bus_server_start(fd, &so, &server));
    snprintf(url, sizeof url, "tcp:127.0.0.1:%d", at.port);
    weft_bus_opts o = WEFT_BUS_OPTS_INIT;
    weft_bus *a, *b;
    o.token = PUBLISH_TOKEN;
    o.lease_ns = 300 * MS;
    o.deadline_ns = 300 * MS;
    fine(weft_bus_open(url, &o, &a));
    fine(weft_bus_open(url, &o, &b));
    weft_publisher *p = publish(a, "away", WHOLE, NULL);
    weft_subscriber *s = subscribe(b, "away", WHOLE, NULL);
    weft_epoch_step v;
    fine(put(p, 1));
    fine(weft_commit(p, 1, NULL, NULL));
    fine(weft_fetch(s, &latest, LONG, &v));
    fine(weft_swap(s, &v, LONG));
    bus_server_stop(server);
    fine(put(p, 2)); /* there is room, so the directory is not needed */
    int err = weft_commit(p, 2, NULL, NULL);
    assert_true(err == WEFT_ETIMEOUT || err == WEFT_ETRANSPORT);
    assert_non_null(strstr(weft_errmsg(), url));
    err = weft_fetch(s, &newer, 100 * MS, &v);
    assert_true(err == WEFT_ETIMEOUT || err == WEFT_ETRANSPORT);
    assert_int_equal(wrong(s, &v, 0, COUNT), 0); /* readers keep what they have */
    assert_int_equal(v.step, 1);
    /* It comes back without its state: all register again. */
    fine(address_listen(&at, &fd));
    fine(bus_server_start(fd, &so, &server));
    for (int64_t until = clock_now() + LONG; (err = weft_commit(p, 2, NULL, NULL)) && clock_now() < until;)
        clock_pause(5 * MS);
    fine(err);
    fine(weft_fetch(s, &newer, LONG, &v));
    assert_true(v.epoch == 1 && v.step == 2);
    fine(weft_swap(s, &v, LONG));
    assert_int_equal(wrong(s, &v, 0, COUNT), 0);
    /* Version 1 is there again, too. */
    fine(weft_fetch(s, &(weft_want){WEFT_WANT_STEP, 1}, LONG, &v));
    weft_subscriber_close(s);
    weft_publisher_close(p);
    fine(weft_bus_close(a));
    fine(weft_bus_close(b));
    bus_server_stop(server);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(kills),  cmocka_unit_test(stops), cmocka_unit_test(torn),
                                       cmocka_unit_test(silent), cmocka_unit_test(swaps), cmocka_unit_test(joins)};
    const struct CMUnitTest served[] = {cmocka_unit_test(directory_away)};
    return SUITE_MAIN(argc, argv, SUITE_AT(&directories_places, tests), SUITE_AT(&directories_served, served));
}
