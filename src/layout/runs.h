/* Strided runs: index sets along one dim, with the place of each index.
 *
 * A run relates positions to places: position at + i*step + o is at place to + i*tostep + o, for 0 <= i < n, 0 <= o <
 * len. A block-cyclic piece of any size is a handful of runs, an ordinary piece is one. Everything that layouts do
 * along a dim is the join of two such lists on their positions: nesting splits, intersecting a source's piece with a
 * destination's, cutting. */
#ifndef WEFT_LAYOUT_RUNS_H
#define WEFT_LAYOUT_RUNS_H
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"

#define RUNS_MOST (1 << 22) /* most runs of one list */

struct run {
    int64_t at, len, n, step; /* len >= 1, n >= 1; n == 1: step and tostep are 0; n > 1: step >= len */
    int64_t to, tostep;
};

struct runs {
    struct run *v;
    size_t n, cap;
    struct arena *arena; /* where v lives */
};

/* One run of a join: the positions, and their places on either side. */
struct pair_run {
    int64_t at, len, n, step;
    int64_t a, astep, b, bstep;
};
struct pair_runs {
    struct pair_run *v;
    size_t n, cap;
    struct arena *arena;
};

/* All functions that add runs return 0, WEFT_ENOMEM, or WEFT_EUNSUPPORTED if a list would have more than RUNS_MOST
 * runs. */
int runs_add(struct runs *l, struct run r); /* an empty run (n or len < 1) is left out */
int64_t runs_count(const struct runs *l);   /* number of positions, each as often as it is in the list */
/* Appends to out all positions that are in both. Cost: the runs that come out plus, for each pair of runs that overlap,
 * one period of the two strides or the repetitions of one of them, whichever is less. Order: by a's runs, then b's. */
int runs_join(const struct runs *a, const struct runs *b, struct pair_runs *out);
int64_t runs_pair_count(const struct pair_runs *l);
/* The part [lo, hi) of a pair list, if its positions are numbered from 0 in the order of the list, repetition by
 * repetition. */
int runs_pair_cut(const struct pair_runs *l, int64_t lo, int64_t hi, struct pair_runs *out);
#endif
