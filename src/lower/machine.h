/* Which rank is on which host, by the machine that the caller describes. */
#ifndef WEFT_LOWER_MACHINE_H
#define WEFT_LOWER_MACHINE_H
#include <stdbool.h>

#include "weft.h"

bool machine_hosts(const weft_machine *m, int world); /* are the ranks of the world on more than one host? */
int machine_host(const weft_machine *m, int rank);    /* the host of a rank */
#endif
