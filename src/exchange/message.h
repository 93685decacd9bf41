/* Messages that have come, and their memory: one block each. A block that is freed is kept for the next message of
 * about its size, since the first touch of fresh memory costs more than the copy into it. A pool lives as long as its
 * exchange or one of its messages. */
#ifndef WEFT_EXCHANGE_MESSAGE_H
#define WEFT_EXCHANGE_MESSAGE_H
#include "weft.h"

struct message_pool;

struct message {
    weft_message is;
    struct message_pool *pool;
    struct message *next; /* in a list of its owner */
    uint32_t tag;         /* the sender's tag */
    uint32_t class;       /* of its block's size */
    size_t held;          /* bytes of metadata and payload in the block */
};

struct message_pool *message_pool_new(int64_t keep); /* keeps at most `keep` bytes of free blocks; NULL: no memory */
void message_pool_leave(struct message_pool *p);     /* called by its exchange; accepts NULL */

/* A message with room for its metadata and for its payload, unless the payload goes elsewhere. NULL: no memory. From
 * any thread. */
struct message *message_new(struct message_pool *p, size_t meta_bytes, size_t bytes, bool elsewhere);
#endif
