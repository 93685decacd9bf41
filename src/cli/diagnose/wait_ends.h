/* How the waits of a job's ranks end: the ranks that hold up all others. */
#ifndef WEFT_CLI_DIAGNOSE_WAIT_ENDS_H
#define WEFT_CLI_DIAGNOSE_WAIT_ENDS_H
#include "cli/diagnose/flight_files.h"
#include "tool/failure.h"

/* How the waits end. A set of ranks of which each waits for all others, maybe through others, and none for a rank
 * outside, is an end: one rank that waits for nobody holds up the others, several are in a circle. */
struct wait_ends {
    int *set;     /* of each rank */
    int *size;    /* of each set, in ranks */
    bool *is_end; /* of each set: somebody waits for it or in it, and it does not wait for another */
    int sets;
};
int wait_ends_find(const struct flight_files *fl, struct wait_ends *out, struct failure *f);
void wait_ends_free(struct wait_ends *e);
#endif
