/* A process on the bus. Files of this folder, from the bottom up:
 *
 *     record.c        records and keys of the directory
 *     schema.c        a set's tensors, and what a rank's part is made of
 *     snapshot.c      memory files with a generation word
 *     block_sums.c    digests, computed while data is copied
 *     job_metrics.c   what this process has done
 *     keeper.c        the connection to the directory: lease, keys that are put again
 *     catalog.c       what the directory says about a set
 *     part_link.c, part_server.c, part_client.c    how a reader asks a publisher's process for a part
 *     part_blocks.c   which blocks a reader of another host is given
 *     layouts.c       a version's list of tensors, from one of its holders
 *     bus_relay.c, bus_relay_pull.c    what a host has pulled, for its readers and for other hosts
 *     bus.c           opening and closing
 *     publish.c and those that publish.h lists    a publisher
 *     bus_agent.c     a process that holds the snapshots of its host
 *     reader_plan.c   from the layouts of both sides: what a reader copies from which rank
 *     subscribe.c     subscribers, pins
 *     fetch_version.c and those that fetch_version.h lists    reading one version on this rank
 *     fetch.c         which version, on all ranks
 *     fetching.c      the same in the background
 *     bus_describe.c, doctor.c    what a set has, and what is wrong with it
 *     swap.c          all ranks or none */
#ifndef WEFT_VERSION_BUS_H
#define WEFT_VERSION_BUS_H
#include "version/job_metrics.h"
#include "version/keeper.h"
#include "version/part_server.h"

struct weft_bus {
    struct keeper keeper;
    char *url, *token, *listen; /* token and listen may be NULL */
    int64_t deadline_ns;
    char job[WEFT_BUS_NAME + 1];
    char host[64]; /* the same for processes that reach each other's sockets without TCP */
    unsigned forks;
    pthread_mutex_t lock;
    struct part_server *server; /* NULL: nothing was published yet */
    int users;                  /* publishers and subscribers */
    pthread_mutex_t relaying;   /* of the list of relays */
    struct list relays;
    struct job_metrics metrics;
};

/* Counts a user; bus_leave is its end. */
int bus_enter(weft_bus *b, const char *call);
void bus_leave(weft_bus *b);
int bus_serve(weft_bus *b); /* starts the server, once */
/* The time until which a call with this timeout waits. */
int bus_until(const weft_bus *b, const char *call, int64_t timeout_ns, int64_t *until);
/* How this process is reached, as lines of a record. The server is started. */
void bus_way(const weft_bus *b, struct text *t);
/* A connection of its own to the directory, for a watch. */
int bus_open_directory(const weft_bus *b, int64_t until, struct directory **out);
#endif
