/* Metrics of a server: counts against what clients have done, the text's form, the file, and HTTP clients that are
 * wrong, slow or many. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/forks.h"
#include "bus/bus_metrics.h"
#include "directories.h"
#include "rendezvous/address.h"
#include "rendezvous/sodium.h"
#include "weft.h"

static struct bus_server *server;
static char url[ADDRESS_TEXT + 8];

static int begin(void **state)
{
    (void)state;
    struct address at;
    int listener;
    char text[ADDRESS_TEXT];
    if (!sodium_find())
        return 0;
    if (address_parse("127.0.0.1:0", &at) || address_listen(&at, &listener))
        return 1;
    address_format(&at, text);
    snprintf(url, sizeof url, "tcp:%s", text);
    struct bus_server_opts opts = {.publish_token = PUBLISH_TOKEN, .read_token = READ_TOKEN};
    return bus_server_start(forks_own(listener), &opts, &server);
}

static int end(void **state)
{
    (void)state;
    bus_server_stop(server);
    server = NULL;
    return 0;
}

static void needs_sodium(void)
{
    if (!server) {
        printf("skip: libsodium is not installed\n");
        skip();
    }
}

static struct directory *client(const char *token)
{
    struct directory *d = NULL;
    fine(directory_open(url, &(struct directory_opts){.token = token, .timeout_ns = LONG}, &d));
    return d;
}

static struct bus_server_counts counts(void)
{
    struct bus_server_counts c;
    bus_server_counts(server, &c);
    return c;
}

/* The connection of a client that was closed ends a moment later. */
static void await_connections(uint64_t n)
{
    for (int64_t until = clock_now() + LONG; counts().connections != n;)
        assert_true(clock_now() < until);
}

static uint64_t all_of(const struct bus_server_times *t)
{
    uint64_t n = 0;
    for (int i = 0; i < BUS_SERVER_BUCKETS; i++)
        n += t->buckets[i];
    return n;
}

static void counted(void **state)
{
    (void)state;
    needs_sodium();
    struct directory *a = client(PUBLISH_TOKEN), *b = client(READ_TOKEN);
    struct directory_outcome o;
    struct directory_watch *w;
    struct directory_items got;
    int64_t lease, theirs;
    fine(directory_grant(a, LONG, LONG, &lease));
    fine(directory_grant(b, LONG, LONG, &theirs));
    directories_put(a, "sets/x", "12345", lease);
    int64_t last = directories_put(a, "sets/yy", "", 0);
    fine(directory_put_if(a, "sets/yy", 0, "z", 1, 0, LONG, &o)); /* it is there already */
    assert_false(o.done);
    assert_int_not_equal(directory_put_if(b, "sets/yy", -1, "z", 1, 0, LONG, &o), 0); /* a reader must not */
    struct bus_server_counts c = counts();
    assert_true(c.connections >= 2);
    assert_int_equal(c.keys, 2);
    assert_true(c.key_bytes >= strlen("sets/x12345sets/yy"));
    assert_int_equal(c.leases, 2);
    assert_int_equal(c.granted, 2);
    assert_int_equal(c.changes, 2);
    assert_int_equal(c.conflicts, 1);
    assert_int_equal(c.refusals, 1);
    assert_int_equal(c.lapsed, 0);
    assert_int_equal(c.watches, 0);
    assert_int_equal(c.deliveries.n, 0);
    assert_int_equal(c.commits.n, 2);
    assert_true(all_of(&c.commits) <= 2 && c.commits.ns > 0);
    assert_true(c.requests >= 6 && c.sent > 100 && c.received > 100 && c.cpu_ns > 0 && !c.broken);
    fine(directory_watch(b, "sets/", last, &w)); /* a watch without a change is not timed */
    assert_int_equal(directory_next(w, 50 * MS, &got), WEFT_ETIMEOUT);
    directory_unwatch(w);
    assert_int_equal(counts().deliveries.n, 0);
    fine(directory_revoke(b, theirs, LONG));
    assert_int_equal(counts().leases, 1);
    assert_int_equal(counts().lapsed, 0); /* it was revoked */
    directory_close(a);                   /* and with it its lease, and its key */
    directory_close(b);
    await_connections(0);
    c = counts();
    assert_int_equal(c.leases, 0);
    assert_int_equal(c.keys, 1);
    assert_int_equal(c.watches, 0);
    assert_true(c.lapsed <= 1); /* a client that closes may revoke it first */
}

static void *put_later(void *arg)
{
    struct directory *d = client(PUBLISH_TOKEN);
    (void)arg;
    for (int64_t until = clock_now() + LONG; !counts().watches;) /* until the other one waits */
        assert_true(clock_now() < until);
    directories_put(d, "told", "1", 0);
    directory_close(d);
    return NULL;
}

static void delivered(void **state)
{
    (void)state;
    needs_sodium();
    struct directory *d = client(READ_TOKEN);
    struct directory_watch *w;
    struct directory_items got;
    pthread_t thread;
    fine(directory_get(d, "", LONG, &got));
    fine(directory_watch(d, "told", got.revision, &w));
    directory_items_free(&got);
    assert_int_equal(pthread_create(&thread, NULL, put_later, NULL), 0);
    fine(directory_next(w, LONG, &got));
    assert_int_equal(got.n, 1);
    directory_items_free(&got);
    pthread_join(thread, NULL);
    struct bus_server_counts c = counts();
    assert_int_equal(c.deliveries.n, 1);
    assert_true(c.deliveries.ns >= 0 && all_of(&c.deliveries) <= 1);
    directory_unwatch(w);
    directory_close(d);
}

/* ---- the text ---- */

/* Every line is a sample, or one of TYPE, HELP, UNIT; a family's lines stand together; EOF is the last line. */
static void check_text(const char *text)
{
    char family[80] = "", kind[16] = "", *copy = strdup(text), *save = NULL;
    assert_non_null(copy);
    size_t n = strlen(text);
    assert_true(n > 6 && !strcmp(text + n - 6, "# EOF\n"));
    bool over = false;
    for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        assert_false(over);
        if (!strcmp(line, "# EOF")) {
            over = true;
        } else if (!strncmp(line, "# TYPE ", 7)) {
            assert_int_equal(sscanf(line, "# TYPE %79s %15s", family, kind), 2);
        } else if (line[0] == '#') {
            assert_true(!strncmp(line, "# HELP ", 7) || !strncmp(line, "# UNIT ", 7));
            assert_false(strncmp(line + 7, family, strlen(family)));
        } else {
            char name[120], *stop;
            double value;
            assert_int_equal(sscanf(line, "%119s %lf", name, &value), 2);
            assert_false(strncmp(name, family, strlen(family)));
            assert_true(value >= 0);
            if ((stop = strchr(name, '{')))
                *stop = 0;
            const char *suffix = name + strlen(family);
            if (!strcmp(kind, "counter"))
                assert_string_equal(suffix, "_total");
            else if (!strcmp(kind, "gauge"))
                assert_string_equal(suffix, "");
            else
                assert_true(!strcmp(suffix, "_bucket") || !strcmp(suffix, "_sum") || !strcmp(suffix, "_count"));
        }
    }
    free(copy);
}

static void text(void **state)
{
    (void)state;
    struct bus_server_counts c = {.keys = 7, .changes = 3, .commits = {.buckets = {1, 0, 2}, .n = 4, .ns = 5000000000}};
    char out[BUS_METRICS_TEXT], few[100];
    size_t n = bus_metrics_text(&c, out, sizeof out);
    assert_int_equal(n, strlen(out));
    check_text(out);
    assert_non_null(strstr(out, "\nweft_bus_keys 7\n"));
    assert_non_null(strstr(out, "\nweft_bus_changes_total 3\n"));
    assert_non_null(strstr(out, "weft_bus_commit_seconds_bucket{le=\"0.0003\"} 1\n"));
    assert_non_null(strstr(out, "weft_bus_commit_seconds_bucket{le=\"0.001\"} 3\n"));
    assert_non_null(strstr(out, "weft_bus_commit_seconds_bucket{le=\"+Inf\"} 4\n"));
    assert_non_null(strstr(out, "weft_bus_commit_seconds_sum 5.000000000\n"));
    memset(&c, 0xff, sizeof c); /* the largest numbers fit, too */
    c.broken = true;
    assert_true(bus_metrics_text(&c, out, sizeof out) < sizeof out);
    assert_int_equal(bus_metrics_text(&c, few, sizeof few), strlen(out));
    assert_int_equal(strlen(few), sizeof few - 1);
    for (int i = 1; i < BUS_SERVER_BUCKETS; i++)
        assert_true(bus_server_bucket_ns(i) > bus_server_bucket_ns(i - 1));
}

static void file(void **state)
{
    (void)state;
    needs_sodium();
    char folder[] = "/tmp/weft-metrics-XXXXXX", path[64], read[BUS_METRICS_TEXT + 1];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/metrics", folder);
    for (int twice = 0; twice < 2; twice++) {
        fine(bus_metrics_write(server, path));
        FILE *f = fopen(path, "r");
        assert_non_null(f);
        size_t n = fread(read, 1, sizeof read - 1, f);
        read[n] = 0;
        fclose(f);
        check_text(read);
    }
    unlink(path);
    assert_int_equal(rmdir(folder), 0); /* no part of a file is left */
    assert_int_equal(bus_metrics_write(server, path), WEFT_EIO);
    assert_non_null(strstr(weft_errmsg(), path));
}

/* ---- HTTP ---- */

static int dial(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

static void http(int port, const char *request, const char *expected, bool whole)
{
    char reply[2 * BUS_METRICS_TEXT];
    size_t n = 0;
    ssize_t some;
    int fd = dial(port);
    assert_int_equal(send(fd, request, strlen(request), MSG_NOSIGNAL), strlen(request));
    while ((some = recv(fd, reply + n, sizeof reply - 1 - n, 0)) > 0)
        n += (size_t)some;
    reply[n] = 0;
    close(fd);
    if (strncmp(reply, expected, strlen(expected)))
        fail_msg("'%s' was answered with '%s'", request, reply);
    if (whole) {
        const char *body = strstr(reply, "\r\n\r\n");
        assert_non_null(body);
        check_text(body + 4);
    }
}

static void served(void **state)
{
    (void)state;
    needs_sodium();
    struct metrics_http *m, *other;
    int port = 0, none;
    fine(bus_metrics_start(server, 0, &port, &m));
    assert_true(port > 0);
    assert_int_equal(bus_metrics_start(server, port, &none, &other), WEFT_ETRANSPORT);
    http(port, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200 OK\r\n", true);
    http(port, "GET /metrics?a=b HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK\r\n", true);
    http(port, "GET /metricsx HTTP/1.1\r\n\r\n", "HTTP/1.1 404 Not Found\r\n", false);
    http(port, "GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 404 Not Found\r\n", false);
    http(port, "PUT /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405 Method Not Allowed\r\n", false);
    char *large = malloc(10001); /* a head that does not end is dropped */
    assert_non_null(large);
    memset(large, 'x', 10000);
    large[10000] = 0;
    int fd = dial(port);
    (void)!send(fd, large, 10000, MSG_NOSIGNAL);
    char byte;
    assert_true(recv(fd, &byte, 1, 0) <= 0);
    close(fd);
    free(large);
    int silent = dial(port); /* says nothing: the next one waits two seconds at most */
    http(port, "GET /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\n", true);
    close(silent);
    silent = dial(port);
    metrics_http_stop(m); /* also while a client is silent */
    close(silent);
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {TEST(counted), TEST(delivered), cmocka_unit_test(text), TEST(file),
                                       TEST(served)};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
