/* One line of a benchmark: all contenders do the same work, in rounds that take turns, and medians are kept. */
#ifndef WEFT_BENCH_HARNESS_MEASURE_H
#define WEFT_BENCH_HARNESS_MEASURE_H
#include "bench/harness/contenders.h"
#include "tool/failure.h"

enum { MEASURE_ROUNDS = 25, MEASURE_PASSES = 3, MEASURE_FIGURES = 96 };

struct measure {
    double seconds; /* for each contender */
    int rounds;
    bool explain; /* ask weft how it does each cell */
};

/* The times of one contender, in one of its ways, in seconds. */
struct figure {
    char who[64];
    enum work_kind kind;
    const char *without; /* weft: what is switched off; NULL: nothing */
    int variant;
    double each;         /* a call of many back to back, slowest rank: median over rounds */
    double least;        /* the same, of the best round */
    double single, tail; /* a call after a barrier: median and 95th percentile */
    int64_t wrong;       /* elements */
    double made;         /* time to prepare it, slowest rank; 0: not known */
    bool brief;          /* too slow, compared with the others of its kind, to be measured further */
};

struct row {
    char label[64];
    struct work_cell cell;
    int ranks, workers; /* workers: the processes that copied memory */
    struct figure f[MEASURE_FIGURES];
    int n;
    double aim_share, aim_ratio;  /* aims: share of memcpy; best peer over weft; 0: none */
    char refused[300];            /* why weft cannot do the cell; then nothing was measured */
    char *explain, *explain_json; /* how weft does it, if that was asked for; owned by the report */
    double copy; /* bytes a second of memcpy by the workers, about as much as the cell moves; 0: not measured */
};

/* Measures the cell on all contenders. If the rounds of one contender differ too much, all rounds are done again, at
 * most twice. Contenders that fail are out afterwards, and have no figures. */
int measure_row(struct contenders *f, const struct measure *m, struct row *row, struct failure *why);
/* The time that counts. In general it is that of calls back to back. The calls of a broadcast overlap, so there it is
 * at least that of a single call (with more ranks than cores, from the root's start to the last rank's end). For a
 * reshard and for many tensors it is that of a single call, from the first rank's start to the last one's end. */
double measure_time(const struct row *row, const struct figure *f);
/* The fastest right one of a kind, NULL if there is none. */
const struct figure *measure_best(const struct row *row, enum work_kind kind);
#endif
