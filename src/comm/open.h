/* How the ranks of a comm find each other when it is opened, and how the survivors do after a failure. */
#ifndef WEFT_COMM_OPEN_H
#define WEFT_COMM_OPEN_H
#include "comm/environment.h"
#include "rendezvous/store.h"
#include "transport/transport.h"
#include "weft.h"

struct opening {
    const struct transport *transport;
    struct transport_ask ask;
    char *place, *modules, *wire;
    struct environment_store *meet; /* where ranks on several hosts meet; NULL: not known */
    char host[160], host_name[64];
    struct store *store;   /* of this group; NULL: none was needed */
    unsigned char key[32]; /* ask.key points to it, if there is a token */
    int rosters;           /* how many were made */
    int generation;        /* how often it was opened again */
};

/* Makes an opening from a URL's place and the options; reads the environment. */
int open_new(const struct transport *t, const char *place, const weft_comm_opts *o, struct opening **out);
int open_join(struct opening *b, struct transport_link **out);
/* The same for the survivors of a group, and collective among them. `of` stays. `watch` is asked
 * while ranks wait, also in open_join, until open_end. */
int open_again(const struct opening *of, const int *ranks, int n, int rank, const struct store_watch *watch,
               struct opening **out);
void open_end(struct opening *b);
void open_free(struct opening *b, int64_t linger_ns);
#endif
