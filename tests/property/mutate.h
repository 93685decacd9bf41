/* Breaks one thing in the plans of all ranks. What comes out is well-formed except for the change:
 * the mutants are meant for verify, not for the check of bounds. */
#ifndef WEFT_TESTS_MUTATE_H
#define WEFT_TESTS_MUTATE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loose.h"

typedef bool mutate_function(struct mutation *m);

enum { MUTATIONS = 25 };
extern const struct mutation_kind {
    const char *name;
    mutate_function *mutate;
} mutations[MUTATIONS];

/* What is stated follows what is sent, so that the sum of all bytes gives nothing away.
 * out[r] is a new plan where rank r's was changed, otherwise NULL. False: nothing to break here. */
bool mutate_plans(const weft_plan *const *all, size_t ranks, int kind, uint64_t seed, weft_plan **out, char text[256]);
#endif
