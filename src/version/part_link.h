/* A connection by which a reader asks a publisher's process for parts of versions, version 1 of the protocol.
 *
 * Processes of one host use a socket of the system's own kind (AF_UNIX, a name without a file): the server takes
 * connections of its own user and of root, and tells so by closing others. Other hosts use TCP: both ends prove, by
 * frame.h, that they know the secret of the slot's record, and all frames are sealed. Whoever may read the directory
 * knows the secret.
 *
 * A message is a part_link_message, and for a request the name of the set. A reply has a code; if it is 0, `bytes`
 * bytes follow in frames of at most PART_LINK_CHUNK, each with a first byte: 0, or 1 if the data was torn, which ends
 * it.
 *
 *   LAYOUTS   the bytes of the schema
 *   PART      the digests of the blocks of a part; with `file`, one byte follows that carries the snapshot's descriptor
 *   READ      bytes [at, at + count) of a part */
#ifndef WEFT_VERSION_PART_LINK_H
#define WEFT_VERSION_PART_LINK_H
#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/frame.h"

#define PART_LINK_MAGIC UINT32_C(0x31706277) /* "wbp1" */
#define PART_LINK_CHUNK 98304
#define PART_LINK_HEAD 16 /* a sealed frame has at least that many bytes */

enum part_link_op { PART_LINK_LAYOUTS = 1, PART_LINK_PART, PART_LINK_READ };

struct part_link_message {
    uint32_t magic;
    int32_t op; /* of a request; of a reply: its code, 0 or one of weft's errors */
    int32_t rank;
    int32_t file; /* the descriptor is wanted */
    int64_t epoch, step;
    uint64_t generation;
    int64_t at, count;
    int64_t bytes; /* of a reply */
};

struct part_link {
    int fd;
    bool sealed;
    struct frame_end end;
    unsigned char *buffer; /* of PART_LINK_ROOM bytes */
    unsigned char *frame;
};
#define PART_LINK_ROOM (FRAME_LENGTH + FRAME_FRAME_MAX)

/* Takes over the socket. */
int part_link_begin(struct part_link *l, int fd);
void part_link_end(struct part_link *l);
/* One frame. They return 0 or an errno; EPROTO: the bytes do not fit the protocol. receive sets *message to memory of
 * the link. */
int part_link_send(struct part_link *l, const void *message, size_t n, int64_t until);
int part_link_receive(struct part_link *l, const unsigned char **message, size_t *n, int64_t until);
/* A file descriptor, over a socket of the system's own kind. */
int part_link_send_file(struct part_link *l, int fd, int64_t until);
int part_link_receive_file(struct part_link *l, int *fd, int64_t until);
#endif
