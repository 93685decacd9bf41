/* A directory's server fed with any messages of two clients, one of which may only read, as they come out of their
 * frames (store.c tries the frames). Replies are read back as a client does. A message may let time pass, or end a
 * client, whose place a new one takes. Revisions never fall, items of a reply are in order, and when both clients are
 * gone there are no leases and no keys with one. The input is also read as what a server may send a client: a
 * transaction that is taken is the same when it is written again. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bus/bus_message.h"
#include "bus/bus_server.h"
#include "rendezvous/frame.h"
#include "rendezvous/server_state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        abort();
}

static struct server_state state;
static struct bus_server *server;
static struct server_client clients[2];
static int64_t last_revision;
static enum frame_op ops[2]; /* the last request of each */
static int64_t granted[8];   /* leases: the input names them by 1 to 8, since their numbers are random */
static size_t ngranted;
static bool gets; /* a get of all keys: how many have a lease? */
static size_t leased;

static void take_items(const struct frame_reply *r)
{
    struct directory_item item;
    char before[DIRECTORY_KEY_MAX + 1] = "";
    size_t at = 1;
    must(r->bytes >= 1 && r->value[0] <= BUS_MESSAGE_LOST);
    while (at < r->bytes) {
        must(bus_message_take_item(r->value, r->bytes, &at, &item));
        must(item.revision <= r->number && strlen(item.key) <= DIRECTORY_KEY_MAX);
        if (gets)
            must(strcmp(before, item.key) < 0 && !item.deleted && item.made <= item.revision);
        strcpy(before, item.key);
        leased += gets && item.lease;
    }
}

static void answer(struct server_state *s, struct server_client *c, const struct frame_reply *r)
{
    unsigned char message[64];
    (void)s;
    must(r->code <= 0 && r->bytes <= FRAME_REPLY_MAX);
    if (r->bytes + FRAME_HEAD <= sizeof message) {
        struct frame_reply again;
        must(frame_take_reply(message, frame_put_reply(message, r), &again) && again.number == r->number);
    }
    if (r->code)
        return;
    enum frame_op op = ops[c - clients];
    if (op == FRAME_DIRECTORY_GET || op == FRAME_DIRECTORY_WATCH)
        take_items(r);
    if (op == FRAME_DIRECTORY_GRANT)
        granted[ngranted++ % 8] = r->number;
    if (op == FRAME_DIRECTORY_TRANSACT) {
        must(r->bytes == 1 && r->number >= last_revision);
        last_revision = r->number;
    }
}

static void enter(int i)
{
    clients[i] = (struct server_client){.rights = i ? BUS_MESSAGE_READS : BUS_MESSAGE_READS | BUS_MESSAGE_PUBLISHES};
}

static int64_t lease_of(int64_t named)
{
    return named >= 1 && named <= 8 && granted[named - 1] ? granted[named - 1] : named;
}

/* The request with the numbers of leases that there are. */
static void name_leases(struct frame_request *r)
{
    static struct bus_message_transaction m;
    static unsigned char out[DIRECTORY_BYTES_MAX];
    if (r->op == FRAME_DIRECTORY_RENEW || r->op == FRAME_DIRECTORY_REVOKE)
        r->number = lease_of(r->number);
    if (r->op != FRAME_DIRECTORY_TRANSACT || !bus_message_take_transaction(r->value, r->bytes, &m))
        return;
    for (size_t i = 0; i < m.t.nchanges; i++)
        m.changes[i].lease = lease_of(m.changes[i].lease);
    r->bytes = bus_message_put_transaction(out, &m.t);
    r->value = out;
}

static void ask(int i, const unsigned char *message, size_t n, int64_t now)
{
    struct frame_request r;
    struct server_client *c = &clients[i];
    if (c->waits) /* a connection reads nothing meanwhile */
        return;
    bool over = !frame_take_request(message, n, &r);
    if (!over) {
        ops[i] = r.op;
        name_leases(&r);
        over = !server_state_ask(&state, c, &r, now);
    }
    if (over) {
        server_state_leave(&state, c);
        enter(i);
    }
    while (server_state_next(&state)) {
    }
}

static void read_as_client(const uint8_t *data, size_t size)
{
    static struct bus_message_transaction m, again;
    static unsigned char out[DIRECTORY_BYTES_MAX];
    struct directory_item item;
    size_t at = 0;
    while (bus_message_take_item(data, size, &at, &item))
        must(at <= size && strlen(item.key) <= DIRECTORY_KEY_MAX && item.bytes <= DIRECTORY_VALUE_MAX);
    if (!bus_message_take_transaction(data, size, &m))
        return;
    size_t n = bus_message_put_transaction(out, &m.t);
    must(bus_message_take_transaction(out, n, &again) && again.t.nchanges == m.t.nchanges);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned char message[FRAME_HEAD + DIRECTORY_BYTES_MAX];
    int64_t now = 1;
    read_as_client(data, size);
    must(!bus_server_make(&(struct bus_server_opts){.publish_token = "x"}, &server));
    state = (struct server_state){.served_by = -1, .answer = answer, .service = bus_server_service(server)};
    bus_server_service(server)->state = &state;
    enter(0);
    enter(1);
    last_revision = 0;
    gets = false;
    memset(granted, 0, sizeof granted);
    ngranted = 0;
    /* A message is which client[1 bit], time[1 bit], leaves[1 bit], padded[1 bit], and bytes[2]. */
    for (size_t at = 0; at + 3 <= size;) {
        unsigned flags = data[at];
        size_t n = data[at + 1] | (size_t)data[at + 2] << 8, left = size - at - 3;
        n = n < left ? n : left;
        int i = flags & 1;
        if (flags & 2)
            now += INT64_C(1000000000) * (flags >> 4);
        if (flags & 4) {
            server_state_leave(&state, &clients[i]);
            enter(i);
        } else {
            memset(message, 0, FRAME_HEAD);
            size_t some = n < sizeof message ? n : sizeof message;
            memcpy(message, data + at + 3, some);
            ask(i, message, some < FRAME_HEAD && flags & 8 ? FRAME_HEAD : some, now);
        }
        must(server_state_expire(&state, now) > now);
        at += 3 + n;
    }
    for (int i = 0; i < 2; i++) {
        server_state_leave(&state, &clients[i]);
        enter(i);
    }
    server_state_expire(&state, now);
    struct bus_server_counts c;
    bus_server_counts(server, &c);
    must(!c.leases && !c.watches);
    unsigned char get[FRAME_HEAD];
    gets = true;
    leased = 0;
    ask(0, get, frame_put_request(get, &(struct frame_request){.op = FRAME_DIRECTORY_GET, .key = ""}), now);
    must(!leased);
    server_state_leave(&state, &clients[0]);
    bus_server_stop(server);
    server_state_end(&state);
    return 0;
}
