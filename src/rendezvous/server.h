/* A process that serves tcp: stores, from a thread of its own. */
#ifndef WEFT_RENDEZVOUS_SERVER_H
#define WEFT_RENDEZVOUS_SERVER_H
#include "rendezvous/store.h"

#define SERVER_TOKEN_MIN 16 /* letters of a token */
#define SERVER_TOKEN_MAX 1024

/* Strangers are connections that have not proved yet that they have the token. */
#define SERVER_STRANGERS 256                /* most strangers at once */
#define SERVER_PROVE_NS INT64_C(5000000000) /* within which a stranger must have proved itself */
#define SERVER_STAY_NS INT64_C(250000000)   /* time for which a stranger is not closed to make room for another one */
#define SERVER_FRAME_NS \
    INT64_C(10000000000) /* within which a message that has begun must end, and a reply must be read */

struct server;

/* Returns 0, or WEFT_EINVAL: there is no token, or its length is wrong. `url` is for the text. */
int server_check_token(const char *token, const char *url);
/* Takes over the listening socket, also when it fails; forked children do not have it (base/forks.h). served_by is the
 * rank of this process in the stores that it serves, or -1. */
int server_start(int listener, const char *token, int served_by, struct server **out);
/* The same for a service instead of stores, which the caller frees after server_stop. A client has to have one of the
 * tokens, and gets the rights of it. */
struct server_service;
struct server_token {
    const char *token;
    unsigned rights;
};
int server_start_service(int listener, const struct server_token *tokens, int ntokens, struct server_service *service,
                         struct server **out);
/* Accepts no more connections, waits until all clients have left their stores, or until `until`, and ends. */
void server_stop(struct server *s, int64_t until);

/* What the server has done so far, since it was started. For measurements: the call waits for the server's thread. */
struct server_counts {
    uint64_t requests;
    uint64_t steps;          /* connections, clients, keys, timers and parts that it looked at */
    uint64_t sent, received; /* bytes */
    int64_t cpu_ns;          /* of the server's thread */
    uint64_t connections;    /* that there are now */
};
void server_counts(struct server *s, struct server_counts *out);
#endif
