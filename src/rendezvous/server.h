/* A process that serves tcp: stores, from a thread of its own. */
#ifndef WEFT_RENDEZVOUS_SERVER_H
#define WEFT_RENDEZVOUS_SERVER_H
#include "rendezvous/store.h"

#define SERVER_TOKEN_MIN 16 /* letters of a token */
#define SERVER_TOKEN_MAX 1024

/* Who has not proved itself yet: so many at once, so long at most, and so long before it may have to make room. */
#define SERVER_STRANGERS 256
#define SERVER_PROVE_NS INT64_C(5000000000)
#define SERVER_STAY_NS INT64_C(250000000)
#define SERVER_FRAME_NS INT64_C(10000000000) /* for a message, or for a reply to be read, once it has begun */

struct server;

/* WEFT_EINVAL: there is no token, or it is too short; `url` is for the text. */
int server_check_token(const char *token, const char *url);
/* Takes the listening socket, which no child has (base/forks.h), also when it fails. served_by is the rank of this
 * process in the stores it serves, or -1. */
int server_start(int listener, const char *token, int served_by, struct server **out);
/* Takes no more connections, waits until those who are in a store have left it or `until`, and ends. */
void server_stop(struct server *s, int64_t until);
#endif
