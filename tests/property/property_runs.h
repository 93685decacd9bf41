/* The law of a campaign that runs its cases: through each other's memory and through staging, in place where that is
 * legal (and refused where it is not), with strided views, several tensors in one plan, and by any algorithm. Each runs
 * twice and must give the oracle's bits, twice the same. Where it runs is for the program to say. */
#ifndef WEFT_TESTS_PROPERTY_RUNS_H
#define WEFT_TESTS_PROPERTY_RUNS_H
#include <stdbool.h>
#include <stdint.h>

#include "property_trial.h"

#define RUNS_SEED 20240611

/* What the campaign has seen, so that a law is not kept by having nothing to judge. */
extern struct runs_seen {
    int64_t cases, staged, shared, refused, chosen;
} runs_seen;

/* Binds the job and runs it twice; *refused: bind said that the memory overlaps in a way that is not legal. */
typedef bool runs_run(struct trial_job *j, bool *refused, struct why *why);

/* On a comm of `size` ranks. */
bool runs_law(const struct property_case *c, int size, struct trial_group *group, runs_run *run, struct why *why);

/* The chooser's, the general one, or any by name; where that does not do the case, the chooser's again. */
void runs_pick_algorithm(struct property_case *c);

/* After a campaign: everything broke no law, and everything was there. */
void runs_judge(const char *where);
#endif
