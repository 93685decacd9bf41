/* A server of a directory, from a thread of this process: the loop, the connections and the proofs of
 * rendezvous/server.h, with the state of book.h behind them.
 *
 * A request is decided and done in one piece, since one thread does all of them. A watch is a client that waits for its
 * reply; a change looks at the clients that wait, and answers those whose prefix it has. A lease ends with its time or
 * with the connection that granted or renewed it last.
 *
 * With `keep`, a change is on the disk before anybody is told of it. A server that is started anew has all keys, and
 * remembers the changes that the old one did, so that watches go on. Leases begin their time anew: an owner that comes
 * back and renews its lease within it has it still. */
#ifndef WEFT_BUS_BUS_SERVER_H
#define WEFT_BUS_BUS_SERVER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BUS_SERVER_WATCH_MS 60000 /* after which a watch is answered though nothing has changed, at most */

struct bus_server;

struct bus_server_opts {
    const char *publish_token; /* clients with it may do everything */
    const char *read_token;    /* clients with it may read, and say that they do; NULL: there is none */
    const char *keep;          /* the file in which the state outlives the server (journal.h); NULL: none */
};

/* Takes over the listening socket, also when it fails. */
int bus_server_start(int listener, const struct bus_server_opts *opts, struct bus_server **out);
/* Has the server lost the file in which it keeps its state? Then it answers all requests with an error, and `text` says
 * why. Any thread may ask. */
bool bus_server_broken(struct bus_server *s, char *text, size_t cap);

/* How long something took: how often at most bus_server_bucket_ns(i) and more than that of i - 1, and in all. */
#define BUS_SERVER_BUCKETS 10
struct bus_server_times {
    uint64_t buckets[BUS_SERVER_BUCKETS];
    uint64_t n;
    int64_t ns;
};
int64_t bus_server_bucket_ns(int i); /* 100 us, 300 us, 1 ms and so on to 3 s */

/* What the server has now, and has done since it was started. */
struct bus_server_counts {
    uint64_t connections, watches, leases, keys, key_bytes;
    uint64_t requests, sent, received;  /* sent and received: bytes */
    uint64_t changes, conflicts;        /* transactions that were done, and those with a compare that did not hold */
    uint64_t refusals;                  /* requests that were answered with an error */
    uint64_t granted, lapsed;           /* leases; lapsed: ended with their time or their owner's connection */
    int64_t cpu_ns;                     /* of the server's thread */
    struct bus_server_times commits;    /* transactions, with the write to the file */
    struct bus_server_times deliveries; /* from a change to the reply for a client that waits for it */
    bool broken;
};
/* Any thread may ask; it waits for the server's thread. */
void bus_server_counts(struct bus_server *s, struct bus_server_counts *out);

/* The state without a thread and connections: for tests, which make the requests of its clients. */
struct server_service;
int bus_server_make(const struct bus_server_opts *opts, struct bus_server **out);
struct server_service *bus_server_service(struct bus_server *s);

/* At once. Leases of clients that are connected are kept with the state. NULL is allowed. */
void bus_server_stop(struct bus_server *s);
#endif
