/* The server's state, without its connections: sessions (one for each store that ranks have opened), their keys and
 * values, and which client waits for what. */
#ifndef WEFT_RENDEZVOUS_SERVER_STATE_H
#define WEFT_RENDEZVOUS_SERVER_STATE_H
#include "rendezvous/frame.h"

/* A client as the state sees it. Zeroed at first; a part of struct connection. */
struct server_client {
    struct server_session *session; /* NULL: it has not joined one */
    struct server_client *next;     /* in the session */
    int rank;
    bool waits; /* it waits for a reply: with a key until that key is set, without one for the reply to its JOIN */
    int64_t until;
    char key[STORE_KEY_MAX + 1];
    size_t prefix;   /* GATHER: letters of the key before the rank; otherwise 0 */
    int first, seen; /* GATHER: it asks for the values from rank `first` on; all before `seen` are set */
};

struct server_state {
    int served_by; /* the rank that serves; -1: the server is not a rank */
    /* Sends a reply. It must not call back into the state. */
    void (*answer)(struct server_client *c, const struct frame_reply *r);
    struct server_session *sessions; /* oldest first */
    size_t bytes;                    /* of the keys and values of all sessions */
};

/* Handles a request. The reply is sent before it returns, or later: then the client `waits`. False: the connection is
 * over, because the client leaves or breaks the protocol. */
bool server_state_ask(struct server_state *d, struct server_client *c, const struct frame_request *r, int64_t now);
/* The client's connection is over. If ranks of its session are still missing, the session waits for its rank again. A
 * session without clients is freed. */
void server_state_leave(struct server_state *d, struct server_client *c);
/* Answers the clients whose time is over. Returns when to call it again. */
int64_t server_state_expire(struct server_state *d, int64_t now);
bool server_state_joining(const struct server_client *c); /* does the client wait for other ranks to join? */
#endif
