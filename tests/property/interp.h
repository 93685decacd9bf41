/* A second way to run plans, for tests: all ranks in one thread, element by element, in any order
 * that deps and messages permit. It believes nothing that a plan says: an index or a place that is
 * out of bounds ends the run as broken, so that plans which are wrong can be run to see what
 * they do. */
#ifndef WEFT_TESTS_INTERP_H
#define WEFT_TESTS_INTERP_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "interp_data.h"

enum interp_result { INTERP_DONE, INTERP_HANGS, INTERP_BROKEN };

/* Which of the steps that could run does: */
enum interp_order {
    INTERP_FORWARD,  /* the first of the lowest rank */
    INTERP_BACKWARD, /* the last of the highest rank */
    INTERP_RANDOM
};

struct interp_schedule {
    enum interp_order order;
    bool late;     /* a SEND is read when its RECV runs, or the folds that it feeds, and counts as done only then */
    bool in_place; /* source and destination share memory wherever that is legal */
    uint64_t seed;
};

/* Runs all plans. On INTERP_DONE *out has the bytes of all destinations. */
enum interp_result interp_run(const weft_plan *const *all, size_t ranks, struct interp_schedule how, uint64_t data,
                              unsigned char **out, size_t *bytes);
#endif
