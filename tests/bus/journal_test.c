/* The state of a directory in a file: random histories read back, entries that are torn at every byte, damage, disks
 * that are full, servers that are killed while they write. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bus/bus_server.h"
#include "bus/journal.h"
#include "directories.h"
#include "rendezvous/address.h"
#include "rendezvous/sodium.h"
#include "support/processes.h"
#include "support/random.h"
#include "support/share.h"
#include "weft.h"

static char folder[64], path[96];

static int begin(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/weft-journal-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    snprintf(path, sizeof path, "%s/state", folder);
    return 0;
}

static int end(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder); /* no file beside it is left */
}

/* ---- two books that must be the same ---- */

static void same_record(const struct book_record *a, const struct book_record *b)
{
    assert_string_equal(book_key(a), book_key(b));
    assert_true(a->made == b->made && a->revision == b->revision && a->lease == b->lease && a->deleted == b->deleted);
    assert_int_equal(a->bytes, b->bytes);
    assert_memory_equal(book_value(a), book_value(b), a->bytes);
}

static void same_books(const struct book *a, struct book *b)
{
    assert_int_equal(a->revision, b->revision);
    assert_int_equal(a->forgotten, b->forgotten);
    assert_int_equal(a->nkeys, b->nkeys);
    assert_int_equal(a->bytes, b->bytes);
    for (size_t i = 0; i < a->nkeys; i++)
        same_record(a->keys[i], b->keys[i]);
    assert_int_equal(a->log_n, b->log_n);
    assert_int_equal(a->log_bytes, b->log_bytes);
    for (size_t i = 0; i < a->log_n; i++)
        same_record(book_logged(a, i), book_logged(b, i));
    assert_int_equal(a->leases.used, b->leases.used);
    for (size_t i = 0; i < a->leases.nbuckets; i++)
        for (struct table_node *n = a->leases.buckets[i]; n; n = n->next) {
            const struct book_lease *l = LIST_OF(n, struct book_lease, node), *m = book_lease(b, l->id);
            assert_true(m && m->ttl_ns == l->ttl_ns && m->nkeys == l->nkeys);
        }
}

static void read_back(const struct book *b)
{
    struct book again;
    struct journal j;
    book_begin(&again, 0, sizeof(struct book_lease));
    again.log_most = b->log_most;
    fine(journal_open(&j, path, &again, 1, false, false));
    same_books(b, &again);
    journal_close(&j);
    book_end(&again, NULL, NULL);
}

/* ---- random histories ---- */

static void change(struct random *r, struct book *b, struct journal *j, const int64_t *leases, int nleases)
{
    static char value[20000];
    char keys[4][8];
    struct directory_change changes[4];
    const char *why;
    size_t n = (size_t)random_in(r, 1, 4);
    for (size_t i = 0; i < n; i++) {
        snprintf(keys[i], sizeof keys[i], "%d%c", (int)random_in(r, 0, 30), (char)('a' + (char)i));
        memset(value, (int)random_in(r, 0, 255), sizeof value);
        bool erase = random_once_in(r, 4);
        changes[i] = (struct directory_change){
            .key = keys[i],
            .value = value,
            .bytes = erase ? 0 : (size_t)random_in(r, 0, random_once_in(r, 10) ? (int64_t)sizeof value : 40),
            .lease = erase || !random_once_in(r, 3) ? 0 : leases[random_in(r, 0, nleases - 1)],
            .erase = erase};
    }
    struct directory_transaction t = {NULL, 0, changes, n};
    int64_t before = b->revision;
    assert_int_equal(book_transact(b, &t, &why), BOOK_DONE);
    if (b->revision > before)
        fine(journal_change(j, &t));
}

static void run(int64_t seed)
{
    struct random r = random_of(21, seed);
    struct book b;
    struct journal j;
    int64_t leases[4] = {0};
    book_begin(&b, 0, sizeof(struct book_lease));
    b.log_most = (size_t)random_in(&r, 1, 200);
    fine(journal_open(&j, path, &b, 1000, false, false));
    for (int64_t i = random_in(&r, 1, 300); i > 0; i--) {
        int which = (int)random_in(&r, 0, 3);
        if (random_once_in(&r, 10) && !leases[which]) {
            struct book_lease *l = book_grant(&b, 0, random_in(&r, 1, 1000000));
            assert_non_null(l);
            leases[which] = l->id;
            fine(journal_grant(&j, l->id, l->ttl_ns));
        } else if (random_once_in(&r, 20) && leases[which]) {
            assert_true(book_revoke(&b, book_lease(&b, leases[which])));
            fine(journal_revoke(&j, leases[which]));
            leases[which] = 0;
        } else {
            change(&r, &b, &j, leases, 4);
        }
        fine(journal_tidy(&j, &b));
        if (random_once_in(&r, 60))
            read_back(&b);
    }
    read_back(&b);
    journal_close(&j);
    book_end(&b, NULL, NULL);
    unlink(path);
}

static void histories(void **state)
{
    (void)state;
    for (int64_t i = 1; suite_seed(&i, 1, test_rounds((int)test_share(60, 2000))); i++)
        run(i);
}

/* ---- torn and damaged files ---- */

static void put_one(struct book *b, struct journal *j, const char *key, const char *value)
{
    struct directory_change c = {.key = key, .value = value, .bytes = strlen(value)};
    struct directory_transaction t = {NULL, 0, &c, 1};
    const char *why;
    assert_int_equal(book_transact(b, &t, &why), BOOK_DONE);
    fine(journal_change(j, &t));
}

/* Opens the file into a book. */
static int open_book(struct book *b, struct journal *j)
{
    book_begin(b, 0, sizeof(struct book_lease));
    int err = journal_open(j, path, b, 1, true, false);
    if (err)
        book_end(b, NULL, NULL);
    return err;
}

static void set_file(const char *bytes, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
    close(fd);
}

static void torn(void **state)
{
    (void)state;
    struct book b, c;
    struct journal j, k;
    static char bytes[8192];
    fine(open_book(&b, &j));
    assert_int_equal(open_book(&c, &k), WEFT_EBUSY);
    put_one(&b, &j, "a", "first");
    put_one(&b, &j, "b", "second");
    size_t before = j.bytes;
    put_one(&b, &j, "a", "a last one that is longer than what comes after it");
    size_t all = j.bytes;
    int fd = open(path, O_RDONLY);
    assert_int_equal(read(fd, bytes, sizeof bytes), all);
    close(fd);
    journal_close(&j);
    for (size_t n = before; n <= all; n++) {
        set_file(bytes, n);
        fine(open_book(&c, &k));
        assert_int_equal(c.revision, b.revision - (n < all));
        assert_int_equal(c.nkeys, 2);
        put_one(&c, &k, "c", "x"); /* it goes on from there */
        journal_close(&k);
        book_end(&c, NULL, NULL);
        fine(open_book(&c, &k));
        assert_int_equal(c.nkeys, 3);
        journal_close(&k);
        book_end(&c, NULL, NULL);
    }
    for (size_t at = 0; at < all; at++) { /* no bit of it can change unseen */
        bytes[at] ^= 16;
        set_file(bytes, all);
        int err = open_book(&c, &k);
        if (!err) {
            assert_true(at >= before && c.revision == b.revision - 1);
            journal_close(&k);
            book_end(&c, NULL, NULL);
        } else {
            assert_int_equal(err, WEFT_EIO);
            assert_non_null(strstr(weft_errmsg(), path));
        }
        bytes[at] ^= 16;
    }
    book_end(&b, NULL, NULL);
}

/* A write that fails leaves the file as it was. */
static void full_disk(void **state)
{
    (void)state;
    struct book b;
    struct journal j;
    struct rlimit limit, less;
    static char value[4000];
    memset(value, 'v', sizeof value - 1);
    fine(open_book(&b, &j));
    put_one(&b, &j, "a", "first");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, SIG_IGN);
    less = (struct rlimit){j.bytes + 1000, limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &less), 0);
    struct directory_change c = {.key = "b", .value = value, .bytes = sizeof value - 1};
    int err = journal_change(&j, &(struct directory_transaction){NULL, 0, &c, 1});
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(err, WEFT_EIO);
    put_one(&b, &j, "c", "after");
    journal_close(&j);
    read_back(&b);
    book_end(&b, NULL, NULL);
}

/* ---- servers ---- */

struct place {
    struct address at;
    char url[64];
    struct bus_server *server;
    pid_t pid;
};

static int serve(struct place *p)
{
    int fd, err;
    while ((err = address_listen(&p->at, &fd)) > 0)
        clock_pause(5 * MS);
    snprintf(p->url, sizeof p->url, "tcp:127.0.0.1:%d", p->at.port);
    return err ? err
               : bus_server_start(fd, &(struct bus_server_opts){.publish_token = PUBLISH_TOKEN, .keep = path},
                                  &p->server);
}

/* A server that ends and comes back: keys, leases whose owners come back, and watches go on. */
static void kept(void **state)
{
    (void)state;
    struct place p = {.at = {.host = "127.0.0.1"}};
    struct directory *d, *e;
    struct directory_watch *w;
    struct directory_items got;
    int64_t held, left;
    if (!sodium_find()) {
        print_message("libsodium is not installed\n");
        skip();
    }
    fine(serve(&p));
    fine(directory_open(p.url, &(struct directory_opts){PUBLISH_TOKEN, LONG}, &d));
    fine(directory_open(p.url, &(struct directory_opts){PUBLISH_TOKEN, LONG}, &e));
    fine(directory_grant(d, 30 * SECOND, LONG, &held));
    fine(directory_grant(e, 5 * SECOND, LONG, &left)); /* more than it takes to put it, on a busy machine, too */
    int64_t first = directories_put(d, "plain", "1", 0);
    fine(directory_watch(d, "", first, &w));
    directories_put(d, "held", "1", held);
    directories_put(e, "left", "1", left);
    bus_server_stop(p.server);
    directory_close(e);
    fine(serve(&p));
    fine(directory_renew(d, held, LONG));
    assert_true(directories_has(d, "plain", "1") && directories_has(d, "held", "1"));
    directories_put(d, "plain", "2", 0);
    size_t n = 0;
    int64_t last = first;
    while (n < 4) { /* held, left, plain; and left goes, when its time is over */
        fine(directory_next(w, LONG, &got));
        assert_false(got.lost);
        for (size_t i = 0; i < got.n; i++, n++) {
            assert_true(got.items[i].revision > last);
            last = got.items[i].revision;
        }
        directory_items_free(&got);
    }
    assert_true(directories_has(d, "left", NULL) && directories_has(d, "held", "1"));
    directory_unwatch(w);
    directory_close(d);
    bus_server_stop(p.server);
}

static void spawn(struct place *p)
{
    int told[2];
    char go;
    assert_int_equal(pipe(told), 0);
    p->pid = process_fork(120);
    if (!p->pid) {
        if (serve(p) || write(told[1], "g", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(told[1]);
    assert_int_equal(read(told[0], &go, 1), 1);
    close(told[0]);
}

/* What a server that is killed has said to be done is done. */
static void killed(void **state)
{
    (void)state;
    struct place p = {.at = {.host = "127.0.0.1"}};
    struct directory *d;
    int fd, done = 0;
    directories_forks();
    if (!sodium_find()) {
        print_message("libsodium is not installed\n");
        skip();
    }
    fine(address_listen(&p.at, &fd)); /* a port that the system chooses */
    close(fd);
    snprintf(p.url, sizeof p.url, "tcp:127.0.0.1:%d", p.at.port);
    for (int64_t i = 1; suite_seed(&i, 1, test_share(6, 100)); i++) {
        struct random r = random_of(22, i);
        int status;
        spawn(&p);
        fine(directory_open(p.url, &(struct directory_opts){PUBLISH_TOKEN, LONG}, &d));
        struct directory_items got;
        fine(directory_get(d, "count", LONG, &got));
        int now = got.n ? atoi((const char *)got.items[0].value) : 0;
        assert_true(now == done || now == done + 1); /* the last one may have been done without an answer */
        directory_items_free(&got);
        done = now;
        int64_t at = clock_now() + random_in(&r, 0, 30) * MS;
        bool dead = false;
        for (;;) {
            struct directory_outcome o;
            char text[16];
            snprintf(text, sizeof text, "%d", done + 1);
            if (!dead && clock_now() >= at) {
                kill(p.pid, SIGKILL);
                dead = true;
            }
            if (directory_put_if(d, "count", -1, text, strlen(text) + 1, 0, dead ? 0 : LONG, &o))
                break;
            done++;
        }
        assert_true(dead);
        assert_int_equal(waitpid(p.pid, &status, 0), p.pid);
        directory_close(d);
    }
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {TEST(histories), TEST(torn), TEST(full_disk), TEST(kept), TEST(killed)};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
