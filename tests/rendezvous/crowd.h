/* Many clients of a tcp: store in one thread. They do the same at the same time: all send a request, then all take the
 * reply. So a server meets as many clients as there may be ranks, without as many processes. */
#ifndef WEFT_TESTS_CROWD_H
#define WEFT_TESTS_CROWD_H
#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/address.h"
#include "rendezvous/frame.h"

struct crowd {
    int n;
    struct crowd_client {
        int fd;
        struct frame_end end;
        int got; /* values that it has gathered so far */
    } * client;
    unsigned char *message, *frame;
    char text[256]; /* what went wrong first */
};

/* All return false when something goes wrong, and say what in `text`. */
bool crowd_connect(struct crowd *c, int n, const struct address *at, const char *token);
bool crowd_join(struct crowd *c, const char *name);
/* Every rank sets "PREFIX/r" to a value of its own. */
bool crowd_offer(struct crowd *c, const char *prefix, size_t bytes);
/* Every rank gets the value of the rank that is `step` after its own, and looks at it. */
bool crowd_part(struct crowd *c, const char *prefix, int step, size_t bytes);
/* All ranks but the first wait for a key, and then the first one sets it. */
bool crowd_await(struct crowd *c, const char *key);
/* All ranks get the values of all, a chunk in each round. */
bool crowd_gather(struct crowd *c, const char *prefix, size_t bytes);
/* One client sends a request; it takes the reply, which points into memory of the crowd. False also for a reply with an
 * error code. */
bool crowd_ask(struct crowd *c, int i, enum frame_op op, const char *key, int64_t number, uint32_t wait_ms);
bool crowd_reply(struct crowd *c, int i, struct frame_reply *r);
void crowd_leave(struct crowd *c);
#endif
