/* The contenders: weft, the floor and the MPI libraries, each a group of ranks that stands ready and sleeps until its
 * turn. Ranks are processes (or the threads of one), driven through struct orders. */
#ifndef WEFT_BENCH_HARNESS_CONTENDERS_H
#define WEFT_BENCH_HARNESS_CONTENDERS_H
#include <sys/types.h>

#include "bench/ranks/rank_weft.h"

struct contender {
    char name[40];
    enum work_kind kind;
    struct orders *orders;
    int fd, log;             /* of the orders' memory; of what a peer says on stderr */
    pid_t pid[ORDERS_RANKS]; /* of its processes, or of its launcher; 0: ended */
    int npids;
    bool out;            /* could not be started, or failed: not asked any more */
    const char *without; /* weft: the driver or way that is switched off; NULL: none */
    char why[300];
};

enum { CONTENDERS_MAX = 48 };

/* All that are measured together. */
struct contenders {
    struct contender c[CONTENDERS_MAX];
    int n;
};

/* Each adds a group of that many ranks to the contenders. A group that cannot be had is added as one that is out. */
void contenders_add_weft(struct contenders *f, const struct weft_setup *how, int ranks);
/* Windows that the largest of the cells needs. */
void contenders_add_floors(struct contenders *f, int ranks, bool staged, const struct work_cell *cells, int ncells);
void contenders_add_memory(struct contenders *f, int workers); /* a floor for copies, reads and writes alone */
/* The MPI libraries that bench/peer_mpi was built for and whose launcher is there, on the hosts of a link if there is
 * one; returns how many. */
int contenders_peers_add(struct contenders *f, int ranks, const struct bench_link *link);
/* The next contender, with orders of its own; out already if there is none to be had. */
struct contender *contenders_add(struct contenders *f, const char *name, enum work_kind kind, int ranks);
/* A child that dies with this process; 0 in it. */
pid_t contenders_spawn(struct contender *c);
void contenders_close(struct contenders *f);

/* Gives one order and waits for it; a signal (signals_watch) ends that. 0; or c->why says what is wrong, and the
 * contender is out from now on unless the order was to open a cell, which it then cannot do. */
int contenders_do(struct contender *c, const struct order *order);
#endif
