/* How the ranks of a comm find each other, and again when some of them are gone. */
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
    struct environment_store *meet; /* where ranks on several hosts do; NULL: not known */
    char host[160], host_name[64];
    struct store *store; /* of this group; NULL: none was needed */
    int gathers;
    int generation; /* how often it was opened again */
};

/* From a URL's place and the options; reads the environment. */
int open_new(const struct transport *t, const char *place, const weft_comm_opts *o, struct opening **out);
int open_join(struct opening *b, struct transport_link **out);
/* The same for those ranks of a group that are left; `of` stays. Collective among them. */
int open_again(const struct opening *of, const int *ranks, int n, int rank, struct opening **out);
void open_free(struct opening *b, int64_t linger_ns);
#endif
