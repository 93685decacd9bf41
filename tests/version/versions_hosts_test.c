/* Versions that are read from another host, strangers at the publisher's sockets, and the token for reading. "Another
 * host" is a bus in this process that believes to be there. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "rendezvous/address.h"
#include "support/random.h"
#include "version/bus.h"
#include "version/part_link.h"
#include "version/version_kit.h"

static void other_host(void **state)
{
    (void)state;
    weft_bus *a, *b;
    weft_epoch_step v;
    char text[1024];
    size_t n;
    open_two(true, &a, &b);
    weft_publisher *p = publish(a, "hosts", NULL), *silent = publish(b, "silent", NULL);
    weft_subscriber *s = subscribe(b, "hosts", NULL), *vain = subscribe(a, "silent", NULL);
    for (int64_t step = 1; step < 4; step++) {
        commit(p, step);
        fine(weft_fetch(s, &latest, LONG, &v));
        fine(weft_swap(s, &v, LONG));
        compare(s, step);
        fine(weft_subscriber_explain(s, true, text, sizeof text, &n));
        if (step == 1) /* later, a relay that has not yet seen that the reader left does not take the next version */
            assert_non_null(strstr(text, "\"way\": \"relay\""));
    }
    commit(p, 4);
    assert_true(flip(3001) > 0); /* digests hold between hosts, too */
    assert_int_equal(weft_fetch(s, &latest, LONG, &v), WEFT_EMISMATCH);
    says("block 0 of rank 0 of publisher here: the digest is wrong");
    compare(s, 3);
    commit(silent, 1);
    assert_int_equal(weft_fetch(vain, &latest, 50 * MS, &v), WEFT_ETIMEOUT);
    says("does not listen for readers of other hosts");
    weft_subscriber_close(vain);
    weft_subscriber_close(s);
    weft_publisher_close(silent);
    weft_publisher_close(p);
    fine(weft_bus_close(a));
    fine(weft_bus_close(b));
}

/* Large arrays over TCP: frames and blocks, and the last rows of a split. */
static void other_host_blocks(void **state)
{
    (void)state;
    weft_bus *a, *b;
    weft_layout *l[2];
    weft_publisher *p;
    weft_subscriber *s;
    weft_epoch_step v;
    weft_pin *pin;
    const void *data;
    int64_t bytes, n = 0;
    open_two(true, &a, &b);
    fine(weft_layout_parse("f32[3000,1000] @x1", &l[0]));
    fine(weft_layout_parse("bf16[3000,1000/x] @x2", &l[1]));
    fine(weft_publish(a, "blocks", &(weft_bus_tensor){.name = "w", .layout = l[0]}, 1, NULL, &p));
    weft_subscribe_opts o = WEFT_SUBSCRIBE_OPTS_INIT;
    o.rank = 1;
    fine(weft_subscribe(b, "blocks", &(weft_bus_tensor){.name = "w", .layout = l[1]}, 1, &o, &s));
    float *w = malloc(3000 * 1000 * sizeof *w);
    for (int i = 0; i < 3000 * 1000; i++)
        w[i] = (float)(i % 200);
    fine(weft_put(p, 1, &(weft_view)WEFT_VIEW(w, 3000 * 1000 * sizeof *w)));
    fine(weft_commit(p, 1, NULL, NULL));
    fine(weft_fetch(s, &latest, LONG, &v));
    fine(weft_swap(s, &v, LONG));
    fine(weft_use(s, &pin));
    fine(weft_pin_data(pin, 0, &data, &bytes));
    assert_int_equal(bytes, 3000 * 500 * 2);
    for (int i = 0; i < 3000; i++)
        for (int k = 0; k < 500; k++) {
            uint16_t want;
            memory_cast_one(&want, WEFT_BF16, &w[i * 1000 + 500 + k], WEFT_F32);
            n += ((const uint16_t *)data)[i * 500 + k] != want;
        }
    assert_int_equal(n, 0);
    weft_unuse(pin);
    free(w);
    weft_subscriber_close(s);
    weft_publisher_close(p);
    weft_layout_free(l[0]);
    weft_layout_free(l[1]);
    fine(weft_bus_close(a));
    fine(weft_bus_close(b));
}

/* Bytes that are no request, on both kinds of socket: the publisher goes on serving others. */
static void strangers(void **state)
{
    (void)state;
    weft_bus *a, *b;
    struct address at;
    weft_epoch_step v;
    open_two(true, &a, &b);
    weft_publisher *p = publish(a, "strangers", NULL);
    weft_subscriber *s = subscribe(b, "strangers", NULL), *near = subscribe(a, "strangers", NULL);
    commit(p, 1);
    fine(address_parse(part_server_address(a->server), &at));
    struct random g = random_of(41, 0);
    for (int i = 0; i < 12; i++) {
        int fd, tcp = i % 2;
        unsigned char noise[256];
        for (size_t k = 0; k < sizeof noise; k++)
            noise[k] = (unsigned char)random_next(&g);
        if (tcp)
            assert_int_equal(address_connect(&at, clock_now() + LONG, &fd), 0);
        else {
            struct sockaddr_un to = {.sun_family = AF_UNIX};
            size_t n = strlen(part_server_socket(a->server));
            memcpy(to.sun_path + 1, part_server_socket(a->server), n);
            fd = socket(AF_UNIX, SOCK_STREAM, 0);
            assert_int_equal(
                connect(fd, (struct sockaddr *)&to, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)), 0);
            if (i % 4 == 2) { /* a head that is right, with a set that is not, or with a range that is not */
                uint32_t length = sizeof(struct part_link_message) + 9;
                struct part_link_message m = {.magic = PART_LINK_MAGIC,
                                              .op = PART_LINK_READ,
                                              .epoch = 1,
                                              .step = 1,
                                              .generation = 2,
                                              .at = i > 6 ? -1 : 1,
                                              .count = INT64_MAX};
                memcpy(noise, &length, 4);
                memcpy(noise + 4, &m, sizeof m);
                memcpy(noise + 4 + sizeof m, "strangers", 9);
            }
        }
        if (i % 3 == 2)
            memset(noise, 0xff, 4); /* a length of 4 GiB */
        size_t n = i % 5 ? sizeof noise : 3;
        assert_true(send(fd, noise, n, MSG_NOSIGNAL) >= 0);
        if (i % 4 != 3)
            close(fd);
        else
            shutdown(fd, SHUT_WR);
        fine(weft_fetch(s, &latest, LONG, &v));
        fine(weft_fetch(near, &latest, LONG, &v));
        if (i % 4 == 3)
            close(fd);
    }
    fine(weft_swap(s, &v, LONG));
    compare(s, 1);
    weft_subscriber_close(near);
    weft_subscriber_close(s);
    weft_publisher_close(p);
    fine(weft_bus_close(a));
    fine(weft_bus_close(b));
}

/* With the token for reading a subscriber does all it needs, and cannot publish. */
static void read_token(void **state)
{
    (void)state;
    weft_bus_opts o = WEFT_BUS_OPTS_INIT;
    weft_bus *a = open_bus("owner"), *b;
    struct set set;
    weft_publisher *p = publish(a, "tokens", NULL), *none;
    weft_epoch_step v;
    o.token = READ_TOKEN;
    fine(weft_bus_open(directories_url(), &o, &b));
    weft_subscriber *s = subscribe(b, "tokens", NULL);
    for (int64_t step = 1; step < 4; step++) {
        commit(p, step);
        fine(weft_fetch(s, &latest, LONG, &v));
        fine(weft_swap(s, &v, LONG));
        compare(s, step);
    }
    make(&set, texts);
    assert_int_equal(weft_publish(b, "tokens", set.tensors, N, NULL, &none), WEFT_ETRANSPORT);
    says("for reading");
    drop(&set);
    commit(p, 9);
    weft_subscriber_close(s);
    weft_publisher_close(p);
    fine(weft_bus_close(a));
    fine(weft_bus_close(b));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest served[] = {cmocka_unit_test(other_host), cmocka_unit_test(other_host_blocks),
                                        cmocka_unit_test(strangers), cmocka_unit_test(read_token)};
    return SUITE_MAIN(argc, argv, SUITE_AT(&directories_served, served));
}
