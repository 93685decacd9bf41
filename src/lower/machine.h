/* Which rank is on which host, by the machine that the caller describes. */
#ifndef WEFT_LOWER_MACHINE_H
#define WEFT_LOWER_MACHINE_H
#include <stdbool.h>
#include <stdint.h>

#include "weft.h"

bool machine_hosts(const weft_machine *m, int world); /* are the ranks of the world on more than one host? */
int machine_host(const weft_machine *m, int rank);    /* the host of a rank */
/* Which of its host's links a rank uses: the ranks of a host share them evenly. A table of hosts is looked through. */
int machine_link(const weft_machine *m, int rank);
/* Is it cheaper to send `bytes` to one of a host's takers, which passes them on, than to each of them? Compares the
 * further copies on the link with one more hop inside the host. */
bool machine_hand_on(const weft_machine *m, int64_t bytes, int64_t takers);
#endif
