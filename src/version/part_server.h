/* The server of a process that publishes: it gives readers the layouts of its sets, the digests and descriptors of
 * snapshots, and, on other hosts, their bytes. The publisher's own thread has no part in it: one thread accepts, and
 * each connection has one of its own. Before a stranger on TCP has proved that it knows the secret, 72 bytes are read
 * from it. */
#ifndef WEFT_VERSION_PART_SERVER_H
#define WEFT_VERSION_PART_SERVER_H
#include "base/list.h"
#include "rendezvous/address.h"
#include "version/snapshot.h"
#include "weft/bus.h"

#define PART_SERVER_READERS 256 /* connections at a time; others are closed */
#define PART_SERVER_SOCKET 48   /* bytes of a socket's name */
#define PART_SERVER_SECRET 65   /* of the secret as a text */

/* What one publisher serves. It is in the list of its server until part_server_remove returns. */
struct part_server_source {
    struct list node;
    char set[WEFT_BUS_NAME + 1];
    int rank;
    int64_t epoch;
    const unsigned char *layouts;
    size_t layouts_size;
    size_t users; /* connections that use it now */
    bool leaves;
    void *publisher;
    /* The part of a step with this generation: its snapshot, its bytes, and a copy of its digests that the caller
     * frees. False: there is none. */
    bool (*part)(void *publisher, int64_t step, uint64_t generation, struct snapshot *snapshot, int64_t *bytes,
                 unsigned char **digests, size_t *size);
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
