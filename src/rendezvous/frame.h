/* The store's protocol over TCP, version 2. All numbers are little-endian.
 *
 * A token is known to the server and to all ranks. K = hash(token), and hash(x) below is BLAKE2b of 32 bytes with the
 * key K. Each connection begins with:
 *
 *   client   "weft-st2", a[32]                a and b are fresh random numbers
 *   server   "weft-st2", b[32]
 *   client   hash("client proves" a b)        the client proves itself first, so that one who only asks learns nothing
 *   server   0, hash("server proves" a b)     or 1 and zeros: refused
 *
 * What is recorded on one connection is of no use on another, since one of a and b differs. From then on each side
 * sends frames, sealed (ChaCha20-Poly1305) by a key of its own, hash("client sends" a b) and hash("server sends" a b):
 *
 *   length[4]   of what follows, FRAME_FRAME_MAX at most; it is authenticated, too
 *   sealed      message and 16 bytes of tag; the nonce is the number of the frame in its direction, from 0 on
 *
 * so that one which is changed, left out, repeated or put elsewhere is not opened, and ends the connection.
 *
 * A client's message is a request, the server's one reply to it; the next request comes after the reply. */
#ifndef WEFT_RENDEZVOUS_FRAME_H
#define WEFT_RENDEZVOUS_FRAME_H
#include "rendezvous/sodium.h"
#include "rendezvous/store.h"

#define FRAME_MAGIC "weft-st2"
#define FRAME_MAGIC_SIZE 8
#define FRAME_NONCE 32
#define FRAME_PROOF 32
#define FRAME_HELLO (FRAME_MAGIC_SIZE + FRAME_NONCE) /* the first message of either side */
#define FRAME_VERDICT (1 + FRAME_PROOF)              /* the server's second one */

#define FRAME_LENGTH 4
#define FRAME_HEAD 16                         /* of a request and of a reply */
#define FRAME_REPLY_MAX (STORE_VALUE_MAX + 4) /* bytes of a reply's value */
#define FRAME_MESSAGE_MAX (FRAME_HEAD + STORE_KEY_MAX + STORE_VALUE_MAX)
#define FRAME_FRAME_MAX (FRAME_MESSAGE_MAX + SODIUM_TAG)

/* ---- messages ---- */

/* JOIN has to be the first: key is the store's name (or empty), number the rank + (size << 32); it is answered when all
 * ranks have joined, with the rank of the server, or -1 for one that is none. GET waits for the key, wait_ms at most;
 * its reply is the value, which may be longer than asked for. GATHER waits for KEY/r of all ranks r from `number` on;
 * its reply has as many of them as fit, one at least, each as length[4] and value, and how many in its number. LEAVE
 * has no reply. */
enum frame_op { FRAME_JOIN = 1, FRAME_SET, FRAME_GET, FRAME_GATHER, FRAME_LEAVE };

/* op[1], bytes of the key[1], 0[2], wait_ms[4], number[8], key, value */
struct frame_request {
    enum frame_op op;
    uint32_t wait_ms;
    int64_t number;
    const char *key; /* not closed by a zero */
    size_t key_len;
    const unsigned char *value;
    size_t bytes;
};

/* code[4], 0[4], number[8], value; with a code, which is weft's, the value is the text of the error */
struct frame_reply {
    int code;
    int64_t number;
    const unsigned char *value;
    size_t bytes;
};

/* Into FRAME_MESSAGE_MAX bytes; how many it has. Limits are kept by the caller. */
size_t frame_put_request(unsigned char *out, const struct frame_request *r);
size_t frame_put_reply(unsigned char *out, const struct frame_reply *r);
/* Views of the bytes. False: it is none. */
bool frame_take_request(const unsigned char *in, size_t n, struct frame_request *r);
bool frame_take_reply(const unsigned char *in, size_t n, struct frame_reply *r);

/* ---- one end of a connection ---- */

struct frame_end {
    const struct sodium *sodium;
    bool server;
    unsigned char key[SODIUM_KEY];         /* of the token, until the proofs are made */
    unsigned char nonces[2 * FRAME_NONCE]; /* a and b */
    unsigned char sends[SODIUM_KEY], takes[SODIUM_KEY];
    uint64_t sent, taken; /* frames */
};

void frame_token_key(const struct sodium *na, const char *token, unsigned char key[SODIUM_KEY]);
/* Draws this end's number and writes its hello. */
void frame_begin(struct frame_end *e, const struct sodium *na, bool server, const unsigned char key[SODIUM_KEY],
                 unsigned char hello[FRAME_HELLO]);
/* The other end's hello; false: it is not of this protocol. Then all keys are made. */
bool frame_meet(struct frame_end *e, const unsigned char hello[FRAME_HELLO]);
void frame_prove(const struct frame_end *e, unsigned char proof[FRAME_PROOF]);
bool frame_believe(const struct frame_end *e, const unsigned char proof[FRAME_PROOF]); /* is the other end's right? */
void frame_forget(struct frame_end *e);                                                /* the keys */

/* The frame of a message: n + FRAME_LENGTH + SODIUM_TAG bytes. */
size_t frame_seal(struct frame_end *e, const unsigned char *message, size_t n, unsigned char *frame);
/* What follows a length: 0 for one that no frame has. */
size_t frame_length(const unsigned char length[FRAME_LENGTH]);
/* Opens `n` bytes behind a length, in place: the message has n - SODIUM_TAG bytes. False: it was not sealed by the
 * other end as its next frame. */
bool frame_open(struct frame_end *e, unsigned char *sealed, size_t n);
#endif
