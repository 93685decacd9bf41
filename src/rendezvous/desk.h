/* What a served store holds and answers, without connections: sessions (one for each store that ranks have opened),
 * their keys, and who waits for what. */
#ifndef WEFT_RENDEZVOUS_DESK_H
#define WEFT_RENDEZVOUS_DESK_H
#include "rendezvous/frame.h"

/* One who asks. Zeroed at first; part of what the server knows of a connection. */
struct desk_guest {
    struct desk_session *session; /* NULL: has not joined */
    struct desk_guest *next;      /* in the session */
    int rank;
    bool waits; /* for a reply: to JOIN, or, if there is a key, until that is set */
    int64_t until;
    char key[STORE_KEY_MAX + 1];
    size_t prefix;   /* of GATHER: letters of the key before the rank; else 0 */
    int first, seen; /* it asks for the values from rank `first` on; those before `seen` were there */
};

struct desk {
    int served_by; /* a rank; -1: by none of them */
    /* Sends a reply. It must not come back to the desk. */
    void (*answer)(struct desk_guest *g, const struct frame_reply *r);
    struct desk_session *sessions; /* oldest first */
    size_t bytes;                  /* in all of them */
};

/* Answers now, or later if the guest waits then. False: the connection is over, because the guest leaves or says what
 * it may not. */
bool desk_ask(struct desk *d, struct desk_guest *g, const struct frame_request *r, int64_t now);
/* Its connection is over. A session whose ranks have not all come goes on without it; one that nobody is in is gone. */
void desk_leave(struct desk *d, struct desk_guest *g);
/* Answers those who have waited long enough; when to do so again. */
int64_t desk_expire(struct desk *d, int64_t now);
bool desk_joining(const struct desk_guest *g); /* waits for others to join */
#endif
