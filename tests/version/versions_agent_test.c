/* The agent of a host, in one process: versions outlive their publisher, bit by bit, as long as the agent's options
 * say, and no stranger makes it hold anything. agent_death_test.c has what dies. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bus/bus_server.h"
#include "rendezvous/address.h"
#include "rendezvous/deadline.h"
#include "support/processes.h"
#include "version/bus_agent.h"
#include "version/part_client.h"
#include "version/publish.h"
#include "version_kit.h"

struct agency {
    weft_bus *bus;
    struct bus_agent *agent;
};

static struct agency hire(int versions, int64_t memory)
{
    struct agency a;
    weft_bus_opts o = WEFT_BUS_OPTS_INIT;
    o.token = PUBLISH_TOKEN;
    o.job = "agent";
    o.listen = "127.0.0.1:0";
    o.lease_ns = SECOND;
    fine(weft_bus_open(directories_url(), &o, &a.bus));
    fine(bus_agent_start(a.bus, &(struct bus_agent_opts){.versions = versions, .memory = memory}, &a.agent));
    return a;
}

static void dismiss(struct agency *a)
{
    bus_agent_stop(a->agent);
    fine(weft_bus_close(a->bus));
}

static void await_parts(const struct agency *a, int64_t least, int64_t most)
{
    int64_t parts, bytes;
    for (int64_t until = clock_now() + LONG;; clock_pause(MS)) {
        bus_agent_holds(a->agent, &parts, &bytes);
        if (parts >= least && parts <= most)
            return;
        if (clock_now() > until)
            fail_msg("the agent holds %lld parts", (long long)parts);
    }
}

static void fetch(weft_subscriber *s, const weft_want *want, int64_t epoch, int64_t step)
{
    weft_epoch_step v;
    int64_t until = clock_now() + LONG;
    do /* while the agent takes over, an older version may be the newest one that can be read */
        fine(weft_fetch(s, want, LONG, &v));
    while ((v.epoch != epoch || v.step != step) && clock_now() < until);
    assert_int_equal(v.epoch, epoch);
    assert_int_equal(v.step, step);
    fine(weft_swap(s, &v, LONG));
    compare(s, step);
}

/* Which process a reader read from, and how. */
static void read_from(weft_subscriber *s, const char *job, const char *way)
{
    char text[2048];
    size_t len;
    fine(weft_subscriber_explain(s, true, text, sizeof text, &len));
    if (!strstr(text, job) || !strstr(text, way))
        fail_msg("it was not read from %s (%s): %s", job, way, text);
}

static void await_no_keys(const char *prefix)
{
    for (int64_t until = clock_now() + LONG; directories_keys(prefix); clock_pause(MS))
        if (clock_now() > until)
            fail_msg("%zu keys are below %s", directories_keys(prefix), prefix);
}

/* ---- */

static void outlives(void **state)
{
    (void)state;
    for (int apart = 0; apart < 2; apart++) {
        struct agency a = hire(1, 0);
        weft_bus *b = open_bus("trainer"), *there = open_bus("server");
        if (apart)
            there->host[0] = 'x';
        weft_publisher *p = publish(b, "outlives", NULL);
        int64_t epoch = weft_publisher_epoch(p);
        for (int64_t step = 1; step < 6; step++)
            commit(p, step);
        await_parts(&a, 2, 2); /* as many as the publisher keeps */
        struct arrays x;
        fill(&x, 6);
        fine(weft_put(p, 6, x.views)); /* not committed: nobody sees it, now or later */
        weft_publisher_close(p);
        fine(weft_bus_close(b));
        await_parts(&a, 1, 1); /* versions = 1, and nothing that was not committed */
        weft_subscriber *s = subscribe(there, "outlives", NULL);
        fetch(s, &latest, epoch, 5);
        read_from(s, "agent", apart ? "relay" : "mapped");
        weft_epoch_step v;
        assert_int_equal(weft_fetch(s, &(weft_want){WEFT_WANT_STEP, 6}, 50 * MS, &v), WEFT_ETIMEOUT);
        weft_subscriber_close(s);
        fine(weft_bus_close(there));
        dismiss(&a); /* and with it the version */
        await_no_keys("agents/");
        await_no_keys("sets/outlives/slots/");
        await_no_keys("sets/outlives/parts/");
        await_no_keys("sets/outlives/versions/");
    }
}

/* Later versions, of publishers with another number of ranks, replace what an agent holds, once they can be read. */
static void next_epoch(void **state)
{
    (void)state;
    static const char *const two[N] = {"f32[40/x,24] @x2", "bf16[130/x] @x2", "i64[] @x2"};
    struct agency a = hire(2, 0);
    weft_bus *b[2] = {open_bus("first"), open_bus("second")}, *r = open_bus("server");
    weft_publisher *p = publish(b[0], "next", NULL), *q[2];
    weft_subscriber *s = subscribe(r, "next", NULL);
    commit(p, 7);
    commit(p, 8);
    weft_publisher_close(p);
    await_parts(&a, 2, 2);
    struct set set;
    make(&set, two);
    for (int i = 0; i < 2; i++) {
        weft_publish_opts o = WEFT_PUBLISH_OPTS_INIT;
        o.rank = i;
        o.ranks = 2;
        o.run = "again";
        fine(weft_publish(b[i], "next", set.tensors, N, &o, &q[i]));
    }
    drop(&set);
    fetch(s, &latest, 1, 8); /* the new publisher has nothing yet */
    for (int64_t step = 1; step < 4; step++) {
        struct arrays x;
        bool visible;
        fill(&x, step);
        for (int i = 0; i < 2; i++) {
            uint16_t norm[65];
            memory_cast(norm, WEFT_BF16, x.norm + (ptrdiff_t)i * 65, WEFT_F32, 65);
            const weft_view views[N] = {WEFT_VIEW(x.embed + (ptrdiff_t)i * 480, 480 * 4), WEFT_VIEW(norm, sizeof norm),
                                        WEFT_VIEW(&x.step, 8)};
            char meta[32];
            snprintf(meta, sizeof meta, "{\"step\": %d}", (int)step);
            fine(weft_put(q[i], step, views));
            fine(weft_commit(q[i], step, meta, &visible));
        }
        assert_true(visible);
        if (step == 1) { /* two of the newest: 2.1 and 1.8 */
            await_parts(&a, 3, 3);
            fetch(s, &(weft_want){WEFT_WANT_STEP, 8}, 1, 8);
        }
        fetch(s, &latest, 2, step);
    }
    await_parts(&a, 4, 4); /* two ranks with two versions each */
    await_no_keys("sets/next/slots/0000000001/");
    await_no_keys("sets/next/parts/0000000001.");
    assert_int_equal(directories_keys("sets/next/versions/"), 2);
    weft_publisher_close(q[0]);
    weft_publisher_close(q[1]);
    fetch(s, &latest, 2, 3);
    weft_subscriber_close(s);
    fine(weft_bus_close(b[0]));
    fine(weft_bus_close(b[1]));
    fine(weft_bus_close(r));
    dismiss(&a);
    await_no_keys("sets/next/versions/");
}

/* Without memory in the agent the publisher goes on, and its versions go with it. What the agent alone holds makes room
 * for publishers that live. */
static void memory(void **state)
{
    (void)state;
    weft_bus *b = open_bus("trainer");
    struct agency a = hire(1, 100);
    weft_publisher *p = publish(b, "memory", NULL);
    commit(p, 1);
    commit(p, 2);
    int64_t parts, bytes;
    bus_agent_holds(a.agent, &parts, &bytes);
    assert_int_equal(parts, 0);
    assert_int_equal(bytes, 0);
    weft_publisher_close(p);
    assert_int_equal(directories_keys("sets/memory/versions/"), 0);
    dismiss(&a);
    a = hire(1, 20000); /* room for two files of the set */
    weft_publish_opts o = WEFT_PUBLISH_OPTS_INIT;
    o.keep = 1;
    for (int64_t step = 1; step < 5; step++) {
        char set[16];
        snprintf(set, sizeof set, "memory%d", (int)step);
        p = publish(b, set, &o);
        commit(p, step);
        weft_publisher_close(p);
        await_parts(&a, step < 2 ? 1 : 2, 2);
        bus_agent_holds(a.agent, &parts, &bytes);
        assert_true(bytes <= 20000);
    }
    await_no_keys("sets/memory1/versions/");
    await_no_keys("sets/memory2/versions/");
    weft_subscriber *s = subscribe(b, "memory4", NULL);
    fetch(s, &latest, 1, 4);
    weft_subscriber_close(s);
    fine(weft_bus_close(b));
    dismiss(&a);
}

/* The revision of a key. */
static int64_t revision_of(struct directory *d, const char *key)
{
    struct directory_items items;
    int64_t revision = 0;
    fine(directory_get(d, key, LONG, &items));
    if (items.n)
        revision = items.items[0].revision;
    directory_items_free(&items);
    return revision;
}

/* While the agent takes over, a reader that comes does not find an older version alone. The snapshots of three versions
 * are in another order than these. */
static void newest_first(void **state)
{
    (void)state;
    struct agency a = hire(3, 0);
    weft_bus *b = open_bus("trainer");
    struct directory *d = directories_open("");
    weft_publish_opts o = WEFT_PUBLISH_OPTS_INIT;
    o.keep = 3;
    weft_publisher *p = publish(b, "order", &o);
    for (int64_t step = 1; step < 6; step++)
        commit(p, step);
    await_parts(&a, 3, 3);
    weft_publisher_close(p);
    int64_t at[3] = {0}, until = clock_now() + LONG;
    for (int i = 0; i < 3; i++) {
        char key[96];
        snprintf(key, sizeof key, "sets/order/parts/0000000001.%019d/0000", 3 + i);
        while (!(at[i] = revision_of(d, key)) && clock_now() < until)
            clock_pause(MS);
    }
    assert_true(at[0] > at[1] && at[1] > at[2] && at[2]);
    directory_close(d);
    fine(weft_bus_close(b));
    dismiss(&a);
}

/* Asks again if the agent does not answer in time, as it may on a busy machine: no commit follows that would. */
static void commit_held(weft_publisher *p, int64_t step)
{
    int64_t until = clock_now() + LONG;
    commit(p, step);
    for (; !p->ring[0].held && clock_now() < until; clock_pause(MS))
        hand_over(p, true, until);
    assert_true(p->ring[0].held);
}

/* The oldest version is read, and stays; the next one makes room. */
static void room_beside_a_reader(void **state)
{
    (void)state;
    struct agency a = hire(1, 20000); /* room for two files of the set */
    weft_bus *b = open_bus("trainer");
    struct directory *d = directories_open("");
    weft_publish_opts o = WEFT_PUBLISH_OPTS_INIT;
    int64_t lease;
    o.keep = 1;
    fine(directory_grant(d, 60 * SECOND, LONG, &lease));
    for (int64_t step = 1; step < 4; step++) {
        char set[16];
        snprintf(set, sizeof set, "room%d", (int)step);
        weft_publisher *p = publish(b, set, &o);
        commit_held(p, step);
        if (step == 1)
            directories_put(d, "sets/room1/readers/somebody/0000", "reads 0000000001.0000000000000000001\nfetch 1\n",
                            lease);
        if (step == 3)
            await_no_keys("sets/room2/versions/");
        weft_publisher_close(p);
        await_parts(&a, step < 2 ? 1 : 2, 2);
    }
    for (int64_t step = 1; step < 4; step += 2) {
        char set[16];
        snprintf(set, sizeof set, "room%d", (int)step);
        weft_subscriber *s = subscribe(b, set, NULL);
        fetch(s, &latest, 1, step);
        weft_subscriber_close(s);
    }
    directory_close(d);
    fine(weft_bus_close(b));
    dismiss(&a);
}

/* A reader that copies from the agent keeps its version there. */
static void leases(void **state)
{
    (void)state;
    struct agency a = hire(1, 0);
    weft_bus *b = open_bus("trainer");
    struct directory *d = directories_open("");
    weft_publisher *p = publish(b, "leases", NULL);
    commit(p, 1);
    int64_t lease;
    fine(directory_grant(d, 60 * SECOND, LONG, &lease));
    directories_put(d, "sets/leases/readers/somebody/0000", "reads 0000000001.0000000000000000001\nfetch 1\n", lease);
    commit(p, 2);
    weft_publisher_close(p);
    weft_subscriber *s = subscribe(b, "leases", NULL);
    fetch(s, &(weft_want){WEFT_WANT_STEP, 1}, 1, 1);
    fetch(s, &latest, 1, 2);
    await_parts(&a, 2, 2);
    fine(directory_revoke(d, lease, LONG));
    await_parts(&a, 1, 1);
    fetch(s, &latest, 1, 2);
    weft_subscriber_close(s);
    directory_close(d);
    fine(weft_bus_close(b));
    dismiss(&a);
}

/* An agent that comes later, or anew, is given what the publisher has at its next commit. */
static void comes_later(void **state)
{
    (void)state;
    weft_bus *b = open_bus("trainer");
    weft_publish_opts o = WEFT_PUBLISH_OPTS_INIT;
    o.keep = 3;
    weft_publisher *p = publish(b, "later", &o);
    commit(p, 1);
    commit(p, 2);
    struct agency a = hire(1, 0);
    struct bus_agent *other;
    assert_int_equal(bus_agent_start(a.bus, &(struct bus_agent_opts){.timeout_ns = MS}, &other), WEFT_EBUSY);
    says("agent");
    p->later = 0; /* a publisher looks for agents once a second */
    commit(p, 3);
    await_parts(&a, 3, 3);
    dismiss(&a); /* the publisher's versions are its own */
    weft_subscriber *s = subscribe(b, "later", NULL);
    fetch(s, &latest, 1, 3);
    read_from(s, "trainer", "mapped");
    commit(p, 4);
    weft_publisher_close(p);
    await_no_keys("sets/later/versions/");
    weft_subscriber_close(s);
    fine(weft_bus_close(b));
}

/* The directory has forgotten everything: the agent puts it back, and the next publisher takes a higher epoch. */
static struct bus_server *start_server(int port, int *out)
{
    struct bus_server *server;
    struct bus_server_opts opts = {.publish_token = PUBLISH_TOKEN};
    struct address at;
    char text[64];
    int fd, err = 0;
    snprintf(text, sizeof text, "127.0.0.1:%d", port);
    for (int64_t until = clock_now() + LONG; clock_now() < until; clock_pause(10 * MS)) {
        fine(address_parse(text, &at));
        if (!(err = address_listen(&at, &fd)))
            break;
    }
    assert_int_equal(err, 0);
    fine(bus_server_start(fd, &opts, &server));
    *out = at.port;
    return server;
}

static weft_bus *open_at(const char *url, const char *job)
{
    weft_bus_opts o = WEFT_BUS_OPTS_INIT;
    weft_bus *b;
    o.token = PUBLISH_TOKEN;
    o.job = job;
    o.lease_ns = SECOND;
    fine(weft_bus_open(url, &o, &b));
    return b;
}

static void forgetful_directory(void **state)
{
    (void)state;
    char url[64];
    int port;
    struct bus_server *server = start_server(0, &port);
    snprintf(url, sizeof url, "tcp:127.0.0.1:%d", port);
    struct agency a = {.bus = open_at(url, "agent")};
    fine(bus_agent_start(a.bus, &(struct bus_agent_opts){.versions = 2}, &a.agent)); /* of two epochs */
    weft_bus *b = open_at(url, "trainer");
    for (int i = 0; i < 2; i++) {
        weft_publisher *p = publish(b, "forgets", NULL);
        commit(p, 5 - i);
        weft_publisher_close(p);
    }
    fine(weft_bus_close(b));
    b = open_at(url, "server");
    weft_subscriber *s = subscribe(b, "forgets", NULL);
    fetch(s, &latest, 2, 4);
    bus_server_stop(server);
    server = start_server(port, &port);
    /* A reader may be the first one that is back. */
    struct directory_change x = {.key = "sets/forgets/readers/other/0000", .value = "failed", .bytes = 6};
    struct directory_outcome o;
    fine(keeper_transact(&b->keeper, NULL, 0, &x, 1, deadline_in(LONG), &o));
    fetch(s, &latest, 2, 4);
    weft_publisher *p = publish(b, "forgets", NULL);
    assert_int_equal(weft_publisher_epoch(p), 3);
    commit(p, 1);
    fetch(s, &latest, 3, 1);
    weft_publisher_close(p);
    weft_subscriber_close(s);
    fine(weft_bus_close(b));
    dismiss(&a);
    bus_server_stop(server);
}

/* A directory that has forgotten everything gets the publisher's slot back before its versions. What the agent took
 * for deleted meanwhile is held again. */
static void version_returns(void **state)
{
    (void)state;
    struct agency a = hire(1, 0);
    weft_bus *b = open_bus("trainer");
    struct directory *d = directories_open("");
    struct directory_items items;
    struct directory_outcome o;
    weft_publisher *p = publish(b, "returns", NULL);
    commit(p, 1);
    fine(directory_get(d, "sets/returns/versions/", LONG, &items));
    assert_int_equal(items.n, 1);
    int64_t parts = 1, bytes, end = clock_now() + LONG;
    while (parts && clock_now() < end) { /* until the agent has seen that it was there, and that it is not */
        fine(directory_delete(d, items.items[0].key, -1, LONG, &o));
        for (int64_t until = clock_now() + 200 * MS; parts && clock_now() < until; clock_pause(MS))
            bus_agent_holds(a.agent, &parts, &bytes);
        directories_put(d, items.items[0].key, (const char *)items.items[0].value, 0);
        if (parts)
            clock_pause(50 * MS);
    }
    assert_int_equal(parts, 0);
    directory_items_free(&items);
    directory_close(d);
    await_parts(&a, 1, 1);
    weft_publisher_close(p);
    fine(weft_bus_close(b));
    dismiss(&a);
}

/* ---- strangers ---- */

static int ask_to_keep(const struct catalog_slot *slot, const char *host, const char *set, int64_t epoch, int rank)
{
    struct part_client c;
    struct part_client_of of = {.version = {epoch, 1}, .rank = rank, .generation = 2};
    int err = part_client_open(host, set, slot, LONG, deadline_in(LONG), &c);
    if (!err)
        err = part_client_keep(&c, &of, deadline_in(LONG));
    part_client_close(&c);
    return err;
}

static void strangers(void **state)
{
    (void)state;
    struct agency a = hire(1, 0);
    weft_bus *b = open_bus("trainer");
    weft_publisher *p = publish(b, "strangers", NULL);
    commit(p, 3);
    struct catalog_slot slot, forged;
    fine(catalog_agent(&b->keeper, b->host, deadline_in(LONG), &slot));
    assert_true(slot.revision > 0);
    /* Parts that no publisher of this host has, by the directory's word. */
    assert_int_equal(ask_to_keep(&slot, b->host, "nobody", 1, 0), WEFT_EPEER);
    assert_int_equal(ask_to_keep(&slot, b->host, "strangers", 2, 0), WEFT_EPEER);
    assert_int_equal(ask_to_keep(&slot, b->host, "strangers", 1, 7), WEFT_EPEER);
    assert_int_equal(ask_to_keep(&slot, b->host, "strangers", 1, 0), WEFT_EPEER); /* a step that it has not */
    assert_int_equal(ask_to_keep(&slot, b->host, "strangers", 0, 0), WEFT_EINVAL);
    assert_int_equal(ask_to_keep(&slot, b->host, "../strangers", 1, 0), WEFT_EINVAL);
    assert_int_equal(ask_to_keep(&slot, b->host, "strangers", 1, WEFT_BUS_RANKS), WEFT_EINVAL);
    /* A publisher's process is no agent. */
    forged = slot;
    snprintf(forged.socket, sizeof forged.socket, "%s", part_server_socket(b->server));
    assert_int_equal(ask_to_keep(&forged, b->host, "strangers", 1, 0), WEFT_EPEER);
    /* Another host has no descriptors to give, and who has not the secret is not heard at all. */
    assert_int_not_equal(ask_to_keep(&slot, "elsewhere", "strangers", 1, 0), 0);
    forged = slot;
    forged.secret[3] ^= 1;
    assert_int_equal(ask_to_keep(&forged, "elsewhere", "strangers", 1, 0), WEFT_EPEER);
    says("secret");
    await_parts(&a, 1, 1);
    weft_publisher_close(p);
    weft_subscriber *s = subscribe(b, "strangers", NULL);
    fetch(s, &latest, 1, 3);
    weft_subscriber_close(s);
    fine(weft_bus_close(b));
    dismiss(&a);
}

/* Who asks for one descriptor and is sent two keeps none. */
static void two_descriptors(void **state)
{
    (void)state;
    int pair[2], files = process_files(), got = -1;
    struct part_link l;
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } c = {.bytes = {0}};
    struct iovec v = {"", 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = c.bytes, .msg_controllen = sizeof c.bytes};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(2 * sizeof(int));
    for (int i = 0; i < 16; i++) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
        memcpy(CMSG_DATA(h), pair, sizeof pair);
        fine(part_link_begin(&l, pair[0]));
        assert_int_equal(sendmsg(pair[1], &m, 0), 1);
        assert_int_equal(part_link_receive_file(&l, &got, deadline_in(LONG)), EPROTO);
        part_link_end(&l);
        close(pair[1]);
    }
    assert_true(process_files() <= files); /* the test before may close a few; what is kept here is 16 or more */
}

/* Nothing stays open, however many publishers come and go. */
static void flat(void **state)
{
    (void)state;
    struct agency a = hire(1, 0);
    weft_bus *b = open_bus("trainer");
    int files = 0, maps = 0;
    for (int i = 0; i < 12; i++) {
        weft_publisher *p = publish(b, "flat", NULL);
        for (int64_t step = 0; step < 3; step++)
            commit(p, step);
        weft_publisher_close(p);
        await_parts(&a, 1, 1);
        if (i == 3) {
            files = process_files();
            maps = process_lines("/proc/self/maps", "memfd:weft-bus");
            assert_int_equal(maps, 1);
        }
    }
    for (int64_t until = clock_now() + LONG; process_files() > files + 1; clock_pause(MS))
        if (clock_now() > until)
            fail_msg("%d files are open, %d were", process_files(), files);
    assert_int_equal(process_lines("/proc/self/maps", "memfd:weft-bus"), maps);
    fine(weft_bus_close(b));
    dismiss(&a);
    assert_int_equal(process_lines("/proc/self/maps", "memfd:weft-bus"), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest everywhere[] = {cmocka_unit_test(outlives), cmocka_unit_test(next_epoch)};
    const struct CMUnitTest served[] = {cmocka_unit_test(memory),
                                        cmocka_unit_test(leases),
                                        cmocka_unit_test(comes_later),
                                        cmocka_unit_test(forgetful_directory),
                                        cmocka_unit_test(strangers),
                                        cmocka_unit_test(two_descriptors),
                                        cmocka_unit_test(version_returns),
                                        cmocka_unit_test(newest_first),
                                        cmocka_unit_test(room_beside_a_reader),
                                        cmocka_unit_test(flat)};
    return SUITE_MAIN(argc, argv, SUITE_AT(&directories_places, everywhere), SUITE_AT(&directories_served, served));
}
