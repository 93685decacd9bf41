/* What clients and servers of a directory say to each other, in the frames of rendezvous/frame.h. Numbers are
 * little-endian; a key is its length[1], its bytes, and a zero.
 *
 *   request      key      number             value        reply's number and value
 *   GET          prefix   0, or 1: go on     -            the revision; state[1], items
 *   TRANSACT     -        -                  see below    the revision; done[1]
 *   GRANT        -        ttl in ms          -            the lease
 *   RENEW        -        lease              -            -
 *   REVOKE       -        lease              -            -
 *   WATCH        prefix   after              -            up to which revision all is told; state[1], items
 *
 * The state is END, or MORE: the client asks for the rest by GET with 1, and gets the keys of the same revision. LOST
 * answers a WATCH from a revision that the directory does not remember. A WATCH is answered when there are changes, or
 * after wait_ms without any; its reply has all changes of a revision or none of them. So a server pushes changes when
 * they happen, and holds one message at most for each connection.
 *
 * An item is made[8], revision[8], lease[8], deleted[1], bytes[4], key, value. A transaction is the number of its
 * compares[2] and of its changes[2]; each compare is revision[8], key; each change lease[8], erase[1], bytes[4], key,
 * value.
 *
 * WEFT_EPEER answers for a lease that has ended. */
#ifndef WEFT_BUS_BUS_MESSAGE_H
#define WEFT_BUS_BUS_MESSAGE_H
#include "bus/directory.h"

enum bus_message_state { BUS_MESSAGE_END, BUS_MESSAGE_MORE, BUS_MESSAGE_LOST };

/* Rights of tokens. A reader may get and watch, and may put and delete keys under a folder "readers" with a lease of
 * its own connection. */
enum { BUS_MESSAGE_READS = 1, BUS_MESSAGE_PUBLISHES = 2 };

struct bus_message_transaction {
    struct directory_transaction t; /* points to these */
    struct directory_compare compares[DIRECTORY_CHANGES_MAX];
    struct directory_change changes[DIRECTORY_CHANGES_MAX];
};

/* Writes a transaction that directory_check accepts into DIRECTORY_BYTES_MAX bytes and returns its length. */
size_t bus_message_put_transaction(unsigned char *out, const struct directory_transaction *t);
/* Reads one; the result points into the bytes. False: it is not one, or breaks a limit of directory.h. */
bool bus_message_take_transaction(const unsigned char *in, size_t n, struct bus_message_transaction *out);

size_t bus_message_item_size(const struct directory_item *item);
size_t bus_message_put_item(unsigned char *out, const struct directory_item *item);
/* Reads the item at *at and moves *at behind it. False: there is none. */
bool bus_message_take_item(const unsigned char *in, size_t n, size_t *at, struct directory_item *out);
#endif
