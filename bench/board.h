/* How the command drives the ranks it measures, whatever they are made of: a board in shared memory, on which it writes
 * an order and the ranks their reports. Idle ranks sleep, so that several groups stand ready and take turns. */
#ifndef WEFT_BENCH_BOARD_H
#define WEFT_BENCH_BOARD_H
#include <stdatomic.h>

#include "bench/work.h"

enum { BOARD_RANKS = 64, BOARD_SINGLES = 2000, BOARD_WAYS = 3 };

enum board_verb {
    BOARD_READY, /* nothing: who has done it has started up */
    BOARD_OPEN,  /* make ready for the cell */
    BOARD_CHECK, /* run it once on known values and count what is wrong */
    BOARD_TIME,
    BOARD_QUIT
};

struct board_order {
    enum board_verb verb;
    struct work_cell cell; /* open */
    int variant;           /* check, time */
    int warm, runs;        /* time: calls not timed, then calls back to back */
    int singles;           /* and then calls with a barrier before each */
};

struct board {
    uint32_t ranks;
    _Atomic uint32_t here;               /* ranks that have started up */
    _Alignas(128) _Atomic uint32_t turn; /* counts orders */
    _Alignas(128) _Atomic uint32_t done; /* ranks that have done this one */
    _Alignas(128) struct board_order order;
    struct board_report {
        _Alignas(128) double each; /* seconds a call, back to back (time) or of the first one (check) */
        int64_t wrong;
        int err; /* 0, or the rank could not, and says why */
        char why[236];
        double made[BOARD_WAYS]; /* open: seconds that making each way ready took; 0: not said */
    } report[BOARD_RANKS];
    double from[BOARD_RANKS][BOARD_SINGLES], to[BOARD_RANKS][BOARD_SINGLES]; /* of the single calls */
};

/* One rank of what is measured. Functions return 0, or say in *why what is wrong. */
struct subject {
    void *self;
    int rank, ranks;
    int (*open)(void *self, const struct work_cell *cell, char *why, size_t cap); /* in the place of what was open */
    double made[BOARD_WAYS];                                                      /* what open took, where it says so */
    void (*fill)(void *self, int variant);
    int64_t (*check)(void *self, int variant);
    int (*barrier)(void *self);
    int (*call)(void *self, int variant);
    void (*idle)(void *self);   /* now and then while other ranks still work; NULL: not needed */
    const char *(*words)(void); /* of the last call or barrier that failed; NULL: none */
};

/* Does orders until told to quit. */
void board_serve(struct board *b, const struct subject *s);
/* The other end: writes the order. Then waits for at most `seconds`, true once all ranks have done it. */
void board_order(struct board *b, const struct board_order *order);
bool board_wait(struct board *b, double seconds);
#endif
