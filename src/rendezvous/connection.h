/* The server's end of one connection, from its first byte to its last, without the socket. It says how many bytes it
 * wants next and where, takes them, and fills a buffer with the bytes to send. Before the client has proved that it
 * has the token, it takes 73 bytes in all. */
#ifndef WEFT_RENDEZVOUS_CONNECTION_H
#define WEFT_RENDEZVOUS_CONNECTION_H
#include "rendezvous/server_state.h"

enum connection_stage { CONNECTION_HELLO, CONNECTION_PROOF, CONNECTION_LENGTH, CONNECTION_MESSAGE };

/* The tokens that a server has, as keys, and what a client that has one of them may do (server_client.rights). */
#define CONNECTION_KEYS 2
struct connection_keys {
    int n;
    struct {
        unsigned char key[SODIUM_KEY];
        unsigned rights;
    } of[CONNECTION_KEYS];
};

struct connection {
    struct server_client client; /* first */
    enum connection_stage stage;
    struct frame_end end;
    size_t have, want;
    int64_t since; /* when it was accepted; after the proof: when the message that is under way began, or 0 */
    unsigned char first[FRAME_HELLO];
    unsigned char *in;  /* the message that is being read, of `want` bytes */
    unsigned char *out; /* the bytes from out_at to out_end are to be sent */
    size_t out_at, out_end;
    bool broken; /* nothing can be sent any more: memory was out */
};

/* Sets all fields. */
void connection_begin(struct connection *c, int64_t now);
void connection_end(struct connection *c, struct server_state *d);
/* Where the next bytes go and how many there may be. 0: none may be read before the bytes in `out` are sent and the
 * state has answered. */
size_t connection_room(struct connection *c, unsigned char **at);
/* n bytes have been read there. False: the connection is over; `out` may still hold a last message to send. */
bool connection_take(struct connection *c, size_t n, struct server_state *d, const struct sodium *na,
                     const struct connection_keys *keys, int64_t now);
bool connection_known(const struct connection *c); /* has the client proved that it has the token? */
/* A server_state.answer: puts the reply into `out`. */
void connection_answer(struct server_state *d, struct server_client *c, const struct frame_reply *r);
/* All of `out` has been sent. */
void connection_sent(struct connection *c);
#endif
