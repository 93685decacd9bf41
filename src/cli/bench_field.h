/* Who is measured: weft, the floor and the MPI libraries, each a group of ranks that stands ready and sleeps until its
 * turn. Ranks are processes (or the threads of one), driven through a board. */
#ifndef WEFT_CLI_BENCH_FIELD_H
#define WEFT_CLI_BENCH_FIELD_H
#include <sys/types.h>

#include "bench/board.h"
#include "cli/bench_link.h"
#include "cli/cli.h"

struct contender {
    char name[40];
    enum work_kind kind;
    struct board *board;
    int fd, log;            /* of the board; of what a peer says on stderr */
    pid_t pid[BOARD_RANKS]; /* of its processes, or of its launcher; 0: ended */
    int npids;
    bool out; /* could not be started, or failed: not asked any more */
    char why[300];
};

enum { FIELD_MAX = 24 };

/* All that are measured together. */
struct field {
    struct contender c[FIELD_MAX];
    int n;
};

/* How weft's own ranks run. */
struct field_weft {
    const char *on;                /* "threads:" or "shm:"; with a link "auto:" */
    const struct bench_link *link; /* the hosts that the ranks are on; NULL: this one */
    bool private_;                 /* tensors in private memory: staged on threads */
    const char *algorithm;         /* NULL: the chooser's */
};

/* Each adds a group of so many ranks to the field. A group that cannot be had is added as one that is out. */
void field_add_weft(struct field *f, const struct field_weft *how, int ranks);
/* Windows that the largest of the cells needs. */
void field_add_floors(struct field *f, int ranks, bool staged, const struct work_cell *cells, int ncells);
void field_add_memory(struct field *f, int workers); /* a floor for copies, reads and writes alone */
/* The MPI libraries that bench/peer_mpi was built for and whose launcher is there, on the hosts of a link if there is
 * one; returns how many. */
int field_add_peers(struct field *f, int ranks, const struct bench_link *link);
/* The next contender, with a board; out already if there is none to be had. */
struct contender *field_add(struct field *f, const char *name, enum work_kind kind, int ranks);
/* A child that dies with this process; 0 in it. */
pid_t contender_spawn(struct contender *c);
void field_close(struct field *f);

/* Gives one order and waits for it; a signal (signals_watch) ends that. 0; or c->why says what is wrong, and the
 * contender is out from now on unless the order was to open a cell, which it then cannot do. */
int contender_do(struct contender *c, const struct board_order *order);

/* One rank of weft, until the board says to quit. */
void weft_rank_serve(const struct field_weft *how, const char *url, int rank, struct board *b);
#endif
