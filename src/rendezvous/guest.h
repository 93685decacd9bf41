/* One connection as the server sees it: from the first byte to the last, without a socket. It says how many bytes it
 * wants next and where, takes them, and fills a buffer with what is to be sent. Before the proof that is 72 bytes in
 * all. */
#ifndef WEFT_RENDEZVOUS_GUEST_H
#define WEFT_RENDEZVOUS_GUEST_H
#include "rendezvous/desk.h"

enum guest_stage { GUEST_HELLO, GUEST_PROOF, GUEST_LENGTH, GUEST_MESSAGE };

struct guest {
    struct desk_guest at_desk; /* first */
    enum guest_stage stage;
    struct frame_end end;
    size_t have, want;
    int64_t since; /* when it came; from the proof on, when the message that is on its way began, or 0 */
    unsigned char first[FRAME_HELLO];
    unsigned char *in;  /* of `want` bytes: a message */
    unsigned char *out; /* to be sent, from out_at to out_end */
    size_t out_at, out_end;
    bool broken; /* nothing can be sent to it */
};

/* Zeroes all; out of memory is told by guest_room. */
void guest_begin(struct guest *g, int64_t now);
void guest_end(struct guest *g, struct desk *d);
/* Where the next bytes go and how many there may be; 0: none before what is in `out` is sent and the desk has answered.
 */
size_t guest_room(struct guest *g, unsigned char **at);
/* n bytes came there. False: the connection is over; out may still have a last word. */
bool guest_take(struct guest *g, size_t n, struct desk *d, const struct sodium *na, const unsigned char *key,
                int64_t now);
bool guest_known(const struct guest *g);                              /* has it proved itself? */
void guest_answer(struct desk_guest *g, const struct frame_reply *r); /* for the desk */
#endif
