/* Frames between hosts that are changed or cut on the way, and ends that are made to use a weaker cipher or another
 * version: the connection ends, and nothing of it is used. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/address.h"
#include "rendezvous/dial.h"
#include "support/random.h"
#include "support/share.h"
#include "version/other_host.h"

/* ---- frames that are changed or cut on the way ---- */

struct proxy {
    int listener, target_port;
    _Atomic bool stops;
    _Atomic int changed;
    struct random random;
};

/* Forwards one connection. Somewhere it changes a bit of what the holder sends, or ends. */
static void forward(struct proxy *p, int client)
{
    struct address to = {.host = "127.0.0.1", .port = p->target_port};
    int server;
    int64_t at = 0, where = (int64_t)(random_next(&p->random) % 120000);
    bool cut = random_next(&p->random) % 2;
    if (address_connect(&to, clock_now() + LONG, &server)) {
        close(client);
        return;
    }
    struct pollfd of[2] = {{.fd = client, .events = POLLIN}, {.fd = server, .events = POLLIN}};
    for (bool goes = true; goes && !p->stops;) {
        unsigned char bytes[4096];
        if (poll(of, 2, 50) < 0)
            break;
        for (int i = 0; i < 2 && goes; i++) {
            if (!of[i].revents)
                continue;
            ssize_t n = recv(of[i].fd, bytes, sizeof bytes, 0);
            if (i && n > 0 && at + n > where && at <= where) {
                p->changed++;
                bytes[where - at] ^= 16;
                n = cut ? (ssize_t)(where - at) : n;
                goes = !cut;
            }
            at += i && n > 0 ? n : 0;
            for (ssize_t sent = 0, k; n > 0 && sent < n; sent += k) {
                poll(&(struct pollfd){.fd = of[!i].fd, .events = POLLOUT}, 1, 1000);
                k = send(of[!i].fd, bytes + sent, (size_t)(n - sent), MSG_NOSIGNAL);
                k = k < 0 ? 0 : k;
                if (p->stops)
                    break;
            }
            goes = goes && n > 0;
        }
    }
    close(server);
    close(client);
}

static void *run_proxy(void *arg)
{
    struct proxy *p = arg;
    while (!p->stops)
        if (poll(&(struct pollfd){.fd = p->listener, .events = POLLIN}, 1, 20) > 0) {
            int fd = accept4(p->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
            if (fd >= 0)
                forward(p, fd);
        }
    return NULL;
}

static void frames(void **state)
{
    (void)state;
    struct lab l;
    struct address a = {.host = "127.0.0.1"}, target;
    struct proxy p = {.random = random_of(77, 0)};
    char where[64];
    pthread_t thread;
    begin(&l, "frames", NULL);
    commit(&l, 1);
    fetch(&l);
    /* A third host, behind the proxy, whose relay has the versions, too. */
    weft_bus_opts o = WEFT_BUS_OPTS_INIT;
    weft_bus *third;
    weft_subscriber *s;
    weft_epoch_step v;
    o.token = PUBLISH_TOKEN;
    o.listen = "127.0.0.1:0";
    o.job = "third";
    fine(weft_bus_open(directories_url(), &o, &third));
    third->host[0] = 'y';
    fine(weft_subscribe(third, "frames", &(weft_bus_tensor){.name = "w", .layout = l.layout}, 1, NULL, &s));
    fine(weft_fetch(s, &latest, LONG, &v));
    fine(address_parse(part_server_address(third->server), &target));
    p.target_port = target.port;
    assert_int_equal(address_listen(&a, &p.listener), 0);
    snprintf(where, sizeof where, "127.0.0.1:%d", a.port);
    announce("frames", "proxy", "none", where, part_server_secret(third->server));
    assert_int_equal(pthread_create(&thread, NULL, run_proxy, &p), 0);
    int64_t step = 1, until = clock_now() + LONG;
    while (p.changed < (int)test_share(2, 500) && clock_now() < until) {
        commit(&l, ++step);
        fine(weft_fetch(s, &latest, LONG, &v));
        assert_int_equal(fetch(&l), step);
    }
    assert_true(p.changed > 0);
    print_message("%d connections changed or cut\n", (int)p.changed);
    p.stops = true;
    pthread_join(thread, NULL);
    close(p.listener);
    weft_subscriber_close(s);
    fine(weft_bus_close(third));
    end(&l);
}

/* Somebody on the way takes the faster cipher out of what the reader has: the publisher refuses the reader. */
static void downgrade(void **state)
{
    (void)state;
    struct part_server *server;
    struct address at;
    int fd;
    fine(part_server_start("127.0.0.1:0", &server));
    fine(address_parse(part_server_address(server), &at));
    for (int meddled = 0; meddled < 2; meddled++) {
        struct frame_end e;
        unsigned char hello[FRAME_HELLO], proof[FRAME_PROOF], decision[FRAME_DECISION], key[SODIUM_KEY];
        frame_token_key(sodium_find(), part_server_secret(server), key);
        frame_begin(&e, sodium_find(), false, key, FRAME_AES, hello);
        hello[FRAME_HELLO - 1] ^= meddled ? FRAME_AES : 0;
        assert_int_equal(address_connect(&at, clock_now() + LONG, &fd), 0);
        assert_int_equal(dial_send(fd, hello, sizeof hello, clock_now() + LONG), 0);
        assert_int_equal(dial_receive(fd, hello, sizeof hello, clock_now() + LONG), 0);
        assert_int_equal(!(hello[FRAME_HELLO - 1] & FRAME_AES), !(frame_ciphers() & FRAME_AES));
        assert_true(frame_meet(&e, hello));
        frame_prove(&e, proof);
        assert_int_equal(dial_send(fd, proof, sizeof proof, clock_now() + LONG), 0);
        assert_int_equal(dial_receive(fd, decision, sizeof decision, clock_now() + LONG), 0);
        assert_int_equal(decision[0], meddled);
        assert_int_equal(frame_believe(&e, decision + 1), !meddled);
        close(fd);
    }
    part_server_stop(server);
}

/* A reader without AES: the publisher seals for it with the other cipher, and it gets the same bytes. */
static void slower_cipher(void **state)
{
    (void)state;
    struct lab l;
    struct catalog found;
    struct address at;
    struct part_client c = {.set = "slower", .silence = LONG};
    int32_t *got = malloc(COUNT * sizeof *got);
    uint64_t full;
    bool torn;
    int fd, why;
    begin(&l, "slower", NULL);
    commit(&l, 1);
    fine(catalog_get(&l.there->keeper, "slower", clock_now() + LONG, &found));
    assert_int_equal(found.nversions, 1);
    const struct catalog_part *part = found.versions[0].parts[0];
    struct part_client_of of = part_client_of(part);
    c.slot = part->slot;
    fine(address_parse(c.slot->address, &at));
    assert_int_equal(address_connect(&at, clock_now() + LONG, &fd), 0);
    fine(part_link_begin(&c.link, fd));
    c.link.sealed = true;
    assert_int_equal(
        dial_prove(fd, sodium_find(), c.slot->secret, FRAME_CHACHA, clock_now() + LONG, &c.link.end, &why, &full),
        DIAL_PROVED);
    assert_false(c.link.end.aes);
    fine(part_client_read(&c, &of, 0, COUNT * sizeof *got, got, clock_now() + LONG, &torn));
    assert_false(torn);
    assert_memory_equal(got, l.data, COUNT * sizeof *got);
    part_client_close(&c);
    catalog_free(&found);
    free(got);
    end(&l);
}

static void *close_one(void *arg)
{
    int fd = -1;
    if (poll(&(struct pollfd){.fd = *(int *)arg, .events = POLLIN}, 1, 60000) > 0)
        fd = accept4(*(int *)arg, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0)
        close(fd);
    return NULL;
}

/* A reader and a publisher of different versions: each is told at once. */
static void other_versions(void **state)
{
    (void)state;
    struct part_server *server;
    struct address at, before = {.host = "127.0.0.1"};
    struct catalog_slot slot = {.job = "old", .host = "elsewhere", .secret = "a secret of a version before"};
    struct part_client c;
    unsigned char hello[FRAME_HELLO], more;
    pthread_t thread;
    int fd;
    fine(part_server_start("127.0.0.1:0", &server));
    fine(address_parse(part_server_address(server), &at));
    int64_t began = clock_now();
    assert_int_equal(address_connect(&at, clock_now() + LONG, &fd), 0);
    assert_int_equal(dial_send(fd, (const unsigned char[40]){"weft-st5"}, 40, clock_now() + LONG), 0);
    assert_int_equal(dial_receive(fd, hello, sizeof hello, clock_now() + LONG), 0);
    assert_int_equal(frame_version(hello), FRAME_SAME);
    assert_int_equal(dial_receive(fd, &more, 1, clock_now() + LONG), ECONNRESET);
    assert_true(clock_now() - began < 5 * SECOND);
    close(fd);
    part_server_stop(server);
    assert_int_equal(address_listen(&before, &fd), 0);
    snprintf(slot.address, sizeof slot.address, "127.0.0.1:%d", before.port);
    assert_int_equal(pthread_create(&thread, NULL, close_one, &fd), 0);
    assert_int_equal(part_client_open("here", "set", &slot, LONG, clock_now() + LONG, &c), WEFT_EPEER);
    assert_non_null(strstr(weft_errmsg(), "another version of weft"));
    pthread_join(thread, NULL);
    close(fd);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest served[] = {cmocka_unit_test(frames), cmocka_unit_test(downgrade),
                                        cmocka_unit_test(slower_cipher), cmocka_unit_test(other_versions)};
    return SUITE_MAIN(argc, argv, SUITE_AT(&directories_served, served));
}
