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
/* At once. Leases of clients that are connected are kept with the state. NULL is allowed. */
void bus_server_stop(struct bus_server *s);
#endif
