/* The laws of a directory, which every kind of directory keeps: revisions, compares, transactions, leases, watches,
 * owners that are killed and owners that are stopped. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "directories.h"
#include "support/processes.h"
#include "support/share.h"
#include "weft.h"

static bool same(const struct directory_item *i, const char *key, const char *value)
{
    return !strcmp(i->key, key) && i->bytes == strlen(value) && !memcmp(i->value, value, i->bytes);
}

/* ---- keys ---- */

static void compares(void **state)
{
    (void)state;
    struct directory *d = directories_open("compares");
    struct directory_outcome o, p;
    struct directory_items got;
    fine(directory_put_if(d, "a/x", 0, "one", 3, 0, LONG, &o));
    assert_true(o.done);
    fine(directory_put_if(d, "a/x", 0, "two", 3, 0, LONG, &p)); /* it is there */
    assert_false(p.done);
    assert_true(p.revision >= o.revision);
    fine(directory_put_if(d, "a/x", o.revision + 1, "two", 3, 0, LONG, &p));
    assert_false(p.done);
    assert_true(directories_has(d, "a/x", "one"));
    fine(directory_put_if(d, "a/x", o.revision, "three", 5, 0, LONG, &p));
    assert_true(p.done && p.revision > o.revision);
    directories_put(d, "a/y", "", 0);
    directories_put(d, "b", "else", 0);
    fine(directory_get(d, "a/", LONG, &got));
    assert_int_equal(got.n, 2);
    assert_true(same(&got.items[0], "a/x", "three") && same(&got.items[1], "a/y", ""));
    assert_true(got.items[0].made == o.revision && got.items[0].revision == p.revision);
    assert_true(got.items[1].made == got.items[1].revision && got.revision > got.items[1].revision);
    directory_items_free(&got);
    fine(directory_delete(d, "a/x", o.revision, LONG, &o)); /* it has changed since */
    assert_false(o.done);
    fine(directory_delete(d, "a/x", p.revision, LONG, &o));
    assert_true(o.done && directories_has(d, "a/x", NULL));
    fine(directory_delete(d, "a/x", -1, LONG, &p)); /* nothing changes */
    assert_true(p.done && p.revision == o.revision);
    fine(directory_get(d, "", LONG, &got));
    assert_int_equal(got.n, 2);
    directory_items_free(&got);
    directory_close(d);
}

/* Spaces do not see each other. */
static void spaces(void **state)
{
    (void)state;
    struct directory *a = directories_open("space"), *b = directories_open("space2");
    directories_put(a, "k", "of a", 0);
    assert_true(directories_has(b, "k", NULL));
    directories_put(b, "k", "of b", 0);
    assert_true(directories_has(a, "k", "of a"));
    directory_close(a);
    directory_close(b);
}

static void transactions(void **state)
{
    (void)state;
    struct directory *d = directories_open("transactions");
    int64_t x = directories_put(d, "x", "0", 0), y = directories_put(d, "y", "0", 0);
    struct directory_compare compare[] = {{"x", x}, {"y", y}, {"z", 0}};
    struct directory_change change[] = {
        {.key = "x", .value = "1", .bytes = 1}, {.key = "y", .erase = true}, {.key = "z", .value = "new", .bytes = 3}};
    struct directory_transaction t = {compare, 3, change, 3};
    struct directory_outcome o;
    struct directory_items got;
    compare[1].revision = x; /* one of three is wrong */
    fine(directory_transact(d, &t, LONG, &o));
    assert_false(o.done);
    assert_true(directories_has(d, "x", "0") && directories_has(d, "y", "0") && directories_has(d, "z", NULL));
    compare[1].revision = y;
    fine(directory_transact(d, &t, LONG, &o));
    assert_true(o.done);
    fine(directory_get(d, "", LONG, &got));
    assert_int_equal(got.n, 2);
    assert_true(same(&got.items[0], "x", "1") && same(&got.items[1], "z", "new"));
    assert_true(got.items[0].revision == o.revision && got.items[1].revision == o.revision);
    directory_items_free(&got);
    directory_close(d);
}

/* What is too large or not a key is refused before it is sent; what is as large as allowed goes through. */
static void limits(void **state)
{
    (void)state;
    struct directory *d = directories_open("limits");
    struct directory_outcome o;
    struct directory_items got;
    static char value[DIRECTORY_VALUE_MAX + 1], key[DIRECTORY_KEY_MAX + 2];
    memset(value, 'v', sizeof value);
    memset(key, 'k', directories_key_max("limits") + 1);
    assert_int_equal(directory_put_if(d, key, -1, "", 0, 0, LONG, &o), WEFT_EINVAL);
    assert_non_null(strstr(weft_errmsg(), directories_url()));
    key[directories_key_max("limits")] = 0;
    assert_int_equal(directory_put_if(d, key, -1, value, DIRECTORY_VALUE_MAX + 1, 0, LONG, &o), WEFT_EINVAL);
    assert_int_equal(directory_put_if(d, "a key", -1, "", 0, 0, LONG, &o), WEFT_EINVAL);
    assert_int_equal(directory_put_if(d, "", -1, "", 0, 0, LONG, &o), WEFT_EINVAL);
    assert_int_equal(directory_put_if(d, "k", -1, "", 0, 0, -1, &o), WEFT_EINVAL);
    struct directory_change twice[] = {{.key = "a"}, {.key = "b"}, {.key = "a"}};
    assert_int_equal(directory_transact(d, &(struct directory_transaction){NULL, 0, twice, 3}, LONG, &o), WEFT_EINVAL);
    struct directory_change large[] = {{.key = "a", .value = value, .bytes = 60000},
                                       {.key = "b", .value = value, .bytes = 60000}};
    assert_int_equal(directory_transact(d, &(struct directory_transaction){NULL, 0, large, 2}, LONG, &o), WEFT_EINVAL);
    int64_t lease;
    assert_int_equal(directory_grant(d, 0, LONG, &lease), WEFT_EINVAL);
    fine(directory_get(d, "", LONG, &got));
    assert_int_equal(got.n, 0);
    fine(directory_put_if(d, key, -1, value, DIRECTORY_VALUE_MAX, 0, LONG, &o));
    fine(directory_get(d, "", LONG, &got));
    assert_true(got.n == 1 && got.items[0].bytes == DIRECTORY_VALUE_MAX && !strcmp(got.items[0].key, key) &&
                !memcmp(got.items[0].value, value, DIRECTORY_VALUE_MAX));
    directory_items_free(&got);
    directory_close(d);
}

/* Many large values are read as they are at one revision, though they do not fit into one message. */
struct large {
    struct directory *d;
    _Atomic bool over;
};

static void *change_all(void *arg)
{
    struct large *l = arg;
    static char value[5000];
    char keys[16][8];
    struct directory_change change[16];
    for (int round = 0; !l->over; round++) {
        struct directory_outcome o;
        memset(value, 'a' + round % 26, sizeof value);
        for (int i = 0; i < 16; i++) {
            snprintf(keys[i], sizeof keys[i], "k%02d", i);
            change[i] = (struct directory_change){.key = keys[i], .value = value, .bytes = sizeof value};
        }
        if (directory_transact(l->d, &(struct directory_transaction){NULL, 0, change, 16}, LONG, &o))
            return "failed";
    }
    return NULL;
}

static void one_revision(void **state)
{
    (void)state;
    struct directory *d = directories_open("large");
    struct large l = {.d = directories_open("large")};
    pthread_t thread;
    void *failed;
    char key[16];
    static char filler[20000];
    for (int i = 0; i < 16; i++) { /* between the keys that change, so that they are in different messages */
        struct directory_outcome o;
        snprintf(key, sizeof key, "k%02d+", i);
        fine(directory_put_if(d, key, -1, filler, sizeof filler, 0, LONG, &o));
    }
    assert_int_equal(pthread_create(&thread, NULL, change_all, &l), 0);
    for (int i = 0; i < 60; i++) {
        struct directory_items got;
        fine(directory_get(d, "", LONG, &got));
        const struct directory_item *first = NULL;
        size_t n = 0;
        for (size_t k = 0; k < got.n; k++) {
            const struct directory_item *item = &got.items[k];
            if (item->key[3])
                continue;
            n++;
            first = first ? first : item;
            assert_true(item->revision == first->revision && item->value[0] == first->value[0] &&
                        item->revision <= got.revision);
        }
        assert_true(n == 0 || n == 16);
        directory_items_free(&got);
    }
    l.over = true;
    pthread_join(thread, &failed);
    assert_null(failed);
    directory_close(l.d);
    directory_close(d);
}

/* ---- many at once ---- */

enum { THREADS = 4 };

static void *add_up(void *arg)
{
    int rounds = *(int *)arg;
    struct directory *d = directories_open("sum");
    for (int done = 0; done < rounds;) {
        struct directory_items got;
        struct directory_outcome o;
        long long sum = 0;
        char text[32];
        if (directory_get(d, "sum", LONG, &got))
            return "get failed";
        if (got.n)
            sscanf((const char *)got.items[0].value, "%lld", &sum);
        snprintf(text, sizeof text, "%lld", sum + 1);
        if (directory_put_if(d, "sum", got.n ? got.items[0].revision : 0, text, strlen(text) + 1, 0, LONG, &o))
            return "put failed";
        directory_items_free(&got);
        done += o.done;
    }
    directory_close(d);
    return NULL;
}

/* Nothing is lost among clients that change one key, and a watch sees every value once, in order. */
static void sums(void **state)
{
    (void)state;
    struct directory *d = directories_open("sum");
    struct directory_watch *w;
    struct directory_items got;
    pthread_t threads[THREADS];
    int rounds = (int)test_share(40, 1000), seen = 0;
    fine(directory_get(d, "", LONG, &got));
    fine(directory_watch(d, "", got.revision, &w));
    directory_items_free(&got);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, add_up, &rounds), 0);
    for (int64_t last = 0; seen < THREADS * rounds;) {
        fine(directory_next(w, LONG, &got));
        assert_false(got.lost);
        for (size_t i = 0; i < got.n; i++) {
            assert_int_equal(atoi((const char *)got.items[i].value), ++seen);
            assert_true(got.items[i].revision > last);
            last = got.items[i].revision;
        }
        directory_items_free(&got);
    }
    for (int i = 0; i < THREADS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_ptr_equal(failed, NULL);
    }
    directory_unwatch(w);
    directory_close(d);
}

/* ---- watches ---- */

static void watches(void **state)
{
    (void)state;
    struct directory *d = directories_open("watches"), *e = directories_open("watches");
    struct directory_watch *w;
    struct directory_items got;
    struct directory_outcome o;
    int64_t before = directories_put(d, "other", "", 0);
    fine(directory_watch(d, "v/", before, &w));
    int64_t began = clock_now();
    assert_int_equal(directory_next(w, 50 * MS, &got), WEFT_ETIMEOUT);
    assert_true(clock_now() - began >= 50 * MS);
    directories_put(e, "other", "not told", 0);
    struct directory_change change[] = {{.key = "v/a", .value = "1", .bytes = 1},
                                        {.key = "u", .value = "not told", .bytes = 8},
                                        {.key = "v/b", .value = "2", .bytes = 1}};
    fine(directory_transact(e, &(struct directory_transaction){NULL, 0, change, 3}, LONG, &o));
    fine(directory_next(w, LONG, &got));
    assert_true(got.n == 2 && !got.lost && got.revision >= o.revision);
    for (int i = 0; i < 2; i++)
        assert_true(got.items[i].revision == o.revision && got.items[i].made == o.revision && !got.items[i].deleted);
    assert_true(same(&got.items[0], "v/a", "1") && same(&got.items[1], "v/b", "2"));
    directory_items_free(&got);
    fine(directory_delete(e, "v/a", -1, LONG, &o));
    fine(directory_next(w, LONG, &got));
    assert_true(got.n == 1 && got.items[0].deleted && same(&got.items[0], "v/a", "") &&
                got.items[0].revision == o.revision);
    directory_items_free(&got);
    directory_unwatch(w);
    fine(directory_watch(d, "v/", before, &w)); /* the same once more, from the beginning */
    size_t n = 0;
    while (n < 3) {
        fine(directory_next(w, LONG, &got));
        n += got.n;
        directory_items_free(&got);
    }
    assert_int_equal(n, 3);
    assert_int_equal(directory_next(w, 0, &got), WEFT_ETIMEOUT);
    directory_unwatch(w);
    directory_close(e);
    directory_close(d);
}

/* A watch from a revision that is forgotten is told, and gets all keys. A watch that is told of nothing does not need
 * what is forgotten meanwhile. */
static void forgotten(void **state)
{
    (void)state;
    struct directory *d = directories_open("forgotten");
    struct directory_watch *w, *quiet;
    struct directory_items got;
    size_t most = directories_log();
    int64_t before = directories_put(d, "v", "first", 0);
    directories_put(d, "v", "second", 0);
    fine(directory_watch(d, "v", before, &w));
    fine(directory_watch(d, "v", before, &quiet));
    fine(directory_next(quiet, LONG, &got));
    assert_true(got.n == 1 && !got.lost);
    directory_items_free(&got);
    for (size_t i = 0; i < most;) {
        struct directory_change change[DIRECTORY_CHANGES_MAX];
        char keys[DIRECTORY_CHANGES_MAX][16];
        struct directory_outcome o;
        for (size_t k = 0; k < DIRECTORY_CHANGES_MAX; k++, i++) {
            snprintf(keys[k], sizeof keys[k], "x%zu", k);
            change[k] = (struct directory_change){.key = keys[k], .value = &i, .bytes = sizeof i};
        }
        fine(directory_transact(d, &(struct directory_transaction){NULL, 0, change, DIRECTORY_CHANGES_MAX}, LONG, &o));
    }
    if (!most) {
        for (int i = 0; i < 5; i++)
            before = directories_put(d, "x", "y", 0);
        assert_true(directories_forget(before));
    }
    fine(directory_next(w, LONG, &got));
    assert_true(got.lost && got.n == 1 && same(&got.items[0], "v", "second"));
    directory_items_free(&got);
    int64_t last = directories_put(d, "v", "third", 0);
    fine(directory_next(w, LONG, &got));
    assert_true(!got.lost && got.n == 1 && got.items[0].revision == last);
    directory_items_free(&got);
    fine(directory_next(quiet, LONG, &got));
    assert_true(got.n == 1 && same(&got.items[0], "v", "third"));
    directory_items_free(&got);
    directory_unwatch(quiet);
    directory_unwatch(w);
    directory_close(d);
}

/* ---- leases ---- */

static void leases(void **state)
{
    (void)state;
    struct directory *d = directories_open("leases"), *e = directories_open("leases");
    struct directory_items got;
    struct directory_outcome o;
    int64_t ttl = directories_ttl(300 * MS), brief, held, gone;
    fine(directory_grant(d, ttl, LONG, &brief));
    fine(directory_grant(d, directories_ttl(3600 * SECOND), LONG, &held));
    fine(directory_grant(d, directories_ttl(3600 * SECOND), LONG, &gone));
    directories_put(d, "brief/1", "", brief);
    directories_put(d, "brief/2", "", brief);
    directories_put(d, "brief/3", "", brief);
    directories_put(d, "brief/3", "kept", 0); /* leaves the lease */
    directories_put(d, "held", "", held);
    directories_put(d, "gone", "", gone);
    fine(directory_get(e, "held", LONG, &got));
    assert_true(got.n == 1 && got.items[0].lease == held);
    struct directory_watch *w;
    fine(directory_watch(e, "", got.revision, &w));
    directory_items_free(&got);
    fine(directory_revoke(d, gone, LONG));
    assert_true(directories_has(e, "gone", NULL));
    for (int told = 0; told < 3;) {
        fine(directory_next(w, LONG, &got)); /* "gone"; then both keys of "brief" */
        for (size_t i = 0; i < got.n; i++, told++)
            assert_true(got.items[i].deleted &&
                        (told ? !strncmp(got.items[i].key, "brief/", 6) : !strcmp(got.items[i].key, "gone")));
        directory_items_free(&got);
    }
    directory_unwatch(w);
    assert_true(directories_has(e, "brief/3", "kept") && directories_has(e, "held", ""));
    assert_int_equal(directory_renew(d, brief, LONG), WEFT_EPEER);
    assert_non_null(strstr(weft_errmsg(), "has ended"));
    assert_int_equal(directory_put_if(d, "brief/4", -1, "", 0, brief, LONG, &o), WEFT_EPEER);
    assert_int_equal(directory_revoke(d, brief, LONG), WEFT_EPEER);
    assert_true(directories_has(e, "brief/4", NULL));
    directory_close(d); /* ends what is left */
    directories_await(e, "held", NULL);
    directory_close(e);
}

/* A lease that is renewed lasts. */
static void renewals(void **state)
{
    (void)state;
    struct directory *d = directories_open("renewals");
    int64_t ttl = directories_ttl(SECOND), lease, until = clock_now() + 2 * ttl;
    fine(directory_grant(d, ttl, LONG, &lease));
    directories_put(d, "k", "here", lease);
    while (clock_now() < until) {
        fine(directory_renew(d, lease, LONG));
        assert_true(directories_has(d, "k", "here"));
        clock_pause(ttl / 20);
    }
    directory_close(d);
}

/* The owner of a lease in a process of its own. It writes a line for each thing that it has done. */
static pid_t owner(const char *space, int64_t ttl, int *out, int *in)
{
    int told[2], asked[2];
    assert_int_equal(pipe(told), 0);
    assert_int_equal(pipe(asked), 0);
    pid_t pid = process_fork(120);
    if (pid) {
        close(told[1]);
        close(asked[0]);
        *out = told[0];
        *in = asked[1];
        return pid;
    }
    struct directory *d = directories_open(space);
    struct directory_outcome o;
    int64_t lease;
    char go;
    if (directory_grant(d, ttl, LONG, &lease) || directory_put_if(d, "mine", -1, "here", 4, lease, LONG, &o))
        _exit(1);
    if (write(told[1], "1", 1) != 1 || read(asked[0], &go, 1) != 1)
        _exit(2);
    /* The lease has ended while this process was stopped. */
    bool right = directory_renew(d, lease, LONG) == WEFT_EPEER &&
                 directory_put_if(d, "mine", -1, "still", 5, lease, LONG, &o) == WEFT_EPEER;
    right = right && !directory_put_if(d, "mine", 0, "again", 5, 0, LONG, &o) && o.done;
    (void)!write(told[1], right ? "2" : "x", 1);
    _exit(0);
}

/* The keys of a process that is killed go with it: at once where the directory can see its end. */
static void killed(void **state)
{
    (void)state;
    directories_forks();
    struct directory *d = directories_open("killed");
    int64_t ttl = directories_sees_death() ? 3600 * SECOND : directories_ttl(SECOND);
    for (int i = 0; i < test_share(3, 30); i++) {
        int out, in, status;
        char got;
        pid_t pid = owner("killed", ttl, &out, &in);
        assert_int_equal(read(out, &got, 1), 1);
        assert_true(directories_has(d, "mine", "here"));
        struct directory_items keys, told;
        struct directory_watch *w;
        fine(directory_get(d, "mine", LONG, &keys));
        fine(directory_watch(d, "mine", keys.revision, &w));
        assert_int_equal(directory_next(w, 0, &told), WEFT_ETIMEOUT);
        kill(pid, SIGKILL);
        fine(directory_next(w, LONG, &told)); /* nobody else uses the directory meanwhile */
        assert_true(told.n == 1 && told.items[0].deleted && told.items[0].revision > keys.revision);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(directories_has(d, "mine", NULL));
        directory_items_free(&told);
        directory_items_free(&keys);
        directory_unwatch(w);
        close(out);
        close(in);
    }
    directory_close(d);
}

/* A process that is stopped for longer than its lease loses it, and learns so when it goes on. */
static void stopped(void **state)
{
    (void)state;
    directories_forks();
    struct directory *d = directories_open("stopped");
    int out, in, status;
    char got = 0;
    pid_t pid = owner("stopped", directories_ttl(SECOND), &out, &in);
    assert_int_equal(read(out, &got, 1), 1);
    kill(pid, SIGSTOP);
    directories_await(d, "mine", NULL);
    kill(pid, SIGCONT);
    assert_int_equal(write(in, "g", 1), 1);
    assert_int_equal(read(out, &got, 1), 1);
    assert_int_equal(got, '2');
    assert_true(directories_has(d, "mine", "again"));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    close(out);
    close(in);
    directory_close(d);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compares), cmocka_unit_test(spaces),       cmocka_unit_test(transactions),
        cmocka_unit_test(limits),   cmocka_unit_test(one_revision), cmocka_unit_test(sums),
        cmocka_unit_test(watches),  cmocka_unit_test(forgotten),    cmocka_unit_test(leases),
        cmocka_unit_test(renewals), cmocka_unit_test(killed),       cmocka_unit_test(stopped),
    };
    return SUITE_MAIN(argc, argv, SUITE_AT(&directories_places, tests));
}
