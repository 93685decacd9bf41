/* How the ranks of a comm find each other, and again when some of them are gone. */
#ifndef WEFT_COMM_OPEN_H
#define WEFT_COMM_OPEN_H
#include "comm/environment.h"
#include "rendezvous/store.h"
#include "transport/transport.h"
#include "weft.h"

struct boot {
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
int boot_new(const struct transport *t, const char *place, const weft_comm_opts *o, struct boot **out);
int boot_join(struct boot *b, struct transport_link **out);
/* The same for those ranks of a group that are left; `of` stays. Collective among them. */
int boot_again(const struct boot *of, const int *ranks, int n, int rank, struct boot **out);
void boot_free(struct boot *b, int64_t linger_ns);
#endif
