/* Which ranks of a job hold up all others. */
#ifndef WEFT_CLI_DIAGNOSE_WAIT_ENDS_H
#define WEFT_CLI_DIAGNOSE_WAIT_ENDS_H
#include "cli/diagnose/flight_files.h"
#include "tool/failure.h"

/* Where the chains of waits end. An end is a set of ranks in which each waits for all others, directly or through
 * others, and none waits for a rank outside. An end of one rank holds up the others and waits for no rank. An end of
 * several ranks is a circle. */
struct wait_ends {
    int *set;     /* of each rank */
    int *size;    /* of each set, in ranks */
    bool *is_end; /* for each set: a rank waits for it or in it, and it does not wait for another set */
    int sets;
};
int wait_ends_find(const struct flight_files *fl, struct wait_ends *out, struct failure *f);
void wait_ends_free(struct wait_ends *e);
#endif
