/* How the command drives the ranks that it measures, of any kind. It writes an order into struct orders in shared
 * memory, and the ranks write their reports there. Idle ranks sleep, so that several groups can be ready and take
 * turns. */
#ifndef WEFT_BENCH_RANKS_ORDERS_H
#define WEFT_BENCH_RANKS_ORDERS_H
#include <stdatomic.h>

#include "bench/work/work.h"

enum { ORDERS_RANKS = 64, ORDERS_SINGLES = 2000, ORDERS_WAYS = 3, ORDERS_TEXT = 1 << 20 };

enum order_verb {
    ORDER_READY, /* nothing: a rank that answers has started up */
    ORDER_OPEN,  /* prepare the cell */
    ORDER_CHECK, /* run it once on known values and count what is wrong */
    ORDER_TIME,
    ORDER_EXPLAIN, /* rank 0 writes how it does the cell */
    ORDER_QUIT
};

struct order {
    enum order_verb verb;
    struct work_cell cell; /* open */
    int variant;           /* check, time */
    int warm, runs;        /* time: calls not timed, then calls back to back */
    int singles;           /* and then calls with a barrier before each */
    bool json;             /* explain: as JSON, not as text */
};

struct orders {
    uint32_t ranks;
    _Atomic uint32_t here;               /* ranks that have started up */
    _Alignas(128) _Atomic uint32_t turn; /* counts orders */
    _Alignas(128) _Atomic uint32_t done; /* ranks that have done this one */
    _Alignas(128) struct order order;
    struct order_report {
        _Alignas(128) double each; /* seconds a call, back to back (time) or of the first one (check) */
        int64_t wrong;
        int err; /* 0, or the rank could not, and says why */
        char why[236];
        double made[ORDERS_WAYS]; /* open: seconds to prepare each way; 0: not known */
    } report[ORDERS_RANKS];
    double from[ORDERS_RANKS][ORDERS_SINGLES], to[ORDERS_RANKS][ORDERS_SINGLES]; /* of the single calls */
    char text[ORDERS_TEXT]; /* explain; empty if there is nothing to say */
};

/* One rank that is measured. Functions return 0, or say in *why what is wrong. */
struct subject {
    void *self;
    int rank, ranks;
    int (*open)(void *self, const struct work_cell *cell, char *why, size_t cap); /* replaces the cell that was open */
    /* Seconds that open took, if it says so. */
    double made[ORDERS_WAYS];
    void (*fill)(void *self, int variant);
    int64_t (*check)(void *self, int variant);
    int (*barrier)(void *self);
    int (*call)(void *self, int variant);
    int (*explain)(void *self, bool json, char *buf, size_t cap); /* NULL: nothing to say */
    void (*idle)(void *self);   /* called now and then while other ranks still work; NULL: not needed */
    const char *(*words)(void); /* error text of the last call or barrier that failed; NULL: none */
};

/* Does orders until an order says to quit. */
void orders_serve(struct orders *b, const struct subject *s);
/* The other end. The first writes the order. The second waits for at most `seconds`; true: all ranks have done it. */
void orders_give(struct orders *b, const struct order *order);
bool orders_await(struct orders *b, double seconds);
#endif
