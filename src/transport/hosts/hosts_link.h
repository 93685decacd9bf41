/* What the files of groups on several hosts share. */
#ifndef WEFT_TRANSPORT_HOSTS_HOSTS_LINK_H
#define WEFT_TRANSPORT_HOSTS_HOSTS_LINK_H
#include <pthread.h>

#include "transport/hosts/hosts.h"

struct hosts_link {
    struct transport_link base;
    struct transport_hosts hosts;
    struct roster roster; /* what the tables of `hosts` are in */
    bool reading;         /* the caller has the first early mail */

    /* The thread that wakes this rank, which sleeps on its bell, when the wire brings something. */
    pthread_t sentinel;
    bool watched;
    int events, stop; /* events: an epoll of the wire (one shot) and of `stop`, an eventfd */
};

/* ---- hosts_link.c ---- */
int hosts_link_tags(struct transport_hosts *h, int size); /* zeroed, for `size` ranks */
/* Each rank's number in `home` of the first rank of the host, from malloc; -1: it is on another host. NULL: no
 * memory. */
int *hosts_link_near(const struct transport_hosts *h, int size);
/* Also for a link that is half made, with events and stop at -1. */
void hosts_link_free(struct hosts_link *l);

/* ---- hosts_sleep.c ---- */
int hosts_sleep_post(struct hosts_link *l);     /* starts the sentinel of a link that has its wire */
void hosts_sleep_dismiss(struct hosts_link *l); /* ends the sentinel, if there is one */

/* ---- hosts_early.c ---- */
int hosts_early_keep(struct transport_hosts *h, int peer, const void *bytes,
                     size_t n); /* mail, for hosts_early_fetch */
void hosts_early_free(struct transport_hosts *h);

/* ---- hosts_join.c ---- */
/* As `join` of struct transport, for transport t and a wire of this URL. alone: every rank is a host of its own. */
int hosts_join(const struct transport_ask *ask, const struct transport *t, const char *url, bool alone,
               struct transport_link **out);

/* ---- hosts_split.c ---- */
int hosts_split(struct transport_link *l, const int *ranks, int size, int rank, uint64_t *place,
                struct transport_link **out); /* as in struct transport */
#endif
