/* One rank of weft under measurement. */
#ifndef WEFT_BENCH_RANKS_RANK_WEFT_H
#define WEFT_BENCH_RANKS_RANK_WEFT_H
#include "bench/ranks/link.h"
#include "bench/ranks/orders.h"

/* How weft's own ranks run. */
struct weft_setup {
    const char *on;                /* "threads:" or "shm:"; with a link "auto:" */
    const struct bench_link *link; /* the hosts that the ranks are on; NULL: this one */
    bool private_;                 /* tensors in private memory: staged on threads */
    const char *algorithm;         /* NULL: the chooser's */
    const char *without;           /* a driver or way that is switched off; NULL: none */
    bool check;                    /* messages are checked */
};

/* One rank of weft, until an order says to quit. */
void rank_weft_serve(const struct weft_setup *how, const char *url, int rank, struct orders *b);
#endif
