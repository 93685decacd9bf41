/* The server's state, without its connections: sessions (one for each store that ranks have opened), their keys and
 * values, and which client waits for what.
 *
 * No request, and nothing that happens to a client, walks over the clients, the sessions or the keys. A session that
 * still forms is found by a hash of its name, a key by a hash in its session. A client that waits hangs at what it
 * waits for: at the session (JOIN), at the key (GET), or at the prefix (GATHER). A prefix counts the parts that are
 * set, so that its clients are woken once, when the last part is set. Timeouts lie in a wheel. What a request costs is
 * therefore the same with 10 and with 10,000 clients, apart from the values that are asked for.
 *
 * A server may have a service instead of stores: a directory (src/bus/), with its own state. It takes the requests of
 * its clients, and gets their connections, proofs, replies and ends from here. */
#ifndef WEFT_RENDEZVOUS_SERVER_STATE_H
#define WEFT_RENDEZVOUS_SERVER_STATE_H
#include "base/wheel.h"
#include "rendezvous/server_keys.h"

/* A client as the state sees it. Zeroed at first; a part of struct connection. */
struct server_client {
    unsigned rights;                /* of its token */
    void *part;                     /* what the service keeps for it; NULL: nothing */
    struct server_session *session; /* NULL: it has not joined one */
    struct list node;               /* in the session */
    int rank;
    bool waits;                   /* it waits for a reply, to the JOIN unless it waits for a key or a prefix */
    struct list waiting;          /* among the clients that wait for the same */
    struct wheel_timer timer;     /* when it has waited long enough */
    struct server_entry *entry;   /* GET: the key that it waits for */
    struct server_prefix *prefix; /* GATHER: the prefix that it waits for */
    int first;                    /* GATHER: it asks for the values from this rank on */
};

struct server_state;

/* What a server has instead of stores. All calls come from the server's thread. The service replies by state->answer;
 * a client that is to wait for its reply `waits` until then. */
struct server_service {
    struct server_state *state; /* server_start_service sets it */
    /* As server_state_ask, for the requests FRAME_DIRECTORY_*. */
    bool (*ask)(struct server_service *s, struct server_client *c, const struct frame_request *r, int64_t now);
    bool (*next)(struct server_service *s);                           /* as server_state_next */
    void (*leave)(struct server_service *s, struct server_client *c); /* the client's connection is over */
    int64_t (*expire)(struct server_service *s, int64_t now);         /* as server_state_expire */
};

struct server_state {
    struct server_service *service; /* NULL: stores */
    int served_by;                  /* the rank that serves; -1: the server is not a rank */
    /* Sends a reply. It must not call back into the state. */
    void (*answer)(struct server_state *d, struct server_client *c, const struct frame_reply *r);
    /* Can as many clients be served as a new session will have? False: `text` says why not. NULL: always. */
    bool (*room)(struct server_state *d, int size, char *text, size_t cap);
    struct table forming; /* names with sessions that ranks are still missing in */
    struct wheel wheel;
    struct list ready;        /* clients whose GATHER, or GET of a large value, can be answered */
    size_t sessions, clients; /* clients that have joined one */
    size_t bytes;             /* of the keys and values of all sessions */
    size_t files;             /* how many files the server may have open, when it last had none for a connection */
    int64_t files_at;         /* when that was; 0: never */
    uint64_t requests;        /* how many there were */
    uint64_t steps; /* what they cost: clients, entries and parts that were looked at, without tables and wheel */
};

/* Handles a request. The reply is sent before it returns, or later: then the client `waits`. False: the connection is
 * over, because the client leaves or breaks the protocol. */
bool server_state_ask(struct server_state *d, struct server_client *c, const struct frame_request *r, int64_t now);
/* Answers one of the clients in `ready`. The caller decides when: their replies are large, and there may be one for
 * each client. False: there is none. */
bool server_state_next(struct server_state *d);
/* The client's connection is over. If ranks of its session are still missing, the session waits for its rank again. A
 * session without clients is freed. */
void server_state_leave(struct server_state *d, struct server_client *c);
/* Answers the clients whose time is over. Returns when to call it again. */
int64_t server_state_expire(struct server_state *d, int64_t now);
bool server_state_joining(const struct server_client *c);  /* does the client wait for other ranks to join? */
uint64_t server_state_steps(const struct server_state *d); /* what all requests have cost: with tables and wheel */
void server_state_end(struct server_state *d);             /* frees what is left when there are no clients */
#endif
