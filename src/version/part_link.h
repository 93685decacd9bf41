/* A connection by which a reader asks a process for parts of versions, version 2 of the protocol.
 *
 * Processes of one host use a socket of the system's own kind (AF_UNIX, a name without a file): the server takes
 * connections of its own user and of root, and tells so by closing others. Other hosts use TCP: both ends prove, by
 * frame.h, that they know the secret of the slot's or the relay's record, and all frames are sealed. Whoever may read
 * the directory knows the secret.
 *
 * A request is a part_link_message, the name of the set, and for TAKE and AWAIT a bitmap. A reply is a
 * part_link_message with a code. Then `bytes` bytes follow in frames of at most PART_LINK_CHUNK, each with a first
 * byte: 0, or 1 if the data was torn, which ends it. If the code is not 0, the bytes are a text that says why, and
 * there may be none.
 *
 *   LAYOUTS   the bytes of the schema
 *   PART      the digests of the blocks of a part, and the generation of its memory; with PART_LINK_FILE, one byte
 *             follows that carries the memory's descriptor, if the reply has this flag, too: a part that is lent has
 *             none
 *   READ      bytes [at, at + count) of a part
 *   TAKE      some of the blocks [at, at + count) whose bits are set, at most `most` bytes, chosen by the server: a
 *             publisher gives a block that it has given to another host only if that one is `lost`, or if the reader
 *             insists. The reply has `count` part_link_block, then the bytes of these blocks in order. A block that is
 *             shorter than it should be is a delta (delta.h) to version (epoch, base), which the reader said that it
 *             has. No blocks: the server has none to give now. With PART_LINK_WAIT a relay waits a moment for one.
 *   AWAIT     of a relay, from its own host: blocks [at, at + count) whose bits are set are wanted. With
 *             PART_LINK_WAIT the relay waits a moment for them. With PART_LINK_WRONG their digests did not fit: the
 *             relay looks at all of their bytes, and pulls those again that are wrong. The reply's `count` is how many
 *             are missing still.
 *
 *   KEEP      of an agent, from its own host: the publisher that asks has a part that the agent is to hold. who, lost:
 *             the hash of its digests; PART_LINK_DIGESTS: it has some. The agent asks that publisher for the part, as a
 *             reader does, and replies when it has it.
 *
 * With PART_LINK_RELAY the relay of a host is meant (bus_relay.h), otherwise the rank of a publisher. */
#ifndef WEFT_VERSION_PART_LINK_H
#define WEFT_VERSION_PART_LINK_H
#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/frame.h"

#define PART_LINK_MAGIC UINT32_C(0x32706277) /* "wbp2" */
#define PART_LINK_CHUNK 131072               /* two blocks */
#define PART_LINK_HEAD 16                    /* a sealed frame has at least that many bytes */
_Static_assert(PART_LINK_HEAD + PART_LINK_CHUNK <= FRAME_MESSAGE_MAX, "a frame has room for them");

#define PART_LINK_BLOCKS 524288             /* bits of a bitmap */
#define PART_LINK_MOST (INT64_C(1) << 20)   /* bytes of the blocks of one reply */
#define PART_LINK_WAIT_NS INT64_C(20000000) /* a moment */

enum part_link_op {
    PART_LINK_LAYOUTS = 1,
    PART_LINK_PART,
    PART_LINK_READ,
    PART_LINK_TAKE,
    PART_LINK_AWAIT,
    PART_LINK_KEEP
};
enum part_link_flag {
    PART_LINK_FILE = 1,
    PART_LINK_RELAY = 2,
    PART_LINK_INSIST = 4,
    PART_LINK_BASE = 8,
    PART_LINK_WAIT = 16,
    PART_LINK_DIGESTS = 32,
    PART_LINK_WRONG = 64
};

struct part_link_message {
    uint32_t magic;
    int32_t op; /* of a request; of a reply: its code, 0 or one of weft's errors */
    int32_t rank;
    uint32_t flags;
    int64_t epoch, step;
    uint64_t generation; /* of a publisher: that of the part's record */
    int64_t at, count;
    int64_t bytes;       /* of a reply */
    uint64_t who, lost;  /* TAKE: the host that asks, as a hash; one that it cannot take blocks from, or 0 */
    int64_t base;        /* TAKE with PART_LINK_BASE: the step that the reader has */
    uint32_t name, most; /* bytes of the set's name; TAKE: of the blocks */
};
struct part_link_block {
    uint32_t block, bytes;
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
/* One frame of data, at most PART_LINK_CHUNK bytes, without a copy: they are sealed from where they are, or in
 * part_link_room, and are sent when the caller has seen that they were not torn meanwhile. 0: there is no memory. */
unsigned char *part_link_room(struct part_link *l);
size_t part_link_seal(struct part_link *l, bool torn, const unsigned char *bytes, size_t n);
int part_link_send_sealed(struct part_link *l, size_t size, int64_t until);
/* The other end of it: at most `room` bytes. Without *torn there is one at least. */
int part_link_receive_data(struct part_link *l, bool *torn, unsigned char *to, size_t room, size_t *n, int64_t until);
/* A file descriptor, over a socket of the system's own kind. */
int part_link_send_file(struct part_link *l, int fd, int64_t until);
int part_link_receive_file(struct part_link *l, int *fd, int64_t until);
#endif
