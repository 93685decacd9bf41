/* The suite that every transport passes: the tests of a program, run with their ranks on one transport after another. A
 * new transport is a line in a list of conformance.c. */
#ifndef WEFT_TESTS_CONFORMANCE_H
#define WEFT_TESTS_CONFORMANCE_H
#include <stdbool.h>
#include <stddef.h>

#include "ranks.h"
#include "suite.h"

/* Sanitizers look at one process, and forks of theirs are slow. TSan tells threads' accesses apart by address, and with
 * shm each rank sees the shared words at another one. */
enum {
    CONFORMANCE_ALL = 3, /* transports on one host */
#if defined(__SANITIZE_THREAD__)
    CONFORMANCE_ON = 1, /* of them here */
#elif defined(__SANITIZE_ADDRESS__)
    CONFORMANCE_ON = 2,
#else
    CONFORMANCE_ON = CONFORMANCE_ALL,
#endif
};

extern size_t conformance_row; /* of the list of places with several hosts; or which MPI it is */

/* Places for SUITE_AT: on one host, on several (the tests NAME_hosts), on both; and tests that have no ranks, once, but
 * not where the program is run again for several hosts. */
extern const struct suite_places conformance_one_host, conformance_hosts, conformance_everywhere, conformance_alone;

/* The ranks are launched ones of MPI (conformance_mpi.sh). */
bool conformance_on_mpi(void);

/* Do the ranks reach each other by a wire? */
bool conformance_on_hosts(void);

/* Is a run to be done here that has i ranks, or is number i of several? To connect takes its time: unless all is
 * asked for, each row has its share. */
bool conformance_takes(int i);

/* Between runs and a meeting outside weft: what a rank has sent may wait in the wire for its next call of weft. */
int conformance_settle(struct ranks_rank *r);
#endif
