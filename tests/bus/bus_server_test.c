/* A server of a directory among readers that want to publish, clients of another kind, messages that are wrong, and
 * servers that end, come back, or say nothing. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bus/bus_message.h"
#include "bus/bus_server.h"
#include "directories.h"
#include "rendezvous/address.h"
#include "rendezvous/dial.h"
#include "rendezvous/store.h"
#include "support/processes.h"
#include "support/random.h"
#include "support/share.h"
#include "weft.h"

/* ---- rights ---- */

static void refused(int err, const char *why)
{
    assert_int_equal(err, WEFT_ETRANSPORT);
    if (!strstr(weft_errmsg(), why))
        fail_msg("the text does not say '%s': %s", why, weft_errmsg());
}

static void readers(void **state)
{
    (void)state;
    struct directory *pub = directories_open("rights"), *a = directories_open_with("rights", READ_TOKEN),
                     *b = directories_open_with("rights", READ_TOKEN), *none;
    struct directory_outcome o;
    struct directory_watch *w;
    struct directory_items got;
    int64_t owned, mine, theirs;
    fine(directory_grant(pub, LONG, LONG, &owned));
    int64_t first = directories_put(pub, "set/1", "v", owned);
    assert_true(directories_has(a, "set/1", "v"));
    fine(directory_watch(a, "set/", first - 1, &w));
    fine(directory_next(w, LONG, &got));
    assert_int_equal(got.n, 1);
    directory_items_free(&got);
    directory_unwatch(w);
    fine(directory_grant(a, LONG, LONG, &mine));
    fine(directory_grant(b, LONG, LONG, &theirs));
    refused(directory_put_if(a, "set/1", -1, "bad", 3, 0, LONG, &o), "for reading");
    refused(directory_put_if(a, "set/1", -1, "bad", 3, mine, LONG, &o), "for reading");
    refused(directory_delete(a, "set/1", -1, LONG, &o), "for reading");
    refused(directory_put_if(a, "set/readers/a", -1, "", 0, 0, LONG, &o), "lease");
    refused(directory_put_if(a, "set/xreaders/a", -1, "", 0, mine, LONG, &o), "for reading");
    refused(directory_put_if(a, "set/readers/a", -1, "", 0, owned, LONG, &o), "lease");
    refused(directory_revoke(a, owned, LONG), "another client");
    refused(directory_renew(a, owned, LONG), "another client");
    fine(directory_put_if(a, "set/readers/a", 0, "here", 4, mine, LONG, &o));
    assert_true(o.done);
    refused(directory_delete(b, "set/readers/a", -1, LONG, &o), "lease");
    refused(directory_put_if(b, "set/readers/a", -1, "", 0, theirs, LONG, &o), "lease");
    struct directory_change both[] = {{.key = "set/readers/b", .lease = theirs}, {.key = "set/2"}};
    refused(directory_transact(b, &(struct directory_transaction){NULL, 0, both, 2}, LONG, &o), "for reading");
    assert_true(directories_has(pub, "set/readers/b", NULL));
    assert_true(directories_has(pub, "set/readers/a", "here") && directories_has(pub, "set/1", "v"));
    directory_close(a);
    directories_await(pub, "set/readers/a", NULL);
    directory_close(b);
    directory_close(pub);
    refused(directory_open(directories_url(),
                           &(struct directory_opts){.token = "0123456789abcdef-another", .timeout_ns = LONG}, &none),
            "another token");
    assert_int_equal(directory_open(directories_url(), &(struct directory_opts){.timeout_ns = LONG}, &none),
                     WEFT_EINVAL);
}

/* A rank that takes the directory for a store is told at once. */
static void no_store(void **state)
{
    (void)state;
    struct store *s;
    struct store_opts o = {.name = "x", .rank = 1, .size = 2, .token = PUBLISH_TOKEN, .timeout_ns = LONG};
    assert_int_equal(store_open(directories_url(), &o, &s), WEFT_EINVAL);
    assert_non_null(strstr(weft_errmsg(), "no store"));
}

/* ---- messages that are wrong ---- */

struct hand {
    int fd;
    struct frame_end end;
};

static void connect_hand(struct hand *h)
{
    struct address at;
    int why;
    uint64_t full;
    assert_int_equal(address_parse(directories_url() + 4, &at), 0);
    assert_int_equal(address_connect(&at, clock_now() + LONG, &h->fd), 0);
    assert_int_equal(
        dial_prove(h->fd, sodium_find(), PUBLISH_TOKEN, FRAME_CHACHA, clock_now() + LONG, &h->end, &why, &full),
        DIAL_PROVED);
}

/* Sends a request and takes the reply. False: the server has closed the connection. */
static bool say(struct hand *h, const struct frame_request *q, struct frame_reply *r)
{
    static unsigned char message[FRAME_MESSAGE_MAX], frame[FRAME_LENGTH + FRAME_FRAME_MAX];
    size_t n = frame_seal(&h->end, message, frame_put_request(message, q), frame);
    if (dial_send(h->fd, frame, n, clock_now() + LONG) || dial_receive(h->fd, frame, FRAME_LENGTH, clock_now() + LONG))
        return false;
    n = frame_length(frame);
    return n && !dial_receive(h->fd, frame, n, clock_now() + LONG) && frame_open(&h->end, frame, n) &&
           frame_take_reply(frame, n - SODIUM_TAG, r);
}

static size_t some_transaction(unsigned char *out)
{
    static const char long_value[300];
    struct directory_compare compares[] = {{"w/a", 0}, {"w/b", 7}};
    struct directory_change changes[] = {{.key = "w/a", .value = "1", .bytes = 1},
                                         {.key = "w/b", .erase = true},
                                         {.key = "w/c", .value = long_value, .bytes = sizeof long_value, .lease = 9}};
    return bus_message_put_transaction(out, &(struct directory_transaction){compares, 2, changes, 3});
}

/* What is accepted is within all limits and the same when it is written again. */
static void wrong_bytes(void **state)
{
    (void)state;
    static unsigned char bytes[DIRECTORY_BYTES_MAX], again[DIRECTORY_BYTES_MAX];
    static struct bus_message_transaction m;
    int accepted = 0;
    for (int64_t i = 1; suite_seed(&i, 1, test_rounds((int)test_share(20000, 2000000))); i++) {
        struct random r = random_of(20, i);
        size_t n = some_transaction(bytes);
        for (int64_t k = random_in(&r, 0, 3); k > 0; k--)
            bytes[random_in(&r, 0, (int64_t)n - 1)] = (unsigned char)random_next(&r);
        if (random_once_in(&r, 3))
            n = (size_t)random_in(&r, 0, (int64_t)n);
        unsigned char *exact = malloc(n + 1); /* so that AddressSanitizer sees what is read behind the end */
        memcpy(exact, bytes, n);
        exact = realloc(exact, n ? n : 1);
        if (bus_message_take_transaction(exact, n, &m)) {
            accepted++;
            assert_true(m.t.nchanges <= DIRECTORY_CHANGES_MAX && m.t.ncompares <= DIRECTORY_CHANGES_MAX);
            assert_int_equal(bus_message_put_transaction(again, &m.t), n);
            assert_memory_equal(again, exact, n);
        }
        size_t at = 0;
        struct directory_item item;
        while (at < n && bus_message_take_item(exact, n, &at, &item)) {
        }
        free(exact);
    }
    assert_true(accepted > 0);
}

/* The server closes a connection whose messages are wrong, and serves the others. */
static void wrong_messages(void **state)
{
    (void)state;
    static unsigned char bytes[DIRECTORY_BYTES_MAX];
    struct directory *d = directories_open("");
    struct hand h;
    struct frame_reply r;
    size_t n = some_transaction(bytes);
    const struct frame_request wrong[] = {
        {.op = FRAME_DIRECTORY_TRANSACT, .key = "", .value = bytes, .bytes = n - 1},
        {.op = FRAME_DIRECTORY_TRANSACT, .key = ""},
        {.op = FRAME_DIRECTORY_GET, .key = "", .number = 1}, /* the rest of what was not asked for */
        {.op = FRAME_SET, .key = "k", .key_len = 1},
        {.op = (enum frame_op)(FRAME_DIRECTORY_WATCH + 1), .key = ""},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        connect_hand(&h);
        if (say(&h, &wrong[i], &r))
            fail_msg("the wrong message %zu was answered", i);
        close(h.fd);
    }
    connect_hand(&h);
    assert_true(say(&h, &(struct frame_request){.op = FRAME_DIRECTORY_GRANT, .key = "", .number = INT64_MAX}, &r));
    assert_int_equal(r.code, WEFT_EINVAL);
    assert_true(say(&h, &(struct frame_request){.op = FRAME_DIRECTORY_REVOKE, .key = "", .number = -5}, &r));
    assert_int_equal(r.code, WEFT_EPEER);
    assert_true(say(&h, &(struct frame_request){.op = FRAME_DIRECTORY_WATCH, .key = "", .number = INT64_MIN}, &r));
    assert_true(r.code == 0 && r.bytes == 1 && r.value[0] == BUS_MESSAGE_LOST);
    assert_true(say(&h, &(struct frame_request){.op = FRAME_DIRECTORY_WATCH, .key = "", .number = INT64_MAX}, &r));
    assert_true(r.code == 0 && r.bytes == 1 && r.value[0] == BUS_MESSAGE_LOST);
    close(h.fd);
    directories_put(d, "fine", "still", 0);
    assert_true(directories_has(d, "w/a", NULL) && directories_has(d, "fine", "still"));
    directory_close(d);
}

/* ---- servers that end and come back ---- */

struct place {
    struct address at;
    char url[64];
    struct bus_server *server;
};

static void serve(struct place *p)
{
    int fd, err;
    while ((err = address_listen(&p->at, &fd)) > 0)
        clock_pause(10 * MS);
    fine(err);
    fine(bus_server_start(fd, &(struct bus_server_opts){.publish_token = PUBLISH_TOKEN}, &p->server));
    snprintf(p->url, sizeof p->url, "tcp:127.0.0.1:%d", p->at.port);
}

static void *serve_later(void *arg)
{
    clock_pause(100 * MS);
    serve(arg);
    return NULL;
}

static void comes_back(void **state)
{
    (void)state;
    struct place p = {.at = {.host = "127.0.0.1"}};
    struct directory *d;
    struct directory_watch *w;
    struct directory_items got;
    struct directory_outcome o;
    pthread_t thread;
    int64_t lease, began;
    serve(&p);
    fine(directory_open(p.url, &(struct directory_opts){PUBLISH_TOKEN, LONG}, &d));
    fine(directory_grant(d, LONG, LONG, &lease));
    int64_t old = directories_put(d, "k", "old", lease);
    fine(directory_watch(d, "", old, &w));
    assert_int_equal(directory_next(w, 0, &got), WEFT_ETIMEOUT);
    bus_server_stop(p.server);
    began = clock_now();
    assert_int_equal(directory_get(d, "", 200 * MS, &got), WEFT_ETIMEOUT);
    assert_non_null(strstr(weft_errmsg(), p.url));
    assert_int_equal(directory_next(w, 200 * MS, &got), WEFT_ETIMEOUT);
    assert_true(clock_now() - began < 20 * SECOND);
    assert_int_equal(pthread_create(&thread, NULL, serve_later, &p), 0);
    fine(directory_next(w, LONG, &got)); /* it comes back empty, with larger revisions */
    assert_true(got.lost && got.n == 0 && got.revision > old);
    directory_items_free(&got);
    assert_int_equal(directory_renew(d, lease, LONG), WEFT_EPEER);
    fine(directory_put_if(d, "k", old, "new", 3, 0, LONG, &o));
    assert_false(o.done);
    directories_put(d, "k", "new", 0);
    fine(directory_next(w, LONG, &got));
    assert_true(!got.lost && got.n == 1);
    directory_items_free(&got);
    directory_unwatch(w);
    directory_close(d);
    pthread_join(thread, NULL);
    bus_server_stop(p.server);
}

/* A server that is stopped costs a call its timeout and no more. When it goes on, replies that came too late are
 * passed over, and the lease is still there. */
static void silent(void **state)
{
    (void)state;
    struct place p = {.at = {.host = "127.0.0.1"}};
    struct directory *d;
    struct directory_watch *w;
    struct directory_items got;
    struct directory_outcome o;
    int64_t lease, began;
    int fd, status, n = 0;
    directories_forks();
    fine(address_listen(&p.at, &fd));
    snprintf(p.url, sizeof p.url, "tcp:127.0.0.1:%d", p.at.port);
    pid_t pid = process_fork(120);
    if (!pid) {
        if (bus_server_start(fd, &(struct bus_server_opts){.publish_token = PUBLISH_TOKEN}, &p.server))
            _exit(1);
        for (;;)
            pause();
    }
    close(fd);
    fine(directory_open(p.url, &(struct directory_opts){PUBLISH_TOKEN, LONG}, &d));
    fine(directory_grant(d, LONG, LONG, &lease));
    int64_t first = directories_put(d, "a", "1", lease);
    fine(directory_watch(d, "", first, &w));
    kill(pid, SIGSTOP);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    began = clock_now();
    assert_int_equal(directory_get(d, "", 100 * MS, &got), WEFT_ETIMEOUT);
    assert_int_equal(directory_put_if(d, "b", 0, "2", 1, 0, 100 * MS, &o), WEFT_ETIMEOUT);
    assert_non_null(strstr(weft_errmsg(), "not known"));
    assert_int_equal(directory_next(w, 100 * MS, &got), WEFT_ETIMEOUT);
    assert_int_equal(directory_next(w, 100 * MS, &got), WEFT_ETIMEOUT);
    assert_true(clock_now() - began < 20 * SECOND);
    kill(pid, SIGCONT);
    fine(directory_renew(d, lease, LONG));
    assert_true(directories_has(d, "a", "1") && directories_has(d, "b", "2"));
    for (; n < 1; n += (int)got.n, directory_items_free(&got))
        fine(directory_next(w, LONG, &got));
    assert_int_equal(n, 1);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(directory_put_if(d, "b", -1, "3", 1, 0, 100 * MS, &o), WEFT_ETIMEOUT);
    directory_unwatch(w);
    directory_close(d);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest served[] = {cmocka_unit_test(readers), cmocka_unit_test(no_store),
                                        cmocka_unit_test(wrong_messages), cmocka_unit_test(comes_back),
                                        cmocka_unit_test(silent)},
                            alone[] = {cmocka_unit_test(wrong_bytes)};
    return SUITE_MAIN(argc, argv, SUITE_AT(&directories_served, served), SUITE_ONCE(alone));
}
