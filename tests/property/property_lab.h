/* A case made real: its layouts, an oracle and buffers for each of its moves, the plans of all ranks. */
#ifndef WEFT_TESTS_PROPERTY_LAB_H
#define WEFT_TESTS_PROPERTY_LAB_H
#include <stdbool.h>
#include <stdint.h>

#include "cli/check/oracle_impl.h"
#include "support/property_case.h"

#define LAB_UNTOUCHED 0x5a /* what a destination holds before a run */

/* The words for a law that does not hold, and the commands for the pairs that it used if those are not the case's own.
 */
struct why {
    char text[2000], again[4000];
};
__attribute__((format(printf, 2, 3))) bool lab_broken(struct why *w, const char *fmt, ...);

struct lab {
    const struct property_case *c;
    int world;
    weft_layout *layout[CASE_MOVES][2];
    weft_move moves[CASE_MOVES];
    struct oracle *oracle[CASE_MOVES];
    void *src[CASE_MOVES * CASE_RANKS], *dst[CASE_MOVES * CASE_RANKS],
        *want[CASE_MOVES * CASE_RANKS]; /* [move * world + rank] */
    weft_plan *plans[CASE_RANKS];
    weft_lower_opts opts; /* points to the machine */
    weft_machine machine;
};
void lab_close(struct lab *l);

/* Layouts and options. `world` is at least the case's. Close it whatever comes of this. */
bool lab_layouts(struct lab *l, const struct property_case *c, int world, struct why *why);

/* The command that checks a pair with the options of a case. */
void lab_again(const struct property_case *c, const weft_layout *src, const weft_layout *dst, struct text *t);
void *lab_buffer(int64_t bytes);

/* Oracles, and sources filled with data; what must come out is in want, over what a destination holds before. */
bool lab_data(struct lab *l, bool wild, struct why *why);
bool lab_lower(struct lab *l, struct why *why);

/* Does the forced algorithm take the case? Ranks that do not agree about it break a law. */
bool lab_fits(const struct lab *l, struct why *why);
bool lab_compare(const struct lab *l, struct why *why);

/* What each slot of a rank's buffer stands for: twice the element's number, and 1 more in a ghost; -1 for nothing. The
 * caller frees it. */
int64_t *lab_slots(const struct oracle_side *s, int rank, int64_t *count);
#endif
