/* The client's end of a connection to a server: bytes with a deadline, and the proofs of frame.h. */
#ifndef WEFT_RENDEZVOUS_DIAL_H
#define WEFT_RENDEZVOUS_DIAL_H
#include "rendezvous/frame.h"

/* Send or receive n bytes on a socket that does not block. They return 0, or an errno: ETIMEDOUT if the time is over,
 * ECONNRESET if the other end has closed the connection. */
int dial_send(int fd, const unsigned char *bytes, size_t n, int64_t until);
int dial_receive(int fd, unsigned char *bytes, size_t n, int64_t until);
/* The same for a caller that may come back: *have of the n bytes are there, also after ETIMEDOUT. */
int dial_receive_more(int fd, unsigned char *bytes, size_t *have, size_t n, int64_t until);

enum dial_result {
    DIAL_PROVED,
    DIAL_AGAIN,   /* try again, *why is the errno. The server is silent, or has closed the connection, as it does with
                     newcomers when there are too many */
    DIAL_FULL,    /* try again: the server may have *full files open, and has none left */
    DIAL_STRANGE, /* it is not a server of weft, or it is one of another version */
    DIAL_REFUSED, /* it has another token */
    DIAL_FALSE    /* it cannot prove that it has the token */
};
/* Proves to the server that this process has the token, and has the server prove it. *end is what frames are sealed
 * with afterwards. ciphers: those of frame.h that it may be sealed with. */
enum dial_result dial_prove(int fd, const struct sodium *na, const char *token, unsigned ciphers, int64_t until,
                            struct frame_end *end, int *why, uint64_t *full);
#endif
