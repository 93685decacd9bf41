/* A directory on etcd when etcd is not at its best: it ends and comes back, wants a login, loses its leader. The laws
 * of directories are in directory_test.c. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bus/directory.h"
#include "directories.h"
#include "etcds.h"
#include "weft.h"

static struct etcds e;

static int end(void **state)
{
    (void)state;
    etcds_end(&e);
    return 0;
}

static void begin_with(int n)
{
    if (!etcds_begin(&e, n))
        skip();
}

static struct directory *open_with(const char *login)
{
    char url[260];
    struct directory *d;
    snprintf(url, sizeof url, "%s/run", e.url);
    fine(directory_open(url, &(struct directory_opts){.token = login, .timeout_ns = LONG}, &d));
    return d;
}

/* Puts until it is done: a put whose answer was lost may have been done. */
static void put_surely(struct directory *d, const char *key, const char *value)
{
    struct directory_outcome o;
    for (int64_t until = clock_now() + LONG;
         directory_put_if(d, key, -1, value, strlen(value), 0, 5 * SECOND, &o) && clock_now() < until;) {
    }
    assert_true(directories_has(d, key, value));
}

static _Atomic bool over;

/* The thread stays as long as etcd is needed: the system ends a process that wants to end with its parent when the
 * thread that made it ends. */
static void *run_again(void *arg)
{
    clock_pause(300 * MS);
    etcds_run(arg, 0);
    while (!over)
        clock_pause(5 * MS);
    return NULL;
}

static void comes_back(void **state)
{
    (void)state;
    struct directory_items got;
    struct directory_watch *w;
    struct directory_outcome o;
    pthread_t thread;
    begin_with(1);
    struct directory *d = open_with(NULL);
    int64_t first = directories_put(d, "a", "1", 0), began;
    fine(directory_watch(d, "", first, &w));
    assert_int_equal(directory_next(w, 300 * MS, &got), WEFT_ETIMEOUT);
    etcds_kill(&e, 0);
    began = clock_now();
    assert_int_equal(directory_get(d, "", 300 * MS, &got), WEFT_ETIMEOUT);
    assert_non_null(strstr(weft_errmsg(), e.url));
    assert_int_equal(directory_put_if(d, "a", -1, "2", 1, 0, 300 * MS, &o), WEFT_ETIMEOUT);
    assert_int_equal(directory_next(w, 300 * MS, &got), WEFT_ETIMEOUT);
    assert_true(clock_now() - began < 20 * SECOND);
    assert_int_equal(pthread_create(&thread, NULL, run_again, &e), 0);
    put_surely(d, "b", "2");
    fine(directory_next(w, LONG, &got));
    assert_true(!got.lost && got.n >= 1 && got.items[0].revision > first && !strcmp(got.items[0].key, "b"));
    directory_items_free(&got);
    directory_unwatch(w);
    directory_close(d);
    over = true;
    pthread_join(thread, NULL);
}

static void post(const char *path, const char *body)
{
    char reply[512];
    if (etcds_post(&e, 0, path, body, reply, sizeof reply) != 200)
        fail_msg("etcd refuses %s: %s", path, reply);
}

static void logins(void **state)
{
    (void)state;
    struct directory *d, *none;
    struct directory_items got;
    struct directory_watch *w;
    char url[260];
    begin_with(1);
    d = open_with(NULL);
    directories_put(d, "a", "1", 0);
    directory_close(d);
    post("auth/user/add", "{\"name\":\"root\",\"password\":\"a \\\"pass\\\"\"}");
    post("auth/role/add", "{\"name\":\"root\"}");
    post("auth/user/grant", "{\"user\":\"root\",\"role\":\"root\"}");
    post("auth/enable", "{}");
    snprintf(url, sizeof url, "%s/run", e.url);
    assert_int_equal(directory_open(url, &(struct directory_opts){.timeout_ns = LONG}, &none), WEFT_ETRANSPORT);
    assert_non_null(strstr(weft_errmsg(), "wants a login"));
    assert_int_equal(directory_open(url, &(struct directory_opts){.token = "root:wrong", .timeout_ns = LONG}, &none),
                     WEFT_ETRANSPORT);
    assert_non_null(strstr(weft_errmsg(), "refuses the login"));
    d = open_with("root:a \"pass\"");
    assert_true(directories_has(d, "a", "1"));
    fine(directory_watch(d, "", 1, &w));
    fine(directory_next(w, LONG, &got));
    assert_true(got.n == 1);
    directory_items_free(&got);
    directory_unwatch(w);
    directory_close(d);
}

/* Three servers, of which the one that leads is killed. */
static void leader_change(void **state)
{
    (void)state;
    struct directory_items got;
    struct directory_watch *w;
    char reply[1024], value[16];
    int leader = -1, seen = 0;
    begin_with(3);
    struct directory *d = open_with(NULL);
    int64_t first = directories_put(d, "start", "", 0), last;
    fine(directory_watch(d, "k", first, &w));
    for (int i = 0; i < 3 && leader < 0; i++) {
        unsigned long long id = 0, leads = 1;
        const char *a, *b;
        if (etcds_post(&e, i, "maintenance/status", "{}", reply, sizeof reply) == 200 &&
            (a = strstr(reply, "\"member_id\":\"")) && (b = strstr(reply, "\"leader\":\"")) &&
            sscanf(a, "\"member_id\":\"%llu", &id) == 1 && sscanf(b, "\"leader\":\"%llu", &leads) == 1 && id == leads)
            leader = i;
    }
    assert_true(leader >= 0);
    for (int i = 0; i < 10; i++) {
        if (i == 5)
            etcds_kill(&e, leader);
        snprintf(value, sizeof value, "%d", i);
        put_surely(d, "k", value);
    }
    for (last = first; seen < 9; directory_items_free(&got)) { /* each value, in order; one may have been put twice */
        fine(directory_next(w, LONG, &got));
        assert_false(got.lost);
        for (size_t i = 0; i < got.n; i++) {
            int now = atoi((const char *)got.items[i].value);
            assert_true(got.items[i].revision > last && (now == seen || now == seen + 1));
            last = got.items[i].revision;
            seen = now;
        }
    }
    directory_unwatch(w);
    directory_close(d);
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_teardown(name, end)
    const struct CMUnitTest tests[] = {TEST(comes_back), TEST(logins), TEST(leader_change)};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
