/* The server of a process that publishes or relays: it gives readers the layouts of its sets, the digests and
 * descriptors of snapshots, and, on other hosts, their bytes. The publisher's own thread has no part in it: one thread
 * accepts, and each connection has one of its own. Before a stranger on TCP has proved that it knows the secret, 72
 * bytes are read from it. */
#ifndef WEFT_VERSION_PART_SERVER_H
#define WEFT_VERSION_PART_SERVER_H
#include "base/list.h"
#include "rendezvous/address.h"
#include "version/part_blocks.h"
#include "version/snapshot.h"
#include "weft/bus.h"

#define PART_SERVER_READERS 512 /* connections at a time; others are closed */
#define PART_SERVER_SOCKET 48   /* bytes of a socket's name */
#define PART_SERVER_SECRET 65   /* of the secret as a text */

/* A part of a version. */
struct part_server_part {
    struct snapshot snapshot; /* data NULL: there is none, and `copy` of the source gives the bytes */
    uint64_t generation;      /* that the snapshot has */
    int64_t bytes;
    unsigned char *digests; /* a copy that the caller frees */
    size_t size;
};
/* Blocks for a reader of another host: memory that the caller frees, with the heads and with bytes. Bytes of the runs
 * follow, which are read where they are, and are used up: each frame of them is sealed between `hold` and `drop` of the
 * source, if it has these, and is sent if the snapshot has its generation still. */
struct part_server_blocks {
    unsigned char *payload;
    size_t n, size;
    struct part_blocks_runs runs;
    struct snapshot snapshot; /* data NULL: what `hold` holds needs no generation */
    uint64_t generation;
    int64_t round; /* for `hold` */
};

/* What a publisher, the relay of a set, or an agent serves. It is in the list of its server until part_server_remove
 * returns. Its calls may come from several threads. They return 0, or a code for the reply; a text with it is
 * error_set's. */
struct part_server_source {
    struct list node;
    char set[WEFT_BUS_NAME + 1];
    bool relay, agent; /* agent: it takes parts, and has none itself: `keep` is all that it does */
    int rank;          /* of a publisher; epoch, too */
    int64_t epoch;
    const unsigned char *layouts;
    size_t layouts_size;
    size_t users; /* connections that use it now, or hold its version */
    bool leaves;
    void *owner;
    int (*part)(void *owner, const struct part_link_message *m, struct part_server_part *out);
    /* Of a publisher: the bytes [at, at + n) of a part that has no snapshot. Not 0: the part has gone. */
    int (*copy)(void *owner, const struct part_link_message *m, int64_t at, int64_t n, unsigned char *to);
    int (*take)(void *owner, const struct part_link_message *m, const unsigned char *wanted,
                struct part_server_blocks *out);
    /* Of a relay: may the memory that `take` found in this round be read? It stays as it is until `drop`. */
    bool (*hold)(void *owner, int64_t round);
    void (*drop)(void *owner);
    /* Of a relay, for readers of its host. After the first `part` with PART_LINK_FILE that succeeded, the reader holds
     * the version: `release` is called when its connection ends. */
    int (*await)(void *owner, const struct part_link_message *m, const unsigned char *wanted, int64_t *missing);
    void (*release)(void *owner);
    /* Of an agent: takes a part of this set. */
    int (*keep)(void *owner, const char *set, const struct part_link_message *m);
};

struct part_server;
/* listen NULL: for processes of this host only. */
int part_server_start(const char *listen, struct part_server **out);
void part_server_stop(struct part_server *s); /* NULL is allowed; no source is left */
const char *part_server_socket(const struct part_server *s);
const char *part_server_address(const struct part_server *s); /* "HOST:PORT", or empty */
const char *part_server_secret(const struct part_server *s);
void part_server_add(struct part_server *s, struct part_server_source *source);
/* Waits for the connections that use it to notice. */
void part_server_remove(struct part_server *s, struct part_server_source *source);
#endif
