/* The protocol of stores and of directories over TCP, version 6. All numbers are little-endian.
 *
 * A token is known to the server and to all ranks. K = hash(token), and hash(x) below is BLAKE2b of 32 bytes with the
 * key K. Each connection begins with:
 *
 *   client   "weft-st6", a[33]                a and b are 32 fresh random bytes, and the ciphers that the end has
 *   server   "weft-st6", b[33]
 *   client   hash("client proves" a b)        the client proves first: a stranger learns nothing
 *   server   0, hash("server proves" a b)     or 1 and zeros: the client is refused
 *
 * A server that has no file left for a connection sends "weft-ful" and the number of files that it may have open[8]
 * instead of its hello, and closes it. This is not proved: a client tries again, as it does when it is refused.
 *
 * To a client of another version ("weft-st" and another digit) it sends "weft-st6" and zeros[33], and closes it: the
 * client sees that the version differs.
 *
 * A recorded connection cannot be replayed, since a or b differs each time. After the proofs each side sends frames. It
 * seals them with a key of its own, hash("client sends" a b) or hash("server sends" a b):
 *
 *   length[4]   of what follows, at most FRAME_FRAME_MAX; it is authenticated, too
 *   sealed      message and 16 bytes of tag; the nonce is the number of the frame in its direction, from 0 on
 *
 * A frame that was changed, left out, repeated or moved is not opened, and ends the connection.
 *
 * The cipher is AES-256-GCM if both ends have named it, otherwise ChaCha20-Poly1305, which every end has. Somebody on
 * the way who changes what an end has named changes a or b for the other end, so the proofs do not fit: nobody can
 * make two ends take the slower cipher, or one that an end does not have. An end names AES only where the processor
 * has instructions for it; without them it is slow, and its time tells of the key.
 *
 * After FRAME_KEY_FRAMES frames of a direction its key becomes hash("next key") with the key before as the key. So one
 * key seals less than 2^38 bytes in at most 2^20 messages, and no nonce is used twice with a key. Of AES these are at
 * most 2^34 blocks: somebody who sees them all tells them from random bytes with a chance below 2^-60.
 *
 * A server may have several tokens, each with rights of its own: the client's proof says which one it has.
 *
 * A client sends a request, the server sends one reply to it, and only then does the client send the next request. */
#ifndef WEFT_RENDEZVOUS_FRAME_H
#define WEFT_RENDEZVOUS_FRAME_H
#include "rendezvous/sodium.h"
#include "rendezvous/store.h"

#define FRAME_MAGIC "weft-st6"
#define FRAME_MAGIC_SIZE 8
#define FRAME_FULL "weft-ful" /* of the same size */
#define FRAME_NONCE 32
#define FRAME_SAYS (FRAME_NONCE + 1) /* a or b */
#define FRAME_PROOF 32
#define FRAME_HELLO (FRAME_MAGIC_SIZE + FRAME_SAYS) /* the first message of either side */
#define FRAME_DECISION (1 + FRAME_PROOF)            /* the server's second one */
#define FRAME_KEY_FRAMES (UINT64_C(1) << 20)

#define FRAME_LENGTH 4
#define FRAME_HEAD 16               /* of a request and of a reply */
#define FRAME_TRANSACTION_MAX 98304 /* bytes of a transaction */
#define FRAME_REPLY_MAX 131072      /* bytes of a reply's value: all that one transaction can change fits */
#define FRAME_MESSAGE_MAX (FRAME_HEAD + FRAME_REPLY_MAX)
#define FRAME_FRAME_MAX (FRAME_MESSAGE_MAX + SODIUM_TAG)

/* ---- messages ---- */

/* JOIN must be the first request: key is the store's name (or empty), number is rank + (size << 32). The server answers
 * it when all ranks have joined; the reply's number is the rank that serves, or -1 if the server is not a rank. GET
 * waits for the key, at most wait_ms; its reply is the value, which may be longer than the client has room for. GATHER
 * waits for KEY/r of all ranks r; its reply has the values from rank `number` on, as many as fit, at least one, each as
 * length[4] and value, and the reply's number says how many. LEAVE has no reply.
 *
 * The others are for a server of a directory, which needs no JOIN; src/bus/bus_message.h says what they mean and what
 * their values are. */
enum frame_op {
    FRAME_JOIN = 1,
    FRAME_SET,
    FRAME_GET,
    FRAME_GATHER,
    FRAME_LEAVE,
    FRAME_DIRECTORY_GET,
    FRAME_DIRECTORY_TRANSACT,
    FRAME_DIRECTORY_GRANT,
    FRAME_DIRECTORY_RENEW,
    FRAME_DIRECTORY_REVOKE,
    FRAME_DIRECTORY_WATCH
};

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

/* code[4], 0[4], number[8], value. The code is 0 or one of weft's errors; for an error the value is its text. */
struct frame_reply {
    int code;
    int64_t number;
    const unsigned char *value;
    size_t bytes;
};

/* Write a message into FRAME_MESSAGE_MAX bytes and return its length. The caller has checked the limits. */
size_t frame_put_request(unsigned char *out, const struct frame_request *r);
size_t frame_put_reply(unsigned char *out, const struct frame_reply *r);
/* Read a message; the result points into the bytes. False: it is not one. */
bool frame_take_request(const unsigned char *in, size_t n, struct frame_request *r);
bool frame_take_reply(const unsigned char *in, size_t n, struct frame_reply *r);

/* ---- one end of a connection ---- */

/* Bits of a hello. FRAME_CHACHA is always set; bits that an end does not know say nothing to it. */
enum frame_cipher { FRAME_CHACHA = 1, FRAME_AES = 2 };

struct frame_end {
    const struct sodium *sodium;
    bool server, aes;
    unsigned char key[SODIUM_KEY];      /* of the token, until the proofs are made */
    unsigned char says[2 * FRAME_SAYS]; /* a and b */
    unsigned char sends[SODIUM_KEY], takes[SODIUM_KEY];
    uint64_t sent, taken; /* frames */
};

void frame_token_key(const struct sodium *na, const char *token, unsigned char key[SODIUM_KEY]);
/* The ciphers for data: all that this process has. Ends that send short messages take FRAME_CHACHA. */
unsigned frame_ciphers(void);
/* Draws this end's random number and writes its hello. */
void frame_begin(struct frame_end *e, const struct sodium *na, bool server, const unsigned char key[SODIUM_KEY],
                 unsigned ciphers, unsigned char hello[FRAME_HELLO]);
/* What the first bytes of the other end say it is: of this protocol, of another version of it, or nothing of weft. */
enum frame_version { FRAME_SAME, FRAME_OTHER, FRAME_NONE };
enum frame_version frame_version(const unsigned char magic[FRAME_MAGIC_SIZE]);
/* Takes the other end's hello, chooses the cipher and makes all keys. False: it is not of this protocol. */
bool frame_meet(struct frame_end *e, const unsigned char hello[FRAME_HELLO]);
/* The same once more with the key of another token: the server tries those that it has. */
void frame_rekey(struct frame_end *e, const unsigned char key[SODIUM_KEY]);
void frame_prove(const struct frame_end *e, unsigned char proof[FRAME_PROOF]);
/* Is the other end's proof right? */
bool frame_believe(const struct frame_end *e, const unsigned char proof[FRAME_PROOF]);
void frame_forget(struct frame_end *e); /* wipes the keys */

/* Writes the frame of a message, n + FRAME_LENGTH + SODIUM_TAG bytes, and returns their number. With AES it is 0 if
 * there was no memory: the connection is over. */
size_t frame_seal(struct frame_end *e, const unsigned char *message, size_t n, unsigned char *frame);
/* The same for `nhead` bytes and then `n` bytes. The latter may be where they will be in the frame. */
size_t frame_seal_parts(struct frame_end *e, const unsigned char *head, size_t nhead, const unsigned char *message,
                        size_t n, unsigned char *frame);
/* How many bytes follow this length; 0: no frame has it. */
size_t frame_length(const unsigned char length[FRAME_LENGTH]);
/* Opens the `n` bytes after a length, in place: the message has n - SODIUM_TAG bytes. False: they are not the next
 * frame that the other end has sealed. */
bool frame_open(struct frame_end *e, unsigned char *sealed, size_t n);
/* The same with the first `nhead` bytes of the message in `head`, and the others in `to`. */
bool frame_open_parts(struct frame_end *e, unsigned char *sealed, size_t n, unsigned char *head, size_t nhead,
                      unsigned char *to);
#endif
