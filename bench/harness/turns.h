/* Contenders that a table drives itself, one order after the other. */
#ifndef WEFT_BENCH_HARNESS_TURNS_H
#define WEFT_BENCH_HARNESS_TURNS_H
#include "bench/harness/contenders.h"
#include "tool/failure.h"

/* Opens the cell and runs it once on known values. *wrong: elements. */
int turns_open(struct contender *c, const struct work_cell *cell, int64_t *wrong, struct failure *why);
/* Seconds for each of `runs` calls back to back, on the slowest rank. */
int turns_time(struct contender *c, int runs, double *seconds, struct failure *why);
#endif
