/* What the files of groups on several hosts share: hosts.c joins them, hosts_split.c splits them. */
#ifndef WEFT_TRANSPORT_HOSTS_HOSTS_LINK_H
#define WEFT_TRANSPORT_HOSTS_HOSTS_LINK_H
#include <pthread.h>

#include "transport/hosts/hosts.h"

struct hosts_link {
    struct transport_link base;
    struct transport_hosts hosts;
    bool reading; /* the first early mail has been given out */

    /* Wakes this rank, which sleeps on its bell, when something comes by the wire. */
    pthread_t sentinel;
    bool watched;
    int events, stop; /* an epoll with the wire, each time once, and with `stop`, an eventfd */
};

int hosts_tables(struct transport_hosts *h, int size); /* zeroed, for so many ranks */
int hosts_post_sentinel(struct hosts_link *l);         /* for a link that has its wire */
void hosts_link_free(struct hosts_link *l);            /* also one that is half made, with events and stop at -1 */
int hosts_split(struct transport_link *l, const int *ranks, int size, int rank, uint64_t *place,
                struct transport_link **out); /* as in struct transport */
#endif
