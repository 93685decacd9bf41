/* The contenders: weft, the floor and the MPI libraries. Each is a group of ranks that sleeps until its turn. Ranks are
 * processes (or the threads of one), driven through struct orders. */
#ifndef WEFT_BENCH_HARNESS_CONTENDERS_H
#define WEFT_BENCH_HARNESS_CONTENDERS_H
#include <sys/types.h>

#include "bench/ranks/rank_weft.h"

struct contender {
    char name[40];
    enum work_kind kind;
    struct orders *orders;
    int fd, log;             /* of the orders' memory; of a peer's stderr */
    pid_t pid[ORDERS_RANKS]; /* of its processes, or of its launcher; 0: ended */
    int npids;
    bool out;            /* could not be started, or failed: it gets no more orders */
    const char *without; /* weft: the driver or way that is switched off; NULL: none */
    char why[300];
};

enum { CONTENDERS_MAX = 48 };

/* All that are measured together. */
struct contenders {
    struct contender c[CONTENDERS_MAX];
    int n;
};

/* Each adds a group of `ranks` ranks to the contenders. A group that cannot be made is added as one that is out. */
void contenders_add_weft(struct contenders *f, const struct weft_setup *how, int ranks);
/* Makes windows that are large enough for the largest of the cells. */
void contenders_add_floors(struct contenders *f, int ranks, bool staged, const struct work_cell *cells, int ncells);
void contenders_add_memory(struct contenders *f, int workers); /* a floor for copies, reads and writes alone */
/* Adds the MPI libraries that bench/peer_mpi was built for and whose launcher is installed, on the hosts of a link if
 * there is one. Returns how many. */
int contenders_peers_add(struct contenders *f, int ranks, const struct bench_link *link);
/* The next contender, with orders of its own. It is out from the start if it cannot be made. */
struct contender *contenders_add(struct contenders *f, const char *name, enum work_kind kind, int ranks);
/* Forks a child that dies with this process; returns 0 in the child. */
pid_t contenders_spawn(struct contender *c);
void contenders_close(struct contenders *f);

/* Gives one order and waits until it is done; a signal (signals_watch) ends the wait. Returns 0, or c->why says what is
 * wrong. After an error the contender is out, with one exception: if the order was to open a cell, it only cannot do
 * this cell. */
int contenders_do(struct contender *c, const struct order *order);
#endif
